"""Test the paper, as a page of the book and as a PDF: it has no code, and its results are inserted from chapters."""

import re

import pytest
from pypdf import PdfReader

from tests.book.markup import parsed
from tools.execute import ROOT

SOURCE = (ROOT / "book" / "paper.md").read_text()
#: Numbers that belong to a statement and are not results: conditions, settings, constants of a theorem, a year, a
#: chapter, the number of the lemma.
GIVEN = {*map(str, (*range(7), 8, 9, 10, 11, 12, 17, 18, 20, 21, 25, 50, 100, 200, 1000, 2023)), "0.9", "2.8", "4.1"}


@pytest.fixture(scope="module")
def page(book):
    """Return the parsed HTML of the paper, which is a page of the book; `book` is the folder of the built HTML."""
    return parsed((book / "book" / "paper.html").read_text()).article


def test_it_has_no_code(page):
    """The page of the paper shows no code and no output of code; a reader finds the code by links."""
    assert not page.select("div.cell, div.highlight")


def test_numbers_come_from_chapters():
    """No result is written as a number in the source of the paper; a build inserts each result from a chapter.

    The only numbers in the source are in the constant GIVEN, such as conditions, settings and constants of a theorem.
    Of these only such a constant, 2.8, is a number of times, a percentage or a part of a number.
    """
    text = re.sub(
        r"\{glue:text\}`[^`]*`|\{[a-z:]+\}`[^`]*`|^:[a-z]+:.*$|\]\([^)]*\)|^#.*$", "", SOURCE, flags=re.MULTILINE
    )
    assert set(re.findall(r"\d+(?:[.,]\d+)*", text)) <= GIVEN
    assert re.findall(r"(\d+(?:[.,]\d+)*)\s*(?:times|%|of \d)", text) == ["2.8"]


def test_article_is_short_and_whole(article):
    """The PDF of the paper has eight to twelve pages, an abstract on the first, and no unresolved reference ("??")."""
    pages = [page.extract_text() for page in PdfReader(article).pages]
    assert 8 <= len(pages) <= 12
    assert "Abstract" in pages[0]
    assert "??" not in "".join(pages)


def test_article_names_no_link_that_is_only_in_the_book(article, page):
    """The PDF of the paper leaves out texts such as "(source)" that are links in the book and lead nowhere in print."""
    text = " ".join("".join(sheet.extract_text() for sheet in PdfReader(article).pages).split())
    links = {link.get_text().strip(" .()") for link in page.select(".only-book a")}
    assert links == {"source", "How to cite"}
    assert not [link for link in links if re.search(rf"\({link}\)|{link}\.", text)]
