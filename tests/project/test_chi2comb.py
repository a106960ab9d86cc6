"""Test chi2comb, an optional package for tails of weighted chi-square sums, and the script that installs it."""

import platform
import re
import subprocess
import sys

import nbformat
import numpy as np
import pytest

from egm import gx2
from tools import chi2comb as tool
from tools.execute import ROOT


def test_example_of_its_documentation(chi2comb):
    """chi2comb gives the value that its documentation states for an example, to a relative error of 1e-14.

    The example is P[6 chi2(1, 0.5) + 3 chi2(1) + chi2(2) + 2 Z <= 1], where Z is standard normal, and chi2(k, nc) has k
    degrees of freedom and the noncentrality nc.
    """
    terms = [chi2comb.ChiSquared(*term) for term in ((6, 0.5, 1), (3, 0, 1), (1, 0, 2))]
    value, fault, _ = chi2comb.chi2comb_cdf(1, terms, 2)
    assert (value, fault) == (pytest.approx(0.050870657088644244, rel=1e-14), 0)


def test_noncentral_terms_and_degrees_of_freedom(chi2comb):
    """chi2comb and `egm.gx2.cdf` give the same probability, within 1e-9, for a sum of weighted chi-square variables.

    The three variables have 1, 4 and 2 degrees of freedom, and two of them are noncentral.
    """
    weights, dof, nc = [2.0, 1.0, 0.3], [1, 4, 2], [0.0, 3.0, 1.5]
    terms = [chi2comb.ChiSquared(*term) for term in zip(weights, nc, dof, strict=True)]
    value, fault, _ = chi2comb.chi2comb_cdf(9, terms, 0, lim=10**8, atol=1e-9)
    assert (value, fault) == (pytest.approx(gx2.cdf(9, weights, dof, nc), abs=1e-9), 0)


def test_here_it_has_a_wheel_or_it_has_none():
    """`tools.chi2comb.unavailable` returns None on x86-64 Linux with glibc, and elsewhere says why chi2comb is missing.

    chi2comb has a wheel (binary package) only for this system, on which continuous integration runs, too.
    """
    wheels = (sys.platform, platform.machine(), platform.libc_ver()[0]) == ("linux", "x86_64", "glibc")
    assert (tool.unavailable() is None) == wheels


@pytest.mark.parametrize(
    ("module", "name", "value", "reason"),
    [
        (platform, "machine", "mars", "Linux with glibc on x86-64 only, and this is cpython on Linux, mars"),
        (platform, "libc_ver", ("", ""), "Linux with glibc on x86-64 only"),
        (sys, "platform", "darwin", "Linux with glibc on x86-64 only"),
    ],
)
def test_elsewhere_nothing_is_done_and_the_reason_is_said(module, name, value, reason, monkeypatch, capsys):
    monkeypatch.setattr(module, name, value if name == "platform" else lambda: value)
    monkeypatch.setattr(subprocess, "run", None)  # a call would fail
    tool.main()
    assert reason in capsys.readouterr().out


def test_what_is_installed_is_one_file(monkeypatch):
    """`tools.chi2comb.main` lets pip take one file only: the wheel of chi2comb that tools/chi2comb.txt names.

    tools/chi2comb.txt has the version and the hash of this wheel, a binary package. The dependencies that chi2comb
    declares are not installed. The test installs nothing, but reads the options that pip would get.
    """
    monkeypatch.setattr(tool, "unavailable", lambda: None)
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: ran.append(command))
    tool.main()
    assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(ran[0])
    assert re.fullmatch(r"chi2comb==[\d.]+ --hash=sha256:[0-9a-f]{64}\n", tool.PIN.read_text())


def test_a_failure_is_said(monkeypatch):
    def fail(command, check):
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(tool, "unavailable", lambda: None)
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(SystemExit, match="chi2comb could not be installed"):
        tool.main()


@pytest.mark.parametrize("there", [True, False])
def test_chapter_compares_with_it_or_says_that_it_is_not_there(there, request, monkeypatch):
    """The notebook cell "race-chi2comb" of chapter 7 reports errors of chi2comb, or that chi2comb is not installed.

    The errors are those of tail probabilities. If `there` is True, they must be those that the chapter states. If
    `there` is False, the test hides chi2comb, so that the cell cannot import it.
    """
    if there:
        request.getfixturevalue("chi2comb")
    else:
        monkeypatch.setitem(sys.modules, "chi2comb", None)
    cells = nbformat.read(ROOT / "notebooks" / "07-exact-tail.ipynb", as_version=4).cells
    (source,) = (cell.source for cell in cells if cell.id == "race-chi2comb")
    harmonic = 1 / np.arange(1, 101)
    exact = 10.0 ** -np.arange(1, 17)
    names = {"np": np, "harmonic": harmonic, "exact_tails": exact, "at": gx2.isf(exact, harmonic)}
    exec("from contextlib import suppress\n" + source, names)
    assert names["told"] == ({"chi2comb, 1e-9": "3e-11, 3e-05, 3e+01"} if there else "chi2comb is not installed here")
