"""Buttons that open a chapter elsewhere: where they lead, and that there are none without an address.

The address here is invented, and only the tests know it.
"""

import ast
import os
import re
import subprocess
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement

from egm import _distribution
from tools import build, provenance
from tools.execute import ROOT, chapters
from tools.sphinx import launch

ADDRESS = "https://github.com/owner/repository"
WORKFLOW = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "owner/repository"}
RECORD = '{"python": "3.11.0", "packages": {}, "seeds": [], "unseeded": []}'
CHAPTERS = pytest.mark.parametrize("chapter", chapters(), ids=lambda path: path.stem)
MADE = provenance.Commit("0123456789abcdef0123456789abcdef01234567", None, False)


def write_project(root, urls=""):
    """A project whose pyproject.toml has the given lines and nothing else."""
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text(f'[project]\nname = "p"\nversion = "1"\n{urls}\n')
    return root


def commit_all(root):
    """Make a folder a repository with one commit, and return its hash."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for command in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return provenance.git(root, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("urls", "environ", "address"),
    [
        ("", {}, None),
        ("", WORKFLOW, ADDRESS),
        ("", {"GITHUB_SERVER_URL": "https://github.com"}, None),
        (f'[project.urls]\nRepository = "{ADDRESS}"', {}, ADDRESS),
        (f'[project.urls]\nRepository = "{ADDRESS}.git"', {}, ADDRESS),
        (f'[project.urls]\nRepository = "{ADDRESS}/"', {}, ADDRESS),
        (f'[project.urls]\nRepository = "{ADDRESS}"', {**WORKFLOW, "GITHUB_REPOSITORY": "a/fork"}, ADDRESS),
        ('[project.urls]\nHomepage = "https://example.org/book"', WORKFLOW, ADDRESS),
        ('[project.urls]\nRepository = "https://example.org/owner/repository"', WORKFLOW, None),
    ],
)
def test_address(tmp_path, urls, environ, address):
    """That of pyproject.toml, then that of the workflow, else none; what is not on GitHub has no buttons."""
    assert launch.repository(write_project(tmp_path, urls), environ) == address


def small_book(root, environ):
    """A book of the project's chapters, emptied, with its real settings, built as it always is: (folder, commit)."""
    write_project(root)
    build.copy(ROOT / "_config.yml", root / "_config.yml")
    for name in ("_static", "references.bib"):
        build.copy(ROOT / "book" / name, root / "book" / name)
    (root / "book" / "index.md").write_text("# Title\n")
    (root / ".gitignore").write_text("_build\n")
    (root / "ledger").mkdir()
    for name in ("ledger/claims.yml", "ledger/errata.yml", "CITATION.cff"):
        (root / name).touch()
    toc = {"format": "jb-book", "root": "book/index", "chapters": []}
    executed, store = {}, root / "_build"
    store.mkdir()
    for chapter in chapters():
        cells = [nbformat.v4.new_markdown_cell(f"# {chapter.stem}"), nbformat.v4.new_code_cell("1", execution_count=1)]
        metadata = nbformat.read(chapter, as_version=4).metadata
        executed[chapter.name] = store / chapter.name
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), executed[chapter.name])
        executed[chapter.name].with_suffix(".json").write_text("[]")
        executed[chapter.name].with_suffix(".run.json").write_text(RECORD)
        toc["chapters"].append({"file": f"notebooks/{chapter.stem}"})
    (root / "_toc.yml").write_text(yaml.safe_dump(toc))
    made = commit_all(root)
    with pytest.MonkeyPatch.context() as patch:
        for name in WORKFLOW:
            patch.delenv(name, raising=False)
        for name, value in environ.items():
            patch.setenv(name, value)
        build.lay_out(store / "stage", executed, root)
    return build.run_jupyter_book(store / "stage", root), made


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    """The small book as a workflow would build it."""
    return small_book(tmp_path_factory.mktemp("linked"), WORKFLOW)


@pytest.fixture(scope="module")
def unlinked(tmp_path_factory):
    """The small book of a project without an address."""
    return small_book(tmp_path_factory.mktemp("unlinked"), {})


def buttons(book, page):
    """{words on the button: link} of the buttons in the header of a page."""
    header = BeautifulSoup((book / f"{page}.html").read_text(), "html.parser").select_one(".article-header-buttons")
    return {link.get_text(strip=True): link["href"] for link in header.select("a[href]")}


@CHAPTERS
def test_links_of_every_chapter(linked, chapter):
    """Binder and Colab open this chapter at the commit of the page; the form for errata knows both."""
    book, made = linked
    found = buttons(book, f"notebooks/{chapter.stem}")
    assert found["Repository"] == ADDRESS
    path = f"notebooks/{chapter.name}"
    assert found["Binder"] == f"https://mybinder.org/v2/gh/owner/repository/{made}?urlpath=lab/tree/{path}"
    colab = f"https://colab.research.google.com/github/owner/repository/blob/colab/{made}/{chapter.name}"
    assert found["Colab"] == colab
    form = urlsplit(found["Report an error"])
    assert form.geturl().startswith(f"{ADDRESS}/issues/new?template=erratum.yml&")
    assert parse_qs(form.query)["place"] == [f"notebooks/{chapter.stem}"]
    assert parse_qs(form.query)["version"] == [f"commit {made[:7]}"]


def test_form_for_errata_has_the_fields_of_the_link():
    """GitHub fills a field in by its id, and drops what it does not know."""
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "erratum.yml").read_text())
    fields = {field.get("id"): field["attributes"] for field in form["body"]}
    filled = parse_qs(urlsplit(launch.report(ADDRESS, MADE.hash, "book/index")).query)
    assert filled.pop("template") == ["erratum.yml"]
    assert filled.keys() <= fields.keys()
    assert filled["source"][0] in fields["source"]["options"]


def test_pages_that_are_no_chapter(linked):
    """They have nothing to launch, but an error on them can be reported."""
    assert {"Repository", "Report an error", ".md"} == buttons(linked[0], "book/index").keys()


@pytest.mark.parametrize("page", ["book/index", *(f"notebooks/{chapter.stem}" for chapter in chapters())])
def test_no_links_without_an_address(unlinked, page):
    """Only the download is there; no page mentions any of the places."""
    names = {"book": ".md", "notebooks": "Notebook (.ipynb)"}
    assert buttons(unlinked[0], page).keys() == {names[page.partition("/")[0]]}
    text = (unlinked[0] / f"{page}.html").read_text()
    assert not re.search(r"mybinder|colab\.research|github\.com", text)


def test_no_address_is_committed():
    """The settings of the book have none: they get it when the book is laid out."""
    settings = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert not settings["repository"]["url"]
    assert not {"binderhub_url", "colab_url", "jupyterhub_url"} & settings["launch_buttons"].keys()


def test_uncommitted_copy_has_no_links(tmp_path):
    """Without a commit there is nothing to open, whatever the address."""
    config = tmp_path / "_config.yml"
    build.copy(ROOT / "_config.yml", config)
    launch.configure(config, ADDRESS, None)
    assert config.read_text() == (ROOT / "_config.yml").read_text()


@CHAPTERS
def test_download(linked, chapter):
    """The link leads to a file beside the page: a valid notebook, the one that the page was made of."""
    book, _ = linked
    page = book / "notebooks" / f"{chapter.stem}.html"
    file = (page.parent / buttons(book, f"notebooks/{chapter.stem}")["Notebook (.ipynb)"]).resolve()
    assert file.is_relative_to(book)
    assert file.read_bytes() == (book.parent.parent / "notebooks" / chapter.name).read_bytes()
    nbformat.validate(nbformat.read(file, as_version=4))


@CHAPTERS
def test_download_of_the_book_runs_as_the_chapter_does(book, chapter):
    """Its code is that of the chapter, cell by cell, and its stamp goes with it."""
    downloaded = nbformat.read(book / "_sources" / "notebooks" / chapter.name, as_version=4)
    nbformat.validate(downloaded)
    code = [
        [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        for notebook in (downloaded, nbformat.read(chapter, as_version=4))
    ]
    assert code[0] == code[1]
    assert downloaded.metadata.kernelspec.name == "python3"
    assert downloaded.cells[-1].source.startswith(":::{dropdown} Provenance: ")


def test_icons_come_with_the_book(linked):
    """The signs of Binder and Colab are files beside the pages."""
    book, _ = linked
    page = BeautifulSoup((book / "notebooks" / f"{chapters()[0].stem}.html").read_text(), "html.parser")
    icons = [image["src"] for image in page.select(".article-header-buttons img")]
    assert len(icons) == 2
    assert all((book / "notebooks" / icon.partition("?")[0]).resolve().is_file() for icon in icons)


@CHAPTERS
def test_chapter_for_colab_installs_what_it_imports(chapter):
    """Before all others stands one cell that installs the package at the commit, and every package imported later."""
    notebook, original = launch.self_installing(chapter, ADDRESS, MADE), nbformat.read(chapter, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[1:] == original.cells
    ast.parse(TransformerManager().transform_cell(notebook.cells[0].source))
    package, *others = re.findall(r'"([^"]+)"', notebook.cells[0].source)
    assert package == f"{_distribution.NAME}[study] @ git+{ADDRESS}@{MADE.hash}"
    names = {Requirement(line).name.replace("-", "_") for line in others}
    renamed = {"scikit_learn": "sklearn"}
    known = {renamed.get(name, name) for name in names} | launch.PRESENT | launch.LEFT_OUT
    assert not names & launch.LEFT_OUT
    assert provenance.imported(original) <= known


def test_notebooks_for_colab_need_a_clean_commit(tmp_path):
    """The links lead to them by the name of the commit, and what they install has its content."""
    write_project(tmp_path)
    cells = [nbformat.v4.new_code_cell("import numpy")]
    (tmp_path / "notebooks").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks" / "01-x.ipynb")
    made = commit_all(tmp_path)
    with pytest.raises(launch.LaunchError, match="public address"):
        launch.write_notebooks(tmp_path / ".." / "out", tmp_path, {})
    (written,) = launch.write_notebooks(tmp_path / ".." / "out", tmp_path, WORKFLOW)
    assert launch.colab(ADDRESS, made, "notebooks/01-x").endswith(written.relative_to(written.parent.parent).as_posix())
    (tmp_path / "change").touch()
    with pytest.raises(launch.LaunchError, match="clean commit"):
        launch.write_notebooks(tmp_path / ".." / "out", tmp_path, WORKFLOW)


def test_binder_finds_what_it_needs():
    """`postBuild` is executable and beside `environment.yml`; a folder for Binder would hide the two."""
    assert (ROOT / "environment.yml").is_file()
    assert os.access(ROOT / "postBuild", os.X_OK)
    assert not any((ROOT / name).exists() for name in ("binder", ".binder", "Dockerfile"))
    subprocess.run(["bash", "-n", ROOT / "postBuild"], check=True)
