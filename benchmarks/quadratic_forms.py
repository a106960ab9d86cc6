"""Compute upper tails of a kernel test statistic by egm.gx2 and by other programs, and compare errors and times.

Run it by `python -m benchmarks.quadratic_forms`, which takes less than a minute. It prints a table as Markdown, which
is copied by hand into the page `book/quadratic-forms.md`. The statistic is the one that this page simulates, divided by
its largest weight. Exact tails are computed by `egm.gx2.certify`, which encloses each tail between two neighboring
doubles. So a measured relative error is right to 2e-16.
"""

import warnings
from functools import partial

import numpy as np
from scipy import stats

from benchmarks import rivals
from benchmarks.gx2 import OWN, error, power, take_turns
from egm import gx2

P = (1e-4, 1e-8, 1e-16, 1e-30, 1e-100, 1e-300)
NAMES = {  # keys of `rivals.available`, with their names in the table
    "Davies (fastlmmclib), acc=1e-9": "Davies, accuracy $10^{-9}$",
    "Davies (fastlmmclib), acc=1e-13": "Davies, accuracy $10^{-13}$",
    "saddlepoint (Lugannani-Rice)": "saddlepoint (Lugannani and Rice)",
    "gx2 (PyPI), default": "gx2 of PyPI, default",
    "gx2 (PyPI), Imhof, RelTol=1e-12": 'gx2 of PyPI, `method="imhof"`',
    "gx2 (PyPI), tail": 'gx2 of PyPI, `method="tail"`',
}


def kernel_weights(people=1000, variants=40, seed=1):
    """Return the weights of the chi-square variables in a kernel test statistic: eigenvalues of its kernel matrix.

    The genotypes of `people` persons at `variants` variants are simulated with the `seed`, and so are covariates, whose
    linear effect on the genotypes is removed. Rare variants have larger weights in the kernel.
    """
    rng = np.random.default_rng(seed)
    genotypes = rng.binomial(2, rng.beta(0.5, 8, variants), (people, variants))
    covariates = np.column_stack([np.ones(people), rng.integers(0, 2, people), rng.uniform(30, 80, people)])
    scaled = genotypes * stats.beta.pdf(genotypes.mean(axis=0) / 2, 1, 25)
    q, _ = np.linalg.qr(covariates)
    residuals = scaled - q @ (q.T @ scaled)
    weights = np.linalg.eigvalsh(residuals.T @ residuals)
    return weights[weights > 1e-9 * weights.max()]


def moment_matching(x, weights):
    """Approximate P[sum_j weights_j Z_j**2 > x] as Liu, Tang and Zhang (2009) do, for independent standard normal Z_j.

    The sum is replaced by a chi-square variable, shifted and scaled, with the same mean, variance and skewness.
    """
    c1, c2, c3 = (np.sum(weights**order) for order in (1, 2, 3))
    dof = c2**3 / c3**2
    return float(stats.chi2.sf(dof + (x - c1) * np.sqrt(dof / c2), dof))


def rounded(number):
    """Return `number`, rounded to one digit, as a text in Markdown: a digit, or a digit times a power of ten."""
    digit, exponent = f"{number:.0e}".split("e")
    return digit if int(exponent) == 0 else f"${digit} \\cdot 10^{{{int(exponent)}}}$".replace("$1 \\cdot ", "$")


def table(weights, p=P):
    """Yield the lines of a Markdown table: the relative errors of all methods for the upper tail, and their times.

    The tails are those of sum_j weights_j Z_j**2 for standard normal Z_j, near the probabilities `p`. The last column
    has the least and the largest time, divided by that of egm.gx2.
    """
    others = {name: method for name, method in rivals.available().items() if name in NAMES}
    methods = {OWN: gx2.sf, "Liu, Tang and Zhang": moment_matching, **others}
    results = []
    for x in (float(f"{each:.6g}") for each in gx2.isf(p, weights)):
        times = take_turns({name: partial(method, x, weights) for name, method in methods.items()}, quick=False)
        truth = gx2.certify(x, weights).value
        results.append([(error(row["value"], truth), row["median"] / times[0]["median"]) for row in times])
    yield "| relative error at | " + " | ".join(f"$10^{{{power(each)[2:]}}}$" for each in p) + " | time |"
    yield "|:--|" + "--:|" * (len(p) + 1)
    for name, cells in zip(methods, zip(*results, strict=True), strict=True):
        errors, ratios = zip(*cells, strict=True)
        shown = " | ".join(rounded(each) for each in errors)
        span = sorted({f"{each:.2g}" for each in (min(ratios), max(ratios))}, key=float)
        yield f"| {NAMES.get(name, f'`{name}`' if name == OWN else name)} | {shown} | {' to '.join(span)} |"


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the other programs warn
    largest = kernel_weights().max()
    for line in table(kernel_weights() / largest):  # weights near 1, which gx2 of PyPI needs
        print(line, flush=True)
