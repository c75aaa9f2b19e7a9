"""Runs with who, when, why, and verified or not; the page of one run, where an officer signs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse

from hushgraph.errors import HushgraphError
from hushgraph.ledger.checking import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import verify_model
from hushgraph.ledger.statement import run_of, run_state, sign_off_words, statement
from hushgraph.ui.shell import Desk
from hushgraph.ui.signing import Form, people_here, state_of

ON_A_PAGE = 50
KINDS = {Status.VERIFIED: "good", Status.NOT_VERIFIED: "warn", Status.REJECTED: "bad", Status.CONTRADICTED: "bad"}
_KEPT = 1000


def show_runs(desk: Desk, dataset: str | None, page: int) -> HTMLResponse:
    """One page of runs, newest first."""
    book = desk.ledger
    if not book.exists:
        return desk.page("runs", "Runs", runs=(), dataset=None, datasets=(), page=1, pages=1, count=0)
    known = list(book.readable().datasets())
    chosen = dataset if dataset in known else None
    count = statement(book, dataset=chosen, last=0)["runs_in_all"]
    pages = max(1, -(-count // ON_A_PAGE))
    page = min(max(1, page), pages)
    found = statement(book, dataset=chosen, last=page * ON_A_PAGE)["runs"]
    newest = list(reversed(found))[(page - 1) * ON_A_PAGE :]
    shown = [described(run) for run in newest]
    return desk.page("runs", "Runs", runs=shown, dataset=chosen, datasets=known, page=page, pages=pages, count=count)


def described(run: dict[str, Any]) -> dict[str, Any]:
    """A run of a statement with its words."""
    method = run["method"] + (f": {run['chosen']}" if run["chosen"] else "")
    bad = run["seeded"] or run["counts"] == "unproved"
    return {**run, "label": method, "state": run_state(run), "signed": sign_off_words(run), "bad": bad}


def one_run(book: Ledger, run: str) -> dict[str, Any]:
    """The run with exactly that id, with its words."""
    return described(run_of(book, run))


def show_run(desk: Desk, run: str, form: Form | None = None, error: str = "") -> HTMLResponse:
    """The page of one run; `form` and `error` are those of a sign-off that was not accepted."""
    book = desk.ledger
    found = one_run(book, run)
    checked = verification(book, found)
    values = {
        "run": found,
        "checked": checked,
        "people": () if desk.read_only else people_here(book),
        "form": form or Form(seen=state_of(book, run)),
        "error": error,
    }
    return desk.page("run", f"Run {run[:8]}", status=400 if error else 200, **values)


def tell_verification(desk: Desk, run: str) -> JSONResponse:
    """Whether a run's model is what the ledger says, for the list."""
    book = desk.ledger
    found = verification(book, one_run(book, run))
    return JSONResponse({"words": found["words"], "kind": found["kind"]})


# Verified or not: files are hashed and epsilon is computed again, so what did not change is not checked again

_cache: OrderedDict[tuple[Any, ...], dict[str, Any]] = OrderedDict()
_mutex = threading.Lock()


def verification(book: Ledger, run: dict[str, Any]) -> dict[str, Any]:
    """How the model of a run stands: in one or two words, their kind, and every finding."""
    if run["model_path"] is None:
        why = "it was closed without a saved model" if run["closed"] else "it has not ended"
        return {"words": "no model", "kind": "plain", "findings": (f"The run has no model to check: {why}.",)}
    folder = Path(run["model_path"])
    key = (str(book.folder), book.readable().head().hash, run["run"], *_signature(folder))
    with _mutex:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    found = _verified(folder, book)
    with _mutex:
        _cache[key] = found
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return found


def _verified(folder: Path, book: Ledger) -> dict[str, Any]:
    if not folder.is_dir():
        words = f"{folder} is not there: it was moved, or lies on another machine."
        return {"words": "model not here", "kind": "warn", "findings": (words,)}
    try:
        found = verify_model(folder, book)
    except HushgraphError as error:
        return {"words": "cannot be read", "kind": "bad", "findings": (str(error),)}
    findings = tuple(str(one) for one in found.findings)
    return {"words": found.status.value, "kind": KINDS[found.status], "findings": findings}


def _signature(folder: Path) -> tuple[Any, ...]:
    """What changes when a file of the folder does; the time of the last change of state cannot be set back."""
    try:
        found = [(str(path), path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    except OSError:
        return ()
    return tuple((name, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in found)
