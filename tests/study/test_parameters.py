"""Test the functions that check the parameters of a notebook, and whether sentences of its text are true for them."""

import pytest

from egm.study.parameters import SentenceWarning, check_parameters, check_sentence


def notebook(wish="", **values):
    """Return the globals of a notebook as a dictionary, with the variables `**values`, for tests of `check_parameters`.

    The key "In" has the list of the executed cells. If `wish` is a line of code such as "d = 5", the list has a cell
    with this line, such as papermill adds for a given parameter.
    """
    return {"In": ["", "d = 3", f"# Parameters\n{wish}" if wish else ""], **values}


def test_parameters_within_their_ranges_pass():
    check_parameters(notebook("d = 5", d=5, alphas=[0.1, 2]), d=(1, 10), alphas=[0.0, 100.0])


@pytest.mark.parametrize(
    ("globals_", "message"),
    [
        (notebook("dd = 5", d=3, alphas=[1.0], dd=5), "unknown parameter dd = 5; this notebook has d, alphas"),
        (notebook(d=11, alphas=[1.0]), "d must be an integer from 1 to 10, got 11"),
        (notebook(d=3.0, alphas=[1.0]), "d must be an integer from 1 to 10, got 3.0"),
        (notebook(d=True, alphas=[1.0]), "d must be an integer from 1 to 10, got True"),
        (notebook(d="many", alphas=[1.0]), "d must be an integer from 1 to 10, got 'many'"),
        (notebook(d=3, alphas=[1.0, float("nan")]), "a list of numbers from 0.0 to 100.0, got \\[1.0, nan\\]"),
        (notebook(d=3, alphas=[]), "a list of numbers from 0.0 to 100.0, got \\[\\]"),
        (notebook(d=3, alphas=1.0), "a list of numbers from 0.0 to 100.0, got 1.0"),
        (notebook(d=[3, 4], alphas=[1.0]), "d must be an integer from 1 to 10, got \\[3, 4\\]"),
        (notebook(d="1e-06", alphas=[1.0]), "got '1e-06'; papermill reads 1e-6 as a text: write 1.0e-6"),
        (notebook("d += 1", d=4, alphas=[1.0]), "set by an assignment such as d = 5, got d \\+= 1"),
        (notebook("d: int = 4", d=4, alphas=[1.0]), "set by an assignment such as d = 5, got d: int = 4"),
        (notebook("d = = 4", d=3, alphas=[1.0]), "the cell '# Parameters' is not Python: d = = 4"),
        (notebook("%%time", d=3, alphas=[1.0]), "the cell '# Parameters' is not Python: %%time"),
        (notebook(alphas=[1.0]), "d has no value: assign one before its range is checked"),
        (notebook("'d = 4'", d=3, alphas=[1.0]), "set by an assignment such as d = 5, got 'd = 4'"),
    ],
)
def test_bad_parameters_are_named(globals_, message):
    with pytest.raises(ValueError, match=message):
        check_parameters(globals_, d=(1, 10), alphas=[0.0, 100.0])


def test_sentence_that_does_not_hold_is_named():
    """`check_sentence` warns and quotes the sentence if its second argument is false, and is silent if it is true."""
    check_sentence("scaling gains", True)
    with pytest.warns(SentenceWarning, match="with these parameters it is not true that scaling gains"):
        check_sentence("scaling gains", False)
