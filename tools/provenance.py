"""Add to each chapter a box with its provenance: the commit, versions, parameters and seeds of what the reader sees.

A stored chapter may have been executed at an earlier commit, and gets the present commit all the same. That is correct:
the chapter is executed again if anything has changed that its output may depend on (`tools.execute`), so both commits
have the same code, settings and list of packages. The versions are those that the chapter's kernel recorded
(`tools.kernel.recorder`), and not those that are installed when the book is built, because the latter may differ. Seeds
are the parameters whose names contain "seed". The box says nothing about random numbers that a chapter draws without
them.

The only time in the box is that of the commit, so two builds from one commit give the same bytes.
"""

import ast
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

# Shown whenever the chapter has loaded them, by itself or through egm: they make its numbers and figures.
ALWAYS = ("egm", "numpy", "scipy", "numba", "opendp", "matplotlib")
NO_REPOSITORY = "not from a repository"


@dataclass(frozen=True)
class Commit:
    """Commit of the project: its hash, its time, and whether the files differ from it."""

    hash: str
    time: datetime
    changed: bool

    @property
    def short(self) -> str:
        """Return the first seven characters of the hash."""
        return self.hash[:7]


def git(root: Path, *arguments: str) -> str:
    """Return what a git command prints when it is run in the folder `root`."""
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def commit(root: Path) -> Commit | None:
    """Return the commit whose files are in a folder, or None if there is none.

    There is none without git, and for a copy of the project within another repository.
    """
    try:
        if Path(git(root, "rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None
        name, time = git(root, "log", "-1", "--format=%H %ct").split()
        return Commit(name, datetime.fromtimestamp(int(time), UTC), bool(git(root, "status", "--porcelain")))
    except (OSError, subprocess.CalledProcessError):
        return None


def code(notebook: nbformat.NotebookNode) -> list[ast.Module]:
    """Return the syntax tree of each code cell, with magics translated to Python."""
    plain = TransformerManager().transform_cell
    return [ast.parse(plain(cell.source)) for cell in notebook.cells if cell.cell_type == "code"]


def imported(notebook: nbformat.NotebookNode) -> set[str]:
    """Return the names of the packages that a chapter itself imports, without those of the standard library."""
    nodes = [node for tree in code(notebook) for node in ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def parameters(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Return {name: value} for the parameters of a chapter; a value is the text that its parameter cell has for it."""
    tagged = [cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    found = [(source, node) for source in tagged for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return {node.targets[0].id: ast.get_source_segment(source, node.value) for source, node in found}


def versions(record: dict, names: set[str]) -> str:
    """Return, as text, the versions of Python and of those loaded packages that are in `names` or in `ALWAYS`."""
    shown = dict(record["packages"][name] for name in (*ALWAYS, *sorted(names)) if name in record["packages"])
    return ", ".join(f"{name} {version}" for name, version in {"Python": record["python"], **shown}.items())


def stamp(notebook: nbformat.NotebookNode, record: dict, made: Commit | None, address: str | None = None) -> str:
    """Return the box of a chapter's provenance in Markdown; it is folded, and its title has the commit and its date."""
    title, where = NO_REPOSITORY, NO_REPOSITORY
    if made:
        day = f"{made.time:%-d %B %Y}"
        title = f"commit {made.short}, {day}" + ", with uncommitted changes" * made.changed
        name = f"[`{made.short}`]({address}/commit/{made.hash})" if address else f"`{made.short}`"
        where = f"{name} of {day}, {made.time:%H:%M} UTC" + ", **with uncommitted changes**" * made.changed
    given = parameters(notebook)
    shown = [f"`{name} = {value}`" for name, value in given.items()]
    lines = {
        "Commit": where,
        "Executed with": versions(record, imported(notebook)),
        "Parameters": ", ".join(shown) or "none",
        "Seeds among them": ", ".join(one for one in shown if "seed" in one.partition(" = ")[0]) or "none",
    }
    listed = "".join(f"- **{name}:** {text}\n" for name, text in lines.items())
    return f":::{{dropdown}} Provenance: {title}\n:class-container: provenance\n\n{listed}:::"


def add_stamp(notebook: nbformat.NotebookNode, file: Path, made: Commit | None, address: str | None = None) -> None:
    """Append the box of its provenance to a chapter; versions are in the record beside `file`, the executed chapter."""
    record = json.loads(file.with_suffix(".run.json").read_text())
    text = stamp(notebook, record, made, address)
    notebook.cells.append(nbformat.v4.new_markdown_cell(text, id="provenance"))
