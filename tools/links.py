"""Check every external link of the project by Sphinx's own link checker.

    python -m tools.links

Nothing is executed: the links are read from the pages, the chapters, the docstrings, the bibliography and the files
beside the book. The program prints the links that do not work, and ends with an error if there are any. It needs a
network.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tools.build import BookError
from tools.execute import ROOT, tail

SOURCES = ("book/**/*.[mr]*", "book/*.bib", "notebooks/*.ipynb", "egm/**/*.py", "ledger/*.yml")
BESIDE = ("*.md", "*.cff", "*.toml", "*.yml", "LICENSE*", ".github/**/*.md", ".github/**/*.yml")
LINK = re.compile(r"https?://[^\s<>()\"'`\]}{$\\]+[^\s<>()\"'`\]}{$\\.,;:]")
DOI = re.compile(r"^ *doi *= *[{\"]([^}\"]+)", re.MULTILINE)  # of which the bibliography makes a link


def links(root: Path) -> dict[str, list[str]]:
    """Return a dictionary from each external link of the project to a list of the files that contain the link.

    The files are paths relative to `root`, the main folder of the project.
    """
    found = defaultdict(list)
    for file in sorted(file for pattern in (*SOURCES, *BESIDE) for file in root.glob(pattern) if file.is_file()):
        text = file.read_text()
        for link in {*LINK.findall(text), *(f"https://doi.org/{doi}" for doi in DOI.findall(text))}:
            found[link].append(file.relative_to(root).as_posix())
    return found


def is_dead(entry: dict) -> bool:
    """Return True if `entry`, a dictionary from Sphinx's link checker, says that its link does not work.

    Some publishers answer every program with the error 403. A link to doi.org with this answer counts as working,
    because doi.org redirects only a DOI that it knows.
    """
    known = entry["uri"].startswith("https://doi.org/") and "403 Client Error" in entry["info"]
    return entry["status"] in ("broken", "timeout") and not known


def check(root: Path = ROOT) -> list[str]:
    """Return a list with a message for each link of the project that does not work: its files, the link, and the error.

    `root` is the main folder of the project.
    """
    found, stage = links(root), root / "_build" / "links"
    stage.mkdir(parents=True, exist_ok=True)
    (stage / "index.md").write_text("# Links\n\n" + "".join(f"- <{link}>\n" for link in sorted(found)))
    options = ["-C", "-E", "-b", "linkcheck", "-D", "extensions=myst_parser", "-D", "linkcheck_retries=3"]
    command = [sys.executable, "-m", "sphinx", *options, stage, stage / "found"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = stage / "found" / "output.json"
    if not output.exists():
        raise BookError(tail(done.stderr or done.stdout, 40))
    entries = map(json.loads, output.read_text().splitlines())
    return [f"{', '.join(found[entry['uri']])}: {entry['uri']}: {entry['info']}" for entry in entries if is_dead(entry)]


if __name__ == "__main__":
    sys.exit("\n".join(check()) or 0)
