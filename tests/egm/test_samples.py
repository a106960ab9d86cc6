"""Test the cost of releases from Poisson samples, and the distribution of such samples.

A Poisson sample takes each row, or each person, independently with the same probability. No recorded cost is below the
truth, which integrals or dp-accounting give. A sample has the distribution that the cost assumes, in every form that
data may have.
"""

import hashlib
import itertools
import json
import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from fractions import Fraction

import dp_accounting
import mpmath as mp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from egm import GaussianDataMechanism, GaussianMechanism, LaplaceMechanism, files, samplers
from egm._budget import amplified, drawn, rules
from egm._budget.amplified import Steps, amplified_epsilon, composed_epsilon
from egm.budget import Budget, BudgetExceeded, JournalError
from egm.calibration import analytic_noise_multiplier, gaussian_delta, gaussian_epsilon
from egm.mechanisms import GroupedDataMechanism
from tests.conftest import slow
from tests.egm.doubles import Unread, adaptive

Z, Q, STEPS, DELTA = 1.1, 256 / 60_000, 1000, 1e-5  # the setting of the tutorials on DP-SGD for the digits of MNIST
PLANNED = {"neighbors": "add_remove", "rule": "planned"}


def budget(path=None, **terms):
    """Return a Budget kept in `path`, with epsilon 1, delta DELTA and "add_remove" neighbors, changed by `terms`."""
    return Budget(path, **{"epsilon": 1.0, "delta": DELTA, "neighbors": "add_remove", **terms})


def composed(*steps, delta=DELTA, mu_squared=0.0, private=(), rho=None):
    """Return the epsilon for `delta` of releases from Poisson samples, together with other releases.

    Each of the `steps` is a tuple (z, q, number) for releases from samples: noise multiplier, sampling probability and
    number of releases. Three arguments describe the other releases: `mu_squared` is the sum of z**-2 over those with
    Gaussian noise, `private` has a pair (epsilon, delta) for each of the rest, and `rho` is the zCDP cost of all of
    them (by default, that of the Gaussian noise).
    """
    parts = tuple(Steps(z**-2, q, number) for z, q, number in steps)
    return composed_epsilon(parts, mu_squared, private, mu_squared / 2 if rho is None else rho, delta)


# --- Costs: one release -----------------------------------------------------------------------------------------------


def hockey_stick(epsilon, z, q, added):
    """Return the exact delta at `epsilon` for the sum of a Poisson sample of the rows, plus Gaussian noise, by mpmath.

    `z` is the noise multiplier, and `q` the sampling probability. The delta is the integral of the positive part of
    p - exp(epsilon) p', where p is the density of the release if a certain person has a row, and p' if the person
    has none. If `added` is true, p and p' are exchanged.
    """
    grow = mp.exp(epsilon)

    def tail(x, mean):
        return mp.erfc((x - mean) / (z * mp.sqrt(2))) / 2

    if added:  # 1 - grow (1 - q + q r) > 0 for a likelihood ratio r below a point
        ratio = (1 / grow - (1 - q)) / q
        if ratio <= 0:
            return mp.mpf(0)
        x = z**2 * mp.log(ratio) + mp.mpf(1) / 2
        return (1 - tail(x, 0)) * (1 - grow * (1 - q)) - grow * q * (1 - tail(x, 1))
    ratio = (grow - (1 - q)) / q
    if ratio <= 0:  # for a negative epsilon: the integrand is positive everywhere
        return 1 - grow
    x = z**2 * mp.log(ratio) + mp.mpf(1) / 2
    return (1 - q - grow) * tail(x, 0) + q * tail(x, 1)


def test_the_closed_form_is_the_integral():
    """The closed form in `hockey_stick` agrees with an integral for the delta of one noisy sum from a Poisson sample.

    It does so to a relative 1e-4, whether a person is added or removed.
    """
    x = np.linspace(-9, 10, 100_001)
    for epsilon, z, q in [(0.05, 1.1, 0.1), (0.3, 0.8, 0.5), (1.0, 0.5, 0.9), (-0.02, 1.1, 0.1)]:
        plain, moved = stats.norm.pdf(x, 0, z), stats.norm.pdf(x, 1, z)
        mixture = (1 - q) * plain + q * moved
        for added, one, other in ((False, mixture, plain), (True, plain, mixture)):
            integral = np.trapezoid(np.maximum(one - math.exp(epsilon) * other, 0), x)
            assert float(hockey_stick(epsilon, z, q, added)) == pytest.approx(integral, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize(("z", "q"), [(1.1, Q), (1.1, 0.3), (0.4, 0.05), (5.0, 0.9), (3.0, 1e-5)])
def test_one_release_costs_no_less_than_the_truth_and_hardly_more(z, q, delta):
    """The computed epsilon of one release from a sample is at least the exact epsilon for `delta`, and hardly larger.

    It is larger by at most 1 percent plus 1e-4; for `delta` = 1e-10 this is not tested. `z` is the noise
    multiplier, and `q` the sampling probability.
    """
    epsilon = composed((z, q, 1), delta=delta)
    with mp.workdps(40):
        truth = [hockey_stick(mp.mpf(epsilon), mp.mpf(z), mp.mpf(q), added) for added in (False, True)]
        assert max(truth) <= delta
        lower = max(0.99 * epsilon - 1e-4, 0)
        below = max(hockey_stick(mp.mpf(lower), mp.mpf(z), mp.mpf(q), added) for added in (False, True))
        assert lower == 0 or delta == 1e-10 or below > delta


def two_releases(epsilon, z, q, added):
    """Return the exact delta at `epsilon` of two releases from samples, by an integral over the first release's result.

    `z` is the noise multiplier, and `q` the sampling probability. The delta compares the data with a certain person
    to the data without this person, or the other way round if `added` is true.
    """
    z, q = mp.mpf(z), mp.mpf(q)

    def of_first(x):
        plain, moved = mp.npdf(x, 0, z), mp.npdf(x, 1, z)
        mixture = (1 - q) * plain + q * moved
        loss = mp.log(mixture / plain) * (-1 if added else 1)
        left = epsilon - loss
        return (plain if added else mixture) * hockey_stick(left, z, q, added)

    return mp.quad(of_first, np.linspace(float(-12 * z), float(12 * z + 1), 60).tolist())


@pytest.mark.slow
@pytest.mark.parametrize(("z", "q"), [(1.1, 0.05), (0.7, 0.4), (3.0, 0.2)])
def test_two_releases_cost_no_less_than_the_truth_and_hardly_more(z, q):
    """At the epsilon that egm computes for two releases from samples, their exact delta is nearly the demanded 1e-6.

    The exact delta is between 0.97e-6 and 1e-6. `z` is the noise multiplier, and `q` the sampling probability.
    """
    delta = 1e-6
    epsilon = composed((z, q, 2), delta=delta)
    truth = max(two_releases(mp.mpf(epsilon), z, q, added) for added in (False, True))
    assert 0.97 * delta <= truth <= delta


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 1.000001, 5.0, 50.0, 1e4])
@pytest.mark.parametrize("q", [1e-12, 1e-3, 0.5, 1 - 1e-9])
def test_amplification_has_its_closed_form(epsilon, q):
    """A release with the given `epsilon` on all rows has the epsilon log(1 + q (exp(epsilon) - 1)) on a sample.

    `q` is the sampling probability. The computed epsilon is rounded up by at most a relative 1e-11.
    """
    with mp.workdps(50):
        truth = mp.log1p(mp.mpf(q) * mp.expm1(mp.mpf(epsilon)))
        found = mp.mpf(amplified_epsilon(epsilon, q))
        assert truth <= found <= truth * (1 + mp.mpf(10) ** -11)


def test_amplification_of_a_gaussian_release_is_no_less_than_the_truth():
    """The (epsilon, delta) that a budget records for a Gaussian mechanism on a sample agrees with the exact delta.

    At the recorded epsilon, the exact delta is at most the recorded one, and at least 0.999 times the recorded one.
    """
    for epsilon, delta, q in [(1.0, 1e-6, 0.1), (0.2, 1e-3, 0.5), (3.0, 1e-9, 0.01)]:
        mechanism = GaussianMechanism(1.0, epsilon, delta)
        charge = budget(epsilon=10.0, delta=0.1).charge(mechanism, sampling_probability=q)
        z = mp.mpf(mechanism.noise_multiplier)
        truth = [hockey_stick(mp.mpf(charge.epsilon), z, mp.mpf(q), added) for added in (False, True)]
        assert 0.999 * charge.delta < max(truth) <= charge.delta * (1 + 1e-9)


def test_the_delta_of_a_sample_is_never_rounded_down():
    mechanism = GaussianMechanism(1.0, 0.1, 1e-6)
    for q in np.random.default_rng(1).uniform(0, 1, 40).tolist():
        charge = budget().charge(mechanism, sampling_probability=q)
        exact = Fraction(q) * Fraction(1e-6)
        assert exact <= Fraction(charge.delta) <= exact * (1 + Fraction(1, 1 << 51))


def test_noise_multipliers_of_sums_are_never_rounded_up(monkeypatch):
    """Where a cost is computed from the noise multiplier of one mechanism in place of several, it is never too large.

    The square of the multiplier, times the sum of mu**2 of all releases, is at most 1 in exact arithmetic. It
    is used for steps without sampling, by the rule "gaussian", and in each composition by dp-accounting; in the last
    case, the mu**2 of all equal steps together is also not below that of their charge. `monkeypatch` records it.
    """
    asked, own = [], gaussian_epsilon
    for name in ("gaussian_epsilon", "_gaussian_epsilon"):
        monkeypatch.setattr(rules, name, lambda delta, z: asked.append(z) or own(delta, z))
    monkeypatch.setattr(rules, "composed_epsilon", lambda steps, *rest: asked.append(steps) or 0.1)
    terms = rules.Terms(None, 5.0, DELTA, "add_remove", "planned")
    for z in np.random.default_rng(2).uniform(0.5, 9, 60).tolist():
        charge = rules.steps_charge(z, 1.0, 7, DELTA, DELTA, "add_remove")
        assert Fraction(asked[-1]) ** 2 * 7 <= Fraction(z) ** 2
        terms._by_gaussian((charge,) * 3, 0.0)
        assert Fraction(asked[-1]) ** 2 * 3 * Fraction(charge.mu_squared) <= 1
        assert Fraction(amplified._noise_multiplier(charge.mu_squared)) ** 2 * Fraction(charge.mu_squared) <= 1
        charge = rules.steps_charge(z, 0.5, 7, DELTA, DELTA, "add_remove")
        terms._by_privacy_loss((charge,))
        ((square, _, number),) = asked[-1]
        assert Fraction(square) * number >= Fraction(charge.mu_squared)


# --- Costs: many releases ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_training_costs_what_dp_accounting_says():
    """The cost of 1000 steps on Poisson samples of 256 of 60 000 rows is at most 0.002 above that of dp-accounting.

    A step is the release of a noisy sum, and 256 is the mean size of a sample. The cost is the epsilon for the noise
    multiplier 1.1 and delta = `DELTA`. It is at least a lower bound that dp-accounting computes, and at most its upper
    bound, 0.5987, plus 0.002. By Rényi divergences, dp-accounting would find 0.889.
    """
    event = dp_accounting.PoissonSampledDpEvent(Q, dp_accounting.GaussianDpEvent(Z))
    event = dp_accounting.SelfComposedDpEvent(event, STEPS)
    assert dp_accounting.rdp.RdpAccountant().compose(event).get_epsilon(DELTA) == pytest.approx(0.889, abs=1e-3)
    fine = dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(DELTA)
    assert fine == pytest.approx(0.5987, abs=1e-4)
    low = pld.from_gaussian_mechanism(
        Z, sampling_prob=Q, pessimistic_estimate=False, use_connect_dots=False, value_discretization_interval=1e-5
    )
    truth = low.self_compose(STEPS).get_epsilon_for_delta(DELTA)
    charge = budget().charge_steps(Z, Q, STEPS)
    assert truth <= charge.epsilon <= fine + 0.002
    assert (charge.delta, charge.sampling_probability, charge.count) == (DELTA, Q, STEPS)


@pytest.mark.parametrize(
    ("z", "number", "delta", "excess"),
    [(2.0, 10, 1e-5, 0.01), (30.0, 1000, 1e-7, 0.01), *slow((300.0, 100_000, 1e-5, 0.03))],
)
def test_rounding_errors_are_covered(z, number, delta, excess):
    """If nearly everybody is in each sample, releases cost about as much as without sampling, which is known exactly.

    The computed epsilon for `delta` is at least (1 - 1e-6) times the exact one without sampling. It may be larger than
    the exact one, as an allowance for rounding errors, by at most a relative `excess`. `z` is the noise multiplier, and
    `number` the number of releases.
    """
    exact = float(gaussian_epsilon(delta, z / math.sqrt(number)))
    found = composed((z, 1 - 1e-9, number), delta=delta)
    assert exact * (1 - 1e-6) <= found <= (1 + excess) * exact


def test_rounding_errors_of_the_accountant_have_their_share(monkeypatch):
    """The cost of releases from samples is computed for a smaller delta and larger Rényi divergences than demanded.

    The differences allow for the rounding errors of dp-accounting, which grow with the number of releases.
    """
    law, number, q, asked, events = pld.PrivacyLossDistribution, 1000, 1e-3, [], []
    own, event = law.get_epsilon_for_delta, dp_accounting.ZCDpEvent

    def spied(total, delta):
        asked.append((2 * max(total._pmf_remove.size, total._pmf_add.size), delta))
        return own(total, delta)

    monkeypatch.setattr(law, "get_epsilon_for_delta", spied)
    monkeypatch.setattr(dp_accounting, "ZCDpEvent", lambda **given: events.append(given["xi"]) or event(**given))
    composed_epsilon.__wrapped__((Steps(1 / 9, q, number),), 0.0, (), 0.0, DELTA)
    ((points, delta),), (xi,) = asked, events
    assert DELTA / 2 < delta <= DELTA - number * 2.0**-53 * 8 * math.log2(points) * math.sqrt(points)
    assert xi >= number * 4e-12 * q


def test_steps_are_composed_with_no_more_noise_than_declared(monkeypatch):
    """The mu**2 of a step that `charge_steps` composes is at least 1 / z**2 in exact arithmetic, and hardly more."""
    asked = []
    monkeypatch.setattr("egm._budget.rules.composed_epsilon", lambda steps, *_: asked.extend(steps) or 0.1)
    for z in np.random.default_rng(4).uniform(0.5, 9, 60).tolist():
        budget().charge_steps(z, 0.5, 7)
        exact = 1 / Fraction(z) ** 2
        assert exact <= Fraction(asked[-1].mu_squared) <= exact * (1 + Fraction(1, 1 << 51))
        assert asked[-1][1:] == (0.5, 7)


def test_a_delta_that_rounding_errors_could_reach_has_no_cost_by_the_grid(monkeypatch):
    """The privacy loss on a grid gives no finite epsilon if the bound of its rounding errors is over half of delta."""
    asked, law, own = [], pld.PrivacyLossDistribution, pld.PrivacyLossDistribution.get_epsilon_for_delta
    monkeypatch.setattr(law, "get_epsilon_for_delta", lambda total, delta: asked.append(delta) or own(total, delta))
    monkeypatch.setattr("egm._budget.amplified._by_renyi", lambda *_: math.inf)

    def by_the_grid(delta):
        return composed_epsilon.__wrapped__((Steps(1 / 9, 1e-3, 1000),), 0.0, (), 0.0, delta)

    assert by_the_grid(DELTA) < math.inf
    rounding = DELTA - asked[-1]
    assert by_the_grid(2.01 * rounding) < math.inf
    assert by_the_grid(1.99 * rounding) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 1e-12])
def test_the_cost_grows_with_probability_steps_and_less_noise(delta):
    for cost in (
        [composed((1.1, q, 100), delta=delta) for q in (1e-4, 1e-3, 0.01, 0.1, 0.5, 0.99)],
        [composed((1.1, 0.01, number), delta=delta) for number in (1, 2, 10, 100, 1000, 10_000)],
        [composed((z, 0.01, 100), delta=delta) for z in (10.0, 3.0, 1.0, 0.5, 0.3)],
    ):
        assert np.all(np.diff(cost) > 0)


def test_equal_steps_cost_the_same_in_one_charge_and_in_several():
    one, several = budget(**PLANNED), budget(**PLANNED)
    one.charge_steps(1.0, 0.01, 4)
    for number in (1, 2, 1):
        several.charge_steps(1.0, 0.01, number)
    assert several.spent == pytest.approx(one.spent, rel=1e-12)


def test_a_probability_of_one_is_the_charge_of_all_rows():
    """With the sampling probability 1, one or many releases from samples cost what they cost without sampling."""
    for mechanism in (
        GaussianMechanism(1.0, 0.3, 1e-6),
        LaplaceMechanism(1.0, 0.2),
        GaussianDataMechanism([1.0, 2.0], 100, 0.3, 1e-6, neighbors="add_remove"),
    ):
        plain, whole = budget().charge(mechanism), budget().charge(mechanism, sampling_probability=1)
        for name in ("rho", "mu_squared", "epsilon", "delta"):
            assert getattr(whole, name) == getattr(plain, name)
    made = budget()
    charge = made.charge_steps(40.0, 1.0, 100)
    assert charge.epsilon == pytest.approx(gaussian_epsilon(DELTA, 4.0), rel=1e-9)
    assert made.rule == "gaussian"
    assert gaussian_delta(made.spent.epsilon, 4.0) <= DELTA


@pytest.mark.parametrize("rule", ["gaussian", "planned"])
def test_steps_with_noise_of_the_caller_stay_within_the_total(rule):
    """A budget refuses steps whose noise multiplier is too small for the total, even if only by the factor 1 - 1e-10.

    A step is a release to which the caller adds the noise, with exactly the stated multiplier. After 60 steps, another
    40 are refused. If the multiplier is 1 + 1e-10 times the necessary one, they are granted. (A mechanism of egm would
    be granted even with the smaller multiplier, because its noise is slightly larger than stated.) mpmath computes the
    delta of all steps together. `rule` is the composition rule of the budget.
    """
    enough = 10 * float(analytic_noise_multiplier(1.0, DELTA))
    for factor, fits in ((1 - 1e-10, False), (1 + 1e-10, True)):
        z = enough * factor
        with mp.workdps(40):
            total = mp.mpf(z) / 10
            above, below = (mp.ncdf(sign / (2 * total) - total) for sign in (1, -1))
            assert (above - mp.exp(1) * below <= mp.mpf(DELTA)) == fits
        spent = budget(rule=rule)
        spent.charge_steps(z, 1.0, 60)
        if fits:
            spent.charge_steps(z, 1.0, 40)
        else:
            with pytest.raises(BudgetExceeded):
                spent.charge_steps(z, 1.0, 40)


@pytest.mark.slow
def test_a_plan_composes_samples_with_other_releases():
    """By the rule "planned", releases from samples and other releases cost less together than added up separately.

    "planned" is a composition rule of budgets. All releases together cost more than those from samples alone, and more
    than the others alone. A release from a sample of hardly any rows adds at most 1 % to the cost of a Gaussian
    release.
    """
    steps, others = (1.1, 0.01, 100), {"mu_squared": 0.01}
    alone, noise = composed(steps), float(gaussian_epsilon(DELTA, 10.0))
    together = composed(steps, **others)
    assert max(alone, noise) < together < alone + noise
    assert noise <= composed((10.0, 1e-9, 1), **others) <= noise * 1.01
    private = composed(steps, private=((0.1, 0.0),), rho=0.005)
    assert alone < private <= alone + 0.1 + 1e-3
    spent = budget(**PLANNED)
    spent.charge_steps(*steps)
    spent.charge(GaussianMechanism(1.0, 0.1, 1e-6))
    spent.charge(LaplaceMechanism(1.0, 0.05))
    assert alone < spent.spent.epsilon < alone + 0.15
    left = spent.left
    spent.charge(GaussianMechanism(1.0, left.epsilon, left.delta))


@pytest.mark.parametrize(
    ("mechanism", "known"),
    [
        (adaptive(0.05, neighbors="add_remove"), {"mu_squared": math.inf, "rho": 0.05}),
        (LaplaceMechanism(1.0, 0.5), {"private": ((0.5, 0.0),), "rho": 0.125}),
        (GaussianMechanism(1.0, 0.5, 1e-9, noise="l2", d=3), {"private": ((0.5, 1e-9),), "rho": math.inf}),
    ],
    ids=["adaptive", "Laplace", "l2"],
)
def test_a_plan_counts_a_mechanism_by_what_is_known_of_it(mechanism, known):
    """Under the rule "planned", the cost of every `mechanism` is composed with those of releases from samples.

    Of an AdaptiveDataMechanism, only a zCDP cost is known, so Rényi divergences are used. Of a mechanism with Laplace
    noise or l2 noise, the epsilon and the delta are known. The total epsilon is finite, and clearly larger than without
    the mechanism. `known` has the arguments with which `composed` finds the same total.
    """
    spent = budget(epsilon=3.0, **PLANNED)
    spent.charge_steps(Z, Q, 100)
    alone = spent.spent.epsilon
    spent.charge(mechanism)
    assert alone + 0.1 < spent.spent.epsilon < 3.0
    assert composed((Z, Q, 100), **known) == pytest.approx(spent.spent.epsilon, rel=1e-9)


@pytest.mark.parametrize("private", [((0.5, 0.0),) * 2, ((0.3, 0.0), (0.2, 2e-6), (0.4, 0.0))])
def test_each_of_several_private_releases_counts_beside_samples(private):
    """If a release from a sample costs nearly nothing, the other releases cost what they cost without it, all together.

    Of these others, only a pair (epsilon, delta) each is known. For releases with such pairs, the exact delta at an
    epsilon is known (Kairouz, Oh and Viswanath 2015): a release without its delta reveals one of two neighbors by an
    answer that is right with the probability e / (1 + e), where e is exp(epsilon). At the computed epsilon the exact
    delta is at most DELTA, and at an epsilon that is smaller by 0.01 it is larger.
    """
    epsilon, exact = composed((30.0, 1e-6, 1), private=private, rho=math.inf), []
    for at in (epsilon, epsilon - 0.01):
        pure = mp.mpf(0)
        for signs in itertools.product((1, -1), repeat=len(private)):
            loss = sum(sign * own for sign, (own, _) in zip(signs, private, strict=True))
            share = mp.mpf(1)
            for sign, (own, _) in zip(signs, private, strict=True):
                share /= 1 + mp.exp(-sign * own)
            pure += share * max(1 - mp.exp(at - loss), 0)
        exact.append(1 - (1 - pure) * math.prod(1 - own for _, own in private))
    assert exact[0] <= DELTA < exact[1]


def test_a_plan_keeps_a_part_of_delta_for_integer_noise():
    """Under the rule "planned", releases from samples are refused if integer noise could add over half of delta.

    Noise that is drawn as integers adds at most (2**-70 k / z**2 + 2**-90) (1 + e) to delta for epsilon = 1, where k is
    the number of releases, and z is the noise multiplier of each. Here k is 20 and z is 5.
    """
    needed = (2.0**-70 * 20 / 5**2 + 2.0**-90) * (1 + math.e)
    for factor, granted in ((2.01, True), (1.99, False)):
        spent = budget(delta=factor * needed, **PLANNED)
        half = spent.charge_steps(5.0, 0.01, 10)
        assert spent._terms.grants((half,), half) == granted


@pytest.mark.parametrize(
    "terms", [{"rule": "gaussian"}, {"rule": "zcdp"}, {"epsilon": None, "delta": None, "rho": 1.0}]
)
def test_other_rules_count_a_sample_like_all_rows_and_say_so(terms):
    """All composition rules but "basic" and "planned" count a release from a sample like one from all rows.

    `terms` choose such a rule. If a release from a sample is refused, the error says that only "basic" and "planned"
    take the sampling into account.
    """
    mechanism = GaussianMechanism(1.0, 0.5, 1e-6)
    sampled, plain = budget(**terms), budget(**terms)
    for _ in range(2):
        sampled.charge(mechanism, sampling_probability=0.1)
        plain.charge(mechanism)
    assert sampled.spent == plain.spent
    with pytest.raises(BudgetExceeded, match='only by the rules "basic" and "planned"'):
        sampled.charge_steps(0.5, 0.1, 10)
    assert len(sampled.history) == 2


def test_the_first_charge_for_a_sample_makes_the_rule_basic():
    """A budget without a composition rule takes the rule "basic" at the first release from a sample.

    By this rule, the epsilons and the deltas of the releases are added.
    """
    spent = budget()
    spent.charge(GaussianMechanism(1.0, 1.0, 1e-6), sampling_probability=0.1)
    spent.charge_steps(2.0, 0.001, 100, delta=1e-6)
    first, second = spent.history
    assert spent.rule == "basic"
    assert spent.spent.epsilon == pytest.approx(first.epsilon + second.epsilon)
    assert spent.spent.delta == pytest.approx(1e-7 + 1e-6)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        *(((Z, q, 10), ValueError) for q in (0.0, 1.5, math.nan, -0.1, [0.1, 0.2])),
        *(((Z, q, 10), TypeError) for q in (None, "0.1")),
        *(((Z, 0.1, number), ValueError) for number in (0, 1.5, math.inf, math.nan, np.ones(3), 2**20 + 1)),
        ((Z, 0.1, lambda: 3), TypeError),
        *(((z, 0.1, 10), ValueError) for z in (0.0, math.nan, math.inf)),
    ],
)
def test_bad_steps_cost_nothing(arguments, error, tmp_path):
    made = budget(tmp_path / "journal", epsilon=100.0)
    with pytest.raises(error):
        made.charge_steps(*arguments)
    assert made.history == ()


@pytest.mark.parametrize("probability", [0, 1.01, math.nan, -1, 1e-13])
def test_a_bad_probability_costs_nothing_and_reads_nothing(probability, tmp_path):
    mechanism = GaussianDataMechanism([1.0], 10, 1.0, 1e-6, neighbors="add_remove")
    made = budget(tmp_path / "journal", epsilon=100.0)
    for call in (
        lambda: made.charge(mechanism, sampling_probability=probability),
        lambda: made.release(mechanism, Unread(4, 1), sampling_probability=probability),
    ):
        with pytest.raises(ValueError, match="sampling_probability must "):
            call()
    assert made.history == ()


def test_replacement_is_refused_by_name():
    """A "replace_one" budget raises a ValueError for samples, an "add_remove" one for "replace_one" mechanisms."""
    mechanism = GaussianDataMechanism([1.0], 10, 1.0, 1e-6)
    made = Budget(epsilon=100.0, delta=DELTA)
    for call in (
        lambda: made.charge(mechanism, sampling_probability=0.1),
        lambda: made.release(mechanism, Unread(4, 1), sampling_probability=0.1),
        lambda: made.charge_steps(Z, Q, 10),
    ):
        with pytest.raises(ValueError, match='neighbors must be "add_remove" for releases from samples'):
            call()
    other = budget(epsilon=100.0)
    with pytest.raises(ValueError, match='neighbors must be "add_remove" for this budget'):
        other.release(mechanism, Unread(4, 1), sampling_probability=0.1)
    assert made.history == other.history == ()


def test_mechanisms_without_rows_or_epsilon_are_refused():
    made = budget(epsilon=100.0)
    with pytest.raises(ValueError, match="AdaptiveDataMechanism, which has no epsilon"):
        made.charge(adaptive(0.05, neighbors="add_remove"), sampling_probability=0.1)
    with pytest.raises(TypeError, match="not with GaussianMechanism"):
        made.release(GaussianMechanism(1.0, 1.0, 1e-6), 3.0, sampling_probability=0.1)
    with pytest.raises(ValueError, match="delta must be > 0"):
        Budget(epsilon=1.0, neighbors="add_remove").charge_steps(Z, Q, 10)
    assert made.history == ()


def test_a_missing_package_is_named_and_costs_nothing(monkeypatch):
    """Without dp-accounting, `charge_steps` (for several releases from samples) fails, and says what to install.

    No cost is recorded. A single release from a sample does not need the package.
    """
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    made = budget()
    with pytest.raises(ImportError, match=r"elliptical-gaussian-mechanism\[budget\]"):
        made.charge_steps(1.7, 0.0123, 17)
    assert made.history == ()
    made.charge(GaussianMechanism(1.0, 0.1, 1e-6), sampling_probability=0.1)


# --- Journal ----------------------------------------------------------------------------------------------------------


def old_journal(path):
    """Write a budget's file in format 2, as earlier versions of egm have, to `path`, with one recorded cost."""

    def digest(*values):
        return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()

    terms = ("0123456789abcdef", None, 1.0, DELTA, "add_remove", "planned", 0)
    charge = (1, "LaplaceMechanism", 0.005, 0.0629, 0.1, 0.0, "visits", "2025-03-31T09:30:00Z")
    first = digest(*terms)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in (
            "CREATE TABLE terms (id TEXT, rho REAL, epsilon REAL, delta REAL, neighbors TEXT, rule TEXT, "
            "simulation INTEGER, last TEXT)",
            "CREATE TABLE charges (number INTEGER PRIMARY KEY, mechanism TEXT, rho REAL, mu_squared REAL, "
            "epsilon REAL, delta REAL, label TEXT, time TEXT, digest TEXT)",
            f"PRAGMA application_id = {0x65676D62}",
            "PRAGMA user_version = 2",
        ):
            connection.execute(statement)
        last = digest(first, *charge)
        connection.execute("INSERT INTO terms VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*terms, last))
        connection.execute("INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*charge, last))


def version(path):
    """Return the version number of the format of the budget's file `path`."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def test_an_old_journal_is_read_and_goes_on(tmp_path):
    """A budget's file in the old format 2 keeps this format until the first release from a sample, and loses no cost.

    At that release the format becomes 3.
    """
    path = tmp_path / "journal"
    old_journal(path)
    made = Budget(path)
    (charge,) = made.history
    assert (charge.label, charge.epsilon, charge.sampling_probability) == ("visits", 0.1, None)
    made.charge(LaplaceMechanism(1.0, 0.05))
    assert version(path) == 2
    steps = made.charge_steps(Z, Q, 100, label="training")
    last = made.charge(LaplaceMechanism(1.0, 0.01))
    assert version(path) == 3
    assert Budget(path).history[2:] == (steps, last)
    assert len(made.history) == 4


@pytest.mark.slow
def test_charges_survive_processes(tmp_path):
    """If two processes use the file of one budget, each of them sees the costs that the other has recorded.

    The second process reports the same epsilon that the first process reported before, and the epsilon of the first one
    grows when the second records a cost.
    """
    path = tmp_path / "journal"
    made = budget(path, **PLANNED)
    made.charge_steps(Z, Q, 100, label="training")
    made.charge(GaussianMechanism(1.0, 0.1, 1e-6), sampling_probability=0.25)
    code = (
        "import sys; from egm.budget import Budget; from egm import GaussianMechanism; b = Budget(sys.argv[1]); "
        "print(repr(b.spent.epsilon)); b.charge(GaussianMechanism(1.0, 0.1, 1e-6), sampling_probability=0.5); "
        "print([(c.mechanism, c.sampling_probability, c.count) for c in b.history])"
    )
    spent = made.spent.epsilon
    told = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [
        repr(spent),
        repr([("gaussian_steps", Q, 100), ("GaussianMechanism", 0.25, 1), ("GaussianMechanism", 0.5, 1)]),
    ]
    assert made.spent.epsilon > spent


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE charges SET sampling_probability = 1e-6 WHERE number = 1",
        "UPDATE charges SET count = 1 WHERE number = 1",
        "UPDATE charges SET sampling_probability = NULL, count = NULL WHERE number = 1",
        "UPDATE charges SET sampling_probability = 0.5, count = 1 WHERE number = 2",
        "UPDATE charges SET count = NULL WHERE number = 1",
        "ALTER TABLE charges DROP COLUMN count",
        "PRAGMA user_version = 2",
    ],
)
def test_a_changed_sample_is_noticed(statement, tmp_path):
    path = tmp_path / "journal"
    made = budget(path, **PLANNED)
    made.charge_steps(Z, Q, 100)
    made.charge(LaplaceMechanism(1.0, 0.01))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)
    with pytest.raises(JournalError):
        Budget(path)


# --- Samples ----------------------------------------------------------------------------------------------------------


def masks(probability, size, times, source=None):
    """Draw `times` samples of `size` rows, in which each row has the same `probability` of being kept.

    Return a boolean matrix (`times`, `size`), which says which rows are in which sample. `source` is the generator that
    draws the samples, or None for the random bits of the operating system.
    """
    X = np.arange(float(size))[:, None]
    found = np.zeros((times, size), dtype=bool)
    for row in found:
        kept, _ = drawn.sample(X, probability, source, {})
        row[kept[:, 0].astype(int)] = True
    return found


@pytest.mark.parametrize("source", [None, 5])
@pytest.mark.parametrize("probability", [*slow(0.05), 0.5, 0.9])
def test_each_row_is_kept_with_its_probability_and_independently(probability, source):
    """Each of 6 rows is in a sample with the given `probability`, independently of the others.

    Chi-square tests of 20 000 samples compare the frequencies of the 64 possible samples, and of their sizes. `source`
    is the seed of a generator, or None for the random bits of the operating system.
    """
    rng = None if source is None else np.random.default_rng(source)
    found = masks(probability, 6, 20_000, rng)
    patterns = np.bincount(found @ (1 << np.arange(6)), minlength=64)
    ones = np.array([bin(k).count("1") for k in range(64)])
    chances = probability**ones * (1 - probability) ** (6 - ones)
    enough = chances * len(found) >= 5
    expected = np.append(chances[enough], chances[~enough].sum()) * len(found)
    seen = np.append(patterns[enough], patterns[~enough].sum())
    seen, expected = seen[expected > 0], expected[expected > 0]
    assert stats.chisquare(seen, expected).pvalue > 1e-6
    sizes, law = np.bincount(found.sum(axis=1), minlength=7), stats.binom(6, probability).pmf(np.arange(7)) * len(found)
    likely = law >= 5
    shares = law[likely] / law[likely].sum()
    assert stats.chisquare(sizes[likely], shares * sizes[likely].sum()).pvalue > 1e-6


@pytest.mark.parametrize("probability", [1e-12, 1e-6, 0.3, 0.9995, 1.0])
def test_coins_are_compared_with_64_bits(probability, monkeypatch):
    """`secure_sample` keeps a row exactly if its 64 random bits, as a number, are below floor(probability * 2**64)."""
    threshold = math.floor(mp.mpf(probability) * 2**64)
    numbers = [k for k in (0, threshold - 1, threshold, 2**64 - 1) if k < 2**64]
    bits = np.array(numbers, dtype=np.uint64).tobytes()
    monkeypatch.setattr("os.urandom", lambda size: bits[:size])
    assert samplers.secure_sample(len(numbers), probability).tolist() == [k < threshold for k in numbers]


def people_and_rows():
    """Return a data frame with the person (ascending) and the number of each row; a person has 1 to 5 rows."""
    persons = np.repeat(np.arange(300), 1 + np.arange(300) % 5)
    return pd.DataFrame({"who": persons, "x": np.arange(float(persons.size))})


def table_of(frame, folder):
    """Write the data frame to a CSV file in `folder`, and return it as an `egm.files.Table`."""
    frame.to_csv(folder / "rows.csv", index=False)
    return files.rows(folder / "rows.csv", ["x"], labels=("who",))


FORMS = {  # functions of a data frame, and of a folder for files, that return the rows and the argument `person`
    "array": lambda frame, _: (frame[["x"]].to_numpy(), frame.who.to_numpy()),
    "list": lambda frame, _: (frame[["x"]].to_numpy().tolist(), frame.who.tolist()),
    "pandas": lambda frame, _: (frame, "who"),
    "pandas, shuffled": lambda frame, _: (frame.sample(frac=1, random_state=1), "who"),
    "polars": lambda frame, _: (pl.from_pandas(frame), "who"),
    "arrow": lambda frame, _: (pl.from_pandas(frame).to_arrow(), "who"),
    "blocks": lambda frame, _: (iter([frame[i : i + 7] for i in range(0, len(frame), 7)]), "who"),
    "file": lambda frame, folder: (table_of(frame, folder), "who"),
}


@pytest.mark.parametrize("form", FORMS)
def test_persons_are_kept_as_a_whole(form, tmp_path):
    """Either all rows of a person are in a sample or none, in each `form` of data, such as a list or a file.

    Each person is in the sample with the probability 0.3. The number of persons in the sample is within 6 standard
    deviations of its mean.
    """
    X, person = FORMS[form](people_and_rows(), tmp_path)
    persons = people_and_rows().who.to_numpy()
    kept, labels = drawn.sample(X, 0.3, None, {"person": person})
    if form == "file":
        pairs = list(kept.labelled(["who"]))
        rows = np.concatenate([block[:, 0] for block, _ in pairs])
        whose = np.concatenate([found[0] for _, found in pairs])
    elif form in ("array", "list"):
        rows, whose = kept[:, 0], labels["person"]
    else:
        whole = pd.concat([pd.DataFrame(block) for block in kept]) if form == "blocks" else kept
        rows, whose = (np.asarray(whole[name]) for name in ("x", "who"))
    rows = rows.astype(int)
    assert (persons[rows] == np.asarray(whose).astype(int)).all()
    assert len(set(rows)) == len(rows)
    for one in range(300):
        assert np.isin(np.flatnonzero(persons == one), rows).sum() in (0, 1 + one % 5)
    assert abs(np.unique(persons[rows]).size - 90) < 6 * math.sqrt(300 * 0.3 * 0.7)


@pytest.mark.slow
def test_a_person_in_two_blocks_is_drawn_once_and_unsorted_blocks_are_refused():
    """If a person's rows are in several blocks, a sample has all or none; unsorted persons raise a ValueError."""

    def blocks(persons):
        return iter([pd.DataFrame({"who": [p], "x": [1.0]}) for p in persons])

    sizes = {sum(map(len, drawn.sample(blocks([1] * 5), 0.5, None, {"person": "who"})[0])) for _ in range(60)}
    assert sizes == {0, 5}
    for _ in range(20):  # whatever is drawn
        with pytest.raises(ValueError, match="X must be sorted by person"):
            list(drawn.sample(blocks([1, 2, 1]), 0.5, None, {"person": "who"})[0])


@pytest.mark.parametrize("persons", [[[1], [2], [1]], [[2, 3], [1]], [["b"], ["a"]]], ids=str)
def test_persons_that_come_again_are_refused_before_they_are_drawn_again(persons):
    """Blocks that are not sorted by person are refused while the sample is drawn, whichever persons are in it.

    Otherwise a person whose rows are apart could be drawn twice, and would be in the sample more often than stated.
    """
    for seed in range(20):
        draw = drawn._Draw(0.5, np.random.default_rng(seed))
        *before, last = map(np.array, persons)
        for block in before:
            draw.sorted_persons(block)
        with pytest.raises(ValueError, match="X must be sorted by person"):
            draw.sorted_persons(last)


def test_a_tuple_is_a_name_if_a_column_has_it():
    """A tuple that is given as `person` or `by` names a column of the data frame, or else holds the labels of the rows.

    The tuple is a name if a column of the data frame (with a MultiIndex) has this name.
    """
    names = [("id", "person"), ("id", "group"), ("x", "one")]
    persons, groups = (0, 0, 1, 2, 2, 2), (5, 6, 5, 5, 6, 6)
    frame = pd.DataFrame(np.transpose([persons, groups, np.arange(6)]), columns=pd.MultiIndex.from_tuples(names))
    for person, by in ((names[0], names[1]), (persons, groups), (names[0], groups)):
        X, labels = drawn.sample(frame, 0.5, np.random.default_rng(3), {"person": person, "by": by})
        rows = X[names[2]].to_numpy()
        expected, _ = drawn.sample(frame, 0.5, np.random.default_rng(3), {"person": list(persons)})
        assert rows.tolist() == expected[names[2]].tolist()
        assert 0 < len(rows) < 6
        for key, given, name in (("person", person, names[0]), ("by", by, names[1])):
            assert given == labels[key] if given == name else frame.loc[rows, name].tolist() == labels[key].tolist()


def test_dask_is_refused_before_it_is_charged():
    dask = pytest.importorskip("dask.array")
    made = budget(epsilon=100.0)
    mechanism = GaussianDataMechanism([1.0], 10, 1.0, 1e-6, neighbors="add_remove")
    with pytest.raises(TypeError, match="no object of dask"):
        made.release(mechanism, dask.ones((10, 1)), sampling_probability=0.1)
    assert made.history == ()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("probability", [*slow(1e-12), 0.5])
def test_a_release_is_that_of_the_sample(form, probability, tmp_path):
    """A release with a sampling `probability` counts only the sampled persons, and is possible for an empty sample.

    The data have 300 persons. The released number of persons is near 300 times the probability, within six standard
    deviations. The budget records the probability and, as the delta, the mechanism's delta times the probability.
    `form` is the kind of data.
    """
    X, person = FORMS[form](people_and_rows(), tmp_path)
    sigma = {"x": 500.0} if form not in ("array", "list") else [500.0]
    mechanism = GaussianDataMechanism(sigma, 300, 40.0, 1e-4, neighbors="add_remove", per_person="mean")
    made = budget(epsilon=1e3, delta=0.1)
    release = made.release(mechanism, X, person=person, sampling_probability=probability)
    expected = 300 * probability
    assert abs(release.count - expected) < 6 * math.sqrt(expected * (1 - probability)) + 6 * release.count_std
    (charge,) = made.history
    assert charge.sampling_probability == probability
    assert charge.delta == pytest.approx(1e-4 * probability)


@pytest.mark.parametrize("probability", [1e-12, 1.0])
@pytest.mark.parametrize("form", FORMS)
def test_a_table_without_rows_has_a_sample(form, probability, tmp_path):
    """A release from a sample is possible if there are no rows, in each `form` of data, as is one of all rows."""
    X, person = FORMS[form](people_and_rows()[:0], tmp_path)
    sigma = {"x": 500.0} if form not in ("array", "list") else [500.0]
    mechanism = GaussianDataMechanism(sigma, 300, 40.0, 1e-4, neighbors="add_remove", per_person="mean")
    release = budget(epsilon=1e3, delta=0.1).release(mechanism, X, person=person, sampling_probability=probability)
    assert abs(release.count) < 6 * release.count_std


@pytest.mark.parametrize("as_blocks", [False, True])
def test_rows_and_groups_are_those_of_the_sample(as_blocks):
    """With sampling probability 1/2, the released number of rows is about half of the true one, also in each group.

    The rows are read in blocks if `as_blocks` is true, and otherwise they are an array.
    """
    rng = np.random.default_rng(3)
    X, by = rng.normal(0, 1, (4000, 1)), np.repeat(["a", "b"], 2000)
    options = {"neighbors": "add_remove", "clip_probability": 0.01}
    data = GaussianDataMechanism({"x": 1.0} if as_blocks else [1.0], 2000, 40.0, 1e-4, **options)
    frame = pd.DataFrame({"x": X[:, 0], "by": by})
    blocks = iter([frame[i : i + 500] for i in range(0, 4000, 500)])
    made = budget(epsilon=1e3, delta=0.1)
    held, groups = (blocks, "by") if as_blocks else (X, by)
    release = made.release(GroupedDataMechanism(data, ["a", "b"]), held, by=groups, sampling_probability=0.5)
    assert all(abs(part.count - 1000) < 6 * math.sqrt(500) for part in release.values())
    plain = GaussianDataMechanism([1.0], 2000, 40.0, 1e-4, **options)
    whole = made.release(plain, iter(np.split(X, 8)) if as_blocks else X, sampling_probability=0.5)
    assert abs(whole.count - 2000) < 6 * math.sqrt(1000)


@pytest.mark.parametrize("form", ["array", "pandas", "blocks"])
def test_an_error_about_a_row_says_that_it_counts_those_of_the_sample(form):
    """If a row of a sample has an infinite entry, the error says that the row's number is its place in the sample.

    An error about a missing label, and any error without a sample, has the number of the row among all rows.
    """
    frame = pd.DataFrame({"x": np.where(np.arange(1000) < 900, 0.0, np.inf), "who": np.arange(1000.0)})
    forms = {"array": frame[["x"]].to_numpy, "pandas": lambda: frame[["x"]]}
    forms["blocks"] = lambda: iter([frame[["x"]][:400], frame[["x"]][400:]])
    mechanism = GaussianDataMechanism([1.0] if form == "array" else {"x": 1.0}, 500, 0.1, 1e-6, neighbors="add_remove")
    made = budget(epsilon=100.0, delta=0.1)
    with pytest.raises(ValueError, match=r"X\[[1-8]?\d\d, .* must be finite, where X is the sample that was drawn$"):
        made.release(mechanism, forms[form](), sampling_probability=0.5)
    with pytest.raises(ValueError, match=r"X\[900, .* must be finite$"):
        made.release(mechanism, forms[form]())
    if form == "blocks":
        frame.loc[700, "who"] = np.nan
        whose = GaussianDataMechanism({"x": 1.0}, 500, 0.1, 1e-6, neighbors="add_remove", per_person="sum")
        with pytest.raises(ValueError, match=r"X\[700, 'who'\] must not be missing$"):
            made.release(whose, iter([frame[:400], frame[400:]]), person="who", sampling_probability=0.5)


def test_a_rehearsal_draws_from_the_generator():
    """In a budget for simulations, the generator `rng` draws the sample, so the same seed gives the same release."""
    X = np.random.default_rng(1).normal(0, 1, (500, 2))
    mechanism = GaussianDataMechanism([1.0, 1.0], 250, 0.5, 1e-6, neighbors="add_remove")

    def release(seed):
        made = budget(simulation=True)
        return made.release(mechanism, X, rng=np.random.default_rng(seed), sampling_probability=0.5)

    one, same, other = release(1), release(1), release(2)
    assert one.simulated
    assert np.array_equal(one.estimate, same.estimate)
    assert not np.array_equal(one.estimate, other.estimate)


def test_a_sample_is_charged_before_it_is_drawn(monkeypatch):
    """The cost of a sample is recorded before the sample is drawn, and stays if the drawing fails.

    If the budget refuses the cost, nothing is drawn.
    """

    def fails(*_):
        raise OSError("no random bits")

    monkeypatch.setattr(drawn, "coins", fails)
    mechanism = GaussianDataMechanism([1.0], 10, 1.0, 1e-6, neighbors="add_remove")
    made = budget(epsilon=0.2)
    with pytest.raises(OSError, match="no random bits"):
        made.release(mechanism, np.ones((20, 1)), sampling_probability=0.1)
    assert len(made.history) == 1
    with pytest.raises(BudgetExceeded):
        made.release(mechanism, np.ones((20, 1)), sampling_probability=0.1)
    assert len(made.history) == 1
