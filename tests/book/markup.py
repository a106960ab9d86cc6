"""Parse the HTML of the book for its tests."""

import functools

from bs4 import BeautifulSoup


@functools.cache
def parsed(text):
    """Parse the HTML `text`, and return it as a BeautifulSoup object.

    To save time, each text is parsed only once in a process. All tests share the object, so no test may change it.
    """
    return BeautifulSoup(text, "html.parser")
