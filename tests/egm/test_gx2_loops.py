"""Test that `egm.gx2` gives equal results in Python and in compiled code, which it loads only if that saves time."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from egm import gx2
from egm._gx2 import loops, tails
from egm._gx2.form import law_of

FUNCTIONS = {"sf": "x", "cdf": "x", "logsf": "x", "pdf": "x", "isf": "p", "ppf": "p"}


@pytest.fixture
def both(monkeypatch):
    """Return a function that runs a function of `egm.gx2` in Python and in compiled code, and returns both results.

    The returned function takes the name of the function of `egm.gx2`, and its arguments. If an AccuracyError is raised,
    its message takes the place of the result.
    """

    def called(name, *arguments):
        results = []
        for seconds in (0.0, np.inf):
            monkeypatch.setattr(loops._python, "seconds", seconds)
            try:
                results.append(getattr(gx2, name)(*arguments))
            except gx2.AccuracyError as error:
                results.append(str(error))
        return results

    return called


def random_case(rng):
    """Draw the parameters of a random distribution of `egm.gx2`, and arguments for its tails and its quantiles.

    Return the parameters as a tuple, and a dictionary with a point "x" and a probability "p".
    """
    d = rng.integers(1, 9) if rng.random() < 0.8 else rng.integers(9, 60)
    signs = rng.choice([-1, 1], d) if rng.random() < 0.4 else 1
    weights = signs * np.exp(rng.normal(0, rng.choice([0.1, 1, 4]), d))
    dof = 1.0 if rng.random() < 0.5 else rng.choice([0.05, 0.3, 1, 2, 3, 7.5, 40], d)
    nc = 0.0 if rng.random() < 0.5 else rng.exponential(3, d)
    normal = 0.0 if rng.random() < 0.6 else rng.exponential(2)
    law = gx2.rv(weights, dof, nc, normal)
    x = law.mean() + law.std() * rng.normal(0, rng.choice([1, 3, 30]))
    return (weights, dof, nc, normal), {"x": x, "p": 10.0 ** -rng.choice([0.1, 1, 5, 20, 200])}


@pytest.mark.slow
def test_python_and_compiled_code_give_the_same_results_to_the_last_digit(both):
    rng = np.random.default_rng(1)
    for _ in range(60):
        law, given = random_case(rng)
        for name, kind in FUNCTIONS.items():
            by_python, compiled = both(name, given[kind], *law)
            assert by_python == compiled, (name, given, law)
        definite = abs(given["x"]), abs(law[0]), law[1]
        np.testing.assert_equal(*both("gradients", *definite, *law[2:]))
        np.testing.assert_equal(*both("clip_moments", *definite))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("sf", (430.27, [1e-9, 0.137, 28.892, 8851.766], 0.01, 0.0, 2.0)),  # more nodes than Python makes
        ("isf", (1e-300, [1.0], 1.0, 1e300)),  # an infinite logarithm, which is an error for Python
        ("sf", (40.0, 1 / np.arange(1, 1 + 2 * loops.FEW))),  # many weights
    ],
)
def test_compiled_code_does_what_python_leaves(both, monkeypatch, name, arguments):
    kernel, asked = loops.kernel, []  # the times in Python when compiled code was asked for; later they are infinite
    monkeypatch.setattr(loops, "kernel", lambda: asked.append(loops._python.seconds) or kernel())
    by_python, compiled = both(name, *arguments)
    assert by_python == compiled
    assert np.isfinite(asked).any()


@pytest.mark.slow
def test_numba_is_imported_only_once_it_pays():
    code = """
    import sys
    from egm import gx2
    from egm._gx2 import loops

    few = [gx2.sf(x, [1.0, 0.5]) for x in (1.0, 16.0)]
    assert "numba" not in sys.modules
    pays, loops._pays = loops._pays, lambda: 60.0  # however slow this machine is
    gx2.sf(16.0, [1 / j for j in range(1, 1001)])
    assert "numba" not in sys.modules
    loops._pays = pays
    for _ in range(10_000):
        gx2.sf(16.0, [1.0, 0.5])
        if "numba" in sys.modules:
            break
    assert loops._python.seconds == float("inf")
    assert few == [gx2.sf(x, [1.0, 0.5]) for x in (1.0, 16.0)]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=300)


@pytest.mark.slow
def test_it_takes_more_time_in_python_until_it_pays_to_compile_than_to_load(tmp_path):
    pays = "from egm._gx2 import loops; print(loops._pays())"
    compiles = "from egm._gx2 import loops; loops.kernel()"
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout
        for code in (pays, compiles, pays)
    ]
    assert [float(text) for text in printed if text] == [loops._COMPILES, loops._LOADS]


def test_the_quick_way_to_a_tail_gives_what_the_slower_way_gives(monkeypatch):
    """A tail is the same within its error, or the same error is raised, if the parameters make no `Form` first."""
    rng, taken = np.random.default_rng(3), 0
    for _ in range(400):
        d = rng.choice([1, 2, 3, 10, 50, 300])
        signs = rng.choice([-1, 1], d) if rng.random() < 0.5 else rng.choice([-1, 1])
        weights = np.sort(signs * np.exp(rng.normal(0, rng.choice([0.1, 1, 5]), d)))[:: rng.choice([-1, 1])]
        dof = 1.0 if rng.random() < 0.5 else rng.choice([0.3, 1, 2, 7.5, 50], d)
        nc = 0.0 if rng.random() < 0.6 else rng.exponential(3, d)
        law = law_of(weights, dof, nc, 0.0 if rng.random() < 0.6 else rng.exponential(2))
        x = law.mean + law.deviation * rng.normal(0, rng.choice([0.1, 1, 5, 30]))
        x = float(rng.choice([x, 0.0, -1e-300, 1e300, np.inf, -np.inf, law.mean], p=[0.88] + [0.02] * 6))
        taken += tails.smaller_tail(law, x) is not None
        found = []
        for way in (tails.smaller_tail, lambda law, x: None):
            with monkeypatch.context() as patch:
                patch.setattr(tails, "smaller_tail", way)
                try:
                    found.append([tails.either_tail(law, x, lower) for lower in (False, True)])
                except gx2.AccuracyError as error:
                    found.append(str(error))
        quick, slow = found
        if quick != slow:  # by rounding, which is rare
            for (mine, error), (other, _) in zip(quick, slow, strict=True):
                assert abs(mine - other) <= error, (law, x)
    assert taken > 200


@pytest.mark.parametrize("spread", [0.3, 2.0, 25.0])  # of the logarithms of the weights; the last gives wide clusters
def test_clusters_are_made_and_integrated_by_python_where_nothing_is_compiled(both, monkeypatch, spread):
    """Python and compiled code agree to rounding for many weights, whose sums within a cluster have another order."""
    monkeypatch.setattr(loops, "_pays", lambda: 100.0)
    rng, d = np.random.default_rng(4), 2500
    weights, dof, nc = np.exp(rng.normal(0, spread, d)), rng.choice([0.5, 1, 3], d), rng.exponential(1, d)
    for parameters in ((weights,), (weights, dof, nc), (weights * rng.choice([-1, 1], d),)):
        law = gx2.rv(*parameters)
        by_python, compiled = both("logsf", law.mean() + 3 * law.std(), *parameters)
        assert abs(by_python - compiled) < 1e-14
        by_python, compiled = both("isf", 1e-5, *parameters)
        assert by_python == pytest.approx(compiled, rel=1e-14)


def test_stored_code_counts_only_if_it_can_be_read_and_is_not_older_than_the_source(monkeypatch, tmp_path):
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    stored, source = (
        tmp_path / "a" / f"kernel.quadrature-1.py{version}.nbi",
        Path(loops.__file__).with_name("kernel.py"),
    )
    stored.parent.mkdir()
    stored.touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    pays = loops._pays.__wrapped__
    assert pays() == loops._LOADS
    os.utime(stored, (source.stat().st_mtime - 1,) * 2)
    assert pays() == loops._COMPILES
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / ("a" * 300)))  # the name is too long for a folder
    assert pays() == loops._LOADS


def test_extreme_numbers_give_no_warning_where_numba_is_switched_off():
    code = """
    import numpy as np
    from egm import gx2

    gx2.sf(3000.0, np.linspace(0.5, 1.5, 3000))  # from here on no function is called by way of `loops`
    assert gx2.sf(1e10, [1e300, 1.5]) == gx2.sf(-1e308, [1e-5], 1, 0, 1.0) == 1
    for arguments in ((1.0, [1e308, 5e307]), (3e-300, [1e-300, 1e-301], 1, 0, 1e100)):
        try:
            gx2.sf(*arguments)
        except ValueError as error:
            assert "must be at most" in str(error)
    """
    subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        check=True,
        timeout=300,
    )
