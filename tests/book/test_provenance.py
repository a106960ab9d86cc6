"""Test that the facts in the provenance box of each chapter are true: commit, versions, parameters and seeds.

The box is at the end of a chapter's page. It must be true whether the chapter is executed now or is stored from an
earlier build, and also if the project is not in a git repository.
"""

import ast
import json
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version

import nbformat
import numpy as np
import pytest

from tests.book.markup import parsed
from tests.book.test_chapters import code_cells, parameters
from tests.book.test_launch import commit_all
from tools import build, execute, provenance
from tools.dataflow import tree_of
from tools.execute import ROOT
from tools.kernel import recorder

FACTS = ["Commit", "Executed with", "Parameters", "Seeds among them"]


@pytest.fixture
def shown(book, chapter):
    """Return the provenance box at the end of a chapter's page as a dictionary from fact, such as "Commit", to text.

    The title of the box has the key None.
    """
    page = parsed((book / "notebooks" / f"{chapter.stem}.html").read_text())
    (box,) = page.select("details.provenance")
    facts = dict(re.sub(r"\s+", " ", item.get_text()).strip().split(": ", 1) for item in box.select("li"))
    return {None: box.summary.get_text(strip=True)} | facts


def test_stamp_is_the_last_of_the_page_and_folded(book, chapter):
    """The provenance box, which shows commit and versions, is the last element of a chapter's page, and is closed.

    The box is a `details` element of HTML, which a keyboard can open in every browser.
    """
    page = parsed((book / "notebooks" / f"{chapter.stem}.html").read_text())
    (box,) = page.select("article details.provenance")
    assert not box.has_attr("open")
    words = [text for text in page.article.find_all(string=True) if text.strip() and text.parent.name != "script"]
    assert box in words[-1].parents


def test_commit_and_time(shown):
    """The box that ends a chapter's page shows the last commit of the project and the time of this commit.

    The box also says whether there are uncommitted changes, or that the project is not from a git repository.
    """
    assert list(shown) == [None, *FACTS]
    if not (ROOT / ".git").exists():
        assert shown["Commit"] == provenance.NO_REPOSITORY
        return
    time = datetime.fromtimestamp(int(provenance.git(ROOT, "log", "-1", "--format=%ct")), tz=UTC)
    changed = ", with uncommitted changes" if provenance.git(ROOT, "status", "--porcelain") else ""
    commit, day = provenance.git(ROOT, "rev-parse", "HEAD")[:7], f"{time.day} {time:%B %Y}"
    assert shown["Commit"] == f"{commit} of {day}, {time:%H:%M} UTC{changed}"
    assert shown[None] == f"Provenance: commit {commit}, {day}{changed}"


def test_parameters(shown, chapter):
    """The box that ends a chapter's page shows the parameters of the chapter, with the values in its code."""
    namespace, read = {}, {}
    exec(parameters(chapter).source, {}, namespace)
    exec(re.sub(r", (?=\w+ = )", "\n", shown["Parameters"]), {}, read)
    assert read == namespace


def test_versions(shown, book, chapter):
    """The box that ends a chapter's page shows the versions of all packages that the chapter imports.

    Also shown are the versions of Python, egm, NumPy and SciPy. The versions are those that were recorded during the
    chapter's run. Packages have the names that pip uses.
    """
    (stored,) = (book.parent / "executed").glob(f"{chapter.stem}-*.run.json")
    record = json.loads(stored.read_text())
    listed = dict(item.split(" ") for item in shown["Executed with"].split(", "))
    assert listed.pop("Python") == record["python"]
    assert listed.items() <= dict(record["packages"].values()).items()
    imported = provenance.imported(nbformat.read(chapter, as_version=4))
    imported -= {"chi2comb"} - record["packages"].keys()  # some machines have no wheel of it
    names = {"egm", "numpy", "scipy", *imported}
    assert {record["packages"][name][0] for name in names} <= listed.keys()


def test_imported_packages():
    """`provenance.imported` returns all packages that the code of a notebook imports, but for the standard library.

    Imports inside a function, or in a cell with commands of IPython such as "%matplotlib inline", count, too. The word
    "import" in a text does not count.
    """
    code = [
        "%matplotlib inline\nimport math, numpy as np\nfrom scipy.stats import norm",
        "def late():\n    import sklearn.datasets\n",
        "import os.path\n!ls\nx = 'import sympy'",
    ]
    cells = [nbformat.v4.new_markdown_cell("import pandas"), *map(nbformat.v4.new_code_cell, code)]
    assert provenance.imported(nbformat.v4.new_notebook(cells=cells)) == {"numpy", "scipy", "sklearn"}


def test_seeds(shown, chapter):
    """All random generators of a chapter are made from its parameter `seed`, and the box at its end shows the seed.

    The box says "none" if the chapter makes no random generator.
    """
    nodes = [node for cell in code_cells(chapter) for node in ast.walk(tree_of(cell.source))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng")]
    assert {ast.unparse(call) for call in calls} <= {"np.random.default_rng(seed)"}
    assert shown["Seeds among them"] in (shown["Parameters"].split(", ") if calls else ["none"])


@pytest.fixture
def project(tmp_path):
    """Write a project with one chapter, which draws a random number from a seed, into `tmp_path`; return `tmp_path`."""
    for folder in ("notebooks", "book", "ledger"):
        (tmp_path / folder).mkdir()
    inputs = "_config.yml", "_toc.yml", "constraints.txt", "pyproject.toml", "CITATION.cff"
    for file in (*inputs, "ledger/claims.yml", "ledger/errata.yml"):
        (tmp_path / file).touch()
    (tmp_path / ".gitignore").write_text("_build\n")
    draw = "import numpy as np, sympy\nprint(np.random.default_rng(seed).integers(10**9))"
    code = [nbformat.v4.new_code_cell(source) for source in ("seed = 5\nn = 3", draw)]
    code[0].metadata["tags"] = ["parameters"]
    code.append(nbformat.v4.new_code_cell("print(sorted(name for name in globals() if name[0] != '_'))"))
    nbformat.write(nbformat.v4.new_notebook(cells=code), tmp_path / "notebooks" / "01-seed.ipynb")
    return tmp_path


def stamps(project):
    """Execute the chapters in `project`; return {chapter: its last cell, a box that shows commit and versions}."""
    executed = execute.execute_all(project)
    build.lay_out(project / "_build" / "stage", executed, project)
    files = sorted((project / "_build" / "stage" / "notebooks").iterdir())
    return {file.stem: nbformat.read(file, as_version=4).cells[-1].source for file in files}


def test_record_of_a_run(project):
    """While a chapter runs, the kernel records the versions of the imported packages; this does not affect the chapter.

    The variables and the random numbers of the chapter are those of a run without such recording. `project` is the
    folder of a project with one chapter.
    """
    (text,) = stamps(project).values()
    assert f"Python {platform.python_version()}, " in text
    assert re.search(rf"Executed with:.* sympy {re.escape(version('sympy'))}\n", text)
    assert "- **Parameters:** `seed = 5`, `n = 3`\n- **Seeds among them:** `seed = 5`\n" in text
    draw, names = nbformat.read(execute.execute_all(project)["01-seed.ipynb"], as_version=4).cells[1:]
    assert not {"runpy", *vars(recorder)} & set(ast.literal_eval(names.outputs[0].text))
    assert int(draw.outputs[0].text) == np.random.default_rng(5).integers(10**9)


def test_stored_chapter_has_the_present_commit(project, capsys):
    """If a chapter is not executed again after a new commit, the box that ends its page shows the new commit.

    Nothing else in the box changes.
    """
    commit_all(project)
    before = stamps(project)
    (project / "README.md").touch()
    assert {text.count("with uncommitted changes") for text in stamps(project).values()} == {2}
    commit = commit_all(project)
    capsys.readouterr()
    after = stamps(project)
    assert capsys.readouterr().out.count("unchanged") == 1
    for name, text in after.items():
        assert f"`{commit[:7]}`" in text
        of_commit = r"[0-9a-f]{7}\b|\d\d:\d\d|\d+ \w+ \d{4}"
        assert re.sub(of_commit, "", before[name]) == re.sub(of_commit, "", text)


def test_same_commit_same_bytes(project):
    """If a chapter is executed twice from the same commit, its notebook in the book has the same bytes both times."""
    commit_all(project)
    contents = []
    for _ in range(2):
        stamps(project)
        stage = project / "_build" / "stage" / "notebooks"
        contents.append({file.name: file.read_bytes() for file in stage.iterdir()})
        shutil.rmtree(project / "_build" / "executed")
    assert contents[0] == contents[1]


def test_commit_of_a_folder(tmp_path, monkeypatch):
    """`provenance.commit` returns hash and time of a repository's last commit, and whether files have changed since.

    The result is None for a folder without a repository, for a repository without a commit, and if git is missing.
    """
    inner = tmp_path / "inner"
    inner.mkdir()
    assert provenance.commit(inner) is None
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    assert provenance.commit(tmp_path) is None
    (inner / "file").touch()
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-02T03:04:05+01:00")
    made = commit_all(tmp_path)
    assert provenance.commit(inner) is None
    assert provenance.commit(tmp_path) == provenance.Commit(made, datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC), False)
    (inner / "file").write_text("x")
    assert provenance.commit(tmp_path).changed
    monkeypatch.setenv("PATH", "")
    assert provenance.commit(tmp_path) is None


def test_copy_without_a_repository(project):
    """Without a git repository, the box that ends a chapter's page says "not from a repository" instead of a commit."""
    for text in stamps(project).values():
        assert text.startswith(":::{dropdown} Provenance: not from a repository\n")
        assert "- **Commit:** not from a repository\n" in text


def test_commit_is_a_link_where_there_is_an_address():
    """If `provenance.stamp` gets the project's public address, the commit's hash in its text is a link.

    The link leads to the page of the commit on GitHub.
    """
    made = provenance.Commit("0123456789abcdef", datetime(2026, 1, 2, 3, 4, tzinfo=UTC), False)
    record = {"python": "3.11.0", "packages": {}}
    text = provenance.stamp(nbformat.v4.new_notebook(), record, made, "https://github.com/owner/repository")
    link = "[`0123456`](https://github.com/owner/repository/commit/0123456789abcdef)"
    assert f"- **Commit:** {link} of 2 January 2026, 03:04 UTC\n" in text
    assert "- **Parameters:** none\n" in text
