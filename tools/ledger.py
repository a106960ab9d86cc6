"""Compare the ledger with the results that the chapters (notebooks) record when they are executed.

The sources that the book checks are Poulsen's report and Chan's lecture notes. The ledger has an entry for every
statement of the sources (a claim) and for every error in print (a slip). The entries are in `claims.yml` and
`errata.yml` in the folder `ledger`. Each entry says what was found when somebody last looked, and names the cell of a
chapter that checks it. The cell records its result when it is executed (`egm.study.claims.record`). Here the entries
are compared with the recorded results. `tools.pages` writes both into pages of the book.

    python -m tools.ledger        execute what has changed, and list every disagreement
    python -m tools.ledger lock   after reading the list: accept the statements and the checks as they are now
"""

import argparse
import ast
import hashlib
import json
import math
import re
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import get_origin

import nbformat
import yaml

from egm.study.claims import CORRECTED, FAILS, HOLDS
from tools import execute
from tools.dataflow import dependencies
from tools.execute import ROOT, BookError, chapters, checks, ending, execute_all

CITED = "cited, not checked"
COMPUTED = ("symbolic", "exact", "simulation")
UNCOMPUTED = ("cited", "reading")
SOURCES = ("report", "notes")
VERSIONS = ("draft", "3 January", "19 January", "20 January", "notes")
WEIGHTS = ("result", "proof", "wording")  # of a slip, the gravest first
FINAL = ("stands", "mended", "removed")  # what the report of 23 January did with a slip of an earlier version
LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the first is faster, and not everywhere
TYPES = {str: "text", list: "list", dict: "mapping"}  # of a field's value, in words
LABEL = re.compile(r"^(?::label: |\$\$ \()((?:definition|lemma|corollary|theorem|algorithm|report)(?:-\d+)+)\)?$", re.M)
SILENT = "{cell} records nothing under this key"
LOCK = "# Digests of each entry, its statement and check as last read; renewed by `python -m tools.ledger lock`.\n"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Hold an entry of the ledger: a statement or an error in print, where it is printed, and how it is checked.

    The ledger lists all statements and all errors in print of the two sources that the book checks: Poulsen's report
    and the lecture notes.
    """

    id: str  # the entry's key
    place: str  # in Poulsen's report or the lecture notes
    kind: str  # of the check, such as "symbolic"
    cell: str | None = None  # name of the notebook cell that records the result
    also: list[str] = field(default_factory=list)  # further cells of the check
    figures: dict[str, str] = field(default_factory=dict)  # numbers that the check must find, as texts, by their names

    @property
    def cells(self) -> list[str]:
        """Return the names of the notebook cells that check the entry; the first one records the result.

        The list is empty if no cell checks the entry.
        """
        return [self.cell, *self.also] if self.cell else []


@dataclass(frozen=True, kw_only=True)
class Claim(Entry):
    """Hold a statement of Poulsen's report or the lecture notes (a claim), and the result of its check.

    It is read from `ledger/claims.yml`. The result, such as "holds", is the one that the check gave when somebody last
    looked; without a check it is "cited, not checked".
    """

    source: str  # "report" or "notes"
    section: str  # of the source
    claim: str  # what the statement says
    result: str  # what the check found when somebody last looked
    correction: str = ""  # what holds instead, if the statement does not hold as printed
    slips: list[str] = field(default_factory=list)  # keys of errors in print that belong to the statement
    test: str | None = None  # a test, as "file::name"
    begins: str = ""  # the first words of the statement in the source


@dataclass(frozen=True, kw_only=True)
class Slip(Entry):
    """Hold an error in print (a slip): what is printed, what is correct, why, and the consequences of the error.

    It is read from `ledger/errata.yml`. The error is in a version of Poulsen's report, or in the lecture notes.
    """

    versions: list[str]  # of Poulsen's report, or the lecture notes, that print the error
    weight: str  # how serious the error is
    final: str | None = None  # what the final report did with it
    printed: str
    correct: str
    why: str
    downstream: str  # what follows from the error
    headline: str = ""  # of each of the nine errors that matter most


@dataclass(frozen=True)
class Ledger:
    """Hold all entries of the ledger, the notebook cells that check them, and the recorded results of the checks.

    An entry is a statement of Poulsen's report or the lecture notes (a claim), or an error in print there (a slip). The
    entries are read from the folder `ledger`.
    """

    root: Path
    claims: list[Claim]
    slips: list[Slip]
    cells: dict[str, str]  # from the name of a cell, such as "05-lagrangian#hessian", to its code
    findings: dict[str, dict]  # from the key of an entry to the recorded result
    code: dict[str, dict[str, str]] = field(default_factory=dict)  # of each chapter, its code cells in their order

    @property
    def entries(self) -> list[Entry]:
        """Return a list of the entries of all statements (claims), followed by those of all errors in print (slips)."""
        return [*self.claims, *self.slips]


def read(executed: dict[str, Path], root: Path = ROOT) -> Ledger:
    """Return the `Ledger` of a project: its statements and errors in print, and the results that its chapters recorded.

    `executed` has the path of each executed chapter (notebook) by its file name. `root` is the main folder of the
    project. If one cell checks a statement and an error in print that belongs to it, and records a result only for the
    statement, the error gets this result, too. If two cells record a result for one entry, raise a BookError.
    """
    claims, slips = entries(root / "ledger" / "claims.yml", Claim), entries(root / "ledger" / "errata.yml", Slip)
    notebooks = {file.stem: execute.read(file) for file in chapters(root)}
    cells = {f"{stem}#{cell.id}": cell.source for stem, book in notebooks.items() for cell in book.cells}
    code = {stem: sources(book) for stem, book in notebooks.items()}
    found: dict[str, dict] = {}
    for name, notebook in executed.items():
        for finding in json.loads(notebook.with_suffix(".json").read_text()):
            cell = f"{Path(name).stem}#{finding['cell']}"
            if earlier := found.get(finding["claim"]):
                raise BookError(f"{finding['claim']} is recorded twice, in {earlier['cell']} and in {cell}")
            found[finding["claim"]] = finding | {"cell": cell}
    cells |= {f"{stem}#{cell}": source for stem, each in code.items() for cell, source in each.items()}
    ledger = Ledger(root, claims, slips, cells, found, code)
    checked = [claim for claim in ledger.claims if claim.id in found]
    carried = {(slip, found[claim.id]["cell"]): claim.id for claim in checked for slip in claim.slips}
    for slip in ledger.slips:  # one without a record of its own is found with its claim, in the same cell
        if slip.id not in found and (slip.id, slip.cell) in carried:
            found[slip.id] = found[carried[slip.id, slip.cell]] | {"claim": slip.id}
    return ledger


def entries(file: Path, kind: type[Entry]) -> list:
    """Return the list of the entries in a file of the ledger, each as an object of the class `kind`: Claim or Slip.

    If `file` is not YAML, or an entry has a field that is unknown, missing or of a wrong type, raise a BookError.
    """
    try:
        found = yaml.load(file.read_text(), LOADER) or []
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BookError(f"ledger/{file.name} is not valid YAML: {' '.join(str(error).split())}") from error
    for number, entry in enumerate(found, start=1):
        if wrong := wrong_fields(entry, kind):
            key = entry.get("id") if isinstance(entry, dict) else None
            raise BookError(f"ledger/{file.name}, entry {number} with id {key}: {', '.join(wrong)}")
    return [kind(**entry) for entry in found]


def wrong_fields(entry: object, kind: type[Entry]) -> list[str]:
    """Return messages about the fields of `entry`, as it was read from a file, that do not fit the class `kind`."""
    if not isinstance(entry, dict):
        return ["it has no fields"]
    known = {each.name: each for each in fields(kind)}
    needed = [name for name, each in known.items() if each.default is each.default_factory]  # both are missing
    wrong = [f"there is no field {name}" for name in entry if name not in known]
    wrong += [f"the field {name} is missing" for name in needed if name not in entry]
    for name in (name for name in entry if name in known):
        expected = get_origin(known[name].type)  # None for a text, and a union for one that may be missing
        expected = expected if expected in TYPES else str
        if not isinstance(entry[name], expected):
            wrong.append(f"the field {name} must be a {TYPES[expected]}")
    return wrong


def sources(chapter: nbformat.NotebookNode) -> dict[str, str]:
    """Return a dictionary from name to source code for the code cells of the notebook `chapter`.

    The code of a hidden cell that only records results is appended to that of the cell that computes them.
    """
    return {check.id: "\n".join(cell.source for cell in (check, record) if cell) for check, record in checks(chapter)}


def disagreements(ledger: Ledger, entry: Entry) -> list[str]:
    """Return messages about all that is wrong with `entry`, an entry of `ledger`, or an empty list.

    The entry is a statement or an error in print. It is compared with the result that its check recorded, with the
    notebook cells and tests that it names, and with the rules for its fields.
    """
    wrong = [f"there is no cell {cell}" for cell in entry.cells if cell not in ledger.cells]
    if entry.kind not in COMPUTED + UNCOMPUTED or bool(entry.cell) != (entry.kind in COMPUTED):
        wrong.append(f"kind {entry.kind} with the cell {entry.cell}")
    if entry.cell:
        wrong += differences(entry, ledger.findings.get(entry.id))
    return wrong + (of_claim(ledger, entry) if isinstance(entry, Claim) else of_slip(ledger, entry))


def differences(entry: Entry, finding: dict | None) -> list[str]:
    """Return messages about differences between `entry`, a statement or an error in print, and the result of its check.

    `finding` is the result that a notebook cell recorded. Compared are the name of this cell, the result of a statement
    (such as "holds"), and the numbers that the check must find. If `finding` is None, the only message says that
    nothing is recorded.
    """
    if finding is None:
        return [SILENT.format(cell=entry.cell)]
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
    """Return True if the number `computed`, rounded to as many digits as the text `written` has, is equal to `written`.

    The tolerance is slightly more than half a unit of the last written digit. Return False if `written` is not a
    number, or if one of the two is not finite.
    """
    try:
        number = Decimal(written)
    except InvalidOperation:
        return False
    if not number.is_finite() or not math.isfinite(computed):
        return False
    unit = Decimal((0, (1,), number.as_tuple().exponent))
    return abs(Decimal(computed) - number) <= unit * Decimal("0.501")


def of_claim(ledger: Ledger, claim: Claim) -> list[str]:
    """Check the entry `claim` of a statement, and return a list of messages about fields with wrong values.

    The statement must be from Poulsen's report or the lecture notes. The test and the errors in print that the entry
    names must exist. The result must be "cited, not checked" if, and only if, the kind of the check is "cited". There
    must be a correction if, and only if, the statement does not hold as printed. `ledger` has all entries: statements
    and errors in print.
    """
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
    """Check the entry `slip` of an error in print, and return a list of messages about fields with wrong values.

    The field `weight` says how serious the error is; this field and the list of versions that print the error must have
    known values. The field `final` must say what the final version of Poulsen's report did with the error. If only the
    lecture notes print the error, `final` must be None. A cell of a chapter computes whether the printed text and its
    correction hold. There is also a message if this cell found that the printed text holds, or did not test the
    correction.
    """
    wrong = [f"there is no version {version}" for version in slip.versions if version not in VERSIONS]
    if slip.weight not in WEIGHTS:
        wrong.append(f"there is no weight {slip.weight}")
    if slip.final not in ((None,) if slip.versions == ["notes"] else FINAL):
        wrong.append(f"versions {', '.join(slip.versions)} with the fate {slip.final} in the final report")
    result = ledger.findings.get(slip.id, {}).get("result")
    if result in (HOLDS, FAILS):
        wrong.append("the printed form holds" if result == HOLDS else "the corrected form is not computed")
    return wrong


def silent(ledger: Ledger) -> list[str]:
    """Return a list of messages about entries of `ledger` that name a cell which recorded no result for them."""
    missing = [entry for entry in ledger.entries if entry.cell and entry.id not in ledger.findings]
    return [f"{entry.id}: {SILENT.format(cell=entry.cell)}" for entry in missing]


def test_exists(root: Path, test: str) -> bool:
    """Return True if `test`, a text such as "file::name", names a test that exists: a file, and a function in it."""
    file, _, name = test.partition("::")
    tree = ast.parse((root / file).read_text() if (root / file).is_file() else "")
    return name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def strangers(ledger: Ledger) -> list[str]:
    """Return a list of messages about keys that should have exactly one entry in `ledger`, but have none or several.

    A key names a statement or an error in print. Reported are keys with several entries, recorded results without an
    entry, and statements in a chapter that have a number in Poulsen's report but no entry.
    """
    known = Counter(entry.id for entry in ledger.entries)
    labels = {label for source in ledger.cells.values() for label in labels_of(source)}
    return [
        *(f"{key}: {times} entries" for key, times in known.items() if times > 1),
        *(f"{key}: {found['cell']} records it, no entry" for key, found in ledger.findings.items() if key not in known),
        *(f"{label}: stated in a chapter, no entry" for label in sorted(labels) if label not in known),
    ]


@cache
def labels_of(source: str) -> list[str]:
    """Return the keys, such as lemma-4-1, of the statements of Poulsen's report that the text `source` contains.

    The text is that of a notebook cell. A key names the entry of a statement in the ledger.
    """
    return [label.replace("report-", "equation-") for label in LABEL.findall(source)]


def seal(ledger: Ledger, entry: Entry) -> str:
    """Return a hash that changes if `entry`, a statement or an error in print, or its text or check changes.

    The text is that of the notebook cells that state the entry. The check is the code of the cells that the entry
    names, and of all cells and imports on which they depend. `ledger` has the code of all cells. The hash has 12
    characters.
    """
    names, imports = [*entry.cells], []
    for stem, _, cell in (name.partition("#") for name in entry.cells):
        if cell in ledger.code.get(stem, {}):
            found, lines = dependencies(ledger.code[stem], cell)
            names += [f"{stem}#{name}" for name in ["parameters", *found]]
            imports += lines
    names += [name for name in ledger.cells if entry.id in labels_of(ledger.cells[name])]
    texts = [ledger.cells.get(name, "") for name in dict.fromkeys(names)]
    fields = json.dumps(asdict(entry), sort_keys=True)
    return hashlib.sha256("\0".join([*texts, *sorted(set(imports)), fields]).encode()).hexdigest()[:12]


def read_lock(root: Path = ROOT) -> dict[str, str]:
    """Return a dictionary from key to hash for all statements and errors in print that somebody has accepted.

    It is read from the file `ledger/lock` in the folder `root`. The hash is that of the text and the check of the
    statement or error (see `seal`) at the time when somebody had compared the two, and accepted them by the command
    `python -m tools.ledger lock`.
    """
    lines = (root / "ledger" / "lock").read_text().splitlines()
    return dict(line.split() for line in lines if not line.startswith("#"))


def seals(ledger: Ledger) -> dict[str, str]:
    """Return a dictionary from key to hash for all statements and errors in print of `ledger`.

    The hash is that of the present entry, text and check of the statement or error (see `seal`).
    """
    return {entry.id: seal(ledger, entry) for entry in ledger.entries}


def unread(ledger: Ledger) -> list[str]:
    """Return messages about statements and errors of `ledger` that are new, or changed since somebody accepted them.

    Somebody accepts all of them by the command `python -m tools.ledger lock`, which writes the key and a hash of each
    into the file `ledger/lock`. Keys in this file that belong to no statement or error are reported, too.
    """
    lock, now = read_lock(ledger.root), seals(ledger)
    return [f"{key} changed" for key in now | lock if lock.get(key) != now.get(key)]


def write_lock(ledger: Ledger) -> None:
    """Accept the statements and errors in `ledger` as they are: write a hash of each, and its key, to `ledger/lock`."""
    lines = sorted(f"{key} {now}\n" for key, now in seals(ledger).items())
    (ledger.root / "ledger" / "lock").write_text(LOCK + "".join(lines))


def main() -> None:
    """Print all disagreements between the ledger and the executed chapters, and end with an error if there are any.

    The entries of the ledger are statements and errors in print. Entries that have changed since somebody accepted them
    are printed, too. With the argument "lock" on the command line, nothing is compared: all entries are accepted as
    they are now, and their hashes are written into the file `ledger/lock`.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=["lock"], help="accept all entries as they are now")
    command = parser.parse_args().command
    ledger = read(execute_all(ROOT), ROOT)
    if command == "lock":
        return write_lock(ledger)
    wrong = [f"{entry.id}: {each}" for entry in ledger.entries for each in disagreements(ledger, entry)]
    sys.exit("\n".join([*wrong, *strangers(ledger), *unread(ledger)]) or 0)


if __name__ == "__main__":
    with ending("The ledger was not compared."):
        main()
