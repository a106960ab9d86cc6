"""Check the parameters with which a chapter of the book is run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

__all__ = ["check_parameters"]


def check_parameters(namespace: Mapping[str, Any], **ranges: tuple[float, float]) -> None:
    """Raise a ValueError if a notebook is run with a parameter that it does not have, or with a value out of range.

    Papermill, which runs a notebook with given parameters, only warns of an unknown name, and then
    runs the notebook with its defaults.

    Parameters
    ----------
    namespace : mapping of str to object
        The notebook's ``globals()``.
    **ranges : tuple of float
        One keyword argument for each parameter of the notebook: its least and its greatest value. If
        these two are integers, the parameter must be a whole number. If the parameter is a list, each
        of its elements is checked.

    Raises
    ------
    ValueError
        If Papermill was asked for a parameter that is not among `ranges`, or if a value is outside its
        range. The message names the parameter.

    Notes
    -----
    Papermill writes the parameters that it was asked for into a cell that begins with "# Parameters". This
    cell is found in the history of inputs, ``In``, of the notebook.

    Examples
    --------
    >>> from egm.study.parameters import check_parameters
    >>> check_parameters({"d": 5, "alphas": [0.1, 2.0]}, d=(1, 10), alphas=(0.0, 100.0))
    >>> check_parameters({"d": 11}, d=(1, 10))
    Traceback (most recent call last):
        ...
    ValueError: d must be an integer from 1 to 10, got 11
    """
    wishes = "\n".join(source for source in namespace.get("In", []) if source.startswith("# Parameters"))
    body: list[Any] = ast.parse(wishes).body  # assignments all
    for name in (target.id for wish in body for target in wish.targets):
        if name not in ranges:
            raise ValueError(f"unknown parameter {name} = {namespace[name]!r}; this notebook has {', '.join(ranges)}")
    for name, (least, greatest) in ranges.items():
        whole = isinstance(least, int) and isinstance(greatest, int)
        kind, types = ("an integer", int) if whole else ("a number", (int, float))
        value = namespace[name]
        for item in value if isinstance(value, list) and value else [value]:
            if not isinstance(item, types) or isinstance(item, bool) or not least <= item <= greatest:
                raise ValueError(f"{name} must be {kind} from {least} to {greatest}, got {item!r}")
