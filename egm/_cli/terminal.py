"""Print messages and warnings for the user, and handle the signals that stop a command."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = [
    "Mistake",
    "Stops",
    "complain",
    "from_csv",
    "in_csv",
    "is_terminal",
    "printing",
    "shown_warnings",
    "tell",
    "visible",
]

_FORMULA = "=+-@\uff1d\uff0b\uff0d\uff20"  # the first characters of formulas, also in full width
_ESCAPES = r"\\([\\tnr]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"  # those of unprintable characters, and of a backslash
_LONGEST = 500  # characters of a message


class Mistake(Exception):
    """Exception for an error of the user: the command line reports its message in one line, without a traceback."""


class Stops:
    """Context manager that makes Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt, and remembers the first signal.

    Some libraries catch every exception while they import another library, and then go on. Therefore a command often
    calls the method `check`, which raises KeyboardInterrupt once more. After `commit`, a signal has no effect. The text
    `note` is appended to the message of a command that ends early; it says what such a command has changed.

    At the end of the context, signals have the effect again that they had before. But if `are_last` is true, the
    process is about to end, and a signal has no effect. Only if a signal has stopped the command, which `reported` has
    reported, another one ends the process at once while Python waits for threads that still compute.
    """

    def __init__(self, are_last: bool = False) -> None:
        self.received, self.committed, self.note, self.are_last = 0, False, "", are_last
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Stops:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # nohup and shells set signals to be ignored
                    self.before.setdefault(number, signal.signal(number, self.stop))
        return self

    def __exit__(self, *_: object) -> None:
        self.committed = True  # so that another signal does not interrupt the next lines
        for number, handler in self.before.items():
            signal.signal(number, signal.SIG_IGN if self.are_last else handler)

    def stop(self, number: int, _: object) -> None:
        """Remember that the signal `number` has arrived, and raise KeyboardInterrupt unless `commit` was called.

        Python calls this method when it receives a signal such as Ctrl-C. After a call of the method `commit`, signals
        are to have no effect.
        """
        self.received = self.received or number
        if not self.committed:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal such as Ctrl-C was received and `commit` has not been called.

        The method `commit` makes the command ignore signals from then on.
        """
        if self.received and not self.committed:
            raise KeyboardInterrupt

    def commit(self) -> None:
        """Make the command ignore later signals, such as Ctrl-C; raise KeyboardInterrupt if one was received before."""
        self.check()
        self.committed = True

    def reported(self) -> int:
        """Report the signal that has ended the command, and return the exit code: 128 plus the number of the signal."""
        number = self.received or signal.SIGINT
        code = complain(f"{'interrupted' if number == signal.SIGINT else 'terminated'}{self.note}", 128 + number)
        for other in self.before if self.are_last else ():
            signal.signal(other, lambda *_: os._exit(code))  # as long as Python waits for threads
            atexit.register(signal.signal, other, signal.SIG_IGN)  # called after that; soon handlers are not called
        return code


def complain(message: object, code: int) -> int:
    """Print `message` as one line on standard error, and return `code`, the exit code of the command."""
    line = visible(" ".join(str(message).split()))
    tell(f"egm: {line if len(line) <= _LONGEST else line[: _LONGEST - 3] + '...'}")
    return code


def tell(text: str, end: str = "\n") -> None:
    """Print `text` and then `end` on standard error, or nothing if that fails: a command does not end for a message.

    It fails if the terminal or `sys.stderr` is closed, for example, or if the messages go to a file on a full disk.
    """
    if sys.stderr:  # None if it is closed
        with contextlib.suppress(OSError, ValueError):
            print(text, end=end, file=sys.stderr, flush=True)


def is_terminal() -> bool:
    """Return whether standard error is open and a terminal."""
    return bool(sys.stderr) and not sys.stderr.closed and sys.stderr.isatty()


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Raise a `Mistake`, which is an error for the user, if a `with` block cannot write to standard output."""
    try:
        yield
    except OSError as wrong:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again when it ends
        raise Mistake(f"standard output: {wrong.strerror}") from None


def visible(text: str) -> str:
    """Return `text` with a Python escape for each unprintable character, because these can control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_csv(name: str) -> str:
    """Return `name`, the name of a column or the key of a group, as text for a CSV file that a spreadsheet may open.

    A name that begins like a formula, and is not a whole number, gets an apostrophe in front, and so does a name that
    begins with an apostrophe. Unprintable characters become Python escapes, and each backslash is doubled. The function
    `from_csv` undoes all of this.
    """
    is_formula = name.lstrip()[:1] in tuple(_FORMULA) and not re.fullmatch(r"-\d+", name, re.ASCII)
    return visible("'" * (is_formula or name[:1] == "'") + name.replace("\\", r"\\"))


def from_csv(cell: str) -> str:
    """Return the name that the text `cell` of a CSV file stands for, if the function `in_csv` has made this text.

    `in_csv` adds an apostrophe to some names, doubles backslashes and escapes unprintable characters; this function
    undoes all of this.
    """
    return re.sub(_ESCAPES, lambda found: found[0].encode().decode("unicode_escape"), cell.removeprefix("'"))


@contextlib.contextmanager
def shown_warnings(hidden: type[Warning]) -> Iterator[None]:
    """Within a `with` block, print each warning as one line on standard error, and a repeated warning only once.

    Warnings of the class `hidden` are not printed. Python has one way to show warnings for all threads; therefore only
    the main thread changes it, and in other threads nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            complain(f"warning: {message}", 0)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", hidden)
        warnings.showwarning = show
        yield
