"""The book as a reader gets it: built once for all tests, in HTML and as PDF, and a browser to look at it."""

import shutil
from pathlib import Path

import pytest
import yaml
from filelock import FileLock
from playwright.sync_api import sync_playwright

from tools import pdf
from tools.build import BookError, build
from tools.execute import ROOT, execute_all

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OFFLINE = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# Pages that Sphinx makes by itself.
MADE_BY_SPHINX = ["genindex", "search"]


@pytest.fixture(scope="session")
def once(tmp_path_factory, worker_id):
    """Called with what makes a file, makes it unless another worker of this session has, and one thing at a time."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    def path(make):
        made = shared / f"{make.__module__}.{make.__name__}"
        with FileLock(shared / "making.lock"):
            if not made.exists():
                made.write_text(str(make()))
        return Path(made.read_text())

    return path


@pytest.fixture(scope="session")
def book(once):
    """The folder of the finished book, built as `make book` builds it, so that only changed chapters are executed."""
    return once(build).parent


@pytest.fixture(scope="session")
def executed(book):
    """The executed chapters of that book, by name."""
    return execute_all()


def contents():
    """Every source that the table of contents names, as a path without suffix."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    entries = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    return [toc["root"], *(page["file"] for entry in entries for page in [entry, *entry.get("sections", [])])]


@pytest.fixture(scope="session")
def toc():
    """The pages that are written by hand, in the order of the table of contents."""
    return contents()


@pytest.fixture(scope="session")
def made_by_sphinx():
    """The pages that Sphinx makes by itself."""
    return MADE_BY_SPHINX


@pytest.fixture(scope="module", params=contents() + MADE_BY_SPHINX)
def page_name(request):
    """One page of the book after the other, as a path without suffix."""
    return request.param


@pytest.fixture(scope="session")
def browser(do_without):
    """A browser without a network."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not executable:
        do_without(f"no browser found, looked for {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=OFFLINE)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def xelatex(do_without):
    """XeLaTeX and poppler are there."""
    try:
        pdf.require_tex("pdftotext")
    except BookError as error:
        do_without(str(error))


@pytest.fixture(scope="session")
def typeset(book, once, xelatex):
    """The finished PDF, built as `make pdf` builds it, after the book so that no chapter is executed twice."""
    return once(pdf.build)
