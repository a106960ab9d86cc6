"""Keep the charges of a budget (the costs of its releases) in memory or in a journal.

A journal survives a crash, and processes can share it. It is an SQLite database. Its table `terms` has one row, the
total and the rule; its table `charges` has one row for each charge. The SHA-256 digest of a charge covers the digest of
the charge before it, and so the terms and all charges up to it; `terms.last` is the digest of the last charge. So a
row that is changed, added or removed by accident is noticed. Somebody who may write to the file can compute the digests
anew, or put an old copy in its place; only a budget that has seen a later charge notices this.

A journal is made in the format 2. With the first charge for releases from samples, the table `charges` gets two more
columns, and the journal becomes one of the format 3. Only the digests of charges for samples cover these columns.

In five places a budget needs more than SQLite does by itself:

- By default SQLite does not sync the folder after a commit, and a power failure could undo a charge after the data were
  read. So SQLite's setting ``synchronous`` is EXTRA here.
- SQLite continues to write to a file that has been removed or replaced. So every use opens the file by its name, and a
  charge counts only if the name still leads to this file after the commit. A budget also remembers the last charge that
  it has seen, and refuses a journal without it.
- After a crash SQLite repairs a journal by a second file, whose name is the journal's with "-journal" appended. Under
  another name SQLite would not find this file. So symbolic links are resolved, a journal with a second name (a hard
  link) is refused, and no new journal is made beside such a file.
- A connection must not be used after a fork. So every use of the journal opens and closes a connection of its own. A
  charge that is being recorded during a fork counts in the parent only, and a process that was forked during a use is
  refused.
- On Unix a process loses its locks on a file when any part of it closes the file. So only SQLite opens the file here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from egm._budget.rules import Charge, Terms, checked, complete
from egm._types import PathLike

__all__ = ["Journal", "JournalError", "Memory"]

_APPLICATION = 0x65676D62  # number in the head of the file, by which a journal is known
_FORMAT, _WITH_SAMPLES = 2, 3  # numbers in the head of the file, by which the format of a journal is known
_TABLES = (
    "CREATE TABLE terms (id TEXT, rho REAL, epsilon REAL, delta REAL, neighbors TEXT, rule TEXT, simulation INTEGER, "
    "last TEXT)",
    "CREATE TABLE charges (number INTEGER PRIMARY KEY, mechanism TEXT, rho REAL, mu_squared REAL, epsilon REAL, "
    "delta REAL, label TEXT, time TEXT, digest TEXT)",
)
_ADDED = "sampling_probability REAL", "count INTEGER"  # columns of `charges` in the format _WITH_SAMPLES, at its end
_PATIENCE = 60.0  # seconds to wait for a lock: a charge takes milliseconds
_STEP = 0.1  # seconds of this time after which a signal, such as Ctrl-C, has its effect
_LONGEST = 512  # bytes of the path of the file that SQLite keeps beside the journal: it opens no longer one (on Unix)
_FILES = 3  # that SQLite opens for a charge: the journal, the file beside it, and their folder
_ERRORS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EACCES,
}

_Process: TypeAlias = tuple[int, int]

_uses: set[tuple[_Process, object]] = set()  # for each use of a journal now: the process, and a new object
_forks: list[None] = []  # one entry for each fork from the first process to this one
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forks.append(None))


class JournalError(ValueError):
    """Error for a journal (the file of a budget) that is damaged, missing, or not the one that was opened.

    Such a journal does not show how much of the budget was spent, and so no release is granted.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from egm.budget import Budget, JournalError
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "survey.budget"
    ...     _ = path.write_text("notes of a meeting")
    ...     try:
    ...         Budget(path)
    ...     except JournalError:
    ...         print("refused")
    refused
    """


class Memory:
    """Keep the terms of a budget and the costs of its releases (charges) in the memory of one process.

    `given` has the arguments of the budget as the function `rules.checked` returns them. The attribute `terms` has the
    total of the budget, its rule and its neighbor relation. No other process may use the object.
    """

    name = "in memory"

    def __init__(self, given: dict[str, Any]) -> None:
        self.terms = Terms(**complete(given, "an in-memory budget"))
        self._lock, self._process = threading.Lock(), _process()
        self._charges: list[Charge] = []

    def read(self) -> tuple[Charge, ...]:
        """Return the costs of all releases as a tuple of `Charge`, in the order in which they were recorded."""
        self._require_process()
        return tuple(self._charges)

    @contextlib.contextmanager
    def changing(self) -> Iterator[tuple[tuple[Charge, ...], Callable[[Charge], None]]]:
        """Return a context manager; within its `with` block no other thread can record a cost.

        The block gets the costs recorded so far, as a tuple of `Charge`, and a function that records one more.
        """
        self._require_process()
        with self._lock:

            def record(charge: Charge) -> None:
                self._require_process()  # a handler of signals may have forked
                self._charges.append(charge)

            yield tuple(self._charges), record

    def _require_process(self) -> None:
        """Raise a RuntimeError in a process that was forked from the one that made this object.

        Without this error, the copy of the recorded costs in the forked process would be a second budget.
        """
        if _process() != self._process:
            raise RuntimeError("a budget in memory is for the process that made it, not for its forks; give it a path")


class _State(NamedTuple):
    """Hold the content of a journal (the file of a budget): its terms, the recorded costs, and the SHA-256 digests.

    `terms` is the row of the SQLite table `terms`, without its column `last`, the last digest. `charges` are the costs
    in the order in which they were recorded. `digests` has the digest of the terms, and then that of each charge.
    `format` is the number of the journal's format.
    """

    terms: tuple[Any, ...]
    charges: tuple[Charge, ...]
    digests: list[str]
    format: int


class Journal:
    """Keep the terms of a budget (its total and its rule) and the costs of its releases (charges) in a file.

    `path` is the path of the file, which is made if necessary. `given` has the arguments of the budget as the function
    `rules.checked` returns them; those that are not None must agree with an existing file.
    """

    def __init__(self, path: PathLike, given: dict[str, Any]) -> None:
        try:
            self.path = Path(os.fsdecode(path))
        except TypeError:
            raise TypeError(f"path must be a string, a path or None, got {path!r}") from None
        self.name = repr(str(self.path))
        self._seen: tuple[int, str] | None = None  # number and digest of the last charge that was seen
        if not self.path.exists():
            self._create(complete(given, f"a new journal, and {self.name} is none yet"))
        with self._transaction("BEGIN") as (_, state):
            pass
        names = [field.name for field in dataclasses.fields(Terms)]
        kept = dict(zip(names, state.terms[1:], strict=True))
        try:
            self.terms = Terms(**complete(checked(**{**kept, "simulation": bool(kept["simulation"])}), "a journal"))
        except (TypeError, ValueError) as error:
            raise self._refusal(f"its total is none that can be kept ({error})") from None
        for name, value in given.items():
            if value is not None and value != (own := getattr(self.terms, name)):
                raise ValueError(f"{name} must be that of the journal {self.name}, {own!r}, got {value!r}")

    def read(self) -> tuple[Charge, ...]:
        """Return the costs in the file as a tuple of `Charge`, in the order in which they were recorded."""
        with self._transaction("BEGIN") as (_, state):
            return state.charges

    @contextlib.contextmanager
    def changing(self) -> Iterator[tuple[tuple[Charge, ...], Callable[[Charge], None]]]:
        """Return a context manager; within its `with` block no other process or thread can record a cost in the file.

        The block gets the costs recorded so far, as a tuple of `Charge`, and a function that records one more.
        """
        process, here = _process(), self._status()
        with self._transaction("BEGIN IMMEDIATE") as (connection, state):

            def record(charge: Charge) -> None:
                row: tuple[Any, ...] = (len(state.digests), *dataclasses.astuple(charge))
                row, sample = row[:-2], () if charge.sampling_probability is None else row[-2:]
                digest = _digest(state.digests[-1], *row, *sample)
                _require(process)
                if sample and state.format == _FORMAT:
                    for column in _ADDED:
                        connection.execute(f"ALTER TABLE charges ADD COLUMN {column}")
                    connection.execute(f"PRAGMA user_version = {_WITH_SAMPLES}")
                if state.format == _WITH_SAMPLES:
                    sample = sample or (None, None)
                values = (*row, digest, *sample)
                connection.execute(f"INSERT INTO charges VALUES ({', '.join('?' * len(values))})", values)
                connection.execute("UPDATE terms SET last = ?", (digest,))
                connection.execute("COMMIT")
                _require(process)
                self._seen = len(state.digests), digest
                if not os.path.samestat(here, self._status()):
                    raise self._refusal("it was replaced while a charge was written, and nothing is granted")

            yield state.charges, record

    def _create(self, terms: dict[str, Any]) -> None:
        """Write the file of a new budget with its `terms` under a temporary name, and then give it the final name.

        If another process has made a file of the final name meanwhile, that file stays.
        """
        if self.path.is_symlink():
            raise self._refusal(f"it is a link to {os.readlink(self.path)!r}, which is not there")
        row = (secrets.token_hex(8), *{**terms, "simulation": int(terms["simulation"])}.values())
        draft = self.path.with_name(f".egm-{secrets.token_hex(8)}.part")
        try:
            self._require_nothing_left()
            os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            with self._connected(draft) as connection:
                for statement in ("BEGIN", *_TABLES):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_FORMAT}")
                connection.execute("INSERT INTO terms VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, _digest(*row)))
                connection.execute("COMMIT")
            with contextlib.suppress(FileExistsError):
                self._place(draft)
        except OSError as error:  # the error names the draft
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def _place(self, draft: Path) -> None:
        """Give the new file `draft` the name of the budget's file; raise FileExistsError if there is such a file.

        If the file system has no hard links, the name is first taken by an empty file. No other process replaces it,
        nor records a charge in it.
        """
        try:
            os.link(draft, self.path)
        except FileExistsError:
            raise
        except OSError:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
            try:
                os.replace(draft, self.path)
            except BaseException:
                os.unlink(self.path)
                raise

    def _require_nothing_left(self) -> None:
        """Raise JournalError if the budget's file is missing, but a crash has left the file that SQLite had beside it.

        SQLite would apply the left file, whose name ends in "-journal", to a new file of the budget.
        """
        left = f"{self.path}-journal"
        with contextlib.suppress(FileNotFoundError):
            os.lstat(left)
            if not self.path.exists():  # if it does, another process has made it meanwhile, and writes a charge
                raise self._refusal(f"it is gone, and a charge that was cut short has left {left!r}")

    def _status(self) -> os.stat_result:
        """Return the result of `os.stat` for the file of the budget (the journal).

        Raise JournalError if the file is missing, is not a regular file, or has a second name (a hard link).
        """
        try:
            if os.stat(self.path).st_nlink > 1:
                self._remove_drafts()
            status = os.stat(self.path)
        except FileNotFoundError:
            raise self._refusal("it is gone, and with it what was spent") from None
        if not stat.S_ISREG(status.st_mode):
            raise self._refusal("it is not a regular file")
        if status.st_nlink > 1:
            raise self._refusal("it has a second name (a hard link), under which a crash could undo charges")
        return status

    def _remove_drafts(self) -> None:
        """Remove the temporary name under which the budget's file was made, if the file still has it as a second name.

        The name is left over if the process that made the file was killed before it could remove the name.
        """
        for draft in self.path.resolve().parent.glob(".egm-*.part"):
            with contextlib.suppress(OSError):
                if draft.samefile(self.path):
                    draft.unlink()

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[tuple[sqlite3.Connection, _State]]:
        """Begin a transaction on the budget's file by the SQL statement `begin`; yield the connection and the content.

        The content is a `_State`: the terms of the budget, the recorded costs and their digests. At the end the
        transaction is undone unless it was committed. Raise JournalError if the file is not a journal, was changed, or
        lacks the last charge that this object has seen.
        """
        self._status()
        seen = self._seen
        with self._connected(self.path) as connection:
            connection.execute(begin)
            try:
                state = _content(connection)
            except JournalError as error:
                raise self._refusal(str(error)) from None
            number, digest = seen or (0, state.digests[0])
            if state.digests[number : number + 1] != [digest]:
                raise self._refusal("it is another one than before, or an older copy")
            self._seen = len(state.digests) - 1, state.digests[-1]
            yield connection, state

    @contextlib.contextmanager
    def _connected(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Open the existing SQLite file at `path`, yield the connection, and close the connection at the end.

        An error of SQLite is replaced by a JournalError, an OSError or a TimeoutError.
        """
        use = _process(), object()
        for process, _ in tuple(_uses):
            _require(process)
        try:
            _uses.add(use)
            address = f"{path.resolve().as_uri()}?mode=rw"
            with contextlib.closing(
                sqlite3.connect(address, timeout=_STEP, isolation_level=None, uri=True, factory=_Connection)
            ) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA fullfsync = ON")  # for macOS, where a plain sync may stay in the drive
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter if the text of an error is damaged, too
            raise self._translated(error, path) from None
        finally:
            _uses.discard(use)

    def _translated(self, error: Exception, path: Path) -> Exception:
        """Return the exception with which an exception of SQLite for the file at `path`, `error`, is replaced.

        It is a JournalError, an OSError or a TimeoutError.
        """
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code == sqlite3.SQLITE_READONLY_DBMOVED:
            return self._refusal("it was replaced while a charge was written, and nothing is granted")
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            return TimeoutError(f"journal {self.name}: another process has locked it for {_PATIENCE:g} seconds")
        number = _obstacle(path) if code & 0xFF == sqlite3.SQLITE_CANTOPEN else _ERRORS.get(code & 0xFF)
        if number is not None:
            return OSError(number, f"{os.strerror(number)} ({error})", str(self.path))
        return self._refusal(f"it is not a journal, or a damaged one ({error})")

    def _refusal(self, why: str) -> JournalError:
        """Return a `JournalError` whose message names the file of the budget and gives the reason `why`, a text."""
        return JournalError(f"journal {self.name}: {why}")


class _Connection(sqlite3.Connection):
    """Connection to an SQLite file that waits for a lock in short steps.

    While SQLite itself waits, Python does not handle signals such as Ctrl-C.
    """

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute an SQL statement; raise sqlite3.OperationalError if the file stays locked for too long."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return super().execute(*arguments)
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise


def _process() -> _Process:
    """Return two numbers that together differ between a process and its forks: its id, and how many forks led to it.

    The id is not enough, because a fork can have the same one in another namespace, as in a container. The number of
    forks is not enough, because Python does not notice a fork by a library.
    """
    return os.getpid(), len(_forks)


def _require(process: _Process) -> None:
    """Raise a RuntimeError if the present process was forked from another one while the file of a budget was in use.

    `process` is the result of `_process` in the process that used the file. A connection to an SQLite file must not be
    used after a fork.
    """
    if _process() != process:
        raise RuntimeError("this process was forked while a journal was in use; nothing is granted in it")


def _obstacle(path: Path) -> int:
    """Return the number of the error for which SQLite could not open the file at `path` or another one beside it.

    SQLite does not tell this number, so the likely reasons are tried: a path that is too long for SQLite, and a process
    or a system that has too many open files. Otherwise the file or its folder has permissions that forbid it.
    """
    if len(os.fsencode(f"{path.resolve()}-journal")) > _LONGEST:
        return errno.ENAMETOOLONG
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(_FILES):
                stack.enter_context(open(os.devnull))
    except OSError as error:
        return error.errno or errno.EACCES
    return errno.EACCES


def _digest(*values: Any) -> str:
    """Return the SHA-256 digest of all `values` together, as a text of hexadecimal digits."""
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()


def _content(connection: sqlite3.Connection) -> _State:
    """Return the content of the file of a budget, which `connection` has opened with SQLite, as a `_State`.

    A `_State` has the terms of the budget, the recorded costs and their digests. Raise JournalError if the digests or
    the format are not those of a journal.
    """

    def pragma(name: str) -> Any:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    if pragma("application_id") != _APPLICATION:
        raise JournalError("it is not a journal")
    if (found := pragma("user_version")) not in (_FORMAT, _WITH_SAMPLES):
        known = f"{_FORMAT} and {_WITH_SAMPLES} are known"
        raise JournalError(f"its format is {found}, and {known}: another version of egm has made it")
    rows = connection.execute("SELECT sql FROM sqlite_master").fetchall()  # at once: an open cursor keeps its lock
    tables, known_tables = [sql for (sql,) in rows], list(_TABLES)
    if found == _WITH_SAMPLES:
        known_tables[1] = ", ".join([known_tables[1].removesuffix(")"), *_ADDED]) + ")"
    if tables != known_tables or pragma("journal_mode") != "delete" or pragma("integrity_check") != "ok":
        raise JournalError("it is damaged, or another program has changed it")
    rows = connection.execute("SELECT * FROM terms").fetchall()
    if len(rows) != 1:
        raise JournalError(f"it has {len(rows)} rows of terms")
    ((*terms, last),) = rows
    charges, digests = [], [_digest(*terms)]
    for values in connection.execute("SELECT * FROM charges ORDER BY number"):
        row, digest, sample = values[:8], values[8], () if values[9:] == (None, None) else values[9:]
        number = len(digests)
        if digest != _digest(digests[-1], *row, *sample):
            raise JournalError(f"charge {number} is not as it was written")
        costs, texts = row[2:6], (row[1], *row[6:])
        if not all(isinstance(cost, float) and cost >= 0 for cost in costs) or set(map(type, texts)) != {str}:
            raise JournalError(f"charge {number} is none that can be")
        if sample and not (
            isinstance(sample[0], float) and 0 < sample[0] <= 1 and type(sample[1]) is int and sample[1] > 0
        ):
            raise JournalError(f"charge {number} is none that can be")
        charges.append(Charge(*row[1:], *sample))
        digests.append(digest)
    if last != digests[-1]:
        raise JournalError("its terms or its last charges are not as they were written")
    return _State(tuple(terms), tuple(charges), digests, found)
