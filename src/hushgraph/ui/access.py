"""Who may talk to the page: whoever has the address that `hushgraph ui` printed, from a page of its own.

Everything lies under a path that nobody can guess (the *room*), and the token in the first address becomes a cookie for
that path alone: a browser sends cookies to every port of a host, and others may serve pages on other ports of this
machine. A `Host` that is not this machine's is refused (another site's name that was made to point here), and so is
whatever another origin asks for.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
COOKIE = "hushgraph_ui"
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_CLOSED = "Open the address that `hushgraph ui` printed in its terminal: it holds the key to this page.\n"


@dataclass(frozen=True)
class Access:
    """The secrets of one server: they end with it."""

    port: int
    room: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names under which this server may be asked."""
        return (f"{HOST}:{self.port}", f"localhost:{self.port}")

    @property
    def address(self) -> str:
        """What is opened first, with the token."""
        return f"http://{HOST}:{self.port}/{self.room}/?token={self.token}"

    def is_room(self, path: str) -> bool:
        """Whether a path lies in the room."""
        first, slash, _ = path.removeprefix("/").partition("/")
        return bool(slash) and same(first, self.room)

    def has_cookie(self, header: str) -> bool:
        """Whether one of the cookies is ours; pages on other ports may have added some of that name."""
        pairs = (one.strip().partition("=") for one in header.split(";"))
        return any(same(value, self.cookie) for name, _, value in pairs if name == COOKIE)


def same(given: str, wanted: str) -> bool:
    """Whether two secrets agree, in a time that does not tell how much of them does."""
    return hmac.compare_digest(given.encode(), wanted.encode())


class Guard:
    """Lets in what comes from the page itself, and puts the same headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer strangers; pass on the rest."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(scope)
        await (self.app if answer is None else answer)(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """What to say instead of the page; None: let it pass."""
        headers, access, method = Headers(scope=scope), self.access, scope["method"]
        host = headers.get("host", "")
        if host not in access.hosts:
            return PlainTextResponse("this server is asked by another name than its own\n", 421)
        if method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("only GET and POST\n", 405)
        if not _from_here(headers, method, host):
            return PlainTextResponse("asked by another site\n", 403)
        if not access.is_room(scope["path"]):
            return PlainTextResponse("nothing here\n", 404)
        if scope["path"] == f"/{access.room}/" and method == "GET":
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
            if given and same(given[0], access.token):
                return self._entry()
        if not access.has_cookie(headers.get("cookie", "")):
            return PlainTextResponse(_CLOSED, 403)
        return None

    def _entry(self) -> Response:
        """The cookie, and a page that goes on to the first one.

        Not a redirect: a browser that came from a link elsewhere would follow it without the strict cookie.
        """
        to = f"/{self.access.room}/"
        answer = HTMLResponse(
            f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,">'
            f'<title>hushgraph</title><meta http-equiv="refresh" content="0;url={to}">'
            f'<a href="{to}">Continue</a></html>'
        )
        answer.set_cookie(COOKIE, self.access.cookie, path=to, httponly=True, samesite="strict")
        return answer


def _from_here(headers: Headers, method: str, host: str) -> bool:
    """Whether a request was made by the page itself, or by a person who opened an address."""
    site, mode, origin = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode"), headers.get("origin")
    if method == "POST":
        return origin == f"http://{host}" and site in (None, "same-origin")
    return origin in (None, f"http://{host}") and (site in (None, "same-origin", "none") or mode == "navigate")
