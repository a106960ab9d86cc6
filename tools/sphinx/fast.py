"""Sphinx extension: build the same pages in less time.

- Python's garbage collection is switched off. It runs often while Sphinx makes nodes, finds almost nothing, and takes
  a third of the time.
- The bibliography looks up its plugins in all installed packages for each reference, and the search index computes the
  stem of a word for each page. Their results are cached.
- Pages are written by as many processes as there are cores. They are read by a single one, because otherwise what
  extensions record about each page would have to be put together again.
"""

import gc
import os
from functools import cache

from pybtex import plugin
from sphinx.search.en import SearchEnglish


def share(app, env):
    """Let several processes write pages, after all pages have been read."""
    app.parallel = os.cpu_count()


def setup(app):
    """Switch off garbage collection, cache two functions, and connect `share` to Sphinx."""
    gc.disable()
    plugin._load_entry_point = cache(plugin._load_entry_point)
    SearchEnglish.stem = cache(SearchEnglish.stem)
    app.connect("env-updated", share)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
