"""Parse the HTML of the book for its tests."""

import functools
import posixpath
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup


@functools.cache
def parsed(text):
    """Parse the HTML `text`, and return it as a BeautifulSoup object.

    To save time, each text is parsed only once in a process. All tests share the object, so no test may change it.
    """
    return BeautifulSoup(text, "html.parser")


def dead_links(files):
    """Return a list of (page, link) for the relative links on HTML pages in `files` whose targets are not in `files`.

    `files` is a dictionary from path to content in bytes. If a link names an anchor (#id), its target must also have an
    element with this id. Relative addresses of images, scripts and styles are links, too.
    """
    pages = {name: parsed(data.decode()) for name, data in files.items() if name.endswith(".html")}
    anchors = {name: {tag["id"] for tag in page.find_all(id=True)} for name, page in pages.items()}
    found = []
    for name, page in pages.items():
        for link in (tag[kind] for kind in ("href", "src") for tag in page.find_all(attrs={kind: True})):
            url = urlsplit(link)
            if url.scheme or url.netloc or link == "#":
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(url.path))) if url.path else name
            anchored = url.fragment and "search.html" not in path  # a script makes the anchors of the search page
            if path not in files or (anchored and unquote(url.fragment) not in anchors.get(path, ())):
                found.append((name, link))
    return found
