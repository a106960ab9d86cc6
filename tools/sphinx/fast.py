"""Sphinx extension: the same pages in less time.

Python looks for garbage as often as Sphinx makes nodes, and finds next to none; a third of the time goes there. Pages
are written by as many processes as there are cores. They are read by one, because what extensions note of each page
would have to be put together again.
"""

import gc
import os


def share(app, env):
    """Let several processes write, now that everything is read."""
    app.parallel = os.cpu_count()


def setup(app):
    """Run before anything is read."""
    gc.disable()
    app.connect("env-updated", share)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
