"""Check the parameters of a chapter, and warn of sentences in its text that do not hold with them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SentenceWarning", "check_parameters", "check_sentence"]


class SentenceWarning(UserWarning):
    """Warning that a sentence of a chapter does not hold with the parameters that a reader has chosen.

    The build of the book makes it an error, so that every sentence holds with the parameters of the book.

    Examples
    --------
    Stop a notebook at the first such sentence:

    >>> import warnings
    >>> from egm.study.parameters import SentenceWarning
    >>> warnings.simplefilter("error", SentenceWarning)
    """


def check_sentence(sentence: str, holds: object) -> None:
    """Warn of a sentence in the text of a chapter if it does not hold with the parameters of this run.

    An assertion, which would stop the chapter, suits a statement that holds for all parameters. A
    sentence that describes a result may be true for some parameters only.

    Parameters
    ----------
    sentence : str
        The sentence, in words that can follow "it is not true that".
    holds : bool
        Whether the sentence holds.

    Warns
    -----
    SentenceWarning
        If the sentence does not hold.

    Examples
    --------
    >>> from egm.study.parameters import check_sentence
    >>> check_sentence("scaling gains", 2.0 > 1.1)
    """
    if not holds:
        warnings.warn(f"with these parameters it is not true that {sentence}", SentenceWarning, stacklevel=2)


def check_parameters(namespace: Mapping[str, Any], **ranges: Sequence[float]) -> None:
    """Raise a ValueError if a notebook is run with a parameter that it does not have, or with a value out of range.

    Papermill, which runs a notebook with given parameters, only warns of an unknown name, and then
    runs the notebook with its defaults.

    Parameters
    ----------
    namespace : mapping of str to object
        The notebook's ``globals()``.
    **ranges : tuple of float or list of float
        One keyword argument for each parameter of the notebook: its least and its greatest value. If
        these two are integers, the parameter must be a whole number. If they are given as a list, the
        parameter must be a list that is not empty, with elements in this range.

    Raises
    ------
    ValueError
        If Papermill was asked for a parameter that is not among `ranges`, if its cell of parameters does
        anything but assign values, or if a parameter has no value or one outside its range. The message
        names the parameter.

    Notes
    -----
    Papermill writes the parameters that it was asked for into a cell that begins with "# Parameters". This
    cell is found in the history of inputs, ``In``, of the notebook.

    Examples
    --------
    >>> from egm.study.parameters import check_parameters
    >>> check_parameters({"d": 5, "alphas": [0.1, 2.0]}, d=(1, 10), alphas=[0.0, 100.0])
    >>> check_parameters({"d": 11}, d=(1, 10))
    Traceback (most recent call last):
        ...
    ValueError: d must be an integer from 1 to 10, got 11
    """
    wishes = "\n".join(source for source in namespace.get("In", []) if source.startswith("# Parameters"))
    try:
        asked = ast.parse(wishes).body
    except SyntaxError as error:
        raise ValueError(f"the cell '# Parameters' is not Python: {(error.text or '').strip()}") from error
    for wish in asked:
        match wish:
            case ast.Assign(targets=[ast.Name(id=name)]) if name in ranges:
                continue
            case ast.Assign(targets=[ast.Name(id=name)]):
                has = f"this notebook has {', '.join(ranges)}"
                raise ValueError(f"unknown parameter {name} = {namespace[name]!r}; {has}")
        raise ValueError(f"a parameter is set by an assignment such as d = 5, got {ast.unparse(wish)}")
    for name, allowed in ranges.items():
        if name not in namespace:
            raise ValueError(f"{name} has no value: assign one before its range is checked")
        least, greatest = allowed
        value, several = namespace[name], isinstance(allowed, list)
        whole = isinstance(least, int) and isinstance(greatest, int)
        types, kind = (int, "integer") if whole else ((int, float), "number")
        items = value if several and isinstance(value, list) else [] if several else [value]
        right = [isinstance(item, types) and not isinstance(item, bool) and least <= item <= greatest for item in items]
        if not right or not all(right):
            kind = f"a list of {kind}s" if several else f"an {kind}" if whole else f"a {kind}"
            hint = "; papermill reads 1e-6 as a text: write 1.0e-6" if isinstance(value, str) else ""
            raise ValueError(f"{name} must be {kind} from {least} to {greatest}, got {value!r}{hint}")
