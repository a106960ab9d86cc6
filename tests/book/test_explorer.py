"""Test the explorer, an interactive page of the book, in a browser: it shows the numbers that the package computes."""

import re

import numpy as np
import pytest

from egm import GaussianDataMechanism
from egm.gx2 import isf
from egm.study.tables import improvement, zipf_sigma

pytestmark = pytest.mark.filterwarnings("ignore::egm.mechanisms.DeltaWarning")  # any delta can be explored

START = {"alpha": 1, "d": 100, "n": 10**6, "epsilon": 1, "delta": 1e-6}
SCALINGS = ("none", "expected_norm", "optimal")
NAMES = ("improvement", "total", "noise", "clipping", "clipNorm", "noiseMultiplier")
# Both find the least noise to its last digits, and the scaling of least noise to about half of them.
EXACT, AT_MINIMUM = 1e-12, 1e-7


def expected(alpha, d, n, epsilon, delta, scaling):
    """Return what the package computes for a setting, as a dictionary with the page's names."""
    mechanism = GaussianDataMechanism(zipf_sigma(d, alpha), n, epsilon, delta, scaling=scaling)
    error = mechanism.error(mean=0.0)
    return {
        "sigma": mechanism.sigma,
        "noiseMultiplier": mechanism.noise_multiplier,
        "scaling": mechanism.b,
        "clipNorm": mechanism.clip_norm,
        "noiseStd": mechanism.noise_std,
        "noise": error.noise,
        "clipping": error.clipping,
        "total": error.total,
        "improvement": 1.0 if scaling == "none" else improvement(d, n, alpha, scaling),
        "sampling": n * np.sum(mechanism.sigma**2),
    }


def settings():
    """Return corners of the ranges that the page allows, and twenty random settings between them."""
    rng = np.random.default_rng(20)
    corners = [(0.0, 1, 10), (10.0, 1000, 10**9), (0.0, 1000, 10), (0.3, 1000, 10**9), (10.0, 2, 37)]
    corners = [(*corner, *budget) for corner, budget in zip(corners, BUDGETS, strict=True)]
    for _ in range(20):
        alpha, d, n = rng.uniform(0, 10) * rng.uniform(), 10 ** rng.uniform(0, 3), 10 ** rng.uniform(1, 9)
        corners.append((alpha, round(d), round(n), 10 ** rng.uniform(-2, 1.69), 10 ** rng.uniform(-12, -1)))
    return [dict(zip(START, corner, strict=True)) for corner in corners]


BUDGETS = [(0.01, 1e-12), (50.0, 0.1), (0.01, 0.1), (50.0, 1e-12), (1.0, 1e-6)]


@pytest.fixture(scope="module")
def page(book, browser):
    """Open the explorer once for all tests, and yield it; fail at the end if one of its scripts raised an error."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((book / "book" / "explorer.html").as_uri())
    yield page
    page.close()
    assert not errors


def type_in(page, **values):
    """Type numbers into the fields of the page, as a reader would, and wait for the results."""
    for name, value in values.items():
        page.fill(f"#explorer-{name}", str(value))
    settle(page)


def settle(page):
    """Wait until the page has finished its computation."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def number(text):
    """Return the value of a number that is written as on the page, such as "1.5 × 10⁻³"."""
    plain = text.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")).replace(" × 10", "e")
    return float(plain)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("setting", settings(), ids=lambda s: "-".join(f"{value:.3g}" for value in s.values()))
def test_same_as_the_package(page, setting, scaling):
    """The page's JavaScript and the package agree in each number of a forecast to 1e-12.

    The tolerance is 1e-7 for numbers that depend on where a flat minimum is found.
    """
    found = page.evaluate("setting => egm.forecast(setting)", setting | {"scaling": scaling})
    for name, value in expected(**setting, scaling=scaling).items():
        soft = scaling == "optimal" and name in ("scaling", "clipNorm", "noiseStd", "clipping", "total")
        np.testing.assert_allclose(found[name], value, rtol=AT_MINIMUM if soft else EXACT, err_msg=name)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0], [3.0, 2.0, 0.5], list(1 / np.arange(1.0, 101))])
@pytest.mark.parametrize("p", [0.1, 1e-3, 1e-9])
def test_quantiles(page, weights, p):
    """The quantiles of a chi-square form that the page's JavaScript computes are those of `egm.gx2.isf`, to 1e-13."""
    found = page.evaluate("([p, weights]) => egm.isf(p, weights)", [p, weights])
    np.testing.assert_allclose(found, isf(p, weights), rtol=1e-13)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_shows_what_the_package_computes(page, scaling):
    """For a typed setting and a chosen scaling, the page shows six digits of the numbers that the package computes.

    They are in cards and in a table with a row for each coordinate.
    """
    setting = {"alpha": 0.7, "d": 12, "n": 54321, "epsilon": 0.3, "delta": 1e-9}
    type_in(page, **setting)
    page.check(f"#explorer-scaling-{scaling}")
    settle(page)
    truth = expected(**setting, scaling=scaling)
    for name in NAMES:
        assert number(page.inner_text(f"#explorer-{name}")) == pytest.approx(truth[name], rel=6e-6), name
    page.evaluate("document.querySelector('#egm-explorer details').open = true")
    page.locator("#egm-explorer tbody tr").last.wait_for()
    rows = [row.split("\t") for row in page.locator("#egm-explorer tbody tr").all_inner_texts()]
    shown = np.array([[number(cell) for cell in row] for row in rows])
    columns = [np.arange(1, 13), truth["sigma"], truth["scaling"], truth["noiseStd"]]
    np.testing.assert_allclose(shown, np.transpose(columns), rtol=6e-6)


def test_sliders_move_the_numbers(page):
    """The Home and End keys move a slider to its ends; the field beside it and the forecast follow."""
    type_in(page, **START)
    for name, low, high in (
        ("alpha", 0, 10),
        ("d", 1, 1000),
        ("n", 10, 10**9),
        ("epsilon", 0.01, 50),
        ("delta", 1e-12, 0.1),
    ):
        before = page.get_attribute("#explorer-total", "data-value")
        for key, end in (("Home", low), ("End", high)):
            page.focus(f"#explorer-{name}-slider")
            page.keyboard.press(key)
            settle(page)
            assert float(page.input_value(f"#explorer-{name}")) == pytest.approx(end)
        assert page.get_attribute("#explorer-total", "data-value") != before
        type_in(page, **START)


def test_figures_have_a_point_for_each_coordinate(page):
    """The lines of sigma, of the noise and of the scaling b have one point for each coordinate, in order."""
    type_in(page, **START | {"d": 37})
    lines = (
        page.locator("#egm-explorer figure").nth(0).locator("polyline"),
        page.locator("#egm-explorer figure").nth(1).locator("polyline"),
    )
    for line in (lines[0].nth(0), lines[0].nth(1), lines[1].nth(0)):
        points = np.array([point.split(",") for point in line.get_attribute("points").split()], dtype=float)
        assert points.shape == (37, 2)
        assert np.all(np.diff(points[:, 0]) > 0)
    heights = [np.array(re.findall(r",([\d.]+)", line.nth(0).get_attribute("points")), dtype=float) for line in lines]
    assert np.all(np.diff(heights[0]) > 0)  # a smaller spread is lower on the screen
    assert np.all(np.diff(heights[1]) < 0)


def test_gain_is_drawn(page):
    """The curve of the gain has 25 points, and the ring that marks the present setting lies on the curve."""
    type_in(page, **START | {"d": 5})
    page.check("#explorer-scaling-expected_norm")
    chart = page.locator("#egm-explorer figure").nth(2)
    chart.locator("polyline").wait_for(state="attached")
    points = [point.split(",") for point in chart.locator("polyline").get_attribute("points").split()]
    x, y = np.array(points, dtype=float).T
    ring = chart.locator("circle.mark")
    assert x.shape == (25,)
    assert x[12] == pytest.approx(float(ring.get_attribute("cx")), abs=0.01)  # 10**0 is the middle of the axis
    assert y[12] == pytest.approx(float(ring.get_attribute("cy")), abs=0.01)


def test_python_on_the_page_does_the_same(page):
    """The Python code that the page shows runs, and its clip norm is the one on the page."""
    type_in(page, **START | {"alpha": 0.25, "n": 12345})
    namespace = {}
    exec(page.inner_text("#egm-explorer pre"), namespace)
    assert number(page.inner_text("#explorer-clipNorm")) == pytest.approx(namespace["mechanism"].clip_norm, rel=6e-6)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("alpha", "-1", "α must be a number from 0 to 10"),
        ("d", "2.5", "d must be a whole number from 1 to 1000"),
        ("n", "", "n must be a whole number from 10 to 1000000000"),
        ("epsilon", "many", "ε must be a number from 0.01 to 50"),
        ("delta", "1", "δ must be a number from 1e-12 to 0.1"),
    ],
)
def test_bad_values_are_refused(page, name, value, words):
    """If a bad value is typed, a message says what is allowed, and the page keeps the numbers from before."""
    type_in(page, **START)
    before = page.get_attribute("#explorer-total", "data-value")
    type_in(page, **{name: value})
    assert page.inner_text(f"#explorer-{name}-complaint") == words
    assert page.get_attribute(f"#explorer-{name}", "aria-invalid") == "true"
    assert page.get_attribute("#explorer-total", "data-value") == before
    type_in(page, **START)
    assert page.inner_text(f"#explorer-{name}-complaint") == ""


def test_address_keeps_the_setting(book, browser, page):
    """The page's address contains the setting, so that a copy of the address opens the same setting.

    A bad value in an address is replaced by the default.
    """
    type_in(page, **START | {"d": 7, "delta": 1e-8})
    page.wait_for_url(re.compile("&d=7&.*&delta=1e-8&"))
    other = browser.new_page()
    other.goto(page.url)
    assert other.input_value("#explorer-d") == "7"
    assert other.inner_text("#explorer-total") == page.inner_text("#explorer-total")
    other.goto("about:blank")
    other.goto((book / "book" / "explorer.html").as_uri() + "#alpha=0.5&d=1e9&n=nine&scaling=best")
    assert [other.input_value(f"#explorer-{name}") for name in ("alpha", "d", "n")] == ["0.5", "100", "1000000"]
    other.close()


def test_says_so_without_scripts(book, browser):
    """In a browser without scripts, the page names the chapter that has the explorer as a notebook."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((book / "book" / "explorer.html").as_uri())
    assert "explorer in a notebook" in page.inner_text("noscript")
    context.close()
