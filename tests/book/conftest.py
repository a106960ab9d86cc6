"""Provide fixtures for tests of the book: the book, built once for all tests as HTML and as PDF, and a browser."""

import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
import yaml
from filelock import FileLock
from playwright.sync_api import sync_playwright

from tools import pdf
from tools.build import BookError, build, copy, lay_out, run_jupyter_book
from tools.execute import ROOT, chapters, execute_all

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OFFLINE = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# Milliseconds in which a page must be loaded, or reach a condition. On two busy processors the longest chapters load in
# ten seconds, and a machine that is five times as slow would miss Playwright's own limit, which is 30 seconds.
PATIENCE = 180_000
# Pages that Sphinx makes by itself.
MADE_BY_SPHINX = ["genindex", "search"]


def pytest_collection_modifyitems(items):
    """Move the tests of PDF files to the front of `items`, the list of tests that pytest has collected.

    A PDF takes long to make: if one of the parallel processes began it late, all other processes would wait for it.
    """
    items.sort(key=lambda test: not {"typeset", "article"} & {*getattr(test, "fixturenames", ())})


@pytest.fixture(scope="session")
def once(tmp_path_factory, worker_id):
    """Return a function `path(make)` that returns the path `make()`, but calls `make` only once for all tests.

    `make` is a function that builds something and returns its path. Every later call of `path` with the same `make`
    returns this path again, also in the other processes that run tests. `worker_id` is the name of the process that
    runs the test.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    def path(make):
        made = shared / f"{make.__module__}.{make.__name__}.txt"
        with FileLock(made.with_suffix(".lock")):
            if not made.exists():
                made.write_text(str(make()))
        return Path(made.read_text())

    return path


@pytest.fixture(scope="session")
def book(once):
    """Build the book as `make book` does, only once for all tests, and return the folder with its HTML.

    Only chapters that have changed since the last build are executed.
    """
    return once(build).parent


@pytest.fixture(scope="session")
def executed(book):
    """Return a dictionary from each chapter's file name, such as "07-x.ipynb", to the path of its executed copy."""
    return execute_all()


def contents():
    """Return a list of all pages and chapters in the table of contents (_toc.yml), as paths without suffix."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    entries = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    return [toc["root"], *(page["file"] for entry in entries for page in [entry, *entry.get("sections", [])])]


@pytest.fixture(scope="session")
def toc():
    """Return the list of all pages and chapters in the table of contents (_toc.yml), in the order of the book.

    A page is a path without suffix, such as "book/index". Pages that Sphinx makes by itself, such as the page of the
    search, are not in the list.
    """
    return contents()


@pytest.fixture(params=chapters(), ids=lambda path: path.stem)
def chapter(request):
    """Return the path of a committed chapter (a notebook); pytest runs a test with this fixture for each chapter."""
    return request.param


@pytest.fixture(params=contents() + MADE_BY_SPHINX)
def page_name(request):
    """Return the path of a page without suffix; pytest runs a test with this fixture for each page of the book.

    Pages that Sphinx makes by itself, such as the page of the search, are among them.
    """
    return request.param


@pytest.fixture(scope="session")
def browser(do_without):
    """Yield a browser context of the library Playwright: the browser Chromium with settings of its own, and no network.

    All tests share this context, because pages then load their scripts faster. If no browser is installed, the function
    `do_without` skips the test, or makes it fail in continuous integration.
    """
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not executable:
        do_without(f"no browser found, looked for {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=OFFLINE)
        context = browser.new_context(offline=True)
        context.set_default_timeout(PATIENCE)
        yield context
        browser.close()


@pytest.fixture(scope="session")
def xelatex(do_without):
    """Check that the programs which make and read the PDF are installed: XeLaTeX, latexmk and pdftotext.

    If one is missing, the function `do_without` skips the test, or makes it fail in continuous integration.
    """
    try:
        pdf.require_tex("pdftotext")
    except BookError as error:
        do_without(str(error))


@pytest.fixture(scope="session")
def typeset(book, once, xelatex):
    """Build the PDF of the whole book as `make pdf` does, only once for all tests, and return the path of the PDF."""
    return once(pdf.build)


@pytest.fixture(scope="session")
def article(typeset, once):
    """Build the PDF of the paper, a page of the book, as `make paper` does, only once, and return its path.

    The PDF of the book (`typeset`) is built before, because both are made in one folder.
    """
    return once(pdf.paper)


# Source of the small book's only page. It has one element of each kind that the project's Sphinx extensions change.
PAGE = """# Title

```{prf:lemma}
:label: lemma-of-ours
By {cite:t}`poulsen2023` and {cite:p}`balle2018`.
```

```{math}
:label: an-equation
x = 1
```

By {prf:ref}`lemma-of-ours` and {eq}`an-equation`.

If $x$ is given, look for it. A page is described by sentences without formulas, from a paragraph with enough of them.

Of 1 000 000 rows 95 % took 5 ms, twice 10 000 and 300, with 0.2 / −0.1 of `1 000`.

Now $a$ and ($b$), "$c$" or $d$–$e$ ([$f$]), $g$ ($h$ or f($i$)).

```{eval-rst}
.. autofunction:: egm.bounds.chebyshev
```

```{bibliography}
```
"""


@pytest.fixture(scope="session")
def small(once, tmp_path_factory):
    """Build a small book of one page and one chapter with the project's settings, and return the folder of its HTML.

    The sources are in a git repository, and environment variables are set as in a workflow on GitHub. So the build
    finds a commit and the project's address, github.com/owner/repository, and the pages can link to them.
    """

    def small_book():
        root = tmp_path_factory.mktemp("small")
        for name in ("_config.yml", "book/_static", "book/references.bib"):
            copy(ROOT / name, root / name)
        cells = [nbformat.v4.new_markdown_cell("# Chapter"), nbformat.v4.new_code_cell("1", execution_count=1)]
        file = root / "_build" / "01-chapter.ipynb"
        metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        texts = {
            "pyproject.toml": '[project]\nname = "p"\nversion = "1"\n',
            "_toc.yml": "{format: jb-book, root: book/index, chapters: [{file: notebooks/01-chapter}]}",
            "book/index.md": PAGE,
            ".gitignore": "_build\n",
            **dict.fromkeys(("ledger/claims.yml", "ledger/errata.yml", "CITATION.cff"), ""),
            "_build/01-chapter.ipynb": nbformat.writes(nbformat.v4.new_notebook(cells=cells, metadata=metadata)),
            "_build/01-chapter.json": "[]",
            "_build/01-chapter.run.json": '{"python": "3.11.0", "packages": {}, "seeds": [], "unseeded": []}',
        }
        for name, text in texts.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
        for command in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "--message", "all"]):
            subprocess.run(["git", *command], cwd=root, check=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GITHUB_SERVER_URL", "https://github.com")
            patch.setenv("GITHUB_REPOSITORY", "owner/repository")
            lay_out(root / "_build" / "stage", {file.name: file}, root)
        return run_jupyter_book(root / "_build" / "stage", root)

    return once(small_book)
