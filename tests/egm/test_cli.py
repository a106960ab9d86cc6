"""Test the command `egm`: it writes what the package's mechanisms release, and explains each mistake in one line.

`egm sum` and `egm mean` release a sum or a mean whose columns have known standard deviations, and `egm adaptive` a sum
without them. `egm plan` forecasts the error of a release without data, and `egm budget` creates and shows a privacy
budget.
"""

import argparse
import contextlib
import csv
import dataclasses
import gzip
import io
import json
import os
import re
import resource
import shlex
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import tomllib
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from egm import AdaptiveDataMechanism, GaussianDataMechanism, LaplaceMechanism, cli, files, planning, samplers
from egm._budget import amplified
from egm._cli import inputs, terminal
from egm._files import columns, source
from egm._files import csv as csv_files
from egm.budget import Budget
from egm.calibration import zcdp_rho
from tests.conftest import slow

ROOT = Path(cli.__file__).parent.parent
NAMES, SIGMA, MU, N = ("age", "mass", "pay"), np.array([1.0, 2.0, 8.0]), np.array([3.0, -1.0, 10.0]), 400
BUDGET = ("--epsilon", "1", "--delta", "1e-6")
SUM = ("sum", "data.csv", "--sigma", "named.csv", *BUDGET)
PARQUET = ("sum", "data.parquet", *SUM[2:])
PLAIN = ("--sigma", "sigma.csv", *BUDGET)  # without names
PLAN = ("plan", "--sigma", "sigma.csv", "--rows", "400", *BUDGET)
NAMED = ("plan", "--sigma", "named.csv", "--center", "center.csv", "--delta", "1e-6")
TARGET = ("--target-error", "1")
MORE = ("--epsilon", "4", "--delta", "1e-6")  # for so few rows the search needs this much
RANGES = ("--radius", "100", "--sigma-range", "0.1,50")
ADAPTIVE = ("adaptive", "data.csv", *MORE, *RANGES, "--header", "yes")
PLAN_ADAPTIVE = ("plan", "--adaptive", "--sigma", "sigma.csv", "--rows", "400", *MORE, *RANGES)


def rows(n=N, seed=1):
    return np.random.default_rng(seed).normal(MU, SIGMA, (n, 3))


def write_csv(name, X, header=NAMES):
    lines = ([",".join(header)] if header else []) + [",".join(map(repr, row)) for row in X.tolist()]
    with open(name, "w") as file:
        file.write("\n".join(lines))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to a temporary folder, write the files of these tests there, and return the folder's path.

    The data are one table of 400 rows with the columns age, mass and pay, as CSV, NPY and Parquet files. Smaller files
    hold the standard deviations and the centers of the columns.
    """
    monkeypatch.chdir(tmp_path)
    X = rows()
    write_csv("data.csv", X)
    write_csv("bare.csv", X, None)
    np.save("data.npy", X)
    pq.write_table(pa.table({"who": ["somebody"] * N, **dict(zip(NAMES, X.T, strict=True))}), "data.parquet")
    (tmp_path / "sigma.csv").write_text("1\n2\n8\n")
    (tmp_path / "named.csv").write_text("column,sigma\npay,8\nage,1\nmass,2\n")
    (tmp_path / "center.csv").write_text("age,3\nmass,-1\npay,10\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _interruptible():
    """Make the signal SIGINT raise KeyboardInterrupt during each test of this file.

    If a shell starts the tests in the background, Python ignores SIGINT, and the tests of this signal would fail.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def egm(capsysbinary):
    """Return a function that runs the command `egm` in this process, without starting a new one.

    The function takes the arguments of the command, and returns the exit code, the standard output in bytes, and the
    list of lines that were written to standard error.
    """

    def run(*argv):
        code = cli.main([str(arg) for arg in argv])
        out, err = capsysbinary.readouterr()
        return code, out, err.decode().splitlines()

    return run


@pytest.fixture
def released(egm):
    """Return a function that runs the command `egm` with --format json, and returns its output as a dictionary.

    The function takes the other arguments of the command, and fails if the command reports an error or a warning.
    """

    def run(*argv):
        code, out, err = egm(*argv, "--format", "json")
        assert (code, err) == (0, [])
        return json.loads(out)

    return run


@pytest.fixture(scope="module")
def adaptive():
    """Return an AdaptiveDataMechanism and a simulated release of the test data, made only once because it is slow."""
    it = AdaptiveDataMechanism(N, zcdp_rho(4.0, 1e-6), radius=100.0, sigma_range=(0.1, 50.0))
    return it, it.release(rows(), rng=np.random.default_rng(5))


def mechanism(n=N, **options):
    return GaussianDataMechanism(SIGMA, n, 1.0, 1e-6, **options)


def test_a_large_delta_is_warned_of_in_one_line(egm):
    budget = ("--epsilon", "1", "--delta", "0.01")
    plan = egm("plan", "--sigma", "sigma.csv", "--rows", "400", *budget)
    total = egm("sum", "data.csv", "--header", "yes", "--sigma", "sigma.csv", *budget)
    more = ("--epsilon", "4", *budget[2:])
    adaptive = egm("adaptive", "data.csv", "--header", "yes", *RANGES, *more, "--simulate", "5")
    planned = egm(*PLAN_ADAPTIVE, *more)
    for code, out, err in (plan, total, adaptive, planned):
        assert (code, bool(out), len(err)) == (0, True, 1)
        assert err[0].startswith("egm: warning: delta = 0.01 is not below 1/n = 0.0025 for n = 400: ")


@pytest.mark.parametrize("options", [("--epsilon", "1000"), ("--epsilon", "30", "--noise", "l2")])
def test_a_plan_and_a_rehearsal_warn_if_the_release_would_be_refused(egm, options):
    code, _, (refusal,) = egm(*SUM, *options)
    assert code == 2
    assert "integer noise would add" in refusal
    warning = refusal.replace("egm: ", "egm: warning: such a release with secure noise would be refused: ")
    assert egm(*SUM, *options, "--simulate", "1")[::2] == (0, [warning])
    assert egm(*PLAN, *options)[::2] == (0, [warning])


@pytest.mark.parametrize("options", [("--epsilon", "1000"), ("--epsilon", "30", "--noise", "l2")])
def test_a_release_that_noise_forbids_costs_nothing(egm, options):
    assert egm("budget", "new", "b.budget", "--epsilon", "2000", "--delta", "1e-6") == (0, b"", [])
    code, _, (refusal,) = egm(*SUM, *options, "--budget", "b.budget")
    assert code == 2
    assert "integer noise would add" in refusal
    assert not Budget("b.budget").history


# --- The release ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["data.csv", "bare.csv", "data.npy", "data.parquet"])
@pytest.mark.parametrize("declared", [(), ("--rows", "400"), ("--rows", "4e2")])
def test_every_file_gives_the_sum_that_the_package_gives(released, silent, data, declared):
    columns = ("--columns", "age,mass,pay") if data == "data.parquet" else ()
    options = PLAIN if data in ("bare.csv", "data.npy") else SUM[2:]
    found = released("sum", data, *options, *columns, *declared)
    release = mechanism().release(rows())
    assert found["estimate"] == release.estimate.tolist()
    assert found["noise_std"] == release.noise_std.tolist()
    assert found["simulated"] is False
    assert found["columns"] == (["1", "2", "3"] if data in ("bare.csv", "data.npy") else list(NAMES))


def text_csv(X, delimiter=",", decimal=".", header=NAMES):
    """Return the table `X` as the text of a CSV file with this `delimiter`, `decimal` sign and `header`."""
    rows = (delimiter.join(repr(x).replace(".", decimal) for x in row) for row in X.tolist())
    return "\n".join([delimiter.join(header), *rows])


def write_folder(name, *parts):
    """Write each table in `parts`, a dictionary of columns, to a Parquet file of its own in the new folder `name`."""
    os.mkdir(name)
    for letter, part in zip("abc", parts, strict=False):
        pq.write_table(pa.table(part), f"{name}/{letter}.parquet")


HABITS = {  # name of the file, content, options
    "semicolons": ("d.csv", lambda X: text_csv(X, ";").encode(), ("--delimiter", ";")),
    "commas": ("d.csv", lambda X: text_csv(X, ";", ",").encode(), ("--delimiter", ";", "--decimal", ",")),
    "tabs": ("d.csv", lambda X: text_csv(X, "\t", ",").encode(), ("--delimiter", "tab", "--decimal", ",")),
    "tsv": ("d.tsv", lambda X: text_csv(X, "\t").encode(), ()),
    "gzip": ("d.csv.gz", lambda X: gzip.compress(text_csv(X).encode()), ()),
    "gzip and tabs": ("d.tsv.gz", lambda X: gzip.compress(text_csv(X, "\t").encode()), ()),
    "UTF-16": ("d.csv", lambda X: text_csv(X).encode("utf-16"), ("--encoding", "utf-16")),
    "Latin-1": (
        "d.csv",
        lambda X: text_csv(np.column_stack([X, X]), header=(*NAMES, "ä", "ö", "ü")).encode("latin-1"),
        ("--encoding", "latin-1", "--columns", "age,mass,pay"),
    ),
}


@pytest.mark.parametrize("name", HABITS)
def test_files_of_other_habits_give_the_same_sum(released, silent, name):
    """`egm sum` releases the same sum if the CSV file has another delimiter, decimal sign, encoding or compression.

    `name` is the kind of CSV file, a key of HABITS. The fixture `silent` replaces the noise by zeros.
    """
    file, content, options = HABITS[name]
    Path(file).write_bytes(content(rows()))
    assert released("sum", file, *SUM[2:], *options)["estimate"] == mechanism().release(rows()).estimate.tolist()


def test_a_folder_gives_the_sum_of_its_files(released, silent):
    parts = [dict(zip(NAMES, part.T, strict=True)) for part in (rows()[:100], rows()[100:])]
    write_folder("parts", *parts)
    assert released("sum", "parts", *SUM[2:])["estimate"] == mechanism().release(rows()).estimate.tolist()


def test_missing_is_passed_to_the_mechanism(egm, monkeypatch, folder):
    """`egm sum` passes the value of the option --missing to the mechanism, and each missing value of the file as NaN.

    The option says what the mechanism does with missing values. Without it, `egm sum` fails at a missing value, and
    names its row and column.
    """
    (folder / "holes.csv").write_text("age,mass,pay\n1,,3\n4,5,NA\n" + "1,2,3\n" * 3)
    given = []

    def made(*, missing="error", **options):
        given.append(missing)
        it = GaussianDataMechanism(**options)
        change = dict.fromkeys(("release",), lambda blocks, rng: given.extend(blocks) or it.release(np.ones((5, 3))))
        return Mock(wraps=it, spec=it, **{name: getattr(it, name) for name in vars(it)}, **change)

    monkeypatch.setattr(cli, "GaussianDataMechanism", made)
    monkeypatch.setattr(cli, "parameters", lambda _: {})
    for policy in ("center", "drop_row"):
        assert egm("sum", "holes.csv", *SUM[2:], "--missing", policy)[0] == 0
        assert given.pop(0) == policy
        assert np.array_equal(np.isnan(given.pop()), [[0, 1, 0], [0, 0, 1], *[[0, 0, 0]] * 3])
    assert egm("sum", "holes.csv", *SUM[2:])[2] == [
        "egm: holes.csv: row 1 (line 2), column 'mass': missing (--missing says what becomes of it)"
    ]
    assert given == ["error"]


OPTIMAL, BEST = ("--clip-probability", "optimal"), {"clip_probability": "optimal"}
PRIVATE = ("--neighbors", "add_remove", "--rows", "300")
OPTIONS = {
    ("--center", "5"): {"center": 5.0},
    ("--center", "-5.5"): {"center": -5.5},
    ("--center", "center.csv"): {"center": MU},
    ("--clip-probability", "0.2"): {"clip_probability": 0.2},
    OPTIMAL: BEST,
    ("--center-std", "0", "--sigma-factor", "1", *OPTIMAL): {"center_std": 0.0, "sigma_factor": 1.0, **BEST},
    ("--center-std", "center2.csv", *OPTIMAL): {"center_std": [1.0, 2.0, 3.0], **BEST},
    ("--count-clipped",): {"count_clipped": True},
    ("--noise", "l2"): {"noise": "l2"},
    ("--noise", "best", *PRIVATE): {"noise": "best", "neighbors": "add_remove", "n": 300},
    ("--count-clipped", *PRIVATE): {"count_clipped": True, "neighbors": "add_remove", "n": 300},
    ("--scaling", "none"): {"scaling": "none"},
    ("--scaling", "optimal"): {"scaling": "optimal"},
    ("--scaling", "expected_norm"): {"scaling": "expected_norm"},
    ("--scaling", "center2.csv"): {"scaling": [1.0, 2.0, 3.0]},
    PRIVATE: {"neighbors": "add_remove", "n": 300},
}
ROTATION = [[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]
CENTERED = ("--center", "center.csv", *PRIVATE)
ROTATED = {
    ("--basis", "dct"): {"basis": "dct"},
    ("--basis", "dct:3x1"): {"basis": "dct:3x1"},
    ("--basis", "rotation.csv", *CENTERED): {"basis": ROTATION, "center": MU, **OPTIONS[PRIVATE]},
    ("--basis", "rotation.npy", "--count-clipped"): {"basis": ROTATION, "count_clipped": True},
}


@pytest.mark.parametrize(
    ("option", "sigma"),
    [
        *((option, "named.csv") for option in OPTIONS),
        *((option, "sigma.csv") for option in [("--center", "center.csv"), *ROTATED]),
    ],
    ids=lambda given: given if isinstance(given, str) else " ".join(given),
)
def test_options_are_those_of_the_mechanism(released, silent, option, sigma, folder):
    (folder / "center2.csv").write_text("1\n2\n3\n")
    np.savetxt(folder / "rotation.csv", ROTATION, delimiter=",")
    np.save(folder / "rotation.npy", ROTATION)
    found = released("sum", "data.csv", "--sigma", sigma, *BUDGET, *option, "--header", "yes")
    it = mechanism(**(OPTIONS | ROTATED)[option])
    release = it.release(rows())
    assert found["estimate"] == release.estimate.tolist()
    assert found["noise_std"] == release.noise_std.tolist()
    assert found.get("count") == release.count
    assert found.get("clipped") == release.clipped
    assert found.get("clipped_std") == it.clipped_std
    assert found.get("excess") == (None if release.clipped is None else it.excess_clipped(release))
    for name in ("epsilon", "delta", "neighbors", "clip_norm", "noise_multiplier"):
        assert found["parameters"][name] == getattr(it, name)
    assert found["parameters"]["clip_probability"] == it.p
    off = it.sigma / 2 if it.center_std is None else it.center_std
    end = "" if it.basis is None else "_along_basis"
    vectors = {f"sigma{end}": it.sigma, "center": it.center, f"center_std{end}": off, f"scaling{end}": it.b}
    for name, vector in vectors.items():
        assert found["parameters"][name] == np.broadcast_to(vector, it.sigma.shape).tolist()
    if it.basis is not None:
        told = option[1] if option[1].startswith("dct") else it.basis.matrix.tolist()
        assert found["parameters"]["basis"] == told
    assert found["parameters"]["rows"] == it.n


def test_noise_is_secure_unless_a_simulation_is_asked_for(released, monkeypatch):
    first, second = released(*SUM), released(*SUM)
    assert first["estimate"] != second["estimate"]
    monkeypatch.setattr(samplers, "secure_gaussian", None)  # a simulation must not call it
    found, again = released(*SUM, "--simulate", "7"), released(*SUM, "--simulate", "7")
    assert found == again
    assert found["estimate"] == mechanism().release(rows(), rng=np.random.default_rng(7)).estimate.tolist()
    assert found["simulated"] is True
    assert "not private" in found["warning"]


HEADERS = {  # line 1, options, and the --header that "auto" takes for line 1, or None if "auto" is an error
    "names that sigma has": ("age,mass,pay", SUM[2:], "yes"),
    "names that are chosen": ("x,age,pay", (*SUM[2:], "--columns", "age,pay"), "yes"),
    "names that sigma has not": ("age,mass,tax", SUM[2:], None),
    "names that nobody knows": ("age,mass,pay", PLAIN, None),
    "somebody's text": ("HIV-positive,yes,no", PLAIN, None),
    "somebody's text beside names": ("HIV-positive,yes,no", SUM[2:], None),
    "nothing that was known of somebody": ("NA,N.A.,-", PLAIN, None),
    "the same thrice": ("NA,NA,NA", PLAIN, None),
    "years": ("2021,2022,2023", PLAIN, None),
    "numbers of columns": ("1,2,3", (*PLAIN, "--columns", "1,2,3"), None),
    "years as pandas may write them": ("2023.0,2021.0,2022.0", PLAIN, None),
    "lags": ("1,-1,0", PLAIN, None),
    "shares": ("0.25,0.5,0.75", PLAIN, None),
    "shares the other way": ("0.75,0.5,0.25", PLAIN, None),
    "numbers that go up and down": ("1.5,2,0", PLAIN, "no"),
    "numbers that are alike": ("1,0,0", PLAIN, "no"),
    "numbers and text": ("1,mass,3", SUM[2:], None),
}


@pytest.mark.parametrize("name", HEADERS)
def test_the_first_person_is_no_header_and_no_header_a_person(egm, released, silent, folder, name):
    """If line 1 of a CSV file could be a header or a person's data, `egm sum` demands --header yes or --header no.

    If line 1 is clearly a header, or clearly data, no option is needed. The error does not show any entry of the file.
    `name` is a key of HEADERS, whose values are tuples: line 1, the options of the command, and what line 1 is taken
    for.
    """
    line, options, expected = HEADERS[name]
    (folder / "t.csv").write_text(f"{line}\n" + "1,2,3\n" * 5)
    if expected:
        found, declared = (released("sum", "t.csv", *options, "--header", header) for header in ("auto", expected))
        assert found == declared
        assert found["parameters"]["rows"] == 5 + (expected == "no")
        return
    code, out, err = egm("sum", "t.csv", *options)
    assert (code, out, len(err)) == (2, b"", 1)
    assert "say whether it is a header (--header yes or no)" in err[0]
    assert not any(cell in err[0] for cell in ("HIV", "yes,", "NA", "N.A.", "tax", "mass", "202", "0."))


def test_error_for_a_chosen_column_shows_nobodys_text(egm, folder):
    """Without --header yes, errors of `egm` show no text of line 1 of a CSV file, which may be a person's data."""
    (folder / "t.csv").write_text("HIV-positive,smoker\n1,2\n")
    for options in (("--columns", "age"), ("--columns", "age,smoker")):
        assert egm("sum", "t.csv", *SUM[2:], *options) == (2, b"", ["egm: t.csv: has no column 'age'"])
    for line in ("smoker,smoker", "HIV-positive,HIV-positive"):
        (folder / "t.csv").write_text(f"{line}\n1,2\n")
        assert "HIV" not in egm(*ADAPTIVE[:1], "t.csv", *ADAPTIVE[2:-2])[2][0]


def test_adaptive_asks_for_the_header(egm):
    """`egm adaptive` with a CSV file fails if neither --header yes nor --header no is given.

    Unlike `egm sum`, which can compare line 1 with the column names in the file of --sigma, `egm adaptive` has no file
    with the names. If the options also give two budgets, the error is about the budgets and not about the header.
    """
    assert "--header yes or no" in egm(*ADAPTIVE[:-2])[2][0]
    few = egm(*ADAPTIVE[:-2], "--columns", "age,pay", "--rho", "1e-9")
    assert few[0] == 2
    assert "budget is either" in few[2][0]


@pytest.mark.parametrize("header", [(), NAMES])
def test_nobody_is_a_data_set_where_the_number_is_private(released, header):
    """If the number of rows is private, `egm sum` accepts a CSV file without rows of data.

    An error would reveal that there are no rows. `header` has the column names in line 1 of the file, or is empty if
    there is no line 1. The released sums are pure noise, at most eight standard deviations from 0.
    """
    write_csv("none.csv", rows()[:0], header)
    options = (*(SUM[2:] if header else PLAIN), *PRIVATE, "--header", "yes" if header else "no")
    found = released("sum", "none.csv", *options)
    assert found["columns"] == list(header or ("1", "2", "3"))
    assert np.all(np.abs(found["estimate"]) < 8 * np.array(found["noise_std"]))


@pytest.mark.parametrize("options", [("--range", "1=0:9", "--range", "2=0:9"), (*RANGES, "--columns", "1,2")])
def test_nobody_is_a_data_set_for_an_adaptive_release(released, options):
    """If the number of rows is private, `egm adaptive` accepts an empty CSV file for the columns in its options."""
    write_csv("none.csv", rows()[:0], ())
    private = ("--neighbors", "add_remove", "--rows", "100000")
    found = released("adaptive", "none.csv", *MORE, *private, "--header", "no", *options)
    assert found["columns"] == ["1", "2"]


class Name(str):
    """String class whose attribute `compared` counts how often strings of this class are compared by `==`."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.compared += 1
        return str(self) == str(other)


def test_names_are_found_without_comparing_each_with_each(tmp_path):
    """Matching two lists of d = 3000 column names takes fewer than 20 d comparisons of names.

    If each name were compared with each other name, 100 000 columns would take far too long.
    """
    Name.compared, d = 0, 3000
    names, others = ([Name(f"c{i}") for i in range(d)] for _ in range(2))
    args = argparse.Namespace(sigma="s.csv", vectors={"sigma": (names, np.arange(d))}, columns=None)
    assert np.array_equal(inputs.values(args, "sigma", others[::-1]), np.arange(d)[::-1])
    assert columns.places_of(tmp_path, names, others[::-1], True) == list(range(d))[::-1]
    with pytest.raises(files.FileError, match="twice"):
        columns.refuse_twins(tmp_path, [*names, Name("c2999")])
    assert Name.compared < 20 * d


def test_chosen_columns_get_their_own_sigma(released, silent):
    found = released("sum", "data.parquet", "--columns", "pay,age", "--sigma", "named.csv", *BUDGET)
    expected = GaussianDataMechanism([8.0, 1.0], N, 1.0, 1e-6).release(rows()[:, [2, 0]])
    assert found["columns"] == ["pay", "age"]
    assert found["estimate"] == expected.estimate.tolist()


def test_adaptive_is_that_of_the_package(released, adaptive, monkeypatch):
    it, release = adaptive
    found = released(*ADAPTIVE, "--simulate", "5")
    for name in ("estimate", "noise_std", "center", "sigma", "uncorrected", "uncorrected_std", "bias", "bias_std"):
        assert found[name] == getattr(release, name).tolist()
    assert (found["spent"], found["model_holds"]) == (release.spent, release.model_holds)
    assert found["forecast"]["total"] == release.forecast.total
    low, high = release.interval(found["confidence"])
    assert found["confidence"] == 0.95
    assert (found["low"], found["high"]) == (low.tolist(), high.tolist())
    calls = []
    monkeypatch.setattr(AdaptiveDataMechanism, "release", lambda *args, rng: calls.append((*args, rng)) or release)
    released(*ADAPTIVE[:2], "--rho", repr(it.rho), *ADAPTIVE[6:])
    ((same, X, rng),) = calls
    assert (same, rng) == (it, None)
    assert np.array_equal(X, rows())


@pytest.mark.parametrize("basis", ["haar", "dct:1x3", "learn", "rotation.csv"])
def test_adaptive_with_a_basis_is_that_of_the_package(released, adaptive, basis):
    """The output names the basis of the release if --basis can name it, and otherwise has its matrix."""
    np.savetxt("rotation.csv", ROTATION, delimiter=",")
    X = rows() / 20 + rows(seed=2)[:, :1] * SIGMA if basis == "learn" else rows()  # only correlations can be learned
    write_csv("data.csv", X)
    found = released(*ADAPTIVE[:2], "--rho", "50", *ADAPTIVE[6:], "--basis", basis, "--simulate", "5")
    it = dataclasses.replace(adaptive[0], rho=50.0, basis=ROTATION if basis == "rotation.csv" else basis)
    release = it.release(X, rng=np.random.default_rng(5))
    assert found["estimate"] == release.estimate.tolist()
    assert found["sigma_along_basis"] == release.sigma.tolist()
    assert found["parameters"]["basis"] == ("given" if basis == "rotation.csv" else basis)
    assert found["basis"] == (release.basis.matrix.tolist() if basis in ("learn", "rotation.csv") else basis)


IN_RANGES = ("--range", "pay=-50:100", "--range", "age=-10:10")


@pytest.mark.parametrize("rho", ["0.01", "20"])
def test_adaptive_in_ranges_is_that_of_the_package(released, rho):
    """With --range, `egm adaptive` makes the release of AdaptiveDataMechanism for the columns that have a range.

    `rho` is the budget: 0.01 is too small to estimate center and spread privately, so the rows are clipped to the
    ranges; 20 is enough to estimate them.
    """
    found = released(*ADAPTIVE[:2], "--header", "yes", *IN_RANGES, "--rho", rho, "--simulate", "5")
    it = AdaptiveDataMechanism(N, float(rho), ranges={"pay": (-50, 100), "age": (-10, 10)})
    release = it.release(rows()[:, [2, 0]], rng=np.random.default_rng(5))
    assert found["columns"] == ["pay", "age"]
    assert found["estimate"] == release.estimate.tolist()
    assert found["method"] == release.method == ("ranges" if rho == "0.01" else "search")
    assert (found["parameters"]["range_low"], found["parameters"]["range_high"]) == ([-50, -10], [100, 10])


@pytest.mark.parametrize("rho", ["0.01", "20"])
def test_plan_in_ranges_is_its_forecast(egm, released, folder, rho):
    """`egm plan --adaptive --range` writes the forecast of AdaptiveDataMechanism for the same ranges and budget.

    Without --center, the true means are assumed to be the middles of the ranges. For the small budget `rho` = 0.01, the
    text says that there is no search, which means that center and spread are not estimated privately.
    """
    (folder / "two.csv").write_text("age,1\npay,8\n")
    command = (*PLAN_ADAPTIVE[:3], "two.csv", "--rows", "400", "--rho", rho, *IN_RANGES)
    plan = released(*command)
    it = AdaptiveDataMechanism(N, float(rho), ranges={"age": (-10, 10), "pay": (-50, 100)})
    expected = it.forecast([1.0, 8.0])
    assert plan["forecast"]["total"] == expected.error.total
    assert plan["parameters"]["center"] == [0, 25]
    assert plan["method"] == expected.method == ("ranges" if rho == "0.01" else "search")
    text = egm(*command)[1].decode()
    assert ("There is no search" in text) is (rho == "0.01")
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--range", "age"), "--range: must be a name and two numbers, as in age=0:120, got 'age'"),
        (("--range", "age=0:9", "--range", "age=0:9"), "--range must be given once for each column"),
        (("--range", "age=9:0"), r"--range\['age'\] must be \(low, high\) with low < high"),
        (("--range", "age=0:9", "--radius", "3"), "--range does not go with --radius"),
        (("--range", "age=0:9", "--columns", "age,pay"), "--range must have the names .* comes without 'pay'"),
        ((), "required without --range: --radius, --sigma-range"),
    ],
)
def test_ranges_that_do_not_fit_are_named(egm, options, message):
    code, _, err = egm(*ADAPTIVE[:2], "--header", "yes", "--rho", "1", *options)
    assert (code, len(err)) == (2, 1)
    assert re.search(message, err[0])


# --- Nothing but the release ------------------------------------------------------------------------------------------

KEYS = ["simulated", "columns", "estimate", "noise_std", "parameters"]
PARAMETERS = ["egm", "mechanism", "rows", "epsilon", "delta", "neighbors", "clip_probability", "clip_norm"]
PARAMETERS += ["noise_law", "noise_multiplier", "sigma_factor", "count_clipped"]
PARAMETERS += ["sigma", "center", "center_std", "scaling"]
FORMS = ("json", "csv", "npy", "parquet")


def without(form, out, *names):
    """Return the output `out` of a release in the format `form` without the fields `names`, for comparison by `==`.

    `form` is "json", "csv", "npy" or "parquet".
    """
    if form == "parquet":
        read = pq.read_table(io.BytesIO(out))
        rows_of = read.select([name for name in read.column_names if name not in names]).to_pylist()
        return [without("json", read.schema.metadata[b"egm"], *names), *rows_of]
    if form == "json":
        return {key: value for key, value in json.loads(out).items() if key not in names}
    if form == "npy":
        record = np.load(io.BytesIO(out))
        return repr({key: record[key].tolist() for key in record.dtype.names if key not in names})
    comment, *lines = out.decode().splitlines()
    table = list(csv.DictReader(lines))
    return [without("json", comment[2:], *names), *({k: v for k, v in row.items() if k not in names} for row in table)]


def test_documents_have_these_fields_and_no_other(released):
    assert list(released(*SUM)) == KEYS
    assert list(released(*SUM)["parameters"]) == PARAMETERS
    assert list(released(*SUM, "--neighbors", "add_remove", "--rows", "9")) == [*KEYS[:-1], "count", "parameters"]
    counted = ["clipped", "clipped_std", "excess", "parameters"]
    assert list(released(*SUM, "--count-clipped")) == [*KEYS[:-1], *counted]


@pytest.mark.parametrize("form", FORMS)
def test_only_the_estimate_depends_on_the_data(egm, form):
    """For two data files with equally many rows, the outputs of `egm sum` differ only in the field "estimate".

    So no other field can reveal anything about the data. `form` is the format of the output, such as "json" or "csv".
    """
    write_csv("other.csv", 1e3 * rows(seed=2) - 17)
    outs = [egm("sum", data, *SUM[2:], "--format", form)[1] for data in ("data.csv", "other.csv")]
    assert outs[0] != outs[1]
    first, second = (without(form, out, "estimate") for out in outs)
    assert first == second


@pytest.mark.parametrize("form", FORMS)
def test_number_of_rows_is_not_written_where_it_is_private(egm, form):
    write_csv("other.csv", rows(31))
    options = (*PRIVATE, "--center", "center.csv", "--format", form)
    outs = [egm("sum", data, *SUM[2:], *options)[1] for data in ("data.csv", "other.csv")]
    first, second = (without(form, out, "estimate", "count") for out in outs)
    assert first == second


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", [SUM, ADAPTIVE])
def test_formats_say_the_same(egm, adaptive, monkeypatch, form, command):
    monkeypatch.setattr(AdaptiveDataMechanism, "release", lambda *_, **__: adaptive[1])
    expected = json.loads(egm(*command, "--simulate", "1", "--format", "json")[1])
    code, out, err = egm(*command, "--simulate", "1", "--format", form)
    assert (code, err) == (0, [])
    if form == "npy":
        record = np.load(io.BytesIO(out), allow_pickle=False)
        assert record.shape == ()
        assert record["estimate"].tolist() == expected["estimate"]
        assert record["columns"].tolist() == expected["columns"]
        assert record["parameters"]["rows"] == N
        assert set(record.dtype.names) == set(expected)
    elif form == "csv":
        comment, *lines = out.decode().splitlines()
        table = list(csv.DictReader(lines))
        assert [row["column"] for row in table] == expected["columns"]
        more = "low", "high", "uncorrected", "uncorrected_std", "bias", "bias_std", "center"
        intervals = more if command == ADAPTIVE else ()
        for name in ("estimate", "noise_std", "sigma", *intervals):
            values = expected.get(name) or expected["parameters"][name]
            assert [float(row[name]) for row in table] == values
        rest = json.loads(comment.removeprefix("# "))
        assert rest["warning"] == expected["warning"]
        assert rest["parameters"]["rows"] == N


def test_parquet_says_the_same_as_csv(egm, folder):
    """If the name of --output ends in .parquet or .pq, the file has the columns of the CSV output.

    The comment in the first line of the CSV output, a JSON text, is the metadata "egm" of the Parquet file.
    """
    comment, *lines = egm(*SUM, "--simulate", "1")[1].decode().splitlines()
    for name in ("out.parquet", "out.pq"):
        assert egm(*SUM, "--simulate", "1", "--output", name) == (0, b"", [])
        table = pq.read_table(name)
        expected = list(csv.DictReader(lines))
        assert table.column_names == list(expected[0])
        assert table.column("column").to_pylist() == list(NAMES)
        for key in table.column_names[1:]:
            assert table.column(key).to_pylist() == [float(row[key]) for row in expected]
        assert json.loads(table.schema.metadata[b"egm"]) == json.loads(comment[2:])


def test_plain_csv_has_no_comment(egm):
    comment, *lines = egm(*SUM)[1].decode().splitlines()
    code, out, err = egm(*SUM, "--plain")
    first, *table = out.decode().splitlines()
    assert (code, err, comment[0], first, len(table)) == (0, [], "#", lines[0], 3)


def test_parquet_output_without_pyarrow_is_refused_before_the_release(egm, monkeypatch):
    monkeypatch.setattr(GaussianDataMechanism, "release", fail(AssertionError("was read")))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    code, out, err = egm(*SUM, "--output", "out.parquet")
    assert (code, out, len(err)) == (2, b"", 1)
    assert "needs pyarrow" in err[0]


FORMULAS = ["=cmd|/C calc!A0", "+SUM(1)", "-1+2", "@x", " =1", "\uff1d1", "\t=1"]


@pytest.mark.parametrize("output", [(), ("--output", "out.csv")])
def test_names_are_no_formulas_in_csv(egm, folder, output):
    """In CSV output, `egm sum` puts an apostrophe before a column name that a spreadsheet would run as a formula.

    Such a name begins, for example, with =, +, - or @. JSON output has the names unchanged. `output` is empty or the
    option --output.
    """
    table = dict(zip(FORMULAS, rows(9)[:, [0] * 7].T, strict=True))
    pq.write_table(pa.table(table), "f.parquet")
    (folder / "ones.csv").write_text("1\n" * 7)
    command = ("sum", "f.parquet", "--sigma", "ones.csv", *BUDGET)
    code, out, err = egm(*command, *output)
    assert (code, err) == (0, [])
    text = out.decode() or (folder / "out.csv").read_text()
    names = [row["column"] for row in csv.DictReader(text.splitlines()[1:])]
    assert names == [f"'{name}" for name in FORMULAS[:-1]] + ["'\\t=1"]
    assert json.loads(egm(*command, "--format", "json")[1])["columns"] == FORMULAS


EVIL = "a\x1b]0;PWNED\x07\x1b[31m\u202e\x9b1m"


def test_names_and_paths_give_no_orders_to_a_terminal(egm, folder):
    """`egm` escapes control characters of column names and paths in all that it writes.

    A terminal would execute them and, for example, change its title or its colors.
    """
    pq.write_table(pa.table({EVIL: rows(9)[:, 0]}), "e.parquet")
    pq.write_table(pa.table({"column": [EVIL], "sigma": [1.0]}), "s.parquet")
    options = ("--sigma", "s.parquet", *BUDGET)
    commands = [
        ("plan", *options, "--rows", "9"),
        ("sum", "e.parquet", *options),
        ("sum", "e.parquet", *options, "--format", "json"),
        ("sum", "e.parquet", *SUM[2:]),
        ("sum", f"{EVIL}.csv", *options),
        ("sum", "data.csv", "--sigma", f"{EVIL}.csv", *BUDGET),
        ("sum", "e.parquet", *options, "--output", f"{EVIL}/out.csv"),
        ("sum", "e.parquet", *options, "--rows", EVIL),
        (EVIL,),
    ]
    codes = []
    for command in commands:
        code, out, err = egm(*command)
        codes.append(code)
        text = out.decode() + "\n".join(err)
        assert all(character.isprintable() or character == "\n" for character in text)
        assert "x1b" in text or "u001b" in text
    assert codes == [0] * 3 + [2] * 6


def test_column_names_survive_csv(egm):
    header = ('"a,b"', "#c", '"d ""e"""')
    write_csv("odd.csv", rows(), header)
    lines = egm("sum", "odd.csv", *PLAIN, "--header", "yes")[1].decode().splitlines()
    assert [line[0] for line in lines] == ["#", *'""""']
    assert [row["column"] for row in csv.DictReader(lines[1:])] == ["a,b", "#c", 'd "e"']


@pytest.mark.parametrize("text", ["column,std\na,3\ncolumn,1\n", "column,1\na,3\n"])
def test_a_file_of_names_and_numbers_may_have_the_word_column(egm, folder, text):
    Path("s.csv").write_text(text)
    code, out, err = egm("plan", "--sigma", "s.csv", *BUDGET, "--rows", "400", "--format", "json")
    assert (code, err) == (0, [])
    found = json.loads(out)
    assert dict(zip(found["columns"], found["parameters"]["sigma"], strict=True)) == {"a": 3, "column": 1}


ODD_NAMES = ["'a", "''", "a\tb", "a\nb", "\u202e", "\x1b[1m", "\U000e0001", "C:\\temp", "\\\\x41", "-3", *FORMULAS]


@pytest.mark.parametrize("form", [("--format", "csv"), ("--plain",), ("--format", "json")])
def test_odd_names_of_columns_in_a_release_are_found_again(egm, folder, form):
    """The file of the option --sigma can be the output of an earlier release, whatever its columns are called.

    `form` has the options that choose the format of the release.
    """
    pq.write_table(pa.table(dict.fromkeys(ODD_NAMES, np.ones(9))), "f.parquet")
    pq.write_table(pa.table({"column": ODD_NAMES, "sigma": np.arange(1.0, len(ODD_NAMES) + 1)}), "s.parquet")
    name = f"release.{'json' if 'json' in form else 'csv'}"
    assert egm("sum", "f.parquet", "--sigma", "s.parquet", *BUDGET, *form, "--output", name) == (0, b"", [])
    code, out, err = egm("sum", "f.parquet", "--sigma", name, *BUDGET, "--format", "json")
    assert (code, err) == (0, [])
    assert json.loads(out)["parameters"]["sigma"] == list(range(1, len(ODD_NAMES) + 1))


# --- The plan ---------------------------------------------------------------------------------------------------------


PLANNED = OPTIONS | {option: change for option, change in ROTATED.items() if "rotation.csv" not in option}
IN_SHORT = ((), ("--basis", "dct"), ("--center", "center.csv"), OPTIMAL, PRIVATE, ("--noise", "best", *PRIVATE))
AT_LENGTH = slow(*((option,) for option in PLANNED if option not in IN_SHORT))


@pytest.mark.parametrize("center", ["-1e2", "-100", "-.1e3", "-1E+2"])
def test_a_negative_number_is_a_value(egm, center):
    assert egm(*PLAN, "--center", center) == egm(*PLAN, f"--center={center}")
    assert egm(*PLAN, "--center", center)[0] == 0


@pytest.mark.parametrize("option", [("--basis", "dct"), ("--basis", "dct:3"), ("--scaling", "none")])
def test_a_file_or_folder_does_not_hide_a_name(egm, folder, option):
    """If the value of an `option` is a known name, as in --basis dct, `egm plan` reads no file or folder of this name.

    The known name is that of a basis or a scaling. The test creates a folder that is called so, and the output of the
    command does not change.
    """
    expected = egm(*PLAN, *option, "--format", "json")
    (folder / option[1]).mkdir()
    assert egm(*PLAN, *option, "--format", "json", "--output", f"{option[1]}/plan.json") == (0, b"", [])
    assert ((folder / option[1] / "plan.json").read_bytes(), expected[0]) == (expected[1], 0)


@pytest.mark.parametrize("option", [*IN_SHORT, *AT_LENGTH], ids=" ".join)
def test_plan_is_the_forecast_of_the_mechanism(released, option, folder):
    (folder / "center2.csv").write_text("1\n2\n3\n")
    np.save(folder / "rotation.npy", ROTATION)
    sigma = "named.csv" if "center.csv" in option else "sigma.csv"
    plan = released("plan", "--rows", "400", "--sigma", sigma, *BUDGET, *option)
    it = mechanism(**PLANNED.get(option, {}))
    order = [2, 0, 1] if sigma == "named.csv" else [0, 1, 2]
    assert plan["columns"] == ([NAMES[i] for i in order] if sigma == "named.csv" else ["1", "2", "3"])
    assert plan["noise_std"] == pytest.approx(it.noise_std[order], rel=1e-9)
    assert plan["forecast"]["total"] == pytest.approx(it.error().total, rel=1e-9)
    spread = SIGMA[order] ** 2 if it.basis is None else it.basis.variances(SIGMA**2)
    squares = np.square(plan["share"]) * spread * it.n
    assert np.sum(squares) == pytest.approx(plan["forecast"]["total"], rel=1e-9)
    for scaling in ("none", "expected_norm", "optimal"):
        other = mechanism(**PLANNED.get(option, {}) | {"scaling": scaling})
        assert plan["scalings"][scaling] == pytest.approx(other.error().total, rel=1e-9)
    for noise in ("gaussian", "best"):
        other = mechanism(**PLANNED.get(option, {}) | {"noise": noise})
        assert plan["noises"][noise] == pytest.approx(other.error().total, rel=1e-9)


def from_text(label, text):
    """Return the number that follows a label in `text`, the output of `egm plan`; `label` is a regular expression."""
    return float(re.search(rf"{label} +([\d.e+-]*\d)", text)[1])


def test_plan_says_the_same_as_text(egm, released):
    command = (*PLAN, "--scaling", "sigma.csv")
    plan, text = released(*command), egm(*command)[1].decode()
    made = {"Clip norm": "clip_norm", "Noise multiplier": "noise_multiplier"}
    numbers = plan["forecast"] | plan["scalings"] | plan["noises"]
    numbers |= {label: plan["parameters"][name] for label, name in made.items()}
    for label, value in {**numbers, "3": plan["noise_std"][2], "greatest": max(plan["noise_std"])}.items():
        assert from_text(rf"\n *{label}", text) == pytest.approx(value, rel=1e-4)


def test_long_plan_is_short(egm, folder):
    (folder / "sigma.csv").write_text("".join(f"{j}\n" for j in range(1, 101)))
    lines = egm(*PLAN)[1].decode().splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("center", [(), *slow((("--center", "2"),)), ("--center", "center.csv")])
@pytest.mark.parametrize("budget", [MORE, ("--rho", "0.3")])
def test_plan_of_adaptive_is_its_forecast(released, folder, center, budget):
    """`egm plan --adaptive` writes the forecast that AdaptiveDataMechanism makes for the same parameters.

    It also writes the least budget rho and the least number of rows that the mechanism accepts for a forecast. With
    slightly less, the mechanism raises an error. `center` and `budget` are options of the command.
    """
    (folder / "center.csv").write_text("3\n-1\n10\n")
    plan = released(*PLAN_ADAPTIVE[:6], *budget, *RANGES, *center)
    rho = 0.3 if budget[0] == "--rho" else zcdp_rho(4.0, 1e-6)
    ranges = {"radius": 100.0, "sigma_range": (0.1, 50.0)}
    it = AdaptiveDataMechanism(N, rho, **ranges)
    mean = {"2": 2.0, "center.csv": MU}[center[1]] if center else 0.0
    expected = it.forecast(SIGMA, mean)
    parts = ("noise", "clipping", "center", "total")
    assert plan["forecast"] == {name: getattr(expected.error, name) for name in parts}
    assert (plan["success"], plan["spent"]) == (expected.success, expected.spent)
    assert plan["columns"] == ["1", "2", "3"]
    made = plan["parameters"]
    assert (made["rows"], made["rho"], made["sigma"]) == (N, rho, SIGMA.tolist())
    assert (made["radius"], made["sigma_range"]) == (100.0, [0.1, 50.0])
    assert made["center"] == np.broadcast_to(mean, 3).tolist()
    assert [made.get(name) for name in ("epsilon", "delta")] == ([None] * 2 if budget[0] == "--rho" else [4.0, 1e-6])
    AdaptiveDataMechanism(N, plan["least_rho"], **ranges).forecast(SIGMA)
    AdaptiveDataMechanism(plan["least_rows"], rho, **ranges).forecast(SIGMA)
    for n, less in ((N, plan["least_rho"] * (1 - 1e-9)), (plan["least_rows"] - 1, rho)):
        with pytest.raises(ValueError, match="too small"):
            AdaptiveDataMechanism(n, less, **ranges).forecast(SIGMA)
    if budget == MORE:
        assert zcdp_rho(plan["least_epsilon"], 1e-6) == pytest.approx(plan["least_rho"], rel=1e-9)


def test_plan_of_adaptive_says_the_same_as_text(egm, released):
    plan = released(*PLAN_ADAPTIVE)
    code, out, err = egm(*PLAN_ADAPTIVE)
    text = out.decode()
    assert (code, err) == (0, [])
    assert max(map(len, text.splitlines())) <= 120
    for label, value in {
        **{f"\n  {name}": plan["forecast"][name] for name in ("noise", "clipping", "center", "total")},
        **{f"\n  {step}": rho for step, rho in plan["spent"].items()},
        "sum is off by": np.sqrt(plan["forecast"]["total"]),
        "mean by": np.sqrt(plan["forecast"]["total"]) / N,
        "probability of at least": plan["success"],
        "or with": plan["least_rows"],
        "of 3 columns, epsilon =": 4,
        "means within": 100,
    }.items():
        assert from_text(label, text) == pytest.approx(value, rel=1e-3), label
    shares = [float(share) for share in re.findall(r"(\S+)%$", text, re.MULTILINE)]
    assert sum(shares) == pytest.approx(100, abs=0.1)
    least = from_text("rho =", text.partition("It would still")[2])
    assert plan["least_rho"] <= least <= 1.01 * plan["least_rho"]
    warned = "With so few rows for this budget, the squared error is often several times the expected one"
    assert warned in text
    assert warned not in egm(*("1000" if word == "400" else word for word in PLAN_ADAPTIVE))[1].decode()
    cut = "Normal rows would reach beyond the ranges; to cut them, as a release does, would move the sum by"
    declared = [word for j in (1, 2, 3) for word in ("--range", f"{j}=-9:9")]
    ranged = egm(*PLAN_ADAPTIVE[:-4], *declared, "--center", "8")[1].decode()
    assert from_text(cut, ranged) > from_text("sum is off by", ranged)
    assert cut not in text


@pytest.mark.parametrize("budget", [BUDGET, ("--rho", "0.03")])
@pytest.mark.parametrize("columns", [1, 3, 400])
def test_budget_that_is_too_small_comes_with_one_that_would_do(egm, folder, budget, columns):
    """If the budget of `egm plan --adaptive` is too small, the error names a number of rows for which it is enough.

    If the budget is an epsilon, the error also names a larger epsilon that is enough for the given number of rows. With
    one row fewer, or with 0.98 times this epsilon, the command fails again. `budget` holds the options of the budget,
    and `columns` is the number of columns.
    """
    (folder / "wide.csv").write_text("1\n" * columns)
    command = ("plan", "--adaptive", "--sigma", "wide.csv", *RANGES)
    code, out, err = egm(*command, *budget, "--rows", "400")
    assert (code, out, len(err)) == (2, b"", 1)
    assert err[0].startswith(f"egm: {budget[0]} ")
    rows = re.search(r"or (?:n = )?(\d+)(?: rows)?$", err[0])[1]
    assert egm(*command, *budget, "--rows", rows)[0] == 0
    assert egm(*command, *budget, "--rows", str(int(rows) - 1))[0] == 2
    if budget == BUDGET:
        epsilon = re.search(r"takes --epsilon (\S+),", err[0])[1]
        assert egm(*command, "--epsilon", epsilon, *BUDGET[2:], "--rows", "400")[0] == 0
        assert egm(*command, "--epsilon", str(0.98 * float(epsilon)), *BUDGET[2:], "--rows", "400")[0] == 2


@pytest.mark.parametrize(
    ("question", "measure", "column"),
    [
        (("--column", "age"), "mean", "age"),
        (("--measure", "sum"), "sum", None),
        (("--measure", "relative", "--column", "pay"), "relative", "pay"),
        (("--column", "mass", "--solve-for", "rows"), "mean", "mass"),
        *slow(
            (("--measure", "interval", "--column", "mass", "--solve-for", "epsilon"), "interval", "mass"),
            (("--column", "pay", "--measure", "interval", "--solve-for", "rows"), "interval", "pay"),
        ),
    ],
)
def test_plan_solves_for_what_a_target_needs(egm, released, question, measure, column):
    """`egm plan --target-error` finds the least epsilon or number of rows for which the error is at most the target.

    The epsilon is the least with three significant digits. Apart from this result, the output is that of `egm plan`
    with this epsilon or number. The options in `question` choose what is found and which error is meant: its kind is
    `measure`, such as that of the mean, and its column is `column`, or None for all columns.
    """
    rows_wanted = "rows" in question
    known = ("--epsilon", "2") if rows_wanted else ("--rows", "400")
    target = 30.0 if measure == "sum" else 0.3
    plan = released(*NAMED, *known, "--target-error", str(target), *question)
    solved = plan.pop("solved")
    name = "rows" if rows_wanted else "epsilon"
    sigma, center = (dict(zip(NAMES, vector, strict=True)) for vector in (SIGMA, MU))
    it = GaussianDataMechanism(sigma, 400, 2.0, 1e-6, center=center)
    field, value = ("n" if rows_wanted else "epsilon"), solved[name]
    less = value - 1 if rows_wanted else value - 10.0 ** (np.floor(np.log10(value)) - 2)
    errors = planning.curve(it, [value, less], field, measure=measure, column=column)
    assert errors[0] == pytest.approx(solved["error"], rel=1e-6)
    assert errors[0] <= target < errors[1]
    asked = {"target_error": target, "measure": measure, "column": column}
    assert {key: solved[key] for key in solved.keys() - {name, "error"}} == asked
    assert plan == released(*NAMED, *known, f"--{name}", str(value))
    first, blank, *rest = egm(*NAMED, *known, "--target-error", str(target), *question)[1].decode().splitlines()
    assert first.startswith(f"With {name} = {value} the ")
    assert first.endswith(f"is {solved['error']:.4g}, at most {target:g}")
    assert not blank
    assert rest == egm(*NAMED, *known, f"--{name}", str(value))[1].decode().splitlines()


def test_plan_for_means_has_the_errors_of_egm_mean(released, egm):
    """If the number of rows is private, `egm plan --target-error` forecasts the error of the means from `egm mean`."""
    command = (*NAMED, "--rows", "400", "--neighbors", "add_remove", "--target-error", "0.3")
    plan = released(*command)
    sigma, center = (dict(zip(NAMES, vector, strict=True)) for vector in (SIGMA, MU))
    private = {"center": center, "neighbors": "add_remove", "of": "mean"}
    it = GaussianDataMechanism(sigma, 400, plan["solved"]["epsilon"], 1e-6, **private)
    assert plan["solved"]["error"] == pytest.approx(it.error().total ** 0.5 / 400, rel=1e-6)
    assert plan["forecast"]["total"] == pytest.approx(it.error().total)
    assert plan["parameters"]["of"] == "mean"
    assert b"Errors are those of the means that egm mean releases" in egm(*command)[1]


@pytest.mark.parametrize(
    ("known", "name"),
    [
        (("--rows", "4000", "--delta", "1e-6"), "epsilon"),
        (("--rows", "4000"), "rho"),
        *slow((("--rho", "0.3", "--solve-for", "rows"), "rows"), ((*MORE, "--solve-for", "rows"), "rows")),
    ],
)
def test_plan_of_adaptive_solves_for_what_a_target_needs(released, known, name):
    """`egm plan --adaptive --target-error` finds a budget or a number of rows for which the error meets the target.

    The result is nearly the least: with a rho that is smaller by 4 percent, or with 2 percent fewer rows, the error is
    above the target. `name` is the option that is solved for, and `known` has the other options.
    """
    command = (*PLAN_ADAPTIVE[:4], *RANGES)
    plan = released(*command, *known, "--target-error", "0.02", "--column", "2")
    solved = plan.pop("solved")
    assert solved["error"] <= 0.02
    without = [arg for arg in known if arg not in ("--solve-for", "rows")]
    again = released(*command, *without, f"--{name}", str(solved[name]))
    assert plan == again
    ranges = {"radius": 100.0, "sigma_range": (0.1, 50.0)}
    it = AdaptiveDataMechanism(plan["parameters"]["rows"], plan["parameters"]["rho"], **ranges)
    field = "n" if name == "rows" else "rho"
    value = getattr(it, field)
    less = np.floor(value * 0.98) if field == "n" else value * 0.96
    error, more = planning.curve(it, [value, less], field, column=1, sigma=SIGMA, center=0.0)
    assert error == solved["error"] <= 0.02 < more


@pytest.mark.parametrize("question", [(), ("--column", "income"), ("--measure", "relative", "--column", "income")])
def test_plan_with_ranges_has_one_center(released, folder, question):
    """Without --center, `egm plan --range --target-error` assumes that the means are the middles of the ranges.

    The output contains these means, and it does not change if the option --center gives them. The options `question`
    choose the error: of all columns, of one column, or of one column relative to its mean.
    """
    (folder / "spread.csv").write_text("age,18\nincome,1200\n")
    (folder / "middle.csv").write_text("age,60\nincome,5000\n")
    ranges = ("--range", "age=0:120", "--range", "income=0:10000")
    target = "0.01" if "relative" in question else "50"
    command = ("plan", "--adaptive", "--sigma", "spread.csv", *ranges, "--rows", "10000", "--delta", "1e-6")
    plan = released(*command, "--target-error", target, *question)
    assert plan["parameters"]["center"] == [60.0, 5000.0]
    assert plan == released(*command, "--target-error", target, *question, "--center", "middle.csv")
    it = AdaptiveDataMechanism(10_000, plan["parameters"]["rho"], ranges={"age": (0, 120), "income": (0, 10_000)})
    measure, column = ("relative" if "relative" in question else "mean"), "income" if question else None
    error = planning.curve(it, it.rho, "rho", measure=measure, column=column, sigma=[18, 1200])
    assert float(error) == plan["solved"]["error"] <= float(target)


# --- Help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["sum", "plan", "adaptive", "budget show"])
def test_example_of_the_help_works(egm, adaptive, monkeypatch, command):
    """The example in the text of `egm COMMAND --help` runs without an error, where COMMAND is `command`.

    The slow release of `egm adaptive` is replaced by that of the fixture `adaptive`.
    """
    monkeypatch.setattr(AdaptiveDataMechanism, "release", lambda *_, **__: adaptive[1])
    assert egm("budget", "new", "survey.budget", "--epsilon", "1", "--delta", "1e-6") == (0, b"", [])
    code, out, err = egm(*command.split(), "--help")
    assert (code, err) == (0, [])
    (example,) = re.findall(r"^  (egm .*)$", out.decode(), re.MULTILINE)
    columns = ("--columns", "age,mass,pay") if command in ("sum", "adaptive") else ()
    pq.write_table(pa.table(dict(zip(NAMES, rows(1000).T, strict=True))), "visits.parquet")
    code, _, err = egm(*shlex.split(example)[1:], *columns)
    assert (code, err) == (0, [])


@pytest.mark.parametrize("command", ["sum", "plan", "adaptive", "budget new", "budget show"])
def test_every_option_is_explained(egm, command):
    text = " ".join(egm(*command.split(), "--help")[1].decode().split())
    _, _, explained = text.partition(" options: ")
    for option in set(re.findall(r"\[?(--[a-z-]+)", text)):
        assert re.search(rf"{option}[^-]{{0,60}} [a-z]+ [a-z]+", explained), option
    if command in ("sum", "adaptive"):
        assert re.search(r"number of rows\W .*It is public|number of rows\W .*it is public", explained)


def test_help_of_all_and_version(egm):
    assert all(f"  {command} " in egm("--help")[1].decode() for command in ("sum", "plan", "adaptive", "budget"))
    assert egm("--version")[1].decode().startswith("egm ")


# --- Mistakes ---------------------------------------------------------------------------------------------------------


def data(text):
    """Return arguments of `egm sum` for a CSV file with the content `text`.

    One argument is a dictionary {file name: `text`}. The test that uses the arguments writes this file, and passes its
    name to the command.
    """
    return ("sum", {"bad.csv": text}, *PLAIN, "--header", "yes")


def with_sigma(text):
    """Return arguments of `egm sum`, with a file of standard deviations that has the content `text`.

    One argument is a dictionary {file name: `text`}. The test that uses the arguments writes this file, and passes its
    name to the command.
    """
    return (*SUM[:2], "--sigma", {"bad.csv": text}, *BUDGET, "--header", "yes")


def with_release(option, values, columns='["age", "pay", "mass"]'):
    """Return arguments of `egm plan` in which `option` takes a vector from the file of an earlier release, in JSON.

    One argument is a dictionary {file name: text}. The test that uses the arguments writes this file, and passes its
    name to the command. The release in the file has the column names `columns`, and `values` as the vector; both are
    texts in JSON.
    """
    content = f'{{"columns": {columns}, "parameters": {{"{option[2:].replace("-", "_")}": {values}}}}}'
    return ("plan", "--sigma", "named.csv", "--rows", "9", *BUDGET, option, {"bad.json": content})


N_400, FOR_ROWS = (*NAMED, "--rows", "400"), (*TARGET, "--solve-for", "rows")
RELATIVE = ("--measure", "relative", "--column", "1")
GAUSSIAN_ONLY = [("--scaling", "optimal"), ("--clip-probability", "0.1"), ("--center-std", "0")]
GAUSSIAN_ONLY += [("--sigma-factor", "1"), ("--basis", "dct")]
BY_PAY = ("--columns", "age,mass", "--rows", "400", "--by", "pay")
BAD = [  # command line, message
    ((), "required: command"),
    (("add",), "invalid choice: 'add'"),
    ((*SUM, "--sead", "1"), "unrecognized arguments: --sead 1"),
    ((*SUM, "--row", "400"), "unrecognized arguments: --row 400"),
    ((*SUM, "--rows"), "--rows: expected one argument"),
    (("sum", "--sigma", "sigma.csv", *BUDGET), "required: DATA"),
    (("sum", "data.csv", *BUDGET), "required: --sigma"),
    (SUM[:-2], "required: --delta"),
    ((*SUM, "--epsilon", "0"), "--epsilon must be finite and > 0, got 0.0"),
    (data("a,b,c\n1,2,3\n"), "--clip-probability must be given for one row"),
    ((*SUM, "--epsilon", "one"), "--epsilon: invalid float value: 'one'"),
    ((*SUM, "--delta", "1"), "--delta must lie strictly between 0 and 1, got 1.0"),
    ((*SUM, "--clip-probability", "best"), '--clip-probability must be "optimal"'),
    ((*SUM, "--center", "middle"), "middle: No such file"),
    ((*SUM, "--center", "44,5"), "--center 44,5: No such file, and no number, as 44.5 is"),
    ((*SUM, "--center", "inf"), "--center must lie between"),
    ((*SUM, "--sigma", {"b.csv": "age;1,5\n"}), "b.csv: line 1 has ';': columns must have commas between them"),
    (("plan", "--sigma", {"b.csv": "15,5\n700,25\n"}, *PLAN[3:]), "b.csv: .* or one number with a decimal comma"),
    (("sum", "data.csv", "--sigma", "none", *BUDGET), "none: No such file"),  # "none" is an option of --scaling only
    ((*SUM, "--scaling", "optimol"), "optimol: No such file"),
    ((*SUM, "--sigma", "data.csv/s.csv"), "--sigma data.csv/s.csv: Not a directory"),
    ((*SUM, "--sigma", {"pipe": os.mkfifo}), "pipe: is not a regular file"),
    ((*SUM, "--sigma", {"deep.json": "[" * 100_000}), "--sigma deep.json: is no release with such numbers"),
    ((*SUM, "--scaling", {"b.csv": "1\n0\n1"}), "--scaling, column 'mass', must be finite and > 0"),
    ((*SUM, "--neighbors", "all"), "--neighbors: invalid choice: 'all'"),
    ((*SUM, "--simulate", "x"), "--simulate: must be a whole number >= 0, got 'x'"),
    ((*SUM, "--simulate", "-1"), "--simulate: must be a whole number >= 0|expected one argument"),
    ((*SUM, "--format", "xml"), "--format: invalid choice: 'xml'"),
    ((*SUM, "--rows", "0"), "--rows: must be a whole number from 1 to .*, got '0'"),
    ((*SUM, "--rows", "1.5"), "--rows: must be a whole number from 1 to .*, got '1.5'"),
    ((*SUM, "--rows", "5.000"), "--rows: must be a whole number from 1 to .*, got '5.000'"),
    ((*SUM, "--rows", "399"), "data.csv: has 400 rows, --rows says 399"),
    (("sum", "data.npy", *SUM[2:], "--rows", "5"), "data.npy: has 400 rows, --rows says 5"),
    ((*SUM, "--neighbors", "add_remove"), "--rows is required with --neighbors add_remove"),
    (("sum", "nobody.csv", *SUM[2:]), "nobody.csv: No such file or directory"),
    (("sum", "long" * 100 + ".csv", *SUM[2:]), "longlong.csv: File name too long"),
    (("sum", ".", *SUM[2:]), r"\.: is a directory"),
    (("sum", "/dev/null", *SUM[2:]), "/dev/null: is not a regular file"),
    (("sum", "loop.csv", *SUM[2:]), "loop.csv: Too many levels of symbolic links"),
    (("sum", {"data.xlsx": "1"}, *SUM[2:]), r"data.xlsx: the name must end in \.csv, \.npy,"),
    ((*ADAPTIVE, "--rows", "1"), "--rows must lie between 2 and 9007199254740992, got 1"),
    (data("a,b,c\n"), "bad.csv: has no rows"),
    (data("a,b,c\n" + "1,2,3\n" * 16 + "1,2,nan\n"), r"bad.csv: row 17 \(line 18\), column 'c': NaN"),
    (data("a,b,a\n1,2,3\n"), "bad.csv: the column 'a' is named twice"),
    ((*PARQUET, "--columns", "age,mass,pray"), "no column 'pray'; it has 'who', 'age', 'mass', 'pay'"),
    ((*SUM, "--columns", "age,pray", "--header", "yes"), "'pray'; it has 'age', 'mass', '"),
    ((*SUM, "--columns", "age,mass,pray"), "no column 'pray'$"),
    ((*SUM, "--columns", "age,mass,age"), "data.csv: the column 'age' is named twice"),
    ((*SUM, "--columns", ""), "--columns: must be names with commas"),
    ((*SUM, "--columns", "age\nmass"), r"--columns: must be names with commas between them, got 'age\\nmass'"),
    *(((*SUM, *BY_PAY, "--keys", keys), "--keys .*: must be keys with commas") for keys in ("", ",", "10\n11", '"')),
    ((*SUM, *BY_PAY, "--keys", {"none.txt": "\n \n"}), "--keys 'none.txt': must be keys with commas"),
    ((*SUM, *BY_PAY, "--keys", "regoins.txt"), "--keys regoins.txt: No such file"),
    ((*SUM, *BY_PAY, "--keys", "a,b\udcff", "--output", "x.parquet"), r"--keys 'a,b\\udcff': must have Unicode char"),
    (("sum", "data.parquet", "--columns", "who,age,pay", *PLAIN), "'who' must hold real numbers"),
    (("sum", "data.csv", *PLAIN, "--columns", "age,pay"), "--sigma sigma.csv: has 3 values for 2 columns"),
    *(
        (with_release(option, values), f"{option} bad.json: is no release with such numbers")
        for option in ("--sigma", "--center", "--center-std", "--scaling")
        for values in ("null", "3", "[1, 2]", "[1, null, 3]", "[1, 1e999, 3]", f"[1, 2, 1{'0' * 400}]", '{"age": 1}')
    ),
    (with_release("--sigma", "[1, 2, 3]", '["age", "pay", "mass", "age"]'), "is no release"),
    (with_release("--sigma", "[1, 2, 3]", '["age", "pay", "age"]'), "bad.json: the column 'age' is named twice"),
    (with_sigma("column,sigma\nage,1\nage,2\n"), "bad.csv: the column 'age' is named twice"),
    (with_sigma("column,sigma\nage\n"), "--sigma bad.csv: is no release with such numbers"),
    (with_sigma("# {\ncolumn,sigma\nage,1\n"), "--sigma bad.csv: is no release with such numbers"),
    (with_sigma("age,1\npay,0\nmass,2\n"), "--sigma, column 'pay', must be finite and > 0, got 0.0"),
    (with_sigma("1\n2\neight\n"), "bad.csv: line 3: not a number"),
    (with_sigma("1\n2\n8\n9\n"), "--sigma bad.csv: has 4 values for 3 columns"),
    (with_sigma("age,1\npay,8\n"), "--sigma bad.csv: has no value for the column 'mass'"),
    (with_sigma("age,1\npay,8\nmass,2\nx,1\n"), "names 'x', which is no column"),
    ((*SUM, "--output", "data.npy"), r"data.npy: exists already \(--force replaces it\)"),
    ((*SUM, "--output", "data.csv", "--force"), "--output data.csv: is also read"),
    ((*SUM, "--output", "./named.csv", "--force"), r"--output \./named.csv: is also read"),
    ((*SUM, "--output", ".", "--force"), r"\.: is not a regular file"),
    (
        (*PLAN, "--basis", {"b.csv": "1,0,0\n0,1,0\n0,0,1\n"}, "--output", "b.csv", "--force"),
        "--output b.csv: is also read",
    ),
    ((*PLAN, "--basis", "sine"), '--basis must be a matrix or a name such as "dct", .* got .sine.'),
    ((*PLAN, "--basis", "dct:2x2"), "--basis must have the 3 entries of sigma in each of its vectors, got 4"),
    ((*PLAN, "--basis", {"b.csv": "1,0,0\n0,1,0\n0,1,0\n"}), "--basis must be orthogonal: rows 1 and 2"),
    ((*PLAN, "--basis", {"b.csv": "1,0\n0,1\n0,x\n"}), "b.csv: "),
    ((*SUM, "--basis", "dct"), "--sigma .*: names '.*', but with --basis its values belong to basis vectors"),
    ((*SUM, "--output", "no/out.csv"), "no/out.csv: No such file or directory"),
    (("plan", "--sigma", "sigma.csv", *BUDGET), "required: --rows"),
    (("plan", "data.csv", *PLAN[1:]), "unrecognized arguments: data.csv"),
    (PLAN[:-4], "required without --adaptive: --epsilon, --delta$"),
    (PLAN[:-2], "required without --adaptive: --delta$"),
    (PLAN_ADAPTIVE[:-4], "required with --adaptive: --radius, --sigma-range$"),
    ((*PLAN_ADAPTIVE[:6], *RANGES), "either --rho, or --epsilon and --delta"),
    ((*PLAN_ADAPTIVE, "--rho", "1"), "either --rho, or --epsilon and --delta"),
    ((*PLAN_ADAPTIVE[:4], *PLAN_ADAPTIVE[6:]), "required: --rows"),
    ((*PLAN_ADAPTIVE, "--rows", "1"), "--rows must lie between 2 and 9007199254740992, got 1"),
    ((*N_400, "--target-error", "1e-9"), r"--target-error must be at least \S+, the least error of all"),
    ((*N_400, "--target-error", "0"), "--target-error must be finite and > 0, got 0.0"),
    ((*N_400, *TARGET, "--column", "size"), "--column: no column 'size'; it has 'pay', 'age'"),
    ((*N_400, *TARGET, "--measure", "interval"), "--column must be given for the measure"),
    ((*N_400, *TARGET, "--measure", "worst"), "--measure: invalid choice: 'worst'"),
    ((*NAMED, "--epsilon", "1", *TARGET), "--epsilon does not go with --target-error and --solve-for eps"),
    ((*NAMED, *TARGET), "required: --rows"),
    ((*N_400, *FOR_ROWS), "--rows does not go with --target-error and --solve-for rows$"),
    ((*NAMED, *FOR_ROWS), "required without --adaptive: --epsilon$"),
    ((*NAMED, "--epsilon", "1", *FOR_ROWS, "--measure", "sum"), '--measure must not be "sum" for n'),
    ((*NAMED, "--epsilon", "0", *FOR_ROWS), "--epsilon must be finite and > 0, got 0"),
    ((*PLAN[:5], "--delta", "1e-6", *TARGET, *RELATIVE), "--center must not be 0 for the measure"),
    *(
        ((*PLAN, *option), f"{option[0]} goes with --target-error only$")
        for option in (("--solve-for", "rows"), ("--measure", "sum"), ("--column", "1"))
    ),
    ((*PLAN_ADAPTIVE, *TARGET), "--epsilon does not go with --target-error"),
    ((*PLAN_ADAPTIVE[:6], *RANGES, "--rho", "1", *TARGET), "--rho does not go with --target-error"),
    ((*PLAN_ADAPTIVE[:4], *RANGES, *FOR_ROWS), "either --rho, or --epsilon and --del"),
    *(
        ((*PLAN_ADAPTIVE, *option), f"{option[0]} does not go with --adaptive$")
        for option in (*GAUSSIAN_ONLY, ("--count-clipped",))
    ),
    *(
        ((*PLAN, *option), f"{option[0]} goes with --adaptive only$")
        for option in (("--rho", "1"), ("--radius", "1"), ("--sigma-range", "1,2"))
    ),
    ((*PLAN_ADAPTIVE[:-1], "2,50"), "--sigma, column '1', must lie in --sigma-range, from 2 to 50, got 1.0"),
    (
        (*PLAN_ADAPTIVE, "--center", {"c.csv": "0\n-101\n0"}),
        "--center, column '2', must lie between -100.0 and 100.0, got -101.0",
    ),
    ((*ADAPTIVE, "--rho", "1"), "either --rho, or --epsilon and --delta"),
    (("adaptive", "data.csv", "--epsilon", "1", *ADAPTIVE[6:]), "either --rho, or --epsilon and --delta"),
    (("adaptive", "data.csv", "--rho", "0", *ADAPTIVE[6:]), "--rho must be finite and > 0, got 0.0"),
    (("adaptive", "data.csv", "--rho", "1e-30", *ADAPTIVE[6:]), "--rho = 1e-30 is too small for n"),
    ((*ADAPTIVE, "--radius", "0"), "--radius must be finite and > 0, got 0.0"),
    ((*ADAPTIVE, "--sigma-range", "1,2,3"), "--sigma-range: must be two numbers"),
    ((*ADAPTIVE, "--sigma-range", "0,1"), "--sigma-range must be finite and > 0, got 0.0"),
    ((*ADAPTIVE, "--sigma-range", "2,1"), r"--sigma-range must be \(least, greatest\)"),
]


def test_a_file_may_have_many_more_rows_than_declared(egm, monkeypatch):
    """If a CSV file has 400 rows but --rows says 30, the error of `egm adaptive` states both numbers."""
    monkeypatch.setattr(source, "_BLOCK", 3 * 20)
    command = ("adaptive", "data.csv", "--rho", "60", *ADAPTIVE[6:], "--rows", "30")
    assert egm(*command) == (2, b"", ["egm: data.csv: has 400 rows, --rows says 30"])


MANY = "age,mass,pay\n" + "1,2,3\n" * 50_000
PART = {"age": [1.0, 2.0], "mass": [2.0, 3.0], "pay": [3.0, 4.0]}


def old_journal(name):
    """Create a new budget in the file `name`, in version 1 of the file format, which has no labels and times."""
    Budget(name, epsilon=1.0, delta=1e-6)
    with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as connection:
        for statement in ("DROP COLUMN label", "DROP COLUMN time"):
            connection.execute(f"ALTER TABLE charges {statement}")
        connection.execute("PRAGMA user_version = 1")


def damaged_journal(name):
    Budget(name, epsilon=1.0, delta=1e-6)
    content = Path(name).read_bytes()
    Path(name).write_bytes(content[: len(content) // 2])


def spent_journal(name):
    """Create a budget in the file `name`, and let one release use it up."""
    Budget(name, epsilon=1.0, delta=1e-6).charge(mechanism())


ODD = {  # files: their content, or a function that makes them
    "semi.csv": "age;mass;pay\n1;2;3\n4;5;6\n",
    "tab.csv": "age\tmass\tpay\n1\t2\t3\n4\t5\t6\n",
    "signs.csv": "age;mass;pay\n1,5;2;3\n4;5,5,5;6\n",
    "points.csv": "age;mass;pay\n1,5;2;3\n4;5.5;6\n",
    "thousands.csv": 'age,mass,pay\n1,2,"3,000"\n4,5,6\n',
    "short.csv": "age;mass;pay\n1;2;3\n4;5\n",
    "latin.csv": "âge,mass,pay\n1,2,3\n4,5,6\n".encode("latin-1"),
    "late.csv": MANY.encode() + "1,2,é\n".encode("latin-1"),
    "wide.csv": MANY[:99].encode("utf-16"),
    "odd.csv": MANY.encode("utf-16")[:-1],
    "holes.csv": "age,mass,pay\n1,2,3\n4,NA,6\n",
    "point.csv": "age,mass,pay\n1,2,.\n4,5,6\n",
    "cut.csv.gz": gzip.compress(MANY.encode())[:-9],
    "head.csv.gz": gzip.compress(MANY.encode())[:9],
    "zero.csv.gz": b"",
    "empty.csv.gz": gzip.compress(b""),
    "text.csv.gz": "age,mass,pay\n1,2,3\n",
    "sum.csv.gz": gzip.compress(MANY.encode())[:-8] + b"12345678",
    "bits.csv.gz": gzip.compress(MANY.encode())[:20] + b"\xff" * 300,
    "hidden.csv": gzip.compress(MANY.encode()),
    "data.npy.gz": gzip.compress(b"1"),
    "data.csv.zip": b"PK",
    "null.parquet": lambda name: pq.write_table(pa.table(PART | {"pay": [None, 1.0]}), name),
    "dates.parquet": lambda name: pq.write_table(pa.table(PART | {"pay": pa.array([1, 2], pa.date32())}), name),
    "empty": lambda name: write_folder(name),
    "mixed": lambda name: (write_folder(name, PART), Path(name, "notes.txt").write_text("x")),
    "other": lambda name: write_folder(name, PART, {"age": [1.0], "mass": [2.0]}),
    "more": lambda name: write_folder(name, PART, PART | {"tax": [1.0, 2.0]}),
    "text": lambda name: write_folder(name, PART, PART | {"pay": ["a", "b"]}),
    "nulls": lambda name: write_folder(name, PART, PART | {"pay": [1.0, None]}),
    "broken": lambda name: (write_folder(name, PART), Path(name, "b.parquet").write_text("x")),
    "parts": lambda name: write_folder(name, PART, PART),
    "b.budget": lambda name: Budget(name, epsilon=1.0, delta=1e-6),
    "rehearsal.budget": lambda name: Budget(name, epsilon=1.0, delta=1e-6, simulation=True),
    "private.budget": lambda name: Budget(name, epsilon=1.0, delta=1e-6, neighbors="add_remove"),
    "small.budget": lambda name: Budget(name, rho=1e-6),
    "spent.budget": spent_journal,
    "old.budget": old_journal,
    "damaged.budget": damaged_journal,
    "notes.budget": "notes of a meeting",
}


def on(file, *options):
    """Return a tuple: the arguments of `egm sum` for the data in `file`, which has column names, and then `options`."""
    return ("sum", file, *SUM[2:], "--header", "yes", *options)


EUROPE = ("--delimiter", ";", "--decimal", ",")
NEW = ("budget", "new", "new.budget")
BAD_FILES = [
    (on("semi.csv"), "semi.csv: line 1 has no comma, but ';'; --delimiter says which"),
    (on("tab.csv"), r"tab.csv: line 1 has no comma, but '\\t'; --delimiter says which"),
    (on("tab.csv", "--delimiter", ";"), r"tab.csv: line 1 has no ';', but '\\t'; --delimiter"),
    ((*SUM, "--delimiter", ";"), "data.csv: line 1 has no ';', but ','; --delimiter"),
    ((*SUM, "--delimiter", "tab"), r"data.csv: line 1 has no '\\t', but ','; --delimiter"),
    ((*SUM, "--delimiter", ";;"), "--delimiter: must be one character, or tab, got ';;'"),
    ((*SUM, "--delimiter", ""), "--delimiter: must be one character, or tab, got ''"),
    ((*SUM, "--delimiter", "e"), "--delimiter must be one character that is no letter, digit, sign or quote, got 'e'"),
    ((*SUM, "--delimiter", '"'), "--delimiter must be one character that is no letter, digit, sign or quote"),
    ((*SUM, "--decimal", ","), "--delimiter must not be the decimal sign, got ',' for both"),
    ((*SUM, "--decimal", ";"), "--decimal: invalid choice: ';'"),
    (on("signs.csv", *EUROPE), r"signs.csv: row 2 \(line 3\), column 'mass': not a number$"),
    (on("points.csv", *EUROPE), r"points.csv: row 2 \(line 3\), column 'mass': not a number$"),
    (on("points.csv", *EUROPE[:2]), r"points.csv: row 1 \(line 2\), column 'age': not a number \(--decimal and"),
    (on("thousands.csv"), r"column 'pay': not a number \(--decimal and --thousands say how numbers are written\)$"),
    (on("short.csv", *EUROPE), r"short.csv: row 2 \(line 3\) has 2 cells, line 1 has 3"),
    ((*SUM, "--encoding", "utf-9"), "--encoding: must be the name of an encoding, such as latin-1, got 'utf-9'"),
    ((*SUM, "--encoding", "base64"), "--encoding: must be the name of an encoding"),
    (on("latin.csv"), r"latin.csv: is not UTF-8 text \(--encoding can name another\)"),
    (on("latin.csv", "--encoding", "ascii"), "latin.csv: is not ASCII text"),
    (on("late.csv"), "late.csv: is not UTF-8 text"),
    (on("wide.csv"), "wide.csv: is not UTF-8 text"),
    (on("odd.csv", "--encoding", "utf-16"), "odd.csv: is not UTF-16 text"),
    (on("data.csv", "--encoding", "utf-16"), "data.csv: is not UTF-16 text"),
    (on("hidden.csv"), "hidden.csv: is not UTF-8 text"),
    (on("holes.csv"), r"holes.csv: row 2 \(line 3\), column 'mass': missing"),
    (on("point.csv"), r"point.csv: row 1 \(line 2\), column 'pay': missing"),
    ((*SUM, "--missing", "mean"), "--missing: invalid choice: 'mean'"),
    ((*ADAPTIVE, "--missing", "center"), "--missing: invalid choice: 'center'"),
    (on("cut.csv.gz"), "cut.csv.gz: the gzip file ends too early"),
    (on("cut.csv.gz", "--rows", "50000"), "cut.csv.gz: the gzip file ends too early"),
    (on("head.csv.gz"), "head.csv.gz: the gzip file ends too early"),
    (on("zero.csv.gz"), "zero.csv.gz: is empty"),
    (on("empty.csv.gz"), "empty.csv.gz: is empty"),
    (on("text.csv.gz"), "text.csv.gz: is not a gzip file, or a damaged one$"),
    (on("sum.csv.gz"), "sum.csv.gz: is not a gzip file, or a damaged one$"),
    (on("bits.csv.gz"), "bits.csv.gz: is not a gzip file, or a damaged one$"),
    (on("data.npy.gz"), "data.npy.gz: the name must end in"),
    (on("data.csv.zip"), "data.csv.zip: the name must end in"),
    (on("null.parquet"), "null.parquet: row 1, column 'pay': NaN or missing"),
    (on("dates.parquet"), "dates.parquet: column 'pay' must hold real numbers, holds date32"),
    (on("empty"), "empty: is a directory without CSV or Parquet files"),
    (on("mixed"), "mixed: is a directory, and mixed/notes.txt in it is neither a CSV nor a Parquet file"),
    (on("other"), "other/b.parquet: must have the columns of other/a.parquet, but has 'age', 'mass'"),
    (on("more"), "more/b.parquet: must have the columns of more/a.parquet, but has 'age', 'mass', 'pay', 'tax'"),
    (on("other", "--columns", "age,pay"), "other/b.parquet: has no column 'pay'; it has 'age', 'mass'"),
    (on("text"), "text/b.parquet: column 'pay' must hold real numbers, holds string"),
    (on("nulls"), "nulls/b.parquet: row 2, column 'pay': NaN or missing"),
    (on("broken"), "broken/b.parquet: cannot be read as Parquet"),
    (on("parts", "--rows", "5"), "parts: has 4 rows, --rows says 5"),
    (on("parts", "--output", "parts/c.parquet"), "--output parts/c.parquet: is also read"),
    ((*SUM, "--sigma", "parts"), "parts: is a directory"),
    ((*SUM, "--sigma", "semi.csv", "--delimiter", ","), "semi.csv: line 1 has no comma, but ';'; columns must have"),
    ((*SUM, "--budget", "no.budget"), r"no.budget: No such file \(egm budget new makes one\)"),
    ((*SUM, "--budget", "data.csv/b.budget"), "egm: data.csv/b.budget: Not a directory$"),
    ((*SUM, "--budget", "notes.budget"), "notes.budget: journal .* it is not a journal"),
    ((*SUM, "--budget", "parts"), "parts: journal 'parts': it is not a regular file"),
    ((*SUM, "--budget", "old.budget"), "its format is 1, and 2 and 3 are known: another version of egm has made it"),
    ((*SUM, "--budget", "damaged.budget"), "damaged.budget: journal .* it is not a journal, or a damaged one"),
    ((*SUM, "--budget", "spent.budget"), "spent.budget: GaussianDataMechanism asks for epsilon = 1.0"),
    (on("holes.csv", "--rows", "2", "--budget", "spent.budget"), "spent.budget: GaussianDataMechanism asks for"),
    ((*SUM, "--budget", "small.budget"), "small.budget: GaussianDataMechanism asks for rho"),
    ((*ADAPTIVE, "--budget", "spent.budget"), "spent.budget: AdaptiveDataMechanism asks for rho"),
    ((*SUM, "--budget", "private.budget"), 'private.budget: neighbors must be "add_remove" for this budget'),
    ((*SUM, *PRIVATE, "--budget", "b.budget"), 'b.budget: neighbors must be "replace_one" for this budget'),
    ((*SUM, "--budget", "rehearsal.budget"), "rehearsal.budget: takes no releases but those with --simulate"),
    ((*SUM, "--budget", "b.budget", "--simulate", "1"), "b.budget: takes all releases but those with --simulate"),
    ((*SUM, "--label", "March"), "--label goes with --budget only"),
    ((*SUM, *PRIVATE, "--sample", "0.1"), "--sample goes with --budget only"),
    ((*SUM, "--sample", "0.1", "--budget", "b.budget"), "--sample needs --neighbors add_remove, also for the budget"),
    ((*SUM, *PRIVATE, "--sample", "0.1", "--budget", "b.budget"), 'b.budget: neighbors must be "add_remove" for'),
    *(
        ((*SUM, *PRIVATE, "--sample", share, "--budget", "private.budget"), "--sample: must be a probability from")
        for share in ("0", "1.5", "-0.1", "nan", "1e-13", "tenth")
    ),
    ((*SUM, "--budget", "b.budget", "--label", "\udcff"), "b.budget: label must have Unicode characters only"),
    ((*SUM, "--budget", "b.budget", "--rows", "399"), "data.csv: has 400 rows, --rows says 399"),
    ((*SUM, "--budget", "b.budget", "--output", "data.npy"), "data.npy: exists already"),
    ((*SUM, "--budget", "b.budget", "--output", "b.budget", "--force"), "--output b.budget: is also read"),
    ((*SUM, "--budget", "b.budget", "--output", "b.budget-journal"), "b.budget-journal: is the name of a file that"),
    (("budget", "show", "b.budget", "--output", "./b.budget-journal"), "b.budget-journal: is the name of a file that"),
    ((*SUM, *BY_PAY, "--keys", {"k.txt": "n"}, "--output", "k.txt", "--force"), "--output k.txt: is also read"),
    *(
        ((*SUM, "--budget", "b.budget", "--output", name, *form), f"--output {name}: files whose names end in")
        for name in ("x.csv.gz", "x.json.GZ", "x.tsv", "x.tsv.gz", "x.csv.zip", "x.xlsx")
        for form in ((), ("--format", "csv"))
    ),
    ((*SUM, "--budget", "b.budget", "--columns", "age,tax"), "no column 'tax'"),
    (on("text", "--budget", "b.budget"), "column 'pay' must hold real numbers"),
    (("budget",), "required: command"),
    (("budget", "make"), "invalid choice: 'make'"),
    (NEW, "the total is either --rho, or --epsilon and --delta"),
    ((*NEW, "--delta", "1e-6"), "the total is either --rho, or --epsilon and --delta"),
    ((*NEW, "--epsilon", "0"), "--epsilon must"),
    ((*NEW, "--epsilon", "1", "--rho", "1"), "--rho must be given alone"),
    ((*NEW, "--rho", "1", "--rule", "zcdp"), "--rule must be left out for a total rho"),
    ((*NEW, "--epsilon", "1", "--rule", "zcdp"), '--rule must be "basic" for delta = 0'),
    ((*NEW, "--epsilon", "1", "--rule", "best"), "--rule: invalid choice: 'best'"),
    (("budget", "new", "b.budget", "--epsilon", "1"), "b.budget: exists already"),
    (("budget", "new", "no/b.budget", "--rho", "1"), "no/b.budget: No such file or directory"),
    (("budget", "show", "no.budget"), "no.budget: No such file"),
    (("budget", "show", "notes.budget"), "notes.budget: journal .* it is not a journal"),
    (("budget", "show", "b.budget", "--format", "csv"), "--format: invalid choice: 'csv'"),
    (("budget", "show", "b.budget", "--output", "b.budget", "--force"), "--output b.budget: is also read"),
    *(((*SUM, "--output", path), f"egm: {path!r}: must end in the name of a file$") for path in ("", "out.csv/")),
    ((*SUM, "--plain", "--format", "json"), "--plain is for --format csv only"),
    ((*SUM, "--plain", "--simulate", "1"), "--plain is .* not for --simulate"),
]


@pytest.mark.parametrize(("argv", "said"), [*BAD, *BAD_FILES])
def test_mistake_is_explained_in_one_line(egm, folder, argv, said):
    """For a wrong file, option or budget, `egm` writes one line to standard error, and the exit code is 2.

    No file is written or changed. `argv` is the command, and `said` is a regular expression that the line must match.
    """
    (folder / "loop.csv").symlink_to(folder / "loop.csv")
    contents = {name: content for name, content in ODD.items() if name in argv}
    for arg in argv:
        contents |= arg if isinstance(arg, dict) else {}
    for name, content in contents.items():
        if callable(content):
            content(name)
        else:
            Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, out, err = egm(*(next(iter(arg)) if isinstance(arg, dict) else arg for arg in argv))
    assert (code, out, len(err)) == (2, b"", 1)
    assert re.search(said, err[0]), err[0]
    assert err[0].startswith("egm: ")
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- Persons and groups -----------------------------------------------------------------------------------------------

PEOPLE = ("--columns", "age,mass,pay", "--rows", "200", "--person", "who", "--per-person", "mean")
SUM_OF_PEOPLE = ("sum", "people.csv", "--sigma", "named.csv", *BUDGET, *PEOPLE)
ADAPTIVE_OF_PEOPLE = ("adaptive", "people.csv", *BUDGET, *PEOPLE)
ADAPTIVE_OF_PEOPLE += tuple(text for name in NAMES for text in ("--range", f"{name}=-60:60"))
GROUPS = ("--by", "home", "--keys", "n,s")
PAIRS = np.arange(N) // 2  # the person of each row


@pytest.fixture
def people(folder, egm):
    """Return a function that writes the file people.csv, and creates a budget in the file b.budget.

    Each of the 400 rows of people.csv belongs to a person, and a person may have several rows. The function takes a
    list with the person of each row. By default each of 200 persons has two rows, and the rows are sorted by person.
    """

    def write(who=PAIRS):
        lines = [f"{','.join(map(repr, row))},{label},n" for row, label in zip(rows().tolist(), who, strict=True)]
        (folder / "people.csv").write_text("\n".join([",".join((*NAMES, "who", "home")), *lines]))
        assert egm("budget", "new", "b.budget", "--epsilon", "9", "--delta", "1e-5")[0] == 0

    return write


@pytest.mark.parametrize(
    "options",
    [
        ("--noise", "l2"),
        ("--noise", "best"),
        ("--count-clipped",),
        ("--noise", "l2", "--neighbors", "add_remove", "--groups-per-person", "2"),
        ("--noise", "l2", "--neighbors", "add_remove", "--per-person", "2"),
    ],
)
@pytest.mark.parametrize("command", ["sum", "mean"])
def test_what_does_not_go_with_groups_costs_nothing(egm, people, command, options):
    people()
    code, out, err = egm(command, *SUM_OF_PEOPLE[1:], *GROUPS, *options, "--budget", "b.budget")
    assert (code, out, len(err)) == (2, b"", 1)
    assert re.match("egm: --by: the mechanism must have (Gaussian noise|count_clipped=False) to release groups", err[0])
    assert not Budget("b.budget").history


@pytest.mark.parametrize("command", [SUM_OF_PEOPLE, (*SUM_OF_PEOPLE, *GROUPS), ADAPTIVE_OF_PEOPLE])
def test_labels_that_are_summed_cost_nothing(egm, people, command):
    people()
    option = "--by" if "--by" in command else "--person"
    code, out, err = egm(*command, option, "age", "--budget", "b.budget")
    assert (code, out) == (2, b"")
    assert err == [f"egm: {option} must not be one of the columns that are summed, got 'age'"]
    assert not Budget("b.budget").history


@pytest.mark.parametrize("command", [SUM_OF_PEOPLE, (*SUM_OF_PEOPLE, *GROUPS), ADAPTIVE_OF_PEOPLE])
def test_persons_out_of_order_cost_nothing(egm, people, command):
    """If the rows of a file are not sorted by person, a release fails before its cost is recorded in the budget.

    If they are sorted, the release succeeds. `command` has the arguments of `egm`, and `people` writes the file.
    """
    people(np.arange(N) % 200)
    code, out, err = egm(*command, "--budget", "b.budget")
    assert (code, out, len(err)) == (2, b"", 1)
    assert err[0].startswith("egm: people.csv: must be sorted by --person who, by a stable sort")
    assert not Budget("b.budget").history
    Path("b.budget").unlink()
    people()
    assert egm(*command, "--budget", "b.budget")[0] == 0
    assert len(Budget("b.budget").history) == 1


@pytest.mark.parametrize("command", [SUM_OF_PEOPLE, ADAPTIVE_OF_PEOPLE])
def test_a_wrong_public_number_of_persons_costs_nothing(egm, people, command):
    people()
    code, _, err = egm(*command, "--rows", "400", "--budget", "b.budget")
    assert (code, err) == (2, ["egm: people.csv: has 200 persons, --rows says 400"])
    assert not Budget("b.budget").history


@pytest.mark.parametrize(
    "options", [("--neighbors", "add_remove"), ("--missing", "drop_row"), ("--per-person", "2"), GROUPS]
)
def test_a_private_number_of_persons_is_not_compared(egm, people, options):
    people()
    assert egm(*SUM_OF_PEOPLE, "--rows", "300", *options)[0] == 0


@pytest.mark.parametrize(
    ("fits", "told"), [(True, "row 1 (line 2), column 'who': missing"), (False, "the data do not fit into memory")]
)
@pytest.mark.parametrize("command", [SUM_OF_PEOPLE, ADAPTIVE_OF_PEOPLE])
def test_wrong_persons_are_charged(egm, people, command, fits, told, monkeypatch):
    """If a person is missing, or if persons do not fit into memory, a release fails, but its cost stays recorded.

    The reason is that the error reveals something about the data. `command` has the arguments of `egm`, and `people`
    writes the file.
    """
    people(["", *range(1, N)] if fits else PAIRS)
    if not fits:
        monkeypatch.setattr(inputs.people, "vector", Mock(side_effect=MemoryError))
    code, out, err = egm(*command, "--rows", "200", "--budget", "b.budget")
    assert (code, out) == (2, b"")
    assert told in err[0]
    assert len(Budget("b.budget").history) == 1


def test_one_column_may_say_the_person_and_the_group(egm, people):
    people()
    both = ("--by", "who", "--keys", "0,1", "--rows", "200", "--simulate", "1", "--format", "json")
    code, out, err = egm(*SUM_OF_PEOPLE, *both)
    assert (code, err) == (0, [])
    assert sorted(set(json.loads(out)["group"])) == ["0", "1"]


def test_bounds_that_are_not_finite_have_the_type_of_others(egm, people):
    """In NumPy and Parquet files, the ends of unbounded intervals are NaN or null in a column of doubles.

    This is so even if no interval has an end.
    """
    people()
    command = ("mean", *SUM_OF_PEOPLE[1:], *GROUPS, "--simulate", "1", "--format")
    for keys in ("n,s", "s"):
        table = pq.read_table(io.BytesIO(egm(*command[:-4], keys, *command[-3:], "parquet")[1]))
        assert (table.column("low").null_count, set(table.schema.types)) == (3, {pa.string(), pa.float64()})
    expected = json.loads(egm(*command, "json")[1])
    record = np.load(io.BytesIO(egm(*command, "npy")[1]), allow_pickle=False)
    assert None in expected["low"]
    for name in ("mean", "low", "high"):
        assert [None if np.isnan(value) else value for value in record[name].tolist()] == expected[name]


@pytest.mark.parametrize("command", ["sum", "mean"])
def test_a_table_of_groups_has_the_same_columns_for_every_number_of_groups(egm, people, command):
    """A CSV of groups has the same columns for any number of groups; its comment line has all parameters."""
    people()
    headers = []
    for keys in ("n", "n,s", "n,s,e"):
        options = (*GROUPS[:-1], keys, "--simulate", "1")
        comment, header, *table = egm(command, *SUM_OF_PEOPLE[1:], *options)[1].decode().splitlines()
        parameters = json.loads(comment[2:])["parameters"]
        assert [parameters["sigma"], parameters["center"], len(parameters["scaling"])] == [SIGMA.tolist(), [0] * 3, 3]
        assert len(table) == 3 * parameters["groups"]
        headers.append(header)
    assert headers == headers[:1] * 3
    assert headers[0].startswith('"column","group","count",')


@pytest.mark.parametrize("command", ["sum", "mean", "plan"])
@pytest.mark.parametrize("form", ["csv", "json"])
def test_ranges_in_the_place_of_estimates_are_told(egm, form, command):
    """`egm` warns in one line if it reads center and sigma from an adaptive release that did not estimate them.

    If the budget of an adaptive release is too small to estimate them, the release has the middle of each declared
    range as center, and half of the width as sigma. `command` reads them, and `form` is the format of the release's
    file.
    """
    ranges = [text for name in NAMES for text in ("--range", f"{name}=-60:60")]
    options = ("--sigma", f"found.{form}", "--center", f"found.{form}", *BUDGET, "--rows", "400")
    data = () if command == "plan" else ("data.csv",)
    for rho, told in (("0.01", 1), ("60", 0)):
        release = "adaptive", "data.csv", "--rho", rho, *ranges, "--simulate", "5"  # by chance, 1 % clip to the ranges
        assert egm(*release, "--output", f"found.{form}", "--force")[0] == 0
        assert (b'"method": "ranges"' in Path(f"found.{form}").read_bytes()) == bool(told)
        code, _, err = egm(command, *data, *options)
        assert (code, len(err)) == (0, told)
        said = "its method is ranges, so its center and sigma are only the middle and half of each declared range"
        assert err == [f"egm: warning: found.{form}: {said}"] * told


OF_A_TABLE = ("--format", "csv"), ("--plain",), ("--format", "json")
ALONG_HAAR = {
    "sum": (*SUM[:2], *PLAIN, "--header", "yes"),
    "adaptive": (*ADAPTIVE[:2], "--rho", "50", *ADAPTIVE[6:]),
    "plan": PLAN,
}


@pytest.mark.parametrize(("command", "form"), [*product(("sum", "adaptive"), OF_A_TABLE), ("plan", OF_A_TABLE[-1])])
def test_numbers_along_a_basis_are_not_taken_for_those_of_columns(egm, form, command):
    """A vector in the output of a release along a basis has a name that --sigma and the like do not look for.

    Its numbers belong to the vectors of the basis and not to the columns, which would be a silent error. The name
    protects even where no comment says that there was a basis. `form` is the format of the release by `command`, or of
    the plan for one.
    """
    name = f"found.{'json' if 'json' in form else 'csv'}"
    assert egm(*ALONG_HAAR[command], "--basis", "haar", *form, "--output", name) == (0, b"", [])
    for option in ("sigma", "center_std", "scaling")[: 1 if command == "adaptive" else 3]:
        given = (f"--{option.replace('_', '-')}", name)
        code, out, err = egm("plan", *(SUM[2:4] if option != "sigma" else ()), *given, *BUDGET, "--rows", "400")
        told = f"{' '.join(given)}: has no {option}, but {option}_along_basis: numbers along a basis, and not those of"
        assert (code, out, err) == (2, b"", [f"egm: {told} the columns"])


def test_ranges_in_the_place_of_estimates_are_not_in_a_plain_output(egm):
    """With --plain, an adaptive release without a search has no center and sigma, as no comment can say what they are.

    They would be the middle and half of each range. The output has all other columns, and the output of a release with
    a search has these two as well.
    """
    ranges = [text for name in NAMES for text in ("--range", f"{name}=-60:60")]
    headers = {}
    for rho in ("0.01", "60"):
        command = "adaptive", "data.csv", "--rho", rho, *ranges
        header = next(csv.reader(egm(*command)[1].decode().splitlines()[1:]))
        assert egm(*command, "--plain", "--output", "found.csv", "--force")[0] == 0
        headers[rho] = next(csv.reader(Path("found.csv").read_text().splitlines()))
        assert headers[rho] == [name for name in header if rho == "60" or name not in ("center", "sigma")]
        code, _, err = egm("plan", "--sigma", "found.csv", "--center", "found.csv", *BUDGET, "--rows", "400")
        assert (code, err) == ((2, ["egm: --sigma found.csv: has no sigma"]) if rho == "0.01" else (0, []))
    code, _, err = egm("plan", "--sigma", "named.csv", "--center", "found.csv", *BUDGET, "--rows", "400")
    assert (code, err) == (0, [])


# --- Budgets ----------------------------------------------------------------------------------------------------------


def test_releases_are_charged_until_the_budget_is_spent(egm, adaptive, monkeypatch):
    monkeypatch.setattr(AdaptiveDataMechanism, "release", lambda *_, **__: adaptive[1])
    assert egm("budget", "new", "b.budget", "--rho", "0.5") == (0, b"", [])
    charged = (*SUM, "--budget", "b.budget", "--label", "March")
    assert egm(*charged)[0] == 0
    assert egm(*ADAPTIVE[:2], "--rho", "0.25", *ADAPTIVE[6:], "--budget", "b.budget")[0] == 0
    first, second = Budget("b.budget").history
    assert first == Budget(rho=0.5).charge(mechanism(), label="March")
    assert (second.mechanism, second.rho, second.label) == ("AdaptiveDataMechanism", 0.25, "")
    codes = [egm(*charged)[0] for _ in range(12)]
    assert codes == sorted(codes)
    assert set(codes) == {0, 2}
    assert len(Budget("b.budget").history) == 2 + codes.count(0)


def test_a_column_may_have_a_number_for_its_name(released):
    Path("years.csv").write_text("2020,15.0\n2021,18\n")
    found = released("plan", "--sigma", "years.csv", *PLAN[3:])
    assert (found["columns"], found["parameters"]["sigma"]) == (["2020", "2021"], [15.0, 18.0])


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"])
def test_a_key_or_name_ends_only_where_a_line_ends(released, mark):
    """The lines of a file with keys, or with names and sigma, end where those of a CSV file with labels end.

    The character `mark` ends a line for `str.splitlines` of Python, but not in a CSV file.
    """
    Path("people.csv").write_text(f"age,ma{mark}ss,place\n" + f"1,2,Ba{mark}th\n3,4,York\n" * 200)
    Path("keys.txt").write_bytes(f"Ba{mark}th\r\nYork\r\n".encode())
    Path("s.csv").write_text(f"column,sigma\nage,1\nma{mark}ss,2.0\n")
    options = ("--rows", "400", "--by", "place", "--columns", f"age,ma{mark}ss", "--keys", "keys.txt")
    found = released("sum", "people.csv", "--sigma", "s.csv", *BUDGET, *options, "--simulate", "1")
    assert found["group"] == [f"Ba{mark}th"] * 2 + ["York"] * 2
    assert min(found["count"]) > 100  # 200 with noise; about 0 for the key of no row


def test_keys_in_quotes_are_the_keys_without_quotes(released):
    Path("people.csv").write_text("age,mass,place\n" + '1,2,"Bath, Avon"\n3,4,York\n' * 20)
    Path("keys.txt").write_text('"Bath, Avon"\nYork\n')
    Path("s.csv").write_text("age,1\nmass,2.0\n")
    options = ("--rows", "40", "--by", "place", "--columns", "age,mass", *BUDGET)
    found = released("sum", "people.csv", "--sigma", "s.csv", *options, "--keys", "keys.txt")
    assert found["group"] == ["Bath, Avon", "Bath, Avon", "York", "York"]


@pytest.mark.parametrize("command", [SUM, ADAPTIVE])
def test_a_charge_is_made_before_values_are_read_and_stays(egm, folder, command):
    """If a release fails because a value is missing, its cost stays recorded in the budget.

    The reason is that the error reveals something about the values. `command` has the arguments of `egm`.
    """
    write_csv("data.csv", np.where(np.arange(N)[:, None] == 7, np.nan, rows()))
    assert egm("budget", "new", "b.budget", "--epsilon", "5", "--delta", "1e-6") == (0, b"", [])
    code, out, err = egm(*command, "--budget", "b.budget", "--output", "out.csv")
    assert (code, out) == (2, b"")
    assert "row 8" in err[0]
    assert not (folder / "out.csv").exists()
    assert len(Budget("b.budget").history) == 1


@pytest.mark.parametrize(
    ("header", "options"),
    [(True, ("--rows", N)), (True, ()), (True, ("--rows", N, "--neighbors", "add_remove")), (False, ("--rows", N))],
)
@pytest.mark.parametrize("row", [0, 7, N - 1])
@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (b"caf\xe9", "is not UTF-8 text (--encoding can name another)"),
        (b'"open', "line {}: a quote is not closed"),
        *((cell, f"line {{}}: {csv_files._BARE}") for cell in (b'a "b"', b'5" pipe,"two\nlines"')),
        (b'"tall\n1,2,3,5\'10"', f"line {{}}: {csv_files._ROWS}"),
    ],
)
def test_text_of_a_cell_never_makes_a_refusal_free(egm, header, options, row, cell, told):
    """If a cell cannot be read as text, a release fails after its cost is recorded, in whichever row the cell is.

    The cell is in a column that is not summed. Which rows `egm` happens to read before it records the cost must not
    decide. Without a `header` the first row is a person's, too.
    """
    lines = [",".join(map(repr, values)).encode() + b",fine" for values in rows().tolist()]
    lines[row] = lines[row].replace(b"fine", cell)
    Path("data.csv").write_bytes(b"\n".join([b"age,mass,pay,note"] * header + lines))
    new = ("budget", "new", "b.budget", "--epsilon", "5", "--delta", "1e-6", *options[2:])
    assert egm(*new) == (0, b"", [])
    columns = ("--columns", ",".join(NAMES)) if header else (*PLAIN, "--columns", "1,2,3", "--header", "no")
    code, _, err = egm(*SUM, *options, *columns, "--budget", "b.budget")
    assert (code, err) == (2, [f"egm: data.csv: {told.format(row + 1 + header)} (the charge to b.budget stays)"])
    assert len(Budget("b.budget").history) == 1


@pytest.mark.parametrize("row", [0, 7])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "is blank"),
        ("1;2;3", "has 1 cells, most of the first rows have 3"),
        ("1,2,3,4", "has 4 cells, most of the first rows have 3"),
        ('1,2,"3', "a quote is not closed"),
        ('1,2,"said "hi" and' + 12 * "\nmore" + '"', "',' expected after"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--columns", "1,2,3")])
def test_the_first_person_of_a_file_without_a_header_costs_as_much_as_any_other(egm, row, line, said, options):
    """A wrong `line`, in the first or in another `row` of a file without a header, fails a release after its cost.

    No person's cells decide how many columns the file has, or whether it has another delimiter, also if the cells have
    so many lines that most of the first lines are theirs. The columns may be chosen by `options` or not.
    """
    lines = Path("bare.csv").read_text().splitlines()
    Path("bare.csv").write_text("\n".join([*lines[:row], line, *lines[row + 1 :]]))
    assert egm("budget", "new", "b.budget", "--epsilon", "5", "--delta", "1e-6") == (0, b"", [])
    code, _, err = egm("sum", "bare.csv", *PLAIN, *options, "--header", "no", "--rows", N, "--budget", "b.budget")
    assert (code, said in err[0], f"line {row + 1}" in err[0]) == (2, True, True)
    assert len(Budget("b.budget").history) == 1


@pytest.mark.parametrize(("options", "needed"), [((), 2), (("--columns", "1,4"), 4), (("--columns", "1,age"), None)])
def test_rows_without_a_header_say_after_the_cost_whether_they_have_the_columns(egm, options, needed):
    """Only the options decide before the cost which columns a file without a header has: its rows are all somebody's.

    The rows have three cells, and --sigma has two numbers. `options` choose the columns; `needed` is the number of
    cells that a row must then have, or None if the options name a column that no such file has.
    """
    Path("two.csv").write_text("1\n2\n")
    assert egm("budget", "new", "b.budget", "--epsilon", "5", "--delta", "1e-6") == (0, b"", [])
    given = (*options, "--sigma", "two.csv", *PLAIN[2:], "--header", "no", "--rows", N, "--budget", "b.budget")
    code, _, err = egm("sum", "bare.csv", *given)
    told = f"row 1 (line 1) has 3 cells, {needed} are needed" if needed else "has no column 'age'"
    assert (code, f"bare.csv: {told}" in err[0]) == (2, True)
    assert len(Budget("b.budget").history) == (needed is not None)


def test_names_that_are_no_text_cost_nothing(egm):
    Path("data.csv").write_bytes(b"age,mass,pay,caf\xe9\n" + b"1,2,3,4\n" * N)
    assert egm("budget", "new", "b.budget", "--epsilon", "5", "--delta", "1e-6") == (0, b"", [])
    code, _, err = egm(*SUM, "--rows", N, "--columns", ",".join(NAMES), "--budget", "b.budget")
    assert (code, err) == (2, ["egm: data.csv: is not UTF-8 text (--encoding can name another)"])
    assert not Budget("b.budget").history


@pytest.mark.parametrize(
    ("total", "told"),
    [
        (("--rho", "1"), "--noise gaussian"),
        (("--epsilon", "1.5", "--delta", "1e-6"), "l2 noise, which can cost far more"),
    ],
)
def test_a_refusal_says_what_l2_noise_costs(egm, total, told):
    """`egm` says why a budget with this `total` refuses a second release with l2 noise, and so does the help."""
    assert egm("budget", "new", "b.budget", *total) == (0, b"", [])
    noises = ("gaussian", "l2") if total[0] == "--rho" else ("l2", "l2")
    codes, errors = zip(*(egm(*SUM, "--noise", noise, "--budget", "b.budget")[::2] for noise in noises), strict=True)
    assert codes == (0, 2)
    assert told in errors[1][0]
    assert "l2 noise can cost far more than its epsilon" in " ".join(egm("sum", "--help")[1].decode().split())


@pytest.mark.parametrize("delta", [(), ("--delta", "0")])
def test_a_budget_without_delta_is_made_with_a_warning(egm, delta):
    """`egm budget new` warns of a total with delta = 0, from which `egm sum`, `mean` and `adaptive` get no release.

    `delta` has the option --delta, or nothing, which means 0.
    """
    code, out, (warning,) = egm("budget", "new", "b.budget", "--epsilon", "9", *delta)
    assert (code, out) == (0, b"")
    assert warning.startswith("egm: warning: b.budget: with --delta 0 a budget grants only releases with delta = 0")
    for command in (SUM, ("mean", *SUM[1:]), ADAPTIVE, (*ADAPTIVE[:2], "--rho", "0.25", *ADAPTIVE[6:])):
        assert f"egm {command[0]}" in warning
        code, _, (refusal,) = egm(*command, "--budget", "b.budget")
        assert code == 2
        assert "asks for" in refusal
    budget = Budget("b.budget")
    assert budget.history == ()
    budget.charge(LaplaceMechanism(1.0, 9.0))


def test_a_rehearsal_is_charged_to_a_budget_for_simulations(egm):
    options = ("--epsilon", "1", "--delta", "1e-6", "--simulation", "--rule", "zcdp")
    assert egm("budget", "new", "b.budget", *options) == (0, b"", [])
    assert egm(*SUM, "--budget", "b.budget", "--simulate", "1")[0] == 0
    budget = Budget("b.budget")
    assert (budget.simulation, budget.rule, len(budget.history)) == (True, "zcdp", 1)


@pytest.mark.parametrize("total", [{"epsilon": 1.5, "delta": 1e-6}, *slow({"rho": 0.125})])
def test_budget_is_shown(egm, total):
    """`egm budget show` prints the total of a budget, what is spent and left, and each release, as text and as JSON.

    `total` is an epsilon and a delta, or a zCDP budget rho. In the text, control characters in the label of a release
    are escaped.
    """
    options = [text for name, value in total.items() for text in (f"--{name}", str(value))]
    assert egm("budget", "new", "b.budget", *options, "--neighbors", "add_remove") == (0, b"", [])
    assert b"Releases: 0" in egm("budget", "show", "b.budget")[1]
    egm(*SUM, *PRIVATE, "--budget", "b.budget", "--label", "visits \x1b[31m in March")
    budget = Budget("b.budget")
    found = json.loads(egm("budget", "show", "b.budget", "--format", "json")[1])
    (entry,) = budget.history
    assert found["total"] == total
    assert (found["neighbors"], found["rule"], found["simulation"]) == ("add_remove", budget.rule, False)
    if "rho" in total:
        assert (found["spent"], found["left"]) == ({"rho": budget.spent}, {"rho": budget.left})
    else:
        assert (found["spent"], found["left"]) == (budget.spent._asdict(), budget.left._asdict())
    for name in ("time", "label", "mechanism", "rho", "epsilon", "delta"):
        assert found["history"][0][name] == getattr(entry, name)
    code, out, err = egm("budget", "show", "b.budget")
    assert (code, err) == (0, [])
    text = out.decode()
    left = budget.left if "rho" in total else budget.left.epsilon
    assert f"{next(iter(total))} = {left}" in text
    assert entry.time in text
    assert "visits \\x1b[31m in March" in text
    assert all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("command", ["sum", "mean"])
def test_a_sample_is_charged_and_shown(egm, released, command):
    """With --sample 0.25, `egm sum` and `egm mean` use a random sample of the rows, and `egm budget show` shows 0.25.

    Each row is in the sample with the probability 0.25. The mechanism is made for a quarter of the rows, and the noisy
    number of rows in the release is about 100 of the 400. `command` is "sum" or "mean".
    """
    made = ("budget", "new", "b.budget", "--epsilon", "2", "--delta", "1e-5", "--neighbors", "add_remove")
    egm(*made, "--simulation")
    options = ("--neighbors", "add_remove", "--rows", "400", "--sample", "0.25", "--budget", "b.budget")
    found = released(command, *SUM[1:], *options, "--simulate", "1")
    parameters = found["parameters"]
    assert (parameters["rows"], parameters["sampling_probability"]) == (100, 0.25)
    model = GaussianDataMechanism([8.0, 1.0, 2.0], 100, 1.0, 1e-6, neighbors="add_remove")
    assert abs(found["count"] - 100) < 6 * (400 * 0.25 * 0.75) ** 0.5 + 6 * model._count_std
    budget = Budget("b.budget")
    budget.charge_steps(1.1, 0.004, 100, delta=1e-7)
    one, steps = json.loads(egm("budget", "show", "b.budget", "--format", "json")[1])["history"]
    assert (one["sampling_probability"], one["count"]) == (0.25, 1)
    assert one["epsilon"] == pytest.approx(np.log1p(0.25 * np.expm1(1.0)))
    assert (steps["sampling_probability"], steps["count"]) == (0.004, 100)
    text = egm("budget", "show", "b.budget")[1].decode()
    assert "GaussianDataMechanism (sample of 0.25), epsilon = " in text
    assert "gaussian_steps (100 times, sample of 0.004), epsilon = " in text
    told = " ".join(egm(command, "--help")[1].decode().split())
    assert "publish population_low and population_high, because low and high are for the mean of the sample" in told


@pytest.mark.slow
def test_a_plan_with_samples_needs_dp_accounting(egm, monkeypatch):
    """Without the package dp-accounting, `egm budget show` fails for a budget that holds releases from samples.

    The command writes one line to standard error on how to install dp-accounting, and nothing to standard output.
    """
    Budget("b.budget", epsilon=2.0, delta=1e-5, neighbors="add_remove", rule="planned")
    Budget("b.budget").charge_steps(1.2, 0.0041, 101)
    Budget("b.budget").charge_steps(1.3, 0.0042, 102)
    for cached in (amplified.composed_epsilon, amplified._composed, amplified._divergences):
        cached.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    code, out, err = egm("budget", "show", "b.budget")
    assert (code, out, len(err)) == (2, b"", 1)
    assert "b.budget: dp-accounting is needed" in err[0]
    assert "elliptical-gaussian-mechanism[budget]" in err[0]


@pytest.mark.slow
def test_a_cost_that_is_not_known_is_shown_as_null(egm):
    """`egm budget show` writes null as the zCDP cost rho of a release with l2 noise, because this cost is not known.

    l2 noise is a random vector whose density at x is proportional to exp(-norm(x) / s), for a scale s.
    """
    egm("budget", "new", "b.budget", "--epsilon", "5", "--delta", "1e-6", "--rule", "gaussian")
    egm(*SUM, "--noise", "l2", "--budget", "b.budget")
    found = json.loads(egm("budget", "show", "b.budget", "--format", "json")[1])
    assert [charge["rho"] for charge in found["history"]] == [None]
    assert b"GaussianDataMechanism, epsilon = 1," in egm("budget", "show", "b.budget")[1]


# --- What nobody foresaw ----------------------------------------------------------------------------------------------


def fail(error):
    """Return a function that takes any arguments and raises `error`."""

    def release(*_, **__):
        raise error

    return release


@pytest.mark.parametrize("bug", [RuntimeError("age 42"), ValueError("age 42"), KeyError("age 42")])
def test_bug_asks_for_a_report(egm, monkeypatch, bug, folder):
    """An unexpected error in a release gives exit code 1 and one line that asks for a report of the bug.

    The line does not have the text of the error, `bug`, which may show private data. With --debug, the text is shown.
    """
    monkeypatch.setattr(GaussianDataMechanism, "release", fail(bug))
    code, out, err = egm(*SUM, "--output", "out.csv")
    assert (code, out, len(err)) == (1, b"", 1)
    assert "report" in err[0]
    assert not list(folder.glob("*out*"))
    assert "42" not in err[0]  # the text may be private
    code, out, err = egm(*SUM, "--debug")
    assert (code, out) == (1, b"")
    assert "Traceback" in err[0]
    assert "age 42" in "".join(err)
    egm("budget", "new", "b.budget", "--rho", "1")
    assert egm(*SUM, "--budget", "b.budget")[2][0].endswith(" (the charge to b.budget stays)")


def test_adaptive_refuses_what_can_never_run_before_it_reads(egm, monkeypatch):
    """If --rho is too small for the number of rows, `egm adaptive` ends with an error before it reads the data."""
    monkeypatch.setattr(inputs, "in_memory", fail(AssertionError("was read")))
    code, _, err = egm(*ADAPTIVE[:2], "--rho", "1e-6", *ADAPTIVE[6:])
    assert (code, len(err)) == (2, 1)
    assert err[0].startswith("egm: --rho = 1e-06 is too small for n = 400")


@pytest.mark.parametrize(("n", "named"), [(400, True), (2, False)])
def test_only_a_budget_that_exists_is_named(egm, folder, n, named):
    """If epsilon is too small for `egm adaptive`, the message names a larger epsilon that is enough, if there is one.

    There is none if the zCDP budget rho would have to be above 1e6, the largest that the mechanism accepts. The message
    also names a number of rows that is enough with the given epsilon. `named` says whether the message for `n` rows of
    data names an epsilon.
    """
    (folder / "few.csv").write_text(("1," * 399 + "1\n") * n)
    wide = ("--radius", "1e100", "--sigma-range", "1e-100,1")
    code, _, err = egm("adaptive", "few.csv", "--header", "no", *BUDGET, *wide, "--rows", n)
    assert code == 2
    found = re.search(r"takes (?:--epsilon (\S+), or )?(\d+) rows$", err[0])
    assert (found[1] is not None) == named
    declared = {"radius": 1e100, "sigma_range": (1e-100, 1.0)}
    it = AdaptiveDataMechanism(int(found[2]), zcdp_rho(1.0, 1e-6), **declared)
    assert it.least_rho(400) <= it.rho
    if named:
        more = AdaptiveDataMechanism(n, zcdp_rho(float(found[1]), 1e-6), **declared)
        assert more.least_rho(400) <= more.rho


def test_warnings_are_lines_of_their_own(egm, monkeypatch):
    """If a release gives one warning three times, `egm sum` writes it once, as one line of standard error.

    Control characters in the warning are escaped. The release succeeds.
    """

    class Doubt(UserWarning):
        pass

    def release(*_, **__):
        for _ in range(3):
            warnings.warn("delta is\nlarge \x1b[31m", Doubt, stacklevel=1)
        return made

    made = mechanism().release(rows())
    monkeypatch.setattr(GaussianDataMechanism, "release", release)
    code, out, err = egm(*SUM)
    assert (code, err) == (0, ["egm: warning: delta is large \\x1b[31m"])
    assert b"age" in out


def test_a_command_in_a_thread_changes_no_warnings(monkeypatch):
    """In a thread other than the main one, a command succeeds and leaves alone how Python shows warnings."""
    assert cli.main(PLAN) == 0
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as thread:
        patch.delattr(warnings, "catch_warnings")
        assert thread.submit(cli.main, PLAN).result() == 0


SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def heard():
    """Let a test receive the signals in SIGNALS, even if the tests were started with one of them ignored (by nohup)."""
    ignored = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("swallowed", ["at the end", "in a block", "with another error", "no"])
def test_a_signal_is_never_swallowed(egm, monkeypatch, folder, number, swallowed):
    """A signal stops `egm sum` even if a library catches the exception that the signal raises, or replaces it.

    `number` is the signal: SIGINT, SIGTERM or SIGHUP. `swallowed` says where the exception is caught and what follows.
    No output is left, and the exit code is the usual one, 128 plus the number of the signal.
    """
    made, parse = mechanism().release(rows()), csv_files._parsed

    def interrupted(result):
        def call(*_, **__):
            try:
                signal.raise_signal(number)
            except BaseException:
                if swallowed == "no":
                    raise
                if swallowed == "with another error":
                    raise AttributeError("half imported") from None
            return result(*_) if callable(result) else result

        return call

    if swallowed == "in a block":
        monkeypatch.setattr(csv_files, "_parsed", interrupted(parse))
    else:
        monkeypatch.setattr(GaussianDataMechanism, "release", interrupted(made))
    handlers = [signal.getsignal(number) for number in SIGNALS]
    before = sorted(folder.iterdir())
    said = ["egm: interrupted" if number == signal.SIGINT else "egm: terminated"]
    for output in (("--output", "out.csv"), ()):
        assert egm(*SUM, *output) == (SIGNALS[number], b"", said)
    assert sorted(folder.iterdir()) == before
    assert handlers == [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_signal_during_a_charge_is_told_with_it(egm, monkeypatch, is_recorded):
    """If a signal stops `egm sum` while a budget records the cost, the message does not hide that it may be recorded.

    `is_recorded` says whether the cost is on the disk when the signal comes. A cost that is refused is not mentioned.
    """
    egm("budget", "new", "b.budget", "--rho", "0.03")
    charge = Budget.charge

    def interrupted(*arguments, **options):
        if is_recorded:
            charge(*arguments, **options)
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Budget, "charge", interrupted)
        said = ["egm: terminated (perhaps with a charge to b.budget: egm budget show tells)"]
        assert egm(*SUM, "--budget", "b.budget", "--output", "out.csv") == (143, b"", said)
    assert len(Budget("b.budget").history) == is_recorded
    if is_recorded:
        code, _, err = egm(*SUM, "--budget", "b.budget")
        assert (code, "a charge" in err[0]) == (2, False)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("then", ["raise", "raise ImportError('half imported')"])
def test_a_signal_during_the_imports_stops_the_command(folder, number, then):
    """A signal while `egm` imports NumPy ends it with one line, and with 128 plus the number of the signal.

    A module in place of NumPy sends the signal, in an `exec`, as the standard library has some. `then` is what the
    module does with the exception that the signal raises: it passes it on, or raises another one instead. The script
    `egm` and `python -m egm` do the same.
    """
    sent = (
        f"import signal\ntry:\n    exec('signal.raise_signal({int(number)})')\nexcept KeyboardInterrupt:\n    {then}\n"
    )
    (folder / "numpy.py").write_text(sent)
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["egm"]
    module, _, function = script.partition(":")
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    said = "egm: interrupted\n" if number == signal.SIGINT else "egm: terminated\n"
    for how in (("-m", "egm"), ("-c", f"import sys, {module}; sys.exit({module}.{function}())")):
        command = [sys.executable, *how, "--version"]
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        assert (run.returncode, run.stdout, run.stderr) == (SIGNALS[number], "", said)


def test_a_signal_before_the_file_has_its_name_stops_it_and_none_later(egm, monkeypatch, folder):
    """A SIGINT that comes before the output file gets its final name stops `egm sum`, and leaves no file.

    A SIGINT that comes afterwards has no effect: the file stays, and the exit code is 0.
    """
    fsync, place = os.fsync, files.place

    def late(call):
        def wrapped(*arguments):
            call(*arguments)
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", late(fsync))
        assert egm(*SUM, "--output", "out.csv") == (130, b"", ["egm: interrupted"])
    assert not (folder / "out.csv").exists()
    with monkeypatch.context() as patch:
        patch.setattr(files, "place", late(place))
        assert egm(*SUM, "--output", "out.csv") == (0, b"", [])
    assert (folder / "out.csv").exists()
    assert not list(folder.glob(".egm*"))


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGINT, *slow(signal.SIGTERM, signal.SIGHUP)])
def test_a_signal_at_the_end_of_the_process_does_not_change_the_exit_code(folder, number):
    """A signal has no effect on `egm sum` while Python ends, which takes long enough for it: the exit code is 0.

    If an earlier signal has stopped the command, its exit code stays, too. But if a thread still computes then, the
    process does not wait for it any longer. `number` is the signal at the end.
    """
    send = f"os.kill(os.getpid(), {int(number)})"
    late = f"atexit.register(lambda: ({send}, print('at the end')))\n"
    wait = f"def again():\n    while not time.sleep(0.1):\n        {send}\n"
    wait += "threading.Thread(target=lambda: (threading.main_thread().join(), again())).start()\n"
    stop = "from egm import files; files.rows = lambda *_, **__: signal.raise_signal(signal.SIGINT)\n"
    run = "from egm.__main__ import main; sys.exit(main())"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    end, said = "at the end\n", "egm: interrupted\n"
    for how, expected in ((late, (0, end, "")), (late + stop, (130, end, said)), (wait + stop, (130, "", said))):
        code = f"import atexit, os, signal, sys, threading, time\n{how}{run}"
        command = [sys.executable, "-c", code, *SUM, "--output", "out.csv"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=100)
        assert (ended.returncode, ended.stdout, ended.stderr) == expected
        assert (folder / "out.csv").exists() == (ended.returncode == 0)
        (folder / "out.csv").unlink(missing_ok=True)


def test_a_signal_that_is_ignored_stays_ignored(egm):
    """Within `terminal.Stops`, SIGINT is ignored if it was ignored before, as in the background of a shell script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with terminal.Stops():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


# --- Output files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_output_file_has_what_standard_output_would(egm, folder, form):
    _, expected, _ = egm(*SUM, "--simulate", "1", "--format", form)
    assert egm(*SUM, "--simulate", "1", "--output", f"out.{form}") == (0, b"", [])
    assert (folder / f"out.{form}").read_bytes() == expected
    assert stat.S_IMODE((folder / f"out.{form}").stat().st_mode) == stat.S_IMODE((folder / "data.csv").stat().st_mode)
    assert egm(*SUM, "--simulate", "2", "--output", f"out.{form}", "--force") == (0, b"", [])
    assert (folder / f"out.{form}").read_bytes() != expected


def test_name_of_the_output_does_not_overrule_the_format(egm, folder):
    egm(*SUM, "--output", "out.csv", "--format", "json")
    assert json.loads((folder / "out.csv").read_text())["columns"] == list(NAMES)


@pytest.mark.parametrize("command", [SUM, (*SUM, "--delta", "0.01"), (*SUM, "--rows", "399")])
def test_standard_error_may_be_closed(egm, folder, monkeypatch, capsysbinary, command):
    """If standard error is closed, its messages are lost, but the exit code and all other output are as usual.

    `command` is an `egm sum` that gives no message, a warning, or an error.
    """
    expected = egm(*command, "--simulate", "1", "--output", "expected.csv")[:2]
    monkeypatch.setattr(sys, "stderr", None)
    assert egm(*command, "--simulate", "1", "--output", "out.csv")[:2] == expected
    assert sys.stderr is None
    assert (terminal.complain("lost", 1), capsysbinary.readouterr()) == (1, (b"", b""))
    if expected == (0, b""):
        assert (folder / "out.csv").read_bytes() == (folder / "expected.csv").read_bytes()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_stream_of_text_may_be_standard_output(egm, form):
    """`egm plan` can write to a standard output that takes only text, and no bytes.

    Notebooks and `contextlib.redirect_stdout` have such streams. `form` is the format of the output, "text" or "json".
    """
    stream = io.StringIO()
    command = (*PLAN, "--format", form)
    with contextlib.redirect_stdout(stream):
        code = cli.main([str(arg) for arg in command])
    assert code == 0
    assert stream.getvalue() == egm(*command)[1].decode()


def test_a_stream_of_text_gets_no_bytes(egm):
    with contextlib.redirect_stdout(io.StringIO()):
        code, _, err = egm(*SUM, "--format", "npy")
    assert (code, err) == (2, ["egm: --format npy is not for a terminal: name a file with --output"])


@pytest.mark.parametrize("command", [SUM, PLAN, ("budget", "show", "b.budget")])
def test_a_release_to_a_closed_standard_output_costs_nothing(egm, monkeypatch, command):
    """If standard output is closed, a command fails before it records a cost in a budget.

    With --output, the command writes to a file, and succeeds. `command` has the arguments of `egm sum`, `egm plan` or
    `egm budget show`. Only `egm sum` has a cost.
    """
    budget = Budget("b.budget", epsilon=1.0, delta=1e-6)
    command = (*command, "--budget", "b.budget") if command is SUM else command
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        code, _, err = egm(*command)
        assert (code, err) == (2, ["egm: standard output: is closed; name a file with --output"])
        assert not budget.history
        assert egm(*command, "--output", "out.json")[::2] == (0, [])
    assert len(budget.history) == int(command[0] == "sum")


@pytest.mark.parametrize("command", [SUM, PLAN])
def test_a_minus_sign_is_standard_output(egm, folder, command):
    before = set(folder.iterdir())
    command = (*command, "--simulate", "1") if command is SUM else command
    assert egm(*command, "--output", "-") == egm(*command)
    assert set(folder.iterdir()) == before


# --- Progress ---------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Return the function tick(seconds), which replaces the clock that the display of progress reads.

    After a call of tick(seconds), the clock advances by `seconds` at each reading.
    """

    def tick(seconds):
        looks = iter(np.arange(1, 1000) * seconds)
        monkeypatch.setattr(inputs.time, "monotonic", lambda: next(looks))

    return tick


@pytest.mark.parametrize(("tick", "terminal", "shown"), [(0.6, True, True), (1e-9, True, False), (9.0, False, False)])
def test_progress_is_shown_on_a_terminal_after_a_second(monkeypatch, clock, tick, terminal, shown):
    """`egm sum` shows its progress only on a terminal, and only when more than one second has passed since the start.

    The file has three blocks of rows, and `tick` seconds pass between two readings of the clock. `terminal` says
    whether standard error is a terminal, and `shown` whether progress is expected.
    """
    np.save("data.npy", np.random.default_rng(1).normal(size=(3 * 87381, 3)))
    monkeypatch.setattr(sys, "stderr", err := Terminal() if terminal else io.StringIO())
    clock(tick)
    assert cli.main(["sum", "data.npy", *PLAIN, "--rows", "262143", "--output", "out.csv"]) == 0
    if not shown:
        assert err.getvalue() == ""
        return
    first, *lines, cleared, last = err.getvalue().split("\r")
    assert lines == ["174,762 rows, 66 %", "262,143 rows, 100 %"]
    assert first == cleared.strip() == last == ""


@pytest.mark.parametrize(
    ("more", "code"),
    [((), 0), (("--delta", "1e-3"), 0), (("--sigma", "gone.csv"), 2)],
)
def test_messages_that_cannot_be_printed_change_nothing(monkeypatch, clock, folder, more, code):
    """If the terminal is gone, `egm sum` writes the same output as before, and has the same exit code.

    It cannot show its progress, nor a warning or an error. `more` are options that cause them, and `code` is the exit
    code.
    """
    np.save("data.npy", np.random.default_rng(1).normal(size=(3 * 87381, 3)))
    command, gone = ["sum", "data.npy", *PLAIN, "--rows", "262143", "--output", "out.csv", *more], Mock()
    gone.side_effect = OSError(5, "gone")
    monkeypatch.setattr(sys, "stderr", Mock(write=gone, isatty=lambda: True, closed=False))
    clock(0.6)
    assert cli.main(command) == code
    assert (folder / "out.csv").exists() == (code == 0)
    assert sys.stderr.write.called


@pytest.mark.parametrize("is_main", [True, False])
@pytest.mark.parametrize("closed", [None, io.StringIO()])
def test_a_program_without_standard_error_can_call_the_command(monkeypatch, folder, closed, is_main):
    """If `sys.stderr` is None or a closed file, `egm.cli.main` returns its exit code and leaves `sys.stderr` as it is.

    This holds for calls in the main thread and, if `is_main` is false, for two calls at once in other threads.
    """
    if closed:
        closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    commands = [["sum", "data.csv", *SUM[2:], "--output", f"out{k}.json"] for k in range(2)]
    with ThreadPoolExecutor(2) as pool:
        codes = list((map if is_main else pool.map)(cli.main, commands))
    assert codes == [0, 0]
    assert cli.main(["sum", "missing.csv", *SUM[2:]]) == 2
    assert sys.stderr is closed


@pytest.mark.parametrize("option", [["--neighbors", "add_remove"], ["--missing", "drop_row"]], ids=str)
def test_progress_does_not_show_a_private_number_of_rows(monkeypatch, clock, option):
    np.save("data.npy", np.random.default_rng(1).normal(size=(3 * 87381, 3)))
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    clock(2.0)
    assert cli.main(["sum", "data.npy", *PLAIN, "--rows", "262143", *option, "--output", "out.csv"]) == 0
    shown = [line.strip() for line in err.getvalue().split("\r") if line.strip()]
    assert len(shown) > 1
    assert all(re.fullmatch(r"[0-9]+ seconds", line) for line in shown)


def test_progress_of_counting(monkeypatch, clock):
    """If the number of rows of a CSV file is not declared, `egm sum` reads it twice, and shows its progress both times.

    The first reading counts the rows, and the second adds them.
    """
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    clock(9.0)
    assert cli.main([*SUM, "--output", "out.csv"]) == 0
    assert [line for line in err.getvalue().split("\r") if line.strip()] == ["400 rows", "400 rows, 100 %"]


@pytest.mark.parametrize("kind", ["csv.gz", *slow("folder")])
def test_progress_of_compressed_files_and_of_folders(monkeypatch, clock, kind):
    X = np.random.default_rng(1).normal(size=(2 * 87381, 3))
    if kind == "folder":
        write_folder("big", *(dict(zip(NAMES, part.T, strict=True)) for part in np.split(X, 2)))
    else:
        Path("big.csv.gz").write_bytes(gzip.compress(text_csv(X.round(2)).encode(), 1))
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    clock(9.0)
    file = "big" if kind == "folder" else "big.csv.gz"
    assert cli.main(["sum", file, *SUM[2:], "--rows", "174762", "--output", "out.csv"]) == 0
    assert [line for line in err.getvalue().split("\r") if line.strip()] == ["87,381 rows, 50 %", "174,762 rows, 100 %"]


# --- As a program -----------------------------------------------------------------------------------------------------


def program(*argv, **options):
    command = [sys.executable, "-m", "egm", *argv]
    return subprocess.run(command, capture_output=options.get("stdout") is None, text=True, check=False, **options)


def test_program_releases():
    """`python -m egm sum`, run as a process, writes the estimate that GaussianDataMechanism returns for the same seed.

    The exit code is 0, and nothing is written to standard error.
    """
    done = program(*SUM, "--simulate", "3")
    assert (done.returncode, done.stderr) == (0, "")
    estimate = [float(row["estimate"]) for row in csv.DictReader(done.stdout.splitlines()[1:])]
    assert estimate == mechanism().release(rows(), rng=np.random.default_rng(3)).estimate.tolist()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("command", [SUM, ("--version",), ("sum", "--help")])
def test_full_disk_is_not_a_bug(command):
    with open("/dev/full", "w") as full:
        done = program(*command, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, "egm: standard output: No space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize("output", ["with a buffer", "without a buffer", "file"])
def test_output_that_does_not_fit_is_an_error(folder, output):
    """If the operating system limits files to 2000 bytes, a longer output makes `egm sum` fail with exit code 2.

    `output` is "file" if the output is written with --output; then no file is left. Otherwise the standard output is a
    file, and `output` says whether Python buffers it. Without a buffer, the operating system may write only a part of
    the output and report no error.
    """
    names = [f"c{i}" for i in range(100)]
    write_csv("wide.csv", np.ones((5, 100)), names)
    (folder / "wide_sigma.csv").write_text("".join(f"{name},1\n" for name in names))
    command = ("sum", "wide.csv", "--sigma", "wide_sigma.csv", *BUDGET)
    unbuffered = "1" if output == "without a buffer" else ""
    options = {"stderr": subprocess.PIPE, "env": os.environ | {"PYTHONUNBUFFERED": unbuffered}}
    options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    named = ("--output", "out.csv") if output == "file" else ()
    with open("part.csv", "wb") as part:
        done = program(*command, *named, stdout=part, **options)
    assert (done.returncode, done.stderr) == (2, f"egm: {'out.csv' if named else 'standard output'}: File too large\n")
    assert not (folder / "out.csv").exists()
    assert not list(folder.glob(".egm*"))


STARTED = """
import sys
from egm import cli
parser = cli._parser
cli._parser = lambda: print("ready", flush=True) or parser()
sys.exit(cli.main())
"""


def started(*argv, modules=""):
    """Start the command `egm` with the arguments `argv` as a process, and return its `subprocess.Popen` object.

    When the function returns, the process is ready to be stopped by SIGINT. Python imports a module from the folder
    `modules`, if it is there, rather than from elsewhere.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([modules, str(ROOT), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, *argv],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
@pytest.mark.parametrize(("number", "delays"), [(signal.SIGINT, (0.0, 0.6, None)), (signal.SIGTERM, (0.0, 1.0, None))])
def test_a_signal_at_any_moment_leaves_nothing_behind(folder, number, delays):
    """If a signal stops `egm sum`, either the whole output file exists or none, and never a temporary file.

    For each of the `delays`, the command is started, and gets the signal `number` after this many seconds or, if the
    delay is None, as soon as there is a temporary file. If there is no output file, the exit code is the usual one, 128
    plus the number of the signal.
    """
    write_csv("big.csv", rows(60_000))
    codes = []
    for delay in delays:
        process = started("sum", "big.csv", *SUM[2:], "--output", "out.json")
        while delay is None and not list(folder.glob(".egm*")) and process.poll() is None:
            time.sleep(0.001)
        time.sleep(delay or 0.0)
        process.send_signal(number)
        _, err = process.communicate()
        codes.append(process.returncode)
        done = process.returncode in (0, -number)  # Python itself was ending when the signal came
        said = f"egm: {'interrupted' if number == signal.SIGINT else 'terminated'}\n"
        assert err == "" if done else process.returncode == SIGNALS[number] and err.endswith(said)
        assert (folder / "out.json").exists() == done
        assert not list(folder.glob(".egm*"))
        (folder / "out.json").unlink(missing_ok=True)
    assert SIGNALS[number] in codes


@pytest.mark.slow
@pytest.mark.parametrize(
    "after", ["raise AttributeError('half imported')", "pass", "raise ImportError('half imported')"]
)
def test_a_signal_during_an_import_is_not_swallowed(folder, after):
    """SIGINT during the import of pandas stops `egm sum`, even if pandas catches the KeyboardInterrupt that follows.

    A module in `folder` takes the place of pandas. It sends SIGINT to its own process, catches the exception, and then
    executes the statement `after`. No output is left.
    """
    (folder / "modules" / "pandas").mkdir(parents=True)
    lines = ["import os, signal", "__version__ = '3.0'", "try:", "    os.kill(os.getpid(), signal.SIGINT)"]
    lines += ["    for _ in range(1000): pass", "except KeyboardInterrupt:", f"    {after}"]
    (folder / "modules" / "pandas" / "__init__.py").write_text("\n".join(lines))
    options = ("--columns", "age,mass,pay", "--output", "out.csv")
    process = started("sum", "data.parquet", *SUM[2:], *options, modules=str(folder / "modules"))
    _, err = process.communicate()
    assert (process.returncode, err) == (130, "egm: interrupted\n")
    assert not (folder / "out.csv").exists()
    assert not list(folder.glob(".egm*"))
