"""Compute differentially private sums of vectors whose coordinates differ in spread.

The mechanisms are in `egm.mechanisms`. The noise that a mechanism needs is computed in
`egm.calibration`. The generalized chi-square distribution, whose quantile is the squared norm to
which rows are clipped, is in `egm.gx2`. Each public name is imported when it is first used.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "AdaptiveDataMechanism",
    "EllipticalGaussianMechanism",
    "GaussianDataMechanism",
    "GaussianMechanism",
    "GroupedDataMechanism",
    "LaplaceMechanism",
    "bounds",
    "calibration",
    "gx2",
    "mechanisms",
    "samplers",
    "scaling",
]

if TYPE_CHECKING:
    from egm import bounds, calibration, gx2, mechanisms, samplers, scaling
    from egm.adaptive import AdaptiveDataMechanism
    from egm.mechanisms import (
        EllipticalGaussianMechanism,
        GaussianDataMechanism,
        GaussianMechanism,
        GroupedDataMechanism,
        LaplaceMechanism,
    )
else:

    def __getattr__(name):
        """Import and return the public module or class called `name`; raise an AttributeError for any other name."""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'egm' has no attribute {name!r}")
        if name.islower():
            return import_module(f"egm.{name}")
        return getattr(import_module("egm.adaptive" if name.startswith("Adaptive") else "egm.mechanisms"), name)

    def __dir__():
        """Return a sorted list of the names in this module, including the public names that are not imported yet."""
        return sorted({*globals(), *__all__})
