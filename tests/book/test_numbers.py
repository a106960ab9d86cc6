"""Test the numbers in sentences of the book: they are read from the built page, and computed here a second time.

The computation avoids the package where possible: it uses closed forms, SciPy's distributions and root finder, and
Imhof's integral for quantiles of sums of weighted squares. The formulas are those of the chapters, but the code is not.
"""

import csv
import re
from collections import defaultdict
from functools import cache
from importlib.resources import files

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaincc, log_ndtr, ndtr
from scipy.stats import binom, chi2, nbinom

from egm import calibration, scaling
from egm.study.tables import improvement
from tests.book.markup import parsed

NUMBER = r"([\d.]+(?:e-?\d+)?)"


def delta_of(epsilon, z):
    """Return delta at `epsilon` for Gaussian noise with noise multiplier `z`, by the formula of Balle and Wang.

    The noise multiplier is the standard deviation of the noise over the sensitivity.
    """
    return ndtr(0.5 / z - epsilon * z) - np.exp(epsilon + log_ndtr(-0.5 / z - epsilon * z))


@cache
def sigma_opt(epsilon=1.0, delta=1e-6):
    """Return the smallest noise multiplier of Gaussian noise that is (`epsilon`, `delta`)-private."""
    return brentq(lambda z: delta_of(epsilon, z) - delta, 0.1, 100, xtol=1e-14)


def upper_tail(x, weights):
    """Return P[sum_j `weights`_j Z_j**2 > `x`] for independent standard normal Z_j, by Imhof's integral.

    `x` is a number, and `weights` is an array of at least 20 positive numbers.
    """

    def integrand(u):
        angle = 0.5 * np.sum(np.arctan(weights * u)) - 0.5 * x * u
        return np.sin(angle) / u * np.exp(-0.25 * np.sum(np.log1p((weights * u) ** 2)))

    end = 8 / np.sort(weights)[-20]  # beyond it twenty factors alone leave less than 1e-15
    return 0.5 + quad(integrand, 0, end, limit=2000, epsabs=1e-13, epsrel=1e-10)[0] / np.pi


@cache
def gain(n, d=100):
    """Return the noise's variance without scaling over that with scaling, for standard deviations 1, 1/2, ..., 1/`d`.

    The scaling, which multiplies the coordinates before clipping, is that of Lemma 4.1 of Poulsen's report. A normal
    row exceeds the clip norm with probability 1/`n`, where `n` is the number of rows.
    """
    spread = 1 / np.arange(1, d + 1)
    share = spread / spread.sum()
    radii = [brentq(lambda x, w=w: upper_tail(x, w) - 1 / n, w.sum(), 60 * w.max()) for w in (spread**2, share)]
    return d * radii[0] / (radii[1] * spread.sum() ** 2)


def coin_releases(epsilon):
    """Return the exact delta at `epsilon` for two releases of a count, and the bound on it by basic composition.

    The noise of a release is the number of heads of six fair coins. The bound is twice the delta of one release at
    `epsilon` / 2.
    """
    p, q = (binom.pmf(np.arange(8) - shift, 6, 0.5) for shift in (0, 1))
    both = np.maximum(np.outer(p, p) - np.exp(epsilon) * np.outer(q, q), 0).sum()
    return both, 2 * np.maximum(p - np.exp(epsilon / 2) * q, 0).sum()


def draws_enough(error, beta):
    """Return how many tosses of a fair coin are enough for the fraction of heads to differ from 1/2 by at most `error`.

    The result is the least number such that a larger difference has at most the probability `beta`, for this number of
    tosses and for every larger number below 2000.
    """
    draws = np.arange(1, 2000)
    off = binom.cdf(np.ceil(draws * (0.5 - error) - 1e-9) - 1, draws, 0.5)  # 1e-9: equality is no failure
    return draws[2 * off > beta].max() + 1


def local_accuracy(users, beta, epsilon):
    """Return the number that the absolute error of a noisy count exceeds with probability `beta`.

    In the local model of privacy, each of `users` persons adds Laplace noise of the scale 1 / `epsilon` to a number,
    and the count is the sum of these numbers. The absolute value of the sum of all noise is a mixture of gamma
    variables.
    """
    kept = np.arange(users)
    weights = 2 * nbinom.pmf(kept, users, 0.5)
    return brentq(lambda x: weights @ gammaincc(users - kept, x) - beta, 0, 50 * users) / epsilon


def chebyshev_ends():
    """Return the two probabilities p at which Chebyshev's bound and that of Lemma 4.2 on an upper p-quantile are equal.

    The quantile is that of a normal row's squared norm, and the lemma is from Poulsen's report. The probabilities are
    the roots of 4 p ln(1/p) = 1 between 0 and 1, the smaller one first.
    """

    def crossing(p):
        return 4 * p * np.log(1 / p) - 1

    return brentq(crossing, 1e-9, np.exp(-1)), brentq(crossing, np.exp(-1), 1)


def ratios_to_rivals(error):
    """Return an array of the errors of egm's method, each divided by the error of the best rival method in a benchmark.

    There is one ratio for each setting of the benchmark. The rivals in a setting are the methods that never failed in
    it, and that know no more of the data than the range of the mean and either the largest standard deviation or the
    norm of the mean. `error` is "sample" for the squared distance from the mean of the rows, or "population" for the
    squared distance from the true mean.
    """
    cells = defaultdict(dict)
    for row in csv.DictReader((files("egm.study") / "data" / "rivals.csv").read_text().splitlines()):
        if row["method"] == "ours" or (row["knows"] in ("", "largest sigma", "norm of mu") and row["failures"] == "0"):
            cells[tuple(row[key] for key in ("grid", "d", "alpha", "n", "rho"))][row["method"]] = float(row[error])
    return np.array([errors.pop("ours") / min(errors.values()) for errors in cells.values()])


def beaten():
    """Return how many ratios of `ratios_to_rivals` are below 1, how many there are, the least, largest and median one.

    A ratio is the error of egm's method over that of the best rival, both as squared distances from the mean of the
    rows.
    """
    ratios = ratios_to_rivals("sample")
    return np.sum(ratios < 1), len(ratios), min(ratios), max(ratios), np.median(ratios)


def rivals_in_short():
    """Return five numbers about the results of `ratios_to_rivals`, egm's squared errors over the best rival's.

    For errors against the mean of the rows ("sample"), these are the largest ratio, the median, and the number of
    ratios. For errors against the true mean ("population"), they are the median, and the number of ratios above 1.
    """
    ratios, others = ratios_to_rivals("sample"), ratios_to_rivals("population")
    return max(ratios), np.median(ratios), len(ratios), np.median(others), np.sum(others > 1)


HARMONIC = np.sum(1 / np.arange(1, 101))
SQUARES = np.sum(1 / np.arange(1.0, 101) ** 2)
C_PRINTED = np.sqrt(2 * np.log(1.25 / 1e-6))  # the numerator in Theorem 1 at delta = 1e-6

# Page, sentence with a group for each number, and the numbers. A space in a sentence matches any white space.
SENTENCES = {
    "gain": ("book/index", rf"scaling divides the error by {NUMBER} ", lambda: [gain(10**6)]),
    "rows matter": (
        "book/index",
        rf"gain at \S+ = 10\^6\S+ is up to {NUMBER} times",
        lambda: [improvement(1000, 10**6, 10**-0.2) / improvement(1000, 100, 10**-0.2)],
    ),
    "composition": (
        "notebooks/01",
        rf"At \S+ =\S+ 0.5 the pair needs \S+ =\S+ {NUMBER}, and the lemma .{{1,60}} asks for {NUMBER}\.",
        lambda: coin_releases(0.5),
    ),
    "samples": (
        "notebooks/A",
        rf"above {NUMBER} samples are enough \(Fig\. A\.1\) at .{{1,40}} asks for {NUMBER} "
        rf"and the weaker form for {NUMBER}\.",
        lambda: [draws_enough(0.05, 0.05), np.ceil(np.log(40) / 0.005), np.ceil(np.log(40) / 0.00125)],
    ),
    "local": (
        "notebooks/A",
        rf"exact value is {NUMBER} \(Fig\. A\.3\); \(d\) gives {NUMBER} and \(e\) {NUMBER}\. "
        rf"A trusted .{{1,20}} is {NUMBER}\.",
        lambda: [
            local_accuracy(1000, 0.05, 0.5),
            2 * np.sqrt(8 * 1000 * np.log(40)),
            2 * np.sqrt(8 * 1000) * np.log(40),
            2 * np.log(20),
        ],
    ),
    "classic": (
        "notebooks/02",
        rf"the formula gives {NUMBER} where {NUMBER} is enough: {NUMBER} times the error",
        lambda: [C_PRINTED / 0.5, sigma_opt(0.5), (C_PRINTED / 0.5 / sigma_opt(0.5)) ** 2],
    ),
    "not private": (
        "notebooks/02",
        rf"up to \S+ =\S+ {NUMBER}\. Beyond, it fails: at \S+ = 20\S+ it delivers {NUMBER} times",
        lambda: [
            brentq(lambda epsilon: delta_of(epsilon, C_PRINTED / epsilon) - 1e-6, 2, 15),
            delta_of(20, C_PRINTED / 20) / 1e-6,
        ],
    ),
    "variance": (
        "notebooks/03",
        rf"the release would spend \S+ =\S+ {NUMBER} instead of 1e-06",
        lambda: [delta_of(1, np.sqrt(sigma_opt()))],
    ),
    "ratio": (
        "notebooks/03",
        rf"smaller by the factor \S+ =\S+ {NUMBER};",
        lambda: [100 * SQUARES / HARMONIC**2],
    ),
    "half the noise": (
        "notebooks/04",
        rf"opposite rows would spend \S+ =\S+ {NUMBER} instead",
        lambda: [delta_of(1, sigma_opt() / 2)],
    ),
    "some row": ("notebooks/04", rf"1 - e\^{{-1}}\S+ here {NUMBER}\.", lambda: [1 - 0.999**1000]),
    "no scaling": ("notebooks/04", rf"no scaling the error is {NUMBER} times", lambda: [gain(1000)]),
    "first share": ("notebooks/05", rf"makes up {NUMBER}% of a row’s squared norm", lambda: [100 / HARMONIC]),
    "loss": (
        "notebooks/05",
        rf"the lemma’s scaling makes {NUMBER} times the error",
        lambda: [improvement(100, 10**6, 1, scaling="optimal") / gain(10**6)],
    ),
    "two coordinates": (
        "notebooks/05",
        rf"the share moves from {NUMBER} to {NUMBER},",
        lambda: [2 / 3, (scaling.optimal(np.array([2 / 3, 1 / 3]), 1e-6)[0] * 2 / 3) ** 2],
    ),
    "range": ("notebooks/06", rf"lemma is claimed for \S+ \S+ {NUMBER}\.", lambda: [np.sqrt(2) / 6]),
    "least p": ("notebooks/06", rf"lemma applies down to \S+ =\S+ {NUMBER},", lambda: [np.exp(-1000 / 18)]),
    "chebyshev": (
        "notebooks/06",
        rf"below the lemma’s for \S+ between {NUMBER} and {NUMBER};",
        chebyshev_ends,
    ),
    "shares": (
        "notebooks/08",
        rf"has {NUMBER}% of the sum of the standard deviations and {NUMBER}% of the variance",
        lambda: [100 / HARMONIC, 100 / SQUARES],
    ),
    "no impact": (
        "notebooks/08",
        rf"the improvement is {NUMBER} for \S+ = 10\^2\S+ and {NUMBER} for \S+ = 10\^6",
        lambda: [gain(100), gain(10**6)],
    ),
    "limit": ("notebooks/08", rf"its bound in Theorem 8.1 is {NUMBER}\.", lambda: [100 / HARMONIC]),
    "harm": ("notebooks/08", rf"harm begins at {NUMBER}, with", lambda: [chi2.sf(4 / 3, 2)]),
    "left": (
        "notebooks/10",
        rf"= 10\^6\S+ it costs {NUMBER}, and",
        lambda: [improvement(10, 10**6, 1, scaling="optimal") / improvement(10, 10**6, 1)],
    ),
    "rivals beaten": (
        "notebooks/11",
        rf"Our error is smaller in {NUMBER} of {NUMBER} settings, .{{1,80}} from {NUMBER} to {NUMBER}, "
        rf"with median {NUMBER} ",
        beaten,
    ),
    "rivals in short": (
        "book/index",
        rf"at most {NUMBER} times that of the best rival, in the median {NUMBER} times, over {NUMBER} settings; "
        rf".{{1,150}} the median is {NUMBER}, and in {NUMBER} settings",
        rivals_in_short,
    ),
    "zcdp": ("notebooks/12", rf"here it is {NUMBER}\. It finds", lambda: [calibration.zcdp_rho(4.0, 1e-6)]),
    "noise": (
        "notebooks/C",
        rf"'noise': {NUMBER}",
        lambda: [100 * 4 * chi2.isf(0.01, 100) * sigma_opt() ** 2],
    ),
    "terms": ("notebooks/13", r"We add ([\d,]+) single-precision rows", lambda: [2**23]),
    "four sigma": ("notebooks/B", rf"whatever \S+ is, and that is {NUMBER}\.", lambda: [2 * ndtr(-4)]),
    "least shares": (
        "notebooks/B",
        rf"\S+ or {NUMBER}, can be had .{{1,120}} \S+ or {NUMBER}\. This is the price",
        lambda: np.exp([-4, -0.5]),
    ),
    "rows": ("notebooks/B", rf"up to {NUMBER} rows for \S+ = 100", lambda: [np.floor(np.exp(100 / 18))]),
}


@cache
def text(path):
    """Return the text of a page of the book, with single spaces between the words; `path` is the page's HTML file."""
    return " ".join(parsed(path.read_text()).select_one("article").get_text().split())


def tolerance(shown):
    """Return how far the true value may be from a number that a page shows: half a unit of its last digit.

    `shown` is the number as a text. A relative 1e-12 is added for rounding errors.
    """
    mantissa, _, exponent = shown.partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return half + 1e-12 * float(shown)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_number_is_what_the_sentence_says(book, sentence):
    """Each number in a sentence of the book equals the number computed here, in all digits that the page shows.

    `sentence` is a key of SENTENCES, which has the page, a pattern of the sentence, and a function that computes the
    numbers.
    """
    page, pattern, expected = SENTENCES[sentence]
    (path,) = book.glob(f"{page}*.html")
    found = re.search(pattern, text(path))
    assert found, f"{path.name} has no such sentence: {pattern}"
    numbers = [group.replace(",", "") for group in found.groups()]
    for shown, value in zip(numbers, expected(), strict=True):
        assert abs(float(shown) - value) <= tolerance(shown), f"{shown} is shown, {value} is right"
