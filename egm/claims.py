"""What the check of a claim found: the chapters state it in the outputs of their cells, and the ledger is made of that.

A check computes whether a statement holds as it is printed in its source and, where it does not, whether the
correction holds. What follows for the ledger is a function of these two:

====================  ==================  ======================
as printed            corrected           result
====================  ==================  ======================
holds                 (none offered)      holds
fails                 holds               holds with correction
fails                 (none offered)      does not hold
====================  ==================  ======================
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, SupportsFloat

from IPython.display import display

__all__ = ["CORRECTED", "FAILS", "HOLDS", "MIME", "Finding", "record"]

#: A result that a check can have.
HOLDS, CORRECTED, FAILS = "holds", "holds with correction", "does not hold"
#: The type of the output in which a notebook carries a finding.
MIME = "application/vnd.egm.finding+json"


@dataclass(frozen=True)
class Finding:
    """The claim's key in the ledger, what was found, and the figures that the check computed."""

    claim: str
    result: str
    figures: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        figures = "".join(f", {name} = {value:.6g}" for name, value in self.figures.items())
        return f"{self.claim}: {self.result}{figures}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": str(self), MIME: asdict(self)}


def record(claim: str, *, printed: bool, corrected: bool | None = None, **figures: SupportsFloat) -> None:
    """State in the output of the running cell what the check of a claim found.

    claim: its key in the ledger. printed: whether the statement holds as its source prints it. corrected: whether it
    holds as corrected; only where the printed form fails. figures: numbers that the check computed.
    Raises TypeError if printed or corrected is not a truth value, ValueError if there is nothing to correct or the
    correction fails: then the chapter is wrong, not its source.
    """
    printed = _truth("printed", printed)
    if corrected is not None:
        corrected = _truth("corrected", corrected)
        if printed or not corrected:
            found = "the printed form of {} holds" if printed else "the correction of {} fails"
            raise ValueError(f"printed = {printed}, corrected = {corrected}: {found.format(claim)}")
    result = HOLDS if printed else CORRECTED if corrected else FAILS
    display(Finding(claim, result, {name: float(value) for name, value in figures.items()}))


def _truth(name: str, value: object) -> bool:
    """A truth value of Python or NumPy as a bool: a number or an array would be true by accident."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name} must be True or False, got {value!r} of type {type(value).__name__}")
    return bool(value)
