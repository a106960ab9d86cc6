"""The published rivals: private means of the rows of a matrix, each from its paper, all called the same way.

    estimate = method(X, rho, *, radius, rng)          X: (n, d), estimate: (d,)

Neighbours replace one row by any other; n is public. `rho` is the whole budget in zero-concentrated differential
privacy, and the parts of it that a method spends one after another add up to it exactly (Bun and Steinke 2016, Lemma
2.3): a Gaussian mechanism of l2-sensitivity D and noise D / sqrt(2 rho_i) costs rho_i, an exponential mechanism of
parameter epsilon costs epsilon**2 / 8. `radius` is the public bound |mu_j| <= radius on the mean, a number or (d,). A
row beyond it is no error: what is done with it is said for each method. X is never changed. All randomness is
simulation (`egm.samplers`). Every function raises ValueError for a matrix that is not finite or has fewer than two rows
and for a parameter outside its range, TypeError for an rng that is not a numpy Generator.

Where a paper leaves a constant open, it is that of its public code; where that code spends more than it says, as PLAN's
does, the paper is followed and the docstring says what differs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri

from egm import samplers
from egm._types import Array, ArrayLike, Number
from egm._validate import count, finite, matrix, positive, probability, scalar
from egm.calibration import zcdp_noise_multiplier
from egm.quantiles import epsilon_of_rho, quantile

__all__ = ["anisotropic", "coinpress", "coordinate_median", "gaussian", "huang_liang_yi", "plan"]

_BLOCK = 1 << 22  # distances between rows handled at a time


def gaussian(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    center: ArrayLike = 0.0,
    clip_norm: Number | None = None,
) -> Array:
    """The mean of rows clipped to a ball, plus noise of standard deviation 2 clip_norm / (n sqrt(2 rho)).

    center: that of the ball, a number or (d,). clip_norm: its radius, > 0, by default the norm of `radius`: the ball
    that contains the box. With a known centre and the best clip_norm it is an oracle, hard to beat by a method that has
    to find them. A row outside the ball is moved to its surface, towards the centre.
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    center = np.broadcast_to(finite(center=center), radius.shape)
    clip_norm = np.linalg.norm(radius) if clip_norm is None else scalar(positive, clip_norm=clip_norm)
    return center + _clipped_mean(X - center, clip_norm, rho, rng)


def coordinate_median(X: ArrayLike, rho: float, *, radius: ArrayLike, rng: np.random.Generator) -> Array:
    """In each coordinate a private median by the exponential mechanism, at rho / d each.

    Its error does not depend on a clip norm, so that it wins where d is large and rho small; for normal data the
    median alone has pi / 2 times the variance of the mean. A value beyond the radius is clipped to it.
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    return quantile(X, 0.5, -radius, radius, epsilon_of_rho(rho / radius.size), rng)


def plan(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    sigma: ArrayLike | None = None,
    search_share: float = 0.25,
    center_share: float = 0.25,
    clip_share: float = 0.25,
    beta: float = 0.1,
) -> Array:
    """PLAN: rows centred, scaled by (sigma + mean sigma)**-0.5, clipped at a private quantile of their norms.

    Of rho, search_share goes to finding the centre, by coordinate-wise medians (center_share of it), and the spread;
    clip_share of the rest to the clip norm; what remains to the noise. sigma_j**2 is the median of (x - y)**2 / 2 over
    n/2 disjoint random pairs of rows, over the median of chi2(1). sigma: (d,), > 0, if it is known: then the whole
    search is for the centre. The clip norm is the quantile 1 - k/n of the norms, by the exponential mechanism over [0,
    sqrt(2 ln d ln(1/beta) sum sigma)], with k = sqrt(n) + sqrt(T ln(T / beta) / (2 rho_clip)), T = ln(2 radius). A
    value beyond the radius is clipped to it for the median, and the row to the clip norm for the mean.

    Aumüller, Lebeda, Nelson and Pagh (2023), Algorithm 1 for p = 2 and the choices of their experiments, but for two.
    Their code adds each row three times, 0.1 apart, to spread equal values, and pays 3 instead of 9 times for it; and
    its medians pay for a row added or removed, which halves the sensitivity, where the noise pays for one replaced.
    So its search costs 12 times what it says: with its budget rho it spends 3.75 rho, and its errors on normal data are
    those of plan(X, 3.75 rho, search_share=0.8).
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    n, d = X.shape
    beta, search = scalar(probability, beta=beta), rho * scalar(probability, search_share=search_share)
    for_center = search * scalar(probability, center_share=center_share) if sigma is None else search
    for_clip = (rho - search) * scalar(probability, clip_share=clip_share)
    center = quantile(X, 0.5, -radius, radius, epsilon_of_rho(for_center / d), rng)
    sigma = _spread(X, radius, (search - for_center) / d, rng) if sigma is None else _sigma(sigma, d)
    scale = 1 / np.sqrt(sigma + np.mean(sigma))
    Y = (X - center) * scale
    width = max(np.log(2 * np.max(radius)), 1.0)
    k = np.sqrt(n) + np.sqrt(width * max(np.log(width / beta), 0.0) / (2 * for_clip))
    largest = np.sqrt(2 * max(np.log(d), 1.0) * np.log(1 / beta) * np.sum(sigma))
    clip_norm = quantile(_norms(Y), max(1 - k / n, 1 / n), 0.0, largest, epsilon_of_rho(for_clip), rng)
    return center + _clipped_mean(Y, clip_norm, rho - search - for_clip, rng) / scale


def huang_liang_yi(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    norm_bound: float | None = None,
    search_share: float = 0.25,
    clip_share: float = 0.25,
    slack: float = 1.0,
    steps: int = 20,
    beta: float = 0.1,
) -> Array:
    """The shifted clipped mean: rows rotated at random, centred by private medians, clipped at a private quantile.

    The rotation is a Hadamard matrix after random signs (rows are padded with zeros to a power of two); it makes all
    coordinates alike, so the error is that of the spread of the data as a whole, and does not profit from a spread
    that differs between coordinates. Of rho, search_share goes to the medians, clip_share of the rest to the clip norm,
    what remains, rho_3, to the noise. Both are found by binary search with noisy counts in `steps` steps: with R =
    norm_bound, a bound on the norm of mu (by default that of `radius`), in |x| <= R sqrt(2 ln(2 d / beta) / d) and in
    norms <= 2 R. The clip norm has rank n - slack (sqrt(2 d / rho_3) + sqrt(steps / (2 rho_clip))): noise and clipping
    then cost about the same. That is no more than two or three standard deviations of a noisy count, so that now and
    then a step above all the data goes wrong and the clip norm is many times too large; the published results show it
    as well. A row beyond the bounds is shortened to the clip norm.

    Huang, Liang and Yi (2021), Section 3, with the shares and the rank of their public code. The copy of it in PLAN's
    experiments has clip_share = 0.01 and slack = 2, which for normal data is better, and a range of R / sqrt(d).
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    n, d = X.shape
    steps, beta = count(steps=steps), scalar(probability, beta=beta)
    search = rho * scalar(probability, search_share=search_share)
    for_clip = (rho - search) * scalar(probability, clip_share=clip_share)
    padded = 1 << (d - 1).bit_length()
    signs = rng.choice([-1.0, 1.0], padded)
    Z = np.zeros((n, padded))
    Z[:, :d] = X * signs[:d]
    Z = _hadamard(Z)
    bound = np.linalg.norm(radius) if norm_bound is None else scalar(positive, norm_bound=norm_bound)
    reach = np.full(padded, bound * np.sqrt(2 * np.log(2 * padded / beta) / padded))
    center = _binary_search(Z, n / 2, -reach, reach, search, steps, rng)
    Y = Z - center
    above = np.sqrt(2 * padded / (rho - search - for_clip)) + np.sqrt(steps / (2 * for_clip))
    rank = n - scalar(positive, slack=slack) * above
    norms = _norms(Y)[:, None]
    clip_norm = _binary_search(norms, rank, np.zeros(1), np.full(1, 2 * bound), for_clip, steps, rng)[0]
    rotated = center + _clipped_mean(Y, clip_norm, rho - search - for_clip, rng)
    return (_hadamard(rotated[None])[0] * signs)[:d]


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
    """CoinPress: a ball that contains the mean is shrunk again and again by noisy means of rows clipped to it.

    sigma: bounds on the standard deviations, a number or (d,), by which rows are divided: their covariance must then be
    at most the identity. The largest sigma_j is what a user may know; the true sigma (d,) makes it an oracle. With
    covariance_steps > 0 half of rho is spent to find a better bound from there, by as many steps of the paper's
    estimate of the covariance, from n/2 differences of rows, in time O(n d**2 + d**3) for each. It adds noise to d**2
    numbers, and makes the bound worse unless n sqrt(rho) is many times d**1.5.

    With g(p)**2 = d + 2 sqrt(d ln(1/p)) + 2 ln(1/p), which the squared norm of a standard normal vector exceeds with
    probability at most p: rows are clipped to the norm sqrt(r**2 + 2 r sqrt(2 ln(1/p)) + g(p)**2) around a centre that
    is r from the mean, p = beta_i / n; then r becomes g(beta_i) sqrt(1/n + v), v the variance of the noise. Of the
    budget 3/4 goes to the last step and the rest in equal parts to those before; of beta one quarter each. No r
    depends on the data, so by default `steps` is that number up to 40 that leaves the least noise. clip_probability:
    replaces p; the public code has 0.01 for it and for beta_i. A row beyond the radius is clipped like any other.

    Biswas, Dong, Kamath and Ullman (2020), MVMRec and MVCRec.
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    n, d = X.shape
    sigma, beta = _sigma(sigma, d), scalar(probability, beta=beta)
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
        center = center + _clipped_mean(Y - center, clip_norm, budget, rng)
    return sigma * (np.linalg.solve(whitening, center) if covariance_steps else center)


def anisotropic(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    sigma: ArrayLike,
    center: ArrayLike | None = None,
    delta: float = 1e-6,
    beta: float = 0.1,
    size_share: float = 0.05,
) -> Array:
    """For known sigma: rows scaled by sigma**-0.5, those far from the others left out, noise of variance ~ sigma_j.

    With y = x / sqrt(sigma), two rows are friends if ||y - y'||**2 <= 2 (|s|_1 + 2 |s|_2 sqrt(t) + 2 |s|_inf t) =
    lambda**2, s = sigma, t = ln(n / beta), which fails for a pair of normal rows with probability at most beta / n. A
    row is kept if its number of friends, plus noise, is over half of n by more than the noise reaches: then any two
    rows that are kept have a friend in common, so that their mean has sensitivity 2 lambda over their number, for which
    a noisy lower bound is taken. delta-approximate zCDP, a weaker promise than that of the other methods: the noise may
    fail to bound with probability delta. The filter gets what it needs to keep normal rows, 2 (z + z')**2 n / (0.9 n -
    2)**2, z and z' the normal quantiles of delta / (2 n) and 1 / (10 n), but at most 0.9 rho; size_share of the rest
    goes to the number of rows. If that is less than half of n, the answer is 0, the middle of the box; else it is
    clipped to the box of `radius`, which is all that the radius is for. Takes time O(n**2 d).

    center: a number or (d,), if mu is known: then rows further than lambda / sqrt(2) from it are left out, and rho is
    all for the noise, with delta = 0: an oracle.

    Dagan, Jordan, Yang, Zakynthinou and Zhivotovskiy (2024), for known covariance, with the filter of Tsfadia, Cohen,
    Kaplan, Mansour and Stemmer (2022) for zCDP and the sensitivities of replaced rows.
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    n, d = X.shape
    sigma, delta, beta = _sigma(sigma, d), scalar(probability, delta=delta), scalar(probability, beta=beta)
    size_share = scalar(probability, size_share=size_share)
    t = np.log(n / beta)
    ball = np.sqrt(np.sum(sigma) + 2 * np.linalg.norm(sigma) * np.sqrt(t) + 2 * np.max(sigma) * t)
    if center is not None:
        center = np.broadcast_to(finite(center=center), d)
        Y = (X - center) / np.sqrt(sigma)
        total = Y[_norms(Y) <= ball].sum(axis=0)
        return center + np.sqrt(sigma) * _gaussian(total / n, 2 * ball / n, rho, rng)
    Y = X / np.sqrt(sigma)
    z = -ndtri(delta / (2 * n))
    for_filter = min(2 * (n - 1) * (z - ndtri(0.1 / n)) ** 2 / max(0.9 * n - 2, 1) ** 2, 0.9 * rho)
    friends = _gaussian(_friends(Y, np.sqrt(2) * ball), np.sqrt(n - 1), for_filter, rng)
    kept = friends > n / 2 + 1 + z * np.sqrt(n - 1) * zcdp_noise_multiplier(for_filter)
    for_size = size_share * (rho - for_filter)
    size = _gaussian(np.array([kept.sum()]), 1.0, for_size, rng)[0]
    size += ndtri(delta / 2) * zcdp_noise_multiplier(for_size)
    if size < n / 2:
        return np.zeros(d)
    mean = Y[kept].mean(axis=0) if kept.any() else np.zeros(d)
    mean = _gaussian(mean, 2 * np.sqrt(2) * ball / size, rho - for_filter - for_size, rng)
    return np.clip(mean * np.sqrt(sigma), -radius, radius)


# --- The parts that they share ----------------------------------------------------------------------------------------


def _gaussian(value: NDArray[Any], sensitivity: Number, rho: float, rng: np.random.Generator) -> Array:
    """The Gaussian mechanism: a vector of that l2-sensitivity, plus noise, for rho in zCDP."""
    return value + samplers.simulated_gaussian(np.full(value.shape, sensitivity * zcdp_noise_multiplier(rho)), rng)


def _clipped_mean(Y: Array, clip_norm: Number, rho: float, rng: np.random.Generator) -> Array:
    """The noisy mean of rows shortened to clip_norm: one row can move it by 2 clip_norm / n."""
    shortened = clip_norm / np.maximum(_norms(Y), clip_norm)
    return _gaussian(shortened @ Y / len(Y), 2 * clip_norm / len(Y), rho, rng)


def _binary_search(
    columns: Array, rank: float, low: Array, high: Array, rho: float, steps: int, rng: np.random.Generator
) -> Array:
    """In each of k columns (n, k) a point with about `rank` values not above it, by noisy counts at rho / steps each.

    One row moves every count by at most 1, so a step has sensitivity sqrt(k). Huang, Liang and Yi (2021), PrivQuant.
    """
    for _ in range(steps):
        middle = (low + high) / 2
        counts = np.count_nonzero(columns <= middle, axis=0)
        above = _gaussian(counts, np.sqrt(counts.size), rho / steps, rng) > rank
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def _spread(X: Array, radius: Array, rho: float, rng: np.random.Generator) -> Array:
    """The standard deviations (d,) from the median of half the squared differences of random pairs, at rho each."""
    pairs = X[rng.permutation(len(X))[: len(X) // 2 * 2]]
    halves = np.clip(pairs[::2] - pairs[1::2], -2 * radius, 2 * radius) ** 2 / 2
    return np.sqrt(quantile(halves, 0.5, 0.0, 2 * radius**2, epsilon_of_rho(rho), rng) / chdtri(1, 0.5))


def _hadamard(Z: Array) -> Array:
    """Rows (n, 2**k) times the orthogonal and symmetric Hadamard matrix, in k passes."""
    n, d = Z.shape
    half = 1
    while half < d:
        blocks = Z.reshape(n, -1, 2, half)
        Z = np.stack([blocks[:, :, 0] + blocks[:, :, 1], blocks[:, :, 0] - blocks[:, :, 1]], axis=2)
        half *= 2
    return Z.reshape(n, d) / np.sqrt(d)


def _tail(d: int, p: float) -> float:
    """g(p), which the norm of a standard normal vector (d,) exceeds with probability at most p.

    Laurent and Massart (2000), Lemma 1.
    """
    t = np.log(1 / p)
    return np.sqrt(d + 2 * np.sqrt(d * t) + 2 * t)


def _budgets(rho: float, steps: int) -> list[float]:
    """3/4 of it for the last step, the rest in equal parts for those before."""
    return [rho] if steps == 1 else [rho / 4 / (steps - 1)] * (steps - 1) + [0.75 * rho]


def _balls(
    n: int, d: int, r: Number, rho: float, steps: int, beta: float, clip_probability: float | None
) -> list[tuple[float, float]]:
    """The clip norm and the budget of each of CoinPress's steps, from a ball of radius r."""
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
    """For rows of covariance <= I a matrix A (d, d) with A covariance A.T <= I, near I for large n, by MVCRec.

    One row changes one of the n/2 differences w, and w w.T by at most sqrt(2) g**2 in Frobenius norm. The norm of the
    symmetric noise of standard deviation s is at most 2 s (sqrt(d) + sqrt(ln(1/beta))) with probability 1 - beta, which
    replaces a larger bound of the paper.
    """
    pairs = X[rng.permutation(len(X))[: len(X) // 2 * 2]]
    differences = (pairs[::2] - pairs[1::2]) / np.sqrt(2)
    n, d = differences.shape
    A, upper = np.eye(d), np.triu_indices(d)
    beta = beta / (4 * steps)
    for budget in _budgets(rho, steps):
        W, g = differences @ A.T, _tail(d, beta / n)
        W *= (g / np.maximum(_norms(W), g))[:, None]
        noisy, sensitivity = np.zeros((d, d)), np.sqrt(2) * g**2 / n
        noisy[upper] = _gaussian((W.T @ W)[upper] / n, sensitivity, budget, rng)
        noise_norm = 2 * sensitivity * zcdp_noise_multiplier(budget) * (np.sqrt(d) + np.sqrt(np.log(1 / beta)))
        sampling = np.sqrt(d / n) + np.sqrt(2 * np.log(2 / beta) / n)
        values, vectors = np.linalg.eigh(noisy, UPLO="U")
        values = np.maximum(values, 0.0) + 2 * sampling + sampling**2 + noise_norm
        A = (vectors / np.sqrt(values)) @ vectors.T @ A
    return A


def _friends(Y: Array, reach: float) -> Array:
    """For each row the number of rows, itself among them, at a distance of at most `reach`."""
    Y = Y - np.median(Y, axis=0)
    step = max(1, _BLOCK // len(Y))
    counts = np.empty(len(Y))
    with np.errstate(over="ignore", invalid="ignore"):  # a row too far away to be squared has no friends, nor itself
        squares = _norms(Y) ** 2
        for start in range(0, len(Y), step):
            part = slice(start, start + step)
            counts[part] = np.count_nonzero(squares[part, None] + squares - 2 * Y[part] @ Y.T <= reach**2, axis=1)
    return counts


def _norms(Y: Array) -> Array:
    """Euclidean norms of rows, also of rows so long that their squares overflow."""
    longest = np.max(np.abs(Y), axis=1)
    unit = np.where(longest > 0, longest, 1.0)
    return unit * np.linalg.norm(Y / unit[:, None], axis=1)


def _checked(X: ArrayLike, rho: float, radius: ArrayLike, rng: np.random.Generator) -> tuple[Array, float, Array]:
    """X as a matrix, rho as a number, the radius as a vector (d,); and rng is a Generator."""
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator such as numpy.random.default_rng(seed), got {rng!r}")
    shape = np.shape(X)
    if len(shape) != 2 or shape[0] < 2 or shape[1] < 1:
        raise ValueError(f"X must have shape (n, d) with n >= 2 and d >= 1, got {shape}")
    X, rho, radius = matrix(shape[1], X=X), scalar(positive, rho=rho), positive(radius=radius)
    if radius.shape not in ((), (X.shape[1],)):
        raise ValueError(f"radius must be a number or have the {X.shape[1]} entries of a row, got {radius.shape}")
    return X, rho, np.broadcast_to(radius, X.shape[1])


def _sigma(sigma: ArrayLike, d: int) -> Array:
    """Standard deviations, a number or (d,), as a vector (d,)."""
    sigma = positive(sigma=sigma)
    if sigma.shape not in ((), (d,)):
        raise ValueError(f"sigma must be a number or have the {d} entries of a row, got shape {sigma.shape}")
    return np.broadcast_to(sigma, d)
