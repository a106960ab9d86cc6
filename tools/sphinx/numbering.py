"""Sphinx extension: give chapters, statements and equations the numbers that a reader of the report expects.

Sphinx counts chapters, theorems and equations in their order. Here a chapter has the number of its file
(`02-gaussian-mechanism` is chapter 2, `B-abandoned-routes` appendix B). Each statement or equation of the report has
the number that its label states: `lemma-4-1`, `theorem-2`, `algorithm-3` and, for equations, `report-12`. The others of
a chapter are counted without gaps.
"""

import re
from itertools import count

from sphinx.util.logging import getLogger

CHAPTER = re.compile(r"notebooks/(\d+|[A-Z])-")
REPORTED = re.compile(r"(?:definition|lemma|corollary|theorem|algorithm|equation-report)-(\d+)(?:-(\d+))?$")


def reported(label):
    """Return the number in the report that a label states, as a tuple such as (4, 1) for "lemma-4-1", or None."""
    match = REPORTED.match(label)
    return tuple(int(part) for part in match.groups() if part) if match else None


def number_chapter(env, docname, chapter):
    """Set the first part of the number of a document and of all its sections to the chapter's number."""
    sections = env.toc_secnumbers[docname]
    for anchor, number in sections.items():
        sections[anchor] = (chapter, *number[1:])
    env.titles[docname]["secnumber"] = (chapter,)
    for entry in env.tocs[docname].findall():
        if "secnumber" in getattr(entry, "attributes", ()):
            entry["secnumber"] = (chapter, *entry["secnumber"][1:])


def number_statements(statements, chapter, taken):
    """Give the statements of one kind the numbers of the report, or else numbers by their order within the chapter.

    Numbers that the report takes for this kind are left out.
    """
    own = (number for number in count(1) if (chapter, number) not in taken)
    for label, number in statements.items():
        statements[label] = reported(label) or ((chapter, next(own)) if chapter else number)
        if "." in label:  # the theme's scripts look anchors up as CSS selectors
            getLogger(__name__).warning("label %s: write %s", label, label.replace(".", "-"))


def renumber(app, env):
    """Replace the numbers that Sphinx has given to chapters, sections, statements, figures and equations."""
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
    """Connect to Sphinx: `renumber` runs after Sphinx's own numbering, which has the default priority of 500."""
    app.connect("env-get-updated", renumber, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
