"""Find the least budget (epsilon or rho) or number of rows for which the error meets the target of `egm plan`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from egm._cli import inputs
from egm._cli.terminal import Mistake
from egm._types import Array
from egm.adaptive import AdaptiveDataMechanism
from egm.calibration import zcdp_epsilon, zcdp_rho
from egm.mechanisms import GaussianDataMechanism
from egm.planning import curve, solve

__all__ = ["reach"]

AnyDataMechanism: TypeAlias = GaussianDataMechanism | AdaptiveDataMechanism


def reach(args: Namespace, names: Sequence[str], sigma: Array, confidence: float) -> dict[str, Any]:
    """Set the budget or the number of rows in `args` to the least one with which the error is at most --target-error.

    `args` holds the options of `egm plan`, and `names` and `sigma` the names and the standard deviations of the
    columns. For --measure interval, the error is half the width of an interval that contains the mean with the
    probability `confidence`. The result is a dictionary for the output, whose entry "solved" has the value that was
    found, the error and the options of the target. Without --target-error, nothing is set and the dictionary is empty.
    """
    if args.target_error is None:
        return {}
    mechanism, budget = _mechanism(args, names)
    column = _column(args.column, names, mechanism)
    question: dict[str, Any] = {"measure": args.measure, "column": column, "confidence": confidence}
    if args.adaptive:
        question |= {"sigma": sigma, "center": inputs.center_of_rows(args, names)}
    if args.solve_for == "rows":
        args.rows = solve(mechanism, args.target_error, "n", **question).n
        error = float(curve(mechanism, args.rows, "n", **question))
        found: dict[str, Any] = {"rows": args.rows}
    else:
        least = getattr(solve(mechanism, args.target_error, budget, **question), budget)
        found, error = _enough(args, mechanism, budget, least, question)
    asked = {"target_error": args.target_error, "measure": args.measure, "column": args.column}
    return {"solved": {**found, "error": error, **asked}}


def _mechanism(args: Namespace, names: Sequence[str]) -> tuple[AnyDataMechanism, Literal["epsilon", "rho"]]:
    """Return the mechanism that the options `args` describe, and the name of the field that holds its budget.

    `names` has the names of the columns. The options lack the number that `egm plan` has to find: the number of rows or
    the budget. As a placeholder, the mechanism gets 2 rows or a budget of 1.
    """
    if not args.adaptive:
        epsilon = 1.0 if args.epsilon is None else args.epsilon
        model = inputs.model(args, args.rows or 2, names) | {"epsilon": epsilon}
        return GaussianDataMechanism(**model), "epsilon"
    rho = inputs.rho(args) if args.solve_for == "rows" else 1.0
    return AdaptiveDataMechanism(args.rows or 2, rho, **inputs.bounds(args, names), neighbors=args.neighbors), "rho"


def _enough(
    args: Namespace,
    mechanism: AnyDataMechanism,
    budget: Literal["epsilon", "rho"],
    least: float,
    question: dict[str, Any],
) -> tuple[dict[str, float], float]:
    """Set the budget in `args` to a number that meets the target of `egm plan`, with three significant digits or more.

    `least` is the least budget that meets the target, as `egm.planning.solve` has found it, and `budget` says whether
    it is the "epsilon" or the "rho" of `mechanism`. A rho is converted to an epsilon if `args` has a delta. The budget
    is then rounded up to three digits. In rare cases the rounding makes the error larger than the target, because the
    error may rise where the budget rises; then more digits are kept. `question` has further arguments of
    `egm.planning.curve`, which computes the error. Return a dictionary with the name and the value of the budget, and
    the error with this budget.
    """
    as_epsilon = budget == "epsilon" or args.delta is not None
    enough = float(zcdp_epsilon(least, args.delta)) if as_epsilon and budget == "rho" else least
    digits = 3
    while True:
        value = inputs.rounded_up(enough, digits)
        spent = float(zcdp_rho(value, args.delta)) if as_epsilon and budget == "rho" else value
        error = float(curve(mechanism, spent, budget, **question))
        if error <= args.target_error:
            break
        enough, digits = enough * (1 + 1e-9), digits + 1
    name = "epsilon" if as_epsilon else "rho"
    setattr(args, name, value)
    return {name: value}, error


def _column(column: str | None, names: Sequence[str], mechanism: AnyDataMechanism) -> str | int | None:
    """Return `column` in the form that `mechanism` takes: its name or, without names, its index in `names`.

    If `column` is None, return None. Raise a `Mistake`, an error for the user, if `column` is not one of the `names`.
    """
    if column is None or column in names:
        return column if column is None or mechanism.columns is not None else names.index(column)
    shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
    raise Mistake(f"--column: no column {column!r}; it has {shown}")
