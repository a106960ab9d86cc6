"""Record what a chapter is executed with, in the chapter's own kernel, because only that knows.

`tools.execute` has the kernel call `start` before the first cell. After every cell the kernel writes down its Python,
the version of each package loaded by then, and the modules of `egm` among them. Nothing else of the kernel is changed.
"""

import json
import os
import platform
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path


def start(file: str, package: str) -> None:
    """Write the record to a file after each cell; modules are named by their paths from the folder of the package."""
    from IPython import get_ipython

    distributions = packages_distributions()

    def write(_result) -> None:
        modules = dict(sys.modules)
        loaded = {name.partition(".")[0] for name in modules} & distributions.keys()
        own = [getattr(module, "__file__", None) for name, module in modules.items() if f"{name}.".startswith("egm.")]
        record = {
            "python": platform.python_version(),
            "packages": {name: [distributions[name][0], version(distributions[name][0])] for name in sorted(loaded)},
            "modules": sorted(os.path.relpath(path, package) for path in own if path),
        }
        Path(file).write_text(json.dumps(record, indent=1))

    get_ipython().events.register("post_run_cell", write)
