"""Prove enclosures of the tails, the density and the quantiles of a generalized chi-square variable Q."""

from __future__ import annotations

import math
import sys
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from egm._enclosure import Enclosure, ball_arithmetic, precision, rounded
from egm._gx2.balls import Law, law_of
from egm._gx2.choice import contour_of, start, tilt
from egm._gx2.enclosed import Contour
from egm._types import Array, ArrayLike
from egm._validate import finite, nonnegative, positive, real, scalar

Ball: TypeAlias = Any  # an arb of flint
Function: TypeAlias = Literal["sf", "cdf", "logsf", "logcdf", "pdf", "isf", "ppf", "ilogsf"]

_BITS = 64  # wanted bits of a tail
_MORE = 40  # bits added if they are not enough
_ROUNDS = 5
_EXACT_BITS = 2200  # bits in which a difference of two doubles is exact
_WIDEST = 1e-13  # relative width of an enclosure that is returned
_FINE = 2.0**-70  # step of the ends of a quantile near 0, in standard deviations of Q
_SEARCH_STEPS = 100
_CLOSE = 1e-6  # relative distance of a tail from the given one, below which a small step may end the search


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
        Weights :math:`w` of the independent chi-square variables in Q, finite and not 0. There may be none if `normal`
        is > 0.
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
        deviations of Q, if Q takes values on both sides of its constant :math:`\mu`: then the ends are up to 2**-67
        standard deviations apart.

    Raises
    ------
    ImportError
        If python-flint is not installed.
    ValueError
        If an argument is outside its range.
    ArithmeticError
        If no narrow enclosure is found; in particular, if the exact value is below the smallest normal double or above
        the largest one, or if the integral for an extreme argument would need more than 30 000 nodes.

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

    The precision of python-flint is one for all threads. So calls in several threads wait for each other.

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
        if self.weights.ndim != 1:
            raise ValueError(f"weights must be a vector, got shape {self.weights.shape}")
        if not np.all(self.weights):
            raise ValueError(f"weights[{int(np.argmin(abs(self.weights)))}] must not be 0, got 0.0")
        self.dof, self.nc = self._broadcast(positive, dof=dof), self._broadcast(nonnegative, nc=nc)
        self.normal, self.shift = scalar(nonnegative, normal=normal), scalar(finite, shift=shift)
        if self.weights.size == 0 and self.normal == 0:
            raise ValueError("weights must have at least one entry if normal is 0, got shape (0,)")
        self.exponent = int(np.frexp(np.max(abs(self.weights), initial=self.normal))[1])
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
        with precision(_EXACT_BITS):
            return (flint.arb(x) - self.shift) * flint.arb(2) ** -self.exponent

    def outside(self, y: Ball) -> float | None:
        """Return P[Q <= x] if it is 0 or 1 because Q takes no values on one side of x, and otherwise None.

        `y` is (x - shift) / 2 ** exponent. Q is the generalized chi-square variable that this object describes.
        """
        if self.normal == 0 and np.all(self.weights > 0) and y <= 0:
            return 0.0
        return 1.0 if self.normal == 0 and np.all(self.weights < 0) and y >= 0 else None

    def tail(self, y: Ball, bits: float) -> tuple[Ball, bool]:
        """Return a ball (an interval) that contains a tail of Q at a point x, and True if this is the upper tail.

        Q is the variable that this object describes, and `y` is (x - shift) / 2 ** exponent. The tail is an integral
        along a contour (path of integration), and about `bits` bits of it are certain.

        - Mostly the tail is the upper one if x is above the mean of Q, and otherwise the lower one.
        - If no contour for this tail is found, but an upper bound that is negligible beside 1, the ball reaches from 0
          to this bound.
        - Otherwise the ball is for the other tail.
        """
        upper = float(y) > self.law(False).mean
        try:
            contour = self.contour(y, upper, bits)
        except ArithmeticError:
            if (bound := self.bound(y, upper)) < ball_arithmetic().arb(2) ** -_BITS:
                return (bound * 0).union(bound), upper
            contour, upper = self.contour(y, not upper, bits), not upper
        return contour.enclose(abs(y)), upper

    def contour(self, y: Ball, upper: bool, bits: float) -> Contour:
        """Return a contour (path of integration) by which about `bits` bits of a tail of Q at a point x are certain.

        `y` is (x - shift) / 2 ** exponent, and Q is the variable that this object describes. The tail is the upper one
        if `upper` is true, and otherwise the lower one. Contours need y >= 0. So for `y` < 0, a lower tail of Q is
        computed as the upper tail of -Q, and an upper tail of Q as the lower tail of -Q.
        """
        mirrored = bool(y < 0)
        return contour_of(self.law(mirrored), abs(y), upper != mirrored, bits)

    def bound(self, y: Ball, upper: bool) -> Ball:
        """Return an upper bound of a tail of Q at a point x: the upper tail if `upper` is true, else the lower one.

        `y` is (x - shift) / 2 ** exponent, and Q is the variable that this object describes. If no bound is proved, the
        result is infinity.
        """
        flint, law = ball_arithmetic(), self.law(False)
        s = flint.arb(tilt(law, float(y), upper))
        # Chernoff's bound E exp(s (Q - y)) holds for the upper tail at every s > 0 and for the lower one at every s < 0
        # for which the expectation is finite, that is, between the cuts of the cumulant function.
        proved = (s > 0 if upper else s < 0) and s * law.largest < 1 and s * law.least < 1
        return (law.cumulant(flint.acb(s)) - s * y).exp().real if proved else flint.arb.pos_inf()

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
        limit = float(x > 0) if math.isinf(x) else self.outside(self.scaled(x))
        if limit is not None:
            exact = {"cdf": limit, "sf": 1 - limit, "pdf": 0.0}[of.removeprefix("log")]
            if of == "pdf" and not math.isinf(x) and x == self.shift:
                raise ArithmeticError(f"the density at the end of the support, {x!r}, is not enclosed")
            number = exact if not of.startswith("log") else (0.0 if exact else -math.inf)
            return Enclosure(number, number)
        # The exact value lies between these bounds, so an enclosure may be cut there.
        least, most = (-math.inf, 0.0) if of.startswith("log") else (0.0, math.inf if of == "pdf" else 1.0)
        for attempt in range(_ROUNDS):
            bits = _BITS + attempt * _MORE
            with precision(bits + 64):
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
            found = Enclosure(max(found.low, least), min(found.high, most))
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
            with precision(bits + 64):
                one = flint.arb(given).exp() if log else flint.arb(given)
                with precision(_EXACT_BITS):
                    other = -flint.arb(given).expm1() if log else 1 - one
                found = _Quantile(self, (other, one) if of == "ppf" else (one, other), bits).enclosure()
            if found is not None:
                return found
        raise ArithmeticError(
            f"no narrow enclosure of {of} at {given!r} was found: egm.gx2.{of} computes it without a proof"
        )

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
        weights, arb = variable.weights, ball_arithmetic().arb
        self.one_sided = variable.normal == 0 and bool(np.all(weights > 0) or np.all(weights < 0))
        deviation = 0.0 if self.one_sided else variable.law(False).deviation
        self.deviation, self.fine = arb(deviation), _FINE * math.ldexp(deviation, variable.exponent)
        nearest = max(math.ulp(variable.shift) / 4, sys.float_info.min, self.fine)
        self.nearest = arb(nearest) * arb(2) ** -variable.exponent
        self.small = bool(tails[0] <= 0.5)
        self.planned: tuple[Ball, float, Contour, bool] | None = None

    def enclosure(self) -> Enclosure | None:
        """Return a proved enclosure of the quantile x, or None if `bits` bits of precision give no narrow one."""
        flint, variable = ball_arithmetic(), self.variable
        y = self.searched()
        with precision(_EXACT_BITS):
            x = y * flint.arb(2) ** variable.exponent + variable.shift
        found = rounded(x)
        low, high = found.low, found.high
        for _ in range(4):
            step = max(math.ulp(low), math.ulp(high), self.fine)
            if low >= high:
                low, high = low - step, high + step
            above, below = self.exceeds(low), self.exceeds(high)
            if above is True and below is False:
                found = Enclosure(low, high)
                return found if found.relative_width < _WIDEST or high - low <= 8 * self.fine else None
            low, high = low if above is True else low - step, high if below is False else high + step
        return None

    def searched(self) -> Ball:
        """Return the quantile x, found without a proof, as the number (x - shift) / 2 ** exponent, a ball of radius 0.

        `shift` and `exponent` are attributes of the variable Q. Newton's rule is used as long as it stays between
        bounds and converges; otherwise the interval between the bounds is divided. A quantile nearer to the shift than
        `nearest` is not resolved. An ArithmeticError is raised if the search fails.
        """
        arb = ball_arithmetic().arb
        y, low, high = self.begin()
        before, beside = arb.pos_inf(), self.one_sided
        for _ in range(_SEARCH_STEPS):
            if low >= -self.nearest and high <= self.nearest:
                if self.one_sided and self.variable.shift == 0:
                    raise ArithmeticError("the quantile is nearer to 0 than the smallest normal double")
                return ((low + high) / 2).mid()
            contour, upper = self.plan(y)
            tail, density = contour.sums(abs(y))
            quotient = (tail / self.tails[not upper]).mid()
            low, high = (y, high) if bool(quotient > 1) == upper else (low, y)
            step = (quotient.log() * tail / density).mid() * (1 if upper else -1)
            change = abs(step / y) if beside else abs(step)
            if beside and change > 0.3:
                # Newton's rule for log |y|. A lower tail is nearly a power of y, so one step may lead from 1 to 1e-300.
                ratio, most = step / y, arb(700 if self.one_sided and not contour.upper else 2)
                step = y * ratio.max(-most).min(most).expm1().max(ratio)
            following = (y + step).mid()
            if abs(step) < abs(y).max(self.deviation) * arb(2) ** -(self.bits - 20) and abs(quotient - 1) < _CLOSE:
                return following
            if density > 0 and low < following < high and abs(following) >= self.nearest and change < 0.7 * before:
                y, before = following, change
            else:
                y, before, beside = self.between(low, high), arb.pos_inf(), True
        raise ArithmeticError("the search for a quantile did not end: egm.gx2 computes quantiles without a proof")

    def begin(self) -> tuple[Ball, Ball, Ball]:
        """Return the point at which the search for the quantile begins, and a lower and an upper bound of the quantile.

        The point comes from the saddlepoint formula, an approximation of a tail in closed form: of the smaller tail or,
        if the point for this tail is not between the bounds, of the other one. The bounds follow from the support of
        the distribution and from the inequalities of Chernoff and Cantelli.
        """
        law, arb = self.variable.law(False), ball_arithmetic().arb
        below = self.variable.outside(arb(0))  # P[Q <= shift], if it is 0 or 1
        low, high = 0.0 if below == 0 else -math.inf, 0.0 if below == 1 else math.inf
        if self.small:
            low = max(low, law.mean - law.deviation)
        else:
            high = min(high, law.mean + law.deviation)
        for upper in (self.small, not self.small):
            y, bound = start(law, float(self.tails[not upper].log()), upper)
            low, high = (low, min(high, bound)) if upper else (max(low, bound), high)
            if low < y < high:
                y = arb(y)
                return y if abs(y) > self.nearest else y.sgn() * self.nearest, arb(low), arb(high)
        return self.between(arb(low), arb(high)), arb(low), arb(high)

    def between(self, low: Ball, high: Ball) -> Ball:
        """Return a point between two bounds of the quantile, to divide the interval: their geometric mean.

        If 0 is between the bounds, the point is `nearest` or -`nearest`. So the sign of the quantile is found first.
        """
        least = self.nearest
        if high > least:
            return least if low < -least or high < 4 * least else (low.max(least) * high).sqrt().mid()
        return -least if low > -4 * least else -(high.min(-least) * low).sqrt().mid()

    def plan(self, y: Ball) -> tuple[Contour, bool]:
        """Choose a contour (path of integration) for a tail of Q at a point x; return it, and True for the upper tail.

        Q is the variable whose quantile is searched, and `y` is (x - shift) / 2 ** exponent. If `y` is near the `y` for
        which the last contour was chosen, this contour is returned again. Otherwise a contour is chosen for the tail
        that is smaller at the quantile or, if none is found, for the other tail.
        """
        if self.planned:
            last, crossing, contour, upper = self.planned
            far = abs(y - last)
            if (y < 0) == (last < 0) and far * crossing <= 1 and far <= abs(last) / 2:
                return contour, upper
        try:
            contour, upper = self.variable.contour(y, self.small, self.bits), self.small
        except ArithmeticError:
            contour, upper = self.variable.contour(y, not self.small, self.bits), not self.small
        crossing = abs(contour.m + contour.rho * math.sin((contour.low + contour.high) / 2))
        self.planned = y, crossing, contour, upper
        return contour, upper

    def exceeds(self, x: float) -> bool | None:
        """Return True if P[Q > `x`] is proved to be at least the given upper tail, False if at most, None if neither.

        Q is the variable whose quantile is searched, and the given upper tail is the probability with which Q exceeds
        this quantile.
        """
        y = self.variable.scaled(x)
        if (limit := self.variable.outside(y)) is not None:
            return limit == 0
        try:  # the ball of any contour contains the tail, so it does not matter for which point one was chosen
            contour, upper = self.plan(y)
            tail, target = contour.enclose(abs(y)), self.tails[not upper]
        except ArithmeticError:
            return None
        if tail >= target:
            return upper
        return not upper if tail <= target else None
