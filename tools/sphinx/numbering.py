"""Sphinx extension: give chapters, statements and equations the numbers that a reader of the report expects.

The report is the text that the book checks. Sphinx would count chapters, theorems and equations in their order. Here a
chapter has the number in the name of its file (`02-gaussian-mechanism` is chapter 2, `B-abandoned-routes` appendix B).
Each statement or equation of the report has the number in its label: `lemma-4-1`, `theorem-2`, `algorithm-3` and, for
equations, `report-12`. All other statements and equations of a chapter are counted in their order: the first theorem
of chapter 8 is Theorem 8.1. The count skips a number that the report has for a statement of the same kind.
"""

import re
from itertools import count

from sphinx.util.logging import getLogger

CHAPTER = re.compile(r"notebooks/(\d+|[A-Z])-")
REPORTED = re.compile(r"(?:definition|lemma|corollary|theorem|algorithm|equation-report)-(\d+)(?:-(\d+))?$")


def reported(label):
    """Return the number in Poulsen's report that `label` contains, as a tuple: (4, 1) for "lemma-4-1", for example.

    A label is the link target of a statement or an equation. If `label` contains no such number, return None.
    """
    match = REPORTED.match(label)
    return tuple(int(part) for part in match.groups() if part) if match else None


def number_chapter(env, docname, chapter):
    """Replace the first part of the number of a page, and of all its sections, by `chapter`, a number or letter.

    `docname` is the name of the page, and `env` is Sphinx's environment, which has the numbers.
    """
    sections = env.toc_secnumbers[docname]
    for anchor, number in sections.items():
        sections[anchor] = (chapter, *number[1:])
    env.titles[docname]["secnumber"] = (chapter,)
    for entry in env.tocs[docname].findall():
        if "secnumber" in getattr(entry, "attributes", ()):
            entry["secnumber"] = (chapter, *entry["secnumber"][1:])


def number_statements(statements, chapter, taken):
    """Give numbers to the statements of one kind, such as lemmas, on a page.

    `statements` is a dictionary from label to number, which is changed. A statement of Poulsen's report gets the number
    that it has in the report. The others are counted, and the number or letter `chapter` is put before the count;
    `chapter` is None if the page is no chapter. The count skips the numbers in `taken`, which the report has for
    statements of this kind.
    """
    own = (number for number in count(1) if (chapter, number) not in taken)
    for label in statements:
        statements[label] = reported(label) or ((chapter, next(own)) if chapter else (next(own),))
        if "." in label:  # the theme's scripts look anchors up as CSS selectors
            getLogger(__name__).warning("label %s: write %s", label, label.replace(".", "-"))


def renumber(app, env):
    """Replace the numbers that Sphinx has given to chapters, sections, statements, figures and equations.

    A chapter gets the number in its file name, and a statement or equation of Poulsen's report gets the number that it
    has there. Return an empty list, because no page has to be read again. `env` is Sphinx's environment, which has the
    numbers; `app`, the Sphinx application, is not used.
    """
    taken = {}
    for kinds in env.toc_fignumbers.values():
        for kind, statements in kinds.items():
            taken.setdefault(kind, set()).update(filter(None, map(reported, statements)))
    for docname in env.toc_secnumbers.keys() | env.toc_fignumbers.keys():
        file_number = CHAPTER.match(docname)
        chapter = file_number and (int(file_number[1]) if file_number[1].isdigit() else file_number[1])
        if chapter and docname in env.toc_secnumbers:
            number_chapter(env, docname, chapter)
        for kind, statements in env.toc_fignumbers.get(docname, {}).items():
            number_statements(statements, chapter, taken[kind])
    return []


def setup(app):
    """Connect `renumber` to `app`, the Sphinx application, so that it runs after Sphinx's own numbering."""
    app.connect("env-get-updated", renumber, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
