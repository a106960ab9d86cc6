"""Sphinx extension: build the pages of the book in less time, without a change of the pages.

- Python's garbage collection is switched off. It runs often while Sphinx makes nodes, finds almost nothing, and takes a
  third of the time.
- Two slow functions are cached: the bibliography looks up its plugins in all installed packages for each reference, and
  the search index computes the stem of a word for each page.
- Pages are written by as many processes as there are cores. But one process reads them all, because otherwise what
  extensions record about each page would have to be merged from several processes.
"""

import gc
import os
from functools import cache

from pybtex import plugin
from sphinx.search.en import SearchEnglish


def share(app, env):
    """Let `app`, the Sphinx application, write pages with as many processes as there are cores.

    Sphinx calls this function when all pages have been read, so that only one process reads them. `env`, Sphinx's
    environment, is not used.
    """
    app.parallel = os.cpu_count()


def setup(app):
    """Switch off garbage collection, cache two slow functions, and let `app` write pages in parallel (`share`)."""
    gc.disable()
    plugin._load_entry_point = cache(plugin._load_entry_point)
    SearchEnglish.stem = cache(SearchEnglish.stem)
    app.connect("env-updated", share)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
