"""Define the class `Budget`: a release is made after the modules `rules` and `journal` compute and record its cost."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any, overload

import numpy as np
from numpy.random import Generator as Rng

from egm._budget import drawn, rules
from egm._budget.journal import Journal, Memory
from egm._budget.rules import Charge, DataMechanism, Mechanism, Rule, Spent
from egm._types import ArrayLike, Floats, Neighbors, PathLike, RowSource
from egm._validate import count, finite, unread
from egm.adaptive import AdaptiveDataMechanism, AdaptiveRelease
from egm.mechanisms import (
    DataRelease,
    GaussianDataMechanism,
    GaussianMechanism,
    GroupedDataMechanism,
    GroupedRelease,
    Release,
)
from egm.quantiles import quantile, secure_quantile


class Budget:
    r"""Privacy budget for all releases from one data set: a total rho of zCDP, or a total (epsilon, delta).

    Parameters
    ----------
    path : str or path-like, optional
        Path of the journal, the file in which the charges (the costs of the releases) are kept. If
        there is no such file, a new journal is made. By default the charges are kept in memory, for
        this process alone.
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
        Rule by which charges are added up to a total (epsilon, delta); see Notes. The default is
        "basic" if `delta` is 0. Otherwise the first charge decides: "basic" for a Laplace
        mechanism, a quantile or a release from a sample, "zcdp" for an `AdaptiveDataMechanism`, and
        "gaussian" for any other mechanism (with a rare exception; see Rounding in the Notes).
    simulation : bool, optional
        True for a rehearsal, in which each release is a simulation and needs an rng. False (the
        default) for a budget that refuses an rng, because a simulated release of private data
        reveals them. The journal keeps this choice.

    Raises
    ------
    ValueError
        If a number is out of range, if the total is missing or given in both ways, if a rule does
        not suit the total, or if an argument differs from that of an existing journal. For an
        existing journal, every argument but `path` may be left out.
    TypeError
        If an argument is not of the right type.
    JournalError
        If the journal is damaged, or if its file has a second name (a hard link).
    OSError
        If the file cannot be made, or if a charge cannot be written to it.
    TimeoutError
        If another process holds the lock of the journal for a minute.
    RuntimeError
        In a forked process, if the budget is in memory or a journal was in use during the fork.

    Notes
    -----
    All releases that a budget grants are together as private as its total says, for its neighbor
    relation and up to the rounding of sums described below. This holds also if each release, its
    mechanism and its cost are chosen after seeing the releases before it; only the rule "planned"
    demands more. All releases must protect the same unit. If a person may have several rows, each
    mechanism needs a `per_person`, or data with one row for each person: a budget cannot see this.

    **Rules.** A release adds its cost to the costs before it, and is refused if the sum would
    exceed the total. A total rho is always counted by "zcdp".

    - "zcdp" adds up :math:`\rho`. Gaussian noise of multiplier z (its standard deviation over the
      sensitivity) costs :math:`1 / (2 z^2)`, also if it is discrete ([1]_, Theorem 14). An
      :math:`\varepsilon`-private mechanism costs :math:`\varepsilon^2 / 2` ([2]_, Proposition 1.4),
      a quantile :math:`\varepsilon^2 / 8` for each column, and an `AdaptiveDataMechanism` its rho.
      `egm.calibration.zcdp_epsilon` converts the sum to (epsilon, delta).
    - "gaussian" adds up :math:`\mu^2 = 1 / z^2`. The releases together are as private as one
      Gaussian mechanism with that sum ([3]_, Corollary 3.3), so the exact curve of
      `egm.calibration` converts it. An :math:`\varepsilon`-private mechanism costs

      .. math:: \mu = 2 \Phi^{-1}\left(\frac{e^\varepsilon}{1 + e^\varepsilon}\right).

      This is valid, because the trade-off curve of the Gaussian mechanism with this :math:`\mu` is
      convex, and meets the piecewise linear trade-off curve of :math:`\varepsilon`-privacy at both
      ends and at its kink. So it lies below the piecewise linear curve.

      l2 noise (of a density proportional to :math:`e^{-|x| / s}`) costs a :math:`\mu` whose privacy
      curve is nowhere below that of the noise, found on a grid of epsilons. For a few coordinates
      this :math:`\mu` is much more than :math:`1 / z`, so that l2 noise is useful for one release,
      and rarely for many. The first release must have l2 noise if another one has it: then
      :math:`2^{-10}` of delta (or what one release needs) is kept for the rounding of this noise. No
      bound of :math:`\rho` is proved for the discrete l2 noise that is drawn, so "zcdp" refuses it,
      and so does a total rho.
    - "basic" adds up epsilon and delta, each by itself ([4]_, Theorem 3.16).
    - "planned" takes the smallest result of all these rules and of one more way: the epsilons of
      the pure mechanisms (those with delta = 0) are added to the result of "gaussian" or "zcdp" for
      the other mechanisms. The rule is valid only if all mechanisms were fixed before the first
      release: where the privacy curves of two mechanisms cross, an analyst who chooses between them
      after seeing earlier results could reach a larger epsilon or delta than with either of them.

    **Samples.** A release from a Poisson sample, in which each person is with probability q,
    independently of all others, costs less if neighbors differ by the addition or removal of a
    person ("add_remove"). If the release from all rows is :math:`(\varepsilon, \delta)`-private,
    the release from the sample is private for :math:`\log(1 + q (e^\varepsilon - 1))` and
    :math:`q \delta` ([8]_, Theorem 8). "basic" adds up these costs. "zcdp" and "gaussian" count a
    release from a sample like one from all rows, because its :math:`\rho` and its :math:`\mu` are
    hardly smaller: they depend on large privacy losses, and sampling makes such losses less likely
    only by the factor q.

    For samples and Gaussian noise, "planned" also composes all charges by the distribution of the
    privacy loss and by Rényi divergences, with the package dp-accounting (the extra `budget`). Only
    the second of these ways counts an `AdaptiveDataMechanism`, and only the first counts l2 noise.

    **Why releases may be chosen one after the other.** The proof is by induction on the number of
    releases still to come. The cost c of the next release is fixed, whatever its result is. The
    releases after it may cost at most the total minus c, and by induction they are together as
    private as this cost says. By composition the two costs are added. So each of the first three
    rules is a privacy filter ([5]_, [6]_, [7]_). The proof takes the steps of one charge
    (`charge_steps`) as one release: finish them before the next charge is chosen.

    **Why the rule must be public before the first release.** Taking the smallest result of several
    rules is not itself a valid rule. For example, after a Gaussian release of (0.1, 1e-6) out of a
    total of (1, 1e-6), an analyst who then chooses between "gaussian" and "basic" for the rest can
    reach a delta of more than 1.7e-6. Therefore the rule is an argument or follows from the first
    mechanism. Two cases need no rule: a single release, whose mechanism is itself (epsilon,
    delta)-private, and releases that all have delta = 0, whose epsilons may be added. Yet if the
    rule has no finite cost for a mechanism with delta > 0, it refuses even a single release, because
    all releases after it would have to be refused.

    **Rounding.** Costs are rounded up and added up as exact fractions. A single charge may not
    exceed the total. A sum of several charges may exceed the total by a factor :math:`1 + 2^{-51}`,
    which is about the rounding error of a double, so that ten charges of 0.1 fit into 1.0. Where
    "gaussian" adds up several charges, it counts Gaussian noise as larger by the factor
    :math:`1 + 2^{-31}`. The mechanisms of egm in fact draw it larger than they say by the factor
    :math:`1 + 2^{-30}`. "gaussian" also keeps a part of delta for what discrete noise adds to
    delta. If half of delta is not enough for this, the default is "zcdp". The part is enough for
    :math:`2^{20}` releases of fewer than :math:`2^{24}` coordinates each, the most that a budget
    accepts.

    **Journal.** The journal is an SQLite database with one row for the terms (the total and the
    rule) and one for each charge, with SHA-256 digests by which a row that is changed or missing is
    noticed. A charge is on the disk before the data are read. So a crash can waste a part of the
    budget, but the releases can never exceed it. Processes and threads take turns, and each of them
    reads what all others have spent. Only the owner may read a new journal, because whoever can
    open it can lock it. If the file is removed or replaced while a charge is written, nothing is
    granted. If an older copy of the file is put back, an open budget that has seen a later charge
    notices it, but no other budget can.

    The folder of the journal must be writable, because SQLite keeps a second file there while it
    writes, whose name ends in "-journal". A crash may leave this file behind: then open the budget
    again, or move both files together. A process that uses a budget must not open its journal in
    another way, because on Unix closing the file would release the lock.

    References
    ----------
    .. [1] Canonne, Kamath and Steinke (2020), "The Discrete Gaussian for Differential Privacy".
    .. [2] Bun and Steinke (2016), "Concentrated Differential Privacy: Simplifications, Extensions, and Lower Bounds".
    .. [3] Dong, Roth and Su (2022), "Gaussian Differential Privacy".
    .. [4] Dwork and Roth (2014), "The Algorithmic Foundations of Differential Privacy".
    .. [5] Feldman and Zrnic (2021), "Individual Privacy Accounting via a Rényi Filter".
    .. [6] Smith and Thakurta (2022), "Fully Adaptive Composition for Gaussian Differential Privacy".
    .. [7] Rogers, Roth, Ullman and Vadhan (2016), "Privacy Odometers and Filters: Pay-as-you-Go Composition".
    .. [8] Balle, Barthe and Gaboardi (2018), "Privacy Amplification by Subsampling: Tight Analyses via Couplings and
       Divergences".

    Examples
    --------
    Four Gaussian releases of epsilon = 0.4 each cost together much less than epsilon = 1.6:

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
        given = rules.checked(rho, epsilon, delta, neighbors, rule, simulation)
        self._store: Memory | Journal = Memory(given) if path is None else Journal(path, given)
        self._terms = self._store.terms

    @property
    def rho(self) -> float | None:
        """Total rho of the budget, or None if the total is (epsilon, delta)."""
        return self._terms.rho

    @property
    def epsilon(self) -> float | None:
        """Total epsilon of the budget, or None if the total is a rho."""
        return self._terms.epsilon

    @property
    def delta(self) -> float | None:
        """Total delta of the budget, or None if the total is a rho."""
        return self._terms.delta

    @property
    def neighbors(self) -> Neighbors:
        """Neighbor relation of all releases, "replace_one" or "add_remove"."""
        return self._terms.neighbors

    @property
    def simulation(self) -> bool:
        """Whether the budget is for simulations only: then each release needs an rng."""
        return self._terms.simulation

    @property
    def rule(self) -> Rule | None:
        """Rule by which costs are added up, or None.

        It is None if the total is a rho, because costs in rho are simply added. If no rule was given, it is also None
        before the first release.
        """
        return self._terms.rule_for(self.history)

    @property
    def history(self) -> tuple[Charge, ...]:
        """Costs of all releases so far, with labels and times: a tuple of `Charge`, in the order of the releases."""
        return self._store.read()

    @property
    def spent(self) -> Spent:
        """Cost of all releases so far together: a rho if the total is a rho, else an (epsilon, delta) as a `Loss`.

        An (epsilon, delta) is a guarantee only if the number of releases and their costs did not depend on
        results. If a release was chosen because of earlier results, only the total is a guarantee.
        """
        return self._terms.spent(self.history)

    @property
    def left(self) -> Spent:
        """Largest cost that one more release may have: a rho if the total is a rho, else a `Loss` (epsilon, delta).

        A `GaussianMechanism` with the epsilon and delta of this `Loss` fits; if delta is 0, a
        `LaplaceMechanism` fits. Another mechanism with this epsilon and delta may cost more; then it is refused.
        """
        return self._terms.left(self.history)

    def split(self, parts: int) -> Spent:
        """Return the largest cost that each of `parts` equal releases may have if the budget shall grant all of them.

        Each part is for a release with Gaussian noise or, if its delta is 0, for a `LaplaceMechanism`.

        Parameters
        ----------
        parts : int
            Number of releases, >= 1.

        Returns
        -------
        float or Loss
            Cost rho of each release, or its `Loss`. The rule "basic" divides what is left of
            epsilon and delta by `parts`. Under the other rules, each release may have the whole
            delta. Then the result is the larger one, in epsilon, of two losses: that of a
            `GaussianMechanism` with the whole delta, and that of a `LaplaceMechanism` (or, for
            "planned", the result of "basic"). The Gaussian epsilon is found by bisection: it is too
            small by at most 1e-12 of the total epsilon, and 0 if the exact epsilon is less than
            about 1e-9 times the total epsilon / `parts`. Under these rules, releases with l2 noise of
            this epsilon and delta may cost more, and then fewer of them are granted.

        Raises
        ------
        ValueError
            If `parts` is not a whole number >= 1, or is more than the number of releases that the
            budget still takes, which are 2**20 in all.

        Examples
        --------
        >>> from egm.budget import Budget
        >>> each = Budget(epsilon=1, delta=1e-6).split(12)
        >>> round(each.epsilon, 4), each.delta
        (0.2642, 1e-06)
        """
        return self._terms.left(self.history, count(parts=parts))

    def charge(
        self, mechanism: Mechanism | DataMechanism, *, label: str = "", sampling_probability: float | None = None
    ) -> Charge:
        """Record the cost of a release by a mechanism, without making the release.

        Parameters
        ----------
        mechanism : mechanism of `egm.mechanisms`, or AdaptiveDataMechanism
            Mechanism of the release.
        label : str, default ""
            Text that is recorded with the cost, to tell the release from others. It must not
            depend on the data.
        sampling_probability : float, optional
            Probability from 1e-12 to 1 with which each person is in the sample that the release
            depends on, independently of all others. Whoever makes the release draws the sample, and
            shows neither the sample nor its size. By default the release depends on all rows.

        Returns
        -------
        Charge
            Cost that was recorded, with the label and the time. The release is allowed once this
            method returns.

        Raises
        ------
        BudgetExceeded
            If the cost does not fit into the total, or if there are :math:`2^{20}` charges already.
            Then nothing is recorded.
        ValueError
            If the mechanism is for another neighbor relation, or has :math:`2^{24}` coordinates or
            more; or if `sampling_probability` is out of range, or is below 1 for a budget with
            neighbors "replace_one" or for an `AdaptiveDataMechanism`.
        TypeError
            If `mechanism` is not a mechanism of egm.

        Examples
        --------
        >>> from egm import GaussianDataMechanism
        >>> from egm.budget import Budget
        >>> budget = Budget(rho=0.5)
        >>> charge = budget.charge(GaussianDataMechanism([18, 1200, 3], n=10_000, epsilon=1, delta=1e-6))
        >>> round(charge.rho, 3), round(budget.left, 3)
        (0.028, 0.472)
        """
        return self._grant(self._asked(mechanism, label, sampling_probability))

    def _asked(self, mechanism: Mechanism | DataMechanism, label: str, sampling_probability: float | None) -> Charge:
        """Check `mechanism`, `label` and the sampling probability of a release; return its cost, not yet recorded."""
        share = rules.sampling(sampling_probability, self.neighbors)
        return rules.labelled(rules.sampled(rules.charge_of(mechanism, self.neighbors), share), label)

    def charge_steps(
        self,
        noise_multiplier: float,
        sampling_probability: float,
        count: int,
        *,
        delta: float | None = None,
        label: str = "",
    ) -> Charge:
        r"""Record the cost of many releases with Gaussian noise, each from a Poisson sample, as in training by DP-SGD.

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation of the noise divided by the sensitivity, from 1e-3 to 1e6. If the
            gradient of each person is clipped to the norm C, the sensitivity is C for the neighbors
            "add_remove", and 2 C for "replace_one".
        sampling_probability : float
            Probability from 1e-12 to 1 with which each person is in the sample of a step,
            independently of all other persons and of all other steps.
        count : int
            Number of steps, from 1 to :math:`2^{20}`. It must be fixed before the first step.
        delta : float, optional
            Part of the total delta that these steps take under the rule "basic", in (0, 1). By
            default they take the whole delta of the budget.
        label : str, default ""
            Text that is recorded with the cost, to tell the steps from others. It must not depend
            on the data.

        Returns
        -------
        Charge
            Cost of all steps together, with the label and the time. Its `epsilon` goes with its
            `delta`, and is infinite if the total is a rho and no `delta` is given.

        Raises
        ------
        BudgetExceeded
            If the cost does not fit into the total. Then nothing is recorded.
        ValueError
            If an argument is out of range, if the delta of the budget is 0 and no `delta` is given,
            or if its neighbors are "replace_one" and `sampling_probability` is below 1.
        TypeError
            If an argument is not of the right type.
        ImportError
            If the package dp-accounting (the extra `budget`), which computes the cost, is not installed.

        Notes
        -----
        The caller makes the steps, and draws the sample of each step, for example by
        `egm.samplers.secure_sample`. Neither a sample nor its size may be shown. In particular, a
        sum over a sample may be divided by the expected size of the sample, but not by its size.
        The cost is that of continuous Gaussian noise; it does not count how far the caller's noise
        differs from that.

        The cost holds also if each step is chosen after seeing the results of the steps before it,
        because noise multiplier, sampling probability and number of steps are fixed.

        Examples
        --------
        A little more than four epochs (passes over 60 000 rows), in batches of about 256 rows:

        >>> from egm.budget import Budget
        >>> budget = Budget(epsilon=1, delta=1e-5, neighbors="add_remove")
        >>> charge = budget.charge_steps(noise_multiplier=1.1, sampling_probability=256 / 60_000, count=1000)
        >>> round(budget.spent.epsilon, 2)
        0.6
        """
        asked = rules.steps_charge(noise_multiplier, sampling_probability, count, delta, self.delta, self.neighbors)
        return self._grant(rules.labelled(asked, label))

    def _grant(self, asked: Charge) -> Charge:
        """Record and return the cost `asked` with the present time; raise `BudgetExceeded` if too little is left."""
        with self._store.changing() as (charges, record):
            if self._terms.grants(charges, asked):
                granted = dataclasses.replace(asked, time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
                record(granted)
                return granted
        raise self._terms.refusal(charges, asked)

    @overload
    def release(
        self,
        mechanism: AdaptiveDataMechanism,
        X: RowSource,
        *,
        person: object = None,
        rng: Rng | None = None,
        label: str = "",
    ) -> AdaptiveRelease: ...
    @overload
    def release(
        self,
        mechanism: GaussianDataMechanism,
        X: RowSource,
        *,
        person: object = None,
        rng: Rng | None = None,
        label: str = "",
        sampling_probability: float | None = None,
    ) -> DataRelease: ...
    @overload
    def release(
        self,
        mechanism: GroupedDataMechanism,
        X: RowSource,
        *,
        by: object,
        person: object = None,
        rng: Rng | None = None,
        label: str = "",
        sampling_probability: float | None = None,
    ) -> GroupedRelease: ...
    @overload
    def release(self, mechanism: Mechanism, X: ArrayLike, *, rng: Rng | None = None, label: str = "") -> Release: ...
    def release(
        self,
        mechanism: Mechanism | DataMechanism,
        X: Any,
        *,
        rng: Rng | None = None,
        label: str = "",
        sampling_probability: float | None = None,
        **labels: object,
    ) -> Release | GroupedRelease | AdaptiveRelease:
        """Record the cost of a release by a mechanism, and then make the release.

        Parameters
        ----------
        mechanism : mechanism of `egm.mechanisms`, or AdaptiveDataMechanism
            Mechanism of the release.
        X : array_like
            Data as `mechanism.release` takes them. They are not changed.
        rng : numpy.random.Generator, optional
            Source of simulated noise for a budget that was made for simulation, and for no other.
        label : str, default ""
            Text that is recorded with the cost, to tell the release from others. It must not
            depend on the data.
        sampling_probability : float, optional
            Probability from 1e-12 to 1. If it is given, a Poisson sample is drawn, and the release
            is that of the rows in the sample. Each row, or all rows of each person if `person` is
            given, is in the sample with this probability, independently of all others. This needs a
            `GaussianDataMechanism` or a `GroupedDataMechanism` with neighbors "add_remove", whose
            `n` is then a guess of the number of rows in the sample.
        **labels : hashable or array_like
            The arguments `person` and `by` of `mechanism.release`, if it takes them.

        Returns
        -------
        Release, GroupedRelease or AdaptiveRelease
            Result of `mechanism.release(X, rng=rng, **labels)`, or of this call for the rows in
            the sample. The sum of these rows, divided by `sampling_probability`, is an estimate of
            the sum of all rows; their mean is an estimate of the mean of all rows.

        Raises
        ------
        BudgetExceeded
            If the cost of the release does not fit into the total. Then nothing is recorded.
        ValueError
            If `rng` is given to a budget that is not for simulation, or left out for one that is
            for simulation; or if `Budget.charge`, `mechanism.check` or `mechanism.release` raises
            this error.
        TypeError
            If `rng` is not a Generator, or if one of the three methods named above raises this error;
            or if `sampling_probability` is given for a mechanism that cannot take it, or for an `X` of
            dask.

        Notes
        -----
        First `mechanism.check(X, **labels)` checks public properties of the data, and an error there costs
        nothing. Then the charge (the cost of the release) is recorded, and only then
        `mechanism.release` reads values of `X`. If the release fails, the charge remains, because a
        value that was read may have caused the error. For a `GaussianMechanism`, `X` must have
        fewer than :math:`2^{24}` entries here.

        The sample is drawn after the charge is recorded, by random bits of the operating system (in
        a simulation, by `rng`), and is not kept. `sampling_probability` is rounded down to a
        multiple of :math:`2^{-64}`. For a single sum, sampling rarely pays: the noise may be
        smaller, but the sum of the sample must be multiplied, and with it the noise.

        Examples
        --------
        A rehearsal with simulated data:

        >>> import numpy as np
        >>> from egm import GaussianDataMechanism
        >>> from egm.budget import Budget
        >>> rng = np.random.default_rng(1)
        >>> X = rng.normal([45, 2400], [18, 1200], size=(10_000, 2))  # age and income
        >>> mechanism = GaussianDataMechanism([18, 1200], n=10_000, epsilon=0.5, delta=1e-6, center=[40, 2000])
        >>> budget = Budget(epsilon=1, delta=1e-6, simulation=True)
        >>> release = budget.release(mechanism, X, rng=rng)
        >>> release.estimate.shape, round(budget.left.epsilon, 2)
        ((2,), 0.84)
        """
        self._require_kind(rng)
        asked = self._asked(mechanism, label, sampling_probability)
        if asked.sampling_probability is not None:
            rules.require_rows(mechanism)
            drawn.require_no_dask(X)
        mechanism.check(X, **labels)
        if rng is None and not isinstance(mechanism, AdaptiveDataMechanism):
            mechanism.check_noise(X)
        unbounded = type(mechanism) is GaussianMechanism
        if unbounded and hasattr(X, "shape"):
            rules.require_room(X)
        self._grant(asked)
        if asked.sampling_probability is not None:
            X, labels = drawn.sample(X, asked.sampling_probability, rng, labels)
        if unbounded:  # the entries of a list are counted only when it may be read
            rules.require_room(X)
        with drawn.counted(asked.sampling_probability is not None):
            return mechanism.release(X, rng=rng, **labels)

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
        label: str = "",
    ) -> Floats:
        r"""Record the cost of a private quantile, and then compute it by `egm.quantiles.secure_quantile`.

        Parameters
        ----------
        values : array_like, shape (n,) or (n, k)
            Numbers in n rows. The number n is public, and neighboring data differ in one row. A
            list is taken for one column.
        q : float
            Level of the quantile, in (0, 1).
        low, high : float
            Ends of the range in which the quantile is searched, in the units of `values`.
        epsilon : float
            Privacy parameter of the quantile of each column, > 0.
        step : float
            Distance of the points among which the answer is drawn, > 0, in the units of `values`.
            The range may have at most 1e8 of these points.
        rng : numpy.random.Generator, optional
            Source of simulated noise for a budget that was made for simulation, and for no other.
            The simulation is `egm.quantiles.quantile`.
        label : str, default ""
            Text that is recorded with the cost, to tell the quantile from others. It must not
            depend on the data.

        Returns
        -------
        float or ndarray, shape (k,)
            Private quantile, one for each column.

        Raises
        ------
        BudgetExceeded
            If the cost of the quantile does not fit into the total. Then nothing is recorded.
        ValueError
            If an argument is out of range, if the neighbor relation of the budget is not
            "replace_one", or if `rng` is given to a budget that is not for simulation, or left out
            for one that is for simulation.
        TypeError
            If `values` are not numbers, or if `rng` is not a Generator.

        Notes
        -----
        The cost is `epsilon` for each column, or a rho of :math:`\varepsilon^2 / 8` for each column
        (see `egm.quantiles.epsilon_of_rho`). An error in an argument costs nothing, except an error
        in the numbers of `values`, or in the shape of a list, because they are read after the cost is
        recorded.

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
        asked = rules.quantile_charge(shape or (), q, low, high, epsilon, step, self.neighbors)
        self._grant(rules.labelled(asked, label))
        held = finite(values=values)
        if held.shape != shape:  # it was charged for another number of columns
            raise ValueError("values must be one column of numbers, or several as an array (n, k)")
        if rng is not None:
            return quantile(held, q, low, high, epsilon, rng)  # type: ignore[no-any-return]  # a float or an array
        return secure_quantile(held, q, low, high, epsilon, step)

    def _require_kind(self, rng: Rng | None) -> None:
        """Raise ValueError if a budget for simulations gets no `rng`, or if any other budget gets one.

        Raise TypeError if `rng` is neither None nor a NumPy Generator.
        """
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng must be a numpy.random.Generator or None, got {rng!r}")
        if rng is not None and not self.simulation:
            raise ValueError("rng must be left out: a simulation is not private and needs Budget(..., simulation=True)")
        if rng is None and self.simulation:
            raise ValueError("rng must be given, since this budget was made for simulation")

    def __repr__(self) -> str:
        return f"Budget({self._store.name}, {self._terms})"
