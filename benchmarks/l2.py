"""Compare l2 noise with Gaussian noise, and compare the functions of egm and of `dp_l2` that compute its scale.

The density of l2 noise at the vector x is proportional to exp(-||x|| / scale). Joseph, Kulesza and Yu (2025) studied
this noise, and their program is the folder `dp_l2` of the repository google-research/google-research. This program is
not a package to install, so it is compared only if PYTHONPATH names the folder that contains `dp_l2`.
"""

from functools import partial
from importlib import import_module
from importlib.util import find_spec

from benchmarks.gx2 import heading, row, take_turns, verdict
from egm import calibration, samplers

EPSILON, DELTA = 1.0, 1e-6
DIMENSIONS = (1, 2, 5, 10, 30, 100, 300, 1000, 10**6)
SPHERES, TOLERANCE = 1000, 1e-3  # of dp_l2 in the experiments of its authors


def noise(quick):
    """Measure the error of l2 noise, the time to compute its scale, and the time of a draw; yield lines of text.

    The error is the mean squared error, divided by that of Gaussian noise for the same epsilon and delta. If `quick` is
    true, there are fewer dimensions and repetitions.
    """
    methods = {"egm": partial(calibration.l2_noise_scale, EPSILON, DELTA)} | (
        {"dp_l2": authors} if find_spec("dp_l2") else {}
    )
    columns = [*(f"error, {name}" for name in methods), *(f"ms, {name}" for name in methods)]
    yield from heading(f"l2 noise at ({EPSILON:g}, {DELTA:g}): error over that of Gaussian noise, time", *columns)
    if "dp_l2" not in methods:
        yield "dp_l2: not installed"
    std = calibration.analytic_noise_multiplier(EPSILON, DELTA)
    times = {}
    for d in DIMENSIONS[1::2] + DIMENSIONS[-1:] if quick else DIMENSIONS:
        table = take_turns({name: partial(method, d) for name, method in methods.items()}, quick)
        times[d] = 1e3 * table["median"][0]
        errors = (d + 1) * (table["value"] / std) ** 2
        yield row(f"d = {d}", *(f"{error:.6f}" for error in errors), *(f"{1e3 * t:.2f}" for t in table["median"]))
    million = times.pop(10**6)
    yield verdict("most milliseconds to d = 1000", [max(times.values())], ".2f", most=5)
    yield verdict("milliseconds, d = 1e6", [million], ".2f", most=50)
    yield verdict("secure draw over Gaussian, d = 1e4", [secure_ratio(quick)], ".2f", most=1.2)


def authors(d):
    """Return the scale of l2 noise in `d` dimensions that the program dp_l2 computes for EPSILON and DELTA.

    The program has the options that its authors use in their experiments.
    """
    return import_module("dp_l2.l2").get_l2_sigma(d, EPSILON, DELTA, SPHERES, SPHERES, TOLERANCE)


def secure_ratio(quick):
    """Return the time of a secure draw of l2 noise, divided by the time of a secure draw of Gaussian noise.

    A secure draw has a cryptographically secure random source, and not a NumPy generator. Both draws have 10 000
    entries. If `quick` is true, there are fewer repetitions.
    """
    d, scale = 10_000, 2.0**30
    calls = {
        "Gaussian": lambda: samplers.secure_gaussian(scale * (d + 1) ** 0.5, d)[0],
        "l2": lambda: samplers.secure_l2(scale, d)[0],
    }
    gaussian, l2 = take_turns(calls, quick)["median"]
    return l2 / gaussian
