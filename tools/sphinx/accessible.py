"""Sphinx extension: correct HTML that screen readers would read wrongly, such as titles, and remove what no page needs.

What is removed: anchors that several proofs have in common, links that load fonts early, and a script that draws icons.
"""

import re
from pathlib import Path

REPAIRS = {
    # The role is deprecated since DPUB-ARIA 1.1, which has items of a list instead.
    'role="doc-biblioentry"': 'role="listitem"',
    # Every proof without a label has the same anchor, and so none.
    '<div class="proof admonition" id="proof">': '<div class="proof admonition">',
    ' id="proof-content"': "",
    # The name of a fold is what it shows, "Show code cell source".
    '<summary aria-label="Toggle hidden content">': "<summary>",
}


# A heading needs a level. Icons come from fonts, which a page from file:// may not preload. The theme also has a script
# of 1.5 MB that draws the same icons; it would delay each page by a quarter of a second.
FINISHED = {
    r'(<p[^>]* role="heading")(?! aria-level)': r'\1 aria-level="2"',
    r'<link rel="preload" as="font"[^>]*>\s*': "",
    r'<script src="[^"]*/fontawesome/[^"]*"></script>\s*': "",
    # A title has the form "page — book", and that of the first page is the book's alone.
    "<title>Search - ": "<title>Search &#8212; ",
    r"<title>(.*) &#8212; \1</title>": r"<title>\1</title>",
    # The page of the search has two fields, its own and that of the box that opens on each page.
    r'(?s)(<div class="bd-search-container">.*? id="search-)input"': r'\1field"',
}


def repair(app, pagename, templatename, context, doctree):
    """Replace, in the body of an HTML page, each text that is a key of the dictionary REPAIRS by its value.

    Sphinx calls this function for each page. `context` is a dictionary with the parts of the page, and its part "body"
    is changed. The other arguments are not used.
    """
    for wrong, right in REPAIRS.items():
        context["body"] = context.get("body", "").replace(wrong, right)


def finish(app, error):
    """Replace, in all finished HTML pages, each match of a pattern in the dictionary FINISHED by the pattern's value.

    The matches are in parts of a page that the theme makes. If the build ended with an `error`, no page is changed.
    `app` is the Sphinx application.
    """
    for page in Path(app.outdir).rglob("*.html") if app.builder.format == "html" and not error else ():
        text = whole = page.read_text(encoding="utf-8")
        for wrong, right in FINISHED.items():
            text = re.sub(wrong, right, text)
        if text != whole:
            page.write_text(text, encoding="utf-8")


def setup(app):
    """Connect `repair` and `finish` to `app`, the Sphinx application, and return the properties of this extension.

    `repair` runs before a page is put into its template, and `finish` runs after all pages are written.
    """
    app.connect("html-page-context", repair)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
