"""Test `timing.race`, which measures the times of functions: it runs them in turns, and stops repeating a slow one."""

from itertools import count

import numpy as np
import pytest

from egm.study import timing


def test_race_takes_turns():
    turn = count()
    table = timing.race({"a": lambda: next(turn), "b": lambda: next(turn)}, repetitions=3)
    assert table["name"].tolist() == ["a", "b"]
    assert table["value"].tolist() == [4, 5]
    assert np.all(table["best"] <= table["median"])


def test_race_measures_and_loses_patience(monkeypatch):
    """`race` returns the best and the median time, and stops repeating a function after `patience` seconds in total.

    The clock is artificial. With `patience` 0.05, runs of 0.02, 0.01 and 0.03 seconds are not followed by a fourth one.
    """
    naps, now = iter((0.02, 0.01, 0.03)), [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])

    def nap():
        now[0] += next(naps)
        return 1.0

    table = timing.race({"slow": nap}, repetitions=4, patience=0.05)
    assert (table["value"][0], table["best"][0], table["median"][0]) == pytest.approx((1.0, 0.01, 0.02))
    assert next(naps, None) is None


def test_race_needs_a_function():
    with pytest.raises(ValueError, match=r"functions must have at least one function, got \{\}"):
        timing.race({})
