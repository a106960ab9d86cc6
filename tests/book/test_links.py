"""Test `tools.links`, the check of external links, against a web server on this machine."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tools import links


class Answers(BaseHTTPRequestHandler):
    """Answer requests to a web server whose only page is `/there`; all other paths get the status 404."""

    def do_GET(self):
        self.send_response(200 if self.path == "/there" else 404)
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        """Print nothing; the base class would print each request."""


@pytest.fixture
def server():
    """Start a web server on this machine, whose only page is /there, and yield the server's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_dead_links_are_found(tmp_path, server):
    """`links.check` reports each dead link in pages of the book and in files beside the book, and no live link."""
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "index.md").write_text(f"# Title\n\n[there]({server}/there), [gone]({server}/gone)\n")
    (tmp_path / "README.md").write_text(f"See [this]({server}/missing), {server}/there, {server}/gone.\n")
    assert sorted(line.partition(": 404")[0] for line in links.check(tmp_path)) == [
        f"README.md, book/index.md: {server}/gone",
        f"README.md: {server}/missing",
    ]


def test_links_are_read_from_all_sources(tmp_path):
    """`links.links` finds the links in pages, chapters, docstrings and the bibliography of a project.

    An entry of the bibliography that has only a DOI gives a link to doi.org.
    """
    for name, text in {
        "book/api/a.rst": "`a <https://a.example>`_",
        "book/b.bib": "@article{b,\n  doi = {10.1/b},\n  url = {https://b.example},\n}",
        "notebooks/c.ipynb": '{"source": ["[c](https://c.example)\\n", "https://d.example\\n"]}',
        "egm/study/e.py": '"""See https://e.example."""',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert links.links(tmp_path).keys() == {"https://doi.org/10.1/b", *(f"https://{name}.example" for name in "abcde")}


@pytest.mark.parametrize(
    ("uri", "status", "info", "dead"),
    [
        ("https://doi.org/10.1/x", "broken", "403 Client Error: Forbidden for url: y", False),
        ("https://doi.org/10.1/x", "broken", "404 Client Error: Not Found for url: y", True),
        ("https://example.org", "broken", "403 Client Error: Forbidden for url: y", True),
        ("https://example.org", "timeout", "", True),
        ("https://example.org", "redirected", "https://example.org/new", False),
    ],
)
def test_what_counts_as_dead(uri, status, info, dead):
    """`links.is_dead` is True for a link that is broken or times out, and False for a link that is redirected.

    A DOI that doi.org knows is not dead, even if the publisher refuses access. `uri`, `status` and `info` are what
    Sphinx's link checker reports of a link, and `dead` is the expected result.
    """
    assert links.is_dead({"uri": uri, "status": status, "info": info}) is dead


def test_links_end_where_the_sentence_goes_on():
    """The pattern `links.LINK` finds the addresses in a text, without the punctuation around them."""
    text = "See <https://a.example/b>, (https://c.example/d_e), https://f.example/g.html. And `https://h.example/i`"
    assert links.LINK.findall(text) == [
        "https://a.example/b",
        "https://c.example/d_e",
        "https://f.example/g.html",
        "https://h.example/i",
    ]
