"""Test the committed chapters (notebooks), their runs by papermill, and which chapters a build executes again."""

import ast
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import nbformat
import psutil
import pytest
from matplotlib import pyplot
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

import tools.lengths
from tools import build, execute
from tools.dataflow import tree_of
from tools.execute import ROOT, ChapterError, chapters


def code_cells(chapter):
    """Return a list of the code cells of the notebook whose path is `chapter`."""
    return execute.code_cells(nbformat.read(chapter, as_version=4))


def parameters(chapter):
    """Return the code cell with the tag "parameters" from the notebook `chapter`, a path; there must be exactly one."""
    (cell,) = [cell for cell in code_cells(chapter) if "parameters" in cell.metadata.get("tags", [])]
    return cell


def papermill(chapter, folder, *arguments):
    """Run the notebook `chapter` by the program papermill; return (exit code, all that was printed).

    The texts `arguments` are added to the command line. The executed notebook is written to out.ipynb in `folder`.
    """
    command = [sys.executable, "-m", "papermill", str(chapter), "out.ipynb", "--no-progress-bar", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_committed_without_outputs(chapter):
    """A chapter is committed without outputs, so all results are computed when the book is built."""
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(chapter))


def test_runs_on_any_machine(chapter):
    """A chapter uses the kernel "python3", the usual one of Jupyter, and its first cell begins with a title."""
    notebook = nbformat.read(chapter, as_version=4)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.cells[0].source.startswith("# ")


def test_cells_are_short_and_define_nothing(chapter):
    """A code cell has at most 15 lines that are not blank, no line of more than 88 characters, and no definition.

    A definition is a function, a class or a named lambda; these belong to the package, where tests check them.
    """
    for cell in code_cells(chapter):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert len(lines) <= 15, cell.id
        assert max(map(len, lines)) <= 88, cell.id
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        assert not any(isinstance(node, definitions) for node in ast.walk(tree_of(cell.source))), cell.id
        named = (node.value for node in ast.walk(tree_of(cell.source)) if isinstance(node, ast.Assign))
        assert not any(isinstance(value, ast.Lambda) for value in named), cell.id


def test_folded_code_has_a_title(chapter):
    """Each folded code cell has a title, and no title occurs twice in a chapter except "Code of this figure".

    The book shows only the title of a folded cell until a reader opens the cell.
    """
    folded = [cell for cell in code_cells(chapter) if "hide-input" in cell.metadata.get("tags", [])]
    titles = [cell.metadata.get("mystnb", {}).get("code_prompt_show", "") for cell in folded]
    assert all(titles)
    assert [title for title, times in Counter(titles).items() if times > 1] in ([], ["Code of this figure"])


NUMBERED = tools.lengths.chapters()


@pytest.mark.parametrize("name", NUMBERED)
def test_chapter_is_read_in_one_sitting(name):
    """Prose and visible code of the chapter `name` have at most 3500 words together; appendices are not tested."""
    assert NUMBERED[name].words + NUMBERED[name].code_words <= 3500


def test_book_is_read_in_a_day():
    """The prose of all chapters together has at most 30,000 words; appendices and folded boxes are not counted."""
    assert sum(length.words for length in NUMBERED.values()) <= 30_000


def test_length_counts_what_is_seen():
    """`tools.lengths.of_markdown` counts the words and formulas of the prose that is visible without opening a box.

    Words in tables, in folded boxes, and in options of MyST directives are not counted.
    """
    text = """# One title
Three words $x$ here, and {ref}`a link <label>`.

$$ y $$

| no | table |
|---|---|

::::{admonition} Box
:class: tip
Four words stand open.
:::{dropdown} Proof
Not these.
:::
::::
"""
    assert tools.lengths.of_markdown(text) == tools.lengths.Length(words=12, displays=1, inlines=1)


def test_one_statement_a_line(chapter):
    """Each line of a code cell has at most one statement, and no statement joins several calls, as in `f(), g()`.

    Only the last statement of a cell may join calls, because the notebook shows the values of this statement.
    """
    for cell in code_cells(chapter):
        body = tree_of(cell.source).body
        blocks = [node.body for node in ast.walk(tree_of(cell.source)) if isinstance(node, (ast.For, ast.If, ast.With))]
        statements = [node for block in [body[:-1], *blocks] for node in block]
        joined = (ast.Tuple, ast.List, ast.ListComp, ast.DictComp, ast.BoolOp)
        golf = [node for node in statements if isinstance(node, ast.Expr) and isinstance(node.value, joined)]
        assert not golf, f"{cell.id}: {ast.unparse(golf[0])}"
        starts = [node.lineno for node in ast.walk(tree_of(cell.source)) if isinstance(node, ast.stmt)]
        assert len(starts) == len(set(starts)), cell.id


def test_findings_are_recorded_out_of_sight(chapter):
    """A call of `claims.record` or `glue` is in a code cell whose code the book does not show.

    `claims.record` stores whether a statement of Poulsen's report holds; its cells have the tags "record" and
    "remove-input". `glue` stores a value for the text of the book; its cells have the tag "remove-cell".
    """
    for cell in code_cells(chapter):
        tags = cell.metadata.get("tags", [])
        assert ("claims.record(" in cell.source) == ("record" in tags), cell.id
        assert "record" not in tags or "remove-input" in tags, cell.id
        assert "glue(" not in cell.source or "remove-cell" in tags, cell.id


def test_parameters_are_plain_and_checked(chapter, monkeypatch):
    """The cell with a chapter's parameters has only assignments, and the chapter checks the range of each parameter.

    Exactly one cell calls `check_parameters`, and gives a range for each assigned name, and for no other name.
    """
    assignments, ranges = tree_of(parameters(chapter).source).body, {}
    assert all(isinstance(node, ast.Assign) for node in assignments)
    (check,) = [cell for cell in code_cells(chapter) if "check_parameters(" in cell.source]
    monkeypatch.setattr("egm.study.parameters.check_parameters", lambda namespace, **given: ranges.update(given))
    exec(check.source, {})
    assert ranges.keys() == {node.targets[0].id for node in assignments}


def run(chapter, values, cells=None):
    """Execute the code cells of a chapter in this process, as papermill does if it is given the parameters `values`.

    `values` is a dictionary, which papermill assigns in a cell that it adds after the chapter's parameters. `chapter`
    is the path of the notebook. If `cells` is a number, stop after this number of cells.
    """
    notebook = parameterize_notebook(load_notebook_node(str(chapter)), values)
    sources = [cell.source for cell in execute.code_cells(notebook)][:cells]
    names = {"In": sources}
    for source in sources:
        exec(compile(tree_of(source), chapter.name, "exec"), names)
        pyplot.close("all")


def start(chapter, **values):
    """Execute a chapter up to the cell that checks its parameters, with the values `**values` in place of the defaults.

    `chapter` is the path of the notebook.
    """
    run(chapter, values, cells=3)


def test_unknown_parameter_is_refused(chapter):
    """If a chapter is executed with a parameter that it does not have, it raises a ValueError that names the parameter.

    papermill, the program that executes notebooks, would only warn, and use the defaults of the chapter's parameters.
    """
    start(chapter)
    with pytest.raises(ValueError, match="unknown parameter d_mx = 50"):
        start(chapter, d_mx=50)


def test_papermill_gives_a_chapter_its_parameters(tmp_path):
    """If papermill is given a parameter that chapter 8 does not have, the run ends with the chapter's ValueError."""
    chapter = ROOT / "notebooks" / "08-empirical-evaluation.ipynb"
    failed, printed = papermill(chapter, tmp_path, "-p", "d_mx", "50")
    assert failed
    assert "unknown parameter d_mx = 50" in printed


def test_parameter_from_elsewhere(tmp_path):
    """papermill can run chapter 8 with a changed parameter in an empty folder, as the README promises."""
    failed, printed = papermill(
        ROOT / "notebooks" / "08-empirical-evaluation.ipynb", tmp_path, "-p", "d_max", "50", "-p", "points", "21"
    )
    assert not failed, printed


@pytest.mark.parametrize(
    ("number", "values"),
    [
        ("01", {"coins": 16}),
        ("03", {"epsilon": 100.0, "delta": 0.999, "repetitions": 1000}),
        ("04", {"alpha": 4.0, "n": 10, "repetitions": 100}),
        ("04", {"epsilon": 1e-6, "delta": 1e-300, "n": 10, "repetitions": 100}),
        ("06", {"d": 10}),
        ("08", {"d_max": 2000, "points": 21}),
        ("10", {"n": 100, "alpha": 0.0, "d_search": 20, "d_max": 10, "repetitions": 100}),
        ("12", {"epsilon": 100.0, "runs": 2, "runs_patches": 2, "patch_rows": 2000, "patch_side": 8, "law_rows": 500}),
        ("16", {"n": 100, "n_pairs": 100, "epsilon": 0.1, "epsilon_pairs": 1.0, "repetitions": 100}),
        ("17", {"more": [200], "draws": 2, "releases": 5, "rival_runs": 2, "rows_learned": 5000, "learned_runs": 3}),
        ("18", {"n": 10**4, "n_groups": 2, "columns": 50, "epsilon": 0.1, "releases": 50, "repetitions": 50}),
    ],
)
@pytest.mark.filterwarnings("ignore::egm.study.parameters.SentenceWarning", "ignore:delta = ")
def test_chapter_runs_to_its_end_with_other_parameters(monkeypatch, number, values):
    """The chapter whose file name begins with `number` runs to its end with the allowed parameters `values`.

    All numbers that the chapter computes for its text are finite. The chapter may warn that one of its sentences is not
    true with these parameters.
    """
    glued = {}
    monkeypatch.setattr("myst_nb.glue", lambda name, value, display: glued.update({name: value}))
    (chapter,) = (ROOT / "notebooks").glob(f"{number}-*.ipynb")
    run(chapter, values)
    assert glued
    assert not [name for name, value in glued.items() if isinstance(value, float) and not math.isfinite(value)]


@pytest.mark.parametrize("value", ["many", -1, 2.5])
def test_bad_parameter_is_refused(value):
    """If a parameter gets the wrong value `value`, the error message of the chapter names the parameter and the value.

    The test takes the parameter `d_max` of chapter 8.
    """
    with pytest.raises(ValueError, match=rf"d_max must be .* got '?{value}'?"):
        start(ROOT / "notebooks" / "08-empirical-evaluation.ipynb", d_max=value)


@pytest.fixture
def project(tmp_path):
    """Write a small project, whose only chapter runs without an error, into a new folder, and return the folder."""
    return make_project(tmp_path)


def make_project(folder):
    """Write a small project, whose only chapter runs without an error, into `folder`, and return `folder`."""
    for name in ("notebooks", "ledger", "_build/html"):
        (folder / name).mkdir(parents=True)
    inputs = "constraints.txt", "pyproject.toml", "ledger/claims.yml", "ledger/errata.yml", "CITATION.cff"
    for file in (*inputs, "_build/html/index.html"):
        (folder / file).touch()
    write_chapter(folder, "01-works", "x = 1", "print(x)")
    return folder


def write_chapter(project, name, *cells):
    """Write a chapter whose code cells have the texts `cells` to notebooks/`name`.ipynb in the folder `project`."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, project / "notebooks" / f"{name}.ipynb")


def test_failing_chapter_stops_the_build(project):
    """If a chapter fails, the build ends with an error that names the chapter, its failed cell and the reason.

    Chapters that are still running are stopped, so that the build ends soon. The HTML of an earlier build is removed,
    and the failed chapter is not stored.
    """
    write_chapter(project, "02-fails", "x = 1", "# why\nx / 0")
    write_chapter(project, "03-is-slow", "import time\ntime.sleep(3600)")
    start = time.perf_counter()
    with pytest.raises(ChapterError, match=r"02-fails\.ipynb, code cell 2: # why\nZeroDivisionError: division by zero"):
        build.build(project)
    assert time.perf_counter() - start < 600
    assert not (project / "_build" / "html").exists()
    assert {file.name[:2] for file in (project / "_build" / "executed").iterdir()} <= {"01"}


def test_sentence_that_does_not_hold_stops_the_build_but_no_reader(project, tmp_path):
    """If `check_sentence` finds a sentence of a chapter false, a build of the book fails with an error that quotes it.

    papermill, with which readers run a chapter, only warns, and runs the chapter to its end. So a reader may choose
    parameters with which the sentence is not true.
    """
    check = 'from egm.study.parameters import check_sentence\ncheck_sentence("x is 2", x == 2)'
    write_chapter(project, "02-says", "x = 1", check)
    with pytest.raises(ChapterError, match=r"SentenceWarning: with these parameters it is not true that x is 2"):
        execute.execute_all(project)
    failed, printed = papermill(project / "notebooks" / "02-says.ipynb", tmp_path, "-k", "python3")
    assert not failed, printed


@pytest.fixture(scope="module")
def executed_project(tmp_path_factory):
    """Return the folder of a project of two executed chapters, with a small package in place of egm.

    The second chapter calls a function of the package that imports the module `late` only when the function runs.
    """
    project = make_project(tmp_path_factory.mktemp("executed"))
    folder = project / "package" / "egm"
    (folder / "part").mkdir(parents=True)
    for name in ("__init__", "first", "other", "part/__init__", "part/late"):
        (folder / f"{name}.py").write_text("x = 0\n")
    (folder / "part" / "table.csv").write_text("1\n")
    (folder / "first.py").write_text("def late():\n    from egm.part import late\n    return late.x\n")
    write_chapter(project, "02-uses", "from egm import first", "print(first.late())")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "PACKAGE", folder)
        execute.execute_all(project)
    return project


@pytest.fixture
def uses(executed_project, tmp_path, monkeypatch):
    """Copy the project in the folder `executed_project`, so that a test may change the copy, and return the new folder.

    The project has two executed chapters. During a test, `tools.execute`, which decides what is executed again, uses
    the small package in the copy in place of egm.
    """
    monkeypatch.setattr(execute, "PACKAGE", tmp_path / "copy" / "package" / "egm")
    return shutil.copytree(executed_project, tmp_path / "copy")


def executed_again(project):
    """Return the numbers of the chapters that a build of `project` would execute, as a string: "12" for 1 and 2."""
    again = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "papermill", lambda *_: 1 / 0)
        for chapter in chapters(project):
            try:
                execute.execute(chapter, project / "_build" / "executed", Event())
            except ZeroDivisionError:
                again += chapter.stem[1]
    return again


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
        ("package/egm/first/__init__.py", "12"),  # replaces first.py as the module
        ("constraints.txt", "12"),
    ],
)
def test_chapter_is_executed_again_if_what_it_depends_on_changes(uses, file, again):
    """After a change of `file`, a build executes again those chapters whose numbers are in the string `again`.

    If `file` is a module of the package, a build executes the chapters that load the module. If `file` is
    constraints.txt, a data file or a new file of the package, a build executes all chapters. `uses` is the folder of a
    project with two executed chapters, and `file` is a path in it.
    """
    assert executed_again(uses) == ""
    (uses / file).parent.mkdir(exist_ok=True)
    with (uses / file).open("a") as handle:
        handle.write("\n")
    assert executed_again(uses) == again


def test_module_that_changes_during_the_run_is_loaded_again(uses):
    """If a module of the package changes while a chapter runs, the next build executes the chapter again.

    The reason is that the stored result may have been computed with the old module. `uses` is the folder of a project
    with executed chapters.
    """
    late = uses / "package" / "egm" / "part" / "late.py"
    change = f"from pathlib import Path\nPath({str(late)!r}).write_text('x = 5')\nfrom egm import first"
    write_chapter(uses, "02-uses", change, "print(first.late())")
    execute.execute_all(uses)
    assert executed_again(uses) == "2"


def test_what_is_gone_is_noticed(uses):
    """A build executes a chapter again if the record of the chapter's last run, a file *.run.json, is deleted.

    If a module of the package is deleted, a build executes all chapters again. `uses` is the folder of a project with
    two executed chapters.
    """
    (record,) = (uses / "_build" / "executed").glob("02-*.run.json")
    record.unlink()
    assert executed_again(uses) == "2"
    (uses / "package" / "egm" / "other.py").unlink()
    assert executed_again(uses) == "12"


def test_chapter_is_executed_again_with_other_versions_of_packages(uses):
    """If a package that a chapter loaded has another version now, or is gone, a build executes the chapter again.

    `uses` is the folder of a project with two executed chapters; both have loaded IPython.
    """
    (record,) = (uses / "_build" / "executed").glob("02-*.run.json")
    for old, new in (('"ipython",\n   "', '"ipython",\n   "0.'), ('"ipython"', '"no-package-of-this-name"')):
        text = record.read_text()
        assert old in text
        record.write_text(text.replace(old, new))
        assert executed_again(uses) == "2"
        record.write_text(text)
    assert executed_again(uses) == ""


def test_module_that_is_not_compiled_is_among_the_loaded_ones():
    """If functions of a module run without being compiled, its file is among those of `sys.modules`.

    A build looks there for the modules on which a chapter depends.
    """
    found = "sorted(m.__file__ for n, m in sys.modules.items() if n.startswith('egm._gx2.kernel'))"
    code = f"import sys\nfrom egm._compiled import interpreted\ninterpreted('egm._gx2.kernel')\nprint({found})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "kernel.py" in done.stdout


def test_chapter_that_is_saved_while_it_runs_is_executed_as_it_was(project, monkeypatch):
    """If a chapter is saved with other code after a build has read it, this build executes the code that it has read.

    The next build executes the new code. `project` is the folder of a project with one chapter.
    """
    run = execute.papermill

    def save_and_run(*arguments):
        write_chapter(project, "01-works", "x = 7", "print(x)")
        run(*arguments)

    monkeypatch.setattr(execute, "papermill", save_and_run)
    for expected in ("1\n", "7\n"):
        notebook = nbformat.read(execute.execute_all(project)["01-works.ipynb"], as_version=4)
        assert notebook.cells[1].outputs[0].text == expected


def test_assertions_of_chapters_are_never_switched_off(project, monkeypatch):
    """`execute.execute_all` raises a ChapterError if a chapter's assertion fails, also under PYTHONOPTIMIZE=1."""
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    write_chapter(project, "01-works", "assert 1 == 2")
    with pytest.raises(ChapterError, match="AssertionError"):
        execute.execute_all(project)


def test_result_of_a_chapter_with_a_longer_name_is_kept(project, monkeypatch):
    """If the chapter 01-works is executed, the stored result of another chapter, 01-works-Copy1, is kept."""
    other = project / "_build" / "executed" / f"01-works-Copy1-{24 * '0'}.ipynb"
    other.parent.mkdir()
    other.touch()
    execute.execute_all(project)
    assert other.exists()


@pytest.mark.parametrize(("field", "message"), [("id", "records it, no entry"), ("cell", "records nothing")])
def test_result_without_an_entry_stops_the_build(project, field, message):
    """If a recorded result has no entry in the ledger, or an entry no result, a build says so, in a BookError.

    `project` is the folder of a project with one chapter. `field` says what is missing: the entry with an "id", or the
    result of the entry's "cell".
    """
    if field == "id":
        write_chapter(project, "01-works", "from egm.study import claims\nclaims.record('lemma-9-9', printed=1 == 1)")
    else:
        texts = dict.fromkeys(("id", "place", "source", "section", "claim"), "lemma-9-9")
        entry = texts | {"kind": "exact", "result": "holds", "cell": "01-works#check"}
        (project / "ledger" / "claims.yml").write_text(f"[{json.dumps(entry)}]")
    with pytest.raises(build.BookError, match=message):
        build.build(project)


ENTRY = dict.fromkeys(("id", "place", "source", "section", "claim"), "x") | {"kind": "cited", "result": "cited"}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("notebooks/02-x.ipynb", '{"cells": [}', r"is not a valid notebook: Expecting value: line 1 column 12"),
        ("notebooks/02-x.ipynb", "[]", "is not a valid notebook"),
        ("notebooks/02-x.ipynb", '{"nbformat": 4, "nbformat_minor": 4, "cells": null}', "is not a valid notebook"),
        ("notebooks/02-x.ipynb", '{"nbformat": 4.0, "nbformat_minor": 4, "cells": []}', "is not a valid notebook"),
        (
            "notebooks/02-x.ipynb",
            '{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [{"cell_type": "code", "metadata": {}}]}',
            "is not a valid notebook: 'source' is a required property",
        ),
        ("ledger/claims.yml", "- id: [a\n  b: c", "is not valid YAML: .* line 2"),
        ("ledger/claims.yml", "a text", "entry 1 with id None: it has no fields"),
        ("ledger/claims.yml", json.dumps([ENTRY, ENTRY | {"clam": "y"}]), "entry 2 with id x: there is no field clam"),
        ("ledger/claims.yml", json.dumps([ENTRY | {"also": "y"}]), "entry 1 with id x: the field also must be a list"),
        ("ledger/errata.yml", '[{"id": "y"}]', "entry 1 with id y: the field place is missing"),
    ],
)
def test_file_that_cannot_be_read_is_named_by_the_build(project, file, text, message):
    """If `file` of a project has the content `text`, a build says in one line that it cannot be read, and why."""
    (project / "notebooks" / "01-works.ipynb").unlink()
    (project / file).write_text(text)
    with pytest.raises(SystemExit, match=rf"\A\nNo book\.\n{re.escape(file)}.*{message}.*\Z"):
        build.report(lambda: build.build(project), "No book.")


def test_project_in_a_folder_whose_name_is_a_pattern_is_refused(tmp_path):
    """If the path of a project has a bracket, a build says that the project must be moved.

    IPython and sphinx-external-toc would look for files by the path as a pattern, and find none.
    """
    with pytest.raises(build.BookError, match=r"Move the project: .* in .*a\[1\] as a pattern"):
        build.build(make_project(tmp_path / "a[1]"))


def test_chapters_end_with_a_build_that_is_ended(project):
    """If the system ends a build by SIGTERM, the processes that run the chapters end, too."""
    note = "import os, time\nfrom pathlib import Path\nPath('kernel').write_text(str(os.getpid()))\ntime.sleep(120)"
    write_chapter(project, "01-works", note)
    run = "import sys\nfrom pathlib import Path\nfrom tools import build\n"
    run += "build.report(lambda: build.build(Path(sys.argv[1])), 'No book.')"
    written = project / "notebooks" / "kernel"
    with subprocess.Popen([sys.executable, "-c", run, project], cwd=ROOT) as process:
        while not (written.exists() and written.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        started = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    assert int(written.read_text()) in {each.pid for each in started}
    assert psutil.wait_procs(started, timeout=60)[1] == []


def test_builds_wait_for_each_other(project):
    """Of two builds of the project in the folder `project`, the second begins only when the first has ended."""
    running, most = [], []

    @build.alone
    def make(root):
        running.append(root)
        most.append(len(running))
        time.sleep(0.2)
        running.remove(root)
        return root

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(make, [project] * 3)) == [project] * 3
    assert most == [1, 1, 1]


def test_change_of_the_text_executes_no_chapter_again(uses):
    """If only text or captions of a chapter change, a build copies the stored outputs instead of executing the chapter.

    The notebook with these outputs is equal to the one that a new execution would make. `uses` is the folder of a
    project with executed chapters.
    """
    chapter = uses / "notebooks" / "02-uses.ipynb"
    notebook = nbformat.read(chapter, as_version=4)
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell("A new text.", id="text"))
    notebook.cells[0].metadata["mystnb"] = {"figure": {"caption": "A new caption."}}
    nbformat.write(notebook, chapter)
    assert executed_again(uses) == ""
    stored = execute.execute_all(uses)[chapter.name]
    text = stored.read_text()
    assert all(new in text for new in ("A new text.", "A new caption."))
    stored.unlink()
    assert executed_again(uses) == "2"
    assert execute.execute_all(uses)[chapter.name].read_text() == text


@pytest.mark.parametrize("change", ["source", "id", "tags"])
def test_change_of_the_code_executes_the_chapter_again(uses, change):
    """If the source, the tags or the id of a code cell change, a build executes the chapter again.

    Tags and ids matter because recorded results and links refer to them. `change` is what is changed: "source", "id" or
    "tags". `uses` is the folder of a project with executed chapters.
    """
    chapter = uses / "notebooks" / "02-uses.ipynb"
    notebook = nbformat.read(chapter, as_version=4)
    if change == "tags":
        notebook.cells[-1].metadata["tags"] = ["new"]
    else:
        notebook.cells[-1][change] = "new"
    nbformat.write(notebook, chapter)
    assert executed_again(uses) == "2"


def test_chapters_start_no_process():
    """Neither the chapters nor the package import a module that starts processes, such as multiprocessing.

    A build executes a chapter again if a module that it loads has changed, but would not notice modules that are loaded
    in another process. `ThreadPoolExecutor` starts only threads, and `Future` holds the result of one.
    """
    trees = [tree_of(cell.source) for chapter in chapters() for cell in code_cells(chapter)]
    trees += [ast.parse(file.read_text()) for file in (ROOT / "egm").rglob("*.py")]
    nodes = [node for each in trees for node in ast.walk(each)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {f"{node.module}.{each.name}" for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names}
    risky = {name for name in names if re.match("multiprocessing|subprocess|joblib|concurrent", name)}
    assert risky <= {"concurrent.futures.ThreadPoolExecutor", "concurrent.futures.Future"}


def test_executed_chapter_carries_no_trace_of_the_machine(project):
    """An executed chapter contains no path of the project and no metadata of papermill."""
    text = execute.execute_all(project)["01-works.ipynb"].read_text()
    assert str(project) not in text
    assert "papermill" not in text


def test_what_a_cell_prints_stays_in_one_piece(project):
    """What a cell prints slowly to stdout or stderr is stored as one output, not in the parts that the kernel sends."""
    slow = "for word in 'ab':\n    print(word, flush=True)\n    time.sleep(0.5)\nprint('c', file=sys.stderr)"
    write_chapter(project, "02-is-slow", "import sys, time\n" + slow)
    (cell,) = nbformat.read(execute.execute_all(project)["02-is-slow.ipynb"], as_version=4).cells
    assert [(output.name, output.text) for output in cell.outputs] == [("stdout", "a\nb\n"), ("stderr", "c\n")]


def test_silent_chapter_is_started_again(project, monkeypatch):
    """If a chapter computes nothing for some time, here five seconds, a build stops the chapter, and starts it again.

    After some starts of the chapter, here two, the build fails with a ChapterError. Of two chapters, "waits" computes
    nothing in its first start only, and "silent" in each start; the second time it first waits, without a pause, until
    "waits" is stored, because the error stops all chapters. `project` is the folder of a small project.
    """
    monkeypatch.setattr(execute, "SILENT", 5.0)  # a kernel that starts may wait for the disk for a second or two
    monkeypatch.setattr(execute, "STARTS", 2)
    start = "import time\nwith open('{}', 'a') as starts:\n    first = starts.tell() == 0\n    starts.write('.')\n"
    write_chapter(project, "03-waits", start.format("waits") + "time.sleep(3600 * first)")
    other = "not glob.glob('../_build/executed/03-waits-*.ipynb') and time.process_time() < 300"
    silent = f"import glob\nwhile not first and {other}:\n    pass\ntime.sleep(3600)"
    write_chapter(project, "04-silent", start.format("silent") + silent)
    with pytest.raises(ChapterError, match=r"04-silent\.ipynb computed nothing for 5 s, in each of 2 starts"):
        execute.execute_all(project)
    assert [(project / "notebooks" / name).read_text() for name in ("waits", "silent")] == ["..", ".."]
    assert len(list((project / "_build" / "executed").glob("03-waits-*.ipynb"))) == 1


def test_process_that_computes_is_not_silent(monkeypatch):
    """`execute.wait`, which ends idle processes, does not end a process that computes for long and writes nothing."""
    monkeypatch.setattr(execute, "SILENT", 1.0)
    busy = "import time\nprint('begun', flush=True)\nend = time.monotonic() + 4\n"
    busy += "while time.monotonic() < end:\n    pass\n"
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"  # a process that starts may wait for the disk
        assert execute.wait(process, Event())
    assert process.returncode == 0


@pytest.fixture
def small_book(project):
    """Build a book of two pages in the folder `project`, with only the settings that it needs; return the folder."""
    (project / "book").mkdir()
    (project / "book" / "index.md").write_text("# Title\n\n{ref}`there`\n\n```{include} part.md\n```\n")
    (project / "book" / "part.md").write_text("Old part.\n")
    (project / "book" / "other.md").write_text("(there)=\n# Other\n")
    (project / "_toc.yml").write_text("format: jb-book\nroot: book/index\nchapters: [{ file: book/other }]\n")
    (project / "_config.yml").write_text('only_build_toc_files: true\nexecute: { execute_notebooks: "off" }\n')
    build.build(project)
    return project


def read_again(project):
    """Return the number of source files that Sphinx read in the last build of the book in the folder `project`."""
    log = (project / "_build" / "sphinx-html.log").read_text()
    return sum(map(int, re.search(r"(\d+) added, (\d+) changed", log).groups()))


def test_only_what_changed_is_read_and_the_book_is_that_of_a_whole_build(small_book):
    """After a change of a file, a build reads only the pages that depend on the file.

    All pages depend on the settings (_config.yml). The HTML has the same bytes as that of a complete build.
    `small_book` is the folder of a book of two pages.
    """
    for file, text, count in [
        ("other.md", "(there)=\n# Another\n", 1),
        ("part.md", "New part.\n", 1),
        ("../_config.yml", 'title: "New"\nonly_build_toc_files: true\nexecute: { execute_notebooks: "off" }\n', 2),
    ]:
        (small_book / "book" / file).write_text(text)
        build.build(small_book)
        assert read_again(small_book) == count
    assert "Another" in (small_book / "_build" / "html" / "book" / "index.html").read_text()
    other = small_book / "book" / "other.md"
    other.write_text("(there)=\n# An earlier one\n")
    os.utime(other, (10**9, 10**9))  # as if a copy with its time had come back
    build.build(small_book)
    built = contents(small_book / "_build" / "html")
    assert "An earlier one" in built["book/index.html"].decode()
    shutil.rmtree(small_book / "_build" / "stage")
    build.build(small_book)
    assert contents(small_book / "_build" / "html") == built


def contents(folder):
    """Return the content of each file in `folder` as bytes, in a dictionary from the path relative to `folder`."""
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_warning_stops_every_build_until_it_is_mended(small_book):
    """If Sphinx warns of a page, this build and all later builds fail until the cause of the warning is removed.

    This holds even if the page has not changed since, or if the cause is a label that was deleted on another page. A
    build that fails removes the HTML of earlier builds. `small_book` is the folder of a book of two pages.
    """
    page = small_book / "book" / "index.md"
    text = page.read_text()
    page.write_text(text + "\n{ref}`nowhere`\n\n```{nothing}\n```\n")
    for _ in range(2):
        with pytest.raises(build.BookError, match=r"(?s)Unknown directive.*nowhere"):
            build.build(small_book)
        assert not (small_book / "_build" / "html").exists()
    page.write_text(text)
    build.build(small_book)
    (small_book / "book" / "other.md").write_text("# Other\n")  # the first page refers to the label that is missing now
    with pytest.raises(build.BookError, match="there"):
        build.build(small_book)
