"""Measure how long the chapters (notebooks) are: `python -m tools.lengths` prints one line for each.

Only what a reader sees without opening a folded box is counted: the words of the text (without formulas, tables,
captions and code), the formulas, and the visible code. The minutes are computed from 200 words a minute, 12 seconds for
a displayed formula, 2 seconds for a formula in a line of text, and 5 seconds for a line of code.
"""

import re
from dataclasses import astuple, dataclass

import nbformat
from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin

from tools import execute

NOT_SHOWN = {"hide-input", "remove-input", "hide-cell", "remove-cell", "parameters"}
NOT_PROSE = re.compile(r"\{(dropdown|table|list-table|math|figure|raw|code-block)\}")
ROLE = re.compile(r"\{[\w:]+\}`([^`<]*)[^`]*`")
SHOWN = {"text": "{}", "code_inline": "`{}`"}
OPTION = re.compile(r"^:[\w-]+:.*$", re.MULTILINE)
MARKDOWN = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, double_inline=True).use(colon_fence_plugin)


@dataclass
class Length:
    """Hold how many words, formulas and lines of code of a page a reader sees without opening a closed box."""

    words: int = 0
    displays: int = 0  # displayed formulas
    inlines: int = 0  # formulas within a line
    code_words: int = 0  # in the visible code
    code_lines: int = 0

    def __add__(self, other):
        """Return the `Length` of this page and the page with the length `other` together: the sums of their numbers."""
        return Length(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def minutes(self):
        """Return how many minutes it takes to read the page.

        A reader needs a minute for 200 words, 12 seconds for a displayed formula, 2 seconds for a formula in a line of
        text, and 5 seconds for a line of code.
        """
        return self.words / 200 + (12 * self.displays + 2 * self.inlines + 5 * self.code_lines) / 60


def of_markdown(text):
    """Count the words and the formulas of the Markdown `text`, and return them as a `Length`.

    Tables, figures, blocks of code, and boxes that are closed until a reader opens them are left out. Other boxes are
    included.
    """
    length, in_table = Length(), False
    for token in MARKDOWN.parse(text):
        in_table = token.type == "table_open" or (in_table and token.type != "table_close")
        if token.type.startswith("math_block"):
            length.displays += 1
        elif token.type in ("colon_fence", "fence"):
            if token.info.startswith("{") and not NOT_PROSE.match(token.info):
                length += of_markdown(OPTION.sub("", token.content))
        elif token.type == "inline" and not in_table:
            for part in token.children:
                length.inlines += part.type == "math_inline"
                length.displays += part.type == "math_inline_double"
            prose = "".join(SHOWN.get(part.type, " ").format(part.content) for part in token.children)
            length.words += len(re.findall(r"[^\W\d_][\w'’-]*", ROLE.sub(r"\1", prose)))
    return length


def of_notebook(file):
    """Count the words, the formulas and the lines of code of the chapter in the notebook `file`; return a `Length`.

    Hidden cells and outputs are left out.
    """
    length = Length()
    for cell in nbformat.read(file, as_version=4).cells:
        if cell.cell_type == "markdown":
            length += of_markdown(cell.source)
        elif not NOT_SHOWN & set(cell.metadata.get("tags", ())):
            length += Length(code_words=len(cell.source.split()), code_lines=len(cell.source.splitlines()))
    return length


def chapters():
    """Return a dictionary from the name of each chapter of the book to its `Length`; appendices are left out."""
    return {file.stem: of_notebook(file) for file in execute.chapters() if file.stem[0].isdigit()}


def main():
    """Print a table with one row for the length of each chapter, and a last row for their sum."""
    print(f"{'':28} words  displayed  inline  code words  lines  minutes")
    found = chapters()
    for name, length in {**found, "all": sum(found.values(), Length())}.items():
        counts = "{:7d}{:11d}{:8d}{:12d}{:7d}".format(*astuple(length))
        print(f"{name:26}{counts}{length.minutes:9.0f}")


if __name__ == "__main__":
    main()
