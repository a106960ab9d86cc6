"""Sphinx extension: show an equation or a statement when the pointer or the keyboard is on a link to it.

A browser does not let a page that is opened from a disk read another page. So all equations and statements of the book
are gathered in one script, which `book.js` loads when it is first needed. (sphinx-tippy gathers them, too, but loads
the program that shows them from a network.)
"""

import json
import re
from pathlib import Path

EQUATION = r'<div class="math[^"]*" id="(equation-[^"]+)">.*?</div>'
STATEMENT = r'<div class="proof \w+ admonition" id="([^"]+)">.*?</section>\s*</div>'
TARGET = re.compile(rf"{EQUATION}|{STATEMENT}", re.DOTALL)
# Left out of a preview: its identifiers would be twice on a page, and its links would lead to wrong places.
LEFT_OUT = re.compile(r'<a class="headerlink".*?</a>|</?a\b[^>]*>| id="[^"]*"', re.DOTALL)


def gather(app, error):
    """Write a script with the HTML of every equation and statement of the book to the file `_static/previews.js`.

    The script is a dictionary from address (a page with an anchor) to HTML. If the build ended with an `error`, nothing
    is written. `app` is the Sphinx application.
    """
    if error or app.builder.format != "html":
        return
    folder, found = Path(app.outdir), {}
    for page in sorted(folder.glob("*/*.html")):
        for target in TARGET.finditer(page.read_text(encoding="utf-8")):
            found[f"{page.relative_to(folder).as_posix()}#{target[1] or target[2]}"] = LEFT_OUT.sub("", target[0])
    (folder / "_static" / "previews.js").write_text(f"window.previews = {json.dumps(found)};\n", encoding="utf-8")


def setup(app):
    """Connect `gather`, which runs when all pages are written, to `app`, the Sphinx application."""
    app.connect("build-finished", gather, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
