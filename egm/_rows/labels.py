"""Check the labels of rows, such as persons and groups, compare them with keys, and bring equal ones together.

Labels are numbers, texts or dates, all of one kind. Two labels are equal if Python says so, and no error message shows
a label. Texts that a data frame holds are compared once for each different text, and not once for each row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable
from datetime import date
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from egm import _tables
from egm._threads import in_parallel
from egm._validate import MISSING

__all__ = ["NO_LABELS", "Labels", "codes", "end_to_end", "in_order", "numbered", "require_alike", "require_one_type"]
__all__ += ["vector"]

_PIECE, _JOINED = 1 << 18, 1 << 12  # labels that are looked up at a time, and texts that are read at a time
_TEXTS = 1 << 15  # NumPy strings that are looked up at a time
_TABLE = 1 << 20  # span of whole numbers up to which the code of a label is looked up in a table
# Texts that stand for a missing person, in small and in capital letters
_ABSENT = frozenset("".join(some) for text in MISSING for some in itertools.product(*({c, c.upper()} for c in text)))

NO_LABELS = "must be a vector of numbers, of texts, or of dates without time zone"
_KIND_NAMES = dict.fromkeys("iubf", "numbers") | dict.fromkeys("UO", "texts") | {"M": "dates"}
_KINDS = (
    (bool | np.bool, bool),
    (int | np.integer, np.int64),
    (int | np.integer, np.uint64),
    (float | np.floating, float),
)

Labels: TypeAlias = NDArray[Any]


def require_alike(found: str, known: str) -> None:
    """Raise TypeError unless labels of rows and keys of groups are alike: all numbers, all texts, or all dates.

    `found` and `known` are the `dtype.kind` of the labels and of the keys, for example "i" or "U".
    """
    labels, keys = _KIND_NAMES[found], _KIND_NAMES[known]
    if labels != keys:
        raise TypeError(f"by must have labels of the type of the keys: the keys are {keys}, and the labels {labels}")


def codes(labels: Any, keys: tuple[Hashable, ...]) -> Labels:
    """Return, for each entry of `labels`, its index in `keys`, the keys of the groups, or -1 if it is no such key."""
    labels = _tables.labels_of(labels)
    if isinstance(labels, _tables.Encoded):
        return _taken(codes(labels.distinct, keys), labels.places.__getitem__, labels.places.size)
    found, known = vector("by", labels), vector("keys", list(keys))
    small = np.int16 if len(keys) < 1 << 15 else np.int64
    if not found.size:
        return np.empty(0, dtype=small)
    require_alike(found.dtype.kind, known.dtype.kind)
    if found.dtype.kind == "O":
        places = {key: k for k, key in enumerate(known)}
        return np.fromiter(map(places.get, found, itertools.repeat(-1)), dtype=small, count=found.size)
    if found.dtype.kind == "U":
        known = known.astype(np.str_)
        if (place := _places_of_texts(found, known)) is not None:
            return place.astype(small, copy=False)
    kinds = found.dtype.kind + known.dtype.kind
    if set(kinds) <= set("iub"):
        low, high = int(known.min()), int(known.max())
        if high - low < _TABLE and known.dtype != np.uint64 and low > np.iinfo(np.int64).min:
            before, table = low - 1, np.full(high - low + 3, -1, dtype=small)
            table[known.astype(np.int64) - before] = np.arange(len(keys))
            within = np.clip(found, before, high + 1) if found.dtype == np.uint64 else found
            return _taken(table, lambda piece: within[piece].astype(np.int64, copy=False) - before, found.size)
    fits = np.ones(len(keys), dtype=bool)
    if kinds == "MM":  # a key that has no value in the unit of the labels is the label of no row
        asked, known = known, known.astype(found.dtype)
        fits = known.astype(asked.dtype) == asked
        found, known = found.astype(int), known.astype(int)
    if kinds in ("iu", "ui"):  # NumPy would make doubles of them
        found, known = found.astype(object), known.astype(object)
    order = np.argsort(known)
    order = order[fits[order]]
    if not order.size:
        return np.full(found.size, -1, dtype=small)
    ranked = known[order]
    nearest = np.searchsorted(ranked, found).clip(max=order.size - 1)
    return np.where(ranked[nearest] == found, order[nearest], -1).astype(small)


def _taken(table: Labels, indices: Callable[[slice], Labels], size: int) -> Labels:
    """Return the entries of `table` at `size` indices; ``indices(piece)`` gives those for a slice of the result.

    Pieces are computed in parallel. An index that is too large or too small gives the last or the first entry.
    """
    found = np.empty(size, dtype=table.dtype)

    def look_up(start: int) -> None:
        piece = slice(start, start + _PIECE)
        table.take(indices(piece), mode="clip", out=found[piece])

    in_parallel(look_up, range(0, size, _PIECE))
    return found


def _places_of_texts(found: Labels, known: Labels) -> Labels | None:
    """Return the index in `known` of each NumPy string in `found`, or -1; None if a table would be very large.

    The texts in `known` differ. Each step looks at one character of every text of `found`, which together tell those of
    `known` apart, and takes the text to the next state by a table. The last state is the only candidate, with which
    the whole text is compared. It has ended in the state 0 if a character of it fits to none.
    """
    width = found.dtype.itemsize // 4
    fitting = np.flatnonzero(np.char.str_len(known) <= width)
    if not width or not fitting.size:
        return None
    letters = known[fitting].astype(f"U{width}").view(np.uint32).reshape(-1, width).astype(np.int64)
    states, steps = np.ones(fitting.size, dtype=np.int64), []
    for column in range(width):
        low, high = int(letters[:, column].min()), int(letters[:, column].max())
        together, following = np.unique(states << 32 | letters[:, column], return_inverse=True)
        if together.size > states.max():
            if (states.max() + 1) * (high - low + 3) > _TABLE:
                return None
            table = np.zeros((states.max() + 1, high - low + 3), dtype=np.intp)
            table[states, letters[:, column] - low + 1] = following + 1
            steps.append((column, low, table))
            states = following + 1
    of_state = np.zeros((width, fitting.size + 1), dtype=np.int32)
    of_state[:, states], place = letters.T, np.full(fitting.size + 1, -1)
    place[states] = fitting
    places = np.empty(found.size, dtype=np.int64)

    def look_up(start: int) -> None:
        piece = np.ascontiguousarray(found[start : start + _TEXTS], dtype=f"U{width}")
        columns = piece.view(np.int32).reshape(-1, width).T.copy()
        state = np.ones(piece.size, dtype=np.intp)
        for column, low, table in steps:
            state *= table.shape[1]
            state += np.clip(columns[column] - (low - 1), 0, table.shape[1] - 1)
            state = table.ravel().take(state, mode="clip")
        alike = np.ones(piece.size, dtype=bool)
        for column in range(width):
            alike &= of_state[column].take(state, mode="clip") == columns[column]
        places[start : start + _TEXTS] = place.take(state * alike, mode="clip")

    in_parallel(look_up, range(0, found.size, _TEXTS))
    return places


def numbered(name: str, labels: Any) -> Labels:
    """Return a number or a date for each label of a vector, in the order of the labels; equal labels get equal numbers.

    Raise the errors of `vector`, whose messages call the labels by `name`.
    """
    labels = _tables.labels_of(labels)
    if not isinstance(labels, _tables.Encoded):
        found = vector(name, labels)
        return _ranked(found) if found.dtype.kind == "O" else found
    found = vector(name, labels.distinct)
    if found.dtype.kind == "O":
        order, found = sorted(range(found.size), key=found.tolist().__getitem__), np.empty(found.size, dtype=np.int64)
        found[order] = np.arange(found.size)
    return found.take(labels.places)


def _ranked(texts: Labels) -> NDArray[np.int64]:
    """Return the place of each of the `texts`, an array of objects, in the sorted list of all different texts."""
    entries = texts.tolist()
    ranks = {text: rank for rank, text in enumerate(sorted(set(entries)))}
    return np.fromiter(map(ranks.__getitem__, entries), dtype=np.int64, count=texts.size)


def in_order(labels: Labels) -> NDArray[np.int64]:
    """Return the indices that sort `labels`, a result of `vector`; equal entries keep their order."""
    labels = _ranked(labels) if labels.dtype.kind == "O" else labels
    if labels.size and labels.dtype.kind in "iub":
        span, bits = int(labels.max()) - int(labels.min()), labels.size.bit_length()
        if span >> (63 - bits) == 0:  # a label and its index fit into one number, and such numbers are sorted quicker
            whole = labels if labels.dtype == np.uint64 else labels.astype(np.int64, copy=False)
            both: NDArray[np.int64] = (whole - whole.min()).view(np.int64)
            both <<= bits
            both |= np.arange(labels.size)
            both.sort()
            both &= (1 << bits) - 1
            return both
    return np.argsort(labels, kind="stable")


def vector(name: str, labels: Any) -> Labels:
    """Return `labels` as a vector of numbers, of dates of NumPy, or of objects that are texts (str).

    No text becomes a NumPy string, because each of these takes as much memory as the longest one: then one person could
    decide how much memory a release needs. Only groups that are NumPy strings already remain so. Raise TypeError for
    labels of several types, or of another type, and ValueError for missing labels and for labels that NumPy would not
    tell apart. The messages call the labels by `name`.
    """
    labels = _tables.labels_of(labels)
    if isinstance(labels, _tables.Encoded):
        return vector(name, labels.distinct).take(labels.places)
    # The labels of a list are not converted to one type, or 1 and "1" would be one person.
    as_they_are = isinstance(labels, list | tuple)
    try:
        found = np.asarray(labels, dtype=object if as_they_are else None)
    except ValueError:  # rows of different lengths, which the message may show
        found = np.asarray(None)
    if found.ndim == 1 and (found.dtype.kind in "OT" or (found.dtype.kind == "U" and name == "person")):
        found = _typed(name, found.astype(object))
    if found.dtype.kind in "fM" and np.isnan(found).any():
        raise ValueError(f"{name} must not have missing labels")
    if found.ndim != 1 or found.dtype.kind not in _KIND_NAMES:
        raise TypeError(f"{name} {NO_LABELS}")
    if found.dtype.kind == "f" and (np.abs(found) >= 2 / np.finfo(found.dtype).eps).any():
        raise ValueError(f"{name} must not have such large floats: integers or texts tell all labels apart")
    if name == "person" and found.dtype.kind == "O" and not _ABSENT.isdisjoint(found):
        raise ValueError(f"{name} must not have missing labels, nor texts that stand for them, such as NA")
    return found


def _typed(name: str, found: Labels) -> Labels:
    """Return the vector of objects `found` as dates, booleans, integers or floats of NumPy; texts remain objects.

    The message of an error calls the labels by `name`. Raise TypeError if the entries have several types, or none of
    these types. Raise ValueError for a missing entry, for integers or nanoseconds that do not fit together into 64
    bits, and for a text that ends in a null character, which NumPy would ignore when it compares texts.
    """
    types = set(map(type, found))
    if not all(issubclass(kind, Hashable) for kind in types):  # arrays cannot be compared as labels
        raise TypeError(f"{name} {NO_LABELS}")
    if types != {str} and any(
        label is None or type(label).__name__ in ("NAType", "NaTType") or label != label for label in found
    ):
        raise ValueError(f"{name} must not have missing labels")
    if all(issubclass(kind, str) for kind in types):
        parts = (found[start : start + _JOINED] for start in range(0, found.size, _JOINED))
        rare = (part for part in parts if "\0" in "".join(part))  # much quicker than to look at each text
        if any(map(str.endswith, itertools.chain.from_iterable(rare), itertools.repeat("\0"))):  # NumPy ignores it
            raise ValueError(f"{name} must not have texts that end in a null character")
        plain = types <= {str}  # no objects of a derived type
        return found if plain else np.fromiter(map(str.__str__, found), dtype=object, count=found.size)
    if all(isinstance(label, np.datetime64) for label in found):
        return _in_one_unit(name, np.array(found.tolist()), found)
    if all(map(_is_date, found)):
        dates, rest = found.astype("M8[us]"), [getattr(label, "nanosecond", 0) for label in found]  # of pandas
        return _in_one_unit(name, dates.astype("M8[ns]"), dates) + np.array(rest, "m8[ns]") if any(rest) else dates
    for kinds, dtype in _KINDS:
        if all(isinstance(label, kinds) and (dtype is bool or not isinstance(label, bool)) for label in found):
            try:
                return found.astype(dtype)
            except OverflowError:
                if dtype is np.uint64:
                    raise ValueError(f"{name} must have integers of 64 bits: texts tell larger ones apart") from None
    raise TypeError(f"{name} {NO_LABELS}")


def _in_one_unit(name: str, dates: Labels, given: Iterable[np.datetime64]) -> Labels:
    """Return `dates`, which were made from the dates `given`, or raise ValueError if one of these is another date.

    The unit of `dates` may be so fine that 64 bits cannot count some of the dates in it. `name` is for the message.
    """
    if any(date.astype(label.dtype) != label for date, label in zip(dates, given, strict=True)):
        unit = np.datetime_data(dates.dtype)[0]
        raise ValueError(
            f"{name} must not have dates that 64 bits cannot count in {unit}, the finest unit of all dates"
        )
    return dates


def _is_date(label: object) -> bool:
    """Return whether `label` is a date or a time of Python without a time zone."""
    return isinstance(label, date) and getattr(label, "tzinfo", None) is None


def end_to_end(*parts: Labels) -> Labels:
    """Concatenate the arguments, vectors of labels; raise a TypeError if NumPy would have to change their types."""
    filled = [part for part in parts if part.size] or parts[:1]
    require_one_type(filled)
    joined = np.concatenate(filled)
    if len({part.dtype for part in filled}) > 1 and joined.dtype.kind == "M":
        return _in_one_unit("person and by", joined, itertools.chain(*filled))
    return joined


def require_one_type(labels: Iterable[Labels]) -> None:
    """Raise TypeError if the vectors in `labels` do not all have labels of one type, such as integers or texts."""
    if len({part.dtype.kind for part in labels}) > 1:
        raise TypeError("person and by must have labels of one type in all blocks of X")
