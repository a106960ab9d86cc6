"""Compute tails and densities of special chi-square forms by closed forms and series, in order to check contour.py.

A chi-square form is Q = sum_j w_j chi2(k_j, nc_j) for independent terms with weights w_j, degrees of freedom k_j and
noncentralities nc_j. No code is shared with contour.py. `closed_form` chooses the formula. Values are returned as a
dictionary with some of the keys "sf" (upper tail), "cdf" (lower tail) and "pdf" (density).
"""

from mpmath import mp, mpf

EXTRA = 800  # digits that absorb the cancellation in the sum of exponentials


def closed_form(weights, dof, nc, x):
    """Return (name of a formula, its values at x) for Q = sum_j weights_j chi2(dof_j, nc_j).

    If no formula applies, return (None, {}). The values are a dictionary with some of the keys "sf" (upper tail), "cdf"
    (lower tail) and "pdf" (density).
    """
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
    """Return the density at y of a chi-square variable with k degrees of freedom."""
    return mp.exp((k / 2 - 1) * mp.log(y) - y / 2 - k / 2 * mp.log(2) - mp.loggamma(k / 2))


def _gamma(w, k, x):
    """Return one tail and the density at x of w times a chi-square variable with k degrees of freedom, as a dictionary.

    The tail is the upper one ("sf") if x is above the mean, and otherwise the lower one ("cdf").
    """
    y = x / w
    sf = mp.gammainc(k / 2, y / 2, mp.inf, regularized=True) if y > k else None
    cdf = mp.gammainc(k / 2, 0, y / 2, regularized=True) if y <= k else None
    return {name: v for name, v in (("sf", sf), ("cdf", cdf), ("pdf", _density(k, y) / w)) if v is not None}


def _series(w, k, nc, x):
    """Return one tail and the density at x of w times a noncentral variable chi2(k, nc), as a dictionary.

    The tail, "sf" if x is above the mean and otherwise "cdf", is a Poisson mixture of tails of central chi-square
    variables.
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
    """Return the upper tails at y of chi-square variables with k, k + 2, k + 4, ... degrees of freedom, as a list.

    jump[j] is the tail for k + 2 j + 2 minus the tail for k + 2 j. The first tail is computed by the incomplete gamma
    function, and each later tail by adding a jump to the tail before. The list is as long as `jump`.
    """
    tails = [mp.gammainc(k / 2, y / 2, mp.inf, regularized=True)]
    for step in jump[:-1]:
        tails.append(tails[-1] + step)
    return tails


def _downward(k, y, jump):
    """Return the lower tails at y of chi-square variables with k, k + 2, k + 4, ... degrees of freedom, as a list.

    jump[j] is the tail for k + 2 j minus the tail for k + 2 j + 2. The last tail is computed by the incomplete gamma
    function, and each earlier tail by adding a jump to the tail after it. The list is as long as `jump`.
    """
    tails = []
    tail = mp.gammainc(k / 2 + len(jump) - 1, 0, y / 2, regularized=True)
    for step in reversed(jump[:-1]):
        tails.append(tail)
        tail += step
    return [tail, *tails[::-1]]


def _exponentials(w, x):
    """Return the tails and the density at x of sum_j w_j chi2(2), for distinct w_j > 0: keys "sf", "cdf" and "pdf".

    Each of them is a sum of exponentials, which follows by partial fractions.
    """
    with mp.workdps(mp.dps + EXTRA):
        share = [mp.fprod(u / (u - v) for v in w if v != u) * mp.exp(-x / (2 * u)) for u in w]
        sf = mp.fsum(share)
        return {"sf": sf, "cdf": 1 - sf, "pdf": mp.fsum(s / (2 * u) for s, u in zip(share, w, strict=True))}


def _bessel(u, v, x):
    """Return the density at x of u A + v B for independent chi-square variables A and B with one degree of freedom."""
    half = x * (1 / v - 1 / u) / 4
    return mp.exp(-x * (1 / u + 1 / v) / 4) * mp.besseli(0, half) / (2 * mp.sqrt(u * v))
