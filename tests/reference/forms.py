"""The quadratic forms of gx2.json, as the doubles that NumPy would hold.

A stored form is {"weights": [...]}, {"power": {"d": d, "alpha": "a"}} for j^-a or {"halving": d} for 2^-j, with
optional "dof" and "nc": a number for every term, or a list. Defaults: dof 1, nc 0. Only the standard library is
needed.
"""

from decimal import Decimal, localcontext


def power_weights(d, alpha):
    """Return the doubles nearest to j ** -alpha, j = 1 ... d; alpha is a string, so that "0.1" means one tenth."""
    with localcontext() as context:
        context.prec = 40
        return [float(Decimal(j) ** -Decimal(alpha)) for j in range(1, d + 1)]


def terms(form):
    """Return the lists weights, dof and nc, of equal length, of a stored form."""
    if "power" in form:
        weights = power_weights(**form["power"])
    else:
        weights = form["weights"] if "weights" in form else [2.0**-j for j in range(form["halving"])]
    return list(weights), _spread(form.get("dof", 1), len(weights)), _spread(form.get("nc", 0), len(weights))


def _spread(value, d):
    return list(value) if isinstance(value, list) else [value] * d
