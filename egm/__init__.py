"""Compute differentially private sums of vectors whose coordinates differ in spread.

The mechanisms are in `egm.mechanisms`, and the noise that they need is computed in
`egm.calibration`. The generalized chi-square distribution, which sets their clip norm, is in
`egm.gx2`. Each name is imported when it is first used.
"""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from egm import bounds, calibration, gx2, mechanisms, samplers, scaling
    from egm.adaptive import AdaptiveDataMechanism
    from egm.mechanisms import (
        EllipticalGaussianMechanism,
        GaussianDataMechanism,
        GaussianMechanism,
        LaplaceMechanism,
    )
else:

    def __getattr__(name):
        """Import the module that a public name stands for, or that has the class of that name."""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'egm' has no attribute {name!r}")
        if name.islower():
            return import_module(f"egm.{name}")
        return getattr(import_module("egm.adaptive" if name.startswith("Adaptive") else "egm.mechanisms"), name)

    def __dir__():
        """List the public names, imported or not, and the rest of the module."""
        return sorted({*globals(), *__all__})
