"""Record in a chapter the result of checking a claim; the ledger is made of these findings.

A chapter has each finding in the output of a cell. A check computes whether a statement holds as its
source prints it and, if not, whether the correction holds. The result for the ledger follows from
these two:

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
    """Result of one check. A notebook shows it and stores it in its output.

    Parameters
    ----------
    claim : str
        Key of the claim in the ledger.
    result : str
        Result of the check: `HOLDS`, `CORRECTED` or `FAILS`.
    figures : dict of str to float, optional
        Numbers that the check computed, by their names.

    See Also
    --------
    record : Make and display a finding.

    Examples
    --------
    >>> from egm.study.claims import HOLDS, Finding
    >>> print(Finding("lemma-4-1", HOLDS, {"gradient": 0.0}))
    lemma-4-1: holds, gradient = 0
    """

    claim: str
    result: str
    figures: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        figures = "".join(f", {name} = {value:.6g}" for name, value in self.figures.items())
        return f"{self.claim}: {self.result}{figures}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": str(self), MIME: asdict(self)}


def record(claim: str, *, printed: bool, corrected: bool | None = None, **figures: SupportsFloat) -> None:
    """Display the result of checking a claim, in the output of the running cell.

    Parameters
    ----------
    claim : str
        Key of the claim in the ledger.
    printed : bool
        Whether the statement holds as its source prints it.
    corrected : bool, optional
        Whether the statement holds as corrected. It is given only where the printed form fails.
    **figures : float
        Numbers that the check computed, by their names.

    Raises
    ------
    TypeError
        If `printed` or `corrected` is not a truth value.
    ValueError
        If a correction is given for a printed form that holds, or if the correction fails: then the
        chapter is wrong, not its source.

    Examples
    --------
    >>> from egm.study.claims import record
    >>> record("lemma-4-1", printed=True)
    lemma-4-1: holds
    >>> record("algorithm-3", printed=False, corrected=True, bias=0.25)
    algorithm-3: holds with correction, bias = 0.25
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
    """Return a truth value of Python or NumPy as a bool.

    A number or an array is refused, because it would be true by accident.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name} must be True or False, got {value!r} of type {type(value).__name__}")
    return bool(value)
