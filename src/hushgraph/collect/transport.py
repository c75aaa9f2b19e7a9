"""How the client talks to a server: two requests over the standard library, replaceable in tests.

Redirects are not followed (a redirect would carry the node's token elsewhere), and plain HTTP is only allowed to the
same machine unless it was asked for.
"""

from __future__ import annotations

import ipaddress
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from hushgraph.errors import InputError

LARGEST_ANSWER = 16 * 2**20


@dataclass(frozen=True)
class Answer:
    """Status code (0: no connection) and body of a response."""

    status: int
    body: bytes = b""


class Transport(Protocol):
    """What the client needs from the network."""

    def get(self, url: str) -> Answer:
        """Fetch `url`."""
        ...

    def post(self, url: str, content: bytes) -> Answer:
        """Send `content` as JSON to `url`."""
        ...


class HttpTransport:
    """HTTP over `urllib`. `allow_plain` permits http:// to other machines; `timeout` in seconds."""

    def __init__(self, timeout: float = 30.0, allow_plain: bool = False) -> None:
        self.timeout, self.allow_plain = timeout, allow_plain
        self._opener = urllib.request.build_opener(_NoRedirect())

    def get(self, url: str) -> Answer:
        """Fetch `url`."""
        return self._open(urllib.request.Request(self._checked(url)))

    def post(self, url: str, content: bytes, token: str | None = None) -> Answer:
        """Send `content` as JSON to `url`; `token` is an operator's token."""
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self._open(urllib.request.Request(self._checked(url), data=content, headers=headers, method="POST"))

    def get_with_token(self, url: str, token: str) -> Answer:
        """Fetch `url` as the operator."""
        return self._open(urllib.request.Request(self._checked(url), headers={"Authorization": f"Bearer {token}"}))

    def _checked(self, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"expected an http(s) address; got {url!r}; check the server's address")
        if parts.scheme == "http" and not self.allow_plain and not is_loopback(parts.hostname):
            raise InputError(f"expected https for {parts.hostname}; got http; the token would travel readable")
        return url

    def _open(self, request: urllib.request.Request) -> Answer:
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                return Answer(response.status, response.read(LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read(LARGEST_ANSWER))
        except (urllib.error.URLError, OSError, EOFError):
            return Answer(0)
        except Exception as error:
            if type(error).__module__.startswith("http."):
                return Answer(0)
            raise


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        """Never follow."""


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
