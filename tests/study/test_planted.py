"""Test audits of every mechanism: their lower bound of epsilon exceeds the promised epsilon only if a bug is planted.

An audit gives a false alarm with probability 1e-6 by construction, and misses a planted bug with probability 1e-6, as
simulations show.
"""

import numpy as np
import pytest

from egm import GaussianDataMechanism, quantiles, samplers
from egm._adaptive import private_rows
from egm._rows import lattice, people
from egm.study import planted

PATHS = pytest.mark.parametrize("path", ["secure", "simulated"])
CASES = pytest.mark.parametrize("case", planted.cases(), ids=lambda case: case.name)


def bound(case, bug, path):
    """Audit the mechanism of `case` while the bug with the name `bug` is planted; return a lower bound of its epsilon.

    The bound is computed from many releases, and holds with probability 1 - 1e-6. `path` is "secure" for secure noise,
    or "simulated" for noise from a generator with a seed.
    """
    with planted.plant(bug):
        return case.bound(None if path == "secure" else np.random.default_rng(12))


# --- Mechanisms -------------------------------------------------------------------------------------------------------


@PATHS
@CASES
def test_audit_catches_every_bug_and_is_neither_wrong_nor_blind(case, path):
    """An audit's lower bound of epsilon exceeds the promised epsilon if and only if a bug is planted.

    Without a bug, the bound must also be more than 0.75 times the promised epsilon, so that the audit would see a small
    violation. For quantiles it must be more than 0.5 times. On a coarse lattice, whose rounding hides much, it must be
    more than 0.1 times. The audited data sets are neighbors as far apart as possible. `case` is a mechanism with its
    bugs, and `path` is the kind of the noise, "secure" or "simulated". All audits of a mechanism are one test, because
    they share their secure noise.
    """
    found = bound(case, "none", path)
    least = (0.1 if "coarse" in case.name else 0.5 if "quantile" in case.name else 0.75) * case.epsilon
    if found <= least:  # one audit of the quantile in a thousand picks an event that shows little
        found = bound(case, "none", path)
    assert least < found <= case.epsilon
    assert [bug for bug in case.bugs if bound(case, bug, path) <= case.epsilon] == []


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


@pytest.mark.parametrize("bug", ["none", *sorted({bug for case in planted.cases() for bug in case.bugs})])
def test_a_bug_goes_when_the_context_ends(bug):
    """`planted.plant(bug)` changes a module or class, but only within its `with` block; "none" changes nothing."""
    owners = (samplers, quantiles, people, lattice.Lattice, GaussianDataMechanism, private_rows.PrivateRows)
    before = [dict(vars(owner)) for owner in owners]
    with planted.plant(bug):
        assert (bug == "none") is (before == [dict(vars(owner)) for owner in owners])
    assert before == [dict(vars(owner)) for owner in owners]


def test_unknown_bug():
    with pytest.raises(KeyError, match="typo"), planted.plant("typo"):
        pass
