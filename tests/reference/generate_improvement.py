"""Write improvement.json: E_n/E_t = d q_p(sigma^2) / (sum(sigma) q_p(sigma)) for sigma_i proportional to i^-alpha.

This is the error of the noise without scaling over that with the scaling of Lemma 4.1. q_p(w) is the upper p-quantile
of sum_j w_j Z_j^2 with p = 1/n. sigma is the exact real power, not a double, and the ratio does not depend on its
scale.
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
    """Return the upper quantile of sum_j weights_j Z_j^2 for the probability 1/n."""
    return isf(make_form(weights, [1] * len(weights), [0] * len(weights)), -mp.log(n))


def improvement(d, alpha, n):
    """Return the ratio E_n/E_t for d coordinates, Zipf's exponent alpha (a string) and n rows, to DIGITS digits."""
    sigma = [mpf(j) ** -mpf(alpha) for j in range(1, d + 1)]
    return d * quantile([s * s for s in sigma], n) / (mp.fsum(sigma) * quantile(sigma, n))


def main():
    """Compute the ratio for every setting, and write all of them to improvement.json."""
    cases = [{"d": d, "alpha": a, "n": n, "ratio": mp.nstr(improvement(d, a, n), DIGITS)} for d, a, n in SETTINGS]
    write("improvement.json", {"improvement": cases})


if __name__ == "__main__":
    main()
