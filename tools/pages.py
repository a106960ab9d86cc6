"""Write the ledger into the book: lists for three pages, and a link from each result in a chapter to its entry.

The ledger lists the statements of the sources (claims) and their errors in print (slips), each with the result of a
check in a chapter; see `tools.ledger`. The sources are Poulsen's report and Chan's lecture notes. The text of the three
pages is in `book/claims.md`, `book/errata.md` and `book/numbered.md`. The lists that these pages include are made here,
from the results that the chapters recorded when they were executed. Every code cell becomes a link target
(`tools.sphinx.anchors`), so that an entry of a list can link to it.
"""

import html
import re
import shutil
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import nbformat

from egm.study.claims import CORRECTED, FAILS, HOLDS, MIME
from tools.ledger import CITED, COMPUTED, VERSIONS, WEIGHTS, Claim, Entry, Ledger, Slip, labels_of
from tools.sphinx.anchors import anchor

KINDS = {
    "symbolic": "By algebra",
    "exact": "By calculation",
    "simulation": "By simulation",
    "cited": "Not checked",
    "reading": "By reading",
}
RESULTS = (HOLDS, CORRECTED, FAILS, CITED)
MARKS = {HOLDS: "✓", CORRECTED: "✎", FAILS: "✗"}
SHORT = {HOLDS: "hold", CORRECTED: "hold with correction", FAILS: "do not hold", CITED: "are cited, not checked"}
NUMBERED = ("Definition", "Lemma", "Corollary", "Theorem", "Algorithm", "Figure", "Equation")
SOURCES = {"report": "The report of 20 January 2023", "notes": "The lecture notes of 27 May 2012"}
PRINTS = {"20 January": "In the report of 20 January", "notes": "In the lecture notes"}
EARLIER = "Only in earlier versions"
WEIGHT = {"result": "Changes a result", "proof": "Repairs a proof or a formula", "wording": "Wording"}
FINAL = {"stands": "Stands in the final report", "mended": "Mended in the final report"}
FINAL |= {"removed": "Not in the final report, which has no such passage"}
DRAWN = {"figure-1": "fig-zipf", "figure-2": "fig-report-figure-2"}  # the report's figures in the book
FIGURES = {  # name on the page of the paper: file that `link_sources` saves
    "improvement": "08-improvement",
    "report": "08-report-figure-2",
    "below": "15-below",
    "clip": "10-clip",
    "rivals": "11-ratio",
    "real": "12-real-searches",
}


def write(ledger: Ledger, folder: Path) -> None:
    """Write lists of the statements and of the errors in print as Markdown files into `folder`, which must not exist.

    `ledger` has the statements, the errors and the results of their checks. The pages of the book include these files.
    """
    parts = {
        "claims-counted": count_claims,
        "claims-failed": list_failures,
        "claims-listed": list_claims,
        "errata-counted": count_slips,
        "errata-headlines": list_headlines,
        "errata-listed": list_slips,
        "numbered": list_numbered,
    }
    folder.mkdir(parents=True)
    for name, part in parts.items():
        (folder / f"{name}.md").write_text(part(ledger))


def copy_figures(saved: Path, folder: Path) -> None:
    """Copy the figures that the page "The paper" shows from the folder `saved` to `folder`, each as SVG and as PDF.

    The folder `saved` has the figures of all chapters.
    """
    for name, figure in FIGURES.items():
        for file in (saved / f"{figure}.{end}" for end in ("svg", "pdf")):
            if file.exists():
                shutil.copy(file, folder / f"{name}{file.suffix}")


def link_sources(notebook: nbformat.NotebookNode, chapter: str, folder: Path) -> nbformat.NotebookNode:
    """Save each figure of a chapter in `folder`, add links to its caption, and return the chapter.

    `notebook` is the executed chapter, which is changed, and `chapter` is its file name. The links lead to the figure
    as SVG and PDF, to its numbers as CSV, and to the code cell that draws it.
    """
    for cell in notebook.cells:
        for data in [out["data"] for out in cell.get("outputs", ()) if "text/csv" in out.get("data", {})]:
            name = f"{chapter.partition('-')[0]}-{cell.id.removeprefix('fig-')}"
            (folder / f"{name}.svg").write_text(data["image/svg+xml"])
            (folder / f"{name}.pdf").write_bytes(b64decode(data["application/pdf"]))
            (folder / f"{name}.csv").write_text(data.pop("text/csv"))
            places = {"code": f"#{anchor(chapter, cell.id)}"}
            places |= {end.upper(): f"../figures/{name}.{end}" for end in ("csv", "svg", "pdf")}
            links = ", ".join(f'<a href="{place}">{text}</a>' for text, place in places.items())
            cell.metadata.mystnb.figure.caption += f" [Source: {links}.]{{.figure-source .only-html}}"
    return notebook


def count_claims(ledger: Ledger) -> str:
    """Return a Markdown table that counts statements (claims) in Poulsen's report, in the lecture notes, and in both.

    The rows count all statements of `ledger`, those checked by computing, those checked by each kind of computing (such
    as simulation), and those with each result (such as "holds").
    """
    report, notes = ([claim for claim in ledger.claims if claim.source == name] for name in SOURCES)
    tests = {"statements": lambda claim: True, "checked by computing": lambda claim: claim.kind in COMPUTED}
    tests |= {f"– {KINDS[kind].lower()}": lambda claim, kind=kind: claim.kind == kind for kind in COMPUTED}
    tests |= {result: lambda claim, result=result: found(ledger, claim) == result for result in RESULTS}
    rows = [
        (name, *(sum(map(test, claims)) for claims in (report, notes, ledger.claims))) for name, test in tests.items()
    ]
    return simple_table(("", "Report", "Notes", "Both"), rows)


def count_slips(ledger: Ledger) -> str:
    """Return a Markdown table that counts the errors in print (slips) of `ledger`, with one row for each version.

    The versions are those of Poulsen's report, and the lecture notes. The columns count the errors of each weight (how
    serious they are), those that a notebook cell demonstrates, and those that the final version of the report still
    has, has corrected, or has removed. Several versions can have the same error, so a last row counts each error once.
    """
    versions = {version: [slip for slip in ledger.slips if version in slip.versions] for version in VERSIONS}
    rows = [
        (
            name,
            len(slips),
            *(sum(slip.weight == weight for slip in slips) for weight in WEIGHTS),
            sum(slip.kind in COMPUTED for slip in slips),
            *(sum(slip.final == fate for slip in slips) if name != "notes" else "–" for fate in FINAL),
        )
        for name, slips in (versions | {"all, each counted once": ledger.slips}).items()
    ]
    return simple_table(
        ("Version", "Slips", *map(str.capitalize, WEIGHTS), "Computed", "Stand", "Mended", "Gone"), rows
    )


def simple_table(header: tuple, rows: Iterable[tuple], side: str = "--:") -> str:
    """Return a Markdown table with names in the first column, and numbers or short texts in the other columns.

    `header` has the titles of the columns, and `rows` has a tuple for each row. `side` aligns all columns but the
    first: "--:" to the right, for numbers, and ":--" to the left, for texts.
    """
    lines = [header, (":--", *[side] * (len(header) - 1)), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def list_claims(ledger: Ledger) -> str:
    """Return, in Markdown, all statements (claims) in `ledger`, with the results of their checks.

    There is a box for each section of Poulsen's report, and then for each section of the lecture notes. A box is closed
    until a reader opens it.
    """
    parts = []
    for source, name in SOURCES.items():
        parts.append(f"## {name}\n")
        claims = [claim for claim in ledger.claims if claim.source == source]
        for section, members in groupby(claims, key=lambda claim: claim.section):
            group = list(members)
            rows = [(statement(ledger, claim), check(ledger, claim)) for claim in group]
            results = Counter(found(ledger, claim) for claim in group)
            title = ", ".join(f"{results[result]} {SHORT[result]}" for result in RESULTS if results[result])
            kind = "Section" if section[0].isdigit() else "Appendix"  # begins with a number, or with a letter
            parts.append(f"### {kind} {section}\n\n" + fold(title, table(("Statement", "Check"), rows, "67 33")))
    return "\n".join(parts)


def list_failures(ledger: Ledger) -> str:
    """Return, in Markdown, the checked statements (claims) of `ledger` that do not hold, and what is true instead."""
    failed = [claim for claim in ledger.claims if found(ledger, claim) == FAILS]
    return "".join(f"- **{reference(claim)}.** {claim.claim} *Instead:* {claim.correction}\n" for claim in failed)


def list_numbered(ledger: Ledger) -> str:
    """Return a Markdown table of the statements, figures and equations that have a number in Poulsen's report.

    Each row has the number, a link to the place where the book states it, and the result of its check, such as "holds".
    `ledger` has the results.
    """
    rows = []
    for kind in NUMBERED:
        named = re.compile(rf"{kind.lower()}-[\d-]+")
        for claim in (claim for claim in ledger.claims if named.fullmatch(claim.id)):
            name = f"{kind} {claim.id.partition('-')[2].replace('-', '.')}"
            chapter = next((cell for cell, text in ledger.cells.items() if claim.id in labels_of(text)), claim.cell)
            here = f"{stated(claim, kind)}, {numbered(chapter)}"
            rows.append((name, here, f"`{MARKS[claim.result]}` {reference(claim, claim.result)}"))
    return simple_table(("In the report", "Here", "Verdict"), rows, ":--")


def list_headlines(ledger: Ledger) -> str:
    """Return, in Markdown, a numbered list of the most important errors in print (slips) of `ledger`.

    These are the errors whose entries have a headline.
    """
    chosen = [slip for slip in ledger.slips if slip.headline]
    return "".join(f"1. **{reference(slip)}.** {slip.headline} *{FINAL[slip.final]}.*\n" for slip in chosen)


def list_slips(ledger: Ledger) -> str:
    """Return, in Markdown, all errors in print (slips) of `ledger`, in groups for the texts that print them.

    The groups are the errors in the report of 20 January 2023, those in the lecture notes, and those in earlier
    versions of the report only. A group has a box for each weight, which says how serious an error is; the box of the
    most serious errors comes first. A box is closed until a reader opens it.
    """
    parts = []
    for name in (*PRINTS.values(), EARLIER):
        slips = [slip for slip in ledger.slips if PRINTS.get(slip.versions[-1], EARLIER) == name]
        for weight in WEIGHTS:
            rows = [(where(s), correction(s), check(ledger, s)) for s in slips if s.weight == weight]
            if rows and f"## {name}\n" not in parts:
                parts.append(f"## {name}\n")
            if rows:
                title = f"{WEIGHT[weight]}: {len(rows)}"
                parts.append(fold(title, table(("Where", "Slip", "Check"), rows, "20 52 28")))
    return "\n".join(parts)


def fold(title: str, content: str) -> str:
    """Return Markdown for a box, closed until a reader opens it, with the title `title` and the Markdown `content`."""
    return f":::::{{dropdown}} {title}\n:class-container: entries\n\n{content}:::::\n"


def table(header: Iterable[str], rows: Iterable[Iterable[str]], widths: str) -> str:
    """Return Markdown for a table whose cells may hold several paragraphs.

    `header` has the titles of the columns, and `rows` has the texts of the cells in each row. `widths` is a text with
    the relative widths of the columns, such as "67 33".
    """
    lines = ["::::{list-table}", ":header-rows: 1", ":class: ledger", f":widths: {widths}", ""]
    for row in [header, *rows]:
        for marks, cell in zip(("* - ", *["  - "] * 9), row, strict=False):
            lines.append(marks + cell.replace("\n", "\n    "))
    return "\n".join([*lines, "::::", ""])


def statement(ledger: Ledger, claim: Claim) -> str:
    """Return Markdown for a statement of Poulsen's report or the lecture notes, with a correction if there is one.

    `claim` is the statement. The Markdown has a link target, the place where the statement is printed, its text, the
    correction, and links to the errors in print (slips) that belong to the statement. `ledger` has these errors.
    """
    begins = f" *“{claim.begins} …”*" if claim.begins else ""
    paragraphs = [f"({target(claim)})=\n**{claim.place}.**{begins} {claim.claim}"]
    if claim.correction:
        paragraphs.append(f"*{'Correction' if claim.result == CORRECTED else 'Instead'}:* {claim.correction}")
    if slips := [slip for slip in ledger.slips if slip.id in claim.slips]:
        paragraphs.append("*Slips:* " + ", ".join(map(reference, slips)))
    return "\n\n".join(paragraphs)


def where(slip: Slip) -> str:
    """Return a Markdown text that says where the error `slip` is printed, and begins with a link target.

    The text has the place, such as "Lemma 4.1", the versions that print the error, how serious it is, and, for an error
    in Poulsen's report, whether the final version of the report still has it.
    """
    lines = [f"({target(slip)})=\n**{slip.place}**", ", ".join(slip.versions), f"*{WEIGHT[slip.weight]}*"]
    return "\n\n".join([*lines, FINAL[slip.final]] if slip.final else lines)


def correction(slip: Slip) -> str:
    """Return a Markdown text about the error in print `slip`: what is printed, what is right, why, and what follows."""
    return f"*Printed:* {slip.printed}\n\n*Read:* {slip.correct}\n\n*Why:* {slip.why}\n\n*Later:* {slip.downstream}"


def check(ledger: Ledger, entry: Entry) -> str:
    """Return, in Markdown, how `entry` was checked: the result, the method, and links to the notebook cells.

    `entry` is a statement or an error in print, and `ledger` has the recorded results.
    """
    lines = [KINDS[entry.kind]]
    if entry.cell:
        lines[0] += ": " + "; ".join(links(entry.cells))
        lines.insert(0, verdict(ledger, entry))
    if getattr(entry, "test", None):
        lines.append(f"Also a test, `{entry.test.partition('::')[0].rpartition('/')[2]}`")
    return "\n\n".join(lines)


def verdict(ledger: Ledger, entry: Entry) -> str:
    """Return a short sentence, in Markdown, that says what the check of `entry` found.

    An entry is a claim, or an error in a printed source. The numbers that the check must find, if there are any, are
    listed below the sentence. `ledger` has the result that the check recorded.
    """
    result = found(ledger, entry)
    if isinstance(entry, Slip):
        text = "As printed: fails." + (" As corrected: holds." if result == CORRECTED else "")
    else:
        text = result[0].upper() + result[1:] + "."
    figures = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in entry.figures.items())
    return f"[{text}]{{.{result.replace(' ', '-')}}}" + (f"\n\nFigures: {figures}" if figures else "")


def found(ledger: Ledger, entry: Entry) -> str:
    """Return the result, such as "holds", that a notebook cell recorded for `entry`, a statement or an error in print.

    If no cell checks the entry, return "cited, not checked". `ledger` has the recorded results.
    """
    return ledger.findings[entry.id]["result"] if entry.cell else CITED


def target(entry: Entry) -> str:
    """Return the label by which other pages can link to `entry`, a checked statement or an error in print."""
    return f"ledger-{entry.id}"


def reference(entry: Entry, text: str = "") -> str:
    """Return Markdown for a link to `entry`, a statement or an error in print, on the page of the book that lists it.

    The words of the link are `text` or, by default, say where the statement or the error is printed: "Lemma 4.1".
    """
    return f"{{ref}}`{text or plain(entry.place)} <{target(entry)}>`"


def stated(claim: Claim, kind: str) -> str:
    """Return Markdown for a link to the place in the book where the statement `claim` of Poulsen's report appears.

    `kind` is the kind of the statement, such as "Lemma".
    """
    if kind == "Figure":
        return f"{{numref}}`{DRAWN[claim.id]}`"
    return f"{{eq}}`report-{claim.id.partition('-')[2]}`" if kind == "Equation" else f"{{prf:ref}}`{claim.id}`"


def plain(place: str) -> str:
    """Return `place`, a text that says where a statement is printed, without TeX's marks for formulas, such as "$".

    For "Algorithm 3, input $p_C$" it is "Algorithm 3, input p_C". The words of a link cannot contain such marks.
    """
    return re.sub(r"\\mathcal |[${}]", "", place)


def links(cells: list[str]) -> Iterable[str]:
    """Yield, for each chapter that has some of `cells`, a Markdown text with its number and links to these cells.

    `cells` are names such as "05-lagrangian#hessian"; those of one chapter must follow each other.
    """
    for chapter, members in groupby(cells, key=lambda cell: cell.partition("#")[0]):
        named = (f"{{ref}}`{name} <{anchor(chapter, name)}>`" for name in (cell.partition("#")[2] for cell in members))
        yield f"{numbered(chapter)}, {', '.join(named)}"


def numbered(chapter: str) -> str:
    """Return a text such as "chapter 2" or "appendix B" for the notebook `chapter`.

    `chapter` is the file name of the notebook, or the full name of a cell, which begins with the file name.
    """
    number = chapter.partition("-")[0]
    return f"chapter {int(number)}" if number.isdigit() else f"appendix {number}"


def link_findings(notebook: nbformat.NotebookNode, ledger: Ledger, chapter: str) -> nbformat.NotebookNode:
    """Make every code cell of a chapter a link target, replace recorded results by links, and return the chapter.

    `notebook` is the executed chapter, which is changed, and `chapter` is its file name. A recorded result is the
    result of a check of a statement or an error in print, and its link leads to the entry of `ledger` for it, on a page
    of the book. All other outputs stay.
    """
    entries = {entry.id: entry for entry in ledger.entries}
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.metadata["anchor"] = anchor(chapter, cell.id)
        recorded = [out.data[MIME]["claim"] for out in cell.outputs if MIME in out.get("data", {})]
        if recorded:
            data = marks(ledger, [entries[claim] for claim in recorded])
            others = [out for out in cell.outputs if MIME not in out.get("data", {})]
            cell.outputs = [*others, nbformat.v4.new_output("display_data", data)]
    return notebook


def marks(ledger: Ledger, entries: list[Entry]) -> dict[str, str]:
    """Return the output of a notebook cell that shows the results of `entries`, as a dictionary with HTML and Markdown.

    `entries` are statements or errors in print, and `ledger` has their recorded results. In HTML, each entry is shown
    as a sign, such as a check mark. The sign is a link to the entry, and shows where the statement or error is printed,
    and its result, when the pointer is on the sign.
    """
    links, lines = [], []
    for entry in entries:
        result = found(ledger, entry)
        page, name = ("errata" if isinstance(entry, Slip) else "claims"), html.escape(plain(entry.place))
        where = f'href="../book/{page}.html#{target(entry)}" title="{name}: {result}" aria-label="{name}: {result}"'
        links.append(f'<a class="finding {result.replace(" ", "-")}" {where}>{MARKS[result]}</a>')
        lines.append(f"{reference(entry)} {result}")
    return {
        "text/html": f'<p class="findings">{" ".join(links)}</p>',
        "text/markdown": f"```{{div}} finding\nLedger: {'; '.join(lines)}.\n```",
    }
