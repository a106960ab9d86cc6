"""Test that the secure samplers draw from their exact distributions, at small scales, where a bias would show.

At the scale of a release, 2**41 and more, no test can see a small bias in the probability of an integer. At scale 3,
300 000 draws show it. The test of fit must reject the stored draws of OpenDP 0.14.1, which was biased (opendp issue
2638). At all scales, the same random bits give the same draws whether doubles decide or exact arithmetic does.
"""

from fractions import Fraction
from unittest import mock

import mpmath
import numpy as np
import pytest
from numpy.polynomial import Polynomial
from scipy import stats

from egm import _discrete, _random_bits, samplers

DRAWS = 300_000
CHOICES = 10_000
# A right sampler fails each of 25 tests, 21 of this file and four of test_quantiles.py, with this probability: together
# below 1e-6 in a run.
LEVEL = 4e-8


def fit(seen, p):
    """Return the p-value of Pearson's chi-square test of the counts `seen` against the probabilities `p`.

    Both are arrays with one entry for each value. Values with fewer than 100 expected draws are merged into one class.
    """
    total = np.sum(seen)
    common = total * p >= 100
    seen, expected = np.append(seen[common], np.sum(seen[~common])), total * np.append(p[common], np.sum(p[~common]))
    possible = expected > 0
    assert np.all(seen[~possible] == 0)
    return stats.chisquare(seen[possible], expected[possible]).pvalue


def gaussian(std):
    """Return the integers k from -40 `std` to 40 `std`, and probabilities proportional to exp(-k**2 / (2 `std`**2))."""
    k = np.arange(-np.ceil(40 * std), np.ceil(40 * std) + 1)
    weights = np.exp(-((k / std) ** 2) / 2)
    return k, weights / np.sum(weights)


def laplace(scale):
    """Return the integers k from -100 `scale` to 100 `scale`, and probabilities proportional to exp(-|k| / `scale`)."""
    k = np.arange(-np.ceil(100 * scale), np.ceil(100 * scale) + 1)
    weights = np.exp(-np.abs(k) / scale)
    return k, weights / np.sum(weights)


def counts(draws, k):
    """Return how often each of the successive integers `k` occurs among `draws`, which has no other integers."""
    seen = np.bincount(np.array(draws) - int(k[0]), minlength=k.size)
    assert seen.size == k.size
    return seen


# OpenDP 0.14.1 failed at 3 for both laws, at 10 for the Gaussian (p = 1e-20), at 30 for the Laplace law (1e-33).


@pytest.mark.slow
@pytest.mark.parametrize("std", [3.0, 0.7, 10 / 3, 10.0, 0.2, 31.9, 32.0])
def test_secure_gaussian_has_the_law_it_states(std):
    k, p = gaussian(std)
    assert fit(counts(samplers.secure_gaussian(std, DRAWS), k), p) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 3.0, 30.0, 0.3, 10 / 3])
def test_secure_laplace_has_the_law_it_states(scale):
    k, p = laplace(scale)
    assert fit(counts(samplers.secure_laplace(scale, DRAWS), k), p) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "law"), [(samplers.secure_gaussian, gaussian), (samplers.secure_laplace, laplace)])
def test_a_draw_tells_nothing_of_another(sampler, law):
    """A draw of `sampler` is independent of the next draw, and of a draw that is made much later.

    Two chi-square tests compare the frequencies of pairs with those of independent draws from the discrete `law`: pairs
    of successive draws, and pairs of draws at equal indices of the two halves of a long list.
    """
    (k, p), drawn = law(1.0), np.array(sampler(1.0, 100_000))
    for order in "FC":
        first, second = np.reshape(drawn, (2, -1), order=order) - int(k[0])
        pairs = np.bincount(first * k.size + second, minlength=k.size**2)
        assert fit(pairs, np.outer(p, p).ravel()) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "law"), [(samplers.secure_gaussian, stats.norm), (samplers.secure_laplace, stats.laplace)]
)
def test_large_scales_keep_the_shape_and_the_last_bits(sampler, law):
    """At scales above 2**41, as in releases, `sampler` draws integers with the shape of `law` and uniform last bits.

    `law` is the continuous normal or Laplace distribution. Two chi-square tests compare the frequencies of 100
    intervals, and those of the last six bits.
    """
    scale = 1.2345 * 2.0**41
    drawn = np.array(sampler(scale, 60_000))
    shape = np.bincount((100 * law.cdf(drawn / scale)).astype(int), minlength=100)
    last = np.bincount(drawn % 64, minlength=64)
    # Two tests of fit: each has half of the level.
    assert min(fit(shape, np.full(100, 1 / 100)), fit(last, np.full(64, 1 / 64))) > LEVEL / 2


# Exact decisions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def bits(monkeypatch):
    """Return a function `start(*first)`: from its call on, the random words are those in `first`, then pseudorandom."""

    def start(*first):
        rest, given = np.random.default_rng(7), list(first)

        def words(size):
            drawn = [given.pop(0) if given else rest.integers(0, 1 << 64, dtype=np.uint64) for _ in range(size)]
            return np.array(drawn, dtype=np.uint64)

        monkeypatch.setattr(_random_bits, "words", words)

    return start


@pytest.mark.parametrize(
    ("sampler", "given"),
    [
        *((samplers.secure_gaussian, (std, 100)) for std in (1e-300, 0.3, 1.0, 8.0, 1234567.8, 1.2345e12, 2.0**58)),
        *((samplers.secure_laplace, (scale, 100)) for scale in (1e-300, 0.3, 10 / 3, 5.0, 1.2345e12, 2.0**54)),
        *((samplers.secure_index, (scores, 0.1)) for scores in ([3, 1] * 9, [-(2**62), 2, 5], [4])),
    ],
)
def test_doubles_decide_as_exact_arithmetic_does(sampler, given, bits, monkeypatch):
    """The same random bits give the same draws of `sampler` if each comparison is decided by exact arithmetic."""
    bits()
    drawn = sampler(*given)
    decided, less = [], _discrete._less
    monkeypatch.setattr(_discrete, "_DOUBT", 2.0**70)
    monkeypatch.setattr(_discrete, "_less", lambda word, g: decided.append(g) or less(word, g))
    bits()
    assert sampler(*given) == drawn
    assert len(decided) > len(np.atleast_1d(drawn))


@pytest.mark.parametrize("g", [Fraction(1), Fraction(1, 3), Fraction(40), Fraction(3, 10**15), Fraction(0)])
def test_further_bits_decide_where_the_first_do_not(g, bits):
    """A coin compares all bits of a random number with exp(-g): here the first 64 bits of both are nearly equal."""
    with mpmath.workdps(100):
        p = mpmath.exp(-mpmath.mpf(g.numerator) / g.denominator) * mpmath.mpf(2) ** 128
        high, low = divmod(int(p), 1 << 64)
        assert g == 0 or 0 < low < (1 << 64) - 1
    cases = {(high - 1, (1 << 64) - 1): True, (high, low - 1): True, (high, low + 1): False, (high + 1, 0): False}
    if g == 0:  # each number is less than 1
        cases = {(high - 1, (1 << 64) - 1): True}
    for words, heads in cases.items():
        bits(*words)
        assert _discrete._heads(np.array([float(g)]), lambda _: g).tolist() == [heads]


def test_doubles_decide_only_where_their_errors_are_too_small_to_matter(bits):
    """Where the first 64 bits of a random number are near exp(-g), the coin is right for all errors that are allowed.

    The relative distances are those at which a wrong zone of doubt would show. The double g is exact, or has the
    largest error that a coin allows.
    """
    rng = np.random.default_rng(3)
    for g in (0.0, 1e-12, *rng.uniform(0, 44, 40)):
        exact = Fraction(g)
        with mpmath.workdps(60):
            q = mpmath.exp(-mpmath.mpf(g)) * mpmath.mpf(2) ** 64
            for distance in (0, 1e-15, 2.0**-45, 2.0**-38, 2.0**-34, 2.0**-33, 2.0**-32, 2.0**-31, 1e-6):
                for sign in (-1, 1):
                    word = int(q * (1 + sign * distance)) + sign
                    if not 0 <= word < 1 << 64:
                        continue
                    for error in (-1, 0, 1):
                        bits(word)
                        given = np.array([max(g + error * 2.0**-40 * (1 + g), 0.0)])
                        assert _discrete._heads(given, lambda _, exact=exact: exact)[0] == (word < q)


def test_a_double_that_is_no_number_decides_nothing(bits):
    """If g is NaN, as 0 / 0 is where a library rounds the smallest doubles to 0, its exact value decides."""
    for word, heads in ((0, True), ((1 << 64) - 1, False)):
        bits(word)
        assert _discrete._heads(np.array([np.nan]), lambda _: Fraction(1)).tolist() == [heads]


def test_many_digits_are_computed_where_few_do_not_decide():
    """If 2**64 exp(-g) is within 1e-12 of an integer, the next bits of the random number are compared rightly."""
    for word in (2**63 + 12345, 2**40 + 7, 10**19, 3):
        for distance in ("1e-11", "1e-12", "1e-13", "-1e-11", "-1e-12", "-1e-13"):
            with mpmath.workdps(100):
                g = -mpmath.log((word + mpmath.mpf(distance)) / mpmath.mpf(2) ** 64)
                g = Fraction(int(g * mpmath.mpf(10) ** 80), 10**80)
                q = mpmath.exp(-mpmath.mpf(g.numerator) / g.denominator) * mpmath.mpf(2) ** 128
                further = int(q) >> 64 << 64
                for more in (int(q) - further + step for step in (-(2**20), -3, 2, 2**20)):
                    with mock.patch.object(_random_bits, "words", lambda _, more=more: np.array([more], np.uint64)):
                        assert _discrete._less(further >> 64, g) == (further + more < q)


@pytest.mark.parametrize(
    ("t", "halvings", "turns"),
    [
        (5, 0, [0]),
        (5, 0, [20, 1]),
        (7, 1, [30, 14]),
        (1, 0, [62]),
        (2**58 + 1, 0, [3, 61]),
        (2**58 + 1, 0, [70]),
        (3, 0, [1000]),
        (2**53 - 1, 52, [2048, 3000]),
        (1, 1074, [5]),
    ],
)
def test_turns_are_added_up(t, halvings, turns, bits):
    """A Laplace variable is its remainder plus t times the number of its turns, halved so often, however many they are.

    Each variable gets the remainder 0. `turns` has the number of turns of each of them: so many heads in succession.
    If more variables are drawn, they have none.
    """
    heads, tails = 0, (1 << 64) - 1
    drawn = (len(turns) << (t - 1).bit_length()) // t
    every = turns + [0] * (drawn - len(turns))
    rounds = [[heads if k < n else tails for n in every if k <= n] for k in range(max(every) + 1)]
    bits(*[0] * drawn, *[heads] * drawn, *[word for each in rounds for word in each])
    found, negative = _discrete._some_laplace(len(turns), t, halvings)
    assert found.tolist() == [min(t * n >> halvings, 2**64 - 1) for n in every]
    assert not negative.any()


def test_a_draw_of_more_than_63_bits_is_cut():
    values = np.array([2**63 - 1, 2**63, 2**64 - 1, 5], dtype=np.uint64)
    assert _discrete._signed(values, np.array([False, False, True, True])).tolist() == [
        2**63 - 1,
        2**63 - 1,
        1 - 2**63,
        -5,
    ]


def test_exponents_are_as_exact_as_the_coins_need(monkeypatch):
    """The doubles g that go to the coins differ from their exact values by at most 2**-48 * (1 + g)."""
    heads, seen = _discrete._heads, []

    def checked(g, exact):
        for i, value in enumerate(g.tolist()):
            if value < 1e300:
                seen.append(float(abs(Fraction(value) - exact(i)) / (1 + exact(i))))
        return heads(g, exact)

    monkeypatch.setattr(_discrete, "_heads", checked)
    for scale in (1e-3, 0.3, 3.0, 1e5 / 7, 1.2345e12, 2.0**53 + 2, 2.0**58 / 3):
        samplers.secure_gaussian(scale, 20)
        samplers.secure_laplace(min(scale, 2.0**54), 20)
        samplers.secure_index([2**62 - 1, 7, 2**62 - 10**6, 2**62], 1 / scale)
    assert max(seen) < 2.0**-48


def test_exponentials_are_as_exact_as_the_coins_need():
    """The relative error of NumPy's exponential is far below the assumed 2**-33, for long and for short vectors."""
    g = np.concatenate([np.geomspace(1e-18, 46, 1000), np.linspace(0, 46, 1001)])
    with mpmath.workdps(30):
        exact = [mpmath.exp(-mpmath.mpf(value)) for value in g.tolist()]
        for found in (np.exp(-g), np.concatenate([np.exp(-g[i : i + 1]) for i in range(g.size)])):
            errors = [abs(mpmath.mpf(one) / p - 1) for one, p in zip(found.tolist(), exact, strict=True)]
            assert max(errors) < 2.0**-50


# Choices --------------------------------------------------------------------------------------------------------------

# Scores with and without ties, sorted and unsorted, and with one that is far below the largest.
SCORES = [([1, -1], 2.0), ([0, -1, 0, -3, -1, -8], 2.0), ([-1_000_000, 5, 4, 3, 2, 1, 0], 0.5)]


def exponential(scores, epsilon):
    """Return the probability of each candidate, proportional to exp(`epsilon` / 2 * score); `scores` has the scores."""
    weights = np.exp(epsilon / 2 * (np.array(scores) - max(scores)))
    return weights / np.sum(weights)


def permute_and_flip(scores, epsilon):
    """Return the probability with which permute-and-flip, another private mechanism, chooses each candidate.

    Permute-and-flip takes the candidates in random order, and chooses the first that is accepted. It accepts a
    candidate with probability exp(-`epsilon` / 2 * gap), where the gap is the largest of the `scores` minus the
    candidate's score.
    """
    accepted = np.exp(epsilon / 2 * (np.array(scores) - max(scores)))
    law = []
    for i, here in enumerate(accepted):
        others = np.prod([Polynomial([1, -a]) for j, a in enumerate(accepted) if j != i])
        law.append(here * (others.integ()(1) - others.integ()(0)))
    return np.array(law)


@pytest.mark.slow
@pytest.mark.parametrize(("scores", "epsilon"), SCORES)
def test_secure_index_has_the_law_it_states(scores, epsilon):
    drawn = [samplers.secure_index(scores, epsilon) for _ in range(CHOICES)]
    assert fit(np.bincount(drawn, minlength=len(scores)), exponential(scores, epsilon)) > LEVEL


@pytest.mark.parametrize("scores", [[], [1.5, 2], [True, False], ["a"], "ab", [1 << 63, 0], [-(1 << 64)], [[1], [2]]])
def test_wrong_scores_are_refused_without_being_shown(scores):
    kind = ValueError if all(type(score) is int for score in scores) else TypeError
    with pytest.raises(kind, match=r"^scores must [^\d]*(64 bits)?, which are not shown$"):
        samplers.secure_index(scores, 1.0)


def test_epsilon_of_a_secure_index_is_named():
    assert samplers.secure_index(np.array([-(1 << 63), (1 << 63) - 1]), 1.0) == 1
    assert samplers.secure_index((np.int32(5), 3), 1e-300) in (0, 1)
    assert samplers.secure_index([np.uint64(5), np.uint8(200)], 1.0) == 1
    with pytest.raises(ValueError, match="epsilon must be at least 1e-300, got 1e-320"):
        samplers.secure_index([1, 2], 1e-320)


@pytest.mark.parametrize("law", ["gaussian", "laplace", "l2"])
def test_a_negative_scale_of_simulated_noise_is_named(law):
    name = "std" if law == "gaussian" else "scale"
    with pytest.raises(ValueError, match=rf"{name}\[1\] must be finite and >= 0, got -1.0"):
        getattr(samplers, f"simulated_{law}")([1.0, -1.0], np.random.default_rng(1))
    for scale in ("1", ["1"], [None], True):
        with pytest.raises(TypeError, match=f"{name} must be a real number or an array of real numbers"):
            getattr(samplers, f"simulated_{law}")(scale, np.random.default_rng(1))


@pytest.mark.parametrize("law", ["gaussian", "laplace", "l2"])
@pytest.mark.parametrize("make", [float, np.float64, np.float32, lambda x: [1.0, x], lambda x: np.array([1.0, x])])
@pytest.mark.parametrize(("value", "said"), [(np.nan, "must not be NaN"), (np.inf, "must be finite and >= 0")])
def test_a_scale_that_is_not_finite_is_refused_in_every_form(law, make, value, said):
    with pytest.raises(ValueError, match=rf"(std|scale)(\[1\])? {said}"):
        getattr(samplers, f"simulated_{law}")(make(value), np.random.default_rng(1))


@pytest.mark.parametrize("law", ["gaussian", "laplace", "l2"])
def test_a_masked_scale_is_refused_and_a_huge_one_is_not(law):
    draw, rng = getattr(samplers, f"simulated_{law}"), np.random.default_rng(1)
    with pytest.raises(TypeError, match="must be a real number or an array of real numbers, got MaskedArray"):
        draw(np.ma.masked_array([1.0, 2.0], [False, True]), rng)
    with np.errstate(over="ignore"):
        assert np.isinf(draw(np.full(100, 1.7e308), rng)).any()  # too large for a double, and not the scale's fault


@pytest.mark.parametrize("law", ["gaussian", "laplace", "l2"])
def test_a_scale_of_zero_adds_nothing(law):
    assert not np.any(getattr(samplers, f"simulated_{law}")([0.0, -0.0], np.random.default_rng(1)))


def test_the_least_scale_of_secure_l2_noise():
    assert all(samplers.secure_l2(5e-324, 1) == [0] for _ in range(200))


@pytest.mark.parametrize(("scores", "epsilon"), SCORES)
def test_permute_and_flip_would_be_refused(scores, epsilon):
    """`fit`, the chi-square test, would notice if a sampler of the exponential mechanism used permute-and-flip instead.

    Permute-and-flip is another private mechanism; its zCDP cost is larger than the cost that a budget records for the
    exponential mechanism. The test gives the expected counts of permute-and-flip to `fit`, which must reject them.
    `scores` are the scores of the candidates, and `epsilon` is the parameter of both mechanisms.
    """
    law = permute_and_flip(scores, epsilon)
    assert np.sum(law) == pytest.approx(1, rel=1e-12)
    assert fit(CHOICES * law, exponential(scores, epsilon)) < LEVEL / 1e6


def test_permute_and_flip_is_what_it_is_called():
    """For two candidates with the scores 1 and -1, `permute_and_flip` agrees with a computation by hand.

    epsilon is 2. With probability 1/2 the candidate with the lower score comes first, and is accepted with probability
    exp(-2).
    """
    assert permute_and_flip([1, -1], 2.0)[1] == pytest.approx(np.exp(-2) / 2, rel=1e-12)


# Counts of 300 000 draws of opendp 0.14.1 at scale 3, from -12 to 12.
BIASED = {
    gaussian: "16 48 164 461 1135 2511 5503 10015 16467 23536 32036 38060 40251 38077 32190 23231 16487 10044 5384 2537"
    " 1155 450 170 47 14",
    laplace: "863 1388 1749 2387 3820 4523 6211 10661 12483 17308 28795 33707 47016 33859 28611 17558 12502 10661 6396"
    " 4690 3913 2336 1703 1439 860",
}


@pytest.mark.parametrize(("law", "drawn"), BIASED.items(), ids=lambda it: getattr(it, "__name__", ""))
def test_the_known_bias_would_be_refused(law, drawn):
    k, p = law(3.0)
    inside = np.abs(k) <= 12
    seen = np.array([int(count) for count in drawn.split()])
    rest = DRAWS - np.sum(seen)
    assert fit(np.append(seen, rest), np.append(p[inside], np.sum(p[~inside]))) < LEVEL
