"""Record in a chapter the result of checking a claim, as a `Finding`.

A claim is a statement of Poulsen's report (2023) or of Chan's lecture notes (2012). A chapter has
each finding in the output of a cell. The ledger, a list of all claims and their results, is compared
with these findings. A check computes whether the statement holds as its source prints it and, if
not, whether a correction holds. The result for the ledger follows from these two:

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
    """Result of checking a claim; a notebook shows the result, and stores it in the output of a cell.

    Parameters
    ----------
    claim : str
        Key of the claim in the ledger, the list of all claims in ``ledger/claims.yml``.
    result : str
        Result of the check: `HOLDS`, `CORRECTED` (the claim holds after a correction) or `FAILS`.
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
    """Display the result of checking a claim, as a `Finding` in the output of the running notebook cell.

    Parameters
    ----------
    claim : str
        Key of the claim in the ledger, the list of all claims in ``ledger/claims.yml``.
    printed : bool
        Whether the claim holds as its source prints it.
    corrected : bool, optional
        Whether the claim holds after a correction, if there is one. It does not count if the printed
        form holds, as it may for parameters that a reader has changed.
    **figures : float
        Numbers that the check computed, by their names.

    Raises
    ------
    TypeError
        If `printed` or `corrected` is not a truth value.
    ValueError
        If neither the printed nor the corrected form holds. Then it is the chapter that is wrong, and
        not the source of the claim.

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
        if not printed and not corrected:
            raise ValueError(f"printed = False, corrected = False: the correction of {claim} fails")
    result = HOLDS if printed else CORRECTED if corrected else FAILS
    display(Finding(claim, result, {name: float(value) for name, value in figures.items()}))


def _truth(name: str, value: object) -> bool:
    """Return `value` as a bool if it is True or False, of Python or of NumPy; raise a TypeError for anything else.

    A number or an array is refused, because it could be taken for True or False by accident. The error names the
    argument `name`.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name} must be True or False, got {value!r} of type {type(value).__name__}")
    return bool(value)
