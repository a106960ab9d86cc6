"""Build the book as HTML: execute the chapters, gather all sources in one folder, and run Jupyter Book.

The finished book is in `_build/html`. It is removed before a build starts and appears only when the build has ended
without a single warning, so what is there is always complete and current.

Sphinx reads only the pages that have changed since the last build, but writes all pages again, because their menus and
references show what is on other pages. Sphinx reads everything again if the last build failed or was stopped, or if
anything but pages has changed, such as the settings, the package or these tools.
"""

import filecmp
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import nbformat
from filelock import FileLock

from tools import ledger, pages, provenance
from tools.execute import ROOT, BookError, digest, ending, execute_all, package_files, tail
from tools.sphinx import launch

PAGES = (".md", ".rst", ".ipynb")
MATHJAX = ["tex-chtml-full.js", "output/chtml/fonts/woff-v2"]


def alone(build: Callable[..., Path]) -> Callable[..., Path]:
    """Return the function `build`, which builds something of a project, changed so that it waits for other builds.

    The first argument of `build` is the main folder of the project, by default that of these tools. All builds of a
    project use files in its folder `_build`, so only one of them runs at a time, in any process.
    """

    @functools.wraps(build)
    def waiting(root: Path = ROOT, *others: object) -> Path:
        (root / "_build").mkdir(exist_ok=True)
        with FileLock(root / "_build" / "lock"):
            return build(root, *others)

    return waiting


def copy(source: Path, target: Path) -> None:
    """Copy the file or the folder `source` to the path `target`, and make missing parent folders.

    The copies are as old as this call: Sphinx would not read a file again that is older than its last build.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=shutil.copy)
    else:
        shutil.copy(source, target)


def lay_out(stage: Path, executed: dict[str, Path], root: Path) -> None:
    """Fill the folder `stage` with all that the book is built from: pages, executed chapters, figures, and MathJax.

    `executed` has the path of each executed chapter (notebook) by its file name, and `root` is the main folder of the
    project. Each chapter gets a box with its provenance: commit, versions, parameters and seeds. Pages about checked
    statements and about errors in print get their lists. Pages that Sphinx has read in an earlier build are kept if
    they are still valid (see `keep_what_was_read`); all else in the folder is removed first. If a recorded result and
    the lists do not belong together, raise a BookError.
    """
    found, made, address = ledger.read(executed, root), provenance.commit(root), launch.repository(root)
    if wrong := ledger.strangers(found) + ledger.silent(found):
        raise BookError("\n".join(wrong))
    place, stage = stage, stage.with_name(f"{stage.name}-new")
    shutil.rmtree(stage, ignore_errors=True)
    for name in ("_config.yml", "_toc.yml", "book"):
        copy(root / name, stage / name)
    for name in ("notebooks", "extra/figures"):
        (stage / name).mkdir(parents=True)
    launch.configure(stage / "_config.yml", address, made)
    for name, file in executed.items():
        notebook = pages.link_findings(nbformat.read(file, as_version=4), found, name)
        notebook = pages.link_sources(notebook, name, stage / "extra" / "figures")
        provenance.add_stamp(notebook, file, made, address)
        nbformat.write(notebook, stage / "notebooks" / name)
    pages.write(found, stage / "book" / "generated")
    copy(root / "CITATION.cff", stage / "book" / "generated" / "CITATION.cff")
    pages.copy_figures(stage / "extra" / "figures", stage / "book" / "generated")
    mathjax = Path(find_spec("sphinx-mathjax-offline").submodule_search_locations[0]) / "static" / "mathjax"
    for name in MATHJAX:
        copy(mathjax / name, stage / "book" / "_static" / "mathjax" / name)
    sources = [file for file in (ROOT / "tools").rglob("[!.]*.*") if file.is_file() and file.suffix != ".pyc"]
    read = [file.read_bytes() for file in sorted([*sources, ROOT / "constraints.txt"])]
    (stage / "inputs").write_text(digest(repr((sys.version, sorted(package_files().items()))).encode(), *read))
    keep_what_was_read(place, stage)
    shutil.rmtree(place, ignore_errors=True)
    os.replace(stage, place)


def keep_what_was_read(old: Path, new: Path) -> None:
    """Move the folder `_build`, where Sphinx keeps pages that it has read, from `old` to `new` if it is still valid.

    `old` and `new` are folders with the sources of the book before and after a change. `_build` is still valid if these
    sources differ only in pages. A file of `new` that is unchanged gets the modification time that it has in `old`, so
    that Sphinx does not read it again.
    """
    files = [file.relative_to(stage) for stage in (old, new) for file in stage.rglob("*") if file.is_file()]
    sources = {file for file in files if file.parts[0] != "_build"}
    same, changed, missing = filecmp.cmpfiles(old, new, sources, shallow=False)
    for file in same:
        shutil.copystat(old / file, new / file)
    if (old / "_build").exists() and all(file.suffix in PAGES for file in changed + missing):
        os.replace(old / "_build", new / "_build")


def environment(root: Path) -> dict[str, str]:
    """Return this process's environment variables and, as SOURCE_DATE_EPOCH, the date of the last commit.

    With this date, two builds from the same commit give the same book. If there is no commit, or SOURCE_DATE_EPOCH is
    set already, that variable is left as it is. `root` is the main folder of the project whose book is built, and
    PYTHONPATH is set to the main folder of the project that contains these tools, which may be another one.
    """
    made = provenance.commit(root)
    date = {"SOURCE_DATE_EPOCH": str(int(made.time.timestamp()))} if made else {}
    return {**date, **os.environ, "PYTHONPATH": str(ROOT)}


def run_jupyter_book(stage: Path, root: Path, builder: str = "html", **variables: str) -> Path:
    """Build HTML or LaTeX from the sources in the folder `stage`, and return the path of the folder with the result.

    `builder` is "html" or "latex", and `root` is the main folder of the project. Further keyword arguments are
    additional environment variables. Any warning raises a BookError. After a build that ended with a warning or did not
    end, Sphinx reads all pages again. The log is `_build/sphinx-<builder>.log`.
    """
    cache, whole = stage / "_build", stage / "_build" / "whole"
    shutil.rmtree(cache / builder if whole.exists() else cache, ignore_errors=True)
    whole.unlink(missing_ok=True)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", stage, "--builder", builder]
    command += ["-W", "-n", "--keep-going"]
    done = subprocess.run(command, env=environment(root) | variables, capture_output=True, text=True, check=False)
    (root / "_build" / f"sphinx-{builder}.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise BookError(readable(tail(done.stderr or done.stdout, 40), stage))
    whole.touch()
    return cache / builder


def readable(log: str, stage: Path) -> str:
    """Return the text `log` of a build, made easier to read: without color codes, and with numbers of cells and lines.

    In a log, the program MyST counts all lines of a notebook in one number: line 70012 means line 12 of cell 7. In the
    result, such a number is replaced by "cell 7, line 12". The path `stage`, the folder with the sources of the book,
    is removed from paths.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log).replace(f"{stage}/", "")
    return re.sub(r"(\.ipynb):(\d+)(\d{4}):", lambda at: f"{at[1]}, cell {at[2]}, line {int(at[3])}:", plain)


def gather(root: Path) -> Path:
    """Execute the chapters that have changed, and return the folder `_build/stage` with all sources of the book.

    HTML and LaTeX are made from this one folder, because both can use what Sphinx has read. `root` is the main folder
    of the project.
    """
    stage = root / "_build" / "stage"
    lay_out(stage, execute_all(root), root)
    return stage


@alone
def build(root: Path = ROOT) -> Path:
    """Build the book of the project in the folder `root` as HTML, and return the path of its landing page."""
    finished = root / "_build" / "html"
    shutil.rmtree(finished, ignore_errors=True)
    os.replace(run_jupyter_book(gather(root), root), finished)
    return finished / "index.html"


def report(make: Callable[[], Path], failure: str) -> None:
    """Call the function `make`, which builds something, and print the path that it returns.

    If it raises a BookError, end the program with the text `failure` and the message of the error.
    """
    with ending(failure):
        print(make())


if __name__ == "__main__":
    report(build, "The book was not built.")
