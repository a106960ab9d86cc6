"""Compute closed forms and series for special quadratic forms, to check contour.py without sharing code with it.

`closed_form` chooses the formula that applies. Values are returned as {"sf" or "cdf" or "pdf":
value}.
"""

from mpmath import mp, mpf

EXTRA = 800  # digits that absorb the cancellation in the sum of exponentials


def closed_form(weights, dof, nc, x):
    """Return (name of the formula, values at x) if a formula applies to this quadratic form, or else (None, {})."""
    w, k, a, x = [mpf(v) for v in weights], [mpf(v) for v in dof], [mpf(v) for v in nc], mpf(x)
    if len(set(w)) == 1:
        total, name = sum(a), "noncentral chi-square series" if any(a) else "incomplete gamma"
        return name, (_series(w[0], sum(k), total, x) if total else _gamma(w[0], sum(k), x))
    if not any(a) and set(k) == {2} and len(set(w)) == len(w):
        return "sum of exponentials", _exponentials(w, x)
    if not any(a) and k == [1, 1]:
        return "Bessel I0", {"pdf": _bessel(*w, x)}
    return None, {}


def _density(k, y):
    return mp.exp((k / 2 - 1) * mp.log(y) - y / 2 - k / 2 * mp.log(2) - mp.loggamma(k / 2))


def _gamma(w, k, x):
    """Return one tail and the density of w chi2(k) at x, by the incomplete gamma functions."""
    y = x / w
    sf = mp.gammainc(k / 2, y / 2, mp.inf, regularized=True) if y > k else None
    cdf = mp.gammainc(k / 2, 0, y / 2, regularized=True) if y <= k else None
    return {name: v for name, v in (("sf", sf), ("cdf", cdf), ("pdf", _density(k, y) / w)) if v is not None}


def _series(w, k, nc, x):
    """Return one tail and the density of w chi2(k, nc) at x, as a Poisson mixture of central chi-square variables.

    The tails of the central variables follow from each other by a recurrence.
    """
    y, upper = x / w, x / w > k + nc
    count = int(nc + 2 * mp.sqrt(nc * y) + 400)
    poisson, jump = [mp.exp(-nc / 2)], [_density(k, y) * 2 * y / k]
    for j in range(count):
        poisson.append(poisson[-1] * nc / 2 / (j + 1))
        jump.append(jump[-1] * y / (k + 2 * j + 2))
    pdf = sum(p * g * (k + 2 * j) for j, (p, g) in enumerate(zip(poisson, jump, strict=True))) / (2 * y)
    tails = _upward(k, y, jump) if upper else _downward(k, y, jump)
    return {"sf" if upper else "cdf": sum(p * t for p, t in zip(poisson, tails, strict=True)), "pdf": pdf / w}


def _upward(k, y, jump):
    """Return the upper tails of chi2(k + 2j) at y for j = 0, 1, ...; each is the previous one plus its jump.

    The argument `jump` has these differences.
    """
    tails = [mp.gammainc(k / 2, y / 2, mp.inf, regularized=True)]
    for step in jump[:-1]:
        tails.append(tails[-1] + step)
    return tails


def _downward(k, y, jump):
    """Return the lower tails of chi2(k + 2j) at y for j = 0, 1, ..., computed from the last one down to the first.

    The argument `jump` has the differences of neighboring tails.
    """
    tails = []
    tail = mp.gammainc(k / 2 + len(jump) - 1, 0, y / 2, regularized=True)
    for step in reversed(jump[:-1]):
        tails.append(tail)
        tail += step
    return [tail, *tails[::-1]]


def _exponentials(w, x):
    """Return both tails and the density at x for distinct weights w with two degrees of freedom each.

    The formula is a sum of exponentials, by partial fractions.
    """
    with mp.workdps(mp.dps + EXTRA):
        share = [mp.fprod(u / (u - v) for v in w if v != u) * mp.exp(-x / (2 * u)) for u in w]
        sf = mp.fsum(share)
        return {"sf": sf, "cdf": 1 - sf, "pdf": mp.fsum(s / (2 * u) for s, u in zip(share, w, strict=True))}


def _bessel(u, v, x):
    """Return the density at x of a sum of two terms with weights u and v and one degree of freedom each."""
    half = x * (1 / v - 1 / u) / 4
    return mp.exp(-x * (1 / u + 1 / v) / 4) * mp.besseli(0, half) / (2 * mp.sqrt(u * v))
