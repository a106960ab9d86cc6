"""The report's experiments: parameters in, a tidy table out.

A table is a numpy structured array, one row a combination of parameters: `table["value"][table["d"] == 100]`.
"""

import ast
from itertools import product

import numpy as np

from egm import scaling as scalings
from egm._validate import count, nonnegative, positive, probability, scalar

__all__ = ["check_parameters", "improvement", "sweep", "zipf_sigma"]


def zipf_sigma(d, alpha, total=1.0):
    """Standard deviations i**-alpha, i = 1 ... d, scaled to the sum `total`: shape (d,), largest first.

    d: a whole number >= 1. alpha: >= 0, the skewness; 0 makes them equal. total: > 0. Raises ValueError otherwise,
    and when the smallest would underflow. Poulsen (2023), section 5.
    """
    d, alpha, total = count(d=d), scalar(nonnegative, alpha=alpha), scalar(positive, total=total)
    power = np.arange(1, d + 1.0) ** -alpha
    if power[-1] == 0:
        raise ValueError(f"alpha must leave d**-alpha > 0 in double precision, got {alpha!r} for d = {d}")
    return total * power / np.sum(power)


def improvement(d, n, alpha, scaling="expected_norm"):
    """E_n / E_t: the noise's squared error without scaling over that with it, at clip probability 1/n, Zipf sigma.

    d, n: whole numbers >= 1 and >= 2. alpha: >= 0. scaling: "expected_norm" (Lemma 4.1, the report's) or "optimal".
    Equals d q_p(sigma**2) / (q_p((b sigma)**2) sum b**-2); epsilon and delta cancel. Exact to about 1e-12, where the
    report searched by bisection. Raises ValueError otherwise. Poulsen (2023), Figure 2.
    """
    sigma = zipf_sigma(d, alpha)
    p = scalar(probability, **{"clip_probability = 1/n": 1 / count(n=n)})
    choices = {"expected_norm": scalings.expected_norm, "optimal": lambda sigma: scalings.optimal(sigma, p)}
    if scaling not in choices:
        raise ValueError(f'scaling must be "expected_norm" or "optimal", got {scaling!r}')
    without = scalings.noise_factor(np.ones_like(sigma), sigma, p)
    return without / scalings.noise_factor(choices[scaling](sigma), sigma, p)


def sweep(function, **axes):
    """function(**point) at every combination of the axes' values, as a table with one column an axis and `value`.

    function: returns a number. axes: a sequence of values each; the last one varies fastest.
    """
    points = list(product(*axes.values()))
    values = [float(function(**dict(zip(axes, point, strict=True)))) for point in points]
    kinds = [(name, np.asarray(list(axis)).dtype) for name, axis in axes.items()] + [("value", float)]
    return np.array([(*point, value) for point, value in zip(points, values, strict=True)], dtype=kinds)


def check_parameters(namespace, **ranges):
    """Refuse a parameter that a notebook does not have, and a value outside its range, with a ValueError.

    namespace: the notebook's globals(). ranges: (least, greatest) of each parameter, a whole number where both are; a
    list is checked element by element. Papermill itself only warns of an unknown name, and then runs the notebook with
    its defaults as if the wish had been heard. It writes the wishes into a cell that begins with "# Parameters".
    """
    wishes = "\n".join(source for source in namespace.get("In", []) if source.startswith("# Parameters"))
    for name in (target.id for wish in ast.parse(wishes).body for target in wish.targets):
        if name not in ranges:
            raise ValueError(f"unknown parameter {name} = {namespace[name]!r}; this notebook has {', '.join(ranges)}")
    for name, (least, greatest) in ranges.items():
        whole = isinstance(least, int) and isinstance(greatest, int)
        kind, types = ("an integer", int) if whole else ("a number", (int, float))
        value = namespace[name]
        for item in value if isinstance(value, list) and value else [value]:
            if not isinstance(item, types) or isinstance(item, bool) or not least <= item <= greatest:
                raise ValueError(f"{name} must be {kind} from {least} to {greatest}, got {item!r}")
