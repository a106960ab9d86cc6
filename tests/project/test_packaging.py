"""Test that the built wheel and source archive of egm are complete, and that egm works with its dependencies alone."""

import json
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt
from packaging.metadata import Metadata
from trove_classifiers import classifiers

from egm import _distribution
from tools.execute import ROOT
from tools.provenance import git

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STEM = PROJECT["name"].replace("-", "_")  # the form in file names
README = (ROOT / "README.md").read_text()


def tracked(*folders):
    """Return the set of paths of the files that git tracks in `folders`, by default in the whole project."""
    return set(git(ROOT, "ls-files", *folders).split())


@pytest.fixture(scope="module")
def wheel(distributions):
    """Return the files in the wheel (binary package) of the project, as a dictionary from path to content in bytes."""
    with zipfile.ZipFile(distributions.wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


# The files ------------------------------------------------------------------------------------------------------------


def test_wheel_is_the_package_and_nothing_else(wheel):
    """The wheel (binary package) consists of the files in the folder egm that git tracks, and of metadata.

    Among the files are py.typed and the data of `egm.study`. The metadata include all files with licenses.
    """
    assert {name for name in wheel if ".dist-info/" not in name} == tracked("egm")
    about = f"{STEM}-{PROJECT['version']}.dist-info"
    assert {f"{about}/licenses/{name}" for name in PROJECT["license-files"]} < wheel.keys()
    assert "egm/py.typed" in wheel
    assert wheel["egm/study/data/rivals.csv"] == (ROOT / "egm/study/data/rivals.csv").read_bytes()


def test_wheel_from_the_sdist_is_that_from_the_sources(distributions, wheel):
    """A wheel built from the sdist (source archive) has the same files as a wheel built directly from the sources.

    The contents of the files are compared, too.
    """
    with zipfile.ZipFile(distributions.direct) as file:
        assert {name: file.read(name) for name in file.namelist()} == wheel


def test_sdist_is_the_whole_project(distributions, tmp_path):
    """The sdist (source archive) has an unchanged copy of every file that git tracks, and no other files but metadata.

    So a user of the sdist can run the tests and build the book.
    """
    with tarfile.open(distributions.sdist) as file:
        file.extractall(tmp_path, filter="data")
    (unpacked,), added = tmp_path.iterdir(), {"PKG-INFO", "setup.cfg"}
    found = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in found - added if not name.startswith(f"{STEM}.egg-info/")} == tracked()
    assert all((unpacked / name).read_bytes() == (ROOT / name).read_bytes() for name in tracked())


# The metadata ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def metadata(wheel):
    """Return the metadata of the wheel; raise an error if a field breaks the rules for metadata of Python packages."""
    return Metadata.from_email(wheel[f"{STEM}-{PROJECT['version']}.dist-info/METADATA"], validate=True)


def test_metadata_are_those_of_the_project(metadata):
    """The wheel's metadata, CITATION.cff, and the project's name in messages of egm agree with pyproject.toml."""
    assert (metadata.name, str(metadata.version)) == (PROJECT["name"], PROJECT["version"])
    assert metadata.license_expression == PROJECT["license"]
    assert str(metadata.requires_python) == PROJECT["requires-python"]
    assert set(metadata.provides_extra) == PROJECT["optional-dependencies"].keys()
    assert metadata.name == _distribution.NAME
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert all(citation[field] == PROJECT[field] for field in ("version", "license", "authors"))


def test_classifiers_are_known(metadata):
    """All classifiers in the wheel's metadata are in Python's official list; the package registry refuses others.

    A classifier is a label by which users find a package.
    """
    assert set(metadata.classifiers) <= classifiers


def test_long_description_is_the_readme(metadata):
    """The description in the wheel's metadata is the text of the README, and can be rendered as HTML.

    In HTML, it has as many code blocks and tables as the README.
    """
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description.strip() == README.strip()
    html = MarkdownIt("commonmark").enable("table").render(metadata.description)
    assert html.count("<pre>") == len(re.findall(r"^```", README, re.M)) / 2
    assert html.count("<table>") == len(re.findall(r"^\|--", README, re.M))
    assert "```" not in html
    assert "|--" not in html


# Where there is nothing but the package -------------------------------------------------------------------------------


def test_every_module_without_an_extra_is_imported(installed):
    """If the wheel is installed without extras, all modules can be imported but egm.study.claims and egm.study.plots.

    Extras are sets of optional dependencies. Only public modules are tested. The imports give no warning.
    """
    public = {f"egm.{path.stem}" for path in (ROOT / "egm").glob("[!_]*.py")}
    public |= {f"egm.study.{name}" for name in ("parameters", "planted", "rivals", "tables", "timing")}
    code = f"import importlib, egm.study.tables\nfor name in {sorted(public)}: importlib.import_module(name)\n"
    code += "print(egm.__file__, len(egm.study.tables.rivals()), egm.__version__, sep='\\n')"
    done = installed.run("python", "-W", "error", "-c", code)
    assert not done.returncode, done.stderr
    file, rows, version = done.stdout.split()
    assert Path(file).is_relative_to(installed.folder)
    assert int(rows) == len((ROOT / "egm/study/data/rivals.csv").read_text().splitlines()) - 1
    assert version == PROJECT["version"]


def test_command_line(installed):
    """With the wheel installed, `egm plan` prints a plan, and `python -m egm sum` makes a release with secure noise.

    The plan says how egm would release the data. The release itself must state that its noise is not simulated, which
    means that it is not made of NumPy's random numbers.
    """
    (installed.empty / "sigma.csv").write_text("a,1\nb,0.1\n")
    (installed.empty / "data.csv").write_text("a,b\n" + "0.5,0.05\n" * 20)
    options = ["--sigma", "sigma.csv", "--epsilon", "1", "--delta", "1e-6", "--rows", "20"]
    plan = installed.run("egm", "plan", *options, "--format", "json")
    assert json.loads(plan.stdout)["columns"] == ["a", "b"], plan.stderr
    release = installed.run("python", "-m", "egm", "sum", "data.csv", *options)
    assert release.stdout.startswith('# {"simulated": false'), release.stderr
