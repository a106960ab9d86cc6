"""Record with which versions and modules a chapter is executed; only its kernel, which runs the cells, knows this.

`tools.execute` makes the kernel call `start` before the first cell. After every cell the kernel writes into a file the
version of Python, the version of each package that is loaded, and the modules of `egm` that are loaded. Nothing else of
the kernel is changed.
"""

import functools
import json
import os
import platform
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path


def start(file: str, package: str) -> None:
    """Let this kernel, the process that runs a notebook, write the versions of Python and of loaded packages to `file`.

    It does so after each cell, in JSON. The loaded modules of `egm`, whose folder is `package`, are listed, too.
    """
    from IPython import get_ipython

    distributions, version_of = packages_distributions(), functools.cache(version)

    def write(_result) -> None:
        modules = dict(sys.modules)
        loaded = {name.partition(".")[0] for name in modules} & distributions.keys()
        own = [getattr(module, "__file__", None) for name, module in modules.items() if f"{name}.".startswith("egm.")]
        record = {
            "python": platform.python_version(),
            "packages": {name: [distributions[name][0], version_of(distributions[name][0])] for name in sorted(loaded)},
            "modules": sorted(os.path.relpath(path, package) for path in own if path),
        }
        Path(file).write_text(json.dumps(record, indent=1))

    get_ipython().events.register("post_run_cell", write)
