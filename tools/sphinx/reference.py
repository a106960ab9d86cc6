"""Sphinx extension: add to the reference pages what autodoc, numpydoc and sphinx-argparse leave out.

- Titles in the docstring of a module become headings like those in the docstring of a function.
- An exception shows its base classes. Other classes do not, because a reader does not need them.
- Each attribute that the docstring of a class lists can be linked to, `{py:attr}`egm.module.Class.attribute``, and a
  class that egm exports has the name `egm.Class` besides its full name.
- No two sections of a page have the same anchor.
- A search that finds a command of the program `egm` shows its name, such as "egm sum".
"""

import re

from docutils import nodes
from sphinxarg.ext import ArgParseDomain

import egm


class Commands(ArgParseDomain):
    """Hold the commands of the program `egm` for Sphinx's index and search, each with its name as the text to show.

    In sphinx-argparse's own class the text to show is the whole description of the command.
    """

    def get_objects(self):
        """Yield a tuple for each command: its name, its name again as the text to show, and what Sphinx knows more."""
        for name, _, *others in super().get_objects():
            yield name, name, *others


def rule_sections(app, what, name, thing, options, lines):
    """Replace the section titles in the docstring of a module by headings (rubrics), as numpydoc does for functions.

    Sphinx calls this function for each docstring. `lines` are the lines of the docstring, and are changed. `what` is
    the kind of the object: only modules are treated. The other arguments are not used.
    """
    if what == "module":
        lines[:] = re.sub(r"^(\w[\w ]*)\n-{3,}$", r".. rubric:: \1\n", "\n".join(lines), flags=re.MULTILINE).split("\n")


def name_bases(app, what, name, thing, options, lines):
    """Insert the names of the base classes of an exception after the first paragraph of its docstring.

    A reader needs them, because an `except` clause with a base class catches the exception, too. `lines` are the lines
    of the docstring of the object `thing`, and are changed. `what` is the kind of the object: only exceptions are
    treated. The other arguments are not used.
    """
    if what == "exception":
        end = lines.index("") if "" in lines else len(lines)
        lines[end:end] = ["", f"Bases: {', '.join(f'``{base.__name__}``' for base in thing.__bases__)}"]


def name_attributes(app, domain, kind, content):
    """Make each attribute that numpydoc has listed in the description of a class a target for links.

    Also let links to a class that egm exports use its short name, `egm.Class`. `content` is the description of an
    object. Only classes and exceptions (`kind`) of Python (`domain`) are treated. `app` is the Sphinx application.
    """
    if domain != "py" or kind not in ("class", "exception"):
        return
    known, signature = app.env.get_domain("py"), content.parent[0]
    full = f"{signature['module']}.{signature['fullname']}"
    if signature["fullname"] in egm.__all__:
        known.note_object(f"egm.{signature['fullname']}", "class", full, aliased=True)
    lists = (field for field in content.findall(nodes.field) if field[0].astext() == "Attributes")
    for term in (term for field in lists for term in field.findall(nodes.term)):
        if isinstance(term[0], nodes.strong):  # a property is a link to its own entry
            term["ids"].append(f"{full}.{term[0].astext()}")
            known.note_object(term["ids"][0], "attribute", term["ids"][0])


def name_commands(app, doctree):
    """Remove those anchors of sections of a document that would be equal for all commands of the program `egm`.

    `doctree` is the document as Sphinx has read it, and is changed. Anchors that contain the name of a command stay.
    `app` is not used.
    """
    for section in doctree.findall(nodes.section):
        section["ids"] = [name for name in section["ids"] if not name.startswith("egm.cli-")]


def setup(app):
    """Connect the functions of this extension to `app`, the Sphinx application, and return the extension's properties.

    `rule_sections` and `name_bases` run before numpydoc reads a docstring, `name_attributes` when the description of an
    object has been made, and `name_commands` when a page has been read. `Commands` replaces sphinx-argparse's domain,
    the part of Sphinx that knows the commands.
    """
    app.setup_extension("sphinxarg.ext")
    app.add_domain(Commands, override=True)
    app.connect("autodoc-process-docstring", rule_sections, priority=400)
    app.connect("autodoc-process-docstring", name_bases, priority=400)
    app.connect("object-description-transform", name_attributes)
    app.connect("doctree-read", name_commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
