"""Make releases with prescribed noise, to learn which noise they add, and draw noise for many releases at once.

`egm.audit.replay` needs this. A substitute for the random generator and for the secure samplers returns the prescribed
numbers, and records the laws and scales of the noise that the release asks for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator as Rng

from egm import _discrete, _random_bits
from egm._substitutes import replaced
from egm._types import Array, ArrayLike

__all__ = ["SECURE", "Asked", "Law", "played", "secure", "simulated"]

_NO_NOISE = np.empty(0)
_LEAST_L2 = 2.0**20  # least standard deviation of secure l2 noise, so that rounding a product changes little of its law

Law: TypeAlias = str  # the name of a method of a Generator, or a key of SECURE
SECURE = {"discrete gaussian": _discrete.gaussian, "discrete laplace": _discrete.laplace}
# For each number of noise that a release draws: its law, its scale, and which random variance it has (0: none)
Asked: TypeAlias = tuple[tuple[Law, float, int], ...]


class Tape(np.random.Generator):
    """Replace the random generator in a release: return prescribed numbers, and record which noise is asked for.

    So `egm.audit.replay` learns how a release depends on its noise. `noises` has the numbers that are returned as
    noise, in this order, and `gammas` has those that are returned as gamma variables (the random variances of l2
    noise). If `noises` has too few numbers, the further noise is zero; if `gammas` has too few, a gamma variable is its
    mean. `asked` has a tuple for each noise variable: its law, its scale, and the index (from 1) of its gamma variable,
    or 0 if it has none. `shapes` has the shape parameters of the gamma variables. `secure` is true if this object
    replaces the secure samplers, which draw for a release without a generator. `pending` is the index of a gamma
    variable that has just been drawn, and that belongs to the next vector of noise.
    """

    def __init__(self, noises: Array, gammas: tuple[float, ...], secure: bool) -> None:
        super().__init__(np.random.PCG64(0))
        self.noises, self.gammas, self.secure = noises, gammas, secure
        self.asked: list[tuple[Law, float, int]] = []
        self.shapes: list[float] = []
        self.pending = 0

    def __getattribute__(self, name: str) -> Any:
        """Return the attribute `name`; raise ValueError for a method of a Generator that has no substitute here."""
        if name in _UNKNOWN:
            raise _cannot(f"rng.{name}")
        return super().__getattribute__(name)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> Any:
        """Return the next number of `gammas` or, if none is left, the mean of a gamma variable; record its `shape`.

        Raise ValueError if `shape` or `scale` is an array, if `scale` is not 1, or if a `size` is given.
        """
        if np.ndim(shape) or np.ndim(scale) or scale != 1 or size is not None:
            raise _cannot("rng.gamma for other numbers than single ones of scale 1")
        self.shapes.append(float(shape))
        self.pending = len(self.shapes)
        return self.gammas[len(self.shapes) - 1] if len(self.shapes) <= len(self.gammas) else float(shape)

    def half_gamma(self, twice: int, size: int) -> Array:
        """Return `size` copies of the next number of `gammas`, in place of gamma variables of the shape `twice` / 2.

        In a release, this method is called instead of `egm._random_bits.half_gamma`.
        """
        return np.full(size, self.gamma(twice / 2))

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Return `loc` plus the next prescribed numbers in place of normal noise with the standard deviations `scale`.

        The scales are recorded. The result has the shape `size` or, by default, that of `loc` and `scale` broadcast.
        """
        return self._next("normal", loc, scale, size)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Return `loc` plus the next prescribed numbers in place of Laplace noise with the scales in `scale`.

        The scales are recorded. The result has the shape `size` or, by default, that of `loc` and `scale` broadcast.
        """
        return self._next("laplace", loc, scale, size)

    def standard_normal(self, *size: Any, **named: Any) -> Any:
        """Return the next prescribed numbers, in the shape `size`, in place of standard normal noise.

        The law and the scale of this noise are recorded for each number.
        """
        return self.normal(0.0, 1.0, *size, **named)

    def discrete(self, law: Law, scale: float, size: int) -> list[int]:
        """Return the next `size` prescribed numbers, as integers; record `law` and `scale` for each of them.

        In a release, this method is called instead of SECURE[law].
        """
        if not self.secure:
            raise ValueError("release must take its noise from the rng that it gets, and it used a secure sampler")
        return [int(noise) for noise in self._next(law, 0.0, scale, size)]

    def _next(self, law: Law, loc: ArrayLike, scale: ArrayLike, size: int | tuple[int, ...] | None) -> Array:
        """Return `loc` plus the next prescribed numbers, and record `law` and `scale` for each of them.

        The result has the shape `size` or, if that is None, the shape to which `loc` and `scale` broadcast.
        """
        shape = np.broadcast_shapes(np.shape(loc), np.shape(scale)) if size is None else size
        start, scales = len(self.asked), np.broadcast_to(np.asarray(scale, dtype=float), shape)
        self.asked += [(law, float(each), self.pending) for each in scales.ravel()]
        self.pending = 0
        noises = np.zeros(scales.size)
        given = self.noises[start : start + scales.size]
        noises[: given.size] = given
        return np.broadcast_to(np.asarray(loc, dtype=float), shape) + noises.reshape(scales.shape)


_UNKNOWN = frozenset(name for name in dir(np.random.Generator) if not name.startswith("_")) - frozenset(vars(Tape))


def _cannot(drawn: str) -> ValueError:
    """Return the error for a release that draws random numbers by functions for which there is no substitute.

    `egm.audit.replay` has substitutes for the functions that draw noise. `drawn` is the name of another function or
    source of random numbers, which the release uses.
    """
    return ValueError(
        "release must draw all its noise by normal, laplace or standard_normal of its rng, or by the samplers of egm "
        f"for Gaussian, Laplace or l2 noise; it used {drawn}"
    )


def _refuse(drawn: str) -> Callable[..., Any]:
    """Return a function that raises ValueError, to replace a source of random numbers that a release may not use.

    `drawn` is the name of the source in the message.
    """

    def refuse(*_: Any) -> Any:
        raise _cannot(drawn)

    return refuse


def played(
    release: Callable[[Rng | None], ArrayLike],
    rng: Rng | None,
    noises: Array = _NO_NOISE,
    gammas: tuple[float, ...] = (),
) -> tuple[Array, Asked, tuple[float, ...]]:
    """Make a release with the numbers `noises` as its noise, and record the noise that the release asks for.

    Where `noises` has too few numbers, the noise is zero. `gammas` has the numbers in place of gamma variables (random
    variances); by default each is replaced by its mean. The function `release` gets a substitute for `rng`; if `rng` is
    None, `release` gets None, and the secure samplers are replaced. Three results are returned: the release, shape
    (k,); a tuple with the law, the scale and the gamma variable of each noise variable; and a tuple with the shape
    parameters of the gamma variables that were drawn.
    """
    tape = Tape(noises, gammas, rng is None)
    substitutes: dict[Callable[..., Any], Callable[..., Any]] = {
        **{sampler: functools.partial(tape.discrete, law) for law, sampler in SECURE.items()},
        _random_bits.half_gamma: tape.half_gamma,
        _discrete.index: _refuse("samplers.secure_index"),
        _random_bits.words: _refuse("random bits of the operating system"),
    }
    with replaced(substitutes):
        return np.ravel(release(None if rng is None else tape)), tuple(tape.asked), tuple(tape.shapes)


def simulated(asked: Asked, shapes: tuple[float, ...], size: int, rng: Rng) -> tuple[Array, Array, Array]:
    """Draw `size` times the noise of one release from the Generator `rng`.

    asked[j] has the law and the scale of noise variable j, and the index (from 1) of its gamma variable; 0 means none.
    Noise with a gamma variable g, whose shape parameter k is in `shapes`, is multiplied by sqrt(g / k), to give l2
    noise. Three results are returned, with one row for each release: the noise before the multiplication, the gamma
    variables, and the noise after the multiplication. The first two together repeat a release by `played`.
    """
    drawn = [rng.gamma(shape, size=size) for shape in shapes]
    numbers = _columns([getattr(rng, law)(0.0, scale, size) for law, scale, _ in asked], size)
    return numbers, _columns(drawn, size), numbers * _factors(asked, shapes, drawn, size)


@functools.lru_cache(maxsize=16)
def secure(asked: Asked, shapes: tuple[float, ...], size: int) -> tuple[Array, Array, Array]:
    """Draw `size` times the noise of one release from the secure samplers.

    asked[j] has the law and the scale of noise variable j, and the index (from 1) of its gamma variable; 0 means none.
    Noise with a gamma variable g, whose shape parameter k is in `shapes`, is multiplied by sqrt(g / k), to give l2
    noise, and rounded to an integer.

    Three results are returned, with one row for each release: the rounded noise, numbers in place of the gamma
    variables, and the rounded noise again. The first two together repeat a release by `played`, which multiplies noise
    by sqrt(g / k), too. So the number in place of each g is k, which makes this factor 1. A second call with equal
    arguments returns the same draws.
    """
    least = min((scale for _, scale, own in asked if own), default=math.inf)
    if least < _LEAST_L2:  # the product of an integer and a factor, rounded, would have another law
        raise ValueError(
            f"release must draw secure l2 noise with a standard deviation of at least {_LEAST_L2:.0f}, got {least!r}"
        )
    drawn = [_random_bits.half_gamma(round(2 * shape), size) for shape in shapes]
    numbers = _columns([SECURE[law](scale, size) for law, scale, _ in asked], size)
    noises = np.rint(numbers * _factors(asked, shapes, drawn, size))
    return noises, np.tile(shapes, (size, 1)), noises


def _factors(asked: Asked, shapes: tuple[float, ...], drawn: list[Array], size: int) -> Array:
    """Return the factors that turn normal noise into l2 noise (1 for other noise), in the shape (size, len(asked)).

    l2 noise is normal noise times sqrt(g / k), where g is a gamma variable with the shape parameter k. `drawn` has, for
    each gamma variable, a vector of `size` draws, and `shapes` has its shape parameter. asked[j] has the index (from 1)
    of the gamma variable of noise variable j, or 0 if this is not l2 noise.
    """
    factors = [np.ones(size), *(np.sqrt(each / shape) for each, shape in zip(drawn, shapes, strict=True))]
    return _columns([factors[own] for _, _, own in asked], size)


def _columns(columns: Sequence[ArrayLike], size: int) -> Array:
    """Return `columns`, vectors of length `size`, as a matrix, which has the shape (size, 0) if there are none."""
    return np.asarray(columns, dtype=float).reshape(len(columns), size).T
