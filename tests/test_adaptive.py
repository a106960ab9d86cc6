"""The mechanism for unknown centre and spread: its accounts, its forecast, and what it makes of strange data."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad

from egm import AdaptiveDataMechanism, adaptive, noise, quantiles
from egm.calibration import zcdp_epsilon
from egm.experiments import zipf_sigma


def rows(n, sigma, mu, seed):
    return np.random.default_rng([seed, n]).normal(mu, sigma, (n, sigma.size))


def mechanism(n=4000, rho=0.5, **options):
    return AdaptiveDataMechanism(n, rho, **{"radius": 100.0, "sigma_range": (1e-4, 100.0), **options})


def errors_and_forecasts(sigma, mu, repetitions, **options):
    """Squared error of the released sum and its forecast, over independent data and noise: two arrays."""
    n, found = options.get("n", 4000), []
    for seed in range(repetitions):
        X = rows(n, sigma, mu, seed)
        release = mechanism(**options).release(X, rng=np.random.default_rng(seed))
        found.append((np.sum((release.estimate - X.sum(axis=0)) ** 2), release.forecast.total))
    return np.transpose(found)


# --- Accounts ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def charges(monkeypatch):
    """The zCDP cost of everything that looks at the data, from the noise that it really adds."""
    costs = []

    def spy_on(name):
        original = getattr(quantiles, name)

        def spied(values, q, low, high, epsilon, last):
            costs.append(epsilon**2 / 8 * (values.shape[1] if values.ndim == 2 else 1))
            return original(values, q, low, high, epsilon, last)

        monkeypatch.setattr(quantiles, name, spied)

    original = adaptive._Search.mean_of_clipped

    def spied_mean(search, rows, clip_norm, diameter, rho):
        value, std = original(search, rows, clip_norm, diameter, rho)
        costs.append((diameter * clip_norm / search.n) ** 2 / (2 * std**2))
        return value, std

    spy_on("quantile")
    spy_on("secure_quantile")
    monkeypatch.setattr(adaptive._Search, "mean_of_clipped", spied_mean)
    return costs


@pytest.mark.parametrize("rng", [None, 1], ids=["secure", "simulated"])
@pytest.mark.parametrize("alpha", [0.0, 1.5])
def test_everything_that_looks_at_the_data_is_charged(charges, alpha, rng):
    sigma = zipf_sigma(40, alpha, total=40.0)
    release = mechanism().release(rows(4000, sigma, 3.0, 1), rng=rng and np.random.default_rng(rng))
    assert release.simulated is (rng is not None)
    assert sum(charges) == pytest.approx(sum(release.spent.values()), rel=1e-6)
    assert 0.9 * 0.5 < sum(map(Fraction, release.spent.values())) <= 0.5


def test_a_budget_is_never_exceeded_by_rounding():
    """0.1 + 0.2 + 0.3 is more than 0.6 in doubles, and the same step again and again must not gain by it either."""
    search = adaptive._Search(mechanism(rho=0.6), rows(4000, np.ones(3), 0.0, 1), None)
    search.spend("first", 0.1)
    search.spend("second", 0.2)
    with pytest.raises(ValueError, match=r"rho = 0\.6 is too small: third needs 0\.3, and 0\.3 is left"):
        search.spend("third", 0.3)
    search.spend("third", search.left)
    assert Fraction(0.6) - sum(map(Fraction, search.spent.values())) < 2**-52
    search = adaptive._Search(mechanism(rho=0.1), rows(4000, np.ones(3), 0.0, 1), None)
    for _ in range(9):
        search.spend("radii", 0.01)
    with pytest.raises(ValueError, match="too small"):
        search.spend("radii", 0.01)  # ten times the double 0.01 is more than the double 0.1
    assert Fraction(search.spent["radii"]) >= 9 * Fraction(0.01)


@pytest.mark.parametrize("kind", ["alike", "skewed", "lopsided"])
def test_charges_of_many_runs_are_at_most_the_budget(kind):
    """In exact arithmetic, for budgets that are no round numbers; and nothing fails for the sake of rounding."""
    rng = np.random.default_rng(12)
    sigma = zipf_sigma(6, 0.0 if kind == "alike" else 1.0)
    for _ in range(6):
        n, rho = int(rng.integers(400, 1500)), 10 ** rng.uniform(-1.5, 0.5)
        X = rng.normal(1, sigma, (n, 6)) * (rng.gamma(1.0, size=(n, 1)) if kind == "lopsided" else 1.0)
        release = mechanism(n, rho).release(X, rng=rng)
        assert 0.9 * rho < sum(map(Fraction, release.spent.values())) <= rho


def test_secure_noise_is_worth_its_charge_exactly(monkeypatch):
    """From the numbers that the samplers are given, as fractions: rounding of square roots and quotients included."""
    costs = []
    quantile, gaussian, grid = quantiles.secure_quantile, noise.secure_gaussian, adaptive.lattice.Lattice

    def spied_quantile(values, q, low, high, epsilon, step):
        costs.append(Fraction(epsilon) ** 2 / 8 * (values.shape[1] if values.ndim == 2 else 1))
        return quantile(values, q, low, high, epsilon, step)

    def spied_grid(clip_norm, d, std):
        lattices.append(grid(clip_norm, d, std))
        return lattices[-1]

    def spied_gaussian(std, size):
        costs.append(squares.pop() * lattices[-1].radius ** 2 / (2 * Fraction(std) ** 2))
        return gaussian(std, size)

    mean = adaptive._Search.mean_of_clipped

    def spied_mean(search, rows, clip_norm, diameter, rho):
        squares.append({2: 4, np.sqrt(2): 2}[diameter])
        return mean(search, rows, clip_norm, diameter, rho)

    lattices, squares = [], []
    monkeypatch.setattr(quantiles, "secure_quantile", spied_quantile)
    monkeypatch.setattr(adaptive.lattice, "Lattice", spied_grid)
    monkeypatch.setattr(noise, "secure_gaussian", spied_gaussian)
    monkeypatch.setattr(adaptive._Search, "mean_of_clipped", spied_mean)
    for seed, rho in enumerate(np.random.default_rng(13).uniform(0.05, 2, 4)):
        costs.clear()
        release = mechanism(1000, rho).release(rows(1000, zipf_sigma(3, 1.0), 1.0, seed))
        assert 0.9 * rho < sum(costs) <= sum(map(Fraction, release.spent.values())) <= rho


def test_quantiles_are_worth_their_charge_exactly(monkeypatch):
    """Also after the cost is divided by the columns, and 2 by epsilon, which is what the sampler is given."""
    given, search = [], adaptive._Search(mechanism(), rows(5, np.ones(7), 0.0, 2), None)
    monkeypatch.setattr(quantiles, "secure_quantile", lambda *each: given.append(each[4]) or np.ones(7))
    for cost in np.random.default_rng(3).uniform(1e-6, 1, 300):
        search.log_quantile(np.ones((5, 7)), 0.5, 0.1, 10.0, cost / 7)
        assert 7 * (2 / Fraction(2 / given[-1])) ** 2 / 8 <= Fraction(cost)
        assert given[-1] == pytest.approx(np.sqrt(8 * cost / 7), rel=1e-14)


def test_squares_are_within_the_distance_that_is_charged(monkeypatch):
    """Vectors of squares of norm at most V: the farthest two are orthogonal, sqrt(2) V apart."""
    seen = []
    search = adaptive._Search(mechanism(), rows(4000, np.ones(7), 0.0, 2), np.random.default_rng(2))
    search.center_std, search.sigma = np.full(7, 0.01), np.ones(7)
    original = search.mean_of_clipped
    monkeypatch.setattr(search, "mean_of_clipped", lambda *each: seen.append(each) or original(*each), raising=False)
    search.remeasure_sigma(0.005)
    ((squares, _, diameter, rho),) = seen
    assert np.min(squares) >= 0
    assert (diameter, rho) == (np.sqrt(2), 0.005)
    assert search.sigma == pytest.approx(1, rel=0.1)


def test_replacing_a_row_moves_a_mean_by_at_most_the_sensitivity(monkeypatch):
    monkeypatch.setattr(noise, "simulated_gaussian", lambda std, rng: np.zeros_like(std))
    monkeypatch.setattr(noise, "secure_gaussian", lambda std, size: [0] * size)
    X = rows(50, np.ones(5), 0.0, 3)
    Y = X.copy()
    X[7], Y[7] = 1e9, -1e9
    for rng in (None, np.random.default_rng(0)):
        searches = [adaptive._Search(mechanism(50), data, rng) for data in (X, Y)]
        means = [search.noisy_mean(np.arange(1, 6.0), 2.5, 0.1)[0] for search in searches]
        assert np.linalg.norm(means[0] - means[1]) == pytest.approx(2 * 2.5 / 50, rel=1e-9)


def test_secure_and_simulated_means_agree(monkeypatch):
    """Where both are given no noise: up to the rounding of the lattice. The noise has the same standard deviation."""
    monkeypatch.setattr(noise, "simulated_gaussian", lambda std, rng: np.zeros_like(std))
    monkeypatch.setattr(noise, "secure_gaussian", lambda std, size: [0] * size)
    X = rows(500, np.ones(5), 0.0, 9)
    (secure, std), (simulated, same) = (
        adaptive._Search(mechanism(500), X, rng).noisy_mean(np.arange(1, 6.0), 2.5, 0.1)
        for rng in (None, np.random.default_rng(0))
    )
    assert secure == pytest.approx(simulated, abs=1e-9)
    assert std == pytest.approx(same, rel=1e-9)


def test_a_secure_release_is_as_good_as_a_simulated_one():
    """Forecasts agree with the errors, and with those of simulation."""
    sigma, found = zipf_sigma(30, 1.0, total=30.0), []
    for seed in range(10):
        X = rows(4000, sigma, 3.0, seed)
        secure, simulated = (mechanism().release(X, rng=rng) for rng in (None, np.random.default_rng(seed)))
        found.append((np.sum((secure.estimate - X.sum(axis=0)) ** 2), secure.forecast.total, simulated.forecast.total))
    errors, forecasts, others = np.transpose(found)
    assert abs(errors.mean() - forecasts.mean()) < 5 * np.std(errors - forecasts) / np.sqrt(10) + 0.1 * forecasts.mean()
    assert forecasts.mean() == pytest.approx(others.mean(), rel=0.2)


def test_epsilon_is_that_of_the_whole_budget():
    assert mechanism(rho=0.3).epsilon(1e-6) == zcdp_epsilon(0.3, 1e-6)


# --- Accuracy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "mu"), [(0.0, 0.0), (0.0, -70.0), (1.0, 5.0)])
def test_forecast_agrees_with_simulation(alpha, mu):
    """Within four standard errors of the difference, and a tenth for what is estimated from released numbers."""
    errors, forecasts = errors_and_forecasts(zipf_sigma(64, alpha, total=64.0), mu, 24, rho=0.1)
    standard_error = np.std(errors - forecasts) / np.sqrt(24)
    assert abs(errors.mean() - forecasts.mean()) <= 4 * standard_error + 0.1 * forecasts.mean()


def test_unknown_centre_and_spread_cost_little():
    """Less than twice the error of somebody who knows both, for the same budget."""
    sigma, rho, n = zipf_sigma(64, 1.0, total=64.0), 0.1, 4000
    errors, _ = errors_and_forecasts(sigma, 5.0, 12, rho=rho)
    b = adaptive.scaling.optimal(sigma, 0.05)
    std = 2 / np.sqrt(2 * rho)
    _, oracle = adaptive.error.best_clip_norm(lambda c: np.sum((std * c / b) ** 2), sigma, n, b)
    assert oracle / 2 < errors.mean() < 2 * oracle


def test_centre_and_sigma_are_found():
    sigma = zipf_sigma(20, 1.5, total=20.0)
    release = mechanism(20_000, 1.0).release(rows(20_000, sigma, 30.0, 4), rng=np.random.default_rng(4))
    assert release.center == pytest.approx(np.full(20, 30.0), abs=0.3)
    assert np.max(np.abs(np.log(release.sigma / sigma))) < np.log(1.5)


# --- Doubt ------------------------------------------------------------------------------------------------------------


def one_sided(n, d, seed):
    """Rows with a common factor: the large ones all lie on one side of the mean."""
    rng = np.random.default_rng([seed, n])
    return (1 + 0.3 * rng.standard_normal((n, d))) * rng.gamma(2.0, size=(n, 1)) * zipf_sigma(d, 1.0, total=d)


def test_normal_rows_are_believed():
    releases = [mechanism().release(rows(4000, np.ones(30), 3.0, k), rng=np.random.default_rng(k)) for k in range(20)]
    assert sum(release.model_holds for release in releases) >= 18


def test_one_sided_rows_are_noticed_and_clipped_less(monkeypatch):
    """Somebody who believes the model errs more than ten times as much, and forecasts less than a tenth of it."""
    errors = {}
    for doubt in (True, False):
        if not doubt:
            monkeypatch.setattr(adaptive._Search, "tail", lambda search, b: None)
        for seed in range(6):
            X = one_sided(4000, 30, seed)
            release = mechanism().release(X, rng=np.random.default_rng(seed))
            assert release.model_holds is not doubt
            errors.setdefault(doubt, []).append(np.sum((release.estimate - X.sum(axis=0)) ** 2))
            if doubt:
                assert release.forecast.total / 4 < errors[True][-1] < 4 * release.forecast.total
    assert np.min(errors[False]) > 10 * np.max(errors[True])


@pytest.mark.parametrize("noise_of_one", [1e-3, 1.0, 1e9])
@pytest.mark.parametrize(("start", "scale", "length"), [(1.3, 0.1, 400.0), (2.0, 3.0, 5.0), (7.0, 0.02, 1e6)])
def test_clip_norm_of_a_tail_is_the_best(start, scale, length, noise_of_one):
    """The derivative of noise C^2 + excess(C)^2 is zero there, and it is convex."""
    tail = adaptive._Tail(start, scale, length)
    C = tail.clip_norm(noise_of_one)
    assert noise_of_one * C == pytest.approx(tail.excess(C) ** 2 / scale, rel=1e-9)


def test_excess_is_what_an_exponential_tail_has_beyond_the_clip_norm():
    tail = adaptive._Tail(2.0, 0.7, 1000.0)
    assert tail.excess(2.0) == pytest.approx(quad(lambda t: 1000 * np.exp(-(t - 2) / 0.7), 2, np.inf)[0], rel=1e-7)


# --- Strange data -----------------------------------------------------------------------------------------------------

STRANGE = {
    "heavy tails": lambda rng: rng.standard_cauchy((500, 6)),
    "all alike": lambda rng: np.full((500, 6), 2.5),
    "zeros": lambda rng: np.zeros((500, 6)),
    "huge": lambda rng: rng.normal(size=(500, 6)) * 1e300,
    "tiny": lambda rng: rng.normal(size=(500, 6)) * 1e-200,
    "one column": lambda rng: rng.normal(size=(500, 1)),
    "two points": lambda rng: np.where(rng.random((500, 6)) < 0.5, -80.0, 80.0),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_data_cost_accuracy_and_nothing_else(name):
    X = STRANGE[name](np.random.default_rng(5))
    before = X.copy()
    release = mechanism(500).release(X, rng=np.random.default_rng(6))
    assert np.all(np.isfinite(release.estimate))
    assert sum(map(Fraction, release.spent.values())) <= 0.5
    assert np.array_equal(X, before)


def test_a_budget_that_buys_nothing_is_refused():
    """Below rho = (20 / n)**2; above it, sigma is in its range and no part of the forecast is negative."""
    X = rows(200, np.ones(4), 1.0, 7)
    with pytest.raises(ValueError, match=r"rho = 0\.0099 is too small for n = 200: n sqrt\(rho\) must be at least 20"):
        mechanism(200, 0.0099).release(X)
    for seed in range(4):
        release = mechanism(200, 0.0101, sigma_range=(0.5, 3.0)).release(X, rng=np.random.default_rng(seed))
        assert np.all((release.sigma >= 0.5) & (release.sigma <= 3.0))
        assert min(release.forecast.noise, release.forecast.clipping, release.forecast.center) >= 0


def test_a_budget_that_is_not_refused_can_be_too_small():
    """At n sqrt(rho) = 100 most searches are lost, and do not know it; at 400 none is. In sampling errors."""
    sigma, found = zipf_sigma(30, 1.0, total=30.0), {}
    for reach in (100, 400):
        errors, forecasts = errors_and_forecasts(sigma, 3.0, 5, n=1000, rho=(reach / 1000) ** 2)
        found[reach] = np.array([errors / (1000 * np.sum(sigma**2)), errors / forecasts])
    assert np.median(found[100][0]) > 10
    assert np.max(found[100][1]) > 100
    assert np.max(found[400]) < 5


def test_a_release_is_reproducible():
    X = rows(500, np.ones(4), 1.0, 7)
    once, again = (mechanism(500).release(X, rng=np.random.default_rng(8)).estimate for _ in range(2))
    assert np.array_equal(once, again)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 1}, "n must be at least 2, got 1"),
        ({"rho": 0.0}, "rho must be finite and > 0, got 0.0"),
        ({"radius": -1.0}, "radius must be finite and > 0, got -1.0"),
        ({"sigma_range": (2.0, 1.0)}, r"sigma_range must be \(least, greatest\), got \(2.0, 1.0\)"),
        ({"sigma_range": (0.0, 1.0)}, r"sigma_range\[0\] must be finite and > 0, got 0.0"),
        ({"sigma_range": (1.0, 2.0, 3.0)}, "sigma_range must be"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        mechanism(**options)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((4, 3)), "X must have the declared n = 5 rows, got 4"),
        (np.ones(5), "X must have shape"),
        (np.full((5, 3), np.nan), r"X\[0, 0\] must be finite|X\[0, 0\] must not be NaN"),
    ],
)
def test_bad_data_are_named(X, message):
    with pytest.raises(ValueError, match=message):
        mechanism(5, 20.0).release(X, rng=np.random.default_rng(0))
