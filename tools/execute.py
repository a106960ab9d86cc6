"""Execute chapters with papermill, each in its own process, and remember what has not changed.

An executed chapter is stored as `<chapter>-<key>.ipynb`, where the key is a digest of everything that its output may
depend on; what its checks recorded stands beside it in a file `.json`, and what it was executed with in a file
`.run.json` (`tools.kernel.recorder`). A chapter that fails is never stored, so whatever is in the store is whole.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event

import nbformat

from egm.study.claims import MIME

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 600  # seconds for one cell
# How warnings of egm begin that the book leaves out: chapters simulate and say so, and the report's delta is its 1/n.
EXPECTED = "noise from a numpy Generator is simulation|delta = .* is not below 1/n"
WIDGET = "application/vnd.jupyter.widget-view+json"
RECORDER = Path(__file__).parent / "kernel" / "recorder.py"
# Pages have two backgrounds, so their figures have none; whoever runs a notebook gets a white one.
KERNEL = 'c.InlineBackend.print_figure_kwargs = {"bbox_inches": "tight", "facecolor": "none"}\n'
FIGURES = Path(__file__).parent / "kernel" / "figures.py"
MATPLOTLIB = "pdf.fonttype: 42\n"  # fonts with their outlines whole: journals refuse those of type 3
ERROR_MARKER = "papermill-error-cell-tag"  # papermill puts such cells around the one that failed


class ChapterError(Exception):
    """A chapter did not run to its end; the message says which, where and why."""


def chapters(root: Path = ROOT) -> list[Path]:
    """The executable chapters in reading order."""
    return sorted((root / "notebooks").glob("*.ipynb"))


def key(chapter: Path) -> str:
    """Digest of all that the chapter's output may depend on: itself, the package, the settings and the lock."""
    root = chapter.parent.parent
    settings = f"{sys.version}{KERNEL}{MATPLOTLIB}".encode()
    digest = hashlib.sha256(settings + FIGURES.read_bytes() + RECORDER.read_bytes())
    package = [file for file in (root / "egm").rglob("*") if file.suffix in (".py", ".csv")]
    for file in [chapter, root / "constraints.txt", root / "pyproject.toml", *sorted(package)]:
        digest.update(f"\0{file.relative_to(root).as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:24]


def environment(scratch: Path) -> dict[str, str]:
    """Settings under which a chapter's output depends on its key alone, and two chapters share two cores fairly.

    The book leaves out warnings that are expected of its chapters. What the kernel runs with is recorded in the scratch
    folder (`tools.kernel.recorder`), and figures come as PDF, too (`tools.kernel.figures`); the lines that see to it
    leave no name in the chapter.
    """
    profile = scratch / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text(KERNEL)
    startup = profile / "startup"
    startup.mkdir(exist_ok=True)
    (startup / "simulation.py").write_text(f"import warnings\nwarnings.filterwarnings('ignore', {EXPECTED!r})\n")
    start = f"__import__('runpy').run_path({str(RECORDER)!r})['start']({str(scratch / 'run.json')!r})\n"
    (startup / "recorder.py").write_text(start)
    (startup / "figures.py").write_text(f"__import__('runpy').run_path({str(FIGURES)!r})['start']()\n")
    (scratch / "matplotlibrc").write_text(MATPLOTLIB)
    threads = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1")
    fixed = {"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0", "IPYTHONDIR": str(scratch)}
    fixed["MATPLOTLIBRC"] = str(scratch / "matplotlibrc")
    return {**os.environ, **threads, **fixed}


def failure(chapter: Path, output: Path, log: str) -> ChapterError:
    """Name the chapter, the cell and the error, which papermill buries in a traceback of its own."""
    cells = nbformat.read(output, as_version=4).cells if output.exists() else []
    code = [cell for cell in cells if cell.cell_type == "code" and ERROR_MARKER not in cell.metadata.get("tags", [])]
    for number, cell in enumerate(code, start=1):
        for error in (out for out in cell.outputs if out.output_type == "error"):
            place = f"{chapter.name}, code cell {number}: {cell.source.strip().splitlines()[0]}"
            trace = tail("\n".join(error.traceback))
            return ChapterError(f"{place}\n{error.ename}: {error.evalue}\n\n{trace}")
    return ChapterError(f"{chapter.name} did not run to its end:\n{tail(log)}")


def tail(text: str, lines: int = 12) -> str:
    """The last lines of a text."""
    return "\n".join(text.splitlines()[-lines:])


def join_prints(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """What a cell prints in one piece: a kernel sends it in as many as its clock happens to make of it."""
    joined = []
    for output in outputs:
        if joined and output.output_type == "stream" and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def strip_traces(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Drop times, paths and widgets, so that the same chapter gives the same file on every machine.

    What a cell prints is one output, in however many pieces a slow kernel has sent it. A widget lives only while its
    kernel does, has a random name, and would make the page load scripts from a network.
    """
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = join_prints([output for output in cell.outputs if WIDGET not in output.get("data", {})])
    for holder in [notebook, *notebook.cells]:
        for trace in ("papermill", "execution"):
            holder.metadata.pop(trace, None)
    return notebook


def findings(notebook: nbformat.NotebookNode) -> list[dict]:
    """Return what a chapter recorded (`egm.study.claims.record`), each finding with the cell that found it."""
    found = []
    for check, record in checks(notebook):
        outputs = check.outputs + (record.outputs if record else [])
        found += [out.data[MIME] | {"cell": check.id} for out in outputs if MIME in out.get("data", {})]
    return found


def checks(notebook: nbformat.NotebookNode) -> list[tuple[nbformat.NotebookNode, nbformat.NotebookNode | None]]:
    """Pair each code cell with the hidden cell below it that records what it found (its tag is `record`), or None."""
    pairs: list = []
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        if "record" in cell.metadata.get("tags", []):
            pairs[-1] = (pairs[-1][0], cell)
        else:
            pairs.append((cell, None))
    return pairs


def papermill(chapter: Path, output: Path, stop: Event) -> None:
    """Run one chapter in a process of its own, and end that process as soon as `stop` is set."""
    options = ["-k", "python3", "--cwd", str(chapter.parent), "--execution-timeout", str(TIMEOUT), "--no-progress-bar"]
    command = [sys.executable, "-m", "papermill", str(chapter), str(output), *options, "--log-level", "ERROR"]
    log = output.with_suffix(".log")
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=environment(output.parent), stdout=sink, stderr=sink)
        while process.poll() is None:
            if stop.wait(0.05):
                process.terminate()
                process.wait()
    if process.returncode and not stop.is_set():
        raise failure(chapter, output, log.read_text(errors="replace"))


def execute(chapter: Path, store: Path, stop: Event) -> tuple[Path, float | None]:
    """The executed chapter in the store, and the seconds it took: None when it was there already."""
    stored = store / f"{chapter.stem}-{key(chapter)}.ipynb"
    beside = (".json", ".run.json")
    if stored.exists() and all(stored.with_suffix(suffix).exists() for suffix in beside):
        return stored, None
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=store) as scratch:
        output = Path(scratch) / chapter.name
        papermill(chapter, output, stop)
        if stop.is_set():
            raise ChapterError(f"{chapter.name} was stopped")
        notebook = strip_traces(nbformat.read(output, as_version=4))
        nbformat.write(notebook, output)
        output.with_suffix(".json").write_text(json.dumps(findings(notebook), indent=1))
        output.with_name("run.json").replace(output.with_suffix(".run.json"))
        for outdated in store.glob(f"{chapter.stem}-*"):
            outdated.unlink()
        for suffix in beside:
            os.replace(output.with_suffix(suffix), stored.with_suffix(suffix))
        os.replace(output, stored)
    return stored, time.perf_counter() - start


def execute_all(root: Path = ROOT) -> dict[str, Path]:
    """Execute every chapter, as many at a time as there are cores; the first that fails stops the others."""
    store = root / "_build" / "executed"
    store.mkdir(parents=True, exist_ok=True)
    todo, stop, executed = chapters(root), Event(), {}
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
