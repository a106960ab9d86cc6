"""What is published, built once for all tests."""

import os
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools.execute import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own, and an empty folder to be in."""

    folder: Path
    empty: Path

    def run(self, command, *args):
        """What a command of the environment does, from the empty folder, with nothing that leads to the sources."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        command = [self.folder / "bin" / command, *args]
        return subprocess.run(command, cwd=self.empty, env=kept, capture_output=True, text=True)


def needed(requirements):
    """The names of the distributions that these requirements are about, and of all that those need."""
    found, waiting = set(), [Requirement(line) for line in requirements]
    while waiting:
        requirement = waiting.pop()
        if not requirement.marker or requirement.marker.evaluate({"extra": ""}):
            if requirement.name not in found:
                waiting += map(Requirement, distribution(requirement.name).requires or [])
            found.add(requirement.name)
    return found


@pytest.fixture(scope="session")
def installed(distributions, tmp_path_factory):
    """A new environment with the wheel in it, links to what the wheel needs, and nothing else. Without network."""
    folder = tmp_path_factory.mktemp("installed")
    environment = Environment(folder / "env", folder / "empty")
    environment.empty.mkdir()
    venv.create(environment.folder, with_pip=False)
    (site,) = environment.folder.glob("lib/python*/site-packages")
    for name in needed(PROJECT["dependencies"]):
        for top in {file.parts[0] for file in distribution(name).files} - {"..", "__pycache__"}:
            (site / top).symlink_to(distribution(name).locate_file(top))
    pip = [sys.executable, "-m", "pip", "--python", environment.folder / "bin" / "python", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", distributions.wheel], check=True)
    return environment
