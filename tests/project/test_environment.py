"""Dependencies are stated in pyproject.toml; environment.yml, requirements.txt and constraints.txt agree with it."""

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
    """Return {name: specifier} of requirements, without the project's own extras."""
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(item.name): item.specifier for item in requirements if item.name != PROJECT["name"]}


def direct_dependencies():
    """Return all direct dependencies of the package and of its extras."""
    extras = PROJECT["optional-dependencies"].values()
    return by_name([*PROJECT["dependencies"], *(line for extra in extras for line in extra)])


def test_conda_has_the_same_dependencies():
    """Names and bounds are the same; conda has chi2comb besides, which pip gets by tools/chi2comb.py."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    from_pip = [line for entry in entries if isinstance(entry, dict) for line in entry["pip"]]
    from_conda = [entry for entry in entries if isinstance(entry, str) and not entry.startswith("python=")]
    conda = by_name([*from_conda, *from_pip])
    assert {name: bound for name, bound in conda.items() if name not in CONDA_ONLY} == direct_dependencies()


@pytest.fixture(scope="module")
def pins():
    """Return {name: specifier} of constraints.txt."""
    return by_name((ROOT / "constraints.txt").read_text().split())


def test_constraints_are_exact(pins):
    """Each package has one version, without a wildcard."""
    assert all(str(pin).startswith("==") and "*" not in str(pin) and "," not in str(pin) for pin in pins.values())


@pytest.mark.parametrize(("name", "bound"), direct_dependencies().items())
def test_constraints_satisfy_the_dependencies(pins, name, bound):
    """The versions that the book is built with satisfy the bounds in pyproject.toml."""
    assert bound.contains(str(pins[name]).removeprefix("=="))


REQUIREMENTS = (ROOT / "requirements.txt").read_text()
LOCKED = re.findall(r"^(\S+==\S+)(.*(?:\n    .*)+)$", REQUIREMENTS, re.MULTILINE)


def test_requirements_are_the_constraints_with_hashes():
    """The versions are equal, each has hashes, and pip builds none of them, because that would run their code.

    A missing dependency of a dependency makes pip itself refuse, because pip asks for the hash of everything.
    """
    options = [line for line in REQUIREMENTS.splitlines() if line and not line.startswith(("#", " "))]
    assert options[0] == "--only-binary :all:"
    assert len(LOCKED) == len(options) - 1
    assert [pin for pin, _ in LOCKED] == (ROOT / "constraints.txt").read_text().split()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", rest) for _, rest in LOCKED)


def test_samplers_are_those_whose_laws_were_tested(pins):
    """Versions before 0.14.2 have a bias and are excluded, and so is any minor version after the tested one."""
    opendp, tested = direct_dependencies()["opendp"], Version(str(pins["opendp"]).removeprefix("=="))
    assert not any(opendp.contains(version) for version in ("0.14.0", "0.14.1"))
    assert opendp.contains("0.14.2")
    assert not opendp.contains(f"{tested.major}.{tested.minor + 1}.0")
