"""Compute tails, density and quantiles of Q = sum_j w_j chi2(k_j, nc_j) to 30 digits, by contour integrals.

The terms are independent noncentral chi-square variables with weights w_j, degrees of freedom k_j and noncentralities
nc_j. The cumulant function of Q is K(s) = sum_j [-k_j/2 log(1 - 2 w_j s) + nc_j w_j s / (1 - 2 w_j s)]. The upper tail
sf(x) and the density pdf(x) are integrals along a contour that crosses the real axis at a point c in (0, 1/(2 max w)):

    sf(x) = (1/2 pi i) int exp(K(s) - s x) / s ds,   pdf(x) = (1/2 pi i) int exp(K(s) - s x) ds.

If c < 0, the first integral is -cdf(x), where cdf(x) is the lower tail. Two contours are used, whose results must
agree: a parabola through a saddle point, and a hyperbola that crosses the real axis elsewhere. Both integrals are
computed by the trapezoid rule, whose error is squared by each halving of the step.

In the functions, `form` describes Q divided by its largest weight, and K is the cumulant function of this quotient.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from mpmath import mp, mpc, mpf

mp.dps = 60
SETTLED = mpf(10) ** -24  # relative change at the last halving, so the error left is near its square
AGREE = mpf(10) ** -30  # relative difference allowed between the contours
REACH = 115.0  # the integrand is dropped below exp(-REACH) of its peak
DOUBLE_SETTINGS = {"over": "ignore", "invalid": "ignore", "divide": "ignore", "under": "ignore"}


class Form(NamedTuple):
    """Describe the sum Q = sum_j w_j chi2(k_j, nc_j), divided by its largest weight `scale`, with equal weights merged.

    The numbers are those of mpmath, with many digits; only the field `double` has numbers in double precision.
    """

    scale: mpf
    by_dof: tuple  # pairs (degrees of freedom, tuple of the divided weights with them)
    noncentral: tuple  # pairs (divided weight, noncentrality), for noncentralities above 0
    double: tuple  # arrays of doubles: the divided weights, degrees of freedom and noncentralities


def make_form(weights, dof, nc):
    """Return the `Form` that describes Q = sum_j weights_j chi2(dof_j, nc_j); all numbers are taken as exact."""
    scale = mpf(max(weights))
    merged = defaultdict(lambda: [mpf(0), mpf(0)])
    for w, k, a in zip(weights, dof, nc, strict=True):
        merged[mpf(w) / scale][0] += mpf(k)
        merged[mpf(w) / scale][1] += mpf(a)
    groups = defaultdict(list)
    for w, (k, _) in merged.items():
        groups[k].append(w)
    double = np.array([[float(w), float(k), float(a)] for w, (k, a) in merged.items()]).T
    noncentral = tuple((w, a) for w, (_, a) in merged.items() if a)
    return Form(scale, tuple((k, tuple(ws)) for k, ws in groups.items()), noncentral, tuple(double))


def log_mgf(form, s):
    """Return K(s) = log E[exp(s Q)] at a complex point s, in high precision.

    Q is the chi-square sum that `form` describes. K is continuous except on the real axis right of 1/2.
    """
    total = mpc(0)
    for k, ws in form.by_dof:
        total -= k / 2 * _log_product(ws, s)
    for w, a in form.noncentral:
        total += a * w * s / (1 - 2 * w * s)
    return total


def _log_product(ws, s):
    """Return sum_j log(1 - 2 w_j s) for the weights w_j in `ws`, from a single logarithm, to save time.

    The logarithm of the product may differ from the sum by a multiple of 2 pi i, which is found from the angles of the
    factors.
    """
    product = mpc(1)
    twice = 2 * s
    for w in ws:
        product *= 1 - w * twice
    log = mp.log(product)
    angle = np.angle(1 - np.array([float(w) for w in ws]) * complex(twice)).sum()
    return log + mpc(0, 2 * mp.pi * round((angle - float(log.imag)) / (2 * np.pi)))


def scaled_cumulants(form, s):
    """Return K(s), s K'(s), s^2 K''(s) and s^3 K'''(s) in doubles, at a real point s < 1/2.

    K(s) = log E[exp(s Q)] is the cumulant function of the chi-square sum Q that `form` describes. The powers of s avoid
    overflow.
    """
    w, k, a = form.double
    v = w * s / (1 - 2 * w * s)
    b = a * (1 + 2 * v)
    value = np.sum(-k / 2 * np.log1p(-2 * w * s) + a * v)
    return value, np.sum((k + b) * v), np.sum((2 * k + 4 * b) * v**2), np.sum((8 * k + 24 * b) * v**3)


def bisect(increasing, low, high):
    """Return the root of an increasing function between `low` and `high`, by bisection."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < 0 else (low, middle)
    return (low + high) / 2


def _on_side(upper):
    """Return (function, low, high) to search for the point where a contour (path of integration) crosses the real axis.

    The function is increasing, and maps [low, high] to the possible points s. For an upper tail (`upper` is True) they
    are in (0, 1/2), and otherwise in (-inf, 0). The search is a bisection for the argument of the function, and not for
    s itself, because s may be very near 0 or 1/2.
    """
    return (lambda t: 0.5 / (1 + np.exp(-t)), -60.0, 34.0) if upper else (lambda t: -np.exp(-t), -700.0, 700.0)


def crossing(form, x, upper):
    """Return a real saddle point: a number s at which the derivative of K(s) - s x - log|s| is 0.

    If `upper` is True, s is positive, and otherwise it is negative. K is the cumulant function of the chi-square sum
    that `form` describes. x is a double in the units of `form`, in which the largest weight is 1.
    """
    to_s, low, high = _on_side(upper)
    return float(to_s(bisect(lambda t: (scaled_cumulants(form, to_s(t))[1] - 1) / to_s(t) - x, low, high)))


def rough_quantile(form, log_p, upper):
    """Return a double x whose upper tail (or lower tail, if `upper` is False) is approximately exp(log_p).

    The tail is that of the chi-square sum Q that `form` describes, in the units of Q. It is computed by the saddlepoint
    formula, which approximates the contour integral from its integrand at the saddle point alone. x is rounded to six
    digits.
    """
    to_s, low, high = _on_side(upper)

    def estimate(s):
        k0, k1, k2, _ = scaled_cumulants(form, s)
        x = (k1 - 1) / s
        return x, (k0 - s * x - np.log(2 * np.pi * (k2 + 1)) / 2 if x > 0 else 0.0)

    sign = -1 if upper else 1
    with np.errstate(**DOUBLE_SETTINGS):
        x, _ = estimate(to_s(bisect(lambda t: sign * (estimate(to_s(t))[1] - log_p), low, high)))
    return float(f"{x * float(form.scale):.6g}")


def parabola(c, width, bend):
    """Return a function that maps u to (s, ds/du) for the parabola s(u) = c + i width u + bend (width u)^2."""
    a = bend * width * width
    return lambda u: (c + 1j * width * u + a * u * u, 1j * width + 2 * a * u)


def hyperbola(c, height, bend):
    """Return a function that maps u to (s, ds/du) for the hyperbola s(u) = c + a (cosh u - 1) + i height sinh u.

    The constant a is such that, near c, a point with the imaginary part y has approximately the real part c + `bend`
    y^2, as on the `parabola`.
    """
    a = 2 * bend * height * height

    def point(u):
        cosh, sinh = (np.cosh(u), np.sinh(u)) if isinstance(u, np.ndarray) else (mp.cosh(u), mp.sinh(u))
        return c + a * (cosh - 1) + 1j * height * sinh, a * sinh + 1j * height * cosh

    return point


def contours(form, x, upper):
    """Return two contours (paths of integration) for a tail at x, a parabola and a hyperbola, each as (c, point, end).

    The tail is that of the chi-square sum `form`, the upper one if `upper` is True. A contour crosses the real axis at
    c. `point` is a function that maps a real number u to (s, ds/du), with s = c at u = 0. The integrand of the tail,
    exp(K(s) - s x) / s, is negligible for |u| beyond `end`. x is in units of the largest weight of `form`.
    """
    c = crossing(form, x, upper)
    _, _, k2, k3 = (float(value) for value in scaled_cumulants(form, c))
    width, gap = abs(c) * (k2 + 1) ** -0.5, 0.5 - c
    descent, own = (k3 - 2) / (6 * (k2 + 1) * c), k3 / (6 * k2 * c)
    bend = min(max(descent, min(own, 0.2 / gap)), 0.5 / gap)
    other = c - 0.3 * min(width, abs(c), gap)
    return [_tame(form, x, c, parabola, min(width, gap), bend), _tame(form, x, other, hyperbola, gap, bend)]


def _tame(form, x, c, family, width, bend):
    """Return a contour (path of integration) on which the integrand is at most exp(5) times as large as at c.

    The contour is a triple (c, point, end): it crosses the real axis at c, `point` maps u to (s, ds/du), and the
    integrand is negligible for |u| beyond `end`. The integrand is that of a tail or a density at x of the chi-square
    sum `form`. `family` is the function `parabola` or `hyperbola`, with the arguments c, `width` and `bend`. `bend` is
    divided by 4 until the integrand is small enough; after eight attempts an ArithmeticError is raised.
    """
    for _ in range(8):
        point = family(c, width, bend)
        end, growth = reach(form, x, c, point)
        if growth < 5:
            return c, point, end
        bend /= 4
    raise ArithmeticError("the integrand grows along the contour")


def reach(form, x, c, point):
    """Return (end, growth): where the integrand on a contour becomes negligible, and how much it grows before.

    The contour (path of integration) has the points s and the real parameter u: `point` maps u to (s, ds/du), with s =
    c at u = 0. The integrand is exp(K(s) - s x) ds/du, where K is the cumulant function of the chi-square sum `form`.
    For u beyond `end` the integrand is smaller than exp(-REACH) times its maximum. `growth` is the logarithm of the
    ratio of this maximum to the integrand's absolute value at u = 0.
    """
    u_max = 1.0
    while True:
        u = np.linspace(0, u_max, 401)
        size = _log_size(form, x, c, point, u)
        alive = np.flatnonzero(size > size.max() - REACH)[-1]
        if 100 < alive < 400:
            return float(u[alive] * 1.02), size.max() - size[0]
        u_max *= 2 if alive == 400 else 0.3


def _log_size(form, x, c, point, u):
    """Return log |exp(K(s) - s x) ds/du| - (K(c) - c x), the size of an integrand, for the points s of a contour.

    K is the cumulant function of the chi-square sum `form`. The contour (path of integration) crosses the real axis at
    c, and the function `point` maps the values in the array u to (s, ds/du).
    """
    w, k, a = (column[:, None] for column in form.double)
    total = np.empty(len(u))
    for part in np.array_split(np.arange(len(u)), max(1, w.size * len(u) // 10**6)):
        s, slope = point(u[part])
        ratio = w * (s - c) / (1 - 2 * w * c)
        log = -k / 2 * np.log(np.abs(1 - 2 * ratio)) + a * (ratio / ((1 - 2 * ratio) * (1 - 2 * w * c))).real
        total[part] = log.sum(0) - x * (s - c).real + np.log(np.abs(slope))
    return total


def integrate(form, x, upper, contour):
    """Return (log tail, log density) at x of the chi-square sum `form`, by integrals along one contour.

    The contour (path of integration) is one of the results of `contours`. The tail is the upper one if `upper` is True.
    x is in units of the largest weight.
    """
    c, point, end = contour
    base = log_mgf(form, mpc(c)).real - mpf(c) * x

    def integrand(u):
        s, slope = point(u)
        value = mp.exp(log_mgf(form, s) - s * x - base) * slope
        return np.array([(value / s).imag, value.imag], dtype=object)

    tail, density = _trapezoid(integrand, mpf(end)) / mp.pi
    return base + mp.log(tail if upper else -tail), base + mp.log(density)


def _trapezoid(function, end, first=24):
    """Return the integral of an even function over [0, end] by the trapezoid rule, which begins with `first` steps.

    The step is halved until the relative change of the result is smaller than the constant SETTLED.
    """
    step = end / first
    total = function(mpf(0)) / 2 + sum(function(j * step) for j in range(1, first + 1))
    for _ in range(8):
        before = total * step
        total = total + sum(function((j + mpf(0.5)) * step) for j in range(first))
        step, first = step / 2, 2 * first
        if all(abs(total * step - before) < SETTLED * abs(before)):
            return total * step
    raise ArithmeticError("the trapezoid rule did not settle")


def side(form, x):
    """Return True if x is above the mean of the chi-square sum Q that `form` describes.

    If x is above the mean, the upper tail is integrated, and otherwise the lower one.
    """
    w, k, a = form.double
    return bool(float(mpf(x) / form.scale) > np.sum(w * (k + a)))


def log_tail(form, x, upper):
    """Return (log tail, log density) at x of the chi-square sum `form`; the tail is the upper one if `upper` is True.

    Both are computed by integrals along two contours (paths of integration). Raise an ArithmeticError if the results of
    the two contours disagree.
    """
    x = mpf(x) / form.scale
    with np.errstate(**DOUBLE_SETTINGS):
        pair = contours(form, float(x), upper)
    one, two = (integrate(form, x, upper, contour) for contour in pair)
    if max(abs(a - b) for a, b in zip(one, two, strict=True)) > AGREE:
        raise ArithmeticError(f"contours differ: {one} {two}")
    return one[0], one[1] - mp.log(form.scale)


def log_values(form, x):
    """Return the logarithms of upper tail, lower tail and density at x of the chi-square sum `form`.

    One tail is integrated, the upper one if x is above the mean of the sum; the other tail is 1 minus this one.
    """
    upper = side(form, x)
    small, density = log_tail(form, x, upper)
    large = mp.log1p(-mp.exp(small))
    return (small, large, density) if upper else (large, small, density)


def isf(form, log_p, digits=25):
    """Return the number x whose upper tail has the logarithm log_p, to `digits` digits, by Newton's method.

    The tail is that of the chi-square sum `form`. Only the last step computes the tail by integrals along two contours
    (paths of integration), whose results must agree; the other steps take one.
    """
    x = mpf(rough_quantile(form, float(log_p), True))
    for _ in range(20):
        with np.errstate(**DOUBLE_SETTINGS):
            pair = contours(form, float(x / form.scale), True)
        tail, density = integrate(form, x / form.scale, True, pair[0])
        step = (tail - log_p) * mp.exp(tail - density) * form.scale
        x += step
        if abs(step) < mpf(10) ** (-digits / 2 - 2) * x:
            tail, density = log_tail(form, x, True)
            return x + (tail - log_p) * mp.exp(tail - density)
    raise ArithmeticError("Newton's method did not settle")
