"""Write l2.json: the privacy curve of l2 noise, and its inverse, to 25 digits.

The noise has a density proportional to exp(-|x| / s) in d dimensions, and two neighbors differ by a vector of length 1.
The curve is the delta for each epsilon. It is computed in two ways. The first is the closed form of the privacy loss
that `egm._l2` explains, with 60 digits. The second does not use this closed form, and serves as a check for a few
settings with small d. It computes delta = P[loss > epsilon] - exp(epsilon) P'[loss > epsilon], where P and P' are the
laws of the release for the two neighbors (Joseph, Kulesza and Yu 2025). Each probability is an integral over the norm r
of the noise: the density of r, times the part of the sphere of radius r on which the loss is above epsilon.
"""

from itertools import product

import numpy as np
from mpmath import mp, mpf
from store import write

from egm import _l2

EPSILONS = (1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0)
DELTAS = (1e-100, 1e-30, 1e-12, 1e-6, 1e-3, 0.5)
DIMENSIONS = (1, 2, 3, 10, 100, 1000)
HIGH = ((1.0, 1e-6, 10**5), (0.1, 1e-12, 10**4))
SPHERES = ((1.0, 0.5, 2), (1.0, 0.9, 3), (0.1, 2.0, 5), (3.0, 0.2, 10), (1e-3, 1.0, 4), (10.0, 0.09, 7), (1.0, 0.7, 30))
DIGITS = 60


def bessel_ratio(d, z):
    """Return K_{d/2}(z) / K_{d/2 - 1}(z) for the modified Bessel functions K, by recurrence to higher orders.

    In this direction the recurrence is numerically stable.
    """
    order, ratio = (mpf(0), mp.besselk(1, z) / mp.besselk(0, z)) if d % 2 == 0 else (mpf(1) / 2, 1 + 1 / z)
    if d == 1:
        return mpf(1)
    while order < mpf(d) / 2 - 1:
        order += 1
        ratio = 2 * order / z + 1 / ratio
    return ratio


def integral(logarithm, end):
    """Return (most, integral of exp(logarithm(t) - most) over t from 0 to `end`), where most is max logarithm(t).

    The function `logarithm` must have only one local maximum. The integral leaves out all t for which logarithm(t) is
    more than 160 below the maximum, because they contribute nothing that matters.
    """
    low, high = mpf(0), end
    for _ in range(400):  # golden section for the top of the hump
        one, other = high - (high - low) * mpf("0.618"), low + (high - low) * mpf("0.618")
        low, high = (low, other) if logarithm(one) > logarithm(other) else (one, high)
        if high - low < mpf(10) ** -12 * high:
            break
    top = (low + high) / 2
    most = logarithm(top)
    ends = []
    for far in (mpf(0), end):
        inner, outer = top, far
        for _ in range(60):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if logarithm(middle) > most - 160 else (inner, middle)
        ends.append(outer)
    pieces = mp.linspace(ends[0], top, 9)[:-1] + mp.linspace(top, ends[1], 9)
    return most, mp.quad(lambda t: mp.exp(logarithm(t) - most), pieces, method="gauss-legendre")


def log_delta(epsilon, excess, d):
    """Return the logarithm of delta at `epsilon` for l2 noise in `d` dimensions, by the closed form in `egm._l2`.

    `excess` is the largest privacy loss, 1 / s for noise of scale s, minus `epsilon`. The closed form integrates over
    an angle, whose cosine is the privacy loss of a release divided by the largest loss.
    """
    if d == 1:
        return mp.log(-mp.expm1(-excess / 2))
    z = (epsilon + excess) / 2
    ratio = (d - 1) / z * bessel_ratio(d, z)

    def density(angle):
        """Return the logarithm of the probability density at `angle`, up to a constant.

        The density is that of the angle whose cosine is the privacy loss divided by the largest privacy loss.
        """
        sine = mp.sin(angle)
        return (d - 2) * mp.log(sine) + z * mp.cos(angle) + mp.log(ratio + sine**2) if sine > 0 else mpf("-1e30")

    cut = 2 * mp.asin(mp.sqrt(excess / (2 * (epsilon + excess))))

    def term(distance):
        """Return the logarithm of the integrand of delta at the angle that is `distance` below the angle `cut`.

        The cosine of an angle is the privacy loss divided by the largest privacy loss, and at `cut` the loss is
        epsilon. The integrand is the density of the angle times 1 - exp(epsilon - loss).
        """
        above = 2 * mp.sin(distance / 2) * mp.sin(cut - distance / 2)
        return density(cut - distance) + mp.log(-mp.expm1(-2 * z * above)) if above > 0 else mpf("-1e30")

    (one, part), (other, whole) = integral(term, cut), integral(density, mp.pi)
    return one - other + mp.log(part / whole)


def by_spheres(epsilon, s, d):
    """Return delta at `epsilon` for l2 noise of scale `s` in `d` dimensions, computed by integrals over spheres.

    The closed form of the privacy loss is not used. delta is P[loss > epsilon] - exp(epsilon) P'[loss > epsilon], where
    P and P' are the laws of the release for two neighbors at distance 1. Each probability is an integral over the norm
    of the noise, that is, over the radii of spheres around the exact result of a neighbor.
    """
    c = epsilon * s

    def cap(cosine):
        """Return the fraction of a sphere in d dimensions where the angle to an axis has a cosine below `cosine`."""
        half = mp.betainc((mpf(d) - 1) / 2, mpf(1) / 2, 0, 1 - cosine**2, regularized=True) / 2
        return 1 - half if cosine > 0 else half

    def radius(r):
        """Return the density at r of the norm of l2 noise with scale s in d dimensions."""
        return r ** (d - 1) * mp.exp(-r / s) / (mp.gamma(d) * s**d)

    def outside(start, cosine):
        """Return the probability that noise has a norm r > `start` and an angle to an axis with a cosine < cosine(r).

        The axis is fixed, and the argument `cosine` is a function of the norm r.
        """
        ends = [start, start + s / 4, *(start + k * s for k in (1, 4, 10, 20, 40, 80, 160, 320))]
        return mp.quad(lambda r: radius(r) * cap(cosine(r)), ends)

    near = mp.gammainc(d, 0, (1 - c) / 2 / s, regularized=True)
    one = near + outside((1 - c) / 2, lambda r: (1 - c * c) / (2 * r) - c)
    return one - mp.exp(epsilon) * outside((1 + c) / 2, lambda r: -(1 - c * c) / (2 * r) - c)


def noise_scale(epsilon, delta, d):
    """Return the least scale s of l2 noise that is (`epsilon`, `delta`)-private for sensitivity 1 in `d` dimensions."""
    start = mpf(float(_l2.log_excess(*map(np.asarray, (float(epsilon), float(mp.log(delta)), float(d))))))
    ends = (start, start + mpf(10) ** -6)
    u = mp.findroot(lambda u: log_delta(epsilon, mp.exp(u), d) - mp.log(delta), ends, tol=mpf(10) ** -70)
    return 1 / (epsilon + mp.exp(u))


def main():
    """Compute points of the privacy curve and smallest noise scales, and write both tables to l2.json.

    Raise an ArithmeticError if a point of the curve differs from the result of `by_spheres`.
    """
    mp.dps = DIGITS
    curve = []
    for epsilon, s, d in SPHERES:
        value = log_delta(mpf(epsilon), 1 / mpf(s) - mpf(epsilon), d)
        with mp.workdps(40):
            if abs(mp.log(by_spheres(mpf(epsilon), mpf(s), d)) - value) > mpf(10) ** -22 * max(1, abs(value)):
                raise ArithmeticError(f"the spheres differ at {epsilon}, {s}, {d}")
        curve.append({"epsilon": epsilon, "noise_scale": s, "d": d, "log_delta": mp.nstr(value, 25)})
    scales = [
        {"epsilon": e, "delta": p, "d": d, "noise_scale": mp.nstr(noise_scale(mpf(e), mpf(p), d), 25)}
        for e, p, d in (*product(EPSILONS, DELTAS, DIMENSIONS), *HIGH)
    ]
    write("l2.json", {"curve": curve, "scales": scales})


if __name__ == "__main__":
    main()
