"""What several test files share."""

import os

import pytest
from hypothesis import settings

from tools.build import build

# On a developer's machine the search for counterexamples goes on with every run; a verdict must not depend on luck.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "search")


@pytest.fixture(scope="session")
def book():
    """The folder of the finished book, built as `make book` builds it, so that only changed chapters are executed."""
    return build().parent
