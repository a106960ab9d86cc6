"""Release a vector, or the sum of the rows of a matrix, with differential privacy.

Each mechanism is fixed before it sees data. Its constructor takes public numbers only and computes
the noise from them, so that the noise can be read, published and discussed before a release. A
mechanism for a sum of rows has three steps: bound the contribution of one row, add up the rows, and
add noise with a standard deviation for each coordinate. The other mechanisms add noise to a value
that the caller has computed, and take a bound of how much one person can change this value.

Under "replace_one", two data sets are neighbors if one row of the first is replaced by another row
in the second. Then both data sets have the same number of rows, which is public. Under
"add_remove", which some mechanisms offer, two data sets are neighbors if one of them has one row
more than the other. Then the number of rows is not public.
"""

from egm._mechanisms.base import Release
from egm._mechanisms.data import DataRelease, GaussianDataMechanism
from egm._mechanisms.elliptical import EllipticalGaussianMechanism
from egm._mechanisms.gaussian import GaussianMechanism
from egm._mechanisms.grouped import GroupedDataMechanism, GroupedRelease
from egm._mechanisms.laplace import LaplaceMechanism
from egm._validate import DeltaWarning
from egm.forecast import ErrorForecast

__all__ = [
    "DataRelease",
    "DeltaWarning",
    "EllipticalGaussianMechanism",
    "ErrorForecast",
    "GaussianDataMechanism",
    "GaussianMechanism",
    "GroupedDataMechanism",
    "GroupedRelease",
    "LaplaceMechanism",
    "Release",
]
