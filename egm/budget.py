"""A privacy budget for several releases from the same data, kept on disk.

    budget = Budget("survey.budget", rho=0.5)                     # or epsilon=1, delta=1e-6
    release = budget.release(mechanism, X)                        # charged first; BudgetExceeded if it does not fit
    budget.left, budget.split(12)                                 # what one release may cost, or each of twelve

**Order.** `release` first compares what is public: the mechanism, and the type and shape of X. A mistake there costs
nothing. Then the charge is recorded, and only then are values read. So an error that depends on a value, such as NaN in
X, comes after the charge, and the charge stays: that there was such an error says something about the data.

**Counting.** A release adds its cost to those before it, and is refused if a fixed total would be exceeded:

- "zcdp": rho; 1 / (2 z^2) for Gaussian noise of multiplier z, also for discrete noise (Canonne, Kamath and Steinke
  2020, Theorem 14), and epsilon^2 / 2 for an epsilon-private mechanism (Bun and Steinke 2016, Proposition 1.4). OpenDP
  converts the sum to (epsilon, delta).
- "gaussian": mu^2 = 1 / z^2; the releases together are as private as one Gaussian mechanism of that sum (Dong, Roth and
  Su 2022, Corollary 3.3), so that the exact curve of `egm.calibration` converts it. An epsilon-private mechanism costs
  mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)): the normal trade-off curve is convex and meets the piecewise linear one of
  epsilon-privacy at both ends and at its kink, so it lies below.
- "basic": epsilon and delta, each added up (Dwork and Roth 2014, Theorem 3.16).

**Choosing.** What is released next, at what cost, may depend on the releases before. Induct on the number of releases
still to come: the cost c of the first is fixed, whatever it answers; the rest may cost the total less c, and has that
privacy by induction; composition adds the two. So each rule by itself is a filter (Feldman and Zrnic 2021 for zCDP,
Smith and Thakurta 2022 for Gaussian privacy, Rogers, Roth, Ullman and Vadhan 2016 for the basic one). The least of
several rules is none: who chooses by the releases which of them will hold gets up to the sum of their deltas, and 1.7
delta after a Gaussian release of (0.1, 1e-6) where the total is (1, 1e-6) ("gaussian" or "basic" for the rest). So the
rule must be public before the first release: it is an argument, or follows from the first mechanism. Two exceptions
cost nothing. A first mechanism that is (epsilon, delta)-private by itself may be the only one. Releases that are all
without delta may add up their epsilons: this event has no share of delta to add.

"planned" takes the least of all rules, also with the pure epsilons added to what another rule finds for the rest. It
is valid if the mechanisms were fixed before the first release; only what they are applied to may depend on releases.

**Rounding.** Costs are rounded up and added up as fractions. One is granted up to the total, a sum of several up to
2^-51 of the total more: what the digits of doubles leave open, so that ten tenths fill one. A twelfth of (epsilon,
delta) under "gaussian" is the result of several conversions, each with its rounding. Therefore Gaussian noise is drawn
2^-30 larger than the mechanism says (`EXCESS` in `egm._rows.lattice`), and a sum is granted if it fits for noise that
is 2^-31 larger: the difference pays for the conversions, and no total is exceeded.

Under "gaussian" delta must also pay for noise that is discrete. By the quotient r / p of `egm._rows.lattice`, a rounded
Gaussian r and the discrete Gaussian p of standard deviation s have the Kullback-Leibler divergence KL(r, p) <=
chi^2(r, p) <= (1 / 64 + 3 / 64) s^-4 (1 + o(1)) <= s^-4 / 15. Divergences add up over coordinates and over releases,
also if each release is chosen by those before. Here s is at least 2^40 z or 2^55, so for 2^24 coordinates and 2^20
releases with a sum M of mu^2 all of them are at most 2^24 (2^-160 M^2 + 2^-200) / 15. By Pinsker's inequality the
releases are within 2^-70 M + 2^-90 of rounded Gaussians in total variation. (1 + e^epsilon) times that is taken off
delta. The other rules do not need it.

**The journal** is a text file: the terms, a seal, and a line for each charge, with SHA-256 over it and all before it.
A charge is on the disk before the data are read. A crash can therefore waste budget and never exceed it. The seal has
the number of the charges that were ever allowed, and is written after their lines: so a line that is cut off was
either never allowed, and is dropped, or the file is damaged, and is refused. Processes take turns (flock), each reads
what the others have spent. A lock that another process holds for more than a minute is an error, not a wait without
end. Only the owner may read a new journal, since whoever can open it can lock it. A journal that is replaced by another
file while it is locked is noticed when the charge is written, and nothing is granted. What no file can tell is that an
old copy of it was put back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import math
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import FileIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.random import Generator as Rng
from scipy.special import erfinv, log_expit, ndtri_exp

from egm._rows.lattice import EXCESS
from egm._types import ArrayLike, Floats, Neighbors, PathLike, RowSource
from egm._validate import between, count, finite, positive, probability, scalar, unread
from egm.adaptive import AdaptiveDataMechanism, AdaptiveRelease
from egm.calibration import analytic_noise_multiplier, gaussian_epsilon
from egm.mechanisms import (
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    Release,
)
from egm.quantiles import quantile, secure_quantile
from egm.samplers import opendp

__all__ = ["Budget", "BudgetExceeded", "Charge", "JournalError", "Loss"]

_RULES = "gaussian", "zcdp", "basic", "planned"
_RELATIONS = "replace_one", "add_remove"
_ENTRIES, _CHARGES = 1 << 24, 1 << 20  # coordinates of a release, and releases, for which the rounding is charged
_POINTS = 1e8  # of the lattice of a quantile, more than fit into memory
_UP = 1 + 1e-12
_FORMAT = "egm budget 1"
_PATIENCE = 60.0  # seconds to wait for a lock: a charge takes milliseconds

Rule: TypeAlias = Literal["gaussian", "zcdp", "basic", "planned"]
Mechanism: TypeAlias = LaplaceMechanism | GaussianMechanism | EllipticalGaussianMechanism
DataMechanism: TypeAlias = GaussianDataMechanism | AdaptiveDataMechanism
Spent: TypeAlias = Any  # rho, a float, or a Loss: as the total is one or the other
Cost: TypeAlias = float | Fraction
Charges: TypeAlias = "Sequence[Charge]"


class Loss(NamedTuple):
    """(epsilon, delta)."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Charge:
    """What one release costs: rho of zCDP, mu**2 of Gaussian privacy, and its own (epsilon, delta); inf for unknown."""

    mechanism: str
    rho: float
    mu_squared: float
    epsilon: float
    delta: float


class BudgetExceeded(ValueError):
    """The release was refused, and no data were read. asked: its Charge. left: Budget.left."""

    def __init__(self, message: str, asked: Charge, left: Spent) -> None:
        super().__init__(message)
        self.asked, self.left = asked, left

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.asked, self.left)


class JournalError(ValueError):
    """The journal is damaged, gone, or another one; what was spent cannot be known from it."""


class Budget:
    """A total for all releases from one data set: rho-zCDP, or (epsilon, delta).

    path: of the journal, which is made if it is not there; None keeps the charges in memory, for one process. rho: > 0,
    or epsilon: > 0, from 1e-80 to 1e80, and delta: 0 or from 1e-300 and below 1. For a journal that is there they may
    be left out, and if given must be the same. neighbors: "replace_one" or "add_remove": what a neighbour is, for all
    releases; mechanisms that take a sensitivity must have been given it for this relation. rule: "gaussian", "zcdp",
    "basic" or "planned", see above, for (epsilon, delta); by default the first charge decides: "gaussian" for a
    Gaussian mechanism, "basic" for Laplace, "zcdp" for AdaptiveDataMechanism. simulation: True makes a budget for
    rehearsals, whose releases are all simulations by an rng and are charged like real ones; any other budget refuses an
    rng, since a simulation of private data gives them away. The journal says which of the two it is. Raises ValueError
    or TypeError otherwise, JournalError for a journal that is damaged, OSError where there can be no such file, and
    TimeoutError if another process holds the lock of the journal for a minute.

    A budget in memory belongs to the process that made it: in a forked process its methods raise RuntimeError.

    >>> from egm import GaussianMechanism
    >>> budget = Budget(epsilon=1, delta=1e-6)
    >>> charges = [budget.charge(GaussianMechanism(1.0, 0.4, 1e-6)) for _ in range(4)]
    >>> budget.spent  # doctest: +ELLIPSIS
    Loss(epsilon=0.840..., delta=1e-06)
    """

    def __init__(
        self,
        path: PathLike | None = None,
        *,
        rho: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        neighbors: Neighbors | None = None,
        rule: Rule | None = None,
        simulation: bool | None = None,
    ) -> None:
        terms = _terms(rho, epsilon, delta, neighbors, rule, simulation)
        if path is None:
            _complete(terms, "an in-memory budget")
            self._store: _Memory | _Journal = _Memory(_Terms(**terms))
        else:
            self._store = _Journal(_path(path), terms)
        self._terms = self._store.terms

    @property
    def rho(self) -> float | None:
        """The total, or None for a total (epsilon, delta)."""
        return self._terms.rho

    @property
    def epsilon(self) -> float | None:
        """Of the total, or None for a total rho."""
        return self._terms.epsilon

    @property
    def delta(self) -> float | None:
        """Of the total, or None for a total rho."""
        return self._terms.delta

    @property
    def neighbors(self) -> Neighbors:
        """What a neighbour is."""
        return self._terms.neighbors

    @property
    def simulation(self) -> bool:
        """Whether it is for simulations only."""
        return self._terms.simulation

    @property
    def rule(self) -> Rule | None:
        """The rule, or None if it is still open."""
        return self._terms.rule_for(self.history)

    @property
    def history(self) -> tuple[Charge, ...]:
        """The charges, a tuple of Charge."""
        return self._store.read()

    @property
    def spent(self) -> Spent:
        """What all charges cost together: rho, or the Loss (epsilon, delta) by the rule. Never more than the total."""
        return self._terms.spent(self.history)

    @property
    def left(self) -> Spent:
        """What one more release may cost: rho, or the Loss of the largest GaussianMechanism that would be granted.

        Where only pure mechanisms can follow, the Loss has delta 0.
        """
        return self._terms.left(self.history)

    def split(self, parts: int) -> Spent:
        """What each of so many equal releases may cost, so that all of them are granted: rho, or a Loss.

        parts: a whole number >= 1. The Loss is that of a GaussianMechanism, up to a relative 1e-12, where only pure
        mechanisms can follow that of a LaplaceMechanism. Raises ValueError otherwise.

        >>> budget = Budget(epsilon=1, delta=1e-6)
        >>> each = budget.split(12)
        >>> f"{each.epsilon:.4f}", each.delta
        ('0.2642', 1e-06)
        """
        return self._terms.left(self.history, count(parts=parts))

    def charge(self, mechanism: Mechanism | DataMechanism) -> Charge:
        """Record a release by this mechanism, which is allowed once this returns. The Charge.

        Raises BudgetExceeded if it does not fit, and then nothing is recorded; ValueError for another neighbour
        relation; TypeError for what is not a mechanism of egm.
        """
        return self._grant(_charge(mechanism, self.neighbors))

    def _grant(self, asked: Charge) -> Charge:
        """Record a Charge, or raise BudgetExceeded."""
        with self._store.changing() as (charges, record):
            if self._terms.grants(charges, asked):
                record(asked)
                return asked
        raise self._terms.refusal(charges, asked)

    @overload
    def release(self, mechanism: AdaptiveDataMechanism, X: ArrayLike, *, rng: Rng | None = None) -> AdaptiveRelease: ...
    @overload
    def release(self, mechanism: GaussianDataMechanism, X: RowSource, *, rng: Rng | None = None) -> Release: ...
    @overload
    def release(self, mechanism: Mechanism, X: ArrayLike, *, rng: Rng | None = None) -> Release: ...
    def release(
        self, mechanism: Mechanism | DataMechanism, X: Any, *, rng: Rng | None = None
    ) -> Release | AdaptiveRelease:
        """mechanism.check(X), then the charge, then mechanism.release(X).

        rng: a numpy Generator, for a budget that was made for simulation, and for no other. Raises what these three
        raise. Up to the charge no value of X is read, and an error costs nothing; the charge stays if the release
        fails, since a value that it read may have caused that.
        """
        self._require_kind(rng)
        _charge(mechanism, self.neighbors)
        mechanism.check(X)
        if rng is None and not isinstance(mechanism, AdaptiveDataMechanism):
            mechanism.check_noise(X)
        unbounded = type(mechanism) is GaussianMechanism
        if unbounded and hasattr(X, "shape"):
            _require_room(X)
        self.charge(mechanism)
        if unbounded:  # of a list, the entries are counted when it may be read
            _require_room(X)
        return mechanism.release(X, rng=rng)

    def quantile(
        self,
        values: ArrayLike,
        q: float,
        low: float,
        high: float,
        epsilon: float,
        step: float,
        *,
        rng: Rng | None = None,
    ) -> Floats:
        """Charge a private quantile, then compute it: `egm.quantiles.secure_quantile` of the same arguments.

        It costs epsilon for each column, or epsilon**2 / 8 of rho (see `egm.quantiles.epsilon_of_rho`). values: (n,) or
        (n, k), with n public, so that a neighbour has one row replaced; a list is one column. rng: as for release; the
        simulation is `egm.quantiles.quantile`. Raises BudgetExceeded, ValueError or TypeError; nothing is charged for a
        mistake in any argument but the numbers in values.

        >>> budget = Budget(epsilon=1)
        >>> median = budget.quantile(list(range(1000)), 0.5, 0, 1000, epsilon=0.5, step=1)
        >>> budget.left
        Loss(epsilon=0.5, delta=0.0)
        """
        self._require_kind(rng)
        shape = unread(values=values)
        self._grant(_quantile_charge(shape or (), q, low, high, epsilon, step, self.neighbors))
        if isinstance(values, list | tuple):  # was charged for one column
            _require_flat(values)
        if rng is not None:
            return quantile(values, q, low, high, epsilon, rng)  # type: ignore[no-any-return]  # one or the other
        return secure_quantile(values, q, low, high, epsilon, step)

    def _require_kind(self, rng: Rng | None) -> None:
        """An error unless there is a Generator where the budget is for simulation, and none where it is not."""
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng must be a numpy.random.Generator or None, got {rng!r}")
        if rng is not None and not self.simulation:
            raise ValueError("rng must be left out: a simulation is not private and needs Budget(..., simulation=True)")
        if rng is None and self.simulation:
            raise ValueError("rng must be given, since this budget was made for simulation")

    def __repr__(self) -> str:
        return f"Budget({self._store.name}, {self._terms})"


# Costs ----------------------------------------------------------------------------------------------------------------


def _charge(mechanism: Any, neighbors: Neighbors) -> Charge:
    """The Charge of a mechanism."""
    kind, own = type(mechanism), neighbors
    if kind is LaplaceMechanism:
        epsilon = mechanism.epsilon
        return Charge(kind.__name__, _up(Fraction(epsilon) ** 2 / 2), _pure_mu_squared(epsilon), epsilon, 0.0)
    if kind is AdaptiveDataMechanism:
        own, charge = "replace_one", Charge(kind.__name__, mechanism.rho, math.inf, math.inf, 0.0)
    elif kind in (GaussianMechanism, EllipticalGaussianMechanism, GaussianDataMechanism):
        own = getattr(mechanism, "neighbors", neighbors)
        mu_squared = _up(1 / Fraction(mechanism.noise_multiplier) ** 2)
        charge = Charge(kind.__name__, mu_squared / 2, mu_squared, mechanism.epsilon, mechanism.delta)
        if np.size(mechanism.noise_std) >= _ENTRIES:
            raise ValueError(
                f"mechanism must have less than {_ENTRIES} coordinates, got {np.size(mechanism.noise_std)}"
            )
    else:
        raise TypeError(f"mechanism must be one of egm.mechanisms or an AdaptiveDataMechanism, got {mechanism!r}")
    if own != neighbors:
        raise ValueError(f'neighbors must be "{neighbors}" for this budget, and are "{own}" for this {kind.__name__}')
    return charge


def _quantile_charge(
    shape: tuple[int, ...], q: float, low: float, high: float, epsilon: float, step: float, neighbors: Neighbors
) -> Charge:
    """The Charge of a quantile of values of this shape, whose other arguments are checked."""
    if len(shape) not in (1, 2) or 0 in shape:
        raise ValueError(f"values must have shape (n,) or (n, k), n >= 1, got {shape}")
    scalar(probability, q=q)
    low, high, step = scalar(finite, low=low), scalar(finite, high=high), scalar(positive, step=step)
    if not low < high or (high - low) / step > _POINTS:
        raise ValueError(f"high must be above low, by at most {_POINTS:g} steps, got {low}, {high} and step = {step}")
    if neighbors != "replace_one":
        raise ValueError(f'neighbors must be "replace_one" for a quantile, and are {neighbors!r} for this budget')
    epsilon, columns = scalar(positive, epsilon=epsilon), math.prod(shape[1:])
    rho, mu_squared = columns * Fraction(epsilon) ** 2 / 8, columns * Fraction(_pure_mu_squared(epsilon))
    return Charge("secure_quantile", _up(rho), _up(mu_squared), _up(columns * Fraction(epsilon)), 0.0)


def _require_flat(values: Sequence[Any]) -> None:
    """A ValueError for a list that is more than one column, which only its entries tell."""
    if any(np.ndim(value) for value in values):
        raise ValueError("values must be one column if they are a list; give several as an array (n, k)")


def _require_room(X: ArrayLike) -> None:
    """An error for more entries than the rounding is charged for."""
    entries = math.prod(np.shape(X))  # of an array without a look at it
    if entries >= _ENTRIES:
        raise ValueError(f"X must have less than {_ENTRIES} entries, got {entries}")


def _pure_mu_squared(epsilon: float) -> float:
    """(2 Phi^-1(e^epsilon / (1 + e^epsilon)))**2, rounded up."""
    mu = math.sqrt(8) * erfinv(math.tanh(epsilon / 2)) if epsilon < 1 else -2 * ndtri_exp(log_expit(-epsilon))
    with np.errstate(over="ignore"):
        return float(np.float64(mu) ** 2 * _UP)


def _sum(values: Iterable[Any]) -> Cost:
    """The exact sum of numbers >= 0: a Fraction, or inf."""
    values = list(values)
    return math.inf if math.inf in values else sum(map(Fraction, values), Fraction())


def _up(number: Cost) -> float:
    """The least double that is not below the number."""
    try:
        nearest = float(number)
    except OverflowError:
        return math.inf
    return nearest if nearest >= number else math.nextafter(nearest, math.inf)


def _down(number: Cost) -> float:
    """The largest double that is not above the number, or 0 for a negative one."""
    return -_up(-number) if number > 0 else 0.0


def _within(number: Cost, total: float, several: bool) -> bool:
    """Whether a cost, or the sum of several, is granted."""
    return number <= (Fraction(total) * (1 + Fraction(1, 1 << 51)) if several else total)


# Rules ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Terms:
    """The total and how costs are added up to it."""

    rho: float | None
    epsilon: float | Any  # None where rho is given
    delta: float | Any
    neighbors: Neighbors
    rule: Rule | None
    simulation: bool = False

    def __str__(self) -> str:
        given = dataclasses.asdict(self).items()
        return ", ".join(f"{name}={value!r}" for name, value in given if value not in (None, False))

    def rule_for(self, charges: Charges) -> Rule | None:
        """The rule, which the first charge decides if the terms do not."""
        if self.rho is not None or self.rule or not charges:
            return self.rule
        if self.delta == 0 or _is_pure(charges[0]):
            return "basic"
        return "gaussian" if charges[0].mu_squared < math.inf and self._reserve < self.delta / 2 else "zcdp"

    def grants(self, charges: Charges, asked: Charge) -> bool:
        """Whether a charge fits after those."""
        return len(charges) < _CHARGES and self._holds((*charges, asked))

    def refusal(self, charges: Charges, asked: Charge) -> BudgetExceeded:
        """The BudgetExceeded for a charge that does not fit after those."""
        left, together = self.left(charges), (*charges, asked)
        if len(charges) >= _CHARGES:
            return BudgetExceeded(f"a budget takes {_CHARGES} releases and no more", asked, left)
        if self.rho is not None:
            message = f"{_show(asked.rho)}, and {left!r} of the total {_show(self.rho)} is left"
            return BudgetExceeded(f"{asked.mechanism} asks for {message}", asked, left)
        loss = Loss(*map(float, min(self._losses(together), default=(math.inf, 0.0))))
        message = (
            f"{asked.mechanism} asks for {_show(Loss(asked.epsilon, asked.delta), asked.rho)}, with which all releases "
            f'would come to {_show(loss)} by the rule "{self.rule_for(together)}"; the total is '
            f"{_show(Loss(self.epsilon, self.delta))}, and what is left is a GaussianMechanism of {_show(left)}"
        )
        return BudgetExceeded(message, asked, left)

    def spent(self, charges: Charges) -> Spent:
        """Budget.spent."""
        if self.rho is not None:
            return min(_up(_sum(charge.rho for charge in charges)), self.rho)
        epsilon, delta = min(self._granted(charges), default=(self.epsilon, self.delta))
        return Loss(min(_up(epsilon), self.epsilon), min(_up(delta), self.delta))

    def left(self, charges: Charges, parts: int = 1) -> Spent:
        """Budget.left, or Budget.split."""
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
        """The largest epsilon for which so many GaussianMechanisms of the total's delta would be granted, by
        bisection."""
        low, high = 0.0, self.epsilon
        for _ in range(40):
            middle = (low + high) / 2
            if not low < middle < high or middle < 1e-9 * self.epsilon / parts:
                break
            mechanism = GaussianMechanism(1.0, middle, self.delta)
            fits = self._holds((*charges, *[_charge(mechanism, self.neighbors)] * parts), excess=0.0)
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _holds(self, charges: Charges, excess: float = EXCESS / 2) -> bool:
        """Whether these charges are within the total."""
        if self.rho is not None:
            return _within(_sum(charge.rho for charge in charges), self.rho, len(charges) > 1)
        return next(self._granted(charges, excess), None) is not None

    def _granted(self, charges: Charges, excess: float = EXCESS / 2) -> Iterator[tuple[Cost, Cost]]:
        """Those of _losses that are within the total, of several charges for noise that is larger by this excess."""
        total, several = (self.epsilon, self.delta), len(charges) > 1
        fits = functools.partial(_within, several=several)
        both = zip(self._losses(charges), self._losses(charges, excess if several else 0.0), strict=True)
        return (loss for loss, drawn in both if all(map(fits, drawn, total)))

    def _losses(self, charges: Charges, excess: float = 0.0) -> Iterator[tuple[Cost, Cost]]:
        """(epsilon, delta) of these charges together, each valid by the rule, one after the other."""
        rule, basic = self.rule_for(charges), _basic(charges)
        if rule in (None, "basic", "planned") or len(charges) == 1 or not basic[1]:
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

    def _by_gaussian(self, charges: Charges, excess: float) -> float:
        """The epsilon of the Gaussian mechanism that the charges add up to, at the delta that rounding leaves."""
        shrink = (1 + Fraction(excess)) ** -2
        squares = _sum(charge.mu_squared for charge in charges if not _is_pure(charge))
        squares = squares * shrink if squares < math.inf else squares
        mu_squared = _up(_sum([squares, *(charge.mu_squared for charge in charges if _is_pure(charge))]))
        delta = math.nextafter(self.delta - self._reserve, 0.0)
        if mu_squared == 0:
            return 0.0
        if mu_squared > 1e200 or delta < self.delta / 2 or delta <= 0:
            return math.inf
        return float(gaussian_epsilon(delta, (1 - 1e-15) / math.sqrt(mu_squared)))

    @functools.cached_property
    def _reserve(self) -> float:
        """What discrete noise may add to delta under the rule "gaussian"; see the head of this module."""
        if not self.delta:
            return 0.0
        largest = float(analytic_noise_multiplier(self.epsilon, self.delta)) ** -2
        return (1 + math.exp(min(self.epsilon, 700.0))) * (2.0**-70 * largest + 2.0**-90) * _UP

    def _by_zcdp(self, charges: Charges) -> float:
        """The epsilon of the rho that the charges add up to, by OpenDP."""
        rho = _up(_sum(charge.rho for charge in charges))
        if not charges:
            return 0.0
        return math.inf if not self.delta or rho > 1e50 else _opendp_epsilon(max(rho, 1e-100), self.delta)


def _show(cost: Spent, rho: float | None = None) -> str:
    """A cost in words: rho, or epsilon and delta unless epsilon is unknown."""
    if isinstance(cost, Loss) and (rho is None or cost.epsilon < math.inf):
        return f"epsilon = {cost.epsilon!r}, delta = {cost.delta!r}"
    return f"rho = {cost if rho is None else rho!r}"


def _is_pure(charge: Charge) -> bool:
    """Whether it has an epsilon without a delta."""
    return charge.delta == 0 and charge.epsilon < math.inf


def _basic(charges: Charges) -> tuple[Cost, Cost]:
    """The sums of epsilon and of delta."""
    return _sum(charge.epsilon for charge in charges), _sum(charge.delta for charge in charges)


@functools.lru_cache(maxsize=256)
def _opendp_epsilon(rho: float, delta: float) -> float:
    """The epsilon of (epsilon, delta)-privacy that OpenDP finds for rho-zCDP, by way of discrete Gaussian noise."""
    dp = opendp()
    integers = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    noise = dp.m.make_gaussian(*integers, scale=(1 - 4e-16) / math.sqrt(2 * rho))
    epsilon: float = dp.c.make_zCDP_to_approxDP(noise).map(1).epsilon(delta)
    return epsilon


def _terms(
    rho: float | None,
    epsilon: float | None,
    delta: float | None,
    neighbors: str | None,
    rule: str | None,
    simulation: bool | None,
) -> dict[str, Any]:
    """The arguments that were given, checked: a dictionary of the fields of _Terms, None for what was not given."""
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
    _one_of(_RULES, rule=rule)
    if rule is not None and rho is not None:
        raise ValueError(f"rule must be left out for a total rho, got {rule!r}")
    if rule not in (None, "basic") and delta == 0:
        raise ValueError(f'rule must be "basic" for delta = 0, got {rule!r}')
    if simulation is not None and not isinstance(simulation, bool):
        raise TypeError(f"simulation must be True or False, got {simulation!r}")
    terms = {"rho": rho, "epsilon": epsilon, "delta": delta, "neighbors": neighbors, "rule": rule}
    return {**terms, "simulation": simulation}


def _path(path: PathLike) -> Path:
    """The place of a journal."""
    try:
        return Path(os.fsdecode(path))
    except TypeError:
        raise TypeError(f"path must be a string, a path or None, got {path!r}") from None


def _one_of(allowed: Sequence[str], **named: object) -> None:
    """Raise ValueError unless it is one of these or None."""
    ((name, value),) = named.items()
    if value is not None and not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def _complete(terms: dict[str, Any], what: str) -> None:
    """Fill in the relation and the kind of a new budget, which must have a total."""
    if terms["rho"] is None and terms["epsilon"] is None:
        raise ValueError(f"rho or epsilon must be given for {what}")
    terms["neighbors"] = terms["neighbors"] or _RELATIONS[0]
    terms["simulation"] = bool(terms["simulation"])


# Where charges are kept -----------------------------------------------------------------------------------------------


class _Memory:
    """A list, for the process that made it."""

    name = "in memory"

    def __init__(self, terms: _Terms) -> None:
        self.terms, self._lock, self._process = terms, threading.Lock(), os.getpid()
        self._charges: list[Charge] = []

    def read(self) -> tuple[Charge, ...]:
        """The charges."""
        self._require_process()
        return tuple(self._charges)

    @contextlib.contextmanager
    def changing(self) -> Iterator[tuple[tuple[Charge, ...], Callable[[Charge], None]]]:
        """The charges, and a function that appends one; for this thread alone until the end."""
        self._require_process()
        with self._lock:

            def record(charge: Charge) -> None:
                self._require_process()  # a handler of signals may have forked
                self._charges.append(charge)

            yield tuple(self._charges), record

    def _require_process(self) -> None:
        """An error in a forked process, whose copy would be a second budget."""
        if os.getpid() != self._process:
            raise RuntimeError("a budget in memory is for the process that made it, not for its forks; give it a path")


@dataclass(frozen=True)
class _State:
    """What a journal says: its first line, the charges, the digests of header and charges, how many charges are sealed,
    and where the last whole line ends."""

    header: bytes
    charges: tuple[Charge, ...]
    digests: tuple[str, ...]
    sealed: int
    end: int


class _Journal:
    """The file: header, seal, charges, one line each. The seal is overwritten in place, all else is appended."""

    def __init__(self, path: Path, given: dict[str, Any]) -> None:
        self.path, self.name, self._header = path, repr(str(path)), None
        if not path.exists():
            self._create(dict(given))
        with self._open(fcntl.LOCK_SH) as file:
            self._header = self._read(file).header
        try:
            kept = {"simulation": False, **json.loads(self._header.split(b"\t")[0])["terms"]}
            self.terms = _Terms(**_terms(**kept))
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(f"journal {self.name}: its total is none that can be kept ({error})") from None
        for name, value in given.items():
            if value is not None and value != (own := getattr(self.terms, name)):
                raise ValueError(f"{name} must be that of the journal {self.name}, {own!r}, got {value!r}")

    def read(self) -> tuple[Charge, ...]:
        """The charges."""
        with self._open(fcntl.LOCK_SH) as file:
            return self._read(file).charges

    @contextlib.contextmanager
    def changing(self) -> Iterator[tuple[tuple[Charge, ...], Callable[[Charge], None]]]:
        """The charges, and a function that appends one; for this process and thread alone until the end."""
        with self._open(fcntl.LOCK_EX) as file:
            state, process = self._read(file), os.getpid()

            def record(charge: Charge) -> None:
                if os.getpid() != process:  # a handler of signals has forked, and both would write the same line
                    raise RuntimeError("a budget was forked while a charge was written; nothing is granted")
                _append(file, state, charge)
                if not self._is_here(file):
                    raise JournalError(
                        f"journal {self.name}: it was replaced while a charge was written, and nothing is granted"
                    )

            yield state.charges, record

    def _create(self, terms: dict[str, Any]) -> None:
        """A new journal, complete before it has its name, unless another process was faster."""
        _complete(terms, f"a new journal, and {self.name} is none yet")
        if self.path.is_symlink():
            raise JournalError(f"journal {self.name}: it is a link to {os.readlink(self.path)!r}, which is not there")
        header, digest = _line({"format": _FORMAT, "id": secrets.token_hex(8), "terms": terms}, "")
        draft = self.path.with_name(f".egm-{secrets.token_hex(8)}.part")
        try:
            with open(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b", buffering=0) as file:
                _write(file, header + _seal(0, digest), 0)
            with contextlib.suppress(FileExistsError):
                os.link(draft, self.path)
        except OSError as error:  # it names the draft
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _open(self, lock: int) -> Iterator[FileIO]:
        """The file of this name, locked until the end."""
        while True:
            with self._opened(lock) as file:
                _lock(file, lock, self.name)
                try:
                    if self._is_here(file):  # else it was replaced before the lock was there: take the new one
                        yield file
                        return
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)  # also for a fork that has the file, too

    def _opened(self, lock: int) -> FileIO:
        """The file, which must be a regular one."""
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise JournalError(f"journal {self.name}: it is not a regular file")
            handle = os.open(self.path, os.O_RDWR if lock == fcntl.LOCK_EX else os.O_RDONLY)
        except FileNotFoundError:
            raise JournalError(f"journal {self.name}: it is gone, and with it what was spent") from None
        return open(handle, "r+b" if lock == fcntl.LOCK_EX else "rb", buffering=0)

    def _is_here(self, file: FileIO) -> bool:
        """Whether the file is the one that has the name now."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _read(self, file: FileIO) -> _State:
        """The _State of the file. Raises JournalError unless all of it is as it was written."""
        try:
            state = _parse(file.read())
        except JournalError as error:
            raise JournalError(f"journal {self.name}: {error}") from None
        if self._header not in (None, state.header):
            raise JournalError(f"journal {self.name}: it is another one than before")
        return state


def _lock(file: FileIO, lock: int, name: str) -> None:
    """Lock the file; TimeoutError if others hold it for too long."""
    with contextlib.suppress(BlockingIOError):
        return fcntl.flock(file, lock | fcntl.LOCK_NB)
    waiting, locked = os.dup(file.fileno()), threading.Event()

    def wait() -> None:
        """Take a turn, as the system gives them. If nobody waits for it any more, closing the file gives it back."""
        try:
            fcntl.flock(waiting, lock)
            locked.set()
        finally:
            os.close(waiting)

    threading.Thread(target=wait, daemon=True).start()
    if not locked.wait(_PATIENCE):
        raise TimeoutError(f"journal {name}: another process has locked it for {_PATIENCE:g} seconds")


def _parse(data: bytes) -> _State:
    """The _State in the bytes of a journal."""
    if b"\r\n" in data:
        raise JournalError("its line ends are CR LF, as an editor or git may have made them")
    *lines, tail = data.split(b"\n")
    if len(lines) < 2:
        raise JournalError("it has no complete beginning")
    header, seal, *rest = lines
    terms, digest = _record(header, "", 1)
    if terms.get("format") != _FORMAT:
        raise JournalError(f"its format is {terms.get('format')!r}, and {_FORMAT!r} is known")
    charges, digests = [], [digest]
    for number, line in enumerate(rest, start=3):
        record, digest = _record(line, digest, number)
        charges.append(_kept(record, number))
        digests.append(digest)
    sealed = int(seal[:12]) if seal[:12].isdigit() else -1
    if seal + b"\n" != _seal(sealed, seal[13:77].decode("ascii", "replace")):
        raise JournalError("line 2, the seal, is damaged")
    if len(charges) < sealed:
        raise JournalError(f"it is cut off: {sealed} charges were allowed, and {len(charges)} are there")
    if len(charges) > sealed + bool(not tail) or seal[13:77].decode() != digests[sealed]:
        raise JournalError("seal and charges are not of the same time")
    return _State(header, tuple(charges), tuple(digests), sealed, len(data) - len(tail))


def _kept(record: dict[str, Any], number: int) -> Charge:
    """The Charge of a line."""
    try:
        charge = Charge(**record)
        between(0.0, math.inf, charge=dataclasses.astuple(charge)[1:])
    except (TypeError, ValueError):
        raise JournalError(f"line {number} is not a charge") from None
    return charge


def _append(file: FileIO, state: _State, charge: Charge) -> None:
    """Write a charge behind the last whole line, then the seal, each on the disk before what follows."""
    if len(state.charges) > state.sealed:  # a crash came between the two
        _write(file, _seal(len(state.charges), state.digests[-1]), len(state.header) + 1)
    line, digest = _line(dataclasses.asdict(charge), state.digests[-1])
    file.truncate(state.end)
    _write(file, line, state.end)
    _write(file, _seal(len(state.charges) + 1, digest), len(state.header) + 1)


def _write(file: FileIO, data: bytes, place: int) -> None:
    """Put the data there, and on the disk."""
    file.seek(place)
    while data:
        data = data[file.write(data) :]
    os.fsync(file.fileno())


def _line(record: dict[str, Any], previous: str) -> tuple[bytes, str]:
    """A line for the record, and its digest over the record and all lines before."""
    text = json.dumps(record)
    digest = hashlib.sha256((previous + text).encode()).hexdigest()
    return f"{text}\t{digest}\n".encode(), digest


def _record(line: bytes, previous: str, number: int) -> tuple[dict[str, Any], str]:
    """The record of a line, and its digest."""
    text, _, digest = line.partition(b"\t")
    if hashlib.sha256(previous.encode() + text).hexdigest().encode() != digest:
        raise JournalError(f"line {number} is damaged")
    return json.loads(text), digest.decode()


def _seal(count: int, digest: str) -> bytes:
    """The second line, always as long: the number of charges, and the digest of the last of them."""
    text = f"{count:012d}\t{digest}"
    return f"{text}\t{hashlib.sha256(text.encode()).hexdigest()}\n".encode()
