"""Compute tails and quantiles of random forms by egm.gx2; count failures, and errors that are larger than estimated.

A form is a random variable: a weighted sum of chi-square variables, to which a normal variable and a constant may be
added. It has 1 to 300 weights, or 3000, of one sign or of both, spread over up to twenty powers of ten. Its degrees of
freedom may be fractions, and its chi-square variables may be noncentral. The weights of half of the forms are sorted,
because there is a shorter way for these. For each form the quantile x at a random probability, down to exp(-2000), is
computed, and then the tail at x. egm.gx2 computes a tail as a sum over nodes of a contour in the complex plane, and
estimates its error. The tail is compared with the sum over sixteen times as many nodes of the same contour, where small
weights are gathered in narrower clusters. That sum has rounding errors of its own, and the same factor outside of the
integral. So if the two differ by more than the estimate, the tail is compared with bounds that are proved by ball
arithmetic, and the bounds decide whether its error is larger than estimated. With `--certify K` every K-th tail is
compared with such bounds, and so are the quantile x and the density at x.

Run it by `python -m benchmarks.random_forms --count 100000`, which takes about a quarter of an hour.
"""

import argparse
import math
from functools import partial

import numpy as np

from egm import gx2
from egm._gx2 import contour, kernel
from egm._gx2.form import law_of
from egm._gx2.quantiles import quantile
from egm._gx2.tails import TINY

FINER = 16  # nodes of the second contour for each node of the first one


def random_form(rng):
    """Draw a random form by the Generator `rng`, and return its parameters (weights, dof, nc, normal, shift).

    The form is the random variable sum_j weights_j X_j + normal Z + shift. X_j is a chi-square variable with dof_j
    degrees of freedom and the noncentrality nc_j, and Z is a standard normal variable. `dof` and `nc` are arrays, or
    one number for all j.
    """
    d, kind = int(rng.choice([1, 2, 3, 5, 10, 30, 100, 300] * 4 + [3000])), rng.integers(4)
    weights = np.exp(rng.normal(size=d) * rng.choice([0, 0.1, 1, 3, 8]))
    if kind >= 2:
        weights *= rng.choice([-1, 1], d)
    if rng.random() < 0.5:
        weights = np.sort(weights)[:: rng.choice([-1, 1])]
    dof = rng.choice([0.1, 0.5, 1, 1, 2, 3, 7.3, 100], d) if rng.random() < 0.5 else 1.0
    nc = rng.exponential(size=d) * rng.choice([0, 1, 30, 1000]) if rng.random() < 0.4 else 0.0
    normal = float(np.abs(weights).max() * np.exp(rng.normal() * 3)) if kind % 2 else 0.0
    return weights, dof, nc, normal, float(rng.normal()) if rng.random() < 0.3 else 0.0


def finer_tail(crossing, y):
    """Compute the logarithm of a tail by a sum over sixteen times as many nodes as egm.gx2 takes.

    The nodes are points of a contour of integration in the complex plane. `crossing`, a result of
    `egm._gx2.contour.saddle`, holds a weighted chi-square sum, `crossing.form`, and the point at which the contour of
    integration crosses the real axis. The tail is the probability that the sum is at most `y` if `crossing.lower` is
    true, and otherwise that it is above `y`. `y` has the units of the sum.
    """
    if crossing.form.narrow:
        crossing.refine()
    form = crossing.form
    arguments = form.table, form.normal, form.series, crossing.beyond, y, crossing.c, crossing.at
    ends, kept = np.empty(form.table.shape[1], np.intp), np.empty((3, kernel.MOST_NODES), complex)
    shapes = (
        shape
        for shape in contour._shapes(crossing, y)
        if kernel.quadrature(*arguments, shape, 0.0, 0, ends, np.zeros(kernel.WHOLE), kept)[0] == kernel.DIED
    )
    h, reach, tilt, _ = next(shapes, (crossing.c, 1.0, contour._TILT, 0.0))
    step, total, previous = kernel._STEP / FINER, 0.5 * h / abs(crossing.c), np.inf
    for start in range(1, 400_000, 512):
        u = step * np.arange(start, start + 512) / reach
        shift = h * reach * (tilt * (np.cosh(u) - 1) + 1j * np.sinh(u))
        slope = h * (tilt * np.sinh(u) + 1j * np.cosh(u)) / abs(crossing.c)
        terms = np.exp(contour.growth(crossing, shift) - shift * y) * slope / (1 + shift / crossing.c)
        total += terms.imag.sum()
        if max(np.abs(terms).max(), previous) < 1e-19:
            break
        previous = np.abs(terms).max()
    return crossing.log_height(y)[0] + math.log(total * step / math.pi)


def excess(value, argument, parameters, of):
    """Return by how much `value`, which `egm.gx2` has computed, is outside of the interval that `gx2.certify` proves.

    `argument` is a point or a probability, `parameters` are those of the form, and `of` is the name of the function.
    The result is None if `certify` proves none, for example for a density below the least double.
    """
    try:
        enclosure = gx2.certify(argument, *parameters, of=of)
    except (ArithmeticError, ValueError):
        return None
    return max(enclosure.low - value, value - enclosure.high, 0.0)


def others(x, log_p, lower, parameters):
    """Compute a density and a quantile; yield the name of the function, the excess, and the estimated error.

    The density is that at `x`. The quantile is the lower one if `lower` is true, otherwise the upper one, for the
    probability whose logarithm is `log_p`.
    """
    for of, argument in (("pdf", x), ("ppf" if lower else "isf", math.exp(log_p))):
        if argument == 0:  # a probability that has underflowed
            continue
        value, error = getattr(gx2, of)(argument, *parameters, full_output=True)
        yield of, excess(value, argument, parameters, of), error * value if of == "pdf" else error


def main():
    """Draw random forms and check the tail of each; print all failures, all errors above the estimate, and counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_forms", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--certify", type=int, default=0, metavar="K", help="prove bounds for every K-th form")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    failures = above = proved = unproved = skipped = 0
    largest = 0.0
    for i in range(options.count):
        parameters, say = random_form(rng), partial(print, f"form {i} of seed {options.seed}:", flush=True)
        log_p, lower = -math.exp(rng.uniform(math.log(1e-3), math.log(2000))), bool(rng.random() < 0.5)
        certified, checks = options.certify and i % options.certify == 0, []
        try:
            law = law_of(*parameters)
            x = quantile(law, log_p, lower)
            if x in law.support:  # a quantile below the least double
                skipped += 1
                continue
            side = law.upper if x >= law.mean else law.lower
            y = side.scaled(x)
            if side.lower and not side.form.normal and y < TINY:  # the tail is not a sum over nodes, but a power of y
                skipped += 1
                continue
            tail = "logsf" if side is law.upper else "logcdf"
            value, estimate = getattr(gx2, tail)(x, *parameters, full_output=True)
            off = abs(value - finer_tail(contour.saddle(side.form, y, side.lower), float(y)))
            if not off <= estimate or certified:
                checks.append((tail, excess(value, x, parameters, tail), estimate))
            if certified:
                checks += others(x, log_p, lower, parameters)
        except (ArithmeticError, ValueError) as problem:
            failures += 1
            say(problem)
            continue
        for of, beyond, error in checks:
            proved, unproved = proved + (beyond is not None), unproved + (beyond is None)
            if beyond is not None and beyond > error:
                above += 1
                say(f"{of}, estimate {error:.1e}, proved error {beyond:.1e}")
        if not off <= estimate and (off := checks[0][1]) is None:
            above += 1
            say(f"{value!r}, estimate {estimate:.1e}, and no bound is proved")
            continue
        largest = max(largest, off / max(1, abs(value)))
    print(f"{options.count} forms: {failures} failures, {above} errors above the estimate, largest {largest:.0e}")
    print(f"{skipped} skipped, because x is below the least double or the tail a power of it")
    print(f"{proved} compared with bounds by ball arithmetic, {unproved} others for which no bounds are proved")


if __name__ == "__main__":
    main()
