"""The benchmark's own parts: its independent sum, its rivals, and the shape of what it prints. Not its timings."""

import importlib.util

import numpy as np
import pytest

from benchmarks import gx2 as measured
from benchmarks import rivals
from benchmarks.direct import direct_tail
from egm import gx2

X, WEIGHTS = 15.0, 1 / np.arange(1, 11)


@pytest.mark.parametrize("weights", [[1.0, 0.3], WEIGHTS, np.geomspace(1, 1e-3, 300), np.full(50, 7.0)], ids=len)
@pytest.mark.parametrize("p", [1e-2, 1e-12])
def test_direct_sum_agrees(weights, p):
    x = gx2.isf(p, weights)
    assert direct_tail(x, np.array(weights)) == pytest.approx(gx2.sf(x, weights), rel=1e-12)


@pytest.mark.parametrize(("d", "p"), measured.MORE_TAILS)
def test_more_tails_are_exact(d, p):
    x, tail = measured.references()[d, p]
    assert direct_tail(x, 1 / np.arange(1, d + 1)) == pytest.approx(tail, rel=1e-12)


def test_every_tail_has_a_reference():
    assert {(d, p) for d in (10, 100, 1000) for p in measured.P} <= measured.references().keys()


@pytest.mark.filterwarnings("ignore")
def test_rivals_are_called_as_they_want():
    """Near the mean all of them are right to a factor, most to much more."""
    tails = {name: tail(X, WEIGHTS) for name, tail in rivals.available().items()}
    assert len(tails) >= 10
    assert all(value == pytest.approx(gx2.sf(X, WEIGHTS), rel=0.9) for value in tails.values())


def test_missing_packages_are_named(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(rivals, "find_spec", lambda name: None if name == "gx2" else find(name))
    assert "gx2" in rivals.missing()
    assert not any("PyPI" in name for name in rivals.available())


def test_a_fault_is_no_number():
    qf = pytest.importorskip("fastlmmclib.quadform").qf
    assert np.isnan(rivals.davies(qf, 1e-9, lim=3)(X, WEIGHTS))


@pytest.mark.parametrize("method", measured.SEARCHES)
def test_searches_find_the_quantile(method):
    x, width = measured.equal_accuracy(1e-3, WEIGHTS)
    found = measured.search(method, gx2.sf, 1e-3, WEIGHTS, width)
    assert gx2.sf(found, WEIGHTS) == pytest.approx(1e-3, abs=measured.ABSOLUTE)
    assert found == pytest.approx(x, abs=2 * width)


def test_lines_say_whether_the_goal_is_met():
    line = measured.verdict("error of sf, to the direct sum", [1e-13, 1e-14, 1e-15, 1e-16], ".0e", most=1e-12)
    assert line.endswith("<= 1e-12 met")
    assert len(line) <= 110
    assert measured.verdict("speed", [25, 19], ".1f", least=20).endswith(">= 20 NOT met")
