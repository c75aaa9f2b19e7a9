"""The collection server (FastAPI, an optional extra).

What it promises: a report is stored once per node and task; it is on disk before it is acknowledged; no address ever
returns a single report; neither bodies nor network addresses are logged; counts are rounded, and change once in a
period; tokens are stored hashed; only the operator can close, export or see exact figures (`/metrics`).

Status codes of an upload: 201 stored, 200 the same report again, 403 unknown token, 404 unknown task, 409 this node
reported something else, 410 closed, 413 too large, 422 not a report of this task, 429 too many tries, 503 busy or
without its database.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushgraph.collect import admin
from hushgraph.collect.admin import SECURITY_HEADERS, index_page, task_page
from hushgraph.collect.committer import Committer, Overloaded
from hushgraph.collect.guard import LARGEST_HEAD, Gate, GuardedProtocol, KnownTokens, TokenBuckets
from hushgraph.collect.observing import Metrics, log_as_json
from hushgraph.collect.report import ReportError, check_report, parse_body
from hushgraph.collect.store import Arrival, Outcome, Store, Unavailable
from hushgraph.collect.task import Task, is_task_id
from hushgraph.errors import InputError

LARGEST_BODY = 64 * 1024
COUNT_PERIOD = 3600.0
UNKNOWN, OPERATORS = b"unknown tokens", b"operators"
_UPLOAD = re.compile(r"/v1/tasks/([^/]+)/reports")
log = logging.getLogger("hushgraph.collect")


def _today() -> date:
    return datetime.now(UTC).date()


def create_app(
    store: Store,
    largest_body: int = LARGEST_BODY,
    limits: TokenBuckets | None = None,
    today: Callable[[], date] = _today,
    *,
    metrics: Metrics | None = None,
    count_period: float = COUNT_PERIOD,
) -> FastAPI:
    """The web application over a store. One process per store is enough; several are safe."""
    metrics = metrics or Metrics()
    committer = Committer(store, metrics, writers=store.writers)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        committer.start()
        log.info("collection service ready")
        yield
        await run_in_threadpool(committer.stop)
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
    service = Service(store, committer, largest_body, limits or TokenBuckets(), today, metrics, count_period)
    service.mount(app)
    app.add_exception_handler(InputError, _wrong_input)
    app.add_exception_handler(HTTPException, _plain_status)
    app.add_exception_handler(Unavailable, _unavailable)
    app.add_middleware(_Uploads, service=service)
    app.add_middleware(_Watched, metrics=metrics)
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
        metrics: Metrics,
        count_period: float,
    ) -> None:
        self.store, self.committer, self.largest_body = store, committer, largest_body
        self.limits, self.today, self.metrics, self.count_period = limits, today, metrics, count_period
        self.strangers = TokenBuckets(burst=50.0, per_second=5.0)
        self.known = KnownTokens(store.token_hashes)
        metrics.gauge("waiting", lambda: committer.waiting)
        self._tasks: dict[str, Task] = {}

    def mount(self, app: FastAPI) -> None:
        """Attach every address of the service."""
        app.router.add_route("/v1/tasks/{task_id}/reports", self._upload, methods=["POST"])
        app.add_api_route("/", self.home, methods=["GET"], response_class=HTMLResponse)
        app.add_api_route("/tasks/{task_id}", self.page, methods=["GET"], response_class=HTMLResponse)
        app.add_api_route("/healthz", self.health, methods=["GET"])
        app.add_api_route("/readyz", self.ready, methods=["GET"])
        app.add_api_route("/metrics", self.figures, methods=["GET"])
        app.add_api_route("/v1/tasks/{task_id}", self.get_task, methods=["GET"])
        app.add_api_route("/v1/tasks/{task_id}/status", self.get_status, methods=["GET"])
        app.add_api_route("/v1/tasks/{task_id}/close", self.close, methods=["POST"])
        app.add_api_route("/v1/tasks/{task_id}/export", self.export, methods=["GET"])

    async def upload(self, request: Request, task_id: str) -> Response:
        """Take one report."""
        body = await self._limited_body(request)
        if body is None:
            return _message(413, f"expected at most {self.largest_body} bytes; got more; update the client")
        task = await self._task(task_id)
        try:
            report = check_report(task, parse_body(body))
        except ReportError as error:
            return _message(422, str(error))
        token_hash = admin.token_hash(report.node_token)
        if not await self._may_try(task_id, token_hash):
            return _message(429, "too many tries; wait a little and send the same report again")
        day = self.today()
        arrival = Arrival(
            task.id, token_hash, report.report_id, report.payload, day.isoformat(), accepting=task.is_open_on(day)
        )
        try:
            outcome = await self.committer.add(arrival)
        except Overloaded:
            return _message(503, "the service is busy; wait a little and send the same report again")
        return _message(outcome.value, _OUTCOME_TEXT[outcome])

    async def _upload(self, request: Request) -> Response:
        return await self.upload(request, request.path_params["task_id"])

    async def _may_try(self, task_id: str, token_hash: bytes) -> bool:
        """Enrolled tokens have an allowance each; all others share one."""
        if await self.known.has(task_id, token_hash):
            return self.limits.allow(token_hash)
        return self.strangers.allow(UNKNOWN)

    async def get_task(self, task_id: str) -> Response:
        """The canonical task and its hash."""
        task = await self._task(task_id)
        return JSONResponse({"task": task.canonical_json(), "sha256": task.sha256}, headers=SECURITY_HEADERS)

    async def get_status(self, task_id: str) -> Response:
        """Rounded counts."""
        await self._task(task_id)
        return JSONResponse(await run_in_threadpool(self._status, task_id), headers=SECURITY_HEADERS)

    def _status(self, task_id: str) -> dict[str, object]:
        return admin.status(self.store, task_id, self.count_period)

    async def close(self, task_id: str, request: Request) -> Response:
        """Operator: accept no more reports."""
        await self._require_operator(request)
        await self._task(task_id)
        await run_in_threadpool(self.store.close_task, task_id)
        log.info("a task was closed by the operator", extra={"facts": {"task": task_id}})
        return _message(200, "closed; no new reports are accepted")

    async def export(self, task_id: str, request: Request) -> Response:
        """Operator: all noisy reports in one npz file."""
        await self._require_operator(request)
        await self._task(task_id)
        content = await run_in_threadpool(admin.export_npz, self.store, task_id)
        log.info("a task was exported by the operator", extra={"facts": {"task": task_id}})
        headers = {**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{task_id}.npz"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def home(self) -> HTMLResponse:
        """The list of tasks."""
        html = await run_in_threadpool(lambda: index_page(self._overview()))
        return HTMLResponse(html, headers=SECURITY_HEADERS)

    async def page(self, task_id: str) -> HTMLResponse:
        """The page of one task."""
        task = await self._task(task_id)
        status = await run_in_threadpool(self._status, task_id)
        return HTMLResponse(task_page(task, status), headers=SECURITY_HEADERS)

    async def health(self) -> Response:
        """Alive, whatever the store does: a process that is not should be started again."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> Response:
        """Alive, and the store answers: one that is not should get no requests for now."""
        await run_in_threadpool(self.store.task_ids)
        return JSONResponse({"status": "ready"})

    async def figures(self, request: Request) -> Response:
        """Operator: figures for Prometheus. They are exact, so they are not for everybody."""
        await self._require_operator(request)
        return PlainTextResponse(self.metrics.text(), headers=SECURITY_HEADERS)

    def _overview(self) -> list[tuple[Task, dict[str, object]]]:
        ids = self.store.task_ids()
        return [(admin.require_task(self.store, name).task, self._status(name)) for name in ids]

    async def _task(self, task_id: str) -> Task:
        if task_id not in self._tasks:
            record = await run_in_threadpool(self.store.task, task_id) if is_task_id(task_id) else None
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
        if not known and not self.strangers.allow(OPERATORS):
            raise HTTPException(429, "too many tries; wait a little")
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
    headers = SECURITY_HEADERS if status not in (429, 503) else {**SECURITY_HEADERS, "Retry-After": "1"}
    return JSONResponse({"status": status, "message": text}, status_code=status, headers=headers)


async def _unavailable(_: Request, error: Exception) -> Response:
    return _message(503, "the database does not answer now; wait a little and send the same again")


async def _wrong_input(_: Request, error: Exception) -> Response:
    return _message(422, str(error))


async def _plain_status(_: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    return _message(status, str(getattr(error, "detail", "")))


class _Uploads:
    """Reports go to their handler directly: they are nearly all requests, and need no routing."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take an upload; pass everything else on."""
        found = _UPLOAD.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            await self.app(scope, receive, send)
            return
        try:
            answer = await self.service.upload(Request(scope, receive), found.group(1))
        except HTTPException as error:
            answer = _message(error.status_code, str(error.detail))
        except Unavailable as error:
            answer = await _unavailable(Request(scope), error)
        await answer(scope, receive, send)


class _Watched:
    """Counts answers. Only the kind of an unexpected error is logged: its text and trace could hold what was sent."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; an error becomes a plain 500 unless the answer had already begun."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                self.metrics.count("requests", to=_kind_of(scope["path"]), status=message["status"])
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            log.error("internal error of kind %s", type(error).__name__)
            if not begun:
                await _message(500, "internal error; send the same report again later")(scope, receive, watched)


def _kind_of(path: str) -> str:
    """The kind of an address, out of a fixed set of words."""
    last = path.rsplit("/", 1)[-1]
    return last if last in ("reports", "status", "close", "export", "healthz", "readyz", "metrics") else "other"


def serve(
    store: Store,
    host: str,
    port: int,
    certificate: str | None = None,
    key: str | None = None,
    *,
    gate: Gate | None = None,
    **settings: Any,
) -> None:
    """Run the service until it is stopped; what has arrived by then is written and answered first.

    No access log, no client addresses, no server header.
    """
    import uvicorn

    log_as_json()
    metrics = settings.setdefault("metrics", Metrics())
    largest = settings.get("largest_body", LARGEST_BODY) + LARGEST_HEAD
    guarded: Any = functools.partial(GuardedProtocol, gate=gate or Gate(metrics=metrics), largest=largest)
    config = uvicorn.Config(
        create_app(store, **settings),
        host=host,
        port=port,
        http=guarded,
        backlog=128,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=10,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
    )
    uvicorn.Server(config).run()
