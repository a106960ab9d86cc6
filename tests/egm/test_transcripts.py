"""Test that a release depends on the data only through noisy primitives, whose cost is at most the recorded one.

The primitives are the samplers of noise and of random choices. There are two methods. First, the noisy answers of all
primitives are fixed, and then releases of different data must be equal byte by byte. Second, a release is repeated on a
neighboring data set, with noise that makes all noisy answers equal to those of the first release. This gives the exact
log-likelihood ratio of the transcript, which is the sequence of all answers.
"""

import collections
import contextlib
import functools
import itertools
import math
import pickle
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from scipy.special import chdtrc, chdtri, log_softmax

from egm import (
    AdaptiveDataMechanism,
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    forecast,
    gx2,
    samplers,
    scaling,
)
from egm._adaptive import search
from egm._adaptive.declared import COUNT
from egm._adaptive.private_rows import Account, PrivateRows
from egm._rows import lattice, sums
from egm.calibration import zcdp_epsilon
from egm.mechanisms import GroupedDataMechanism
from tests.conftest import slow

# --- The same answers, the same bytes ---------------------------------------------------------------------------------


def data_sets(n, d):
    """Return five data sets of shape (`n`, `d`): normal, zero, heavy-tailed, normal with a huge row, and constant.

    The constant data set has the type int8; the others have doubles.
    """
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
    """Call the function `release` with the arguments `given`, and return what a user sees, so that it can be compared.

    This is the release as bytes or, if there is an exception or a warning, the pair of its type and text.
    """
    try:
        return pickle.dumps(vars(release(*given)))
    except Exception as error:
        return type(error), str(error)


class Answer(int):
    """Integer in place of noise: k + Answer(value) returns value instead of the sum, so no sum shows the data."""

    def __add__(self, total):
        assert isinstance(total, int)
        return int(self)

    __radd__ = __add__


def blind(stack, rows, seed, counted=0.0):
    """Replace the samplers, and the functions that add up rows, so that noisy results depend only on `seed` and `rows`.

    The number of rows of every data set becomes `rows`. A mechanism that first asks for a noisy number of rows adds
    noise to it whose standard deviation is 1 / `counted`; the answer is `rows` plus noise, in steps of the noise.
    `stack` is the ExitStack that ends the replacement.
    """
    rng = np.random.default_rng(seed)
    clipped_sum, group_sums, rounded = sums.clipped_sum, sums.group_sums, lattice.rounded

    def fixed_sum(X, *rule):
        found, _ = clipped_sum(X, *rule)
        return np.zeros(len(found), dtype=object), rows

    def fixed_sums(blocks, *rule):
        found, _ = group_sums(blocks, *rule)
        return np.zeros(found.shape, dtype=object), np.full(len(found), rows)

    def fixed_integers(value, unit):
        return [0 for _ in rounded(value, unit)]

    stack.enter_context(mock.patch.object(sums, "clipped_sum", fixed_sum))
    stack.enter_context(mock.patch.object(sums, "group_sums", fixed_sums))
    stack.enter_context(mock.patch.object(lattice, "rounded", fixed_integers))

    first = iter([counted] if counted else [])

    def answer(std, size):
        center = rows * next(first, 0.0) * std
        return [Answer(center + std * z) for z in rng.normal(size=size)]

    def index(scores, epsilon):
        return int(rng.triangular(0, 0.6, 1) * len(scores))

    for name, primitive in {"secure_gaussian": answer, "secure_laplace": answer, "secure_index": index}.items():
        stack.enter_context(mock.patch.object(samplers, name, primitive))


def outcomes(mechanism, data, rows, seed=2, **labels):
    """Release each data set with samplers whose answers do not depend on it, and return the set of different outcomes.

    The set has one element if the releases by `mechanism` depend on the data only through the samplers. `data` is a
    list of data sets, `rows` the number of rows that is reported for each, and `seed` determines the answers. `labels`
    are further arguments of `release`.
    """
    seen = set()
    for X in data:
        with contextlib.ExitStack() as stack:
            counted = isinstance(mechanism, AdaptiveDataMechanism) and mechanism.neighbors == "add_remove"
            blind(stack, rows, seed, math.sqrt(2 * COUNT * mechanism.rho) if counted else 0.0)
            seen.add(outcome(functools.partial(mechanism.release, **labels), X))
    return seen


FIXED = {
    "replace one": {},
    "center": {"center": [5.0, -3.0, 0.1]},
    "optimal clip": {"clip_probability": "optimal"},
    "add or remove": {"neighbors": "add_remove", "center": 2.0},
    "basis": {"basis": "haar", "center": 2.0},
    "too private to be released": {"epsilon": 60.0, "delta": 1e-20},
}


@pytest.mark.parametrize("case", FIXED)
def test_gaussian_releases_depend_on_nothing_else(case):
    """If the noise is fixed, a release of GaussianDataMechanism is byte for byte the same for different data.

    So the data have an effect only through the sums to which noise is added. `case` is a key of FIXED, which has
    options of the mechanism.
    """
    options = {"epsilon": 1.0, "delta": 1e-6, **FIXED[case]}
    mechanism = GaussianDataMechanism([1.0, 0.2, 30.0], 40, **options)
    data = data_sets(40, 3)
    if case == "add or remove":  # here the number of rows is private as well
        data += [data[0][:7], np.concatenate([data[0]] * 3)]
    (seen,) = outcomes(mechanism, data, 40)
    assert isinstance(seen, tuple) is (case == "too private to be released")


PERSONAL = {"sum": {}, "mean": {"count_clipped": True}, "two rows": {}, "groups": {}, "groups of persons": {}}


@pytest.mark.parametrize("missing", ["center", "drop_row"])
@pytest.mark.parametrize("case", PERSONAL)
def test_releases_for_persons_and_groups_depend_on_nothing_else(case, missing):
    """If all noisy answers are fixed, a release for persons with several rows or for groups is equal for all data.

    `case` is a key of PERSONAL, which has kinds of releases, and `missing` is the option that says how missing
    values are treated.
    """
    how = {"sum": "sum", "mean": "mean", "two rows": 2, "groups of persons": "mean"}.get(case)
    options = {"neighbors": "add_remove", "per_person": how, "missing": missing, **PERSONAL[case]}
    mechanism = GaussianDataMechanism([1.0, 0.2, 30.0], 40, 1.0, 1e-6, **options)
    labels = {} if how is None else {"person": np.arange(40) // 3}
    if case.startswith("groups"):
        mechanism = GroupedDataMechanism(mechanism, list("abc"), groups_per_person=1 + (how is not None))
        labels["by"] = np.resize(list("aabcx"), 40)
    data = data_sets(40, 3)
    data += [np.where(data[0] > 3, np.nan, data[0]), np.full((40, 3), np.nan)]
    (seen,) = outcomes(mechanism, data, 40, **labels)
    assert isinstance(seen, bytes)


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
    """If the noise is fixed, a release by `mechanism` has the same outcome for all values, up to 1e308 in size."""
    values = [0.0, 0.0], [1e308, -1e-320], [2**63 + 1, -(2**70)], np.float16([1, 2]), np.longdouble([1, 2]) / 3
    assert len(outcomes(mechanism, values, None)) == 1


QUERIES = ("radius", "spreads", "mean", "pairs", "within", "squares", "products", "shells", "longer", "count")


@pytest.fixture
def asked(monkeypatch):
    """Return a list to which each query about private rows appends its name; a query is a method of `PrivateRows`."""
    names = []
    for name in QUERIES:
        query = getattr(PrivateRows, name)

        def spy(*given, name=name, query=query):
            names.append(name)
            return query(*given)

        monkeypatch.setattr(PrivateRows, name, spy)
    return names


@pytest.mark.parametrize(
    ("n", "d", "rho", "basis", "unseen", "unasked"),
    [
        (200, 1, 1.0, None, 0.0, {"spreads", "squares", "products"}),
        *slow((200, 1, 1.0, None, 0.2, {"spreads", "squares", "products"})),
        *slow((200, 3, 1.0, None, 0.0, {"spreads", "squares", "products"})),
        (400, 6, 1.0, None, 0.0, {"products"}),
        (600, 3, 1.0, None, 0.2, {"products"}),
        *slow((1100, 3, 4.0, "learn", 0.0, set())),
        (1100, 3, 4.0, "learn", 0.2, set()),
    ],
)
def test_adaptive_releases_depend_on_nothing_else(n, d, rho, basis, unseen, unasked, asked):
    """If its noisy queries have fixed answers, AdaptiveDataMechanism releases the same bytes for different data.

    `n` and `d` are the numbers of rows and columns, and `rho` is the budget. `basis` (directions of clipping) and
    `unseen` (a share of the budget for noisy numbers of long rows) are options of the mechanism. The fixture `asked`
    records the names of the queries: all kinds occur except those in `unasked`, "within" (used only for ranges) and
    "count" (used only for a private number of rows).
    """
    mechanism = AdaptiveDataMechanism(n, rho, radius=10.0, sigma_range=(0.1, 10.0), basis=basis, unseen=unseen)
    for seed in range(6):
        (seen,) = outcomes(mechanism, data_sets(n, d)[1:4], n, seed)
        assert isinstance(seen, bytes)
    assert set(asked) == set(QUERIES) - unasked - {"within", "count"}


@pytest.mark.parametrize(("n", "d"), [(30, 3), (800, 1), *slow((800, 6))])
def test_adaptive_releases_in_ranges_depend_on_nothing_else(n, d, asked):
    """With declared ranges, and fixed answers to the noisy queries, a release is equal for different data.

    So only released numbers decide whether a release first searches (finds center and spread by queries), or only sums
    clipped rows. For `n` = 800 rows of `d` entries, some of twelve releases search. The fixture `asked` records the
    queries, fewer than 600 in each release.
    """
    mechanism, ways = AdaptiveDataMechanism(n, 1.0, ranges=[(-10.0, 30.0)] * d), set()
    for seed in range(12):
        asked.clear()
        (seen,) = outcomes(mechanism, data_sets(n, d)[1:4], n, seed)
        ways.add(pickle.loads(seen)["method"])
        each = len(asked) // 3
        assert asked == 3 * asked[:each]
        assert each < 600
        assert n > 30 or asked[:each] == ["within"]
    assert ways == ({"ranges"} if n == 30 else {"search", "ranges"})


@pytest.mark.slow
@pytest.mark.parametrize("declared", ["ranges", "radius", "few rows"])
def test_adaptive_releases_with_a_private_number_of_rows_depend_on_nothing_else(declared, asked):
    """With neighbors "add_remove", and fixed answers to noisy queries, releases are equal for all numbers of rows.

    The first answer is the noisy number of rows: 800 or, if `declared` is "few rows", 90, which is too small to find
    center and spread. Otherwise `declared` says which bounds are declared, "ranges" or a "radius". The fixture `asked`
    records the queries.
    """
    bounds = {"ranges": [(-10.0, 30.0)] * 3} if declared == "ranges" else {"radius": 10.0, "sigma_range": (0.1, 10.0)}
    mechanism = AdaptiveDataMechanism(800, 1.0, neighbors="add_remove", **bounds)
    data = [*data_sets(800, 3)[1:4], data_sets(300, 3)[0], np.empty((0, 3))]
    ways = set()
    for seed in range(6):
        asked.clear()
        (seen,) = outcomes(mechanism, data, 90 if declared == "few rows" else 800, seed)
        found = pickle.loads(seen)
        ways.add(found["method"])
        each = len(asked) // len(data)
        assert asked == len(data) * asked[:each]
        assert asked[0] == "count"
        assert found["n"] == int(found["count"])
    assert ways == {"radius": {"search"}, "few rows": {"ranges"}, "ranges": {"search", "ranges"}}[declared]


@pytest.mark.parametrize("secret", ["the mean", "whether a row is long", "how many rows are long"])
def test_a_look_at_the_rows_is_seen(secret, monkeypatch):
    """If the mechanism looks at the rows without noise, `outcomes` finds different releases for different data.

    The test adds such a bug to the mechanism, and `secret` says what it reveals.
    """

    def locate(search):
        X = search.rows.rows.X
        if secret == "the mean":
            search.center = np.full(search.d, np.clip(X.mean(), -1, 1))
        elif secret == "whether a row is long":
            search.account.spend("look", 1e-9 if np.max(X) > 1e200 else 1e-8)
        else:
            for _ in range(int(np.sum(X > 1e6) > 5)):
                search.distance("radii", 0.5, 1e-4)
        return right(search)

    right = search.Search.locate
    monkeypatch.setattr(search.Search, "locate", locate)
    mechanism = AdaptiveDataMechanism(400, 1.0, radius=10.0, sigma_range=(0.1, 10.0))
    assert len(outcomes(mechanism, data_sets(400, 3)[1:4], 400)) > 1


# --- The loss of a whole transcript -----------------------------------------------------------------------------------


class Noise(int):
    """Integer in place of noise: k + Noise(value, told) returns told(k, value) instead of the sum."""

    def __new__(cls, value, told):
        noise = super().__new__(cls, value)
        noise.told = told
        return noise

    def __radd__(self, total):
        assert type(total) is int
        return self.told(total, int(self))


def exact_sum(spent):
    """Return the exact sum of the costs in the dictionary `spent`, as a Fraction."""
    return sum(map(Fraction, spent.values()))


class Transcript:
    """Run of `mechanism` on the data set `X`, repeated on the neighboring data set `other` with the same noisy answers.

    `X` is the first data set, and `rng` draws its noise. The noise for `other`, the second data set, is chosen so that
    all answers are equal. `loss` is the log-likelihood ratio of all answers. `costs` has the exact zCDP cost of the
    answers to each kind of query, and `charged` the cost that the mechanism recorded. `turned` lists the bases in which
    the rows were expressed.
    """

    def __init__(self, mechanism, X, other, rng):
        self.rng, self.loss, self.answers, self.first = rng, 0.0, [], True
        self.costs, self.charged, self.turned = collections.Counter(), collections.Counter(), []
        spent = self.played(mechanism, X)
        self.first, self.answers = False, self.answers[::-1]
        assert self.played(mechanism, other) == spent
        assert not self.answers

    @property
    def cost(self):
        return sum(self.costs.values())

    def played(self, mechanism, X):
        """Release the sum of `X` by `mechanism`, and return the costs that it recorded.

        The samplers and queries of this object take the place of those of egm.
        """
        hooks = [(samplers, "secure_gaussian", self.gaussian), (samplers, "secure_index", self.index)]
        hooks += [(PrivateRows, name, self.query(name)) for name in QUERIES]
        hooks += [(PrivateRows, "turn", self.turning(PrivateRows.turn))]
        with contextlib.ExitStack() as stack:
            for owner, name, hook in hooks:
                stack.enter_context(mock.patch.object(owner, name, hook))
            return mechanism.release(X).spent

    def query(self, name):
        """Return the query `name` of `PrivateRows`, changed to add its cost for the first data set to `charged`."""
        query = getattr(PrivateRows, name)

        def asked(rows, *given):
            self.name = name
            if not self.first:
                return query(rows, *given)
            before = dict(rows.account.spent)
            answer = query(rows, *given)
            changed = {of: cost for of, cost in rows.account.spent.items() if cost != before.get(of)}
            self.charged[name] += exact_sum(changed) - exact_sum({of: before.get(of, 0) for of in changed})
            return answer

        return asked

    def turning(self, turn):
        """Return the method `turn` of `PrivateRows`, changed to append its argument to the list `turned`.

        The argument is the basis in which the rows are to be expressed, or None for the columns.
        """

        def noted(rows, basis):
            self.turned.append(basis)
            turn(rows, basis)

        return noted

    def gaussian(self, std, size):
        """Return `size` noise integers in place of the secure sampler.

        For the first data set they have the standard deviation `std`, and the noisy sums are recorded. For the second
        data set they make the noisy sums equal to the recorded ones.
        """
        if self.first:
            return [Noise(z, self.keep(std)) for z in discrete_gaussian(std, size, self.rng)]
        return [Noise(0, self.compare(std)) for _ in range(size)]

    def keep(self, std):
        """Return the function told(total, noise) for the first data set, which returns the sum total + noise.

        The function also records the total, the noise and its standard deviation `std` as one of the answers.
        """

        def told(total, drawn):
            self.answers.append((std, total, drawn))
            return total + drawn

        return told

    def compare(self, std):
        """Return a function told(total, noise) for the second data set, which returns the noisy total of the first one.

        `total` is the exact total of the second data set, and the noise is ignored. If the exact totals differ, so do
        the noises that lead to the same noisy total. The log-likelihood ratio of these two noises is added to `loss`,
        and the zCDP cost of the difference of the totals to `costs`. `std` is the standard deviation of the noise.
        """

        def told(total, _):
            was, before, drawn = self.answers.pop()
            assert was == std
            moved = drawn + before - total
            self.loss += float((moved**2 - drawn**2) / (2 * Fraction(std) ** 2))
            self.costs[self.name] += (total - before) ** 2 / (2 * Fraction(std) ** 2)
            return total + moved

        return told

    def index(self, scores, epsilon):
        """Draw an index by the exponential mechanism with `scores` and `epsilon`, in place of the secure sampler.

        For the second data set, return the index that was drawn for the first one. Then `loss` is increased by the
        logarithm of the ratio of this index's probabilities for the two data sets. `costs` is increased by the zCDP
        cost epsilon**2 / 8, or by 0 if all probabilities are equal for both.
        """
        log_p = log_softmax(epsilon / 2 * np.array(scores, dtype=float))
        if self.first:
            chosen = int(np.argmax(log_p + self.rng.gumbel(size=log_p.size)))
            self.answers.append((epsilon, log_p, chosen))
            return chosen
        was, before, chosen = self.answers.pop()
        assert (was, before.size) == (epsilon, log_p.size)
        ratios = before - log_p
        assert np.ptp(ratios) <= epsilon * (1 + 1e-9)
        self.loss += ratios[chosen]
        self.costs[self.name] += Fraction(epsilon) ** 2 / 8 if np.ptp(ratios) else 0
        return chosen


def discrete_gaussian(std, size, rng):
    """Draw `size` integers of standard deviation `std`, nearly with the distribution of the sampler `secure_gaussian`.

    If `std` is above 1e4, they are rounded normal numbers.
    """
    if std > 1e4:
        return [int(z) for z in np.rint(std * rng.normal(size=size))]
    k = np.arange(-math.ceil(12 * std), math.ceil(12 * std) + 1)
    weights = np.exp(-(k**2) / (2 * std**2))
    return rng.choice(k, size=size, p=weights / np.sum(weights)).tolist()


@pytest.fixture
def fast(monkeypatch):
    """Replace slow computations, such as forecasts, by rough and fast ones, to make many runs possible.

    The replaced computations use released numbers only, so that the privacy does not change.
    """

    def clip_norm(noise, sigma, n, b, offset=0.0, copies=1, tolerance=0.0):
        return 2 * float(np.sqrt(np.sum(copies * b**2 * (sigma**2 + offset**2)))), 1.0

    def loss(sigma, b, clip_norm, offset=0.0, target="sample", copies=1, factors=(1.0,)):
        return 0.1 * sigma**2, 0.01 * np.broadcast_to(offset, sigma.shape) ** 2

    def alike(weights):
        """Return (factor, degrees of freedom) of a scaled chi-square variable that approximates a chi-square sum.

        The sum has these `weights`, and the scaled variable has its mean and its variance.
        """
        dof = np.sum(weights) ** 2 / np.sum(weights**2)
        return np.sum(weights) / dof, dof

    def isf(p, weights):
        unit, dof = alike(weights)
        return unit * chdtri(dof, p)

    def sf(x, weights):
        unit, dof = alike(weights)
        return chdtrc(dof, x / unit)

    monkeypatch.setattr(forecast, "best_clip_norm", clip_norm)
    monkeypatch.setattr(forecast, "loss_of_a_row", loss)
    monkeypatch.setattr(scaling, "optimal", lambda sigma, p: scaling.expected_norm(sigma))
    monkeypatch.setattr(gx2, "isf", isf)
    monkeypatch.setattr(gx2, "sf", sf)


def far_rows(n, d):
    """Return `n` normal rows, shape (`n`, `d`); in every fifth row, one number above 20 is added to all entries."""
    X = np.random.default_rng(7).normal(size=(n, d))
    X[::5] += np.random.default_rng(8).pareto(1.0, size=(n // 5, 1)) + 20
    return X


def normal_rows(n, sigma):
    return np.random.default_rng(7).normal(size=(n, len(sigma))) * sigma


def correlated_rows(n, d):
    """Return `n` normal rows of `d` entries, shape (`n`, `d`); the entries of a row differ little from each other."""
    draw = np.random.default_rng(7).normal
    return draw(size=(n, 1)) + 0.1 * draw(size=(n, d))


def one_hot_rows(n):
    """Return `n` rows of two categorical variables with three values in one-hot coding, shape (`n`, 6).

    The two variables are equal in most rows. A mechanism may learn a basis from such rows, and then sum them
    without the basis, because their scaled norms differ less without it.
    """
    rng = np.random.default_rng(7)
    first, other = rng.integers(0, 3, (2, n))
    second = np.where(rng.random(n) < 0.9, first, other)
    return np.concatenate([np.eye(3)[first], np.eye(3)[second]], axis=1)


UNEQUAL = normal_rows(300, [10.0, 1.0, 0.1, 0.1, 0.1, 0.1])
NEIGHBORS = {  # rows, and the first of them before and after it is replaced; or None after it, if it is removed
    "far on both sides": (normal_rows(200, [1.0]), [1e6], [-30.0]),
    "far against center": (normal_rows(200, [1.0]), [1e6], [0.0]),
    "several columns": (normal_rows(200, [1.0] * 3), [1e6] * 3, [-1e6] * 3),
    "many rows": (normal_rows(700, [1.0] * 3), [1e6] * 3, [-1e6] * 3),
    "unequal spreads": (UNEQUAL, [1e6] * 6, [-30.0] * 6),
    "one column against another": (UNEQUAL, [1e6, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1e6]),
    "a tail": (far_rows(300, 2), [300.0, 300.0], [-30.0, -30.0]),
    "unseen, far against center": (normal_rows(200, [1.0]), [1e6], [0.0]),
    "unseen, many rows against center": (normal_rows(700, [1.0] * 3), [1e6] * 3, [0.0] * 3),
    "correlated, one against another": (correlated_rows(2100, 3), [1e6, 0.0, 0.0], [0.0, 0.0, -1e6]),
    "correlated, back in the columns, one against another": (one_hot_rows(2100), [1e6] + [0] * 5, [0] * 5 + [-1e6]),
    "a tail against center": (far_rows(300, 2), [300.0, 300.0], [0.0, 0.0]),
    "in ranges, few rows": (normal_rows(50, [1.0, 1.0]), [1e6, 1e6], [-1e6, -1e6]),
    "in ranges, far on both sides": (normal_rows(700, [0.3, 0.3]), [1e6, 1e6], [-1e6, -1e6]),
    "in ranges, wide rows": (normal_rows(700, [8.0, 8.0]), [1e6, 1e6], [-1e6, -1e6]),
    "removed, one column": (normal_rows(300, [1.0]), [1e6], None),
    "removed, several columns": (normal_rows(300, [1.0] * 3), [30.0, 0.0, -1e6], None),
    "removed, many rows": (normal_rows(700, [1.0] * 3), [30.0, 0.0, -1e6], None),
    "removed, unequal spreads": (normal_rows(400, [10.0, 1.0, 0.1, 0.1, 0.1, 0.1]), [1e6] * 6, None),
    "removed, a tail": (far_rows(300, 2), [300.0, 300.0], None),
    "removed, along a basis": (correlated_rows(2100, 3), [1e6, 1e6, 1e6], None),
    "removed, in ranges": (normal_rows(900, [0.3, 0.3]), [1e6, 1e6], None),
    "removed, in ranges, few rows": (normal_rows(50, [1.0, 1.0]), [1e6, 1e6], None),
}
RHO = 1.0


def transcripts(case, seed=1):
    """Run a mechanism on both data sets of a pair of neighbors, again and again, and yield a `Transcript` of each run.

    `case` is the name of the pair in NEIGHBORS, and `seed` is the seed of the noise. Each `Transcript` is one run on
    the first data set, repeated on the second with the same noisy answers, and has the privacy loss and costs.
    """
    X, before, after = NEIGHBORS[case]
    basis = "learn" if "correlated" in case else "dct" if "basis" in case else None
    relation = "replace_one" if after is not None else "add_remove"
    bounds = {"radius": 10.0, "sigma_range": (0.1, 10.0), "basis": basis}
    if "ranges" in case:
        bounds = {"ranges": [(-10.0, 10.0)] * X.shape[1]}
    unseen = 0.5 if "unseen" in case else 0.0
    mechanism = AdaptiveDataMechanism(len(X), RHO, neighbors=relation, unseen=unseen, **bounds)
    rng = np.random.default_rng(seed)
    X, other = X.copy(), X[1:] if after is None else np.concatenate([[after], X[1:]])
    X[0] = before
    while True:
        yield Transcript(mechanism, X, other, rng)


# The list of the transcripts of a case that exist, and the generator of further ones; only the last case is kept.
shared = functools.lru_cache(maxsize=1)(lambda case: ([], transcripts(case)))


def first(number, case):
    """Return a list of the first `number` transcripts of `case`; transcripts that exist already are not made again.

    A transcript is a run on two neighboring data sets with equal noisy answers, and `case` is their key in NEIGHBORS.
    pytest makes the two tests of one case follow each other, so that they share transcripts.
    """
    made, further = shared(case)
    made += itertools.islice(further, max(number - len(made), 0))
    return made[:number]


def within_charge(run):
    """Return True if no kind of query in `run` costs more than is recorded for it, and all cost at most the budget."""
    return run.cost <= RHO and all(cost <= run.charged[name] for name, cost in run.costs.items())


IN_RANGES = {  # the queries of each case
    "in ranges, few rows": {"within"},
    "in ranges, far on both sides": set(QUERIES) - {"products", "count"},
    "in ranges, wide rows": {"within", "radius"},
    "removed, in ranges": set(QUERIES) - {"products"},
    "removed, in ranges, few rows": {"within", "count"},
}
REMOVED = tuple(case for case in NEIGHBORS if case.startswith("removed"))
IN_SHORT = (
    "in ranges, few rows",
    "in ranges, far on both sides",
    "far against center",
    "unequal spreads",
    "correlated, one against another",
    "removed, in ranges, few rows",
)
AT_LENGTH = slow(*(case for case in NEIGHBORS if case not in IN_SHORT))
pairs = pytest.mark.parametrize("case", [*IN_SHORT, *AT_LENGTH], scope="module")  # the tests of one case in a row


@pairs
def test_no_transcript_costs_more_than_is_charged(case, fast):
    """In thirty runs on neighboring data, each kind of query costs at most what the mechanism recorded for it.

    A run is a release on each of two neighboring data sets with equal noisy answers. The cost is the exact zCDP cost of
    these answers. The kinds of queries that occur in the runs are those that are expected for `case`, a pair of data
    sets in NEIGHBORS. `fast` makes forecasts fast and rough.
    """
    runs = first(30, case)
    assert all(map(within_charge, runs))
    turned = [basis for run in runs for basis in run.turned]
    few = "far against" in case or case in ("far on both sides", "several columns", REMOVED[0])
    back = "back" in case
    around = zip(turned, turned[1:], [*turned[2:], None], strict=False)
    assert any(after is not before for before, basis, after in around if basis is None) == back
    unasked = {"spreads", "squares"} if few else {"spreads"} if "along" in case or back else set()
    unasked |= set() if "correlated" in case else {"products"}
    unasked |= set() if case in REMOVED else {"count"}
    expected = IN_RANGES.get(case, set(QUERIES) - {"within"} - unasked)
    assert set().union(*(run.charged for run in runs)) == expected


@pytest.mark.slow
@pairs
def test_the_loss_of_transcripts_is_what_is_charged(case, fast):
    """Over many runs on neighboring data, the privacy losses are within the bounds of zCDP for the budget rho.

    A run makes a release on one data set, and replays its noisy answers on a neighboring one. Its privacy loss is the
    log-likelihood ratio of all answers. The frequency of large losses and the mean of exp(loss) are within the bounds
    for zCDP. The mean loss is at most the budget rho = 1 if a row is replaced, and at most four standard errors above
    the budget if a row is removed. The mean cost, which is the expected loss of noisy sums, must be above 0.15, because
    a test with hardly any losses would show nothing. `case` is a pair of data sets in NEIGHBORS.
    """
    nearly_all = case in ("in ranges, wide rows", "removed, many rows")  # of the budget is lost
    runs = first(300 if nearly_all else 100, case)
    assert all(map(within_charge, runs))
    loss = np.array([run.loss for run in runs])
    # A removed row may change each answer by all that is charged for, so that the expected loss is nearly the budget.
    chance = 4 * np.std(loss) / math.sqrt(len(runs)) if case in REMOVED else 0.0
    assert np.mean(loss) <= RHO + chance
    assert np.mean([float(run.cost) for run in runs]) > (0.15 if "against" in case else 0.3) * RHO
    # The mean of the inverse likelihood ratio is 1; another mean would be an error of this test.
    inverse = np.exp(-loss)
    assert abs(np.mean(inverse) - 1) < 5 * np.std(inverse) / math.sqrt(len(runs))
    for delta in (0.1, 0.01):
        exceeded = np.maximum(0.0, -np.expm1(zcdp_epsilon(RHO, delta) - loss))
        assert np.mean(exceeded) <= delta
    moment = np.exp(loss)
    assert np.mean(moment) - 4 * np.std(moment) / math.sqrt(len(runs)) <= math.exp(2 * RHO)


# What a bug replaces: the owner of a method, its name, and the replacement, whose first argument is the own method. The
# largest norm of a vector is C, and D times C is the largest change of a sum of vectors.
HALF_A_MEAN = (PrivateRows, "_mean", lambda own, rows, total, C, D, *cost: own(rows, total, C, D / 2, *cost))
NEAR_SQUARES = (PrivateRows, "_mean", lambda own, rows, total, C, D, *cost: own(rows, total, C, 1.0, *cost))
HALF_THE_NOISE = (PrivateRows, "_gaussian", lambda own, rows, std, size: own(rows, std / 2, size))
LESS_NOISE = (PrivateRows, "_gaussian", lambda own, rows, std, size: own(rows, std / math.sqrt(2), size))
HALF_THE_PRICE = (Account, "spend", lambda own, account, step, rho: own(account, step, rho / 2))
FOR_NOTHING = (Account, "spend", lambda own, account, step, rho: None)
ALL_COLUMNS = (PrivateRows, "_drawn", lambda own, rows, counts, q, at, rho: own(rows, counts, q, at, rows.d * rho))
SHARPER = (PrivateRows, "_drawn", lambda own, rows, counts, q, at, rho: own(rows, counts, q, at, 1.1 * rho))
BUGS = {  # the case that shows the bug, the query that has it, and what is replaced
    "a mean of half the sensitivity": ("far on both sides", "mean", *HALF_A_MEAN),
    "a mean of half the sensitivity to a row that is removed": ("removed, one column", "mean", *HALF_A_MEAN),
    "a number of rows for half of its price": ("removed, in ranges, few rows", "count", *HALF_THE_PRICE),
    "shells for a row that counts half": ("removed, one column", "shells", *HALF_THE_NOISE),
    "divided rows of half the sensitivity": ("many rows", "pairs", *HALF_A_MEAN),
    "divided rows for nothing": ("removed, many rows", "pairs", *FOR_NOTHING),
    "squares of half the norm": ("removed, unequal spreads", "squares", *HALF_A_MEAN),
    "a mean in ranges of half the sensitivity": ("in ranges, few rows", "within", *HALF_A_MEAN),
    "squares nearer than orthogonal ones": ("one column against another", "squares", *NEAR_SQUARES),
    "products nearer than orthogonal ones": ("correlated, one against another", "products", *LESS_NOISE),
    "a query too many for the basis": ("correlated, one against another", "products", *HALF_THE_PRICE),
    "shells of half the sensitivity": ("far on both sides", "shells", *HALF_THE_NOISE),
    "shells of which one changes": ("far on both sides", "shells", *LESS_NOISE),
    "shells for nothing": ("unseen, many rows against center", "shells", *FOR_NOTHING),
    "long rows counted for nothing": ("far against center", "longer", *FOR_NOTHING),
    "rows that may be unseen counted for nothing": ("unseen, many rows against center", "longer", *FOR_NOTHING),
    "all columns for the price of one": ("a tail against center", "spreads", *ALL_COLUMNS),
    "a sharper quantile": ("far against center", "radius", *SHARPER),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_an_audit_of_transcripts_sees_what_is_not_charged(bug, fast, monkeypatch):
    """If a bug makes a query cost more than is recorded for it, `within_charge` is False for all runs with this query.

    A run is a release on each of two neighboring data sets with equal noisy answers. `within_charge` compares the exact
    costs of these answers with the recorded ones. `bug` is a key of BUGS, which has changes that the test makes to the
    mechanism.
    """
    case, query, owner, name, change = BUGS[bug]
    own = getattr(owner, name)

    def changed(*given):
        return change(own, *given)

    answer = getattr(PrivateRows, query)

    def broken(*given):
        with mock.patch.object(owner, name, changed):
            return answer(*given)

    monkeypatch.setattr(PrivateRows, query, broken)
    runs = [run for run in itertools.islice(transcripts(case), 20) if query in run.charged]
    assert len(runs) > 10
    assert not any(map(within_charge, runs))


@pytest.mark.slow
def test_the_losses_of_transcripts_show_what_is_not_charged(fast, monkeypatch):
    """If a bug halves the noise of means, the mean privacy loss is above 1.5 times the budget.

    The loss is the log-likelihood ratio of all noisy answers in a release, for two neighboring data sets. The mean is
    that of 60 releases.
    """
    mean = PrivateRows._mean
    monkeypatch.setattr(PrivateRows, "_mean", lambda rows, total, C, D, *cost: mean(rows, total, C, D / 2, *cost))
    runs = itertools.islice(transcripts("far on both sides"), 60)
    assert np.mean([run.loss for run in runs]) > 1.5 * RHO


@pytest.mark.parametrize("case", ["far on both sides", "unequal spreads"])
def test_a_transcript_with_everything_in_place_costs_no_more(case):
    """Without the rough computations of the fixture `fast`, a run still costs at most what the mechanism records.

    A run is a release on each of two neighboring data sets with equal noisy answers; `case` is the key of these
    data sets in NEIGHBORS.
    """
    run = next(transcripts(case))
    assert within_charge(run)
    assert run.cost > 0.3 * RHO
