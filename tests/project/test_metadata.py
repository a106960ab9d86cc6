"""What is said about the project is said the same everywhere."""

import subprocess
import tomllib
from pathlib import Path

import yaml

from egm import _distribution

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_citation_agrees_with_the_package():
    """Version, licence and author."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]


def test_distribution_is_called_what_the_package_says():
    """The messages of the package, which cannot read pyproject.toml."""
    assert PROJECT["name"] == _distribution.NAME


def test_public_address_stands_in_one_place():
    """Should the project move, one line changes: the one under `[project.urls]` in pyproject.toml."""
    for address in PROJECT.get("urls", {}).values():
        found = subprocess.run(["git", "grep", "-lF", address], cwd=ROOT, capture_output=True, text=True, check=True)
        assert found.stdout.split() == ["pyproject.toml"]
