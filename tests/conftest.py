"""What several test files share."""

import pytest

from tools.build import build


@pytest.fixture(scope="session")
def book():
    """The folder of the finished book, built as `make book` builds it, so that only changed chapters are executed."""
    return build().parent
