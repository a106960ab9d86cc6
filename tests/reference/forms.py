"""Read the quadratic forms of gx2.json as lists of the doubles that NumPy would hold.

A stored form is {"weights": [...]}, {"power": {"d": d, "alpha": "a"}} for the weights j^-a, or {"halving": d} for the
weights 2^-j. It may have "dof" and "nc": a number for all terms, or a list. The defaults are dof = 1 and nc = 0. Only
the standard library is needed.
"""

from decimal import Decimal, localcontext


def power_weights(d, alpha):
    """Return the doubles nearest to j ** -alpha for j = 1 ... d; alpha is a string, so that "0.1" is one tenth."""
    with localcontext() as context:
        context.prec = 40
        return [float(Decimal(j) ** -Decimal(alpha)) for j in range(1, d + 1)]


def terms(form):
    """Return the weights, the degrees of freedom and the noncentralities of a stored form, as lists of equal length."""
    if "power" in form:
        weights = power_weights(**form["power"])
    else:
        weights = form["weights"] if "weights" in form else [2.0**-j for j in range(form["halving"])]
    return list(weights), _spread(form.get("dof", 1), len(weights)), _spread(form.get("nc", 0), len(weights))


def _spread(value, d):
    return list(value) if isinstance(value, list) else [value] * d
