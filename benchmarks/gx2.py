"""Compare egm.gx2 with other programs for weighted sums of chi-square variables: accuracy and time.

The functions `tails` and `quantiles` measure upper tails and quantiles, `grid` measures quantiles on a grid of
parameters, `calls` measures the times of several kinds of calls, and `million` measures sums with a million terms. They
yield lines of text to print. The programs that are compared take turns in one run, and the median time of each is
divided by that of egm.gx2.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import tracemalloc
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from benchmarks import rivals
from benchmarks.direct import direct_tail
from egm import bounds, gx2, scaling
from egm._gx2 import loops
from egm.study.tables import zipf_sigma
from egm.study.timing import race

REFERENCE = Path(__file__).parent.parent / "tests" / "reference"
P = (1e-2, 1e-6, 1e-12, 1e-30)
OWN = "egm.gx2"
# (x, log sf) for weights 1/j, d = 1000, which gx2.json lacks; computed by log_values of tests/reference/contour.py.
MORE_TAILS = {
    (1000, 1e-2): (13.7349, "-4.6473985307054856664695333342"),
    (1000, 1e-12): (58.0598, "-27.781951869264767396329551672"),
}
ABSOLUTE = 1e-9  # accuracy in p at which quantiles are compared with Davies' algorithm
AFFORDABLE = 0.5  # seconds; for a longer search, the number of its calls times the time of one call is taken

loops.kernel()  # From here on all loops are compiled; a process that asks for few tails would run them by Python.


def row(label, *cells, goal=""):
    """Return one line of a printed table: the text `label`, the entries `cells` in columns, and the text `goal`."""
    return (f"{label:34}" + "".join(f"{cell:>14}" for cell in cells) + f"  {goal}").rstrip()


def verdict(label, figures, form, least=None, most=None):
    """Return one line of a printed table: the text `label`, the numbers `figures`, their goal, and "met" or "NOT met".

    `form` is the format of the numbers, such as ".2f". The goal is met if all numbers are at least `least` or, if
    `most` is given instead, if all numbers are at most `most`. A number that is None stands for a fault of the program
    with which egm is compared, and does not count.
    """
    met = all(figure is None or (figure >= least if most is None else figure <= most) for figure in figures)
    goal = f">= {least:g}" if most is None else f"<= {most:g}"
    cells = ["fault" if figure is None else format(figure, form) for figure in figures]
    return row(label, *cells, goal=f"{goal} {'met' if met else 'NOT met'}")


def heading(text, *columns):
    """Return the list of three lines above a printed table: an empty line, the title `text`, the names `columns`."""
    return ["", text, row("", *columns)]


def pairs(comparisons):
    """Yield one line of text for each method, with its relative error and its relative time in each comparison.

    `comparisons` is a list of pairs: a table with the result and the median time of each method, from `take_turns`,
    and the exact result. Times are relative to that of the first method.
    """
    for name in comparisons[0][0].name:
        rows = [(table[table.name == name][0], table[0], exact) for table, exact in comparisons]
        yield row(name, *(pair(mine, mine["median"] / first["median"], exact) for mine, first, exact in rows))


def pair(mine, ratio, exact):
    """Return a text with the relative error of a method's result, followed by the method's relative time `ratio`.

    `mine` is the row of the method in a table from `take_turns`, and `exact` is the exact result. If the method's
    result is nan, the text is "none".
    """
    if np.isnan(mine["value"]):
        return "none" + 7 * " "
    time = f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
    return f"{error(mine['value'], exact):.0e}{time:>7}"


def take_turns(functions, quick):
    """Run several functions in turns; return a table with a row for each: its name, result and median time.

    `functions` is a dictionary from names to functions without arguments. A function is run at most 25 times, and not
    again when its runs have together taken 0.5 seconds, or 0.1 if `quick` is true.
    """
    return race(functions, repetitions=25, patience=0.1 if quick else 0.5)


def error(value, exact):
    """Return the relative error of `value`, where `exact` is the true value, or 1e-16 if the error is less.

    A double has an error of less than 1e-16 only by chance.
    """
    return max(abs(float(value / exact - 1)), 1e-16)


def power(p):
    """Return the number `p`, a power of ten, as a text such as "1e-6"."""
    return f"{p:.0e}".replace("e-0", "e-")


# Tails ----------------------------------------------------------------------------------------------------------------


def references():
    """Return exact upper tails of weighted sums of d squared standard normal variables, as {(d, p): (x, tail)}.

    The weights are 1/j for j = 1 ... d, and `tail` is the probability that the sum is above x. It is about p.
    """
    cases = json.loads((REFERENCE / "gx2.json").read_text())["values"]
    names = {f"sf = {power(p)}": p for p in P}
    found = dict(MORE_TAILS)
    for case in cases:
        d, name = case["form"].get("power", {}).get("d"), case["name"].split(", ")[-1]
        if name in names and case["form"] == {"power": {"d": d, "alpha": "1"}}:
            found[d, names[name]] = case["x"], case["log_sf"]
    # exp with 30 digits: the rounding of the exponent alone would be 1e-14 at p = 1e-30
    return {key: (x, float(import_module("mpmath").exp(log_sf))) for key, (x, log_sf) in found.items()}


def tails(quick):
    """Compute upper tails of weighted sums of squared normal variables by egm.gx2 and by other programs.

    The weights are 1/j. Yield lines of text with the relative errors and the relative times of the programs. If `quick`
    is true, the slowest program is left out and there are fewer repetitions.
    """
    methods, exact = rivals.available(), references()
    if quick:
        methods.pop(rivals.SLOW, None)
    for d in (10, 100, 1000):
        weights = 1 / np.arange(1, d + 1)
        comparisons = []
        for p in P:
            x, tail = exact[d, p]
            calls = {name: partial(method, x, weights) for name, method in {OWN: gx2.sf, **methods}.items()}
            comparisons.append((take_turns(calls, quick), tail))
        title = f"sf, weights 1/j, d = {d}: relative error | time over that of egm.gx2"
        yield from heading(title, *(f"p = {power(p)}" for p in P))
        yield from pairs(comparisons)
        yield verdict(
            "error of egm.gx2", [error(table.value[0], tail) for table, tail in comparisons], ".0e", most=1e-12
        )


# Quantiles ------------------------------------------------------------------------------------------------------------


def bisect(excess, low, high, width):
    """Return the zero of the decreasing function `excess` between `low` and `high`, found by bisection.

    The bisection ends when the interval that contains the zero is at most `width` wide. The result is its middle.
    """
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


SEARCHES = {"bisection": bisect, "brentq": lambda excess, low, high, width: brentq(excess, low, high, xtol=width)}


def search(method, tail, p, weights, width):
    """Return the number x with `tail`(x, `weights`) = `p`, found by bisection or by Brent's method.

    `method` is "bisection" or "brentq", and `tail` a function that computes P[sum_j weights_j Z_j**2 > x] for standard
    normal Z_j. The search ends when the interval that contains x is at most `width` wide.
    """
    low, high = gx2.mean(weights), bounds.laurent_massart(p, weights)
    return float(SEARCHES[method](lambda x: tail(x, weights) - p, low, high, width))


def calls_of(method, p, weights, width):
    """Return how many upper tails `search` computes with the arguments `method`, `p`, `weights` and `width`."""
    asked = []
    search(method, lambda x, weights: asked.append(x) or gx2.sf(x, weights), p, weights, width)
    return len(asked)


def equal_accuracy(p, weights, accuracy=ABSOLUTE):
    """Return the upper `p`-quantile of a weighted sum of squared normal variables, and a width for `search`.

    The upper tail changes by about `accuracy` over an interval of this width at the quantile.
    """
    x = float(gx2.isf(p, weights))
    return x, accuracy / float(gx2.pdf(x, weights))


def quantiles(quick):
    """Compute quantiles of a weighted sum of 100 squared normal variables by egm.gx2 and by other programs.

    The weights are 1/j. Yield lines of text with the relative errors and the relative times of the programs. If `quick`
    is true, there are fewer quantiles and repetitions.
    """
    weights = 1 / np.arange(1, 101)
    stored = json.loads((REFERENCE / "gx2.json").read_text())["quantiles"]
    exact = {c["p"]: float(c["isf"]) for c in stored if c["form"] == {"power": {"d": 100, "alpha": "1"}}}
    levels = P[:2] if quick else P
    comparisons = [(take_turns(inverses(p, weights), quick), exact[p]) for p in levels]
    title = "isf, weights 1/j, d = 100: relative error of x | time over that of egm.gx2"
    yield from heading(title, *(f"p = {power(p)}" for p in levels))
    yield from pairs(comparisons)
    yield verdict(
        "milliseconds, between other programs", [1e3 * table["median"][0] for table, _ in comparisons], ".2f", most=0.5
    )
    alone = [race({"egm.gx2": partial(gx2.isf, p, weights)}, 200)["median"][0] for p in levels]
    yield verdict("milliseconds, call after call", [1e3 * time for time in alone], ".2f", most=0.5)
    errors = [error(gx2.sf(table.value[0], weights), p) for (table, _), p in zip(comparisons, levels, strict=True)]
    yield verdict("sf(isf(p))/p - 1 of egm.gx2", errors, ".0e", most=1e-11)


def inverses(p, weights):
    """Return a dictionary from names of methods to functions without arguments, which compute an upper quantile.

    The quantile is the x with P[sum_j weights_j Z_j**2 > x] = `p` for standard normal Z_j, or nan if a method cannot
    compute it.
    """
    methods = {OWN: partial(gx2.isf, p, weights)}
    _, width = equal_accuracy(p, weights)
    if "fastlmmclib" not in rivals.missing():
        tail = next(iter(rivals.fastlmmclib().values()))
        for name in SEARCHES:
            find = partial(search, name, tail, p, weights, width)
            methods[f"{name} over Davies"] = find if p > ABSOLUTE else partial(float, "nan")
    if "gx2" not in rivals.missing():
        for name, inverse in rivals.gx2_calls(import_module("gx2").inv).items():
            if name != rivals.SLOW:
                methods[name] = partial(inverse, p, weights)
    return methods


def grid(quick):
    """Measure how many times faster egm.gx2 finds quantiles than a search by Davies' algorithm; yield lines of text.

    The quantiles are those of weighted sums of 1000 squared normal variables. The weights are j**-alpha or their
    squares, as in Figure 2 of Poulsen's report, for nine values of alpha, or four if `quick` is true. The searches stop
    when the upper tail at the quantile is known to about 1e-9 (see `equal_accuracy`).
    """
    yield from heading("isf, d = 1000, weights sigma^2 and sigma, sigma_j = j^-alpha: how many times faster")
    if "fastlmmclib" in rivals.missing():
        yield "fastlmmclib is missing."
        return
    alphas = np.geomspace(1e-2, 10, 4) if quick else np.geomspace(1e-2, 1e2, 9)
    points = [measure(*point, quick) for point in product(alphas, (1e2, 1e3, 1e6), (2, 1))]
    for name, (mean, least) in {"bisection": (20, 1), "brentq": (1, 1)}.items():
        speeds = [point[name] for point in points]
        worst = points[int(np.argmin(speeds))]["where"]
        yield verdict(f"over {name}: geometric mean", [math.exp(np.mean(np.log(speeds)))], ".1f", least=mean)
        yield verdict(f"over {name}: least", [min(speeds)], ".2f", least=least) + f" ({worst})"
    yield row("points", len(points))
    yield row("of these, Davies reports a fault", sum(np.isnan(point["error"]) for point in points))
    yield row("largest error in p of Davies", f"{np.nanmax([point['error'] for point in points]):.0e}")


def measure(alpha, n, exponent, quick):
    """Measure how many times faster egm.gx2 finds one quantile than searches that compute tails by Davies' algorithm.

    The weights are proportional to j**(-`alpha` * `exponent`) for j = 1 ... 1000, and the upper probability is 1/`n`.
    The result is a dictionary from the names in SEARCHES to the ratios of the times. If a search would take too long,
    its time is estimated: the number of its tails times the time of one tail. The entry "where" is a text that
    describes the quantile, and "error" is the absolute error of Davies' algorithm for the tail there. If `quick` is
    true, there are fewer repetitions.
    """
    weights = zipf_sigma(1000, alpha) ** exponent
    weights, p = weights[weights > 0], 1 / n  # sigma**2 underflows at alpha = 100, and a weight of zero is left out
    tail = rivals.davies(import_module("fastlmmclib.quadform").qf, ABSOLUTE)
    x, width = equal_accuracy(p, weights)
    own, call = {OWN: partial(gx2.isf, p, weights)}, {"call": partial(tail, x, weights)}
    table = take_turns(own | call, quick)
    second = table["median"][1]
    point = {"where": f"alpha {alpha:.2g}, n {n:.0e}, sigma^{exponent}", "error": abs(table.value[1] - p)}
    for name in SEARCHES:
        calls = calls_of(name, p, weights, width)
        if calls * second < AFFORDABLE:
            find = {name: partial(search, name, tail, p, weights, width)}
            own_time, time = take_turns(own | find, quick)["median"]
        else:
            own_time, time = table["median"][0], calls * second
        point[name] = time / own_time
    return point


# Single calls, arrays, first calls ------------------------------------------------------------------------------------


def calls(quick):
    """Measure the times of six kinds of calls of egm.gx2, and yield lines of text.

    The calls compute a single tail or quantile, compared with Davies' algorithm (`over_davies`, `search_over_davies`);
    1000 quantiles at once, compared with one call for each; the first calls of four functions in a process; moments of
    what clipping removes (`clip_moments`); and certified results. If `quick` is true, there are fewer tails and
    quantiles.
    """
    levels = (1e-2, 1e-8) if quick else [10.0**-digits for digits in range(2, 13)]
    sets = {f"d = {d}": 1 / np.arange(1, d + 1) for d in (2, 10, 100, 1000)}
    if "fastlmmclib" in rivals.missing():
        yield "fastlmmclib is missing."
    else:
        yield from heading("one sf, weights 1/j: time of Davies over that of egm.gx2", *sets)
        for p in levels:
            yield verdict(power(p), [over_davies(p, weights, quick) for weights in sets.values()], ".2f", least=1)
        yield from heading("one isf, weights 1/j: time of the faster search over Davies over that of egm.gx2", *sets)
        for p in levels:
            ratios = [search_over_davies(p, weights, quick) for weights in sets.values()]
            yield verdict(power(p), ratios, ".2f", least=1)
        levels, alphas = (1e-2, 1e-3, 1e-6), np.geomspace(1e-2, 1e2, 3 if quick else 9)
        title = "one sf, d = 1000, weights sigma^2 and sigma, sigma_j = j^-alpha, 0.01 <= alpha <= 100: least ratio"
        yield from heading(title, *(f"p = {power(p)}" for p in levels))
        for exponent in (2, 1):
            sets = [zipf_sigma(1000, alpha) ** exponent for alpha in alphas]
            sets = [weights[weights > 0] for weights in sets]  # sigma^2 underflows at alpha = 100
            ratios = [[over_davies(p, weights, quick) for weights in sets] for p in levels]
            least = [min(filter(None, several)) for several in ratios]
            yield verdict(f"sigma^{exponent}", least, ".2f", least=1)
    yield from heading("1000 quantiles of one form: one by one, over an array", "p <= 0.01", "p <= 0.999")
    j = np.arange(1.0, 101)
    forms = {
        "1/j, d = 100": {"weights": 1 / j},
        "(-1)^j / j, d = 10": {"weights": (-1) ** j[:10] / j[:10]},
        "(-1)^j / j, d = 100": {"weights": (-1) ** j / j},
        "1/j and -1/j, d = 10": {"weights": [*1 / j[:5], *-1 / j[:5]]},
        "1/j and -1/j, d = 100": {"weights": [*1 / j[:50], *-1 / j[:50]]},
        "(-1)^j / j, d = 10, normal": {"weights": (-1) ** j[:10] / j[:10], "normal": 0.5},
        "1 and 0.5, dof = 0.3": {"weights": [1, 0.5], "dof": 0.3},
    }
    levels = np.geomspace(1e-12, 1e-2, 1000), np.linspace(0.001, 0.999, 1000)
    for name, form in forms.items():
        yield verdict(name, [over_array(p, form, quick) for p in levels], ".1f", least=10)
    first = {"sf": 14, "isf": 1e-2, "gradients": 14, "clip_moments": 14}
    yield from heading("first call in a new process, seconds", *first)
    for d in (2, 1000):
        stored, new = np.transpose([first_calls(name, value, d)[:, 0] for name, value in first.items()])
        yield verdict(f"d = {d}, compiled code is stored", stored, ".3f", most=0.3)
        yield verdict(f"d = {d}, nothing is compiled", new, ".3f", most=3)
    yield from heading("calls that load or compile, seconds", "stored", "not compiled")
    yield row(
        "slowest of 2000 sf, d = 1000", *(f"{seconds:.2f}" for seconds in first_calls("sf", 14, 1000, 2000)[:, 1])
    )
    yield row("first isf, d = 1e6", *(f"{seconds:.2f}" for seconds in first_calls("isf", 1e-2, 10**6)[:, 0]))
    yield from heading("clip_moments, weights 1/j, at the upper quantile of 1e-2: time over 4800 complex logarithms")
    numbers = np.linspace(1, 2, 4800) + 1j  # 48 nodes of a contour for 100 weights
    # The goals are a fifth of the times before the loops were compiled, 5.4 and 11.5 in the same unit.
    for d, goal in {100: 1.08, 1000: 2.3}.items():
        weights = 1 / np.arange(1.0, d + 1)
        x = gx2.isf(1e-2, weights)
        gx2.clip_moments(x, weights)  # compiles
        methods = {
            OWN: lambda x=x, weights=weights: gx2.clip_moments(x, weights)[1][0],
            "logarithms": lambda: np.log(numbers)[0].real,
        }
        own, unit = race(methods, 200)["median"]
        yield verdict(f"d = {d}", [own / unit], ".2f", most=goal)
        yield row("    microseconds", f"{1e6 * own:.0f}")
    if find_spec("flint") is None:
        yield "python-flint is missing."
        return
    levels = P[:2] if quick else P
    yield from heading("certify, weights 1/j, d = 100: seconds", *(f"p = {power(p)}" for p in levels))
    weights = 1 / np.arange(1, 101)
    for of in ("sf", "cdf", "isf"):
        points = levels if of == "isf" else gx2.isf(levels, weights)
        enclose = [{of: lambda x=x, of=of: gx2.certify(x, weights, of=of).value} for x in points]
        yield verdict(of, [race(one, 3)["median"][0] for one in enclose], ".2f", most=2)


def davies(accuracy, x, weights):
    """Return the functions of x and weights that compute an upper tail by Davies' algorithm, without a fault at `x`.

    The packages are fastlmmclib and, if it is installed, chi2comb, with the absolute `accuracy`.
    """
    methods = [rivals.davies(import_module("fastlmmclib.quadform").qf, accuracy)]
    if "chi2comb" not in rivals.missing():
        methods += rivals.chi2comb(accuracy).values()
    return [method for method in methods if not math.isnan(method(x, weights))]


def over_davies(p, weights, quick):
    """Return the time of Davies' algorithm for one tail over that of egm.gx2, at the upper quantile of `p`.

    The algorithm is that of the faster package in `davies`, or None is returned if all report a fault. Its absolute
    accuracy is 1e-9, or p / 100 if this is less, but at least 1e-14. If `quick` is true, there are fewer repetitions.
    """
    x, accuracy = gx2.isf(p, weights), max(min(ABSOLUTE, p / 100), 1e-14)
    ratios = []
    for method in davies(accuracy, x, weights):
        both = {OWN: partial(gx2.sf, x, weights), "Davies": partial(method, x, weights)}
        own, other = take_turns(both, quick)["median"]
        ratios.append(other / own)
    return min(ratios, default=None)


def search_over_davies(p, weights, quick):
    """Return the time of a search for an upper quantile by Davies' algorithm over that of egm.gx2.

    The search is the faster one of those in SEARCHES, with the faster package in `davies`, and ends as `equal_accuracy`
    explains. None is returned if all packages report a fault. The absolute accuracy is 1e-9, or p / 100 if this is
    less, but at least 1e-13. If `quick` is true, there are fewer repetitions.
    """
    accuracy = max(min(ABSOLUTE, p / 100), 1e-13)
    x, width = equal_accuracy(p, weights, accuracy)
    ratios = []
    for tail in davies(accuracy, x, weights):
        searches = {name: partial(search, name, tail, p, weights, width) for name in SEARCHES}
        own, *others = take_turns({OWN: partial(gx2.isf, p, weights)} | searches, quick)["median"]
        ratios.append(min(others) / own)
    return min(ratios, default=None)


def over_array(p, form, quick):
    """Return the time of one call for each upper quantile over that of one call for all; `p` has the probabilities.

    `form` is a dictionary with the parameters of the distribution. If `quick` is true, there are fewer repetitions.
    """
    methods = {"array": lambda: min(gx2.isf(p, **form)), "single": lambda: min(gx2.isf(q, **form) for q in p)}
    array, single = take_turns(methods, quick)["median"]
    return single / array


def first_calls(name, value, d, many=1):
    """Measure the first of `many` calls of a function of egm.gx2 in a new process, and the slowest one.

    The function `name` is called with `value` and with the `d` weights 1/j. The times in seconds are in an array of the
    shape (2, 2). Its first row is for processes that find compiled code stored by earlier ones, the second for those
    that find none; they may load or compile code in any call. The first column has the time of the first call, the
    second that of the slowest. Each time is the median of three processes.
    """
    code = (
        "import time, numpy; from egm import gx2\n"
        f"weights = 1 / numpy.arange(1.0, {d + 1}); times = [time.perf_counter()]\n"
        f"for _ in range({many}): gx2.{name}({value}, weights); times.append(time.perf_counter())\n"
        "seconds = [b - a for a, b in zip(times, times[1:])]; print(seconds[0], max(seconds))"
    )
    seconds = np.empty((3, 2, 2))
    for place in np.ndindex(3, 2):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | ({"NUMBA_CACHE_DIR": folder} if place[1] else {})
            done = subprocess.run(
                [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
            )
        seconds[place] = [float(number) for number in done.stdout.split()]
    return np.median(seconds, axis=0)


# A million weights ----------------------------------------------------------------------------------------------------


def million(quick):
    """Compute quantiles for a million weights by egm.gx2; yield lines of text with times, memory and errors.

    There are eight sets of weights, or only one if `quick` is true.
    """
    d, rng = 10**6, np.random.default_rng(1)
    j = np.arange(1.0, d + 1)
    sets = {"Zipf 1": 1 / j, "Zipf 0.1": j**-0.1, "uniform": rng.random(d)}
    # The logarithms of lognormal weights have the standard deviation `scale`; the last set is a sample of a Pareto law.
    sets |= {f"lognormal {scale}": np.exp(scale * rng.normal(size=d)) for scale in (1, 8, 16, 60)}
    sets |= {"Pareto 0.5": (1 - rng.random(d)) ** -2}
    if quick:
        sets = {"Zipf 1": 1 / j}
    # The first calls compile loops for many weights, where this has not been done.
    gx2.isf(1e-6, j)
    scaling.optimal(j, 1e-6)
    figures = np.array([one_of_a_million(rng.permutation(weights)) for weights in sets.values()]).T
    yield from heading("isf(1e-6), d = 1e6, weights in random order", *sets)
    yield row("milliseconds in all", *(f"{figure:.3g}" for figure in figures[0]))
    goals = {"milliseconds after the pass": 100, "times np.sort(weights)": 1.5, "extra memory, copies": 4}
    for (name, goal), values in zip(goals.items(), figures[1:4], strict=True):
        yield verdict(name, values, ".3g", most=goal)
    yield verdict("error of sf, to the direct sum", figures[4], ".0e", most=1e-10)
    seconds = []
    for weights in sets.values():
        optimal = partial(scaling.optimal, np.sqrt(weights), 1e-6)
        seconds.append(race({OWN: lambda optimal=optimal: optimal()[0]}, 2)["median"][0])
    yield verdict("scaling.optimal, seconds", seconds, ".2f", most=1)


def one_of_a_million(weights):
    """Measure the cost and the error of egm.gx2 for the array `weights`, which has a million entries.

    Return five numbers: the milliseconds for one quantile, and for each additional one in the same call; the time for
    one quantile over that of np.sort(weights); the peak memory for one quantile over the memory of `weights`; and the
    relative error of the upper tail at this quantile.
    """
    functions = {
        "one": lambda: float(gx2.isf(1e-6, weights)),
        "five": lambda: float(gx2.isf(np.geomspace(1e-5, 1e-7, 5), weights)[2]),
        "sort": lambda: float(np.sort(weights)[0]),
    }
    one, five, sort = race(functions, repetitions=15, patience=5.0)["median"]
    tracemalloc.start()
    x = float(gx2.isf(1e-6, weights))
    memory = tracemalloc.get_traced_memory()[1] / weights.nbytes
    tracemalloc.stop()
    off = error(gx2.sf(x, weights), direct_tail(x, weights))
    return 1e3 * one, 1e3 * (five - one) / 4, one / sort, memory, off
