"""Test that the pages about the package show what the package does, and that the API reference is complete."""

import argparse
import contextlib
import dataclasses
import importlib
import inspect
import io
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter

import numpy as np
import pytest
import yaml
from numpydoc.hooks.validate_docstrings import parse_config
from numpydoc.validate import Validator, get_doc_object, validate

import egm
from benchmarks import users
from egm import GaussianDataMechanism, GaussianMechanism, GroupedDataMechanism, LaplaceMechanism, cli, gx2
from egm.calibration import analytic_noise_multiplier, zcdp_rho
from egm.mechanisms import EllipticalGaussianMechanism
from tests.book.markup import parsed
from tools.execute import ROOT

PAGES = "tutorial", "mechanisms", "notation", "cite", "practice", "survey"
TUTORIAL, MECHANISMS, NOTATION, CITE, PRACTICE, SURVEY = ((ROOT / "book" / f"{name}.md").read_text() for name in PAGES)
BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# The tutorial ---------------------------------------------------------------------------------------------------------


def run_python(code, names):
    """Execute the text `code`, Python code, with the variables in the dictionary `names`, and return what it prints.

    New variables of the code are added to `names`.
    """
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "a page", "exec"), names)
    return printed.getvalue()


def run_console(session):
    """Run the commands in `session`, a block of console lines, except `pip install`, and return all that they print.

    Commands are the lines that begin with "$ ". A command must not fail, or print to stderr.
    """
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    commands = [line[2:] for line in session.splitlines() if line.startswith("$ ") and "pip install" not in line]
    done = [subprocess.run(["sh", "-c", each], env={**os.environ, "PATH": path}, **PIPES) for each in commands]
    assert not any(each.stderr for each in done)
    return "".join(each.stdout for each in done)


PIPES = {"capture_output": True, "text": True, "check": True}


WRITTEN = {"tutorial": {"people.npy", "sums.csv", "people.budget"}, "survey": {"visits.csv"}}  # files, by page
WRITTEN |= {"other-libraries": set(), "gradients": set(), "quadratic-forms": set()}


@pytest.mark.parametrize("page", WRITTEN)
def test_a_page_shows_what_happens(page, tmp_path, monkeypatch):
    """In an empty folder, each block of code on the page `page` prints exactly what the page shows after it.

    The blocks of code also write the files that WRITTEN lists for the page. Code for other libraries is in blocks of
    another kind, and is not run.
    """
    monkeypatch.chdir(tmp_path)
    names, printed = {}, ""
    for language, block in BLOCK.findall((ROOT / "book" / f"{page}.md").read_text()):
        if language == "text":
            assert block == printed
            printed = ""
            continue
        assert not printed, block
        if language == "python":
            printed = run_python(block, names)
        else:
            assert run_console(block) == "".join(re.findall(r"^(?!\$ ).*\n", block, re.MULTILINE))
    assert names
    assert not printed
    assert {path.name for path in tmp_path.iterdir()} >= WRITTEN[page]


@pytest.mark.parametrize("page", [TUTORIAL, SURVEY], ids=["tutorial", "survey"])
def test_a_page_releases_securely(page):
    """Each release in the text `page` has secure noise, unless the variable that holds the release is called `trial`.

    The noise is secure if the call of `release` has no argument `rng`.
    """
    calls = re.findall(r"^ *(\w+) = \w+\.release\(([^()]*(?:\([^()]*\)[^()]*)*)\)$", page, re.MULTILINE)
    assert {name for name, _ in calls} == {"release", "trial"}
    assert all(("rng=" in arguments) == (name == "trial") for name, arguments in calls)


# Other libraries ------------------------------------------------------------------------------------------------------


def test_code_for_other_libraries_is_what_was_measured():
    """Each block of code for another library, on the page about other libraries, is code that a benchmark measures.

    It is the body of a function in the program `benchmarks.users`, without the docstring.
    """
    page = (ROOT / "book" / "other-libraries.md").read_text()
    blocks = re.findall(r"^```{code-block} python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    source = (ROOT / "benchmarks" / "users.py").read_text()
    functions = re.findall(r'^def .*?"""\n(.*?)\n\n\n', source, re.MULTILINE | re.DOTALL)
    bodies = [inspect.cleandoc(body) for body in functions]
    assert len(blocks) > 3
    assert not [block for block in blocks if block.strip() not in bodies]


def test_tables_of_other_libraries_have_what_the_benchmark_counts():
    """Each table on the page about other libraries has the number of lines of code of each function for its job.

    The functions are those in `users.JOBS`, in their order. The page also states the number of runs of the benchmark.
    """
    page = (ROOT / "book" / "other-libraries.md").read_text()
    found = re.findall(r"^\|.* Lines .*\|\n(?:\|.*\|\n)+", page, re.MULTILINE)
    for text, functions in zip(found, users.JOBS.values(), strict=True):
        header, _, *rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
        printed = [int(row[header.index("Lines")]) for row in rows]
        assert printed == [users.lines(function) for function in functions]
    assert f"median of {users.RUNS} runs" in page


# Which mechanism ------------------------------------------------------------------------------------------------------

SENSITIVITIES, SIGMA, EPSILON, DELTA = np.array([0.5, 1.0, 4.0]), np.array([1.0, 2.0, 5.0]), 0.7, 1e-5
SIGMA_OPT = analytic_noise_multiplier(EPSILON, DELTA)
DATA = GaussianDataMechanism(SIGMA, 1000, EPSILON, DELTA)
WEIGHTS = (DATA.b * SIGMA) ** 2
ERRORS = [  # formula of the page, its value, the variance of the mechanism's noise
    (r"$2 d\, \Delta_1^2 / \varepsilon^2$", 6 * 4 / EPSILON**2, 3 * 2 * LaplaceMechanism(2, EPSILON).noise_scale ** 2),
    (
        r"$d\, \sopt^2 \Delta^2$",
        3 * SIGMA_OPT**2 * 4,
        3 * GaussianMechanism(2, EPSILON, DELTA).noise_std ** 2,
    ),
    (
        r"$\sopt^2 \bigl(\sum_j \Delta_j\bigr)^2$",
        SIGMA_OPT**2 * np.sum(SENSITIVITIES) ** 2,
        np.sum(EllipticalGaussianMechanism(SENSITIVITIES, EPSILON, DELTA).noise_std ** 2),
    ),
    (
        r"$4 \sopt^2\, q_p(\bm w) \sum_j b_j^{-2}$",
        4 * SIGMA_OPT**2 * gx2.isf(1 / 1000, WEIGHTS) * np.sum(DATA.b**-2.0),
        DATA.error().noise,
    ),
]


@pytest.mark.parametrize(("formula", "value", "variance"), ERRORS)
def test_error_formula_is_that_of_the_mechanism(formula, value, variance):
    assert formula in MECHANISMS
    assert value == pytest.approx(variance, rel=1e-12)


def test_decisions_rest_on_what_the_package_does():
    """The numbers on the page about the choice of a mechanism agree with those that the package computes.

    Most are ratios of noise, or least numbers of rows for which `AdaptiveDataMechanism` runs. These numbers of rows are
    also compared with the page about practice.
    """
    wide = GaussianDataMechanism(2 * SIGMA, 1000, EPSILON, DELTA)
    assert "twice too wide, twice the noise" in MECHANISMS
    assert wide.noise_std == pytest.approx(2 * DATA.noise_std, rel=1e-12)
    assert r"$n \sqrt\rho \ge 150$, or more for many columns" in MECHANISMS
    budget = {"rho": zcdp_rho(1.0, 1e-6), "radius": 1e5, "sigma_range": (1.0, 1e5)}
    for columns, rows in ((1, 962), (38, 962), (1000, 3523)):
        with pytest.raises(ValueError, match=f"or n = {rows}$"):
            egm.AdaptiveDataMechanism(rows - 1, **budget).release(np.ones((rows - 1, columns)))
        egm.AdaptiveDataMechanism(rows, **budget).check(np.ones((rows, columns)))
    assert "is 962 rows for up to 38 columns, and 3523 for 1000" in MECHANISMS
    assert "is 962 rows for up to 38 columns, 1306 rows for 100 columns and 3523 for 1000" in PRACTICE
    assert "it takes 17 % more rows: 1126, 1530 and 4126." in PRACTICE
    assert 'With `"add_remove"` it takes 17 % more rows.' in MECHANISMS
    private = egm.AdaptiveDataMechanism(1000, **budget, neighbors="add_remove")
    for columns, rows, more in ((38, 962, 1126), (100, 1306, 1530), (1000, 3523, 4126)):
        assert np.ceil(1000 * np.sqrt(private.least_rho(columns) / budget["rho"])) == more
        assert more / rows == pytest.approx(1.17, abs=0.005)
    wider = [egm.AdaptiveDataMechanism(1000, **budget).least_rho(columns) for columns in (38, 39, 100)]
    assert wider[0] == pytest.approx((150 / 1000) ** 2, rel=1e-12)
    assert wider[1] > wider[0]
    assert np.ceil(1000 * np.sqrt(wider[2] / budget["rho"])) == 1306
    assert "0.22 times that of Gaussian noise for 3 columns, 0.52 times for 10, and 0.93 times for 100" in MECHANISMS
    for columns, share in ((3, 0.22), (10, 0.52), (100, 0.93)):
        both = [GaussianMechanism(1, 1, 1e-6, noise=noise, d=columns).noise_std for noise in ("best", "gaussian")]
        assert (both[0] / both[1]) ** 2 == pytest.approx(share, abs=0.005)
    assert "changes nine entries" in MECHANISMS
    noise = {k: (np.sqrt(2) * k, GaussianMechanism(np.sqrt(k), 1, 1e-6).noise_std) for k in (8, 9)}
    assert noise[8][0] < noise[8][1]
    assert noise[9][0] > noise[9][1]
    assert "half the standard\ndeviation" in MECHANISMS
    other = GaussianDataMechanism(SIGMA, 1000, EPSILON, DELTA, neighbors="add_remove")
    assert other.noise_std == pytest.approx(DATA.noise_std / 2, rel=0.01)  # the count takes half a percent
    few = GaussianDataMechanism([1.0], 100, 1, 1e-6)
    assert f"{few.noise_std[0] / np.sqrt(100):.1f} times its sampling error" in MECHANISMS


def test_a_search_is_considered_from_the_numbers_of_rows_on_the_page():
    """In wide ranges, `AdaptiveDataMechanism` searches from the number of rows that the page about practice names.

    With fewer rows it does not. The page has an exact number, for a public number of rows, and a rough one for a
    private number, which is noisy.
    """
    assert "which is 3845 rows for $\\varepsilon = 1$ and\n" in PRACTICE
    assert '(about 4050 with `"add_remove"`)' in PRACTICE
    X = np.random.default_rng(1).normal(size=(4100, 1))
    for neighbors, fewer, enough in (("replace_one", 3844, 3845), ("add_remove", 4000, 4100)):
        for rows, method in ((fewer, "ranges"), (enough, "search")):
            it = egm.AdaptiveDataMechanism(rows, zcdp_rho(1.0, 1e-6), ranges=[(-1e5, 1e5)], neighbors=neighbors)
            assert it.release(X[:rows], rng=np.random.default_rng(1)).method == method


def adaptive_release(X, rho, seed, radius=10_000.0):
    """Release the sum of the rows of `X` by `AdaptiveDataMechanism`, and return (release, low, high).

    `low` and `high` are arrays with the ends of the 95 % intervals. `rho` is the budget, and the noise is simulated
    with `seed`. The declared bound of the means, `radius`, is by default that of the tutorial.
    """
    it = egm.AdaptiveDataMechanism(len(X), rho, radius=radius, sigma_range=(0.1, 10_000))
    release = it.release(X, rng=np.random.default_rng(seed))
    return release, *release.interval(0.95)


def test_interval_is_as_wide_as_the_page_says():
    """The 95 % intervals of `AdaptiveDataMechanism` are as wide as the page about practice says, within 25 %.

    For four numbers of rows n, the page states half of the width, divided by n. The test compares it with the median of
    25 releases. At least 95 percent of all these intervals contain the exact sum.
    """
    assert (
        "is about ±300 for each of the\n  three columns with 962 rows, ±8 years, ±75 and ±6.5 visits with 2000, "
        "±0.6, ±8 and ±0.3 with 10 000, and ±0.08, ±1 and ±0.03 with 100 000"
    ) in PRACTICE
    people = np.random.default_rng(1).normal([47, 2200, 4], [16, 1300, 2], size=(100_000, 3))
    said = {962: (300,) * 3, 2000: (8, 75, 6.5), 10_000: (0.6, 8, 0.3), 100_000: (0.08, 1, 0.03)}
    inside = []
    for n, widths in said.items():
        X = people[:n]
        runs = [adaptive_release(X, zcdp_rho(1.0, 1e-6), seed) for seed in range(25)]
        assert np.median([(high - low) / 2 / n for _, low, high in runs], axis=0) == pytest.approx(widths, rel=0.25)
        inside += [(low <= X.sum(axis=0)) & (X.sum(axis=0) <= high) for _, low, high in runs]
    assert np.mean(inside) >= 0.95


@pytest.mark.parametrize(
    ("d", "reach", "share"),
    [(3, 155, 0.1), (3, 400, 0.05), (3, 1200, 0.05), (10, 2200, 0.05), (10, 15_600, 110 / 15_600)],
)
def test_rows_that_are_not_seen_are_as_few_as_the_page_says(d, reach, share):
    """`AdaptiveDataMechanism` notices the fraction `share` of outlying rows, but not always a third of this fraction.

    The page about practice states `share` for n sqrt(rho) = `reach`, where n is the number of rows, here with `d`
    columns, and rho the budget. If outlying rows are not noticed, they are clipped, and then the exact sum is outside
    the 95 % interval, or the error is above three times its forecast. This happens in none of eight releases with the
    fraction `share` of outlying rows, and in at least one of eight with a third of this fraction.
    """
    text = " ".join(PRACTICE.split())
    assert (
        r"a tenth of all rows for $n \sqrt\rho$ below 400, a twentieth from 400 to 2200, "
        r"and $110 / (n \sqrt\rho)$ of all beyond. For 100 000 rows, $\varepsilon = 1$ and $\delta = 10^{-6}$ "
        "that is 0.7 %"
    ) in text
    assert "Here up to some 700 of the 100 000 would be clipped" in " ".join(TUTORIAL.split())
    assert 110 / (1e5 * np.sqrt(zcdp_rho(1.0, 1e-6))) == pytest.approx(0.0070, rel=0.02)
    n, noticed = 20_000, {1 / 3: [], 1: []}
    for seed in range(8):
        for part, found in noticed.items():
            X = np.random.default_rng(seed).normal(size=(n, d))
            X[: round(part * share * n)] += 1000
            release, low, high = adaptive_release(X, (reach / n) ** 2, seed)
            off = np.linalg.norm(release.estimate - X.sum(axis=0))
            inside = np.all((low <= X.sum(axis=0)) & (X.sum(axis=0) <= high))
            found.append(inside and off < 3 * np.sqrt(release.forecast.total))
    assert all(noticed[1])
    assert not all(noticed[1 / 3])


def test_guesses_are_better_than_a_search_where_rows_are_few():
    """For 1000 rows, guesses of center and spread give a far smaller error than the search of `AdaptiveDataMechanism`.

    Let G be the squared error that `GaussianDataMechanism`, which needs the guesses, forecasts if they are exact. The
    squared error that `AdaptiveDataMechanism` forecasts for rows with the guessed center and spread is 5 to 15 G for
    1000 rows, and 0.4 to 1 G for 100 000 rows. Of fifteen releases of 100 000 rows by `AdaptiveDataMechanism`, at most
    two state a forecast above 2 G, and none states a forecast above 4.5 times that for the true center and spread.
    """
    assert "so here the search is the better way" in TUTORIAL
    assert "With 1000 people the guesses win by far" in TUTORIAL
    sigma, center = [18, 1200, 3], [45, 2500, 5]
    for n, least, most in ((1000, 5, 15), (100_000, 0.4, 1)):
        known = GaussianDataMechanism(sigma, n, 1, 1e-6, center=center).error().total
        it = egm.AdaptiveDataMechanism(n, zcdp_rho(1.0, 1e-6), radius=10_000, sigma_range=(0.1, 10_000))
        assert least < it.forecast(sigma, center).error.total / known < most
    people = np.random.default_rng(1).normal([47, 2200, 4], [16, 1300, 2], size=(100_000, 3))
    own = sorted(adaptive_release(people, zcdp_rho(1.0, 1e-6), seed)[0].forecast.total for seed in range(15))
    assert own[-3] < 2 * known
    assert own[-1] < 4.5 * it.forecast([16, 1300, 2], [47, 2200, 4]).error.total


def test_sum_stops_at_the_declared_radius():
    """If a column's mean is above the declared radius, its released sum is the number of rows times the radius.

    The mechanism is `AdaptiveDataMechanism`, and the radius its bound of the means. There is no warning. Each interval
    is longer than what is cut off the sum, and at least eight of ten intervals contain the exact sum.
    """
    assert "the estimate stops at this bound without a word, and the interval is longer by what lies beyond" in PRACTICE
    X = np.random.default_rng(1).normal([47, 2200, 4], [16, 1300, 2], size=(20_000, 3))
    releases = [adaptive_release(X, 0.1, seed, radius=1000.0) for seed in range(10)]
    assert [release.estimate[1] for release, *_ in releases] == pytest.approx([20_000 * 1000] * 10, rel=1e-9)
    lost = X[:, 1].sum() - 20_000 * 1000
    assert sum(high[1] < X[:, 1].sum() for *_, high in releases) <= 2
    assert all(high[1] - low[1] > lost for *_, low, high in releases)


def test_sums_by_group_are_as_the_page_says():
    """For sums of incomes by region, the error and the number of clipped rows are those on the page about mechanisms.

    Each row has one nonzero entry: a person's income, in the column of the person's region.
    """
    n, rng = 100_000, np.random.default_rng(1)
    share = 1 / np.arange(1, 21) / np.sum(1 / np.arange(1, 21))
    region, income = rng.choice(20, n, p=share), np.exp(rng.normal(7.5, 0.6, n))
    X, options = np.zeros((n, 20)), {"center": share * income.mean(), "count_clipped": True}
    X[np.arange(n), region] = income
    sigma = np.sqrt(share * (1 - share) * income.mean() ** 2 + share * income.var())
    it = GaussianDataMechanism(sigma, n, 1, 1e-6, **options)
    release = it.release(X, rng=rng)
    assert "5 % of the rows were clipped where\n  0.001 % was announced" in MECHANISMS
    assert (release.clipped / n, it.p) == pytest.approx((0.05, 0.00001), rel=0.1)
    assert "the excess was 90 standard\n  deviations" in MECHANISMS
    assert it.excess_clipped(release) == pytest.approx(90, rel=0.05)
    lost = X - it.center  # what clipping takes, without noise
    lost -= it.clip(lost * it.b) / it.b
    error = np.hypot(np.linalg.norm(lost.sum(axis=0)), np.sqrt(it.error().noise))
    assert "the root of the squared error was 6 times that of the forecast" in MECHANISMS
    assert error / np.sqrt(it.error().total) == pytest.approx(6, abs=0.5)
    alone = GaussianDataMechanism([income.std()], n, 1, 1e-6, center=[income.mean()])
    lost = income - alone.center - alone.clip((income - alone.center)[:, None] * alone.b)[:, 0] / alone.b
    grouped = np.hypot(
        np.linalg.norm(np.bincount(region, lost, 20)), np.sqrt(20) * GroupedDataMechanism(alone, range(20)).noise_std[0]
    )
    assert "had less than a third of this root" in MECHANISMS
    assert 0.3 * error < grouped < error / 3
    assert "which assumes nothing, had less than a quarter" in MECHANISMS
    bounded = np.bincount(region, np.minimum(income, 10_000), 20)
    bound = GaussianMechanism(np.sqrt(2) * 10_000, 1, 1e-6)
    clipped = np.hypot(np.linalg.norm(bounded - X.sum(axis=0)), np.sqrt(20) * bound.noise_std)
    assert 0.2 * error < clipped < error / 4


def test_every_mechanism_is_in_the_decision_and_in_the_table():
    decision, table = MECHANISMS.split("## What each needs")
    for name in [name for name in egm.__all__ if name.endswith("Mechanism")] + ["secure_quantile"]:
        assert f".{name}`" in decision
        assert f".{name}`" in table


# The reference --------------------------------------------------------------------------------------------------------


MODULES = {
    name: importlib.import_module(name)
    for folder in ("egm", "egm.study")
    for name in (f"{folder}.{path.stem}" for path in sorted(ROOT.joinpath(*folder.split(".")).glob("[!_]*.py")))
}


def offered():
    """Return a dictionary from full name, such as "egm.gx2.sf", to object for all public names of the package."""
    names = {f"{module}.{name}": getattr(found, name) for module, found in MODULES.items() for name in found.__all__}
    homes = {full: getattr(thing, "__module__", None) for full, thing in names.items()}
    borrowed = {full for full, home in homes.items() if home in MODULES and not full.startswith(f"{home}.")}
    return {full: thing for full, thing in names.items() if full not in borrowed}


def members(cls):
    """Return the public methods and properties of the class `cls` as a dictionary from name to object.

    Fields that the constructor computes are included, with None as the object. Inherited methods are not.
    """
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    own = {name: thing for name, thing in vars(cls).items() if inspect.isfunction(thing) or isinstance(thing, property)}
    found = {**{field.name: None for field in fields if not field.init}, **own}
    return {name: thing for name, thing in found.items() if not name.startswith("_")}


def parameters(thing):
    """Return a list of the names of the parameters of `thing`, a function or a class.

    The list is empty if Python knows no signature of `thing`. `self` is left out.
    """
    try:
        return [name for name in inspect.signature(thing).parameters if name != "self"]
    except (TypeError, ValueError):
        return []


OFFERED = offered()
PUBLIC = OFFERED | {
    f"{full}.{name}": thing
    for full, cls in OFFERED.items()
    if inspect.isclass(cls)
    for name, thing in members(cls).items()
}


def commands(parser, words=()):
    """Return a dictionary from each command of `parser`, such as "budget new", to the parser of this command.

    The parsers are those of argparse. `words` is a tuple of the words with which the user calls `parser` itself.
    """
    below = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        return {" ".join(words): parser}
    return {name: leaf for word, it in below[0].items() for name, leaf in commands(it, (*words, word)).items()}


COMMANDS = commands(cli._parser())


@pytest.fixture(scope="module")
def reference(book):
    """Return the parsed HTML of the API reference, in a dictionary from page (file name without suffix) to HTML."""
    pages = (book / "book" / "api").glob("*.html")
    return {path.stem: parsed(path.read_text()) for path in pages}


def test_every_public_name_stands_there_once(reference):
    """The API reference has exactly one entry for each public name of the package, with its parameters in their order.

    All other entries are attributes of public classes.
    """
    entries = {entry["id"]: entry for page in reference.values() for entry in page.select("dt[id^='egm.']")}
    found = Counter(entry["id"] for page in reference.values() for entry in page.select("[id^='egm.']"))
    assert set(found.values()) == {1}
    assert not PUBLIC.keys() - found.keys()
    assert not {name.rpartition(".")[0] for name in found.keys() - PUBLIC.keys()} - OFFERED.keys()
    for name, thing in PUBLIC.items():
        shown = (re.match(r"\W*(\w+)", each.get_text()) for each in entries[name].select(".sig-param"))
        assert [each[1] for each in shown if each] == parameters(thing), name


def test_exception_says_by_what_it_is_caught(reference):
    """The entry of each public exception in the API reference names the base classes of the exception."""
    entries = {entry["id"]: entry for page in reference.values() for entry in page.select("dl.exception > dt")}
    exceptions = {
        name: thing for name, thing in OFFERED.items() if inspect.isclass(thing) and issubclass(thing, Exception)
    }
    assert entries.keys() == exceptions.keys()
    for name, thing in exceptions.items():
        bases = ", ".join(base.__name__ for base in thing.__bases__)
        assert f"Bases: {bases}" in entries[name].find_next_sibling("dd").get_text()


def test_overview_has_every_public_name(book):
    """The overview of the API lists every public name once, with a description and a link to its entry.

    Methods and properties are not listed.
    """
    page = parsed((book / "book" / "api.html").read_text())
    rows = [row.find_all("td") for row in page.select("table.autosummary tr")]
    assert Counter(name.a["href"].partition("#")[2] for name, _ in rows) == Counter(OFFERED.keys())
    assert all(text.get_text().strip() for _, text in rows)


def test_every_module_and_command_has_a_place():
    """Each module of the package and each command of `egm` is documented on exactly one page."""
    text = "".join(path.read_text() for path in (ROOT / "book" / "api").glob("*.rst"))
    assert Counter(re.findall(r"^\.\. automodule:: (.*)$", text, re.MULTILINE)) == Counter(MODULES.keys())
    assert Counter(re.findall(r"^   :path: (.*)$", text, re.MULTILINE)) == Counter(COMMANDS.keys())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_listed(reference, name):
    """The API reference lists exactly the options of the command `name` of the program egm, with their explanations.

    Options are written with hyphens, not dashes.
    """
    items = reference["command-line"].find(id=f"egm-{name.replace(' ', '-')}").select("dl.option-list > dt")
    listed = {item.get_text().strip(): item.find_next_sibling("dd").get_text() for item in items}
    actions = [action for action in COMMANDS[name]._actions if action.dest != "help"]
    assert listed.keys() == {", ".join(action.option_strings) or action.metavar for action in actions}
    for action in actions:
        shown = listed[", ".join(action.option_strings) or action.metavar]
        assert " ".join(action.help.replace("`", "").split()) in " ".join(shown.split())


@pytest.mark.parametrize("name", [name for name in egm.__all__ if name.endswith("Mechanism")])
def test_mechanism_is_found_by_its_short_name(book, name):
    """A link to the short name of a mechanism, such as egm.GaussianMechanism, leads to the entry of its full name."""
    assert f"`~egm.{name}`" in (ROOT / "book" / "api.md").read_text()
    page = parsed((book / "book" / "api.html").read_text())
    targets = {link["href"].partition("#")[2] for link in page.select(f"a[title='egm.{name}']")}
    module = "adaptive" if name.startswith("Adaptive") else "mechanisms"
    assert targets == {f"egm.{module}.{name}"}


CHECKS = parse_config(ROOT)["checks"]
DOCUMENTED = [name for name, thing in PUBLIC.items() if callable(thing) or isinstance(thing, property)]


class Reader(Validator):
    """Check docstrings as numpydoc's validator does, but do not look for the line on which a name is defined.

    The search for this line would fail for a name that a module imports from another one.
    """

    def __init__(self, obj_name):
        super().__init__(get_doc_object(Validator._load_obj(obj_name)))

    source_file_def_line = None


def complaints(name, also=()):
    """Return a list of the faults that numpydoc finds in the docstring of `name`, the full name of a public object.

    The checks are those in pyproject.toml and, in addition, those with the codes `also`, such as "EX01".
    """
    return [error for error in validate(name, Reader)["errors"] if error[0] in CHECKS.union(also)]


@pytest.mark.parametrize("name", [*MODULES, *DOCUMENTED])
def test_docstring_is_in_the_format(name):
    """numpydoc finds no fault in the docstring of a public name, and each public function and class has an example."""
    thing = PUBLIC.get(name)
    shows = inspect.isfunction(thing) or (inspect.isclass(thing) and not issubclass(thing, Exception))
    assert not complaints(name, {"EX01"} if shows and name in OFFERED else ())


def test_docstring_that_is_missing_is_seen(monkeypatch):
    """`complaints` reports a missing docstring even if Python would provide one, as for a dataclass or a subclass.

    The test adds three objects without a docstring to the module egm.gx2, one after another.
    """

    @dataclasses.dataclass
    class Silent:
        x: float

    def silent(x):
        return x

    for thing in (Silent, silent, type("Child", (GaussianMechanism,), {})):
        monkeypatch.setattr(gx2, "new", thing, raising=False)
        assert complaints("egm.gx2.new")


# Notation and citation ------------------------------------------------------------------------------------------------


def test_names_in_the_table_of_notation_exist():
    """Each name in the table of notation is a parameter of something public in the package, or links to a public name.

    A link leads to an object with the name that is shown, except that `noise_multiplier` leads to
    `analytic_noise_multiplier`.
    """
    things = MODULES | PUBLIC
    arguments = {name for thing in PUBLIC.values() for name in parameters(thing)}
    cells = [line.split(" | ")[2] for line in NOTATION.splitlines() if line.startswith("| $")]
    names = [name for cell in cells for name in re.findall(r"(?<!\})`([^`]+)`", cell)]
    assert len(names) > 10
    assert not [name for name in names if name not in arguments]
    targets = re.findall(r"`([^`]+) <([\w.]+)>`", NOTATION)
    assert len(targets) > 10
    for shown, target in targets:
        assert target in things
        last = re.sub(r"\(.*", "", shown).split(".")[-1]
        assert last in (target.split(".")[-1], "noise_multiplier")


def field(name, text):
    """Return the value of the field `name` in `text`, an entry of BibTeX, without its braces."""
    (value,) = re.findall(rf"^  {name} = (.*?),?$", text, re.MULTILINE)
    return value.strip("{}")


def test_citations_agree():
    """The BibTeX entries on the page about citation agree with the bibliography, CITATION.cff and pyproject.toml."""
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    report, work = re.findall(r"^```bibtex\n(.*?)^```$", CITE, re.MULTILINE | re.DOTALL)
    assert report in (ROOT / "book" / "references.bib").read_text()
    (cited,) = cff["references"]
    (author,) = cited["authors"]
    assert field("author", report) == f"{author['family-names']}, {author['given-names']}"
    assert (field("title", report), field("year", report)) == (cited["title"], str(cited["year"]))
    names = " and ".join(author["name"] for author in project["authors"])
    assert [author["name"] for author in cff["authors"]] == [author["name"] for author in project["authors"]]
    assert field("author", work) == names
    assert (field("title", work), field("license", work)) == (cff["title"], project["license"])
    assert field("version", work) == cff["version"] == project["version"] == egm.__version__
    year = yaml.safe_load((ROOT / "_config.yml").read_text())["copyright"]
    assert field("year", work) == year
    assert f"> {names} ({year}). *{cff['title']}.* Version {project['version']}." in CITE
    assert set(re.findall(r"version (\d[\w.]*\w)", CITE, re.IGNORECASE)) == {project["version"]}


def test_anchors_that_are_recommended_exist(book):
    for path, anchor in re.findall(r"`([\w/-]+\.html)#([\w.-]+)`", CITE):
        page = parsed((book / path).read_text())
        assert page.find(id=anchor), f"{path}#{anchor}"


LINKED = "tutorial", "survey", "mechanisms", "practice", "other-libraries", "quadratic-forms", "api", "cite"


@pytest.mark.parametrize("page", LINKED)
def test_landing_page_leads_there(page):
    assert f"({page}.md)" in (ROOT / "book" / "index.md").read_text()
