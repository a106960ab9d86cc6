"""What leaves a mechanism depends on the data through noisy primitives alone, and these cost what is charged.

Two ways to see it. With the primitives' answers fixed, releases from different data are equal byte by byte. And a run
is played again on the neighbour, forced to the same answers: the log-likelihood ratio of the whole transcript is then
known exactly, for each run. In the many runs of the latter, what only works on released numbers is replaced by
something faster.
"""

import contextlib
import math
import pickle
from unittest import mock

import numpy as np
import pytest
from scipy.special import logsumexp

from egm import (
    AdaptiveDataMechanism,
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    adaptive,
    error,
    gx2,
    lattice,
    noise,
    scaling,
    sums,
)
from egm.calibration import zcdp_epsilon

# --- The same answers, the same bytes ---------------------------------------------------------------------------------


def data_sets(n, d):
    """Of one shape and as different as can be."""
    rng = np.random.default_rng(1)
    spiked = rng.normal(size=(n, d))
    spiked[n // 2] = 1e300
    return [
        rng.normal(3, 2, (n, d)),
        np.zeros((n, d)),
        np.asfortranarray(1e9 * rng.standard_cauchy((n, d))),
        spiked,
        np.full((n, d), -7, dtype=np.int8),
    ]


def outcome(release, *given):
    """All that somebody sees: the fields, or the exception; a warning is an exception here."""
    try:
        return pickle.dumps(vars(release(*given)))
    except Exception as error:
        return type(error), str(error)


def blind(stack, rows):
    """The primitives look at the data, and answer the same whatever they saw."""
    rng = np.random.default_rng(2)
    clipped_sum, total, rounded = sums.clipped_sum, lattice.Lattice.sum, lattice.rounded

    def fixed_sum(X, grid, center, b, count_clipped):
        found, _ = clipped_sum(X, grid, center, b, count_clipped)
        return np.zeros(len(found), dtype=object), rows

    def fixed_total(grid, X, *given):
        return 0 * total(grid, X, *given)

    def fixed_integers(value, unit):
        return [0 for _ in rounded(value, unit)]

    stack.enter_context(mock.patch.object(sums, "clipped_sum", fixed_sum))
    stack.enter_context(mock.patch.object(lattice.Lattice, "sum", fixed_total))
    stack.enter_context(mock.patch.object(lattice, "rounded", fixed_integers))
    for name in ("secure_gaussian", "secure_laplace"):
        answer = lambda std, size: [int(std * z) for z in rng.normal(size=size)]  # noqa: E731
        stack.enter_context(mock.patch.object(noise, name, answer))
    index = lambda scores, epsilon: int(rng.triangular(0, 0.6, 1) * len(scores))  # noqa: E731
    stack.enter_context(mock.patch.object(noise, "secure_index", index))


def outcomes(mechanism, data, rows):
    """What is seen for each of the data, each time with the same answers."""
    seen = set()
    for X in data:
        with contextlib.ExitStack() as stack:
            blind(stack, rows)
            seen.add(outcome(mechanism.release, X))
    return seen


FIXED = {
    "replace one": {},
    "center": {"center": [5.0, -3.0, 0.1]},
    "optimal clip": {"clip_probability": "optimal"},
    "add or remove": {"neighbors": "add_remove", "center": 2.0},
    "too private to be released": {"epsilon": 60.0, "delta": 1e-20},
}


@pytest.mark.parametrize("case", FIXED)
def test_gaussian_releases_depend_on_nothing_else(case):
    options = {"epsilon": 1.0, "delta": 1e-6, **FIXED[case]}
    mechanism = GaussianDataMechanism([1.0, 0.2, 30.0], 40, **options)
    data = data_sets(40, 3)
    if case == "add or remove":  # then the number of rows is private as well
        data += [data[0][:7], np.concatenate([data[0]] * 3)]
    (seen,) = outcomes(mechanism, data, 40)
    assert isinstance(seen, tuple) is (case == "too private to be released")


@pytest.mark.parametrize(
    "mechanism",
    [
        LaplaceMechanism(1.0, 0.5),
        GaussianMechanism(3.0, 1.0, 1e-6),
        EllipticalGaussianMechanism([1.0, 20.0], 1.0, 1e-6),
    ],
    ids=lambda it: type(it).__name__,
)
def test_releases_of_values_depend_on_nothing_else(mechanism):
    values = [0.0, 0.0], [1e308, -1e-320], [2**63 + 1, -(2**70)], np.float16([1, 2]), np.longdouble([1, 2]) / 3
    assert len(outcomes(mechanism, values, None)) == 1


@pytest.mark.parametrize(("n", "d", "rho"), [(40, 3, 1.0), (20, 1, 1.0), (400, 6, 0.5)])
def test_adaptive_releases_depend_on_nothing_else(n, d, rho):
    """Nothing is replaced but the primitives: every choice on the way is made from what was released."""
    mechanism = AdaptiveDataMechanism(n, rho, radius=10.0, sigma_range=(0.1, 10.0))
    (seen,) = outcomes(mechanism, data_sets(n, d)[1:4], n)
    assert isinstance(seen, bytes)


# --- The loss of a whole transcript -----------------------------------------------------------------------------------


class Transcript:
    """A run on one data set, and the same answers on its neighbour.

    loss: the log-likelihood ratio of all answers. cost: what the primitives cost in zCDP, from their own laws: a
    quantile whose log-ratios lie in an interval of length at most epsilon costs epsilon**2 / 8.
    """

    def __init__(self, mechanism, X, other, rng):
        self.rng, self.loss, self.cost, self.answers = rng, 0.0, 0.0, []
        self.first = True
        self.played(mechanism, X)
        self.first, self.answers = False, self.answers[::-1]
        self.played(mechanism, other)
        assert not self.answers

    def played(self, mechanism, X):
        total = lattice.Lattice.sum
        hooks = [(lattice.Lattice, "sum", lambda grid, rows: self.summed(total(grid, rows)))]
        hooks += [(noise, "secure_gaussian", self.gaussian), (noise, "secure_index", self.index)]
        with contextlib.ExitStack() as stack:
            for owner, name, hook in hooks:
                stack.enter_context(mock.patch.object(owner, name, hook))
            adaptive._Search(mechanism, X, None).run()

    def summed(self, total):
        self.total = total.astype(float)
        return total

    def gaussian(self, std, size):
        if self.first:
            drawn = np.rint(std * self.rng.normal(size=size))
            self.answers.append((std, self.total, drawn))
            return [int(z) for z in drawn]
        was, total, drawn = self.answers.pop()
        assert was == std
        moved = drawn + (total - self.total)
        self.loss += (np.sum(moved**2) - np.sum(drawn**2)) / (2 * std**2)
        self.cost += np.sum((total - self.total) ** 2) / (2 * std**2)
        return [int(z) for z in moved]

    def index(self, scores, epsilon):
        log_p = epsilon / 2 * np.array(scores, dtype=float)
        log_p -= logsumexp(log_p)
        if self.first:
            chosen = int(np.argmax(log_p + self.rng.gumbel(size=log_p.size)))
            self.answers.append((epsilon, log_p, chosen))
            return chosen
        was, other, chosen = self.answers.pop()
        assert (was, other.size) == (epsilon, log_p.size)
        ratios = other - log_p
        assert np.ptp(ratios) <= epsilon * (1 + 1e-9)
        self.loss += ratios[chosen]
        self.cost += epsilon**2 / 8 if np.ptp(ratios) else 0.0
        return chosen


@pytest.fixture
def fast(monkeypatch):
    """Rough and quick instead of exact and slow, in all that works on released numbers; and coarser quantiles."""

    def clip_norm(noise, sigma, n, b, offset=0.0, copies=1, tolerance=0.0):
        return 2 * float(np.sqrt(np.sum(copies * b**2 * (sigma**2 + offset**2)))), 1.0

    def loss(sigma, b, clip_norm, offset=0.0, target="sample", copies=1, factors=(1.0,)):
        return 0.1 * sigma**2, 0.01 * np.broadcast_to(offset, sigma.shape) ** 2

    monkeypatch.setattr(error, "best_clip_norm", clip_norm)
    monkeypatch.setattr(error, "loss_of_a_row", loss)
    monkeypatch.setattr(scaling, "optimal", lambda sigma, p: scaling.expected_norm(sigma))
    monkeypatch.setattr(gx2, "isf", lambda p, weights, copies=1: np.sum(copies * weights) * (1 + math.log(1 / p)) / 2)
    monkeypatch.setattr(adaptive, "_STEP", 1 / 20)
    monkeypatch.setattr(adaptive, "_COARSE_STEP", 1 / 20)


NEIGHBORS = {  # rows, columns, rho, and the row that is replaced, before and after
    "far on both sides": (20, 1, 1.0, [1e6], [-1e6]),
    "far against centre": (20, 1, 1.0, [1e6], [0.0]),
    "several columns": (40, 3, 0.25, [1e6, 1e6, 1e6], [-1e6, -1e6, -1e6]),
}


def transcripts(case, number, seed=1):
    n, d, rho, before, after = NEIGHBORS[case]
    mechanism = AdaptiveDataMechanism(n, rho, radius=10.0, sigma_range=(0.1, 10.0))
    rng = np.random.default_rng(seed)
    X = np.random.default_rng(7).normal(size=(n, d))
    X[0], other = before, X.copy()
    other[0] = after
    return rho, [Transcript(mechanism, X, other, rng) for _ in range(number)]


@pytest.mark.parametrize("case", NEIGHBORS)
def test_the_loss_of_a_transcript_is_what_is_charged(case, fast):
    """Every run costs at most rho by the laws of its primitives; and all runs together, by their likelihoods: the mean
    of the loss, its moment of order 2, and the delta at two epsilons."""
    rho, runs = transcripts(case, 700)
    assert max(run.cost for run in runs) <= rho
    loss = np.array([run.loss for run in runs])
    assert np.mean(loss) <= rho
    assert np.mean(loss) > 0.3 * rho  # the audit is not blind
    # Of the true likelihood ratio the mean of its inverse is 1, or else the harness is wrong.
    inverse = np.exp(-loss)
    assert abs(np.mean(inverse) - 1) < 5 * np.std(inverse) / math.sqrt(700)
    for delta in (0.1, 0.01):
        exceeded = np.maximum(0.0, -np.expm1(zcdp_epsilon(rho, delta) - loss))
        assert np.mean(exceeded) <= delta
    assert np.log(np.mean(np.exp(loss))) <= 2 * rho


def test_an_audit_of_transcripts_sees_what_is_not_charged(fast, monkeypatch):
    """A mean whose noise is for half the sensitivity costs four times as much."""
    mean = adaptive._Search.mean_of_clipped
    monkeypatch.setattr(adaptive._Search, "mean_of_clipped", lambda it, rows, C, D, rho: mean(it, rows, C, D / 2, rho))
    rho, runs = transcripts("far on both sides", 60)
    assert min(run.cost for run in runs) > rho
    assert np.mean([run.loss for run in runs]) > 1.5 * rho


def test_a_transcript_with_everything_in_place_costs_no_more():
    """Nothing replaced: one run, its exact cost."""
    rho, (run,) = transcripts("far on both sides", 1)
    assert 0.3 * rho < run.cost <= rho
