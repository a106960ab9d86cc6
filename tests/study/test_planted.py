"""Test audits of mechanisms: their lower bound of epsilon exceeds the promised epsilon only if a bug is planted.

A bug is planted by changing the code on purpose. The probability of a false alarm is at most 1e-6, and so is that of
missing a planted bug.
"""

import collections
import functools

import numpy as np
import pytest

from egm import GaussianDataMechanism, quantiles, samplers
from egm._adaptive import private_rows
from egm._budget import drawn
from egm._rows import lattice, people
from egm.audit import lower_bound, replay
from egm.budget import Budget
from egm.study import planted

PATHS = pytest.mark.parametrize("path", ["secure", "simulated"])
CASES = pytest.mark.parametrize("case", planted.cases(), ids=lambda case: case.name)


def bound(case, bug, path):
    """Audit the mechanism of `case` with the planted bug `bug`; return a lower bound of its epsilon.

    The bound holds with probability 1 - 1e-6. `case` has a mechanism and its audit. `bug` is the name of a deliberate
    error in the code, or "none". `path` is "secure" for the noise of real releases, or "simulated" for noise from a
    generator with a seed.
    """
    with planted.plant(bug):
        return case.bound(None if path == "secure" else np.random.default_rng(12))


# --- Mechanisms -------------------------------------------------------------------------------------------------------


@PATHS
@CASES
def test_audit_catches_every_bug_and_is_neither_wrong_nor_blind(case, path):
    """An audit's lower bound of epsilon exceeds the promised epsilon if and only if a bug is planted.

    Without a bug, the bound must also be more than 0.75 times the promised epsilon, so that a small violation would be
    found; for two difficult kinds of mechanisms a smaller factor is enough. `case` has a mechanism and the names of the
    bugs that can be planted in it. `path` is "secure" for the noise of real releases, or "simulated" for noise from a
    generator with a seed.
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
    """If clipped rows are rounded away from zero, the integer vector of some row is longer than the sensitivity allows.

    Before a release the entries of each clipped row are rounded to integer multiples of a unit. The unit is so small
    that an audit would not find this bug from releases. If no bug is planted (`bug` is "none" and `passes` is True),
    the integer vectors of all 50 rows are short enough.
    """
    grid, rows = lattice.Lattice(0.7, 3, 8.0), np.random.default_rng(4).normal(size=(50, 3))
    with planted.plant(bug):
        lengths = [sum(int(entry) ** 2 for entry in grid.sum(row[None])) for row in rows]
    assert (max(lengths) <= grid.radius**2) is passes


# --- Planting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", ["none", *sorted({bug for case in planted.cases() for bug in case.bugs})])
def test_a_bug_goes_when_the_context_ends(bug):
    """`planted.plant(bug)` changes a module or class of the package, but only within its `with` block.

    `bug` is the name of a bug, or "none", for which nothing is changed.
    """
    owners = (samplers, quantiles, people, lattice.Lattice, GaussianDataMechanism, private_rows.PrivateRows)
    before = [dict(vars(owner)) for owner in owners]
    with planted.plant(bug):
        assert (bug == "none") is (before == [dict(vars(owner)) for owner in owners])
    assert before == [dict(vars(owner)) for owner in owners]


def test_unknown_bug():
    with pytest.raises(KeyError, match="typo"), planted.plant("typo"):
        pass


# --- Samples ----------------------------------------------------------------------------------------------------------

FIRST_ROWS = {"rows": lambda draw, size: np.arange(size) < max(1, round(size * draw._probability))}
TOO_OFTEN = {"rows": lambda draw, size: draw._rng.random(size) < 0.9}


@pytest.mark.parametrize(
    ("bug", "charges"),
    [
        ({}, {0.5: True, 0.5**2: False}),  # at 0.25 the probability is charged twice
        (FIRST_ROWS, {0.5: False}),  # the person by whom the neighbors differ may always be in the sample
        (TOO_OFTEN, {0.5: False}),  # the probability is 0.9 and not 0.5
    ],
    ids=["none", "always the first rows", "more likely than charged"],
)
def test_audit_of_a_sample_catches_planted_bugs(bug, charges, monkeypatch):
    """For releases from a sample, an audit's lower bound exceeds a budget's epsilon if and only if a bug is planted.

    The neighbors are a table with a row far from the center, and this table without that row. Each row should be in the
    sample with probability 0.5. The dictionary `bug` is empty, or has a wrong function for drawing the sample. Each key
    of `charges` is a sampling probability that is told to the budget; any other key than 0.5 is a bug, too. The value
    is True if the bound must be at most the epsilon that the budget records, and False if it must exceed this epsilon.
    In each case, the bound must be above 0.6 times the recorded epsilon.
    """
    mechanism = GaussianDataMechanism([1.0], 2, 2.0, 0.3, clip_probability=0.1, neighbors="add_remove")
    far = 8 * mechanism.clip_norm / mechanism.b
    table = np.array([far, [0.0]])
    rng = np.random.default_rng(5)
    for name, wrong in bug.items():
        monkeypatch.setattr(drawn._Draw, name, wrong)

    def releases(X, size):
        samples = collections.Counter(tuple(drawn.sample(X, 0.5, rng, {})[0].ravel()) for _ in range(size))
        once = ((functools.partial(_sum_and_count, mechanism, sample), count) for sample, count in samples.items())
        return rng.permutation(np.concatenate([replay(release, count, rng) for release, count in once]))

    one, other = releases(table, 30_000), releases(table[1:], 30_000)
    for charge, passes in charges.items():
        budget = Budget(epsilon=10.0, delta=0.4, neighbors="add_remove")
        promised = budget.charge(mechanism, sampling_probability=charge)
        found = lower_bound(one, other, promised.delta)
        assert (found <= promised.epsilon) == passes
        assert found > 0.6 * promised.epsilon


def _sum_and_count(mechanism, sample, rng):
    """Return the noisy sum and the noisy count of the numbers in `sample`, by a simulated release of `mechanism`."""
    release = mechanism.release(np.reshape(sample, (-1, 1)), rng=rng)
    return np.append(release.estimate, release.count)
