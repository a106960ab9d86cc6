"""A privacy budget for several releases from the same data, kept on disk.

    budget = Budget("survey.budget", rho=0.5)                     # or epsilon=1, delta=1e-6
    release = budget.release(mechanism, X)                        # charged first; BudgetExceeded if it does not fit
    budget.left

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
2^-51 of the total more: what the digits of doubles leave open, so that ten tenths fill one. Discrete noise is within
(d / 4) s^-2 of a rounded Gaussian (`egm.lattice`); its standard deviation s is at least 2^40 z or 2^55, so for 2^24
coordinates and 2^20 releases all of that together is at most 2^-58 times the sum of mu^2, plus 2^-68. It is taken off
delta under "gaussian"; the other rules do not need it.

**The journal** is a text file: the terms, a seal, and a line for each charge, with SHA-256 over it and all before it.
A charge is on the disk before the data are read. A crash can therefore waste budget and never exceed it. The seal has
the number of the charges that were ever allowed, and is written after their lines: so a line that is cut off was
either never allowed, and is dropped, or the file is damaged, and is refused. Processes take turns (flock), each reads
what the others have spent. What no file can tell is that an old copy of it was put back.
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

from egm._types import ArrayLike, Neighbors, PathLike, Rows
from egm._validate import between, positive, scalar
from egm.adaptive import AdaptiveDataMechanism, AdaptiveRelease
from egm.calibration import analytic_noise_multiplier, gaussian_epsilon
from egm.mechanisms import (
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    Release,
)
from egm.noise import opendp

__all__ = ["Budget", "BudgetExceeded", "Charge", "JournalError", "Loss"]

_RULES = "gaussian", "zcdp", "basic", "planned"
_RELATIONS = "replace_one", "add_remove"
_ENTRIES, _CHARGES = 1 << 24, 1 << 20  # coordinates of a release, and releases, for which the rounding is charged
_UP = 1 + 1e-12
_FORMAT = "egm budget 1"

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
    Gaussian mechanism, "basic" for Laplace, "zcdp" for AdaptiveDataMechanism. Raises ValueError or TypeError otherwise,
    JournalError for a journal that is damaged.

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
    ) -> None:
        terms = _terms(rho, epsilon, delta, neighbors, rule)
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

    def charge(self, mechanism: Mechanism | DataMechanism) -> Charge:
        """Record a release by this mechanism, which is allowed once this returns. The Charge.

        Raises BudgetExceeded if it does not fit, and then nothing is recorded; ValueError for another neighbour
        relation; TypeError for what is not a mechanism of egm.
        """
        asked = _charge(mechanism, self.neighbors)
        with self._store.changing() as (charges, record):
            if self._terms.grants(charges, asked):
                record(asked)
                return asked
        raise self._terms.refusal(charges, asked)

    @overload
    def release(self, mechanism: AdaptiveDataMechanism, X: ArrayLike, *, rng: Rng | None = None) -> AdaptiveRelease: ...
    @overload
    def release(self, mechanism: GaussianDataMechanism, X: Rows, *, rng: Rng | None = None) -> Release: ...
    @overload
    def release(self, mechanism: Mechanism, X: ArrayLike, *, rng: Rng | None = None) -> Release: ...
    def release(
        self, mechanism: Mechanism | DataMechanism, X: Any, *, rng: Rng | None = None
    ) -> Release | AdaptiveRelease:
        """Charge, then mechanism.release(X). Without a charge if rng, a numpy Generator, makes this a simulation.

        Errors are those of both. The charge stays if the release fails: what it read may have caused that.
        """
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng must be a numpy.random.Generator or None, got {rng!r}")
        if rng is not None:
            _charge(mechanism, self.neighbors)
            return mechanism.release(X, rng=rng)
        self.charge(mechanism)
        if type(mechanism) is GaussianMechanism and np.size(X) >= _ENTRIES:
            raise ValueError(f"X must have less than {_ENTRIES} entries, got {np.size(X)}")
        return mechanism.release(X)

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

    def __str__(self) -> str:
        given = dataclasses.asdict(self).items()
        return ", ".join(f"{name}={value!r}" for name, value in given if value is not None)

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

    def left(self, charges: Charges) -> Spent:
        """Budget.left."""
        if self.rho is not None:
            return _down(Fraction(self.rho) - _sum(charge.rho for charge in charges))
        if not charges:
            return Loss(self.epsilon, self.delta)
        rule, (epsilon, delta) = self.rule_for(charges), _basic(charges)
        basic = Loss(_down(Fraction(self.epsilon) - epsilon), _down(Fraction(self.delta) - delta))
        if rule == "basic":
            return basic
        found = Loss(self._largest_epsilon(charges), self.delta)
        if rule == "planned":
            return max(found, basic)
        return max(found, Loss(basic.epsilon if all(map(_is_pure, charges)) else 0.0, 0.0))

    def _largest_epsilon(self, charges: Charges) -> float:
        """The largest epsilon for which a GaussianMechanism of the total's delta would be granted, by bisection."""
        low, high = 0.0, self.epsilon
        for _ in range(40):
            middle = (low + high) / 2
            if not low < middle < high or middle < 1e-9 * self.epsilon:
                break
            mechanism = GaussianMechanism(1.0, middle, self.delta)
            fits = self._holds((*charges, _charge(mechanism, self.neighbors)))
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _holds(self, charges: Charges) -> bool:
        """Whether these charges are within the total."""
        if self.rho is not None:
            return _within(_sum(charge.rho for charge in charges), self.rho, len(charges) > 1)
        return next(self._granted(charges), None) is not None

    def _granted(self, charges: Charges) -> Iterator[tuple[Cost, Cost]]:
        """Those of _losses that are within the total."""
        total = self.epsilon, self.delta
        fits = functools.partial(_within, several=len(charges) > 1)
        return (loss for loss in self._losses(charges) if all(map(fits, loss, total)))

    def _losses(self, charges: Charges) -> Iterator[tuple[Cost, Cost]]:
        """(epsilon, delta) of these charges together, each valid by the rule, one after the other."""
        rule, basic = self.rule_for(charges), _basic(charges)
        if rule in (None, "basic", "planned") or len(charges) == 1 or not basic[1]:
            yield basic
        if rule in ("gaussian", "planned"):
            yield self._by_gaussian(charges), self.delta
        if rule == "planned":
            pure = _sum(charge.epsilon for charge in charges if _is_pure(charge))
            rest = [charge for charge in charges if not _is_pure(charge)]
            yield _sum([pure, self._by_gaussian(rest)]), self.delta
            yield _sum([pure, self._by_zcdp(rest)]), self.delta
        if rule in ("zcdp", "planned"):
            yield self._by_zcdp(charges), self.delta

    def _by_gaussian(self, charges: Charges) -> float:
        """The epsilon of the Gaussian mechanism that the charges add up to, at the delta that rounding leaves."""
        mu_squared, delta = _up(_sum(charge.mu_squared for charge in charges)), self.delta - self._reserve
        if mu_squared == 0:
            return 0.0
        if mu_squared > 1e200 or delta < self.delta / 2 or delta <= 0:
            return math.inf
        return float(gaussian_epsilon(delta, (1 - 1e-15) / math.sqrt(mu_squared)))

    @functools.cached_property
    def _reserve(self) -> float:
        """What discrete noise may add to delta under the rule "gaussian"; 2**-58 of the sum of mu**2 and 2**-68."""
        if not self.delta:
            return 0.0
        largest = float(analytic_noise_multiplier(self.epsilon, self.delta)) ** -2
        return (1 + math.exp(min(self.epsilon, 700.0))) * (2.0**-58 * largest + 2.0**-68) * _UP

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
    rho: float | None, epsilon: float | None, delta: float | None, neighbors: str | None, rule: str | None
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
    return {"rho": rho, "epsilon": epsilon, "delta": delta, "neighbors": neighbors, "rule": rule}


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
    """Fill in the relation of a new budget, which must have a total."""
    if terms["rho"] is None and terms["epsilon"] is None:
        raise ValueError(f"rho or epsilon must be given for {what}")
    terms["neighbors"] = terms["neighbors"] or _RELATIONS[0]


# Where charges are kept -----------------------------------------------------------------------------------------------


class _Memory:
    """A list."""

    name = "in memory"

    def __init__(self, terms: _Terms) -> None:
        self.terms, self._lock = terms, threading.Lock()
        self._charges: list[Charge] = []

    def read(self) -> tuple[Charge, ...]:
        """The charges."""
        return tuple(self._charges)

    @contextlib.contextmanager
    def changing(self) -> Iterator[tuple[tuple[Charge, ...], Callable[[Charge], None]]]:
        """The charges, and a function that appends one; for this thread alone until the end."""
        with self._lock:
            yield tuple(self._charges), self._charges.append


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
        terms = json.loads(self._header.split(b"\t")[0])["terms"]
        self.terms = _Terms(**terms)
        for name, value in given.items():
            if value is not None and value != terms[name]:
                raise ValueError(f"{name} must be that of the journal {self.name}, {terms[name]!r}, got {value!r}")

    def read(self) -> tuple[Charge, ...]:
        """The charges."""
        with self._open(fcntl.LOCK_SH) as file:
            return self._read(file).charges

    @contextlib.contextmanager
    def changing(self) -> Iterator[tuple[tuple[Charge, ...], Callable[[Charge], None]]]:
        """The charges, and a function that appends one; for this process and thread alone until the end."""
        with self._open(fcntl.LOCK_EX) as file:
            state = self._read(file)
            yield state.charges, lambda charge: _append(file, state, charge)

    def _create(self, terms: dict[str, Any]) -> None:
        """A new journal, complete before it has its name, unless another process was faster."""
        _complete(terms, f"a new journal, and {self.name} is none yet")
        header, digest = _line({"format": _FORMAT, "id": secrets.token_hex(8), "terms": terms}, "")
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            with open(draft, "xb", buffering=0) as file:
                _write(file, header + _seal(0, digest), 0)
            with contextlib.suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _open(self, lock: int) -> Iterator[FileIO]:
        """The file, locked until the end."""
        try:
            handle = os.open(self.path, os.O_RDWR if lock == fcntl.LOCK_EX else os.O_RDONLY)
        except FileNotFoundError:
            raise JournalError(f"journal {self.name}: it is gone, and with it what was spent") from None
        with open(handle, "r+b" if lock == fcntl.LOCK_EX else "rb", buffering=0) as file:
            fcntl.flock(file, lock)
            yield file

    def _read(self, file: FileIO) -> _State:
        """The _State of the file. Raises JournalError unless all of it is as it was written."""
        try:
            state = _parse(file.read())
        except JournalError as error:
            raise JournalError(f"journal {self.name}: {error}") from None
        if self._header not in (None, state.header):
            raise JournalError(f"journal {self.name}: it is another one than before")
        return state


def _parse(data: bytes) -> _State:
    """The _State in the bytes of a journal."""
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
        charges.append(Charge(**record))
        digests.append(digest)
    sealed = int(seal[:12]) if seal[:12].isdigit() else -1
    if seal + b"\n" != _seal(sealed, seal[13:77].decode("ascii", "replace")):
        raise JournalError("line 2, the seal, is damaged")
    if len(charges) < sealed:
        raise JournalError(f"it is cut off: {sealed} charges were allowed, and {len(charges)} are there")
    if len(charges) > sealed + bool(not tail) or seal[13:77].decode() != digests[sealed]:
        raise JournalError("seal and charges are not of the same time")
    return _State(header, tuple(charges), tuple(digests), sealed, len(data) - len(tail))


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
