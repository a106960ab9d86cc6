"""What is published: the files in it, and that it works where there is nothing but it."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from packaging.metadata import Metadata
from trove_classifiers import classifiers

from egm import _distribution
from tools.execute import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STEM = PROJECT["name"].replace("-", "_")  # as file names have it
README = (ROOT / "README.md").read_text()
# What a chapter or an extra needs, and the package by itself must not.
EXTRA = ["IPython", "dask", "distributed", "matplotlib", "pyarrow", "sympy"]


def tracked(*folders):
    """The files that git knows."""
    found = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(found.stdout.split())


@pytest.fixture(scope="module")
def wheel(distributions):
    """{name: content} of the wheel that is published."""
    with zipfile.ZipFile(distributions.wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="module")
def unpacked(distributions, tmp_path_factory):
    """The sdist, in a folder of its own."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(distributions.sdist) as file:
        file.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


# The files ------------------------------------------------------------------------------------------------------------


def test_wheel_is_the_package_and_nothing_else(wheel):
    """Modules, data, py.typed; and beside them only metadata, with both licences."""
    assert {name for name in wheel if ".dist-info/" not in name} == tracked("egm")
    about = f"{STEM}-{PROJECT['version']}.dist-info"
    assert {f"{about}/licenses/{name}" for name in PROJECT["license-files"]} < wheel.keys()
    assert "egm/py.typed" in wheel
    assert wheel["egm/study/data/rivals.csv"] == (ROOT / "egm/study/data/rivals.csv").read_bytes()


def test_wheel_from_the_sdist_is_that_from_the_sources(distributions, wheel):
    """Whoever builds it, and from whichever of the two."""
    with zipfile.ZipFile(distributions.direct) as file:
        assert {name: file.read(name) for name in file.namelist()} == wheel


def test_sdist_is_the_whole_project(unpacked):
    """Every file that git knows, unchanged, so that the tests run and the book can be built from it."""
    added = {"PKG-INFO", "setup.cfg"}
    found = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in found - added if not name.startswith(f"{STEM}.egg-info/")} == tracked()
    assert all((unpacked / name).read_bytes() == (ROOT / name).read_bytes() for name in tracked())


def test_tests_of_the_sdist_can_be_run(unpacked):
    """All are collected, for which everything that they need is imported; and those of a few modules pass."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for args in (
        ["--collect-only"],
        ["egm/bounds.py", "tests/egm/test_bounds.py", "tests/project/test_environment.py"],
    ):
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
        done = subprocess.run(tests, cwd=unpacked, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


# The metadata ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def metadata(wheel):
    """What the wheel says about itself; an ExceptionGroup if a field breaks the rules of the registry."""
    return Metadata.from_email(wheel[f"{STEM}-{PROJECT['version']}.dist-info/METADATA"], validate=True)


def test_metadata_are_those_of_the_project(metadata):
    assert (metadata.name, str(metadata.version)) == (PROJECT["name"], PROJECT["version"])
    assert metadata.license_expression == PROJECT["license"]
    assert str(metadata.requires_python) == PROJECT["requires-python"]
    assert set(metadata.provides_extra) == PROJECT["optional-dependencies"].keys()


def test_classifiers_are_known(metadata):
    """The registry refuses others."""
    assert set(metadata.classifiers) <= classifiers


def test_long_description_is_the_readme(metadata):
    """As Markdown with tables, of which every element is rendered."""
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description.strip() == README.strip()
    html = MarkdownIt("commonmark").enable("table").render(metadata.description)
    assert html.count("<pre>") == len(re.findall(r"^```", README, re.M)) / 2
    assert html.count("<table>") == len(re.findall(r"^\|--", README, re.M))
    assert "```" not in html
    assert "|--" not in html


# Where there is nothing but the package -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own, and an empty folder to be in."""

    folder: Path
    empty: Path

    @property
    def bin(self):
        """Where its commands are."""
        return self.folder / "bin"

    @property
    def variables(self):
        """Those of this process without what could lead back to the sources."""
        return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def run(self, command, *args):
        """What a command of the environment does, from the empty folder."""
        return subprocess.run(
            [self.bin / command, *args], cwd=self.empty, env=self.variables, capture_output=True, text=True
        )

    def pip_install(self, *args):
        """What pip does for this environment, with the versions of constraints.txt, also where it builds."""
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "--quiet"]
        variables = {**self.variables, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
        return subprocess.run([*pip, *args], cwd=self.empty, env=variables, capture_output=True, text=True)


@pytest.fixture(scope="module")
def installed(do_without, distributions, tmp_path_factory):
    """A new environment with the wheel and its dependencies in it, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    environment = Environment(folder / "env", folder / "empty")
    environment.empty.mkdir()
    venv.create(environment.folder, with_pip=False)
    done = environment.pip_install(distributions.wheel)
    if done.returncode and re.search(r"onnection|resolve|No matching distribution", done.stderr):
        do_without(f"the package registry cannot be reached: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return environment


def test_package_is_found_in_the_environment(installed):
    """Not in the sources; with its marker of types and its data."""
    code = "import egm, egm.study.tables as e; from pathlib import Path; p = Path(egm.__file__).parent\n"
    code += "print(p, (p / 'py.typed').is_file(), len(e.rivals()), egm.__version__, sep='\\n')"
    done = installed.run("python", "-c", code)
    folder, typed, rows, found = done.stdout.split()
    assert Path(folder).is_relative_to(installed.folder)
    assert (typed, found) == ("True", PROJECT["version"])
    assert int(rows) == len((ROOT / "egm/study/data/rivals.csv").read_text().splitlines()) - 1


def test_every_module_without_an_extra_is_imported(installed):
    """Only figures and claims of the study need more than the dependencies, and no extra is there."""
    public = {f"egm.{path.stem}" for path in (ROOT / "egm").glob("[!_]*.py")}
    public |= {f"egm.study.{name}" for name in ("parameters", "planted", "rivals", "tables", "timing")}
    code = f"import importlib, importlib.util\nfor name in {sorted(public)}: importlib.import_module(name)\n"
    code += f"print([name for name in {EXTRA} if importlib.util.find_spec(name)])"
    done = installed.run("python", "-W", "error", "-c", code)
    assert done.stdout.strip() == "[]", done.stderr


def test_example_of_the_readme(installed):
    """Its output is the one that the README shows."""
    example, output = (re.search(rf"^```{kind}\n(.*?)^```$", README, re.M | re.S)[1] for kind in ("python", "text"))
    assert installed.run("python", "-c", example).stdout == output


def test_secure_release(installed):
    """By OpenDP and the compiled kernel; within 12 standard deviations of the sum."""
    code = """
import numpy as np
from egm import GaussianDataMechanism
mechanism = GaussianDataMechanism([1.0, 0.1], n=1000, epsilon=1, delta=1e-6)
X = np.random.default_rng(0).normal(0, mechanism.sigma, size=(1000, 2))
release = mechanism.release(X)
print(release.simulated, np.all(np.abs(release.estimate - X.sum(axis=0)) < 12 * release.noise_std))
"""
    done = installed.run("python", "-W", "error", "-c", code)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_command_line(installed):
    """`egm` and `python -m egm`: help, version, a plan, a release."""
    for command in (["egm"], ["python", "-m", "egm"]):
        assert installed.run(*command, "--help").stdout.startswith("usage: egm")
        assert installed.run(*command, "--version").stdout == f"egm {PROJECT['version']}\n"
    sigma, data = installed.empty / "sigma.csv", installed.empty / "data.csv"
    sigma.write_text("a,1\nb,0.1\n")
    data.write_text("a,b\n" + "0.5,0.05\n" * 20)
    options = ["--sigma", sigma.name, "--epsilon", "1", "--delta", "1e-6", "--rows", "20"]
    plan = installed.run("egm", "plan", *options, "--format", "json")
    assert json.loads(plan.stdout)["columns"] == ["a", "b"], plan.stderr
    release = installed.run("python", "-m", "egm", "sum", data.name, *options)
    assert release.stdout.startswith('# {"simulated": false'), release.stderr
    for file in (sigma, data):
        file.unlink()


def test_messages_name_what_pip_finds(installed):
    """Where the package is installed, its own name with an extra adds to it, though no registry has that name."""
    asked = f"{_distribution.NAME}[files]"
    done = installed.pip_install("--dry-run", "--report", "report.json", asked)
    assert done.returncode == 0, done.stderr
    report = json.loads((installed.empty / "report.json").read_text())
    (installed.empty / "report.json").unlink()
    assert [item["metadata"]["name"] for item in report["install"]] == ["pyarrow"]


@pytest.mark.parametrize("source", ["sources", "sdist"])
def test_pip_installs_the_sources(installed, distributions, wheel, source):
    """`pip install .` and the sdist put the files of the wheel in place, built by pip in an environment of its own."""
    done = installed.pip_install("--no-deps", "--force-reinstall", "--no-compile", getattr(distributions, source))
    assert done.returncode == 0, done.stderr
    (site,) = installed.folder.glob("lib/python*/site-packages")
    package = {name for name in wheel if ".dist-info/" not in name}
    there = {str(path.relative_to(site)) for path in (site / "egm").rglob("*") if path.is_file()}
    assert {name for name in there if "/__pycache__/" not in name} == package
    assert all((site / name).read_bytes() == wheel[name] for name in package)
    assert installed.run("egm", "--version").stdout == f"egm {PROJECT['version']}\n"
