"""Test that the program `egm` gives equal results for CSV from a file and from standard input.

Some releases must read their data several times, but standard input can be read only once.
"""

import io
import json
import sys

import numpy as np
import pytest

from egm import cli
from egm.budget import Budget

TEXT = "age,pay\n" + "".join(f"{age},{pay}\n" for age, pay in np.random.default_rng(1).normal(9, 1, (900, 2)).tolist())
BUDGET = ("--epsilon", "4", "--delta", "1e-6")
COMMANDS = {  # the last two read the rows twice
    "sum": ("sum", "--sigma", "sigma.csv", "--rows", "900", *BUDGET),
    "adaptive": ("adaptive", "--rows", "900", "--header", "yes", "--radius", "99", "--sigma-range", "0.1,50", *BUDGET),
    "counted": ("sum", "--sigma", "sigma.csv", *BUDGET),
    "charged": ("mean", "--sigma", "sigma.csv", "--rows", "900", "--budget", "a.budget", *BUDGET),
}


@pytest.fixture
def egm(tmp_path, monkeypatch, capsys):
    """Return a function run(data, command, *options, text=TEXT) that runs the program `egm` with a seed for the noise.

    `data` is the name of a file, or "-" for standard input with the content `text`. `command` is "sum", "mean" or
    "adaptive". The function returns (exit code, standard output, standard error).
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sigma.csv").write_text("age,1\npay,1\n")
    (tmp_path / "t.csv").write_text(TEXT)

    def run(data, command, *options, text=TEXT):
        Budget("a.budget", epsilon=9, delta=1e-6, simulation=True)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code = cli.main([command, data, *options, "--simulate", "1", "--format", "json"])
        (tmp_path / "a.budget").unlink(missing_ok=True)
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_standard_input_gives_the_release_of_a_file(egm, name):
    command, *options = COMMANDS[name]
    code, out, err = egm("-", command, *options)
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads(egm("t.csv", command, *options)[1])


def test_a_wrong_number_of_rows_is_that_of_standard_input(egm):
    """If standard input has 901 rows but --rows says 900, the error of `egm` names standard input and both numbers."""
    command, *options = COMMANDS["charged"]
    code, out, err = egm("-", command, *options, text=TEXT + "1,2\n")
    assert (code, out, err) == (2, "", "egm: standard input: has 901 rows, --rows says 900\n")


def test_thousands_on_the_command_line(egm):
    text = "age;pay\n" + "1'000;2\n" * 900
    code, out, _ = egm("-", *COMMANDS["sum"], "--delimiter", ";", "--thousands", "'", "--center", "1000", text=text)
    assert code == 0
    assert abs(json.loads(out)["estimate"][0] - 900_000) < 1000
    code, out, err = egm("-", *COMMANDS["sum"], "--delimiter", ";", "--thousands", ".", text=text)
    assert (code, out, err) == (2, "", "egm: --thousands must not be the decimal sign, got '.' for both\n")
