"""Test that wrong data are refused in every form that data may have, and cost nothing if no value had to be read.

The forms are tables, arrays, files, functions and iterators. The method `check` of a mechanism reads no values, and
`Budget` calls it before it records a cost. `check` refuses wrong names, numbers or types of columns, and a budget that
is too small.
"""

import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from egm import AdaptiveDataMechanism, GaussianDataMechanism, files
from egm._budget import drawn
from egm._rows import people
from egm.budget import Budget
from egm.mechanisms import GroupedDataMechanism
from tests.egm.doubles import Silent

N, PERSONS = 400, 200
ROWS = np.random.default_rng(1).normal([47, 2200, 4], [16, 1300, 2], (N, 3))
TABLE = pd.DataFrame(ROWS, columns=["age", "income", "visits"]).assign(who=np.repeat(np.arange(PERSONS), 2))


def blocks(table):
    yield from (table[:150], table[150:])


def parquet(table, folder, read):
    table.to_parquet(folder / "people.parquet")
    return read(folder / "people.parquet")


def csv(table, folder):
    table.to_csv(folder / "people.csv", index=False)
    return files.rows(folder / "people.csv", header="yes")


HOLDERS = {  # functions that make a holder of rows from a data frame of pandas and a folder
    "pandas": lambda table, _: table,
    "polars": lambda table, _: pl.from_pandas(table),
    "Arrow": lambda table, _: pa.Table.from_pandas(table, preserve_index=False),
    "dask": lambda table, _: dd.from_pandas(table, npartitions=3),
    "function": lambda table, _: lambda: blocks(table),
    "CSV": csv,
    "Parquet": lambda table, folder: parquet(table, folder, files.rows),
    "Parquet of dask": lambda table, folder: parquet(table, folder, files.from_parquet),
    "iterator": lambda table, _: blocks(table),
}
of_tables = pytest.mark.parametrize("holder", HOLDERS)


def adaptive(**options):
    return AdaptiveDataMechanism(**{"n": N, "rho": 1.0, "radius": 1e4, "sigma_range": (0.1, 1e4), **options})


def gaussian(sigma=(18.0, 1200.0), **options):
    return GaussianDataMechanism(sigma, **{"n": N, "epsilon": 1.0, "delta": 1e-6, **options})


def assert_refused_uncharged(made, held, message, **labels):
    budget = Budget(rho=1e3)
    with pytest.raises((ValueError, TypeError), match=message):
        budget.release(made, held, **labels)
    assert not budget.history


@pytest.mark.parametrize("holder", [holder for holder in HOLDERS if holder != "iterator"])
@pytest.mark.parametrize(
    "options", [{"columns": ["income", "age"]}, {"ranges": {"income": (0, 9e3), "age": (0, 120)}, "radius": None}]
)
def test_an_adaptive_sum_has_the_declared_columns_only(holder, options, tmp_path):
    made, held = adaptive(**options), HOLDERS[holder](TABLE, tmp_path)
    found = Budget(rho=1, simulation=True).release(made, held, rng=np.random.default_rng(1))
    alone = made.release(ROWS[:, [1, 0]], rng=np.random.default_rng(1))
    np.testing.assert_array_equal(found.estimate, alone.estimate)
    assert found.columns == ("income", "age")


SUMMED = {
    "a sum": (gaussian({"age": 18.0, "who": 50.0}, per_person="sum"), {"person": "who"}),
    "groups": (GroupedDataMechanism(gaussian({"age": 18.0, "who": 50.0}), [1, 2]), {"by": "who"}),
    "an adaptive sum": (adaptive(n=PERSONS, columns=["age", "who"], per_person="sum"), {"person": "who"}),
}


@of_tables
@pytest.mark.parametrize("case", SUMMED)
def test_a_column_of_labels_that_is_summed_costs_nothing(case, holder, tmp_path):
    made, labels = SUMMED[case]
    message = f"^{next(iter(labels))} must not be one of the columns that are summed, got 'who'$"
    assert_refused_uncharged(made, HOLDERS[holder](TABLE, tmp_path), message, **labels)


NUMBERED = TABLE.drop(columns="who").set_axis([1, 2, 3], axis=1).rename(columns=str)  # names that nobody gave
POOR = "^rho = 1e-09 is too small for n = .* and 3 columns"
UNFIT = {  # (mechanism, table, labels, message)
    "columns": (gaussian(), NUMBERED, {}, r"^X must have shape \(rows, 2\), got \(rows, 3\)"),
    "columns of persons": (
        *(gaussian(per_person="sum", n=PERSONS), NUMBERED.assign(who=TABLE["who"])),
        *({"person": "who"}, r"^X must have shape \(rows, 2\), got \(rows, 3\)"),
    ),
    "adaptive columns": (adaptive(ranges=[(0, 1)] * 2, radius=None), NUMBERED, {}, "^X must have the 2 columns"),
    "texts": (adaptive(), TABLE.assign(who="secret"), {}, "^X must hold real numbers in every column"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_dask_frame_that_does_not_fit_costs_nothing(case, tmp_path):
    made, table, labels, message = UNFIT[case]
    assert_refused_uncharged(made, HOLDERS["dask"](table, tmp_path), message, **labels)


@of_tables
@pytest.mark.parametrize("options", [{}, {"n": PERSONS, "per_person": "mean"}], ids=["rows", "persons"])
def test_a_rho_that_is_too_small_costs_nothing(options, holder, tmp_path):
    if holder == "iterator" and not options:
        holder = "function"  # an iterator can be read only once
    made = adaptive(rho=1e-9, columns=["age", "income", "visits"], **options)
    labels = {"person": "who"} if options else {}
    assert_refused_uncharged(made, HOLDERS[holder](TABLE, tmp_path), POOR, **labels)


@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_ranges_admit_each_rho_for_which_noise_is_drawn_securely(neighbors):
    def made(rho):
        return adaptive(rho=rho, ranges=[(0, 9e3)] * 3, radius=None, neighbors=neighbors, unseen=0.9)

    assert not Budget(rho=1, neighbors=neighbors).release(made(1e-15), ROWS).simulated
    with pytest.raises(ValueError, match=r"^rho must lie between 1e-15 and 1000000.0, got 1e-22$"):
        made(1e-22)


NOISES = {  # (mechanism, arguments of `release`, message)
    "rng": (gaussian(), {"rng": 42}, "^rng must be a numpy.random.Generator"),
    "adaptive rng": (
        adaptive(n=PERSONS, per_person="sum"),
        {"rng": 42, "person": "who"},
        "^rng must be a numpy.random",
    ),
    "rng of groups": (GroupedDataMechanism(gaussian(), [1]), {"rng": 42, "by": "who"}, "^rng must be a numpy.random"),
    "rounding": (
        gaussian(epsilon=50, delta=1e-300),
        {},
        "^epsilon = 50.0 and delta = 1e-300: integer noise would add",
    ),
    "rounding of groups": (
        *(GroupedDataMechanism(gaussian(epsilon=50, delta=1e-300), [1]), {"by": "who"}),
        "^epsilon = 50.0 and delta = 1e-300: integer noise would add",
    ),
}


@pytest.mark.parametrize("case", NOISES)
def test_noise_that_cannot_be_drawn_is_refused_before_rows_are_read(case):
    def unread():
        raise AssertionError("was read")
        yield

    made, arguments, message = NOISES[case]
    with pytest.raises((ValueError, TypeError), match=message):
        made.release(unread(), **arguments)


LISTS = {
    "rho": (adaptive(rho=1e-9), ROWS.tolist(), POOR),
    "arrays": (adaptive(rho=1e-9), list(ROWS), POOR),
    "columns": (gaussian(), ROWS.tolist(), r"^X must have shape \(rows, 2\), got \(400, 3\)"),
    "numbers": (adaptive(), ROWS[:, 0].tolist(), r"^X must have shape \(400, columns\), got \(400,\)"),
    "basis": (adaptive(basis=np.eye(2)), ROWS.tolist(), "^basis must have the 3 entries"),
    "chunks": (gaussian([18.0]), pa.chunked_array([ROWS[:, 0]]), r"^X must have shape \(rows, 1\), got \(rows,\)"),
    "tables": (gaussian(), [TABLE] * N, "^X must be one table or array, got a list of them"),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_list_whose_rows_do_not_fit_costs_nothing(case):
    assert_refused_uncharged(*LISTS[case])


LABELS = {
    **{"a number": np.array(5), "a matrix": TABLE[["who"]].to_numpy(), "a set": set(range(N)), "bytes": b"a" * N},
    "a masked array": np.ma.array(TABLE["who"]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_that_are_no_vector_cost_nothing(case):
    made = gaussian([1.0] * 3, n=PERSONS, per_person="sum")
    assert_refused_uncharged(made, ROWS, "^person must be a vector of numbers", person=LABELS[case])


def test_no_rows_may_be_an_empty_list_with_persons():
    made = gaussian(per_person="sum", neighbors="add_remove")
    assert made.release([], person=[], rng=Silent()).count == 0


def test_a_column_of_arrow_without_any_value_is_a_column_of_missing_values():
    made = gaussian({"age": 18.0, "income": 1200.0}, center=[40.0, 2000.0], missing="center")
    table = pa.table({"age": ROWS[:, 0], "income": pa.nulls(N)})
    np.testing.assert_allclose(made.release(table, rng=Silent()).estimate[1], N * 2000.0)


GAPLESS = "CSV", "Parquet", "Parquet of dask"  # a file is opened for data without missing values
LEFT_OUT = [
    *(("error", value, holder) for value in (np.inf, np.nan) for holder in (*HOLDERS, "array")),
    *(("drop_row", np.inf, holder) for holder in (*HOLDERS, "array") if holder not in GAPLESS),
]


@pytest.mark.parametrize(("missing", "value", "holder"), LEFT_OUT)
def test_a_wrong_value_is_refused_in_a_row_that_is_left_out_too(missing, value, holder, tmp_path):
    """A release refuses the infinite or missing number `value` even in a row that would not be added to a sum.

    If `missing` is "error", the row belongs to a group that is not released. If `missing` is "drop_row", the row also
    has a missing value, for which it would be dropped. `holder` is the kind of object or file that holds the rows.
    """
    table, groups = TABLE.copy(), missing == "error"
    table.loc[5, ["age", "income"]] = (1.0 if groups else np.nan), value
    made = gaussian({"age": 18.0, "income": 1200.0}, missing=missing, neighbors="add_remove")
    made = GroupedDataMechanism(made, ["1"] if holder == "CSV" else [1]) if groups else made
    array = table[["age", "income"]].to_numpy(), TABLE["who"].to_numpy()
    held, by = array if holder == "array" else (HOLDERS[holder](table, tmp_path), "who")
    with pytest.raises(ValueError, match=r"must be finite|: infinite|missing"):
        made.release(held, **({"by": by} if groups else {}), rng=Silent())


def test_errors_count_the_rows_of_all_blocks():
    """If blocks of rows are read one after the other, an error names the row by its number among all rows.

    This holds for blocks that are arrays or data frames, for numbers and for labels, and for a sample of the rows.
    """
    wrong = TABLE.assign(who=TABLE["who"].astype(float))
    wrong.loc[303, "income"] = np.inf
    unnamed = TABLE.assign(who=TABLE["who"].where(TABLE.index != 303))
    parts = (slice(150), slice(150, 300), slice(300, None))
    array, named = wrong[["age", "income"]].to_numpy(), {"age": 18.0, "income": 1200.0}
    labelled = [
        (gaussian(named, per_person="sum", n=PERSONS), {"person": "who"}),
        (GroupedDataMechanism(gaussian(named), [1, 2]), {"by": "who"}),
    ]
    for missing in ("error", "center"):
        with pytest.raises(ValueError, match=r"^X\[303, 1\] must be finite$"):
            gaussian(missing=missing).release((array[part] for part in parts), rng=Silent())
    for make in (lambda table: table, pl.from_pandas, pa.Table.from_pandas):
        for made, labels in [(gaussian(named), {}), (gaussian(named, missing="center"), {}), *labelled]:
            with pytest.raises(ValueError, match=r"^X\[303, 'income'\] must be finite$"):
                made.release((make(wrong[part]) for part in parts), **labels, rng=Silent())
        with pytest.raises(ValueError, match=r"^X\[303, 'income'\] must be finite$"):
            adaptive(columns=["age", "income"]).release(lambda make=make: (make(wrong[part]) for part in parts))
        for made, labels in labelled:
            with pytest.raises(ValueError, match=r"^X\[303, 'who'\] must not be missing$"):
                made.release((make(unnamed[part]) for part in parts), **labels, rng=Silent())
        with pytest.raises(ValueError, match=r"^X\[303, 'who'\] must not be missing$"):
            list(drawn.sample((make(unnamed[part]) for part in parts), 0.5, None, {"person": "who"})[0])


SIGNALING = np.array(0x7FA00000, dtype=np.uint32).view(np.float32)  # a NaN that causes an error when it is converted
SPECIAL = {"a tiny long double": np.finfo(np.longdouble).tiny, "a signaling NaN": SIGNALING}


@pytest.mark.parametrize("errors", ["warn", "raise"])
@pytest.mark.parametrize("special", SPECIAL)
def test_a_special_number_causes_no_warning(special, errors):
    """No release warns or fails because a number loses its precision, or is a special NaN, when it becomes a double.

    A warning would reveal the row. So there is none even if NumPy is set to warn or raise on every floating-point
    error; `errors` is this setting.
    """
    value = SPECIAL[special]
    held = ROWS.astype(value.dtype)
    held[3] = value
    frame = pd.DataFrame(dict(zip(("age", "income", "visits"), held.T, strict=True))).assign(who=TABLE["who"])
    mixed = frame.assign(visits=ROWS[:, 2])
    made = {
        missing: gaussian([18.0, 1200.0, 2.0], columns=frame.columns[:3], missing=missing, neighbors="add_remove")
        for missing in ("center", "drop_row", *["error"] * bool(np.isfinite(value)))
    }
    with np.errstate(all=errors):  # here a warning is an error
        for mechanism in made.values():
            for rows in (held, np.asfortranarray(held), iter([held]), frame, mixed):
                mechanism.release(rows, rng=Silent())
            for table in (frame, mixed):
                GroupedDataMechanism(mechanism, [1, 2]).release(table, by="who", rng=Silent())
        for rows in (held, lambda: iter([held]), mixed[mixed.columns[:3]]):
            adaptive(missing="drop_row", neighbors="add_remove").release(rows, rng=np.random.default_rng(1))


@pytest.mark.parametrize("per_person", [None, "sum", "mean", 2])
def test_a_long_double_beyond_the_doubles_is_refused_without_a_warning(per_person):
    held, labels = ROWS.astype(np.longdouble), {} if per_person is None else {"person": TABLE["who"]}
    held[3, 0] = np.ldexp(np.longdouble(1), np.finfo(np.longdouble).maxexp - 1)
    made = gaussian([1.0] * 3, n=N if per_person is None else PERSONS, per_person=per_person)
    with warnings.catch_warnings(action="error"), pytest.raises(ValueError, match=r"^X\[3, 0\] must be finite$"):
        made.release(held, **labels, rng=Silent())


@of_tables
def test_the_labels_of_an_unnamed_column_are_not_summed(holder, tmp_path):
    made, held = gaussian([18.0], n=PERSONS, per_person="sum"), HOLDERS[holder](TABLE[["age", "who"]], tmp_path)
    sums = ROWS[:, :1].reshape(PERSONS, 2, 1).sum(axis=1)
    expected = gaussian([18.0], n=PERSONS).release(sums, rng=Silent())
    np.testing.assert_allclose(made.release(held, person="who", rng=Silent()).estimate, expected.estimate, rtol=1e-12)


def test_the_rows_of_a_person_in_many_blocks_are_joined_once(monkeypatch):
    joined, join = [], people._joined
    monkeypatch.setattr(people, "_joined", lambda *parts: joined.extend(parts) or join(*parts))
    made, one = gaussian([18.0], per_person="sum", neighbors="add_remove"), TABLE[["age"]].assign(who=1)
    many = [*(one[i : i + 8] for i in range(0, N, 8)), one.assign(who=2)]
    assert round(made.release(iter(many), person="who", rng=Silent()).count) == 2
    assert sum(len(part.values) for part in joined) <= 3 * N
