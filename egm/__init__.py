"""Differentially private sums of vectors whose coordinates differ in spread.

The mechanisms are in `egm.mechanisms`, and the noise that they need is computed in
`egm.calibration`. The generalized chi-square distribution, which sets their clip norm, is in
`egm.gx2`.
"""

from egm import bounds, calibration, gx2, mechanisms, samplers, scaling
from egm.adaptive import AdaptiveDataMechanism
from egm.mechanisms import (
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
)

__version__ = "0.1.0"

__all__ = [
    "AdaptiveDataMechanism",
    "EllipticalGaussianMechanism",
    "GaussianDataMechanism",
    "GaussianMechanism",
    "LaplaceMechanism",
    "bounds",
    "calibration",
    "gx2",
    "mechanisms",
    "samplers",
    "scaling",
]
