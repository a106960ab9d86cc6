"""Typeset the book, or one page of it as an article, as PDF: Sphinx writes LaTeX, and XeLaTeX typesets it.

    python -m tools.pdf          the book without the reference, `_build/egm.pdf`
    python -m tools.pdf paper    the page "The paper" as an article, `_build/paper.pdf`

The sources are those from which `tools.build` makes the HTML pages, in the same folder, so that Sphinx does not read
them again. The finished file is removed before a build starts and appears only when the build has ended without a
warning of Sphinx or of LaTeX, so what is there is always complete and current.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tools import provenance
from tools.build import BookError, alone, environment, gather, report, run_jupyter_book
from tools.execute import ROOT, tail

PROGRAMS = ("xelatex", "latexmk")
PACKAGES = Path(__file__).with_name("pdf-packages.txt").read_text().replace("\n", " ").strip()
LATEXMK = ["latexmk", "-xelatex", "-interaction=nonstopmode", "-halt-on-error", "-norc", "-quiet"]
COMPLAINT = re.compile(r"^(?:! |(?:LaTeX|Package|Class) .*(?:Warning|Error)|Missing character|Overfull|.*xdvipdfmx:).*")
# In points: a third of a millimeter over the margin, and half a line below a page, whose ends differ by more anyway.
TOLERANCE = {"wide": 1.0, "high": 6.0}


def version(root: Path = ROOT) -> str:
    """Return a text with the version and the last commit of the project, and a note if files differ from this commit.

    `root` is the main folder of the project. If there is no commit, the text has only the version.
    """
    number = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    made = provenance.commit(root)
    return f"{number}, commit {made.short}{', with uncommitted changes' * made.changed}" if made else number


def require_tex(*more: str) -> None:
    """Raise a BookError that says what to install, if XeLaTeX or another program that makes the PDF is missing.

    The programs are XeLaTeX, latexmk, and those with whose names the function is called.
    """
    if missing := [name for name in (*PROGRAMS, *more) if not shutil.which(name)]:
        raise BookError(f"{' and '.join(missing)} not found. On Debian and Ubuntu: apt-get install {PACKAGES}")


def complaints(log: str) -> list[str]:
    """Return a list of the lines with warnings and errors in `log`, the text of a log of LaTeX.

    Lines about boxes of text that are only slightly too large for the page (see `is_small`) are left out.
    """
    return [line for line in log.splitlines() if COMPLAINT.match(line) and not is_small(line)]


def is_small(line: str) -> bool:
    """Return True if `line`, a line of a LaTeX log, is about a box of text that is only slightly too wide or too high.

    Slightly means less than 1 pt too wide, or less than 6 pt too high.
    """
    size = re.match(r"Overfull .*\(([\d.]+)pt too (wide|high)", line)
    return size is not None and float(size[1]) < TOLERANCE[size[2]]


def typeset(folder: Path, root: Path) -> Path:
    """Typeset the LaTeX sources in `folder` by XeLaTeX, and return the path of the PDF.

    Any error or warning of LaTeX raises a BookError, unless it is about a box that is slightly too large. The log is
    `_build/latex.log` in `root`, the main folder of the project.
    """
    fixed = {"FORCE_SOURCE_DATE": "1", "TZ": "UTC", "max_print_line": "10000"}  # the last: one message, one line
    command = [*LATEXMK, "egm.tex"]
    done = subprocess.run(
        command, cwd=folder, env=environment(root) | fixed, capture_output=True, text=True, check=False
    )
    log = folder / "egm.log"
    text = (log.read_text(errors="replace") if log.exists() else "") + done.stdout + done.stderr
    (root / "_build" / "latex.log").write_text(text)
    wrong = complaints(text)
    if done.returncode or wrong:
        hint = f"\nIf a file or a font is missing: apt-get install {PACKAGES}" if "not found" in text else ""
        raise BookError("\n".join(wrong[:20] or [tail(text)]) + hint)
    return folder / "egm.pdf"


@alone
def build(root: Path = ROOT, name: str = "egm") -> Path:
    """Build the book (`name` is "egm") or the article (`name` is "paper") as PDF, and return its path.

    The LaTeX sources and LaTeX's own files stay in the folder `_build/latex-<name>`.
    """
    finished, latex = root / "_build" / f"{name}.pdf", root / "_build" / f"latex-{name}"
    finished.unlink(missing_ok=True)
    require_tex()
    stage = gather(root)
    shutil.rmtree(latex, ignore_errors=True)
    os.replace(run_jupyter_book(stage, root, "latex", BOOK_RELEASE=version(root), BOOK_DOCUMENT=name), latex)
    os.replace(typeset(latex, root), finished)
    return finished


def paper(root: Path = ROOT) -> Path:
    """Build the page "The paper" as an article in PDF, and return the path of the PDF."""
    return build(root, "paper")


if __name__ == "__main__":
    report(paper if sys.argv[1:] == ["paper"] else build, "The PDF was not built.")
