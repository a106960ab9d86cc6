"""Test that the claims and errata in the YAML files of the folder ledger agree with what the checks in chapters find.

Other tests plant faults, in the claims and errata of a small project or in the code of checks, and show that the faults
are noticed.
"""

import ast
import builtins
import contextlib
import json
import re
import shutil
from dataclasses import replace

import nbformat
import numpy as np
import pytest
import yaml

from egm import calibration, gx2, mechanisms, samplers, scaling
from egm._mechanisms import data, elliptical, gaussian
from egm.study import claims
from tools import dataflow, ledger, pages
from tools.execute import ROOT, BookError, chapters, code_cells, execute_all

NUMBERED = {  # numbers in the report of 20 January
    "definition": ["2-1", "2-2", "2-3"],
    "lemma": ["2-1", "2-2", "2-3", "2-4", "4-1", "4-2", "7-1"],
    "corollary": ["2-1", "7-1"],
    "theorem": ["1", "2", "3", "4"],
    "equation": [str(number) for number in range(1, 28)],
    "algorithm": ["1", "2", "3"],
    "figure": ["1", "2"],
}
IN_THE_NOTES = [
    *(f"notes-{name}" for name in ("theorem-1-1", "definition-1-2", "fact-1-3", "exercise-1-3", "definition-2-1")),
    *(f"notes-{name}" for name in ("definition-2-3", "definition-2-4", "definition-2-5", "example-2-5")),
    *(f"notes-remark-2-2-{item}" for item in (1, 2, 3, 4)),
    *(f"notes-theorem-2-6-{item}" for item in (1, 2, 3)),
    *(f"notes-theorem-2-7-{item}" for item in (1, 2)),
    *(f"notes-exercise-2-6-{item}" for item in "abcde"),
]
ENTRIES = [
    entry for name in ("claims.yml", "errata.yml") for entry in yaml.safe_load((ROOT / "ledger" / name).read_text())
]
EACH = pytest.mark.parametrize("key", [entry["id"] for entry in ENTRIES])


@pytest.fixture(scope="session")
def book_ledger(executed):
    """Return the claims and errata from the YAML files in the folder ledger, with the results of their checks."""
    return ledger.read(executed)


def entry(found, key):
    """Return the only claim or error in print with the id `key` from `found`, a result of `tools.ledger.read`."""
    (it,) = (entry for entry in found.entries if entry.id == key)
    return it


@EACH
def test_entry_agrees_with_the_chapters(book_ledger, key):
    """Each entry in the YAML files of claims and errata agrees with what its check in a chapter finds.

    The check exists, its recorded result and numbers are those of the entry, and the fields of the entry have allowed
    values. `key` is the id of the entry.
    """
    assert ledger.disagreements(book_ledger, entry(book_ledger, key)) == []


def test_entries_were_read_since_their_checks_changed(book_ledger):
    """No claim or erratum in the folder ledger, and no check, has changed since a person last compared the two.

    After a comparison, a digest of the claim or erratum and its check is written to the file ledger/lock. If the
    present digest is another one, a person must compare again, and run `python -m tools.ledger lock`. Each digest in
    the file belongs to a claim or erratum.
    """
    assert ledger.unread(book_ledger) == []


def test_nothing_is_missing_and_nothing_double(book_ledger):
    """The ledger has one entry for each numbered statement of Poulsen's report that a chapter quotes.

    It also has one for each result that a check in a chapter records. The ledger is two YAML files, which list claims
    and errata. No two entries have the same id.
    """
    assert ledger.strangers(book_ledger) == []


@pytest.mark.parametrize(
    "key", [*(f"{kind}-{number}" for kind, all_ in NUMBERED.items() for number in all_), *IN_THE_NOTES]
)
def test_numbered_statement_has_an_entry(key):
    """Each numbered statement of Poulsen's report or the lecture notes has an entry in the YAML file of claims.

    Equations, algorithms and figures are statements, too. `key` is the id of the entry, such as "lemma-4-1".
    """
    assert key in {entry["id"] for entry in ENTRIES}


def test_artifact_appendix_names_checks():
    """Each main result in ARTIFACT-APPENDIX.md names its entry in the YAML files of claims and errata, and a chapter.

    The chapter is the one that checks the entry. There are at least five main results.
    """
    rows = re.findall(r"`notebooks/([\w-]+)\.ipynb` \| `([\w-]+)` \|", (ROOT / "ARTIFACT-APPENDIX.md").read_text())
    checked = {entry["id"]: entry["cell"].partition("#")[0] for entry in ENTRIES if "cell" in entry}
    assert len(rows) >= 5
    assert [(checked[key], key) for _, key in rows] == rows


def test_findings_are_computed():
    """No cell of a chapter calls `claims.record`, which stores a check's result, with a constant such as True."""
    trees = [dataflow.tree_of(cell.source) for chapter in chapters() for cell in code_cells(nbformat.read(chapter, 4))]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    records = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "record"]
    given = [keyword.value for call in records for keyword in call.keywords]
    assert len(records) > 100
    assert not [ast.unparse(value) for value in given if isinstance(value, ast.Constant)]


@pytest.fixture(scope="module")
def sound_project(tmp_path_factory):
    """Write a small project with one executed chapter and correct files of claims and errata, and return its folder.

    The files have one entry each, which the chapter checks: a true statement, and an error in print.
    """
    tmp_path = tmp_path_factory.mktemp("sound")
    for folder in ("notebooks", "egm", "ledger", "tests"):
        (tmp_path / folder).mkdir()
    for file in ("constraints.txt", "pyproject.toml", "egm/__init__.py"):
        (tmp_path / file).touch()
    statement = nbformat.v4.new_markdown_cell(
        ":::{prf:lemma}\n:label: lemma-9-9\n\nTwice two is 4.\n:::", id="statement"
    )
    parameters = nbformat.v4.new_code_cell("two = 2", id="parameters", metadata={"tags": ["parameters"]})
    lines = [
        "from egm.study import claims",
        "claims.record('lemma-9-9', printed=2 * two == 4, product=2.0 * two)",
        "claims.record('slip-five', printed=2 * two == 5, corrected=2 * two == sum(parts))",
    ]
    check = nbformat.v4.new_code_cell("\n".join(lines), id="check")
    before = {"first": "parts = [2]", "second": "parts.append(2)", "aside": "others = [2]"}
    before = [nbformat.v4.new_code_cell(source, id=name) for name, source in before.items()]
    notebook = nbformat.v4.new_notebook(cells=[parameters, statement, *before, check])
    nbformat.write(notebook, tmp_path / "notebooks" / "09-nine.ipynb")
    (tmp_path / "tests" / "test_two.py").write_text("def test_two():\n    assert 2 * 2 == 4\n")
    claim = {"id": "lemma-9-9", "source": "report", "section": "9", "place": "Lemma 9.9", "claim": "Twice two is four."}
    claim |= {"kind": "exact", "cell": "09-nine#check", "result": "holds", "figures": {"product": "4.00"}}
    claim |= {"test": "tests/test_two.py::test_two"}
    slip = {"id": "slip-five", "versions": ["draft"], "place": "Lemma 9.9", "printed": "five", "correct": "four"}
    slip |= {"why": "Count.", "downstream": "Nothing.", "kind": "exact", "cell": "09-nine#check"}
    slip |= {"weight": "proof", "final": "mended"}
    (tmp_path / "ledger" / "claims.yml").write_text(yaml.safe_dump([claim]))
    (tmp_path / "ledger" / "errata.yml").write_text(yaml.safe_dump([slip]))
    ledger.write_lock(ledger.read(execute_all(tmp_path), tmp_path))
    return tmp_path


@pytest.fixture
def project(sound_project, tmp_path):
    """Copy the small project in `sound_project` to a new folder, which a test may change, and return the folder."""
    return shutil.copytree(sound_project, tmp_path, dirs_exist_ok=True)


def edit(file, old, new):
    """Replace each occurrence of the text `old` by `new` in `file`, a path; without an occurrence, fail."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def complaints(project):
    """Execute the changed chapters in the folder `project`, and return all faults of its claims and errata as texts.

    It is a fault, for instance, if the result of a claim differs from that of its check. If a claim or its check has
    changed since they were last compared, the text is "<id of the claim> changed".
    """
    found = ledger.read(execute_all(project), project)
    wrong = [each for entry in found.entries for each in ledger.disagreements(found, entry)]
    return [*wrong, *ledger.strangers(found), *ledger.unread(found)]


def test_sound_ledger_has_no_complaint(project):
    """`complaints`, which compares claims and errata with their checks, finds no fault in a correct project.

    `project` is the folder of a small project, whose files of claims and errata have no mistake.
    """
    assert complaints(project) == []


def test_command_lists_what_changed_until_it_is_accepted(project, monkeypatch, capsys):
    """`python -m tools.ledger` reports a claim that has changed, and an id in the file ledger/lock without a claim.

    After `python -m tools.ledger lock`, with which a person accepts all claims as they are, the program reports
    nothing. For an unknown argument it ends with the exit code 2. `project` is the folder of a small project with two
    entries in the files of claims and errata.
    """
    monkeypatch.setattr(ledger, "ROOT", project)
    edit(project / "ledger" / "claims.yml", "is four", "is five")
    edit(project / "ledger" / "lock", "lemma-9-9 ", "lemma-9-8 123456789abc\nlemma-9-9 ")
    for arguments, code in (
        (["lokc"], 2),
        ([], "lemma-9-9 changed\nlemma-9-8 changed"),
        (["lock"], None),
        ([], 0),
    ):
        monkeypatch.setattr("sys.argv", ["ledger", *arguments])
        if arguments == ["lock"]:
            ledger.main()
            continue
        with pytest.raises(SystemExit) as ended:
            ledger.main()
        assert ended.value.code == code
    assert "invalid choice: 'lokc'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (  # each complaint can come from one of the changes only, and the chapter is executed once for all
            {
                "printed=2 * two == 4": "printed=3 * two == 4",
                "product=2.0 * two": "product=2.01 * two",
                "'slip-five', printed=2 * two == 5": "'slip-six', printed=2 * two == 5",
                "lemma-9-9\\n": "lemma-9-8\\n",
            },
            [
                "the entry says 'holds', the cell found 'does not hold'",
                "the entry says product = 4.00, the cell found 4.02",
                "slip-six: 09-nine#check records it, no entry",
                "lemma-9-8: stated in a chapter, no entry",
            ],
        ),
        ({"product=2.0 * two": "produce=2.0 * two"}, ["the entry says product = 4.00, the cell found None"]),
        (
            {"printed=2 * two == 5": "printed=2 * two == 4"},
            ["the printed form holds"],
        ),
        (
            {"claims.record('lemma-9-9', printed": "dict(printed"},
            ["09-nine#check records nothing under this key"],
        ),
        (
            {'"id": "check"': '"id": "other"'},
            ["there is no cell 09-nine#check", "recorded by 09-nine#other, not by 09-nine#check"],
        ),
        ({", corrected=2 * two == sum(parts)": ""}, ["the corrected form is not computed"]),
        ({"Twice two is 4": "Twice two is 5"}, ["lemma-9-9 changed"]),
        ({'"two = 2"': '"two = 4 / 2"'}, ["lemma-9-9 changed"]),
    ],
)
def test_change_in_a_chapter_is_noticed(project, changes, expected):
    """If a chapter is changed so that it contradicts the files of claims and errata, `complaints` reports it.

    The function also reports an entry that must be compared with its check again. Each key of `changes` is a text of
    the chapter in the folder `project`, which is replaced by its value. `expected` has reports that must be made.
    """
    for old, new in changes.items():
        edit(project / "notebooks" / "09-nine.ipynb", old, new)
    assert set(expected) <= set(complaints(project))


@pytest.mark.parametrize(
    ("old", "new", "stale"),
    [
        ('"parts = [2]"', '"parts = [1 + 1]"', ["lemma-9-9 changed", "slip-five changed"]),
        ('"parts.append(2)"', '"parts.append(1 + 1)"', ["lemma-9-9 changed", "slip-five changed"]),
        (
            "from egm.study import claims",
            "import egm.study.claims as claims",
            ["lemma-9-9 changed", "slip-five changed"],
        ),
        ('"others = [2]"', '"others = [3]"', []),
    ],
)
def test_lock_covers_the_cells_that_a_check_depends_on(project, old, new, stale):
    """If a cell on which a check depends is changed, `complaints` reports all claims and errata with this check.

    It does so even if the check finds the same results as before. In the chapter of the small project in the folder
    `project`, the text `old` is replaced by `new`, and `stale` is the list of the expected reports.
    """
    edit(project / "notebooks" / "09-nine.ipynb", old, new)
    assert complaints(project) == stale


@pytest.mark.parametrize(
    ("old", "new"), [("why: Count.", "why: Guess."), ("versions:", "headline: A new one.\n  versions:")]
)
def test_lock_covers_each_field_of_an_entry(project, old, new):
    """If the text `old` in the file of errata is replaced by `new`, `complaints` reports that the erratum has changed.

    The small project in the folder `project` has only one erratum. The changed field is not compared with the check.
    """
    edit(project / "ledger" / "errata.yml", old, new)
    assert complaints(project) == ["slip-five changed"]


@pytest.mark.parametrize(
    ("cells", "needed"),
    [
        (["a = 1", "b = 2", "c = a"], [0]),
        (["a = 1", "b = a", "c = b"], [0, 1]),
        (["a = 1", "a = 2", "c = a"], [1]),
        (["a = 1", "a += 1", "c = a"], [0, 1]),
        (["a = []", "a[0] = 1", "c = a"], [0, 1]),
        (["a = []", "a.real = 1", "c = a"], [0, 1]),
        (["a = []", "for i in range(3):\n    a.append(i)", "c = a"], [0, 1]),
        (["a = []", "a[0], b = 1, 2", "c = a"], [0, 1]),
        (["a = {}", "a.setdefault(1, []).append(2)", "c = a"], [0, 1]),
        (["a = 1", "if b:\n    a = 2", "c = a"], [0, 1]),
        (["a = 1", "with suppress(ValueError):\n    a = 2", "c = a"], [0, 1]),
        (["a = 1", "try:\n    a = 2\nexcept ValueError:\n    pass", "c = a"], [0, 1]),
        (["a = 1", "b = ValueError", "try:\n    c = a\nexcept b:\n    pass"], [0, 1]),
        (["a = 1", "for b in range(3):\n    a = b", "c = a"], [0, 1]),
        (["a = 1", "for a in range(3):\n    b = a", "c = b"], [1]),
        (["a = 1", "b = [a for a in range(3)]", "c = a"], [0]),
        (["a = 1", "b = lambda a: a", "c = a"], [0]),
        (["a = 1", "b = [x for x in a]", "c = b"], [0, 1]),
        (["a = 1", "b = lambda x: a * x", "c = b(1)"], [0, 1]),
        (["rng = np.random.default_rng(1)", "b = rng.normal()", "c = rng.normal()"], [0, 1]),
        (["b, rng = 1, np.random.default_rng(1)", "d = b + 1", "c = rng.normal()"], [0]),
        (["import math", "a = math.pi", "c = math.pi"], []),
        (["a = 1", "%config figure = 1", "a = 2\nc = a"], []),
        (["a = 1", "b = 1", "c = a\na = 2"], [0]),
        (["a = 1", "b = f'{a}'", "c = [b := 2, b]"], []),
    ],
)
def test_dependencies_follow_the_names(cells, needed):
    """The first result of `dataflow.dependencies` has the cells on which a given cell depends, and the given cell.

    A cell depends on each earlier cell that assigns or changes the value of a variable that the cell reads; a draw of
    random numbers changes the generator. The cell also depends on all cells on which such an earlier cell depends.
    `cells` has the code of three cells, and `needed` the positions, from 0, of those on which the last cell depends.
    """
    code = {str(number): source for number, source in enumerate(cells)}
    assert dataflow.dependencies(code, "2")[0] == [*map(str, needed), "2"]


def test_seal_of_an_entry_covers_the_mechanism_of_its_chapter():
    """If the cell "mechanisms" of chapter 3 changes, the digests of the claims whose checks use this cell change.

    A claim is a statement of Poulsen's report, and its digest is computed from its text and all code of its check. The
    digests of two other claims stay the same.
    """
    before, after, chapter = ledger.read({}), ledger.read({}), "03-elliptical-gaussian"
    changed = before.code[chapter]["mechanisms"] + "  # another"
    after.code[chapter]["mechanisms"] = after.cells[f"{chapter}#mechanisms"] = changed
    keys = {"algorithm-2": True, "section-3-post-processing": True, "theorem-3": False, "algorithm-3": False}
    seals = {key: [ledger.seal(found, entry(found, key)) for found in (before, after)] for key in keys}
    assert {key: one != other for key, (one, other) in seals.items()} == keys


def test_dependencies_have_only_the_imports_in_use():
    """`dataflow.dependencies` returns, of all imports of a chapter, only those that a check needs.

    So another import in the chapter does not change the digest by which `tools.ledger` notices a changed check.
    """
    code = {"0": "import numpy as np\nfrom egm.study import claims, plots", "1": "a = np.pi", "2": "claims.record(a)"}
    assert dataflow.dependencies(code, "2") == (["1", "2"], ["from egm.study import claims", "import numpy as np"])


def test_dependencies_give_every_name_that_a_check_reads(chapter):
    """A check in a chapter could run with only the cells and imports that `dataflow.dependencies` returns for it.

    Each name that a returned cell reads is assigned in this cell or in an earlier returned cell, imported, or built
    into Python.
    """
    code = {cell.id: cell.source for cell in code_cells(nbformat.read(chapter, 4))}
    for cell in (cell for cell, source in code.items() if "claims.record(" in source):
        needed, imports = dataflow.dependencies(code, cell)
        names = [dataflow.Names(dataflow.tree_of(code[name])) for name in needed]
        given = set(dir(builtins)) | set(dataflow.Names(dataflow.tree_of("\n".join(imports))).imports)
        for each in names:
            assert each.reads <= given | each.gives, cell
            given |= each.gives


def test_deleted_cell_is_noticed(project):
    """If the cell of a check is deleted, `complaints` reports that the cell and the recorded result are missing.

    `project` is the folder of a small project with one chapter, whose last cell is the check.
    """
    file = project / "notebooks" / "09-nine.ipynb"
    notebook = nbformat.read(file, as_version=4)
    notebook.cells.pop()
    nbformat.write(notebook, file)
    assert complaints(project)[:2] == ["there is no cell 09-nine#check", "09-nine#check records nothing under this key"]


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("claims.yml", "result: holds", "result: does not hold", "result does not hold with the correction ''"),
        ("claims.yml", "result: holds", "result: perhaps", "kind exact with the result perhaps"),
        ("claims.yml", "kind: exact", "kind: cited", "kind cited with the cell 09-nine#check"),
        ("claims.yml", "::test_two", "::test_three", "there is no test tests/test_two.py::test_three"),
        ("claims.yml", "test_two.py", "test_none.py", "there is no test tests/test_none.py::test_two"),
        ("claims.yml", "source: report", "source: hearsay", "there is no source hearsay"),
        ("claims.yml", "result: holds", "result: holds\n  slips: [slip-four]", "there is no slip slip-four"),
        ("claims.yml", "id: lemma-9-9", "id: slip-five", "slip-five: 2 entries"),
        ("claims.yml", "is four", "is five", "lemma-9-9 changed"),
        ("claims.yml", "kind: exact", "kind: symbolic", "lemma-9-9 changed"),
        ("claims.yml", "id: lemma-9-9", "begins: Twice\n  id: lemma-9-9", "lemma-9-9 changed"),
        ("errata.yml", "printed: five", "printed: six", "slip-five changed"),
        ("errata.yml", "- draft", "- 30 February", "there is no version 30 February"),
        ("errata.yml", "weight: proof", "weight: grave", "there is no weight grave"),
        ("errata.yml", "final: mended", "final: burnt", "versions draft with the fate burnt in the final report"),
        ("errata.yml", "final: mended\n", "\n", "versions draft with the fate None in the final report"),
        ("errata.yml", "- draft", "- notes", "versions notes with the fate mended in the final report"),
    ],
)
def test_mistake_in_an_entry_is_noticed(project, file, old, new, complaint):
    """If an entry in the files of claims and errata has a mistake, `complaints` reports it by the text `complaint`.

    A mistake is, for instance, an unknown value, or a contradiction between two fields. The text `old` of the file
    named `file` in the folder ledger is replaced by `new`.
    """
    edit(project / "ledger" / file, old, new)
    assert complaint in complaints(project)


def test_slip_whose_printed_form_holds_is_refused(project):
    """`ledger.disagreements` reports an entry of the errata (errors in print) if the printed form is found true."""
    found = ledger.read(execute_all(project), project)
    found.findings["slip-five"]["result"] = claims.HOLDS
    assert ledger.disagreements(found, entry(found, "slip-five")) == ["the printed form holds"]


def test_slip_without_a_weight_is_refused(project):
    """If an entry of the errata (errors in print) lacks the field `weight`, reading the errata raises a BookError.

    The field says whether the error affects a result, a proof, or only the wording.
    """
    edit(project / "ledger" / "errata.yml", "  weight: proof\n", "")
    with pytest.raises(BookError, match="the field weight is missing"):
        ledger.read(execute_all(project), project)


def test_slips_that_change_a_result_are_listed_first(project):
    """`pages.list_slips` lists the errors in print of each text; errors that change a result come first.

    Then come errors in a proof or formula, and then errors in the wording. Errors of one kind are in the order of
    errata.yml. The texts are the report of 20 January 2023, the lecture notes and, taken together, all earlier versions
    of the report. For an error of the report, the list says whether the report's final version still has the error.
    """
    found = ledger.read(execute_all(project), project)
    (slip,) = found.slips
    given = {"first": "wording", "second": "proof", "third": "result", "fourth": "proof"}
    slips = [replace(slip, id=f"slip-{name}", place=name, weight=weight) for name, weight in given.items()]
    slips[0] = replace(slips[0], versions=["notes"], final=None)
    findings = dict.fromkeys((slip.id for slip in slips), found.findings["slip-five"])
    page = pages.list_slips(replace(found, slips=slips, findings=findings))
    assert re.findall(r"\*\*(\w+)\*\*", page) == ["first", "third", "second", "fourth"]
    assert page.count("*Changes a result*\n    \n    Mended in the final report") == 1
    assert page.count("in the final report") == 3


def test_nine_slips_have_a_headline(book_ledger):
    """`pages.list_headlines` lists the nine main errors in print of Poulsen's report, each with headline and link.

    The link leads to the whole entry of the error.
    """
    listed = pages.list_headlines(book_ledger).splitlines()
    assert len(listed) == 9
    for line, slip in zip(listed, (slip for slip in book_ledger.slips if slip.headline), strict=True):
        assert f"<ledger-{slip.id}>" in line
        assert slip.headline in line


def test_index_has_everything_that_the_report_numbers(book_ledger):
    """`pages.list_numbered` returns a table with one row for each item that has a number in Poulsen's report.

    A row links to the place in the book where the item is stated, and shows the result of the item's check.
    """
    lines = pages.list_numbered(book_ledger).splitlines()[2:]
    assert len(lines) == sum(map(len, NUMBERED.values()))
    (theorem,) = (line for line in lines if line.startswith("| Theorem 4 |"))
    assert (
        theorem
        == "| Theorem 4 | {prf:ref}`theorem-4`, chapter 6 | `✎` {ref}`holds with correction <ledger-theorem-4>` |"
    )


def test_claim_recorded_twice_is_refused(project):
    """If two notebook cells record a result for the same claim, `tools.ledger.read` raises a BookError."""
    shutil.copy(project / "notebooks" / "09-nine.ipynb", project / "notebooks" / "10-ten.ipynb")
    with pytest.raises(BookError, match="is recorded twice, in 09-nine#check and in 10-ten#check"):
        ledger.read(execute_all(project), project)


def test_finding_stands_beside_the_chapter(project):
    """The result of a check is stored in a JSON file beside the executed chapter, with the id of the check's cell.

    `project` is the folder of a small project with one chapter.
    """
    (notebook,) = execute_all(project).values()
    first, _ = json.loads(notebook.with_suffix(".json").read_text())
    assert first == {"claim": "lemma-9-9", "result": "holds", "figures": {"product": 4.0}, "cell": "check"}


@pytest.mark.parametrize(
    ("computed", "written", "same"),
    [
        (1.4872, "1.487", True),
        (1.4876, "1.487", False),
        (593.2257, "593.2257", True),
        (2.04e-16, "2e-16", True),
        (2.6e-16, "2e-16", False),
        (1_000_400.0, "1.000e6", True),
        (1_000_600.0, "1.000e6", False),
        (float("inf"), "1.0", False),
        (1.5, "inf", False),
        (1.5, "nan", False),
        (float("nan"), "1.5", False),
        (1.5, "abc", False),
        (1.5, "", False),
    ],
)
def test_figures_are_compared_to_the_digits_written(computed, written, same):
    """`ledger.agrees` is True if the number `computed` is the number in the text `written`, up to the text's rounding.

    For instance, 1.4872 agrees with "1.487", and 1.4876 does not. `same` is the expected result, True or False.
    """
    assert ledger.agrees(computed, written) == same


@pytest.fixture
def shown(monkeypatch):
    """Return a list to which `claims.record` appends each result, instead of displaying the result in the notebook."""
    findings = []
    monkeypatch.setattr(claims, "display", findings.append)
    return findings


@pytest.mark.parametrize(
    ("truth", "result"),
    [
        ({"printed": True}, "holds"),
        ({"printed": np.True_}, "holds"),
        ({"printed": True, "corrected": True}, "holds"),
        ({"printed": True, "corrected": False}, "holds"),
        ({"printed": False, "corrected": np.True_}, "holds with correction"),
        ({"printed": np.False_}, "does not hold"),
    ],
)
def test_result_follows_from_what_was_computed(shown, truth, result):
    """`claims.record` derives the result for a statement from two truth values: as it is printed, and as corrected.

    The result is "holds" if the printed form is true, "holds with correction" if only the corrected form is true, and
    otherwise "does not hold". `truth` has the truth values, and `result` is the expected result. `shown` is the list of
    the displayed results.
    """
    claims.record("lemma-9-9", **truth, worst=np.float64(0.5))
    assert shown == [claims.Finding("lemma-9-9", result, {"worst": 0.5})]
    assert shown[0]._repr_mimebundle_()["text/plain"] == f"lemma-9-9: {result}, worst = 0.5"


def test_correction_must_hold(shown):
    """`claims.record` raises a ValueError if a statement as it is printed and the chapter's correction are both false.

    Then the chapter has an error, so no result is displayed. `shown` is the list of the displayed results.
    """
    with pytest.raises(ValueError, match="lemma-9-9"):
        claims.record("lemma-9-9", printed=False, corrected=False)
    assert not shown


@pytest.mark.parametrize("value", [1, 0.0, "yes", None, np.array([True, True]), []])
def test_truth_value_is_required(shown, value):
    """`claims.record` raises a TypeError, and displays no result, if the argument `printed` is not a truth value.

    The wrong `value` is, for instance, a number or a text, which Python would take as true or false without an error.
    `shown` is the list of the displayed results.
    """
    with pytest.raises(TypeError, match="printed must be True or False"):
        claims.record("lemma-9-9", printed=value)
    assert not shown


def run(chapter, cell, *changes):
    """Execute one code cell of a chapter and, before it, the parameters and the cells on which it depends.

    `chapter` is the number or letter with which the chapter's file name begins, and `cell` is the id of the cell. Each
    of `changes` is a pair of texts: the first is replaced by the second in all the code that is executed.
    """
    (file,) = (ROOT / "notebooks").glob(f"{chapter}-*.ipynb")
    code = ledger.sources(nbformat.read(file, 4))
    needed, imports = dataflow.dependencies(code, cell)
    source = "\n".join([*imports, *(code[name] for name in dict.fromkeys(["parameters", *needed]))])
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    exec(re.sub(r"(?m)^%.*$", "", source), {})


def unequal_noise(patch):
    """Plant a bug: multiply the simulated noise by factors from 0.5 in the first coordinate to 1.5 in the last one.

    `patch` is pytest's monkeypatch, which undoes the change after the test.
    """
    sound = samplers.simulated_gaussian
    patch.setattr(
        samplers, "simulated_gaussian", lambda std, rng: sound(std, rng) * np.linspace(0.5, 1.5, np.size(std))
    )


def noise_of_the_data(patch):
    """Plant a bug: make the noise of `GaussianMechanism` one percent larger in coordinates with a true value above 10.

    `patch` is pytest's monkeypatch, which undoes the change after the test.
    """
    sound = mechanisms.GaussianMechanism.release

    def release(mechanism, value, *, rng):
        released = sound(mechanism, value, rng=rng)
        return replace(released, estimate=value + (released.estimate - value) * np.where(value > 10, 1.01, 1))

    patch.setattr(mechanisms.GaussianMechanism, "release", release)


def rarer(factor):
    """Return a function that plants an error in `gx2.isf` and `gx2.sf`; its argument is pytest's monkeypatch.

    Afterwards `gx2.isf(p)` returns the upper quantile of the probability `factor` * p instead of p, and `gx2.sf`
    returns the tail probability divided by `factor`. So the two functions still agree with each other.
    """
    isf, sf = gx2.isf, gx2.sf

    def mutate(patch):
        patch.setattr(gx2, "isf", lambda p, *args, **options: isf(factor * np.asarray(p), *args, **options))
        patch.setattr(gx2, "sf", lambda *args, **options: sf(*args, **options) / factor)

    return mutate


def too_little_noise(patch):
    """Plant a bug: make the noise of all Gaussian mechanisms one percent smaller than privacy demands.

    `calibration.gaussian_delta` is changed, too, so that a comparison with the privacy curve does not show the bug.
    `patch` is pytest's monkeypatch, which undoes the changes after the test.
    """
    least, curve = gaussian.calibrate, calibration.gaussian_delta
    for room in (gaussian, elliptical, data):
        patch.setattr(room, "calibrate", lambda mechanism, size: 0.99 * least(mechanism, size))
    patch.setattr(calibration, "gaussian_delta", lambda epsilon, multiplier: curve(epsilon, multiplier / 0.99))


def another_scaling(name, power):
    """Return a function that plants an error: the function `name` of egm.scaling then returns sigma**`power`.

    Here sigma are the standard deviations, and a scaling has the numbers by which the coordinates are multiplied.
    The argument of the returned function is pytest's monkeypatch. With this error, a check of a claim about the scaling
    must not find the claim true.
    """
    return lambda patch: patch.setattr(scaling, name, lambda sigma, *_: np.asarray(sigma, dtype=float) ** power)


MUTATIONS = [  # chapter, cell, claim, and a change of texts or of functions that must change the finding
    ("A", "chord", "notes-section-1-2-2-chord", ("weight * sp.exp(t * R)", "weight**2 * sp.exp(t * R)")),
    ("A", "theorem-1-1", "notes-theorem-1-1", ("for c in (2, 0.5)", "for c in (20, 0.5)")),
    ("A", "theorem-1-1", "notes-section-1-2-weaker", ("for c in (2, 0.5)", "for c in (2, 20)")),
    ("A", "single-outputs", "notes-remark-2-2-3", ("np.exp(-epsilon * lies)", "np.exp(-2 * epsilon * lies)")),
    ("A", "exercise-e-route", "notes-exercise-2-6-d", ("nu * np.sqrt(8 * ell)", "nu * np.sqrt(ell / 2)")),
    ("A", "exercise-e-route", "notes-exercise-2-6-e", ("np.sqrt(8) * np.linalg.norm(c)", "0.7 * np.linalg.norm(c)")),
    ("02", "noise-of-any-query", "section-3-error-is-noise", noise_of_the_data),
    ("02", "few-halvings", "section-5-sigma-opt", ("(low, z) if left <= delta", "(low, z) if left <= 2 * delta")),
    ("03", "equal-noise", "section-3-equal-noise", unequal_noise),
    ("03", "distance-in-one-coordinate", "section-4-hyperrectangle", ("Y[:, 2] = draw", "Y[:, 2] = 2 * draw")),
    ("03", "privacy-at-the-corner", "algorithm-2", too_little_noise),
    ("03", "not-as-theorem-4", "section-3-proof-similar", ("radius_bound = at *", "radius_bound = 0 * at *")),
    ("04", "clipping", "section-4-clipping", ("np.minimum(radius / length, 1)", "np.minimum(radius / length, 1) ** 2")),
    ("04", "clipped-sum", "section-4-clipped-sum", ("minimum(radius / length, 1)", "minimum(radius / length, 1) ** 2")),
    ("04", "centre-and-radius", "section-4-centre-and-radius", ("np.zeros(d))}", "mu)}")),
    ("04", "first-coordinate-integrated", "algorithm-3-radius", rarer(1.55)),
    ("04", "first-coordinate-integrated", "algorithm-3-radius", rarer(1.1)),
    ("04", "mean-of-the-rows-is-better", "section-4-best-centre", ("scaled.mean(axis=0)]", "2 * scaled.mean(axis=0)]")),
    ("04", "some-row-is-clipped", "section-4-none-clipped", ("(1 + 1e-9)", "(1 - 1e-4)")),
    ("04", "as-algorithm-2", "section-4-like-algorithm-2", ("clip_norm * sigma, epsilon", "clip_norm * b, epsilon")),
    ("04", "clipping-in-sight", "section-4-larger-error", ("noise - taken", "noise - 50 * taken")),
    ("04", "clipping-in-sight", "section-4-larger-error", ("noise - taken", "noise - 1.1 * taken")),
    ("05", "solve-b", "equation-12", ("sp.Rational(1, 4)", "sp.Rational(1, 2)")),
    ("05", "signs-and-zero", "section-4-lagrangian", ("sum(x**-2 for x in b_d)", "sum(x**2 for x in b_d)")),
    ("05", "lagrange-identity", "section-4-conclusion", ("/ b_d[k] - spread[k]", "/ b_d[k] + spread[k]")),
    ("06", "not-elementary", "section-4-no-closed-form", ("False, sp.S.Half: True", "True, sp.S.Half: False")),
    ("06", "product-bound", "lemma-4-2-product-bound", ("2 * c, (c, 3, order)", "2 * c, (c, 2, order)")),
    ("06", "shift", "lemma-4-2-shift", ("level + np.sum(skewed)", "level + 0.9 * np.sum(skewed)")),
    ("06", "chain", "lemma-4-2-range", ("2 * 1.5 ** (1", "2 * 1.6 ** (1")),
    ("06", "theorem-bound", "theorem-4-radius-2", ("rate_2 * S1", "rate_2 * S2")),
    ("06", "theorem-bound", "theorem-4-radius-3", ("rate_4 * S2", "rate_4 * S1")),
    ("06", "theorem-bound", "theorem-4-error-2", ("rate_4 * S2", "rate_4 * S1")),
    ("06", "theorem-bound", "theorem-4-error-3", ("rate_inv * S1", "rate_inv * S2")),
    ("06", "never-worse", "section-4-better-results", another_scaling("optimal", -0.5)),
    ("08", "bound-of-any-scaling", "section-5-similar-argument", ("limit = 20 *", "limit = 19 *")),
    ("08", "bound-of-any-scaling", "section-5-similar-argument", ("limit = 20 *", "limit = 25 *")),
    ("08", "search-least", "section-5-at-least-1", another_scaling("expected_norm", -1.5)),
    ("08", "radii-in-means", "section-5-not-trivial", ("p = [1e-2, 1e-3, 1e-6]", "p = [1e-2, 1e-2, 1e-2]")),
    ("B", "lemma-7-1-steps", "lemma-7-1-proof", ("2 * below - 1", "2 * below")),
    ("B", "moment-chain", "section-7-moment-chain", ("u**m * of_square", "u ** (m + 1) * of_square")),
]


@pytest.mark.filterwarnings("ignore:noise from a numpy Generator")
@pytest.mark.parametrize(("chapter", "cell", "claim", "mutation"), MUTATIONS)
def test_check_fails_if_the_claim_is_false(shown, monkeypatch, chapter, cell, claim, mutation):
    """A check in a chapter finds the result that ledger/claims.yml states, but not after a fault is planted.

    `claim` is the id of a claim in this file. Its check is the cell `cell` of the chapter whose file name begins with
    `chapter`. `mutation` is the fault: a text of the chapter with its replacement, or a function that changes the
    package.
    """
    (result,) = (entry["result"] for entry in ENTRIES if entry["id"] == claim)
    run(chapter, cell)
    assert {finding.claim: finding.result for finding in shown}[claim] == result
    shown.clear()
    if callable(mutation):
        mutation(monkeypatch)
    with contextlib.suppress(AssertionError, ValueError):
        run(chapter, cell, *([] if callable(mutation) else [mutation]))
    assert {finding.claim: finding.result for finding in shown}.get(claim) != result


def test_entries_of_a_kind_have_the_same_fields(book_ledger):
    """A `tools.ledger.Claim`, a claim with its result, cannot get a field of unknown name: a TypeError is raised.

    The test takes the misspelled field `reslut`.
    """
    with pytest.raises(TypeError):
        replace(book_ledger.claims[0], reslut="holds")
