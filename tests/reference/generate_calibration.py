"""Write calibration.json: the privacy curve of the Gaussian mechanism to 25 digits, and its inverse to 30.

The noise multiplier z is the standard deviation of the noise over the sensitivity. The curve is delta(eps, z) =
Phi(1/(2z) - eps z) - exp(eps) Phi(-1/(2z) - eps z), where Phi is the normal distribution function and phi its density
(Balle and Wang 2018). Every number is computed twice, the second time with twice the digits. The curve is also checked
against an integral in which nothing cancels. This integral follows from the derivative of delta with respect to z,
which is -phi(1/(2z) - eps z) / z**2:

    delta(eps, z) = int_0^{1/z} phi(u/2 - eps/u) du.
"""

from itertools import pairwise, product

from mpmath import mp, mpf
from store import write

EPSILONS = (1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 200.0)
DELTAS = (1e-300, 1e-200, 1e-100, 1e-50, 1e-30, 1e-20, 1e-12, 1e-9, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.5)
CURVE_EPSILONS = (0.0, 1e-8, 1e-3, 0.1, 1.0, 5.0, 30.0, 200.0)
CURVE_MULTIPLIERS = (0.02, 0.05, 0.3, 1.0, 4.0, 50.0, 1e4, 1e9)
WORKING = 220  # digits; log delta(0, 0.02) = -6e-138 needs 140 more than it keeps


def log_delta(eps, z):
    """Return the logarithm of the privacy curve delta(eps, z) of Gaussian noise, from its formula in closed form.

    z is the noise multiplier, the standard deviation of the noise over the sensitivity.
    """
    x, y = 1 / (2 * z) - eps * z, -1 / (2 * z) - eps * z
    return mp.log((mp.erfc(-x / mp.sqrt(2)) - mp.exp(eps) * mp.erfc(-y / mp.sqrt(2))) / 2)


def log_delta_integral(eps, z):
    """Return the logarithm of the privacy curve delta(eps, z) of Gaussian noise, by numerical integration.

    The integrand is phi(u/2 - eps/u) for u from 0 to 1/z, where phi is the normal density, and z is the noise
    multiplier.
    """
    end = 1 / z
    peak = min(end, mp.sqrt(2 * eps))

    def exponent(u):
        return (u / 2 - (eps / u if eps else 0)) ** 2 / 2

    def density(u):
        return mp.exp(base - exponent(u)) if u else mpf(not eps)

    base = exponent(peak) if peak else mpf(0)
    slope = abs(mp.diff(exponent, peak)) if 0 < peak == end else mpf(0)
    knots = _knots(peak, end, min(1 / slope if slope else mpf(1), mpf(1), end))
    pieces = [pair for pair in pairwise(knots) if max(map(density, pair)) > mpf(10) ** -70]
    return mp.log(mp.fsum(mp.quad(density, pair) for pair in pieces) / mp.sqrt(2 * mp.pi)) - base


def _knots(peak, end, width):
    """Return sorted points that divide [0, end], for an integral whose integrand has its maximum at `peak`.

    They are 0, `peak`, `end`, and on both sides of `peak` the points at the distances width/2, `width`, 2 width, 4
    width and so on. `width` is approximately the width of the maximum.
    """
    steps = [sign * width * mpf(2) ** k for sign in (-1, 1) for k in range(-1, 60)]
    return sorted({mpf(0), peak, end, *(peak + step for step in steps if 0 < peak + step < end)})


def multiplier(eps, delta):
    """Return the noise multiplier z at which the privacy curve delta(eps, z) of Gaussian noise has the value `delta`.

    It is found by bisection in log z and then by Newton's method on log delta.
    """
    t = mp.sqrt(-2 * mp.log(delta))
    low, high = mp.log(mpf(10) ** -4), mp.log(min(mpf(0.4) / delta, (t + mp.sqrt(t * t + 2 * eps)) / (2 * eps)))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(eps, mp.exp(middle)) > mp.log(delta) else (low, middle)
    z = mp.exp((low + high) / 2)
    for _ in range(12):
        value = log_delta(eps, z)
        slope = mp.exp(-((1 / (2 * z) - eps * z) ** 2) / 2 - value) / (mp.sqrt(2 * mp.pi) * z**2)
        z += (value - mp.log(delta)) / slope
    return z


def twice(function, first, second, digits):
    """Return function(first, second) as a decimal string with `digits` digits.

    Raise an ArithmeticError if a digit changes when the working precision is doubled.
    """
    found = []
    for dps in (WORKING, 2 * WORKING):
        with mp.workdps(dps):
            found.append(function(mpf(first), mpf(second)))
    if abs(found[0] - found[1]) > mpf(10) ** -(digits + 5) * abs(found[1]):
        raise ArithmeticError(f"{function.__name__}({first}, {second}) needs more digits")
    return mp.nstr(found[1], digits)


def curve_case(eps, z):
    """Return a point of the privacy curve as a dictionary for calibration.json.

    The point consists of epsilon, the noise multiplier z and log delta. log delta is computed by the formula of the
    curve, and checked by the integral of `log_delta_integral`. Raise an ArithmeticError if the two values differ.
    """
    text = twice(log_delta, eps, z, 25)
    with mp.workdps(60):
        value = log_delta_integral(mpf(eps), mpf(z))
        if abs(value - mpf(text)) > mpf(10) ** -24 * max(1, abs(value)):
            raise ArithmeticError(f"the integral differs at {eps}, {z}: {value} {text}")
    return {"epsilon": eps, "multiplier": z, "log_delta": text}


def main():
    """Compute points of the privacy curve and of its inverse, and write both tables to calibration.json."""
    inverse = [
        {"epsilon": eps, "delta": delta, "multiplier": twice(multiplier, eps, delta, 30)}
        for eps, delta in product(EPSILONS, DELTAS)
    ]
    curve = [curve_case(eps, z) for eps, z in product(CURVE_EPSILONS, CURVE_MULTIPLIERS)]
    write("calibration.json", {"multipliers": inverse, "curve": curve})


if __name__ == "__main__":
    main()
