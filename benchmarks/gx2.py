"""Compare egm.gx2 with other programs: upper tails, quantiles, the grid of the report, and a million weights.

Each of the four measuring functions yields lines to print. The functions that are compared take turns in one run, and
the median time of each is divided by that of the first one.
"""

import json
import math
import tracemalloc
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from benchmarks import rivals
from benchmarks.direct import direct_tail
from egm import bounds, gx2
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


def row(label, *cells, goal=""):
    """Return one line of a printed table: a label, cells with results, and a goal."""
    return (f"{label:34}" + "".join(f"{cell:>14}" for cell in cells) + f"  {goal}").rstrip()


def verdict(label, figures, form, least=None, most=None):
    """Return a line of a printed table with measured numbers, their goal, and whether all of them meet the goal.

    The goal is `least` if all numbers have to be at least that, or `most` if all of them may be at most that.
    """
    met = all(figure >= least if most is None else figure <= most for figure in figures)
    goal = f">= {least:g}" if most is None else f"<= {most:g}"
    return row(label, *(format(figure, form) for figure in figures), goal=f"{goal} {'met' if met else 'NOT met'}")


def heading(text, *columns):
    """Return the three lines above a printed table: an empty line, a title, and the names of the columns."""
    return ["", text, row("", *columns)]


def pairs(comparisons):
    """Yield one line of a table for each method, with its error and its relative time in each comparison.

    A comparison is a pair: a table of the times, as `race` returns it, and the exact value. The time is divided by
    that of the first method.
    """
    for name in comparisons[0][0].name:
        rows = [(table[table.name == name][0], table[0], exact) for table, exact in comparisons]
        yield row(name, *(pair(mine, mine["median"] / first["median"], exact) for mine, first, exact in rows))


def pair(mine, ratio, exact):
    """Return the text of one cell of a table: the relative error of a method, and its relative time `ratio`.

    The text is "none" if the method has given no number. `mine` is the method's row of a table of `race`.
    """
    if np.isnan(mine["value"]):
        return "none" + 7 * " "
    time = f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
    return f"{error(mine['value'], exact):.0e}{time:>7}"


def take_turns(functions, quick):
    """Measure the times of functions that take turns, as a table of `race`; each function is run 25 times at most.

    A function that is slow is run less often, and at least once.
    """
    return race(functions, repetitions=25, patience=0.1 if quick else 0.5)


def error(value, exact):
    """Return the relative error of a value, or 1e-16 if the error is less.

    A double has a smaller relative error only by chance.
    """
    return max(abs(float(value / exact - 1)), 1e-16)


def power(p):
    """Return a power of ten as text, such as "1e-6"."""
    return f"{p:.0e}".replace("e-0", "e-")


# ----------------------------------------------------------------------------------------------------------------------
# Tails
# ----------------------------------------------------------------------------------------------------------------------


def references():
    """Return exact upper tails as {(d, p): (x, tail)}, for a weighted sum of d squared normal variables.

    The weights are 1/j for j = 1 ... d, and tail is the probability of a sum above x. It is near p, and its stored
    logarithm has 30 digits.
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
    """Compute upper tails by every program, for weights 1/j, and yield lines with their relative errors and times."""
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


# ----------------------------------------------------------------------------------------------------------------------
# Quantiles
# ----------------------------------------------------------------------------------------------------------------------


def bisect(excess, low, high, width):
    """Return the zero of a decreasing function by bisection, which ends when the bracket is at most `width` wide."""
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


SEARCHES = {"bisection": bisect, "brentq": lambda excess, low, high, width: brentq(excess, low, high, xtol=width)}


def search(method, tail, p, weights, width):
    """Return the x with tail(x, weights) = p by bisection or by Brent's method, as `method` says.

    The search begins with the bracket from the mean to the bound of Laurent and Massart, and ends with a bracket of at
    most `width`.
    """
    low, high = gx2.mean(weights), bounds.laurent_massart(p, weights)
    return float(SEARCHES[method](lambda x: tail(x, weights) - p, low, high, width))


def calls_of(method, p, weights, width):
    """Return how many tails `search` computes for these arguments."""
    asked = []
    search(method, lambda x, weights: asked.append(x) or gx2.sf(x, weights), p, weights, width)
    return len(asked)


def equal_accuracy(p, weights):
    """Return the upper p-quantile x, and the width of a bracket around x in which the tail changes by 1e-9.

    The number 1e-9 is the constant ABSOLUTE.
    """
    x = float(gx2.isf(p, weights))
    return x, ABSOLUTE / float(gx2.pdf(x, weights))


def quantiles(quick):
    """Compute a quantile for 100 weights by every program that has quantiles; yield lines with errors and times."""
    weights = 1 / np.arange(1, 101)
    stored = json.loads((REFERENCE / "gx2.json").read_text())["quantiles"]
    exact = {c["p"]: float(c["isf"]) for c in stored if c["form"] == {"power": {"d": 100, "alpha": "1"}}}
    levels = P[:2] if quick else P
    comparisons = [(take_turns(inverses(p, weights), quick), exact[p]) for p in levels]
    title = "isf, weights 1/j, d = 100: relative error of x | time over that of egm.gx2"
    yield from heading(title, *(f"p = {power(p)}" for p in levels))
    yield from pairs(comparisons)
    yield verdict(
        "milliseconds between the others", [1e3 * table["median"][0] for table, _ in comparisons], ".2f", most=0.5
    )
    alone = [race({"egm.gx2": partial(gx2.isf, p, weights)}, 200)["median"][0] for p in levels]
    yield verdict("milliseconds, call after call", [1e3 * time for time in alone], ".2f", most=0.5)
    errors = [error(gx2.sf(table.value[0], weights), p) for (table, _), p in zip(comparisons, levels, strict=True)]
    yield verdict("sf(isf(p))/p - 1 of egm.gx2", errors, ".0e", most=1e-11)


def inverses(p, weights):
    """Return a dictionary from names of methods to functions without arguments that compute the upper p-quantile.

    The function of a method that cannot compute this quantile returns nan.
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

    The quantiles are of weighted sums of 1000 chi-square variables, with the weights of the report's Figure 2, or of a
    few of them if `quick`. The searches are by bisection and by Brent's method, and stop when they are as accurate as
    egm.gx2 (see `equal_accuracy`).
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
    """Return how many times faster egm.gx2 finds a quantile than each search by Davies' algorithm, at one grid point.

    The weights are zipf_sigma(1000, alpha) ** exponent, and the upper probability is 1/n. The result is a dictionary
    that also has the name of the grid point (`where`) and the error of Davies' algorithm in the probability
    (`error`).
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


# ----------------------------------------------------------------------------------------------------------------------
# A million weights
# ----------------------------------------------------------------------------------------------------------------------


def million(quick):
    """Compute one quantile for a million weights by egm.gx2; yield lines with its time, memory and error."""
    d, rng = 10**6, np.random.default_rng(1)
    j = np.arange(1.0, d + 1)
    sets = {"Zipf 1": 1 / j, "Zipf 0.1": j**-0.1, "uniform": rng.random(d), "lognormal": np.exp(rng.normal(size=d))}
    if quick:
        sets = {"Zipf 1": 1 / j}
    figures = np.array([one_of_a_million(rng.permutation(weights)) for weights in sets.values()]).T
    yield from heading("isf(1e-6), d = 1e6, weights in random order", *sets)
    yield row("milliseconds in all", *(f"{figure:.3g}" for figure in figures[0]))
    goals = {"milliseconds after the pass": 100, "times np.sort(weights)": 10, "extra memory, copies": 4}
    for (name, goal), values in zip(goals.items(), figures[1:4], strict=True):
        yield verdict(name, values, ".3g", most=goal)
    yield verdict("error of sf, to the direct sum", figures[4], ".0e", most=1e-10)


def one_of_a_million(weights):
    """Measure the cost and the error of egm.gx2 for a million weights, and return five numbers.

    They are the milliseconds for one quantile, the milliseconds for each further quantile of the same call, the time
    for one quantile divided by that of np.sort(weights), the memory for one quantile divided by that of the weights,
    and the relative error of the upper tail at this quantile.
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
