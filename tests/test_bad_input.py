"""Every parameter of every mechanism, and data, with all that can be wrong: a clear error or a stated meaning."""

import numpy as np
import pytest

from egm import (
    AdaptiveDataMechanism,
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
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
    **{"bool": True, "complex": 1j, "array": np.ones((2, 2)), "subnormal": 5e-324, "huge": 1e308},
}
MEANT = {  # what is documented: a centre of any sign, no clip probability for 1/n, a whole number however large, ...
    *(("center", bad) for bad in ("zero", "minus one", "subnormal")),
    *(("clip_probability", bad) for bad in ("none", "subnormal")),
    ("n", "huge"),
    ("columns", "none"),
    ("count_clipped", "bool"),
    *(("rho", bad) for bad in ("subnormal", "huge")),  # the release says that it is too small
    *(("radius", bad) for bad in ("subnormal", "huge")),
}
CASES = [(kind, name, bad) for kind, good in GOOD.items() for name in good for bad in BAD]


@pytest.mark.filterwarnings("ignore::egm.mechanisms.DeltaWarning")  # of a huge n
@pytest.mark.parametrize(("kind", "name", "bad"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_bad_parameter_is_named_or_has_a_meaning(kind, name, bad):
    arguments = {**GOOD[kind], name: BAD[bad]}
    if (name, bad) in MEANT:
        noise = getattr(kind(**arguments), "noise_std", 1.0)
        assert np.all(np.isfinite(noise) & (noise > 0))
        return
    with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b"):
        kind(**arguments)


def data(row):
    """Five rows of which the third is this."""
    X = np.ones((5, 2))
    X[2] = row
    return X


NOT_DATA = {
    "nan row": (data([np.nan, 0]), r"X\[2, 0\] must be finite"),
    "inf row": (data([0, np.inf]), r"X\[2, 1\] must be finite, got inf"),
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
    "none": (None, "X must be a real number or an array of real numbers, got an object of type NoneType"),
    "a number": (3.0, "X must have shape"),
    "ragged": ([[1.0], [1.0, 2.0]], "X must"),
    "ragged blocks": (iter([np.ones((4, 2)), np.ones((1, 3))]), r"X must have shape \(rows, 2\), got \(1, 3\)"),
}
RNG = {"secure": lambda: None, "simulated": lambda: np.random.default_rng(1)}


@pytest.mark.parametrize("rng", RNG)
@pytest.mark.parametrize("name", NOT_DATA)
def test_bad_data_are_named(name, rng):
    mechanism = GaussianDataMechanism([1.0, 2.0], 5, 1.0, 1e-6)
    X, message = NOT_DATA[name]
    if name == "ragged blocks":
        X = iter([np.ones((4, 2)), np.ones((1, 3))])
    with pytest.raises((ValueError, TypeError), match=message):
        mechanism.release(X, rng=RNG[rng]())


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
    """Whatever is a matrix of finite real numbers gives a finite release."""
    X = iter([np.ones((2, 2)), np.ones((3, 2))]) if name == "blocks" else ODD_DATA[name]
    release = GaussianDataMechanism([1.0, 2.0], 5, 1.0, 1e-6).release(X, rng=RNG[rng]())
    assert np.all(np.isfinite(release.estimate))
    assert release.simulated == (rng == "simulated")


def test_there_are_enough_cases():
    assert len(CASES) + 2 * (len(NOT_DATA) + len(ODD_DATA)) >= 200
