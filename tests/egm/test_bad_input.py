"""Test that a wrong parameter or data set raises an error with the name of the parameter or of the data.

A value that looks wrong but has a documented meaning is accepted.
"""

import traceback
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from egm import (
    AdaptiveDataMechanism,
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    quantiles,
)

GOOD = {
    LaplaceMechanism: {"sensitivity": 1.0, "epsilon": 1.0},
    GaussianMechanism: {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6},
    EllipticalGaussianMechanism: {"sensitivities": [1.0, 2.0], "epsilon": 1.0, "delta": 1e-6},
    GaussianDataMechanism: {
        **{"sigma": [1.0, 2.0], "n": 100, "epsilon": 1.0, "delta": 1e-6, "center": 0.0},
        **{"clip_probability": 0.01, "scaling": "optimal", "neighbors": "replace_one"},
        **{"columns": ["a", "b"], "count_clipped": False},
    },
    AdaptiveDataMechanism: {"n": 100, "rho": 1.0, "radius": 1.0, "sigma_range": (0.1, 10.0)},
}
BAD = {
    **{"nan": np.nan, "inf": np.inf, "minus inf": -np.inf, "zero": 0, "minus one": -1, "string": "1", "none": None},
    **{"bool": True, "complex": 1j, "object": object(), "empty": [], "list of a list": [[1.0]]},
    **{"array": np.ones((2, 2)), "subnormal": 5e-324, "huge": 1e308},
}
MEANT = {  # allowed: a center may have any sign, clip_probability=None stands for 1/n, ...
    *(("center", bad) for bad in ("zero", "minus one", "subnormal")),
    *(("clip_probability", bad) for bad in ("none", "subnormal")),
    ("columns", "none"),
    ("count_clipped", "bool"),
    ("rho", "subnormal"),  # the release itself says that such a rho is too small
    ("radius", "subnormal"),
}
CASES = [(kind, name, bad) for kind, good in GOOD.items() for name in good for bad in BAD]


@pytest.mark.parametrize(("kind", "name", "bad"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_bad_parameter_is_named_or_has_a_meaning(kind, name, bad):
    arguments = {**GOOD[kind], name: BAD[bad]}
    if (name, bad) in MEANT:
        noise = getattr(kind(**arguments), "noise_std", 1.0)
        assert np.all(np.isfinite(noise) & (noise > 0))
        return
    number = isinstance(BAD[bad], float) and name not in ("columns", "count_clipped")
    message = rf"^{name}(\[.*\])? must"
    if bad in ("subnormal", "huge"):
        message += rf"|^noise must .* {name} ="  # names of two parameters
    with pytest.raises(ValueError if number else (ValueError, TypeError), match=message):
        kind(**arguments)


@pytest.mark.parametrize("delta", [1.0, 2.0])
@pytest.mark.parametrize("kind", [kind for kind, good in GOOD.items() if "delta" in good])
def test_delta_of_one_and_more_is_refused(kind, delta):
    with pytest.raises(ValueError, match=f"^delta must lie strictly between 0 and 1, got {delta}"):
        kind(**{**GOOD[kind], "delta": delta})


def data(row):
    """Return an array of shape (5, 2) whose third row is `row` and whose other rows are (1, 1)."""
    X = np.ones((5, 2))
    X[2] = row
    return X


NOT_DATA = {
    "nan row": (data([np.nan, 0]), r"X\[2, 0\] must be finite$"),
    "inf row": (data([0, np.inf]), r"X\[2, 1\] must be finite$"),
    "too few columns": (np.ones((5, 1)), r"X must have shape \(rows, 2\), got \(5, 1\)"),
    "too many columns": (np.ones((5, 3)), r"X must have shape \(rows, 2\), got \(5, 3\)"),
    "no rows": (np.ones((0, 2)), "X must have the declared n = 5 rows, got 0"),
    "a row too few": (np.ones((4, 2)), "X must have the declared n = 5 rows, got 4"),
    "a row too many": (np.ones((6, 2)), "X must have the declared n = 5 rows, got 6"),
    "one axis": (np.ones(2), r"X must have shape \(rows, 2\)"),
    "three axes": (np.ones((5, 2, 1)), r"X must have shape \(rows, 2\)"),
    "objects": (np.ones((5, 2), dtype=object), "X must be"),
    "strings": (np.full((5, 2), "1"), "X must be"),
    "booleans": (np.ones((5, 2), dtype=bool), "X must be"),
    "complex": (np.ones((5, 2), dtype=complex), "X must be"),
    "masked": (np.ma.ones((5, 2)), "X must be"),
    "none": (None, "X must be a real number or an array of real numbers, got an object of type NoneType$"),
    "a number": (3.0, "X must have shape"),
    "ragged": ([[1.0], [1.0, 2.0]], "X must"),
    "ragged blocks": ([np.ones((4, 2)), np.ones((1, 3))], r"X must have shape \(rows, 2\), got \(rows, 3\)"),
}
RNG = {"secure": lambda: None, "simulated": lambda: np.random.default_rng(1)}


@pytest.mark.parametrize("rng", RNG)
@pytest.mark.parametrize("name", NOT_DATA)
def test_bad_data_are_named(name, rng):
    mechanism = GaussianDataMechanism([1.0, 2.0], 5, 1.0, 1e-6)
    X, message = NOT_DATA[name]
    with pytest.raises((ValueError, TypeError), match=message):
        mechanism.release(iter(X) if name == "ragged blocks" else X, rng=RNG[rng]())


ODD_DATA = {
    "float32": np.ones((5, 2), dtype=np.float32),
    "integers": np.ones((5, 2), dtype=np.int16),
    "unsigned": np.ones((5, 2), dtype=np.uint64),
    "Fortran order": np.asfortranarray(np.ones((5, 2))),
    "a view": np.ones((10, 4))[::2, ::2],
    "a list": [[1, 1]] * 5,
    "blocks": None,
    "huge row": data([1e200, -1e200]),
    "largest numbers": data([1.7e308, -1.7e308]),
    "smallest numbers": data([5e-324, -5e-324]),
}


@pytest.mark.parametrize("rng", RNG)
@pytest.mark.parametrize("name", ODD_DATA)
def test_odd_data_are_data(name, rng):
    """`GaussianDataMechanism.release` returns a finite estimate for unusual but allowed kinds of data.

    `name` is a kind of data in ODD_DATA. `rng` is "secure" for noise from the operating system, or "simulated" for
    noise from a NumPy generator.
    """
    X = iter([np.ones((2, 2)), np.ones((3, 2))]) if name == "blocks" else ODD_DATA[name]
    release = GaussianDataMechanism([1.0, 2.0], 5, 1.0, 1e-6).release(X, rng=RNG[rng]())
    assert np.all(np.isfinite(release.estimate))
    assert release.simulated == (rng == "simulated")


VALUES = {
    "a list": [1, 2, 3, 4],
    "a list of lists": [[1, 2], [3, 4]],
    "a list of lists of lists": [[[1, 2, 3, 4]]],
    "a list of arrays": [np.ones(2), np.ones(2)],
    "a column": [[1], [2], [3], [4]],
    "numbers as arrays": [np.array(1)] * 4,
    "three numbers": (1, 2, 3),
    "a range": range(4),
    "no numbers": [[]],
    "large integers": pd.Series([2**70, 1, 2, 3]),
    "a series of texts": pd.Series(list("abcd"), dtype="string"),
    "a mapping": dict.fromkeys("abcd", 1),
    "an array of Arrow": pa.array([1, 2, 3, 4]),
    "a shorter array of Arrow": pa.array([1, 2, 3]),
    "a series of arrays": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)),
}
TAKE_VALUES = {
    "Laplace": LaplaceMechanism(1.0, 1.0),
    "Gaussian": GaussianMechanism(1.0, 1.0, 1e-6),
    "Gaussian of four numbers": GaussianMechanism(1.0, 1.0, 1e-6, d=4),
    "elliptical": EllipticalGaussianMechanism([1.0, 2.0, 3.0, 4.0], 1.0, 1e-6),
    "elliptical with names": EllipticalGaussianMechanism(dict.fromkeys("abcd", 1.0), 1.0, 1e-6),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", TAKE_VALUES)
def test_the_check_of_a_value_foresees_its_release(name, kind):
    """The method `check` raises an error for a value exactly if `release` does, and the error has the same type."""
    found = []
    for act in (TAKE_VALUES[name].check, TAKE_VALUES[name].release):
        try:
            act(VALUES[kind])
            found.append(None)
        except (TypeError, ValueError) as error:
            found.append(type(error))
    assert found[0] == found[1]


# --- What an error message may say ------------------------------------------------------------------------------------

SECRETS = ["Smith", "52000.17", "41.5"]


class Broken:
    """Object that cannot be converted to an array, and whose error message shows a secret entry of the data."""

    def __repr__(self):
        return "Smith 52000.17 41.5"

    def __array__(self, dtype=None, copy=None):
        raise KeyError("Smith")


TEXT = {"name": ["Smith"], "income": [52000.17]}
GAP = {"name": [41.5, None], "income": [52000.17, 1.0]}
SECRET = {
    "a list with text": [["Smith", 52000.17], ["Jones", 41.5]],
    "a list with None": [[52000.17, None], [41.5, 1.0]],
    "ragged": [[52000.17], [41.5, 1.0]],
    "decimals": [[Decimal("52000.17"), Decimal("41.5")]],
    "a decimal": Decimal("52000.17"),
    "text": "Smith",
    "an array of text": np.array([["Smith", "41.5"]]),
    "objects": np.array([["Smith", 52000.17]], dtype=object),
    "masked": np.ma.array([[52000.17, 41.5]], mask=[[True, False]]),
    "complex": np.array([[52000.17, 41.5j]]),
    **{f"text of {make.__module__}": make(TEXT) for make in (pd.DataFrame, pl.DataFrame, pa.table)},
    **{f"a gap of {make.__module__}": make(GAP) for make in (pd.DataFrame, pl.DataFrame, pa.table)},
    "a polars column of text": pl.Series(["Smith"]),
    "broken": Broken(),
    "a dictionary": {"Smith": 52000.17},
    "NaN": [[52000.17, np.nan], [41.5, 1.0]],
    "infinity": [[52000.17, -np.inf], [41.5, 1.0]],
    "large": [[52000.17, 10**400], [41.5, 1.0]],
    "another shape": [[52000.17, 41.5, 1.0]],
    "one axis": [52000.17, 41.5, 1.0],
}
TAKES_DATA = {
    "GaussianDataMechanism": lambda X: GaussianDataMechanism([1.0, 2.0], 5, 1.0, 1e-6).release(X),
    "blocks": lambda X: GaussianDataMechanism([1.0, 2.0], 5, 1.0, 1e-6).release(iter([X])),
    "clip": lambda X: GaussianDataMechanism([1.0, 2.0], 5, 1.0, 1e-6).clip(X),
    "AdaptiveDataMechanism": lambda X: AdaptiveDataMechanism(100, 1.0, radius=1.0, sigma_range=(0.1, 1.0)).release(X),
    "LaplaceMechanism": lambda X: LaplaceMechanism(1.0, 1.0).release(X),
    "GaussianMechanism": lambda X: GaussianMechanism(1.0, 1.0, 1e-6).release(X),
    "EllipticalGaussianMechanism": lambda X: EllipticalGaussianMechanism([1.0, 2.0], 1.0, 1e-6).release(X),
    "quantile": lambda X: quantiles.quantile(X, 0.5, 0.0, 1.0, 1.0, 7),
    "secure_quantile": lambda X: quantiles.secure_quantile(X, 0.5, 2.0, 1.0, 1.0, 0.1),
    "interval": lambda X: quantiles.interval(X, 0.5, 1.0),
}
VALUES_PASS = ("another shape", "one axis")  # are valid data for mechanisms that allow any shape


@pytest.mark.parametrize("secret", SECRET)
@pytest.mark.parametrize("name", TAKES_DATA)
def test_errors_never_show_data(name, secret):
    """If a function refuses its data, neither the error nor an exception that caused it shows an entry of the data.

    `name` is a function in TAKES_DATA, and `secret` is a kind of data in SECRET, which this function cannot accept.
    """
    if secret in VALUES_PASS and name in ("LaplaceMechanism", "GaussianMechanism"):
        return
    with pytest.raises((ValueError, TypeError)) as caught:
        TAKES_DATA[name](SECRET[secret])
    shown = "".join(traceback.format_exception_only(caught.value))
    for origin in (caught.value.__context__, caught.value.__cause__):
        shown += "".join(traceback.format_exception_only(origin)) if origin else ""
    assert not [cell for cell in [*SECRETS, "Jones", "nan", "inf", "10000000"] if cell in shown.replace("finite", "")]


ARRAYS = {
    "pandas": lambda rows: pd.Series(list(map(np.array, rows))),
    "polars": pl.Series,
    "polars, of one length": lambda rows: pl.Series(rows, dtype=pl.Array(pl.Float64, 2)),
    "pyarrow": pa.array,
    "numpy": lambda rows: pd.Series(list(map(np.array, rows))).to_numpy(),
}


@pytest.mark.parametrize("library", ARRAYS)
def test_a_value_whose_entries_are_arrays_is_refused(library):
    """`release` raises a TypeError for a vector of arrays, and does not choose some of the numbers in the arrays."""
    value = ARRAYS[library]([[1.0, 2.0], [3.0, 4.0]])
    for name in ("LaplaceMechanism", "GaussianMechanism", "EllipticalGaussianMechanism"):
        with pytest.raises(TypeError, match=r"^value must be a real number or an array of real numbers, got "):
            TAKES_DATA[name](value)


def test_errors_say_where_a_value_is_that_is_not_finite():
    X = np.ones((5, 2))
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"^X\[3, 1\] must be finite$"):
        GaussianDataMechanism([1.0, 2.0], 5, 1.0, 1e-6).release(X)


def test_the_number_of_rows_is_not_shown_where_it_is_private():
    mechanism = GaussianDataMechanism([1.0, 2.0], 5, 1.0, 1e-6, neighbors="add_remove")
    for X in (np.ones((777, 3)), np.ones(777), np.ones((777, 2), dtype=object)):
        with pytest.raises((ValueError, TypeError)) as caught:
            mechanism.release(X)
        assert "777" not in str(caught.value)


def test_parameters_are_shown():
    """The error for a wrong parameter shows the wrong value, because parameters are public.

    This is tested for a negative entry of sigma, and for text in place of epsilon.
    """
    with pytest.raises(ValueError, match=r"sigma\[1\] must be finite and > 0, got -2\.5"):
        GaussianDataMechanism([1.0, -2.5], 5, 1.0, 1e-6)
    with pytest.raises(TypeError, match=r"epsilon must be a real number .*, got 'much' of type str"):
        GaussianMechanism(1.0, "much", 1e-6)


@pytest.mark.parametrize("sigma", [1e-100, 1e-50, 1.0, 1e100])
@pytest.mark.parametrize("b", [1e-100, 1.0, 1e100])
def test_parameters_at_the_ends_of_their_range_work_or_are_named(sigma, b):
    """With standard deviations and scalings from 1e-100 to 1e100, a mechanism has valid noise or raises an error.

    `sigma` and `b` are the standard deviation and the scaling of the first of two columns; those of the second are 1.
    Noise is valid if its standard deviation is positive and finite. The error names both parameters, and there are no
    warnings.
    """
    for options in ({}, {"neighbors": "add_remove", "center": 1e100}, {"neighbors": "add_remove", "center": 1e-300}):
        try:
            noise = GaussianDataMechanism([sigma, 1.0], 5, 1.0, 1e-6, scaling=[b, 1.0], **options).noise_std
            assert np.all((noise > 0) & np.isfinite(noise))
        except ValueError as error:
            assert "sigma" in str(error) and "scaling" in str(error)  # noqa: PT017, PT018 - noise is as good as an error


@pytest.mark.parametrize("sensitivity", [5e-324, 1e-310, 1e-251, 1e251, 1e308])
def test_sensitivities_beyond_their_range_are_named(sensitivity):
    with pytest.raises(ValueError, match=r"sensitivities\[1\] must lie between 1e-250 and 1e\+250"):
        EllipticalGaussianMechanism([1.0, sensitivity], 1.0, 1e-6)
    release = EllipticalGaussianMechanism([1e-250, 1e-200], 1.0, 1e-6).release([0.0, 1.0])
    assert np.all(np.isfinite(release.estimate))
