"""Read the chi-square sums sum_j w_j chi2(k_j, nc_j) in gx2.json, as lists of floats.

The weights w_j are stored in one of three forms: {"weights": [...]} has the weights themselves; {"power": {"d": d,
"alpha": "a"}} stands for j^-a with j = 1, ..., d, where the exponent is text such as "0.1"; and {"halving": d} stands
for the d numbers 1, 1/2, 1/4, ... Each weight becomes the nearest double. "dof" has the degrees of freedom k_j and "nc"
the noncentralities nc_j, each as a number for all terms or as a list; the defaults are 1 and 0. Only the standard
library is needed.
"""

from decimal import Decimal, localcontext


def power_weights(d, alpha):
    """Return a list of the doubles nearest to j ** -alpha for j = 1, ..., d.

    `alpha` is text, because "0.1" is exactly one tenth, and the double 0.1 is not.
    """
    with localcontext() as context:
        context.prec = 40
        return [float(Decimal(j) ** -Decimal(alpha)) for j in range(1, d + 1)]


def terms(form):
    """Return weights, degrees of freedom and noncentralities of the chi-square sum `form`, as lists of equal length.

    `form` is a dictionary in gx2.json, whose entries may be abbreviated: one number for all terms, or a formula for the
    weights.
    """
    if "power" in form:
        weights = power_weights(**form["power"])
    else:
        weights = form["weights"] if "weights" in form else [2.0**-j for j in range(form["halving"])]
    return list(weights), _spread(form.get("dof", 1), len(weights)), _spread(form.get("nc", 0), len(weights))


def _spread(value, d):
    return list(value) if isinstance(value, list) else [value] * d
