"""Sphinx extension: write the book, or one page as an article, as LaTeX with the numbers that the HTML pages have.

The book in print has no reference: the pages for it, which are made from docstrings, are for a browser only.

LaTeX would count chapters, equations, figures and statements itself. Here LaTeX prints the numbers that
`tools.sphinx.numbering` gave. Cross-references agree with them, because LaTeX refers to the numbers that it printed.
The style of the book is in `tools/sphinx/book.sty`, and that of the article is in `tools/sphinx/paper.sty`.
"""

import os
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.builders.latex.nodes import thebibliography
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.math import wrap_displaymath
from sphinx.util.texescape import escape
from sphinx.writers.latex import LaTeXTranslator
from sphinx_proof.nodes import NODE_TYPES, unenumerable_node

MANY_ROWS = 30  # from which on Sphinx lets a table run over pages
STYLES = {name: Path(__file__).with_name(f"{name}.sty") for name in ("base", "book", "paper")}
PAPER = "book/paper"  # the page that is an article, too
REFERENCE = "book/api"  # the pages whose names begin so are not printed


def number_of(translator, kind: str, name: str) -> str:
    """Return the number that an object of a page has in HTML, such as "4.1" for a lemma, or "" if it has no number.

    `kind` is the kind of the object for Sphinx, such as "lemma", and `name` is its id. `translator` is the object that
    writes the page as LaTeX.
    """
    numbers = translator.builder.env.toc_fignumbers.get(translator.curfilestack[-1], {})
    return ".".join(map(str, numbers.get(kind, {}).get(name, ())))


class BookTranslator(LaTeXTranslator):
    """Translate a document to LaTeX as Sphinx does, but with the numbers that the HTML pages show.

    Sphinx's own translator would let LaTeX count sections, equations, figures, tables and statements.
    """

    def section_number(self, section: nodes.section) -> str:
        """Return the number that `section` has in HTML, as a text, or "" if the section has no number.

        The first section of a page has the number of the page.
        """
        numbers = self.builder.env.toc_secnumbers.get(self.curfilestack[-1], {})
        anchor = f"#{section['ids'][0]}"
        return ".".join(map(str, numbers.get(anchor if anchor in numbers else "", ())))

    def visit_title(self, node):
        """Write a LaTeX command that sets the number of the heading `node`, and then the heading."""
        if isinstance(node.parent, nodes.section) and not self.this_is_the_title:
            name = self.sectionnames[min(self.sectionlevel, len(self.sectionnames) - 1)]
            self.body.append(f"\\booknumber{{{name}}}{{{self.section_number(node.parent)}}}\n")
            statements = getattr(self.builder.env, "proof_list", {})  # a heading "Theorem 4" has the theorem's own id
            node.parent["ids"] = [name for name in node.parent["ids"] if name not in statements]
        super().visit_title(node)

    def visit_math_block(self, node):
        """Write the displayed equation `node`; if it has a label, let LaTeX print the number that it has in HTML.

        Sphinx's own method would let LaTeX count the equation.
        """
        if not node.get("label") or node.get("nowrap"):
            super().visit_math_block(node)
        label = f"equation:{node['docname']}:{node['label']}"
        tag = f"\\label{{{label}}}\\tag{{{number_of(self, 'displaymath', node['ids'][0])}}}"
        text = wrap_displaymath(node.astext(), None, False).replace("{equation*}", "{equation}")
        self.body.append(text.replace(r"\begin{equation}", r"\begin{equation}" + tag, 1))
        raise nodes.SkipNode

    def visit_figure(self, node):
        """Begin the figure `node`, and write a LaTeX command that gives it the number that it has in HTML."""
        super().visit_figure(node)
        self.body.append(f"\\renewcommand{{\\thefigure}}{{{number_of(self, 'figure', (node['ids'] or [''])[0])}}}\n")

    def visit_table(self, node):
        """Begin the table `node`, and write a LaTeX command that gives it the number that it has in HTML.

        If the table has more than 30 rows and does not give the widths of its columns, let the lines of text in its
        columns be broken.
        """
        self.body.append(f"\\renewcommand{{\\thetable}}{{{number_of(self, 'table', (node['ids'] or [''])[0])}}}\n")
        if "ledger" in node["classes"]:
            node["classes"].append("longtable")
        super().visit_table(node)
        rows = list(node.findall(nodes.row))
        if len(rows) > MANY_ROWS and "colwidths-given" not in node["classes"]:
            widths = [max(map(len, column)) for column in zip(*map(texts, rows), strict=True)]
            self.table.colspec = "{" + "".join(f"\\X{{{width}}}{{{sum(widths)}}}" for width in widths) + "}\n"

    def visit_container(self, node):
        """Begin the container `node`, such as a notebook cell or its output, and skip code and output that HTML folds.

        Folded code or output is visible on an HTML page only after a click. Each notebook cell becomes a link target.
        """
        skip_if_not_printed(node)
        cell = node.parent.get("classes", [])
        if any(f"tag_hide-{part}" in cell and f"cell_{part}" in node["classes"] for part in ("input", "output")):
            raise nodes.SkipNode
        if "cell" in node["classes"]:
            self.body.append("\n" + "".join(map(self.hypertarget, node["ids"])))
        super().visit_container(node)

    def depart_container(self, node):
        """End the container `node`; if it is a notebook cell, begin a new paragraph after it.

        Otherwise a formula at the end of a cell and the text below the cell would be one paragraph.
        """
        super().depart_container(node)
        if "cell" in node["classes"]:
            self.body.append("\n\n")

    def visit_inline(self, node):
        """Begin the inline element `node`, such as `[a text]{.only-html}` in a page, unless it is not for print."""
        skip_if_not_printed(node)
        super().visit_inline(node)

    def visit_admonition(self, node):
        """Begin the box of the admonition `node`, such as a note, or a LaTeX environment if `node` is a proof.

        The environment for a proof ends with the sign for the end of a proof.
        """
        if "proof" not in node["classes"]:
            return super().visit_admonition(node)
        self.body.append("\n\\begin{bookproof}\n")

    def depart_admonition(self, node):
        """End the box or the proof `node`, which `visit_admonition` has begun."""
        if "proof" not in node["classes"]:
            return super().depart_admonition(node)
        self.body.append("\n\\end{bookproof}\n")


def skip_if_not_printed(node: nodes.Element) -> None:
    """Raise SkipNode, which leaves `node` out, if its class is "only-html" or, in the article, "only-book".

    These classes mark what only the HTML pages say, and what the book says in HTML and in print, but not the article.
    """
    if "only-html" in node["classes"] or ("only-book" in node["classes"] and is_paper()):
        raise nodes.SkipNode


def visit_statement(self, node):
    """Begin `node`, a theorem or another statement: write its kind, its number and its link target.

    `self` is the translator to LaTeX; the function becomes one of its methods.
    """
    number = number_of(self, node["countertype"], node["ids"][0])
    self.body.append(f"\n\\begin{{bookstatement}}{{{node['realtype'].title()}}}{{{number}}}")
    self.body.append(f"{{{self.hypertarget_to(node)}}}")
    self.no_latex_floats += 1


def depart_statement(self, node):
    """End the statement `node`, which `visit_statement` has begun.

    `self` is the translator to LaTeX; the function becomes one of its methods.
    """
    self.body.append("\\end{bookstatement}\n")
    self.no_latex_floats -= 1


class Arrange(SphinxPostTransform):
    """Arrange the book for LaTeX: first the landing page, as a chapter, and then the parts, each with its chapters.

    The table of contents says which chapters a part has. Without this class Sphinx would make all chapters sections of
    the landing page. The pages of the reference are left out.
    """

    default_priority = 1
    formats = ("latex",)

    def run(self, **kwargs):
        """If Sphinx writes the whole book, put the landing page first, as a chapter, and then the parts of the book.

        If Sphinx writes an article, which is a single page of the book, change nothing.
        """
        if is_paper():
            return
        for page in list(self.document.findall(addnodes.start_of_file)):
            if page["docname"].startswith(REFERENCE):
                page.parent.remove(page)
        book, root = self.document[0], self.config.root_doc
        toctrees = self.env.get_doctree(root).findall(addnodes.toctree)
        wrappers = list(toctrees_in(book))
        for wrapper in wrappers:
            wrapper.parent.remove(wrapper)
        front = nodes.section("", *book.children, ids=book["ids"], names=book["names"])
        book.children = []
        book += [front[0].deepcopy(), addnodes.start_of_file("", front, docname=root)]
        for toctree, wrapper in zip(toctrees, wrappers, strict=True):
            book += nodes.raw("", f"\\bookpart{{{toctree['caption']}}}\n", format="latex")
            book += wrapper.children
        del self.document["docname"]  # whose label the landing page has now


class PlaceBibliography(SphinxPostTransform):
    """Move the bibliography from the end of the book, where Sphinx puts it, to the page that has it in HTML."""

    default_priority = 760  # after Sphinx has gathered it
    formats = ("latex",)

    def run(self, **kwargs):
        """If Sphinx writes the whole book, move the bibliography from its end to the page that has it in HTML.

        If Sphinx writes an article, which is a single page of the book, change nothing.
        """
        for gathered in [] if is_paper() else list(self.document.findall(thebibliography)):
            pages = self.document.findall(addnodes.start_of_file)
            page = next(page for page in pages if page["docname"] == gathered[0]["docname"])
            gathered.parent.remove(gathered)
            page += gathered


class KeepWithin(SphinxPostTransform):
    """Replace each link to a page that is not printed by the text of the link, because it would lead nowhere.

    The article consists of a single page, and the book has all pages but those of the reference.
    """

    default_priority = 800  # when all references are resolved
    formats = ("latex",)

    def run(self, **kwargs):
        """Replace the links to pages that are not printed by their texts."""
        for link in list(self.document.findall(nodes.reference)):
            page = link.get("refuri", "").partition("#")[0]
            if page.startswith("%") and (page != f"%{PAPER}" if is_paper() else page.startswith(f"%{REFERENCE}")):
                link.parent.replace(link, link.children)


def is_paper() -> bool:
    """Return True if Sphinx writes the article, a single page of the book, and False if it writes the book."""
    return os.environ.get("BOOK_DOCUMENT") == "paper"


def reach_all(app):
    """If Sphinx writes the article, a single page of the book, give every page of the book an address.

    Without it, Sphinx does not find the texts of links to the other pages. `KeepWithin` later replaces the links by
    their texts. `app` is the Sphinx application.
    """
    if is_paper() and app.builder.name == "latex":
        app.builder.get_target_uri = lambda docname, typ=None: f"%{docname}"


def entitle(app, env):
    """If Sphinx writes the article, the page "The paper" alone, give it the title of this page instead of the book's.

    `app` is the Sphinx application, and `env` is Sphinx's environment, which has the titles of all pages.
    """
    if is_paper() and app.builder.name == "latex":
        ((page, file, _, *rest),) = app.config.latex_documents
        app.config.latex_documents = [(page, file, env.titles[page].astext(), *rest)]


def texts(row: nodes.row) -> list[str]:
    """Return a list of the texts of the cells in `row`, a row of a table."""
    return [entry.astext() for entry in row]


def toctrees_in(node: nodes.Element):
    """Yield the tables of contents of the page with the content `node`, without those of pages inserted into it.

    For LaTeX, Sphinx inserts all other pages of the book into the first page.
    """
    # searched from above, because the node of an inserted page does not know its parent
    for child in node.children:
        if isinstance(child, nodes.compound) and "toctree-wrapper" in child["classes"]:
            yield child
        elif not isinstance(child, addnodes.start_of_file):
            yield from toctrees_in(child)


def macros(config) -> str:
    """Return a text with LaTeX definitions of the commands that Sphinx's settings `config` define for MathJax."""
    lines = []
    for name, meaning in config.mathjax3_config["tex"]["macros"].items():
        text, arguments = meaning if isinstance(meaning, list) else (meaning, 0)
        lines.append(f"\\providecommand{{\\{name}}}{{}}\\renewcommand{{\\{name}}}[{arguments}]{{{text}}}")
    return "\n".join(lines)


def configure(app, config):
    """Set Sphinx's options for LaTeX in `config`, and add the files with the style of the book or of the article.

    The article is a single page of the book. `app`, the Sphinx application, is not used.
    """
    config.latex_elements = {
        "papersize": "a4paper",
        "pointsize": "11pt",
        "extraclassoptions": "openany,oneside",
        "fontpkg": "",
        "fncychap": "",
        "cmappkg": "",  # for another engine
        "preamble": "",
        "maketitle": "\\booktitlepage",
        "printindex": "",
        "makeindex": "",
        **config.latex_elements,
    }
    style = "paper" if is_paper() else "book"
    if is_paper():
        config.latex_documents = [(PAPER, "egm.tex", config.project, config.author, "howto")]
        config.latex_elements |= {"extraclassoptions": "", "maketitle": "\\papertitle", "tableofcontents": ""}
    # not `config.release`: after a change of it Sphinx would read all pages again
    version = f"\\newcommand{{\\bookversion}}{{Version {escape(os.environ.get('BOOK_RELEASE', ''), 'xelatex')}}}"
    config.latex_elements["preamble"] += f"\n{version}\n\\usepackage{{{style}}}\n" + macros(config)
    config.today_fmt = "%d %B %Y"
    config.latex_additional_files = [str(STYLES[name]) for name in ("base", style)]
    config.latex_domain_indices = False


def setup(app):
    """Connect this extension to `app`, the Sphinx application, with a translator to LaTeX in place of Sphinx's own.

    Return the properties of the extension. This extension must be loaded after sphinx-proof, because it replaces
    functions of sphinx-proof.
    """
    app.set_translator("latex", BookTranslator)
    app.add_post_transform(Arrange)
    app.add_post_transform(PlaceBibliography)
    app.add_post_transform(KeepWithin)
    app.connect("builder-inited", reach_all)
    app.connect("env-updated", entitle)
    app.connect("config-inited", configure, priority=900)
    for kind in [*NODE_TYPES.values(), unenumerable_node]:
        app.add_node(kind, override=True, latex=(visit_statement, depart_statement))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
