"""Test that environment.yml, requirements.txt and constraints.txt agree with the dependencies in pyproject.toml."""

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
    """Return a dictionary from name to version specifier of requirements, without the project itself."""
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(item.name): item.specifier for item in requirements if item.name != PROJECT["name"]}


def direct_dependencies():
    """Return the version specifiers of all dependencies of the package and of its extras, by name."""
    extras = PROJECT["optional-dependencies"].values()
    return by_name([*PROJECT["dependencies"], *(line for extra in extras for line in extra)])


def test_conda_has_the_same_dependencies():
    """environment.yml has the dependencies of pyproject.toml, with the same bounds of versions.

    In addition it has chi2comb, which tools/chi2comb.py installs for pip.
    """
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    from_pip = [line for entry in entries if isinstance(entry, dict) for line in entry["pip"]]
    from_conda = [entry for entry in entries if isinstance(entry, str) and not entry.startswith("python=")]
    conda = by_name([*from_conda, *from_pip])
    assert {name: bound for name, bound in conda.items() if name not in CONDA_ONLY} == direct_dependencies()


@pytest.fixture(scope="module")
def pins():
    """Return a dictionary from package name to version specifier for constraints.txt."""
    return by_name((ROOT / "constraints.txt").read_text().split())


def test_constraints_are_exact(pins):
    """constraints.txt states exactly one version of each package, without a wildcard."""
    assert all(str(pin).startswith("==") and "*" not in str(pin) and "," not in str(pin) for pin in pins.values())


@pytest.mark.parametrize(("name", "bound"), direct_dependencies().items())
def test_constraints_satisfy_the_dependencies(pins, name, bound):
    """The version in constraints.txt, with which the book is built, satisfies the bound in pyproject.toml."""
    assert bound.contains(str(pins[name]).removeprefix("=="))


REQUIREMENTS = (ROOT / "requirements.txt").read_text()
LOCKED = re.findall(r"^(\S+==\S+)(.*(?:\n    .*)+)$", REQUIREMENTS, re.MULTILINE)


def test_requirements_are_the_constraints_with_hashes():
    """requirements.txt has the versions of constraints.txt, each with hashes, and forbids pip to build a package.

    To build a package would run its code. If a dependency of a dependency is missing, pip itself refuses, because it
    asks for the hash of everything.
    """
    options = [line for line in REQUIREMENTS.splitlines() if line and not line.startswith(("#", " "))]
    assert options[0] == "--only-binary :all:"
    assert len(LOCKED) == len(options) - 1
    assert [pin for pin, _ in LOCKED] == (ROOT / "constraints.txt").read_text().split()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", rest) for _, rest in LOCKED)


def test_samplers_are_those_whose_laws_were_tested(pins):
    """pyproject.toml excludes the versions of OpenDP before 0.14.2, which have a bias, and those not tested yet.

    The latter are all minor versions after the one in constraints.txt.
    """
    opendp, tested = direct_dependencies()["opendp"], Version(str(pins["opendp"]).removeprefix("=="))
    assert not any(opendp.contains(version) for version in ("0.14.0", "0.14.1"))
    assert opendp.contains("0.14.2")
    assert not opendp.contains(f"{tested.major}.{tested.minor + 1}.0")
