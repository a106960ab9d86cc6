"""Test that the checks of arguments return float64 arrays, and that their errors show the argument's name and value."""

import numpy as np
import pytest

from egm import _validate as check


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.int8(3), [3, 3], np.full((2, 2), 3)])
def test_numbers_and_arrays_come_back_as_float64(value):
    array = check.positive(epsilon=value)
    assert array.dtype == np.float64
    assert np.all(array == 3)


def test_float64_arrays_are_not_copied():
    rows = np.ones((4, 2))
    assert np.shares_memory(check.matrix(2, X=rows), rows)


@pytest.mark.parametrize("value", ["3", None, True, 1j, object, [1, None], [[1], [1, 2]], np.ma.ones(2)], ids=repr)
def test_what_is_not_a_real_number_is_a_type_error(value):
    with pytest.raises(TypeError, match=r"^epsilon must be a real number or an array of real numbers, got "):
        check.positive(epsilon=value)


def test_long_values_are_shortened():
    with pytest.raises(TypeError, match=r"got 'a+\.\.\. of type str$"):
        check.real(epsilon="a" * 1000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check.positive(sigma=[1.0, -2.0]), r"sigma\[1\] must be finite and > 0, got -2.0"),
        (lambda: check.nonnegative(nc=-1e-300), r"nc must be finite and >= 0, got -1e-300"),
        (lambda: check.finite(center=[[0.0, np.inf]]), r"center\[0, 1\] must be finite, got inf"),
        (lambda: check.real(x=np.nan), r"x must not be NaN, got nan"),
        (lambda: check.probability(delta=1), r"delta must lie strictly between 0 and 1, got 1.0"),
        (lambda: check.count(n=1e30 + 0.5 - 1e30), r"n must be a whole number >= 1, got 0.0"),
        (lambda: check.count(n=np.inf), r"n must be a whole number >= 1, got inf"),
        (lambda: check.count(n=10**400), r"n must be a whole number >= 1, got inf"),
        (lambda: check.positive(epsilon=10**400), r"epsilon must be finite and > 0, got inf"),
        (lambda: check.finite(center=-(10**400)), r"center must be finite, got -inf"),
        (lambda: check.positive(epsilon=-(2**70)), r"epsilon must be finite and > 0, got -1.1805916207174113e\+21"),
        (lambda: check.scalar(check.positive, epsilon=[1.0]), r"epsilon must be a single number, got .* \(1,\)"),
        (lambda: check.vector(sigma=[]), r"sigma must be a vector with at least one entry, got shape \(0,\)"),
        (lambda: check.vector(sigma=[[1.0]]), r"sigma must be a vector with at least one entry, got shape \(1, 1\)"),
        (lambda: check.matrix(3, X=np.ones((2, 2))), r"X must have shape \(rows, 3\), got \(rows, 2\)"),
    ],
)
def test_bad_values_are_named(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


def test_whole_floats_count():
    assert check.count(n=1e6) == 10**6
    assert check.count(n=10**30 + 1) == 10**30 + 1
    assert check.count(n=np.int64(2**53 + 1)) == 2**53 + 1
    assert isinstance(check.count(n=1e6), int)
