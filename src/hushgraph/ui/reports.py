"""Reports, one click away: made from saved models, the ledger and results of studies when they are asked for.

A page of a report runs in a sandbox of its own, so that nothing in it could sign or read what this page can.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from starlette.responses import HTMLResponse, PlainTextResponse, Response

from hushgraph.errors import InputError, did_you_mean
from hushgraph.files.reading import damage_named
from hushgraph.study.standing import Standing
from hushgraph.ui.runs import one_run
from hushgraph.ui.shell import Desk, short_hash
from hushgraph.ui.studies import find_study

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
)
"""What a page of a report may do: as the page says itself, and without an origin."""
_SECONDS = 900.0


def show_report(desk: Desk, run: str, form: str) -> Response:
    """The report of a run's model: a page, or one of the other forms as text."""
    from hushgraph.report.context import read_context, with_ledger
    from hushgraph.report.page import FILES, render, render_form

    if form not in FILES:
        raise InputError(f"unknown form of report '{form}'; {did_you_mean(form, FILES)}")
    found = one_run(desk.ledger, run)
    if found["model_path"] is None:
        raise InputError(f"run {run}: has no saved model; a report is made from the folder of a model")
    folder = Path(found["model_path"])
    if not folder.is_dir():
        raise InputError(f"{folder}: expected the model of run {run}; it was moved, or lies on another machine")
    with damage_named(folder, do="Restore the folder from a copy, or train again"):
        context = with_ledger(read_context(folder), desk.ledger_folder)
        if form == "html":
            return sandboxed(render(context))
        return PlainTextResponse(render_form(context, form))


def sandboxed(page: str) -> HTMLResponse:
    """A page that was not made here, without the rights of this one."""
    return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})


class StudyReports:
    """Reports of studies, each made once for a state of its results and kept as long as the server runs."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hushgraph-ui-")
        self._mutex = threading.Lock()

    def show(self, desk: Desk, key: str) -> HTMLResponse:
        """The report of a study."""
        found = find_study(desk, key)
        if found.file is None:
            raise InputError(
                f"study {found.name}: expected its study file beside {found.store}; use `hushgraph study report`"
            )
        state = f"{found.updated} {found.counts} {found.file.stat().st_mtime_ns}"
        out = Path(self._folder.name) / f"{key}-{short_hash(state)}.html"
        with self._mutex:
            if not out.exists():
                _make(found, out)
        return sandboxed(out.read_text(encoding="utf-8"))

    def end(self) -> None:
        """Remove what was made."""
        self._folder.cleanup()


def _make(found: Standing, out: Path) -> None:
    command = [sys.executable, "-P", "-m", "hushgraph", "study", "report", str(found.file), "--any-code"]
    command += ["--store", str(found.store), "--out", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"study {found.name}: its report takes more than {_SECONDS:.0f} s; make it in a shell"
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[-600:]
        raise InputError(f"study {found.name}: its report was not made: {said or 'no reason was given'}")
