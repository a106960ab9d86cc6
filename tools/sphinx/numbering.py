"""Sphinx extension: give numbers that a reader with the report beside them recognizes.

Sphinx counts chapters, theorems and equations as they come. Here a chapter has the number of its file
(`02-gaussian-mechanism` is chapter 2, `B-abandoned-routes` appendix B), and whatever belongs to the report has the
number that its label states: `lemma-4-1`, `theorem-2`, `algorithm-3` and, for equations, `report-12`. The rest of a
chapter is counted without gaps.
"""

import re
from itertools import count

from sphinx.util.logging import getLogger

CHAPTER = re.compile(r"notebooks/(\d+|[A-Z])-")
REPORTED = re.compile(r"(?:definition|lemma|corollary|theorem|algorithm|equation-report)-(\d+)(?:-(\d+))?$")


def reported(label):
    """Return the number in the report that a label states, or None."""
    match = REPORTED.match(label)
    return tuple(int(part) for part in match.groups() if part) if match else None


def number_chapter(env, docname, chapter):
    """Give a document and all of its sections the chapter's number."""
    sections = env.toc_secnumbers[docname]
    for anchor, number in sections.items():
        sections[anchor] = (chapter, *number[1:])
    env.titles[docname]["secnumber"] = (chapter,)
    for entry in env.tocs[docname].findall():
        if "secnumber" in getattr(entry, "attributes", ()):
            entry["secnumber"] = (chapter, *entry["secnumber"][1:])


def number_statements(statements, chapter):
    """Number the statements of one kind as the report does, and the others by their order on the page."""
    own = count(1)
    for label in statements:
        statements[label] = reported(label) or (*([chapter] if chapter else []), next(own))
        if "." in label:  # the theme's scripts look anchors up as CSS selectors
            getLogger(__name__).warning("label %s: write %s", label, label.replace(".", "-"))


def renumber(app, env):
    """Replace the numbers that Sphinx has just given."""
    for docname in env.toc_secnumbers.keys() | env.toc_fignumbers.keys():
        file_number = CHAPTER.match(docname)
        chapter = file_number and (int(file_number[1]) if file_number[1].isdigit() else file_number[1])
        if chapter and docname in env.toc_secnumbers:
            number_chapter(env, docname, chapter)
        for statements in env.toc_fignumbers.get(docname, {}).values():
            number_statements(statements, chapter)
    return []


def setup(app):
    """Run after Sphinx's own numbering, which has the default priority of 500."""
    app.connect("env-get-updated", renumber, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
