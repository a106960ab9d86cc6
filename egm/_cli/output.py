"""Write the result of a command in the format and to the place that the user asked for, completely or not at all.

A result is a dictionary, called a document, with an entry for each quantity. Names of columns and keys of groups may
come from people who are not trusted. They are written so that they cannot give orders to a terminal or a spreadsheet.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import functools
import io
import json
import math
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import egm
from egm import files
from egm._adaptive.search import FEW
from egm._cli.inputs import is_path, rounded_up
from egm._cli.options import ALONG, VECTORS
from egm._cli.terminal import Mistake, in_csv, printing, visible
from egm._files import parquet
from egm._types import StructuredArray
from egm.adaptive import AdaptiveDataMechanism, AdaptiveRelease
from egm.forecast import ErrorForecast
from egm.mechanisms import GaussianDataMechanism, GroupedDataMechanism, GroupedRelease, Release

__all__ = ["CONFIDENCE", "adaptive_parameters", "basis_told", "document", "errors", "output", "parameters"]

CONFIDENCE = 0.95  # of the intervals that are written
_PARTS = ("noise", "clipping", "center", "total")  # of an expected error
_CAUTION = "With so few rows for this budget, the squared error is often several times the expected one"
_CUT = "Normal rows would reach beyond the ranges; to cut them, as a release does, would move the sum by"
_OF_MEANS = "mean", "mean_std", "low", "high", "population_low", "population_high"  # left out for sums
_SHOWN = 20  # columns of a plan that are shown by name
_MEASURES = {
    "mean": "error of the mean",
    "sum": "error of the sum",
    "relative": "error of the sum, over the expected sum,",
    "interval": "half width of the interval of the mean",
}
# suffixes of files with compressed text or tabs, and of spreadsheets
_NEVER_WRITTEN = ("gz", "bz2", "xz", "zst", "zip", "tsv", "xls", "xlsx", "ods")

Document: TypeAlias = dict[str, Any]


def document(
    release: Release | GroupedRelease | AdaptiveRelease,
    names: Sequence[str],
    args: Namespace,
    made: dict[str, Any],
    **found: Any,
) -> Document:
    """Return what a command writes about `release`, as a dictionary with an entry for each quantity.

    The entries are lists over the columns `names`: the estimate and the standard deviation of its noise or, for `egm
    mean`, the means and their intervals. For groups, the lists run over the columns of all groups. Then follow other
    results (`found`) and the public parameters of the mechanism (`made`). A simulation also gets a warning with its
    seed.
    """
    simulated: dict[str, Any] = {"simulated": args.simulate is not None}
    if simulated["simulated"]:
        simulated["warning"] = f"simulation with seed {args.simulate}: not private, not for publication"
    if args.command == "mean" or isinstance(release, GroupedRelease):
        vectors = _vectors(release, args)
    else:
        vectors = {
            "columns": list(names),
            "estimate": release.estimate.tolist(),
            "noise_std": release.noise_std.tolist(),
        }
    return {**simulated, **vectors, **found, "parameters": {"egm": egm.__version__, **made}}


def _vectors(release: Any, args: Namespace) -> dict[str, Any]:
    """Return the entries of a result that have a number for each column, or for each column of each group.

    A number of `release` that is not finite, such as the end of an unbounded interval, is None.
    """
    rows = {"columns" if name == "column" else name: values for name, values in release.rows(CONFIDENCE).items()}
    if args.command == "mean":
        hidden = {"sum", "noise_std"}
    else:
        rows, hidden = {"estimate" if name == "sum" else name: values for name, values in rows.items()}, set(_OF_MEANS)
    shown = {name: values for name, values in rows.items() if name not in hidden}
    if args.command == "mean":
        shown["confidence"] = CONFIDENCE
    return {
        name: [_finite(value) for value in values] if isinstance(values, list) else values
        for name, values in shown.items()
    }


def _finite(value: Any) -> Any:
    """Return `value` as the output shows it: None for a number that is not finite, and a text for a date.

    Any other value is returned unchanged. A date can be the key of a group.
    """
    if isinstance(value, datetime.date):
        return value.isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parameters(mechanism: GaussianDataMechanism | GroupedDataMechanism) -> dict[str, Any]:
    """Return the public parameters that `mechanism` was given or has computed, as a dictionary from name to value.

    The name of a vector with a number for each vector of a basis, and not for each column, ends in "_along_basis".
    """
    if isinstance(mechanism, GroupedDataMechanism):
        groups = {"groups": len(mechanism.keys), "groups_per_person": mechanism.groups_per_person}
        return {**parameters(mechanism.mechanism), "mechanism": type(mechanism).__name__, **groups}
    fields = {name: name for name in ("epsilon", "delta", "neighbors")} | {"clip_probability": "p"}
    fields |= {name: name for name in ("clip_norm", "noise_law", "noise_multiplier", "sigma_factor", "count_clipped")}
    numbers = {name: getattr(mechanism, field) for name, field in fields.items()}
    center = np.broadcast_to(mechanism.center, mechanism.sigma.shape)
    end = "" if mechanism.basis is None else ALONG
    named = {f"sigma{end}": mechanism.sigma, "center": center}
    named |= {f"center_std{end}": mechanism._doubts[0], f"scaling{end}": mechanism.b}
    vectors = {name: vector.tolist() for name, vector in named.items()}
    rotated = {} if mechanism.basis is None else {"basis": basis_told(mechanism.basis)}
    people: dict[str, Any] = {} if mechanism.per_person is None else {"per_person": mechanism.per_person}
    people |= {} if mechanism.missing == "error" else {"missing": mechanism.missing}
    people |= {"of": mechanism.of} if mechanism.count_weight and mechanism.of == "mean" else {}
    return {"mechanism": type(mechanism).__name__, "rows": mechanism.n, **numbers, **people, **rotated, **vectors}


def basis_told(basis: Any) -> str | list[list[float]]:
    """Return what the output says about `basis`: the value of --basis that names it, such as "dct:8x8", or its matrix.

    `basis` is an `egm.bases.Basis`. Its matrix, which has a list of numbers for each vector, is returned only if the
    basis was learned or comes from a file, and so has no name.
    """
    if basis.name not in ("dct", "haar"):
        found: list[list[float]] = basis.matrix.tolist()
        return found
    return f"{basis.name}:{'x'.join(map(str, basis.shape))}" if len(basis.shape) > 1 else str(basis.name)


def adaptive_parameters(mechanism: AdaptiveDataMechanism) -> dict[str, Any]:
    """Return the public parameters that the adaptive `mechanism` was given, as a dictionary from name to value."""
    ranges: dict[str, Any] = {"radius": mechanism.radius}
    if mechanism.ranges is not None:
        ranges = {name: [ends[i] for ends in mechanism.ranges] for i, name in enumerate(("range_low", "range_high"))}
    ranges["sigma_range"] = mechanism._sigma_range
    rotated = {} if mechanism.basis is None else {"basis": getattr(mechanism.basis, "name", mechanism.basis)}
    people: dict[str, Any] = {} if mechanism.per_person is None else {"per_person": mechanism.per_person}
    people |= {} if mechanism.missing == "error" else {"missing": mechanism.missing}
    named = {"mechanism": type(mechanism).__name__, "rows": mechanism.n, "rho": mechanism.rho}
    named["neighbors"] = mechanism.neighbors
    return {**named, **people, **ranges, **rotated}


def errors(forecast: ErrorForecast) -> dict[str, float]:
    """Return the expected squared error in `forecast` and its three parts, as a dictionary from name to number.

    The parts are due to the noise ("noise"), to the variation of what clipping removes ("clipping") and to a center
    that is not the mean ("center"). Their sum is "total".
    """
    return {name: float(getattr(forecast, name)) for name in _PARTS}


@contextlib.contextmanager
def output(args: Namespace) -> Iterator[Callable[[Document], object]]:
    """Yield a function that writes a dictionary of results to standard output or to the file that --output names.

    Raise a `Mistake`, an error for the user, if the output cannot be written. Where this is known before a release is
    made, for example if the file exists already, the error is raised before it.
    """
    args.output = None if args.output == "-" else args.output
    form = _form(args)
    form_of = _FORMS[form]
    if getattr(args, "plain", False):
        if form != "csv" or args.simulate is not None:
            raise Mistake("--plain is for --format csv only, and not for --simulate: its comment warns of a simulation")
        form_of = functools.partial(_as_csv, plain=True)
    if form == "parquet":
        parquet.require()
    if args.output is None:
        if sys.stdout is None:
            raise Mistake("standard output: is closed; name a file with --output")
        if form in ("npy", "parquet") and (sys.stdout.isatty() or not hasattr(sys.stdout, "buffer")):
            raise Mistake(f"--format {form} is not for a terminal: name a file with --output")
        yield lambda content: _print(form_of(content), args)
        return
    for name in ("data", "basis", "budget", "keys", *VECTORS):
        if is_path(args, name) and os.path.exists(path := getattr(args, name)) and _is_within(args.output, path):
            raise Mistake(f"--output {args.output}: is also read")
    if os.path.realpath(args.output) == f"{os.path.realpath(getattr(args, 'budget', None) or '')}-journal":
        raise Mistake(f"--output {args.output}: is the name of a file that belongs to the budget")
    try:
        with files.whole(args.output, overwrite=args.force, last=args.stops.commit) as file:
            yield lambda content: file.write(form_of(content))
    except files.FileError as wrong:
        hint = " (--force replaces it)" if str(wrong).endswith("exists already") else ""
        raise Mistake(f"{wrong}{hint}") from None


def _is_within(inner: str, outer: str) -> bool:
    """Return whether the path `inner` leads to the existing file `outer`, or into `outer` if that is a folder."""
    return Path(os.path.realpath(inner)).is_relative_to(os.path.realpath(outer))


def _form(args: Namespace) -> str:
    """Return the format of the output, such as "csv": the value of --format, or the ending of the name of the file.

    The default format of the command is used for standard output, and if the ending names no format. Raise a `Mistake`
    (an error for the user) for a name whose ending stands for a compressed file, a text with tabs or a spreadsheet,
    because `egm` does not write them.
    """
    suffix = os.path.splitext(args.output or "")[1].lstrip(".").lower()
    if suffix in _NEVER_WRITTEN:
        raise Mistake(f"--output {args.output}: files whose names end in .{suffix} are not written")
    suffix = "parquet" if suffix == "pq" else suffix
    return args.format or (suffix if suffix in args.forms else args.forms[0])


def _print(data: bytes, args: Namespace) -> None:
    """Write all the bytes of `data` to standard output, in several calls if one call writes only some of them.

    Where Python code has replaced standard output by a stream of text, as a notebook does, the bytes become a text.
    If `args.stops` has received a signal such as Ctrl-C, KeyboardInterrupt is raised and nothing is written.
    """
    args.stops.check()
    rest, binary = memoryview(data), getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(data.decode())
        return
    with printing():
        while rest:
            rest = rest[binary.write(rest) or 0 :]
        sys.stdout.flush()


def _as_json(content: Document) -> bytes:
    """Return `content`, a dictionary of results, as bytes in JSON, with one line for each key."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in content.items())
    return f"{{\n{lines}\n}}\n".encode()


def _divided(content: Document) -> tuple[list[str], dict[str, list[Any]], str]:
    """Divide `content`, a dictionary of results: return the names of the columns, vectors by their names, and the rest.

    The vectors have one entry for each column of the data or, for groups, for each column of each group. The rest is a
    text in JSON with all other results. For groups it has all parameters, none of which has entries for each group.
    """
    d = len(content["columns"])
    flat = content if "group" in content else {**content, **content["parameters"]}
    columns = {key: value for key, value in flat.items() if isinstance(value, list) and len(value) == d}
    names = columns.pop("columns")
    rest = {key: value for key, value in content.items() if key not in columns and key != "columns"}
    rest["parameters"] = {key: value for key, value in content["parameters"].items() if key not in columns}
    return names, columns, json.dumps(rest, allow_nan=False)


def _as_csv(content: Document, *, plain: bool = False) -> bytes:
    """Return `content`, a dictionary of results, as bytes in CSV, with one row for each column of the data.

    A comment line at the top holds, as JSON, all values that are not vectors. If `plain` is true, there is no such
    line. Then a center and a sigma that only repeat declared ranges, as the line would say, are left out, too.
    """
    names, columns, rest = _divided(content)
    if plain and content.get("method") == "ranges":
        columns = {name: values for name, values in columns.items() if name not in ("center", "sigma")}
    text = io.StringIO()
    text.write("" if plain else f"# {rest}\n")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(["column", *columns])
    for row in zip(names, *columns.values(), strict=True):
        writer.writerow([in_csv(entry) if isinstance(entry, str) else entry for entry in row])
    return text.getvalue().encode()


def _as_parquet(content: Document) -> bytes:
    """Return `content`, a dictionary of results, as the bytes of a Parquet file: one row for each column of the data.

    The metadata hold, under the key "egm", all values that are not vectors as JSON.
    """
    names, columns, rest = _divided(content)
    return parquet.written({"column": names, **columns}, {"egm": rest})


def _as_npy(content: Document) -> bytes:
    """Return `content`, a dictionary of results, as the bytes of a NumPy file.

    The file holds one structured record, so that ``numpy.load(file)["estimate"]`` works.
    """
    file = io.BytesIO()
    np.save(file, _record(content), allow_pickle=False)
    return file.getvalue()


def _record(values: Document) -> StructuredArray:
    """Return the dictionary `values` as a structured array of one record, shape (), in which each key is a field.

    None, which stands for a number that is not finite, becomes NaN.
    """
    arrays = {key: _record(value) if isinstance(value, dict) else np.array(value) for key, value in values.items()}
    arrays = {key: array.astype(float) if array.dtype == object else array for key, array in arrays.items()}
    record = np.zeros((), dtype=[(key, array.dtype, array.shape) for key, array in arrays.items()])
    for key, array in arrays.items():
        record[key] = array
    return record


def _as_text(plan: Document) -> bytes:
    """Return the bytes of a text that shows the user what is in `plan`, a dictionary with a forecast or a budget."""
    if "history" in plan:
        lines = _lines_of_budget(plan)
    else:
        lines = (_lines_of_adaptive if "success" in plan else _lines_of_sum)(plan)
    if "solved" in plan:
        lines = [_line_of_target(plan["solved"]), "", *lines]
    return ("\n".join(lines) + "\n").encode()


def _lines_of_budget(budget: Document) -> list[str]:
    """Return lines of text that describe `budget`, a dictionary with a budget and its releases."""
    units = list(budget["total"])

    def cost(values: dict[str, float | None], form: str = ".6g") -> str:
        known = [name for name in units if values[name] is not None] == units
        return ", ".join(f"{name} = {values[name]:{form}}" for name in (units if known else ["rho"]))

    def sample(charge: dict[str, Any]) -> str:
        if "sampling_probability" not in charge:
            return ""
        times = f"{charge['count']} times, " if charge["count"] > 1 else ""
        return f" ({times}sample of {charge['sampling_probability']:.6g})"

    rule = f", rule {budget['rule']}" if budget["rule"] else ""
    return [
        f"Budget {visible(budget['budget'])}{' for simulations' if budget['simulation'] else ''}",
        f"  {'total':<22}{cost(budget['total'])}, neighbors {budget['neighbors']}{rule}",
        f"  {'spent':<22}{cost(budget['spent'])}",
        f"  {'left for one release':<22}{cost(budget['left'], '')}",  # not rounded: it can be asked for
        "",
        f"Releases: {len(budget['history'])}",
        *(
            f"  {charge['time']:<22}{charge['mechanism']}{sample(charge)}, {cost(charge)}  "
            f"{visible(charge['label'])}".rstrip()
            for charge in budget["history"]
        ),
    ]


def _line_of_target(solved: Document) -> str:
    """Return a line of text with the budget or the number of rows that `egm plan` has found, and the resulting error.

    `solved` is a dictionary with the value that was found, the error, and the options of the target, such as "measure".
    """
    name = next(name for name in ("epsilon", "rho", "rows") if name in solved)
    of_column = "" if solved["column"] is None else f" of column {visible(solved['column'])}"
    what = f"{_MEASURES[solved['measure']]}{of_column}"
    return f"With {name} = {solved[name]!r} the {what} is {solved['error']:.4g}, at most {solved['target_error']:g}"


def _lines_of_adaptive(plan: Document) -> list[str]:
    """Return lines of text that describe `plan`, a dictionary that forecasts a release by `egm adaptive`."""
    made = plan["parameters"]
    budget, least = f"rho = {made['rho']:.5g}", f"rho = {rounded_up(plan['least_rho']):g}"
    if "delta" in made:
        budget = f"epsilon = {made['epsilon']:g}, delta = {made['delta']:g} ({budget})"
        least = f"epsilon = {rounded_up(plan['least_epsilon']):g} ({least})"
    low, high = made["sigma_range"]
    error, cut = math.sqrt(plan["forecast"]["total"]), math.hypot(*plan["cut"])
    few = plan["method"] == "search" and made["rows"] * math.sqrt(made["rho"]) < FEW
    columns = "1 column" if len(plan["columns"]) == 1 else f"{len(plan['columns'])} columns"
    return [
        f"The sum of {made['rows']} rows of {columns}, {budget}",
        f"Declared: means within {made['radius']:g} of 0, standard deviations from {low:g} to {high:g}"
        if "radius" in made
        else f"Declared: a range for each column, standard deviations from {low:g} to {high:g} of half of it",
        "",
        *_lines_of_forecast(plan),
        f"So the sum is off by {error:.4g} (the root of the total), and the mean by {error / made['rows']:.4g}",
        "",
        f"The search finds center and spread with a probability of at least {plan['success']:.5f}"
        if plan["method"] == "search"
        else "There is no search: the rows are clipped to the declared ranges",
        *([_CAUTION] if few else []),
        *([f"{_CUT} {cut:.4g}"] if cut > error else []),
        f"It would still run with {least}, or with {plan['least_rows']} rows"
        if "radius" in made
        else f"A search needs at least {least}, or {plan['least_rows']} rows, and data that are near each other",
        "",
        "The budget of each step, as rho and as a share of the whole",
        *(f"  {step:<14}{rho:>12.5g}{rho / made['rho']:>10.2%}" for step, rho in plan["spent"].items()),
    ]


def _lines_of_forecast(plan: Document) -> list[str]:
    """Return lines of text that show the expected squared error in `plan`: the total, and its parts by their causes.

    `plan` is a dictionary that forecasts the error of a release.
    """
    return [
        "Expected squared error (squared units of the data, summed over the columns)",
        *(f"  {name:<14}{plan['forecast'][name]:>12.5g}" for name in _PARTS),
    ]


def _lines_of_sum(plan: Document) -> list[str]:
    """Return lines of text that describe `plan`, a dictionary that forecasts a release by `egm sum`."""
    made = plan["parameters"]
    clipped = f"a row of the model is clipped with probability {made['clip_probability']:.3g}"
    lines = [
        f"The sum of {made['rows']} rows of {len(plan['columns'])} columns, "
        f"epsilon = {made['epsilon']:g}, delta = {made['delta']:g}, neighbors {made['neighbors']}",
        *(["Errors are those of the means that egm mean releases, times the number of rows"] if "of" in made else []),
        "",
        *_lines_of_forecast(plan),
        "",
        "The same with other noise",
        *(f"  {name:<14}{total:>12.5g}" for name, total in plan["noises"].items()),
        "",
        "The same with other scalings",
        *(f"  {name:<14}{total:>12.5g}" for name, total in plan["scalings"].items()),
        "",
        f"Clip norm         {made['clip_norm']:>12.5g}  in scaled units; {clipped}",
        f"Noise multiplier  {made['noise_multiplier']:>12.5g}  {made['noise_law']} noise",
        "",
        "Column by column: noise_std, and the expected error (root mean square) as a share of sigma * sqrt(rows), by",
        "which the sum of the rows varies anyway",
    ]
    table = np.array([plan["noise_std"], plan["share"]])
    shown = {"least": table.min(axis=1), "median": np.median(table, axis=1), "greatest": table.max(axis=1)}
    if len(plan["columns"]) <= _SHOWN:
        shown = dict(zip(map(visible, plan["columns"]), table.T, strict=True)) | shown
    width = max(14, *(len(name) + 2 for name in shown))
    lines.append(f"  {'':<{width}}{'noise_std':>12}{'share':>12}")
    return lines + [f"  {name:<{width}}{std:>12.5g}{share:>12.3g}" for name, (std, share) in shown.items()]


_FORMS: dict[str, Callable[[Document], bytes]] = {
    **{"csv": _as_csv, "json": _as_json, "npy": _as_npy, "parquet": _as_parquet, "text": _as_text}
}
