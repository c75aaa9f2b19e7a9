"""The web application (FastAPI, an optional extra): addresses, and what to say when something is wrong."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from hushgraph.errors import HushgraphError, InputError
from hushgraph.ui.access import HOST, Access, Guard
from hushgraph.ui.datasets import show_check, show_datasets
from hushgraph.ui.reports import StudyReports, show_report
from hushgraph.ui.runs import show_run, show_runs, tell_verification
from hushgraph.ui.shell import ASSETS, Desk, asset
from hushgraph.ui.signing import LARGEST, Form, sign
from hushgraph.ui.studies import show_studies, show_study, tell_studies


def create_app(desk: Desk, access: Access) -> FastAPI:
    """The application for one project, behind its guard."""
    desk = replace(desk, root=f"/{access.room}/")
    reports = StudyReports()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        reports.end()

    # Telemetry is switched off by name: an environment variable must not be able to send requests elsewhere.
    silent = {"tracing": False, "metrics": False, "logs": False}
    app = FastAPI(
        title="hushgraph ui",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry=silent,  # type: ignore[arg-type]
    )
    _mount(app, desk, reports)
    app.add_exception_handler(HushgraphError, _refused(desk))
    app.add_exception_handler(HTTPException, _not_there(desk))
    app.add_middleware(Guard, access=access)
    return app


def _mount(app: FastAPI, desk: Desk, reports: StudyReports) -> None:
    """All addresses. Plain functions run beside each other, in threads."""

    def datasets() -> Response:
        return show_datasets(desk)

    def check() -> Response:
        return show_check(desk)

    def runs(dataset: str | None = None, page: int = 1) -> Response:
        return show_runs(desk, dataset, page)

    def run(run: str) -> Response:
        return show_run(desk, run)

    def verification(run: str) -> Response:
        return tell_verification(desk, run)

    def report(run: str, form: str = "html") -> Response:
        return show_report(desk, run, form)

    def studies() -> Response:
        return show_studies(desk)

    def states() -> Response:
        return tell_studies(desk)

    def study(key: str) -> Response:
        return show_study(desk, key)

    def study_report(key: str) -> Response:
        return reports.show(desk, key)

    def static(name: str) -> Response:
        if name not in ASSETS:
            raise HTTPException(404)
        return Response(asset(name), media_type=ASSETS[name])

    async def signoff(run: str, request: Request) -> Response:
        return await _sign(desk, run, request)

    gets: dict[str, Callable[..., Any]] = {
        "": datasets,
        "check": check,
        "runs": runs,
        "runs/{run}": run,
        "runs/{run}/verification": verification,
        "runs/{run}/report": report,
        "studies": studies,
        "studies/state": states,
        "studies/{key}": study,
        "studies/{key}/report": study_report,
        "static/{name}": static,
    }
    for path, view in gets.items():
        app.add_api_route(desk.root + path, view, methods=["GET"], response_model=None)
    app.add_api_route(f"{desk.root}runs/{{run}}/signoff", signoff, methods=["POST"], response_model=None)


async def _sign(desk: Desk, run: str, request: Request) -> Response:
    """Sign, and show the run again; what was wrong is said beside the form."""
    form = Form()
    try:
        form = Form.read(await _body(request))
        await run_in_threadpool(sign, desk, run, form)
    except HushgraphError as error:
        return await run_in_threadpool(show_run, desk, run, form, str(error))
    return RedirectResponse(f"{desk.root}runs/{run}#signed", 303)


async def _body(request: Request) -> bytes:
    """A form that was sent, and no more than a form is long."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise InputError("sign-off: expected a form of this page; got something else")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST:
            raise InputError(f"sign-off: expected at most {LARGEST} bytes; got more; shorten the reason")
    return bytes(body)


def _refused(desk: Desk) -> Callable[[Request, Exception], Any]:
    async def answer(_: Request, error: Exception) -> Response:
        return desk.message("This cannot be shown", str(error), 404 if isinstance(error, InputError) else 500)

    return answer


def _not_there(desk: Desk) -> Callable[[Request, Exception], Any]:
    async def answer(_: Request, error: Exception) -> Response:
        return desk.message("Nothing here", "There is no such page.", getattr(error, "status_code", 404))

    return answer


def listen(port: int) -> socket.socket:
    """A socket that only this machine reaches; port 0 takes a free one."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(64)
    except OSError as error:
        found.close()
        raise InputError(f"--port: expected a free port; {port} is taken ({error.strerror}); leave it out") from error
    return found


def serve(desk: Desk, access: Access, bound: socket.socket) -> None:
    """Run until stopped. Nothing is logged: addresses hold secrets."""
    import uvicorn

    config = uvicorn.Config(
        create_app(desk, access),
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
        ws="none",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[bound])
