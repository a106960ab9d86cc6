"""Offer other programs as functions (x, weights) that return P[sum_j weights_j Z_j**2 > x], or nan if they fail.

The Z_j are independent standard normal variables. The package gx2 from PyPI has eight methods. Four are compared: its
default, one that is better near the mean, one that is better far in the tail, and Ruben's series with more terms. Its
methods `ray` and `ifft` and its option `precision="vpa"` are left out: on smaller cases each was worse than one of
these four.
"""

import math
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np

from egm.study.tables import lugannani_rice

GX2 = {
    "default": {},
    "Imhof, RelTol=1e-12": {"method": "imhof", "AbsTol": 0, "RelTol": 1e-12},  # best for many weights, p >= 1e-2
    "Ruben, 20000 terms": {"method": "ruben", "n_ruben": 20_000},  # best for few weights, p >= 1e-6
    "tail": {"method": "tail"},  # best for smaller p
}
SLOW = "gx2 (PyPI), Ruben, 20000 terms"  # takes seconds for a call


def davies(qf, acc, lim=10**8):
    """Return a function of x and weights that computes P[sum_j weights_j Z_j**2 > x] by Davies' algorithm.

    The Z_j are independent standard normal variables. `qf` is the function of the package fastlmmclib, `acc` its
    absolute accuracy, and `lim` the largest number of terms. The result is nan if `qf` reports a fault.
    """

    def tail(x, weights):
        value, fault, _ = qf(x, weights, acc=acc, lim=lim)
        return np.nan if fault else value

    return tail


def fastlmmclib():
    """Return {name: function of x and weights} for Davies' algorithm of the package fastlmmclib, at two accuracies.

    A function returns P[sum_j weights_j Z_j**2 > x] for standard normal Z_j, or nan if the algorithm reports a fault.
    """
    qf = import_module("fastlmmclib.quadform").qf
    return {f"Davies (fastlmmclib), acc={acc}": davies(qf, float(acc)) for acc in ("1e-9", "1e-13")}


def chi2comb(atol="1e-9"):
    """Return {name: function of x and weights}, with one entry: Davies' algorithm in C from the package chi2comb.

    The function returns P[sum_j weights_j Z_j**2 > x] for standard normal Z_j, or nan if the algorithm reports a fault.
    Its absolute accuracy is `atol`.
    """
    module = import_module("chi2comb")
    last = [None, None]  # the last weights, and the terms that chi2comb takes, which are made only once

    def tail(x, weights):
        if last[0] is not weights:
            last[:] = weights, [module.ChiSquared(weight, 0.0, 1) for weight in weights]
        value, fault, _ = module.chi2comb_cdf(x, last[1], 0.0, lim=10**8, atol=float(atol))
        return np.nan if fault else 1 - value

    return {f"Davies (chi2comb), atol={atol}": tail}


def gx2_calls(function):
    """Return {name: function of a number and weights}, with one entry for each set of options in `GX2`.

    The functions call `function`: cdf or inv of the package gx2 from PyPI. With cdf, they compute the upper tail at the
    number. With inv, the number is a probability, and they compute the upper quantile.
    """

    def call(options, value, weights):
        ones, zeros = np.ones_like(weights), np.zeros_like(weights)
        return float(function(value, weights, ones, zeros, 0, 0, side="upper", **options))

    return {f"gx2 (PyPI), {name}": partial(call, options) for name, options in GX2.items()}


def gx2():
    """Return {name: function of x and weights} for the four methods of the package gx2 from PyPI in `GX2`.

    A function returns P[sum_j weights_j Z_j**2 > x] for standard normal Z_j.
    """
    return gx2_calls(import_module("gx2").cdf)


def momentchi2():
    """Return {name: function of x and weights} for the four approximations of the package momentchi2.

    A function approximates P[sum_j weights_j Z_j**2 > x] for standard normal Z_j. It replaces the sum by a variable
    whose first moments are those of the sum.
    """
    module = import_module("momentchi2")
    names = ("hbe", "lpb4", "sw", "wf")
    # lpb4 calls np.math, which NumPy 2 removed: that module alone gets it back
    import_module("momentchi2.utilities").np = SimpleNamespace(**vars(np), math=math)

    def call(cdf, x, weights):
        return float(1 - cdf(weights, x))  # it has only the lower tail

    return {f"momentchi2, {name}": partial(call, getattr(module, name)) for name in names}


PACKAGES = {function.__name__: function for function in (fastlmmclib, chi2comb, gx2, momentchi2)}


def missing():
    """Return a list of the names of the packages that should be compared with egm.gx2 but are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def available():
    """Return {name: function of x and weights} for all methods that can be compared on this machine.

    A function returns P[sum_j weights_j Z_j**2 > x] for standard normal Z_j. The methods are those of the installed
    packages in PACKAGES, and the saddlepoint formula.
    """
    methods = {}
    for name in (name for name in PACKAGES if name not in missing()):
        methods |= PACKAGES[name]()
    return methods | {"saddlepoint (Lugannani-Rice)": lugannani_rice}
