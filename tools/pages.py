"""Write the ledger for readers of the book: lists for three pages, and links to the ledger below the checks.

The ledger lists the claims of the sources (their statements) and their slips (errors in print), each with the result of
a check in a chapter; see `tools.ledger`. The text of the three pages is in `book/claims.md`, `book/errata.md` and
`book/numbered.md`. The lists that these pages include are made here, from the results that the chapters found when they
were executed. Every code cell becomes a link target (`tools.sphinx.anchors`), so that an entry of a list can link to
it.
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
    "left": "10-left",
    "clip": "10-clip",
    "rivals": "11-ratio",
    "real": "12-real-searches",
}


def write(ledger: Ledger, folder: Path) -> None:
    """Write the lists of checked statements and of errors in print into a new folder, from which pages include them."""
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
    """Copy the figures of chapters that other pages show, too, in both vector formats."""
    for name, figure in FIGURES.items():
        for file in (saved / f"{figure}.{end}" for end in ("svg", "pdf")):
            if file.exists():
                shutil.copy(file, folder / f"{name}{file.suffix}")


def link_sources(notebook: nbformat.NotebookNode, chapter: str, folder: Path) -> nbformat.NotebookNode:
    """Save each figure of a chapter in all its formats, and add links to the files and the code to its caption.

    The files have the number of the chapter and the name of the cell. The changed notebook is returned.
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
            cell.metadata.mystnb.figure.caption += f' <span class="figure-source">Source: {links}.</span>'
    return notebook


def count_claims(ledger: Ledger) -> str:
    """Return a table with the number of claims (checked statements) in each source, by kind and result of the check."""
    report, notes = ([claim for claim in ledger.claims if claim.source == name] for name in SOURCES)
    tests = {"statements": lambda claim: True, "checked by computing": lambda claim: claim.kind in COMPUTED}
    tests |= {f"– {KINDS[kind].lower()}": lambda claim, kind=kind: claim.kind == kind for kind in COMPUTED}
    tests |= {result: lambda claim, result=result: found(ledger, claim) == result for result in RESULTS}
    rows = [
        (name, *(sum(map(test, claims)) for claims in (report, notes, ledger.claims))) for name, test in tests.items()
    ]
    return simple_table(("", "Report", "Notes", "Both"), rows)


def count_slips(ledger: Ledger) -> str:
    """Return a table with the number of slips (errors in print) in each version of the report and in the notes.

    The columns count the slips by weight, those that a cell demonstrates, and those that stand, are mended or are
    removed in the final report.
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
    """Return a Markdown table: names in its first column, and numbers, or texts if `side` is ":--", in the others."""
    lines = [header, (":--", *[side] * (len(header) - 1)), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def list_claims(ledger: Ledger) -> str:
    """Return the list of all claims (checked statements) with their results, by source and section, in their order."""
    parts = []
    for source, name in SOURCES.items():
        parts.append(f"## {name}\n")
        claims = [claim for claim in ledger.claims if claim.source == source]
        for section, members in groupby(claims, key=lambda claim: claim.section):
            group = list(members)
            rows = [(statement(ledger, claim), check(ledger, claim)) for claim in group]
            results = Counter(found(ledger, claim) for claim in group)
            title = ", ".join(f"{results[result]} {SHORT[result]}" for result in RESULTS if results[result])
            parts.append(f"### {heading(section)}\n\n" + fold(title, table(("Statement", "Check"), rows, "67 33")))
    return "\n".join(parts)


def list_failures(ledger: Ledger) -> str:
    """Return the list of the claims (checked statements) that do not hold, each with what is true instead."""
    failed = [claim for claim in ledger.claims if found(ledger, claim) == FAILS]
    return "".join(f"- **{reference(claim)}.** {claim.claim} *Instead:* {claim.correction}\n" for claim in failed)


def list_numbered(ledger: Ledger) -> str:
    """Return a table of the statements, figures and equations that have a number in the report.

    Each row has the number in the report, a link to the place in the book, and the result of the check.
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


def heading(section: str) -> str:
    """Return the title of a section of a source: "Section" or "Appendix", and its number or letter."""
    return ("Section " if section[0].isdigit() else "Appendix ") + section


def list_headlines(ledger: Ledger) -> str:
    """Return the list of the slips (errors in print) that have a headline, with one line for each."""
    chosen = [slip for slip in ledger.slips if slip.headline]
    return "".join(f"1. **{reference(slip)}.** {slip.headline} *{FINAL[slip.final]}.*\n" for slip in chosen)


def list_slips(ledger: Ledger) -> str:
    """Return the list of all slips (errors in print), by the last version that prints them and by their weight.

    The slips of one version and weight are in a folded box. The gravest weight comes first.
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
    """Return Markdown for a box with this title and content that is closed until a reader opens it."""
    return f":::::{{dropdown}} {title}\n:class-container: entries\n\n{content}:::::\n"


def table(header: Iterable[str], rows: Iterable[Iterable[str]], widths: str) -> str:
    """Return Markdown for a table whose cells may hold several paragraphs."""
    lines = ["::::{list-table}", ":header-rows: 1", ":class: ledger", f":widths: {widths}", ""]
    for row in [header, *rows]:
        for marks, cell in zip(("* - ", *["  - "] * 9), row, strict=False):
            lines.append(marks + cell.replace("\n", "\n    "))
    return "\n".join([*lines, "::::", ""])


def statement(ledger: Ledger, claim: Claim) -> str:
    """Return the Markdown for a claim (checked statement): link target, text, correction or what is true instead."""
    begins = f" *“{claim.begins} …”*" if claim.begins else ""
    paragraphs = [f"({target(claim)})=\n**{claim.place}.**{begins} {claim.claim}"]
    if claim.correction:
        paragraphs.append(f"*{'Correction' if claim.result == CORRECTED else 'Instead'}:* {claim.correction}")
    if slips := [slip for slip in ledger.slips if slip.id in claim.slips]:
        paragraphs.append("*Slips:* " + ", ".join(map(reference, slips)))
    return "\n\n".join(paragraphs)


def where(slip: Slip) -> str:
    """Return the Markdown for the place of a slip, an error in print.

    It has a link target, the place, the versions that print it, its weight, and what the final report did with it.
    """
    lines = [f"({target(slip)})=\n**{slip.place}**", ", ".join(slip.versions), f"*{WEIGHT[slip.weight]}*"]
    return "\n\n".join([*lines, FINAL[slip.final]] if slip.final else lines)


def correction(slip: Slip) -> str:
    """Return the Markdown for a slip, an error in print: what is printed, what must be read, why, and what follows."""
    return f"*Printed:* {slip.printed}\n\n*Read:* {slip.correct}\n\n*Why:* {slip.why}\n\n*Later:* {slip.downstream}"


def check(ledger: Ledger, entry: Entry) -> str:
    """Return the Markdown for the check of a statement or of an error in print: result, method, and links to cells."""
    lines = [KINDS[entry.kind]]
    if entry.cell:
        lines[0] += ": " + "; ".join(links(entry.cells))
        lines.insert(0, verdict(ledger, entry))
    if getattr(entry, "test", None):
        lines.append(f"Also a test, `{entry.test.partition('::')[0].rpartition('/')[2]}`")
    return "\n\n".join(lines)


def verdict(ledger: Ledger, entry: Entry) -> str:
    """Return, in Markdown, a short sentence with the result of the check of a statement or of an error in print."""
    result = found(ledger, entry)
    if isinstance(entry, Slip):
        text = "As printed: fails." + (" As corrected: holds." if result == CORRECTED else "")
    else:
        text = result[0].upper() + result[1:] + "."
    figures = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in entry.figures.items())
    return f"[{text}]{{.{result.replace(' ', '-')}}}" + (f"\n\nFigures: {figures}" if figures else "")


def found(ledger: Ledger, entry: Entry) -> str:
    """Return the result that the cell of an entry of the ledger recorded, or "cited, not checked" without a cell."""
    return ledger.findings[entry.id]["result"] if entry.cell else CITED


def target(entry: Entry) -> str:
    """Return the label by which links reach an entry of the ledger on its page."""
    return f"ledger-{entry.id}"


def reference(entry: Entry, text: str = "") -> str:
    """Return a link to an entry of the ledger; its text is by default the place of the statement in its source."""
    return f"{{ref}}`{text or plain(entry.place)} <{target(entry)}>`"


def stated(claim: Claim, kind: str) -> str:
    """Return a link to the place in the book where a numbered statement of the report is."""
    if kind == "Figure":
        return f"{{numref}}`{DRAWN[claim.id]}`"
    return f"{{eq}}`report-{claim.id.partition('-')[2]}`" if kind == "Equation" else f"{{prf:ref}}`{claim.id}`"


def plain(place: str) -> str:
    """Return the name of a place without the marks of TeX, because the text of a link cannot hold formulas."""
    return re.sub(r"\\mathcal |[${}]", "", place)


def links(cells: list[str]) -> Iterable[str]:
    """Yield, for each chapter that has some of these cells, its number and links to the cells."""
    for chapter, members in groupby(cells, key=lambda cell: cell.partition("#")[0]):
        named = (f"{{ref}}`{name} <{anchor(chapter, name)}>`" for name in (cell.partition("#")[2] for cell in members))
        yield f"{numbered(chapter)}, {', '.join(named)}"


def numbered(chapter: str) -> str:
    """Return "chapter 2" or "appendix B" for the file name of a chapter, or for a cell of it."""
    number = chapter.partition("-")[0]
    return f"chapter {int(number)}" if number.isdigit() else f"appendix {number}"


def link_findings(notebook: nbformat.NotebookNode, ledger: Ledger, chapter: str) -> nbformat.NotebookNode:
    """Make every code cell of a chapter a link target, and show recorded results of checks as links to the ledger.

    The ledger lists all checked statements and errors in print. The changed notebook is returned.
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
    """Return the output that shows the results of these entries: in HTML a sign for each, in Markdown a line of text.

    Each sign is a link to the ledger's entry of a statement or an error, and shows its name when the pointer is on it.
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
