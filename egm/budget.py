"""Keep a privacy budget for several releases from the same data, on disk.

A `Budget` is a total: rho of zero-concentrated differential privacy, or (epsilon, delta).
`Budget.release` charges a release and then makes it; a release that does not fit is refused with
`BudgetExceeded`.

Three things a user must know:

1. A mistake in public matters (the mechanism, the type or the shape of the data) costs nothing. The
   charge is recorded before any value of the data is read, and it stays if the release then fails,
   for example because of a NaN: such an error says something about the data.
2. A total (epsilon, delta) is counted by one rule: "gaussian", "zcdp", "basic" or "planned". The
   rule must be public before the first release. By the first three, every release may be chosen
   after seeing those before it.
3. With a path, the charges are kept in a journal, a text file that survives a crash and that
   several processes can share. No file can tell that an older copy of it was put back.

The Notes of `Budget` say what the rules add up, why that is private, and how rounding is paid for.
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
_POINTS = 1e8  # points of a quantile's lattice: more than fit into memory
_UP = 1 + 1e-12  # factor by which a computed bound is rounded up
_FORMAT = "egm budget 1"
_PATIENCE = 60.0  # seconds to wait for a lock: a charge takes milliseconds

Rule: TypeAlias = Literal["gaussian", "zcdp", "basic", "planned"]
Mechanism: TypeAlias = LaplaceMechanism | GaussianMechanism | EllipticalGaussianMechanism
DataMechanism: TypeAlias = GaussianDataMechanism | AdaptiveDataMechanism
Spent: TypeAlias = Any  # a float if the total is rho, a Loss if it is (epsilon, delta)
Cost: TypeAlias = float | Fraction
Charges: TypeAlias = "Sequence[Charge]"


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
    """Cost of one release in every unit that a rule may add up; infinite where it is not known.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism.
    rho : float
        Cost in zero-concentrated differential privacy (zCDP).
    mu_squared : float
        Square of the parameter mu of Gaussian differential privacy.
    epsilon : float
        Epsilon of the release alone.
    delta : float
        Delta of the release alone.

    See Also
    --------
    Budget.charge : Records a charge, and returns it.

    Examples
    --------
    >>> from egm import LaplaceMechanism
    >>> from egm.budget import Budget
    >>> charge = Budget(epsilon=1).charge(LaplaceMechanism(sensitivity=1.0, epsilon=0.25))
    >>> charge.mechanism, charge.epsilon, charge.delta, charge.rho
    ('LaplaceMechanism', 0.25, 0.0, 0.03125)
    """

    mechanism: str
    rho: float
    mu_squared: float
    epsilon: float
    delta: float


class BudgetExceeded(ValueError):
    """Error for a release that was refused because it does not fit; no data were read.

    Parameters
    ----------
    message : str
        Text of the error.
    asked : Charge
        Cost of the release that was refused.
    left : float or Loss
        Value of `Budget.left` when it was refused.

    Attributes
    ----------
    asked : Charge
        Cost of the release that was refused.
    left : float or Loss
        Value of `Budget.left` when it was refused.

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


class JournalError(ValueError):
    """Error for a journal that is damaged, gone, or not the one that was opened.

    It cannot be known from such a journal what was spent, and so nothing is granted.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from egm.budget import Budget, JournalError
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "survey.budget"
    ...     _ = path.write_text("notes of a meeting")
    ...     try:
    ...         Budget(path)
    ...     except JournalError:
    ...         print("refused")
    refused
    """


class Budget:
    r"""Privacy budget for all releases from one data set: a total rho of zCDP, or a total (epsilon, delta).

    Parameters
    ----------
    path : str or path-like, optional
        Place of the journal, the file in which the charges are kept. If there is no such file, a
        new journal is made. By default the charges are kept in memory, for the process that made
        the budget.
    rho : float, optional
        Total in zero-concentrated differential privacy (zCDP), > 0. A budget has either this total
        or `epsilon`.
    epsilon : float, optional
        Total epsilon, from 1e-80 to 1e80.
    delta : float, optional
        Total delta that goes with `epsilon`: 0, the default, or from 1e-300 and below 1.
    neighbors : {"replace_one", "add_remove"}, optional
        Neighbor relation of all releases, by default "replace_one". A mechanism that takes a
        sensitivity must have been given the sensitivity for this relation.
    rule : {"gaussian", "zcdp", "basic", "planned"}, optional
        Rule by which charges are added up to a total (epsilon, delta); see Notes. By default the
        first charge decides: "gaussian" for Gaussian noise, "basic" for a Laplace mechanism or a
        quantile and wherever `delta` is 0, "zcdp" for an `AdaptiveDataMechanism`. Where rounding
        would cost half of `delta` or more under "gaussian", "zcdp" takes its place.
    simulation : bool, optional
        True for a budget of rehearsals: each release is then a simulation by an rng, and is charged
        like a real one. False (the default) for a budget that refuses an rng, because a simulation
        of private data gives them away. The journal says which of the two it is.

    Raises
    ------
    ValueError
        If a number is out of range, if the total is missing or stated in both ways, if a rule does
        not go with the total, or if an argument differs from what an existing journal says. For an
        existing journal, every argument but `path` may be left out.
    TypeError
        If an argument is not of the right type.
    JournalError
        If the journal is damaged.
    OSError
        If there can be no such file.
    TimeoutError
        If another process holds the lock of the journal for a minute.
    RuntimeError
        From every method, if a budget in memory is used in a forked process: it belongs to the
        process that made it.

    Notes
    -----
    All releases that a budget grants are together as private as its total says, for its neighbor
    relation: rho-zCDP, or (epsilon, delta)-differential privacy, up to the rounding of sums
    described below. This holds also if each release, its mechanism and its cost are chosen after
    seeing the releases before it; only the rule "planned" demands more (see below).

    **Rules.** A release adds its cost to the costs before it, and is refused if the sum would
    exceed the total. A total rho is always counted by "zcdp".

    - "zcdp" adds up :math:`\rho`. Gaussian noise of multiplier z costs :math:`1 / (2 z^2)`, also if
      it is discrete ([1]_, Theorem 14). An :math:`\varepsilon`-private mechanism costs
      :math:`\varepsilon^2 / 2` ([2]_, Proposition 1.4), a quantile :math:`\varepsilon^2 / 8` for
      each column, and an `AdaptiveDataMechanism` its rho. OpenDP converts the sum to (epsilon,
      delta).
    - "gaussian" adds up :math:`\mu^2 = 1 / z^2`. The releases together are as private as one
      Gaussian mechanism with that sum ([3]_, Corollary 3.3), so the exact curve of
      `egm.calibration` converts it. An :math:`\varepsilon`-private mechanism costs

      .. math:: \mu = 2 \Phi^{-1}\left(\frac{e^\varepsilon}{1 + e^\varepsilon}\right).

      The normal trade-off curve of this :math:`\mu` is convex, and it meets the piecewise linear
      curve of :math:`\varepsilon`-privacy at both ends and at its kink, so it lies below that
      curve.
    - "basic" adds up epsilon and delta, each by itself ([4]_, Theorem 3.16).
    - "planned" takes the smallest result of all these rules. It also tries to add up the epsilons
      of the pure mechanisms (those with delta = 0), and to add this sum to what another rule finds
      for the rest. It is valid only if the mechanisms were fixed before the first release; only the
      data they are applied to may depend on releases.

    **Why releases may be chosen one after the other.** The proof is by induction on the number of
    releases still to come. The cost c of the next one is fixed, whatever its answer is; the
    releases after it may cost the total less c, and have that privacy by induction; composition
    adds the two. So each of the first three rules is a privacy filter: [5]_ for zCDP, [6]_ for
    Gaussian privacy, [7]_ for "basic".

    **Why the rule must be public before the first release.** Taking the smallest result of several
    rules is not itself a valid rule. An analyst who chooses the rule after seeing releases can
    spend up to the sum of the rules' deltas. For example, after a Gaussian release of (0.1, 1e-6)
    out of a total of (1, 1e-6), an analyst who then chooses between "gaussian" and "basic" for the
    rest gets to a delta of more than 1.7e-6. Therefore the rule is an argument or follows from the
    first mechanism. Two exceptions cost nothing. A first mechanism that by itself is (epsilon,
    delta)-private may be the only one. Releases that are all without delta may add up their
    epsilons, because this event has no share of delta to add.

    **Rounding.** Costs are rounded up and added up as exact fractions. A single charge may not
    exceed the total. A sum of several may exceed it by a factor :math:`1 + 2^{-51}`, which is
    within the digits of doubles, so that ten charges of 0.1 fit into 1.0. Under "gaussian", a
    twelfth of (epsilon, delta) is the result of several conversions, each of them rounded. To pay
    for them, Gaussian noise is drawn larger by :math:`2^{-30}` of itself than the mechanism says
    (`egm._rows.lattice.EXCESS`), and several charges are granted if they fit for noise that is larger by
    :math:`2^{-31}`. So no total is exceeded. Under "gaussian" delta also pays for the noise being
    discrete. What is reserved for that is enough for :math:`2^{20}` releases of fewer than
    :math:`2^{24}` coordinates each, and so a budget takes no more.

    **Journal.** The journal is a text file: the terms, a seal, and one line for each charge with a
    SHA-256 digest of this line and all lines before it. A charge is on the disk before the data are
    read, so a crash can waste budget and can never exceed it. The seal holds the number of charges
    that were ever allowed, and is written after their lines. Therefore a line that is cut off
    either was never allowed, and is dropped, or the file is damaged, and is refused. Processes take
    turns by a lock (flock), and each reads what the others have spent. Only the owner may read a
    new journal, because whoever can open it can lock it. If the journal is replaced by another file
    while it is locked, this is noticed when the charge is written, and nothing is granted. No file
    can tell that an older copy of it was put back.

    References
    ----------
    .. [1] Canonne, Kamath and Steinke (2020), "The Discrete Gaussian for Differential Privacy".
    .. [2] Bun and Steinke (2016), "Concentrated Differential Privacy: Simplifications, Extensions, and Lower Bounds".
    .. [3] Dong, Roth and Su (2022), "Gaussian Differential Privacy".
    .. [4] Dwork and Roth (2014), "The Algorithmic Foundations of Differential Privacy".
    .. [5] Feldman and Zrnic (2021), "Individual Privacy Accounting via a Rényi Filter".
    .. [6] Smith and Thakurta (2022), "Fully Adaptive Composition for Gaussian Differential Privacy".
    .. [7] Rogers, Roth, Ullman and Vadhan (2016), "Privacy Odometers and Filters: Pay-as-you-Go Composition".

    Examples
    --------
    Four Gaussian releases of epsilon = 0.4 each are together much cheaper than epsilon = 1.6:

    >>> from egm import GaussianMechanism
    >>> from egm.budget import Budget
    >>> budget = Budget(epsilon=1, delta=1e-6)
    >>> charges = [budget.charge(GaussianMechanism(1.0, 0.4, 1e-6)) for _ in range(4)]
    >>> budget.rule, round(budget.spent.epsilon, 4)
    ('gaussian', 0.8408)
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
        """Total rho, or None for a total (epsilon, delta)."""
        return self._terms.rho

    @property
    def epsilon(self) -> float | None:
        """Epsilon of the total, or None for a total rho."""
        return self._terms.epsilon

    @property
    def delta(self) -> float | None:
        """Delta of the total, or None for a total rho."""
        return self._terms.delta

    @property
    def neighbors(self) -> Neighbors:
        """Neighbor relation of all releases, "replace_one" or "add_remove"."""
        return self._terms.neighbors

    @property
    def simulation(self) -> bool:
        """Whether the budget is for simulations only."""
        return self._terms.simulation

    @property
    def rule(self) -> Rule | None:
        """Rule by which charges are added up, or None if the total is rho or no charge has decided yet."""
        return self._terms.rule_for(self.history)

    @property
    def history(self) -> tuple[Charge, ...]:
        """All charges so far, as a tuple of `Charge` in the order in which they were granted."""
        return self._store.read()

    @property
    def spent(self) -> Spent:
        """Cost of all charges together: rho, or the `Loss` by the rule. It is never more than the total."""
        return self._terms.spent(self.history)

    @property
    def left(self) -> Spent:
        """Largest cost of one more release: rho, or the `Loss` of a `GaussianMechanism` that would be granted.

        The `Loss` has delta 0 where only pure mechanisms can follow.
        """
        return self._terms.left(self.history)

    def split(self, parts: int) -> Spent:
        """Return the cost of each of several equal releases, such that all of them are granted.

        Parameters
        ----------
        parts : int
            Number of releases, >= 1.

        Returns
        -------
        float or Loss
            Cost rho of each release, or the `Loss` of each `GaussianMechanism`; where only pure
            mechanisms can follow, the `Loss` of each `LaplaceMechanism`, with delta 0. Under
            "gaussian", "zcdp" and "planned" epsilon is found by bisection: it is too small by at
            most 1e-12 of the total epsilon, and 0 where it would be less than about 1e-9 of the
            total epsilon divided by `parts`.

        Raises
        ------
        ValueError
            If `parts` is not a whole number >= 1.

        Examples
        --------
        >>> from egm.budget import Budget
        >>> each = Budget(epsilon=1, delta=1e-6).split(12)
        >>> round(each.epsilon, 4), each.delta
        (0.2642, 1e-06)
        """
        return self._terms.left(self.history, count(parts=parts))

    def charge(self, mechanism: Mechanism | DataMechanism) -> Charge:
        """Record a release by a mechanism, without making it.

        Parameters
        ----------
        mechanism : mechanism of `egm.mechanisms`, or AdaptiveDataMechanism
            Mechanism of the release.

        Returns
        -------
        Charge
            Cost that was recorded. The release is allowed once this method returns.

        Raises
        ------
        BudgetExceeded
            If the release does not fit, or if :math:`2^{20}` releases were charged already. Nothing
            is recorded then.
        ValueError
            If the mechanism is for another neighbor relation, or has :math:`2^{24}` coordinates or
            more.
        TypeError
            If `mechanism` is not a mechanism of egm.

        See Also
        --------
        Budget.release : Charges a release and makes it.

        Examples
        --------
        >>> from egm import GaussianDataMechanism
        >>> from egm.budget import Budget
        >>> budget = Budget(rho=0.5)
        >>> charge = budget.charge(GaussianDataMechanism([18, 1200, 3], n=10_000, epsilon=1, delta=1e-6))
        >>> round(charge.rho, 3), round(budget.left, 3)
        (0.028, 0.472)
        """
        return self._grant(_charge(mechanism, self.neighbors))

    def _grant(self, asked: Charge) -> Charge:
        """Record a `Charge`, or raise `BudgetExceeded`."""
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
        """Charge a release by a mechanism, then make it.

        Parameters
        ----------
        mechanism : mechanism of `egm.mechanisms`, or AdaptiveDataMechanism
            Mechanism of the release.
        X : array_like
            Data as `mechanism.release` takes them. They are not changed.
        rng : numpy.random.Generator, optional
            Source of simulated noise, required for a budget that was made for simulation and
            refused by any other.

        Returns
        -------
        Release or AdaptiveRelease
            Result of `mechanism.release(X, rng=rng)`.

        Raises
        ------
        BudgetExceeded
            If the release does not fit. Nothing is recorded then.
        ValueError
            If `rng` is given where it must not be or missing where it must be, or from
            `Budget.charge`, from `mechanism.check`, or from `mechanism.release`.
        TypeError
            If `rng` is not a Generator, or from these three methods.

        Notes
        -----
        First `mechanism.check(X)` compares what is public, the mechanism and the type and shape of
        `X`; then the charge is recorded; only then are values of `X` read, by `mechanism.release`.
        An error before the charge costs nothing. If the release fails after the charge, the charge
        stays, because a value that was read may have caused the error. A `GaussianMechanism` takes
        fewer than :math:`2^{24}` entries here.

        Examples
        --------
        A rehearsal with simulated data:

        >>> import numpy as np
        >>> from egm import GaussianDataMechanism
        >>> from egm.budget import Budget
        >>> rng = np.random.default_rng(1)
        >>> sigma = [18, 1200, 3]  # of age, income and visits
        >>> X = rng.normal([45, 2400, 6], sigma, size=(10_000, 3))
        >>> mechanism = GaussianDataMechanism(sigma, n=10_000, epsilon=0.5, delta=1e-6, center=[40, 2000, 5])
        >>> budget = Budget(epsilon=1, delta=1e-6, simulation=True)
        >>> release = budget.release(mechanism, X, rng=rng)
        >>> release.estimate.shape
        (3,)
        >>> budget.left.epsilon < 1
        True
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
        if unbounded:  # the entries of a list are counted only when it may be read
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
        r"""Charge a private quantile, then compute it by `egm.quantiles.secure_quantile`.

        Parameters
        ----------
        values : array_like, shape (n,) or (n, k)
            Numbers of which the quantile is taken, for each column. The number n is public, and a
            neighbor has one row replaced. A list is one column.
        q : float
            Level of the quantile, in (0, 1).
        low : float
            Lower end of the range in which the quantile is looked for, in the units of `values`.
        high : float
            Upper end of this range, above `low`.
        epsilon : float
            Privacy of the quantile of each column, > 0.
        step : float
            Distance of the points among which the answer is drawn, > 0, in the units of `values`;
            at most 1e8 of them between `low` and `high`.
        rng : numpy.random.Generator, optional
            Source of simulated noise, required for a budget that was made for simulation and
            refused by any other. The simulation is `egm.quantiles.quantile`.

        Returns
        -------
        float or ndarray, shape (k,)
            Private quantile, one for each column.

        Raises
        ------
        BudgetExceeded
            If the quantile does not fit. Nothing is recorded then.
        ValueError
            If an argument is out of range, if the neighbor relation of the budget is not
            "replace_one", or if `rng` is given where it must not be or missing where it must be.
        TypeError
            If `values` are not numbers, or if `rng` is not a Generator.

        Notes
        -----
        The cost is `epsilon` for each column, or :math:`\varepsilon^2 / 8` of rho for each (see
        `egm.quantiles.epsilon_of_rho`). A mistake in any argument costs nothing, except one that only
        the numbers in `values` show: they are read after the charge.

        Examples
        --------
        >>> import numpy as np
        >>> from egm.budget import Budget
        >>> ages = np.random.default_rng(1).normal(45, 18, size=10_000)
        >>> budget = Budget(epsilon=1, delta=1e-6)
        >>> median = budget.quantile(ages, 0.5, low=0, high=120, epsilon=0.4, step=1)
        >>> budget.left
        Loss(epsilon=0.6, delta=1e-06)
        """
        self._require_kind(rng)
        shape = unread(values=values)
        self._grant(_quantile_charge(shape or (), q, low, high, epsilon, step, self.neighbors))
        if isinstance(values, list | tuple):  # a list was charged for one column
            _require_flat(values)
        if rng is not None:
            return quantile(values, q, low, high, epsilon, rng)  # type: ignore[no-any-return]  # a float or an array
        return secure_quantile(values, q, low, high, epsilon, step)

    def _require_kind(self, rng: Rng | None) -> None:
        """Require an rng for a budget that is for simulation, and none for any other."""
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
    """Return the `Charge` of a mechanism, which must be for this neighbor relation."""
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
    """Check the arguments of a quantile of values of this shape, and return its `Charge`."""
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
    """Raise a ValueError for a list that is more than one column, which only its entries tell."""
    if any(np.ndim(value) for value in values):
        raise ValueError("values must be one column if they are a list; give several as an array (n, k)")


def _require_room(X: ArrayLike) -> None:
    """Raise a ValueError for more entries than the rounding is charged for."""
    entries = math.prod(np.shape(X))  # of an array without a look at it
    if entries >= _ENTRIES:
        raise ValueError(f"X must have less than {_ENTRIES} entries, got {entries}")


def _pure_mu_squared(epsilon: float) -> float:
    """Return (2 Phi^-1(e^epsilon / (1 + e^epsilon)))**2, the cost of an epsilon-private mechanism, rounded up."""
    mu = math.sqrt(8) * erfinv(math.tanh(epsilon / 2)) if epsilon < 1 else -2 * ndtri_exp(log_expit(-epsilon))
    with np.errstate(over="ignore"):
        return float(np.float64(mu) ** 2 * _UP)


def _sum(values: Iterable[Any]) -> Cost:
    """Return the exact sum of numbers >= 0, a Fraction or inf."""
    values = list(values)
    return math.inf if math.inf in values else sum(map(Fraction, values), Fraction())


def _up(number: Cost) -> float:
    """Return the least double that is not below the number."""
    try:
        nearest = float(number)
    except OverflowError:
        return math.inf
    return nearest if nearest >= number else math.nextafter(nearest, math.inf)


def _down(number: Cost) -> float:
    """Return the largest double that is not above the number, or 0 for a negative one."""
    return -_up(-number) if number > 0 else 0.0


def _within(number: Cost, total: float, several: bool) -> bool:
    """Tell whether a cost fits into the total; the sum of several may exceed it by a factor 1 + 2^-51.

    The factor covers the rounding of doubles, so that ten charges of 0.1 fit into 1.0.
    """
    return number <= (Fraction(total) * (1 + Fraction(1, 1 << 51)) if several else total)


# Rules ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Terms:
    """Total of a budget, and the rules by which costs are added up to it."""

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
        """Return the rule, which the first charge decides if the terms do not."""
        if self.rho is not None or self.rule or not charges:
            return self.rule
        if self.delta == 0 or _is_pure(charges[0]):
            return "basic"
        return "gaussian" if charges[0].mu_squared < math.inf and self._reserve < self.delta / 2 else "zcdp"

    def grants(self, charges: Charges, asked: Charge) -> bool:
        """Tell whether one more charge fits after the charges so far."""
        return len(charges) < _CHARGES and self._holds((*charges, asked))

    def refusal(self, charges: Charges, asked: Charge) -> BudgetExceeded:
        """Return the `BudgetExceeded` for a charge that does not fit after the charges so far."""
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
        """Return the value of `Budget.spent` for these charges."""
        if self.rho is not None:
            return min(_up(_sum(charge.rho for charge in charges)), self.rho)
        epsilon, delta = min(self._granted(charges), default=(self.epsilon, self.delta))
        return Loss(min(_up(epsilon), self.epsilon), min(_up(delta), self.delta))

    def left(self, charges: Charges, parts: int = 1) -> Spent:
        """Return the value of `Budget.left` for these charges, or of `Budget.split` for several parts."""
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
        """Find by bisection the largest epsilon for which several more GaussianMechanisms would be granted.

        Each of these `parts` mechanisms has the total's delta.
        """
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
        """Tell whether these charges together are within the total."""
        if self.rho is not None:
            return _within(_sum(charge.rho for charge in charges), self.rho, len(charges) > 1)
        return next(self._granted(charges, excess), None) is not None

    def _granted(self, charges: Charges, excess: float = EXCESS / 2) -> Iterator[tuple[Cost, Cost]]:
        """Yield those results of `_losses` that are within the total.

        Several charges count as if Gaussian noise were larger by the share `excess`: part of what
        it really is larger by.
        """
        total, several = (self.epsilon, self.delta), len(charges) > 1
        fits = functools.partial(_within, several=several)
        both = zip(self._losses(charges), self._losses(charges, excess if several else 0.0), strict=True)
        return (loss for loss, drawn in both if all(map(fits, drawn, total)))

    def _losses(self, charges: Charges, excess: float = 0.0) -> Iterator[tuple[Cost, Cost]]:
        """Yield each (epsilon, delta) of these charges together that is valid by the rule."""
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
        """Return the epsilon of the charges as one Gaussian mechanism, at the delta that rounding leaves."""
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
        """Return the part of delta that pays for discrete noise under the rule "gaussian"."""
        # A rounded Gaussian r and the discrete Gaussian p of standard deviation s (see egm._rows.lattice) have the
        # Kullback-Leibler divergence KL(r, p) <= chi^2(r, p) <= (1 / 64 + 3 / 64) s^-4 (1 + o(1)) <= s^-4 / 15.
        # Divergences add up over coordinates and over releases, also if each release is chosen by those before. Here s
        # is at least 2^40 z or 2^55. So for 2^24 coordinates and 2^20 releases with a sum M of mu^2 they add up to at
        # most 2^24 (2^-160 M^2 + 2^-200) / 15. By Pinsker's inequality the releases are within 2^-70 M + 2^-90 of
        # rounded Gaussians in total variation. That, times 1 + e^epsilon, is taken off delta. The other rules do not
        # need it.
        if not self.delta:
            return 0.0
        largest = float(analytic_noise_multiplier(self.epsilon, self.delta)) ** -2
        return (1 + math.exp(min(self.epsilon, 700.0))) * (2.0**-70 * largest + 2.0**-90) * _UP

    def _by_zcdp(self, charges: Charges) -> float:
        """Return the epsilon of the rho that the charges add up to, as OpenDP converts it."""
        rho = _up(_sum(charge.rho for charge in charges))
        if not charges:
            return 0.0
        return math.inf if not self.delta or rho > 1e50 else _opendp_epsilon(max(rho, 1e-100), self.delta)


def _show(cost: Spent, rho: float | None = None) -> str:
    """Return a cost in words: rho, or epsilon and delta unless epsilon is unknown."""
    if isinstance(cost, Loss) and (rho is None or cost.epsilon < math.inf):
        return f"epsilon = {cost.epsilon!r}, delta = {cost.delta!r}"
    return f"rho = {cost if rho is None else rho!r}"


def _is_pure(charge: Charge) -> bool:
    """Tell whether a charge has an epsilon without a delta."""
    return charge.delta == 0 and charge.epsilon < math.inf


def _basic(charges: Charges) -> tuple[Cost, Cost]:
    """Return the sums of epsilon and of delta."""
    return _sum(charge.epsilon for charge in charges), _sum(charge.delta for charge in charges)


@functools.lru_cache(maxsize=256)
def _opendp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon that OpenDP finds for rho-zCDP at this delta, by way of discrete Gaussian noise."""
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
    """Check the arguments of a budget, and return them as a dictionary of the fields of `_Terms`.

    An argument that was not given is None there.
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
    """Return the place of a journal as a Path."""
    try:
        return Path(os.fsdecode(path))
    except TypeError:
        raise TypeError(f"path must be a string, a path or None, got {path!r}") from None


def _one_of(allowed: Sequence[str], **named: object) -> None:
    """Raise ValueError unless the argument is None or one of the allowed strings."""
    ((name, value),) = named.items()
    if value is not None and not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def _complete(terms: dict[str, Any], what: str) -> None:
    """Fill in the neighbor relation and the kind of a new budget, which must have a total."""
    if terms["rho"] is None and terms["epsilon"] is None:
        raise ValueError(f"rho or epsilon must be given for {what}")
    terms["neighbors"] = terms["neighbors"] or _RELATIONS[0]
    terms["simulation"] = bool(terms["simulation"])


# Where charges are kept -----------------------------------------------------------------------------------------------


class _Memory:
    """List of charges in memory, for the process that made it."""

    name = "in memory"

    def __init__(self, terms: _Terms) -> None:
        self.terms, self._lock, self._process = terms, threading.Lock(), os.getpid()
        self._charges: list[Charge] = []

    def read(self) -> tuple[Charge, ...]:
        """Return the charges."""
        self._require_process()
        return tuple(self._charges)

    @contextlib.contextmanager
    def changing(self) -> Iterator[tuple[tuple[Charge, ...], Callable[[Charge], None]]]:
        """Give the charges and a function that appends one, for this thread alone until the context ends."""
        self._require_process()
        with self._lock:

            def record(charge: Charge) -> None:
                self._require_process()  # a handler of signals may have forked
                self._charges.append(charge)

            yield tuple(self._charges), record

    def _require_process(self) -> None:
        """Raise an error in a forked process, whose copy would be a second budget."""
        if os.getpid() != self._process:
            raise RuntimeError("a budget in memory is for the process that made it, not for its forks; give it a path")


@dataclass(frozen=True)
class _State:
    """Content of a journal: its header, its charges, and where its last whole line ends.

    `digests` are those of the header and of each charge; `sealed` is the number of charges that the
    seal allows.
    """

    header: bytes
    charges: tuple[Charge, ...]
    digests: tuple[str, ...]
    sealed: int
    end: int


class _Journal:
    """File with a header, a seal and the charges, one line each.

    The seal is overwritten in place, and everything else is appended.
    """

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
        """Return the charges."""
        with self._open(fcntl.LOCK_SH) as file:
            return self._read(file).charges

    @contextlib.contextmanager
    def changing(self) -> Iterator[tuple[tuple[Charge, ...], Callable[[Charge], None]]]:
        """Give the charges and a function that appends one, for this process and thread alone."""
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
        """Make a new journal, which is complete before it gets its name, unless another process was faster."""
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
        except OSError as error:  # the error names the draft
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
        """Open the file that has the journal's name now, locked until the context ends."""
        while True:
            with self._opened(lock) as file:
                _lock(file, lock, self.name)
                try:
                    if self._is_here(file):  # if not, it was replaced before it was locked: open the new one
                        yield file
                        return
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)  # a fork may have the file open, too

    def _opened(self, lock: int) -> FileIO:
        """Open the file, which must be a regular one."""
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise JournalError(f"journal {self.name}: it is not a regular file")
            handle = os.open(self.path, os.O_RDWR if lock == fcntl.LOCK_EX else os.O_RDONLY)
        except FileNotFoundError:
            raise JournalError(f"journal {self.name}: it is gone, and with it what was spent") from None
        return open(handle, "r+b" if lock == fcntl.LOCK_EX else "rb", buffering=0)

    def _is_here(self, file: FileIO) -> bool:
        """Tell whether the open file is the one that has the journal's name now."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _read(self, file: FileIO) -> _State:
        """Return the `_State` of the file, or raise JournalError unless all of it is as it was written."""
        try:
            state = _parse(file.read())
        except JournalError as error:
            raise JournalError(f"journal {self.name}: {error}") from None
        if self._header not in (None, state.header):
            raise JournalError(f"journal {self.name}: it is another one than before")
        return state


def _lock(file: FileIO, lock: int, name: str) -> None:
    """Lock the file, or raise TimeoutError if others hold its lock for too long."""
    with contextlib.suppress(BlockingIOError):
        return fcntl.flock(file, lock | fcntl.LOCK_NB)
    waiting, locked = os.dup(file.fileno()), threading.Event()

    def wait() -> None:
        """Wait for the lock until the system gives it.

        If nobody waits for it any more, closing the file gives it back.
        """
        try:
            fcntl.flock(waiting, lock)
            locked.set()
        finally:
            os.close(waiting)

    threading.Thread(target=wait, daemon=True).start()
    if not locked.wait(_PATIENCE):
        raise TimeoutError(f"journal {name}: another process has locked it for {_PATIENCE:g} seconds")


def _parse(data: bytes) -> _State:
    """Return the `_State` in the bytes of a journal."""
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
    """Return the `Charge` that a line of the journal holds."""
    try:
        charge = Charge(**record)
        between(0.0, math.inf, charge=dataclasses.astuple(charge)[1:])
    except (TypeError, ValueError):
        raise JournalError(f"line {number} is not a charge") from None
    return charge


def _append(file: FileIO, state: _State, charge: Charge) -> None:
    """Write a charge behind the last whole line and then the seal, each on the disk before the next step."""
    if len(state.charges) > state.sealed:  # a crash came between charge and seal
        _write(file, _seal(len(state.charges), state.digests[-1]), len(state.header) + 1)
    line, digest = _line(dataclasses.asdict(charge), state.digests[-1])
    file.truncate(state.end)
    _write(file, line, state.end)
    _write(file, _seal(len(state.charges) + 1, digest), len(state.header) + 1)


def _write(file: FileIO, data: bytes, place: int) -> None:
    """Put the data at this place of the file, and on the disk."""
    file.seek(place)
    while data:
        data = data[file.write(data) :]
    os.fsync(file.fileno())


def _line(record: dict[str, Any], previous: str) -> tuple[bytes, str]:
    """Return a line for the record, and its digest over the record and all lines before."""
    text = json.dumps(record)
    digest = hashlib.sha256((previous + text).encode()).hexdigest()
    return f"{text}\t{digest}\n".encode(), digest


def _record(line: bytes, previous: str, number: int) -> tuple[dict[str, Any], str]:
    """Return the record of a line, and its digest."""
    text, _, digest = line.partition(b"\t")
    if hashlib.sha256(previous.encode() + text).hexdigest().encode() != digest:
        raise JournalError(f"line {number} is damaged")
    return json.loads(text), digest.decode()


def _seal(count: int, digest: str) -> bytes:
    """Return the second line of a journal: the number of charges, and the digest of the last of them.

    It has the same length for every number.
    """
    text = f"{count:012d}\t{digest}"
    return f"{text}\t{hashlib.sha256(text.encode()).hexdigest()}\n".encode()
