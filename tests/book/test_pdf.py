"""Test the PDF of the book: it has the numbers of the HTML, clean margins, vector figures and embedded fonts.

A defect of the PDF stops its build with an error.
"""

import posixpath
import re
import shutil
import subprocess
from collections import Counter
from html import unescape
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from pypdf import PdfReader

from tests.book.markup import parsed
from tools import pdf
from tools.build import BookError, run_jupyter_book
from tools.execute import ROOT
from tools.provenance import git

LEVELS = ("chapter", "section", "subsection", "subsubsection", "paragraph")
NUMBERED = re.compile(r"(?:Fig\.|[A-Z][a-z]+) [A-Z]?[\d.]*\d")  # the text of a reference
TITLES = ["caption", "h1", "h2", "h3", "h4"]
MARGINS = (26, 26)  # mm, left and right, as in tools/sphinx/book.sty
MM = 72 / 25.4  # points of PDF
SCREEN = re.compile(  # what a reader of HTML does, and what only HTML has
    r"Source: code|(?<!-)\b([Ff]olds?|folded|[Cc]licks?|[Hh]over\w*|[Ss]croll\w*|[Mm]ouse|[Ss]idebar|[Tt]his panel|"
    r"[Cc]ells? (below|above)|[Nn]ext (\w+ )?cells?|in this page|of this page)\b"
)
GUIDE = "This edition leaves out the code and the tables that the HTML edition folds"
HANGING = ".,:;-–”’'!?)]"  # punctuation, which LaTeX pushes into the right margin, by up to three points


def names_in(entries, depth=0):
    """Yield pairs (page, depth) for all pages in a part of the table of contents, in the order of the book.

    A page is a path without suffix. `entries` is a list of pages from _toc.yml, each with its subpages. These pages
    have the depth `depth`, their subpages have one more, and so on.
    """
    for entry in entries:
        yield entry["file"], depth
        yield from names_in(entry.get("sections", []), depth + 1)


def names_in_toc():
    """Return a list of pairs (page, depth in the table of contents) for the book in print, the landing page first.

    A page is a path without suffix. All pages of the book are printed but those of the reference, in book/api.
    """
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    found = [(toc["root"], 0), *(each for part in toc["parts"] for each in names_in(part["chapters"]))]
    return [(name, depth) for name, depth in found if not name.startswith("book/api")]


@pytest.fixture(scope="module")
def pages(book):
    """Return a dictionary from page in print (a path without suffix) to the parsed page without menus and sidebars."""
    found = {name: (book / f"{name}.html").read_text() for name, _ in names_in_toc()}
    return {name: parsed(text).article for name, text in found.items()}


@pytest.fixture(scope="module")
def latex(typeset):
    """Return the folder in which XeLaTeX has made the PDF of the book, with its log and auxiliary files."""
    return typeset.parent / "latex-egm"


@pytest.fixture(scope="module")
def printed(latex):
    """Return a dictionary from LaTeX label to (number, page), such as ("4.1", 37), read from LaTeX's .aux file."""
    lines = re.findall(r"^\\newlabel\{(.*?)\}\{\{(.*?)\}\{(\d+)\}", (latex / "egm.aux").read_text(), re.MULTILINE)
    return {label: (number.strip("{}"), int(page)) for label, number, page in lines}


@pytest.fixture(scope="module")
def words(typeset):
    """Return a list with (label, width, words) for each page of the PDF; all lengths are in points.

    The label is the page's number as printed, and the width is that of the page. The words are a list of (left, right,
    text): the distances of the word's two ends from the left edge of the page, and the word.
    """
    command = ["pdftotext", "-bbox", str(typeset), "-"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    labels = PdfReader(typeset).page_labels
    found = []
    for label, page in zip(labels, re.findall(r"<page width=.*?</page>", text, re.DOTALL), strict=True):
        width = float(re.search(r'width="([\d.]+)"', page)[1])
        boxes = re.findall(r'<word xMin="([-\d.]+)" yMin="[-\d.]+" xMax="([-\d.]+)" yMax="[-\d.]+">(.*?)</word>', page)
        found.append((label, width, [(float(left), float(right), word) for left, right, word in boxes]))
    return found


def shown_numbers(name, article):
    """Return a dictionary from LaTeX label to number for all numbered items of an HTML page, such as equations.

    `article` is the parsed page without menus, and `name` is its path without suffix, which is a part of each label.
    """
    found = {}
    for place in article.select(".eqno, .caption-number"):
        holder = place.find_parent(id=True)
        label = f"equation:{name}:{holder['id'].removeprefix('equation-')}" if place["class"] == ["eqno"] else ""
        numbers = re.findall(r"[A-Z]?[\d.]*\d", place.get_text())
        if numbers:  # a remark may have no number
            found[label or f"{name}:{holder['id']}"] = numbers[-1]
    return found


def test_every_number_is_that_of_the_html(pages, printed):
    """Equations, statements, algorithms, figures and tables have the same numbers in the PDF and in the HTML.

    There are more than 300 of them.
    """
    expected, places = {}, 0
    for name, article in pages.items():
        expected |= shown_numbers(name, article)
        places += sum(bool(re.search(r"\d", place.get_text())) for place in article.select(".eqno, .caption-number"))
    assert places == len(expected) > 300
    assert {label: printed[label][0] for label in expected if label in printed} == expected


def test_every_heading_has_the_number_of_the_html(pages, latex):
    """Chapters, appendices and sections have the same numbers, and stand in the same order, in PDF and HTML.

    Pages without a number in the HTML have none in the PDF.
    """
    expected = []
    for name, depth in names_in_toc():
        for heading in pages[name].select("section > h1, section > h2, section > h3, section > h4"):
            number = heading.find(class_="section-number")
            level = LEVELS[int(heading.name[1]) - 1 + depth]
            expected.append((level, number.get_text().strip(". \u00a0") if number else ""))
    lines = re.findall(r"\\contentsline \{(\w+)\}\{(?:\\numberline \{(.*?)\})?", (latex / "egm.aux").read_text())
    assert [line for line in lines if line[0] in LEVELS] == expected


def test_every_reference_shows_the_number_of_the_html(pages, latex, printed):
    """Every reference to a numbered item, such as "Lemma 4.1", has the same target and text in the PDF and in the HTML.

    Links in headings and in titles of tables are not compared, because LaTeX makes none there, nor are those in texts
    that are only for HTML.
    """
    expected = Counter()
    for name, article in pages.items():
        links = article.select("a.reference.internal[href], a.finding")
        for link in (link for link in links if not link.find_parent(class_="only-html")):
            url, text = urlsplit(link["href"]), link.get("title", "").rpartition(": ")[0] or link.get_text()
            path = posixpath.join(posixpath.dirname(name), unquote(url.path).removesuffix(".html"))
            page = posixpath.normpath(path) if url.path else name
            if url.fragment.startswith("equation-"):
                expected[f"equation:{page}:{url.fragment.removeprefix('equation-')}", text.strip("()")] += 1
            elif NUMBERED.fullmatch(text) and url.fragment and not link.find_parent(TITLES):
                expected[f"{page}:{url.fragment}", text] += 1
    tex = re.sub(r"\\endfirsthead.*?\\endlastfoot", "", (latex / "egm.tex").read_text(), flags=re.DOTALL)
    tex = re.sub(r"\\detokenize\{(.*?)\}", r"\1", tex)
    found = Counter((label, printed[label][0]) for label in re.findall(r"\(\\ref\{(equation:.*?)\}\)", tex))
    for label, text in re.findall(r"\\hyperref\[(.*?)\]\{(?:\\sphinxcrossref\{)?(?:\\DUrole\{.*?\}\{)?(.*?)\}\}", tex):
        text = re.sub(r"(?:\\@)? \\ref\{(.*)", lambda at: " " + printed[at[1].rstrip("}")][0], text).replace(r"\@", "")
        if NUMBERED.fullmatch(text) and not label.endswith("::doc"):
            found[label, text] += 1
    assert sum(expected.values()) > 600
    assert (expected - found, found - expected) == (Counter(), Counter())


def test_numbers_stand_on_their_pages(pages, printed, words):
    """The number of each equation, statement, figure and table is on the PDF page that LaTeX has recorded.

    LaTeX writes the page of each item to its .aux file.
    """
    text = {label: " ".join(word for _, _, word in found) for label, _, found in words}
    for name, article in pages.items():
        for label, number in shown_numbers(name, article).items():
            pattern = rf"\({re.escape(number)}\)" if label.startswith("equation:") else rf"\b{re.escape(number)}\b"
            assert re.search(pattern, text[str(printed[label][1])]), (label, number)


def test_nothing_stands_in_the_margins(words):
    """No word of the PDF reaches more than a millimeter into the left or right margin.

    At the right, some punctuation may reach three points further.
    """
    left, right = MARGINS
    outside = [
        (label, word)
        for label, width, found in words
        for start, end, word in found
        if word.strip()
        and (start < (left - 1) * MM or end > width - (right - 1) * MM + 3 * (unescape(word)[-1] in HANGING))
    ]
    assert not outside


def test_every_page_has_text(words):
    """Each page of the PDF has text that can be searched and copied.

    The text is in the order of reading: the page on which chapter 1 begins starts with the chapter's heading.
    """
    assert all(found for _, _, found in words)
    text = [" ".join(word for *_, word in found) for _, _, found in words]
    assert any(
        "differential privacy" in page and page.split()[:3] == ["Chapter", "1", "Preliminaries"] for page in text
    )


def test_no_word_is_about_what_only_html_has(words):
    """The PDF says nothing of what HTML alone has: folds, clicks, panels, sources of figures, and cells left out here.

    The guide for readers says that this edition leaves out what the HTML edition folds.
    """
    text = " ".join(word for _, _, found in words for *_, word in found)
    assert not [text[max(0, at.start() - 40) : at.end() + 40] for at in SCREEN.finditer(text.replace(GUIDE, ""))]
    assert text.count(GUIDE) == 1


def test_no_page_ends_with_the_title_of_a_statement(words):
    """After the title of a theorem or another statement, such as "Lemma 2.1 (Name).", its text begins on the same page.

    The test reads the last words of each page.
    """
    title = re.compile(r"(?:^| )[A-Z][a-z]+ [A-Z]?[\d.]*\d \([^()]+\)\.$")
    text = {label: " ".join(word for *_, word in found) for label, _, found in words}
    assert sum(bool(title.search(part + ".")) for page in text.values() for part in page.split(". ")) > 100
    assert not [label for label, page in text.items() if title.search(page)]


def test_no_line_ends_within_a_number(typeset):
    """No line of a text or of a table's cell ends within a number such as 7 · 10⁻¹⁶ or a pair such as 0.2 / −0.1."""
    command = ["pdftotext", "-layout", str(typeset), "-"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert not re.findall(r"^.*\d(?: /| ?⋅)(?:  .*)?$", text, re.MULTILINE)


def test_figures_are_vectors(typeset, pages):
    """The PDF has as many figures as the HTML, and all of them are vector drawings."""
    reader = PdfReader(typeset)
    kinds = Counter()
    for page in reader.pages:
        objects = page["/Resources"].get("/XObject", {})
        kinds.update(objects[name]["/Subtype"] for name in objects)
    figures = sum(len(article.select("img")) for article in pages.values())
    assert kinds == {"/Form": figures}


def fonts(resources, seen):
    """Yield the font dictionaries of a PDF page and of the figures on the page.

    `resources` are the resources of the page. `seen` is a set of ids of figures: figures with these ids are left out,
    and the ids of all others are added to the set.
    """
    for font in resources.get("/Font", {}).values():
        font = font.get_object()
        yield from (inner.get_object() for inner in font.get("/DescendantFonts", [font]))
    for drawing in resources.get("/XObject", {}).values():
        drawing = drawing.get_object()
        if id(drawing) not in seen and "/Resources" in drawing:
            seen.add(id(drawing))
            yield from fonts(drawing["/Resources"], seen)


def test_fonts_are_embedded(typeset):
    """All fonts of the PDF are embedded, and none is of type 3, because journals refuse a PDF with such fonts."""
    seen, wrong = set(), set()
    for page in PdfReader(typeset).pages:
        for font in fonts(page["/Resources"], seen):
            descriptor = font.get("/FontDescriptor", {})
            if font["/Subtype"] == "/Type3" or not any(f"/FontFile{kind}" in descriptor for kind in ("", 2, 3)):
                wrong.add(font.get("/BaseFont", "/Type3"))
    assert not wrong


def test_metadata(typeset):
    """The metadata of the PDF have the title and the authors of _config.yml, and the time of the last commit as date.

    In a folder that is no git clone, there is no such time. The first page shows the version. The outline has the parts
    "Chapters" and "Appendices".
    """
    reader, config = PdfReader(typeset), yaml.safe_load((ROOT / "_config.yml").read_text())
    assert (reader.metadata.title, reader.metadata.author) == (config["title"], config["author"])
    if (ROOT / ".git").exists():
        assert reader.metadata.creation_date.timestamp() == int(git(ROOT, "log", "-1", "--format=%ct"))
    assert pdf.version().split(",")[0] in reader.pages[0].extract_text()
    assert {item.title for item in reader.outline if not isinstance(item, list)} >= {"Chapters", "Appendices"}


@pytest.mark.parametrize(
    "line",
    [
        "! Undefined control sequence.",
        "LaTeX Warning: Reference `x' on page 1 undefined on input line 3.",
        "LaTeX Warning: Label `x' multiply defined.",
        "Package hyperref Warning: Token not allowed in a PDF string (Unicode):",
        "Missing character: There is no ε (U+03B5) in font x!",
        "Overfull \\hbox (1.5pt too wide) in paragraph at lines 1--2",
        "xdvipdfmx:warning: Object @x already defined.",
    ],
)
def test_log_that_is_not_clean(line):
    """`pdf.complaints` returns a list of the lines of a LaTeX log that report a defect, such as `line`.

    Harmless lines are not in the list, such as a report of a text that is too wide by 0.4 points.
    """
    harmless = "This is XeTeX\nOverfull \\hbox (0.4pt too wide) in paragraph at lines 1--2\n"
    assert pdf.complaints(f"{harmless}{line}\n") == [line]


def test_missing_programs_are_named(monkeypatch, tmp_path):
    """If XeLaTeX is not installed, the build of the PDF raises a BookError with a message that says what to install.

    The PDF of an earlier build is removed.
    """
    (tmp_path / "_build").mkdir()
    (tmp_path / "_build" / "egm.pdf").touch()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BookError, match=r"xelatex and latexmk not found.*apt-get install texlive-xetex"):
        pdf.build(tmp_path)
    assert not (tmp_path / "_build" / "egm.pdf").exists()


PAGE = f"""# A page of every kind

```{{raw}} html
<div id="explorer"><script>draw()</script></div>
```

There are 10 000 numbers[ on a screen]{{.only-html}}.

:::{{div}} only-html
Look at the screen.
:::

Greek in text: ε, δ, σ, Σ, *α*, **β**, and ⊙, ≤, →; the same in `code: ε ⊙ ┌─┐ ≤`.

```{{py:function}} f(x: float, *, rng=None) -> float

The ε of f.
```

```python
x = {" + ".join(["value"] * 40)}
```

| Number | Square |
|--------|--------|
{"".join(f"| {k} | {k * k} |{chr(10)}" for k in range(100))}
"""


def written(folder):
    """Write a book of one page, PAGE, as LaTeX in `folder`, and return the path of the folder with the LaTeX files."""
    stage = folder / "stage"
    for name in ("book/_static", "extra"):
        (stage / name).mkdir(parents=True)
    shutil.copy(ROOT / "_config.yml", stage)
    shutil.copy(ROOT / "book" / "references.bib", stage / "book")
    (stage / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
    (stage / "book" / "index.md").write_text(PAGE)
    (folder / "_build").mkdir()
    return run_jupyter_book(stage, folder, "latex")


@pytest.fixture
def sources(once, tmp_path_factory, tmp_path, monkeypatch, xelatex):
    """Return a new folder with the LaTeX files of a book of one page, PAGE, which Sphinx writes once for all tests.

    The book is in no git repository, so no commit gives it a date; it gets the date 0.
    """
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")

    def page_of_every_kind():
        return written(tmp_path_factory.mktemp("page"))

    (tmp_path / "_build").mkdir()
    return shutil.copytree(once(page_of_every_kind), tmp_path / "latex")


def test_page_of_every_kind(sources, tmp_path):
    """A page with raw HTML, long code and Greek letters becomes a PDF that has the Greek letters, but not the raw HTML.

    A text that is marked as only for HTML is left out as well, and no line ends within a number. A table that goes on
    on another page says so at the foot of the one page and at the head of the other page. The bytes of the PDF do not
    depend on the folder in which it is made. One of two folders has the LaTeX files `sources`, and the other one has
    files that Sphinx writes anew.
    """
    one, other = pdf.typeset(sources, tmp_path), pdf.typeset(written(tmp_path / "other folder"), tmp_path)
    pages = [page.extract_text() for page in PdfReader(one).pages]
    text = "".join(pages)
    assert "draw()" not in text
    assert "screen" not in text
    assert "There are 10\N{NO-BREAK SPACE}000 numbers." in (sources / "egm.tex").read_text()
    assert "ε" in text
    below, above = "continues on next page", "continued from the page before"
    on = [(page.count(below), page.count(above)) for page in pages if below in page or above in page]
    assert on == [(1, 0), *[(1, 1)] * (len(on) - 2), (0, 1)]
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [("\N{EGYPTIAN HIEROGLYPH A001}", "Missing character"), ("$\\undefined$", "Undefined control sequence")],
)
def test_defect_stops_the_build(sources, tmp_path, more, complaint):
    """A character without a glyph, or an unknown command in a formula, stops the build of the PDF by a BookError.

    `more` is the faulty text, which is added at the end of the LaTeX file in the folder `sources`, and `complaint` is a
    part of the expected message.
    """
    file = sources / "egm.tex"
    file.write_text(file.read_text().replace("\\end{document}", f"{more}\n\\end{{document}}"))
    with pytest.raises(BookError, match=complaint):
        pdf.typeset(sources, tmp_path)
