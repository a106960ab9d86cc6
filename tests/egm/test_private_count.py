"""Test AdaptiveDataMechanism if the number of rows is private: the release uses a noisy number in its place."""

import functools
import json
import math
from fractions import Fraction

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest

from egm import AdaptiveDataMechanism, cli, files, planning
from egm._rows.passes import Passes
from egm.budget import Budget
from tests.conftest import slow

MEAN, SIGMA, N, RHO = np.array([40.0, 2500.0]), np.array([18.0, 1200.0]), 4000, 0.1
BOUNDS = {
    "radius": {"radius": 1e4, "sigma_range": (1.0, 1e4)},
    "ranges": {"ranges": [(-100.0, 200.0), (-5000.0, 10_000.0)]},
}


def people(n=N, seed=1):
    return np.random.default_rng(seed).normal(MEAN, SIGMA, (n, 2))


def with_gaps(X):
    """Return a copy of the array `X` in which a tenth of the entries are NaN, and the rows of this copy without NaN."""
    gaps = np.where(np.random.default_rng(2).random(X.shape) < 0.1, np.nan, X)
    return gaps, gaps[~np.isnan(gaps).any(axis=1)]


def mechanism(bounds="radius", n=N, rho=RHO, **options):
    return AdaptiveDataMechanism(n, rho, **{"neighbors": "add_remove", **BOUNDS[bounds], **options})


@functools.cache
def releases(bounds="radius", n=N, **options):
    """Return 60 pairs (X, release): N random rows X, and a simulated release of them by an AdaptiveDataMechanism.

    The mechanism declares `n` rows and has the `options`. `bounds` says how the data are bounded: by a "radius" or by
    "ranges".
    """
    made, tables = mechanism(bounds, n, **options), [people(seed=seed) for seed in range(60)]
    return [(X, made.release(X, rng=np.random.default_rng([seed, 1]))) for seed, X in enumerate(tables)]


@pytest.mark.slow
@pytest.mark.parametrize("bounds", ["ranges", "radius"])
@pytest.mark.parametrize("declared", [N, 2 * N])
def test_intervals_contain_the_exact_numbers(bounds, declared):
    """At least 95 % of the 95 % intervals contain the exact sums and means, even if twice as many rows are declared.

    The tolerance is three standard errors. The mean squared error of the sums is below twice the stated variance. A
    release spends no more than its budget, and a tenth of it goes to the noisy number of rows. `declared` is the
    declared number of rows, and `bounds` says whether the data are bounded by a "radius" or by "ranges".
    """
    inside, far = {"sum": [], "mean": []}, []
    for X, release in releases(bounds, declared):
        for of, truth in (("sum", X.sum(axis=0)), ("mean", X.mean(axis=0))):
            low, high = release.interval(0.95, of=of)
            inside[of].append((low <= truth) & (truth <= high))
        sums = (release.estimate - X.sum(axis=0)) / release.noise_std
        far.append(np.append(sums, (release.count - N) / release.count_std))
        assert sum(map(Fraction, release.spent.values())) <= Fraction(RHO)
        assert release.spent["rows"] == pytest.approx(RHO / 10)
    assert min(map(np.mean, inside.values())) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 120)
    assert np.all(np.mean(np.square(far), axis=0) < [2, 2, 1 + 4 * math.sqrt(2 / 60)])


@pytest.mark.slow
@pytest.mark.parametrize("bounds", ["ranges", "radius"])
def test_far_from_zero_the_means_are_as_certain(bounds):
    """If all rows are moved by 2**31, the noise of their means and the lengths of the intervals hardly change.

    The noise of sums grows, because a noisy number of rows is multiplied by the center, the point from which rows are
    clipped. If `bounds` is "ranges", the declared ranges are moved, too. If it is "radius", the mechanism needs other
    private queries to find the center, so that the tolerance is 25 % in place of 0.1 %. The test compares means of
    twelve releases.
    """
    X, far = np.round(np.random.default_rng(1).normal(0.0, 1.0, (5000, 2)) * 2**20) / 2**20, 2.0**31
    found = []
    for at in (0.0, far):
        ranges, radius = {"ranges": [(at - 64, at + 64)] * 2}, {"radius": 1e10, "sigma_range": (0.1, 9)}
        made = AdaptiveDataMechanism(5000, 0.05, neighbors="add_remove", **(ranges if bounds == "ranges" else radius))
        several = [made.release(X + at, rng=np.random.default_rng(seed)) for seed in range(12)]
        lengths = [[np.subtract(*reversed(r.interval(of=of))) for of in ("mean", "population")] for r in several]
        found.append(np.mean([[r.mean_std, *both] for r, both in zip(several, lengths, strict=True)], axis=0))
    np.testing.assert_allclose(found[1], found[0], rtol=0.25 if bounds == "radius" else 1e-3)


@pytest.mark.slow
def test_the_noise_of_means_is_less_than_if_a_row_is_replaced():
    """For one budget, means have a smaller squared error if neighbors add or remove a row than if they replace a row.

    A removed row changes a sum by half as much as a replaced row. This gains more than the noisy number of rows costs.
    """
    one, other = (
        np.mean(np.square([r.mean - X.mean(axis=0) for X, r in releases("radius", N, **options)]), axis=0)
        for options in ({}, {"neighbors": "replace_one"})
    )
    assert np.all(one < other)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", ["radius", "ranges"])
def test_forecasts_agree_with_errors(bounds):
    made = mechanism(bounds, rho=1.0)
    squares = [np.sum((r.estimate - X.sum(axis=0)) ** 2) for X, r in releases(bounds, rho=1.0)]
    expected = made.forecast(SIGMA, MEAN)
    assert np.mean(squares) == pytest.approx(expected.error.total, rel=1.0)
    assert expected.error.noise == pytest.approx(np.sum(expected.noise_std**2))
    assert planning.solve(made, 50.0, "rho", sigma=SIGMA, center=MEAN).rho < 1.0


NEAR_AN_END = [(-1.0, 1.0, 0.9, 20, 0.05), *slow((0.0, 1.0, 1.0, 100, 0.02), (-5.0, 1.0, -4.9, 50, 0.05))]


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high", "entry", "n", "rho"), NEAR_AN_END)
def test_a_noisy_number_does_not_cut_sums_near_the_end_of_a_range(low, high, entry, n, rho):
    """If all rows are near an end of their range, a noisy number of rows does not make errors larger than forecast.

    The noisy number of rows may be far too small. So a release must not clip its sum to the sums that are possible for
    this number of rows. The 95 % intervals contain the exact sum in at least 95 % of releases, up to three standard
    errors. Each of the `n` rows is `entry`, in the range from `low` to `high`, and `rho` is the budget.
    """
    made = AdaptiveDataMechanism(n, rho, ranges=[(low, high)], neighbors="add_remove")
    X, rng, off, inside = np.full((n, 1), entry), np.random.default_rng(7), [], []
    for _ in range(600):
        release = made.release(X, rng=rng)
        off.append(release.estimate[0] - X.sum())
        ends = [release.interval(0.95, unseen=unseen) for unseen in (False, True)]
        inside.append([least[0] <= X.sum() <= most[0] for least, most in ends])
    expected = made.forecast([0.01], center=entry).error.total
    assert np.mean(np.square(off)) <= expected * (1 + 4 * np.sqrt(2 / 600))
    assert np.mean(inside, axis=0).min() >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 600)


@pytest.mark.parametrize("rho", [0.8, 5.0])
def test_intervals_hold_if_the_noise_is_about_one_row(rho):
    """Intervals contain the sum as often as promised if the noise in the number of rows is about one row, or two.

    The years of birth are so far from 0 that the error of their sum is mostly due to the noise in the number of rows.
    """
    mechanism = AdaptiveDataMechanism(30, rho, ranges={"year of birth": (1900, 2020)}, neighbors="add_remove")
    rng, inside, confidences = np.random.default_rng(1), [], np.array([0.8, 0.9, 0.95])
    for _ in range(400):
        X = rng.uniform(1900, 2020, (30, 1))
        release = mechanism.release(X, rng=rng)
        ends = np.array([release.interval(confidence) for confidence in confidences])[:, :, 0]
        inside.append((ends[:, 0] <= X.sum()) & (X.sum() <= ends[:, 1]))
    assert np.all(np.mean(inside, axis=0) >= confidences - 3 * np.sqrt(confidences * (1 - confidences) / 400))


def test_a_mean_divides_by_the_noisy_number_of_rows():
    mechanism = AdaptiveDataMechanism(2, 1000.0, ranges=[(0, 10)], neighbors="add_remove")
    release = mechanism.release(np.array([[8.0]]), rng=np.random.default_rng(1))
    low, high = release.interval(of="mean")
    assert 0 < release.count < 2
    assert low[0] < release.mean[0] < high[0]


@pytest.mark.parametrize("number", [0, 1, 5, 150, 20_000])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_any_number_of_rows_is_released(bounds, number):
    """A release is possible for any true `number` of rows, even 0, although 4000 rows are declared.

    The mechanism does not know the true number, but measures a noisy one. If the noisy number is small, the mechanism
    does not search for center and spread; here it does not for a true number of at most 1000. The 95 % intervals of the
    means are infinite if, and only if, the 95 % interval of the number of rows contains 0. `bounds` says whether the
    data are bounded by a "radius" or by "ranges".
    """
    made, X = mechanism(bounds), people(number)
    made.check(X)
    for rng in (np.random.default_rng(1), None):
        release = made.release(X, rng=rng)
        assert abs(release.count - number) < 6 * release.count_std
        assert release.n == max(2, int(release.count))
        assert np.all(np.isfinite(release.estimate))
        assert release.method == "ranges" or number > 1000
    unbounded = release.count <= 1.959963984540054 * release.count_std
    assert np.isinf(release.interval(of="mean")).all() == unbounded


@pytest.mark.parametrize("per_person", [None, "sum"])
@pytest.mark.parametrize("rows", [[], (), np.empty((0, 2))], ids=["list", "tuple", "array"])
def test_no_rows_have_the_declared_columns(rows, per_person):
    """`release` of no rows returns a sum for each declared range; without ranges, an empty list raises a ValueError."""
    person = {} if per_person is None else {"person": []}
    assert mechanism("ranges", per_person=per_person).release(rows, **person).estimate.shape == (2,)
    if isinstance(rows, list | tuple):
        with pytest.raises(ValueError, match="X must have"):
            mechanism(per_person=per_person).release(rows, **person)


def test_no_blocks_have_no_columns():
    """Without declared columns or ranges, `release` raises a ValueError for an iterator that yields no block."""
    assert mechanism("ranges", per_person="sum").release(iter([]), person="id").estimate.shape == (2,)
    for made in (mechanism("ranges"), mechanism("radius", columns=["age", "pay"])):
        held = np.empty((0, 2)), lambda: iter([])
        one, other = (made.release(X, rng=np.random.default_rng(1)).estimate for X in held)
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="with at least one block of rows"):
        mechanism("radius").release(lambda: iter([]))
    with pytest.raises(ValueError, match="X must have at least one block of rows"):
        mechanism(per_person="sum").release(iter([]), person="id")


def test_what_holds_the_rows_changes_nothing(tmp_path):
    X = people()
    np.savetxt(tmp_path / "t.csv", X, delimiter=",", fmt="%.17g", header="age,pay", comments="")
    np.save(tmp_path / "t.npy", X)
    held = [X, lambda: iter(np.array_split(X, 7)), files.rows(tmp_path / "t.npy")]
    held += [files.rows(tmp_path / "t.csv", header="yes")]
    found = [mechanism(n=7 * N).release(rows, rng=np.random.default_rng(1)) for rows in held]
    assert all(np.array_equal(found[0].estimate, other.estimate) for other in found[1:])


@pytest.mark.slow
@pytest.mark.parametrize("bounds", ["ranges", "radius"])
def test_a_release_without_incomplete_rows_is_that_of_the_complete_rows(tmp_path, bounds):
    gaps, complete = with_gaps(people())
    frame = pd.DataFrame(gaps, columns=["age", "pay"])
    frame.to_csv(tmp_path / "t.csv", index=False, float_format="%.17g")
    held = [gaps, frame, frame.convert_dtypes(), pl.from_pandas(frame), lambda: iter([frame[:99], frame[99:]])]
    held += [files.rows(tmp_path / "t.csv", missing="nan"), da.from_array(gaps, chunks=(700, 2))]
    named = {"columns": ["age", "pay"]}
    expected = mechanism(bounds, **named).release(complete, rng=np.random.default_rng(1))
    for rows in held:
        found = mechanism(bounds, missing="drop_row", **named).release(rows, rng=np.random.default_rng(1))
        assert np.array_equal(found.estimate, expected.estimate)
        assert found.count == expected.count


def test_incomplete_rows_are_no_part_of_any_answer():
    """If rows with missing entries are left out, each query gets the other rows alone, and counts these alone.

    Only the check for infinite entries gets all rows. The same rows in a dask array and in blocks give the same totals.
    """
    gaps, complete = with_gaps(np.round(people()))
    for held, shape in ((gaps, None), (da.from_array(gaps, chunks=(700, 2)), None), (lambda: iter([gaps]), (None, 2))):
        passes = Passes(held, shape, gaps=True)
        assert passes.total(lambda block: block.sum(axis=0)).tolist() == complete.sum(axis=0).tolist()
        assert passes.shape == complete.shape
        assert passes.total(len, whole=True) == len(gaps)
    expected = mechanism("ranges").release(complete, rng=np.random.default_rng(1))
    found = mechanism("ranges", missing="drop_row").release(gaps, rng=np.random.default_rng(1))
    assert (found.estimate.tolist(), found.count) == (expected.estimate.tolist(), expected.count)


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_persons_without_any_value_in_a_column_are_left_out(how):
    gaps, complete = with_gaps(people())
    twice = np.concatenate([gaps, np.full_like(gaps, np.nan)])
    who = np.arange(2 * N) % N
    found, expected = (
        mechanism(per_person=how, **options).release(rows, person=person, rng=np.random.default_rng(1))
        for options, rows, person in (
            ({"missing": "drop_row"}, twice, who),
            ({}, complete, np.arange(len(complete))),
        )
    )
    assert np.array_equal(found.estimate, expected.estimate)


def test_incomplete_rows_with_an_infinite_entry_are_refused():
    gaps, _ = with_gaps(people())
    gaps[777] = np.nan, np.inf
    for rows in (gaps, da.from_array(gaps, chunks=(700, 2)), lambda: iter([gaps[:99], gaps[99:]])):
        with pytest.raises(ValueError, match=r"^X\[777, 1\] must be finite$"):
            mechanism(missing="drop_row").release(rows)


@pytest.mark.parametrize("seeds", [2, *slow(20)])
def test_the_least_budget_is_enough(seeds):
    """The budget that `least_rho` returns is enough to find the center and the spread of the rows by private queries.

    It is enough even with 50 rows fewer than declared. This is tried with as many seeds of rows and noise as `seeds`
    says. With 0.99 times this budget, the method `check` raises a ValueError.
    """
    for d in (1, 2):
        least = mechanism().least_rho(d)
        made = mechanism(rho=least)
        for seed in range(seeds):
            X = people(N - 50, seed)[:, :d]
            assert made.release(X, rng=np.random.default_rng(seed)).method == "search"
        with pytest.raises(ValueError, match=r"rho = .* is too small for n = 4000"):
            mechanism(rho=least * 0.99).check(X)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_noise_of_a_sum_has_a_part_from_the_number_of_rows(bounds):
    """The noise of a released sum contains the noise of the number of rows, multiplied by the center.

    The reason is that the sum contains the center times the noisy number of rows. `bounds` says how data are bounded.
    """
    release = mechanism(bounds).release(people(), rng=np.random.default_rng(1))
    expected = np.hypot(release.centered_std, release.count_std * release.center)
    assert release.method == "search"
    assert release.noise_std == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbors": "both"}, 'neighbors must be "replace_one" or "add_remove", got .both.'),
        ({"neighbors": None}, "neighbors must be"),
        ({"neighbors": ["add_remove"]}, "neighbors must be"),
        ({"basis": "learn"}, 'basis must not be "learn" for neighbors="add_remove"'),
        ({"missing": "center"}, 'missing must be "error" or "drop_row", got .center.'),
        ({"missing": None}, "missing must be"),
        ({"missing": "drop_row", "neighbors": "replace_one"}, 'missing must be "error" for neighbors="replace_one"'),
    ],
)
def test_wrong_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        mechanism(**options)


def test_messages_do_not_show_the_number_of_rows():
    for X in (np.zeros((777, 2, 2)), np.zeros(777)):
        with pytest.raises(ValueError, match=r"^X must have shape") as caught:
            mechanism().check(X)
        assert "777" not in str(caught.value)


def test_a_budget_is_for_one_kind_of_neighbors():
    made = mechanism()
    with pytest.raises(ValueError, match='neighbors must be "replace_one" for this budget, and are "add_remove"'):
        Budget(rho=1.0).charge(made)
    assert Budget(rho=1.0, neighbors="add_remove").charge(made).rho == RHO


def test_persons_may_be_added_or_removed():
    X, who = people(2 * N), np.arange(2 * N) // 2
    release = mechanism(per_person="mean").release(X, person=who, rng=np.random.default_rng(1))
    assert abs(release.count - N) < 6 * release.count_std


def test_the_command_line_releases_a_noisy_number_of_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savetxt("t.csv", people(), delimiter=",", fmt="%.17g", header="age,pay", comments="")
    options = ["--header", "yes", "--rho", "0.1", "--radius", "1e4", "--sigma-range", "1,1e4"]
    options += ["--neighbors", "add_remove", "--simulate", "1", "--format", "json"]
    assert cli.main(["adaptive", "t.csv", *options, "--rows", "5000"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = mechanism(n=5000).release(people(), rng=np.random.default_rng(1))
    assert found["estimate"] == expected.estimate.tolist()
    assert (found["count"], found["parameters"]["neighbors"]) == (expected.count, "add_remove")
    gaps, complete = with_gaps(people())
    np.savetxt("gaps.csv", gaps, delimiter=",", fmt="%.17g", header="age,pay", comments="")
    assert cli.main(["adaptive", "gaps.csv", *options, "--rows", "5000", "--missing", "drop_row"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["estimate"] == mechanism().release(complete, rng=np.random.default_rng(1)).estimate.tolist()
    assert found["parameters"]["missing"] == "drop_row"
    assert cli.main(["adaptive", "t.csv", *options]) == 2
    assert "--rows is required with --neighbors add_remove" in capsys.readouterr().err
