"""What several test files share."""

import importlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from filelock import FileLock
from hypothesis import settings
from playwright.sync_api import sync_playwright

from tools import chi2comb as wheel
from tools import pdf
from tools.build import BookError, build
from tools.execute import ROOT, execute_all

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OFFLINE = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# Pages that Sphinx makes by itself.
MADE_BY_SPHINX = ["genindex", "search"]

# On a developer's machine the search for counterexamples goes on with every run; a verdict must not depend on luck.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "search")


@pytest.fixture(scope="session")
def do_without():
    """Called with what this machine lacks: a person may do without it, the continuous integration may not."""
    return pytest.fail if os.environ.get("CI") else pytest.skip


@pytest.fixture(scope="session")
def chi2comb(do_without):
    """The module of that name. Skips where there is no wheel of it, with the reason."""
    if not find_spec("chi2comb"):
        if reason := wheel.unavailable():
            pytest.skip(reason)
        do_without("chi2comb is not installed, which `python -m tools.chi2comb` does")
    return importlib.import_module("chi2comb")


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


@dataclass(frozen=True)
class Distributions:
    """The files that are published, the wheel made straight from the sources, and the folder of those."""

    sdist: Path
    wheel: Path
    direct: Path
    sources: Path


LEFTOVERS = [
    *("_build/html/index.html", ".venv/bin/python", "out.ipynb", "notebooks/.ipynb_checkpoints/01.ipynb"),
    *("egm/__pycache__/gx2.cpython-311.pyc", "tests/__pycache__/test_gx2.pyc"),
    "egm/_rows/__pycache__/kernel.f-1.py311.nbi",
]


@pytest.fixture(scope="session")
def distributions(do_without, tmp_path_factory):
    """Built as for publication, in a copy with traces of work: an sdist, and from that the wheel. Without network."""
    if not (ROOT / ".git").exists():
        do_without("no clone: what is published is what git knows")
    sources, whole, alone = (tmp_path_factory.mktemp(name) for name in ("sources", "dist", "direct"))
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in (*tracked, *LEFTOVERS):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_bytes((ROOT / name).read_bytes() if name in tracked else b"left over")
    build = [sys.executable, "-m", "build", "--no-isolation", sources]
    for command in ([*build, "--outdir", whole], [*build, "--wheel", "--outdir", alone]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,), (direct,) = whole.glob("*.tar.gz"), whole.glob("*.whl"), alone.glob("*.whl")
    return Distributions(sdist, wheel, direct, sources)


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
