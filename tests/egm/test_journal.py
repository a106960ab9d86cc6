"""Test the journal of a budget, the file that holds the cost of each granted release: no granted cost is ever lost.

The tests use several processes and threads, crashes, full disks, and damaged or replaced files.
"""

import dataclasses
import errno
import os
import pickle
import random
import re
import resource
import signal
import sqlite3
import stat
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from egm._budget import journal
from egm._budget.rules import Terms, charge_of, checked
from egm.budget import Budget, JournalError, Loss
from tests.egm.doubles import ReadError, Unread, adaptive, fill, laplace

DELTA = 1e-6
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


def made(path, charges=2):
    """Return a new Budget with the total rho = 0.5, kept in the file `path`, with `charges` recorded costs of 0.125."""
    budget = Budget(path, rho=0.5)
    for _ in range(charges):
        budget.charge(adaptive(0.125))
    return budget


def change(path, *statements):
    """Execute the SQL `statements` on the SQLite database in the file `path`, as another program could do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


# --- Restart ----------------------------------------------------------------------------------------------------------

TOTALS = [
    {"rho": 0.3},
    {"epsilon": 0.7},
    {"epsilon": 1.1, "delta": DELTA},
    {"epsilon": 1.1, "delta": DELTA, "rule": "planned", "neighbors": "add_remove"},
    {"rho": 0.3, "simulation": True},
]


@pytest.mark.parametrize("total", TOTALS, ids=str)
def test_a_restart_changes_nothing(total, tmp_path):
    """A budget that is opened again from its file before each cost behaves like a budget in memory.

    Both have the same `total`, grant the same costs, and report the same history. The folder of the file holds no
    other file afterwards.
    """
    path, memory = tmp_path / "a journal? #1%20", Budget(**total)
    for epsilon in (0.1, 0.07, 1 / 3, 0.2):
        reopened = Budget(str(path), **total)
        assert fill(reopened, laplace(epsilon), most=1) == fill(memory, laplace(epsilon), most=1)
        for other in (reopened, Budget(path)):
            assert (other.history, other.spent, other.rule) == (memory.history, memory.spent, memory.rule)
            assert (other._terms, other._terms.rho) == (memory._terms, memory.rho)
    assert reopened.left == memory.left
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "other",
    [{"rho": 0.6}, {"epsilon": 1.0}, {"rho": 0.5, "neighbors": "add_remove"}, {"rule": "basic"}, {"simulation": True}],
    ids=str,
)
def test_a_restart_cannot_change_the_terms(other, tmp_path):
    made(tmp_path / "journal", 1)
    with pytest.raises(ValueError, match=rf"{list(other)[-1]} must be that of the journal"):
        Budget(tmp_path / "journal", **other)
    assert Budget(tmp_path / "journal", rho=0.5).spent == 0.125


def test_a_journal_made_by_another_process_meanwhile_is_kept(tmp_path, monkeypatch):
    """If another process creates a budget's file just after `Budget` found none, `Budget` keeps the file's costs."""
    made(tmp_path / "journal", 1)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert Budget(tmp_path / "journal", rho=0.5).spent == 0.125
    assert len(list(tmp_path.iterdir())) == 1


def test_a_new_journal_is_for_its_owner(path):
    made(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o660)  # the owner allows a group to use the journal, and no charge undoes that
    Budget(path).charge(adaptive(0.125))
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_links(tmp_path):
    """`Budget` accepts a symbolic link to its file, but a file with two names (hard links) raises a JournalError.

    After a crash, SQLite looks for a rollback file whose name is made from that of the budget's file. By the second
    name SQLite would not find it.
    """
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder / "journal")
    budget = made(folder / "journal", 1)
    Budget(link).charge(adaptive(0.25))
    assert budget.spent == 0.375
    os.link(folder / "journal", tmp_path / "second")
    for use in (lambda: budget.spent, lambda: Budget(tmp_path / "second"), lambda: budget.charge(adaptive(0.1))):
        with pytest.raises(JournalError, match="second name"):
            use()
    assert os.listdir(folder) == ["journal"]


@pytest.mark.parametrize("theirs", [None, "", "journal"])
def test_a_file_system_without_hard_links(tmp_path, monkeypatch, theirs):
    """Without hard links, a budget can be made, but never replaces a file that another process makes meanwhile.

    `theirs` says what the other process has made: nothing, an empty file, or the file of a budget with one charge.
    """

    made(tmp_path / "other", 1)
    others = {"": b"", "journal": (tmp_path / "other").read_bytes()}
    (tmp_path / "other").unlink()

    def link(source, target):
        if theirs is not None:
            target.write_bytes(others[theirs])
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    if theirs == "":
        with pytest.raises(JournalError, match="not a journal"):
            Budget(tmp_path / "journal", rho=0.5)
    else:
        budget = Budget(tmp_path / "journal", rho=0.5)
        assert budget.spent == (0.0 if theirs is None else 0.125)
        budget.charge(adaptive(0.25))
        assert Budget(tmp_path / "journal").spent == budget.spent > 0.2
    assert os.listdir(tmp_path) == ["journal"]


@pytest.mark.parametrize("problem", [OSError(5, "Input/output error"), KeyboardInterrupt()], ids=repr)
def test_an_interruption_without_hard_links_leaves_no_file(tmp_path, monkeypatch, problem):
    """If a budget cannot be made, and the file system has no hard links, its name stays free, and it can be made later.

    `problem` is the exception while the file gets its name.
    """
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", Mock(side_effect=PermissionError(1, "Operation not permitted")))
        patched.setattr(os, "replace", Mock(side_effect=problem))
        with pytest.raises(type(problem)):
            Budget(tmp_path / "journal", rho=0.5)
    assert os.listdir(tmp_path) == []
    assert Budget(tmp_path / "journal", rho=0.5).spent == 0


def test_a_maker_that_was_killed_leaves_a_journal_that_can_be_used(tmp_path):
    """If a process is killed while it creates a budget's file, another process can use this file.

    The file then still has its temporary name as a second name (hard link). The next use of the budget removes this
    name.
    """
    Budget(tmp_path / "journal", rho=0.5)
    os.link(tmp_path / "journal", tmp_path / ".egm-1.part")
    (tmp_path / ".egm-0.part").write_text("a draft of another")
    made(tmp_path / "journal", 1)
    assert sorted(os.listdir(tmp_path)) == [".egm-0.part", "journal"]


# --- Several at once --------------------------------------------------------------------------------------------------


def fork(function):
    """Call `function` in a forked process, and return the pair (process id, stream of the text that `function` writes).

    `function` gets one argument, a function write(text). If `function` raises an Exception, its type and text are
    written to the stream.
    """
    out, back = os.pipe()
    if (child := os.fork()) == 0:
        try:
            function(lambda text: os.write(back, text.encode()))
        except Exception as error:
            os.write(back, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(back)
    return child, open(out, "rb", buffering=0)


def ended(child, out):
    """Wait until the forked process `child` ends, and return the text from its stream `out`; `fork` returns both."""
    with out:
        text = out.read()
    os.waitpid(child, 0)
    return text.decode()


in_a_file_or_in_memory = pytest.mark.parametrize("name", ["journal", None])  # of the budget's file


def in_a_fork(function):
    """Call `function` without arguments in a forked process, and return its result or its error as a string."""
    return ended(*fork(lambda write: write(repr(function()))))


def test_processes_share_what_there_is(path):
    """Three processes that share the file of a budget are together granted the 50 costs that the total allows."""
    forks = [fork(lambda write: write("." * fill(Budget(path, epsilon=1), laplace(0.02)))) for _ in range(3)]
    assert "".join(ended(*each) for each in forks) == "." * 50
    assert len(Budget(path).history) == 50


@in_a_file_or_in_memory
def test_threads_share_what_there_is(name, tmp_path):
    """Four threads that share a budget are together granted the 20 costs that the total of the budget allows.

    `name` is the name of the budget's file, or None for a budget in memory.
    """
    budget = Budget(name and tmp_path / name, epsilon=1)
    granted = []
    threads = [threading.Thread(target=lambda: granted.append(fill(budget, laplace(0.05)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == len(budget.history) == 20


@in_a_file_or_in_memory
def test_a_charge_waits_for_the_one_under_way(name, tmp_path):
    """While one thread records a cost in a budget, a second thread that asks for a cost must wait.

    The first cost is half of the total, and the second is three quarters, so that the second one is refused. `name`
    is the name of the budget's file, or None for a budget in memory.
    """
    budget = Budget(name and tmp_path / name, epsilon=1)
    other = threading.Thread(target=fill, args=(budget, laplace(0.75)))
    with budget._store.changing() as (charges, record):
        other.start()
        other.join(0.1)
        assert charges == ()
        record(Budget(epsilon=1).charge(laplace(0.5)))
    other.join()
    assert [charge.epsilon for charge in budget.history] == [0.5]


def test_a_lock_that_is_kept_is_an_error(path, monkeypatch):
    """If another program keeps the file of a budget locked, `Budget.release` raises a TimeoutError.

    No data are read, and no cost is recorded. When the lock is gone, the budget can be used again.
    """
    monkeypatch.setattr(journal, "_PATIENCE", 0.2)
    budget = Budget(path, epsilon=1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM terms").fetchall()
        assert budget.history == ()
        with pytest.raises(TimeoutError, match=r"journal '.*journal'.*locked it for 0.2 seconds"):
            budget.release(laplace(0.25), Unread(3))
    assert budget.history == ()
    monkeypatch.setattr(journal, "_PATIENCE", 10.0)
    assert fill(budget, laplace(0.25)) == 4


def test_signals_are_handled_while_a_charge_waits(path, monkeypatch):
    """While a charge waits for the lock of its file, Python calls the handler of a signal, here one that unlocks it."""
    monkeypatch.setattr(journal, "_PATIENCE", 30.0)
    budget = Budget(path, epsilon=1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        before = signal.signal(signal.SIGALRM, lambda *_: other.execute("ROLLBACK"))
        try:
            other.execute("BEGIN EXCLUSIVE")
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            budget.charge(laplace(0.25))
        finally:
            signal.signal(signal.SIGALRM, before)
    assert budget.left == Loss(0.75, 0.0)


@pytest.fixture(params=[False, True], ids=["another id", "the same id"])
def forks(request, monkeypatch):
    """Give forked processes another process id than their parent, or the same one, as in another namespace."""
    if request.param:
        monkeypatch.setattr(os, "getpid", lambda: 1)


@pytest.mark.usefixtures("forks")
def test_a_fork_is_no_second_budget(tmp_path):
    """A forked process cannot use a budget that its parent has in memory, since both could spend the total.

    If the budget is in a file, the forked process can use it: parent and child record their costs in the same file.
    """
    budget = Budget(epsilon=1)
    budget.charge(laplace(0.25))
    uses = [lambda: budget.charge(laplace(0.75)), lambda: budget.left, lambda: budget.history, lambda: budget.spent]
    uses += [lambda: budget.release(laplace(0.75), 1.0), lambda: budget.split(2)]
    for use in uses:
        assert "RuntimeError: a budget in memory is for the process that made it" in in_a_fork(use)
    assert budget.left == Loss(0.75, 0.0)
    with budget._store.changing() as (_, record):  # the fork happens in a signal handler, and both processes continue
        assert "RuntimeError" in in_a_fork(lambda: record(budget.history[0]))
    shared = Budget(tmp_path / "journal", epsilon=1)
    assert "Charge" in in_a_fork(lambda: shared.charge(laplace(0.75)))
    assert shared.left == Loss(0.25, 0.0)


@pytest.mark.usefixtures("forks")
def test_a_fork_during_a_charge_grants_nothing_and_keeps_no_lock(tmp_path):
    """If a process is forked while it records a cost, each use of the budget in the child raises a RuntimeError.

    The child has a copy of SQLite's state, by which it would wrongly hold the lock of the file. The parent is not
    disturbed.
    """
    budget = Budget(tmp_path / "journal", epsilon=1)
    with budget._store.changing() as (_, record):
        asked = Budget(epsilon=1).charge(laplace(0.5))
        for use in (lambda: record(asked), lambda: budget.charge(laplace(0.5)), lambda: budget.left):
            assert "RuntimeError: this process was forked while a journal was in use" in in_a_fork(use)
        record(asked)
    assert budget.left == Loss(0.5, 0.0)
    assert "Charge" in in_a_fork(lambda: budget.charge(laplace(0.25)))
    assert fill(budget, laplace(0.25)) == 1


def test_a_fork_during_a_charge_in_memory_grants_nothing(monkeypatch):
    """If a process is forked after a budget in memory was read, and before a charge is recorded, nothing is granted.

    A handler of signals may fork at any time. The charge would be recorded in the copy alone.
    """
    store = journal.Memory(checked(1.0, None, None, None, None, None))
    with store.changing() as (charges, record):
        monkeypatch.setattr(journal, "_process", lambda: (0, 0))
        with pytest.raises(RuntimeError, match="for the process that made it, not for its forks"):
            record(charge_of(laplace(0.25), "replace_one"))
    monkeypatch.undo()
    assert charges == store.read() == ()


def test_memory_is_not_copied():
    """`pickle.dumps` raises a TypeError for a budget in memory, because the copy would be a second budget."""
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(Budget(rho=1.0))


def test_a_fork_waits_for_no_lock_of_a_budget_in_memory(monkeypatch):
    """A forked process is refused before it would wait for the lock, which a thread may have held during the fork.

    No thread of the forked process could give it back.
    """
    store = Budget(rho=1.0)._store
    store._lock = None  # to wait for it is a TypeError
    monkeypatch.setattr(journal, "_process", lambda: (0, 0))
    with pytest.raises(RuntimeError, match="for the process that made it, not for its forks"), store.changing():
        pass


# --- Removed and replaced ---------------------------------------------------------------------------------------------


def test_a_journal_that_goes_away_is_not_made_again(path, tmp_path):
    budget = made(path, 1)
    path.unlink()
    for use in (lambda: budget.charge(adaptive(0.1)), lambda: budget.spent):
        with pytest.raises(JournalError, match="gone"):
            use()
    assert not list(tmp_path.iterdir())
    Budget(path, rho=0.5)
    with pytest.raises(JournalError, match="another one than before"):
        budget.charge(adaptive(0.1))


def replace(path):
    """Replace the file `path` by a copy with the same content and another inode, as editors do."""
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.replace(copy, path)


@pytest.mark.parametrize("way", [replace, Path.unlink])
@pytest.mark.parametrize("moment", ["opened", "asked", "written"])
def test_nothing_is_granted_on_a_journal_that_is_replaced(way, moment, path, monkeypatch):
    """If a budget's file is replaced or removed during a release, the release fails before data are read.

    `way` is the function that removes the file or replaces it by a copy, and `moment` says when. After a replacement,
    later releases are recorded in the copy.
    """
    budget, calls = Budget(path, epsilon=1), []
    place = {"opened": (sqlite3, "connect"), "asked": (Terms, "grants"), "written": (journal, "_require")}[moment]
    own = getattr(*place)

    def meanwhile(*given, **options):
        calls.append(moment)
        if len(calls) == (2 if moment == "written" else 1):  # `_require` is called before and after the commit
            way(path)
        return own(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(*place, meanwhile)
        with pytest.raises((JournalError, PermissionError), match=r"replaced while a charge|is gone|unable to open"):
            budget.release(laplace(0.5), Unread(3))
    if way is replace:
        fill(budget, laplace(0.25))
        assert Budget(path).left.epsilon == 0


def test_an_open_budget_notices_an_older_copy(path):
    """If a budget's file is replaced by an older copy, each open Budget that has seen a later charge refuses a cost.

    A Budget that is opened after the replacement cannot notice it, and neither can an open one that has seen no charge
    later than those in the copy.
    """
    budget = made(path, 1)
    old, behind = path.read_bytes(), Budget(path)
    budget.charge(adaptive(0.125))
    later, reader = Budget(path), Budget(path)
    assert reader.spent == 0.25
    path.write_bytes(old)
    for opened in (budget, later, reader):
        with pytest.raises(JournalError, match="another one than before, or an older copy"):
            opened.charge(adaptive(0.125))
    assert Budget(path).spent == behind.spent == 0.125


# --- Crashes ----------------------------------------------------------------------------------------------------------


def test_killed_twenty_times_never_counts_less_than_was_granted(path):
    """The file of a budget holds every granted cost, although twenty processes that use the budget are killed.

    After k kills, the file may hold up to k costs more: a process can be killed before it learns that its cost is
    granted.
    """
    draw, granted = random.Random(5), 0

    def grant(write):
        budget = Budget(path, epsilon=1000)
        while True:
            budget.charge(laplace(1.0))
            write(".")

    for kill in range(1, 21):
        child, out = fork(grant)
        granted += sum(len(out.read(1)) for _ in range(draw.randrange(6)))
        time.sleep(draw.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        granted += len(ended(child, out))
        assert granted <= len(Budget(path, epsilon=1000).history) <= granted + kill
    assert granted > 20


def test_an_interruption_leaves_no_lock(path, monkeypatch):
    """If Ctrl-C comes while a budget's file is read, the file can be used again, even if the traceback is kept.

    A notebook keeps the traceback, and with it all variables of the functions that were interrupted.
    """
    monkeypatch.setattr(journal, "_PATIENCE", 0.0)
    budget, kept, passed, line = Budget(path, rho=1e6), [], 0, 0

    def trace(frame, event, _):
        nonlocal passed
        if frame.f_code.co_qualname.startswith("_content"):
            passed += event == "line"
            if passed == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    while passed >= line:
        passed, line, before = 0, line + 1, sys.gettrace()
        sys.settrace(trace)
        try:
            budget.charge(adaptive(0.125))
        except KeyboardInterrupt as error:
            kept.append(error)
        finally:
            sys.settrace(before)
        with Budget(path)._store.changing():
            pass
    assert len(Budget(path).history) == 1
    assert len(kept) == line - 1 > 20


def cut_short(path):
    """Leave the budget's file `path` as after a crash during a write, and return the path of SQLite's rollback file.

    The budget's file holds a part of a change, and the rollback file what is needed to undo this part.
    """

    def crash(_):
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")  # so that the file is written long before the end
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE terms SET last = 'none'")
        for number in range(3, 1000):
            connection.execute("INSERT INTO charges VALUES (?, 'none', 0, 0, 0, 0, '', '', 'none')", (number,))
        os._exit(0)

    size = path.stat().st_size
    assert not ended(*fork(crash))
    assert path.stat().st_size > size
    return Path(f"{path}-journal")


def test_a_charge_that_was_cut_short_is_undone(path):
    budget = made(path)
    left = cut_short(path)
    assert left.exists()
    assert (budget.spent, Budget(path).spent) == (0.25, 0.25)
    assert not left.exists()
    assert fill(budget, adaptive(0.125)) == 2


def test_what_undoes_a_charge_is_not_put_into_a_new_journal(path):
    """`Budget` refuses to create a file if a rollback file of SQLite for the same path is left from an earlier budget.

    SQLite would otherwise write parts of the earlier budget into the new file.
    """
    made(path)
    left = cut_short(path)
    path.unlink()
    with pytest.raises(JournalError, match="a charge that was cut short has left"):
        Budget(path, rho=0.5)
    left.unlink()
    assert Budget(path, rho=0.5).spent == 0


def test_a_half_written_charge_is_there_or_refused(path):
    """If a new cost is half written to a budget's file, `Budget` counts it in full or not at all, or raises an error.

    SQLite writes the file in pages, and the test tries all combinations of written and unwritten pages. The rollback
    file, with which SQLite could undo a half written change, is missing.
    """
    budget, size = made(path), 4096
    before = path.read_bytes()
    budget.charge(adaptive(0.125))
    after = path.read_bytes()
    assert len(before) == len(after)
    pages = [slice(start, start + size) for start in range(0, len(after), size)]
    places = [page for page in pages if before[page] != after[page]]
    assert len(places) >= 3
    for written in range(1 << len(places)):
        mixed = bytearray(before)
        for bit, place in enumerate(places):
            if written >> bit & 1:
                mixed[place] = after[place]
        path.write_bytes(mixed)
        try:
            assert Budget(path).spent == (0.375 if bytes(mixed)[4096:] == after[4096:] else 0.25)
        except JournalError:
            assert bytes(mixed) not in (before, after)


def test_a_full_disk_grants_nothing(path):
    """If the disk is too full to record the cost of a release, `Budget.release` raises an OSError before data are read.

    When there is space again, the budget can be used again. The test limits the size of files to imitate a full disk.
    """
    budget, hard = Budget(path, rho=1e6), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    failures = 0
    for space in range(0, 24_576, 1024):
        before = len(budget.history)
        resource.setrlimit(resource.RLIMIT_FSIZE, (space, hard))
        try:
            with pytest.raises((OSError, ReadError)) as error:
                budget.release(adaptive(0.125), Unread(20_000, 2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        granted = error.type is ReadError
        failures += not granted
        assert granted <= len(budget.history) - before <= 1
        assert granted or repr(str(path)) in str(error.value)
    assert failures > 5
    budget.charge(adaptive(0.125))


def test_a_charge_is_on_the_disk_before_it_is_granted(tmp_path):
    """The connection to a budget's SQLite file uses synchronous=EXTRA and journal_mode=DELETE.

    With these settings SQLite waits until a recorded cost, and the removal of the rollback file, are on the disk.
    """
    budget = Budget(tmp_path / "journal", rho=0.5)
    with budget._store.changing() as _, budget._store._connected(budget._store.path) as connection:
        settings = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("synchronous", "journal_mode")]
    assert settings == [(3,), ("delete",)]


@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o777), (0o666, 0o555)])
def test_what_may_not_be_written_can_be_read(file, folder):
    """If a budget's file or its folder is read-only, the recorded costs can be read, but no new cost can be recorded.

    The arguments `file` and `folder` are the permissions (mode bits) of the file and of its folder.
    """
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "journal"
        made(path, 1)
        path.chmod(file)
        Path(place).chmod(folder)

        def use(write):
            if os.getuid() == 0:
                os.setuid(65534)
            budget = Budget(path)
            write(f"{budget.spent} ")
            budget.charge(laplace(0.1))

        assert re.fullmatch(r"0.125 PermissionError: .*journal'", ended(*fork(use)))
        Path(place).chmod(0o700)


# --- Damage -----------------------------------------------------------------------------------------------------------


def refused(path):
    """Check that `Budget` raises a JournalError for the file `path`, whether or not a total is given."""
    with pytest.raises(JournalError, match=r"journal '.*journal'"):
        Budget(path)
    with pytest.raises(JournalError):
        Budget(path, rho=0.5)


@pytest.mark.slow
def test_every_flipped_bit_is_refused_or_changes_nothing(path):
    """If one bit of a budget's file is flipped, `Budget` raises a JournalError or still reports the right costs.

    The test flips one bit in each byte that is not zero, and in every 97th byte, and makes one damaged file for each of
    these bits. Fewer than 200 of the damaged files raise no JournalError. In these a new cost is recorded correctly, or
    an OSError is raised because the flipped bit makes the file read-only.
    """
    history = made(path).history
    good, harmless = path.read_bytes(), 0
    for place in [place for place, byte in enumerate(good) if byte or place % 97 == 0]:
        damaged = bytearray(good)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            budget = Budget(path)
        except JournalError:
            continue
        harmless += 1
        assert (budget.history, budget.rho) == (history, 0.5)
        try:
            budget.charge(adaptive(0.125))
        except OSError:  # the bit marks the journal as read-only
            continue
        assert Budget(path).spent == 0.375
    assert harmless < 200


def test_every_truncation_is_refused(path):
    made(path)
    good = path.read_bytes()
    for length in (0, 1, 15, 16, 99, 100, 511, 512, *range(1000, len(good), 1000), 4096, 8192, len(good) - 1):
        path.write_bytes(good[:length])
        refused(path)
        assert path.read_bytes() == good[:length]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM charges WHERE number = 1",
        "DELETE FROM charges WHERE number = 3",
        "DELETE FROM charges",
        "UPDATE charges SET rho = 0.025 WHERE number = 2",
        "UPDATE charges SET rho = NULL WHERE number = 2",
        "UPDATE charges SET mechanism = x'ff' WHERE number = 2",
        "UPDATE charges SET mechanism = CAST(x'ff' AS TEXT) WHERE number = 2",
        "UPDATE charges SET digest = '' WHERE number = 3",
        "UPDATE charges SET number = number - 1",
        "UPDATE charges SET number = 4 WHERE number = 3",
        "INSERT INTO charges SELECT 4, mechanism, rho, mu_squared, epsilon, delta, label, time, digest FROM charges "
        "LIMIT 1",
        "UPDATE charges SET label = 'another' WHERE number = 2",
        "UPDATE charges SET time = '' WHERE number = 3",
        "UPDATE terms SET rho = 5.0",
        "UPDATE terms SET simulation = 1",
        "UPDATE terms SET id = 'another'",
        "UPDATE terms SET last = (SELECT digest FROM charges WHERE number = 2)",
        "DELETE FROM terms",
        "INSERT INTO terms SELECT * FROM terms",
        "DROP TABLE charges",
        "CREATE TABLE more (number INTEGER)",
        "CREATE TRIGGER forget AFTER INSERT ON charges BEGIN DELETE FROM charges; END",
        "PRAGMA journal_mode = WAL",
        "PRAGMA application_id = 0",
    ],
)
def test_what_another_program_changes_is_refused(path, statement):
    budget = made(path, 3)
    change(path, statement)
    refused(path)
    with pytest.raises(JournalError):
        budget.charge(adaptive(0.125))


NO_LABELS = [f"ALTER TABLE charges DROP COLUMN {name}" for name in ("label", "time")]


@pytest.mark.parametrize(("version", "changes"), [(7, ["DROP TABLE charges"]), (1, NO_LABELS)])
def test_another_format_is_named(path, version, changes):
    """`Budget` refuses a file of the old format 1 or the unknown format 7; the error names the formats that are known.

    `version` is the number of the file's format, which the error names, too. The SQL statements `changes` give the
    file the tables of this format.
    """
    made(path)
    change(path, f"PRAGMA user_version = {version}", *changes)
    with pytest.raises(JournalError, match=f"its format is {version}, and 2 and 3 are known: another version"):
        Budget(path)


@pytest.mark.parametrize(
    ("terms", "charge"),
    [
        ({"rho": -1.0}, {}),
        ({"rho": None}, {}),
        ({"neighbors": "both"}, {}),
        ({}, {"rho": -0.5}),
        ({}, {"rho": None}),
        ({}, {"delta": "none"}),
        ({}, {"label": None}),
        ({}, {"time": 2025.0}),
    ],
)
def test_forged_rows_are_journal_errors(path, terms, charge):
    """`Budget` raises a JournalError, and no other error, if its file has impossible values, such as rho = -0.5.

    The dictionary `terms` replaces values in the table of the budget's terms, such as its total, and `charge` replaces
    values of the one recorded cost. The checksums are those of the forged values.
    """
    made(path, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        kept = {**connection.execute("SELECT * FROM terms").fetchone()} | terms
        row = {**connection.execute("SELECT * FROM charges").fetchone()} | charge
        row["digest"] = kept["last"] = journal._digest(journal._digest(*[*kept.values()][:-1]), *[*row.values()][:-1])
        for table, values in (("terms", kept), ("charges", row)):
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", [*values.values()])
    refused(path)


def test_a_file_that_is_no_journal_is_left_alone(path):
    for content in (b"", b"rho,0.5\n0.1\n", b"notes of a meeting\n" * 1000):
        path.write_bytes(content)
        refused(path)
        assert path.read_bytes() == content
    path.unlink()
    change(path, "CREATE TABLE people (name TEXT)")
    refused(path)


def test_labels_and_times_are_kept(path):
    """The history of a budget has the label of each recorded cost, and the time in UTC at which it was recorded.

    A label may have any characters. Two records that differ only in their time are equal.
    """
    labels = ["", "March", "é\n\x00\U0001f600'; --"]
    before = datetime.now(UTC).replace(microsecond=0)
    for budget in (Budget(rho=1.0), Budget(path, rho=1.0)):
        charges = tuple(budget.charge(adaptive(0.125), label=label) for label in labels)
        assert budget.history == charges
        assert [charge.label for charge in budget.history] == labels
        assert [charge.time for charge in budget.history] == [charge.time for charge in charges]
    assert Budget(path).history == charges
    for charge in Budget(path).history:
        assert before <= datetime.strptime(charge.time, "%Y-%m-%dT%H:%M:%S%z") <= datetime.now(UTC)
    assert dataclasses.replace(charge, time="") == charge != dataclasses.replace(charge, label="another")


@pytest.mark.parametrize(("label", "error"), [(None, TypeError), (3, TypeError), ("\udcff", ValueError)])
def test_a_label_that_is_no_text_costs_nothing(tmp_path, label, error):
    for budget in (Budget(rho=1.0), Budget(tmp_path / "journal", rho=1.0)):
        for use in (
            lambda budget=budget: budget.charge(adaptive(0.125), label=label),
            lambda budget=budget: budget.release(adaptive(0.125), Unread(20_000, 2), label=label),
            lambda budget=budget: budget.quantile(np.arange(9.0), 0.5, 0, 9, 0.1, 1, label=label),
        ):
            with pytest.raises(error, match=r"^label must"):
                use()
        assert budget.history == ()


def test_places_where_no_journal_can_be_are_named(tmp_path):
    """If the path of a budget's file cannot be used, the error of `Budget` has the path, and no file is created.

    Such a path is, for example, a folder, a broken link, or a name that is too long for the suffix of SQLite's rollback
    file.
    """
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(JournalError) as error:
            Budget(path, rho=0.5)
        assert str(error.value) == f"journal {str(path)!r}: it is not a regular file"
    with pytest.raises(JournalError, match="it is a link to"):
        Budget(tmp_path / "dangling", rho=0.5)
    long = tmp_path / ("j" * 247)  # the longest name that still has room for what SQLite appends
    names = "no/journal", "long" * 100, f"{long.name}j", "pipe/journal"
    for path in map(tmp_path.joinpath, names):
        with pytest.raises(OSError, match=re.escape(repr(str(path)))):
            Budget(path, rho=0.5)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dangling", "pipe"]
    assert made(long).spent == 0.25


def test_an_error_says_what_keeps_sqlite_from_a_file(tmp_path, path):
    """If SQLite cannot open a file, the OSError gives the reason: too many open files, or too long a path for SQLite.

    A process that has too many open files can record a cost again as soon as it has closed some.
    """
    deep = tmp_path.joinpath(*["long" * 50] * 3)
    deep.mkdir(parents=True)
    with pytest.raises(OSError, match=re.escape(repr(str(deep / "journal")))) as error:
        Budget(deep / "journal", rho=0.5)
    assert (error.value.errno, os.listdir(deep)) == (errno.ENAMETOOLONG, [])
    budget, (soft, hard) = Budget(path, rho=0.5), resource.getrlimit(resource.RLIMIT_NOFILE)
    for free in (0, 1):
        with ExitStack() as stack:
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
            others = []
            with suppress(OSError):
                while True:
                    others.append(stack.enter_context(open(os.devnull)))
            for other in others[:free]:
                other.close()
            with pytest.raises(OSError, match=re.escape(repr(str(path)))) as error:
                budget.charge(adaptive(0.125))
        assert error.value.errno == errno.EMFILE
    assert fill(budget, adaptive(0.125)) == 4
