"""Chapters as committed, chapters under plain papermill, and what the build does with one that fails."""

import ast
import json
import re
import shutil
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
    """A cell is read on a phone; what deserves a name deserves a test, and lives in egm."""
    for cell in code_cells(chapter):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert len(lines) <= 8 or cell.id == parameters(chapter).id, lines[0]
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        assert not any(isinstance(node, definitions) for node in ast.walk(tree(cell))), lines[0]
        named = (node.value for node in ast.walk(tree(cell)) if isinstance(node, ast.Assign))
        assert not any(isinstance(value, ast.Lambda) for value in named), lines[0]


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
    for folder in ("notebooks", "ledger", "_build/html"):
        (tmp_path / folder).mkdir(parents=True)
    for file in (
        "constraints.txt",
        "pyproject.toml",
        "ledger/claims.yml",
        "ledger/errata.yml",
        "CITATION.cff",
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


@pytest.fixture
def package(project, monkeypatch):
    """A package in place of egm, of which the project's second chapter loads a part late and reads data."""
    folder = project / "package" / "egm"
    (folder / "part").mkdir(parents=True)
    for name in ("__init__", "first", "other", "part/__init__", "part/late"):
        (folder / f"{name}.py").write_text("x = 0\n")
    (folder / "part" / "table.csv").write_text("1\n")
    (folder / "first.py").write_text("def late():\n    from egm.part import late\n    return late.x\n")
    write_chapter(project, "02-uses", "from egm import first", "print(first.late())")
    monkeypatch.setattr(execute, "PACKAGE", folder)
    execute.execute_all(project)
    return folder


def executed_again(project, capsys):
    """The numbers of the chapters that ran, and then none if all is called once more."""
    lines = []
    for _ in range(2):
        capsys.readouterr()
        execute.execute_all(project)
        ran = [line for line in capsys.readouterr().out.splitlines() if not line.endswith("unchanged")]
        lines.append("".join(sorted(line.split()[1][1] for line in ran)))
    assert lines[1] == ""
    return lines[0]


@pytest.mark.parametrize(
    ("file", "again"),
    [
        ("README.md", ""),
        ("pyproject.toml", ""),
        ("package/egm/other.py", ""),
        ("package/egm/first.py", "2"),
        ("package/egm/__init__.py", "2"),
        ("package/egm/part/late.py", "2"),
        ("package/egm/part/table.csv", "12"),
        ("package/egm/new.py", "12"),
        ("package/egm/first/__init__.py", "12"),  # takes the place of first.py
        ("constraints.txt", "12"),
    ],
)
def test_chapter_is_executed_again_if_what_it_depends_on_changes(project, package, file, again, capsys):
    """That is the lock, the package's modules that it has loaded and its data, and which files the package has."""
    (project / file).parent.mkdir(exist_ok=True)
    with (project / file).open("a") as handle:
        handle.write("\ndef late():\n    return 1\n")
    assert executed_again(project, capsys) == again


def test_deleted_module_is_noticed(project, package, capsys):
    """Also one that no chapter has loaded: it may have been looked for."""
    (package / "other.py").unlink()
    assert executed_again(project, capsys) == "12"


def test_module_that_changes_during_the_run_is_read_again(project, package):
    """The stored chapter is that of the files before."""
    late = package / "part" / "late.py"
    change = f"from pathlib import Path\nPath({str(late)!r}).write_text('x = 5')\nfrom egm import first"
    write_chapter(project, "02-uses", change, "print(first.late())")
    stored = execute.execute_all(project)["02-uses.ipynb"]
    record = json.loads(stored.with_suffix(".run.json").read_text())
    assert record["files"]["part/late.py"] != execute.package_files()["part/late.py"]


def test_change_of_the_text_does_not_execute_a_chapter_again(project, package, capsys):
    """The text and the captions are today's, the outputs the stored ones, as if everything had been executed now."""
    chapter = project / "notebooks" / "02-uses.ipynb"
    notebook = nbformat.read(chapter, as_version=4)
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell("A new text.", id="text"))
    notebook.cells[0].metadata["mystnb"] = {"figure": {"caption": "New."}}
    nbformat.write(notebook, chapter)
    assert executed_again(project, capsys) == ""
    stored = execute.execute_all(project)[chapter.name]
    text = stored.read_text()
    assert "A new text." in text
    assert "New." in text
    stored.unlink()
    assert executed_again(project, capsys) == "2"
    assert stored.read_text() == text


@pytest.mark.parametrize("change", ["source", "id", "tags", "order"])
def test_change_of_the_code_executes_a_chapter_again(project, package, change, capsys):
    """So do the ids, to which findings and links refer."""
    chapter = project / "notebooks" / "02-uses.ipynb"
    notebook = nbformat.read(chapter, as_version=4)
    last = notebook.cells[-1]
    if change == "order":
        notebook.cells.insert(0, notebook.cells.pop())
        last["source"] = "1"
    elif change == "tags":
        last.metadata["tags"] = ["raises-exception"]
    else:
        last[change] += "0" if change == "id" else "; 0"
    nbformat.write(notebook, chapter)
    assert executed_again(project, capsys) == "2"


def test_chapters_start_no_process():
    """Of which the record would not know what it loads."""
    trees = [tree(cell) for chapter in chapters() for cell in code_cells(chapter)]
    trees += [ast.parse(file.read_text()) for file in (ROOT / "egm").rglob("*.py")]
    nodes = [node for each in trees for node in ast.walk(each)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    names = {name for name in names if re.match("(multiprocessing|subprocess|joblib|concurrent)", name)}
    assert names <= {"concurrent.futures.ThreadPoolExecutor"}


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


@pytest.fixture
def small_book(project):
    """The project with two pages and the least that Jupyter Book needs, built."""
    (project / "book").mkdir()
    (project / "book" / "index.md").write_text("# Title\n\n{ref}`there`\n\n```{include} part.md\n```\n")
    (project / "book" / "part.md").write_text("Old part.\n")
    (project / "book" / "other.md").write_text("(there)=\n# Other\n")
    (project / "_toc.yml").write_text("format: jb-book\nroot: book/index\nchapters: [{ file: book/other }]\n")
    (project / "_config.yml").write_text('only_build_toc_files: true\nexecute: { execute_notebooks: "off" }\n')
    build.build(project)
    return project


def read_again(project):
    """The number of pages that Sphinx has read for the last build."""
    added, changed = re.search(
        r"(\d+) added, (\d+) changed", (project / "_build" / "sphinx-html.log").read_text()
    ).groups()
    return int(added) + int(changed)


def test_only_what_changed_is_read_and_the_book_is_that_of_a_whole_build(small_book):
    """A title stands on other pages, too; what a page includes belongs to it; settings concern all."""
    for file, text, count in [
        ("other.md", "(there)=\n# Another\n", 1),
        ("part.md", "New part.\n", 1),
        ("../_config.yml", 'title: "New"\nonly_build_toc_files: true\nexecute: { execute_notebooks: "off" }\n', 2),
    ]:
        (small_book / "book" / file).write_text(text)
        build.build(small_book)
        assert read_again(small_book) == count
    built = contents(small_book / "_build" / "html")
    assert "Another" in built["book/index.html"].decode()
    shutil.rmtree(small_book / "_build" / "stage")
    build.build(small_book)
    assert contents(small_book / "_build" / "html") == built


def contents(folder):
    """{path: content} of the files in a folder."""
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_warning_stops_every_build_until_it_is_mended(small_book):
    """Wherever it comes from, and though the page that has it did not change; and no book is left, not even the last."""
    page = small_book / "book" / "index.md"
    text = page.read_text()
    for wrong, why in [("{ref}`nowhere`", "nowhere"), ("```{nothing}\n```", "Unknown directive"), ("", None)]:
        page.write_text(f"{text}\n{wrong}\n")
        for _ in range(2) if why else ():
            with pytest.raises(build.BookError, match=why):
                build.build(small_book)
            assert not (small_book / "_build" / "html").exists()
    build.build(small_book)
    (small_book / "book" / "other.md").write_text("# Other\n")  # without the label that the first page refers to
    with pytest.raises(build.BookError, match="there"):
        build.build(small_book)
