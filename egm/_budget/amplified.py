r"""Compute what releases from Poisson samples cost; each person is in such a sample independently, with probability q.

A release that depends on a person only if this person is in the sample is more private than the same release from all
rows. This holds if neighbors differ by the addition or removal of one person, and if nobody learns who is in the
sample, nor how large it is. There are two kinds of statements:

- One release: if it is private for epsilon and delta without sampling, then it is private with sampling for
  :math:`\log(1 + q (e^\varepsilon - 1))` and :math:`q \delta` (Balle, Barthe and Gaboardi 2018, Theorem 8). This holds
  for every mechanism, also for discrete noise, and needs no other package.
- Many releases with Gaussian noise of multiplier z: two neighboring data sets are no easier to tell apart by a release
  than the laws :math:`(1 - q) N(0, z^2) + q N(1, z^2)` and :math:`N(0, z^2)` by a draw, and likewise for several
  releases together (Zhu, Dong and Wang 2022). The package dp-accounting computes the joint privacy loss of all releases
  from these two laws, for each order of the two. It has two ways: the distribution of the privacy loss on a grid,
  rounded so that delta is not underestimated (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022), and Rényi
  divergences of integer orders (Mironov, Talwar and Zhang 2019). Both ways give upper bounds, and the smaller bound is
  taken. The second way also counts mechanisms of which nothing but rho is known, and is the better one for a very small
  delta.

The first way computes with doubles, whose rounding errors could make the computed delta too small. So the epsilon is
computed for a delta that is smaller than the given one: bounds of two kinds of errors are subtracted. Let n be the
number of releases, and u = 2^-53.

- A probability at a grid point comes from the privacy curve :math:`\delta(\varepsilon)`, with a rounding error of about
  :math:`3 u |\delta'(\varepsilon)|`. Let the grid have the length W and points h apart. The sum of
  :math:`|\delta'|` over the points is at most W / h, because :math:`|\delta'|` is at most 1. For the privacy loss L,
  :math:`|\delta'(\varepsilon)|` is also at most :math:`P[L > \varepsilon]` and :math:`e^\varepsilon`, so that the sum
  is at most about :math:`(1 + E[\max(L, 0)]) / h \le (5 + z^{-2}) / (2 h)`. So n u / h times the smaller one of 4 W and
  :math:`8 + 2 z^{-2}` is subtracted.
- A fast Fourier transform of M numbers has a relative error of at most :math:`7 u \log_2 M` in the Euclidean norm
  (Higham 2002, Theorem 24.2), and the n-th power of the transform for one release gives the law of all n releases. So
  :math:`8 n u \log_2(M) \sqrt M` is subtracted, where M is twice the number of points of this law.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Steps", "amplified_epsilon", "composed_epsilon"]

_POINTS = 1 << 13  # least number of points of the grid for the privacy loss of one release
_FINEST = 2.0**-17  # least distance of two points: below, rounding errors add more than the grid saves
_FARTHEST = 500.0  # largest privacy loss of one release that is computed with a grid
_ORDERS = (
    *range(2, 33),
    *range(36, 65, 4),
    *range(80, 513, 16),
)  # of Rényi divergences: whole, for a sum of positive terms
_UP = 1 + 1e-12  # factor by which a computed bound is rounded up


class Steps(NamedTuple):
    """Describe several releases with equal Gaussian noise, each from a Poisson sample of its own.

    `mu_squared` is 1 / z**2 for the noise multiplier z of each release, `probability` the probability with which each
    person is in a sample (1 for all rows), and `number` the number of the releases.
    """

    mu_squared: float
    probability: float
    number: int


def amplified_epsilon(epsilon: float, probability: float) -> float:
    """Return the epsilon of a release from a Poisson sample: log(1 + q (exp(epsilon) - 1)), rounded up.

    `epsilon` is that of the same release from all rows, and `probability` is the sampling probability q. The result is
    at most `epsilon`.
    """
    if epsilon > 1:
        small = math.log(probability) + epsilon
        found = (
            small + math.log1p((1 - probability) * math.exp(-small))
            if small > 0
            else math.log1p(math.exp(small) - probability)
        )
    else:
        found = math.log1p(probability * math.expm1(epsilon))
    return min(found * _UP, epsilon)


@functools.lru_cache(maxsize=512)
def composed_epsilon(
    steps: tuple[Steps, ...], mu_squared: float, private: tuple[tuple[float, float], ...], rho: float, delta: float
) -> float:
    """Return an epsilon for which releases from Poisson samples and others are together (epsilon, `delta`)-private.

    The epsilon is computed in two ways, and the smaller one is returned. Both ways use `steps`, which holds a `Steps`
    for each series of equal releases from samples. For the other releases, the first way (the distribution of the
    privacy loss) uses `mu_squared`, the sum of 1 / z**2 over those with Gaussian noise of multiplier z, and `private`,
    a pair (epsilon, delta) for each of the rest. The second way (Rényi divergences) uses `rho`, the sum of their zCDP
    costs. A cost that is not known is given as infinite. All mechanisms must be fixed before the first release.
    """
    found = [_by_renyi(steps, rho, delta), _by_privacy_loss(steps, mu_squared, private, delta)]
    return min(found) * _UP


def _by_renyi(steps: Sequence[Steps], rho: float, delta: float) -> float:
    """Return the epsilon for which all releases are together (epsilon, `delta`)-private, from Rényi divergences.

    `steps` describes the releases from samples, and `rho` is the sum of the zCDP costs of the other releases. If `rho`
    is infinite, so is the result.
    """
    if rho == math.inf:
        return math.inf
    # The logarithms of binomial coefficients have errors up to 4e-12 at order 512. They count with the weight of the
    # terms that have a factor q, and the divergence of one release is the sum's logarithm over the order minus one.
    rounding = sum(one.number * (1e-14 + 4e-12 * one.probability) for one in steps)
    accountant = copy.deepcopy(_divergences(tuple(steps)))
    accountant.compose(_dp_accounting().ZCDpEvent(rho=rho * _UP, xi=rounding))
    return float(accountant.get_epsilon(delta))


@functools.lru_cache(maxsize=16)
def _divergences(steps: tuple[Steps, ...]) -> Any:
    """Return an `RdpAccountant` of dp-accounting with the Rényi divergences of the releases that `steps` describes."""
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant(_ORDERS)
    for one in steps:
        event = dp.PoissonSampledDpEvent(one.probability, dp.GaussianDpEvent(_noise_multiplier(one.mu_squared)))
        accountant.compose(dp.SelfComposedDpEvent(event, one.number))
    return accountant


def _by_privacy_loss(
    steps: Sequence[Steps], mu_squared: float, private: Sequence[tuple[float, float]], delta: float
) -> float:
    """Return the epsilon for which all releases are together (epsilon, `delta`)-private, from privacy losses on a grid.

    `steps` describes the releases from samples. Of the other releases, `mu_squared` is the sum of 1 / z**2 over those
    with Gaussian noise of the noise multiplier z, and `private` has a pair (epsilon, delta) for each of the rest. The
    result is infinite if the privacy loss may be too large for the grid, or if the rounding errors of delta, which are
    subtracted from `delta`, might reach half of it.
    """
    gaussian = [Steps(mu_squared, 1.0, 1)] * (0 < mu_squared < math.inf)
    width = max(map(_width, [*steps, *gaussian]))
    if mu_squared == math.inf or width > _FARTHEST or any(epsilon > _FARTHEST for epsilon, _ in private):
        return math.inf
    pld = _dp_accounting().pld.privacy_loss_distribution
    interval = max(_FINEST, 2.0 ** math.ceil(math.log2(width / _POINTS)))
    total = _composed(tuple(steps), interval)
    for one in gaussian:
        total = total.compose(_distribution(one, interval))
    for epsilon, own in private:
        total = total.compose(pld.from_privacy_parameters(_parameters(epsilon, own), interval))
    points = 2 * max(total._pmf_remove.size, total._pmf_add.size)
    transforms = 8 * math.log2(points) * math.sqrt(points)
    sizes = [(one.number, min(8 + 2 * one.mu_squared, 4 * _width(one))) for one in (*steps, *gaussian)]
    sizes += [(1, 8.0)] * len(private)
    rounding = 2.0**-53 * sum(number * (size / interval + transforms) for number, size in sizes)
    return float(total.get_epsilon_for_delta(delta - rounding)) if rounding < delta / 2 else math.inf


@functools.lru_cache(maxsize=16)
def _composed(steps: tuple[Steps, ...], interval: float) -> Any:
    """Return the distribution of the joint privacy loss of all releases that `steps` describes.

    The distribution is an object of dp-accounting, on a grid of points `interval` apart.
    """
    parts = [_distribution(one, interval).self_compose(one.number) for one in steps]
    return functools.reduce(lambda total, part: total.compose(part), parts)


def _distribution(one: Steps, interval: float) -> Any:
    """Return the distribution of the privacy loss of a single release; `one` describes a series of such releases.

    The distribution is an object of dp-accounting, on a grid of points `interval` apart.
    """
    pld = _dp_accounting().pld.privacy_loss_distribution
    return pld.from_gaussian_mechanism(
        _noise_multiplier(one.mu_squared), value_discretization_interval=interval, sampling_prob=one.probability
    )


def _parameters(epsilon: float, delta: float) -> Any:
    """Return the pair (`epsilon`, `delta`) of a single release as an object of dp-accounting."""
    return _dp_accounting().pld.common.DifferentialPrivacyParameters(epsilon, delta)


def _width(one: Steps) -> float:
    """Return the approximate length that a grid must have to hold the privacy loss of a single release.

    The release is one of those that `one` describes. Its privacy loss is outside an interval of this length with a
    probability below exp(-50).
    """
    largest = one.mu_squared / 2 + 10 * math.sqrt(one.mu_squared)
    if one.probability == 1:
        return 2 * largest
    return amplified_epsilon(largest, one.probability) + min(largest, -math.log1p(-one.probability))


def _noise_multiplier(mu_squared: float) -> float:
    """Return the noise multiplier 1 / sqrt(`mu_squared`), made a little smaller so that it is never too large.

    The relative decrease is 1e-15.
    """
    return (1 - 1e-15) / math.sqrt(mu_squared)


def _dp_accounting() -> Any:
    """Return the package `dp_accounting`, or raise an ImportError that says how to install this package."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise ImportError(
            "dp-accounting is needed to add up releases from samples: pip install "
            "'elliptical-gaussian-mechanism[budget]'"
        ) from error
    return dp_accounting
