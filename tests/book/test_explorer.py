"""Test the explorer, an interactive page of the book, in a browser: it shows the numbers that the package computes.

A reader sets parameters, and the explorer forecasts the error of `GaussianDataMechanism`. A second panel, "Two
correlated columns", compares the noise in two bases. The page computes all numbers in JavaScript, so the tests compare
them with those of the package.
"""

import re
from contextlib import contextmanager
from itertools import count, pairwise, product

import numpy as np
import pytest

from egm import GaussianDataMechanism, bases, calibration, scaling
from egm.gx2 import isf, sf
from egm.study.plots import COLORS, STYLES
from egm.study.tables import zipf_sigma
from tests.book.conftest import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore::egm.mechanisms.DeltaWarning")  # any delta can be explored

START = {"alpha": 1, "d": 100, "n": 10**6, "epsilon": 1, "delta": 1e-6}
SLIDERS = {
    "alpha": (0, 10),
    "d": (1, 1000),
    "n": (10, 10**9),
    "epsilon": (0.01, 50),
    "delta": (1e-12, 0.1),
    "offset": (0, 3),
    "p": (1e-12, 0.5),
}
VISITS = count()  # an address that is visited again must differ
SCALINGS = ("none", "expected_norm", "optimal")
NOISES = ("gaussian", "l2")
CLIPS = {"1/n": "default", "best": "best"}  # from clip probabilities to the names of choices on the page
PARTS = ("noise", "clipping", "center")
NAMES = ("improvement", "total", *PARTS, "sampling", "clipNorm", "clipProbability", "noiseMultiplier")
OWN = [18, 1200, 3, 250, 0.5]  # standard deviations that a test types, in place of those that follow from alpha and d
# All tolerances are relative. The explorer and the package find the least noise to its last digits, and the scaling of
# least noise to about half of its digits.
EXACT, AT_MINIMUM = 1e-12, 1e-7
# The package rounds l2 noise up, by about as much as the largest error of its computation.
L2 = 3e-11
# Parts of the error may be differences of large numbers, so this tolerance is relative to the total error.
OF_TOTAL = 1e-9
# The least error, over all clip norms or all pairs of scaling and clip norm, is found less exactly where nearly every
# row is clipped: there the search ends at its bound, or where the error has little curvature.
LEAST, LEAST_ROUGHLY = 1e-7, 1e-5


def mechanism(sigma, n, epsilon, delta, scaling, p="1/n", offset=0.0, noise="gaussian"):
    """Return the `GaussianDataMechanism` of the package for a setting of the explorer, an interactive page of the book.

    `p` is the clip probability: a number, "1/n", or "best". `offset` matters only for "best": the mean of the rows
    is then expected to be `offset` standard deviations from the center. The other arguments are those of
    `GaussianDataMechanism`.
    """
    best = {"clip_probability": "optimal", "center_std": offset * np.array(sigma), "sigma_factor": 1}
    clip = best if p == "best" else {} if p == "1/n" else {"clip_probability": p}
    return GaussianDataMechanism(sigma, n, epsilon, delta, scaling=scaling, noise=noise, **clip)


def expected(*, alpha=None, d=None, sigma=None, offset=0.0, p="1/n", **setting):
    """Return all results for a setting of the explorer, a page of the book, as the package computes them: a dictionary.

    Its keys are the names in the page's JavaScript. `sigma` has the standard deviations of the coordinates; if it is
    None, they are j**-`alpha` for j = 1 ... `d`, up to a factor. The mean is `offset` standard deviations from the
    center. `p` is the clip probability, and `setting` has n, epsilon, delta, the scaling and the distribution of the
    noise.
    """
    sigma = zipf_sigma(d, alpha) if sigma is None else np.array(sigma, dtype=float)
    found = mechanism(sigma, p=p, offset=offset, **setting)
    plain = mechanism(sigma, p=p, offset=offset, **setting | {"scaling": "none"})
    error = found.error(mean=offset * sigma)
    p = 1 / found.n if p in ("best", "1/n") else p
    b = {"none": np.ones(sigma.size), "expected_norm": scaling.expected_norm(sigma)}.get(setting["scaling"])
    b = scaling.optimal(sigma, p) if b is None else b
    noise_factor = [scaling.noise_factor(one, sigma, p) for one in (np.ones(sigma.size), b)]
    budget, d = (setting["epsilon"], setting["delta"]), sigma.size
    l2, gaussian = calibration.l2_noise_scale(*budget, d), calibration.analytic_noise_multiplier(*budget)
    return {
        "sigma": found.sigma,
        "noiseMultiplier": found.noise_multiplier,
        "l2OverGaussian": (d + 1) * (l2 / gaussian) ** 2,
        "scaling": found.b,
        "clipNorm": found.clip_norm,
        "clipProbability": found.p,
        "noiseStd": found.noise_std,
        "plainStd": plain.noise_std[0],
        "noise": error.noise,
        "clipping": error.clipping,
        "center": error.center,
        "total": error.total,
        "improvement": noise_factor[0] / noise_factor[1],
        "sampling": found.n * np.sum(sigma**2),
    }


def settings():
    """Return settings of the explorer, a page of the book: five near the ends of the ranges, and twenty random ones.

    A setting is a dictionary with the keys "alpha" (how unequal the standard deviations are), "d" (columns), "n"
    (rows), "epsilon" and "delta".
    """
    rng = np.random.default_rng(20)
    corners = [(0.0, 1, 10), (10.0, 1000, 10**9), (0.0, 1000, 10), (0.3, 1000, 10**9), (10.0, 2, 37)]
    corners = [(*corner, *budget) for corner, budget in zip(corners, BUDGETS, strict=True)]
    for _ in range(20):
        alpha, d, n = rng.uniform(0, 10) * rng.uniform(), 10 ** rng.uniform(0, 3), 10 ** rng.uniform(1, 9)
        corners.append((alpha, round(d), round(n), 10 ** rng.uniform(-2, 1.69), 10 ** rng.uniform(-12, -1)))
    return [dict(zip(START, corner, strict=True)) for corner in corners]


BUDGETS = [(0.01, 1e-12), (50.0, 0.1), (0.01, 0.1), (50.0, 1e-12), (1.0, 1e-6)]


@pytest.fixture(scope="module")
def explorer(book, browser):
    """Open the explorer, an interactive page of the book, in a browser once for all tests, and yield the page.

    The tests fail at the end if a script of the page has raised an error.
    """
    page = browser.browser.new_page(viewport={"width": 1280, "height": 900})  # a profile of its own
    page.set_default_timeout(PATIENCE)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((book / "book" / "explorer.html").as_uri())
    yield page
    page.close()
    assert not errors


@pytest.fixture
def page(explorer):
    """Set the page `explorer` back to the window and the setting with which it opens, and return the page.

    So a test may leave another window or another setting behind, also if it fails.
    """
    explorer.emulate_media(media="screen")
    resize(explorer, 1280)
    start(explorer)
    return explorer


@contextmanager
def opened(book, browser, address):
    """Open the explorer, a page of the book, in a new window of `browser`; yield the page when it shows its results.

    `address` is the end of the address that contains the setting, such as "#alpha=1&d=10".
    """
    page = browser.new_page()
    try:
        page.goto((book / "book" / "explorer.html").as_uri() + address)
        settle(page)
        yield page
    finally:
        page.close()


def type_in(page, **values):
    """Type each of `**values` into the field of the explorer that has its name, and wait for the new results.

    `page` is the explorer in the browser.
    """
    for name, value in values.items():
        page.fill(f"#explorer-{name}", str(value))
    settle(page)


def visit(page, address):
    """Give the explorer, a page of the book, a new setting by its address, and wait until it shows the results.

    `address` is the new end of the address, such as "#alpha=1&d=10". Parameters may be missing, but not all: they get
    the values with which the explorer starts, except the scaling, which is kept.
    """
    go = "new Promise((done) => { addEventListener('hashchange', done, { once: true }); location.hash = address; })"
    page.evaluate(f"async (address) => {{ await {go} }}", f"{address}&visit={next(VISITS)}")
    settle(page)
    page.locator("#explorer-gains[aria-busy=true]").wait_for(state="detached")


def start(page):
    """Set the explorer back to the setting that it has when it is opened; `page` is the explorer in the browser."""
    visit(page, "#alpha=1&scaling=expected_norm")


def choose_clip(page, p):
    """Choose the clip probability `p` on `page`, the explorer: "1/n", "best", or a number, which is typed."""
    page.check(f"#explorer-clip-{CLIPS.get(p, 'given')}")
    if p not in CLIPS:
        type_in(page, p=p)


def settle(page):
    """Wait until the explorer has computed and shows its results; `page` is the explorer in the browser."""
    page.locator(".explorer-results[aria-busy=false]").wait_for()


# Whether the window has some width, no transition of the theme still changes the width of the results, and each figure
# has been drawn for the width that it has now, up to a pixel by which widths are rounded.
DRAWN = """(width) => {
  const figures = [...document.querySelectorAll(":is(#egm-explorer, #egm-pair) figure")];
  const drawn = figures.every((one) => Math.abs(one.clientWidth - one.firstChild.clientWidth) <= 1);
  return innerWidth === width && document.getAnimations().length === 0 && drawn;
}"""


def resize(page, width):
    """Give the window of the explorer a width in pixels, and wait until `page` shows the figures for this width."""
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function(DRAWN, arg=width)


def number(text):
    """Return the value of `text`, a number as the explorer (a page of the book) writes it, such as "1.5 × 10⁻³"."""
    plain = text.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", ",")).replace(" × 10", "e")
    return float(plain)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("setting", settings(), ids=lambda s: "-".join(f"{value:.3g}" for value in s.values()))
def test_same_as_the_package(explorer, setting, scaling):
    """The explorer's JavaScript function `egm.forecast` and the package agree in each number to a relative 1e-12.

    For the scaling "optimal", which minimizes the noise, they agree only to 1e-7, because the minimum is flat. The
    error of l2 noise agrees to 3e-11, because the package rounds the scale of l2 noise up. `setting` is a dictionary of
    the explorer's parameters.
    """
    found = explorer.evaluate("setting => egm.forecast(setting)", setting | {"scaling": scaling})
    for name, value in expected(**setting, scaling=scaling).items():
        soft = scaling == "optimal" and name in ("scaling", "clipNorm", "noiseStd", "clipping", "total")
        rtol = AT_MINIMUM if soft else L2 if name == "l2OverGaussian" else EXACT
        np.testing.assert_allclose(found[name], value, rtol=rtol, err_msg=name)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 100, 1000])
def test_same_as_the_package_for_l2_noise(explorer, d):
    """The explorer's JavaScript and the package agree in each number of a forecast with l2 noise, to a relative 3e-11.

    The test takes `d` coordinates, and 20 budgets (epsilon, delta) over the explorer's ranges.
    """
    for epsilon, delta in product((0.01, 0.1, 1, 8, 50), (1e-12, 1e-6, 1e-2, 0.1)):
        setting = START | {"d": d, "epsilon": epsilon, "delta": delta, "scaling": "expected_norm", "noise": "l2"}
        found = explorer.evaluate("setting => egm.forecast(setting)", setting)
        for name, value in expected(**setting).items():
            np.testing.assert_allclose(found[name], value, rtol=L2, err_msg=f"{name}, {epsilon}, {delta}")


def other_settings():
    """Return 60 settings of the explorer with a mean that is not the center, or a clip probability that is not 1/n.

    The explorer is a page of the book, and a setting is a dictionary of its parameters. Half of the settings have one
    of five fixed combinations of alpha, d and n, mostly at the ends of their ranges; in the others, alpha, d and n are
    random.
    """
    rng = np.random.default_rng(21)
    corners = [(0.0, 1, 10), (10.0, 1000, 10**9), (0.3, 300, 10**9), (1.0, 100, 10**6), (10.0, 2, 37)]
    shapes = [corner for corner in corners for _ in range(6)]
    shapes += [(rng.uniform(0, 5), round(10 ** rng.uniform(0, 2.5)), round(10 ** rng.uniform(1, 9))) for _ in range(30)]
    levers = [*product((0.0, 0.03, 0.5, 3.0), ("1/n", "best", 0.5, 1e-3))][1:] * 4
    names = (*START, "offset", "p", "scaling", "noise")
    budgets = zip(10 ** rng.uniform(-2, 1.69, 60), 10 ** rng.uniform(-12, -1, 60), strict=True)
    choices = zip(rng.choice(SCALINGS, 60).tolist(), rng.choice(NOISES, 60).tolist(), strict=True)
    rows = zip(shapes, budgets, levers, choices, strict=False)
    return [dict(zip(names, (*a, *b, *c, *choice), strict=True)) for a, b, c, choice in rows]


@pytest.mark.parametrize("setting", other_settings(), ids=lambda s: "-".join(map(str, list(s.values())[-4:])))
def test_same_as_the_package_with_other_centers_and_clips(explorer, setting):
    """The explorer's JavaScript and the package agree if the mean is not the center, or the clip probability not 1/n.

    They agree in each part of the error up to 1e-9 of the total error. For the clip probability "best", with the least
    total error, only this total must agree, because its minimum is flat: to a relative 1e-7, or 1e-5 if nearly all rows
    are clipped. `setting` is a dictionary of the explorer's parameters.
    """
    found, truth = explorer.evaluate("setting => egm.forecast(setting)", setting), expected(**setting)
    assert found["total"] == pytest.approx(sum(found[part] for part in PARTS), rel=1e-14)
    if setting["p"] == "best":
        rough = truth["clipProbability"] > 0.9
        assert found["total"] == pytest.approx(truth["total"], rel=LEAST_ROUGHLY if rough else LEAST)
        names = ("noiseMultiplier", "l2OverGaussian", "improvement")
    else:
        for part in (*PARTS, "total"):
            assert found[part] == pytest.approx(truth[part], abs=OF_TOTAL * truth["total"]), part
        names = ("noiseMultiplier", "improvement", "clipNorm", "noiseStd", "plainStd")
    for name in names:
        np.testing.assert_allclose(found[name], truth[name], rtol=AT_MINIMUM, err_msg=name)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0], [3.0, 2.0, 0.5], list(1 / np.arange(1.0, 101))])
@pytest.mark.parametrize("p", [0.5, 0.1, 1e-3, 1e-9])
def test_quantiles(explorer, weights, p):
    """The explorer's JavaScript function `egm.isf` and the package's function `gx2.isf` agree to a relative 1e-13.

    Both return an upper quantile: the number that sum_j `weights`_j Z_j**2 exceeds with the probability `p`, for
    independent standard normal Z_j.
    """
    found = explorer.evaluate("([p, weights]) => egm.isf(p, weights)", [p, weights])
    np.testing.assert_allclose(found, isf(p, weights), rtol=1e-13)


def pair_settings():
    """Return 40 settings of the explorer's panel "Two correlated columns" as dictionaries.

    Some parameters are at the ends or in the middle of their ranges, and the others are random. Each combination of a
    basis, a distribution of the noise and a clip probability "p" occurs.
    """
    rng = np.random.default_rng(22)
    shapes = [
        *product((0.01, 0.5, 1.0), (-0.99, 0.0, 0.99)),
        *zip(rng.uniform(0.01, 1, 31), rng.uniform(-0.99, 0.99, 31), strict=True),
    ]
    levers = [*product(("columns", "eigenvectors", "turned"), ("gaussian", "l2"), ("1/n", 1e-12, 0.02, 0.5))]
    names, found = ("ratio", "r", "basis", "noise", "p"), []
    for i, shape in enumerate(shapes):
        lever = levers[7 * i % len(levers)]
        rest = {
            "angle": rng.uniform(-90, 90),
            "n": round(10 ** rng.uniform(1, 9)),
            "epsilon": 10 ** rng.uniform(-2, 1.69),
        }
        found.append(dict(zip(names, (*shape, *lever), strict=True)) | rest | {"delta": 10 ** rng.uniform(-12, -1)})
    return found


def turned(covariance, angle, p, options):
    """Return (matrix, sigma, mechanism) for data with two columns, in a basis that is turned by `angle` radians.

    The rows of `matrix` are the vectors of the basis, and `sigma` has the standard deviations along them. `mechanism`
    is a `GaussianDataMechanism` with the other arguments `options`. The probability that it clips a row is `p` if rows
    are normal with the 2 x 2 covariance matrix `covariance`.
    """
    U = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    sigma = np.sqrt(np.diag(U @ covariance @ U.T))
    b = scaling.expected_norm(sigma)
    squared_norm = isf(p, np.linalg.eigvalsh(U @ covariance @ U.T * np.outer(b, b)))
    believed = sf(squared_norm, (b * sigma) ** 2)  # the probability for uncorrelated coordinates with this clip norm
    return U, sigma, GaussianDataMechanism(sigma, basis=U, clip_probability=believed, **options)


@pytest.mark.parametrize("setting", pair_settings(), ids=lambda s: "-".join(str(value)[:6] for value in s.values()))
def test_pair_same_as_the_package(explorer, setting):
    """For two correlated columns the explorer's JavaScript function `egm.pair` and the package agree in every number.

    They agree to a relative 3e-11. The numbers, such as clip norm and noise, are compared in the basis of the columns,
    and in the basis that `setting` names. `setting` is a dictionary of the parameters of the panel.
    """
    found = explorer.evaluate("setting => egm.pair(setting)", setting)
    sigma = np.array([1, setting["ratio"]]) / (1 + setting["ratio"])
    covariance = np.outer(sigma, sigma) * [[1, setting["r"]], [setting["r"], 1]]
    p = 1 / setting["n"] if setting["p"] == "1/n" else setting["p"]
    options = {name: setting[name] for name in ("n", "epsilon", "delta", "noise")}
    eigen = bases.from_covariance(covariance)
    angles = {
        "turned": np.radians(setting["angle"]),
        "eigenvectors": np.arctan2(*eigen.matrix[0][::-1]),
        "columns": 0.0,
    }
    for name, angle in (("columns", 0.0), ("chosen", angles[setting["basis"]])):
        U, std, mechanism = turned(covariance, angle, p, options)
        one, near = found[name], {"rtol": L2}
        np.testing.assert_allclose(np.sin(one["angle"] - angle), 0, atol=1e-12)  # a vector may point the other way
        np.testing.assert_allclose(one["sigma"], std, **near)
        np.testing.assert_allclose(one["clipNorm"], mechanism.clip_norm, **near)
        np.testing.assert_allclose(one["clipAxes"], mechanism.clip_norm / mechanism.b, **near)
        np.testing.assert_allclose(one["noise"], np.sum(mechanism.noise_std**2), **near)
        assert one["noise"] == pytest.approx(np.sum(np.square(one["noiseStd"])), rel=1e-14)
        np.testing.assert_allclose(np.square(U.T) @ np.square(one["noiseStd"]), mechanism.noise_std**2, **near)
        np.testing.assert_allclose(one["product"], np.sum(std) ** 2, **near)
    np.testing.assert_allclose(found["law"]["axes"], eigen.sigma * np.sqrt(-2 * np.log(p)), rtol=L2)
    if setting["r"] == 0:
        plain = GaussianDataMechanism(sigma, clip_probability=p, **options)
        np.testing.assert_allclose(found["columns"]["noise"], np.sum(plain.noise_std**2), rtol=L2)


@pytest.mark.parametrize(("ratio", "r"), [(0.01, 0.3), (0.5, 0.0), (0.5, -0.8), (0.9, 0.99), (1.0, 0.5)])
@pytest.mark.parametrize("p", [0.3, 1e-2, 1e-6, 1e-12])
def test_no_angle_has_less_noise_than_the_eigenvectors(explorer, ratio, r, p):
    """In the explorer's panel for two columns, no turned basis has less noise than the basis of the eigenvectors.

    Nor has a turned basis a smaller sum of the standard deviations along its vectors. The basis is turned by each whole
    number of degrees from -90 to 90. `ratio` is the ratio of the standard deviations of the columns, `r` is the
    correlation, and `p` is the clip probability.
    """
    setting = {"ratio": ratio, "r": r, "n": 100, "epsilon": 1, "delta": 1e-6, "noise": "gaussian", "p": p}
    pair = "([setting, angles]) => angles.map((angle) => egm.pair({ ...setting, basis: 'turned', angle }).chosen)"
    least = explorer.evaluate("setting => egm.pair(setting).chosen", setting | {"basis": "eigenvectors"})
    angles = explorer.evaluate(pair, [setting, list(range(-90, 91))])
    for name in ("noise", "product"):
        values = np.array([one[name] for one in angles])
        assert np.all(values >= least[name] * (1 - 1e-9))
        np.testing.assert_allclose(values[:91], values[90:], rtol=1e-9)
        assert np.max(values) > least[name] * (1 + 1e-3)


@pytest.mark.parametrize(("basis", "angle"), [("columns", 0), ("eigenvectors", None), ("turned", -37.5)])
def test_pair_shows_what_the_package_computes(page, basis, angle):
    """The explorer's panel for data with two columns shows the same noise as the package computes, to six digits.

    For the basis of the columns and for the basis `basis`, the panel shows the sum of the variances of the noise. It
    takes n, epsilon, delta, the clip probability and the distribution of the noise from the fields above the panel. In
    place of the clip probability "best", it takes 1/n. The clip norms, shown with fewer digits, agree within 0.5
    percent. `angle` is the angle of the basis in degrees, or None for the angle of the eigenvectors.
    """
    setting = {"n": 54321, "epsilon": 0.3, "delta": 1e-9}
    page.check(f"#explorer-basis-{basis}")
    assert page.is_visible("#explorer-angle") == (basis == "turned")
    if basis == "turned":
        type_in(page, angle=angle)
    type_in(page, **setting, ratio=0.4, r=-0.7)
    covariance = np.array([[1, -0.28], [-0.28, 0.16]]) / 1.96
    eigenvector = bases.from_covariance(covariance).matrix[0]
    angle = np.degrees(np.arctan(eigenvector[1] / eigenvector[0])) if angle is None else angle
    for p, noise in product(("1/n", "best", 0.02), NOISES):
        page.check(f"#explorer-noise-{noise}")
        choose_clip(page, p)
        arguments = p if p == 0.02 else 1 / setting["n"], setting | {"noise": noise}
        columns, chosen = (turned(covariance, np.radians(one), *arguments)[2] for one in (0, angle))
        noises = [np.sum(one.noise_std**2) for one in (columns, chosen)]
        for name, value in (("columns", noises[0]), ("chosen", noises[1]), ("ratio", noises[1] / noises[0])):
            found = number(page.inner_text(f"#explorer-pair-{name}"))
            assert found == pytest.approx(value, rel=6e-6), (name, p, noise)
        words = page.inner_text(".pair-results")
        assert f"at {angle:.3g}°".replace("-", "−") in words
        clip_norms = [number(text) for text in re.findall("clip norm C = (.*)", words)]
        assert clip_norms == pytest.approx([columns.clip_norm, chosen.clip_norm], rel=5e-3), (p, noise)
        times = number(re.search("region, (.*) times", words)[1])
        assert times == pytest.approx(2 * columns.noise_multiplier, rel=5e-3), (p, noise)


def test_pair_is_drawn_to_scale(page):
    """Each ellipse in the explorer's panel for two columns has the angle and the semi-axes that the page has computed.

    The page computes them by its JavaScript function `egm.pair`. All ellipses of a figure are drawn to one scale.
    """
    found = page.evaluate(
        "egm.pair({ ratio: 0.5, r: 0.8, basis: 'eigenvectors', angle: 0, n: 1e6, epsilon: 1, delta: 1e-6, p: '1/n' })"
    )
    charts = [page.locator("#egm-pair svg").nth(i) for i in (0, 1)]
    ellipses = [("columns", 0, "columns", "clipAxes"), ("expected_norm", 0, "chosen", "clipAxes")]
    ellipses += [("columns", 1, "columns", "noiseStd"), ("expected_norm", 1, "chosen", "noiseStd")]
    drawn = {(0, "row"): (charts[0].locator("polyline.line-row"), found["law"]["axes"], found["law"]["angle"])}
    for kind, chart, name, axes in ellipses:
        line = charts[chart].locator(f"polyline.line-{kind}").last
        drawn[chart, kind] = line, found[name][axes], found[name]["angle"]
    unit = {}
    for (chart, _), (line, axes, angle) in drawn.items():
        x, y = points(line)
        middle = (np.max(x) + np.min(x)) / 2, (np.max(y) + np.min(y)) / 2
        first, second = (np.array([x[i] - middle[0], middle[1] - y[i]]) for i in (0, 50))  # ends of the semi-axes
        assert np.arctan2(first[1], first[0]) == pytest.approx(angle, abs=1e-6)
        assert first @ second == pytest.approx(0, abs=1e-6)
        lengths = np.linalg.norm([first, second], axis=1) / axes
        np.testing.assert_allclose(lengths, unit.setdefault(chart, lengths[0]), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "low", "high", "some", "following"),
    [("ratio", 0.01, 1, 0.1, 0.11), ("r", -0.99, 0.99, 0, 0.01), ("angle", -90, 90, 0, 1)],
)
def test_keys_move_the_sliders_of_the_pair(page, name, low, high, some, following):
    """Keys move each slider of the explorer's panel for two columns; results of the first panel are not computed again.

    `name` is the slider, and its range is from `low` to `high`. The right arrow key leads from the value `some` to the
    value `following`.
    """
    page.check("#explorer-basis-turned")
    above = page.evaluate_handle("document.querySelector('#explorer-total')")
    assert press(page, name, "Home")[-1] == low
    first = page.get_attribute("#explorer-pair-chosen", "data-value")
    values = press(page, name, *["ArrowRight"] * 5)
    assert all(a < b for a, b in pairwise([low, *values]))
    assert page.get_attribute("#explorer-pair-chosen", "data-value") != first
    assert press(page, name, "End") == [high]
    type_in(page, **{name: some})
    assert press(page, name, "ArrowRight", "ArrowLeft") == [following, some]
    assert page.evaluate("total => total.isConnected", above)
    focused = page.evaluate(FOCUSED + ".outlineWidth")
    assert float(focused.removesuffix("px")) >= 2


def test_address_keeps_the_pair(book, browser, page):
    """The explorer's address contains the setting of the panel for two columns: a new window shows the same results.

    In place of bad values in an address, the panel takes the values with which it starts.
    """
    page.check("#explorer-basis-turned")
    type_in(page, ratio=0.3, r=-0.45, angle=12.5)
    page.wait_for_url(re.compile("#basis=turned&ratio=0.3&r=-0.45&angle=12.5&alpha=1&"))
    with opened(book, browser, page.url[page.url.index("#") :]) as other:
        assert other.inner_text(".pair-results") == page.inner_text(".pair-results")
        assert other.input_value("#explorer-angle") == "12.5"
    with opened(book, browser, "#alpha=1&basis=best&ratio=2&r=one") as other:
        assert other.is_checked("#explorer-basis-eigenvectors")
        assert [other.input_value(f"#explorer-{name}") for name in ("ratio", "r")] == ["0.5", "0.8"]


@pytest.mark.parametrize("p", ["1/n", "best", 0.02])
@pytest.mark.parametrize("sigma", [None, OWN])
def test_shows_what_the_package_computes(page, p, sigma):
    """The explorer shows the numbers that the package computes, to six digits, for typed numbers and chosen options.

    The options are the clip probability `p`, and each scaling with each distribution of the noise. If `p` is "best",
    some numbers agree to fewer digits. `sigma` has the typed standard deviations, or is None if the page computes them
    from the exponent alpha and the number d of columns.
    """
    setting = {"alpha": 0.7, "d": 12, "n": 54321, "epsilon": 0.3, "delta": 1e-9}
    type_in(page, **setting, offset=0.12, sigma="" if sigma is None else "18, 1200;3\n250 .5")
    choose_clip(page, p)
    page.evaluate("document.querySelector('#egm-explorer details').open = true")
    for kind, noise in product(SCALINGS, NOISES):
        page.check(f"#explorer-scaling-{kind}")
        page.check(f"#explorer-noise-{noise}")
        settle(page)
        truth = expected(**setting, sigma=sigma, offset=0.12, p=p, scaling=kind, noise=noise)
        for name in NAMES:
            soft = p == "best" and name in (*PARTS, "clipNorm", "clipProbability")
            near = {"abs": 1e-4 * truth["total"]} if soft and name in PARTS else {"rel": 1e-3 if soft else 6e-6}
            found = number(page.inner_text(f"#explorer-{name}"))
            assert found == pytest.approx(truth[name], **near), (name, kind, noise)
        laws = page.get_by_text("l2 over Gaussian").inner_text()
        assert number(laws.split(": ")[1]) == pytest.approx(truth["l2OverGaussian"], rel=5e-3), (kind, noise)
        page.locator("#egm-explorer tbody tr").last.wait_for()
        rows = [row.split("\t") for row in page.locator("#egm-explorer tbody tr").all_inner_texts()]
        shown = np.array([[number(cell) for cell in row] for row in rows])
        columns = [np.arange(1, shown.shape[0] + 1), truth["sigma"], truth["scaling"], truth["noiseStd"]]
        np.testing.assert_allclose(shown, np.transpose(columns), rtol=1e-4 if p == "best" else 6e-6)


def press(page, name, *keys):
    """Press `keys`, such as "Home", on the slider `name`; return a list of the numbers beside it after each key."""
    page.focus(f"#explorer-{name}-slider")
    values = []
    for key in keys:
        page.keyboard.press(key)
        values.append(float(page.input_value(f"#explorer-{name}")))
    return values


@pytest.mark.parametrize("name", SLIDERS)
def test_sliders_move_the_numbers(page, name):
    """The keys End and Home move the explorer's slider `name` to its ends, which changes its number and the results.

    The results of the explorer's second panel, for two columns, are drawn again only if they depend on the slider.
    """
    page.check("#explorer-clip-given")
    pair = page.evaluate_handle("document.querySelector('#explorer-pair-chosen')")
    for key, end in zip(("End", "Home"), SLIDERS[name][::-1], strict=True):
        before = page.get_attribute("#explorer-total", "data-value")
        assert press(page, name, key, key) == [end, end]
        settle(page)
        assert page.get_attribute("#explorer-total", "data-value") != before
    assert pair.evaluate("pair => pair.isConnected") == (name in ("alpha", "d", "offset"))


@pytest.mark.parametrize("typed", [None, 0.123456])
@pytest.mark.parametrize("name", SLIDERS)
def test_every_arrow_key_is_a_step(page, name, typed):
    """Arrow keys move the slider `name` in small steps; after some steps up and as many down, it has its first value.

    This also holds if the first value was typed and lies between two steps. `typed` says where in the slider's range
    the typed value lies, from 0 for the lower end to 1 for the upper end; if it is None, no value is typed.
    """
    page.check("#explorer-clip-given")
    low, high = SLIDERS[name]
    if typed:
        value = low * (high / low) ** typed if low else low + (high - low) * typed
        type_in(page, **{name: round(value) if name in ("d", "n") else float(f"{value:.6g}")})
    else:
        press(page, name, "Home", *["PageUp"] * 3)
    first = float(page.input_value(f"#explorer-{name}"))
    up = [first, *press(page, name, *["ArrowRight"] * 3, "ArrowUp")]
    down = [up[-1], *press(page, name, *["ArrowLeft"] * 3, "ArrowDown")]
    assert all(a < b for a, b in pairwise(up))
    assert all(b <= 1.11 * a or b - a <= 1.01 * max(0.05, (high == 1000)) for a, b in pairwise(up)), "a sensible step"
    assert down == up[::-1]
    (page_up,) = press(page, name, "PageUp")
    assert page_up > up[3]
    assert press(page, name, "PageDown", "PageDown")[-1] < first


@pytest.mark.parametrize("d", [1, 2, 37])
def test_figures_have_a_point_for_each_coordinate(page, d):
    """The explorer draws standard deviations, noise and scaling factors as lines with one point for each coordinate.

    The points are in the order of the `d` coordinates, and the axis names none beyond the last. The standard deviations
    sigma fall from coordinate to coordinate, and the factors b, by which the coordinates are multiplied before
    clipping, rise.
    """
    type_in(page, **START | {"d": d})
    figures = page.locator("#egm-explorer figure")
    drawn = [points(figures.nth(figure).locator("polyline").nth(line)) for figure, line in ((0, 0), (0, 1), (1, 0))]
    for x, _ in drawn:
        assert x.shape == (d,)
        assert np.all(np.diff(x) > 0)
    assert np.all(np.diff(drawn[0][1]) > 0)  # a smaller spread is lower on the screen
    assert np.all(np.diff(drawn[2][1]) < 0)
    for figure in (0, 1):
        *ticks, title = figures.nth(figure).locator("text[text-anchor=middle]").all_text_contents()
        assert title == "coordinate j"
        assert 1 == number(ticks[0]) <= number(ticks[-1]) <= d


def points(line):
    """Return the positions of the points of `line`, an SVG line in the browser, as an array with two rows.

    The first row has the horizontal positions, and the second row the vertical ones, which increase downwards.
    """
    return np.array([point.split(",") for point in line.get_attribute("points").split()], dtype=float).T


@pytest.mark.parametrize("alpha", [1, 0.37])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_gain_is_drawn(page, scaling, alpha):
    """The explorer draws the gain of Lemma 4.1's scaling, and that of the chosen scaling, as curves of 25 points each.

    The explorer is a page with figures that a reader changes by sliders. A scaling multiplies the coordinates before
    clipping and noise. Its gain is the variance of the noise without scaling over that with scaling. The gain is drawn
    as a function of `alpha`: the standard deviation of coordinate j is proportional to j**-alpha. A ring marks the
    present setting, and lies on the curve of the chosen `scaling`.
    """
    type_in(page, d=5, alpha=alpha)
    page.check(f"#explorer-scaling-{scaling}")
    settle(page)
    chart = page.locator("#explorer-gains[aria-busy=false]")
    chart.wait_for()
    assert chart.locator("polyline").count() == len({"expected_norm", scaling})
    x, y = points(chart.locator(f"polyline.line-{scaling}"))
    assert x.shape == (25,)
    ring = [float(chart.locator("circle.mark").get_attribute(c)) for c in ("cx", "cy")]
    assert np.interp(ring[0], x, y) == pytest.approx(ring[1], abs=0.01 if alpha == 1 else 0.5)
    if alpha == 1:
        assert x[12] == pytest.approx(ring[0], abs=0.01)  # 10**0 is the middle of the axis
    title = page.locator(".explorer-card", has=page.locator("#explorer-improvement")).inner_text()
    assert ("optimal" in title) == (scaling == "optimal")


# Types a number of coordinates and looks at the figure of the gain as soon as the results have changed; returns the
# color of its curve and the word on it, or null if the curve is not marked as outdated.
OUTDATED = """new Promise((done) => {
  const look = () => {
    const line = document.querySelector("#explorer-gains[aria-busy=true] polyline");
    done(line && [getComputedStyle(line).stroke, getComputedStyle(line.closest("figure"), "::after").content]);
  };
  new MutationObserver(look).observe(document.querySelector(".explorer-results"), { childList: true });
  const field = document.querySelector("#explorer-d");
  field.value = "97";
  field.dispatchEvent(new Event("input"));
})"""


def test_old_curve_stays_until_the_new_one_is_there(page):
    """While the explorer computes the curve of the gain for a new setting, it still shows the old curve, in gray.

    A word says that the new curve is being computed. The gain is the variance of the noise without scaling over that
    with scaling. A scaling multiplies the coordinates before clipping and noise.
    """
    page.check("#explorer-scaling-optimal")
    settle(page)
    chart = page.locator("#explorer-gains[aria-busy=false]")
    chart.wait_for()
    color, word = page.evaluate(OUTDATED)
    assert color != "rgb(0, 114, 178)"
    assert word == '"Computing …"'
    chart.wait_for()
    assert chart.locator("polyline").count() == 2
    assert chart.evaluate("figure => getComputedStyle(figure, '::after').content") == "none"


def test_colors_are_those_of_the_figures(explorer):
    """The explorer draws the lines of the three scalings in the colors that they have in the figures of the book.

    A scaling is a method to choose the factors by which coordinates are multiplied before clipping.
    """
    for name in SCALINGS:
        color = explorer.evaluate(
            f"getComputedStyle(document.querySelector('#egm-explorer')).getPropertyValue('--line-{name}')"
        )
        assert color.strip().lower() == COLORS[STYLES[name]].lower()


def test_page_answers_while_it_computes(page):
    """The explorer computes in a worker (a thread of the browser), so the page still reacts to its reader meanwhile.

    Until the new numbers are computed, the page shows the old ones, and marks them as outdated.
    """
    assert len(page.workers) == 1
    before = page.inner_text("#explorer-total")
    busy = page.evaluate(
        """() => {
          const field = document.querySelector("#explorer-d");
          field.value = "1000";
          field.dispatchEvent(new Event("input"));
          const busy = document.querySelector(".explorer-results").getAttribute("aria-busy");
          return [busy, document.querySelector("#explorer-total").textContent];
        }"""
    )
    assert busy == ["true", before]
    settle(page)
    assert page.inner_text("#explorer-total") != before


def test_works_without_a_worker(book, browser):
    """Also in a browser without workers (threads), the explorer shows the total error that the package computes.

    Some browsers do not let a page that is opened from a file start a worker. The errors agree to six digits.
    """
    page = browser.new_page()
    page.add_init_script("delete window.Worker")
    page.goto((book / "book" / "explorer.html").as_uri())
    settle(page)
    truth = expected(**START, scaling="expected_norm")
    assert number(page.inner_text("#explorer-total")) == pytest.approx(truth["total"], rel=6e-6)
    page.close()


EXTREMES = [
    "#alpha=1&d=100&n=1000000&epsilon=1&delta=1e-6&scaling=none",
    "#alpha=0.7&d=12&n=100000&epsilon=1&delta=1e-6&scaling=optimal",
    "#alpha=10&d=1000&n=1000000000&epsilon=1&delta=1e-6&scaling=expected_norm",
    "#alpha=10&d=1000&n=1000000000&epsilon=0.01&delta=1e-12&scaling=optimal",
    "#alpha=0&d=1&n=10&epsilon=50&delta=0.1&scaling=none",
    "#alpha=0.5&d=1&n=10&epsilon=50&delta=0.1&scaling=optimal&p=0.5&noise=l2",
    "#alpha=0&d=1000&n=10&epsilon=50&delta=0.1&scaling=optimal",
    "#alpha=5&d=2&n=10&epsilon=0.01&delta=1e-12&scaling=expected_norm&offset=3",
    "#alpha=0.3&d=30&n=1000000000&epsilon=0.01&delta=1e-12&scaling=optimal&p=best&offset=1",
    "#alpha=1&sigma=1e-100,1e100,1,3&n=10&epsilon=1&delta=1e-6&scaling=none",
    "#alpha=1&sigma=18,1200,3,250,0.5&n=10000&epsilon=1&delta=1e-6&scaling=optimal&p=0.5",
    f"#alpha=1&scaling=expected_norm&sigma={','.join(map(str, np.random.default_rng(53).lognormal(0, 3, 100)))}",
    "#alpha=1&basis=columns&ratio=0.01&r=0&p=0.5",
    "#alpha=1&basis=turned&ratio=0.01&r=0.99&angle=90&p=1e-12",
    "#alpha=1&basis=turned&ratio=1&r=-0.99&angle=0&p=0.5",
    "#alpha=1&basis=turned&ratio=1&r=0.99&angle=-45&p=1e-12",
    "#alpha=1&basis=turned&ratio=0.7&r=0.3&angle=-12.3",
]
# Lists texts that leave the frame of their figure, labels of lines that overlap, figures that leave the page, and axes
# with ticks that are less than two pixels apart.
STRAY = """() => {
  const found = [];
  for (const svg of document.querySelectorAll(":is(#egm-explorer, #egm-pair) svg")) {
    const frame = svg.getBoundingClientRect();
    if (frame.left < 0 || frame.right > document.documentElement.clientWidth) found.push("a figure");
    const texts = [...svg.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
    for (const [text, box] of texts) {
      const across = box.left >= frame.left && box.right <= frame.right;
      if (!across || box.top < frame.top || box.bottom > frame.bottom) found.push(text.textContent);
    }
    for (const at of ["x", "y"]) {
      const ends = [...svg.querySelectorAll("line.tick")].map((tick) => [tick[at + 1], tick[at + 2]]);
      const pairs = ends.map((pair) => pair.map((end) => end.baseVal.value));
      const places = [...new Set(pairs.filter(([a, b]) => a === b).map(([a]) => a.toFixed(3)))].sort((a, b) => a - b);
      if (places.some((place, i) => place - places[i - 1] < 1.99)) found.push(`ticks along ${at}`);
    }
    const labels = texts.filter(([text]) => text.getAttribute("class"));
    labels.forEach(([text, box], i) => {
      for (const [other, another] of labels.slice(i + 1)) {
        const across = Math.min(box.right, another.right) - Math.max(box.left, another.left);
        const down = Math.min(box.bottom, another.bottom) - Math.max(box.top, another.top);
        if (across > 1 && down > 4) found.push(`${text.textContent} on ${other.textContent}`);
      }
    });
  }
  return found;
}"""


@pytest.mark.parametrize("address", EXTREMES, ids=lambda address: address[:100])
def test_no_label_leaves_the_frame(page, address):
    """For extreme settings, each text in a figure of the explorer is inside the figure, and no labels of lines overlap.

    Nor do the ticks of an axis become one bar: they are at least two pixels apart.

    `address` has the setting. When the window becomes as narrow as a phone, the figures are drawn again.
    """
    visit(page, address)
    for width in (1280, 390):
        resize(page, width)
        assert page.locator("#egm-explorer svg text").count() > 9
        assert page.evaluate(STRAY) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("width", "rows"), [(1280, [3] * 4), (1920, [3] * 4), (390, [1, 2, 2, 2, 2, 1, 2])])
def test_cards_fill_their_rows(page, width, rows):
    """The cards of the explorer, boxes with one number each, stand in full rows, and contain their numbers.

    On a phone, the first card of each panel has a row of its own. `width` is the width of the window in pixels, and
    `rows` has the numbers of cards in the rows, from top to bottom.
    """
    resize(page, width)
    visit(page, "#alpha=1&sigma=1e-90,3.3&p=best&scaling=none&offset=0.1&n=999999937")
    boxes = [card.bounding_box() for card in page.locator(".explorer-card").all()]
    tops = [box["y"] for box in boxes]
    assert [tops.count(top) for top in sorted(set(tops))] == rows
    inner = [output.bounding_box() for output in page.locator(".explorer-card output").all()]
    assert all(a["x"] + a["width"] <= b["x"] + b["width"] for a, b in zip(inner, boxes, strict=True))


def test_a_new_address_is_read_even_if_the_old_one_is_written_again(page):
    """If a reader gives the explorer a new address, the explorer takes its setting from the new address only.

    The explorer itself writes its setting into the address bar. It may write the old setting there just before the
    browser reports the new address; here the test does so.
    """
    page.evaluate(
        "async () => { const before = location.hash;"
        "const heard = new Promise((done) => addEventListener('hashchange', done, { once: true }));"
        "location.hash = '#alpha=1&d=77'; history.replaceState(null, '', before); await heard; }"
    )
    settle(page)
    assert page.input_value("#explorer-d") == "77"


def test_large_numbers_have_separators(page):
    """The explorer writes numbers from 10,000 on with commas between thousands, except in the fields for typing.

    In the Python code on the page, underscores stand between thousands.
    """
    type_in(page, n=1234567, d=1000, alpha=0.3, epsilon=0.05)
    page.evaluate("document.querySelector('#egm-explorer details').open = true")
    page.locator("#egm-explorer tbody tr").nth(999).wait_for()
    assert page.input_value("#explorer-n") == "1234567"
    assert page.get_attribute("#explorer-n-slider", "aria-valuetext") == "1,234,567"
    assert "1,234,567" in page.locator("label[for=explorer-n]").inner_text()
    words = page.locator(".explorer-results").inner_text()
    assert "1 of 1,234,567 rows" in words
    assert "n=1_234_567," in words
    assert not re.findall(r"(?<![\d.=_])\d{5,}", words)


@pytest.mark.parametrize("typed", ["1,234,567", " 1234567 ", "1.234567e6", "1234567E0"])
def test_rows_may_be_typed_in_several_ways(page, typed):
    """A number of rows may be typed with commas between thousands, as the explorer writes it, or with a power of ten.

    `typed` is a text that says 1234567.
    """
    type_in(page, n=typed)
    assert page.inner_text("#explorer-n-complaint") == ""
    assert page.get_attribute("#explorer-n-slider", "aria-valuetext") == "1,234,567"
    truth = expected(**START | {"n": 1234567}, scaling="expected_norm")
    assert number(page.inner_text("#explorer-total")) == pytest.approx(truth["total"], rel=6e-6)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_captions_say_what_the_figures_show(page, scaling):
    """Without a scaling, the captions say that all coordinates get the same noise and that no coordinate is stretched.

    With a scaling, they say that coordinates with a small spread get less noise. The numbers agree with the captions.
    """
    page.check(f"#explorer-scaling-{scaling}")
    settle(page)
    captions = " ".join(page.locator("#egm-explorer figcaption").all_inner_texts())
    truth = expected(**START, scaling=scaling)
    same = scaling == "none"
    assert np.all(np.ptp([truth["noiseStd"], truth["scaling"]], axis=1) == 0) == same
    assert ("Without scaling, all coordinates get the same noise." in captions) == same
    assert ("Nothing is scaled: bj = 1." in captions) == same
    assert ("Where the spread is small, so is the noise." in captions) != same
    assert ("Narrow coordinates are stretched before clipping, by bj." in captions) != same
    if not same:
        assert np.all(np.diff(truth["noiseStd"]) < 0)
        assert np.all(np.diff(truth["scaling"]) > 0)


FOCUSED = "getComputedStyle(document.activeElement)"


def test_each_control_shows_that_it_has_the_focus(page):
    """The Tab key visits the fields, sliders and options of the explorer's first panel in order; each shows its focus.

    The element with the focus has an outline of at least two pixels. `page` is the explorer in the browser.
    """
    page.check("#explorer-clip-given")
    page.focus("#explorer-alpha")
    visited = []
    for _ in range(18):
        visited.append(page.evaluate("document.activeElement.id"))
        style = page.evaluate("(({ outlineStyle: a, outlineWidth: b }) => [a, parseFloat(b)])(" + FOCUSED + ")")
        assert style[0] != "none", visited
        assert style[1] >= 2, visited
        page.keyboard.press("Tab")
    sliders = [f"explorer-{name}{part}" for name in list(SLIDERS)[:-1] for part in ("", "-slider")]
    assert visited == [
        *sliders,
        "explorer-sigma",
        "explorer-scaling-expected_norm",
        "explorer-noise-gaussian",
        "explorer-clip-given",
        "explorer-p",
        "explorer-p-slider",
    ]


@pytest.mark.parametrize("sigma", ["", ", ".join(map(str, OWN * 9))])
def test_python_on_the_page_does_the_same(page, sigma):
    """The explorer's Python code runs without an error, and computes the clip norm and the total error of the explorer.

    This holds for each choice of the clip probability and of the distribution of the noise. `sigma` is the text of the
    typed standard deviations, or "" if they are to follow from alpha and d.
    """
    type_in(page, alpha=0.25, n=12345, offset=0.3, sigma=sigma)
    for clip, noise in product(("default", "best", "given"), NOISES):
        page.check(f"#explorer-clip-{clip}")
        page.check(f"#explorer-noise-{noise}")
        settle(page)
        code = page.inner_text("#egm-explorer pre")
        assert max(map(len, code.splitlines())) <= 60
        namespace = {}
        exec(code.rsplit("\n", 1)[0] + "\nerror = " + code.rsplit("\n", 1)[1], namespace)
        found = [number(page.inner_text(f"#explorer-{name}")) for name in ("clipNorm", "total")]
        rel = 1e-4 if clip == "best" else 6e-6
        assert found[0] == pytest.approx(namespace["mechanism"].clip_norm, rel=rel), (clip, noise)
        assert found[1] == pytest.approx(namespace["error"].total, rel=6e-6), (clip, noise)


@pytest.mark.parametrize(("numbers", "long"), [(2, False), (1000, True)])
def test_long_lists_scroll_in_a_box_of_their_own(page, numbers, long):
    """The Python code and the table of the explorer are as high as their lines, but scroll in a box if they are long.

    Keys scroll both boxes. On paper, which nobody can scroll, they show everything. As many standard deviations as
    `numbers` says are typed, and `long` says whether these are many.
    """
    type_in(page, sigma=" ".join(["12345678"] * numbers))
    page.check("#explorer-clip-best")
    settle(page)
    page.evaluate("document.querySelector('#egm-explorer details').open = true")
    page.locator("#egm-explorer tbody tr").nth(numbers - 1).wait_for()  # rows of the setting before may be there
    hidden = "box => box.scrollHeight - box.clientHeight"
    for name in ("pre", ".explorer-scroll"):
        box = page.locator(f"#egm-explorer {name}")
        assert (box.evaluate(hidden) > 0) == long
        assert box.bounding_box()["height"] < 450
        box.focus()
        page.keyboard.press("End")
        if long:
            page.wait_for_function("box => box.scrollTop > 0", arg=box.element_handle())
        page.emulate_media(media="print")
        assert box.evaluate(hidden) == 0
        page.emulate_media(media="screen")


def test_a_new_width_keeps_the_focus_and_the_scroll_positions(page):
    """In a window of another width the explorer draws its figures again, and nothing else is replaced.

    Otherwise a reader who turns a phone would lose the place in the table, and who prints, the box with the focus.
    """
    type_in(page, sigma=" ".join(["12345678"] * 1000))
    page.evaluate("document.querySelector('#egm-explorer details').open = true")
    page.locator("#egm-explorer tbody tr").nth(999).wait_for()
    box, drawing = page.query_selector(".explorer-scroll"), page.query_selector("#egm-explorer svg")
    box.focus()
    page.keyboard.press("End")
    page.wait_for_function("box => box.scrollTop > 0", arg=box)
    place = box.evaluate("box => box.scrollTop")
    resize(page, 800)
    assert not drawing.evaluate("drawing => drawing.isConnected")
    assert box.evaluate("box => document.activeElement === box")
    assert box.evaluate("box => box.scrollTop") >= place
    drawings = page.eval_on_selector_all("#egm-explorer svg", "all => all.map((one) => one.clientWidth)")
    assert len(drawings) == 2
    assert max(drawings) <= page.eval_on_selector(".explorer-results", "results => results.clientWidth")


def test_figures_fit_where_they_come_to_stand_beside_each_other(page):
    """Two figures of the explorer stand beside each other from the width on at which both fit, which is 700 pixels.

    There, and a pixel below and above, no figure is wider than its column, and the page does not scroll sideways.
    """
    resize(page, 760)
    margins = 760 - page.eval_on_selector(".explorer-results", "results => results.clientWidth")
    for width in (699, 700, 701):
        resize(page, width + margins)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


MIXED = "Separate the numbers by “,” or by “;”, not by both, and write them as 1.5 or 1200"
TWOFOLD = "“1.200,50” may be one number or two. Write one as 1.5 or 1200, and two with a space between them"
ZEROS = [f"entry {i}, “0”" for i in (1, 2, 3)]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("alpha", "-1", "α must be a number from 0 to 10"),
        ("d", "2.5", "d must be a whole number from 1 to 1000"),
        ("n", "", "n must be a whole number from 10 to 1,000,000,000"),
        ("epsilon", "many", "ε must be a number from 0.01 to 50"),
        ("delta", "1", "δ must be a number from 1e-12 to 0.1"),
        ("offset", "4", "t σ must be a number from 0 to 3"),
        ("n", "1,00,000", "n must be a whole number from 10 to 1,000,000,000"),
        ("epsilon", "1,000", "ε must be a number from 0.01 to 50"),
        ("sigma", "1,5; 2,3", MIXED),
        ("sigma", "1,200; 18", MIXED),
        ("d", "1.000", "d must be a whole number from 1 to 1000, written as 1000 or 1,000"),
        ("n", "1.000.000", "n must be a whole number from 10 to 1,000,000,000, written as 1000 or 1,000"),
        ("d", "0x10", "d must be a whole number from 1 to 1000"),
        ("epsilon", "0x10", "ε must be a number from 0.01 to 50"),
        ("sigma", "1.200,50", TWOFOLD),
        ("sigma", "18 1.200,50, 3", TWOFOLD),
        ("sigma", "18, 1,200, 3", TWOFOLD.replace("1.200,50", "1,200")),
        ("sigma", "18,5\n1200,25\n3,2", TWOFOLD.replace("1.200,50", "18,5")),
        ("sigma", "3 1200,25", TWOFOLD.replace("1.200,50", "1200,25")),
        ("sigma", "1,200.5 3", TWOFOLD.replace("1.200,50", "1,200.5")),
        ("sigma", "3, 0x10", "Not numbers from 1e-100 to 1e100: entry 2, “0x10”"),
        ("sigma", "1, two 3; -4", "Not numbers from 1e-100 to 1e100: entry 2, “two”; entry 4, “-4”"),
        ("sigma", "0 " * 12345, "Not numbers from 1e-100 to 1e100: " + "; ".join(ZEROS) + "; 12,342 more"),
        ("sigma", "1 " * 1001, "At most 1000 numbers, not 1001"),
        ("ratio", "0", "σ₂/σ₁ must be a number from 0.01 to 1"),
        ("r", "1", "r must be a number from -0.99 to 0.99"),
        ("angle", "91", "θ must be a number from -90 to 90"),
    ],
)
def test_bad_values_are_refused(page, name, value, words):
    """If a bad value is typed into a field of the explorer, a message says what is allowed; the old results stay.

    `page` is the explorer in the browser, `name` is the name of the field, `value` is the bad value, and `words` is the
    expected message.
    """
    page.check("#explorer-basis-turned")
    before, pair = page.get_attribute("#explorer-total", "data-value"), page.inner_text(".pair-results")
    type_in(page, **{name: value})
    assert page.inner_text(f"#explorer-{name}-complaint") == words
    assert page.get_attribute(f"#explorer-{name}", "aria-invalid") == "true"
    assert page.get_attribute("#explorer-total", "data-value") == before
    assert page.inner_text(".pair-results") == pair
    start(page)
    assert page.inner_text(f"#explorer-{name}-complaint") == ""


@pytest.mark.parametrize("sigma", ["1.25,0.125,3.5", "1.250, 0.125 3.5", "1.25,0.125\n3.5"])
def test_points_are_decimal_in_a_list(page, sigma):
    """The points of numbers in the list `sigma` are decimal ones, also before three digits, if all else is clear."""
    type_in(page, sigma=sigma)
    assert page.inner_text("#explorer-sigma-complaint") == ""
    truth = 10**6 * (1.25**2 + 0.125**2 + 3.5**2)
    assert number(page.inner_text("#explorer-sampling")) == pytest.approx(truth, rel=6e-6)


@pytest.mark.parametrize(("clip", "sigma"), [("default", ""), ("best", "18, 1200, 0.5"), ("given", "1.125, 3")])
def test_address_keeps_the_setting(book, browser, page, clip, sigma):
    """The explorer's address contains its setting: a new window with the address shows the same setting and results.

    `clip` is the chosen clip probability, and `sigma` the text of the typed standard deviations, or "" if they are to
    follow from alpha and d.
    """
    page.check(f"#explorer-clip-{clip}")
    page.check("#explorer-scaling-optimal")
    page.check("#explorer-noise-l2")
    values = {"d": 7, "delta": "1e-8", "offset": 0.25, **({"p": 0.0123} if clip == "given" else {}), "sigma": sigma}
    type_in(page, **values)
    p = {"default": "1/n", "best": "best", "given": "0.0123"}[clip]
    listed = f"&sigma={sigma.replace(' ', '')}" if sigma else ""
    page.wait_for_url(re.compile(f"&d=7&.*&delta=1e-8&offset=0.25&p={p}{listed}&scaling=optimal&noise=l2$"))
    with opened(book, browser, page.url[page.url.index("#") :]) as other:
        for name, value in values.items():
            assert other.input_value(f"#explorer-{name}") == str(value)
        assert other.is_checked(f"#explorer-clip-{clip}")
        assert other.is_checked("#explorer-scaling-optimal")
        assert other.is_checked("#explorer-noise-l2")
        assert other.is_disabled("#explorer-alpha") == bool(sigma)
        assert other.inner_text(".explorer-cards") == page.inner_text(".explorer-cards")


def test_links_to_sections_keep_the_setting(page):
    """A link in the explorer's table of contents leads to its section, and the address soon contains the setting again.

    So the setting stays if the reader goes back, goes forward, or opens the address anew. `page` is the explorer in the
    browser.
    """
    type_in(page, d=7)
    page.wait_for_url(re.compile("&d=7&"))
    page.evaluate("addEventListener('hashchange', () => (window.heard = true), { once: true })")
    page.click(".bd-sidebar-secondary a[href='#two-correlated-columns']")
    page.wait_for_function("window.heard")
    page.wait_for_url(re.compile("&d=7&"))
    page.wait_for_function("document.getElementById('two-correlated-columns').getBoundingClientRect().top < 300")
    for move in (page.go_back, page.go_forward, page.reload):
        move()
        settle(page)
        assert page.input_value("#explorer-d") == "7"


def test_address_may_be_old_or_bad(book, browser):
    """The explorer accepts an address without clip probability, offset and noise, and one with bad values.

    An old address lacks these three parameters; it means the clip probability 1/n, no offset (distance of the mean from
    the center), and Gaussian noise. In place of a bad value, the explorer takes the value with which it starts.
    """
    with opened(book, browser, "#alpha=0.5&d=7&n=1000&epsilon=2&delta=1e-5&scaling=optimal") as page:
        truth = expected(alpha=0.5, d=7, n=1000, epsilon=2, delta=1e-5, scaling="optimal")
        assert number(page.inner_text("#explorer-total")) == pytest.approx(truth["total"], rel=6e-6)
    bad = "#alpha=0.5&d=1e9&n=nine&scaling=best&p=7&offset=-1&sigma=1,x&noise=none"
    with opened(book, browser, bad) as page:
        names = ("alpha", "d", "n", "offset", "sigma")
        assert [page.input_value(f"#explorer-{name}") for name in names] == ["0.5", "100", "1000000", "0", ""]
        assert page.is_checked("#explorer-clip-default")
        assert page.is_checked("#explorer-noise-gaussian")


@pytest.mark.parametrize(
    ("address", "values"),
    [
        ("#alpha=&r=&angle=", {"alpha": "1", "r": "0.8", "angle": "-30"}),
        ("#alpha=0x5&d=0x10&n=1.000", {"alpha": "1", "d": "100", "n": "1000000"}),
        ("#d=1e+2&n=1,234&offset=+0.5", {"alpha": "1", "d": "100", "n": "1234", "offset": "0.5"}),
        ("#sigma=18%2c1200%2C3", {"sigma": "18, 1200, 3"}),
        ("#sigma=18,%201200%0A3", {"sigma": "18, 1200, 3"}),
        ("#sigma=18,1200%", {"sigma": ""}),
        ("#epsilon=2", {"epsilon": "2", "d": "100", "sigma": ""}),
        ("#angle=12&visited=yes", {"angle": "12", "d": "100"}),
    ],
)
def test_addresses_are_read_like_the_fields(page, address, values):
    """An address that is typed into the open explorer gives its parameters the values that their fields would take.

    One known parameter in `address` is enough. What its field refuses, such as an empty text, and what is missing have
    the value with which the explorer starts. `values` are the texts that the fields then show. A mail program may have
    encoded commas and spaces, as in "%2c" and "%20".
    """
    type_in(page, d=7, epsilon=3, sigma="5, 6")
    visit(page, address)
    assert {name: page.input_value(f"#explorer-{name}") for name in values} == values


@pytest.mark.parametrize("angle", ["-0.01", "-0", "0.04"])
def test_zero_has_no_sign(page, angle):
    """The explorer writes an angle that rounds to zero as 0°, from either side, and a slider at -0 says 0.

    `angle` is the typed angle in degrees.
    """
    page.check("#explorer-basis-turned")
    type_in(page, angle=angle)
    words = page.inner_text(".pair-results")
    assert "at 0°" in words
    assert "−0°" not in words
    type_in(page, r="-0")
    assert page.get_attribute("#explorer-r-slider", "aria-valuetext") == "0"


def test_says_so_without_scripts(book, browser):
    """In a browser without scripts, the page of the explorer says that there is also an explorer in a notebook."""
    context = browser.browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((book / "book" / "explorer.html").as_uri())
    assert "explorer in a notebook" in page.inner_text("noscript")
    context.close()
