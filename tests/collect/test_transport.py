from __future__ import annotations

import http.server
import threading

import pytest

from hushgraph.collect.client import HttpTransport, is_loopback
from hushgraph.errors import InputError


@pytest.fixture
def redirecting_server():
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(307)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_redirects_are_not_followed(redirecting_server):
    address, seen = redirecting_server
    assert HttpTransport().post(f"{address}/here", b"{}").status == 307
    assert seen == ["/here"]


def test_no_connection_is_status_zero():
    assert HttpTransport(timeout=1).get("http://127.0.0.1:9/").status == 0


def test_plain_http_only_to_this_machine():
    with pytest.raises(InputError, match="https"):
        HttpTransport().post("http://example.org/v1", b"")
    for bad in ("file:///etc/passwd", "ftp://example.org", "nonsense"):
        with pytest.raises(InputError):
            HttpTransport().get(bad)


@pytest.mark.parametrize(
    ("host", "own"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("10.0.0.1", False), ("localhost.example.org", False)],
)
def test_loopback(host, own):
    assert is_loopback(host) is own
