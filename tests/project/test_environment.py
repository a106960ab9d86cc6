"""Test that environment.yml, requirements.txt and constraints.txt agree with the dependencies in pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_ONLY = {"chi2comb-py", "pip", "python"}


def by_name(lines):
    """Return {package name: version specifier} for `lines` of requirements, without lines for the project itself."""
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(item.name): item.specifier for item in requirements if item.name != PROJECT["name"]}


def direct_dependencies():
    """Return a dictionary from package name to version specifier for the dependencies of egm and of all its extras.

    They are read from pyproject.toml. An extra is a set of optional dependencies.
    """
    extras = PROJECT["optional-dependencies"].values()
    return by_name([*PROJECT["dependencies"], *(line for extra in extras for line in extra)])


def test_conda_has_the_same_dependencies():
    """environment.yml (for conda) and pyproject.toml list the same dependencies, with the same bounds of versions.

    In addition, environment.yml lists Python, pip, and chi2comb.
    """
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    from_pip = [line for entry in entries if isinstance(entry, dict) for line in entry["pip"]]
    from_conda = [entry for entry in entries if isinstance(entry, str) and not entry.startswith("python=")]
    conda = by_name([*from_conda, *from_pip])
    assert {name: bound for name, bound in conda.items() if name not in CONDA_ONLY} == direct_dependencies()


@pytest.fixture(scope="module")
def pins():
    """Return a dictionary from package name to version specifier, such as "==2.1.0", read from constraints.txt."""
    return by_name((ROOT / "constraints.txt").read_text().split())


def test_constraints_are_exact(pins):
    """constraints.txt states exactly one version of each package, by "==" and without a wildcard."""
    assert all(str(pin).startswith("==") and "*" not in str(pin) and "," not in str(pin) for pin in pins.values())


@pytest.mark.parametrize(("name", "bound"), direct_dependencies().items())
def test_constraints_satisfy_the_dependencies(pins, name, bound):
    """The version of a package in constraints.txt is within the bounds that pyproject.toml has for this package.

    The book is built with the versions in constraints.txt. `name` is a direct dependency, and `bound` are its bounds.
    """
    assert bound.contains(str(pins[name]).removeprefix("=="))


REQUIREMENTS = (ROOT / "requirements.txt").read_text()
LOCKED = re.findall(r"^(\S+==\S+)(.*(?:\n    .*)+)$", REQUIREMENTS, re.MULTILINE)


def test_requirements_are_the_constraints_with_hashes():
    """requirements.txt has the versions of constraints.txt, each with a hash, and forbids pip to build packages.

    If pip built a package from its sources, it would run code of this package.
    """
    options = [line for line in REQUIREMENTS.splitlines() if line and not line.startswith(("#", " "))]
    assert options[0] == "--only-binary :all:"
    assert len(LOCKED) == len(options) - 1
    assert [pin for pin, _ in LOCKED] == (ROOT / "constraints.txt").read_text().split()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", rest) for _, rest in LOCKED)
