"""Test the README: the output of its example, the numbers in its table, and the files and modules that it names."""

import importlib
import re

import numpy as np
import pytest

from egm import GaussianMechanism, scaling
from egm.study.tables import improvement
from tools.execute import ROOT

README = (ROOT / "README.md").read_text()


def block(language):
    """Return the text of the README's only code block in `language`, such as "python"."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return text


def series(name):
    """Return the numbers in the only table row of the README whose first cell is `name`, as a list of floats."""
    (row,) = re.findall(rf"^\| {name} \|(.*)\|$", README, re.MULTILINE)
    return [float(number) for number in row.split("|")]


def test_example_prints_what_the_readme_says(capsys):
    exec(compile(block("python"), "README.md", "exec"), {})
    assert capsys.readouterr().out == block("text")


def test_table_shows_the_improvement():
    d, n = (re.search(rf"\*{name}\* = ([\d,]+)", README)[1].replace(",", "") for name in "dn")
    exact = [improvement(int(d), int(n), alpha) for alpha in series("Skewness α")]
    assert series("Factor") == [round(value, 1) for value in exact]


def test_claim_is_what_egm_computes():
    claim = r"For (\d+) coordinates with standard deviations 1, 1/2, 1/3, … and a million rows.*?factor of ([\d.]+)\."
    d, factor = re.search(claim, README, re.DOTALL).groups()
    assert float(factor) == round(improvement(int(d), 10**6, 1), 1)
    sigma = 1 / np.arange(1, int(d) + 1)
    errors = [scaling.noise_factor(b, sigma, 1e-6) for b in (1 / sigma, scaling.expected_norm(sigma))]
    printed = [int(number) for number in re.findall(r"squared error (\d+) expected", block("text"))]
    assert f"gains a factor of {printed[0] / printed[1]:.1f}." in README
    assert float(re.search(r"deviations\s+the factor is ([\d.]+) here", README)[1]) == round(errors[0] / errors[1], 1)


def test_l2_noise_has_the_error_that_the_readme_says():
    """The README's three ratios of the squared errors of l2 and Gaussian noise are right to two decimals."""
    more = r", ([\d.]+) times\s+for\s+(\d+)"
    claim = r"has ([\d.]+) times the squared error of Gaussian noise for\s+(\d+) columns" + 2 * more
    found = re.search(claim, README).groups()
    for share, columns in zip(found[::2], found[1::2], strict=True):
        least, normal = (GaussianMechanism(1, 1, 1e-6, noise=kind, d=int(columns)) for kind in ("l2", "gaussian"))
        assert float(share) == round((least.noise_std / normal.noise_std) ** 2, 2)


def test_every_module_is_named():
    """The README's table of modules lists exactly the public modules of the package, and each can be imported."""
    named = re.findall(r"^\| `(egm[.\w]+)` \|", README, re.MULTILINE)
    files = [file.relative_to(ROOT).with_suffix("") for file in (ROOT / "egm").rglob("[!_]*.py")]
    public = [file.parts for file in files if not any(part.startswith("_") for part in file.parts)]
    assert sorted(named) == sorted(map(".".join, public))
    for name in named:
        importlib.import_module(name)


def test_public_modules_are_short():
    lines = {file.name: len(file.read_text().splitlines()) for file in (ROOT / "egm").glob("[!_]*.py")}
    assert {name: number for name, number in lines.items() if number > 450} == {}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)|(notebooks/\S+\.ipynb)", README))))
def test_files_exist(path):
    assert (ROOT / "".join(path)).exists()


def test_commands_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^make (\w+) ", README, re.MULTILINE)) <= set(targets)


def test_a_stranger_reads_in_this_order():
    """The README first says what egm is and by which factor it reduces the error, and then shows how to use it.

    First comes an example, then the installation, and then the commands such as `make book`.
    """
    install = "`pip install .`"
    parts = ["the elliptical Gaussian mechanism\n", "factor of", "```python", install, "make book", "\n## "]
    places = [README.index(part) for part in parts]
    assert places == sorted(places)
    assert places[0] < 10
