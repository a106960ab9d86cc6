"""Print the results of `make bench`, and whether they meet their goals; a missed goal is not an error."""

import argparse
import sys
import warnings
from importlib.metadata import version

import egm
from benchmarks import gx2, l2, release, rivals

NOTES = """
Times are medians of runs by turns, over that of egm.gx2 in the same run. Errors are relative, to 30-digit
values, and not below 1e-16. "none" is a fault or no number; where a method returns 0 the error is 1e+00.
The last column has the goal and whether every figure of the line meets it.

Of the package gx2 from PyPI there is the default, and what is best in some column; its Ruben series is left
out of quantiles, where it takes seconds, and by --quick.

Equal accuracy of quantiles: Davies' algorithm runs with acc=1e-9, absolute, and a search by it begins between
the mean and the bound of Laurent and Massart and ends when its bracket moves p by less than 1e-9; egm.gx2 is
as exact as always. In the grid, a search of more than half a second is not run, but taken as its number of
calls times one call at the quantile. For single quantiles, acc is p/100 where that is less, but at least 1e-13."""


def installed():
    """Return one line of text with the versions of Python, egm, NumPy and installed packages to compare egm with."""
    names = ["numpy", *(name for name in rivals.PACKAGES if name not in rivals.missing())]
    found = {"Python": sys.version.split()[0], "egm": egm.__version__} | {name: version(name) for name in names}
    return ", ".join(f"{name} {number}" for name, number in found.items())


def main():
    """Run all benchmarks of `make bench`, and print each line of results as soon as it has been measured.

    The option --quick of the command line asks for fewer repetitions and cases.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and cases, in less than a minute")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")  # the other programs warn
    print(installed() + f"; missing: {', '.join(rivals.missing()) or 'none'}")
    print(NOTES.strip())
    releases = release.release, release.rotated, release.grouped, release.adaptive
    for part in (gx2.tails, gx2.quantiles, gx2.calls, gx2.grid, gx2.million, *releases, l2.noise):
        for line in part(quick):
            print(line, flush=True)


if __name__ == "__main__":
    main()
