"""Test the parts of the benchmarks, except for running times: reference values, calls of rival programs, and tables."""

import csv
import importlib.util
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri

from benchmarks import bases, gradients, intervals, l2, laws, quadratic_forms, ranges, release, rivals, searches, users
from benchmarks import gx2 as measured
from benchmarks.direct import direct_tail
from egm import AdaptiveDataMechanism, calibration, gx2
from egm.study import tables

X, WEIGHTS = 15.0, 1 / np.arange(1, 11)


@pytest.mark.parametrize("weights", [[1.0, 0.3], WEIGHTS, np.geomspace(1, 1e-3, 300), np.full(50, 7.0)], ids=len)
@pytest.mark.parametrize("p", [1e-2, 1e-12])
def test_direct_sum_agrees(weights, p):
    x = gx2.isf(p, weights)
    assert direct_tail(x, np.array(weights)) == pytest.approx(gx2.sf(x, weights), rel=1e-12, abs=0)


@pytest.mark.parametrize(("d", "p"), measured.MORE_TAILS)
def test_more_tails_are_exact(d, p):
    x, tail = measured.references()[d, p]
    assert direct_tail(x, 1 / np.arange(1, d + 1)) == pytest.approx(tail, rel=1e-12, abs=0)


def test_every_tail_has_a_reference():
    assert {(d, p) for d in (10, 100, 1000) for p in measured.P} <= measured.references().keys()


@pytest.mark.filterwarnings("ignore")
def test_rivals_are_called_as_they_want():
    """Each function of `rivals.available()` computes a tail probability with a relative error of at most 0.9.

    Some of the rival programs are inaccurate, but one that is called with wrong arguments would be far worse. The tail
    is P[sum_j Z_j**2 / j > 15], for ten standard normal variables Z_j. There are at least ten functions.
    """
    tails = {name: tail(X, WEIGHTS) for name, tail in rivals.available().items()}
    assert len(tails) >= 10
    assert all(value == pytest.approx(gx2.sf(X, WEIGHTS), rel=0.9) for value in tails.values())


def test_missing_packages_are_named(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(rivals, "find_spec", lambda name: None if name == "gx2" else find(name))
    assert "gx2" in rivals.missing()
    assert not any("PyPI" in name for name in rivals.available())


def test_a_fault_is_no_number():
    """If the program for Davies' method reports a fault, the function from `rivals.davies` returns NaN, not a tail."""
    qf = pytest.importorskip("fastlmmclib.quadform").qf
    assert np.isnan(rivals.davies(qf, 1e-9, lim=3)(X, WEIGHTS))


@pytest.mark.parametrize("method", measured.SEARCHES)
def test_searches_find_the_quantile(method):
    x, width = measured.equal_accuracy(1e-3, WEIGHTS)
    found = measured.search(method, gx2.sf, 1e-3, WEIGHTS, width)
    assert gx2.sf(found, WEIGHTS) == pytest.approx(1e-3, abs=measured.ABSOLUTE)
    assert found == pytest.approx(x, abs=2 * width)


def test_lines_say_whether_the_goal_is_met():
    """`verdict` returns a line of text that says whether all given numbers are at most, or at least, a given limit.

    The line has at most 110 characters.
    """
    line = measured.verdict("error of sf, to the direct sum", [1e-13, 1e-14, 1e-15, 1e-16], ".0e", most=1e-12)
    assert line.endswith("<= 1e-12 met")
    assert len(line) <= 110
    assert measured.verdict("speed", [25, 19], ".1f", least=20).endswith(">= 20 NOT met")


def test_time_of_a_release_with_unknown_centre_is_printed():
    lines = list(release.adaptive(quick=True))
    assert "(1e+05, 10) at (1, 1e-06)" in lines[1]
    seconds = {line.split()[0]: float(line.split()[1]) for line in lines[3:]}
    assert seconds.keys() == {"simulated", "secure"}
    assert min(seconds.values()) > 0


def test_errors_of_l2_noise_are_printed(monkeypatch):
    monkeypatch.setattr(l2, "find_spec", lambda name: None)
    _, _, columns, missing, *rows = l2.noise(quick=True)
    assert columns.split() == ["error,", "egm", "ms,", "egm"]
    assert missing == "dp_l2: not installed"
    # Squared errors over those of Gaussian noise: quadrature by another program, to six digits.
    assert [row.split()[2:4] for row in rows[:2]] == [["2", "0.168026"], ["10", "0.517611"]]
    assert [row.split()[2] for row in rows[2:5]] == ["100", "1000", "1000000"]
    assert [row.rsplit("<= ")[1].split()[0] for row in rows[5:]] == ["5", "50", "1.2"]


def test_authors_of_l2_noise_are_called_as_they_want(monkeypatch):
    """`l2.noise` calls the program dp_l2 with the arguments that its authors used, and prints the error of its noise.

    dp_l2 computes the scale of l2 noise. The test replaces it by a function that checks its arguments, except for the
    dimension, and returns the scale 1 / epsilon, which is sufficient for any delta. `l2.noise` must print the mean
    squared errors for this scale and for the scale that egm computes, both divided by the error of Gaussian noise. The
    error for egm's scale must be at most the error for the scale 1 / epsilon, and at most 1.
    """

    def get_l2_sigma(d, eps, delta, num_rs, num_e1_rs, tolerance):
        assert (eps, delta, num_rs, num_e1_rs, tolerance) == (1.0, 1e-6, 1000, 1000, 1e-3)
        return 1 / eps

    monkeypatch.setattr(l2, "find_spec", lambda name: name == "dp_l2")
    monkeypatch.setitem(sys.modules, "dp_l2.l2", SimpleNamespace(get_l2_sigma=get_l2_sigma))
    rows = [line.split() for line in l2.noise(quick=True) if line.startswith("d = ")]
    assert len(rows) == 5
    for _, _, d, own, authors, *times in rows:
        expected = (int(d) + 1) / calibration.analytic_noise_multiplier(1.0, 1e-6) ** 2
        assert float(authors) == pytest.approx(expected, abs=1e-6)
        assert float(own) <= min(1, float(authors))
        assert len(times) == 2


@pytest.mark.parametrize("law", laws.LAWS)
def test_laws_are_rows_of_columns_of_the_same_size(law):
    """Rows from the distribution with the name `law` in LAWS are finite, and have columns of a moderate spread.

    For each distribution, the median of the standard deviations of four columns is from 0.005 to 50.
    """
    X = laws.LAWS[law](np.random.default_rng(1), 2000, 4)
    assert X.shape == (2000, 4)
    assert np.all(np.isfinite(X))
    assert 0.005 < np.median(np.std(X, axis=0)) < 50


def test_drawn_columns_have_their_scales_and_are_far_from_0():
    X = laws.draw("normal", 20_000, 3, 1.0, np.random.default_rng(1))
    assert np.std(X, axis=0) == pytest.approx(tables.zipf_sigma(3, 1.0, total=3), rel=0.05)
    centers = [laws.draw("normal", 2000, 3, 0.0, np.random.default_rng(seed)).mean(axis=0) for seed in range(40)]
    assert 0.9 * laws.FAR < np.max(np.abs(centers)) < 1.1 * laws.FAR


@pytest.mark.parametrize("name", laws.TABLES)
def test_strange_tables_are_tables_of_numbers(name):
    table = laws.TABLES[name]
    X = searches.Setting("strange tables", name, table.n, table.d, table.reach).rows(0)
    assert X.shape == (table.n, table.d)
    assert X.dtype == float
    assert np.all(np.isfinite(X))


def test_every_law_is_tried_where_it_should():
    """`searches.settings()` has 500 settings; the budget is too small for the mechanism only in REFUSED_PLACES.

    The mechanism is `AdaptiveDataMechanism`. A place is a choice of the number of rows, the number of columns and the
    budget. A setting is such a choice with a distribution of rows, or with the name of a table of data.
    """
    settings = searches.settings()
    assert len(set(settings)) == len(settings) == 10 * (10 + len(searches.REFUSED_PLACES) + 2) + 50 * 4 + 8 * 5 + 100
    for setting in settings:
        mechanism = setting.mechanism
        assert mechanism.n * np.sqrt(mechanism.rho) == pytest.approx(setting.reach)
        refused = (setting.n, setting.d, setting.reach) in searches.REFUSED_PLACES
        assert (mechanism.rho < mechanism.least_rho(setting.d)) == refused, setting
    assert len(searches.TEN_PLACES) * len(laws.TEN) * searches.RUNS["ten laws"] == 10_000


SMALL = searches.Setting("ten laws", "uniform", 300, 2, 200)


def test_a_run_belongs_to_its_key():
    """`searches.release` returns the same result whenever it is called with the same setting and number of the run.

    Another number of the run gives another result. Settings that differ only in the field `part`, a part of the
    benchmark such as "ten laws", have rows that differ in every entry.
    """
    assert searches.release(SMALL, 1) == searches.release(SMALL, 1)
    assert searches.release(SMALL, 1) != searches.release(SMALL, 2)
    assert not np.any(SMALL.rows(1) == SMALL._replace(part="fifty laws").rows(1))


@pytest.mark.parametrize(
    ("off", "sigma", "ratio", "inside", "covered"),
    [
        ([2.4, 3.2], [1.0, 1.0], 4.0, True, 1.0),
        ([0.0, 4.0], [1.0, 1.0], 4.0, True, 0.5),
        ([6.0, 8.0], [1.0, 1.0], 10.0, True, 0.0),
        ([0.0, 0.0], [1.0, 1e5], 0.0, False, 1.0),
        ([0.0, 1e9], [1.0, 1.0], 1e9, False, 0.5),
        ([0.0, np.nan], [1.0, 1.0], np.nan, False, 0.5),
    ],
)
def test_what_is_measured(monkeypatch, off, sigma, ratio, inside, covered):
    """`searches.release` and `searches.line` return the expected measures of releases whose errors are known.

    In place of the mechanism, a function releases the exact sum plus `off`, the standard deviations `sigma` of the
    columns, the forecast 1 of the squared error, and intervals of the half-width 3.5. Expected are: `ratio`, the norm
    of the error over the root of its forecast; `inside`, whether estimate and `sigma` are within the declared ranges;
    and `covered`, the fraction of the entries of the exact sum that lie in their intervals.
    """
    X, off = SMALL.rows(0), np.array(off)

    def known(self, X, *, rng):
        estimate = X.sum(axis=0) + off
        found = SimpleNamespace(estimate=estimate, sigma=np.array(sigma), forecast=SimpleNamespace(total=1.0))
        found.noise_std, found.bias, found.center, found.model_holds = np.ones(2), np.zeros(2), np.zeros(2), True
        found.interval = lambda confidence: (estimate - 3.5, estimate + 3.5)
        return found

    monkeypatch.setattr(AdaptiveDataMechanism, "release", known)
    run, (line, told) = searches.release(SMALL, 0), searches.line(SMALL, 4)
    sampling = np.linalg.norm(X.std(axis=0)) * np.sqrt(300)
    assert run == pytest.approx((ratio, ratio / sampling, 1 / sampling, inside, covered, True), nan_ok=True)
    assert (line.runs, line.refused, line.failures, told) == (4, 0, 0, [])
    assert line.beyond == (0 if ratio <= 5 else 4)
    assert line.above == (4 if ratio < 0.2 else 0)
    assert line.outside == (0 if inside else 4)
    assert line.coverage == covered


def test_refusals_and_failures_are_counted_apart(monkeypatch):
    refused, _ = searches.line(SMALL._replace(reach=100), 3)
    assert (refused.runs, refused.refused, refused.failures, refused.beyond) == (3, 3, 0, 0)
    monkeypatch.setattr(AdaptiveDataMechanism, "release", lambda *args, **options: 1 / 0)
    failed, told = searches.line(SMALL, 3)
    assert (failed.runs, failed.refused, failed.failures, failed.beyond) == (3, 0, 3, 0)
    assert told[2] == "run 2: ZeroDivisionError: division by zero"


def test_table_is_what_was_measured():
    """The CSV file `searches.TABLE` in the package has one line for each of `searches.settings()`, in their order.

    The file has the columns of `searches.Line`. Each line states the number of runs that `searches.RUNS` demands.
    """
    names, *rows = csv.reader(searches.TABLE.read_text(encoding="utf-8").splitlines())
    assert tuple(names) == searches.Line._fields == tables.searches().dtype.names
    assert [row[:4] for row in rows] == [[str(value) for value in setting[:4]] for setting in searches.settings()]
    assert all(int(row[5]) == searches.RUNS[row[0]] for row in rows)
    lines = [searches.Line(*setting, *[1] * 12) for setting in searches.settings()]
    assert [row[4] for row in csv.reader(searches.text(lines).splitlines()[1:])] == [row[4] for row in rows]


@pytest.mark.parametrize(
    ("part", "law", "place"),
    [
        ("fifty laws", "uniform", searches.FIFTY_PLACES[0]),
        ("strange tables", "constant, beyond the radius", (4000, 2, 500)),
        ("strange tables", "constant, at the radius", (4000, 10, 1000)),
    ],
)
def test_line_is_the_committed_one(part, law, place):
    """If all runs of a setting are made again, its line equals that of the stored table, character by character.

    A setting is a `part` of the table, the name `law` of a distribution of rows or of a table of data, and a `place`:
    the number of rows, the number of columns, and n sqrt(rho). The stored table is the file `searches.TABLE`.
    """
    setting = searches.Setting(part, law, *place)
    names, found = csv.reader(searches.text([searches.line(setting, searches.RUNS[part])[0]]).splitlines())
    header, *rows = csv.reader(searches.TABLE.read_text(encoding="utf-8").splitlines())
    assert names == header
    assert [row for row in rows if row[:5] == found[:5]] == [found]


def test_a_part_is_measured_again_and_the_others_stay(tmp_path, monkeypatch, capsys):
    """`python -m benchmarks.searches --part NAME` replaces the lines of one part of the table, and no others.

    Here the part "strange tables", in the middle of the table, is measured, and its measures are replaced by made-up
    ones. So its lines have new numbers at the old places.
    """
    target, old = tmp_path / "searches.csv", searches.TABLE.read_text(encoding="utf-8")
    target.write_text(old, encoding="utf-8")
    monkeypatch.setattr(searches, "TABLE", target)
    fake = [searches.Line(*setting, 20, 0, 0, *range(9)) for setting in searches.settings()]
    monkeypatch.setattr(searches, "measure", lambda todo, *args, **options: [f for f in fake if f[:5] in todo])
    searches.main(["--part", "strange tables"])
    new, lines = target.read_text(encoding="utf-8").splitlines(), old.splitlines()
    changed = [(i, line.split(",")[0]) for i, line in enumerate(lines) if new[i] != line]
    assert len(new) == len(lines)
    assert changed == [(i, "strange tables") for i, line in enumerate(lines) if line.startswith("strange tables,")]
    assert all(new[i].endswith(",20,0,0,0,1,2,3,4,5,6,7,8") for i, _ in changed)
    assert capsys.readouterr().out.startswith("strange tables: 2000 runs, 0 refused,")


def test_the_whole_table_needs_no_older_one(tmp_path, monkeypatch):
    """`python -m benchmarks.searches` without --part writes its table even if there is none yet."""
    monkeypatch.setattr(searches, "TABLE", tmp_path / "searches.csv")
    lines = [searches.Line(*setting, 20, 0, 0, *range(9)) for setting in searches.settings()]
    monkeypatch.setattr(searches, "measure", lambda *_, **__: lines)
    searches.main([])
    assert searches.TABLE.read_text(encoding="utf-8") == searches.text(lines)


def test_what_is_lost_was_not_to_be_seen():
    """An error above five times the forecast of `AdaptiveDataMechanism` is rare in its stored results.

    The results are those of the table `tables.searches()`, which has five parts. Such an error occurs

    - in "ten laws" and "large budgets" only for distributions of infinite variance,
    - in "strange tables" only for data with Pareto or Cauchy columns, or data that `laws.TABLES` marks as hidden,
      because they are not as the user declared or have too few outlying rows to be noticed,
    - in "mixed columns" never.

    The errors of "fifty laws" are not tested. In no part did a run fail, or release a number outside of the declared
    ranges.
    """
    table = tables.searches()
    assert not np.any(table["failures"] + table["outside"])
    lost = table[table["beyond"] > 0]
    assert set(lost["law"][np.isin(lost["part"], ["ten laws", "large budgets"])]) <= set(laws.INFINITE)
    assert "mixed columns" not in lost["part"]
    strange = {name for name in lost["law"][lost["part"] == "strange tables"] if not laws.TABLES[name].hidden}
    assert all(name.startswith(("Pareto", "Cauchy")) for name in strange)


# Quadratic forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.3, 1e-8, 1e-200])
def test_moments_match_for_equal_weights(p):
    """`moment_matching` returns the upper tail probability `p` of a weighted chi-square sum, exactly for equal weights.

    The weighted sum is then a multiple of one chi-square variable. The tolerance is a relative 1e-11.
    """
    x = 3 * stats.chi2.isf(p, 7)
    assert quadratic_forms.moment_matching(x, np.full(7, 3.0)) == pytest.approx(p, rel=1e-11, abs=0)


@pytest.mark.filterwarnings("ignore")
def test_table_of_tails_shows_errors_and_times():
    """For four equal weights, the table of tails shows relative errors below 1e-11 for egm and for moment matching.

    The method of moment matching is exact then. The time of egm is shown as 1, because all times are divided by it.
    """
    lines = list(quadratic_forms.table(np.full(4, 0.5), p=(1e-3, 1e-30)))
    cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines[2:]}
    for name in ("`egm.gx2`", "Liu, Tang and Zhang"):
        assert all(re.search(r"10\^\{-1[2-6]\}\$$", cell) for cell in cells[name][:-1])
    assert cells["`egm.gx2`"][-1] == "1"


# Other libraries, and gradients ---------------------------------------------------------------------------------------


def test_jobs_are_done_by_egm():
    """Three functions of `benchmarks.users` that use egm estimate the means of ten columns with small errors.

    They do so without and with guesses of center and spread. A fourth function adds up incomes in twenty groups; the
    median of its errors is from 0.5 to 1.5 times that of its Laplace noise.
    """
    for function, most in ((users.egm_wide, 0.05), (users.egm_guessed, 0.05), (users.egm_best, 0.005)):
        assert 0 < np.median(users.measure(function, "normal", 20_000)[0]) < most
    assert 10 < np.median(users.measure(users.egm_groups, "normal", 2000)[0]) < 30  # Laplace noise has 20


def test_refusal_is_no_error():
    def refuse(income, region):
        raise RuntimeError("too few")

    assert users.shown(users.measure(refuse, "normal", 100)[0]) == "refused"


def test_library_that_does_not_work_is_left_out_with_its_message(monkeypatch, capsys):
    """`benchmarks.users` tells a library that does not work here from one that refuses a job, and from a missing one.

    Of four made-up libraries, two are installed and fail at every job, with an ImportError or because another package
    has the wrong version. One refuses a single job, and one is not installed. Only the third has a line in the table.
    """

    def fail(error):
        def attempt(*arguments):
            raise error

        return attempt

    mismatch = RuntimeError("Installed python polars version (2.1.0) != expected version (1.36.1)")
    jobs = {
        "half_groups": fail(ImportError("no module named polars")),
        "old_groups": fail(mismatch),
        "able_groups": lambda income, region: np.bincount(region, income, minlength=users.GROUPS),
        "absent_groups": fail(AssertionError("not to be called")),
        "able_wide": fail(RuntimeError("too few rows")),
    }
    for name, function in jobs.items():
        function.__name__ = name
    *sums, wide = jobs.values()
    monkeypatch.setattr(users, "JOBS", {"means": [wide], "sums by group": sums})
    monkeypatch.setattr(
        users, "PACKAGES", {"half": "numpy", "old": "numpy", "able": "numpy", "absent": "no-such-package"}
    )
    monkeypatch.setattr(users, "lines", lambda function: 1)
    monkeypatch.setattr(sys, "argv", ["users"])
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    users.main()
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"able {np.__version__}"
    assert not re.search("half|old|absent", out)
    assert re.search(r"^able_wide +1 +refused +refused +refused +refused", out, re.MULTILINE)
    assert re.search(r"^able_groups +1 +0 ", out, re.MULTILINE)
    assert f"half {np.__version__} does not work here: ImportError: no module named polars" in err
    assert f"old {np.__version__} does not work here: RuntimeError: {mismatch}" in err


def test_lines_of_code_are_counted():
    """`users.lines` counts the lines of a function's body, and those of the functions of its module that it calls.

    `pipelinedp_wide` has one line, a call of `pipelinedp_guessed`, which has twelve.
    """
    assert users.lines(users.egm_wide) == 3
    assert users.lines(users.egm_groups) == 2
    assert users.lines(users.pipelinedp_wide) == 1 + users.lines(users.pipelinedp_guessed) == 13


@pytest.mark.parametrize("widths", [(5, 3), (5, 4, 3)])
def test_gradients_are_derivatives(widths):
    """For each parameter and row, `Model.gradients` agrees within 1e-6 with difference quotients of the loss.

    The model is a neural network, and `widths` are those of its layers.
    """
    rng = np.random.default_rng(1)
    model = gradients.Model(*widths)
    theta, X, Y = rng.normal(size=model.size), rng.normal(size=(2, 5)), np.eye(3)[[0, 2]]

    def losses(theta):
        return -np.log(np.sum(model.forward(theta, X)[1] * Y, axis=1))

    steps = 1e-5 * np.eye(model.size)
    differences = np.array([(losses(theta + step) - losses(theta - step)) / 2e-5 for step in steps]).T
    assert model.gradients(theta, X, Y) == pytest.approx(differences, abs=1e-6)


def test_scaling_of_gradients_keeps_the_noise():
    """`gradients.lemma` returns factors b_j proportional to 1 / sqrt(sigma_j), as in Lemma 4.1, with mean(b**-2) = 1.

    The lemma is one of Poulsen's report. sigma_j is the standard deviation of coordinate j of a gradient, which is
    multiplied by b_j before clipping. For a given clip norm, the scaling changes the total variance of the noise by the
    factor mean(b**-2), so not at all.
    """
    spread = np.array([1.0, 4.0, 9.0])
    b = gradients.lemma(spread)
    assert np.mean(b**-2.0) == pytest.approx(1, rel=1e-5)
    assert b * np.sqrt(spread) == pytest.approx(b[0] * np.ones(3), rel=1e-5)


def test_measured_intervals_of_exact_normal_errors():
    """For artificial intervals with normal errors, `intervals.measured` returns the theoretical coverage and lengths.

    Coverage is the fraction of intervals that contain the true value. The lengths of the intervals are the exact ones
    for a coverage of 80 % and 95 %, times a factor of 1 or 2, so `intervals.measured` must return this factor as their
    relative length. For the factor 1, it must also return the theoretical standard error of the coverage.
    """
    rng, runs = np.random.default_rng(1), 4000
    z = np.array([ndtri(0.9), ndtri(0.975)])
    for factor in (1.0, 2.0):
        found = []
        for _ in range(runs):
            errors, half = rng.normal(size=(2, 2)) * [1.0, 30.0], factor * z[:, None] * [1.0, 30.0]
            lengths = np.broadcast_to(2 * half, (2, 2, 2))
            found.append((np.abs(errors[:, None]) <= half, lengths, errors))
        share, se, ratio = intervals.measured(found)
        nominal = 1 - 2 * ndtr(-factor * z)
        exact = np.sqrt(nominal * (1 - nominal) / (2 * runs)) * np.ones((2, 1))
        assert np.all(np.abs(share - nominal) < 4 * exact)
        assert np.all(np.abs(se - exact) < 0.1 * exact) or factor > 1
        np.testing.assert_allclose(ratio, factor, rtol=0.06)


@pytest.mark.parametrize("kind", intervals.MECHANISMS)
@pytest.mark.filterwarnings("ignore")
def test_intervals_are_measured_for_each_law(kind):
    """`intervals.table` yields a heading, the names of the columns, a line for each law, and four lines of summary.

    A law is a distribution of rows. Its line says how often confidence intervals of the mechanism `kind` contain the
    mean. `intervals.release` returns equal errors for equal numbers of the run, and other errors for another number.
    """
    heading, columns, *laws_of, first, _, _, _ = intervals.table(kind, 4, 2, ("uniform", "t, 2"))
    assert heading.startswith(kind)
    assert "population 95%" in columns
    assert [line[:7].rstrip() for line in laws_of] == ["uniform", "t, 2"]
    assert first.startswith("mean 80%, laws (of 2) inside often enough: ")
    inside, lengths, errors = intervals.release(kind, "uniform", 1, 2)
    assert (inside.shape, lengths.shape, errors.shape) == ((2, 2, 2), (2, 2, 2), (2, 2))
    assert np.array_equal(intervals.release(kind, "uniform", 1, 2)[2], errors)
    assert not np.array_equal(intervals.release(kind, "uniform", 5, 2)[2], errors)


@pytest.mark.filterwarnings("ignore")
def test_releases_with_ranges_are_compared_with_a_clipped_sum():
    """`ranges.cell` returns the ratio of the squared errors of `AdaptiveDataMechanism` and of a sum of clipped rows.

    The mechanism either releases such a sum, or first searches: it finds center and spread by private queries. The
    ratio must be 1 if no release searches, and below 0.1, for normal rows, if all do. The standard error of the ratio
    and the fraction of releases with a search are returned, too. The last line of `ranges.table` is a summary for the
    widest ranges.
    """
    ratio, se, share = ranges.cell("uniform", 3.0, 50, 2, 8, 3)
    assert (ratio, se, share) == (pytest.approx(1, rel=1e-9), pytest.approx(0, abs=1e-9), 0)
    found = ranges.cell("normal", 100.0, 4000, 3, 3000, 3)
    assert found[0] < 0.1
    assert found[2] == 1
    assert ranges.cell("normal", 100.0, 4000, 3, 3000, 3) == found
    *_, last = ranges.table(["one row in 1000 far"], 2)
    assert last.startswith("half 100, 4 cells: mean ")


# --- Rows with correlated columns -------------------------------------------------------------------------------------


def test_the_stored_table_has_each_method_on_each_set():
    """The file `bases.TABLE` has a line with errors for each data set and each method that estimates its mean.

    The lines are in the order of the data sets in `bases.RANGES`, and then of the methods in `bases.METHODS`.
    """
    names, *rows = csv.reader(bases.TABLE.read_text(encoding="utf-8").splitlines())
    assert names == bases.COLUMNS.split(",") == list(tables.bases().dtype.names)
    assert [(row[0], row[2]) for row in rows] == [(name, how) for name in bases.RANGES for how in bases.METHODS]
    assert all(row[3] == str(bases.runs_of(row[2])) for row in rows)


def test_no_fewer_rows_than_columns_allow_are_needed():
    """For normal rows with d columns, `bases.rows_needed` returns more than 20 k d, where k is `bases.K`.

    The method of Brown, Hopkins and Smith for private means most likely refuses fewer rows than this number. The
    number stays the same after a linear change of the columns, and is infinite for linearly dependent columns.
    """
    X = np.random.default_rng(1).normal(size=(2000, 3))
    least = bases.rows_needed(X)
    assert least > 20 * bases.K * 3
    assert bases.rows_needed(X @ [[5.0, 1.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1e-3]]) == pytest.approx(least, rel=1e-9)
    assert bases.rows_needed(X * [1.0, 1.0, 0.0]) == np.inf
