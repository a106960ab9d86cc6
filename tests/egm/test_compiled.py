"""Test that functions are compiled even if numba's cache folder, which holds compiled code, is full or damaged."""

import resource

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
