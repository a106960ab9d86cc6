"""`python -m benchmarks.ranges`: compare an `AdaptiveDataMechanism` that is told ranges with a clipped sum.

A clipped sum is the noisy sum of rows that are clipped to the declared ranges, entry by entry. The mechanism either
releases a clipped sum or searches for center and spread first. The rows are drawn from each of the fifty laws
(distributions) of `benchmarks.laws`, or from one of two laws with outliers, whose results are printed separately: one
row in a hundred, or one in a thousand, is at the upper end of the range. All columns have the same range. Half of its
width is 3, 10 or 100 times the distance from the median within which nine tenths of the entries lie. The middle of the
range is above the median, by a sixth of the width.

If a release searched, its squared error is measured. For the clipped sum and for releases without a search, the mean
squared error is computed: the variance of the noise, plus the square of what clipping removes from the sum. A cell is
one case: a law, a width of the range, a number of rows, a number of columns, and a budget. Its ratio is the mean
squared error of the releases over that of the clipped sum.
"""

import argparse
import math
import time
import warnings

import numpy as np

from benchmarks import grid, laws
from egm import AdaptiveDataMechanism

HALF = 3.0, 10.0, 100.0  # half of a range, over the distance that contains nine tenths of the entries
PLACES = (1000, 1, 200), (2000, 3, 400), (4000, 10, 700), (20_000, 3, 3000)  # n, d and n sqrt(rho)
OUTLIERS = {"one row in 100 far": 100, "one row in 1000 far": 1000}
RUNS, MUCH = 20, (1.1, 1.2)


def drawn(law, half, n, d, rng):
    """Draw `n` rows of `d` columns from the distribution `law`; return them and the range (low, high) of all columns.

    Half of the width of the range is `half` times the distance from the median within which nine tenths of the entries
    lie. `law` is a name in `laws.LAWS` or, for normal rows of which some are moved to the upper end of the range, in
    `OUTLIERS`. `rng` is the random generator.
    """
    X = laws.LAWS.get(law, laws.LAWS["normal"])(rng, n, d)
    middle = float(np.median(X))
    reach = half * float(np.quantile(np.abs(X - middle), 0.9) or 1.0)
    low = middle - reach * 2 / 3
    if law in OUTLIERS:
        X[:: OUTLIERS[law]] = low + 2 * reach
    return X, (low, low + 2 * reach)


def cell(law, half, n, d, reach, runs):
    """Compare `runs` releases of an `AdaptiveDataMechanism` that is told ranges with a clipped sum of the rows.

    Return three numbers: the mean squared error of the releases over that of the clipped sum, the standard error of
    this ratio, and the fraction of the releases that searched for center and spread. `law`, `half`, `n` and `d` are
    those of `drawn`; `reach` is n sqrt(rho) for the budget rho.
    """
    rho, errors, searched = (reach / n) ** 2, [], []
    for run in range(runs):
        rng = grid.generator("ranges", law, half, n, d, reach, run)
        X, (low, high) = drawn(law, half, n, d, rng)
        release = AdaptiveDataMechanism(n, rho, ranges=[(low, high)] * d).release(X, rng=rng)
        cut = float(np.sum(np.sum(X - X.clip(low, high), axis=0) ** 2))
        searched.append(release.method == "search")
        found = np.sum((release.estimate - X.sum(axis=0)) ** 2) if searched[-1] else release.forecast.total + cut
        errors.append(found / (d * d * (high - low) ** 2 / (2 * rho) + cut))
    return np.mean(errors), np.std(errors) / math.sqrt(max(runs - 1, 1)), np.mean(searched)


def table(names, runs):
    """Yield a line of text for each case in which releases have a larger error than a clipped sum, and summaries.

    A case is one of the distributions `names`, a width of the range, a size of the data, and a budget. It gets a line
    if the ratio of the errors (see `cell`), from `runs` releases, is above 1.1 by more than two standard errors. There
    is a summary for each width.
    """
    for half in HALF:
        ratios = []
        for law in names:
            for place in PLACES:
                ratio, se, share = cell(law, half, *place, runs)
                ratios.append(ratio)
                if ratio > MUCH[0] + 2 * se:
                    where = "n = {}, d = {}, n sqrt(rho) = {}".format(*place)
                    yield f"  {law}, {where}: {ratio:.2f} ({se:.2f}), searched {share:.0%}"
        some = ", ".join(f"above {much}: {np.mean(np.array(ratios) > much):.1%}" for much in MUCH)
        yield f"half {half:g}, {len(ratios)} cells: mean {np.mean(ratios):.3f}, {some}, most {max(ratios):.2f}"


def main():
    """Print the lines of `table` for the fifty laws (distributions) and for the laws with outliers.

    With the option --quick of the command line, there are two releases in each case.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranges", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two runs of each cell")
    runs = 2 if parser.parse_args().quick else RUNS
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    for title, names in {"fifty laws": laws.LAWS, "with outliers": OUTLIERS}.items():
        print(title)
        for line in table(names, runs):
            print(line, flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
