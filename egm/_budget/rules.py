"""Compute the cost of a release, and add up costs to a total by the rules of a budget.

`charge_of` and `quantile_charge` return the cost of a release as a `Charge`, in every unit that a rule may need: rho,
mu squared, and (epsilon, delta). `Terms` holds the total of a budget and its rule: it adds up costs, and says whether
one more release fits. Nothing here stores a cost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.special import erfinv, log_expit, ndtri, ndtri_exp

from egm import _curve
from egm._budget.amplified import Steps, amplified_epsilon, composed_epsilon
from egm._l2 import log_delta_at
from egm._lazy import cached_property
from egm._rows.lattice import EXCESS, delta_of
from egm._types import ArrayLike, Neighbors
from egm._validate import between, count, drawn_epsilon, finite, positive, probability, scalar
from egm.adaptive import AdaptiveDataMechanism
from egm.calibration import analytic_noise_multiplier, gaussian_epsilon, zcdp_epsilon
from egm.mechanisms import (
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    GroupedDataMechanism,
    LaplaceMechanism,
)
from egm.quantiles import POINTS

__all__ = [
    "RULES",
    "BudgetExceeded",
    "Charge",
    "DataMechanism",
    "Loss",
    "Mechanism",
    "Rule",
    "Spent",
    "Terms",
    "charge_of",
    "checked",
    "complete",
    "labelled",
    "quantile_charge",
    "require_room",
    "require_rows",
    "sampled",
    "sampling",
    "steps_charge",
]

RULES = "gaussian", "zcdp", "basic", "planned"

_STEPS = "gaussian_steps"  # what a `Charge` for steps has in place of the name of a mechanism
_RELATIONS = "replace_one", "add_remove"
_L2_SHARE = 2.0**-10  # share of the total delta for l2 noise: at (1, 1e-6) enough for 144 releases
_ENTRIES, _CHARGES = 1 << 24, 1 << 20  # largest numbers of coordinates and of releases for which rounding is covered
_GRID, _MU_STEP = 2048, 1 + 2.0**-12  # points of the grid of epsilons and factor from one mu to the next, for l2 noise
_UP = 1 + 1e-12  # factor by which a computed bound is rounded up
_RAREST = 1e-12  # least sampling probability: a secure draw rounds it down by less than 1e-7 of it

Rule: TypeAlias = Literal["gaussian", "zcdp", "basic", "planned"]
Mechanism: TypeAlias = LaplaceMechanism | GaussianMechanism | EllipticalGaussianMechanism
DataMechanism: TypeAlias = GaussianDataMechanism | GroupedDataMechanism | AdaptiveDataMechanism
Spent: TypeAlias = Any  # a float if the total is rho, a Loss if it is (epsilon, delta)
Cost: TypeAlias = float | Fraction
Charges: TypeAlias = "Sequence[Charge]"

_gaussian_epsilon = functools.lru_cache(maxsize=256)(gaussian_epsilon)
_zcdp_epsilon = functools.lru_cache(maxsize=256)(zcdp_epsilon)


class Loss(NamedTuple):
    """Privacy loss (epsilon, delta) of one release or of several together.

    Parameters
    ----------
    epsilon : float
        Epsilon, >= 0.
    delta : float
        Delta, in [0, 1).

    Examples
    --------
    >>> from egm.budget import Budget
    >>> loss = Budget(epsilon=1, delta=1e-6).left
    >>> loss.epsilon, loss.delta
    (1.0, 1e-06)
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Charge:
    """Cost of one release, or of several together, in every unit that a rule may add up; infinite if it is not known.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism.
    rho : float
        Cost in zero-concentrated differential privacy (zCDP).
    mu_squared : float
        Square of the parameter mu of Gaussian differential privacy.
    epsilon : float
        Cost in (epsilon, delta)-differential privacy, together with `delta`.
    delta : float
        Delta that goes with `epsilon`.
    label : str
        Text by which the user tells the release from others; by default empty.
    time : str
        Time at which the charge was recorded, in UTC, such as "2025-03-31T09:30:00Z"; empty if it
        was not recorded. Charges that differ only in their time are equal.
    sampling_probability : float, optional
        Probability with which each person is in the sample that the release depends on; None for a
        release from all rows. If there is a sample, `epsilon` and `delta` are those of the release
        from it, while `rho` and `mu_squared`, which sampling hardly lowers, are those of the same
        release from all rows.
    count : int, default 1
        Number of releases of which this is the cost; it is more than 1 only for
        `Budget.charge_steps`.

    See Also
    --------
    Budget.charge : Records a charge, and returns it.
    Budget.charge_steps : Records one charge for many releases from samples.

    Examples
    --------
    >>> from egm import LaplaceMechanism
    >>> from egm.budget import Budget
    >>> charge = Budget(epsilon=1).charge(LaplaceMechanism(sensitivity=1.0, epsilon=0.25), label="visits in March")
    >>> charge.mechanism, charge.epsilon, charge.delta, charge.rho, charge.label
    ('LaplaceMechanism', 0.25, 0.0, 0.03125, 'visits in March')
    """

    mechanism: str
    rho: float
    mu_squared: float
    epsilon: float
    delta: float
    label: str = ""
    time: str = field(default="", compare=False)
    sampling_probability: float | None = None
    count: int = 1


class BudgetExceeded(ValueError):
    """Error for a release that is refused because its cost does not fit into a budget; no data were read.

    Parameters
    ----------
    message : str
        Text of the error.
    asked : Charge
        Cost of the release that was refused.
    left : float or Loss
        Value of `Budget.left` when the release was refused.

    Attributes
    ----------
    asked : Charge
        Cost of the release that was refused.
    left : float or Loss
        Value of `Budget.left` when the release was refused.

    Examples
    --------
    >>> from egm import LaplaceMechanism
    >>> from egm.budget import Budget, BudgetExceeded
    >>> budget = Budget(epsilon=1)
    >>> try:
    ...     budget.charge(LaplaceMechanism(sensitivity=1.0, epsilon=1.5))
    ... except BudgetExceeded as refusal:
    ...     print(refusal.asked.epsilon, refusal.left)
    1.5 Loss(epsilon=1.0, delta=0.0)
    """

    def __init__(self, message: str, asked: Charge, left: Spent) -> None:
        super().__init__(message)
        self.asked, self.left = asked, left

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.asked, self.left)


# Costs ----------------------------------------------------------------------------------------------------------------


def charge_of(mechanism: Any, neighbors: Neighbors) -> Charge:
    """Return the cost of one release by `mechanism`, as a `Charge`.

    `neighbors` is the neighbor relation of the budget. Raise ValueError if the mechanism has another neighbor relation,
    or 2**24 coordinates or more, and TypeError for an object that is not one of egm's mechanisms.
    """
    kind, own = type(mechanism), neighbors
    if kind is LaplaceMechanism:
        epsilon = mechanism.epsilon
        return Charge(kind.__name__, _up(Fraction(epsilon) ** 2 / 2), _pure_mu_squared(epsilon), epsilon, 0.0)
    if kind is AdaptiveDataMechanism:
        own, charge = mechanism.neighbors, Charge(kind.__name__, mechanism.rho, math.inf, math.inf, 0.0)
    elif kind in (GaussianMechanism, EllipticalGaussianMechanism, GaussianDataMechanism, GroupedDataMechanism):
        own = getattr(mechanism, "neighbors", neighbors)
        if mechanism.noise_law == "gaussian":
            mu_squared = _up(1 / Fraction(mechanism.noise_multiplier) ** 2)
            rho = mu_squared / 2
        else:
            mu_squared, rho = l2_mu_squared(mechanism.noise_multiplier, mechanism.noise_size), math.inf
        charge = Charge(kind.__name__, rho, mu_squared, mechanism.epsilon, mechanism.delta)
        entries = getattr(mechanism, "noise_size", np.size(mechanism.noise_std))
        if entries >= _ENTRIES:
            raise ValueError(f"mechanism must have less than {_ENTRIES} coordinates, got {entries}")
    else:
        raise TypeError(f"mechanism must be one of egm.mechanisms or an AdaptiveDataMechanism, got {mechanism!r}")
    if own != neighbors:
        raise ValueError(f'neighbors must be "{neighbors}" for this budget, and are "{own}" for this {kind.__name__}')
    return charge


def sampling(probability: float | None, neighbors: Neighbors) -> float | None:
    """Check a sampling probability, and return it as a float, or None if it is None (a release from all rows).

    `neighbors` is the neighbor relation of the budget. For "replace_one", raise ValueError for a probability below 1.
    """
    if probability is None:
        return None
    number = scalar(functools.partial(between, _RAREST, 1.0), sampling_probability=probability)
    if neighbors != "add_remove" and number < 1:
        raise ValueError(
            f'neighbors must be "add_remove" for releases from samples, and are {neighbors!r} for this budget: what '
            f"sampling saves is proved for the addition or removal of one person"
        )
    return number


def sampled(charge: Charge, probability: float | None) -> Charge:
    """Return the cost of a release from a Poisson sample, where `charge` is the cost of the same release from all rows.

    If `probability`, the sampling probability, is 1 or None, the two costs are equal. Otherwise raise ValueError if the
    epsilon of `charge` is infinite, which means that only a rho of the mechanism is known.
    """
    if probability is None or probability == 1:
        return dataclasses.replace(charge, sampling_probability=probability)
    if charge.epsilon == math.inf:
        raise ValueError(f"sampling_probability must be left out for {charge.mechanism}, which has no epsilon")
    return dataclasses.replace(
        charge,
        epsilon=amplified_epsilon(charge.epsilon, probability),
        delta=_up(Fraction(probability) * Fraction(charge.delta)),
        sampling_probability=probability,
    )


def require_rows(mechanism: Any) -> None:
    """Raise TypeError unless `mechanism` adds up rows and has an epsilon, so that it can be used with a Poisson sample.

    An AdaptiveDataMechanism, for example, has only a rho.
    """
    if not isinstance(mechanism, GaussianDataMechanism | GroupedDataMechanism):
        raise TypeError(
            f"sampling_probability goes with a mechanism that sums rows and has an epsilon, not with "
            f"{type(mechanism).__name__}: draw the sample yourself, and use charge or charge_steps"
        )


def steps_charge(
    noise_multiplier: float,
    sampling_probability: float,
    steps: int,
    delta: float | None,
    total: float | None,
    neighbors: Neighbors,
) -> Charge:
    """Check the arguments of `Budget.charge_steps`, and return the cost of all steps together as a `Charge`.

    A step is a release from a Poisson sample with Gaussian noise. `steps` is the number of steps, `noise_multiplier`
    the standard deviation of the noise over the sensitivity, and `sampling_probability` the probability with which a
    person is in a sample. `total` is the delta of the budget, or None if the total is a rho. `neighbors` is the
    neighbor relation of the budget. Raise ValueError or TypeError for a wrong argument, and ImportError if
    dp-accounting is missing.
    """
    multiplier = scalar(functools.partial(between, 1e-3, 1e6), noise_multiplier=noise_multiplier)
    share, number = sampling(sampling_probability, neighbors), count(count=steps)
    if share is None:
        raise TypeError("sampling_probability must be a number, got None")
    if number > _CHARGES:
        raise ValueError(f"count must be at most {_CHARGES}, got {number}")
    own = total if delta is None else scalar(probability, delta=delta)
    if own == 0:
        raise ValueError("delta must be > 0 for steps with Gaussian noise, and is 0 for this budget")
    square = 1 / Fraction(multiplier) ** 2
    all_of_them = _up(number * square)
    if own is None:
        epsilon, own = math.inf, 0.0
    else:
        epsilon = float(gaussian_epsilon(own, (1 - 1e-15) / math.sqrt(all_of_them)))
        if share < 1:
            epsilon = min(epsilon, composed_epsilon((Steps(_up(square), share, number),), 0.0, (), 0.0, own))
    return Charge(_STEPS, _up(number * square / 2), all_of_them, epsilon, own, "", "", share, number)


def labelled(charge: Charge, label: str) -> Charge:
    """Return `charge`, the cost of a release, with the text `label`.

    Raise TypeError if `label` is not a string, and ValueError if it contains a surrogate, which stands for a byte that
    could not be decoded.
    """
    if not isinstance(label, str):
        raise TypeError(f"label must be a string, got {label!r}")
    if any("\ud800" <= character <= "\udfff" for character in label):  # of bytes that could not be decoded
        raise ValueError(f"label must have Unicode characters only, got {label!r}")
    return dataclasses.replace(charge, label=label)


def quantile_charge(
    shape: tuple[int, ...], q: float, low: float, high: float, epsilon: float, step: float, neighbors: Neighbors
) -> Charge:
    """Check the arguments of a private quantile, and return the cost of the quantile as a `Charge`.

    `shape` is the shape of the values: (n,) for one column, or (n, k) for k columns, for which the cost is that of all
    k quantiles together. The quantile has the level `q`, and is drawn from points between `low` and `high` that are
    `step` apart. `epsilon` is the privacy parameter for one column, and `neighbors` the neighbor relation of the
    budget. Raise ValueError or TypeError for a wrong argument.
    """
    if len(shape) not in (1, 2) or 0 in shape:
        raise ValueError(f"values must have shape (n,) or (n, k), n >= 1, got {shape}")
    scalar(probability, q=q)
    low, high, step = scalar(finite, low=low), scalar(finite, high=high), scalar(positive, step=step)
    if not low < high or (high - low) / step > POINTS:
        raise ValueError(f"high must be above low, by at most {POINTS:g} steps, got {low}, {high} and step = {step}")
    if neighbors != "replace_one":
        raise ValueError(f'neighbors must be "replace_one" for a quantile, and are {neighbors!r} for this budget')
    epsilon, columns = drawn_epsilon(epsilon), math.prod(shape[1:])
    rho, mu_squared = columns * Fraction(epsilon) ** 2 / 8, columns * Fraction(_pure_mu_squared(epsilon))
    return Charge("secure_quantile", _up(rho), _up(mu_squared), _up(columns * Fraction(epsilon)), 0.0)


def require_room(X: ArrayLike) -> None:
    """Raise a ValueError if the array or list `X` has 2**24 entries or more.

    A budget keeps a part of delta for the addition to delta that discrete noise causes. This part is enough only for
    fewer entries.
    """
    entries = 0
    with contextlib.suppress(ValueError):  # rows of different lengths, which a release refuses
        entries = math.prod(np.shape(X))  # reads no entry of an array
    if entries >= _ENTRIES:
        raise ValueError(f"X must have less than {_ENTRIES} entries, got {entries}")


def _pure_mu_squared(epsilon: float) -> float:
    """Return mu**2 for the parameter mu of Gaussian privacy that every `epsilon`-private mechanism has, rounded up.

    To be `epsilon`-private is to be (epsilon, 0)-private. mu is 2 Phi^-1(e^epsilon / (1 + e^epsilon)) with the normal
    distribution function Phi.
    """
    mu = math.sqrt(8) * erfinv(math.tanh(epsilon / 2)) if epsilon < 1 else -2 * ndtri_exp(log_expit(-epsilon))
    with np.errstate(over="ignore"):
        return float(np.float64(mu) ** 2 * _UP)


@functools.lru_cache(maxsize=64)
def l2_mu_squared(noise_multiplier: float, d: int) -> float:
    """Return a mu^2 for which l2 noise in `d` dimensions has Gaussian differential privacy with the parameter mu.

    The density of l2 noise at x is proportional to exp(-|x| / s) for a scale s. Each coordinate has the standard
    deviation `noise_multiplier` times the sensitivity. mu is increased until the privacy curve of l2 noise, delta as a
    function of epsilon, is nowhere above the curve of Gaussian noise with this mu. Both curves fall. So in each
    interval of a grid of epsilons, the delta of l2 noise at the left end is compared with that of Gaussian noise at the
    right end. The result is infinite if the delta of l2 noise at epsilon = 0 is too near to 1 to compute mu with
    doubles.
    """
    largest = math.sqrt(d + 1) / noise_multiplier
    grid = largest * (np.arange(1, _GRID + 1) / _GRID) ** 2
    left = np.append(0.0, grid[:-1])
    losses = log_delta_at(left, largest - left, np.full(_GRID, float(d)))
    if losses[0] > -1e-9:  # the total variation distance is nearly 1, and no mu is found with doubles
        return math.inf
    mu = 2 * ndtri((1 + math.exp(losses[0])) / 2) * _UP  # at epsilon = 0 delta is the total variation distance
    while np.any(_curve.log_delta_at(grid, 1 / mu) < losses + 1e-11):
        mu *= _MU_STEP
    return _up(Fraction(mu) ** 2)


def _sum(values: Iterable[Any]) -> Cost:
    """Return the exact sum of `values`, numbers >= 0, as a Fraction, or inf if one of the numbers is infinite."""
    values = list(values)
    if math.inf in values:
        return math.inf
    ratios = [value.as_integer_ratio() for value in values]
    common = math.lcm(*(denominator for _, denominator in ratios))  # a sum of integers is faster than one of Fractions
    return Fraction(sum(numerator * (common // denominator) for numerator, denominator in ratios), common)


def _up(number: Cost) -> float:
    """Return the smallest double that is at least `number`."""
    try:
        nearest = float(number)
    except OverflowError:
        return math.inf
    return nearest if nearest >= number else math.nextafter(nearest, math.inf)


def _down(number: Cost) -> float:
    """Return the largest double that is at most `number`, or 0 if `number` is negative."""
    return -_up(-number) if number > 0 else 0.0


def _within(number: Cost, total: float, several: bool) -> bool:
    """Return whether the cost `number` is at most `total`, up to a rounding error if it is a sum of several costs.

    If `several` is true, `number` is such a sum, and may be as large as `total` times 1 + 2^-51. So ten charges of 0.1
    fit into 1.0.
    """
    return number <= (Fraction(total) * (1 + Fraction(1, 1 << 51)) if several else total)


# Rules ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """Hold the terms of a budget: its total, its relation between neighboring data sets, and its rule.

    The total is either `rho`, or `epsilon` and `delta`. `rule` says how costs are added up, and `neighbors` is the
    relation. `simulation` says whether the budget is for simulated releases.
    """

    rho: float | None
    epsilon: float | Any  # None if rho is given
    delta: float | Any
    neighbors: Neighbors
    rule: Rule | None
    simulation: bool = False

    def __str__(self) -> str:
        given = dataclasses.asdict(self).items()
        return ", ".join(f"{name}={value!r}" for name, value in given if value not in (None, False))

    def rule_for(self, charges: Charges) -> Rule | None:
        """Return the rule by which the costs of releases are added up to the total of a budget.

        The rule is `self.rule` or, if this is None, the one that suits the kind of the first release: "basic",
        "gaussian" or "zcdp". `charges` are the costs of the releases so far. The result is None if the total is a
        number rho of zero-concentrated differential privacy, because costs in rho are always added. It is also None if
        there is neither a rule nor a release.
        """
        if self.rho is not None or self.rule or not charges:
            return self.rule
        if self.delta == 0 or _is_pure(charges[0]) or _is_sampled(charges[0]):
            return "basic"
        return "gaussian" if charges[0].mu_squared < math.inf and self._reserve < self.delta / 2 else "zcdp"

    def grants(self, charges: Charges, asked: Charge) -> bool:
        """Return whether a release of the cost `asked` fits into the total of the budget.

        `charges` are the costs of the releases before it.
        """
        return len(charges) < _CHARGES and self._holds((*charges, asked))

    def refusal(self, charges: Charges, asked: Charge) -> BudgetExceeded:
        """Return the exception for a release whose cost `asked` does not fit into the total of the budget.

        `charges` are the costs of the releases before. The exception, a `BudgetExceeded`, holds `asked` and the largest
        cost that would fit.
        """
        left, together = self.left(charges), (*charges, asked)
        if len(charges) >= _CHARGES:
            return BudgetExceeded(f"a budget takes {_CHARGES} releases and no more", asked, left)
        rule, hint, has_l2 = self.rule_for(together), "", any(map(_is_l2, together))
        by_rho = self.rho is not None or rule == "zcdp"
        if by_rho and has_l2:
            hint = '; no rho is known for l2 noise; Gaussian noise (noise="gaussian", or --noise gaussian) has one'
        elif _is_sampled(asked) and (by_rho or rule == "gaussian"):
            hint = '; sampling lowers the cost only by the rules "basic" and "planned"'
        elif _is_l2(asked) and rule == "gaussian" and charges and not _is_l2(charges[0]):
            hint = '; the rule "gaussian" takes l2 noise only if the first release has it'
        elif asked.mu_squared == math.inf > asked.rho and rule == "gaussian":
            hint = f'; the rules "zcdp" and "planned" have a cost for {asked.mechanism}, but a budget keeps its rule'
        elif has_l2 and rule != "basic":
            hint = (
                "; one of the releases has l2 noise, which can cost far more than its epsilon when several are added "
                "up; Gaussian noise does not"
            )
        if self.rho is not None:
            message = f"{_show(asked.rho)}, and {left!r} of the total {_show(self.rho)} is left{hint}"
            return BudgetExceeded(f"{asked.mechanism} asks for {message}", asked, left)
        loss = Loss(*map(float, min(self._losses(together), default=(math.inf, 0.0))))
        fits = f"{'Gaussian' if left.delta else 'Laplace'}Mechanism of {_show(left)}"
        message = (
            f"{asked.mechanism} asks for {_show(Loss(asked.epsilon, asked.delta), asked.rho)}, with which all releases "
            f'would come to {_show(loss)} by the rule "{rule}"; the total is '
            f"{_show(Loss(self.epsilon, self.delta))}, and what is left is a {fits}{hint}"
        )
        return BudgetExceeded(message, asked, left)

    def spent(self, charges: Charges) -> Spent:
        """Return the joint cost of all releases with the costs `charges`, as a rho or a `Loss`.

        It is a rho if the total of the budget is a rho, and otherwise an (epsilon, delta).
        """
        if self.rho is not None:
            return min(_up(_sum(charge.rho for charge in charges)), self.rho)
        granted = itertools.compress(self._losses(charges), self._fits(charges))
        epsilon, delta = min(granted, default=(self.epsilon, self.delta))
        return Loss(min(_up(epsilon), self.epsilon), min(_up(delta), self.delta))

    def left(self, charges: Charges, parts: int = 1) -> Spent:
        """Return the largest cost that each of `parts` equal releases may have after releases with the costs `charges`.

        The result is a rho if the total is a rho, and otherwise a `Loss` (epsilon, delta). Raise a ValueError if a
        budget does not take so many releases.
        """
        if parts > max(_CHARGES - len(charges), 1):
            raise ValueError(
                f"parts must be at most {_CHARGES - len(charges)}, the number of releases left, got {parts}"
            )
        if self.rho is not None:
            return _down((Fraction(self.rho) - _sum(charge.rho for charge in charges)) / parts)
        if not charges and parts == 1:
            return Loss(self.epsilon, self.delta)
        rule, (epsilon, delta) = self.rule_for(charges), _basic(charges)
        basic = Loss(_down((Fraction(self.epsilon) - epsilon) / parts), _down((Fraction(self.delta) - delta) / parts))
        if rule == "basic" or not self.delta:
            return basic
        found = Loss(self._largest_epsilon(charges, parts), self.delta)
        if rule == "planned":
            return max(found, basic)
        return max(found, Loss(basic.epsilon if all(map(_is_pure, charges)) else 0.0, 0.0))

    def _largest_epsilon(self, charges: Charges, parts: int) -> float:
        """Return the largest epsilon with which `parts` more Gaussian mechanisms fit into the budget.

        It is found by bisection. Each of these mechanisms has this epsilon and the delta of the total, and `charges`
        are the costs of the releases before.
        """
        low, high = 0.0, self.epsilon
        for _ in range(40):
            middle = (low + high) / 2
            if not low < middle < high or middle < 1e-9 * self.epsilon / parts:
                break
            mechanism = GaussianMechanism(1.0, middle, self.delta)
            fits = self._holds((*charges, *[charge_of(mechanism, self.neighbors)] * parts), excess=0.0)
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _holds(self, charges: Charges, excess: float = EXCESS / 2) -> bool:
        """Return whether releases with the costs `charges` are together within the total of the budget.

        For a total (epsilon, delta) and several releases, the standard deviation of Gaussian noise that egm draws is
        counted as larger by the factor 1 + `excess`. So releases that just fit are not refused because of rounding
        errors. The noise that egm's mechanisms draw is in fact larger than that (see `_fits`).
        """
        if self.rho is not None:
            return _within(_sum(charge.rho for charge in charges), self.rho, len(charges) > 1)
        return any(self._fits(charges, excess))

    def _fits(self, charges: Charges, excess: float = EXCESS / 2) -> Iterator[bool]:
        """Yield True or False for each pair (epsilon, delta) that `_losses` computes: whether it is within the total.

        `charges` are the costs of releases. Each pair holds for all these releases together, so one True is enough. If
        there are several costs, the standard deviation of Gaussian noise that egm draws is counted as larger by the
        factor 1 + `excess`, so that releases that just fit are not refused because of rounding errors. This is allowed,
        because egm's mechanisms in fact draw noise that is larger than they say by the factor 1 + `EXCESS`, which is
        more. The noise of `Budget.charge_steps`, which the caller draws, is counted as it is.
        """
        total, several = (self.epsilon, self.delta), len(charges) > 1
        fits = functools.partial(_within, several=several)
        return (all(map(fits, loss, total)) for loss in self._losses(charges, excess if several else 0.0))

    def _losses(self, charges: Charges, excess: float = 0.0) -> Iterator[tuple[Cost, Cost]]:
        """Yield each pair (epsilon, delta) that is valid for releases with the costs `charges` together.

        There is one pair for each formula that the rule of the budget allows. The formulas of Gaussian differential
        privacy count the standard deviation of Gaussian noise that egm draws as larger by the factor 1 + `excess`. This
        is valid, because egm in fact draws even larger noise (see `_fits`). A single release may cost its own epsilon
        and delta, unless the rule has no finite cost for it: then nothing more could be granted after it.
        """
        rule, basic = self.rule_for(charges), _basic(charges)
        alone = len(charges) == 1 and (charges[0].mu_squared if rule == "gaussian" else charges[0].rho) < math.inf
        if rule in (None, "basic", "planned") or alone or not basic[1]:
            yield basic
        if rule in ("gaussian", "planned"):
            yield self._by_gaussian(charges, excess), self.delta
        if rule == "planned":
            pure = _sum(charge.epsilon for charge in charges if _is_pure(charge))
            rest = [charge for charge in charges if not _is_pure(charge)]
            yield _sum([pure, self._by_gaussian(rest, excess)]), self.delta
            yield _sum([pure, self._by_zcdp(rest)]), self.delta
        if rule in ("zcdp", "planned"):
            yield self._by_zcdp(charges), self.delta
        if rule == "planned" and any(map(_is_sampled, charges)):
            yield self._by_privacy_loss(charges), self.delta

    def _by_gaussian(self, charges: Charges, excess: float) -> float:
        """Return the epsilon of releases with the costs `charges` together, by Gaussian differential privacy.

        It is the epsilon of one Gaussian mechanism whose mu^2 is the sum of the mu^2 of the releases, where the
        standard deviation of Gaussian noise that egm draws is first multiplied by 1 + `excess`. The delta is that of
        the total, minus two kept parts for what discrete noise adds to delta: `_reserve` for Gaussian noise, and
        `_reserve_for_l2` for l2 noise (or, for the rule "planned", what the given releases need). If the second part is
        not enough for all releases with l2 noise, the result is infinite.
        """
        shrink = (1 + Fraction(excess)) ** -2
        squares = _sum(charge.mu_squared for charge in charges if _is_larger(charge))
        squares = squares * shrink if squares < math.inf else squares
        mu_squared = _up(_sum([squares, *(charge.mu_squared for charge in charges if not _is_larger(charge))]))
        of_l2 = sum(map(_is_l2, charges)) * self._reserve_of_l2
        for_l2 = self._reserve_for_l2(charges) if self.rule != "planned" else of_l2
        delta = math.nextafter(self.delta - self._reserve - for_l2, 0.0)
        if mu_squared == 0:
            return 0.0
        if mu_squared > 1e200 or of_l2 > for_l2 or delta < self.delta / 2:
            return math.inf
        return float(_gaussian_epsilon(delta, (1 - 1e-15) / math.sqrt(mu_squared)))

    @cached_property
    def _reserve(self) -> float:
        """Return the part of the total delta that is kept for drawing Gaussian noise as integers.

        Discrete noise adds to delta, and the privacy curve in `_by_gaussian` is that of continuous noise. The kept part
        is at least the addition to delta by all releases that the total allows together.
        """
        # A rounded Gaussian r and the discrete Gaussian p of standard deviation s (see egm._rows.lattice) have the
        # Kullback-Leibler divergence KL(r, p) <= chi^2(r, p) <= (1 / 64 + 3 / 64) s^-4 (1 + o(1)) <= s^-4 / 15.
        # Divergences add up over coordinates and over releases, also if each release is chosen by those before. Here s
        # is at least 2^40 z or 2^55. So for 2^24 coordinates and 2^20 releases with a sum M of mu^2 they add up to at
        # most 2^24 (2^-160 M^2 + 2^-200) / 15. By Pinsker's inequality the releases are within 2^-70 M + 2^-90 of
        # rounded Gaussians in total variation. That, times 1 + e^epsilon, is taken off delta. The other rules do not
        # need it.
        if not self.delta:
            return 0.0
        return self._reserve_for(float(analytic_noise_multiplier(self.epsilon, self.delta)) ** -2)

    def _reserve_for(self, mu_squared: float) -> float:
        """Return a bound on what releases add to delta because their Gaussian noise is discrete and not continuous.

        `mu_squared` is the sum of mu^2 over the releases; mu is the sensitivity divided by the standard deviation.
        """
        return delta_of(2.0**-70 * mu_squared + 2.0**-90, self.epsilon) * _UP

    def _reserve_for_l2(self, charges: Charges) -> float:
        """Return the part of the total delta that is kept for drawing l2 noise as integers.

        The part is 0 unless the first of the `charges` is for l2 noise, because it must be fixed before the first
        result. If it grew with each such release, a release would have two costs, mu^2 and delta. Then somebody who
        chooses between Gaussian and l2 noise after seeing results could exceed the total. The part is enough for at
        least one release.
        """
        return max(self.delta * _L2_SHARE, self._reserve_of_l2) if charges and _is_l2(charges[0]) else 0.0

    @property
    def _reserve_of_l2(self) -> float:
        """Return a bound on what one release with l2 noise adds to delta because its noise is discrete.

        The density of continuous l2 noise at x is proportional to exp(-|x| / s) for a scale s.
        """
        # A release has at most 10^6 coordinates, and the scale s of its noise is at least 2^22 units of the lattice. By
        # egm._rows.lattice the noise that is drawn is within sqrt(d) 2^-49 < 2^-39.03 plus 2^-45 of rounded l2 noise in
        # total variation.
        return delta_of(2.0**-39, self.epsilon) * _UP

    def _by_privacy_loss(self, charges: Charges) -> float:
        """Return the epsilon of releases with the costs `charges` together, some of which are from Poisson samples.

        `egm._budget.amplified` computes this epsilon from the total delta minus a kept part: a bound (`_reserve_for`)
        on what discrete Gaussian noise in releases from all rows adds to delta. The bound holds for releases from
        samples, too, because drawing a sample first does not increase the difference between discrete and continuous
        noise.
        """
        numbers = Counter[tuple[float, float]]()  # of equal releases, which together are composed in little time
        others: list[float] = []
        private: list[tuple[float, float]] = []
        mu_squared: Cost = Fraction(0)
        for charge in charges:
            gaussian = not (_is_pure(charge) or _is_l2(charge))
            if gaussian and _is_sampled(charge):
                square = _up(Fraction(charge.mu_squared) / charge.count)
                numbers[square, charge.sampling_probability or 1.0] += charge.count
                continue
            others.append(charge.rho)
            if gaussian:
                mu_squared = _sum([mu_squared, charge.mu_squared])
            else:
                private.append((charge.epsilon, charge.delta))
        steps = tuple(Steps(*release, number) for release, number in sorted(numbers.items()))
        known = [mu_squared] * (mu_squared < math.inf)
        noise = _up(_sum([*known, *(Fraction(one.mu_squared) * one.number for one in steps)]))
        delta = self.delta - self._reserve_for(noise)
        if not steps or delta < self.delta / 2:
            return math.inf
        return composed_epsilon(steps, _up(mu_squared), tuple(sorted(private)), _up(_sum(others)), delta)

    def _by_zcdp(self, charges: Charges) -> float:
        """Return the epsilon of releases with the costs `charges` together, from the sum of their rho.

        The delta that goes with this epsilon is that of the total of the budget.
        """
        rho = _up(_sum(charge.rho for charge in charges))
        if not charges:
            return 0.0
        return math.inf if not self.delta or rho > 1e50 else _zcdp_epsilon(max(rho, 1e-100), self.delta)


def _show(cost: Spent, rho: float | None = None) -> str:
    """Return a privacy `cost`, a `Loss` or a number rho, as text for a message.

    If the epsilon of a `Loss` is infinite, which means that it is not known, the argument `rho` is shown instead, if it
    is given.
    """
    if isinstance(cost, Loss) and (rho is None or cost.epsilon < math.inf):
        return f"epsilon = {cost.epsilon!r}, delta = {cost.delta!r}"
    return f"rho = {cost if rho is None else rho!r}"


def _is_pure(charge: Charge) -> bool:
    """Return whether a release of the cost `charge` has pure differential privacy: a finite epsilon, and delta = 0."""
    return charge.delta == 0 and charge.epsilon < math.inf


def _is_l2(charge: Charge) -> bool:
    """Return whether a release of the cost `charge` has l2 noise, the only noise for which no bound of rho is known.

    The density of l2 noise falls exponentially with the norm.
    """
    return charge.rho == math.inf


def _is_larger(charge: Charge) -> bool:
    """Return whether a release of the cost `charge` has Gaussian noise drawn by egm, which is larger than stated.

    egm draws Gaussian noise with a standard deviation that is larger, by the factor 1 + `EXCESS`, than the mechanism
    says. The result is false for the steps of `Budget.charge_steps`, whose noise the caller draws.
    """
    return not (_is_pure(charge) or _is_l2(charge) or charge.mechanism == _STEPS)


def _is_sampled(charge: Charge) -> bool:
    """Return whether a release of the cost `charge` is from a Poisson sample and not from all rows."""
    return charge.sampling_probability is not None and charge.sampling_probability < 1


def _basic(charges: Charges) -> tuple[Cost, Cost]:
    """Return the sum of the epsilons and the sum of the deltas of releases with the costs `charges`, as a pair.

    All these releases together are private for this epsilon and delta.
    """
    return _sum(charge.epsilon for charge in charges), _sum(charge.delta for charge in charges)


def checked(
    rho: float | None,
    epsilon: float | None,
    delta: float | None,
    neighbors: str | None,
    rule: str | None,
    simulation: bool | None,
) -> dict[str, Any]:
    """Check the arguments of a budget, as `Budget` describes them, and return them as a dictionary by their names.

    None stays None, except that `delta` becomes 0 if `epsilon` is given. Raise ValueError or TypeError for a wrong
    value.
    """
    if rho is not None and (epsilon is not None or delta is not None):
        raise ValueError(f"rho must be given alone, got also epsilon = {epsilon!r}, delta = {delta!r}")
    if rho is not None:
        rho = scalar(positive, rho=rho)
    if epsilon is not None:
        epsilon = scalar(functools.partial(between, 1e-80, 1e80), epsilon=epsilon)
        delta = scalar(functools.partial(between, 0.0, math.nextafter(1.0, 0.0)), delta=0.0 if delta is None else delta)
        if 0 < delta < 1e-300:
            raise ValueError(f"delta must be 0 or at least 1e-300, got {delta!r}")
    elif delta is not None:
        raise ValueError(f"delta must come with epsilon, got delta = {delta!r} alone")
    _one_of(_RELATIONS, neighbors=neighbors)
    _one_of(RULES, rule=rule)
    if rule is not None and rho is not None:
        raise ValueError(f"rule must be left out for a total rho, got {rule!r}")
    if rule not in (None, "basic") and delta == 0:
        raise ValueError(f'rule must be "basic" for delta = 0, got {rule!r}')
    if simulation is not None and not isinstance(simulation, bool):
        raise TypeError(f"simulation must be True or False, got {simulation!r}")
    terms = {"rho": rho, "epsilon": epsilon, "delta": delta, "neighbors": neighbors, "rule": rule}
    return {**terms, "simulation": simulation}


def _one_of(allowed: Sequence[str], **named: object) -> None:
    """Raise ValueError if an argument is neither None nor one of the strings in `allowed`.

    The argument is passed by keyword, and the message shows its name and its value.
    """
    ((name, value),) = named.items()
    if value is not None and not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def complete(terms: dict[str, Any], what: str) -> dict[str, Any]:
    """Return a dictionary that `checked` has returned, the `terms` of a new budget, with defaults in place of None.

    Raise ValueError if neither `rho` nor `epsilon` is given; the text `what` names the budget in the message.
    """
    if terms["rho"] is None and terms["epsilon"] is None:
        raise ValueError(f"rho or epsilon must be given for {what}")
    return {**terms, "neighbors": terms["neighbors"] or _RELATIONS[0], "simulation": bool(terms["simulation"])}
