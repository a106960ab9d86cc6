"""What the tests of several folders share."""

import importlib
import os
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tools import chi2comb as wheel

# On a developer's machine the search for counterexamples goes on with every run; a verdict must not depend on luck.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "search")


@pytest.fixture(scope="session")
def do_without():
    """Called with what this machine lacks: a person may do without it, the continuous integration may not."""
    return pytest.fail if os.environ.get("CI") else pytest.skip


@pytest.fixture(scope="session")
def chi2comb(do_without):
    """The module of that name. Skips where there is no wheel of it, with the reason."""
    if not find_spec("chi2comb"):
        if reason := wheel.unavailable():
            pytest.skip(reason)
        do_without("chi2comb is not installed, which `python -m tools.chi2comb` does")
    return importlib.import_module("chi2comb")
