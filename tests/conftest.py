"""Fixtures for the tests of several folders."""

import importlib
import os
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tools import chi2comb as wheel

# A developer's machine searches for new counterexamples in every run; the result on CI must not depend on luck.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "search")


@pytest.fixture(scope="session")
def do_without():
    """Return a function that takes what this machine lacks: it skips the test, but fails on continuous integration."""
    return pytest.fail if os.environ.get("CI") else pytest.skip


@pytest.fixture(scope="session")
def chi2comb(do_without):
    """Return the module chi2comb, or skip the test with a reason where it has no wheel."""
    if not find_spec("chi2comb"):
        if reason := wheel.unavailable():
            pytest.skip(reason)
        do_without("chi2comb is not installed, which `python -m tools.chi2comb` does")
    return importlib.import_module("chi2comb")
