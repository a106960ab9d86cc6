"""Look up every external link of the book and of the files beside it, by Sphinx's own link checker.

    python -m tools.links

The book is laid out as for reading; the links of the other files are added to its first page. It lists the links that
lead nowhere and ends with an error if there are any. Unlike all other tools it needs a network.
"""

import json
import re
import sys
from pathlib import Path

from tools import build
from tools.execute import ROOT, ChapterError, execute_all

BESIDE = ("*.md", "*.cff", "*.toml", "LICENSE*", ".github/**/*.md", ".github/**/*.yml")
LINK = re.compile(r"https?://[^\s<>()\"'`\]}{$]+[^\s<>()\"'`\]}{$.,;:]")


def beside(root: Path) -> list[str]:
    """The links in the files that are not pages of the book."""
    files = [file for pattern in BESIDE for file in sorted(root.glob(pattern)) if file.is_file()]
    return sorted({link for file in files for link in LINK.findall(file.read_text())})


def is_dead(entry: dict) -> bool:
    """Whether a link leads nowhere.

    A publisher that forbids programs answers 403, but only after doi.org has sent the program there: the DOI is known.
    """
    known = entry["uri"].startswith("https://doi.org/") and "403 Client Error" in entry["info"]
    return entry["status"] in ("broken", "timeout") and not known


def check(stage: Path, root: Path) -> list[dict]:
    """Look up the links of a laid-out book: those that are dead, with the page and the line of each."""
    added = "\n".join(f"- <{link}>" for link in beside(root))
    with (stage / "book" / "index.md").open("a") as page:
        page.write(f"\n\n## Links of the files beside the book\n\n{added}\n")
    done = build.jupyter_book(stage, root, "linkcheck")
    found = stage / "_build" / "html" / "output.json"
    if not found.exists():
        raise build.failed(done, stage)
    return [entry for entry in map(json.loads, found.read_text().splitlines()) if is_dead(entry)]


def main(root: Path = ROOT) -> None:
    """List the dead links, and end with an error if there are any."""
    stage = root / "_build" / "links"
    try:
        build.lay_out(stage, execute_all(root), root)
        dead = check(stage, root)
    except (ChapterError, build.BookError) as error:
        sys.exit(f"\nThe links were not looked up.\n{error}")
    sys.exit("\n".join("{filename}:{lineno}: {uri}: {info}".format(**entry) for entry in dead) or 0)


if __name__ == "__main__":
    main()
