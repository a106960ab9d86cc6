"""Test `egm.budget`: a privacy budget computes the joint cost of several releases by theorems of composition.

A budget grants a release if what is left is enough for its cost. Otherwise the release is refused before its data are
read. A budget has one of four composition rules: "gaussian" composes Gaussian noise exactly, "zcdp" adds zCDP costs,
"basic" adds epsilons and deltas, and "planned" composes Gaussian noise exactly and then adds the epsilons of releases
with delta = 0.
"""

import math
import pickle
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import norm

from egm import EllipticalGaussianMechanism, GaussianDataMechanism, GaussianMechanism, LaplaceMechanism, samplers
from egm._budget import rules
from egm.budget import Budget, BudgetExceeded, Loss
from egm.calibration import gaussian_delta, gaussian_epsilon, zcdp_rho
from tests.egm.doubles import ReadError, Unread, adaptive, fill, laplace

DELTA = 1e-6


def gaussian(epsilon, delta=DELTA):
    return GaussianMechanism(1.0, epsilon, delta)


def charged(mechanisms, **total):
    """Return a new Budget with the arguments `total`, in which the costs of all `mechanisms` are recorded."""
    spent = Budget(**total)
    for mechanism in mechanisms:
        spent.charge(mechanism)
    return spent


SHAPES = {  # data of the shape that each mechanism of these tests takes
    "LaplaceMechanism": (3,),
    "GaussianMechanism": (5,),
    "EllipticalGaussianMechanism": (2,),
    "GaussianDataMechanism": (4, 2),
    "AdaptiveDataMechanism": (20_000, 2),
}


def unread(mechanism):
    return Unread(*SHAPES[type(mechanism).__name__])


# --- What a release costs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism",
    [
        gaussian(0.3),
        GaussianMechanism(1e9, 3.0, 1e-9),
        EllipticalGaussianMechanism([1.0, 2.0, 3.0], 1.0, DELTA),
        GaussianDataMechanism([1.0, 2.0], 100, 0.7, DELTA, center=3.0),
    ],
)
def test_gaussian_noise_costs_half_its_inverse_variance(mechanism):
    cost = Budget(rho=100.0).charge(mechanism)
    exact = 1 / (2 * Fraction(mechanism.noise_multiplier) ** 2)
    assert exact <= Fraction(cost.rho) <= exact * (1 + Fraction(1, 1 << 51))
    assert cost.mu_squared == 2 * cost.rho
    assert (cost.epsilon, cost.delta) == (mechanism.epsilon, mechanism.delta)


def test_adaptive_mechanism_costs_its_rho():
    assert Budget(rho=1.0).charge(adaptive(0.3)).rho == 0.3


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.01, 0.3, 0.999, 1.0, 1.5, 7.0, 40.0, 800.0])
def test_pure_mechanism_costs_the_exact_normal_shift(epsilon):
    """A Laplace mechanism costs as much as Gaussian noise whose outputs on neighboring data are N(0, 1) and N(mu, 1).

    mu is the number for which N(0, 1) and N(mu, 1) have the total variation distance tanh(epsilon / 2). This is the
    largest distance that the outputs on neighboring data can have for a mechanism with this `epsilon` and delta = 0.
    The recorded `mu_squared` is at least mu**2, and larger by at most a relative 1e-11. The recorded zCDP cost `rho` is
    `epsilon`**2 / 2, rounded up.
    """
    with mp.workdps(400):
        mu = 2 * mp.sqrt(2) * mp.erfinv(mp.tanh(mp.mpf(epsilon) / 2)) if epsilon < 50 else _shift(epsilon)
        cost = Budget(epsilon=1e3).charge(laplace(epsilon))
        assert mu**2 <= mp.mpf(cost.mu_squared) <= mu**2 * (1 + mp.mpf("1e-11"))
        assert mp.mpf(epsilon) ** 2 / 2 <= cost.rho <= mp.mpf(epsilon) ** 2 / 2 * (1 + mp.mpf(2) ** -51)


def _shift(epsilon):
    """Return the number mu > 0 with Phi(-mu / 2) = 1 / (1 + exp(`epsilon`)), computed by mpmath for a large `epsilon`.

    Phi is the standard normal distribution function.
    """
    start = mp.sqrt(2 * epsilon) * 2
    return mp.findroot(lambda mu: mp.log(mp.erfc(mu / mp.sqrt(8)) / 2) + mp.log1p(mp.exp(epsilon)), start)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_pure_mechanism_is_no_worse_than_the_gaussian_it_is_counted_as(epsilon):
    """A budget counts a Laplace mechanism as Gaussian noise that is never more private than the mechanism.

    Randomized response stands for the Laplace mechanism, because no mechanism with this `epsilon` and delta = 0 is less
    private. At 100 values from 0 to 1.2 times `epsilon`, the delta of randomized response is at most the delta of the
    noise. At one of the values the two differ by less than 1e-9, so any larger noise would be more private than
    randomized response.
    """
    z = Budget(epsilon=9.0).charge(laplace(epsilon)).mu_squared ** -0.5
    e = np.linspace(0, 1.2 * epsilon, 100)
    response = np.maximum(0.0, (np.exp(epsilon) - np.exp(e)) / (1 + np.exp(epsilon)))
    assert np.all(response <= gaussian_delta(e, z))
    assert np.min(gaussian_delta(e, z) - response) < 1e-9  # they meet at epsilon = 0


MECHANISMS = [
    (GaussianMechanism(3.0, 1.0, DELTA), np.zeros(5), 3.0 * 2.0**39),
    (EllipticalGaussianMechanism([1.0, 2.0], 1.0, DELTA), np.zeros(2), 2.0**40),
    (GaussianDataMechanism([1.0, 2.0], 4, 1.0, DELTA), np.zeros((4, 2)), 2.0**41),
    (GaussianDataMechanism([1.0, 2.0], 4, 1e-7, DELTA), np.zeros((4, 2)), None),
    (GaussianDataMechanism([1.0, 2.0], 4, 1.0, DELTA, neighbors="add_remove", center=3.0), np.zeros((4, 2)), 2.0**40),
]


@pytest.mark.parametrize(("mechanism", "X", "sensitivity"), MECHANISMS)
def test_real_noise_is_as_fine_and_as_large_as_it_is_charged(mechanism, X, sensitivity, silent):
    """The integer noise that `mechanism` draws for the data `X` is at least as large as its recorded cost requires.

    For the noise multiplier z, its standard deviation is at least about `sensitivity` z (1 + 2**-30), where
    `sensitivity` is how far the integers of neighboring data can differ, or None if this is not tested. The standard
    deviation is also at least 2**40 z or 2**55, whichever is smaller, so that the rounding of noise to integers costs
    little privacy. The fixture `silent` records the standard deviation and replaces the noise by zeros.
    """
    mechanism.release(X)
    ((std, size),) = silent
    z = mechanism.noise_multiplier
    assert std >= min(2.0**40 * z, 2.0**55)
    assert size / (4 * std**2) <= size * max(z**-2 * 2.0**-82, 2.0**-112)
    if sensitivity:
        assert std >= sensitivity * z * (1 + 0.99 * 2**-30)


@pytest.mark.slow
@pytest.mark.parametrize("s", [20, 60])
def test_discrete_noise_diverges_from_rounded_noise_by_no_more_than_is_charged(s):
    """The Kullback-Leibler divergence of rounded normal noise from discrete Gaussian noise is below 1 / (15 `s`**4).

    `s` is the standard deviation of both kinds of noise. The noise that is drawn is discrete, but its privacy is
    computed for rounded normal noise. By Pinsker's inequality, the divergence bounds the total variation distance of
    the two, and so the addition to delta. The part of delta that a budget keeps is at least this bound, and less than
    three times as much.
    """
    with mp.workdps(50):
        points = range(-15 * s, 15 * s + 1)
        whole = mp.nsum(lambda k: mp.exp(-(k**2) / mp.mpf(2 * s**2)), [-mp.inf, mp.inf])
        rounded = [mp.ncdf((k + mp.mpf(1) / 2) / s) - mp.ncdf((k - mp.mpf(1) / 2) / s) for k in points]
        discrete = [mp.exp(-(k**2) / mp.mpf(2 * s**2)) / whole for k in points]
        divergence = sum(r * mp.log(r / p) for r, p in zip(rounded, discrete, strict=True))
        assert 0 < divergence * 15 * s**4 < 1
    for epsilon in (0.01, 1.0, 8.0):
        total = gaussian(epsilon).noise_multiplier ** -2  # the total of mu**2, in 2**20 releases of 2**24 coordinates
        divergences = 2.0**24 * (2.0**-160 * total**2 + 2.0**20 * 2.0**-220) / 15
        reserve = Budget(epsilon=epsilon, delta=DELTA)._terms._reserve
        assert 1 <= reserve / ((1 + math.exp(epsilon)) * math.sqrt(divergences / 2)) < 3


# --- Sums -------------------------------------------------------------------------------------------------------------


def composed_delta(epsilon, z1, z2):
    """Return the delta at `epsilon` of two Gaussian releases with the noise multipliers `z1` and `z2`, by mpmath."""
    epsilon, z1, z2 = map(mp.mpf, (epsilon, z1, z2))

    def second(e):
        return mp.ncdf(1 / (2 * z2) - e * z2) - mp.exp(e) * mp.ncdf(-1 / (2 * z2) - e * z2)

    return mp.quad(lambda t: mp.npdf(t) * second(epsilon - 1 / (2 * z1**2) - t / z1), mp.linspace(-14, 14, 15))


@pytest.mark.parametrize(("first", "second"), [((0.3, 1e-6), (0.5, 1e-7)), ((2.0, 1e-5), (0.1, 1e-3))])
def test_two_gaussian_releases_have_the_exact_curve(first, second):
    """At the epsilon that a budget reports for two Gaussian releases, their exact joint delta is nearly the budget's.

    This exact delta is below the delta of the budget by at most a relative 1e-9, and never above it. `first` and
    `second` are the pairs (epsilon, delta) of the releases.
    """
    spent = charged([gaussian(*first), gaussian(*second)], epsilon=5, delta=DELTA)
    with mp.workdps(30):
        multipliers = [gaussian(*each).noise_multiplier for each in (first, second)]
        exact = composed_delta(spent.spent.epsilon, *multipliers)
        assert DELTA * (1 - 1e-9) <= exact <= DELTA
    assert spent.spent.delta == DELTA


@pytest.mark.parametrize("k", [1, 2, 7, 50])
def test_equal_gaussian_releases_compose_to_one(k):
    spent = charged([gaussian(0.05, 1e-8)] * k, epsilon=1, delta=DELTA)
    expected = gaussian_epsilon(DELTA, gaussian(0.05, 1e-8).noise_multiplier / math.sqrt(k))
    assert spent.rule == "gaussian"
    assert spent.spent.epsilon == pytest.approx(expected, rel=1e-10)
    assert spent.spent.epsilon >= expected * (1 - 1e-14)


@pytest.mark.slow
def test_exact_composition_grants_more_than_zcdp_and_that_more_than_adding_up():
    """Exact composition grants more equal Gaussian releases than zCDP, and zCDP more than the addition of epsilons.

    The composition rules "gaussian" and "planned" of a budget compose exactly, and the rule "basic" adds epsilons and
    deltas.
    """
    grants = [fill(Budget(epsilon=1, delta=DELTA, rule=rule), gaussian(0.125, 1e-8)) for rule in rules.RULES]
    assert grants[0] == grants[3] > grants[1] > grants[2] == 8


def best_order(rho, delta):
    """Return the epsilon for `rho`-zCDP and `delta` by Corollary 13 of Canonne, Kamath and Steinke (2020), in mpmath.

    The corollary gives an epsilon for each order alpha of the Rényi divergence, and the least one is returned.
    """
    rho, delta = mp.mpf(rho), mp.mpf(delta)

    def epsilon(log):
        a = 1 + mp.exp(log)
        return rho * a + (mp.log(1 / delta) - mp.log(a - 1) + a * mp.log1p(-1 / a)) / (a - 1)

    start = mp.log(mp.log(1 / delta) / rho) / 2
    return epsilon(mp.findroot(lambda u: mp.diff(epsilon, u), start))


@pytest.mark.parametrize("delta", [1e-300, 1e-12, DELTA])
@pytest.mark.parametrize("rho", [1e-12, 1e-6, 0.004, 0.3, 20.0, 1e6])
def test_zcdp_is_never_converted_to_less_than_the_truth_and_hardly_to_more(rho, delta):
    """The epsilon for a sum of zCDP costs is at least the exact one for `delta`, and at most a relative 1e-13 above it.

    The costs add up to about `rho`. The exact epsilon is that of the best order of the Rényi divergence, with 40
    digits.
    """
    mechanisms = [adaptive(rho / 2), LaplaceMechanism(1.0, math.sqrt(rho))]
    spent = charged(mechanisms, epsilon=1e80, delta=delta, rule="zcdp")
    total = sum(Fraction(charge.rho) for charge in spent.history)
    with mp.workdps(40):
        exact = max(best_order(mp.mpf(total.numerator) / total.denominator, delta), 0)
        assert exact <= spent.spent.epsilon <= exact * (1 + mp.mpf("1e-13"))


def test_a_sum_of_rho_is_not_rounded_down_before_it_is_converted(monkeypatch):
    """The rho that the rule "zcdp" converts to an epsilon is at least the exact sum of the costs, and hardly more."""
    asked = []
    monkeypatch.setattr(rules, "_zcdp_epsilon", lambda rho, delta: asked.append(rho) or 1.0)
    terms = rules.Terms(None, 9.0, DELTA, "replace_one", "zcdp")
    for several in np.random.default_rng(1).uniform(1e-3, 1, (60, 3)).tolist():
        terms._by_zcdp([rules.charge_of(adaptive(rho), "replace_one") for rho in several])
        exact = sum(map(Fraction, several))
        assert exact <= Fraction(asked[-1]) <= exact * (1 + Fraction(1, 1 << 51))


def test_sum_of_rho_is_that_of_opendp():
    """`Budget.spent` for three Gaussian mechanisms is equal to their total zCDP cost rho, as OpenDP computes it."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    mechanisms = [gaussian(e) for e in (0.1, 0.5, 2.0)]
    domain, metric = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    noises = [dp.m.make_gaussian(domain, metric, scale=m.noise_multiplier) for m in mechanisms]
    expected = dp.c.make_composition(noises).map(1)
    assert charged(mechanisms, rho=3.0).spent == pytest.approx(expected, rel=1e-14)


def test_basic_rule_adds_up():
    spent = charged([laplace(0.25), gaussian(0.5, 2.0**-22), laplace(0.125)], epsilon=1, delta=2.0**-20)
    assert spent.rule == "basic"
    assert spent.spent == Loss(0.875, 2.0**-22)
    assert spent.left == Loss(0.125, 2.0**-20 - 2.0**-22)


def test_what_is_left_is_rounded_down():
    spent = charged([laplace(0.1), gaussian(0.1, 1e-7)], epsilon=1, delta=DELTA)
    assert 0 < 1 - 2 * Fraction(0.1) - Fraction(spent.left.epsilon) < 2**-53
    assert 0 <= Fraction(DELTA) - Fraction(1e-7) - Fraction(spent.left.delta) < 2**-72


def test_planned_rule_adds_pure_epsilons_to_what_the_rest_has_together():
    """The rule "planned" adds the epsilons of releases with delta = 0 to the joint epsilon of all other releases.

    The joint epsilon is that of exact composition. If the epsilons of the releases with delta = 0 are small, no other
    composition rule of a budget gives a smaller total.
    """
    rest = [gaussian(0.2, 1e-7)] * 3
    exact = charged(rest, epsilon=1, delta=DELTA).spent.epsilon
    planned = charged([*rest, laplace(0.25)], epsilon=1, delta=DELTA, rule="planned").spent
    assert planned == (pytest.approx(exact + 0.25, rel=1e-14), DELTA)
    alone = {rule: charged([*rest, laplace(0.05)], epsilon=1, delta=DELTA, rule=rule).spent for rule in rules.RULES}
    assert alone["planned"] <= min(alone.values())


def test_the_least_of_the_rules_would_be_no_filter():
    """If the composition rule could be chosen after the first release, the true delta could be 1.7 times the budget's.

    So a budget fixes its rule before the first release. In the example, an adversary sees the outcome of a Gaussian
    release, and computes its privacy loss. Depending on this loss, the adversary then chooses a second release, which
    either the rule "gaussian" or the rule "basic" would grant.
    """
    first, whole = gaussian(0.1), gaussian(1.0)
    mu, rest = 1 / first.noise_multiplier, math.sqrt(whole.noise_multiplier**-2 - first.noise_multiplier**-2)
    t, step = np.linspace(-9, 9, 100_001, retstep=True)
    left = 1 - mu**2 / 2 - mu * t  # epsilon less the privacy loss of the first release
    again = ndtr(rest / 2 - left / rest) - np.exp(left) * ndtr(-rest / 2 - left / rest)
    truth = 1 / (1 + math.exp(-0.9))
    pure = truth * np.maximum(0, 1 - np.exp(left - 0.9)) + (1 - truth) * np.maximum(0, 1 - np.exp(left + 0.9))
    deltas = [np.sum(norm.pdf(t) * later) * step for later in (again, pure, np.maximum(again, pure))]
    assert deltas[0] == pytest.approx(DELTA, rel=1e-9)
    assert deltas[1] < DELTA
    assert deltas[2] > 1.7 * DELTA
    for rule in rules.RULES:
        kept = Budget(epsilon=1, delta=DELTA, rule=rule)
        kept.charge(first)
        granted = fill(kept, laplace(0.8999), most=1)
        assert granted == (rule in ("basic", "planned"))


@pytest.mark.slow
def test_one_mechanism_may_be_the_whole_budget_by_any_rule():
    for rule in (None, *rules.RULES):
        spent = charged([gaussian(1.0)], epsilon=1, delta=DELTA, rule=rule)
        assert spent.spent == Loss(1.0, DELTA)
        assert spent.left.epsilon == 0
        assert fill(spent, gaussian(1e-4)) == fill(spent, laplace(1e-4)) == 0
        assert fill(Budget(epsilon=1, delta=DELTA, rule=rule), gaussian(math.nextafter(1.0, 2.0))) == 0


@pytest.mark.slow
def test_adaptive_mechanism_of_the_whole_budget_fits():
    for epsilon, delta in [(1.0, 1e-6), (0.01, 1e-9), (10.0, 1e-3)]:
        spent = charged([adaptive(zcdp_rho(epsilon, delta))], epsilon=epsilon, delta=delta)
        assert spent.spent.epsilon == pytest.approx(epsilon, rel=1e-12)
        assert fill(spent, adaptive(1e-6)) == 0


def test_pure_releases_may_add_up_by_any_rule():
    """Under every composition rule, two releases with epsilon = 0.5 and delta = 0 fit into a total of epsilon = 1.

    After only one of the two releases, the rules "basic" and "planned" grant a Gaussian release with epsilon = 0.4, and
    the other rules refuse it.
    """
    for rule in rules.RULES:
        assert charged([laplace(0.5)] * 2, epsilon=1, delta=DELTA, rule=rule).spent == Loss(1.0, 0.0)
        spent = charged([laplace(0.5)], epsilon=1, delta=DELTA, rule=rule)
        granted = fill(spent, gaussian(0.4, 1e-7))
        assert granted == {"basic": 1, "planned": 1}.get(rule, 0)


@pytest.mark.parametrize(("total", "share"), [(1.0, 0.1), (0.3, 0.1), (0.49, 0.07), (1.0, 1 / 11), (3.99, 3.99 / 7)])
def test_decimal_shares_fill_the_total(total, share):
    """A budget grants k releases that each cost `share`, if k times `share` is `total` up to the rounding to doubles.

    For example, ten releases with the cost 0.1 fit into the total 1, although the exact sum of ten such doubles is
    slightly above 1. This holds for costs in zCDP (rho), and for epsilons with delta = 0.
    """
    k = round(total / share)
    assert fill(Budget(rho=total), adaptive(share)) == k
    assert fill(Budget(epsilon=total), laplace(share)) == k


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 12, 365])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (5.0, 1e-5), (1.0, 1e-12), (10.0, 1e-8)])
def test_equal_parts_fill_the_total(k, epsilon, delta):
    """A budget grants `k` equal Gaussian releases that together cost exactly its total, and not one more.

    The total is (`epsilon`, `delta`). If each epsilon is larger by a relative 1e-8, fewer than `k` are granted.
    """
    part = float(gaussian_epsilon(delta, math.sqrt(k) * gaussian(epsilon, delta).noise_multiplier))
    spent = Budget(epsilon=epsilon, delta=delta)
    assert spent._terms.grants((spent.charge(gaussian(part, delta)),) * (k - 1), spent.history[0])
    assert not spent._terms.grants(spent.history * k, spent.history[0])
    full = spent._terms.spent(spent.history * k)
    assert (full.epsilon, full.delta) == (pytest.approx(epsilon, rel=1e-12), delta)
    assert full.epsilon <= epsilon
    assert spent._terms.left(spent.history * k).epsilon == 0
    more = Budget(rho=1e3).charge(gaussian(part * (1 + 1e-8), delta))
    assert not spent._terms.grants((more,) * (k - 1), more)


@pytest.mark.parametrize("total", [(1.0, 1e-6), (10.0, 1e-8), (3.0, 1e-3)])
def test_equal_parts_of_the_noise_that_is_drawn_are_within_the_total(total, silent):
    """Twelve equal releases that use up a budget have together at most its delta, for the noise that they really draw.

    Their exact joint delta is computed with 40 digits and includes the cost of discrete noise. It is smaller than the
    delta of the budget by at most a relative 1e-7. `total` is the pair (epsilon, delta) of the budget. The fixture
    `silent` records the standard deviation of the noise.
    """
    epsilon, delta = total
    part = float(gaussian_epsilon(delta, math.sqrt(12) * gaussian(*total).noise_multiplier))
    GaussianDataMechanism([1.0, 2.0], 4, part, delta).release(np.zeros((4, 2)))
    ((std, _),) = silent
    with mp.workdps(40):
        z = mp.mpf(std) / 2**41 / mp.sqrt(12)
        exact = mp.ncdf(1 / (2 * z) - epsilon * z) - mp.exp(epsilon) * mp.ncdf(-1 / (2 * z) - epsilon * z)
        rounding = (1 + mp.exp(epsilon)) * 12 * 2 / (4 * mp.mpf(std) ** 2)
        assert delta * (1 - 1e-7) <= exact + rounding <= delta


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 40])
@pytest.mark.parametrize("rule", rules.RULES)
def test_what_is_split_is_granted_so_often(parts, rule):
    """A release is granted exactly `parts` times if it has the cost that `Budget.split(parts)` returns.

    Together, `parts` releases with this cost use up what is left of the budget. A release whose epsilon is larger by a
    relative 1e-6 is granted fewer times. The budget with this `rule` of composition is new, or has already granted one
    release.
    """
    for before in ([], [gaussian(0.3, 1e-7)]):
        spent = charged(before, epsilon=1, delta=DELTA, rule=rule)
        part = spent.split(parts)
        assert fill(charged(before, epsilon=1, delta=DELTA, rule=rule), gaussian(*part), parts + 1) == parts
        more = gaussian(part.epsilon * (1 + 1e-6), part.delta)
        assert fill(charged(before, epsilon=1, delta=DELTA, rule=rule), more, parts + 1) < parts


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3, 1000])
def test_a_part_of_rho_or_of_a_pure_epsilon(parts):
    """For budgets without a delta, a release is granted exactly `parts` times if it costs `Budget.split(parts)`.

    Together, `parts` releases with this cost use up what is left of the budget. The total of the budget is a rho or an
    epsilon. If the number of parts is not a positive integer, `split` raises an error.
    """
    for total, rho in ((Budget(rho=0.7), adaptive), (charged([adaptive(0.1)], rho=0.7), adaptive)):
        part, before = total.split(parts), total.spent
        assert total.left * (1 - 1e-15) <= parts * part <= total.left * (1 + 1e-15)
        assert fill(total, rho(part), parts + 1) == parts
        assert before + parts * part == pytest.approx(0.7)
    assert fill(Budget(epsilon=0.7), laplace(Budget(epsilon=0.7).split(parts).epsilon), parts + 1) == parts
    for wrong in (0, 1.5, "2", None):
        with pytest.raises((ValueError, TypeError), match="parts must be"):
            Budget(rho=1.0).split(wrong)


def test_a_double_too_much_is_refused():
    """A release is refused even if its cost exceeds what is left of the budget by no more than a rounding error.

    For a new budget, the cost is the next double above the total. For a budget that is partly spent, the cost is above
    what is left by a relative 1e-14.
    """
    assert fill(Budget(rho=0.3), adaptive(math.nextafter(0.3, 1))) == 0
    assert fill(Budget(epsilon=0.3), laplace(math.nextafter(0.3, 1))) == 0
    assert fill(charged([adaptive(0.2)], rho=0.3), adaptive(0.1 * (1 + 1e-14))) == 0


@pytest.mark.parametrize("rule", [None, "gaussian", "planned"])
def test_a_first_gaussian_release_may_not_exceed_the_total_by_a_rounding_error(rule):
    """The epsilon of a single release is compared as it is; only sums of several costs may exceed a total by 2**-51."""
    assert fill(Budget(epsilon=1, delta=DELTA, rule=rule), gaussian(math.nextafter(1.0, 2.0)), most=1) == 0
    assert fill(Budget(epsilon=1, delta=DELTA, rule=rule), gaussian(1.0), most=1) == 1


costs = st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=8)


@given(costs, st.floats(0.1, 2.0))
def test_never_more_than_the_total(rhos, total):
    spent = Budget(rho=total)
    for rho in rhos:
        left = spent.left
        granted = fill(spent, adaptive(rho), most=1)
        assert granted == (rho <= left) or abs(rho - left) <= 1e-15 * total
    used = sum(Fraction(charge.rho) for charge in spent.history)
    assert used <= Fraction(total) * (1 + Fraction(1, 1 << 51))
    assert used <= spent.spent or spent.spent == total
    assert spent.left <= max(Fraction(total) - used, 0)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0.01, 0.4), min_size=1, max_size=4), st.sampled_from(rules.RULES))
def test_what_is_left_is_granted_and_then_nothing(epsilons, rule):
    """A budget grants a Gaussian release with the (epsilon, delta) of `Budget.left`, and then refuses any other one.

    `rule` is the budget's composition rule. First the budget records a Gaussian release for each of the `epsilons`,
    unless this release costs too much.
    """
    spent = Budget(epsilon=1, delta=DELTA, rule=rule)
    for epsilon in epsilons:
        fill(spent, gaussian(epsilon, 1e-8), most=1)
    left = spent.left
    if left.epsilon > 0:
        spent.charge(gaussian(*left))
    assert spent.spent <= Loss(1.0, DELTA)
    assert fill(spent, gaussian(1e-3)) == 0


def test_order_does_not_matter():
    mechanisms = [gaussian(0.1), gaussian(0.4, 1e-8), laplace(0.01), gaussian(0.2)]
    for rule in rules.RULES:
        there, back = (charged(m, epsilon=2, delta=1e-5, rule=rule).spent for m in (mechanisms, mechanisms[::-1]))
        assert there == back


def test_delta_too_small_for_discrete_noise_is_counted_in_zcdp():
    """A budget chooses the composition rule "zcdp" if its delta is too small for the rule "gaussian".

    Because noise is drawn as integers, the rule "gaussian" keeps a part of delta that is proportional to 1 +
    exp(epsilon). In the example, the budget's delta is smaller than this part. Therefore a budget with the rule
    "gaussian" refuses two releases that a budget with the rule "zcdp" grants.
    """
    spent = charged([gaussian(1.0, 1e-12)], epsilon=40, delta=1e-12)
    assert spent.rule == "zcdp"
    spent = charged([gaussian(1.0, 1e-12)] * 2, epsilon=40, delta=1e-12, rule="zcdp")
    with pytest.raises(BudgetExceeded):
        charged([gaussian(1.0, 1e-12)] * 2, epsilon=40, delta=1e-12, rule="gaussian")


# --- Refusal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [{"rho": 0.01}, {"epsilon": 0.1, "delta": DELTA}], ids=str)
@pytest.mark.parametrize("mechanism", [laplace(2.0), gaussian(2.0), adaptive(2.0), *(m for m, *_ in MECHANISMS[1:3])])
def test_refused_before_data_are_read(mechanism, total, tmp_path):
    spent = Budget(tmp_path / "journal", **total)
    with pytest.raises(BudgetExceeded, match=type(mechanism).__name__) as refused:
        spent.release(mechanism, unread(mechanism))
    assert spent.history == ()
    assert refused.value.left == spent.left == (total.get("rho") or Loss(0.1, DELTA))
    assert refused.value.asked.mechanism == type(mechanism).__name__


RUN = [laplace(0.5), gaussian(0.5), adaptive(0.25), *(m for m, *_ in MECHANISMS[1:3])]


@pytest.mark.parametrize("mechanism", RUN)
def test_charged_before_data_are_read(mechanism, tmp_path):
    spent = Budget(tmp_path / "journal", rho=1.0)
    with pytest.raises(ReadError):
        spent.release(mechanism, unread(mechanism))
    assert [charge.mechanism for charge in Budget(tmp_path / "journal").history] == [type(mechanism).__name__]


PUBLIC = {  # mistakes that show without the values
    "a path": (MECHANISMS[2][0], "people.csv", TypeError),
    "nothing": (MECHANISMS[2][0], None, TypeError),
    "text": (MECHANISMS[2][0], np.full((4, 2), "a"), TypeError),
    "columns of text": (MECHANISMS[2][0], Unread(4, 2, dtype=object), TypeError),
    "a column too many": (MECHANISMS[2][0], Unread(4, 3), ValueError),
    "one axis": (MECHANISMS[2][0], Unread(4), ValueError),
    "a row too many": (MECHANISMS[2][0], Unread(5, 2), ValueError),
    "an entry too many": (MECHANISMS[1][0], Unread(3), ValueError),
    "too many entries": (MECHANISMS[0][0], Unread(1 << 24), ValueError),
    "a path for a number": (laplace(0.5), "1.0", TypeError),
    "an iterator": (adaptive(0.25), iter([np.zeros((20_000, 2))]), TypeError),
    "a row too few": (adaptive(0.25), Unread(19_999, 2), ValueError),
    "too little for what it does": (adaptive(5e-5), Unread(20_000, 2), ValueError),
}


@pytest.mark.parametrize("mistake", PUBLIC)
def test_a_mistake_that_anybody_may_see_costs_nothing(mistake, tmp_path):
    """A release that fails because of public facts, such as the type or the shape of its data, costs nothing.

    `mistake` is a key of PUBLIC, which has a mechanism, wrong data, and the error.
    """
    mechanism, X, error = PUBLIC[mistake]
    spent = Budget(tmp_path / "journal", rho=1.0)
    with pytest.raises(error):
        spent.release(mechanism, X)
    assert spent.history == ()


def test_a_mistake_that_only_the_values_show_is_charged():
    """If `Budget.release` fails because of values in the data, the release costs as much as a successful one.

    The reason is that the error reveals something about these values.
    """
    spent = Budget(rho=1.0)
    for X in (np.full((4, 2), np.nan), iter([np.zeros((4, 3))])):
        with pytest.raises(ValueError, match="must"):
            spent.release(MECHANISMS[2][0], X)
    assert len(spent.history) == 2


def test_the_entries_of_a_list_are_counted_after_the_charge(monkeypatch):
    monkeypatch.setattr(rules, "_ENTRIES", 4)
    spent = Budget(rho=1.0)
    for number, X in enumerate((np.zeros(4), [0.0] * 4)):
        with pytest.raises(ValueError, match=r"^X must have less than 4 entries, got 4$"):
            spent.release(gaussian(0.1), X)
        assert len(spent.history) == number


def test_a_list_of_rows_of_different_lengths_is_refused_as_without_a_budget():
    with pytest.raises(TypeError, match=r"^value must be a real number or an array"):
        Budget(rho=1.0).release(gaussian(0.1), [[1.0, 2.0], [3.0]])


def test_a_budget_takes_so_many_releases_and_no_more(monkeypatch):
    monkeypatch.setattr(rules, "_CHARGES", 2)
    for budget, mechanism in ((Budget(rho=1.0), adaptive(0.1)), (Budget(epsilon=1.0), laplace(0.1))):
        assert fill(budget, mechanism) == 2
        with pytest.raises(BudgetExceeded, match="a budget takes 2 releases and no more"):
            budget.charge(mechanism)


@pytest.mark.parametrize("total", [{"rho": 1.0}, {"epsilon": 1.0, "delta": DELTA, "rule": "zcdp"}])
def test_a_budget_is_not_split_into_more_parts_than_it_grants(total):
    spent = charged([gaussian(0.1, DELTA / 2)], **total)
    with pytest.raises(ValueError, match=r"^parts must be at most 1048575, .* got 1048576$"):
        spent.split(1 << 20)


def test_so_many_coordinates_are_not_charged():
    with pytest.raises(ValueError, match=r"^mechanism must have less than 16777216 coordinates, got 16777216$"):
        Budget(rho=1.0).charge(GaussianMechanism(1.0, 0.1, DELTA, d=1 << 24))


def test_refusal_says_what_was_asked_and_what_is_left():
    with pytest.raises(BudgetExceeded, match=r"asks for rho = 0.5, and 0.25 of the total rho = 0.5 is left") as refused:
        charged([adaptive(0.25), adaptive(0.5)], rho=0.5)
    assert (refused.value.asked.rho, refused.value.left) == (0.5, 0.25)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.left) == (str(refused.value), 0.25)
    for delta, kind in ((DELTA, "Gaussian"), (0.0, "Laplace")):
        message = rf"epsilon = 0.5, .* epsilon = 1.25, .*total is epsilon = 1.0,.* {kind}Mechanism of epsilon = 0.25"
        with pytest.raises(BudgetExceeded, match=message):
            charged([laplace(0.75), laplace(0.5)], epsilon=1, delta=delta)
    with pytest.raises(BudgetExceeded, match='"zcdp" and "planned" have a cost for AdaptiveDataMechanism'):
        charged([adaptive(0.01)], epsilon=1, delta=DELTA, rule="gaussian")
    for rule in ("zcdp", "planned"):
        charged([adaptive(0.01)], epsilon=1, delta=DELTA, rule=rule)


def test_releases_are_those_of_the_mechanism_and_charged_once():
    spent = Budget(rho=50.0)
    for mechanism, X, _ in MECHANISMS[:3]:
        release = spent.release(mechanism, X)
        assert not release.simulated
        assert release.estimate.shape == X.shape[-1:]
    release = spent.release(laplace(1.0), 3.0)
    assert abs(release.estimate - 3) < 50
    assert [charge.mechanism for charge in spent.history] == [
        *("GaussianMechanism", "EllipticalGaussianMechanism", "GaussianDataMechanism", "LaplaceMechanism")
    ]


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_budget_gives_no_simulation_of_private_data(on_disk, tmp_path):
    """An ordinary budget refuses a simulated release, one with a NumPy generator, and records no cost.

    Whoever knows the generator could subtract its noise and would have the exact sum. `on_disk` says whether the budget
    is in a file or in memory.
    """
    path, rng = tmp_path / "journal" if on_disk else None, np.random.default_rng(0)
    for spent in (Budget(path, rho=1.0), Budget(path, rho=1.0, simulation=False)):
        with pytest.raises(ValueError, match=r"rng must be left out: .*simulation=True"):
            spent.release(MECHANISMS[2][0], Unread(4, 2), rng=rng)
        with pytest.raises(TypeError, match="rng must be"):
            spent.release(MECHANISMS[2][0], Unread(4, 2), rng=1)
        assert (spent.simulation, spent.history) == (False, ())


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_rehearsal_is_charged_like_releases(on_disk, tmp_path):
    """A budget with simulation=True records the same costs for simulated releases as an ordinary budget for real ones.

    A simulated release is one with a NumPy generator. The budget refuses a release without a generator, and a release
    that costs too much. `on_disk` says whether the budget with simulation=True is in a file.
    """
    path, rng = tmp_path / "journal" if on_disk else None, np.random.default_rng(1)
    spent, earnest = Budget(path, rho=1.0, simulation=True), Budget(rho=1.0)
    for mechanism, X, _ in MECHANISMS[:3]:
        assert spent.release(mechanism, X, rng=rng).simulated
        earnest.charge(mechanism)
    assert (spent.simulation, spent.history) == (True, earnest.history)
    with pytest.raises(ValueError, match="rng must be given"):
        spent.release(MECHANISMS[2][0], Unread(4, 2))
    with pytest.raises(BudgetExceeded):
        spent.release(gaussian(9.0), Unread(3), rng=rng)


VALUES = np.random.default_rng(1).uniform(0, 100, 500)


def test_a_quantile_is_charged_and_is_one():
    """`Budget.quantile` returns a private quantile for each column, at a cost of rho = epsilon**2 / 8 for each.

    The cost is recorded before the values are read, and a quantile that costs too much is refused.
    """
    spent = Budget(rho=1.0)
    assert abs(spent.quantile(VALUES, 0.5, 0, 100, 1.0, 0.5) - np.median(VALUES)) < 15
    assert spent.quantile(np.column_stack([VALUES] * 3), 0.5, 0, 100, 1.0, 0.5).shape == (3,)
    assert [(charge.mechanism, charge.rho) for charge in spent.history] == [("secure_quantile", k / 8) for k in (1, 3)]
    assert [charge.epsilon for charge in spent.history] == [1.0, 3.0]
    pure = Budget(epsilon=2).charge(laplace(1.0)).mu_squared
    assert [charge.mu_squared for charge in spent.history] == [pure, pytest.approx(3 * pure, rel=1e-15)]
    with pytest.raises(BudgetExceeded, match="secure_quantile"):
        spent.quantile(Unread(500), 0.5, 0, 100, 3.0, 0.5)
    with pytest.raises(ReadError):
        spent.quantile(Unread(500), 0.5, 0, 100, 1.0, 0.5)
    assert len(spent.history) == 3
    rehearsal = Budget(epsilon=2.0, simulation=True)
    found = [rehearsal.quantile(VALUES, 0.5, 0, 100, 1.0, 0.5, rng=np.random.default_rng(3)) for _ in range(2)]
    assert found[0] == found[1]
    assert rehearsal.left.epsilon == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("values", (3.0, 0.5, 0, 100, 1.0, 0.5)),
        ("values", (np.empty((0, 2)), 0.5, 0, 100, 1.0, 0.5)),
        ("q", (VALUES, 1.5, 0, 100, 1.0, 0.5)),
        ("low", (VALUES, 0.5, np.nan, 100, 1.0, 0.5)),
        ("high", (VALUES, 0.5, 0, 0, 1.0, 0.5)),
        ("high", (VALUES, 0.5, 0, 100, 1.0, 1e-9)),
        ("epsilon", (VALUES, 0.5, 0, 100, 0.0, 0.5)),
        ("epsilon", (VALUES, 0.5, 0, 100, 1e-301, 0.5)),
        ("step", (VALUES, 0.5, 0, 100, 1.0, -1)),
    ],
)
def test_a_mistake_in_a_quantile_costs_nothing(name, arguments):
    spent = Budget(epsilon=9.0)
    with pytest.raises(ValueError, match=f"^{name}"):
        spent.quantile(*arguments)
    for text in (np.full(9, "a"), "values.csv", None):
        with pytest.raises(TypeError, match="values must be"):
            spent.quantile(text, 0.5, 0, 100, 1.0, 0.5)
    with pytest.raises(ValueError, match="neighbors"):
        Budget(epsilon=9.0, neighbors="add_remove").quantile(VALUES, 0.5, 0, 100, 1.0, 0.5)
    assert spent.history == ()


def test_neighbours_are_the_same_for_all():
    add_remove = GaussianDataMechanism([1.0], 9, 0.1, DELTA, neighbors="add_remove")
    replace_one = GaussianDataMechanism([1.0], 9, 0.1, DELTA)
    for good, bad, relation in [(replace_one, add_remove, "replace_one"), (add_remove, replace_one, "add_remove")]:
        spent = charged([good, laplace(0.1)], rho=1.0, neighbors=relation)
        with pytest.raises(ValueError, match=f'neighbors must be "{relation}"'):
            spent.charge(bad)
        assert len(spent.history) == 2
    with pytest.raises(ValueError, match='neighbors must be "add_remove"'):
        Budget(rho=1.0, neighbors="add_remove").charge(adaptive(0.1))


def test_only_mechanisms_that_are_known():
    class Cheaper(LaplaceMechanism):
        pass

    for wrong in (None, 0.1, "LaplaceMechanism", LaplaceMechanism, Cheaper(1.0, 1.0)):
        with pytest.raises(TypeError, match="mechanism must be"):
            Budget(rho=1.0).charge(wrong)


BAD = {
    **{"nan": np.nan, "inf": np.inf, "minus inf": -np.inf, "zero": 0, "minus one": -1, "string": "1", "bool": True},
    **{"complex": 1j, "array": np.ones((2, 2)), "huge": 1e308, "list": [1.0], "none": None, "object": object()},
}
GOOD = {name: {"rho": 0.5} for name in ("rho", "neighbors", "simulation")}
GOOD |= {name: {"epsilon": 1.0, "delta": DELTA} for name in ("epsilon", "delta", "rule")}
MEANT = {("simulation", "bool"), ("rho", "huge"), ("delta", "zero")}
MEANT |= {(name, "none") for name in ("delta", "neighbors", "rule", "simulation")}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", GOOD)
def test_bad_parameter_is_named(name, bad, tmp_path):
    arguments = {**GOOD[name], name: BAD[bad]}
    if (name, bad) in MEANT:
        assert Budget(**arguments).history == ()
        return
    with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b"):
        Budget(tmp_path / "journal", **arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "rho or epsilon must be given"),
        ({"rho": 1.0, "epsilon": 1.0}, "rho must be given alone"),
        ({"rho": 1.0, "delta": DELTA}, "rho must be given alone"),
        ({"rho": 1.0, "rule": "zcdp"}, "rule must be left out"),
        ({"delta": DELTA}, "delta must come with epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must"),
        ({"epsilon": 1.0, "delta": 1e-310}, "delta must"),
        ({"epsilon": 1.0, "rule": "zcdp"}, "rule must"),
        ({"rho": 1.0, "neighbors": "both"}, "neighbors must be one of replace_one, add_remove, got 'both'"),
        ({"epsilon": 1.0, "delta": DELTA, "rule": "best"}, "rule must be one of"),
    ],
)
def test_contradictory_totals_are_refused(arguments, message, tmp_path):
    for path in (None, tmp_path / "journal"):
        with pytest.raises(ValueError, match=message):
            Budget(path, **arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [3, True, 1.5, ["journal"]])
def test_path_is_a_path(path):
    with pytest.raises(TypeError, match="path"):
        Budget(path, rho=1.0)


def test_quantiles_cost_no_more_than_they_say_in_exact_arithmetic(monkeypatch):
    """The random choice of a private quantile has an exact epsilon of at most (1 - 2**-31) times the recorded epsilon.

    The function `secure_index` makes this choice. Its epsilon is smaller than the recorded one by this factor to allow
    for rounding errors when a budget adds up costs.
    """
    scales = []
    monkeypatch.setattr("egm._discrete.index", lambda gaps, scale: scales.append(scale) or 0)
    rng = np.random.default_rng(5)
    for epsilon in rng.uniform(1e-3, 80, 500).tolist():
        samplers.secure_index([1, 0], epsilon)
        assert Fraction(2) / Fraction(scales[-1]) <= Fraction(epsilon) * (1 - Fraction(1, 2**31))


def test_laplace_noise_costs_no_more_than_it_says_in_exact_arithmetic(monkeypatch):
    """The scale of integer Laplace noise is at least the l1-sensitivity over epsilon, without any rounding error.

    The sensitivity is that of the rounded value, in multiples of its unit. The rounding moves each entry by up to one.
    """
    scales = []
    monkeypatch.setattr(samplers, "secure_laplace", lambda scale, size: scales.append(scale) or [0] * size)
    for epsilon in np.random.default_rng(5).uniform(0.1, 2, 100).tolist():
        it = laplace(epsilon)
        it.release(np.zeros(3))
        assert (1 / Fraction(it._unit(3)) + 3) / Fraction(scales[-1]) <= Fraction(epsilon)


def test_what_a_list_of_values_holds_costs_the_same_whatever_it_is():
    """If `Budget.quantile` fails because of an entry of a list, such as None or a text, its full cost is recorded."""
    for values in ([1, 2, [3.0]], [[1.0], [2.0], [3.0]], [1, 2, None], [1, 2, "a"], [1, 2, float("nan")]):
        budget = Budget(epsilon=1.0)
        with pytest.raises((TypeError, ValueError)):
            budget.quantile(values, 0.5, 0, 10, 0.5, 1.0)
        assert budget.spent.epsilon == 0.5


def test_several_columns_are_never_released_for_the_price_of_one():
    """`Budget.quantile` and `Budget.release` refuse data that look like one column, but whose entries are arrays.

    The refusal costs nothing if the type of the data shows that the entries are arrays. It costs as much as a release
    if this is seen only when the values are read.
    """
    pl = pytest.importorskip("polars")
    X = np.ones((50, 4))

    class Claims:
        shape, dtype = (50,), X.dtype

        def __array__(self, dtype=None, copy=None):
            return X

        def __getitem__(self, place):
            return X[place]

    series = pl.Series(X.tolist(), dtype=pl.Array(pl.Float64, 4))
    for values, error, cost in ((series, TypeError, 0.0), (Claims(), ValueError, 0.5)):
        budget = Budget(epsilon=1.0)
        with pytest.raises(error, match=r"^values must be"):
            budget.quantile(values, 0.5, 0, 10, 0.5, 1.0)
        assert budget.spent.epsilon == cost
    for mechanism, value in (
        (GaussianMechanism(1.0, 0.1, 1e-7), series),
        (GaussianDataMechanism([1.0], 50, 0.1, 1e-7), pl.DataFrame({"a": series})),
    ):
        budget = Budget(epsilon=1.0, delta=1e-6)
        with pytest.raises(TypeError):
            budget.release(mechanism, value)
        assert not budget.history


def test_a_column_of_arrow_is_a_column_for_a_quantile():
    pa, budget = pytest.importorskip("pyarrow"), Budget(epsilon=1.0)
    assert 0 <= budget.quantile(pa.array([1.0, 2.0, 3.0]), 0.5, 0, 10, 0.5, 1.0) <= 10
    assert budget.spent.epsilon == 0.5


def test_laplace_noise_that_is_too_large_costs_nothing():
    budget = Budget(epsilon=1.0)
    with pytest.raises(ValueError, match="noise must be small enough for 64-bit integers"):
        budget.release(LaplaceMechanism(1.0, 1e-12), 5.0)
    assert budget.history == ()


def test_noise_that_rounding_forbids_costs_nothing():
    """A release whose discrete noise would add too much to delta raises a ValueError, and its cost is not recorded.

    Whether the error is raised depends on public parameters only, so the error reveals nothing about the data.
    """
    data = np.zeros((4, 2))
    for mechanism, X in [
        (GaussianMechanism(1.0, 1.0, 1e-300), 0.0),
        (EllipticalGaussianMechanism([1.0, 2.0], 1.0, 1e-300), [0.0, 0.0]),
        (GaussianDataMechanism([1.0, 1.0], 4, 1.0, 1e-300), data),
        (GaussianDataMechanism([1.0, 1.0], 4, 40.0, 1e-6), data),
    ]:
        budget = Budget(epsilon=100.0, delta=0.5)
        with pytest.raises(ValueError, match="integer noise would add"):
            budget.release(mechanism, X)
        assert budget.history == ()
