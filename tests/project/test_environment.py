"""The dependencies are stated once, in pyproject.toml; environment.yml, requirements.txt and constraints.txt follow."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_ONLY = {"chi2comb-py", "pip", "python"}


def by_name(lines):
    """{name: specifier} of requirements, leaving out the project's own extras."""
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(item.name): item.specifier for item in requirements if item.name != PROJECT["name"]}


def direct_dependencies():
    """Every direct dependency, of the package and of its extras."""
    extras = PROJECT["optional-dependencies"].values()
    return by_name([*PROJECT["dependencies"], *(line for extra in extras for line in extra)])


def test_conda_has_the_same_dependencies():
    """Name for name and bound for bound; conda has chi2comb besides, which pip gets by tools/chi2comb.py."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    from_pip = [line for entry in entries if isinstance(entry, dict) for line in entry["pip"]]
    from_conda = [entry for entry in entries if isinstance(entry, str) and not entry.startswith("python=")]
    conda = by_name([*from_conda, *from_pip])
    assert {name: bound for name, bound in conda.items() if name not in CONDA_ONLY} == direct_dependencies()


@pytest.fixture(scope="module")
def pins():
    """{name: specifier} of constraints.txt."""
    return by_name((ROOT / "constraints.txt").read_text().split())


def test_constraints_are_exact(pins):
    """One version each, and no wildcard."""
    assert all(str(pin).startswith("==") and "*" not in str(pin) and "," not in str(pin) for pin in pins.values())


@pytest.mark.parametrize(("name", "bound"), direct_dependencies().items())
def test_constraints_satisfy_the_dependencies(pins, name, bound):
    """What the book is built with is what the project says it works with."""
    assert bound.contains(str(pins[name]).removeprefix("=="))


REQUIREMENTS = (ROOT / "requirements.txt").read_text()
LOCKED = re.findall(r"^(\S+==\S+)(.*(?:\n    .*)+)$", REQUIREMENTS, re.MULTILINE)


def test_requirements_are_the_constraints_with_hashes():
    """The same versions, each with the hashes of its files; and pip builds none of them, which would run their code.

    Were a dependency of a dependency missing, pip itself would refuse: it asks for a hash of all that it installs.
    """
    options = [line for line in REQUIREMENTS.splitlines() if line and not line.startswith(("#", " "))]
    assert options[0] == "--only-binary :all:"
    assert len(LOCKED) == len(options) - 1
    assert [pin for pin, _ in LOCKED] == (ROOT / "constraints.txt").read_text().split()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", rest) for _, rest in LOCKED)


def test_samplers_are_those_whose_laws_were_tested(pins):
    """Not the biased ones before 0.14.2, and none of a minor version after the one that the tests run with."""
    opendp, tested = direct_dependencies()["opendp"], Version(str(pins["opendp"]).removeprefix("=="))
    assert not any(opendp.contains(version) for version in ("0.14.0", "0.14.1"))
    assert opendp.contains("0.14.2")
    assert not opendp.contains(f"{tested.major}.{tested.minor + 1}.0")
