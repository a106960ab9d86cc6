"""Do three jobs with egm and with other libraries for differential privacy, and compare errors, times and code.

The first job is to estimate the means of ten columns of which only a wide bound is known. The second job is to estimate
these means with the help of public guesses of means and standard deviations. The third job is to add up a column in
each of twenty groups. All that a function releases is, taken together, (1, 1e-6)-differentially private or better.

Run it by `python -m benchmarks.users` in an environment that has some of the libraries. Those that are not installed or
do not work there are left out. They cannot all be installed in one environment. Each function for a job has the code
that a user of a library has to write, and the program counts the lines of this code.
"""

import argparse
import ast
import contextlib
import inspect
import os
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter, process_time

import numpy as np

import egm

EPSILON, DELTA = 1.0, 1e-6
RHO = 0.02435597  # egm.calibration.zcdp_rho(EPSILON, DELTA), for libraries that have zCDP
BOUND = 1e6  # all that is known of the numbers in the first job
COLUMNS, GROUPS, LARGEST = 10, 20, 10_000.0  # the last is a public bound on incomes in the third job
SIZES = 20_000, 2000
RUNS, PATIENCE = 100, 60.0  # at most so many runs; no further one after so many seconds, but at least two
WIDTH = 4  # in the second job: standard deviations from the guessed mean to a bound, where a library needs bounds


def table(kind, n):
    """Return (X, center, sigma): rows of ten columns, and public guesses of the means and the standard deviations.

    X has the shape (`n`, 10), and its distribution is `kind`, "normal" or "lognormal". The means are guessed wrong by
    half a standard deviation, and the standard deviations 1.25 times too large.
    """
    rng = np.random.default_rng(0)
    if kind == "normal":
        mean, spread = rng.normal(0, 30, COLUMNS), 100 / np.arange(1, COLUMNS + 1) ** 2
        X = rng.normal(mean, spread, (n, COLUMNS))
    else:
        log, s = np.linspace(2, 8, COLUMNS), 0.8
        mean = np.exp(log + s**2 / 2)
        spread = mean * np.sqrt(np.expm1(s**2))
        X = np.exp(rng.normal(log, s, (n, COLUMNS)))
    return X, mean + spread / 2 * (-1) ** np.arange(COLUMNS), 1.25 * spread


def people(kind, n):
    """Return (income, region): the incomes of `n` people, and the number of each person's region, from 0 to 19.

    The distribution of the incomes is `kind`, "normal" or "lognormal". The first regions have the most people.
    """
    rng = np.random.default_rng(1)
    share = 1 / np.arange(1, GROUPS + 1)
    income = rng.normal(2200, 700, n) if kind == "normal" else np.exp(rng.normal(7.5, 0.6, n))
    return income, rng.choice(GROUPS, n, p=share / share.sum())


# Means of columns of which only a wide bound is known -----------------------------------------------------------------


def egm_wide(X):
    """Return the means of the ten columns of `X`, estimated by egm, which finds center and spread privately."""
    from egm import AdaptiveDataMechanism
    from egm.calibration import zcdp_rho

    rho, n = zcdp_rho(EPSILON, DELTA), len(X)
    mechanism = AdaptiveDataMechanism(n, rho, radius=BOUND, sigma_range=(1e-3, BOUND))
    return mechanism.release(X).estimate / n


def opendp_wide(X):
    """Return the means of the ten columns of `X`, estimated by OpenDP from entries clipped to private quantiles.

    Half of the budget is spent on two quantiles of each column, at 5 % and 95 %. The other half is spent on the sums of
    the entries clipped to the interval between these quantiles.
    """
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    names = [f"c{j}" for j in range(COLUMNS)]
    context = dp.Context.compositor(
        data=pl.LazyFrame(X, schema=names),
        privacy_unit=dp.unit_of(changes=1),
        privacy_loss=dp.loss_of(rho=RHO),
        split_by_weights=[1, 1],
        margins=[dp.polars.Margin(max_length=len(X), invariant="lengths")],
    )
    half = np.geomspace(1e-3, BOUND, 300)
    grid = [*-half[::-1], 0.0, *half]
    tails = [(c, p) for c in names for p in (0.05, 0.95)]
    ends = [pl.col(c).dp.quantile(p, grid).alias(f"{c}_{p}") for c, p in tails]
    ends = context.query().select(ends).release().collect().to_numpy().reshape(-1, 2).copy()
    ends[:, 1] = np.maximum(ends[:, 1], ends[:, 0] + 1e-6)
    sums = [pl.col(c).dp.sum(tuple(end)) for c, end in zip(names, ends, strict=True)]
    return context.query().select(sums).release().collect().to_numpy()[0] / len(X)


def diffprivlib_wide(X):
    """Return the means of the ten columns of `X`, estimated by diffprivlib from entries clipped to private quantiles.

    The budget is divided equally, by advanced composition, among two quantiles of each column, at 15 % and 85 %, and
    the mean of the entries clipped to the interval between them.
    """
    from diffprivlib import BudgetAccountant, tools

    accountant, means = BudgetAccountant(EPSILON, DELTA, slack=DELTA), []
    each = max(accountant.remaining(3 * COLUMNS)[0], EPSILON / (3 * COLUMNS)) * (1 - 1e-9)
    with accountant:
        for x in X.T:
            ends = [tools.quantile(x, p, epsilon=each, bounds=(-BOUND, BOUND)) for p in (0.15, 0.85)]
            means.append(tools.mean(x, epsilon=each, bounds=(min(ends), max(ends) + 1e-9)))
    return np.array(means)


def pydp_wide(X):
    """Return the means of the ten columns of `X`, estimated by PyDP, which finds bounds of each column privately."""
    from pydp.algorithms.laplacian import BoundedMean

    mean = BoundedMean(epsilon=EPSILON / COLUMNS, dtype="float")
    return np.array([mean.quick_result(x.tolist()) for x in X.T])


def pipelinedp_wide(X):
    """Return the means of the ten columns of `X`, estimated by PipelineDP from entries clipped to [-1e6, 1e6].

    The user knows no better bounds, and PipelineDP has no private search for them.
    """
    return pipelinedp_guessed(X, np.zeros(COLUMNS), np.full(COLUMNS, BOUND / WIDTH))


def tumult_wide(X):
    """Return the means of the ten columns of `X`, estimated by Tumult Analytics between private bounds.

    Half of the budget is spent on two bounds of each column. The other half is spent on the means of the entries
    clipped to these bounds.
    """
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddOneRow, QueryBuilder, RhoZCDPBudget, Session

    names = [f"c{j}" for j in range(COLUMNS)]
    frame = SparkSession.builder.getOrCreate().createDataFrame(X.tolist(), names)
    session = Session.from_dataframe(RhoZCDPBudget(RHO), "table", frame, protected_change=AddOneRow())
    each, means = RhoZCDPBudget(RHO * (1 - 1e-9) / (2 * COLUMNS)), []
    for name in names:
        ends = session.evaluate(QueryBuilder("table").get_bounds(name), each).first()
        query = QueryBuilder("table").average(name, min(ends), max(ends))
        means.append(session.evaluate(query, each).first()[0])
    return np.array(means)


# The same means with public guesses -----------------------------------------------------------------------------------
# `center` and `sigma` are guesses of the means and the standard deviations, two arrays of shape (10,).


def egm_guessed(X, center, sigma):
    """Return private column means of `X` by egm from guesses `center` and `sigma`; neighbors differ in one row."""
    from egm import GaussianDataMechanism

    mechanism = GaussianDataMechanism(sigma, len(X), EPSILON, DELTA, center=center)
    return mechanism.release(X).estimate / len(X)


def egm_best(X, center, sigma):
    """Return private column means of `X` by egm with its best noise, from guesses `center` and `sigma`.

    The noise is Gaussian or l2 noise, whichever has the smaller standard deviation. The scaling 1 / `sigma` makes the
    error of each column proportional to `sigma`. Neighboring data sets differ in one row.
    """
    from egm import GaussianDataMechanism

    options = {"center": center, "scaling": 1 / sigma, "noise": "best"}
    mechanism = GaussianDataMechanism(sigma, len(X), EPSILON, DELTA, **options)
    return mechanism.release(X).estimate / len(X)


def egm_added(X, center, sigma):
    """Return the means of the ten columns of `X`, estimated by egm from guesses, where the number of rows is private.

    The guesses are `center` and `sigma`. Of two neighboring data sets, one has one row more than the other. Noisy sums
    are divided by a noisy number of rows. The noise is Gaussian or l2 noise, whichever has the smaller standard
    deviation.
    """
    from egm import GaussianDataMechanism

    options = {"center": center, "scaling": 1 / sigma, "noise": "best", "neighbors": "add_remove"}
    mechanism = GaussianDataMechanism(sigma, len(X), EPSILON, DELTA, **options)
    release = mechanism.release(X)
    return release.estimate / release.count


def opendp_guessed(X, center, sigma):
    """Return private column means of `X` by OpenDP from guesses `center` and `sigma`; neighbors differ in one row."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    names, ends = [f"c{j}" for j in range(COLUMNS)], WIDTH * sigma
    context = dp.Context.compositor(
        data=pl.LazyFrame(X, schema=names),
        privacy_unit=dp.unit_of(changes=1),
        privacy_loss=dp.loss_of(rho=RHO),
        split_evenly_over=1,
        margins=[dp.polars.Margin(max_length=len(X), invariant="lengths")],
    )
    bounds = zip(names, center - ends, center + ends, strict=True)
    means = [pl.col(c).dp.mean((low, high)) for c, low, high in bounds]
    return context.query().select(means).release().collect().to_numpy()[0]


def diffprivlib_guessed(X, center, sigma):
    """Return private means of `X` by diffprivlib from guesses `center` and `sigma`; neighbors differ in one row."""
    from diffprivlib import tools

    ends = center - WIDTH * sigma, center + WIDTH * sigma
    return tools.mean(X, epsilon=EPSILON, bounds=ends, axis=0)


def pydp_guessed(X, center, sigma):
    """Return the means of the ten columns of `X`, estimated by PyDP, from guesses `center` and `sigma`.

    Entries are clipped to WIDTH guessed standard deviations (`sigma`) from the guessed mean (`center`) of their column.
    Of two neighboring data sets, one has one row more than the other.
    """
    from pydp.algorithms.laplacian import BoundedMean

    means = []
    for x, low, high in zip(X.T, center - WIDTH * sigma, center + WIDTH * sigma, strict=True):
        mean = BoundedMean(epsilon=EPSILON / COLUMNS, lower_bound=low, upper_bound=high, dtype="float")
        means.append(mean.quick_result(x.tolist()))
    return np.array(means)


def pipelinedp_guessed(X, center, sigma):
    """Return the means of the ten columns of `X`, estimated by PipelineDP from guesses `center` and `sigma`.

    Each column is what PipelineDP calls a partition, a group with its own mean. Of two neighboring data sets, one has
    one row more than the other.
    """
    import pipeline_dp as pdp

    accountant = pdp.NaiveBudgetAccountant(EPSILON, DELTA)
    engine = pdp.DPEngine(accountant, pdp.LocalBackend())
    params = pdp.AggregateParams(
        [pdp.Metrics.MEAN], pdp.NoiseKind.GAUSSIAN, min_value=-WIDTH, max_value=WIDTH,
        max_partitions_contributed=COLUMNS, max_contributions_per_partition=1,
    )  # fmt: skip
    values = ((i, j, x) for (i, j), x in np.ndenumerate((X - center) / sigma))
    extract = pdp.DataExtractors(*(lambda value, k=k: value[k] for k in (0, 1, 2)))
    result = engine.aggregate(values, params, extract, public_partitions=range(COLUMNS))
    accountant.compute_budgets()
    means = dict(result)
    return center + sigma * [means[j].mean for j in range(COLUMNS)]


def tumult_guessed(X, center, sigma):
    """Return the means of the ten columns of `X`, estimated by Tumult Analytics from guesses `center` and `sigma`.

    Of two neighboring data sets, one has one row more than the other.
    """
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddOneRow, QueryBuilder, RhoZCDPBudget, Session

    names, ends = [f"c{j}" for j in range(COLUMNS)], WIDTH * sigma
    frame = SparkSession.builder.getOrCreate().createDataFrame(X.tolist(), names)
    session = Session.from_dataframe(RhoZCDPBudget(RHO), "table", frame, protected_change=AddOneRow())
    each, means = RhoZCDPBudget(RHO * (1 - 1e-9) / COLUMNS), []
    for name, low, high in zip(names, center - ends, center + ends, strict=True):
        query = QueryBuilder("table").average(name, low, high)
        means.append(session.evaluate(query, each).first()[0])
    return np.array(means)


# Sums by group --------------------------------------------------------------------------------------------------------
# `income` and `region` have the income and the number of the region, from 0 to 19, of each person.


def egm_grouped(income, region):
    """Return private sums of incomes in twenty regions by GroupedDataMechanism; neighbors have one person more or less.

    The mechanism is given guesses of the mean and the standard deviation of the incomes.
    """
    from egm import GaussianDataMechanism
    from egm.mechanisms import GroupedDataMechanism

    options = {"center": [2000], "neighbors": "add_remove", "noise": "best"}
    mechanism = GaussianDataMechanism([1500], len(income), EPSILON, DELTA, **options)
    release = GroupedDataMechanism(mechanism, range(GROUPS)).release(income[:, None], by=region)
    return np.array([release[k].sum[0] for k in range(GROUPS)])


def egm_groups(income, region):
    """Return private sums of incomes in twenty regions by LaplaceMechanism; neighbors have one person more or less.

    The function clips the incomes and adds them up by region, and the mechanism adds the noise.
    """
    from egm import LaplaceMechanism

    sums = np.bincount(region, np.clip(income, 0, LARGEST), minlength=GROUPS)
    return LaplaceMechanism(LARGEST, EPSILON).release(sums).estimate


def opendp_groups(income, region):
    """Return private sums of incomes in twenty regions by OpenDP; neighbors have one person more or less."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    context = dp.Context.compositor(
        data=pl.LazyFrame({"region": region, "income": income}),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=EPSILON),
        split_evenly_over=1,
        margins=[dp.polars.Margin(max_length=len(income))],
    )
    sums = pl.col("income").dp.sum((0.0, LARGEST))
    keys = pl.LazyFrame({"region": list(range(GROUPS))})
    query = context.query().group_by("region").agg(sums).with_keys(keys)
    return query.release().collect().sort("region")["income"].to_numpy()


def diffprivlib_groups(income, region):
    """Return private sums of incomes in twenty regions by diffprivlib; neighbors have one person more or less."""
    from diffprivlib import tools

    groups = [income[region == k] for k in range(GROUPS)]
    return np.array([tools.sum(x, epsilon=EPSILON, bounds=(0, LARGEST)) for x in groups])


def pydp_groups(income, region):
    """Return private sums of incomes in twenty regions by PyDP; neighbors have one person more or less."""
    from pydp.algorithms.laplacian import BoundedSum

    total = BoundedSum(epsilon=EPSILON, lower_bound=0.0, upper_bound=LARGEST, dtype="float")
    return np.array([total.quick_result(income[region == k].tolist()) for k in range(GROUPS)])


def pipelinedp_groups(income, region):
    """Return private sums of incomes in twenty regions by PipelineDP; neighbors have one person more or less."""
    import pipeline_dp as pdp

    accountant = pdp.NaiveBudgetAccountant(EPSILON, DELTA)
    engine = pdp.DPEngine(accountant, pdp.LocalBackend())
    params = pdp.AggregateParams(
        [pdp.Metrics.SUM], min_value=0, max_value=LARGEST,
        max_partitions_contributed=1, max_contributions_per_partition=1,
    )  # fmt: skip
    values = zip(range(len(income)), region.tolist(), income.tolist(), strict=True)
    extract = pdp.DataExtractors(*(lambda value, k=k: value[k] for k in (0, 1, 2)))
    result = engine.aggregate(values, params, extract, public_partitions=range(GROUPS))
    accountant.compute_budgets()
    sums = dict(result)
    return np.array([sums[k].sum for k in range(GROUPS)])


def tumult_groups(income, region):
    """Return private sums of incomes in twenty regions by Tumult Analytics; neighbors have one person more or less."""
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddOneRow, KeySet, PureDPBudget, QueryBuilder, Session

    values = list(zip(region.tolist(), income.tolist(), strict=True))
    frame = SparkSession.builder.getOrCreate().createDataFrame(values, ["region", "income"])
    budget = PureDPBudget(EPSILON)
    session = Session.from_dataframe(budget, "people", frame, protected_change=AddOneRow())
    keys = KeySet.from_dict({"region": list(range(GROUPS))})
    query = QueryBuilder("people").groupby(keys).sum("income", 0, LARGEST, name="total")
    sums = session.evaluate(query, budget).toPandas()
    return sums.sort_values("region")["total"].to_numpy()


# Measurement ----------------------------------------------------------------------------------------------------------

PACKAGES = {  # the name in the functions above, and that of the package to be installed
    "egm": "numba",  # which egm needs, wherever it is
    "opendp": "opendp",
    "diffprivlib": "diffprivlib",
    "pydp": "python-dp",
    "pipelinedp": "pipeline-dp",
    "tumult": "tmlt.analytics",
}
JOBS = {
    "means, |x| <= 1e6 known": [egm_wide, opendp_wide, diffprivlib_wide, pydp_wide, pipelinedp_wide, tumult_wide],
    "means, guesses known": [
        egm_guessed,
        egm_best,
        egm_added,
        opendp_guessed,
        diffprivlib_guessed,
        pydp_guessed,
        pipelinedp_guessed,
        tumult_guessed,
    ],
    "sums by group": [
        egm_groups,
        egm_grouped,
        opendp_groups,
        diffprivlib_groups,
        pydp_groups,
        pipelinedp_groups,
        tumult_groups,
    ],
}


def working():
    """Return a dictionary from name to version for those libraries in PACKAGES that are installed here and work.

    A library works if it can add up incomes in groups. If one is installed and does not work, a line of text says why.
    An example is OpenDP with another version of polars than it needs.
    """
    found, easy = {}, {function.__name__.partition("_")[0]: function for function in JOBS["sums by group"]}
    for name, package in PACKAGES.items():
        with contextlib.suppress(PackageNotFoundError):
            number = egm.__version__ if version(package) and name == "egm" else version(package)
            try:
                easy[name](*people("normal", min(SIZES)))
            except Exception as error:  # a library may raise any exception
                print(f"{name} {number} does not work here: {told(error)}", file=sys.stderr)
            else:
                found[name] = number
    return found


def told(error):
    """Return the beginning of a text that describes the exception `error`: its type and its message."""
    return f"{type(error).__name__}: {str(error)[:200]}"


def lines(function):
    """Return the number of lines of code in the body of `function`, without docstring, imports and empty lines.

    If the body calls another function of the same module, the lines of that function are added.
    """
    body = ast.parse(inspect.getsource(function)).body[0].body[1:]
    kept = [part for part in body if not isinstance(part, ast.Import | ast.ImportFrom)]
    calls = [node for part in kept for node in ast.walk(part) if isinstance(node, ast.Call)]
    called = {function.__globals__.get(call.func.id) for call in calls if isinstance(call.func, ast.Name)}
    own = [each for each in called if inspect.isfunction(each) and each.__module__ == function.__module__]
    return sum(part.end_lineno - part.lineno + 1 for part in kept) + sum(map(lines, own))


def measure(function, kind, n):
    """Run `function` several times on the same data; return a sorted list of errors and the median CPU time in seconds.

    The data have `n` rows and the distribution `kind`. The error of a run is the root mean square error over the
    columns or the groups, in standard deviations of the column or of the incomes. If the library raises an exception,
    the list is empty and the time is nan.
    """
    if inspect.signature(function).parameters.keys() == {"income", "region"}:
        arguments = people(kind, n)
        exact, unit = np.bincount(arguments[1], arguments[0], minlength=GROUPS), arguments[0].std()
    else:
        X, center, sigma = table(kind, n)
        arguments = (X,) if function.__name__.endswith("wide") else (X, center, sigma)
        exact, unit = X.mean(axis=0), X.std(axis=0)
    errors, times, begin = [], [], perf_counter()
    try:
        while len(times) < RUNS and (len(times) < 2 or perf_counter() - begin < PATIENCE):
            start = process_time()
            off = (function(*arguments) - exact) / unit
            times.append(process_time() - start)
            errors.append(np.sqrt(np.mean(off**2)))
    except Exception as error:  # a library may raise any exception
        print(f"{function.__name__}: {told(error)}", file=sys.stderr)
        return [], np.nan
    return sorted(errors), np.median(times)


def shown(errors):
    """Return a text with the median of the sorted list `errors`, and the largest error if it is over twice the median.

    If the list is empty, the text is "refused".
    """
    if not errors:
        return "refused"
    middle, worst = np.median(errors), errors[-1]
    return f"{middle:.2g} ({worst:.2g})" if worst > 2 * middle else f"{middle:.2g}"


def row(label, *cells):
    """Return one line of a printed table: the text `label`, and the texts `cells` in columns.

    `benchmarks.gx2` has such a function, too, but needs packages beside which some of the libraries that are compared
    cannot be installed.
    """
    return f"{label:20}" + "".join(f"{cell:>17}" for cell in cells)


def main():
    """Print, for each job and each library that works here, the number of lines of code, the errors and the CPU time.

    The time of the processes that Spark starts for Tumult Analytics is not included.
    """
    argparse.ArgumentParser(prog="python -m benchmarks.users", description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")  # the other programs warn
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark would take the first python3 that it finds
    found = working()
    print(", ".join(f"{name} {number}" for name, number in found.items()))
    cases = [(kind, n) for kind in ("normal", "lognormal") for n in SIZES]
    for job, functions in JOBS.items():
        columns = ["lines", *(f"{kind}, {n}" for kind, n in cases), "CPU seconds"]
        print(f"\n{job}: median error, and the largest", row("", *columns), sep="\n")
        for function in functions:
            if function.__name__.partition("_")[0] in found:
                results = [measure(function, *case) for case in cases]
                cells = (shown(errors) for errors, _ in results)
                print(row(function.__name__, lines(function), *cells, f"{results[0][1]:.2g}"), flush=True)


if __name__ == "__main__":
    main()
