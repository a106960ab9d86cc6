"""Test the buttons of a page that open a chapter on Binder or Colab, or report an error, and which pages have them.

Links need the address of the project on GitHub. The address in these tests is invented.
"""

import ast
import os
import re
import subprocess
from fnmatch import fnmatch
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
import yaml
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement

from egm import _distribution
from tests.book.markup import parsed
from tools import build, provenance
from tools.execute import ROOT, code_cells
from tools.sphinx import launch

ADDRESS = "https://github.com/owner/repository"
WORKFLOW = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "owner/repository"}
MADE = provenance.Commit("0123456789abcdef0123456789abcdef01234567", None, False)


def write_project(root, urls=""):
    """Write a pyproject.toml with a name, a version and the lines `urls` into the folder `root`, and return `root`."""
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text(f'[project]\nname = "p"\nversion = "1"\n{urls}\n')
    return root


def commit_all(root):
    """Make the folder `root` a git repository, commit all its files, and return the hash of the commit.

    If the folder is a repository already, only a new commit is made.
    """
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
    """`launch.repository` returns the project's address on GitHub from pyproject.toml, or else from a GitHub workflow.

    The result `address` is None if neither has an address, or if the repository in pyproject.toml is not on GitHub.
    `urls` are the lines of pyproject.toml with the address, and `environ` has the workflow's environment variables.
    """
    assert launch.repository(write_project(tmp_path, urls), environ) == address


def buttons(book, page):
    """Return a dictionary from the words on each button in the header of a page to the link of the button.

    `book` is the folder of the HTML, and `page` is the path of the page in it without suffix.
    """
    header = parsed((book / f"{page}.html").read_text()).select_one(".article-header-buttons")
    return {link.get_text(strip=True): link["href"] for link in header.select("a[href]")}


def test_links_of_a_chapter(small):
    """The buttons of a chapter open the chapter in Binder and Colab at the commit from which its page was made.

    The link to the form for errata contains the chapter and the commit. `small` is the folder of the HTML of a small
    book with one chapter.
    """
    found, place = buttons(small, "notebooks/01-chapter"), "notebooks/01-chapter.ipynb"
    commit = provenance.git(small.parents[3], "rev-parse", "HEAD")
    assert found["Repository"] == ADDRESS
    assert found["Binder"] == f"https://mybinder.org/v2/gh/owner/repository/{commit}?urlpath=lab/tree/{place}"
    colab = f"https://colab.research.google.com/github/owner/repository/blob/colab/{commit}/01-chapter.ipynb"
    assert found["Colab"] == colab
    form = urlsplit(found["Report an error"])
    assert form.geturl().startswith(f"{ADDRESS}/issues/new?template=erratum.yml&")
    assert parse_qs(form.query)["place"] == ["notebooks/01-chapter"]
    assert parse_qs(form.query)["version"] == [f"commit {commit[:7]}"]


def test_form_for_errata_has_the_fields_of_the_link():
    """The form for errata on GitHub has a field for each value in the link that opens the form.

    GitHub fills in a field by its id, and ignores values for unknown ids without a warning.
    """
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "erratum.yml").read_text())
    fields = {field.get("id"): field["attributes"] for field in form["body"]}
    filled = parse_qs(urlsplit(launch.report(ADDRESS, MADE.hash, "book/index")).query)
    assert filled.pop("template") == ["erratum.yml"]
    assert filled.keys() <= fields.keys()
    assert filled["source"][0] in fields["source"]["options"]


def test_pages_that_are_no_chapter(small):
    """A page that is not a chapter has no buttons for Binder and Colab, but has one to report an error.

    The page also has the button of the repository, and the menu of downloads with the files of the book. `small` is the
    folder of the HTML of a small book with one such page.
    """
    found = buttons(small, "book/index")
    assert found.keys() == {"Repository", "Report an error", ".md", *launch.FILES.values()}
    assert [found[text] for text in launch.FILES.values()] == [f"../{name}" for name in launch.FILES]


def test_files_of_the_download_menu_are_published():
    """The workflow that publishes the book copies the files of the download menu into the folder of the HTML pages."""
    workflow = (ROOT / ".github" / "workflows" / "book.yml").read_text()
    (copied,) = re.findall(r"run: cp (.*) _build/html/\n", workflow)
    assert all(any(fnmatch(f"_build/{name}", pattern) for pattern in copied.split()) for name in launch.FILES)


def test_every_page_has_links_or_none(book, toc):
    """If the project has a public address and a commit, each page has links to the repository and to a form for errors.

    These are buttons in the header. Only chapters have also buttons for Binder and Colab. Without a public address or a
    commit, no page has any of these. Each page always has a button to download its source.
    """
    linked = launch.repository() and provenance.commit(ROOT)
    for page in toc:
        chapter = page.startswith("notebooks/")
        (source,) = ROOT.glob(f"{page}.*")
        expected = {"Notebook (.ipynb)" if chapter else source.suffix}
        if linked:
            expected |= {"Repository", "Report an error", *(("Binder", "Colab") if chapter else ())}
        assert buttons(book, page).keys() == expected, page
        text = (book / f"{page}.html").read_text()
        assert bool(re.search(r"mybinder\.org|colab\.research", text)) == bool(linked and chapter), page


def test_no_address_is_committed():
    """The committed _config.yml has no address of the project; a build writes the address into its own copy."""
    settings = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert not settings["repository"]["url"]
    assert not {"binderhub_url", "colab_url", "jupyterhub_url"} & settings["launch_buttons"].keys()


@pytest.mark.parametrize(("address", "made"), [(ADDRESS, None), (None, MADE)])
def test_without_an_address_or_a_commit_there_are_no_links(tmp_path, address, made):
    config = tmp_path / "_config.yml"
    build.copy(ROOT / "_config.yml", config)
    launch.configure(config, address, made)
    assert config.read_text() == (ROOT / "_config.yml").read_text()


def test_download(small):
    """The download button of a chapter leads to a valid notebook: the one from which the chapter's page was made.

    `small` is the folder of the HTML of a small book with one chapter.
    """
    file = (small / "notebooks" / buttons(small, "notebooks/01-chapter")["Notebook (.ipynb)"]).resolve()
    assert file.is_relative_to(small)
    assert file.read_bytes() == (small.parent.parent / "notebooks" / "01-chapter.ipynb").read_bytes()
    nbformat.validate(nbformat.read(file, as_version=4))


def test_download_of_the_book_runs_as_the_chapter_does(book, chapter):
    """A downloaded chapter has the code of the committed chapter, cell by cell.

    The last cell of the downloaded chapter is the box "Provenance" with commit and versions.
    """
    downloaded = nbformat.read(book / "_sources" / "notebooks" / chapter.name, as_version=4)
    nbformat.validate(downloaded)
    committed = nbformat.read(chapter, as_version=4)
    assert [cell.source for cell in code_cells(downloaded)] == [cell.source for cell in code_cells(committed)]
    assert downloaded.metadata.kernelspec.name == "python3"
    assert downloaded.cells[-1].source.startswith(":::{dropdown} Provenance: ")


def test_icons_come_with_the_book(small):
    """The icons of Binder and Colab are files of the book, so that no network is needed to show them.

    `small` is the folder of the HTML of a small book with one chapter.
    """
    page = parsed((small / "notebooks" / "01-chapter.html").read_text())
    icons = [image["src"] for image in page.select(".article-header-buttons img")]
    assert len(icons) == 2
    assert all((small / "notebooks" / icon.partition("?")[0]).resolve().is_file() for icon in icons)


def test_chapter_for_colab_installs_what_it_imports(chapter):
    """The first cell of a notebook for Colab installs the package egm from the commit to which the notebook belongs.

    It also installs the other packages that the chapter imports, except IPython, which Colab has, and chi2comb, which
    is optional. All other cells are those of the committed chapter.
    """
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
    """Without a public address, or with uncommitted changes, `launch.write_notebooks` raises a LaunchError.

    Each notebook for Colab installs the package from a commit, so later changes would be missing.
    """
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
    """The files that Binder needs, `environment.yml` and `postBuild`, are in the folder of the project.

    `postBuild` is executable and valid. There is no Dockerfile, `binder` or `.binder`, because Binder would then ignore
    these files.
    """
    assert (ROOT / "environment.yml").is_file()
    assert os.access(ROOT / "postBuild", os.X_OK)
    assert not any((ROOT / name).exists() for name in ("binder", ".binder", "Dockerfile"))
    subprocess.run(["bash", "-n", ROOT / "postBuild"], check=True)
