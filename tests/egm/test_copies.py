"""Test that mechanisms can be copied, pickled, and cloned by scikit-learn, and that a copy makes equal releases."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

from egm import (
    AdaptiveDataMechanism,
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
)
from egm.mechanisms import GroupedDataMechanism

X = np.random.default_rng(1).normal(size=(400, 2))
ROTATION = np.array([[0.6, 0.8], [-0.8, 0.6]])
NAMED = GaussianDataMechanism({"a": 1.0, "b": 2.0}, 400, 1.0, 1e-6, center=[0.1, 0.2])
MECHANISMS = {
    "Laplace": (LaplaceMechanism(1.0, 0.5), 3.0, {}),
    "Gaussian": (GaussianMechanism(1.0, 0.5, 1e-6, d=2), [1.0, 2.0], {}),
    "elliptical": (EllipticalGaussianMechanism([1.0, 20.0], 1.0, 1e-6), [1.0, 2.0], {}),
    "named": (NAMED, X, {}),
    "a basis": (GaussianDataMechanism([1.0, 2.0], 400, 1.0, 1e-6, basis=ROTATION), X, {}),
    "persons": (GaussianDataMechanism([1, 2], 99, 1.0, 1e-6, per_person=3), X, {"person": np.arange(400) // 5}),
    "groups": (GroupedDataMechanism(NAMED, [1, 2]), X, {"by": np.arange(400) % 3}),
    "radius": (AdaptiveDataMechanism(400, 1.0, radius=9.0, sigma_range=(0.1, 9.0), basis="haar"), X, {}),
    "ranges": (AdaptiveDataMechanism(400, 1.0, ranges={"a": (-9, 9), "b": (0, 1)}, basis=ROTATION), X, {}),
}
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda it: pickle.loads(pickle.dumps(it)),
    "clone": clone,
    "clone of an estimator": lambda it: clone(Estimator(it)).mechanism,
}


class Estimator(BaseEstimator):
    """Estimator of scikit-learn that has a mechanism as its parameter."""

    def __init__(self, mechanism):
        self.mechanism = mechanism


def numbers(release):
    """Return the estimate of `release`, or the estimates of all groups if `release` maps each group to a release."""
    return [it.estimate for it in release.values()] if hasattr(release, "values") else release.estimate


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_copy_is_equal_and_releases_the_same(name, how):
    """A copy of a mechanism has the same `repr`, compares equal, and makes the same release with the same seed.

    The seed is that of the NumPy generator of the noise. `name` is a mechanism in MECHANISMS, and `how` is a way to
    copy it, a key of COPIES.
    """
    mechanism, data, labels = MECHANISMS[name]
    found = numbers(mechanism.release(data, rng=np.random.default_rng(2), **labels))
    other = COPIES[how](mechanism)  # of a mechanism that has been used
    assert repr(other) == repr(mechanism)
    assert other == mechanism
    assert np.array_equal(numbers(other.release(data, rng=np.random.default_rng(2), **labels)), found)
