"""Test the figures of the built book, in the HTML and as SVG files: captions, alternative texts, fonts and colors."""

import csv
import re
from urllib.parse import unquote
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from egm.study import plots
from tests.book.markup import parsed
from tools.execute import ROOT, chapters
from tools.kernel.figures import drawn

CSS = ROOT / "book" / "_static" / "book.css"
# A caption must say whether its values are computed, simulated, or counted in existing data.
PRECISION = r"exact|simulat|counted"
FONTS = {"DejaVuSans", "DejaVuSans-Oblique", "STIXNonUnicode-Italic"}  # the last one is for script letters in formulas
POINTS = {10.0, 11.0}  # sizes of text in points; the book's body text has 12
WIDEST = 6.5 * 72  # points in the width of the text column on a laptop
LARGEST = 300_000  # bytes


@pytest.fixture(scope="module")
def images(book, toc):
    """Return a list of pairs (path of the page, image tag) for all images in the texts of the book.

    There must be at least 40 images. An image tag is an `img` element of the parsed HTML.
    """
    paths = [book / f"{name}.html" for name in toc]
    found = [(path, parsed(path.read_text()).select("article img")) for path in paths]
    assert len([image for _, images in found for image in images]) >= 40
    return [(path, image) for path, images in found for image in images]


@pytest.fixture(scope="module")
def files(images):
    """Return a dictionary from the path of each image file of the book to its SVG source."""
    paths = {(path.parent / unquote(image["src"])).resolve() for path, image in images}
    return {path: path.read_text() for path in paths}


def plain(tag):
    """Return the text of `tag`, an element of parsed HTML, with single spaces between the words."""
    return " ".join(tag.get_text().split())


def after(source, patch):
    """Return the content of the SVG group with the id `patch` in the text `source`, up to the next closing tag </g>.

    The result is "" if there is no such group.
    """
    return source.partition(f'<g id="{patch}">')[2].partition("</g>")[0]


def test_every_image_is_a_figure_with_a_message(images):
    """Each image is a figure with a number, and its caption begins with a bold sentence on what the figure shows.

    The bold sentence has at least three words, and the caption at least six more. The caption also says whether the
    values are exact, simulated, or counted.
    """
    for path, image in images:
        figure = image.find_parent("figure")
        assert figure, f"{path.name}: {image}"
        text, message = figure.select_one("figcaption .caption-text"), figure.select_one(".caption-text > strong")
        assert figure.select_one("figcaption .caption-number"), f"{path.name}: {image}"
        assert text, f"{path.name}: {image}"
        assert message, f"{path.name}: {text}"
        text, message = plain(text), plain(message)
        assert text.startswith(message), f"{path.name}: {text}"
        assert len(message.split()) >= 3, f"{path.name}: {message}"
        assert message.endswith("."), f"{path.name}: {message}"
        assert len(text.split()) >= len(message.split()) + 6, f"{path.name}: {text}"
        assert re.search(PRECISION, text, re.IGNORECASE), f"{path.name}: {text}"


def test_every_image_has_a_text_that_replaces_it(images):
    """The alternative text of an image has at least 12 words and no formulas, and is not part of the caption.

    No two images have the same alternative text.
    """
    texts = [image.get("alt", "") for _, image in images]
    assert len(set(texts)) == len(texts)
    for (path, image), text in zip(images, texts, strict=True):
        assert len(text.split()) >= 12, f"{path.name}: {text}"
        assert not re.search(r"[$\\{}`]", text), f"{path.name}: {text}"
        assert text not in plain(image.find_parent("figure").find("figcaption"))


def test_every_figure_is_referred_to(images):
    """Each figure is referred to in the text of a chapter, of the paper or of the landing page.

    The figure "fig-headline" of the landing page itself is the only exception.
    """
    sources = [(ROOT / "book" / f"{page}.md").read_text() for page in ("index", "paper")]
    sources += [cell.source for path in chapters() for cell in nbformat.read(path, as_version=4).cells]
    referred = set(re.findall(r"\{numref\}`([\w-]+)`", "\n".join(sources)))
    assert {image.find_parent("figure")["id"] for _, image in images} - {"fig-headline"} <= referred


def test_landing_page_shows_the_figure_of_its_chapter(images):
    """The figure on the landing page is the same drawing as the figure "fig-improvement" in a chapter.

    So it cannot be a drawing of an earlier run.
    """
    files = {image.find_parent("figure")["id"]: path.parent / image["src"] for path, image in images}
    drawn = {name: file.read_text().strip() for name, file in files.items()}
    assert drawn["fig-headline"] == drawn["fig-improvement"]


def test_images_are_drawings_of_one_size(files):
    """Figures are SVG files below 300 kB that fit the column of text, with letters in DejaVu Sans of 10 or 11 points.

    A figure contains no image of pixels, and its letters are drawn as outlines. Only script letters have another font.
    """
    for path, source in files.items():
        assert path.suffix == ".svg", path
        assert len(source.encode()) < LARGEST, path
        svg = ElementTree.fromstring(source)
        assert not {tag.tag.partition("}")[2] for tag in svg.iter()} & {"image", "text"}, path
        assert float(svg.get("width").removesuffix("pt")) < WIDEST, path
        glyphs = {tag.get("id", "").rpartition("-")[0] for tag in svg.iter("{http://www.w3.org/2000/svg}path")}
        assert "DejaVuSans" in glyphs, path
        assert glyphs - {""} <= FONTS, path  # markers have no font
        sizes = {round(100 * float(size), 1) for size in re.findall(r"scale\(([\d.]+) -", source)}
        assert sizes <= POINTS, path


def test_images_have_the_colours_of_the_style(files):
    """A figure has no colors but grays and those of the palette `plots.COLORS`, and its background is transparent."""
    own = {colour.lower() for colour in plots.COLORS}
    for path, source in files.items():
        colours = {colour.lower() for colour in re.findall(r"#[0-9a-f]{6}\b", source, re.IGNORECASE)}
        assert not {c for c in colours - own if len({c[1:3], c[3:5], c[5:]}) > 1}, path
        assert "fill: none" in after(source, "patch_1"), path  # matplotlib's name for the background of the figure
        assert "fill: none" in after(source, "patch_2") or "patch_2" not in source, path  # of the first axes


def contrast(first, second):
    """Return the contrast ratio of the colors `first` and `second`, a number from 1 to 21, as WCAG 2 defines it.

    A color is an array of its red, green and blue parts, each between 0 and 1.
    """
    parts = [np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in np.array([first, second])]
    low, high = sorted(part @ [0.2126, 0.7152, 0.0722] for part in parts)
    return (high + 0.05) / (low + 0.05)


def half_turn(colour):
    """Return the color that the CSS filter hue-rotate(180deg) makes of `colour`.

    A color is an array of its red, green and blue parts, each between 0 and 1.
    """
    matrix = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])
    return np.clip(matrix @ colour, 0, 1)


def backgrounds(book):
    """Return the background colors of the book's pages as a dictionary from theme ("light" or "dark") to color.

    A color is a text such as "#ffffff". If several style sheets set a color, the last one that a page loads decides.
    """
    names = "pydata-sphinx-theme", "sphinx-book-theme"
    styles = "".join((book / "_static" / "styles" / f"{name}.css").read_text() for name in names)
    rules = re.findall(r"html\[data-theme=\"?(light|dark)\"?\]\s*\{[^}]*--pst-color-background:\s*([^;}]+)", styles)
    return dict(rules)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_can_be_read(book, theme):
    """Each color of the figures, and the gray of their texts, has a contrast of at least 4.5 to the page's background.

    `theme` is "light" or "dark". In the dark theme a CSS filter inverts the figures, so the contrast is that of the
    inverted colors.
    """
    assert "filter: invert(1) hue-rotate(180deg);" in CSS.read_text()
    behind = to_rgb(backgrounds(book)[theme])
    for colour, least in [*((colour, 4.5) for colour in plots.COLORS), (plots.GREYS[1], 4.5)]:
        shown = to_rgb(colour) if theme == "light" else half_turn(1 - np.array(to_rgb(colour)))
        assert contrast(shown, behind) >= least, colour


def table(text):
    """Return the CSV `text` as a dictionary from (panel, name) to the list of its rows, each a dictionary."""
    found = {}
    for row in csv.DictReader(text.splitlines()):
        found.setdefault((row.pop("panel"), row.pop("name")), []).append(row)
    return found


@pytest.fixture
def two_panels():
    """Return the CSV of a figure with a panel of curves and one of error bars and areas, as `table` returns it."""
    fig, (left, right) = plt.subplots(1, 2)
    left.plot([0, 1, 2], [1 - 1e-12, 1 - 1e-13, 1], color="C0", label="near 1")
    left.plot([1], [0.5], "s", color="C0")
    left.plot([0, 1, 2], [3, 4, 5], color="C1")
    left.plot([0, 1, 2], [6, 7, 8], "--", color="C0", label="large")
    left.axhline(1)
    right.errorbar([1, 10], [2, 3], [[0.5, 1], [0.25, 2]], label="measured")
    right.add_patch(plt.Rectangle((1, 2), 3, 4, label="box"))
    right.add_patch(plt.Circle((5, 5), 2, ec="C4"))
    right.set_xscale("log")
    text = drawn(fig)
    plt.close(fig)
    return table(text)


def test_numbers_have_names(two_panels):
    """In the CSV of a figure, everything drawn has a name, but lines across the panel are left out.

    What is drawn without a name is counted, and also has the name of the last curve with the same color, if any.
    """
    curves, areas = ["near 1", "large (curve 2)", "curve 3", "large"], ["measured", "box", "patch 2"]
    assert list(two_panels) == [("1", name) for name in curves] + [("2", name) for name in areas]


def test_numbers_are_those_of_the_figure(two_panels):
    """The CSV of a figure has coordinates in full precision, both ends of error bars, and the outlines of areas."""
    values = {
        key: np.array([[float(v or "nan") for v in row.values()] for row in rows]) for key, rows in two_panels.items()
    }
    assert values["1", "near 1"][:, 1].tolist() == [1 - 1e-12, 1 - 1e-13, 1]
    assert values["2", "measured"].tolist() == [[1, 2, 1.5, 2.25], [10, 3, 2, 5]]
    np.testing.assert_allclose(values["2", "box"][:, :2], [[1, 2], [4, 2], [4, 6], [1, 6], [1, 2]], rtol=1e-15)
    np.testing.assert_allclose(np.hypot(*(values["2", "patch 2"][:, :2] - 5).T), 2, rtol=1e-4)


def test_numbers_of_every_figure_are_complete(book):
    """The CSV of each figure of the book has numbers, and each name in a legend of the figure is a name in the CSV.

    The name may be a part of a longer one. The drawing has its texts as comments.
    """
    files = sorted((book / "figures").glob("*.csv"))
    assert len(files) >= 40
    for file in files:
        names = {name for _, name in table(file.read_text())}
        assert names, file.name
        parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
        drawing = ElementTree.fromstring(file.with_suffix(".svg").read_text(), parser)
        for legend in (tag for tag in drawing.iter() if tag.get("id", "").startswith("legend_")):
            texts = [tag.text.strip() for tag in legend.iter(ElementTree.Comment)]
            assert texts, file.name
            assert not [text for text in texts if not any(text in name for name in names)], file.name
