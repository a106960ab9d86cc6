"""Draw a Poisson sample of a table: each row, or all rows of each person at once, are in it with equal probability.

The sample is drawn while the rows are read. Its size is private: only a mechanism whose neighbors differ by the
addition or removal of one person may read the sample.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator as Rng
from numpy.typing import NDArray

from egm import _tables
from egm._random_bits import coins
from egm._rows import dask, people
from egm._rows.labels import Labels, in_order, numbered, vector

__all__ = ["counted", "require_no_dask", "sample"]


def require_no_dask(X: object) -> None:
    """Raise TypeError if `X` is an object of dask, which may read a block of rows twice, and draw two samples."""
    if dask.is_dask(X):
        raise TypeError("X must be no object of dask if a sample of its rows is drawn: give an iterator of blocks")


def sample(X: Any, probability: float, rng: Rng | None, labels: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a Poisson sample of the rows of `X`, and the labels of these rows.

    `X` is an array, a data frame, a table of `egm.files`, an iterator over blocks of rows, or a function that returns
    such an iterator. The sample is of the same kind as `X`; for a function it is an iterator. `labels` may have the
    entries "person" and "by" (the group), each an array or the name of a column; a name is returned unchanged. Each
    row, or each person if "person" is given, is in the sample with the given `probability`, independently of all
    others. The randomness is that of the operating system or, in a simulation, of `rng`. A sample that is a table or an
    iterator may be read once.
    """
    X, person, draw = _tables.opened(X), labels.get("person"), _Draw(probability, rng)
    if _tables.is_blocks(X):
        return _Sample(X, person, draw), labels
    if isinstance(X, Iterator):
        return _of_blocks(X, person, draw), labels
    given = {key: label for key, label in labels.items() if label is not None and not people.is_name(label, X)}
    arrays = {key: vector(key, label) for key, label in given.items()}
    if person is None:
        kept = draw.rows(len(X))
    elif "person" in arrays:
        kept = draw.persons(arrays["person"])
    else:
        kept = draw.persons(numbered("person", _of_column(X, person)))
    return _tables.kept(X, kept), labels | {key: label[kept] for key, label in arrays.items()}


@contextlib.contextmanager
def counted(is_sample: bool) -> Iterator[None]:
    """Within a `with` block that reads the rows X, let errors about a row say that they count those of a sample.

    If `is_sample` is false, errors are left as they are. So is an error for a missing label, which counts all rows,
    because labels are read before rows are drawn.
    """
    try:
        yield
    except ValueError as wrong:
        said = str(wrong)
        if not is_sample or type(wrong) is not ValueError or not re.match(r"X\[\d.* must be", said):
            raise
        raise ValueError(f"{said}, where X is the sample that was drawn") from None


class _Draw:
    """Decide at random which rows are in a Poisson sample: each row with the same probability, independently.

    The random bits are those of the generator `rng` in a simulation, and otherwise those of the operating system.
    """

    def __init__(self, probability: float, rng: Rng | None) -> None:
        self._probability, self._rng = probability, rng
        self._order = people.Order()
        self._last: tuple[Any, bool] = None, False

    def rows(self, size: int) -> NDArray[np.bool]:
        """Decide at random which of `size` rows are in the sample, and return True or False for each row."""
        if self._rng is None:
            return coins(size, self._probability)
        return self._rng.random(size) < self._probability

    def persons(self, labels: Labels) -> NDArray[np.bool]:
        """Decide at random which persons are in the sample, and return for each row whether its person is.

        `labels` has the person of each row. All rows of a person get the same answer.
        """
        order = in_order(labels)
        is_first = np.append(True, labels[order[1:]] != labels[order[:-1]])[: labels.size]
        kept = np.empty(labels.size, dtype=np.bool)
        kept[order] = self.rows(int(np.count_nonzero(is_first)))[np.cumsum(is_first) - 1]
        return kept

    def sorted_persons(self, labels: Any) -> NDArray[np.bool]:
        """Decide which persons of the next block are in the sample, and return for each row whether its person is.

        `labels` has the person of each row. The rows must be sorted by person: the last person of a block may also be
        the first one of the next block, and then keeps the answer of the block before. Raise ValueError if the blocks
        so far are not sorted, because a person could then be drawn twice.
        """
        labels = vector("person", labels)
        self._order.check(labels)
        kept = self.persons(labels)
        if labels.size:
            label, was_kept = self._last
            if label is not None:
                kept[labels == label] = was_kept
            self._last = labels[-1], bool(kept[-1])
        return kept


class _Sample:
    """Read a Poisson sample of the rows of another table, in blocks, with the methods of an `egm.files.Table`.

    `draw`, a `_Draw`, decides at random which rows are in the sample. `person` is the name of the column that has the
    person of each row, or None if each row is drawn by itself.
    """

    def __init__(self, table: Any, person: Hashable | None, draw: _Draw) -> None:
        self.names, self.count, self._table, self._person, self._draw = table.names, None, table, person, draw
        self.label_types = getattr(table, "label_types", None)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Return an iterator over the blocks of rows in the sample."""
        return (block[self._draw.rows(len(block))] for block in self._table.blocks())

    def labelled(self, names: Sequence[Hashable]) -> Iterator[tuple[NDArray[Any], list[NDArray[Any]]]]:
        """Return an iterator over pairs: a block of sampled rows, and a list of their labels in the columns `names`."""
        return self._drawn(self._table.labelled(names), None if self._person is None else names.index(self._person))

    def _drawn(self, pairs: Any, place: int | None) -> Iterator[tuple[NDArray[Any], list[NDArray[Any]]]]:
        """Yield those rows of each pair that are in the sample; a pair is a block of rows and a list of their labels.

        `pairs` is an iterator over such pairs, and each result is again a pair. Each entry of the list is an array with
        one label for each row. `place` is the index of the array with the persons, or None if each row is drawn by
        itself.
        """
        for block, labels in pairs:
            kept = self._draw.rows(len(block)) if place is None else self._draw.sorted_persons(labels[place])
            yield block[kept], [label[kept] for label in labels]


def _of_blocks(blocks: Iterator[Any], person: Hashable | None, draw: _Draw) -> Iterator[Any]:
    """Yield each of the `blocks` with only those of its rows that are in the sample.

    `draw`, a `_Draw`, decides at random which rows are in the sample. `person` is the name of the column that has the
    person of each row; if it is None, each row is drawn by itself.
    """
    rows = 0
    for block in blocks:
        with _tables.counted_from(rows):
            kept = draw.rows(len(block)) if person is None else draw.sorted_persons(_of_column(block, person))
        rows += len(kept)
        yield _tables.kept(block, kept)


def _of_column(X: Any, person: Hashable) -> Any:
    """Return the entries of the column `person` of the data frame `X`, unchecked, as `egm._tables.split` does."""
    _, (found,) = _tables.split(X, person)
    return found
