"""Provide the fixtures that tests in several folders use."""

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


def slow(*cases):
    """Return a list of `cases` for pytest.mark.parametrize, each with the mark "slow": `make check` leaves them out.

    A case is the value of one argument, or a tuple with the values of several arguments.
    """
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]


@pytest.fixture
def silent(monkeypatch):
    """Replace secure Gaussian noise by zeros during a test; return a list that records each draw of noise.

    For each draw, the pair (standard deviation, number of values) is appended to the list. Noise is secure if its
    random bits come from the operating system.
    """
    drawn = []
    monkeypatch.setattr("egm.samplers.secure_gaussian", lambda std, size: drawn.append((std, size)) or [0] * size)
    return drawn


@pytest.fixture(scope="session")
def do_without():
    """Return the function that a test calls, with a reason, if this machine lacks a program or package that it needs.

    On a developer's machine the function is pytest.skip, so the test is skipped. In continuous integration, where
    everything must be installed, the function is pytest.fail, so the test fails.
    """
    return pytest.fail if os.environ.get("CI") else pytest.skip


@pytest.fixture(scope="session")
def chi2comb(do_without):
    """Return the module chi2comb, or skip the test if there is no wheel (binary package) of chi2comb for this machine.

    The package chi2comb computes tails of sums of chi-square variables. If there is a wheel, but chi2comb is not
    installed, the function `do_without` is called: it skips the test, or makes it fail in continuous integration.
    """
    if not find_spec("chi2comb"):
        if reason := wheel.unavailable():
            pytest.skip(reason)
        do_without("chi2comb is not installed, which `python -m tools.chi2comb` does")
    return importlib.import_module("chi2comb")
