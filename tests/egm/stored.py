"""Provide stored reference values, which scripts in tests/reference have computed with more digits than doubles have.

GX2 has tails, densities and quantiles of weighted sums of chi-square variables. CALIBRATION has noise multipliers and
privacy curves (delta as a function of epsilon) for Gaussian noise. L2 has scales and privacy curves for l2 noise, whose
density at the vector x is proportional to exp(-norm(x) / scale). IMPROVEMENT has the factors by which a scaling of the
coordinates reduces the squared noise. `test_certify` proves that these numbers are right.
"""

import json
from pathlib import Path

from mpmath import mp, mpf

FOLDER = Path(__file__).parent.parent / "reference"
GX2, CALIBRATION, L2 = (json.loads((FOLDER / f"{name}.json").read_text()) for name in ("gx2", "calibration", "l2"))
IMPROVEMENT = json.loads((FOLDER / "improvement.json").read_text())["improvement"]
BY_FORM = {json.dumps(case["form"]): [] for case in GX2["values"]}  # the cases of each chi-square sum
for case in GX2["values"]:
    BY_FORM[json.dumps(case["form"])].append(case)


def name_of(case):
    """Return the name that pytest shows for the test of `case`, a stored value of a sum of chi-square variables."""
    return f"{case.get('family', 'isf')}-{case.get('x', case.get('p'))}".replace(" ", "-")


def excess(value, exact):
    """Return the relative error `value` / `exact` - 1, computed with 40 digits, because doubles would lose digits."""
    with mp.workdps(40):
        return float(mpf(float(value)) / mpf(exact) - 1)
