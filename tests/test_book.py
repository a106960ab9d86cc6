"""The built book: what Sphinx does not warn of, seen in the HTML and in a browser."""

import os
import re
import shutil
from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from playwright.sync_api import sync_playwright

from tools.execute import ROOT, chapters
from tools.numbering import reported

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OFFLINE = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
LOCAL = ("file:", "data:", "blob:")
PHONE, DESKTOP = 390, 1280
# MathJax shows a command that it does not know in red, and any other error in a box of its own.
TEX_ERRORS = 'mjx-merror, [data-mjx-error], mjx-mtext[style*="red"], mjx-mstyle[style*="red"]'


def pages_of_toc():
    """Every source that the table of contents names, as a path without suffix."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]


@pytest.fixture(scope="module")
def pages(book):
    """{path: parsed page} of every page that is written by hand."""
    paths = [book / f"{name}.html" for name in pages_of_toc()]
    return {path: BeautifulSoup(path.read_text(), "html.parser") for path in paths}


def test_toc_names_every_source():
    """A page or a chapter outside the toc would silently not be in the book."""
    sources = [*(ROOT / "book").rglob("*.md"), *chapters()]
    assert sorted(pages_of_toc()) == sorted(str(path.relative_to(ROOT).with_suffix("").as_posix()) for path in sources)


def test_every_chapter_was_executed(book):
    """The notebooks that the book was made from hold a result for every cell, and no error."""
    for chapter in chapters():
        executed = nbformat.read(book.parent / "stage" / "notebooks" / chapter.name, as_version=4)
        code = [cell for cell in executed.cells if cell.cell_type == "code" and cell.source.strip()]
        assert all(cell.execution_count for cell in code), chapter.name
        assert not [out for cell in code for out in cell.outputs if out.output_type == "error"], chapter.name


def test_chapters_have_the_number_of_their_file(pages):
    """A reader who sees chapter 7 finds 07-*.ipynb."""
    for path, page in pages.items():
        if path.parent.name == "notebooks":
            number = page.select_one("article h1").get_text().split(".")[0]
            assert path.name.partition("-")[0].lstrip("0") == number, path.name


def test_statements_of_the_report_have_its_numbers(pages):
    """Lemma 4.1 of the report is Lemma 4.1 here."""
    for page in pages.values():
        for box in page.select("div.proof[id], div.math[id]"):
            if number := reported(box["id"]):
                shown = box.select_one(".caption-number, .eqno").get_text()
                assert re.findall(r"\d+", shown) == [str(part) for part in number]


def test_no_statement_shares_its_number(pages):
    """A statement of ours could be counted to a number that one of the report has already."""
    shown = [label.get_text() for page in pages.values() for label in page.select("div.proof[id] .caption-number")]
    assert len(shown) == len(set(shown))


def test_figures_are_shown_and_described(pages):
    """No figure is only a line of text, and each says what it shows to those who do not see it."""
    for path, page in pages.items():
        assert "<Figure size" not in page.get_text(), path.name
        assert all(image.get("alt", "").strip() for image in page.find_all("img")), path.name


def test_links_lead_somewhere(book, pages):
    """Every relative link finds its file, and every fragment its anchor."""
    anchors = {path: {tag["id"] for tag in page.find_all(id=True)} for path, page in pages.items()}
    for path, page in pages.items():
        for link in (tag["href"] for tag in page.find_all("a", href=True)):
            url = urlsplit(link)
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if url.scheme or url.netloc or link == "#":
                continue
            assert target.exists(), f"{path.name}: {link}"
            assert not url.fragment or unquote(url.fragment) in anchors.get(target, set()), f"{path.name}: {link}"


def test_nothing_is_loaded_from_the_network(book):
    """Scripts, styles, fonts and images all come with the book."""
    sources = [("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("source", "src")]
    for path in book.rglob("*.html"):
        page = BeautifulSoup(path.read_text(), "html.parser")
        loaded = [tag[name] for kind, name in sources for tag in page.find_all(kind, attrs={name: True})]
        assert not [url for url in loaded if url.startswith(("http:", "https:", "//"))], path.name
    for path in book.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text()), path.name


def test_every_entry_of_the_bibliography_is_cited():
    """And every citation has its entry: of that Sphinx warns itself."""
    entries = set(re.findall(r"^@\w+\{([^,]+),", (ROOT / "book" / "references.bib").read_text(), re.MULTILINE))
    text = "".join(path.read_text() for path in [*(ROOT / "book").glob("*.md"), *chapters()])
    cited = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text)
    assert entries <= {key.strip() for keys in cited for key in keys.split(",")}


@pytest.fixture(scope="module")
def browser():
    """A browser without a network. A person may do without one, the continuous integration may not."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not executable:
        reason = f"no browser found, looked for {', '.join(BROWSERS)}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=OFFLINE)
        yield browser
        browser.close()


def complaints_of(page):
    """A list that fills with what the page complains of or asks the network for."""
    found = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("request", lambda request: request.url.startswith(LOCAL) or found.append(request.url))
    page.on("console", lambda line: line.type == "error" and not is_preloading(line) and found.append(line.text))
    return found


def is_preloading(line):
    """From file:// a browser refuses to preload the icon font, which the theme does not need: its icons are SVG."""
    return "/webfonts/" in line.text + line.location["url"]


def look_at(context, path):
    """Open one page and say what is wrong with it: errors, formulas, and by how much it is too wide."""
    page = context.new_page()
    facts = {"complaints": complaints_of(page)}
    page.goto(path.as_uri())
    page.evaluate("window.MathJax ? MathJax.startup.promise : null")
    facts["tex"] = page.locator(f"mjx-container:has({TEX_ERRORS})").all_text_contents()
    facts["raw"] = page.locator(".math:not(:has(mjx-container))").all_inner_texts()
    for width in (DESKTOP, PHONE):
        page.set_viewport_size({"width": width, "height": 900})
        facts[width] = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    page.close()
    return facts


@pytest.fixture(scope="module")
def seen(browser, pages):
    """{fact: {page: value}} for every page, looked at once; only what is wrong is kept."""
    context, wrong = browser.new_context(offline=True), defaultdict(dict)
    for path in pages:
        for fact, value in look_at(context, path).items():
            if value:
                wrong[fact][path.name] = value
    context.close()
    return wrong


@pytest.mark.parametrize("fact", ["complaints", "tex", "raw", PHONE, DESKTOP])
def test_seen_in_a_browser(seen, fact):
    """Offline: nothing is asked of the network, no error, every formula rendered, nothing wider than the page."""
    assert not seen[fact]


def test_landing_page_is_found(book, browser):
    """The path that `make book` prints leads to the first page."""
    page = browser.new_page()
    page.goto((book / "index.html").as_uri())
    page.wait_for_url(f"**/{pages_of_toc()[0]}.html")
    assert Path(page.url).name == "index.html"
    page.close()
