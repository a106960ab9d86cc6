"""Write improvement.json: E_n/E_t = d q_p(sigma^2) / (sum(sigma) q_p(sigma)) for sigma_i proportional to i^-alpha.

q_p(w) is the upper p-quantile of sum_j w_j Z_j^2, p = 1/n. sigma is the exact real power, not a double, and the ratio
does not depend on its scale.
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
    """Return q_{1/n} of sum_j w_j Z_j^2."""
    return isf(make_form(weights, [1] * len(weights), [0] * len(weights)), -mp.log(n))


def improvement(d, alpha, n):
    """Return E_n/E_t with DIGITS digits."""
    sigma = [mpf(j) ** -mpf(alpha) for j in range(1, d + 1)]
    return d * quantile([s * s for s in sigma], n) / (mp.fsum(sigma) * quantile(sigma, n))


def main():
    """Compute and write every setting."""
    cases = [{"d": d, "alpha": a, "n": n, "ratio": mp.nstr(improvement(d, a, n), DIGITS)} for d, a, n in SETTINGS]
    write("improvement.json", {"improvement": cases})


if __name__ == "__main__":
    main()
