"""Sphinx extension: correct what screen readers and other assistive technology would read wrongly in Sphinx's HTML."""

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


# A heading has a level. Icons are SVG: their fonts are not used, and a page from file:// may not preload them.
FINISHED = {
    r'(<p[^>]* role="heading")(?! aria-level)': r'\1 aria-level="2"',
    r'<link rel="preload" as="font"[^>]*>\s*': "",
}


def repair(app, pagename, templatename, context, doctree):
    """Replace each text that is listed in REPAIRS in the body of a page."""
    for wrong, right in REPAIRS.items():
        context["body"] = context.get("body", "").replace(wrong, right)


def finish(app, error):
    """Replace each pattern that is listed in FINISHED in the finished pages, which the theme has completed."""
    for page in Path(app.outdir).rglob("*.html") if app.builder.format == "html" and not error else ():
        text = whole = page.read_text(encoding="utf-8")
        for wrong, right in FINISHED.items():
            text = re.sub(wrong, right, text)
        if text != whole:
            page.write_text(text, encoding="utf-8")


def setup(app):
    """Connect to Sphinx: `repair` runs before a page is put into its template, `finish` after all pages are written."""
    app.connect("html-page-context", repair)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
