"""Define data to test mechanisms: fifty laws, and a hundred tables designed to make `AdaptiveDataMechanism` fail.

A law is a function (rng, n, d) that draws n rows of d columns from a distribution; `draw` gives the columns scales and
centers. A table is like real data: it may have constant columns, flags (0 or 1), amounts of money, times, sums of
several units, or errors of recording.
"""

from typing import NamedTuple

import numpy as np

from egm.study.tables import zipf_sigma

ALPHAS = 0.0, 0.5, 1.0, 2.0  # exponents of Zipf's law for the scales of columns; the runs take them in turn
FAR = 30.0  # the largest distance of a column's center from 0, over its scale


def _clusters(rng, n, d, share, apart):
    """Draw `n` standard normal rows of `d` entries; with probability `share`, `apart` is added to a whole row."""
    return rng.normal(size=(n, d)) + apart * (rng.random((n, 1)) < share)


def _outliers(rng, n, d, share, factor):
    """Draw `n` standard normal rows of `d` entries; with probability `share`, a row is multiplied by `factor`."""
    return rng.normal(size=(n, d)) * np.where(rng.random((n, 1)) < share, factor, 1.0)


def _factor(rng, n, d, r):
    """Draw `n` rows of `d` standard normal entries by `rng`; any two entries of a row have the correlation `r`."""
    return np.sqrt(1 - r) * rng.normal(size=(n, d)) + np.sqrt(r) * rng.normal(size=(n, 1))


def one_hot(rng, n, d, alpha):
    """Draw one of `d` + 1 categories for each of `n` rows with the generator `rng`; return `d` columns of 0 and 1.

    Column j is 1 in the rows of category j, so the rows of the last category are 0. The frequencies of the categories
    follow Zipf's law with the exponent `alpha`.
    """
    return np.eye(d + 1)[rng.choice(d + 1, n, p=zipf_sigma(d + 1, alpha))][:, :d]


def _sphere(rng, n, d):
    """Draw `n` rows of `d` entries in random directions with the generator `rng`, all with the norm sqrt(d)."""
    Z = rng.normal(size=(n, d))
    return Z / np.linalg.norm(Z, axis=1, keepdims=True) * np.sqrt(d)


def _trend(rng, n, d):
    """Draw `n` rows of `d` normal entries by the generator `rng`; their mean grows from -2 to 2 over the rows."""
    return np.linspace(-2, 2, n)[:, None] + rng.normal(size=(n, d))


def _flags(p):
    """Return a function (rng, n, d) that draws n rows of d entries 0 and 1; 1 has the probability `p`.

    `p` is a number, or an array with one number for each column.
    """
    return lambda rng, n, d: 1.0 * (rng.random((n, d)) < p)


LAWS = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "uniform": lambda rng, n, d: rng.uniform(-1, 1, (n, d)),
    "Laplace": lambda rng, n, d: rng.laplace(size=(n, d)),
    "exponential": lambda rng, n, d: rng.exponential(size=(n, d)),
    "lognormal": lambda rng, n, d: rng.lognormal(size=(n, d)),
    "Pareto 1.5": lambda rng, n, d: rng.pareto(1.5, (n, d)),
    "binary": _flags(0.3),
    "one-hot": lambda rng, n, d: one_hot(rng, n, d, 1.0),
    "Poisson": lambda rng, n, d: rng.poisson(2, (n, d)).astype(float),
    "zero rows": lambda rng, n, d: rng.normal(5, 1, (n, d)) * (rng.random((n, 1)) < 0.2),
    "logistic": lambda rng, n, d: rng.logistic(size=(n, d)),
    "t, 10": lambda rng, n, d: rng.standard_t(10, (n, d)),
    "t, 5": lambda rng, n, d: rng.standard_t(5, (n, d)),
    "t, 3": lambda rng, n, d: rng.standard_t(3, (n, d)),
    "t, 2": lambda rng, n, d: rng.standard_t(2, (n, d)),
    "gamma 0.25": lambda rng, n, d: rng.gamma(0.25, size=(n, d)),
    "gamma 4": lambda rng, n, d: rng.gamma(4, size=(n, d)),
    "chi-square 1": lambda rng, n, d: rng.chisquare(1, (n, d)),
    "Weibull 0.5": lambda rng, n, d: rng.weibull(0.5, (n, d)),
    "Weibull 2": lambda rng, n, d: rng.weibull(2, (n, d)),
    "Gumbel": lambda rng, n, d: rng.gumbel(size=(n, d)),
    "lognormal 0.5": lambda rng, n, d: rng.lognormal(0, 0.5, (n, d)),
    "lognormal 2": lambda rng, n, d: rng.lognormal(0, 2, (n, d)),
    "Pareto 3": lambda rng, n, d: rng.pareto(3, (n, d)),
    "beta 0.5, 0.5": lambda rng, n, d: rng.beta(0.5, 0.5, (n, d)),
    "beta 5, 1": lambda rng, n, d: rng.beta(5, 1, (n, d)),
    "triangular": lambda rng, n, d: rng.triangular(0, 0, 1, (n, d)),
    "binary 0.01": _flags(0.01),
    "binary 0.1": _flags(0.1),
    "binary 0.5": _flags(0.5),
    "one-hot, even": lambda rng, n, d: one_hot(rng, n, d, 0.0),
    "one-hot, steep": lambda rng, n, d: one_hot(rng, n, d, 2.0),
    "Poisson 0.1": lambda rng, n, d: rng.poisson(0.1, (n, d)).astype(float),
    "Poisson 50": lambda rng, n, d: rng.poisson(50, (n, d)) / 7.0,
    "geometric": lambda rng, n, d: rng.geometric(0.3, (n, d)).astype(float),
    "negative binomial": lambda rng, n, d: rng.negative_binomial(0.5, 0.2, (n, d)).astype(float),
    "zero entries": lambda rng, n, d: rng.normal(5, 1, (n, d)) * (rng.random((n, d)) < 0.2),
    "two halves": lambda rng, n, d: _clusters(rng, n, d, 0.5, 10.0),
    "a tenth apart": lambda rng, n, d: _clusters(rng, n, d, 0.1, 5.0),
    "1 % apart": lambda rng, n, d: _clusters(rng, n, d, 0.01, 10.0),
    "common gamma": lambda rng, n, d: (1 + 0.3 * rng.normal(size=(n, d))) * rng.gamma(2, size=(n, 1)),
    "common t, 5": lambda rng, n, d: rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(5, (n, 1)) / 5),
    "correlated 0.5": lambda rng, n, d: _factor(rng, n, d, 0.5),
    "correlated 0.95": lambda rng, n, d: _factor(rng, n, d, 0.95),
    "correlated lognormal": lambda rng, n, d: np.exp(_factor(rng, n, d, 0.5)),
    "1 % times 10": lambda rng, n, d: _outliers(rng, n, d, 0.01, 10.0),
    "0.1 % times 30": lambda rng, n, d: _outliers(rng, n, d, 0.001, 30.0),
    "rounded": lambda rng, n, d: np.rint(rng.normal(size=(n, d))),
    "sphere": _sphere,
    "trend": _trend,
}
TEN = tuple(LAWS)[:10]
INFINITE = "Pareto 1.5", "t, 2"  # laws of infinite variance


class Mixed(NamedTuple):
    """Describe a distribution of rows: the first columns have the distribution `law`, the others are standard normal.

    The entries of the first columns are moved and scaled to the mean 0 and the standard deviation `factor`.
    """

    law: str  # a name in LAWS
    half: bool = False  # half of all columns, and not one, are such columns
    factor: float = 1.0

    def columns(self, d):
        """Return how many of the `d` columns have the distribution `law`, and so are not normal."""
        return d // 2 if self.half else 1

    def __call__(self, rng, n, d):
        """Draw `n` rows of `d` columns with the generator `rng`, an array of shape (n, d)."""
        X, other = rng.normal(size=(n, d)), LAWS[self.law](rng, n, self.columns(d))
        X[:, : self.columns(d)] = self.factor * (other - other.mean(axis=0)) / other.std(axis=0)
        return X


MIXED = {
    "one gamma 4": Mixed("gamma 4"),
    "one exponential": Mixed("exponential"),
    "one lognormal 0.5": Mixed("lognormal 0.5"),
    "one lognormal": Mixed("lognormal"),
    "one binary 0.1": Mixed("binary 0.1"),
    "half exponential": Mixed("exponential", half=True),
    "one exponential, wide": Mixed("exponential", factor=3.0),
    "one lognormal, narrow": Mixed("lognormal", factor=1 / 3),
}


def draw(law, n, d, alpha, rng):
    """Draw `n` rows of `d` columns from the distribution with the name `law`, with the generator `rng`.

    `law` is a name in LAWS or MIXED. A random number between -30 and 30 is added to each column. Then column j is
    multiplied by a scale proportional to j**-`alpha`.
    """
    scale = zipf_sigma(d, alpha, total=d)
    return ((LAWS | MIXED)[law](rng, n, d) + rng.uniform(-FAR, FAR, d)) * scale


class Table(NamedTuple):
    """Describe a table of data on which `AdaptiveDataMechanism` is tested.

    The fields say how the data are drawn, how large they are, and which budget and ranges the mechanism is given.
    """

    make: object  # function of (random generator, n, d) that draws the data
    n: int
    d: int
    reach: float  # n sqrt(rho) for the budget rho
    radius: float = 1e4  # declared bound on the centers of the columns
    sigma_range: tuple = (1e-3, 1e4)  # declared range of their standard deviations
    hidden: bool = False  # not as declared, or rows far away are fewer than the budget can show


def _normal(rng, n, d):
    return rng.normal(5, 1, (n, d))


def _standard(rng, n, d):
    return rng.normal(size=(n, d))


def _units(rng, n, d):
    """Draw `n` rows of `d` normal columns by the generator `rng`; columns differ only in scale, from 2e-4 to 1e3."""
    return _normal(rng, n, d) * np.geomspace(2e-4, 1e3, d)


def _times(rng, n, d):
    """Draw `n` rows of `d` times within a year by the generator `rng`, in seconds since 1970."""
    return 1.6e9 + rng.uniform(0, 3e7, (n, d))


def _decades(rng, n, d):
    """Draw `n` rows of `d` entries by the generator `rng`; their logarithms to base 10 are uniform from -5 to 5."""
    return 10.0 ** rng.uniform(-5, 5, (n, d))


def _constant(value):
    return lambda rng, n, d: np.full((n, d), value)


def _mostly(share, low, high):
    """Return a function (rng, n, d) that draws n rows of d columns; all entries of a row are `high` or all are `low`.

    A row has the entries `high` with probability `share`.
    """
    return lambda rng, n, d: np.where(rng.random((n, 1)) < share, high, low) * np.ones(d)


def _bimodal(share, low, high):
    """Return a function (rng, n, d) that draws n rows of d normal entries with variance 1 and one of two means.

    All entries of a row have the mean `high`, with probability `share`, or else `low`.
    """
    return lambda rng, n, d: _standard(rng, n, d) + _mostly(share, low, high)(rng, n, d)


def _with(law, rows, values):
    """Return a function that draws rows by `law`, and then sets all entries of the first `rows` rows to `values`.

    `law` and the result are functions (rng, n, d) that draw n rows of d columns.
    """

    def changed(rng, n, d):
        X = law(rng, n, d)
        X[:rows] = values
        return X

    return changed


def _column(law, j, entries):
    """Return a function that draws rows by `law`, and then replaces column `j` by what ``entries(rng, n)`` draws.

    `law` and the result are functions (rng, n, d) that draw n rows of d columns.
    """

    def changed(rng, n, d):
        X = law(rng, n, d)
        X[:, j] = entries(rng, n)
        return X

    return changed


def _people(rng, n, d):
    """Draw `n` rows of an age, an income and a flag by the generator `rng`; `d` is 3."""
    columns = [rng.integers(18, 90, n), np.rint(rng.lognormal(10, 0.6, n)), rng.random(n) < 0.05]
    return np.column_stack(columns).astype(float)


T = Table
YEARS = 2e9, (1.0, 2e9)  # what is declared about times
WIDE = 1e5, (1e-4, 1e5)  # and about columns with different units
TABLES = {  # designed to make `AdaptiveDataMechanism` fail
    # one value, or hardly more
    "zeros": T(_constant(0.0), 1000, 3, 200),
    "constant": T(_constant(7.0), 1000, 3, 200),
    "constant, one column": T(_constant(7.0), 1000, 1, 150),
    "constant, at the radius": T(_constant(1e4), 4000, 10, 1000),
    "constant, beyond the radius": T(_constant(3e4), 4000, 2, 500, hidden=True),
    "constant, many columns": T(lambda rng, n, d: np.tile(np.arange(d) * 10.0, (n, 1)), 4000, 300, 500),
    "all rows equal but one": T(_with(_constant(7.0), 1, 1e4), 4000, 3, 1000, hidden=True),
    "all rows equal but five": T(_with(_constant(7.0), 5, -9e3), 4000, 3, 1000, hidden=True),
    "all rows equal but 1 %": T(_mostly(0.01, 7.0, 1e3), 4000, 3, 1000, hidden=True),
    "all rows equal but 1 %, barely": T(_mostly(0.01, 7.0, 1e3), 4000, 3, 150, hidden=True),
    "all rows equal but 10 %": T(_mostly(0.1, 0.0, 1e4), 4000, 3, 150),
    "all rows equal but 49 %": T(_mostly(0.49, -1e4, 1e4), 4000, 3, 200),
    "constant and normal columns": T(lambda rng, n, d: _normal(rng, n, d) * (np.arange(d) % 2), 4000, 20, 500),
    "constant but one column": T(lambda rng, n, d: _normal(rng, n, d) * (np.arange(d) == 3) + 9, 4000, 20, 500),
    "normal but one constant": T(_column(_normal, 0, lambda rng, n: 9e3), 4000, 20, 500),
    "constant, wide": T(_constant(3.0), 4000, 1000, 1000),
    # flags and categories
    "binary, 0.001": T(_flags(0.001), 4000, 10, 1000, hidden=True),
    "binary, 0.01": T(_flags(0.01), 4000, 1, 150, hidden=True),
    "binary, 0.02": T(_flags(0.02), 4000, 5, 500),
    "binary, 0.05": T(_flags(0.05), 4000, 1, 150, hidden=True),
    "binary, 0.1": T(_flags(0.1), 4000, 30, 300),
    "binary, 0.25, d = 1": T(_flags(0.25), 4000, 1, 150),
    "binary, 0.5, d = 1": T(_flags(0.5), 4000, 1, 150),
    "binary, 0.5, d = 100": T(_flags(0.5), 4000, 100, 300),
    "binary, 0.9, d = 3": T(_flags(0.9), 4000, 3, 200),
    "binary, all rates": T(_flags(np.geomspace(0.001, 0.5, 50)), 4000, 50, 1000),
    "binary, 0 and 1000": T(lambda rng, n, d: 1e3 * (rng.random((n, d)) < 0.03), 4000, 3, 300),
    "one-hot, even": T(lambda rng, n, d: one_hot(rng, n, d, 0.0), 4000, 10, 300),
    "one-hot, wide": T(lambda rng, n, d: one_hot(rng, n, d, 1.0), 4000, 300, 500),
    "one-hot, dominant": T(lambda rng, n, d: one_hot(rng, n, d, 3.0), 4000, 20, 500),
    "one-hot, nearly always one": T(
        lambda rng, n, d: np.eye(d)[np.where(rng.random(n) < 0.98, 0, rng.integers(1, d, n))],
        4000,
        10,
        300,
        hidden=True,
    ),
    "one-hot times money": T(lambda rng, n, d: one_hot(rng, n, d, 1.0) * rng.lognormal(4, 1, (n, 1)), 4000, 10, 1000),
    # times, and values that are far from 0 compared with their spread
    "times": T(_times, 4000, 2, 500, *YEARS),
    "times, barely": T(_times, 4000, 1, 150, *YEARS),
    "times, within a second": T(lambda rng, n, d: 1.6e9 + rng.random((n, d)), 4000, 3, 500, 2e9, (1e-3, 2e9)),
    "times, some missing as 0": T(
        lambda rng, n, d: _times(rng, n, d) * (rng.random((n, d)) > 0.03), 4000, 2, 500, *YEARS
    ),
    "times, half missing as 0": T(
        lambda rng, n, d: _times(rng, n, d) * (rng.random((n, 1)) > 0.5), 4000, 2, 500, *YEARS
    ),
    "times, 10 % missing as -1": T(
        lambda rng, n, d: np.where(rng.random((n, 1)) < 0.1, -1, 1.6e9 + rng.uniform(0, 86400, (n, d))),
        *(4000, 1, 300, *YEARS),
    ),
    "years": T(lambda rng, n, d: rng.integers(1900, 2025, (n, d)).astype(float), 2000, 2, 200),
    "far away and narrow": T(lambda rng, n, d: 9e3 + 1e-2 * rng.normal(size=(n, d)), 4000, 10, 300),
    "far away and narrow, barely": T(lambda rng, n, d: -9e3 + 2e-3 * rng.normal(size=(n, d)), 4000, 1, 150),
    "a time beside flags": T(
        _column(_flags(0.3), 0, lambda rng, n: 1.6e9 + rng.uniform(0, 3e7, n)), 4000, 5, 500, 2e9, (1e-2, 2e9)
    ),
    # units
    "units, 2e-4 to 1e5": T(_units, 4000, 10, 500, *WIDE),
    "units, barely": T(_units, 4000, 5, 160, *WIDE),
    "units, wide": T(_units, 4000, 100, 1000, *WIDE),
    "units, many rows": T(_units, 20000, 30, 3000, *WIDE),
    "units, lognormal": T(
        lambda rng, n, d: rng.lognormal(size=(n, d)) * np.geomspace(2e-4, 1e4, d), 4000, 10, 500, *WIDE
    ),
    "units, ten decades": T(
        lambda rng, n, d: rng.normal(size=(n, d)) * np.geomspace(1e-5, 1e5, d), 4000, 11, 1000, 1e6, (1e-6, 1e6)
    ),
    "ten decades in a column": T(_decades, 4000, 3, 1000, 1e5, (1e-5, 1e5)),
    "ten decades in a column, barely": T(_decades, 4000, 1, 170, 1e5, (1e-5, 1e5)),
    "smaller than declared": T(lambda rng, n, d: 1e-6 * rng.normal(size=(n, d)), 4000, 5, 300),
    "larger than declared": T(lambda rng, n, d: 1e3 * rng.normal(size=(n, d)), 4000, 5, 300, 10.0, (1e-3, 10.0)),
    "spread declared exactly": T(_standard, 4000, 5, 300, 10.0, (1.0, 1.0)),
    "spread declared too large": T(_standard, 4000, 5, 300, 1e3, (1e2, 1e3)),
    "one wide column of 300": T(_column(_standard, 0, lambda rng, n: 1e3 * rng.normal(size=n)), 4000, 300, 1000),
    "one wide column of 10": T(_column(_standard, 4, lambda rng, n: 3e3 * rng.normal(size=n)), 4000, 10, 300),
    # tails
    "Pareto 1.5": T(LAWS["Pareto 1.5"], 4000, 3, 500),
    "Pareto 1.5, barely": T(LAWS["Pareto 1.5"], 4000, 1, 150),
    "Pareto 1.5, wide": T(LAWS["Pareto 1.5"], 4000, 100, 500),
    "Pareto 1.1": T(lambda rng, n, d: np.minimum(rng.pareto(1.1, (n, d)), 1e4), 4000, 1, 1000),
    "Pareto rows": T(lambda rng, n, d: rng.pareto(1.5, (n, 1)) * rng.random((n, d)), 4000, 20, 500),
    "Cauchy": T(lambda rng, n, d: np.clip(rng.standard_cauchy((n, d)), -1e4, 1e4), 4000, 3, 500),
    "Cauchy, not cut": T(lambda rng, n, d: rng.standard_cauchy((n, d)), 4000, 3, 500),
    "lognormal 3": T(lambda rng, n, d: np.minimum(rng.lognormal(0, 3, (n, d)), 1e4), 4000, 2, 500),
    # zeros among other numbers
    **{
        f"rows of zeros, {share}": T(
            lambda rng, n, d, share=share: _normal(rng, n, d) * (rng.random((n, 1)) > share),
            *(4000, d, reach),
            hidden=share > 0.95,
        )
        for share, d, reach in ((0.3, 3, 200), (0.5, 3, 300), (0.8, 10, 300), (0.95, 10, 500), (0.99, 3, 1000))
    },
    **{
        f"entries of zero, {share}": T(
            lambda rng, n, d, share=share: _normal(rng, n, d) * (rng.random((n, d)) > share), 4000, d, reach
        )
        for share, d, reach in ((0.3, 3, 200), (0.6, 1, 150), (0.9, 30, 500), (0.97, 100, 1000))
    },
    "money, mostly none": T(
        lambda rng, n, d: np.minimum(rng.lognormal(5, 1.5, (n, d)), 1e4) * (rng.random((n, d)) < 0.15), 4000, 4, 500
    ),
    # clusters
    "two points": T(_mostly(0.5, -80.0, 80.0), 4000, 5, 200),
    "two points at the radius": T(_mostly(0.5, -1e4, 1e4), 4000, 1, 150),
    "bimodal, far apart": T(_bimodal(0.5, -5e3, 5e3), 4000, 5, 300),
    "bimodal, 60 to 40": T(_bimodal(0.4, -5e3, 5e3), 4000, 5, 300),
    "bimodal, 80 to 20": T(_bimodal(0.2, -5e3, 5e3), 4000, 5, 150),
    "bimodal, 95 to 5": T(_bimodal(0.05, 0, 5e3), 4000, 5, 200, hidden=True),
    "bimodal, 99 to 1": T(_bimodal(0.01, 0, 1e4), 4000, 5, 500, hidden=True),
    "bimodal, one column": T(_column(_standard, 0, lambda rng, n: rng.choice([-1e3, 1e3], n)), 4000, 20, 500),
    "ten clusters": T(
        lambda rng, n, d: _standard(rng, n, d) + 1e3 * _standard(rng, 10, d)[rng.integers(0, 10, n)], 4000, 8, 300
    ),
    "nested spreads": T(lambda rng, n, d: _standard(rng, n, d) * 10.0 ** rng.integers(-2, 4, (n, 1)), 4000, 5, 500),
    # dependent columns
    "equal columns": T(lambda rng, n, d: rng.normal(5, 2, (n, 1)) * np.ones(d), 4000, 30, 300),
    "equal columns, skewed": T(lambda rng, n, d: rng.exponential(3, (n, 1)) * np.ones(d), 4000, 100, 300),
    "sums of others": T(lambda rng, n, d: np.cumsum(rng.exponential(size=(n, d)), axis=1), 4000, 30, 500),
    "random walks": T(lambda rng, n, d: np.cumsum(rng.normal(size=(n, d)), axis=1), 4000, 100, 500),
    # accidents
    "one huge outlier": T(_with(_normal, 1, 1e12), 4000, 5, 500, hidden=True),
    "one outlier of the largest double": T(_with(_normal, 1, 1.7e308), 4000, 5, 500, hidden=True),
    "ten outliers": T(_with(_normal, 10, 1e4), 4000, 5, 500, hidden=True),
    "2 % of outliers, one column": T(
        _column(_normal, 2, lambda rng, n: np.where(rng.random(n) < 0.02, 9999.0, 5.0)), 4000, 5, 500, hidden=True
    ),
    "missing as 9999": T(
        lambda rng, n, d: np.where(rng.random((n, d)) < 0.05, 9999.0, _normal(rng, n, d)), 4000, 5, 300
    ),
    "sorted": T(lambda rng, n, d: np.sort(rng.lognormal(size=(n, d)), axis=0), 4000, 5, 300),
    "twenty rows, many times": T(lambda rng, n, d: _normal(rng, 20, d)[rng.integers(0, 20, n)], 4000, 5, 200),
    # real life
    "ages": T(lambda rng, n, d: rng.integers(0, 100, (n, d)).astype(float), 1000, 1, 150, 120.0, (0.1, 120.0)),
    "money, rounded to 100": T(
        lambda rng, n, d: np.rint(np.minimum(rng.lognormal(7, 0.8, (n, d)), 1e5) / 100) * 100, 4000, 2, 300, 1e5
    ),
    "age, income, flag": T(_people, 4000, 3, 500, 1e6, (1e-2, 1e6)),
    "fifty rows": T(_normal, 50, 2, 200),
    "two rows": T(_normal, 2, 1, 200),
}
