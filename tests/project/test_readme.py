"""The README: its example prints what it says, its figure shows what egm computes, and what it names is there."""

import importlib
import json
import re

import pytest

from egm.study.tables import improvement
from tools.execute import ROOT

README = (ROOT / "README.md").read_text()


def block(language):
    """The one fenced block of a language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return text


def series(start):
    """The list of numbers at the end of the line of the chart that begins like this."""
    (line,) = [line for line in block("mermaid").splitlines() if line.strip().startswith(start)]
    return [float(number) for number in json.loads(line[line.index("[") :])]


def test_example_prints_what_the_readme_says(capsys):
    exec(compile(block("python"), "README.md", "exec"), {})
    assert capsys.readouterr().out == block("text")


def test_example_is_short():
    """The README promises little to read: two imports, and six statements."""
    body = [line for line in block("python").splitlines() if line and not line.startswith(("import", "from"))]
    assert len(body) <= 7


def test_figure_shows_the_improvement():
    d, n = (int(number) for number in re.search(r"d = (\d+), n = (\d+)", block("mermaid")).groups())
    exact = [improvement(d, n, alpha) for alpha in series("x-axis")]
    assert series("bar") == [round(value, 1) for value in exact]


def test_every_module_is_named():
    """The table has each public module of the package, and no other."""
    named = re.findall(r"^\| `(egm[.\w]+)` \|", README, re.MULTILINE)
    files = [file.relative_to(ROOT).with_suffix("") for file in (ROOT / "egm").rglob("[!_]*.py")]
    public = [file.parts for file in files if not any(part.startswith("_") for part in file.parts)]
    assert sorted(named) == sorted(map(".".join, public))
    for name in named:
        importlib.import_module(name)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)|(notebooks/\S+\.ipynb)", README))))
def test_files_exist(path):
    assert (ROOT / "".join(path)).exists()


def test_commands_come_first_and_exist():
    commands = re.findall(r"^make (\w+) ", README, re.MULTILINE)
    assert commands == ["book", "test"]
    assert README.index("make book") < 100
    assert all(re.search(rf"^{command}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for command in commands)
