"""Test that functions are compiled even if numba's cache folder, which holds compiled code, is full or damaged.

Where numba is switched off, Python runs them, with the same results.
"""

import os
import resource
import subprocess
import sys

import numba
import pytest

from egm._compiled import compiled


def double(x):
    return 2 * x


@pytest.fixture(params=[None, "f8(f8)"])
def doubled(request, monkeypatch, tmp_path):
    """Return a function that compiles `double` anew and calls it; the cache folder of numba is an empty folder.

    It is compiled at its first call or, with a signature, before.
    """
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return lambda x: compiled(request.param)(double)(x)


def test_a_damaged_cache_is_mended(doubled, tmp_path):
    """If a file in the cache folder is cut short, the code is compiled once more, and stored again."""
    assert doubled(1.5) == 3
    files = [path for path in tmp_path.rglob("*.nb?") if path.is_file()]
    assert {path.suffix for path in files} == {".nbi", ".nbc"}
    for damaged in files:
        damaged.write_bytes(damaged.read_bytes()[:20])
        assert doubled(1.5) == 3
        assert all(path.stat().st_size > 100 for path in files)


def test_a_full_cache_folder_is_no_error(doubled, tmp_path):
    """If no byte can be written to the cache folder, the code is compiled, and nothing is stored."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        result = doubled(1.5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result == 3
    assert not [path for path in tmp_path.rglob("*.nb?") if path.is_file()]


def test_a_cache_of_another_form_is_left_alone(doubled, monkeypatch):
    """A later numba may keep its cache in another way; functions are compiled all the same."""
    monkeypatch.delattr(numba.core.dispatcher.Dispatcher, "enable_caching")
    assert doubled(1.5) == 3


RELEASES = """
import warnings
import numpy as np
from egm import AdaptiveDataMechanism, GaussianDataMechanism
warnings.simplefilter("ignore")
X = np.random.default_rng(1).normal(3, 1, size=(200, 3))
data = GaussianDataMechanism(np.ones(3), 200, 1.0, 1e-6, center=3)
turned = GaussianDataMechanism(np.ones(3), 200, 1.0, 1e-6, center=3, basis="dct")
persons = GaussianDataMechanism(np.ones(3), 200, 1.0, 1e-6, per_person="sum", neighbors="add_remove")
adaptive = AdaptiveDataMechanism(200, 20.0, radius=10.0, sigma_range=(0.1, 10.0))
for mechanism in (data, turned, adaptive):
    print(mechanism.release(X, rng=np.random.default_rng(2)).sum.tolist())
print(persons.release(X, person=np.arange(200) // 2, rng=np.random.default_rng(2)).sum.tolist())
data.release(X)
"""


@pytest.mark.slow
def test_releases_are_the_same_where_numba_is_switched_off_or_missing():
    """Simulated releases have the same bits whether their loops are compiled, or NUMBA_DISABLE_JIT=1, or no numba."""
    missing = 'import sys; sys.modules["numba"] = None\n'
    found = [
        subprocess.run(
            [sys.executable, "-c", start + RELEASES],
            env=os.environ | {"NUMBA_DISABLE_JIT": switched_off},
            **{"check": True, "capture_output": True, "text": True},
        ).stdout
        for start, switched_off in (("", "0"), ("", "1"), (missing, "0"))
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0].splitlines()) == 4
