"""Draw discrete Gaussian and Laplace noise, and choices of the exponential mechanism, exactly, for `egm.samplers`.

All of them are made of uniform integers and of coins that show heads with a probability exp(-g), as in Algorithms 1 to
3 of Canonne, Kamath and Steinke (2020). To toss such a coin, a random number u, uniform in [0, 1), is compared with
exp(-g). Nearly always the first 64 bits of u and a double near exp(-g) decide. If they are so close together that a
rounding error could decide, more bits of u are drawn, and exp(-g) is computed from the exact g with as many digits as
it takes. So the laws are exact, although nearly all arithmetic is that of arrays of doubles. This assumes only that the
relative error of NumPy's exponential function is below 2**-33; in fact it is near 2**-53.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from egm import _random_bits
from egm._substitutes import replaceable
from egm._types import Array

__all__ = ["gaussian", "index", "laplace"]

Bools: TypeAlias = NDArray[np.bool]
Words: TypeAlias = NDArray[np.uint64]  # unsigned integers of 64 bits

_DOUBT = 2.0**-32  # relative distance of u from exp(-g) below which doubles do not decide
_LARGEST = np.uint64((1 << 63) - 1)
_EACH, _MORE, _MOST = 2.4, 32, 1 << 16  # candidates for each missing draw, in addition to these, and at most at a time


@replaceable
def gaussian(std: float, size: int) -> list[int]:
    """Draw `size` integers k with probabilities proportional to exp(-k**2 / (2 std**2)), for 0 < std <= 2**58.

    A discrete Laplace variable of scale t = floor(std) + 1 is accepted with the probability exp(-g), where
    g = (abs(k) - std**2 / t)**2 / (2 std**2). The rounding error of g is below 2**-48 * (1 + g).
    """
    t, square = math.floor(std) + 1, Fraction(std) ** 2
    peak = std * std / t

    def some(candidates: int) -> NDArray[np.int64]:
        k, negative = _some_laplace(candidates, t, 0)
        with np.errstate(all="ignore"):  # g may be too large for a double
            g = ((k - peak) / std) ** 2 / 2
        kept = _heads(g, lambda i: (int(k[i]) - square / t) ** 2 / (2 * square))
        return _signed(k[kept], negative[kept])

    return _first(some, size)


@replaceable
def laplace(scale: float, size: int) -> list[int]:
    """Draw `size` integers k with probabilities proportional to exp(-abs(k) / scale), for 0 < scale <= 2**54."""
    t, whole = scale.as_integer_ratio()  # the denominator is a power of two
    return _first(lambda candidates: _signed(*_some_laplace(candidates, t, whole.bit_length() - 1)), size)


@replaceable
def index(gaps: Words, scale: float) -> int:
    """Draw an index i with probability proportional to exp(-gaps[i] / scale); the least of the gaps is 0.

    Indices are drawn uniformly, and each is accepted with the probability exp(-gaps[i] / scale), until one is.
    """

    def some(_: int) -> NDArray[np.int64]:
        drawn = _integers(min(_MORE + gaps.size, _MOST), gaps.size)[0]
        with np.errstate(all="ignore"):  # a quotient may be too large for a double
            g = gaps[drawn] / scale
        kept = _heads(g, lambda i: Fraction(int(gaps[drawn[i]])) / Fraction(scale))
        return drawn[kept].astype(np.int64)

    return _first(some, 1)[0]


def _first(some: Callable[[int], NDArray[np.int64]], size: int) -> list[int]:
    """Return a list of `size` draws; some(m) returns those that are accepted among about m candidates."""
    draws = np.empty(0, dtype=np.int64)
    while draws.size < size:
        draws = np.append(draws, some(min(int(_EACH * (size - draws.size)) + _MORE, _MOST)))
    found: list[int] = draws[:size].tolist()
    return found


def _some_laplace(candidates: int, t: int, halvings: int) -> tuple[Words, Bools]:
    """Draw discrete Laplace variables of scale t / 2**halvings: return their absolute values, and which are negative.

    So many are drawn as are accepted among `candidates`. An absolute value is floor(x / 2**halvings), for an integer x
    with P(x) proportional to exp(-x / t), but at most 2**64 - 1. x is made of its remainder modulo t and of a number of
    turns. Of the two zeros, the negative one is not accepted.
    """
    rest, negative = _integers(candidates, t)
    kept = _heads(rest / t, lambda i: Fraction(int(rest[i]), t))
    rest, negative = rest[kept], negative[kept]
    turns, going = np.zeros_like(rest), np.arange(rest.size)
    while going.size:
        going = going[_heads(np.ones(going.size), lambda _: Fraction(1))]
        turns[going] += np.uint64(1)
    if int(turns.max(initial=0)) < (1 << 64) // t - 1:
        x = rest + turns * np.uint64(t)
        value = x >> np.uint64(halvings) if halvings < 64 else np.zeros_like(x)
    else:  # x may need more than 64 bits
        longer = [r + t * k >> halvings for r, k in zip(rest.tolist(), turns.tolist(), strict=True)]
        value = np.array([min(each, (1 << 64) - 1) for each in longer], dtype=np.uint64)
    kept = ~negative | (value > 0)
    return value[kept], negative[kept]


def _integers(candidates: int, below: int) -> tuple[Words, Bools]:
    """Draw about `candidates` integers, uniform from 0 to below - 1, each with a fair coin; `below` is at most 2**63.

    Of random integers with as many binary digits as below - 1 has, those from `below` on are left out.
    """
    digits = (below - 1).bit_length()
    words = _random_bits.words((candidates << digits) // below)
    drawn = (words >> np.uint64(1)) >> np.uint64(63 - digits)
    kept = drawn < np.uint64(below)
    return drawn[kept], (words[kept] & np.uint64(1)).astype(bool)


def _signed(values: Words, negative: Bools) -> NDArray[np.int64]:
    """Return `values`, at most 2**63 - 1, as integers that are negative where `negative` is True."""
    small = np.minimum(values, _LARGEST).astype(np.int64)
    return np.where(negative, -small, small)


def _heads(g: Array, exact: Callable[[int], Fraction]) -> Bools:
    """Toss a coin for each entry of `g`, >= 0, that shows heads with the probability exp(-g); return which do.

    The entries of `g` may be rounded, with errors of at most 2**-40 * (1 + g); exact(i) is the exact value of g[i].

    Proof that doubles decide rightly where they do. Let w be the first 64 bits of a random number in [0, 1), so that
    2**64 times this number is in [w, w + 1), and let q = 2**64 exp(-g) for the exact g. The double u differs from w by
    at most 2**-53 w. If g <= 46, the errors of g and of the exponential are so small that abs(p - q) < 0.8 * 2**-32 p.
    Otherwise p and q are below 1. So u >= p + 2**-32 p + 2 implies w > q, and u <= p - 2**-32 p - 2 implies w + 1 < q.
    """
    words = _random_bits.words(g.size)
    with np.errstate(all="ignore"):
        u, p = words.astype(float), np.ldexp(np.exp(-g), 64)
        heads: Bools = u < p
        doubtful = np.flatnonzero(~(np.abs(u - p) > _DOUBT * p + 2))  # also if p is NaN
    for i in doubtful.tolist():
        heads[i] = _less(int(words[i]), exact(i))
    return heads


def _less(word: int, g: Fraction) -> bool:
    """Return whether u < exp(-g), for a random number u, uniform in [0, 1), whose first 64 bits are `word`.

    As many further bits of u are drawn, and as many digits of exp(-g) are computed, as are needed to decide.
    """
    bits = 64
    while True:
        context = Context(prec=bits // 3 + 10, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
        quotient = context.divide(Decimal(g.numerator), Decimal(g.denominator))
        p = context.multiply(context.exp(quotient.copy_negate()), Decimal(1 << bits))
        # Each operation is rounded correctly, so that the relative error of p is below (g + 3) * 10**(1 - digits).
        error = context.multiply(p, context.scaleb(context.add(quotient, 3), 2 - context.prec))
        if context.subtract(p, error) >= word + 1:
            return True
        if context.add(p, error) <= word and word:  # a tiny p was perhaps rounded to 0
            return False
        word, bits = word << 64 | int(_random_bits.words(1)[0]), bits + 64
