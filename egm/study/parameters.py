"""The parameters of a chapter: what it accepts, and an error for everything else."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

__all__ = ["check_parameters"]


def check_parameters(namespace: Mapping[str, Any], **ranges: tuple[float, float]) -> None:
    """Refuse a parameter that a notebook does not have, and a value outside its range, with a ValueError.

    namespace: the notebook's globals(). ranges: (least, greatest) of each parameter, a whole number where both are; a
    list is checked element by element. Papermill itself only warns of an unknown name, and then runs the notebook with
    its defaults as if the wish had been heard. It writes the wishes into a cell that begins with "# Parameters".
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
