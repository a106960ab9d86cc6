"""Sphinx extension: let each page say what it is about, and let the file index.html lead to the first page.

The description in the head of a page is what search engines and messengers show of it.
"""

import re
import textwrap
from html import escape, unescape
from pathlib import Path

from docutils import nodes

LEAST, MOST = 60, 200  # characters of a description
INDEX = """<!DOCTYPE html>
<html lang="{language}">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>{title}</title>
    <meta name="description" content="{title}">
    <link rel="canonical" href="{first}">
    <meta http-equiv="refresh" content="0; url={first}">
  </head>
  <body>
    <p><a href="{first}">{title}</a></p>
  </body>
</html>
"""


def summary(doctree) -> str:
    """Return the beginning of the page `doctree`: the sentences without formulas of the first paragraph that has some.

    Only paragraphs right below a heading or another such paragraph count, not those in boxes or lists. If there are too
    few sentences, return "".
    """
    for paragraph in doctree.findall(nodes.paragraph) if doctree else ():
        if isinstance(paragraph.parent, nodes.section):
            parts = paragraph.findall(nodes.Text)
            text = "".join("\0" if isinstance(part.parent, nodes.math | nodes.raw) else part for part in parts)
            sentences = re.split(r"(?<=[.?!])\s+", text)
            plain = " ".join(sentence for sentence in sentences if "\0" not in sentence)
            if len(plain) >= LEAST:
                return textwrap.shorten(plain, MOST, placeholder=" …")
    return ""


def describe(app, pagename, templatename, context, doctree):
    """Add a description to the head of a page, and title and description for links to it in messages (Open Graph).

    Sphinx calls this function for each page. `context` is a dictionary with the parts of the page, and its part
    "metatags" is changed. `doctree` is the document, or None for a page that Sphinx makes by itself. `app` is the
    Sphinx application. The other arguments are not used.
    """
    title = unescape(re.sub("<[^>]*>", "", context.get("title", "")))
    text = summary(doctree) or " – ".join(filter(None, (title, app.config.html_title)))
    told = {'name="description"': text, 'property="og:title"': title, 'property="og:description"': text}
    tags = [f'<meta {name} content="{escape(value)}" />\n' for name, value in told.items() if value]
    context["metatags"] = context.get("metatags", "") + "".join(tags)


def lead_in(app, error):
    """Write the file index.html, which leads to the first page of the book, unless this page has that name.

    If the build ended with an `error`, nothing is written. `app` is the Sphinx application. The extension for tables of
    contents would write the file without a title and a link.
    """
    first = f"{app.config.root_doc}.html"
    if app.builder.format == "html" and not error and first != "index.html":
        parts = {"language": app.config.language, "title": escape(app.config.html_title), "first": first}
        (Path(app.outdir) / "index.html").write_text(INDEX.format(**parts), encoding="utf-8")


def setup(app):
    """Connect `describe` and `lead_in` to `app`, the Sphinx application, and return the properties of this extension.

    `lead_in` runs before the extension for tables of contents, which keeps an existing file.
    """
    app.connect("html-page-context", describe)
    app.connect("build-finished", lead_in, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
