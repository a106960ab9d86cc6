"""Test that `check_parameters` accepts parameters of a notebook within their ranges, and names a wrong one."""

import pytest

from egm.study.parameters import check_parameters


def notebook(wish="", **values):
    """Return the globals of a notebook as a dictionary, with the variables `**values`, for tests of `check_parameters`.

    The key "In" has the list of the executed cells. If `wish` is a line of code such as "d = 5", the list has a cell
    with this line, such as papermill adds for a given parameter.
    """
    return {"In": ["", "d = 3", f"# Parameters\n{wish}" if wish else ""], **values}


def test_parameters_within_their_ranges_pass():
    check_parameters(notebook("d = 5", d=5, alphas=[0.1, 2]), d=(1, 10), alphas=(0.0, 100.0))


@pytest.mark.parametrize(
    ("globals_", "message"),
    [
        (notebook("dd = 5", d=3, alphas=[1.0], dd=5), "unknown parameter dd = 5; this notebook has d, alphas"),
        (notebook(d=11, alphas=[1.0]), "d must be an integer from 1 to 10, got 11"),
        (notebook(d=3.0, alphas=[1.0]), "d must be an integer from 1 to 10, got 3.0"),
        (notebook(d=True, alphas=[1.0]), "d must be an integer from 1 to 10, got True"),
        (notebook(d="many", alphas=[1.0]), "d must be an integer from 1 to 10, got 'many'"),
        (notebook(d=3, alphas=[1.0, float("nan")]), "alphas must be a number from 0.0 to 100.0, got nan"),
        (notebook(d=3, alphas=[]), "alphas must be a number from 0.0 to 100.0, got \\[\\]"),
    ],
)
def test_bad_parameters_are_named(globals_, message):
    with pytest.raises(ValueError, match=message):
        check_parameters(globals_, d=(1, 10), alphas=(0.0, 100.0))
