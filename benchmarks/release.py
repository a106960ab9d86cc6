"""Measure the memory of a private release of a sum, and compare its time with that of `X.sum(axis=0)`.

Releases along a basis, releases for groups and for persons with several rows, and releases that search for center and
spread are measured as well.
"""

import subprocess
import sys
import tempfile
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from pandas import Categorical, DataFrame, Series

from benchmarks.gx2 import heading, row, verdict
from egm import AdaptiveDataMechanism, GaussianDataMechanism, bases, calibration, samplers
from egm.mechanisms import GroupedDataMechanism
from egm.study.timing import race

KINDS = ("doubles", "float32", "int32", "Fortran order", "data frame", "memory map", "blocks")


def release(quick):
    """Measure private releases of the sum of a million rows of a hundred numbers; yield lines of text.

    The lines have the times, divided by that of X.sum(axis=0), and the memory. The rows are held in turn in each of the
    KINDS of objects, such as an array of float32 or a file. If `quick` is true, there are only 100 000 rows.
    """
    n, d = 10**5 if quick else 10**6, 100
    sigma = np.arange(1.0, d + 1) ** -0.5
    X = np.random.default_rng(1).normal(0, sigma, (n, d))
    mechanism = GaussianDataMechanism(sigma, n, 1.0, 1e-6)
    paths = {"simulated": np.random.default_rng(2), "secure": None}
    yield from heading(f"release of the sum of ({n:.0e}, {d}), time over that of X.sum(axis=0)", *KINDS)
    memory = {}
    with tempfile.TemporaryDirectory() as folder:
        for path, rng in paths.items():
            ratios = []
            for kind in KINDS:
                hold = holder(kind, X, Path(folder))
                mechanism.release(hold(), rng=rng)  # compile first
                ratios.append(beside_sum(X, lambda h=hold, r=rng: mechanism.release(h(), rng=r).count))
                memory[path, kind] = peak(lambda h=hold, r=rng: mechanism.release(h(), rng=r))
            yield verdict(f"{path}, doubles", ratios[:1], ".2f", most=0.67 if rng else 0.72)
            holds = {kind: holder(kind, X, Path(folder)) for kind in KINDS[:2]}
            both = {kind: lambda h=h, r=rng: mechanism.release(h(), rng=r).count for kind, h in holds.items()}
            doubles, singles = race(both, repetitions=15)["median"]
            yield verdict(f"{path}, float32 over doubles", [singles / doubles], ".2f", most=1.0)
            yield row(f"{path}, others", "", *(f"{ratio:.2f}" for ratio in ratios[1:]))
    rng, l2 = np.random.default_rng(2), replace(mechanism, noise="l2")
    yield verdict("simulated, l2 noise", [beside_sum(X, lambda: l2.release(X, rng=rng).count)], ".2f", most=0.67)
    with busy_neighbor():
        ratio = beside_sum(X, lambda: mechanism.release(X, rng=rng).count)
    yield verdict("simulated, a core busy", [ratio], ".2f", most=1.0)
    yield verdict("most memory beyond X, MB", [max(memory.values()) / 1e6], ".1f", most=64)
    if find_spec("opendp"):
        yield verdict("OpenDP's time for 10 000 draws of secure noise, over ours", [opendp_ratio()], ".0f", least=5)
    yield from wide()


def beside_sum(X, release):
    """Return the median time of a call of `release`, which takes no arguments, over that of X.sum(axis=0)."""
    total, own = race({"sum": lambda: X.sum(axis=0)[0], "release": release}, repetitions=9)["median"]
    return own / total


@contextmanager
def busy_neighbor():
    """Make a context in which another process keeps one core busy, to measure a release beside other work."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            yield
        finally:
            other.kill()


def wide():
    """Measure releases of the sum of 256 rows of 10 000 numbers, secure and simulated; yield lines of text.

    The noise of a secure release has a cryptographically secure random source, and that of a simulated release a NumPy
    generator.
    """
    n, d = 256, 10_000
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d))
    narrow, mechanism = X.astype(np.float32), GaussianDataMechanism(np.arange(1.0, d + 1) ** -0.5, n, 1.0, 1e-6)
    calls = {
        "secure": lambda: mechanism.release(X).estimate[0],
        "doubles": lambda: mechanism.release(X, rng=rng).estimate[0],
        "float32": lambda: mechanism.release(narrow, rng=rng).estimate[0],
    }
    for call in calls.values():
        call()  # compiles
    secure, doubles, singles = race(calls, repetitions=25, patience=5.0)["median"]
    yield from heading(f"release of the sum of ({n}, {d})", "")
    yield verdict("secure, milliseconds", [1e3 * secure], ".1f", most=100)
    yield verdict("simulated, float32 over doubles", [singles / doubles], ".2f", most=1.0)


def rotated(quick):
    """Measure private releases of a sum that clip rows and add noise along the vectors of a basis; yield lines of text.

    The lines have the times, divided by that of X.sum(axis=0). For some bases, a second line has the time in which
    NumPy multiplies the rows by the matrix of the basis, for comparison. If `quick` is true, there are fewer rows.
    """
    rng = np.random.default_rng(1)
    kinds = {
        "100 columns, a matrix": (np.linalg.qr(rng.normal(size=(100, 100)))[0], 10**6, 100, -0.5, 3.0),
        "the same, one row in 10 clipped": (np.linalg.qr(rng.normal(size=(100, 100)))[0], 10**6, 100, -0.5, None),
        "8 x 8 pixels, dct": (bases.dct((8, 8)), 10**6, 64, -1.0, 1.5),
        "256 x 256 pixels, dct": (bases.dct((256, 256)), 1000, 65_536, -0.5, None),
    }
    yield from heading("simulated release along a basis, time over that of X.sum(axis=0)", "doubles")
    for name, (basis, n, d, power, most) in kinds.items():
        n, sigma = n // 10 if quick else n, np.arange(1.0, d + 1) ** power
        p = 0.1 if "clipped" in name else None
        mechanism = GaussianDataMechanism(sigma, n, 1.0, 1e-9, basis=basis, clip_probability=p)
        X = mechanism.basis.inverse(rng.normal(0, sigma, (n, d)))
        mechanism.release(X, rng=rng)  # compile first
        ratio = beside_sum(X, lambda X=X, it=mechanism: it.release(X, rng=rng).count)
        yield row(name, f"{ratio:.2f}") if most is None else verdict(name, [ratio], ".2f", most=most)
        if most is not None:  # by itself, because the threads of BLAS keep the cores busy for a while
            U = mechanism.basis.matrix
            product = beside_sum(X, lambda X=X, U=U: (X @ U.T)[0, 0])
            yield row("    NumPy's product alone", f"{product:.2f}")


def grouped(quick):
    """Measure releases of the sums of 20 groups, and of a sum where persons have several rows; yield lines of text.

    The times are divided by that of a release without groups or persons, for a data frame by that of the frame. There
    are ten million rows of ten numbers, or a million if `quick` is true.
    """
    n, d, groups = 10**6 if quick else 10**7, 10, 20
    rng = np.random.default_rng(1)
    X, regions, persons = rng.normal(size=(n, d)), rng.integers(0, groups, n), rng.integers(0, n // 4, n)
    plain = GaussianDataMechanism(np.ones(d), n, 1.0, 1e-9)
    several = GaussianDataMechanism(np.ones(d), n, 1.0, 1e-9, per_person="sum", neighbors="add_remove")
    in_groups = GroupedDataMechanism(plain, range(groups))
    names = [f"region {k}" for k in range(groups)]
    named = GroupedDataMechanism(plain, names)
    texts, frame = np.array(names)[regions], DataFrame(X)
    both = frame.assign(region=Series(Categorical.from_codes(regions, names)).astype("str"))
    calls = {
        "one sum": lambda: plain.release(X, rng=rng).estimate[0],
        "one sum of a frame": lambda: plain.release(frame, rng=rng).estimate[0],
        "groups": lambda: in_groups.release(X, by=regions, rng=rng)[0].count,
        "groups with names": lambda: named.release(X, by=texts, rng=rng)[names[0]].count,
        "groups in a frame": lambda: named.release(both, by="region", rng=rng)[names[0]].count,
        "persons": lambda: several.release(X, person=persons, rng=rng).count,
    }
    for call in calls.values():
        call()  # compiles
    yield from heading(f"release for persons and groups, ({n:.0e}, {d}), time over that of one sum", "simulated")
    seconds = dict(zip(calls, race(calls, repetitions=3, patience=120.0)["median"], strict=True))
    most = {"groups": 2.0, "groups in a frame": 2.0}
    for name in list(calls)[2:]:
        ratio = seconds[name] / seconds["one sum of a frame" if "frame" in name else "one sum"]
        yield verdict(name, [ratio], ".2f", most=most[name]) if name in most else row(name, f"{ratio:.2f}")


def adaptive(quick):
    """Measure private releases that first search for center and spread; yield lines of text with the seconds of each.

    There are 100 000 rows of ten numbers. If `quick` is true, each release is measured only once.
    """
    (n, d), (epsilon, delta) = (100_000, 10), (1.0, 1e-6)
    X = np.random.default_rng(1).normal(3.0, np.arange(1.0, d + 1) ** -0.5, (n, d))
    rho = float(calibration.zcdp_rho(epsilon, delta))
    mechanism = AdaptiveDataMechanism(n, rho, radius=1e4, sigma_range=(1e-3, 1e4))
    yield from heading(f"release with unknown centre and spread, ({n:.0e}, {d}) at ({epsilon:g}, {delta:g})", "seconds")
    for path, rng in {"simulated": np.random.default_rng(2), "secure": None}.items():
        mechanism.release(X, rng=rng)  # compile first
        calls = {path: lambda r=rng: mechanism.release(X, rng=r).estimate[0]}
        seconds = race(calls, repetitions=1 if quick else 9, patience=60.0)["median"][0]
        yield verdict(path, [seconds], ".2f", most=1.0)


def holder(kind, X, folder):
    """Return a function without arguments that returns the rows of the matrix `X` as an object of the kind `kind`.

    `kind` is an entry of KINDS. For "memory map", `holder` saves the rows in a file in `folder`. The returned function
    copies nothing.
    """
    if kind == "blocks":
        return lambda: iter(np.array_split(X, 100))
    if kind == "memory map":
        np.save(folder / "X.npy", X)
        return lambda: np.load(folder / "X.npy", mmap_mode="r")
    convert = {"doubles": lambda: X, "Fortran order": lambda: np.asfortranarray(X), "data frame": lambda: DataFrame(X)}
    held = convert.get(kind, lambda: X.astype(kind))()
    return lambda: held


def peak(function):
    """Return the peak memory, in bytes, that Python and NumPy allocate while `function` runs; it takes no arguments."""
    tracemalloc.start()
    function()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def opendp_ratio():
    """Return the time in which OpenDP draws 10 000 discrete Gaussian integers, in one call, over that of `egm`."""
    from opendp import domains, measurements, metrics, mod

    mod.enable_features("contrib")
    std, zeros = 1.2345e12, [0] * 10_000
    theirs = measurements.make_gaussian(
        domains.vector_domain(domains.atom_domain(T="i64")), metrics.l2_distance(T=float), scale=std
    )
    calls = {"egm": lambda: samplers.secure_gaussian(std, len(zeros))[0], "OpenDP": lambda: theirs(zeros)[0]}
    own, other = race(calls, repetitions=25)["median"]
    return other / own
