"""Release the sum of the rows of each group, with one budget for all groups."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from egm import _tables
from egm._mechanisms.base import Mechanism, fix, room, secure_noise, simulated_noise, std_on_lattice
from egm._mechanisms.data import DataRelease, GaussianDataMechanism
from egm._mechanisms.joint import Joint
from egm._mechanisms.rowsum import table
from egm._rows import lattice, people, sums
from egm._rows.labels import vector
from egm._types import Array, Neighbors, NoiseLaw, RowSource, Whole
from egm._validate import count, generator

if TYPE_CHECKING:
    from types import ModuleType

_SIZES = 1 << 20  # most numbers that are released together


@dataclass(frozen=True, eq=False)
class GroupedRelease(Mapping[Hashable, DataRelease]):
    """Releases of the sums of all groups; a mapping from the key of a group to its release.

    Parameters
    ----------
    releases : dict
        A `DataRelease` for each key, with a noisy number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import GaussianDataMechanism, GroupedDataMechanism
    >>> mechanism = GaussianDataMechanism({"age": 18, "income": 1200}, 10_000, 1, 1e-6, center=[40, 2500])
    >>> grouped = GroupedDataMechanism(mechanism, ["north", "south"])
    >>> rng = np.random.default_rng(1)
    >>> X, regions = rng.normal([40, 2500], [18, 1200], size=(10_000, 2)), rng.choice(["north", "south"], 10_000)
    >>> release = grouped.release(X, by=regions, rng=rng)
    >>> list(release), release["south"].mean.round()
    (['north', 'south'], array([  41., 2492.]))
    """

    releases: dict[Hashable, DataRelease]

    def __getitem__(self, key: Hashable) -> DataRelease:
        return self.releases[key]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    def rows(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return the table of `to_frame` as a dictionary of lists, for which no library of data frames is needed.

        Parameters
        ----------
        confidence : float, default 0.95
            Probability of each interval, in (0, 1).

        Returns
        -------
        dict of str to list
            Columns of the table by their names.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism, GroupedDataMechanism
        >>> grouped = GroupedDataMechanism(GaussianDataMechanism({"age": 18}, 1000, 1, 1e-6), ["north", "south"])
        >>> release = grouped.release(np.full((1000, 1), 5.0), by=["south"] * 1000, rng=np.random.default_rng(1))
        >>> list(release.rows())[:5], release.rows()["group"]
        (['group', 'count', 'column', 'sum', 'noise_std'], ['north', 'south'])
        """
        found: dict[str, list[Any]] = {}
        for key, release in self.releases.items():
            rows = release.rows(confidence)
            d = len(rows["column"])
            for name, values in {"group": [key] * d, "count": [release.count] * d, **rows}.items():
                found.setdefault(name, []).extend(values)
        return found

    def to_frame(self, confidence: float = 0.95, backend: str | ModuleType | None = None) -> Any:
        """Make a data frame of the release, with one row for each column of the data in each group.

        Parameters
        ----------
        confidence : float, default 0.95
            Probability of each interval, in (0, 1).
        backend : {"pandas", "polars", "pyarrow"} or module, optional
            Library of the data frame; by default the first one of these that is installed.

        Returns
        -------
        DataFrame or Table
            Data frame with the columns ``group`` (its key) and ``count`` (its noisy number of
            rows), and those of `DataRelease.to_frame`.

        Raises
        ------
        ModuleNotFoundError
            If the library is not installed.
        ValueError
            If `confidence` is not in (0, 1), or if `backend` is another text.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism, GroupedDataMechanism
        >>> grouped = GroupedDataMechanism(GaussianDataMechanism({"age": 18}, 1000, 1, 1e-6), ["north", "south"])
        >>> release = grouped.release(np.full((1000, 1), 5.0), by=["south"] * 1000, rng=np.random.default_rng(1))
        >>> release.to_frame(backend="pyarrow").num_rows
        2
        """
        return table(self.rows(confidence), backend)


@dataclass(frozen=True, eq=False)
class GroupedDataMechanism(Mechanism):
    r"""Gaussian mechanism for the sums of normal rows in each of several groups, from one budget.

    Rows are clipped as a `GaussianDataMechanism` does it, and added up by group. The sum of each
    group is released with the noisy number of its rows. Because a person is in one group, or in
    few, the noise of a group does not depend on the number of groups. The keys of the groups are
    public; there is a release for each key, even if no row has this key.

    Parameters
    ----------
    mechanism : GaussianDataMechanism
        Mechanism that clips the rows: its `sigma` and `center` are those of the rows in any group,
        and its epsilon and delta those of all groups together. Its `n` is only a guess of the number
        of rows, which decides how many are clipped; `X` may have another number. Its noise may be l2 noise if
        neighbors differ by the addition of one person with one row: then only one group changes.
    keys : iterable of hashable
        Public keys of the groups: numbers, texts or dates, all of one type. Rows with another key
        are left out.
    groups_per_person : int, default 1
        Largest number m of groups in which the rows of one person count. If it is above 1, the
        `per_person` of the mechanism must be "sum" or "mean": the rows of one person in one group
        become one row, and only the first m groups in the order of the person's rows are kept.

    Attributes
    ----------
    noise_std : ndarray, shape (d,)
        Standard deviation of the noise in each coordinate of the sum of one group, in the units of
        the data.
    count_std : float
        Standard deviation of the noise in the number of rows of one group.
    noise_size : int
        Number of coordinates for which the noise is calibrated: of all groups or, for l2 noise, of
        one group.

    Raises
    ------
    ValueError
        If there is no key, or a key occurs twice; if the mechanism has ``count_clipped``, or l2 noise
        although a person may change several groups; if `groups_per_person` is above 1 without a
        `per_person` of "sum" or "mean"; or if more than 2**20 numbers would be released.
    TypeError
        If a parameter does not have the stated type.

    See Also
    --------
    GaussianDataMechanism : The sum of all rows.

    Notes
    -----
    A clipped row :math:`y` with :math:`\|y\| \le C` becomes the joint vector :math:`(y, w)` in the
    coordinates of its group, where w is the weight of the number of rows. If a person is added or
    removed, the sensitivity of all groups together is :math:`\sqrt m \sqrt{C^2 + w^2}`. If a person
    is replaced, it is :math:`\sqrt m \max(2 C, \sqrt{2 (C^2 + w^2)})`, because joint vectors of
    different groups are orthogonal, and those of one group have an inner product of at least
    :math:`w^2 - C^2`. So under replacement with w = C, the numbers of rows are released without more
    noise. If a person has up to k rows (`per_person` is k), these may be in any groups, and
    :math:`\sqrt m` is replaced by k. Chapter 18 of the book proves this.

    Among all ways to divide the noise between groups, the same noise in each has the least total
    squared error (Proposition "Equal noise" of chapter 18).

    Examples
    --------
    >>> import numpy as np
    >>> from egm import GaussianDataMechanism, GroupedDataMechanism
    >>> mechanism = GaussianDataMechanism({"age": 18, "income": 1200}, 10_000, 1, 1e-6, center=[40, 2500])
    >>> grouped = GroupedDataMechanism(mechanism, ["north", "south", "west"])
    >>> round(grouped.count_std, 1), (grouped.noise_std / mechanism.noise_std).round(3)
    (8.4, array([1.002, 1.134]))
    """

    mechanism: GaussianDataMechanism
    keys: tuple[Hashable, ...]
    groups_per_person: int = field(default=1, kw_only=True)
    noise_std: Array = field(init=False, repr=False)
    count_std: float = field(init=False, repr=False)
    _centered_std: Array = field(init=False, repr=False)  # of the sum of the rows minus the center
    noise_size: int = field(init=False, repr=False)
    _weight: float = field(init=False, repr=False)  # of the number of rows of a group

    if TYPE_CHECKING:

        def __init__(
            self, mechanism: GaussianDataMechanism, keys: Iterable[Hashable], *, groups_per_person: int = ...
        ) -> None: ...

    def __post_init__(self) -> None:
        inner = self.mechanism
        if not isinstance(inner, GaussianDataMechanism):
            raise TypeError(f"mechanism must be a GaussianDataMechanism, got {inner!r}")
        if inner.count_clipped:
            raise ValueError("mechanism must have count_clipped=False to release groups")
        if isinstance(self.keys, str) or not isinstance(self.keys, Iterable):
            raise TypeError(f"keys must be the keys of several groups, got {self.keys!r}")
        keys = tuple(_plain(key) for key in self.keys)
        vector("keys", keys)
        if not keys or len(set(keys)) < len(keys):
            raise ValueError("keys must be at least one key, and name each group once")
        if len({type(key) for key in keys}) > 1:
            raise TypeError("keys must be of one type: all numbers, all texts, or all dates")
        fix(self, keys=keys, groups_per_person=count(groups_per_person=self.groups_per_person))
        if self.groups_per_person > 1 and inner.per_person not in ("sum", "mean"):
            raise ValueError(
                f'groups_per_person = {self.groups_per_person} needs a mechanism with per_person="sum" or "mean", '
                f"got {inner.per_person!r}"
            )
        one_group = self.neighbors == "add_remove" and self._joint.reach_squared == 1
        if inner.noise_law != "gaussian" and not one_group:
            raise ValueError(
                'mechanism must have Gaussian noise to release groups, unless neighbors is "add_remove" and each '
                "person has one row in one group"
            )
        size = len(keys) * (inner.sigma.size + 1)
        if size > _SIZES:
            raise ValueError(f"keys must be so few that at most {_SIZES} numbers are released, got {size}")
        size = size if inner.noise_law == "gaussian" else inner.noise_size  # one group changes, which has its own noise
        ratio = np.linalg.norm(np.broadcast_to(inner._pivot, inner.b.shape)) / np.linalg.norm(1 / inner.b)
        weight = self._joint.weight(inner.clip_norm, float(ratio))
        std = self._joint.sensitivity(inner.clip_norm, weight) * self._joint.stretch * inner.noise_multiplier
        centered_std, count_std = np.sqrt(inner._of_columns((std / inner.b) ** 2)), float(std / weight)
        fix(self, noise_size=size, noise_std=np.hypot(centered_std, count_std * inner.center), count_std=count_std)
        fix(self, _centered_std=centered_std, _weight=weight)

    @property
    def _joint(self) -> Joint:
        """Return the `Joint` of this mechanism, which computes how much one person can change all that is released."""
        rows = self.mechanism.per_person
        reach_squared = rows**2 if isinstance(rows, int) else self.groups_per_person
        return Joint(self.neighbors, counted=True, reach_squared=reach_squared, groups=True)

    @property
    def neighbors(self) -> Neighbors:
        """Return the neighbor relation, which is that of the field `mechanism`."""
        return self.mechanism.neighbors

    @property
    def epsilon(self) -> float:
        """Return the epsilon of the releases of all groups together."""
        return self.mechanism.epsilon

    @property
    def delta(self) -> float:
        """Return the delta of the releases of all groups together."""
        return self.mechanism.delta

    @property
    def noise_law(self) -> NoiseLaw:
        """Return the law of the noise, "gaussian" or "l2", which is that of the field `mechanism`."""
        return self.mechanism.noise_law

    @property
    def noise_multiplier(self) -> float:
        """Return the standard deviation of each coordinate of the noise for a query of sensitivity 1."""
        return self.mechanism.noise_multiplier

    def check(self, X: RowSource, *, by: object, person: object = None) -> None:
        """Raise the errors that `release` would raise for the type, the shape and the names of `X`.

        Parameters
        ----------
        X : array_like, table, iterator of tables or function, shape (n, d)
            Rows whose sums would be released. No row is read.
        by : hashable or array_like
            Group of each row, as for `release`.
        person : hashable or array_like, optional
            Person to whom each row belongs, as for `release`.

        Raises
        ------
        ValueError
            If `X` does not have d columns besides those of `by` and `person`, or not the names of
            the mechanism's `columns`; if `by` is None; if `by` or `person` is one of `columns`; if
            `person` is given and the mechanism has no `per_person`, or the other way round; or if
            the mechanism allows missing values and `X` is a file that was opened without them.
        TypeError
            If the type of `X` shows that it does not hold real numbers, or if the type of the
            column or of the array `by` shows that no label can be one of the keys, for example
            because the labels are texts and the keys are numbers. The types of lists, of arrays of
            objects and of the blocks of an iterator are not checked here, because they are known
            only when values are read.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism, GroupedDataMechanism
        >>> grouped = GroupedDataMechanism(GaussianDataMechanism([18, 1200], 10_000, 1, 1e-6), [1, 2])
        >>> grouped.check(np.zeros((10_000, 2)), by=np.ones(10_000))
        """
        if by is None:
            raise ValueError("by must be the name of a column of X, or an array with the group of each row")
        inner = self.mechanism
        people.require_person(person, inner.per_person)
        inner._check_rows(X, counted=True, person=person, by=by)
        people.require_keys(X, by, self.keys)

    def check_noise(self, X: object) -> None:
        """Raise an error if a secure release would be refused because its noise has to be an integer.

        Parameters
        ----------
        X : object
            Rows whose sums would be released. They are not read.

        Raises
        ------
        ValueError
            If integer noise would cost half of `delta` or more, or if the standard deviation of
            the noise is more than 2**36 times the clip norm, or 2**32 times for l2 noise.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism, GroupedDataMechanism
        >>> grouped = GroupedDataMechanism(GaussianDataMechanism([18, 1200], 10_000, 1, 1e-6), [1, 2])
        >>> grouped.check_noise(np.zeros((10_000, 2)))
        """
        self._on_lattice(self._grid())

    def release(
        self, X: RowSource, *, by: object, person: object = None, rng: np.random.Generator | None = None
    ) -> GroupedRelease:
        """Release private estimates of the sum of the rows, and of their number, in each group.

        Parameters
        ----------
        X : array_like, table, iterator of tables or function, shape (n, d)
            Real numbers, as for `GaussianDataMechanism.release`; a table also has the columns that
            `by` and `person` name. `X` is read once and never changed.
        by : hashable or array_like, shape (n,)
            Group of each row: the name of a column of `X`, or an array. A row whose entry is not one
            of the `keys` of the mechanism is left out.
        person : hashable or array_like, shape (n,), optional
            Person to whom each row belongs, as for `GaussianDataMechanism.release`.
        rng : numpy.random.Generator, optional
            Generator that makes the release a simulation. By default the noise is secure: it is
            discrete, and drawn from random bits of the operating system.

        Returns
        -------
        GroupedRelease
            A `DataRelease` for each key, with a noisy number of rows.

        Raises
        ------
        ValueError
            If a value is not finite, also in a row that is left out; if an entry of `by` or `person`
            is missing; or if the methods `check` or `check_noise` would raise a ValueError.
        TypeError
            If `X` does not hold real numbers, if the labels in `by` are of another type than the
            keys, or if `rng` is not a NumPy Generator.

        Warns
        -----
        SimulationWarning
            If `rng` is given for the first time in a process.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism, GroupedDataMechanism
        >>> mechanism = GaussianDataMechanism({"age": 18, "income": 1200}, 10_000, 1, 1e-6, center=[40, 2500])
        >>> grouped = GroupedDataMechanism(mechanism, [2023, 2024])
        >>> rng = np.random.default_rng(1)
        >>> X, years = rng.normal([40, 2500], [18, 1200], size=(10_000, 2)), rng.integers(2023, 2025, 10_000)
        >>> release = grouped.release(X, by=years)  # secure
        >>> release[2023].simulated
        False
        """
        self.check(X, by=by, person=person)
        if rng is None:
            self.check_noise(X)
        else:
            generator(rng)
        X = _tables.opened(X)
        inner, keys = self.mechanism, self.keys
        grid = self._grid() if rng is None else inner._lattice(1.0)
        most = None if isinstance(inner.per_person, int) else self.groups_per_person
        rule = grid, np.broadcast_to(inner.center, inner.b.shape), inner.b, inner.basis, inner.missing
        of_groups = partial(_of_groups, groups=len(keys), how=inner.per_person, most=most, rule=rule)
        source = people.Source(inner.columns, inner.sigma.size, person, by, keys, inner.missing != "error")
        found = source.results(X, of_groups)
        total, rows = grid.rotated(sum(part for part, _ in found)), sum(counted for _, counted in found)
        weight, larger = self._weight, 1.0
        law, draws = inner.noise_law, len(keys) * (inner.sigma.size + 1) // self.noise_size
        if rng is None:
            weight, std = self._on_lattice(grid)
            drawn: Any = np.array([secure_noise(law, std, self.noise_size) for _ in range(draws)], dtype=object)
            unit = grid.unit
            larger = std * unit / (self.count_std * self._weight)  # the noise that is drawn over continuous noise
        else:
            stds, unit = np.full(self.noise_size, self.count_std * weight), 1.0
            drawn = np.array([simulated_noise(law, stds, rng) for _ in range(draws)])
            total = total * grid.unit
        fields: dict[str, Any] = {"mechanism": inner, "noise_law": law}
        fields |= {"centered_std": larger * self._centered_std, "count_std": larger * self.count_std}
        releases: dict[Hashable, DataRelease] = {}
        for key, centered, number, noise in zip(keys, total, rows, drawn.reshape(len(keys), -1), strict=True):
            estimate, counts = inner._with_noise(centered, int(number), weight, 0, noise, unit)
            releases[key] = DataRelease(estimate, larger * self.noise_std, rng is not None, **(fields | counts))
        return GroupedRelease(releases)

    def _grid(self) -> lattice.Lattice:
        """Return the `Lattice` that says how a secure release rounds clipped rows to integers."""
        inner = self.mechanism
        noise = room(inner.noise_law, self.count_std * self._weight / inner.clip_norm)
        return inner._lattice(noise)

    def _on_lattice(self, grid: lattice.Lattice) -> tuple[int, float]:
        """Return the weight of the numbers of rows, and the standard deviation of the noise in each coordinate.

        Before noise is added to the number of rows of a group, the number is multiplied by the weight. Both results are
        in multiples of ``grid.unit``, the length for which the integer 1 stands in a secure release.
        """
        weight = round(self._weight / grid.unit)
        _, sensitivity = self._joint.on_lattice(grid.radius, weight, grid.rounded)
        return weight, std_on_lattice(self.mechanism, sensitivity, self.noise_size)


def _plain(key: Any) -> Any:
    """Convert a key from a scalar of NumPy to a number, text or date of Python; return any other key unchanged."""
    if isinstance(key, np.datetime64) and isinstance(key.item(), int):  # of nanoseconds, for example
        given, key = key, key.astype("M8[us]")
        if key != given:
            raise ValueError(f"keys must be dates in whole microseconds or of pandas, got {given!r}")
    return key.item() if isinstance(key, np.generic) else key


def _of_groups(
    source: Iterator[people.Block],
    groups: int,
    how: people.PerPerson,
    most: int | None,
    rule: tuple[Any, ...],
) -> tuple[Whole, Whole]:
    """Return the sums of the rows of each group, shape (`groups`, d), and the number of rows in each sum.

    The function `egm._rows.sums.group_sums` clips and sums the rows; `rule` has the arguments of `group_sums` after its
    first two. `how` is the argument `per_person` of the mechanism. If it is not None, the blocks of `source` are sorted
    by person, and the rows of each person are replaced before they are clipped and counted. For "sum" or "mean", the
    rows of the person in each of the person's first `most` groups are replaced by their sum or mean. For a number k,
    only the person's first k rows are kept, whatever their groups (then `most` is None).
    """
    kept = source if how is None else people.gathered(source, how, most)
    pairs = ((block.values, block.groups) for block in kept if block.groups is not None)
    return sums.group_sums(pairs, groups, *rule)
