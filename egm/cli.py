"""Run `egm sum`, `egm adaptive` and `egm plan`: the command line, for people with a file.

Only the release is written to standard output or to the output file: the estimate, its noise, and
numbers that are public anyway. Messages go to standard error, for the operator alone. The exit code
is 0 for success, 2 for a mistake in an option or a file, 1 for an error that nobody foresaw, 130
after Ctrl-C, 143 after SIGTERM, and 129 after SIGHUP.

Names of columns and of files come from strangers. When they are printed or written, they cannot
give orders to a terminal, because characters that cannot be printed appear as the escapes of
Python. They cannot give orders to a spreadsheet either, because in CSV a name that such a program
would compute gets an apostrophe in front.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import ROUND_CEILING, Context
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np

import egm
from egm import files
from egm._types import Array, StructuredArray
from egm.adaptive import AdaptiveDataMechanism, AdaptiveRelease
from egm.calibration import zcdp_epsilon, zcdp_rho
from egm.forecast import ErrorForecast
from egm.mechanisms import GaussianDataMechanism, Release
from egm.samplers import SimulationWarning

__all__ = ["main"]

_SCALINGS = ("optimal", "expected_norm", "none")
_OPTIONS = {  # what egm calls it: what the command line calls it
    "n": "--rows",
    **{name: f"--{name.replace('_', '-')}" for name in ("sigma", "epsilon", "delta", "center", "clip_probability")},
    **{
        name: f"--{name.replace('_', '-')}"
        for name in ("scaling", "neighbors", "rho", "radius", "sigma_range", "center_std", "sigma_factor")
    },
    "count_clipped": "--count-clipped",
    "noise": "the noise",
    "clip_norm": "the clip norm",
}
_PATIENCE = 1.0  # seconds before progress is shown
_PAUSE = 0.2  # seconds between two of its numbers
_SHOWN = 20  # columns of a plan
_LONGEST = 500  # characters of a message
_CONFIDENCE = 0.95  # of the intervals that are written
_NEVER_WITH_ADAPTIVE = ("center_std", "sigma_factor", "clip_probability", "scaling", "neighbors", "count_clipped")
_ONLY_WITH_ADAPTIVE = ("rho", "radius", "sigma_range")
_FORMULA = "=+-@\uff1d\uff0b\uff0d\uff20"  # what a formula begins with, also in full width

Document: TypeAlias = dict[str, Any]
T = TypeVar("T")


class _Mistake(Exception):
    """Mistake of the user, told in one line."""


class _Stops:
    """Handler of Ctrl-C, SIGTERM and SIGHUP: each raises KeyboardInterrupt, and is remembered.

    Some libraries catch every exception while they import another library, and then go on as if
    nothing had happened. Therefore `check` raises the exception again, between two blocks and
    before anything is written. After `commit` it is too late.
    """

    def __init__(self) -> None:
        self.received, self.committed = 0, False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> _Stops:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # as nohup and the shell want it
                    self.before.setdefault(number, signal.signal(number, self.stop))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def stop(self, number: int, _: object) -> None:
        """Handle a signal; the system calls this method."""
        self.received = self.received or number
        if not self.committed:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was a signal."""
        if self.received and not self.committed:
            raise KeyboardInterrupt

    def commit(self) -> None:
        """Check for the last time; a signal that comes later does not stop anything."""
        self.check()
        self.committed = True


def main(argv: Sequence[str] | None = None) -> int:
    r"""Run a command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments, without the name of the program; by default those of the process.

    Returns
    -------
    int
        Exit code: 0 for success, 2 for a mistake in an option or a file, 1 for an error that nobody
        foresaw, 130 after Ctrl-C, 143 after SIGTERM, and 129 after SIGHUP.

    Examples
    --------
    Forecast the error of a release, without data:

    >>> import json
    >>> import tempfile
    >>> from pathlib import Path
    >>> from egm.cli import main
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sigma, plan = Path(folder) / "sigma.csv", Path(folder) / "plan.json"
    ...     _ = sigma.write_text("age,18\nincome,1200\nvisits,3\n")
    ...     options = ["--rows", "10000", "--epsilon", "1", "--delta", "1e-6"]
    ...     code = main(["plan", "--sigma", str(sigma), *options, "--output", str(plan)])
    ...     share = json.loads(plan.read_text())["share"]
    >>> code, [round(x, 1) for x in share]
    (0, [2.7, 0.3, 6.6])
    """
    stops = _Stops()
    try:
        with stops, _shown_warnings():
            return _run(argv, stops)
    except KeyboardInterrupt:
        return _stopped(stops)


def _run(argv: Sequence[str] | None, stops: _Stops) -> int:
    """Return the exit code of a command line, unless it is interrupted."""
    try:
        args = _parser().parse_args(argv)
        args.stops = stops
        args.command(args)
        return 0
    except SystemExit as stop:  # argparse, after --help and --version
        return stop.code or 0  # type: ignore[return-value]  # argparse's are numbers
    except (_Mistake, files.FileError) as mistake:
        stops.check()  # what an interruption leaves half done may look like a mistake
        return _complain(mistake, 2)
    except Exception as bug:
        stops.check()
        if "--debug" in (sys.argv[1:] if argv is None else argv):
            print(*map(_visible, traceback.format_exc().splitlines()), sep="\n", file=sys.stderr)
        told = f"{type(bug).__name__}: this should not happen; please report it with what --debug shows"
        return _complain(told, 1)


def _stopped(stops: _Stops) -> int:
    """Report the end after a signal, and return the exit code."""
    number = stops.received or signal.SIGINT
    return _complain("interrupted" if number == signal.SIGINT else "terminated", 128 + number)


def _complain(message: object, code: int) -> int:
    """Print one line on standard error, and return the exit code."""
    line = _visible(" ".join(str(message).split()))
    print(f"egm: {line if len(line) <= _LONGEST else line[: _LONGEST - 3] + '...'}", file=sys.stderr)
    return code


def _visible(text: str) -> str:
    """Replace every character that cannot be printed, and could be an order to a terminal, by an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextlib.contextmanager
def _shown_warnings() -> Iterator[None]:
    """Print each warning as one line on standard error, and only once."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            _complain(f"warning: {message}", 0)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


# Commands ---------------------------------------------------------------------------------------------------------


def _sum(args: Namespace) -> None:
    """Release the sum of the rows of a file."""
    table = _table(args)
    if args.rows is None and args.neighbors == "add_remove":
        raise _Mistake("--rows is required with --neighbors add_remove: a public guess; the true number is private")
    n = _rows_declared(args, table)
    with _explained(table.names):
        mechanism = GaussianDataMechanism(**_model(args, n, table.names))
    blocks = _exactly(n, table, args) if args.neighbors == "replace_one" else _progress(table, table.count, args)
    with _output(args) as write, _explained(table.names), _quiet():
        release = mechanism.release(blocks, rng=_rng(args))
        counted: dict[str, float] = {} if release.count is None else {"count": release.count}
        if release.clipped is not None:
            excess = mechanism.excess_clipped(release)
            counted |= {"clipped": release.clipped, "clipped_std": float(mechanism.clipped_std or 0), "excess": excess}
        write(_document(release, table.names, args, _parameters(mechanism), **counted))


def _adaptive(args: Namespace) -> None:
    """Release the sum of the rows of a file if neither their center nor their spread is known."""
    table = _table(args)
    n = _rows_declared(args, table)
    with _explained(table.names):
        mechanism = _adaptive_mechanism(args, n, len(table.names))
        mechanism.check(np.broadcast_to(0.0, (n, len(table.names))))  # before much is read
    with _output(args) as write, _explained(table.names), _quiet():
        release = mechanism.release(_in_memory(n, table, args), rng=_rng(args))
        low, high = (bound.tolist() for bound in release.interval(_CONFIDENCE))
        found = {"low": low, "high": high, "confidence": _CONFIDENCE, "bias": release.bias.tolist()}
        found |= {"center": release.center.tolist(), "sigma": release.sigma.tolist(), "spent": release.spent}
        found |= {"forecast": _forecast(release.forecast), "model_holds": release.model_holds}
        write(_document(release, table.names, args, _adaptive_parameters(mechanism), **found))


def _plan(args: Namespace) -> None:
    """Forecast a release, without data."""
    _require_options_that_fit(args)
    (_plan_adaptive if args.adaptive else _plan_sum)(args)


def _require_options_that_fit(args: Namespace) -> None:
    """Raise a _Mistake if options of a plan are of no use together, or if one is missing."""
    useless = _NEVER_WITH_ADAPTIVE if args.adaptive else _ONLY_WITH_ADAPTIVE
    for name in useless:
        if getattr(args, name) != args.defaults[name]:
            without = "does not go with --adaptive" if args.adaptive else "goes with --adaptive only"
            raise _Mistake(f"{_OPTIONS[name]} {without}")
    needed = ("radius", "sigma_range") if args.adaptive else ("epsilon", "delta")
    missing = [_OPTIONS[name] for name in needed if getattr(args, name) is None]
    if missing:
        how = "with" if args.adaptive else "without"
        raise _Mistake(f"the following arguments are required {how} --adaptive: {', '.join(missing)}")


def _plan_adaptive(args: Namespace) -> None:
    """Forecast a release of `egm adaptive` for normal rows, without data."""
    names, sigma = _planned(args)
    center = args.center if isinstance(args.center, float) else _matched("--center", args.center, names, args)
    center = np.broadcast_to(center, sigma.shape)
    with _explained(names):
        mechanism = _adaptive_mechanism(args, args.rows, sigma.size)
        _require_in_ranges(mechanism, sigma, center, names)
        forecast = mechanism.forecast(sigma, center)
    least, stated = mechanism.least_rho(sigma.size), {}
    plan: Document = {
        "forecast": _forecast(forecast.error),
        "success": forecast.success,
        "spent": forecast.spent,
        "least_rho": least,
        "least_rows": _least_rows(mechanism, sigma.size),
    }
    if args.delta is not None:
        stated = {"epsilon": args.epsilon, "delta": args.delta}
        plan["least_epsilon"] = zcdp_epsilon(least, args.delta)
    plan["columns"] = list(names)
    vectors = {"sigma": sigma.tolist(), "center": center.tolist()}
    plan["parameters"] = _adaptive_parameters(mechanism) | stated | vectors
    with _output(args) as write:
        write(plan)


def _require_in_ranges(mechanism: AdaptiveDataMechanism, sigma: Array, center: Array, names: Sequence[str]) -> None:
    """Raise a _Mistake if the rows of a plan do not lie in the ranges that the plan declares."""
    low, high = mechanism.sigma_range
    for name, std, mean in zip(names, sigma, center, strict=True):
        if not low <= std <= high:
            raise _Mistake(f"--sigma, column {name!r}, must lie in --sigma-range, from {low:g} to {high:g}, got {std}")
        if abs(mean) > mechanism.radius:
            raise _Mistake(f"--center, column {name!r}, must lie within --radius {mechanism.radius:g}, got {mean}")


def _plan_sum(args: Namespace) -> None:
    """Forecast a release of `egm sum`, without data."""
    names, _ = _planned(args)
    with _explained(names):
        model = _model(args, args.rows, names)
        mechanism = GaussianDataMechanism(**model)
        others = {name: GaussianDataMechanism(**model | {"scaling": name}) for name in _SCALINGS}
    others = {"yours": mechanism, **others} if not isinstance(model["scaling"], str) else others
    expected = np.sqrt(mechanism.error_by_column())
    plan = {
        "forecast": _forecast(mechanism.error()),
        "scalings": {name: other.error().total for name, other in others.items()},
        "columns": list(names),
        "noise_std": mechanism.noise_std.tolist(),
        "share": (expected / (mechanism.sigma * np.sqrt(mechanism.n))).tolist(),
        "parameters": _parameters(mechanism),
    }
    with _output(args) as write:
        write(plan)


def _planned(args: Namespace) -> tuple[tuple[str, ...], Array]:
    """Return the columns of a plan and their standard deviations, which are those of --sigma."""
    names, sigma = _vectors(args)[args.sigma]
    return tuple(names or (str(j + 1) for j in range(len(sigma)))), sigma


def _table(args: Namespace) -> files.Table:
    """Open the data file."""
    vectors = _vectors(args).values()
    known = {name for names, _ in vectors for name in names or ()}
    width = len(_vectors(args)[args.sigma][1]) if args.command is _sum and args.neighbors == "add_remove" else None
    return files.rows(args.data, args.columns, header=args.header, known=known, width=width)


def _vectors(args: Namespace) -> dict[str, files.Vector]:
    """Return the names and the values in the files of options such as --sigma; each file is read once."""
    if not hasattr(args, "vectors"):
        given = [getattr(args, name, None) for name in ("sigma", "center", "center_std", "scaling")]
        paths = [path for path in given if isinstance(path, str) and path not in _SCALINGS]
        args.vectors = {path: files.vector(path) for path in paths}
    found: dict[str, files.Vector] = args.vectors
    return found


def _rows_declared(args: Namespace, table: files.Table) -> int:
    """Return the public number of rows: as declared, or else as in the file."""
    n = args.rows or sum(_progress(table.counts(), table.count, args, rows_of=int))
    if n < 1:
        raise _Mistake(f"{args.data}: has no rows")
    if args.neighbors == "replace_one" and table.count is not None:
        _require(table.count, n, args)
    return n


def _model(args: Namespace, n: int, names: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of GaussianDataMechanism."""
    center, scaling, std = args.center, args.scaling, args.center_std
    if n == 1 and args.clip_probability is None:
        raise _Mistake("--clip-probability must be given for one row: its default, 1/N, would be 1")
    return {
        "n": n,
        "sigma": _matched("--sigma", args.sigma, names, args),
        "epsilon": args.epsilon,
        "delta": args.delta,
        "center": center if isinstance(center, float) else _matched("--center", center, names, args),
        "clip_probability": args.clip_probability,
        "scaling": scaling if scaling in _SCALINGS else _matched("--scaling", scaling, names, args),
        "neighbors": args.neighbors,
        "center_std": _matched("--center-std", std, names, args) if isinstance(std, str) else std,
        "sigma_factor": args.sigma_factor,
        "count_clipped": args.count_clipped,
    }


def _matched(option: str, path: str, columns: Sequence[str], args: Namespace) -> Array:
    """Return the values of a vector file in the order of the columns.

    They are matched by name if the file has names; otherwise there must be as many values as
    columns.
    """
    names, values = _vectors(args)[path]
    if names is None:
        if len(values) != len(columns):
            raise _Mistake(f"{option} {path}: has {len(values)} values for {len(columns)} columns")
        return values
    found = dict(zip(names, values, strict=True))
    for name in columns:
        if name not in found:
            raise _Mistake(f"{option} {path}: has no value for the column {name!r} (--columns chooses some)")
    others = set(found) - set(columns) if getattr(args, "columns", None) is None else set()
    if others:
        name = next(name for name in names if name in others)
        raise _Mistake(f"{option} {path}: names {name!r}, which is no column; name the --columns to use")
    return np.array([found[name] for name in columns])


def _rho(args: Namespace) -> float:
    """Return the budget of `egm adaptive`, which is stated in one of two ways."""
    both = (args.epsilon is None, args.delta is None)
    if args.rho is not None and both == (True, True):
        return args.rho  # type: ignore[no-any-return]  # argparse has seen to it
    if args.rho is None and both == (False, False):
        return float(zcdp_rho(args.epsilon, args.delta))
    raise _Mistake("the budget is either --rho, or --epsilon and --delta")


def _adaptive_mechanism(args: Namespace, n: int, d: int) -> AdaptiveDataMechanism:
    """Return the mechanism of `egm adaptive`, if its budget is large enough for n rows and d columns."""
    mechanism = AdaptiveDataMechanism(n, _rho(args), radius=args.radius, sigma_range=args.sigma_range)
    if args.delta is None:
        return mechanism
    mechanism.epsilon(args.delta)  # warns of a delta of 1/n or more
    least = mechanism.least_rho(d)
    if mechanism.rho < least:  # said in the terms in which the budget was stated
        epsilon = _rounded_up(zcdp_epsilon(_rounded_up(least), args.delta))
        raise _Mistake(
            f"--epsilon {args.epsilon:g} with --delta {args.delta:g} is too small for {n} rows and "
            f"{d} column{'s' * (d > 1)}: to find their centre and spread in the declared ranges takes "
            f"--epsilon {epsilon:g}, or {_least_rows(mechanism, d)} rows"
        )
    return mechanism


def _least_rows(mechanism: AdaptiveDataMechanism, d: int) -> int:
    """Return the least number of rows of d columns for which the budget of the mechanism is large enough."""
    return max(2, math.ceil(mechanism.n * math.sqrt(mechanism.least_rho(d) / mechanism.rho)))


def _rounded_up(x: float) -> float:
    """Round up to three digits, so that a budget that is shown is large enough."""
    return float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(float(x))))


def _rng(args: Namespace) -> np.random.Generator | None:
    """Return None for secure noise, or a Generator if a simulation was asked for."""
    return None if args.simulate is None else np.random.default_rng(args.simulate)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warning of a simulation, because the output itself says that it is one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulationWarning)
        yield


@contextlib.contextmanager
def _explained(names: Sequence[str]) -> Iterator[None]:
    """Turn an error of egm that names a parameter into the user's mistake in an option."""
    try:
        yield
    except files.FileError:
        raise
    except (ValueError, TypeError) as wrong:
        found = re.match(rf"({'|'.join(_OPTIONS)})\b(?:\[(\d+)\])?", str(wrong))
        if not found:
            raise
        name, entry = found.groups()
        column = (
            f", column {names[int(entry)]!r}," if entry and name in ("sigma", "center", "center_std", "scaling") else ""
        )
        raise _Mistake(f"{_OPTIONS[name]}{column}{str(wrong)[found.end() :]}") from wrong
    except MemoryError:
        raise _Mistake("the data do not fit into memory") from None


# Rows -------------------------------------------------------------------------------------------------------------


def _exactly(n: int, table: files.Table, args: Namespace) -> Iterator[Array]:
    """Yield the blocks of the table, and raise a _Mistake if they do not have n rows."""
    rows = 0
    for block in _progress(table, n, args):
        rows += len(block)
        yield block
    _require(rows, n, args)


def _require(rows: int, n: int, args: Namespace) -> None:
    """Raise a _Mistake for another number of rows than the public one."""
    if rows != n:
        raise _Mistake(f"{args.data}: has {rows} rows, {'--rows says' if args.rows else 'a moment ago it had'} {n}")


def _in_memory(n: int, table: files.Table, args: Namespace) -> Array:
    """Return all n rows as one array."""
    X, start = np.empty((n, len(table.names))), 0
    for block in _exactly(n, table, args):
        X[start : start + len(block)] = block[: n - start]
        start += len(block)
    return X


def _progress(
    blocks: Iterable[T], count: int | None, args: Namespace, rows_of: Callable[[Any], int] = len
) -> Iterator[T]:
    """Yield the blocks; on a terminal, show after a second how many rows were read."""
    if not sys.stderr.isatty():
        for block in blocks:
            args.stops.check()
            yield block
        return
    rows, shown, due = 0, 0, time.monotonic() + _PATIENCE
    try:
        for block in blocks:
            args.stops.check()
            yield block
            rows += rows_of(block)
            if time.monotonic() >= due:
                line = f"{rows:,} rows" + (f", {100 * rows // count} %" if count else "")
                print("\r" + line.ljust(shown), end="", file=sys.stderr, flush=True)
                shown, due = len(line), time.monotonic() + _PAUSE
    finally:
        if shown:
            print("\r" + " " * shown, end="\r", file=sys.stderr, flush=True)


# Output -----------------------------------------------------------------------------------------------------------


def _document(
    release: Release | AdaptiveRelease, names: Sequence[str], args: Namespace, parameters: dict[str, Any], **found: Any
) -> Document:
    """Return the content of the output: the release, and the public numbers that it was made with."""
    simulated: dict[str, Any] = {"simulated": release.simulated}
    if release.simulated:
        simulated["warning"] = f"simulation with seed {args.simulate}: not private, not for publication"
    return {
        **simulated,
        "columns": list(names),
        "estimate": release.estimate.tolist(),
        "noise_std": release.noise_std.tolist(),
        **found,
        "parameters": {"egm": egm.__version__, **parameters},
    }


def _parameters(mechanism: GaussianDataMechanism) -> dict[str, Any]:
    """Return all public numbers that a GaussianDataMechanism was made with or has computed."""
    names = {name: name for name in ("epsilon", "delta", "neighbors")} | {"clip_probability": "p"}
    names |= {name: name for name in ("clip_norm", "noise_multiplier", "sigma_factor", "count_clipped")}
    numbers = {name: getattr(mechanism, field) for name, field in names.items()}
    center = np.broadcast_to(mechanism.center, mechanism.sigma.shape)
    vectors = {"sigma": mechanism.sigma.tolist(), "center": center.tolist(), "scaling": mechanism.b.tolist()}
    return {"mechanism": type(mechanism).__name__, "rows": mechanism.n, **numbers, **vectors}


def _adaptive_parameters(mechanism: AdaptiveDataMechanism) -> dict[str, Any]:
    """Return all public numbers that an AdaptiveDataMechanism was made with."""
    ranges = {"radius": mechanism.radius, "sigma_range": mechanism.sigma_range}
    return {"mechanism": type(mechanism).__name__, "rows": mechanism.n, "rho": mechanism.rho, **ranges}


def _forecast(forecast: ErrorForecast) -> dict[str, float]:
    """Return an ErrorForecast as a dictionary."""
    return {name: float(getattr(forecast, name)) for name in ("noise", "clipping", "center", "total")}


@contextlib.contextmanager
def _output(args: Namespace) -> Iterator[Callable[[Document], object]]:
    """Give a function that writes a document to the place the user asked for.

    Whether this place can be written to is found out before there is a release.
    """
    form = args.format or _suffix_form(args)
    if args.output is None:
        if form == "npy" and sys.stdout.isatty():
            raise _Mistake("--format npy is not for a terminal: name a file with --output")
        yield lambda document: _print(_FORMS[form](document), args)
        return
    for name in ("data", "sigma", "center", "center_std", "scaling"):
        path = getattr(args, name, None)
        if isinstance(path, str) and os.path.exists(path) and os.path.realpath(path) == os.path.realpath(args.output):
            raise _Mistake(f"--output {args.output}: is also read")
    try:
        with files.whole(args.output, overwrite=args.force, last=args.stops.commit) as file:
            yield lambda document: file.write(_FORMS[form](document))
    except files.FileError as wrong:
        hint = " (--force replaces it)" if str(wrong).endswith("exists already") else ""
        raise _Mistake(f"{wrong}{hint}") from None


def _suffix_form(args: Namespace) -> str:
    """Return the format that the name of the output file asks for, or else the first format of the command."""
    suffix = os.path.splitext(args.output or "")[1].lstrip(".").lower()
    return suffix if suffix in args.forms else args.forms[0]


def _print(data: bytes, args: Namespace) -> None:
    """Write all the bytes to standard output; without a buffer, a single call may write only a part."""
    args.stops.check()
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[sys.stdout.buffer.write(rest) or 0 :]
        sys.stdout.flush()
    except OSError as wrong:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at its end
        raise _Mistake(f"standard output: {wrong.strerror}") from None


def _as_json(document: Document) -> bytes:
    """Format a document as JSON, with one line for each key."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in document.items())
    return f"{{\n{lines}\n}}\n".encode()


def _as_csv(document: Document) -> bytes:
    """Format a document as CSV, with one row for each data column.

    A comment line at the top holds, as JSON, the values that belong to no column.
    """
    d = len(document["columns"])
    flat = {**document, **document["parameters"]}
    columns = {key: value for key, value in flat.items() if isinstance(value, list) and len(value) == d}
    del columns["columns"]
    rest = {key: value for key, value in document.items() if key not in columns and key != "columns"}
    rest["parameters"] = {key: value for key, value in document["parameters"].items() if key not in columns}
    text = io.StringIO()
    text.write(f"# {json.dumps(rest, allow_nan=False)}\n")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(["column", *columns])
    writer.writerows(zip(map(_cell, document["columns"]), *columns.values(), strict=True))
    return text.getvalue().encode()


def _cell(name: str) -> str:
    """Return a name as text for a spreadsheet, which would compute a name that begins like a formula."""
    return _visible(f"'{name}" if name.lstrip()[:1] in tuple(_FORMULA) else name)


def _as_npy(document: Document) -> bytes:
    """Format a document as one record with its fields, so that ``numpy.load(file)["estimate"]`` works."""
    file = io.BytesIO()
    np.save(file, _record(document), allow_pickle=False)
    return file.getvalue()


def _record(values: Document) -> StructuredArray:
    """Return a dictionary as a structured array without axes."""
    arrays = {key: _record(value) if isinstance(value, dict) else np.array(value) for key, value in values.items()}
    record = np.zeros((), dtype=[(key, array.dtype, array.shape) for key, array in arrays.items()])
    for key, array in arrays.items():
        record[key] = array
    return record


def _as_text(plan: Document) -> bytes:
    """Format a plan as text."""
    return (_text_of_adaptive if "success" in plan else _text_of_sum)(plan)


def _text_of_adaptive(plan: Document) -> bytes:
    """Format a plan of `egm adaptive` as text."""
    made = plan["parameters"]
    budget, least = f"rho = {made['rho']:.5g}", f"rho = {_rounded_up(plan['least_rho']):g}"
    if "delta" in made:
        budget = f"epsilon = {made['epsilon']:g}, delta = {made['delta']:g} ({budget})"
        least = f"epsilon = {_rounded_up(plan['least_epsilon']):g} ({least})"
    low, high = made["sigma_range"]
    error = math.sqrt(plan["forecast"]["total"])
    columns = "1 column" if len(plan["columns"]) == 1 else f"{len(plan['columns'])} columns"
    lines = [
        f"The sum of {made['rows']} rows of {columns}, {budget}",
        f"Declared: means within {made['radius']:g} of 0, standard deviations from {low:g} to {high:g}",
        "",
        *_text_of_forecast(plan),
        f"So the sum is off by {error:.4g} (the root of the total), and the mean by {error / made['rows']:.4g}",
        "",
        f"The search finds centre and spread with a probability of at least {plan['success']:.5f}",
        f"It would still run with {least}, or with {plan['least_rows']} rows",
        "",
        "The budget of each step, as rho and as a share of the whole",
        *(f"  {step:<14}{rho:>12.5g}{rho / made['rho']:>10.2%}" for step, rho in plan["spent"].items()),
    ]
    return ("\n".join(lines) + "\n").encode()


def _text_of_forecast(plan: Document) -> list[str]:
    """Return the lines of text with the parts of the expected error."""
    return [
        "Expected squared error (squared units of the data, summed over the columns)",
        *(f"  {name:<14}{plan['forecast'][name]:>12.5g}" for name in ("noise", "clipping", "center", "total")),
    ]


def _text_of_sum(plan: Document) -> bytes:
    """Format a plan of `egm sum` as text."""
    made = plan["parameters"]
    clipped = f"a row of the model is clipped with probability {made['clip_probability']:.3g}"
    lines = [
        f"The sum of {made['rows']} rows of {len(plan['columns'])} columns, "
        f"epsilon = {made['epsilon']:g}, delta = {made['delta']:g}, neighbors {made['neighbors']}",
        "",
        *_text_of_forecast(plan),
        "",
        "The same with other scalings",
        *(f"  {name:<14}{total:>12.5g}" for name, total in plan["scalings"].items()),
        "",
        f"Clip norm         {made['clip_norm']:>12.5g}  in scaled units; {clipped}",
        f"Noise multiplier  {made['noise_multiplier']:>12.5g}",
        "",
        "Column by column: noise_std, and the expected error (root mean square) as a share of sigma * sqrt(rows), by",
        "which the sum of the rows varies anyway",
    ]
    table = np.array([plan["noise_std"], plan["share"]])
    shown = {"least": table.min(axis=1), "median": np.median(table, axis=1), "greatest": table.max(axis=1)}
    if len(plan["columns"]) <= _SHOWN:
        shown = dict(zip(map(_visible, plan["columns"]), table.T, strict=True)) | shown
    width = max(14, *(len(name) + 2 for name in shown))
    lines.append(f"  {'':<{width}}{'noise_std':>12}{'share':>12}")
    lines += [f"  {name:<{width}}{std:>12.5g}{share:>12.3g}" for name, (std, share) in shown.items()]
    return ("\n".join(lines) + "\n").encode()


_FORMS = {"csv": _as_csv, "json": _as_json, "npy": _as_npy, "text": _as_text}


# Options ----------------------------------------------------------------------------------------------------------

_ABOUT = """\
Differentially private sums of the rows of a file.

Each row is one person's. A release is the sum of the rows, each clipped to an ellipsoid, plus normal noise: what one
person adds to it is hidden by the noise, to the degree that epsilon and delta say. `egm plan` tells how large the error
will be, before any data; `egm sum` makes the release; `egm adaptive` makes one if nobody knows how the data spread."""

_SUM = """\
Release the sum of the rows of a file, with (epsilon, delta)-differential privacy.

A row is moved by the centre, scaled, clipped to a norm that few rows exceed, and added up; noise is drawn by an exact
sampler from the operating system's randomness. sigma, the centre and every other option must be public: from a
codebook, an earlier release or common knowledge, never computed from the data. Privacy holds whatever the data are;
the options only decide how accurate the sum is. Every release spends its epsilon and delta anew. The file may be larger
than memory.

example:
  egm sum visits.parquet --sigma sigma.csv --epsilon 1 --delta 1e-6 --output sums.json"""

_PLAN = """\
Forecast the error of a release, without data.

Shows the expected squared error by its causes, what other scalings would cost, and for each column the noise and the
error as a share of sigma * sqrt(rows). The forecast is for normal rows, on average over what --center-std and
--sigma-factor say of the guesses; nothing private is read.

With --adaptive, --radius and --sigma-range it is about a release of `egm adaptive`, which is not told --sigma and
--center: what error it would have if the rows were normal with these, how probable it is that its search finds centre
and spread, what each step costs, and the least budget and the least number of rows that would do. A budget that is too
small is a mistake, and the message says what would do.

example:
  egm plan --sigma sigma.csv --rows 100000 --epsilon 1 --delta 1e-6"""

_ADAPTIVE = """\
Release the sum of the rows of a file if neither their centre nor their spread is known.

A part of the budget finds both out, privately. What must be known, and be public, are bounds: every column's mean lies
between -radius and radius, its standard deviation in sigma-range. The bounds may be generous. The data are held in
memory. The budget is rho of zero-concentrated differential privacy, or the rho that epsilon and delta allow. If it is
too small for the search, the message says what would do, and nothing is released. `egm plan` can say it, and how large
the error will be, before there are data.

Written are the estimate, for each column the bounds low and high between which the sum is with 95 percent confidence,
and what the search found out. Rows far away from all others are clipped without a word if they are too few to be
noticed with this budget.

example:
  egm adaptive visits.parquet --epsilon 1 --delta 1e-6 --radius 1000 --sigma-range 0.1,100"""

_CODES = """
exit codes: 0 done; 2 a mistake in an option or a file; 1 an error in egm; 130 interrupted; 143 terminated;
129 hung up"""

_VECTOR = "a .csv, .npy or .parquet FILE with one number a line, or a column's name and a number"
_HELP = {
    "data": """the rows: .csv (commas, UTF-8; a header or none), .npy (two axes) or .parquet""",
    "--columns": "the columns to use, by name, or by number from 1 where they have no names; by default all",
    "--header": """whether line 1 of a CSV file has names. auto (default): yes if all of them are names in the file of
        --sigma, --center or --scaling, or if it has the --columns; no if it has numbers that are neither whole nor in
        order, or two that are alike; otherwise you are asked to say it, lest the first person is taken for a header or
        a header for a person""",
    "--header of adaptive": """whether line 1 of a CSV file has names. auto (default): yes if it has no number but the
        --columns; no if it has numbers that are neither whole nor in order, or two that are alike; otherwise you are
        asked to say it, lest the first person is taken for a header or a header for a person""",
    "--rows": "the number of rows",
    "--rows of sum": """the number of rows. With neighbours by replacement it is public: declare it, or it is taken from
        the file and published with the release, which is right only if everybody may know it. With --neighbors
        add_remove it is private: N is then a public guess, which only sets the clip norm, and must be given; a noisy
        count is released""",
    "--rows of adaptive": """the number of rows. It is public: declare it, or it is taken from the file and published
        with the release, which is right only if everybody may know it""",
    "--sigma": f"the standard deviation of every column, in its units, > 0: {_VECTOR}",
    "--epsilon": """privacy: one person's data make any result at most a factor of exp(E) more likely. > 0; 1 is common,
        10 protects little""",
    "--delta": "privacy: the probability with which that may fail, in (0, 1) and far below 1/N",
    "--center": """a public guess of the columns' means, in their units: a number for all, or a FILE as for --sigma;
        default 0. Where means lie far from it, in units of sigma, clipping spoils the sum""",
    "--clip-probability": """the share of rows to clip, in (0, 1), if they were normal around the centre; default 1/N.
        optimal: the share of least expected error, where --center-std and --sigma-factor say how sure center and sigma
        are""",
    "--center-std": """how far the means may be from --center, in their units: a number for all, or a FILE as for
        --sigma; default half of sigma. Like the next, it is for the forecast and for --clip-probability optimal""",
    "--sigma-factor": "by what sigma may be too small or too large, from 1 to 10; default 1.25",
    "--scaling": """how columns are weighed before clipping: expected_norm (a formula, default), optimal (less noise,
        and far more error where columns are correlated or the center is off), none, or a FILE as for --sigma with
        factors of your own, in inverse units, > 0""",
    "--count-clipped": """release the number of clipped rows as well, for 0.8 percent more noise: with its standard
        deviation and its excess, in standard deviations, over what guesses as good as declared allow. Above 3 the
        guesses were worse, or rows are far from normal, and the sum is off by more than noise""",
    "--neighbors": """what is protected: the content of a row (replace_one, the default; the number of rows is public),
        or also whether there is one (add_remove)""",
    "--rho": "privacy: the whole budget in zCDP, > 0; instead of the next two",
    "--epsilon of adaptive": "privacy: goes with --delta; the two are converted to the largest rho that implies them",
    "--epsilon of plan": "privacy, as for egm sum; required, with the next, unless --rho is given",
    "--delta of plan": "privacy, as for egm sum: the probability with which it may fail, in (0, 1) and far below 1/N",
    "--adaptive": """forecast a release of egm adaptive. Takes --rows, --sigma, --center, --radius, --sigma-range and a
        budget, and no other option about the rows""",
    "--rho of plan": "privacy: the whole budget in zCDP, > 0; only with --adaptive, instead of --epsilon and --delta",
    "--radius of plan": """the columns' means are declared to lie between -R and R; in the units of the data, > 0; only
        and always with --adaptive""",
    "--sigma-range of plan": """the columns' standard deviations are declared to lie between these; in the units of the
        data, > 0; only and always with --adaptive""",
    "--radius": "the columns' means lie between -R and R; in the units of the data, > 0",
    "--sigma-range": "the columns' standard deviations lie between these; in the units of the data, > 0",
    "--simulate": """reproducible noise instead of secure noise, for experiments: the output says that it is not
        private""",
    "--output": "where to write to, whole or not at all; default: standard output",
    "--format": "default: by the name of the output file, else the first",
    "--force": "replace an output file that exists",
    "--debug": "show the traceback of an error in egm",
}


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise _Mistake(f"{message} ({self.prog} --help explains)")

    def option(self, name: str, which: str | None = None, **kind: Any) -> None:
        self.add_argument(name, help=" ".join(_HELP[f"{name} of {which}" if which else name].split()), **kind)


def _parser() -> _Parser:
    """Return the parser of all commands and options."""
    shape: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    parser = _Parser(prog="egm", description=_ABOUT, epilog=_CODES, **shape)
    parser.add_argument("--version", action="version", version=f"egm {egm.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)

    it = commands.add_parser("sum", help="release the sum of a file's rows", description=_SUM, epilog=_CODES, **shape)
    _data_options(it, None)
    it.option("--rows", "sum", type=_count, metavar="N")
    _model_options(it)
    it.option("--simulate", type=_seed, metavar="SEED")
    _output_options(it, _sum, "csv", "json", "npy")

    summary = "the same where nobody knows how the data spread"
    it = commands.add_parser("adaptive", help=summary, description=_ADAPTIVE, epilog=_CODES, **shape)
    _data_options(it, "adaptive")
    it.option("--rows", "adaptive", type=_count, metavar="N")
    it.option("--rho", type=float, metavar="R")
    it.option("--epsilon", "adaptive", type=float, metavar="E")
    it.option("--delta", type=float, metavar="D")
    it.option("--radius", type=float, required=True, metavar="R")
    it.option("--sigma-range", type=_pair, required=True, metavar="LO,HI")
    it.option("--simulate", type=_seed, metavar="SEED")
    it.set_defaults(neighbors="replace_one")
    _output_options(it, _adaptive, "csv", "json", "npy")

    summary = "forecast the error of a release, without data"
    it = commands.add_parser("plan", help=summary, description=_PLAN, epilog=_CODES, **shape)
    it.option("--rows", type=_count, required=True, metavar="N")
    _model_options(it, budget_required=False)
    it.option("--adaptive", action="store_true")
    it.option("--rho", "plan", type=float, metavar="R")
    it.option("--radius", "plan", type=float, metavar="R")
    it.option("--sigma-range", "plan", type=_pair, metavar="LO,HI")
    it.set_defaults(defaults={name: it.get_default(name) for name in (*_NEVER_WITH_ADAPTIVE, *_ONLY_WITH_ADAPTIVE)})
    _output_options(it, _plan, "text", "json")
    return parser


def _data_options(parser: _Parser, which: str | None) -> None:
    parser.option("data", metavar="DATA")
    parser.option("--columns", type=_columns, metavar="A,B,C")
    parser.option("--header", which, choices=("auto", "yes", "no"), default="auto")


def _model_options(parser: _Parser, *, budget_required: bool = True) -> None:
    parser.option("--sigma", required=True, metavar="FILE")
    which = None if budget_required else "plan"
    parser.option("--epsilon", which, type=float, required=budget_required, metavar="E")
    parser.option("--delta", which, type=float, required=budget_required, metavar="D")
    parser.option("--center", type=_number_or_text, default=0.0, metavar="X|FILE")
    parser.option("--center-std", type=_number_or_text, metavar="X|FILE")
    parser.option("--sigma-factor", type=float, default=1.25, metavar="F")
    parser.option("--clip-probability", type=_number_or_text, metavar="P|optimal")
    parser.option("--scaling", default="expected_norm", metavar="S")
    parser.option("--neighbors", choices=("replace_one", "add_remove"), default="replace_one")
    parser.option("--count-clipped", action="store_true")


def _output_options(parser: _Parser, command: Callable[[Namespace], None], *forms: str) -> None:
    parser.option("--output", metavar="FILE")
    parser.option("--format", choices=forms)
    parser.option("--force", action="store_true")
    parser.option("--debug", action="store_true")
    parser.set_defaults(command=command, forms=forms)


def _count(text: str) -> int:
    number = _number_or_text(text)
    if isinstance(number, str) or not (1 <= number <= 2**53 and number == int(number)):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 2**53, got {text!r}")
    return int(number)


def _seed(text: str) -> int:
    if not re.fullmatch(r"\d+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"must be a whole number >= 0, got {text!r}")
    return int(text)


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _columns(text: str) -> list[str]:
    names = [name.strip() for name in next(csv.reader([text]), [])]
    if not all(names) or not names:
        raise argparse.ArgumentTypeError(f"must be names with commas between them, got {text!r}")
    return names


def _pair(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be two numbers with a comma between them, got {text!r}") from None
    return low, high
