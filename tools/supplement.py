"""Pack the supplement for a journal as a zip file: the book, the executed chapters, their results and the sources.

The book is there as HTML and as PDF. The zip file does not depend on when, where or how often it is made: its entries
are in a fixed order, have the date of the commit, and have the same permissions everywhere. The same commit and the
same versions of all programs give the same bytes.
"""

import hashlib
import io
import json
import sys
import tarfile
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

from tools import build, ledger, pdf, provenance
from tools.execute import ROOT, execute_all

COPIED = ("CITATION.cff", "LICENSE", "LICENSE-TEXT", "ledger/claims.yml", "ledger/errata.yml", "constraints.txt")
# For the next build of Sphinx, and templates of the theme.
NOT_FOR_READERS = (".buildinfo", "webpack-macros.html", "sbt-webpack-macros.html")
README = Path(__file__).with_name("supplement.md")
SUMS = "SHA256SUMS"
FIRST = (1980, 1, 1, 0, 0, 0)  # the first date that a zip file can have


def findings(found: ledger.Ledger) -> str:
    """Return all entries of the ledger `found`, each with the recorded result of its check, as a text in JSON.

    The entries are first the statements of Poulsen's report and the lecture notes (claims), and then their errors in
    print (slips).
    """
    rows = [
        {"type": type(entry).__name__.lower(), **asdict(entry), "found": found.findings.get(entry.id)}
        for entry in found.entries
    ]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def sources(root: Path) -> dict[str, bytes]:
    """Return a dictionary from path to content for all files of the last commit in the git repository `root`.

    Each path begins with `source/`, and each content is a byte string.
    """
    with tarfile.open(fileobj=io.BytesIO(provenance.printed(root, "archive", "HEAD"))) as tar:
        return {f"source/{item.name}": tar.extractfile(item).read() for item in tar if item.isfile()}


def tree(folder: Path, name: str) -> dict[str, bytes]:
    """Return a dictionary from path to content for all files in `folder` and its subfolders.

    A path begins with the text `name`, and goes on with the path inside of `folder`. A content is a byte string. Files
    that only the build uses are left out: .buildinfo and two templates of the theme.
    """
    files = (file for file in folder.rglob("*") if file.is_file() and file.name not in NOT_FOR_READERS)
    return {f"{name}/{file.relative_to(folder).as_posix()}": file.read_bytes() for file in files}


def contents(executed: dict[str, Path], html: Path, pdfs: list[Path], root: Path = ROOT) -> dict[str, bytes]:
    """Return a dictionary from path to content for all files of the supplement, the project's archive for a journal.

    Among them are a README and a list of checksums. `executed` has the path of each executed chapter by its file name,
    `html` is the folder with the book as HTML, and `pdfs` are the paths of the PDF files. `root` is the main folder of
    the project.
    """
    files = {name: (root / name).read_bytes() for name in COPIED} | tree(html, "html") | sources(root)
    files |= {f"notebooks/{name}": file.read_bytes() for name, file in executed.items()}
    files |= {file.name: file.read_bytes() for file in pdfs}
    files["findings.json"] = findings(ledger.read(executed, root)).encode()
    python = ".".join(map(str, sys.version_info[:3]))
    files["README.md"] = README.read_text().format(version=pdf.version(root), python=python).encode()
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())]
    return files | {SUMS: "".join(sums).encode()}


def pack(files: dict[str, bytes], target: Path, date: float) -> Path:
    """Write `files` into a zip file at the path `target`, and return this path.

    `files` is a dictionary from path to content. In the zip file all files have the date `date`, in seconds since 1970,
    and are in a folder with the name of the zip file. An earlier date than a zip file can have becomes its first one.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(f"{target.stem}/{name}", max(time.gmtime(date)[:6], FIRST))
            entry.create_system, entry.external_attr = 3, 0o100644 << 16  # as on Unix, readable by everyone
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return target


def name(root: Path = ROOT) -> str:
    """Return the file name of the supplement, an archive for a journal, with the version of the project in `root`.

    If there is no commit, or if files differ from the commit, the name has the word "uncommitted".
    """
    number, *rest = pdf.version(root).split(", ")
    return f"egm-supplement-{number}{'-uncommitted' if len(rest) != 1 else ''}.zip"


def supplement(root: Path = ROOT) -> Path:
    """Build the book, pack it with chapters and sources as a supplement for a journal, and return the zip file's path.

    `root` is the main folder of the project. Zip files of earlier supplements are removed. If there is no commit, or
    there are uncommitted changes, raise a BookError and build nothing.
    """
    for outdated in (root / "_build").glob("egm-supplement-*.zip"):
        outdated.unlink()
    if "uncommitted" in name(root):
        raise build.BookError("A supplement is made of a commit: commit or stash what `git status` lists.")
    executed = execute_all(root)
    html, pdfs = build.build(root).parent, [pdf.build(root), pdf.paper(root)]
    files = contents(executed, html, pdfs, root)
    return pack(files, root / "_build" / name(root), float(build.environment(root)["SOURCE_DATE_EPOCH"]))


if __name__ == "__main__":
    build.report(supplement, "The supplement was not made.")
