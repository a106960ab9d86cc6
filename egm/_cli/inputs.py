"""Read the input of a command: vectors such as sigma, the number of rows, the parameters of a mechanism, and the rows.

The argument `args` of each function holds the parsed options. A `Mistake` is the exception for an
error of the user, which the command reports in one line.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import math
import os
import re
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from egm import files
from egm._adaptive.declared import MOST
from egm._cli.options import ALONG, SCALINGS, VECTORS, spelled, split
from egm._cli.terminal import Mistake, from_csv, is_terminal, tell
from egm._files.columns import refuse_twins
from egm._files.source import TextError, Vector
from egm._rows import people
from egm._rows.labels import vector
from egm._types import Array
from egm.adaptive import AdaptiveDataMechanism
from egm.calibration import zcdp_epsilon, zcdp_rho

__all__ = [
    "absence",
    "adaptive_mechanism",
    "bounds",
    "center_of_rows",
    "exactly",
    "explained",
    "in_memory",
    "is_path",
    "keys",
    "labelled",
    "labels_of",
    "least_rows",
    "model",
    "planned",
    "progress",
    "ranges",
    "require_persons",
    "rho",
    "rounded_up",
    "rows_declared",
    "table",
    "values",
]

_NAMES = {  # for each parameter that a message of egm may name: the option, or other words, by which the user knows it
    **{name: spelled(name) for name in (*VECTORS, "epsilon", "delta", "rho", "radius", "sigma_range", "sigma_factor")},
    **{name: spelled(name) for name in ("clip_probability", "neighbors", "count_clipped", "basis")},
    **{name: spelled(name) for name in ("per_person", "person", "by", "keys", "groups_per_person")},
    **{name: spelled(name) for name in ("delimiter", "decimal", "thousands", "skip_lines", "encoding")},
    **{name: spelled(name) for name in ("missing", "rule")},
    **{"target": "--target-error", "measure": "--measure", "column": "--column", "ranges": "--range"},
    **{"X": "the data", "n": "--rows", "noise": "the noise", "clip_norm": "the clip norm"},
    "mechanism": "--by: the mechanism",
}
_KEYS = {  # what the keys of groups look like, by the kind of the labels
    "b": "True|False",
    **dict.fromkeys("iu", r"0|-?[1-9]\d*"),
    "M": r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?",
}
_KEY_NAMES = {
    "b": "True or False",
    **dict.fromkeys("iu", "a whole number"),
    "M": "a date such as 2024-03-01 or 2024-03-01T12:30",
}
_NAMED = {"scaling": SCALINGS, "basis": ("dct", "haar", "learn")}  # values that are no paths, by option
_PATIENCE = 1.0  # seconds before progress is shown
_PAUSE = 0.2  # seconds between two updates of the progress

T = TypeVar("T")


def table(args: Namespace) -> files.Table:
    """Return the table in the data file as an `egm.files.Table`; its rows are read only later, block by block.

    `args` holds the options of the command, with the path of the data file in `args.data`.
    """
    vectors, columns = _vectors(args), args.columns
    known = {name for names, _ in vectors.values() for name in names or ()}
    labels = labels_of(args)
    if labels:
        known |= set(labels.values())
        columns = columns or next((names for names, _ in vectors.values() if names), None)
        if columns is None:  # the labels are columns of the file, too
            raise Mistake("--columns is required with --person and --by, unless the file of --sigma has names")
    width = len(vectors["sigma"][1]) if args.command in ("sum", "mean") else None
    written = {name: getattr(args, name) for name in ("delimiter", "decimal", "thousands", "skip_lines", "encoding")}
    missing: Literal["error", "nan"] = "error" if args.missing == "error" else "nan"
    with explained(()):
        return files.rows(
            args.data,
            columns,
            header=args.header,
            known=known,
            width=width,
            missing=missing,
            labels=tuple(labels.values()),
            **written,
        )


def labels_of(args: Namespace) -> dict[str, str]:
    """Return the names of the columns with persons and groups, as a dictionary of arguments of a release.

    The key "person" has the value of the option --person, and "by" that of --by; an option that is not given has no
    key. Raise a `Mistake`, an error for the user, if only one of --person and --per-person is given, or only one of
    --by and --keys. The same error is raised if --person or --by is given without --rows, or if --groups-per-person is
    above 1 without --by.
    """
    for name, other in (("person", "per_person"), ("by", "keys")):
        given = {option for option in (name, other) if getattr(args, option, None) is not None}
        if len(given) == 1:
            raise Mistake(f"{spelled(name)} and {spelled(other)} must be given together")
    labels = {name: getattr(args, name) for name in ("person", "by") if getattr(args, name, None) is not None}
    if labels and args.rows is None:
        raise Mistake("--rows is required with --person and --by: a public number, which is not taken from the file")
    if getattr(args, "groups_per_person", 1) > 1 and "by" not in labels:
        raise Mistake("--groups-per-person goes with --by only")
    return labels


def keys(args: Namespace, table: files.Table) -> list[Any]:
    """Return the keys of the groups: the value of --keys, split at its commas, or the lines of the file that it names.

    The keys are texts or, if the labels of groups in `table` are dates, dates. Raise a `Mistake`, an error for the
    user, if the type of the labels shows that no label can be one of the keys, if a key is no text, or if --keys seems
    to be the name of a text file that does not exist: this name, taken as a key, would be a group without rows.
    """
    lines = list[str]()
    if not os.path.exists(args.keys):
        found = split(args.keys)
        if len(found) == 1 and re.search(r"\.(txt|csv)$", args.keys.strip(), re.IGNORECASE):
            raise Mistake(f"--keys {args.keys}: No such file")
    else:
        try:
            with open(args.keys, encoding="utf-8-sig") as file:
                lines = list(file)
        except (OSError, UnicodeDecodeError) as wrong:
            raise Mistake(f"--keys {args.keys}: {getattr(wrong, 'strerror', 'is not UTF-8 text')}") from None
        found = list(map(_unquoted, lines))
    found = [key.strip() for key in found if key.strip()]
    if not found:
        raise Mistake(f"--keys {args.keys!r}: must be keys with commas between them, or a file with one on each line")
    if re.search("[\ud800-\udfff]", "".join(found)):  # bytes of the command line that are no text
        raise Mistake(f"--keys {args.keys!r}: must have Unicode characters only")
    kind = "U" if table.label_types is None else table.label_types([args.by])[0].kind
    if kind == "f":
        raise Mistake(f"--by {args.by}: has floating-point numbers, which cannot be compared with --keys as texts")
    for key in found:
        if not re.fullmatch(_KEYS.get(kind, ".*"), key, re.ASCII | re.DOTALL):
            raise Mistake(f"--keys: {key!r} must be {_KEY_NAMES[kind]}, as the labels of --by {args.by} are")
    _warn_of_columns(args, lines)
    if kind != "M":
        return found
    try:
        dates = [np.datetime64(key) for key in found]
    except ValueError:
        raise Mistake(f"--keys: there is no date such as one of {args.keys!r}") from None
    return list(np.array(dates))  # in one unit: dates, or dates with times


def _unquoted(line: str) -> str:
    """Return the text in `line` without the quotes around it, if it is a cell in quotes as programs write it to CSV."""
    line = line.strip()
    return split(line)[0] if len(line) > 1 and line[0] == line[-1] == '"' and len(split(line)) == 1 else line


def _warn_of_columns(args: Namespace, lines: Sequence[str]) -> None:
    """Warn of the first of `lines`, those of the file of --keys, that seems to be a header or to have several columns.

    This is no error: each line is a key as a whole, and some keys have commas. Quotes around a key with a comma say
    that it is one.
    """
    for number, line in enumerate(lines, 1):
        if _unquoted(line) == args.by:
            told = f"is the name of --by, {args.by!r}: it is taken as a key, not as a header"
        elif re.search("[\t;,]", re.sub('"[^"]*"', "", line.strip())):
            told = "has a comma, a semicolon or a tab outside of quotes: the whole line is taken as one key"
        else:
            continue
        warnings.warn(f"--keys {args.keys}: line {number} {told}", stacklevel=2)
        return


def labelled(table: files.Table, args: Namespace) -> files.Table:
    """Return a copy of `table` that shows progress while it is read, and whose group labels are texts or dates.

    The group labels are those of the column that --by names. Dates remain dates, and all other labels become texts
    without spaces around them, so that they can be compared with the keys that the user gives by --keys. Texts in the
    file remain Python objects: NumPy's texts would lose a null character at the end, which must be refused.
    """
    by = getattr(args, "by", None)

    def of_groups(name: str, label: Any) -> Any:
        if name != by or label.dtype.kind == "M":
            return label
        if label.dtype.kind == "O":
            return np.array([text.strip() for text in label], dtype=object)
        return label.astype(np.str_)

    def read(names: Sequence[str]) -> Iterator[tuple[Array, list[Any]]]:
        pairs = progress(table.labelled(names), table.count, args, rows_of=lambda pair: len(pair[0]))
        return ((values, list(map(of_groups, names, labels))) for values, labels in pairs)

    def types(names: Sequence[str]) -> list[np.dtype[Any]]:
        known = table.label_types(names) if table.label_types else [np.dtype(np.str_) for _ in names]
        return [of_groups(name, np.empty(0, dtype)).dtype for name, dtype in zip(names, known, strict=True)]

    return dataclasses.replace(table, labelled=read, label_types=types)


def require_persons(table: files.Table, n: int, args: Namespace) -> None:
    """Raise a `Mistake` (an error of the user) if the rows of `table` are not sorted by person, which a release needs.

    The option --person names the column that says to whom each row belongs; without it, nothing is checked. A `Mistake`
    is also raised if the number of persons is public and is not `n`, unless the option --by divides the rows into
    groups. The check comes before a budget records the cost of the release. This reveals nothing private, because the
    order of the rows counts as public. A missing or otherwise wrong entry of the column is private, and so is a column
    that does not fit into memory: the check ends there without an error, and the release raises the error after the
    cost is recorded.
    """
    if args.person is None or table.labels is None:
        return
    is_public = args.neighbors == "replace_one" and args.missing != "drop_row" and not isinstance(args.per_person, int)
    order = people.Order()
    with contextlib.suppress(ValueError, TypeError, MemoryError):
        found = table.labels([args.person])
        for (labels,) in progress(found, table.count, args, rows_of=lambda columns: len(columns[0])):
            if not order.holds(vector("person", labels)):
                how = "by a stable sort, which keeps the order of each person's rows (texts by the codes of characters)"
                raise Mistake(f"{_data(args)}: must be sorted by --person {args.person}, {how}")
        if is_public and getattr(args, "by", None) is None:
            _require(order.count, n, args, "persons")


def _vectors(args: Namespace) -> dict[str, Vector]:
    """Read the files whose paths are given by options such as --sigma; return the contents by the names of the options.

    The content of a file is a pair: the names of the columns or None, and an array of numbers, one for each column. A
    file is read only once, because the dictionary is kept in `args`.
    """
    if not hasattr(args, "vectors"):
        found = {name: getattr(args, name) for name in VECTORS if is_path(args, name)}
        for name, path in found.items():
            if (why := absence(path)) is not None:
                number = ", and no number, as 44.5 is" if name in ("center", "center_std") else ""
                raise Mistake(f"{spelled(name)} {path}: {why}{number}")
        args.vectors = {name: _of_release(path, name) or files.vector(path) for name, path in found.items()}
    vectors: dict[str, Vector] = args.vectors
    return vectors


def absence(path: str) -> str | None:
    """Return why no file is found at `path`, as a text such as "No such file", or None if there is one."""
    try:
        os.stat(path)
    except (FileNotFoundError, ValueError):  # the latter for a null character
        return "No such file"
    except OSError as wrong:
        return wrong.strerror
    return None


def _of_release(path: str, name: str) -> Vector | None:
    """Return the names of the columns and the vector `name` in the file at `path`, if it is the output of a release.

    A file whose name ends in .json must be such an output. A CSV file is one if it has a column "column", and a column
    with the name of one of the vectors or more than two columns. For any other file the result is None. Raise a
    `Mistake` if a .json file is no release, or if the vector is missing, has not one finite number for each column, or
    has numbers for the vectors of a basis instead. Raise a FileError if two columns have the same name.
    """
    if not os.path.isfile(path):  # to open a pipe could wait forever
        return None
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return None
    rows, is_json, has_comment = list[dict[str, str]](), path.lower().endswith(".json"), text.startswith("# {")
    lines = text.split("\n")  # splitlines would also divide a name at other characters than line ends
    if not is_json:
        with contextlib.suppress(csv.Error):
            rows = list(csv.DictReader(lines[has_comment:]))
        if not rows or "column" not in rows[0] or (len(rows[0]) < 3 and rows[0].keys().isdisjoint(VECTORS)):
            return None
    try:
        content = json.loads(text if is_json else lines[0][2:] if has_comment else '{"parameters": {}}')
        _warn_of_ranges(path, content)
        if is_json:
            names, found = list(map(str, content["columns"])), {**content["parameters"], **content}
        else:
            names = [from_csv(row["column"]) for row in rows]
            found = {key: [row.get(key) for row in rows] for key in rows[0]}
        if name not in found:
            along = f", but {name}{ALONG}: numbers along a basis, and not those of the columns"
            raise Mistake(f"{spelled(name)} {path}: has no {name}{along if f'{name}{ALONG}' in found else ''}")
        numbers = np.array(found[name], dtype=float)
        if not names or numbers.shape != (len(names),) or not np.isfinite(numbers).all():
            raise ValueError
    except Mistake:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise Mistake(f"{spelled(name)} {path}: is no release with such numbers") from None
    refuse_twins(Path(path), names)
    return names, numbers


def _warn_of_ranges(path: str, content: dict[str, Any]) -> None:
    """Warn if sigma and center in `content`, the content of the file of a release at `path`, are not estimates.

    They are no estimates if the release clipped the rows to their declared ranges, without a search. Then center has
    the middles of the ranges, and sigma has half of their lengths.
    """
    if content.get("method") == "ranges":
        told = "its method is ranges, so its center and sigma are only the middle and half of each declared range"
        warnings.warn(f"{path}: {told}", stacklevel=2)


def is_path(args: Namespace, name: str) -> bool:
    """Return whether the value of the option `name` may be the path of a file.

    It may be one if it is a text, but not the name of a scaling or of a basis, such as "optimal" or "dct".
    """
    value = getattr(args, name, None)
    return isinstance(value, str) and value.partition(":")[0] not in _NAMED.get(name, ())


def planned(args: Namespace) -> tuple[tuple[str, ...], Array]:
    """Return the names and the standard deviations of the columns for a forecast, from the file that --sigma names.

    The names are texts. If the file has no names, they are "1", "2" and so on.
    """
    names, sigma = _vectors(args)["sigma"]
    return tuple(names or (str(j + 1) for j in range(len(sigma)))), sigma


def rows_declared(args: Namespace, table: files.Table) -> int:
    """Return the number of rows for the mechanism: the value of --rows or, without this option, that of `table`.

    With --person or --by, return the value of --rows without a check. Otherwise raise a `Mistake`, an error for the
    user, if --rows is missing although the number is private, if there are no rows, or if the number is public and is
    not that of the file. The rows of a CSV file must be counted for this. They are counted only if --rows is missing,
    or if the number is public and --budget is given; otherwise the two numbers are not compared. They are also not
    compared if text in a cell makes the number doubtful. A cell is private, and the release raises the error for it
    after the cost is recorded.
    """
    if labels_of(args):
        return int(args.rows)
    if args.rows is None and args.neighbors == "add_remove":
        raise Mistake("--rows is required with --neighbors add_remove: a public guess; the true number is private")
    count, is_public = table.count, args.neighbors == "replace_one"
    if count is None and (args.rows is None or (is_public and args.budget is not None)):
        counted = 0
        try:
            for some in progress(table.counts(), None, args, rows_of=int):
                counted += some
            count = counted
        except TextError:
            count = None if args.rows else counted
    n: int = args.rows or count  # type: ignore[assignment]  # one of them is known
    if n < 1:
        raise Mistake(f"{_data(args)}: has no rows")
    if is_public and count is not None:
        _require(count, n, args)
    return n


def model(args: Namespace, n: int, columns: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of `GaussianDataMechanism` that the options give, as a dictionary.

    `n` is the number of rows. The entries of every vector, such as sigma, are put into the order of `columns`, the
    names of the columns of the data.
    """
    if n == 1 and args.clip_probability is None:
        raise Mistake("--clip-probability must be given for one row: its default, 1/N, would be 1")
    if args.basis is not None and (named := _vectors(args)["sigma"][0]) is not None:
        raise Mistake(f"--sigma {args.sigma}: names {named[0]!r}, but with --basis its values belong to basis vectors")
    plain = ("epsilon", "delta", "clip_probability", "neighbors", "sigma_factor", "count_clipped", "noise")
    vectors = {name: values(args, name, columns) for name in VECTORS}
    people = {name: getattr(args, name) for name in ("missing", "per_person") if hasattr(args, name)}
    # `egm plan` has a measure if it shall find what a target needs
    people["of"] = "mean" if args.command == "mean" or getattr(args, "measure", None) in ("mean", "interval") else "sum"
    return {"n": n, **{name: getattr(args, name) for name in plain}, **vectors, "basis": _basis(args), **people}


def _basis(args: Namespace) -> Any:
    """Return the value of --basis or, if it is the path of a file, the matrix in this file; None without the option."""
    if not is_path(args, "basis") or not os.path.exists(args.basis):
        return args.basis
    return np.concatenate(list(files.rows(args.basis, header="no").blocks()))


def values(args: Namespace, name: str, columns: Sequence[str]) -> Any:
    """Return the value of the option `name` or, if this is the path of a file, the numbers in the file.

    The numbers are put into the order of the names in `columns`, if the file has names; otherwise there must be one
    number for each column. Raise a `Mistake`, an error for the user, if the file does not match the columns.
    """
    if not is_path(args, name):
        return getattr(args, name)
    file = f"{spelled(name)} {getattr(args, name)}"
    names, numbers = _vectors(args)[name]
    if names is None:
        if len(numbers) != len(columns):
            raise Mistake(f"{file}: has {len(numbers)} values for {len(columns)} columns")
        return numbers
    found = dict(zip(names, numbers, strict=True))
    for column in columns:
        if column not in found:
            raise Mistake(f"{file}: has no value for the column {column!r} (--columns chooses some)")
    others = set(found) - set(columns) if getattr(args, "columns", None) is None else set()
    if others:
        other = next(name for name in names if name in others)
        raise Mistake(f"{file}: names {other!r}, which is no column; name the --columns to use")
    return np.array([found[column] for column in columns])


def center_of_rows(args: Namespace, columns: Sequence[str]) -> Any:
    """Return the value of --center or, if it is the path of a file, the numbers in this file; None without the option.

    If the file has names, the numbers are put into the order of `columns`, the names of the columns of the data.
    """
    center = values(args, "center", columns)
    return None if center is args.defaults["center"] else center  # a given 0 is another object


def rho(args: Namespace) -> float:
    """Return the budget rho of `egm adaptive`: the value of --rho, or the rho that --epsilon and --delta allow.

    Raise a `Mistake`, an error for the user, if the budget is missing or given in two ways.
    """
    given = [name for name in ("rho", "epsilon", "delta") if getattr(args, name) is not None]
    if given not in (["rho"], ["epsilon", "delta"]):
        raise Mistake("the budget is either --rho, or --epsilon and --delta")
    return float(args.rho if given == ["rho"] else zcdp_rho(args.epsilon, args.delta))


def ranges(args: Namespace) -> dict[str, tuple[float, float]] | None:
    """Return the ranges of the columns that --range declares, by the name of the column, or None without this option.

    Raise a `Mistake`, an error for the user, if a column has two ranges, if --range and --radius are both given, or if
    --range is not given and one of --radius and --sigma-range is missing.
    """
    found = dict(args.range or ())
    if len(found) < len(args.range or ()):
        raise Mistake("--range must be given once for each column")
    if found and args.radius is not None:
        raise Mistake("--range does not go with --radius")
    missing = [spelled(name) for name in ("radius", "sigma_range") if not found and getattr(args, name) is None]
    if missing:
        raise Mistake(f"the following arguments are required without --range: {', '.join(missing)}")
    return found or None


def bounds(args: Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return, as a dictionary, the arguments of `AdaptiveDataMechanism` that declare ranges for the columns `names`.

    With the option --range they are `sigma_range`, `ranges` and `columns`; without it, `sigma_range` and `radius`.
    """
    declared = ranges(args)
    of_means = {"radius": args.radius} if declared is None else {"ranges": declared, "columns": names}
    return {**of_means, "sigma_range": args.sigma_range}


def adaptive_mechanism(args: Namespace, n: int, d: int, names: Sequence[str]) -> AdaptiveDataMechanism:
    """Return the `AdaptiveDataMechanism` that the options describe, for `n` rows and `d` columns called `names`.

    If the budget is given as epsilon and delta and is too small, raise a `Mistake`, an error for the user. The message
    names a sufficient number of rows and, if there is one, a sufficient epsilon.
    """
    people: dict[str, Any] = {"per_person": getattr(args, "per_person", None), "neighbors": args.neighbors}
    people["missing"] = getattr(args, "missing", "error")
    mechanism = AdaptiveDataMechanism(n, rho(args), **bounds(args, names), basis=_basis(args), **people)
    if args.delta is None:
        return mechanism
    mechanism.epsilon(args.delta)  # warns of a delta of 1/n or more
    least = mechanism.least_rho(d)
    if mechanism.ranges is None and mechanism.rho < least:  # the message states the budget as the user did
        epsilon = rounded_up(zcdp_epsilon(rounded_up(least), args.delta))
        more = f"--epsilon {epsilon:g}, or " if zcdp_rho(epsilon, args.delta) <= MOST else ""
        raise Mistake(
            f"--epsilon {args.epsilon:g} with --delta {args.delta:g} is too small for {n} rows and "
            f"{d} column{'s' * (d > 1)}: to find their center and spread in the declared ranges takes "
            f"{more}{least_rows(mechanism, d)} rows"
        )
    return mechanism


def least_rows(mechanism: AdaptiveDataMechanism, d: int) -> int:
    """Return the least number of rows of `d` columns for which the budget of `mechanism` is enough.

    The budget of an AdaptiveDataMechanism must be enough for a private search for center and spread. The more rows
    there are, the less this search costs.
    """
    return max(2, math.ceil(mechanism.n * math.sqrt(mechanism.least_rho(d) / mechanism.rho)))


def rounded_up(x: float, digits: int = 3) -> float:
    """Return `x` rounded up to `digits` significant digits, so that a budget of the rounded size is large enough."""
    return float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(x))))


@contextlib.contextmanager
def explained(names: Sequence[str]) -> Iterator[None]:
    """Reword errors of egm within a `with` block for the user: a parameter is called by the name of its option.

    An error about a parameter, or a MemoryError, becomes a `Mistake`, the exception that the command reports in one
    line. If the error is about an entry of a vector, the message has the name of the column, one of `names`.
    """
    try:
        yield
    except files.FileError:
        raise
    except (ValueError, TypeError) as wrong:
        found = re.match(rf"({'|'.join(_NAMES)})\b(?:\[(\d+)\])?", str(wrong))
        if not found:
            raise
        name, entry = found.groups()
        column = f", column {names[int(entry)]!r}," if entry and name in VECTORS else ""
        raise Mistake(f"{_NAMES[name]}{column}{str(wrong)[found.end() :]}") from wrong
    except MemoryError:
        raise Mistake("the data do not fit into memory") from None


def exactly(n: int, table: files.Table, args: Namespace) -> Iterator[Array]:
    """Yield the blocks of rows of `table`, and then raise a `Mistake` if the table did not have `n` rows.

    A `Mistake` is an error for the user.
    """
    rows = 0
    for block in progress(table, n, args):
        rows += len(block)
        yield block
    _require(rows, n, args)


def _require(rows: int, n: int, args: Namespace, unit: str = "rows") -> None:
    """Raise a `Mistake` unless `rows`, the number of rows in the data file, is `n`, the public number of rows.

    A `Mistake` is an error for the user. `unit` is "rows", or "persons" if the two numbers are those of persons.
    """
    if rows != n:
        raise Mistake(f"{_data(args)}: has {rows} {unit}, {'--rows says' if args.rows else 'a moment ago it had'} {n}")


def _data(args: Namespace) -> str:
    """Return the path of the data file in the options `args`, or the name of standard input."""
    return "standard input" if args.data == "-" else args.data


def in_memory(mechanism: AdaptiveDataMechanism, table: files.Table, args: Namespace) -> Array:
    """Return all rows of `table` as one array; raise a `Mistake` if their number is public and not that of `mechanism`.

    A `Mistake` is an error for the user.
    """
    if mechanism.neighbors == "add_remove":
        return np.concatenate([np.empty((0, len(table.names))), *progress(table, table.count, args)])
    n = mechanism.n
    X, start = np.empty((n, len(table.names))), 0
    for block in exactly(n, table, args):
        X[start : start + len(block)] = block[: max(n - start, 0)]
        start += len(block)
    return X


def progress(
    blocks: Iterable[T], count: int | None, args: Namespace, rows_of: Callable[[Any], int] = len
) -> Iterator[T]:
    """Yield the `blocks` unchanged, and show on a terminal how many rows have been read.

    The number is shown after one second, with its percentage of `count`, the number of all rows, unless that is None.
    If the number of rows is private, only the seconds are shown. The function `rows_of` returns the number of rows in a
    block. If `args.stops` has received a signal such as Ctrl-C, KeyboardInterrupt is raised before the next block.
    """
    private = getattr(args, "neighbors", None) == "add_remove" or getattr(args, "missing", None) == "drop_row"
    start = time.monotonic()
    rows, shown, due = 0, 0, time.monotonic() + _PATIENCE if is_terminal() else math.inf
    try:
        for block in blocks:
            args.stops.check()
            yield block
            rows += rows_of(block)
            if time.monotonic() >= due:
                line = f"{rows:,} rows" + (f", {100 * rows // count} %" if count else "")
                line = f"{time.monotonic() - start:.0f} seconds" if private else line
                tell("\r" + line.ljust(shown), end="")
                shown, due = len(line), time.monotonic() + _PAUSE
    finally:
        if shown:
            tell("\r" + " " * shown, end="\r")
