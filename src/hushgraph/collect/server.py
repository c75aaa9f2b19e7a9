"""The collection server (FastAPI, an optional extra).

What it promises: a report is stored once per node and task; it is on disk before it is acknowledged; no address ever
returns a single report; neither bodies nor network addresses are logged; counts are rounded; tokens are stored
hashed; only the operator can close or export.

Status codes of an upload: 201 stored, 200 the same report again, 403 unknown token, 404 unknown task, 409 this node
reported something else, 410 closed, 413 too large, 422 not a report of this task, 429 too many tries, 503 busy.

Rate limits without addresses: each node token has a small allowance that refills with time.

Keys are token hashes held in memory only. The table has a fixed size; the longest unused entry goes first.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushgraph.collect import admin
from hushgraph.collect.admin import SECURITY_HEADERS, index_page, task_page
from hushgraph.collect.report import ReportError, check_report, parse_body
from hushgraph.collect.store import Arrival, Committer, Outcome, Overloaded, Store
from hushgraph.collect.task import Task
from hushgraph.errors import InputError

LARGEST_BODY = 64 * 1024
log = logging.getLogger("hushgraph.collect")


def _today() -> date:
    return datetime.now(UTC).date()


def create_app(
    store: Store,
    largest_body: int = LARGEST_BODY,
    limits: TokenBuckets | None = None,
    today: Callable[[], date] = _today,
) -> FastAPI:
    """The web application over a store. One process per store is enough; several are safe."""
    committer = Committer(store)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        committer.start()
        log.info("collection service ready")
        yield
        committer.stop()
        log.info("collection service stopped")

    # Telemetry is switched off by name: an environment variable must not be able to send requests elsewhere.
    silent = {"tracing": False, "metrics": False, "logs": False}
    app = FastAPI(
        title="hushgraph collect",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry=silent,  # type: ignore[arg-type]
    )
    service = Service(store, committer, largest_body, limits or TokenBuckets(), today)
    service.mount(app)
    app.add_exception_handler(InputError, _wrong_input)
    app.add_exception_handler(HTTPException, _plain_status)
    app.add_middleware(_HiddenErrors)
    return app


class Service:
    """The handlers. Tasks never change, so they are cached; their state is always asked of the store."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        largest_body: int,
        limits: TokenBuckets,
        today: Callable[[], date],
    ) -> None:
        self.store, self.committer, self.largest_body = store, committer, largest_body
        self.limits, self.today = limits, today
        self._tasks: dict[str, Task] = {}

    def mount(self, app: FastAPI) -> None:
        """Attach every address of the service."""
        # A plain route: the body is read by hand, with a limit, and never by a model that could echo it in an error.
        app.router.add_route("/v1/tasks/{task_id}/reports", self.upload, methods=["POST"])
        app.add_api_route("/", self.home, methods=["GET"], response_class=HTMLResponse)
        app.add_api_route("/tasks/{task_id}", self.page, methods=["GET"], response_class=HTMLResponse)
        app.add_api_route("/healthz", self.health, methods=["GET"])
        app.add_api_route("/v1/tasks/{task_id}", self.get_task, methods=["GET"])
        app.add_api_route("/v1/tasks/{task_id}/status", self.get_status, methods=["GET"])
        app.add_api_route("/v1/tasks/{task_id}/close", self.close, methods=["POST"])
        app.add_api_route("/v1/tasks/{task_id}/export", self.export, methods=["GET"])

    async def upload(self, request: Request) -> Response:
        """Take one report."""
        body = await self._limited_body(request)
        if body is None:
            return _message(413, f"expected at most {self.largest_body} bytes; got more; update the client")
        task = await self._task(request.path_params["task_id"])
        try:
            report = check_report(task, parse_body(body))
        except ReportError as error:
            return _message(422, str(error))
        token_hash = admin.token_hash(report.node_token)
        if not self.limits.allow(token_hash):
            return _message(429, "too many tries with this token; wait a little and send the same report again")
        day = self.today()
        arrival = Arrival(
            task.id, token_hash, report.report_id, report.payload, day.isoformat(), accepting=task.is_open_on(day)
        )
        try:
            outcome = await self.committer.add(arrival)
        except Overloaded:
            return _message(503, "the service is busy; wait a little and send the same report again")
        return _message(outcome.value, _OUTCOME_TEXT[outcome])

    async def get_task(self, task_id: str) -> Response:
        """The canonical task and its hash."""
        task = await self._task(task_id)
        return JSONResponse({"task": task.canonical_json(), "sha256": task.sha256}, headers=SECURITY_HEADERS)

    async def get_status(self, task_id: str) -> Response:
        """Rounded counts."""
        await self._task(task_id)
        return JSONResponse(await run_in_threadpool(admin.status, self.store, task_id), headers=SECURITY_HEADERS)

    async def close(self, task_id: str, request: Request) -> Response:
        """Operator: accept no more reports."""
        await self._require_operator(request)
        await self._task(task_id)
        await run_in_threadpool(self.store.close_task, task_id)
        log.info("task %s closed by the operator", task_id)
        return _message(200, "closed; no new reports are accepted")

    async def export(self, task_id: str, request: Request) -> Response:
        """Operator: all noisy reports in one npz file."""
        await self._require_operator(request)
        await self._task(task_id)
        content = await run_in_threadpool(admin.export_npz, self.store, task_id)
        log.info("task %s exported by the operator", task_id)
        headers = {**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{task_id}.npz"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def home(self) -> HTMLResponse:
        """The list of tasks."""
        html = await run_in_threadpool(lambda: index_page(self._overview()))
        return HTMLResponse(html, headers=SECURITY_HEADERS)

    async def page(self, task_id: str) -> HTMLResponse:
        """The page of one task."""
        task = await self._task(task_id)
        status = await run_in_threadpool(admin.status, self.store, task_id)
        return HTMLResponse(task_page(task, status), headers=SECURITY_HEADERS)

    async def health(self) -> Response:
        """Alive, and the store answers."""
        await run_in_threadpool(self.store.task_ids)
        return JSONResponse({"status": "ok"})

    def _overview(self) -> list[tuple[Task, dict[str, object]]]:
        ids = self.store.task_ids()
        return [(admin.require_task(self.store, name).task, admin.status(self.store, name)) for name in ids]

    async def _task(self, task_id: str) -> Task:
        if task_id not in self._tasks:
            record = await run_in_threadpool(self.store.task, task_id)
            if record is None:
                raise HTTPException(404, "expected a task of this service; got another name; check the address")
            self._tasks[task_id] = record.task
        return self._tasks[task_id]

    async def _limited_body(self, request: Request) -> bytes | None:
        """The body, or None as soon as it is known to be too large."""
        announced = request.headers.get("content-length", "0")
        if not announced.isdigit() or int(announced[:12]) > self.largest_body:
            return None
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self.largest_body:
                return None
        return bytes(body)

    async def _require_operator(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        known = scheme.lower() == "bearer" and await run_in_threadpool(admin.is_operator, self.store, token)
        if not known:
            raise HTTPException(401, "expected the operator's token; got none or another; see the operator's file")


_OUTCOME_TEXT = {
    Outcome.STORED: "stored",
    Outcome.REPLAY: "this report was stored before",
    Outcome.UNKNOWN_NODE: "expected a token of an enrolled node; got another; ask the operator",
    Outcome.CONFLICT: "this node has reported something else already; reports are never replaced",
    Outcome.CLOSED: "the task is closed; nothing was stored",
}


def _message(status: int, text: str) -> JSONResponse:
    return JSONResponse({"status": status, "message": text}, status_code=status, headers=SECURITY_HEADERS)


async def _wrong_input(_: Request, error: Exception) -> Response:
    return _message(422, str(error))


async def _plain_status(_: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    return _message(status, str(getattr(error, "detail", "")))


class _HiddenErrors:
    """Only the kind of an unexpected error is logged: its text and trace could hold what was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; an error becomes a plain 500 unless the answer had already begun."""
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            if scope["type"] != "http":
                raise
            log.error("internal error of kind %s", type(error).__name__)
            if not begun:
                await _message(500, "internal error; send the same report again later")(scope, receive, send)


def serve(
    store: Store, host: str, port: int, certificate: str | None = None, key: str | None = None, **settings: Any
) -> None:
    """Run the service until it is stopped. No access log, no client addresses, no server header."""
    import uvicorn

    app: ASGIApp = create_app(store, **settings)
    uvicorn.run(
        app,
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_level="warning",
    )


class TokenBuckets:
    """At most `burst` requests at once per key, refilled at `per_second`."""

    def __init__(
        self,
        burst: float = 20.0,
        per_second: float = 0.5,
        keys: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.burst, self.per_second, self.keys, self._clock = burst, per_second, keys, clock
        self._levels: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def allow(self, key: bytes) -> bool:
        """Whether this request may pass; it uses up one unit if so."""
        now = self._clock()
        level, seen = self._levels.pop(key, (self.burst, now))
        level = min(self.burst, level + (now - seen) * self.per_second)
        allowed = level >= 1.0
        self._levels[key] = (level - 1.0 if allowed else level, now)
        if len(self._levels) > self.keys:
            self._levels.popitem(last=False)
        return allowed
