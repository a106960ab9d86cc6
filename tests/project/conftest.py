"""What is published, built once for all tests."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.execute import ROOT


@dataclass(frozen=True)
class Distributions:
    """The files that are published, the wheel made straight from the sources, and the folder of those."""

    sdist: Path
    wheel: Path
    direct: Path
    sources: Path


LEFTOVERS = [
    *("_build/html/index.html", ".venv/bin/python", "out.ipynb", "notebooks/.ipynb_checkpoints/01.ipynb"),
    *("egm/__pycache__/gx2.cpython-311.pyc", "tests/egm/__pycache__/test_gx2.pyc"),
    "egm/_rows/__pycache__/kernel.f-1.py311.nbi",
]


@pytest.fixture(scope="session")
def distributions(do_without, tmp_path_factory):
    """Built as for publication, in a copy with traces of work: an sdist, and from that the wheel. Without network."""
    if not (ROOT / ".git").exists():
        do_without("no clone: what is published is what git knows")
    sources, whole, alone = (tmp_path_factory.mktemp(name) for name in ("sources", "dist", "direct"))
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in (*tracked, *LEFTOVERS):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_bytes((ROOT / name).read_bytes() if name in tracked else b"left over")
    build = [sys.executable, "-m", "build", "--no-isolation", sources]
    for command in ([*build, "--outdir", whole], [*build, "--wheel", "--outdir", alone]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,), (direct,) = whole.glob("*.tar.gz"), whole.glob("*.whl"), alone.glob("*.whl")
    return Distributions(sdist, wheel, direct, sources)
