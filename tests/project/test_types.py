"""Test the types of the package: mypy accepts a correct program and finds mistakes, and a run confirms the types."""

import re
import subprocess
import sys
import typing

import numpy as np
from numpy.typing import NDArray

from tools.execute import ROOT

# mypy proves each assert_type from the annotations, and the test below by running the program.
RIGHT = """
from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import egm
from egm import AdaptiveDataMechanism, EllipticalGaussianMechanism, GaussianDataMechanism, GaussianMechanism
from egm import LaplaceMechanism, bounds, calibration, files, gx2, samplers, scaling
from egm.adaptive import AdaptiveForecast
from egm.budget import Budget, Charge
from egm.forecast import ErrorForecast
from egm.study import tables

Array = NDArray[np.float64]
rng = np.random.default_rng(0)
sigma = tables.zipf_sigma(3, 1.0)
X = rng.normal(0, sigma, size=(50, 3))
assert_type(sigma, Array)

assert_type(calibration.analytic_noise_multiplier(1.0, 1e-6), float)
assert_type(calibration.analytic_noise_multiplier([1.0, 2.0], 1e-6), Array)
assert_type(calibration.gaussian_delta(1, np.array([1.0, 2.0])), Array)
assert_type(calibration.gaussian_epsilon(1e-6, 2), float)
assert_type(calibration.zcdp_rho(1.0, 1e-6), float)
assert_type(bounds.bernstein(0.5, sigma), float)
assert_type(bounds.theorem4(sigma, 2), float)
assert_type(gx2.isf(0.1, [1.0, 0.5]), float)
assert_type(gx2.isf([0.1, 0.2], sigma)[0], Any)
assert_type(gx2.sf(np.array([1.0, 2.0]), sigma), Array)
tail, error = gx2.sf(1.0, sigma, full_output=True)
assert_type(gx2.mean(sigma), float)
assert_type(gx2.rvs(sigma, rng=rng), float)
assert_type(gx2.rvs(sigma, size=3, rng=rng), Array)
assert_type(scaling.optimal((1.0, 0.5), 0.01), Array)
assert_type(scaling.clip_norm([1, 1], [1, 0.5], 0.01), float)
assert_type(samplers.secure_gaussian(10.0, 3), list[int])
assert_type(tables.improvement(10, 100, 1.0, scaling="optimal"), float)
table = tables.sweep(lambda d: d**2, d=range(1, 4))
table["value"]

laplace = LaplaceMechanism(1, 1)
assert_type(laplace.noise_scale, float)
assert_type(laplace.usefulness(0.05, 3), float)
assert_type(GaussianMechanism(1.0, 1.0, 1e-6).release([3], rng=rng).estimate, Array)
assert_type(EllipticalGaussianMechanism([1, 2, 3], 1.0, 1e-6).noise_std, Array)

for choice in ("none", "optimal"):
    mechanism = GaussianDataMechanism(sigma, 50, 1, 1e-6, scaling=choice)
mechanism = GaussianDataMechanism([1, 2, 3], n=50, epsilon=1.0, delta=1e-6, center=[0, 0, 1], scaling=[1, 1, 1])
mechanism = GaussianDataMechanism(sigma, 50, 1.0, 1e-6, clip_probability="optimal", neighbors="add_remove")
assert_type(mechanism.center, float | Array)
assert_type(mechanism.scaling, str | Array)
assert_type(mechanism.b, Array)
assert_type(mechanism.p, float)
assert_type(mechanism.error(mean=0, target="population"), ErrorForecast)
assert_type(mechanism.error().total, float)
release = mechanism.release(X, rng=rng)
assert_type(release.estimate, Array)
assert_type(release.count, float | None)
mechanism.release(iter([X[:20], X[20:]]), rng=rng)
named = GaussianDataMechanism({"a": 1, "b": 2.0, "c": 3.0}, 50, 1.0, 1e-6, columns=("c", "b", "a"), count_clipped=True)
counted = named.release(X, rng=rng)
assert_type(counted.clipped, float | None)
assert_type(named.clipped_std, float | None)
assert_type(named.excess_clipped(counted), float)
read: Callable[[files.Table], object] = named.release
EllipticalGaussianMechanism({"a": 1.0}, 1.0, 1e-6).release({"a": 3.0}, rng=rng)
mechanism.release(X.tolist(), rng=rng)

adaptive = AdaptiveDataMechanism(50, 100.0, radius=10, sigma_range=(0.01, 10))
assert_type(adaptive.epsilon(1e-6), float)
assert_type(adaptive.least_rho(3), float)
expected = adaptive.forecast([1, 0.2, 0.03], center=1)
assert_type(expected, AdaptiveForecast)
assert_type(expected.error, ErrorForecast)
assert_type(expected.success, float)
assert_type(expected.spent["sum"], float)
found = adaptive.release(X, rng=rng)
assert_type(found.forecast, ErrorForecast)
assert_type(found.interval(0.95)[0], Array)
assert_type(found.spent["sum"], float)

budget = Budget(epsilon=2, delta=1e-6, neighbors="add_remove", rule="gaussian")
assert_type(budget.charge(mechanism), Charge)
private = Budget(rho=1e4, simulation=True, neighbors="add_remove")
assert_type(private.release(mechanism, X, rng=rng).count, float | None)
rehearsal = Budget(rho=1e4, simulation=True)
assert_type(rehearsal.release(adaptive, X, rng=rng).model_holds, bool)
rehearsal.quantile(X, 0.5, -9, 9, epsilon=0.1, step=0.1, rng=rng)
rehearsal.split(2)
budget.left.epsilon + Budget(rho=1).left
egm.__version__.split(".")
"""

# Mistakes of a user, one on each line, with the name of mypy's error.
WRONG = {
    "GaussianMechanism(1.0, 1.0)": "call-arg",
    'GaussianDataMechanism(sigma, 50, 1.0, 1e-6, neighbors="add_one")': "arg-type",
    "GaussianDataMechanism(sigma, 50, 1.0, 1e-6).release(sigma).count + 1": "operator",
}


def test_mypy_passes_a_right_program_and_finds_what_is_wrong(installed):
    """With egm installed from its wheel, mypy accepts the program RIGHT, and finds the error in each line of WRONG.

    RIGHT is the text of a correct program, and WRONG is a dictionary from a line with a mistake to the name of mypy's
    error. So mypy reads the annotations of the wheel, for which the wheel needs a file py.typed.
    """
    (installed.empty / "program.py").write_text(RIGHT + "\n".join(WRONG))
    interpreter = installed.folder / "bin" / "python"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", interpreter, "program.py"],
        cwd=installed.empty,
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^program\.py:(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    first = RIGHT.count("\n") + 1
    assert found == [(str(line), name) for line, name in enumerate(WRONG.values(), first)], done.stdout + done.stderr


def test_types_are_true(monkeypatch):
    """When the program RIGHT runs, the first argument of each `assert_type` has the type in the second argument.

    RIGHT is the text of a program that uses egm. mypy derives these types from the annotations alone; the test checks
    the values.
    """
    asserted = []

    def checked(value, annotation):
        asserted.append(annotation)
        if annotation == NDArray[np.float64]:
            assert isinstance(value, np.ndarray)
            assert value.dtype == np.float64
        elif annotation == list[int]:
            assert {type(entry) for entry in value} == {int}
        elif annotation is not typing.Any:
            assert isinstance(value, annotation)

    monkeypatch.setattr(typing, "assert_type", checked)
    exec(compile(RIGHT, "right.py", "exec"), {})
    assert len(asserted) == RIGHT.count("assert_type(")


def test_ignored_errors_have_a_reason():
    """Each comment `type: ignore` in the package names the mypy errors to ignore in brackets, and a reason follows."""
    for file in (ROOT / "egm").rglob("*.py"):
        for line in file.read_text().splitlines():
            if "type: ignore" in line:
                assert re.search(r"# type: ignore\[[a-z-]+(, [a-z-]+)*\]  # \w", line), (file.name, line)
