"""The look-up of external links, on links to a server of this machine."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tools import build, links


class Answers(BaseHTTPRequestHandler):
    """A server whose page `/there` exists, and no other."""

    def do_GET(self):
        self.send_response(200 if self.path == "/there" else 404)
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server():
    """The address of a running server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_dead_links_are_found(tmp_path, server):
    """On pages of the book and in the files beside it; a link that leads somewhere is not complained of."""
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "index.md").write_text(f"# Title\n\n[there]({server}/there), [gone]({server}/gone)\n")
    (tmp_path / "README.md").write_text(f"See [this]({server}/missing), {server}/there.\n")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
    (tmp_path / "_config.yml").write_text('only_build_toc_files: true\nexecute: { execute_notebooks: "off" }\n')
    (tmp_path / "ledger").mkdir()
    for name in ("ledger/claims.yml", "ledger/errata.yml", "pyproject.toml", "CITATION.cff"):
        (tmp_path / name).touch()
    stage = tmp_path / "_build" / "links"
    build.lay_out(stage, {}, tmp_path)
    assert sorted(entry["uri"] for entry in links.check(stage, tmp_path)) == [f"{server}/gone", f"{server}/missing"]


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
    """A DOI is alive if doi.org knows it, whoever may read the article."""
    assert links.is_dead({"uri": uri, "status": status, "info": info}) is dead


def test_links_end_where_the_sentence_goes_on():
    """Punctuation around a link does not belong to it."""
    text = "See <https://a.example/b>, (https://c.example/d_e), https://f.example/g.html. And `https://h.example/i`"
    assert links.LINK.findall(text) == [
        "https://a.example/b",
        "https://c.example/d_e",
        "https://f.example/g.html",
        "https://h.example/i",
    ]
