"""Test audits of every mechanism: their lower bound of epsilon exceeds the promised epsilon only if a bug is planted.

An audit gives a false alarm with probability 1e-6 by construction, and misses a planted bug with probability 1e-6, as
simulations show.
"""

import functools

import numpy as np
import pytest

from egm import GaussianDataMechanism, quantiles, samplers
from egm._adaptive import private_rows
from egm._rows import lattice
from egm.study import planted

PATHS = pytest.mark.parametrize("path", ["secure", "simulated"])
BUGS = [(case.name, bug) for case in planted.cases() for bug in case.bugs]


@functools.cache
def bound(name, bug, path):
    """Audit the mechanism with the name `name` while the bug with the name `bug` is planted in the package.

    Return a pair: a lower bound of the mechanism's epsilon, which is computed from many releases and holds with
    probability 1 - 1e-6, and the promised epsilon. `path` is "secure" for secure noise, or "simulated" for noise from a
    generator with a seed.
    """
    (case,) = [case for case in planted.cases() if case.name == name]
    with planted.plant(bug):
        return case.bound(None if path == "secure" else np.random.default_rng(12)), case.epsilon


# --- Mechanisms -------------------------------------------------------------------------------------------------------


@PATHS
@pytest.mark.parametrize("name", [case.name for case in planted.cases()])
def test_no_mechanism_exceeds_its_epsilon(name, path):
    found, epsilon = bound(name, "none", path)
    assert found <= epsilon


@PATHS
@pytest.mark.parametrize(("name", "bug"), BUGS)
def test_every_bug_is_caught(name, bug, path):
    found, epsilon = bound(name, bug, path)
    assert found > epsilon


@PATHS
@pytest.mark.parametrize("name", [case.name for case in planted.cases()])
def test_the_audit_is_not_blind(name, path):
    """For a mechanism without a bug, the audit's lower bound of epsilon is more than 0.75 of the promised epsilon.

    For quantiles, more than 0.5 of it is demanded; on the coarse lattice, whose rounding hides much, more than 0.1.
    `name` is the name of the mechanism, and `path` is "secure" or "simulated", the kind of its noise. If the bound of a
    first audit is less, a second audit is made.
    """
    found, epsilon = bound(name, "none", path)
    least = (0.1 if "coarse" in name else 0.5 if "quantile" in name else 0.75) * epsilon
    if found <= least:  # one audit of the quantile in a thousand picks an event that shows little
        found, epsilon = bound.__wrapped__(name, "none", path)
    assert found > least


def test_table_has_a_row_for_each_case_and_bug():
    some = [case for case in planted.cases() if case.name in ("Laplace", "Gaussian")]
    rows = planted.table(some, np.random.default_rng(3))
    assert [(row.mechanism, row.bug) for row in rows] == [
        (name, bug) for name in ("Laplace", "Gaussian") for bug in ("none", "noise × 0.9", "sensitivity halved")
    ]
    assert [row.caught for row in rows] == [False, True, True] * 2
    assert not any(row.secure for row in rows)


# --- Rounding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bug", "passes"), [("none", True), ("rounding away from zero", False)])
def test_rounding_away_shows_in_exact_norms(bug, passes):
    """With the bug "rounding away from zero", the integer vector of some clipped row is longer than the lattice allows.

    `Lattice.sum` rounds a clipped row to a vector of integers, whose norm should be at most the radius of the lattice.
    This holds for all of 50 random rows if and only if `passes` is true, that is, if no bug is planted (`bug` is
    "none"). The norms of integer vectors are compared exactly. An audit by releases would not show the bug, because the
    lattice is too fine: its radius is 2**40.
    """
    grid, rows = lattice.Lattice(0.7, 3, 8.0), np.random.default_rng(4).normal(size=(50, 3))
    with planted.plant(bug):
        lengths = [sum(int(entry) ** 2 for entry in grid.sum(row[None])) for row in rows]
    assert (max(lengths) <= grid.radius**2) is passes


# --- Planting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", ["none", *sorted({bug for _, bug in BUGS})])
def test_a_bug_goes_when_the_context_ends(bug):
    owners = (samplers, quantiles, lattice.Lattice, GaussianDataMechanism, private_rows.PrivateRows)
    before = [dict(vars(owner)) for owner in owners]
    with planted.plant(bug):
        assert (bug == "none") is (before == [dict(vars(owner)) for owner in owners])
    assert before == [dict(vars(owner)) for owner in owners]


def test_unknown_bug():
    with pytest.raises(KeyError, match="typo"), planted.plant("typo"):
        pass
