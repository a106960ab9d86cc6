"""Add to each chapter (notebook) a box with its provenance: commit, versions of programs, parameters and seeds.

A stored chapter may have been executed at an earlier commit, but its box names the present commit. This is correct: the
chapter is executed again if anything has changed that its output may depend on (`tools.execute`), so both commits have
the same code, settings and list of packages. The versions are those that the chapter's kernel recorded
(`tools.kernel.recorder`), and not those that are installed when the book is built, because the latter may differ. Seeds
are the parameters whose names contain "seed". The box says nothing about random numbers that a chapter draws without a
seed.

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
ALWAYS = ("egm", "numpy", "scipy", "numba", "matplotlib")
NO_REPOSITORY = "not from a repository"


@dataclass(frozen=True)
class Commit:
    """Hold the hash and the time of a git commit of the project, and whether the present files differ from it."""

    hash: str
    time: datetime
    changed: bool  # the present files differ from those of the commit

    @property
    def short(self) -> str:
        """Return the first seven characters of the commit's hash."""
        return self.hash[:7]


def git(root: Path, *arguments: str) -> str:
    """Run git in the folder `root`, and return the text that git prints; raise an error if git fails.

    The further arguments of the function, such as "log", are those of git.
    """
    return printed(root, *arguments).decode().strip()


def printed(root: Path, *arguments: str) -> bytes:
    """Do what `git` does, but return all bytes that git prints; the folder may be another user's, as in a container."""
    command = ["git", "-c", f"safe.directory={root.resolve()}", "-c", "log.showSignature=false", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, check=True).stdout


def commit(root: Path) -> Commit | None:
    """Return the last commit of the git repository with the main folder `root`.

    If `root` is not the main folder of a repository, or git is not installed, return None.
    """
    try:
        if Path(git(root, "rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None
        name, time = git(root, "log", "-1", "--format=%H %ct").split()
        return Commit(name, datetime.fromtimestamp(int(time), UTC), bool(git(root, "status", "--porcelain")))
    except (OSError, subprocess.CalledProcessError):
        return None


def imported(notebook: nbformat.NotebookNode) -> set[str]:
    """Return the set of names of the packages that the cells of `notebook` import, without the standard library."""
    plain = TransformerManager().transform_cell  # translates magics, the commands of IPython, to Python
    code = (plain(cell.source) for cell in notebook.cells if cell.cell_type == "code")
    nodes = [node for source in code for node in ast.walk(ast.parse(source))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def parameters(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Return a dictionary from name to value for the parameters of `notebook`, a chapter of the book.

    A value is a text: the expression that the cell with the tag `parameters` assigns to the name.
    """
    tagged = [cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    found = [(source, node) for source in tagged for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return {node.targets[0].id: ast.get_source_segment(source, node.value) for source, node in found}


def versions(record: dict, names: set[str]) -> str:
    """Return a text with the version of Python, and the versions of some packages that a chapter (notebook) has loaded.

    `record` is a dictionary that the chapter's kernel (the process that ran its cells) wrote. Of the packages in it,
    those in `names` and those in the list ALWAYS, such as numpy, are in the text.
    """
    shown = dict(record["packages"][name] for name in (*ALWAYS, *sorted(names)) if name in record["packages"])
    return ", ".join(f"{name} {version}" for name, version in {"Python": record["python"], **shown}.items())


def stamp(notebook: nbformat.NotebookNode, record: dict, made: Commit | None, address: str | None = None) -> str:
    """Return, in Markdown, a box with the provenance of the chapter `notebook`: commit, versions, parameters and seeds.

    The title has the commit `made` and its date, or says that there is no repository if `made` is None. `record` is a
    dictionary of the versions with which the chapter was executed. If `address`, the project's public address, is
    given, the commit is a link to its page there.
    """
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
    """Append a cell with a box about its provenance (see `stamp`) to `notebook`, a chapter of the book.

    `file` is the path of the executed chapter; a file of the same name with the ending `.run.json` has the versions
    with which it was executed. `made` is the last commit of the project, or None. `address` is the project's public
    address, or None.
    """
    record = json.loads(file.with_suffix(".run.json").read_text())
    text = stamp(notebook, record, made, address)
    notebook.cells.append(nbformat.v4.new_markdown_cell(text, id="provenance"))
