"""Parse the HTML of the book for its tests."""

import functools

from bs4 import BeautifulSoup


@functools.cache
def parsed(text):
    """Return the parsed HTML `text`, once in each process, because that takes ten seconds for the book.

    No test may change what is returned.
    """
    return BeautifulSoup(text, "html.parser")
