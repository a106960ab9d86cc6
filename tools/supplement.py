"""Pack what a journal archives: the book offline and as PDF, the executed chapters, what they found, the sources.

The zip holds nothing that depends on when, where or how often it was made: entries in order, dated by the commit, with
the same permissions everywhere. From one commit, with the same versions of everything, come the same bytes.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

from tools import build, ledger, pdf
from tools.execute import ROOT, execute_all

COPIED = ("CITATION.cff", "LICENSE", "LICENSE-TEXT", "ledger/claims.yml", "ledger/errata.yml", "constraints.txt")
# For the next build of Sphinx, and templates of the theme.
NOT_FOR_READERS = (".buildinfo", "webpack-macros.html", "sbt-webpack-macros.html")
README = Path(__file__).with_name("supplement.md")
SUMS = "SHA256SUMS"


def findings(found: ledger.Ledger) -> str:
    """Return every entry of the ledger with what its check found, as JSON, in the order of both lists."""
    rows = [
        {"type": type(entry).__name__.lower(), **asdict(entry), "found": found.findings.get(entry.id)}
        for entry in found.entries
    ]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def sources(root: Path) -> dict[str, bytes]:
    """Return the files of the commit, under `source/`."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {f"source/{item.name}": tar.extractfile(item).read() for item in tar if item.isfile()}


def tree(folder: Path, name: str) -> dict[str, bytes]:
    """Return the files of a folder, under another name."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.name not in NOT_FOR_READERS)
    return {f"{name}/{file.relative_to(folder).as_posix()}": file.read_bytes() for file in files}


def contents(executed: dict[str, Path], html: Path, pdfs: list[Path], root: Path = ROOT) -> dict[str, bytes]:
    """Return {path in the supplement: content}, with the README and the check sums."""
    files = {name: (root / name).read_bytes() for name in COPIED} | tree(html, "html") | sources(root)
    files |= {f"notebooks/{name}": file.read_bytes() for name, file in executed.items()}
    files |= {file.name: file.read_bytes() for file in pdfs}
    files["findings.json"] = findings(ledger.read(executed, root)).encode()
    python = ".".join(map(str, sys.version_info[:3]))
    files["README.md"] = README.read_text().format(version=pdf.version(root), python=python).encode()
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())]
    return files | {SUMS: "".join(sums).encode()}


def pack(files: dict[str, bytes], target: Path, date: float) -> Path:
    """Write a zip of these files in a folder of the zip's name, all of one date."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(f"{target.stem}/{name}", time.gmtime(date)[:6])
            entry.create_system, entry.external_attr = 3, 0o100644 << 16  # as on Unix, readable by everyone
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return target


def name(root: Path = ROOT) -> str:
    """Return the name of the supplement: it has the version, and says so if it is not made of a commit."""
    number, *rest = pdf.version(root).split(", ")
    return f"egm-supplement-{number}{'-uncommitted' if len(rest) != 1 else ''}.zip"


def supplement(root: Path = ROOT) -> Path:
    """Build both forms of the book, and pack them with the rest; only what is committed is archived."""
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
