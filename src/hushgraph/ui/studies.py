"""Studies as they run: how far each is, from its file of results; the report of one is made when it is asked for.

No study file is read to show this, because a study file may name Python code. A report does read it, in a process of
its own, as `hushgraph study report` does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse

from hushgraph.errors import InputError
from hushgraph.study.standing import Standing, find_standings
from hushgraph.ui.shell import Desk, short_hash

KINDS = {"running": "good", "finished": "plain", "stopped": "warn"}
_LAST = 20


def facts_of(standing: Standing) -> dict[str, Any]:
    """What the page shows of a study, and asks for again while it runs."""
    left = "" if standing.remaining is None or standing.share == 1.0 else f"{standing.remaining} left"
    return {
        "key": key_of(standing),
        "name": standing.name,
        "state": standing.state,
        "kind": KINDS[standing.state],
        "words": standing.words,
        "left": left,
        "share": round(standing.share, 4),
        "updated": datetime.fromtimestamp(standing.updated, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "privacy": standing.privacy,
        "store": str(standing.store),
    }


def key_of(standing: Standing) -> str:
    """The name of a study in an address."""
    return short_hash(f"{standing.store.absolute()}\n{standing.name}")


def show_studies(desk: Desk) -> HTMLResponse:
    """All studies."""
    found = [facts_of(one) for one in find_standings(desk.studies)]
    return desk.page("studies", "Studies", studies=found, folders=[str(one) for one in desk.studies])


def tell_studies(desk: Desk) -> JSONResponse:
    """The same for the script of the page."""
    return JSONResponse([facts_of(one) for one in find_standings(desk.studies)])


def find_study(desk: Desk, key: str) -> Standing:
    """The study of that name in the address."""
    for one in find_standings(desk.studies, _LAST):
        if key_of(one) == key:
            return one
    raise InputError("study: expected one of this page; its file of results is gone, or the address is another's")


def show_study(desk: Desk, key: str) -> HTMLResponse:
    """One study: counts, and the cells that ended last."""
    found = find_study(desk, key)
    last = [(one, datetime.fromtimestamp(one.finished, UTC).strftime("%Y-%m-%d %H:%M:%S")) for one in found.last]
    values: dict[str, Any] = {
        "study": facts_of(found),
        "counts": found.counts,
        "last": last,
        "has_report": found.file is not None,
    }
    return desk.page("study", f"Study {found.name}", **values)
