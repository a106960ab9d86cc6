"""Rename a file to its final name when its content is complete, without replacing another file by mistake."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["place"]


def place(part: Path, target: Path, overwrite: bool) -> None:
    """Rename the finished file `part` to `target`, or raise FileExistsError if a file `target` has appeared meanwhile.

    If `overwrite` is true, a file that has the name `target` is replaced and no error is raised.
    """
    if not overwrite:
        try:
            os.link(part, target)
            return
        except OSError:  # such a file exists, or the file system has no links
            if target.exists():
                raise FileExistsError(17, "exists already") from None
    os.replace(part, target)
