"""Make, open, charge and show the journal of a budget, the file that the option --budget or `egm budget` names.

The argument `args` of each function holds the parsed options. A `Mistake` is the exception for an
error of the user, which the command reports in one line.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, TypeAlias

from egm._cli.inputs import absence, explained
from egm._cli.terminal import Mistake
from egm.adaptive import AdaptiveDataMechanism
from egm.budget import Budget, Charge, Loss
from egm.mechanisms import GaussianDataMechanism, GroupedDataMechanism

__all__ = ["charge", "contents", "make", "opened"]

DataMechanism: TypeAlias = GaussianDataMechanism | GroupedDataMechanism | AdaptiveDataMechanism


def make(args: Namespace) -> None:
    """Make the file of a new privacy budget for `egm budget new`; raise a `Mistake` if the file exists.

    `args` has the path of the file, the total of the budget, and the rule by which the costs of releases are added up.
    A `Mistake` is an error of the user. Warn of a total with delta = 0, which fits no release of the command line.
    """
    if os.path.lexists(args.budget):
        raise Mistake(f"{args.budget}: exists already")
    terms = {name: getattr(args, name) for name in ("rho", "epsilon", "delta", "neighbors", "rule", "simulation")}
    if args.rho is None and args.epsilon is None:
        raise Mistake("the total is either --rho, or --epsilon and --delta")
    with _explained(args.budget), explained(()):
        budget = Budget(args.budget, **terms)
    if budget.delta == 0:
        warnings.warn(
            f"{args.budget}: with --delta 0 a budget grants only releases with delta = 0, such as those of "
            f"LaplaceMechanism in Python; egm sum, egm mean and egm adaptive need a --delta above 0, or --rho",
            stacklevel=2,
        )


def opened(args: Namespace) -> Budget | None:
    """Return the privacy budget in the file that the option --budget names, or None without this option.

    Raise a `Mistake`, an error of the user, if there is no such file or it holds no budget, if the budget is for
    simulations and the option --simulate is not given (or the other way round), if --label or --sample is given without
    --budget, or if --sample is given with --budget, but without --neighbors add_remove.
    """
    share = getattr(args, "sample", None)
    if args.budget is None:
        if args.label or share is not None:
            raise Mistake(f"{'--label' if args.label else '--sample'} goes with --budget only")
        return None
    if share is not None and args.neighbors != "add_remove":
        raise Mistake("--sample needs --neighbors add_remove, also for the budget")
    budget = _existing(args.budget)
    if budget.simulation != (args.simulate is not None):
        only = "no releases but" if budget.simulation else "all releases but"
        raise Mistake(f"--budget {args.budget}: takes {only} those with --simulate")
    return budget


def _existing(path: str) -> Budget:
    """Return the budget in the file at `path`; raise a `Mistake`, an error for the user, if there is no such file."""
    if (why := absence(path)) is not None:
        raise Mistake(f"{path}: {why}{' (egm budget new makes one)' if why == 'No such file' else ''}")
    with _explained(path):
        return Budget(path)


def charge(budget: Budget | None, mechanism: DataMechanism, args: Namespace) -> None:
    """Record the cost of a release by `mechanism` in `budget`, with the label in `args`; do nothing without a budget.

    With the option --sample the cost is that of a release from a sample. The function must be called before private
    data are read. Raise a `Mistake`, an error of the user, if the cost does not fit into the budget.
    """
    if budget is None:
        return
    if args.simulate is None and not isinstance(mechanism, AdaptiveDataMechanism):
        mechanism.check_noise(None)
    args.stops.note = f" (perhaps with a charge to {args.budget}: egm budget show tells)"  # if a signal comes now
    try:
        with _explained(args.budget):
            budget.charge(mechanism, label=args.label, sampling_probability=getattr(args, "sample", None))
    except Exception:
        args.stops.note = ""
        raise
    args.stops.note = f" (the charge to {args.budget} stays)"


def contents(args: Namespace) -> dict[str, Any]:
    """Return a dictionary that describes a privacy budget for `egm budget show`: the total, the costs and the rest.

    `args` has the path of the file that holds the budget. A cost that is not known is None.
    """
    budget = _existing(args.budget)
    with _explained(args.budget):
        history = budget.history
        return {
            "budget": args.budget,
            "total": {"epsilon": budget.epsilon, "delta": budget.delta} if budget.rho is None else {"rho": budget.rho},
            **{name: getattr(budget, name) for name in ("neighbors", "rule", "simulation")},
            "spent": _cost(budget.spent),
            "left": _cost(budget.left),
            "history": [
                {
                    **{name: getattr(entry, name) for name in ("time", "label", "mechanism")},
                    **{name: _known(getattr(entry, name)) for name in ("rho", "epsilon", "delta")},
                    **_sample(entry),
                }
                for entry in history
            ],
        }


def _cost(cost: Loss | float) -> dict[str, float]:
    """Return a privacy cost as a dictionary.

    The keys are "epsilon" and "delta" if `cost` is a `Loss`, and "rho" if it is a number.
    """
    return cost._asdict() if isinstance(cost, Loss) else {"rho": cost}


def _sample(charge: Charge) -> dict[str, float]:
    """Return the sampling probability and the number of the releases whose cost is `charge`, as a dictionary.

    The keys are "sampling_probability" and "count". The dictionary is empty if the releases are from all rows and not
    from samples.
    """
    if charge.sampling_probability is None:
        return {}
    return {"sampling_probability": charge.sampling_probability, "count": charge.count}


def _known(number: float) -> float | None:
    """Return the cost `number`, or None if it is infinite.

    A `Charge` has an infinite number where a cost is not known.
    """
    return number if math.isfinite(number) else None


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn each error about the file of a budget, within a `with` block, into a `Mistake` whose message names the file.

    `path` is the path of the file, and a `Mistake` is an error for the user.
    """
    try:
        yield
    except (ValueError, OSError, ImportError) as wrong:
        reason = (wrong.strerror or wrong) if isinstance(wrong, OSError) else wrong
        raise Mistake(f"{path}: {reason}") from None
