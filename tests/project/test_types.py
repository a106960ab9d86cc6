"""The types, as the programs of users see them: a right one passes, a wrong one does not, and annotations are true."""

import os
import re
import subprocess
import sys
import tomllib
import typing
import venv

import numpy as np
import pytest
from numpy.typing import NDArray

from tools.execute import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]

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

# What is wrong in each line, and how mypy calls it.
WRONG = {
    'GaussianMechanism("1", 1.0, 1e-6)': "arg-type",
    "GaussianMechanism(1.0, 1.0)": "call-arg",
    'GaussianDataMechanism(sigma, 50, 1.0, 1e-6, neighbors="add_one")': "arg-type",
    'GaussianDataMechanism(sigma, 50, 1.0, 1e-6, clip_probability="best")': "arg-type",
    "GaussianDataMechanism(sigma, 50.5, 1.0, 1e-6)": "arg-type",
    "GaussianDataMechanism(sigma, 50, 1.0, 1e-6, 0.0)": "call-arg",
    "mechanism.noise_std = sigma": "misc",
    "mechanism.noise": "attr-defined",
    "mechanism.release(sigma, rng=1)": "arg-type",
    'mechanism.error(target="rows")': "arg-type",
    "label: str = mechanism.clip_norm": "assignment",
    "mechanism.release(sigma).count + 1": "operator",
    "AdaptiveDataMechanism(50, 1.0, radius=1.0)": "call-arg",
    "AdaptiveDataMechanism(50, 1.0, radius=1.0, sigma_range=(1.0, 2.0)).forecast()": "call-arg",
    "AdaptiveDataMechanism(50, 1.0, radius=1.0, sigma_range=(1.0, 2.0)).forecast(sigma).total": "attr-defined",
    "gx2.isf(0.1)": "call-overload",
    "gx2.isf(0.1, sigma)[0]": "index",
    "gx2.rvs(sigma)": "call-overload",
    "calibration.gaussian_delta(1.0, None)": "call-overload",
    'tables.improvement(3, 50, 1.0, scaling="none")': "arg-type",
    'samplers.secure_gaussian("1", 3)': "arg-type",
    'Budget(rho=1, rule="least")': "arg-type",
    "Budget(rho=1).release(GaussianMechanism(1.0, 1.0, 1e-6), iter([1.0]))": "call-overload",
    "Budget(rho=1).charge(sigma)": "arg-type",
}


@pytest.fixture(scope="module")
def python(distributions, tmp_path_factory):
    """An environment with the wheel installed, where the packages of this one are found, too. Without network."""
    folder = tmp_path_factory.mktemp("typed")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{os.path.dirname(os.path.dirname(np.__file__))}\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", distributions.wheel], check=True)
    return folder / "bin" / "python"


def mypy(program, python, folder):
    """The lines that mypy writes about a program, by this interpreter's packages."""
    (folder / "program.py").write_text(program)
    variables = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    options = ["--strict", "--python-executable", python, "--cache-dir", python.parent.parent / "cache"]
    command = [sys.executable, "-m", "mypy", *options, "program.py"]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert not done.stderr
    return done.stdout.splitlines()


def test_right_program_passes(python, tmp_path):
    assert mypy(RIGHT, python, tmp_path)[-1] == "Success: no issues found in 1 source file"


def test_types_are_true(monkeypatch):
    """At each assert_type of the same program the value is what mypy has proved it to be."""
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


def test_wrong_lines_are_found(python, tmp_path):
    """Each by its own error, and no other line by any."""
    start = RIGHT[: RIGHT.index("laplace =")] + "mechanism = GaussianDataMechanism(sigma, 50, 1, 1e-6)\n"
    found = mypy(start + "\n".join(WRONG), python, tmp_path)
    errors = [re.match(r"program\.py:(\d+): error: .*\[([a-z-]+)\]$", line) for line in found if "error:" in line]
    first = start.count("\n") + 1
    assert [(int(error[1]), error[2]) for error in errors] == list(enumerate(WRONG.values(), first)), "\n".join(found)


def test_without_its_marker_the_package_has_no_types(python, tmp_path):
    """That mypy reads the annotations of an installed package is due to py.typed."""
    (marker,) = python.parent.parent.glob("lib/python*/site-packages/egm/py.typed")
    marker.rename(marker.with_name("py.untyped"))
    try:
        found = mypy("import egm\n", python, tmp_path)
    finally:
        marker.with_name("py.untyped").rename(marker)
    assert "import-untyped" in found[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_package_is_checked_for_every_version(version):
    """With the settings of pyproject.toml, for each Python that the package says it runs on."""
    command = [sys.executable, "-m", "mypy", "--python-version", version]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ignored_errors_have_a_reason():
    """One error at a time, by its name, and why."""
    for file in (ROOT / "egm").rglob("*.py"):
        for line in file.read_text().splitlines():
            if "type: ignore" in line:
                assert re.search(r"# type: ignore\[[a-z-]+(, [a-z-]+)*\]  # \w", line), (file.name, line)
