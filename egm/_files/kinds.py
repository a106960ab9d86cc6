"""Find the reader for a file or a folder, and check the arguments that describe how a CSV file was written."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from egm._files import csv, npy, parquet
from egm._files.source import FileError, Given, Source, reading

__all__ = [
    "KINDS",
    "STANDARD_INPUT",
    "delimiter_of",
    "kind_of",
    "parts_of",
    "require_allowed",
    "source_of",
    "spooled_input",
    "suffix_of",
]

KINDS = {".csv": csv, ".npy": npy, ".parquet": parquet, ".pq": parquet}  # the reader for each suffix
KINDS |= dict.fromkeys((".tsv", ".csv.gz", ".tsv.gz"), csv)
STANDARD_INPUT = Path("standard input")  # its name in messages
_NO_DELIMITER = '"_+-\r\n'  # characters that mean something else, as letters and digits do


def require_allowed(given: Given) -> None:
    """Raise a ValueError if an argument that says how a CSV file was written is not allowed.

    `given` holds the arguments. For example, a letter is not allowed as `delimiter`.
    """
    _require_mark("delimiter", given.delimiter)
    if given.decimal not in (".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {given.decimal!r}")
    if given.decimal == given.delimiter:
        raise ValueError(f"delimiter must not be the decimal sign, got {given.decimal!r} for both")
    if given.thousands is not None:
        _require_mark("thousands", given.thousands)
        if given.thousands == given.decimal:
            raise ValueError(f"thousands must not be the decimal sign, got {given.decimal!r} for both")
    if type(given.skip_lines) is not int or given.skip_lines < 0:
        raise ValueError(f"skip_lines must be a whole number >= 0, got {given.skip_lines!r}")
    if given.header not in ("auto", "yes", "no"):
        raise ValueError(f'header must be "auto", "yes" or "no", got {given.header!r}')
    if given.missing not in ("error", "nan"):
        raise ValueError(f'missing must be "error" or "nan", got {given.missing!r}')
    try:
        "".encode(given.encoding)
    except (LookupError, ValueError):
        raise ValueError(f"encoding must be the name of a text encoding, got {given.encoding!r}") from None


def _require_mark(name: str, mark: object) -> None:
    """Raise a ValueError unless `mark` is one character that can separate cells or digits.

    `mark` is the value of the argument of `egm.files.rows` that is called `name`, such as "delimiter".
    """
    if not isinstance(mark, str) or len(mark) != 1 or mark.isalnum() or mark in _NO_DELIMITER:
        raise ValueError(f"{name} must be one character that is no letter, digit, sign or quote, got {mark!r}")


def spooled_input() -> bytes | mmap.mmap:
    """Read all of standard input; return its bytes, or a memory map of the temporary file that holds them."""
    with reading(STANDARD_INPUT), tempfile.TemporaryFile() as file:
        if sys.stdin is None:
            raise FileError(f"{STANDARD_INPUT}: is closed")
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""


def suffix_of(path: Path) -> str:
    """Return the suffix of `path` in lower case: for example ".csv" or, for a file compressed by gzip, ".csv.gz"."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() + suffix if suffix == ".gz" else suffix


def delimiter_of(path: Path) -> str:
    """Return the delimiter for the suffix of `path`, the path of a CSV file: a tab for .tsv, and otherwise a comma."""
    return "\t" if suffix_of(path).startswith(".tsv") else ","


def parts_of(path: Path) -> list[Path]:
    """Return a list with `path` or, if this is a folder, the sorted paths of the CSV or Parquet files in and below it.

    Raise a FileError if the folder has no such files, if it has files of another kind, or if its files are not of one
    kind: Parquet files, CSV files with commas (.csv), or with tabs (.tsv). The same error is raised for two files whose
    names differ only by .gz: gunzip can keep the packed file beside the other, and everybody would be counted twice.
    """
    found, seen = list[Path](), set[str]()
    with reading(path):
        if not path.is_dir():
            return [path]
        for folder, _, names in os.walk(path, onerror=_raise, followlinks=True):
            if os.path.realpath(folder) in seen:
                raise FileError(f"{folder}: leads to a directory that is read already")
            seen.add(os.path.realpath(folder))
            found += [Path(folder, name) for name in names]
    parts = [file for file in sorted(found) if not any(name[0] in "._" for name in file.relative_to(path).parts)]
    for file in parts:
        if KINDS.get(suffix_of(file)) not in (csv, parquet):
            raise FileError(f"{path}: is a directory, and {file} in it is neither a CSV nor a Parquet file")
        if (KINDS[suffix_of(file)], delimiter_of(file)) != (KINDS[suffix_of(parts[0])], delimiter_of(parts[0])):
            raise FileError(f"{path}: is a directory, and {parts[0]} and {file} in it are not of one kind")
    known = {*parts}
    for file in parts:
        if file.suffix.lower() == ".gz" and (other := file.with_suffix("")) in known:
            both = f"{other.relative_to(path)} and {file.relative_to(path)}"
            raise FileError(f"{path}: has {both}, which would count the same rows twice")
    if not parts:
        raise FileError(f"{path}: is a directory without CSV or Parquet files")
    return parts


def _raise(error: OSError) -> None:
    """Raise `error`, which `os.walk` passes to this function when it cannot read a folder.

    Without such a function, `os.walk` would leave out the folder and go on.
    """
    raise error


def source_of(path: Path, given: Given) -> Source:
    """Return the table in the file at `path` as a `Source`; `given` holds arguments of `egm.files.rows`."""
    with reading(path, given.encoding):
        reader = kind_of(path) if given.spooled is None else csv
        source: Source = reader.table(path, given)
        return source


def kind_of(path: Path) -> ModuleType:
    """Return the module that reads files with the suffix of `path`, for example `egm._files.csv` for ".csv".

    Raise a FileError if no module reads files with this suffix, or if there is no regular file at `path`.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file (- reads standard input)"
        raise FileError(f"{path}: is {kind}")
    try:
        return KINDS[suffix_of(path)]
    except KeyError:
        raise FileError(f"{path}: the name must end in {', '.join(KINDS)}, not in {path.suffix!r}") from None
