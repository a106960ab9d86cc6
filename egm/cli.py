"""Run the commands `egm sum`, `egm mean`, `egm adaptive`, `egm plan` and `egm budget`, which read and write files.

The output of `egm sum`, `egm mean` and `egm adaptive` holds the public parameters and the release:
the estimate, the standard deviation of its noise, and other differentially private results. It
holds nothing else. The output is written to standard output or to a file. Messages go to standard error,
for the operator alone. The exit code is 0 for success, 2 for a mistake in an option or a file, 1
for an unexpected error, 130 after Ctrl-C, 143 after SIGTERM, and 129 after SIGHUP.

Names of columns and of files, and keys of groups, may come from people who are not trusted. When
they are printed or written, a terminal finds no control characters in them, because characters that
cannot be printed appear as the escapes of Python. A spreadsheet does not take them for formulas,
because in CSV a name or key that looks like a formula gets an apostrophe in front. So that egm can
undo both changes when it reads a CSV file, a name in CSV that begins with an apostrophe gets
another one, and each backslash in a name is doubled.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
import warnings
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np

from egm import files
from egm._basis import of_columns
from egm._budget import drawn
from egm._cli import inputs, journal, target
from egm._cli.inputs import explained
from egm._cli.options import ALONG, SCALINGS, require_options_that_fit
from egm._cli.options import parser as _parser
from egm._cli.output import CONFIDENCE, adaptive_parameters, basis_told, document, errors, output, parameters
from egm._cli.terminal import Mistake, Stops, complain, shown_warnings, tell, visible
from egm._types import Array
from egm.adaptive import AdaptiveDataMechanism
from egm.calibration import zcdp_epsilon
from egm.mechanisms import DataRelease, GaussianDataMechanism, GroupedDataMechanism, GroupedRelease
from egm.samplers import SimulationWarning

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    r"""Run a command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments, without the name of the program; by default those of the process.

    Returns
    -------
    int
        Exit code: 0 for success, 2 for a mistake in an option or a file, 1 for an unexpected error,
        130 after Ctrl-C, 143 after SIGTERM, and 129 after SIGHUP.

    Examples
    --------
    Forecast, without data, the error of the sum of each column, divided by the standard deviation
    of this sum from sample to sample:

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
    stops = Stops()
    try:
        with stops:
            return _run(argv, stops)
    except KeyboardInterrupt:
        return stops.reported()


def _run(argv: Sequence[str] | None, stops: Stops) -> int:
    """Run the command line `argv`, report errors and warnings, and return the exit code.

    `argv` is None for the arguments of the process. A signal raises KeyboardInterrupt in this function, and `stops`
    remembers the signal for the caller.
    """
    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread() and (not sys.stderr or sys.stderr.closed):
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stderr(nowhere))  # which is for all threads
        stack.enter_context(shown_warnings(SimulationWarning))  # the output of a simulation says what it is
        return _code(argv, stops)


def _code(argv: Sequence[str] | None, stops: Stops) -> int:
    """Run the command line `argv`, report errors, and return the exit code, as `_run` does, but show no warnings."""
    try:
        args = _parser().parse_args(argv)
        args.stops = stops
        _COMMANDS[args.command](args)
        return 0
    except SystemExit as stop:  # argparse, after --help and --version
        return stop.code or 0  # type: ignore[return-value]  # argparse's are numbers
    except (Mistake, files.FileError) as mistake:
        stops.check()  # an interruption may leave something half done that looks like a mistake
        return complain(f"{mistake}{stops.note}", 2)
    except Exception as bug:
        stops.check()
        if "--debug" in (sys.argv[1:] if argv is None else argv):
            tell("\n".join(map(visible, traceback.format_exc().splitlines())))
        told = f"{type(bug).__name__}: this should not happen; please report it with what --debug shows"
        return complain(f"{told}{stops.note}", 1)


def _sum(args: Namespace) -> None:
    """Run `egm sum` or `egm mean`: release the sum, or the means, of the rows of a file.

    The center and the standard deviations of the rows are guesses of the user.
    """
    budget, table = journal.opened(args), inputs.table(args)
    n, labels = inputs.rows_declared(args, table), inputs.labels_of(args)
    n = n if args.sample is None else max(1, round(n * args.sample))
    with explained(table.names):
        mechanism = GaussianDataMechanism(**inputs.model(args, n, table.names), columns=table.names)
        chosen: GaussianDataMechanism | GroupedDataMechanism = mechanism
        if args.by is not None:
            chosen = GroupedDataMechanism(mechanism, inputs.keys(args, table), groups_per_person=args.groups_per_person)
    is_public = args.neighbors == "replace_one" and args.missing != "drop_row"
    blocks = inputs.exactly(n, table, args) if is_public else inputs.progress(table, table.count, args)
    with output(args) as write, explained(table.names):
        if labels:
            chosen.check(inputs.labelled(table, args), **labels)
        inputs.require_persons(table, n, args)
        if args.simulate is not None:
            _warn_of_a_refusal(chosen)
        if args.count_clipped and args.by is None:
            _ = mechanism._share_clipped  # if this fails, it must fail before the charge
        journal.charge(budget, chosen, args)
        X: Any = inputs.labelled(table, args) if labels else blocks
        rng, made = _rng(args), parameters(chosen)
        if args.sample is not None:
            X, _ = drawn.sample(X, args.sample, rng, labels)
            made["sampling_probability"] = args.sample
        release = chosen.release(X, **labels, rng=rng)
        write(document(release, table.names, args, made, **_counted(release, mechanism)))


def _warn_of_a_refusal(mechanism: GaussianDataMechanism | GroupedDataMechanism) -> None:
    """Warn if `mechanism` would refuse a release with secure noise.

    The reason can be that integer noise would add too much to delta, or that the noise is too large.
    """
    try:
        with explained(()):
            mechanism.check_noise(None)
    except Mistake as refusal:
        warnings.warn(f"such a release with secure noise would be refused: {refusal}", stacklevel=2)


def _counted(release: DataRelease | GroupedRelease, mechanism: GaussianDataMechanism) -> dict[str, float]:
    """Return the noisy numbers of rows and of clipped rows in `release`, as a dictionary from name to number.

    "count" is the number of rows. "clipped" is the number of clipped rows, and "clipped_std" the standard deviation of
    its noise. "excess" says by how many standard deviations "clipped" is above the number that is expected with the
    guesses of `mechanism`. A number that was not released is left out; for a release of groups the dictionary is empty.
    """
    if isinstance(release, GroupedRelease):
        return {}
    counted: dict[str, float] = {} if release.count is None else {"count": release.count}
    if release.clipped is not None:
        excess = mechanism.excess_clipped(release)
        counted |= {"clipped": release.clipped, "clipped_std": float(mechanism.clipped_std or 0), "excess": excess}
    return counted


def _adaptive(args: Namespace) -> None:
    """Run `egm adaptive`: release the sum of the rows of a file after a private search for their center and spread."""
    budget = journal.opened(args)
    args.columns = args.columns or list(inputs.ranges(args) or ()) or None
    table = inputs.table(args)
    n, labels = inputs.rows_declared(args, table), inputs.labels_of(args)
    with explained(table.names):
        mechanism = inputs.adaptive_mechanism(args, n, len(table.names), table.names)
        person = np.zeros(n) if labels else None
        mechanism.check(np.broadcast_to(0.0, (n, len(table.names))), person=person)  # before much is read
        if labels:
            mechanism.check(table, **labels)
    with output(args) as write, explained(table.names):
        inputs.require_persons(table, n, args)
        journal.charge(budget, mechanism, args)
        X: Any = inputs.labelled(table, args) if labels else inputs.in_memory(mechanism, table, args)
        release = mechanism.release(X, **labels, rng=_rng(args))
        low, high = (bound.tolist() for bound in release.interval(CONFIDENCE))
        found = {"low": low, "high": high, "confidence": CONFIDENCE, "spent": release.spent}
        names = "uncorrected", "uncorrected_std", "bias", "bias_std", "center"
        found |= {name: getattr(release, name).tolist() for name in names}
        found["sigma" if release.basis is None else f"sigma{ALONG}"] = release.sigma.tolist()
        found |= {"forecast": errors(release.forecast), "model_holds": release.model_holds}
        found["method"] = release.method
        if release.count is not None:
            found |= {"count": release.count, "count_std": release.count_std}
        if release.basis is not None:
            found["basis"] = basis_told(release.basis)
        write(document(release, table.names, args, adaptive_parameters(mechanism), **found))


def _rng(args: Namespace) -> np.random.Generator | None:
    """Return a Generator if the option --simulate asks for a simulation; otherwise None, which means secure noise."""
    return None if args.simulate is None else np.random.default_rng(args.simulate)


def _plan(args: Namespace) -> None:
    """Run `egm plan`: forecast the error of `egm sum` or, with the option --adaptive, of `egm adaptive`."""
    require_options_that_fit(args)
    (_plan_adaptive if args.adaptive else _plan_sum)(args)


def _plan_adaptive(args: Namespace) -> None:
    """Forecast the error of a release by `egm adaptive` for normal rows, and write the forecast.

    The rows are assumed to have the standard deviations of --sigma and the means of --center. Without --center, the
    means are the middles of the ranges or, with --radius, 0.
    """
    names, sigma = inputs.planned(args)
    with explained(names):
        solved = target.reach(args, names, sigma, CONFIDENCE)
        mechanism = inputs.adaptive_mechanism(args, args.rows, sigma.size, names)
        center = mechanism._mean(inputs.center_of_rows(args, names), sigma.size)
        _require_in_range(mechanism, sigma, names)
        forecast = mechanism.forecast(sigma, center)
    least, stated = mechanism.least_rho(sigma.size), {}
    plan: dict[str, Any] = solved | {
        "forecast": errors(forecast.error),
        "success": forecast.success,
        "cut": forecast.cut.tolist(),
        "method": forecast.method,
        "spent": forecast.spent,
        "least_rho": least,
        "least_rows": inputs.least_rows(mechanism, sigma.size),
    }
    if args.delta is not None:
        stated = {"epsilon": args.epsilon, "delta": args.delta}
        plan["least_epsilon"] = zcdp_epsilon(least, args.delta)
    plan["columns"] = list(names)
    vectors = {"sigma": sigma.tolist(), "center": center.tolist()}
    plan["parameters"] = adaptive_parameters(mechanism) | stated | vectors
    with output(args) as write:
        write(plan)


def _require_in_range(mechanism: AdaptiveDataMechanism, sigma: Array, names: Sequence[str]) -> None:
    """Raise a `Mistake` (an error for the user) if an entry of `sigma` is outside the range that `mechanism` declares.

    `names` has the names of the columns.
    """
    units = np.broadcast_to(1.0 if mechanism.ranges is None else mechanism._standard[1], sigma.shape).tolist()
    for name, std, unit in zip(names, sigma, units, strict=True):
        low, high = (unit * end for end in mechanism._sigma_range)
        if not low <= std <= high:
            raise Mistake(f"--sigma, column {name!r}, must lie in --sigma-range, from {low:g} to {high:g}, got {std}")


def _plan_sum(args: Namespace) -> None:
    """Write the expected errors of `egm sum` for the options in `args`.

    To compare, also write the errors with other laws of the noise and other scalings. A scaling is a set of multipliers
    of the columns, which are applied before clipping.
    """
    names, sigma = inputs.planned(args)
    with explained(names):
        solved = target.reach(args, names, sigma, CONFIDENCE)
        model = inputs.model(args, args.rows, names)
        mechanism = GaussianDataMechanism(**model)
        _warn_of_a_refusal(mechanism)
        others = {name: GaussianDataMechanism(**model | {"scaling": name}) for name in SCALINGS}
        noises = {name: GaussianDataMechanism(**model | {"noise": name}) for name in ("gaussian", "best")}
    others = {"yours": mechanism, **others} if not isinstance(model["scaling"], str) else others
    expected, spread = np.sqrt(mechanism.error_by_column()), of_columns(mechanism.basis, mechanism.sigma)
    plan = solved | {
        "forecast": errors(mechanism.error()),
        "scalings": {name: other.error().total for name, other in others.items()},
        "noises": {name: other.error().total for name, other in noises.items()},
        "columns": list(names),
        "noise_std": mechanism.noise_std.tolist(),
        "share": (expected / (spread * np.sqrt(mechanism.n))).tolist(),
        "parameters": parameters(mechanism),
    }
    with output(args) as write:
        write(plan)


def _budget(args: Namespace) -> None:
    """Run `egm budget new` or `egm budget show`: make the file of a privacy budget, or write what this file holds."""
    if args.action == "new":
        journal.make(args)
        return
    with output(args) as write:
        write(journal.contents(args))


_COMMANDS = {"sum": _sum, "mean": _sum, "adaptive": _adaptive, "plan": _plan, "budget": _budget}
