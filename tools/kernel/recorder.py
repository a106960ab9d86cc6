"""What a chapter was executed with: written by the chapter's own kernel, because only that knows.

`tools.execute` has the kernel call `start` before the first cell. After every cell the kernel writes down its Python,
the version of each package loaded by then, and where random numbers came from: the seeds that
`numpy.random.default_rng` was given, and the sources in use that no seed decides: a generator made without a number,
the generators that Python and NumPy have once for a whole process, and OpenDP, which `egm` loads only to draw secure
noise. Nothing else of the kernel is changed, and the numbers drawn are the same.
"""

import json
import platform
import random
import sys
from functools import wraps
from importlib import import_module
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

# NumPy's global generator is looked at here, not drawn from.
STATES = {"random": random.getstate, "numpy.random": lambda: str(np.random.get_state())}  # noqa: NPY002


def importing() -> bool:
    """Whether a module is being imported: what it draws then is its own affair, and always the same."""
    frame = sys._getframe()
    while frame and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


def watch_seeds() -> set:
    """Wrap `numpy.random.default_rng` so that what a new generator is made of is kept: a whole number, or None."""
    given, original = set(), np.random.default_rng

    @wraps(original)
    def default_rng(seed=None):
        if not isinstance(seed, (np.random.Generator, np.random.RandomState)) and not importing():
            given.add(int(seed) if isinstance(seed, (int, np.integer)) else None)
        return original(seed)

    np.random.default_rng = default_rng
    return given


def states() -> dict:
    """The states of the generators that a process has once for all."""
    return {name: state() for name, state in STATES.items()}


def start(file: str) -> None:
    """Write the record to a file after each cell, beginning with the next."""
    from IPython import get_ipython

    if find_spec("rich"):  # which others import if it is there, and which draws when it is imported
        import_module("rich.style")
    given, unseeded, before, distributions = watch_seeds(), set(), {}, packages_distributions()

    def remember(_info) -> None:
        before.update(states())

    def write(_result) -> None:
        unseeded.update(name for name, state in states().items() if state != before[name])
        unseeded.update(["OpenDP"] * ("opendp" in sys.modules) + ["numpy.random.default_rng"] * (None in given))
        loaded = {name.partition(".")[0] for name in list(sys.modules)} & distributions.keys()
        record = {
            "python": platform.python_version(),
            "packages": {name: [distributions[name][0], version(distributions[name][0])] for name in sorted(loaded)},
            "seeds": sorted(given - {None}),
            "unseeded": sorted(unseeded),
        }
        Path(file).write_text(json.dumps(record, indent=1))

    get_ipython().events.register("pre_run_cell", remember)
    get_ipython().events.register("post_run_cell", write)
