r"""Compute tails, quantiles and moments of the generalized chi-square distribution.

It is the distribution of a weighted sum of independent noncentral chi-square variables, with a normal
term and a constant if they are wanted,

.. math:: Q = \sum_j w_j \, \chi^2(\nu_j, \lambda_j) + \tau Z + \mu, \qquad w_j \ne 0,

where Z is standard normal. In the signatures :math:`w` is called `weights`, :math:`\nu` is `dof`, :math:`\lambda`
is `nc`, :math:`\tau` is `normal` and :math:`\mu` is `shift`. Every quadratic form of a normal vector has such a
distribution (`from_quadratic_form`).

The functions parallel those of `scipy.stats.ncx2`: `sf`, `logsf`, `cdf`, `logcdf`, `pdf`, `logpdf`, `isf`,
`ppf`, `mean`, `var` and `rvs`; `rv` is a frozen distribution with these methods. Besides, `ilogsf` inverts
`logsf` for probabilities that are too small for a double, `conditional_means` shows which terms make Q large,
`gradients` has the derivatives of the tail, and `clip_moments` gives moments of the part that a normal vector
with the squared norm Q loses when it is shortened to a given norm. All of these compute in double precision.
With ``full_output=True``, all but the moments and the entropy of Q come with an estimated error; `certify`
proves between which two doubles a tail, a density or a quantile lies.

Let n be the sum of the degrees of freedom and of the noncentralities, and let x be z standard deviations
away from the mean. The rounding of x to a double changes the tail at x by a relative
:math:`10^{-16} (1 + z) \sqrt{n}` at most, because 0 is no farther than about :math:`\sqrt{n}` standard
deviations from the mean. For n above 1e8, the relative error of a tail may be more than 1e-12, but it is less than this
change; the estimated error covers it. For n above about 1e22, rounding may change a far tail by more than
one percent, and then an `AccuracyError` is raised.

Notes
-----
This is how a tail is computed [1]_. The cumulant function of Q,

.. math::

    K(s) = \mu s + \frac{\tau^2 s^2}{2} + \sum_j \Bigl[ -\frac{\nu_j}{2} \log(1 - 2 w_j s)
                         + \frac{\lambda_j w_j s}{1 - 2 w_j s} \Bigr],

is analytic except on cuts along the real axis: one from :math:`1 / (2 \max w)` to infinity if there are
positive weights, and one from :math:`1 / (2 \min w)` to minus infinity if there are negative ones. The
tails and the density are contour integrals over s:

.. math::

    \mathrm{sf}(x) &= \frac{1}{2 \pi i} \int e^{K(s) - s x} \, \frac{ds}{s}, \\
    \mathrm{cdf}(x) &= -\frac{1}{2 \pi i} \int e^{K(s) - s x} \, \frac{ds}{s}, \\
    \mathrm{pdf}(x) &= \frac{1}{2 \pi i} \int e^{K(s) - s x} \, ds.

The contour of sf crosses the real axis between 0 and the right cut, that of cdf between the left cut and
0, and that of pdf anywhere between the cuts.

1. The contour crosses the real axis at the saddle point c. On the stretch of the axis where it may cross,
   the absolute value of the integrand is smallest at c. From c it falls off fastest in the direction
   across the axis. The value at c, :math:`e^{K(c) - c x} / |c|`, is a factor of the whole integral: it
   carries the size of the tail, such as 1e-300 or exp(-1e6), and only its logarithm is computed. The
   other factor is a number of order one (`egm/_gx2/contour.py`). The density is integrated along the
   contour of a tail.
2. The contour is the hyperbola :math:`s = c + h b (t (\cosh(u/b) - 1) + i \sinh(u/b))` for real u. Its
   constants h and b are chosen, within limits, so that it follows the path of steepest descent to third order
   where this path bends to the side on which :math:`e^{-s x}` falls. Near c the
   integrand falls like :math:`e^{-u^2/2}`. Far from c the hyperbola keeps an angle to the vertical
   whose tangent is t, so that it does not come near the cut. There equal steps in u become steps in s
   that grow exponentially, which is necessary because the integrand of few weights falls only like a
   power of s. The trapezoid rule in u converges geometrically: the step is halved until two rules agree
   and the phase of the integrand changes little from node to node (`egm/_gx2/kernel.py`).
3. At a node, many weights with equal degrees of freedom need only one logarithm: the factors
   :math:`1 - 2 w_j s` are multiplied, and the turns of the product around zero are counted. The loops
   over nodes and weights are compiled by numba once that pays: for up to 1024 different weights, a process
   first runs the same loops in Python, to the same digits, for a quarter of a second or, where they have not
   been compiled before, for three seconds (`egm/_gx2/loops.py`).
4. A quantile is searched over c instead of x, because :math:`x(c) = K'(c) - 1/c` is explicit. The
   search starts from the saddlepoint formula to second order [2]_, whose probability has a relative error
   of a few percent in a tail, and of about a tenth elsewhere. Then one or two steps of Newton's method
   give the quantile. For each step, a tail and a density are integrated along one contour. With few
   degrees of freedom, or near 0 if weights have both signs, the secant rule or a search between two bounds
   follows. If more than 48 quantiles of one distribution are asked for, most are interpolated: the tail is
   computed at chosen points, and the function through them is inverted (`egm/_gx2/quantiles.py`).
5. More than 2048 weights are put into clusters, unless there would be more clusters than a sixteenth of the
   number of weights. Each cluster is replaced by a center and the moments about
   it, because :math:`\log(1 - 2 w s)` is analytic in w: with :math:`w = m (1 + e)` and
   :math:`V = 2 m s / (1 - 2 m s)`,

   .. math::

       \log(1 - 2 w s) = \log(1 - 2 m s) + \log(1 - V e),
       \qquad \log(1 - V e) = -\sum_{p \geq 1} \frac{(V e)^p}{p}.

   Let :math:`r = w / \max w`. For :math:`r \leq 1/2`, each interval of :math:`|r|` between two neighboring powers of
   two is divided into 16 intervals of equal length, and the weights with r in one of them are a cluster.
   For r > 1/2, the same is done with 1 - r. So :math:`|V e|` is at most 1/16 on the real axis. The leading
   bits of r or 1 - r say to which cluster a weight belongs. So one pass over the weights is enough to make
   the clusters; afterwards a tail costs as much as with a few hundred weights (`egm/_gx2/form.py`).
   For :math:`|r| < 2^{-23}` a cluster is eight octaves wide, because :math:`|V e|` is then at most about
   :math:`|2 w s|` and small. Where the contour goes farther than :math:`2^{15} / \max w`, as it may in lower tails
   and for few degrees of freedom, such weights get narrow clusters, too.

In the computation the weights are divided by twice the largest one, so that the cut starts at 1. Then
:math:`1 - 2 w c` becomes :math:`1 - r c`. For an upper tail it is computed as :math:`(1 - c) + c (1 - r)`,
with each part right in all its digits, because in a far tail :math:`1 - c` is small and every digit of the
result depends on it. Tails, densities and quantiles need weights for which this division does not overflow.
If a weight is above 8.98e307 in absolute value, a ValueError is raised (`certify` still encloses the
results). It is also raised if a weight or `normal` is more than 1e300 times the largest weight with the sign
that belongs to the tail: the plus sign for the upper tail, the minus sign for the lower tail. An
`AccuracyError` may be raised if the distance of x from `shift` is more than 1e308 times this largest weight,
or, for weights of one sign whose ratios exceed 1e270, less than 1e-300 times this weight.

References
----------
.. [1] Rice (1980), "Distribution of Quadratic Forms in Normal Random Variables: Evaluation by
   Numerical Integration".
.. [2] Daniels (1987), "Tail Probability Approximations".
"""

from egm._enclosure import Enclosure
from egm._gx2.certify import certify
from egm._gx2.clipping import clip_moments
from egm._gx2.contour import AccuracyError
from egm._gx2.derivatives import Gradients, conditional_means, gradients
from egm._gx2.frozen import from_quadratic_form, rv
from egm._gx2.moments import mean, rvs, var
from egm._gx2.quantiles import ilogsf, isf, ppf
from egm._gx2.tails import cdf, logcdf, logpdf, logsf, pdf, sf

__all__ = [
    "AccuracyError",
    "Enclosure",
    "Gradients",
    "cdf",
    "certify",
    "clip_moments",
    "conditional_means",
    "from_quadratic_form",
    "gradients",
    "ilogsf",
    "isf",
    "logcdf",
    "logpdf",
    "logsf",
    "mean",
    "pdf",
    "ppf",
    "rv",
    "rvs",
    "sf",
    "var",
]
