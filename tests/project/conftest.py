"""Provide fixtures for tests: egm's built source archive and wheels, and an environment with egm installed."""

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
from tools.provenance import git

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@dataclass(frozen=True)
class Distributions:
    """Hold the paths of egm's built source archive, of two wheels (binary packages), and of the folder of sources.

    One wheel was built from the source archive, and the other one directly from the sources.
    """

    sdist: Path  # source archive
    wheel: Path  # binary package, built from the sdist
    direct: Path  # binary package, built from the sources
    sources: Path  # folder with a copy of the project


LEFTOVERS = [
    *("_build/html/index.html", ".venv/bin/python", "out.ipynb", "notebooks/.ipynb_checkpoints/01.ipynb"),
    *("egm/__pycache__/gx2.cpython-311.pyc", "tests/egm/__pycache__/test_gx2.pyc"),
    "egm/_rows/__pycache__/kernel.f-1.py311.nbi",
]


@pytest.fixture(scope="session")
def distributions(do_without, tmp_path_factory):
    """Build the source archive and the wheels of egm, and return their paths as `Distributions`.

    They are built from a copy of the project with additional files that a developer may leave there, such as caches.
    These must not get into the built files. If the project is no git clone, the fixture `do_without` skips the test, or
    makes it fail in continuous integration.
    """
    if not (ROOT / ".git").exists():
        do_without("no clone: what is published is what git knows")
    sources, whole, alone = (tmp_path_factory.mktemp(name) for name in ("sources", "dist", "direct"))
    tracked = git(ROOT, "ls-files").split()
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
    """Hold two paths: the `folder` of a Python virtual environment, and an `empty` folder in which its programs run."""

    folder: Path
    empty: Path  # where the programs of the environment run; it has no files at first

    def run(self, command, *args):
        """Run a program of the environment in the folder `empty`, and return the completed process with its output.

        `command` is the name of the program; the further arguments are passed to it. Environment variables for Python
        are removed, so that Python imports egm from the environment, and not from the sources of the project.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        command = [self.folder / "bin" / command, *args]
        return subprocess.run(command, cwd=self.empty, env=kept, capture_output=True, text=True)


def needed(requirements):
    """Return the names of all packages that `requirements` need, directly or through other packages, as a set.

    `requirements` are lines such as "numpy>=2", and the packages that they name are in the set, too. All packages must
    be installed.
    """
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
    """Return an `Environment`, a virtual environment of Python, that has only egm and the packages that egm needs.

    egm is installed from the wheel in `distributions`. Packages of an extra (a set of optional dependencies) are not
    there. No network is used: the needed packages are symbolic links to the packages of the Python that runs the tests.
    """
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
