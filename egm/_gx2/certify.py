"""Prove enclosures of the tails, the density and the quantiles of a generalized chi-square variable Q."""

from __future__ import annotations

import math
import sys
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from egm._enclosure import Enclosure, ball_arithmetic, rounded
from egm._gx2.balls import Law, law_of
from egm._gx2.choice import contour_of, start
from egm._gx2.enclosed import Contour
from egm._types import Array, ArrayLike
from egm._validate import finite, nonnegative, positive, real, scalar

Ball: TypeAlias = Any  # an arb of flint
Function: TypeAlias = Literal["sf", "cdf", "logsf", "logcdf", "pdf", "isf", "ppf", "ilogsf"]

_BITS = 64  # wanted bits of a tail
_MORE = 40  # bits added if they are not enough
_ROUNDS = 5
_EXACT = 2200  # bits in which a difference of two doubles is exact
_WIDEST = 1e-13  # relative width of an enclosure that is returned
_FINE = 2.0**-70  # step of the ends of a quantile near 0, in standard deviations of Q
_NEWTON_STEPS = 60


def certify(
    x: float,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0.0,
    shift: float = 0.0,
    *,
    of: Function = "sf",
) -> Enclosure:
    r"""Prove between which two doubles a tail, a quantile or the density of Q lies.

    Here Q is a weighted sum of chi-square variables, plus a normal variable and a constant,

    .. math:: Q = \sum_j w_j \, \chi^2(\nu_j, \lambda_j) + \tau Z + \mu,

    with weights :math:`w` of either sign. All arguments are taken as the exact numbers that their doubles are. This
    function needs python-flint, which the extra `certify` installs.

    Parameters
    ----------
    x : float
        Point in the units of `weights`, for a tail or the density; it may be infinite. For a quantile it is the
        probability, in [0, 1], or for "ilogsf" the logarithm of the probability, <= 0.
    weights : array_like, shape (d,)
        Weights :math:`w` of the independent chi-square variables in Q, finite and not 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom :math:`\nu` of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities :math:`\lambda` of these variables, finite and >= 0.
    normal : float, default 0.0
        Standard deviation :math:`\tau` of the normal term, finite and >= 0.
    shift : float, default 0.0
        The constant :math:`\mu`, finite.
    of : {"sf", "cdf", "logsf", "logcdf", "pdf", "isf", "ppf", "ilogsf"}, default "sf"
        What is enclosed: the result of the function of `egm.gx2` with this name. It is P[Q > x] for "sf", P[Q <= x] for
        "cdf", and the density for "pdf". "isf" is the number that Q exceeds with probability `x`, and "ppf" the one
        that Q does not exceed with probability `x`.

    Returns
    -------
    Enclosure
        Two doubles `low` and `high`, with ``low <= exact value <= high``. They differ by a factor of at most 1 + 1e-13,
        and mostly there is no double between them. The exception is a quantile near 0, of a size below 2**-26 standard
        deviations of Q, if Q takes values on both sides of its constant :math:`\mu`: then the ends are about 2**-69
        standard deviations apart.

    Raises
    ------
    ImportError
        If python-flint is not installed.
    ValueError
        If an argument is outside its range.
    ArithmeticError
        If no narrow enclosure is found; in particular, if the exact value is below the smallest normal double or above
        the largest one.

    See Also
    --------
    sf : The upper tail in double precision, and the other functions whose names `of` can have.
    egm.calibration.certify : Enclosures of noise scales.

    Notes
    -----
    A tail is a contour integral. It is computed by the trapezoid rule in ball arithmetic [1]_, in which each operation
    returns an interval that contains the exact result. The bounds on the error of the trapezoid rule and on the
    part of the contour that is left out are proved in `egm/_gx2/enclosed.py`, and are computed in balls, too. The
    contour is chosen in doubles; this choice influences only how narrow the enclosure is.

    A quantile is searched without proof. Afterwards it is proved, for example for ``of="isf"``, that P[Q > low] is at
    least, and P[Q > high] at most, the given probability.

    References
    ----------
    .. [1] Johansson (2017), "Arb: Efficient Arbitrary-Precision Midpoint-Radius Interval Arithmetic".

    Examples
    --------
    For two degrees of freedom the tail is exp(-x / 2):

    >>> import math
    >>> from egm import gx2
    >>> gx2.certify(2.0, [1.0], dof=2).contains(math.exp(-1))
    True

    The Laplace distribution is the law of half the difference of two chi-square variables with two degrees of freedom.
    Its quantile for the probability 1e-3 is log(500):

    >>> quantile = gx2.certify(1e-3, [0.5, -0.5], dof=2, of="isf")
    >>> round(quantile.value, 12), quantile.relative_width < 1e-13
    (6.214608098422, True)
    """
    if of not in get_args(Function):
        raise ValueError(f"of must be one of {', '.join(get_args(Function))}, got {of!r}")
    variable = _Variable(weights, dof, nc, normal, shift)
    if of in ("isf", "ppf", "ilogsf"):
        return variable.quantile(of, scalar(real, **{"logp" if of == "ilogsf" else "p": x}))
    return variable.value(of, scalar(real, x=x))


class _Variable:
    """Hold the parameters of Q, a weighted sum of chi-square variables, and enclose its tails, density and quantiles.

    Q is divided by 2 ** `exponent`, the least power of two above the absolute values of the weights and above `normal`,
    the standard deviation of the normal term.
    """

    def __init__(self, weights: ArrayLike, dof: ArrayLike, nc: ArrayLike, normal: float, shift: float) -> None:
        """Check and keep the parameters of Q = sum_j weights_j chi2(dof_j, nc_j) + normal Z + shift.

        Z is a standard normal variable.
        """
        self.weights = finite(weights=weights)
        if self.weights.ndim != 1 or self.weights.size == 0:
            raise ValueError(f"weights must be a vector with at least one entry, got shape {self.weights.shape}")
        if not np.all(self.weights):
            raise ValueError(f"weights[{int(np.argmin(abs(self.weights)))}] must not be 0, got 0.0")
        self.dof, self.nc = self._broadcast(positive, dof=dof), self._broadcast(nonnegative, nc=nc)
        self.normal, self.shift = scalar(nonnegative, normal=normal), scalar(finite, shift=shift)
        self.exponent = int(np.frexp(max(float(abs(self.weights).max()), self.normal))[1])
        self.laws: dict[tuple[bool, int], Law] = {}

    def _broadcast(self, check: Any, **named: ArrayLike) -> Array:
        """Check an argument by the function `check`, and return it as a vector with one entry for each weight.

        The argument, a number or a vector, is passed by keyword, so that the message of an error can show its name.
        """
        ((name, value),) = named.items()
        array = check(**{name: value})
        if array.ndim > 1 or array.size not in (1, self.weights.size):
            raise ValueError(
                f"{name} must be a number or have the {self.weights.size} entries of weights, got shape {array.shape}"
            )
        return np.broadcast_to(array.reshape(-1)[0] if array.size == 1 else array, self.weights.shape)

    def law(self, mirrored: bool) -> Law:
        """Return the `Law` of (Q - shift) / 2 ** exponent or, if `mirrored` is true, of (shift - Q) / 2 ** exponent.

        Q is the variable that this object describes; `shift` and `exponent` are attributes. A `Law` holds the
        parameters of a distribution as balls, which are intervals that contain the exact numbers.
        """
        bits = ball_arithmetic().ctx.prec
        if (mirrored, bits) not in self.laws:
            weights = -self.weights if mirrored else self.weights
            self.laws[mirrored, bits] = law_of(weights, self.dof, self.nc, self.normal, self.exponent)
        return self.laws[mirrored, bits]

    def scaled(self, x: float) -> Ball:
        """Return (x - shift) / 2 ** exponent exactly, as a ball of radius 0: an interval that contains one number.

        `x` is a value of Q, the variable that this object describes. `shift` is the constant term of Q, and 2 **
        exponent the power of two by which Q is divided in all computations.
        """
        flint = ball_arithmetic()
        with flint.ctx.workprec(_EXACT):
            return (flint.arb(x) - self.shift) * flint.arb(2) ** -self.exponent

    def outside(self, y: Ball) -> float | None:
        """Return P[Q <= x] if it is 0 or 1 because Q takes no values on one side of x, and otherwise None.

        `y` is (x - shift) / 2 ** exponent. Q is the generalized chi-square variable that this object describes.
        """
        if self.normal == 0 and np.all(self.weights > 0) and y <= 0:
            return 0.0
        return 1.0 if self.normal == 0 and np.all(self.weights < 0) and y >= 0 else None

    def tail(self, y: Ball, bits: float) -> tuple[Ball, bool]:
        """Return a ball (an interval) that contains a tail of Q at a point x, and whether this is the upper tail.

        Q is the variable that this object describes, and `y` is (x - shift) / 2 ** exponent. The tail is the upper one
        if x is above the mean of Q, and otherwise the lower one. About `bits` bits of the tail are certain.
        """
        mirrored = bool(y < 0)
        law = self.law(mirrored)
        size = -y if mirrored else y
        upper = float(size) > law.mean
        return contour_of(law, size, upper, bits).enclose(size), upper != mirrored

    def density(self, y: Ball, bits: float) -> Ball:
        """Return a ball (an interval) that contains the density of Q at a point x.

        Q is the variable that this object describes, and `y` is (x - shift) / 2 ** exponent. About `bits` bits of the
        density are certain.
        """
        law, size = self.law(bool(y < 0)), abs(y)
        value = contour_of(law, size, float(size) > law.mean, bits).enclose(size, density=True)
        return value * ball_arithmetic().arb(2) ** -self.exponent

    def value(self, of: Function, x: float) -> Enclosure:
        """Enclose a tail of Q, its logarithm or the density at the point `x`; `of` says which, for example "logsf".

        Q is the generalized chi-square variable that this object describes. The result is an `Enclosure`: two doubles
        with the exact value between them.
        """
        flint = ball_arithmetic()
        limit = float(x > 0) if math.isinf(x) else self.outside(self.scaled(x))
        if limit is not None:
            exact = {"cdf": limit, "sf": 1 - limit, "pdf": 0.0}[of.removeprefix("log")]
            if of == "pdf" and not math.isinf(x) and x == self.shift:
                raise ArithmeticError(f"the density at the end of the support, {x!r}, is not enclosed")
            number = exact if not of.startswith("log") else (0.0 if exact else -math.inf)
            return Enclosure(number, number)
        for attempt in range(_ROUNDS):
            bits = _BITS + attempt * _MORE
            with flint.ctx.workprec(bits + 64):
                if of == "pdf":
                    ball = self.density(self.scaled(x), bits)
                else:
                    ball, upper = self.tail(self.scaled(x), bits)
                    same = upper == of.endswith("sf")
                    if of.startswith("log"):
                        ball = ball.log() if same else (-ball).log1p()
                    else:
                        ball = ball if same else 1 - ball
                found = rounded(ball) if ball.is_finite() else Enclosure(-math.inf, math.inf)
            if found.relative_width < _WIDEST:
                return found
            if max(abs(found.low), abs(found.high)) < sys.float_info.min:
                raise ArithmeticError(f"{of} at x = {x!r} is nearer to 0 than the smallest normal double")
        raise ArithmeticError(f"no narrow enclosure of {of} at x = {x!r} was found: the last one is {found}")

    def quantile(self, of: Function, given: float) -> Enclosure:
        """Enclose the lower quantile of Q if `of` is "ppf", and otherwise the upper one, for the probability `given`.

        If `of` is "ilogsf", `given` is the logarithm of the probability of the upper tail. Q is the generalized
        chi-square variable that this object describes.
        """
        flint = ball_arithmetic()
        log = of == "ilogsf"
        if not (given <= 0 if log else 0 <= given <= 1):
            raise ValueError(f"{'logp must be <= 0' if log else 'p must lie in [0, 1]'}, got {given!r}")
        if (never := given == (-math.inf if log else 0)) or given == (0 if log else 1):
            return self.end(upper=never == (of != "ppf"))
        for attempt in range(_ROUNDS):
            bits = _BITS + 20 + attempt * _MORE
            with flint.ctx.workprec(bits + 64):
                one = flint.arb(given).exp() if log else flint.arb(given)
                with flint.ctx.workprec(_EXACT):
                    other = 1 - one
                found = _Quantile(self, (other, one) if of == "ppf" else (one, other), bits).enclosure()
            if found is not None:
                return found
        raise ArithmeticError(f"no narrow enclosure of {of} at {given!r} was found")

    def end(self, upper: bool) -> Enclosure:
        """Return the largest value that Q can have if `upper` is true, and otherwise the least one; it may be infinite.

        Q is the generalized chi-square variable that this object describes.
        """
        bounded = self.normal == 0 and np.all(self.weights < 0 if upper else self.weights > 0)
        number = self.shift if bounded else math.inf if upper else -math.inf
        return Enclosure(number, number)


class _Quantile:
    """Search the number x at which a chi-square sum Q has given tails, and prove that it lies between two doubles."""

    def __init__(self, variable: _Variable, tails: tuple[Ball, Ball], bits: int) -> None:
        """Keep the arguments: the `variable` Q, its tails at the quantile x to be found, and the precision in bits.

        Q is a weighted sum of chi-square variables. `tails` has P[Q > x] and P[Q <= x] as balls, which are intervals
        that contain the exact numbers.
        """
        self.variable, self.tails, self.bits = variable, tails, bits
        signs = np.sign(variable.weights)
        self.one_sided = variable.normal == 0 and bool(np.all(signs == signs[0]))
        self.positive = bool(signs[0] > 0)
        self.mirrored, self.upper = False, True
        self.contour: Contour

    def enclosure(self) -> Enclosure | None:
        """Return a proved enclosure of the quantile x, or None if `bits` bits of precision give no narrow one."""
        flint, variable = ball_arithmetic(), self.variable
        y = self.searched()
        with flint.ctx.workprec(_EXACT):
            x = y * flint.arb(2) ** variable.exponent + variable.shift
        found = rounded(x)
        fine = 0.0 if self.one_sided else _FINE * math.ldexp(variable.law(False).deviation, variable.exponent)
        low, high = found.low, found.high
        for _ in range(4):
            step = max(math.ulp(low), math.ulp(high), fine)
            if low >= high:
                low, high = low - step, high + step
            above, below = self.exceeds(low), self.exceeds(high)
            if above is True and below is False:
                found = Enclosure(low, high)
                return found if found.relative_width < _WIDEST or high - low <= 8 * fine else None
            low, high = low if above is True else low - step, high if below is False else high + step
        return None

    def searched(self) -> Ball:
        """Return the quantile x, found without a proof, as the number (x - shift) / 2 ** exponent, a ball of radius 0.

        `shift` and `exponent` are attributes of the variable Q. An ArithmeticError is raised if the search fails.
        """
        flint = ball_arithmetic()
        y = self.begin()
        self.plan(y)
        deviation = 0.0 if self.one_sided else self.variable.law(False).deviation
        planned = y
        for _ in range(_NEWTON_STEPS):
            tail, density = self.contour.sums(abs(y))
            ratio = (tail / self.target).mid()
            if not (ratio > 0 and density.mid() > 0):
                self.plan(y := y / 2)
                planned = y
                continue
            step = (ratio.log() * tail / density).mid() * (1 if self.upper else -1)  # away from 0 for the upper tail
            step = -step if self.mirrored else step
            if self.one_sided:
                step = y * (step / y).max(flint.arb(-2)).min(flint.arb(2)).expm1() if abs(step) > 0.3 * abs(y) else step
            y = (y + step).mid()
            size = abs(y).max(flint.arb(deviation))
            if abs(step) < size * flint.arb(2) ** -(self.bits - 20):
                return y
            if (y < 0) != self.mirrored or abs(y - planned) * abs(self.crossing) > 1:
                self.plan(y)
                planned = y
        raise ArithmeticError("the search for a quantile did not end")

    def begin(self) -> Ball:
        """Choose the smaller tail for the search, and return the point at which the search begins, as a ball.

        The saddlepoint formula, an approximation in closed form, gives the point. If it lies outside the support of the
        distribution, the larger tail is chosen.
        """
        law = self.variable.law(False)
        self.upper = bool(self.tails[0] <= 0.5)
        for _ in range(2):
            y = start(law, float(self.tails[not self.upper].log()), self.upper)
            if not self.one_sided or (y > 0 if self.positive else y < 0):
                return ball_arithmetic().arb(y)
            self.upper = not self.upper
        raise ArithmeticError("no start was found for the search of a quantile")

    def plan(self, y: Ball) -> None:
        """Set the attribute `contour` to a contour by which a tail of the variable Q at the point `y` is computed.

        The tail is the one by which the quantile is searched. Contours need y >= 0. So for `y` < 0, a lower tail of Q
        at `y` is computed as the upper tail of -Q at -`y`, and an upper tail of Q as the lower tail of -Q. Here Q is
        shifted and scaled, as `y` is.
        """
        mirrored = bool(y < 0)
        if mirrored != self.mirrored:
            self.mirrored, self.upper = mirrored, not self.upper
        self.contour = contour_of(self.variable.law(mirrored), abs(y), self.upper, self.bits)
        self.crossing = self.contour.m + self.contour.rho * math.sin((self.contour.low + self.contour.high) / 2)

    @property
    def target(self) -> Ball:
        """Return the probability, a ball, that the tail at the quantile must have.

        It is the probability of that tail, upper or lower, which the contour in the attribute `contour` computes.
        """
        return self.tails[self.upper == self.mirrored]

    def exceeds(self, x: float) -> bool | None:
        """Return True if P[Q > `x`] is proved to be >= the given upper tail, False if <= it, and None if neither.

        Q is the variable whose quantile is searched, and the given upper tail is the probability with which Q exceeds
        this quantile.
        """
        y = self.variable.scaled(x)
        if (limit := self.variable.outside(y)) is not None:
            return limit == 0
        if (y < 0) != self.mirrored:
            self.plan(y)
        tail = self.contour.enclose(abs(y))
        more, less = tail >= self.target, tail <= self.target
        if self.upper == self.mirrored:
            more, less = less, more
        return True if more else False if less else None
