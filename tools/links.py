"""Look up every external link of the sources, by Sphinx's own link checker.

    python -m tools.links

Nothing is executed: the links are read from the pages, the chapters, the docstrings, the bibliography and the files
beside the book. The program prints the links that do not work, and ends with an error if there are any. It needs a
network, which no other tool does.
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
    """Return {link: names of the files that have it}."""
    found = defaultdict(list)
    for file in sorted(file for pattern in (*SOURCES, *BESIDE) for file in root.glob(pattern) if file.is_file()):
        text = file.read_text()
        for link in {*LINK.findall(text), *(f"https://doi.org/{doi}" for doi in DOI.findall(text))}:
            found[link].append(file.relative_to(root).as_posix())
    return found


def is_dead(entry: dict) -> bool:
    """Return whether an entry of the link checker is about a link that does not work.

    A publisher that refuses programs answers 403, but only after doi.org has redirected the program to the publisher.
    So the DOI is known, and such a link counts as working.
    """
    known = entry["uri"].startswith("https://doi.org/") and "403 Client Error" in entry["info"]
    return entry["status"] in ("broken", "timeout") and not known


def check(root: Path = ROOT) -> list[str]:
    """Return one message for each link that does not work: the files that have it, and the answer to the request."""
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
