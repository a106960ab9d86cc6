"""Estimate a mean by CoinPress, the method of Biswas, Dong, Kamath and Ullman (2020)."""

from __future__ import annotations

import numpy as np

from egm._types import Array, ArrayLike, Number
from egm._validate import count, probability, scalar
from egm.calibration import zcdp_noise_multiplier
from egm.study._rivals import parts


def coinpress(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    sigma: ArrayLike,
    covariance_steps: int = 0,
    steps: int | None = None,
    beta: float = 0.01,
    clip_probability: float | None = None,
) -> Array:
    r"""Estimate the mean by CoinPress, which shrinks a ball that contains the mean step by step.

    Each step clips the rows to a ball around the last estimate and releases their noisy mean. This mean is
    the center of the next ball, which is smaller.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0.
    radius : float or array_like, shape (d,)
        Public bound on the absolute value of each coordinate of the mean, > 0, in the units of `X`. A row
        beyond this bound is clipped to the ball of the step, like any other row.
    rng : numpy.random.Generator
        Generator of the noise, which is simulated and not secure.
    sigma : float or array_like, shape (d,)
        Public bounds on the standard deviations, > 0, in the units of `X`. Rows are divided by
        them, and no eigenvalue of the covariance matrix of the divided rows may be above 1. A user
        may know the largest standard deviation. No user knows the true ones, shape (d,): with them
        the method is an oracle, for comparison only.
    covariance_steps : int, default 0
        Number of steps, >= 0, of a private estimate of the covariance matrix (see Notes). If there are
        any, they spend half of `rho` to find a better bound than `sigma`.
    steps : int, optional
        Number of steps by which the mean is estimated, >= 1. By default it is the number, up to 40, for
        which the last step has the least noise.
    beta : float, default 0.01
        Probability of failure, in (0, 1), of all steps for the mean together, and likewise of all
        steps for the covariance. A step for the mean fails if its ball does not contain the mean
        or, without `clip_probability`, if it clips a row.
    clip_probability : float, optional
        Probability p, in (0, 1), with which a row may be clipped in a step. By default it is
        :math:`\beta_i / n`; see Notes.

    Returns
    -------
    ndarray, shape (d,)
        Private estimate of the mean of the rows, in the units of `X`.

    Raises
    ------
    ValueError
        If `X` is not finite or has fewer than two rows, or if a parameter is outside its range.
    TypeError
        If `rng` is not a numpy Generator.

    Notes
    -----
    The methods are MVMRec and, for the covariance, MVCRec of [1]_. The squared norm of a standard normal
    vector exceeds

    .. math:: g(p)^2 = d + 2 \sqrt{d \ln(1/p)} + 2 \ln(1/p)

    with probability at most p. If the center of the ball is at most r from the mean, rows are clipped to
    the norm

    .. math:: \sqrt{r^2 + 2 r \sqrt{2 \ln(1/p)} + g(p)^2}

    or to :math:`r + g(p)` if that is less; p is `clip_probability`. Then r becomes
    :math:`g(\beta_i) \sqrt{1/n + v}`, where v is the variance of the noise. The last step gets 3/4
    of the budget, and the steps before it share the rest equally. Half of `beta` is for clipped
    rows. A quarter of `beta` is :math:`\beta_i` for the last step, and the steps before it share a
    quarter equally. No r depends on the rows, other than through the released estimate of the
    covariance. So the best number of steps can be chosen without any cost of privacy. The authors'
    public code has 0.01 for p and for each :math:`\beta_i`.

    The estimate of the covariance is made from n/2 differences of rows, and each of its steps takes time
    :math:`O(n d^2 + d^3)`. It adds noise to :math:`d^2` numbers, and makes the bound worse unless
    :math:`n \sqrt{\rho}` is many times :math:`d^{1.5}`.

    The estimate is `rho`-zCDP for neighbors that replace one row [1]_.

    References
    ----------
    .. [1] Biswas, Dong, Kamath and Ullman (2020), "CoinPress: Practical Private Mean and Covariance
       Estimation".

    Examples
    --------
    Age, income and visits to a doctor of 10 000 people:

    >>> import numpy as np
    >>> from egm.study.rivals import coinpress
    >>> rng = np.random.default_rng(1)
    >>> sigma = [18, 1200, 3]
    >>> X = rng.normal([47, 2200, 5], sigma, size=(10_000, 3))
    >>> estimate = coinpress(X, rho=0.5, radius=[100, 10_000, 50], rng=rng, sigma=sigma)
    >>> print(estimate.round(1))
    [  46.9 2192.8    4.9]
    """
    X, rho, radius = parts.checked(X, rho, radius, rng)
    n, d = X.shape
    sigma, beta = parts.sigma_of(sigma, d), scalar(probability, beta=beta)
    p = None if clip_probability is None else scalar(probability, clip_probability=clip_probability)
    Y, r = X / sigma, np.linalg.norm(radius / sigma)
    if covariance_steps:
        rho = rho / 2
        whitening = _whitening(Y, rho, count(covariance_steps=covariance_steps), beta, rng)
        Y, r = Y @ whitening.T, np.linalg.norm(whitening, 2) * r
    tries = range(1, 41) if steps is None else [count(steps=steps)]
    balls = min((_balls(n, d, r, rho, t, beta, p) for t in tries), key=lambda balls: balls[-1][0] / balls[-1][1] ** 0.5)
    center = np.zeros(d)
    for clip_norm, budget in balls:
        center = center + parts.clipped_mean(Y - center, clip_norm, budget, rng)
    return sigma * (np.linalg.solve(whitening, center) if covariance_steps else center)


def _tail(d: int, p: float) -> float:
    """Return a bound that the norm of a standard normal vector of `d` entries exceeds with probability at most `p`.

    The bound is called g(p) in the notes of `coinpress`. It is from Lemma 1 of Laurent and Massart (2000).
    """
    t = np.log(1 / p)
    return np.sqrt(d + 2 * np.sqrt(d * t) + 2 * t)


def _budgets(rho: float, steps: int) -> list[float]:
    """Divide the privacy budget `rho` among `steps` steps, and return a list with the budget of each step.

    The last step gets 3/4 of `rho`, and the steps before it get equal parts of the rest. A single step gets all.
    """
    return [rho] if steps == 1 else [rho / 4 / (steps - 1)] * (steps - 1) + [0.75 * rho]


def _balls(
    n: int, d: int, r: Number, rho: float, steps: int, beta: float, clip_probability: float | None
) -> list[tuple[float, float]]:
    """Return a list with a pair (clip norm, budget) for each of the `steps` steps of CoinPress.

    There are `n` rows of `d` entries, and no eigenvalue of their covariance matrix is above 1. Before the first step,
    the mean is known to be in a ball of radius `r`. `rho` is the budget of all steps together, `beta` their probability
    of failure, and `clip_probability` the probability with which a row may be clipped in a step, or None for the
    default. The notes of `coinpress` have the formulas.
    """
    balls = []
    for i, budget in enumerate(_budgets(rho, steps)):
        beta_i = beta / 4 if i == steps - 1 else beta / (4 * (steps - 1))
        p = clip_probability or beta_i / n
        g = _tail(d, p)
        clip_norm = min(r + g, np.sqrt(r**2 + 2 * r * np.sqrt(2 * np.log(1 / p)) + g**2))
        balls.append((clip_norm, budget))
        r = _tail(d, beta_i) * np.hypot(1 / np.sqrt(n), 2 * clip_norm / n * zcdp_noise_multiplier(budget))
    return balls


def _whitening(X: Array, rho: float, steps: int, beta: float, rng: np.random.Generator) -> Array:
    """Find privately a matrix A, shape (d, d), such that the rows times A have a covariance near the identity.

    Let S be the covariance matrix of the rows of `X`, shape (n, d). No eigenvalue of S may be above 1. Then, with
    probability near 1, no eigenvalue of A S A.T is above 1; for large n all are near 1. `beta` is the probability of
    failure for which the bounds of the search are chosen. The search has `steps` steps and costs `rho` in zCDP. It is
    the method MVCRec of the CoinPress paper. `rng` is the random generator of the pairs and of the noise.

    The rows are paired at random, and each pair gives a vector w: the difference of its two rows, divided by sqrt(2).
    In each step the vectors A w are clipped to a norm g, and the mean of the matrices A w w.T A.T gets symmetric noise.
    If one row is replaced, one of these matrices changes, by at most sqrt(2) g**2 in the Frobenius norm. With
    probability at least 1 - b, symmetric noise of standard deviation s has a spectral norm of at most 2 s (sqrt(d) +
    sqrt(ln(1/b))). This bound, with b = `beta` / (4 `steps`), replaces a larger one of the paper.
    """
    pairs = X[rng.permutation(len(X))[: len(X) // 2 * 2]]
    differences = (pairs[::2] - pairs[1::2]) / np.sqrt(2)
    n, d = differences.shape
    A, upper = np.eye(d), np.triu_indices(d)
    beta = beta / (4 * steps)
    for budget in _budgets(rho, steps):
        W, g = differences @ A.T, _tail(d, beta / n)
        W *= (g / np.maximum(parts.norms(W), g))[:, None]
        noisy, sensitivity = np.zeros((d, d)), np.sqrt(2) * g**2 / n
        noisy[upper] = parts.noisy((W.T @ W)[upper] / n, sensitivity, budget, rng)
        noise_norm = 2 * sensitivity * zcdp_noise_multiplier(budget) * (np.sqrt(d) + np.sqrt(np.log(1 / beta)))
        sampling = np.sqrt(d / n) + np.sqrt(2 * np.log(2 / beta) / n)
        values, vectors = np.linalg.eigh(noisy, UPLO="U")
        values = np.maximum(values, 0.0) + 2 * sampling + sampling**2 + noise_norm
        A = (vectors / np.sqrt(values)) @ vectors.T @ A
    return A
