"""Execute the chapters of the book (Jupyter notebooks) with papermill, and store the executed chapters.

Each chapter runs in its own process. An executed chapter is stored as `<chapter>-<key>.ipynb`. The key is a hash of its
code cells, the settings of its process (`environment`), the list of installed packages in `constraints.txt`, and more
(see `key`). Two more files have the same name with another ending. The file `.json` has the results that the checks in
the chapter recorded. The file `.run.json` has the versions with which the chapter was executed
(`tools.kernel.recorder`), and a hash of each file of `egm` on which the chapter may depend.

A chapter is executed again if its key or one of these hashes has changed. If only the text of a chapter has changed,
the stored outputs are put into the new text. A chapter that fails is never stored, so every stored chapter is complete.
"""

import contextlib
import glob
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from threading import Event

import nbformat
import psutil

from egm.study.claims import MIME

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "egm"  # which chapters import, wherever they are
TIMEOUT = 600  # seconds for one cell
SILENT, STARTS = 60.0, 3  # seconds after which a chapter that computes nothing is started again, and number of starts
# How warnings of egm begin that the book leaves out: chapters simulate and say so, and the report's delta is its 1/n.
EXPECTED = "noise from a numpy Generator is simulation|delta = .* is not below 1/n"
UNTRUE = "with these parameters it is not true"  # how a SentenceWarning begins, which is an error in a build
FILTERS = f"""import warnings
warnings.filterwarnings("ignore", {EXPECTED!r})
warnings.filterwarnings("error", {UNTRUE!r})
"""
WIDGET = "application/vnd.jupyter.widget-view+json"
RECORDER = Path(__file__).parent / "kernel" / "recorder.py"
# Pages have two backgrounds, so their figures have none; whoever runs a notebook gets a white one.
KERNEL = 'c.InlineBackend.print_figure_kwargs = {"bbox_inches": "tight", "facecolor": "none"}\n'
FIGURES = Path(__file__).parent / "kernel" / "figures.py"
WHEEL = Path(__file__).parent / "chi2comb.txt"  # version of chi2comb, which constraints.txt does not name
MATPLOTLIB = "pdf.fonttype: 42\n"  # fonts with their outlines whole: journals refuse those of type 3
FIXED = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1")
FIXED |= {"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0"}
ERROR_MARKER = "papermill-error-cell-tag"  # papermill puts such cells around the one that failed


class BookError(Exception):
    """Report that the book cannot be built.

    The message is the complaint of the program that failed, or says what the user can do.
    """


class ChapterError(BookError):
    """Report that a chapter (notebook) cannot be read, or did not run to its end.

    The message says which chapter it is and, if a cell failed, in which cell and why.
    """


@contextlib.contextmanager
def ending(failure: str) -> Iterator[None]:
    """Run a block of a program that builds something, and end the program properly if the block does not succeed.

    If the block raises a BookError, the program ends with the text `failure` and the message of the error. At the
    signal SIGTERM, the block is left by an exception, so that it ends the processes that it has started.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    except BookError as error:
        sys.exit(f"\n{failure}\n{error}")


def read(chapter: Path) -> nbformat.NotebookNode:
    """Return the notebook in the file `chapter`; if it is no notebook, raise a ChapterError that says why."""
    try:
        notebook = nbformat.read(chapter, as_version=4)
        nbformat.validate(notebook)
    except OSError:
        raise
    except Exception as error:  # nbformat raises errors of many types for contents that it does not expect
        # The cause of an error about JSON has the line and the column.
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ChapterError(f"notebooks/{chapter.name} is not a valid notebook: {reason}") from error
    return notebook


def chapters(root: Path = ROOT) -> list[Path]:
    """Return the paths of the book's chapters (notebooks) in the project folder `root`, in reading order."""
    return sorted((root / "notebooks").glob("*.ipynb"))


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return the list of the code cells of `notebook`, without its cells of text."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def digest(*contents: bytes) -> str:
    """Return a hash of the byte strings with which the function is called, as a text of 24 characters."""
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()[:24]


def package_files() -> dict[str, str]:
    """Return a dictionary from path to hash of the content (see `digest`) for all files of the package `egm`.

    The paths are relative to the folder of the package.
    """
    files = [file for file in PACKAGE.rglob("[!.]*") if file.is_file() and file.parent.name != "__pycache__"]
    return {file.relative_to(PACKAGE).as_posix(): digest(file.read_bytes()) for file in files}


def key(notebook: nbformat.NotebookNode, root: Path = ROOT) -> str:
    """Return a hash of all that a chapter's output may depend on, except for the contents of the package `egm`.

    `notebook` is the chapter, and `root` is the main folder of the project. The hash is that of the code cells, the
    fixed settings in `environment`, the programs in `tools.kernel`, the versions of Python and chi2comb, whether
    chi2comb is installed, `constraints.txt`, and the names of the files of `egm`, because Python may import a new file
    in place of another.
    """
    cells = [(cell.id, cell.source, cell.metadata.get("tags", [])) for cell in code_cells(notebook)]
    settings = (sys.version, FILTERS, KERNEL, MATPLOTLIB, FIXED, bool(find_spec("chi2comb")), sorted(package_files()))
    files = (FIGURES, RECORDER, WHEEL, root / "constraints.txt")
    return digest(repr((*settings, cells)).encode(), *(file.read_bytes() for file in files))


def environment(scratch: Path) -> dict[str, str]:
    """Return the environment variables for a process that runs a chapter, and write settings for it into `scratch`.

    `scratch` is an empty folder. With these settings, the chapter's output depends only on the package `egm` and on
    what the function `key` hashes. The settings also make the kernel, the process that runs the cells, record versions
    and modules (`tools.kernel.recorder`), and output every figure as PDF and CSV, too (`tools.kernel.figures`).
    Numerical libraries get one thread. The user's variables for Python are left out, since one of them switches
    assertions off.
    """
    startup = scratch / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup.parent / "ipython_kernel_config.py").write_text(KERNEL)
    (startup / "filters.py").write_text(FILTERS)
    record = f"({str(scratch / 'run.json')!r}, {str(PACKAGE)!r})"
    (startup / "recorder.py").write_text(f"__import__('runpy').run_path({str(RECORDER)!r})['start']{record}\n")
    (startup / "figures.py").write_text(f"__import__('runpy').run_path({str(FIGURES)!r})['start']()\n")
    settings = scratch / "matplotlibrc"
    settings.write_text(MATPLOTLIB)
    places = {"PYTHONPATH": str(PACKAGE.parent), "IPYTHONDIR": str(scratch), "MATPLOTLIBRC": str(settings)}
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**others, **FIXED, **places}


def failure(chapter: Path, output: Path, log: str) -> ChapterError:
    """Return a ChapterError whose message has the name of a failed chapter, the failed cell, and the cell's error.

    `chapter` is the path of the chapter, and `output` is the path of the notebook with the outputs up to the failure.
    If no cell has an error, the message has the last lines of the text `log` instead.
    """
    cells = nbformat.read(output, as_version=4).cells if output.exists() else []
    code = [cell for cell in cells if cell.cell_type == "code" and ERROR_MARKER not in cell.metadata.get("tags", [])]
    for number, cell in enumerate(code, start=1):
        for error in (out for out in cell.outputs if out.output_type == "error"):
            place = f"{chapter.name}, code cell {number}: {cell.source.strip().splitlines()[0]}"
            trace = tail("\n".join(error.traceback))
            return ChapterError(f"{place}\n{error.ename}: {error.evalue}\n\n{trace}")
    return ChapterError(f"{chapter.name} did not run to its end:\n{tail(log)}")


def tail(text: str, lines: int = 12) -> str:
    """Return the last lines of `text`; the number `lines` says how many."""
    return "\n".join(text.splitlines()[-lines:])


def join_prints(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Return the list `outputs` of a notebook cell, with adjacent pieces of printed text joined to one output.

    A kernel sends printed text in pieces, whose number changes from run to run.
    """
    joined = []
    for output in outputs:
        if joined and output.output_type == "stream" and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def add_outputs(notebook: nbformat.NotebookNode, executed: nbformat.NotebookNode) -> None:
    """Copy the outputs of the cells of the notebook `executed` to `notebook`, which has the same code cells.

    Times and paths that papermill noted, and interactive widgets, are left out, so that one chapter gives the same file
    on every machine. (A widget works only while its kernel runs, and would make the page load scripts from a network.)
    """
    notebook.metadata.language_info = executed.metadata.language_info
    for cell, ran in zip(code_cells(notebook), code_cells(executed), strict=True):
        cell.outputs = join_prints([output for output in ran.outputs if WIDGET not in output.get("data", {})])
        cell.execution_count = ran.execution_count


def findings(notebook: nbformat.NotebookNode) -> list[dict]:
    """Return a list of the results of checks that an executed chapter has recorded, each with the name of its cell.

    A result is a dictionary that the function `egm.study.claims.record` made in a cell. If a hidden cell only records
    results, they get the name of the code cell above it.
    """
    found = []
    for check, record in checks(notebook):
        outputs = check.outputs + (record.outputs if record else [])
        found += [out.data[MIME] | {"cell": check.id} for out in outputs if MIME in out.get("data", {})]
    return found


def checks(notebook: nbformat.NotebookNode) -> list[tuple[nbformat.NotebookNode, nbformat.NotebookNode | None]]:
    """Return a list of pairs: a code cell of `notebook`, and the hidden cell that records the first cell's results.

    A code cell with the tag `record` is a hidden cell, and is the second of a pair. Every other code cell is the first
    of a pair; if no hidden cell follows, the second is None.
    """
    pairs: list = []
    for cell in code_cells(notebook):
        if "record" in cell.metadata.get("tags", []):
            pairs[-1] = (pairs[-1][0], cell)
        else:
            pairs.append((cell, None))
    return pairs


def papermill(chapter: Path, source: Path, output: Path, stop: Event) -> None:
    """Run the notebook at the path `source` in its own process, and write the executed notebook to the path `output`.

    `source` is a copy of the notebook `chapter`, in whose folder the process works. If the event `stop` is set before
    the chapter ends, end the process, and return. If the chapter fails, raise ChapterError. A process that computes
    nothing for a minute is ended, and started again, at most twice: now and then a message between papermill and the
    kernel, the process that runs the cells, is lost, and each of them waits for the other.
    """
    options = ["-k", "python3", "--cwd", str(chapter.parent), "--execution-timeout", str(TIMEOUT), "--no-progress-bar"]
    options += ["--no-request-save-on-cell-execute"]  # each would write the whole notebook
    command = [sys.executable, "-m", "papermill", str(source), str(output), *options, "--log-level", "ERROR"]
    log, variables = output.with_suffix(".log"), environment(output.parent)
    for _ in range(STARTS):
        with log.open("wb") as sink:
            process = subprocess.Popen(command, env=variables, stdout=sink, stderr=sink)
            if wait(process, stop) or stop.is_set():
                break
    else:
        raise ChapterError(f"{chapter.name} computed nothing for {SILENT:.0f} s, in each of {STARTS} starts")
    if process.returncode and not stop.is_set():
        raise failure(chapter, output, log.read_text(errors="replace"))


def wait(process: subprocess.Popen, stop: Event) -> bool:
    """Wait until `process` ends; return False if it had to be ended, because it was idle or the event `stop` was set.

    A process is idle if, for a minute (the constant `SILENT`), it and its descendants use less than a hundredth of the
    time of one processor.
    """
    since, before = time.monotonic(), 0.0
    while process.poll() is None:
        silent = False
        if time.monotonic() - since > SILENT:
            used = processor_time(process.pid)
            silent = used - before < SILENT / 100
            since, before = time.monotonic(), used
        if stop.wait(0.05) or silent:
            process.terminate()
            process.wait()
            return False
    return True


def processor_time(pid: int) -> float:
    """Return how many seconds of processor time the process `pid` and its descendants have used so far.

    The time of descendants that have ended already is included.
    """
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended just now
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
    return total


def is_up_to_date(record: dict, package: dict[str, str]) -> bool:
    """Return whether the files of `egm` and the versions of packages are still those with which a chapter was executed.

    `record` is the dictionary that was stored with the chapter's result. `package` has the hashes of the present files
    (see `package_files`).
    """
    same = all(installed(name) == version for name, version in record["packages"].values())
    return same and record["files"].items() <= package.items()


@cache
def installed(name: str) -> str | None:
    """Return the version of the installed package `name`, as pip calls it, or None if there is no such package."""
    with contextlib.suppress(PackageNotFoundError):
        return version(name)
    return None


def execute(chapter: Path, store: Path, stop: Event) -> tuple[Path, float | None]:
    """Execute the chapter with the path `chapter` unless its stored result in the folder `store` is up to date.

    Return the path of the executed chapter and the time of the execution in seconds; the time is None if the stored
    result is used. If the chapter fails, or the event `stop` is set while it runs, raise ChapterError.
    """
    package, notebook, start = package_files(), read(chapter), time.perf_counter()
    stored = store / f"{chapter.stem}-{key(notebook, chapter.parent.parent)}.ipynb"
    beside = stored.with_suffix(".run.json")
    known = stored.exists() and beside.exists()
    known = known and is_up_to_date(json.loads(beside.read_text()), package)
    with tempfile.TemporaryDirectory(dir=store) as scratch:
        output = Path(scratch) / chapter.name
        if not known:
            source = output.with_suffix(".source.ipynb")
            nbformat.write(notebook, source)  # what the key belongs to: the chapter may be saved while it runs
            papermill(chapter, source, output, stop)
            if stop.is_set():
                raise ChapterError(f"{chapter.name} was stopped")
        add_outputs(notebook, nbformat.read(stored if known else output, as_version=4))
        nbformat.write(notebook, output)
        if not known:
            for outdated in store.glob(f"{chapter.stem}-{'[0-9a-f]' * 24}.*"):
                outdated.unlink()
            record = json.loads(output.with_name("run.json").read_text())
            # The modules as they were before the run, and all other files, because nothing records which are read.
            files = [*record.pop("modules"), *(file for file in package if not file.endswith(".py"))]
            beside.write_text(json.dumps(record | {"files": {file: package.get(file) for file in files}}, indent=1))
            stored.with_suffix(".json").write_text(json.dumps(findings(notebook), indent=1))
        os.replace(output, stored)
    return stored, None if known else time.perf_counter() - start


def execute_all(root: Path = ROOT) -> dict[str, Path]:
    """Execute every chapter whose stored result is not up to date, and return where the results of all chapters are.

    The returned dictionary has the file name of each chapter as a key, and the path of its stored result as the value.
    `root` is the main folder of the project. As many chapters run at a time as there are cores. If a chapter fails,
    the others are stopped, and its exception is raised. If `root` has a character that IPython and Sphinx's extension
    for tables of contents read as part of a pattern, raise a BookError.
    """
    if glob.escape(str(root)) != str(root):
        raise BookError(f"Move the project: programs that build the book read *, ? and [ in {root} as a pattern.")
    store = root / "_build" / "executed"
    store.mkdir(parents=True, exist_ok=True)
    todo, stop, executed = chapters(root)[::-1], Event(), {}  # the last chapters take longest, and so begin first
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            running = {pool.submit(execute, chapter, store, stop): chapter for chapter in todo}
            for done in as_completed(running):
                executed[running[done].name], seconds = done.result()
                spent = "unchanged" if seconds is None else f"{seconds:.1f} s"
                print(f"[{len(executed)}/{len(todo)}] {running[done].stem}  {spent}", flush=True)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return executed
