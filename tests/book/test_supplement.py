"""Test the supplement, an archive for a publication: it is complete, and is the same whenever it is packed.

It must have no trace of the machine on which it is made.
"""

import hashlib
import json
import shutil
import sys
import zipfile
import zlib
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pytest
import yaml

from tests.book.markup import dead_links
from tools import pdf, provenance, supplement
from tools.build import BookError, run_jupyter_book
from tools.execute import ROOT, chapters
from tools.provenance import Commit

MOST = 40_000_000  # bytes that journals accept
WHEN = 1_600_000_000


@pytest.fixture(scope="module")
def files(book, executed, typeset, article, do_without):
    """Return the files of the supplement, an archive for a publication, as a dictionary from path to content in bytes.

    They are made from the HTML of the book, the executed chapters, the PDF of the book (`typeset`) and that of the
    paper (`article`). Without a git repository, `do_without` skips the test, or makes it fail in continuous
    integration.
    """
    if not provenance.commit(ROOT):
        do_without("not a repository: there is no commit of which a supplement could be made")
    return supplement.contents(executed, book, [typeset, article])


@pytest.fixture(scope="module")
def archive(files, tmp_path_factory):
    """Return the path of the supplement, an archive for a publication, packed as a ZIP file."""
    return supplement.pack(files, tmp_path_factory.mktemp("supplement") / "egm-supplement.zip", WHEN)


def test_size(archive):
    """The ZIP file of the supplement, with the path `archive`, has less than 40 MB, the size that journals accept."""
    assert archive.stat().st_size < MOST


def test_check_sums(archive, tmp_path):
    """The list of check sums in the supplement has the SHA-256 digest of every other file, and of nothing else."""
    with zipfile.ZipFile(archive) as packed:
        assert packed.testzip() is None
        packed.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    lines = [line.split("  ", 1) for line in (folder / supplement.SUMS).read_text().splitlines()]
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert {name for _, name in lines} == there.keys() - {supplement.SUMS}
    assert all(hashlib.sha256(there[name].read_bytes()).hexdigest() == digest for digest, name in lines)


def test_nothing_depends_on_when_or_how_often(archive, files, tmp_path):
    """If the same files are packed again in another order, the ZIP file of the supplement has the same bytes.

    The files in the ZIP file are sorted by name, and all have the same date and the same permissions.
    """
    again = supplement.pack(dict(reversed(files.items())), tmp_path / archive.name, WHEN)
    assert again.read_bytes() == archive.read_bytes()
    with zipfile.ZipFile(archive) as packed:
        entries = packed.infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.date_time for entry in entries} == {(2020, 9, 13, 12, 26, 40)}
    assert {entry.external_attr >> 16 for entry in entries} == {0o100644}


def test_supplement_with_the_date_zero_can_be_packed(tmp_path):
    """Files with the date 0, a usual value of SOURCE_DATE_EPOCH, get the first date that a zip file can have."""
    with zipfile.ZipFile(supplement.pack({"a": b"x"}, tmp_path / "a.zip", 0.0)) as packed:
        assert packed.infolist()[0].date_time == (1980, 1, 1, 0, 0, 0)


def test_readme_says_what_is_there(files):
    """The README of the supplement lists all other files and folders beside it, and names the project's version."""
    table = [line.split("|")[1] for line in files["README.md"].decode().splitlines() if line.startswith("| `")]
    named = {name.split("/")[0] for row in table for name in row.replace("`", "").replace(" ", "").split(",")}
    assert named | {"README.md"} == {name.split("/")[0] for name in files}
    assert pdf.version().encode() in files["README.md"]


def test_links_resolve_within(files):
    """Each relative link in the supplement leads to a file of it, so the book can be read where it is unpacked."""
    assert dead_links(files) == []


def test_no_trace_of_the_machine(files):
    """No file of the supplement contains the path of the project, of the Python installation or of the home folder."""
    places = {str(ROOT), sys.prefix, str(Path.home()) + "/"}
    plain = files | {"index": zlib.decompress(files["html/objects.inv"].split(b"compressed using zlib.\n", 1)[1])}
    for name, data in plain.items():
        assert not [place for place in places if place.encode() in data], name


def test_chapters_are_executed(files):
    """Each code cell of each chapter in the supplement has been executed, and none has an error as output."""
    for chapter in chapters():
        notebook = nbformat.reads(files[f"notebooks/{chapter.name}"].decode(), as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
        assert all(cell.execution_count for cell in code), chapter.name
        assert not [out for cell in code for out in cell.outputs if out.output_type == "error"], chapter.name


def test_findings_are_those_of_the_ledger(files):
    """The file findings.json of the supplement has all entries of the YAML files with the claims and errata.

    The entries have the order of these files. Each entry that a chapter checks has a recorded result. For a claim, the
    recorded result is the result in the YAML file.
    """
    rows = json.loads(files["findings.json"])
    entries = [entry for name in ("ledger/claims.yml", "ledger/errata.yml") for entry in yaml.safe_load(files[name])]
    assert [row["id"] for row in rows] == [entry["id"] for entry in entries]
    for row in rows:
        assert bool(row["found"]) == bool(row["cell"])
        if row["found"] and row["type"] == "claim":
            assert row["found"]["result"] == row["result"]


def test_only_a_commit_is_archived(monkeypatch, tmp_path):
    """With uncommitted changes, or outside of a repository, `supplement.supplement` raises a BookError.

    An older archive is removed.
    """
    (tmp_path / "_build").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    outdated = tmp_path / "_build" / "egm-supplement-0.0.9.zip"
    for made in (Commit("0" * 40, datetime.now(UTC), changed=True), None):
        outdated.touch()
        monkeypatch.setattr(provenance, "commit", lambda root, made=made: made)
        with pytest.raises(BookError, match="commit or stash"):
            supplement.supplement(tmp_path)
        assert not outdated.exists()
        assert supplement.name(tmp_path).endswith("-uncommitted.zip")


def test_book_is_the_same_when_built_again(small, tmp_path):
    """If a book is built again, in another folder and by another process, its HTML has the same bytes."""
    stage = tmp_path / "another stage"
    shutil.copytree(small.parents[1], stage, ignore=shutil.ignore_patterns("_build"))
    (tmp_path / "_build").mkdir()
    made = provenance.commit(small.parents[3])
    again = run_jupyter_book(stage, tmp_path, SOURCE_DATE_EPOCH=str(int(made.time.timestamp())))
    one, other = (supplement.tree(folder, "html").items() for folder in (small, again))
    assert {name for name, _ in one ^ other} == set()
