"""Write improvement.json: the factors by which a scaling of the coordinates reduces the squared noise.

The scaling is that of Lemma 4.1 in Poulsen's report, and the factors compare it with no scaling. Each setting has a
number of coordinates d, an exponent alpha, and a number of rows n. The standard deviations sigma_i of the coordinates
are proportional to i^-alpha. The factor is d q(sigma^2) / (sum(sigma) q(sigma)), where q(w) is the upper quantile of
sum_j w_j Z_j^2 for the probability 1/n, and the Z_j are standard normal. sigma is computed as an exact real power, not
as a double. If all sigma_i are multiplied by one number, the factor does not change.
"""

from contour import isf, make_form
from mpmath import mp, mpf
from store import write

# (d, alpha, n); alpha as a decimal string
SETTINGS = (
    [(d, a, 10**6) for d in (10, 100, 1000) for a in ("0.01", "0.1", "1", "2", "3", "10", "100")]
    + [(100, a, n) for a in ("0.1", "1", "2") for n in (100, 1000)]
    + [(10, "1", 100), (10, "1", 1000), (1000, "1", 1000)]
)
DIGITS = 18


def quantile(weights, n):
    """Return the upper quantile of sum_j weights_j Z_j^2, with standard normal Z_j, for the probability 1/n."""
    return isf(make_form(weights, [1] * len(weights), [0] * len(weights)), -mp.log(n))


def improvement(d, alpha, n):
    """Return by which factor the scaling of Lemma 4.1 of Poulsen's report reduces the squared noise.

    The lemma scales each of d coordinates before clipping, and the factor compares it with no scaling. There are n
    rows, and each is clipped with probability 1/n. The standard deviations of the coordinates are j^-alpha for j = 1,
    ..., d; alpha is text, such as "0.1".
    """
    sigma = [mpf(j) ** -mpf(alpha) for j in range(1, d + 1)]
    return d * quantile([s * s for s in sigma], n) / (mp.fsum(sigma) * quantile(sigma, n))


def main():
    """Compute the factor of `improvement` for each (d, alpha, n) in SETTINGS, and write them to improvement.json."""
    cases = [{"d": d, "alpha": a, "n": n, "ratio": mp.nstr(improvement(d, a, n), DIGITS)} for d, a, n in SETTINGS]
    write("improvement.json", {"improvement": cases})


if __name__ == "__main__":
    main()
