"""Talk to the operator: messages on standard error, warnings, and the signals that stop a command."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["Mistake", "Stops", "complain", "shown_warnings", "visible"]

_LONGEST = 500  # characters of a message


class Mistake(Exception):
    """Mistake of the user, reported in one line."""


class Stops:
    """Handle Ctrl-C, SIGTERM and SIGHUP: each raises KeyboardInterrupt, and is remembered.

    Some libraries catch every exception while they import another library, and then go on as if
    nothing had happened. Therefore `check` raises the exception again, between two blocks and
    before anything is written. After `commit` it is too late.
    """

    def __init__(self) -> None:
        self.received, self.committed = 0, False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Stops:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # nohup and shells set signals to be ignored
                    self.before.setdefault(number, signal.signal(number, self.stop))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def stop(self, number: int, _: object) -> None:
        """Handle a signal; the system calls this method."""
        self.received = self.received or number
        if not self.committed:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was a signal."""
        if self.received and not self.committed:
            raise KeyboardInterrupt

    def commit(self) -> None:
        """Check for the last time; a signal that comes later is ignored."""
        self.check()
        self.committed = True


def complain(message: object, code: int) -> int:
    """Print one line on standard error, and return the exit code."""
    line = visible(" ".join(str(message).split()))
    print(f"egm: {line if len(line) <= _LONGEST else line[: _LONGEST - 3] + '...'}", file=sys.stderr)
    return code


def visible(text: str) -> str:
    """Replace every character that cannot be printed, and could be an order to a terminal, by an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextlib.contextmanager
def shown_warnings() -> Iterator[None]:
    """Print each warning as one line on standard error, and only once."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            complain(f"warning: {message}", 0)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
