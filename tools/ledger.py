"""Compare the ledger with what the chapters find when they are executed.

The ledger has an entry for every statement of the sources (a claim) and for every error in print (a slip). The entries
are in `claims.yml` and `errata.yml` in the folder `ledger`. Each says what was found when somebody last looked, and
names the cell of a chapter that checks it. The cell records what it finds when it runs (`egm.study.claims.record`).
Here the entries and the records are compared. `tools.pages` makes the book's pages of them.

    python -m tools.ledger        execute what has changed, and list every disagreement
    python -m tools.ledger lock   after reading them: accept the statements and the checks as they are now
"""

import ast
import hashlib
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import nbformat
import yaml

from egm.study.claims import CORRECTED, FAILS, HOLDS
from tools.dataflow import dependencies
from tools.execute import ROOT, chapters, checks, execute_all

CITED = "cited, not checked"
COMPUTED = ("symbolic", "exact", "simulation")
UNCOMPUTED = ("cited", "reading")
SOURCES = ("report", "notes")
VERSIONS = ("draft", "3 January", "19 January", "20 January", "notes")
WEIGHTS = ("result", "proof", "wording")  # of a slip, the gravest first
FINAL = ("stands", "mended", "removed")  # what the report of 23 January did with a slip of an earlier version
LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the first is faster, and not everywhere
LABEL = re.compile(r"^(?::label: |\$\$ \()((?:definition|lemma|corollary|theorem|algorithm|report)(?:-\d+)+)\)?$", re.M)
LOCK = "# Digests of each statement and its check as they were last read; renewed by `python -m tools.ledger lock`.\n"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Entry of the ledger for a statement or an error in print: key, place in the source, and how it is checked."""

    id: str
    place: str
    kind: str
    cell: str | None = None
    also: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)

    @property
    def cells(self) -> list[str]:
        """Return the names of the cells of the check: first the one that records the result, then the others."""
        return [self.cell, *self.also] if self.cell else []


@dataclass(frozen=True, kw_only=True)
class Claim(Entry):
    """Entry for a statement of the report or of the lecture notes: its text, its first words there, and its result."""

    source: str
    section: str
    claim: str
    result: str
    correction: str = ""
    slips: list[str] = field(default_factory=list)
    test: str | None = None
    begins: str = ""


@dataclass(frozen=True, kw_only=True)
class Slip(Entry):
    """Entry for an error in print: what is printed, what it should be, what follows, and what the final report did.

    A slip with a headline is one of the ten that matter most.
    """

    versions: list[str]
    weight: str
    final: str | None = None
    printed: str
    correct: str
    why: str
    downstream: str
    headline: str = ""


@dataclass(frozen=True)
class Ledger:
    """All entries, the sources of all cells of the chapters, and the results that cells recorded, by entry."""

    root: Path
    claims: list[Claim]
    slips: list[Slip]
    cells: dict[str, str]
    findings: dict[str, dict]
    code: dict[str, dict[str, str]] = field(default_factory=dict)  # of each chapter, its code cells in their order

    @property
    def entries(self) -> list[Entry]:
        """Return the entries of all claims (statements), followed by those of all slips (errors in print)."""
        return [*self.claims, *self.slips]


def read(executed: dict[str, Path], root: Path = ROOT) -> Ledger:
    """Return the ledger of a project, with the results that its executed chapters recorded."""
    files = (root / "ledger" / name for name in ("claims.yml", "errata.yml"))
    claims, slips = (yaml.load(file.read_text(), LOADER) or [] for file in files)
    notebooks = {file.stem: nbformat.read(file, 4) for file in chapters(root)}
    cells = {f"{stem}#{cell.id}": cell.source for stem, book in notebooks.items() for cell in book.cells}
    code = {stem: sources(book) for stem, book in notebooks.items()}
    found: dict[str, dict] = {}
    for name, notebook in executed.items():
        for finding in json.loads(notebook.with_suffix(".json").read_text()):
            cell = f"{Path(name).stem}#{finding['cell']}"
            if earlier := found.get(finding["claim"]):
                raise ValueError(f"{finding['claim']} is recorded twice, in {earlier['cell']} and in {cell}")
            found[finding["claim"]] = finding | {"cell": cell}
    cells |= {f"{stem}#{cell}": source for stem, each in code.items() for cell, source in each.items()}
    ledger = Ledger(root, [Claim(**entry) for entry in claims], [Slip(**entry) for entry in slips], cells, found, code)
    carried = {
        (slip, found[claim.id]["cell"]): claim.id
        for claim in ledger.claims
        if claim.id in found
        for slip in claim.slips
    }
    for slip in ledger.slips:  # one without a record of its own is found with its claim, in the same cell
        if slip.id not in found and (slip.id, slip.cell) in carried:
            found[slip.id] = found[carried[slip.id, slip.cell]] | {"claim": slip.id}
    return ledger


def sources(chapter: nbformat.NotebookNode) -> dict[str, str]:
    """Return the code of each cell of a chapter by its id, with that of the hidden cell that records its results."""
    return {check.id: "\n".join(cell.source for cell in (check, record) if cell) for check, record in checks(chapter)}


def disagreements(ledger: Ledger, entry: Entry) -> list[str]:
    """Return messages about all differences of a ledger's entry from the chapters, the tests and other entries."""
    wrong = [f"there is no cell {cell}" for cell in entry.cells if cell not in ledger.cells]
    if entry.kind not in COMPUTED + UNCOMPUTED or bool(entry.cell) != (entry.kind in COMPUTED):
        wrong.append(f"kind {entry.kind} with the cell {entry.cell}")
    if entry.cell:
        wrong += differences(entry, ledger.findings.get(entry.id))
    return wrong + (of_claim(ledger, entry) if isinstance(entry, Claim) else of_slip(ledger, entry))


def differences(entry: Entry, finding: dict | None) -> list[str]:
    """Return messages about a recorded result that contradicts the cell, the result or the figures of its entry."""
    if finding is None:
        return [f"{entry.cell} records nothing under this key"]
    wrong = []
    if finding["cell"] != entry.cell:
        wrong.append(f"recorded by {finding['cell']}, not by {entry.cell}")
    if isinstance(entry, Claim) and finding["result"] != entry.result:
        wrong.append(f"the entry says {entry.result!r}, the cell found {finding['result']!r}")
    for name, written in entry.figures.items():
        computed = finding["figures"].get(name)
        if computed is None or not agrees(computed, written):
            wrong.append(f"the entry says {name} = {written}, the cell found {computed!r}")
    return wrong


def agrees(computed: float, written: str) -> bool:
    """Return whether a computed number is equal to a written one, to as many digits as are written."""
    unit = Decimal((0, (1,), Decimal(written).as_tuple().exponent))
    return abs(Decimal(computed) - Decimal(written)) <= unit * Decimal("0.501")


def of_claim(ledger: Ledger, claim: Claim) -> list[str]:
    """Return messages about wrong values in the fields that only the entry of a statement (claim) has."""
    wrong = [f"there is no slip {slip}" for slip in claim.slips if slip not in {entry.id for entry in ledger.slips}]
    if claim.source not in SOURCES:
        wrong.append(f"there is no source {claim.source}")
    if claim.result not in ((CITED,) if claim.kind == "cited" else (HOLDS, CORRECTED, FAILS)):
        wrong.append(f"kind {claim.kind} with the result {claim.result}")
    if bool(claim.correction) != (claim.result in (CORRECTED, FAILS)):
        wrong.append(f"result {claim.result} with the correction {claim.correction!r}")
    if claim.test and not test_exists(ledger.root, claim.test):
        wrong.append(f"there is no test {claim.test}")
    return wrong


def of_slip(ledger: Ledger, slip: Slip) -> list[str]:
    """Return messages about wrong values in the fields that only the entry of an error in print (slip) has."""
    wrong = [f"there is no version {version}" for version in slip.versions if version not in VERSIONS]
    if slip.weight not in WEIGHTS:
        wrong.append(f"there is no weight {slip.weight}")
    if slip.final not in ((None,) if slip.versions == ["notes"] else FINAL):
        wrong.append(f"versions {', '.join(slip.versions)} with the fate {slip.final} in the final report")
    result = ledger.findings.get(slip.id, {}).get("result")
    if result in (HOLDS, FAILS):
        wrong.append("the printed form holds" if result == HOLDS else "the corrected form is not computed")
    return wrong


def test_exists(root: Path, test: str) -> bool:
    """Return whether the test file in "file::name" exists and has a function of that name."""
    file, _, name = test.partition("::")
    tree = ast.parse((root / file).read_text() if (root / file).is_file() else "")
    return name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def strangers(ledger: Ledger) -> list[str]:
    """Return messages about recorded results, and numbered statements, that do not have exactly one entry."""
    known = Counter(entry.id for entry in ledger.entries)
    labels = {label for source in ledger.cells.values() for label in labels_of(source)}
    return [
        *(f"{key}: {times} entries" for key, times in known.items() if times > 1),
        *(f"{key}: {found['cell']} records it, no entry" for key, found in ledger.findings.items() if key not in known),
        *(f"{label}: stated in a chapter, no entry" for label in sorted(labels) if label not in known),
    ]


def labels_of(source: str) -> list[str]:
    """Return the keys, such as lemma-4-1, of the statements in a cell that have a number in the report."""
    return [label.replace("report-", "equation-") for label in LABEL.findall(source)]


def seal(ledger: Ledger, entry: Entry) -> str:
    """Return a digest of what the result of an entry depends on: its statement and all code of its check.

    The code of the check is that of its cells and, in the chapters of these cells, the parameters, every cell whose
    names they use directly or through other cells, and the imports.
    """
    names, imports = [*entry.cells], []
    for stem, _, cell in (name.partition("#") for name in entry.cells):
        if cell in ledger.code.get(stem, {}):
            found, lines = dependencies(ledger.code[stem], cell)
            names += [f"{stem}#{name}" for name in ["parameters", *found]]
            imports += lines
    names += [name for name in ledger.cells if entry.id in labels_of(ledger.cells[name])]
    texts = [ledger.cells.get(name, "") for name in dict.fromkeys(names)]
    return hashlib.sha256("\0".join([*texts, *sorted(set(imports))]).encode()).hexdigest()[:12]


def read_lock(root: Path = ROOT) -> dict[str, str]:
    """Return the accepted digests (see `seal`) by the keys of their entries."""
    lines = (root / "ledger" / "lock").read_text().splitlines()
    return dict(line.split() for line in lines if not line.startswith("#"))


def write_lock(ledger: Ledger) -> None:
    """Accept every entry of the ledger as it is now: write the digests of their checks into the file `ledger/lock`."""
    lines = sorted(f"{entry.id} {seal(ledger, entry)}\n" for entry in ledger.entries if entry.cell)
    (ledger.root / "ledger" / "lock").write_text(LOCK + "".join(lines))


def main() -> None:
    """Print all disagreements of the ledger with the chapters, or accept all entries (argument "lock")."""
    ledger = read(execute_all())
    if sys.argv[1:] == ["lock"]:
        return write_lock(ledger)
    wrong = [f"{entry.id}: {each}" for entry in ledger.entries for each in disagreements(ledger, entry)]
    sys.exit("\n".join(wrong + strangers(ledger)) or 0)


if __name__ == "__main__":
    main()
