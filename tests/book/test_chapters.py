"""Chapters as committed, chapters under plain papermill, and what the build does with one that fails."""

import ast
import re
import subprocess
import sys
import time

import nbformat
import pytest

from tools import build, execute
from tools.execute import ROOT, ChapterError, chapters

CHAPTERS = pytest.mark.parametrize("chapter", chapters(), ids=lambda path: path.stem)


def code_cells(chapter):
    """The chapter's code cells."""
    return [cell for cell in nbformat.read(chapter, as_version=4).cells if cell.cell_type == "code"]


def tree(cell):
    """Syntax tree of a cell without its magics."""
    return ast.parse(re.sub(r"(?m)^%.*$", "", cell.source))


def parameters(chapter):
    """The chapter's one cell of parameters."""
    (cell,) = [cell for cell in code_cells(chapter) if "parameters" in cell.metadata.get("tags", [])]
    return cell


def papermill(chapter, folder, *arguments):
    """Run papermill as a reader would, from another folder: (exit code, all that it printed)."""
    command = [sys.executable, "-m", "papermill", str(chapter), "out.ipynb", "--no-progress-bar", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@CHAPTERS
def test_committed_without_outputs(chapter):
    """What a chapter shows was computed when the book was built, never before."""
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(chapter))


@CHAPTERS
def test_runs_on_any_machine(chapter):
    """The kernel is the one that every machine has, and the title comes first."""
    notebook = nbformat.read(chapter, as_version=4)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.cells[0].source.startswith("# ")


@CHAPTERS
def test_cells_are_short_and_define_nothing(chapter):
    """A reader sees a cell at a glance; what deserves a name deserves a test, and lives in egm."""
    for cell in code_cells(chapter):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        hidden = {"parameters", "record", "remove-cell"} & set(cell.metadata.get("tags", []))
        assert len(lines) <= 15 or hidden, cell.id
        assert max(map(len, lines)) <= 88, cell.id
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        assert not any(isinstance(node, definitions) for node in ast.walk(tree(cell))), cell.id
        named = (node.value for node in ast.walk(tree(cell)) if isinstance(node, ast.Assign))
        assert not any(isinstance(value, ast.Lambda) for value in named), cell.id


@CHAPTERS
def test_one_statement_a_line(chapter):
    """Calls are not joined by commas or brackets to look like one statement; only the last may be a value to show."""
    for cell in code_cells(chapter):
        body = tree(cell).body
        blocks = [node.body for node in ast.walk(tree(cell)) if isinstance(node, (ast.For, ast.If, ast.With))]
        statements = [node for block in [body[:-1], *blocks] for node in block]
        joined = (ast.Tuple, ast.List, ast.ListComp, ast.DictComp, ast.BoolOp)
        golf = [node for node in statements if isinstance(node, ast.Expr) and isinstance(node.value, joined)]
        assert not golf, f"{cell.id}: {ast.unparse(golf[0])}"
        starts = [node.lineno for node in ast.walk(tree(cell)) if isinstance(node, ast.stmt)]
        assert len(starts) == len(set(starts)), cell.id


@CHAPTERS
def test_findings_are_recorded_out_of_sight(chapter):
    """A call that records a finding stands in a hidden cell below the check, and a page shows no other bookkeeping."""
    for cell in code_cells(chapter):
        tags = cell.metadata.get("tags", [])
        assert ("claims.record(" in cell.source) == ("record" in tags), cell.id
        assert "record" not in tags or "remove-input" in tags, cell.id
        assert "glue(" not in cell.source or "remove-cell" in tags, cell.id


@CHAPTERS
def test_parameters_are_plain_and_checked(chapter, monkeypatch):
    """The parameters cell only assigns, and the chapter checks each of the names that it assigns."""
    assignments, ranges = tree(parameters(chapter)).body, {}
    assert all(isinstance(node, ast.Assign) for node in assignments)
    (check,) = [cell for cell in code_cells(chapter) if "check_parameters(" in cell.source]
    monkeypatch.setattr("egm.study.parameters.check_parameters", lambda namespace, **given: ranges.update(given))
    exec(check.source, {})
    assert ranges.keys() == {node.targets[0].id for node in assignments}


@CHAPTERS
def test_unknown_parameter_is_refused(chapter, tmp_path):
    """Papermill would only warn, and run the chapter with its defaults."""
    failed, printed = papermill(chapter, tmp_path, "-p", "d_mx", "50")
    assert failed
    assert "unknown parameter d_mx = 50" in printed


def test_parameter_from_elsewhere(tmp_path):
    """The promise of the README, in a folder that is not the repository."""
    failed, printed = papermill(ROOT / "notebooks" / "08-empirical-evaluation.ipynb", tmp_path, "-p", "d_max", "50")
    assert not failed, printed


@pytest.mark.parametrize("value", ["many", "-1", "2.5"])
def test_bad_parameter_is_refused(value, tmp_path):
    """The message names the parameter and the value."""
    chapter = ROOT / "notebooks" / "08-empirical-evaluation.ipynb"
    failed, printed = papermill(chapter, tmp_path, "-p", "d_max", value)
    assert failed
    assert re.search(rf"ValueError: d_max must be .* got '?{value}'?", printed)


@pytest.fixture
def project(tmp_path):
    """A project with one chapter that works."""
    for folder in ("notebooks", "egm", "ledger", "_build/html"):
        (tmp_path / folder).mkdir(parents=True)
    for file in (
        "constraints.txt",
        "pyproject.toml",
        "ledger/claims.yml",
        "ledger/errata.yml",
        "CITATION.cff",
        "egm/__init__.py",
        "_build/html/index.html",
    ):
        (tmp_path / file).touch()
    write_chapter(tmp_path, "01-works", "x = 1", "print(x)")
    return tmp_path


def write_chapter(project, name, *cells):
    """Add a chapter of a few code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, project / "notebooks" / f"{name}.ipynb")


def test_failing_chapter_stops_the_build(project):
    """Chapter, cell and error are named, the others are stopped, and no book is left, not even the last one."""
    write_chapter(project, "02-fails", "x = 1", "# why\nx / 0")
    write_chapter(project, "03-is-slow", "import time\ntime.sleep(300)")
    start = time.perf_counter()
    with pytest.raises(ChapterError, match=r"02-fails\.ipynb, code cell 2: # why\nZeroDivisionError: division by zero"):
        build.build(project)
    assert time.perf_counter() - start < 60
    assert not (project / "_build" / "html").exists()
    assert {file.name[:2] for file in (project / "_build" / "executed").iterdir()} <= {"01"}


def test_unchanged_chapter_is_not_executed_again(project, capsys):
    """Until the chapter, the package, the settings or the lock change."""
    executed = execute.execute_all(project)["01-works.ipynb"]
    assert execute.execute_all(project)["01-works.ipynb"] == executed
    assert capsys.readouterr().out.splitlines()[1] == "[1/1] 01-works  unchanged"
    sources = ("egm/__init__.py", "egm/new.py", "egm/table.csv", "notebooks/01-works.ipynb")
    for file in ("constraints.txt", "pyproject.toml", *sources):
        before = execute.key(project / "notebooks" / "01-works.ipynb")
        with (project / file).open("a") as handle:
            handle.write("\n")
        assert execute.key(project / "notebooks" / "01-works.ipynb") != before


def test_executed_chapter_carries_no_trace_of_the_machine(project):
    """No path and no time, so that the same sources give the same file."""
    text = execute.execute_all(project)["01-works.ipynb"].read_text()
    assert str(project) not in text
    assert "papermill" not in text


def test_what_a_cell_prints_stays_in_one_piece(project):
    """However slowly it is printed: the kernel sends what it has at times of its own."""
    slow = "for word in 'ab':\n    print(word, flush=True)\n    time.sleep(0.5)\nprint('c', file=sys.stderr)"
    write_chapter(project, "02-is-slow", "import sys, time\n" + slow)
    (cell,) = nbformat.read(execute.execute_all(project)["02-is-slow.ipynb"], as_version=4).cells
    assert [(output.name, output.text) for output in cell.outputs] == [("stdout", "a\nb\n"), ("stderr", "c\n")]


def test_warning_of_jupyter_book_stops_the_build(project):
    """A reference to nowhere is enough, and again no book is left."""
    (project / "book").mkdir()
    (project / "book" / "index.md").write_text("# Title\n\n{ref}`nowhere`\n")
    (project / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
    (project / "_config.yml").write_text('only_build_toc_files: true\nexecute: { execute_notebooks: "off" }\n')
    with pytest.raises(build.BookError, match="nowhere"):
        build.build(project)
    assert not (project / "_build" / "html").exists()
