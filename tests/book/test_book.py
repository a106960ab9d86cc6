"""Test what Sphinx does not check in the HTML of the book: numbers, links, anchors, figures and citations."""

import re

import pytest
import yaml

from tests.book.markup import dead_links, parsed
from tools.execute import ROOT, chapters
from tools.sphinx.numbering import reported
from tools.supplement import tree


@pytest.fixture(scope="module")
def pages(book, toc):
    """Return a dictionary from the path of an HTML file to its parsed HTML, for all pages of the book.

    `book` is the folder of the built HTML. `toc` is the list of the pages in the table of contents, as paths without
    suffix, so pages that Sphinx makes by itself are left out.
    """
    paths = [book / f"{name}.html" for name in toc]
    return {path: parsed(path.read_text()) for path in paths}


def test_toc_names_every_source(toc):
    """The table of contents names each page and each chapter of the project once, and nothing else.

    Sphinx would not warn of a page that is missing in the table of contents.
    """
    sources = [*(ROOT / "book").rglob("*.md"), *(ROOT / "book").rglob("*.rst"), *chapters()]
    assert sorted(toc) == sorted(str(path.relative_to(ROOT).with_suffix("").as_posix()) for path in sources)


def test_chapters_have_the_number_of_their_file(pages):
    """The heading of a chapter has the number with which its file's name begins: chapter 7 is made from 07-*.ipynb.

    For an appendix the number is a letter.
    """
    for path, page in pages.items():
        if path.parent.name == "notebooks":
            number = page.select_one("article h1").get_text().split(".")[0]
            assert path.name.partition("-")[0].lstrip("0") == number, path.name


def test_statements_of_the_report_have_its_numbers(pages):
    """A lemma, theorem or equation of Poulsen's report (2023) has in the book the number that it has in the report."""
    for page in pages.values():
        for box in page.select("div.proof[id], div.math[id]"):
            if number := reported(box["id"]):
                shown = box.select_one(".caption-number, .eqno").get_text()
                assert re.findall(r"\d+", shown) == [str(part) for part in number]


def test_no_statement_shares_its_number(pages):
    """No two statements of the book have the same label, such as "Lemma 4.1"."""
    shown = [label.get_text() for page in pages.values() for label in page.select("div.proof[id] .caption-number")]
    assert len(shown) == len(set(shown))


def test_figures_are_shown_and_described(pages):
    """Each image has an alternative text, and no page shows the text "<Figure size ...>" in place of a figure."""
    for path, page in pages.items():
        assert "<Figure size" not in page.get_text(), path.name
        assert all(image.get("alt", "").strip() for image in page.find_all("img")), path.name


def test_links_lead_somewhere(book):
    """Each relative link on a page leads to an existing file and, if the link names an anchor, to an existing anchor.

    An anchor is the id of an element of a page.
    """
    assert dead_links(tree(book, "html")) == []


def test_anchors_are_unique(book):
    """No page has two elements with the same id, because a link leads only to the first element with an id.

    Pages that Sphinx makes by itself are read, too.
    """
    for path in book.rglob("*.html"):
        anchors = [tag["id"] for tag in parsed(path.read_text()).find_all(id=True)]
        assert len(anchors) == len(set(anchors)), path.name


def test_every_page_says_what_it_is(book):
    """Each page has a language, a title of its own in the form "page — book", and a description without formulas.

    The title of the first page, and that of index.html, which leads to it, is the title of the book alone.
    """
    pages = {name: parsed(data.decode()) for name, data in tree(book, "html").items() if name.endswith(".html")}
    pages = {name: page for name, page in pages.items() if "/_static/" not in name}
    titles = {name: page.title.get_text() for name, page in pages.items()}
    whole = yaml.safe_load((ROOT / "_config.yml").read_text())["title"]
    first = [name for name, title in titles.items() if title == whole]
    assert sorted(first) == ["html/book/index.html", "html/index.html"]
    assert len(set(titles.values())) == len(titles) - 1
    assert all(titles[name].endswith(f" — {whole}") for name in pages.keys() - first)
    assert {page.html["lang"] for page in pages.values()} == {"en"}
    told = [page.select_one("meta[name=description]")["content"] for page in pages.values()]
    assert all(len(text) <= 200 and not re.search(r"[\\$<>\0]", text) for text in told)
    assert sum(len(text) >= 60 for text in told) > 0.9 * len(told)


def test_page_is_described_by_its_first_sentences(small):
    """A page is described by the sentences without formulas of its first paragraph that has enough of them.

    Pages without such a paragraph are described by their title and that of the book. The file index.html leads to the
    first page, also by a link. `small` is the folder of the HTML of a small book.
    """
    pages = {name: parsed((small / f"{name}.html").read_text()) for name in ("book/index", "search", "index")}
    told = {name: page.select_one("meta[name=description]")["content"] for name, page in pages.items()}
    sentence = "A page is described by sentences without formulas, from a paragraph with enough of them."
    assert told == {"book/index": sentence} | dict.fromkeys(("search", "index"), "Private sums of Gaussian data")
    assert pages["index"].a["href"] == "book/index.html"


def test_no_line_ends_at_the_edge_of_a_formula(small):
    """A formula, what opens right before it, and the punctuation right after it are in one element without breaks.

    `small` is the folder of the HTML of a small book, one of whose lines has formulas of each kind.
    """
    page = parsed((small / "book" / "index.html").read_text())
    line = next(line for line in page.select("article p") if line.get_text().startswith("Now"))
    tied = [r"(\(b\)),", r"“\(c\)”", r"\(d\)–", r"([\(f\)]),", r"(\(h\)", r"(\(i\)))."]
    assert [element.get_text() for element in line.select(".together")] == tied
    assert line.get_text() == r"Now \(a\) and (\(b\)), “\(c\)” or \(d\)–\(e\) ([\(f\)]), \(g\) (\(h\) or f(\(i\)))."


def test_no_line_ends_within_a_number(small):
    """A no-break space joins groups of digits, a number and its unit, and a pair of numbers, but no numbers in code.

    `small` is the folder of the HTML of a small book, one of whose lines has numbers of each kind.
    """
    page = parsed((small / "book" / "index.html").read_text())
    line = next(line for line in page.select("article p") if line.get_text().startswith("Of 1"))
    joined = "Of 1~000~000 rows 95~% took 5~ms, twice 10~000 and 300, with 0.2~/~−0.1 of 1 000."
    assert line.get_text() == joined.replace("~", "\N{NO-BREAK SPACE}")


def test_nothing_is_loaded_from_the_network(book):
    """Scripts, styles, fonts and images of all pages are files of the book, not addresses on the network.

    The test reads all HTML and CSS files in `book`, the folder of the built HTML.
    """
    sources = [("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("source", "src")]
    for path in book.rglob("*.html"):
        page = parsed(path.read_text())
        loaded = [tag[name] for kind, name in sources for tag in page.find_all(kind, attrs={name: True})]
        assert not [url for url in loaded if url.startswith(("http:", "https:", "//"))], path.name
    for path in book.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text()), path.name


def test_every_entry_of_the_bibliography_is_cited():
    """Each entry of the bibliography (references.bib) is cited in a page or a chapter.

    No test is needed for a citation without an entry, because Sphinx warns of it.
    """
    entries = set(re.findall(r"^@\w+\{([^,]+),", (ROOT / "book" / "references.bib").read_text(), re.MULTILINE))
    text = "".join(path.read_text() for path in [*(ROOT / "book").glob("*.md"), *chapters()])
    cited = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text)
    assert entries <= {key.strip() for keys in cited for key in keys.split(",")}
