r"""Estimate the mean of the rows of a matrix privately, by published methods that are rivals of egm's own.

All methods are called in the same way and return an estimate of shape (d,)::

    estimate = method(X, rho, *, radius, rng)  # X has shape (n, d)

The promise is zero-concentrated differential privacy (zCDP). Two data sets are neighbors if one row of the first is
replaced by any other row; the number `n` of rows is public. The whole budget is `rho`. A method that works in several
steps divides it into parts whose sum is exactly `rho`, which is sufficient by Lemma 2.3 of Bun and Steinke (2016). A
step that adds Gaussian noise of standard deviation :math:`D / \sqrt{2 \rho_i}` to a value of l2-sensitivity :math:`D`
costs :math:`\rho_i`. A step that is an exponential mechanism of parameter :math:`\varepsilon` costs
:math:`\varepsilon^2 / 8` (Cesar and Rogers 2021, Lemma 3.4).

Every method gets a public bound `radius` on the mean, :math:`|\mu_j| \le \mathrm{radius}_j`. A row may lie
beyond this bound; the docstring of each method says what then happens to it. A method that also gets something that a
user would not know, such as the true mean, is called an oracle.

One function is of another kind: `second_moments` estimates a matrix of second moments, whose eigenvectors can be the
coordinates of another method. It has no `radius` but a bound on the norms of the rows.

All noise is simulated (`egm.samplers`), so these functions are for experiments and protect nobody.
None of them changes `X`. All raise ValueError for a matrix that is not finite or has fewer than two
rows and for a parameter outside its range, and TypeError if `rng` is not a numpy Generator.

Where a paper leaves a constant open, the constant is that of the paper's public code. If that code spends more budget
than it says, as that for `plan` does, the function follows the paper, and its docstring states the difference.
"""

from egm.study._rivals.anisotropic import anisotropic
from egm.study._rivals.coinpress import coinpress
from egm.study._rivals.dong_liang_yi import second_moments
from egm.study._rivals.huang_liang_yi import huang_liang_yi
from egm.study._rivals.plan import plan
from egm.study._rivals.simple import coordinate_median, gaussian

__all__ = ["anisotropic", "coinpress", "coordinate_median", "gaussian", "huang_liang_yi", "plan", "second_moments"]
