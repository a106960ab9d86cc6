"""The plain text of a docstring as reStructuredText.

Docstrings of egm are written to be read in an editor: ASCII formulas, no markup but backticks, parameters as `name:
what it is`. Here a formula or an example that is indented becomes a block of code, every name that the reference knows
becomes a link, and every other character stays what it is.
"""

import ast
import re
import textwrap
from collections.abc import Callable, Collection
from itertools import takewhile

Link = Callable[[str], str | None]  # the full name of what a name stands for, or None

ITEM = re.compile(r"(\d+\. |- )")
RULE = re.compile(r"=+( +=+)+$")
TOKEN = re.compile(
    r"""
    `(?P<code>[^`]+)`
  | (?P<bold>(?<!\S)\*\*[A-Z][^*]*\*\*(?!\S))
  | (?P<value>"[^"\sA-Z][^"\n]{0,25}")
  | (?P<option>(?<!\S)--[a-z][\w-]*)
  | (?P<parameters>(?:(?<=^)|(?<=[.:;]\ )|(?<=\n))[A-Za-z_]\w*(?:(?:,|\ and|\ <)\s+[A-Za-z_]\w*)*(?=:\s))
  | \b(?P<same>[Aa]s\ (?:for|in|of)\ )(?P<like>[a-z_]+)\b
  | (?P<name>\b[A-Za-z]\w*(?:\.[A-Za-z_]\w*)*)
    """,
    re.VERBOSE,
)


def to_rst(text: str, link: Link, parameters: Collection[str] = ()) -> str:
    """A docstring without common indentation, as reStructuredText."""
    blocks, inside = [], 0  # inside: the column in which the text of a list item begins
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        column = indentation(lines[0])
        item = ITEM.match(lines[0][column:])
        if item and column in (0, inside):
            inside = column + item.end()
        elif column < inside:
            inside = 0
        if not item and column > inside:
            block = textwrap.indent(code_block(textwrap.dedent(block)), " " * inside)
        elif not RULE.match(lines[0]) and not lines[0].lstrip().startswith(">>>"):
            block = inline(block, link, parameters)
        blocks.append(block)
    return "\n\n".join(blocks)


def indentation(line: str) -> int:
    """The number of blanks that a line begins with."""
    return len(list(takewhile(str.isspace, line)))


def code_block(text: str) -> str:
    """A block as it stands: coloured if it is Python, and as plain text if it is a formula."""
    try:
        language = "python" if ast.parse(text) else "text"
    except SyntaxError:
        language = "text"
    return f".. code-block:: {language}\n\n{textwrap.indent(text, '   ')}"


def inline(text: str, link: Link, parameters: Collection[str]) -> str:
    """A paragraph, or the items of a list, with its names marked up and all else escaped."""
    parts, end = [], 0
    for token in TOKEN.finditer(text):
        if marked := mark_up(token, link, parameters):
            parts += [escape(text[end : token.start()]), marked]
            end = token.end()
    joined = "".join([*parts, escape(text[end:])])
    return re.sub(r"\\ $", "", joined, flags=re.MULTILINE)  # at the end of a line it would swallow the line break


def mark_up(token: re.Match, link: Link, parameters: Collection[str]) -> str | None:
    """What replaces a token; None if it is only text."""
    text = token[0]
    if token["code"]:
        return linked(token["code"], link) or literal(token["code"])
    if token["bold"]:
        return text
    if token["value"] or token["option"]:
        return literal(text)
    if token["parameters"]:
        names = re.findall(r"\w+", text)
        known = all(name in parameters or name == "and" for name in names)
        return re.sub(r"\b(?!and\b)\w+", lambda name: f"\\ **{escape(name[0])}**\\ ", text) if known else None
    if token["like"]:
        target = linked(token["like"], link)
        return target and token["same"] + target
    if text in parameters:
        return literal(text) if is_coined(text) else None
    return linked(text, link) if "." in text or is_coined(text) else None


def is_coined(name: str) -> bool:
    """Whether a word cannot be one of English: it has an underscore, or a capital inside."""
    return "_" in name or bool(re.search(r"[a-z][A-Z]", name))


def linked(name: str, link: Link) -> str | None:
    """A name of the reference as a link to it, without the arguments that may follow."""
    target = link(re.sub(r"\(.*\)", "", name, flags=re.DOTALL))
    return target and f"\\ :py:obj:`{name} <{target}>`\\ "


def literal(text: str) -> str:
    """Text in the type of code."""
    return f"\\ ``{' '.join(text.split())}``\\ "


def escape(text: str) -> str:
    """Text none of whose characters is markup."""
    return re.sub(r"([\\*`|_])", r"\\\1", text)
