"""The first page: every dataset with what was spent on it, and what is left of each limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from starlette.responses import HTMLResponse

from hushgraph.errors import HushgraphError
from hushgraph.ledger.limits import cause_in_words
from hushgraph.ledger.statement import limit_words, pending_words, statement
from hushgraph.text import settings_in_words
from hushgraph.ui.shell import Desk

_REFUSED = 10


@dataclass(frozen=True)
class UnitTotal:
    """What one unit of a dataset has spent. `left` is None where there is no limit, and `share` what of it is used."""

    unit: str
    words: str
    reason: str
    private: bool
    used: float
    limit: dict[str, Any] | None
    left: float | None
    share: float
    history: tuple[str, ...]

    @property
    def kind(self) -> str:
        """How it stands: `bad` (not private, nothing left), `warn` (nearly nothing), `good`; `plain`: no limit."""
        if not self.private or self.left == 0.0:
            return "bad"
        if self.left is None:
            return "plain"
        return "warn" if self.share > 0.8 else "good"


def show_datasets(desk: Desk) -> HTMLResponse:
    """All datasets of the ledger."""
    book = desk.ledger
    if not book.exists:
        return desk.page("datasets", "Datasets", datasets=(), refused=(), refused_in_all=0, entries=0, link="")
    found = statement(book, last=_REFUSED)
    shown = [
        {
            "name": one["dataset"],
            "others": [name for name in one["names"] if name != one["dataset"]],
            "pending": pending_words(one),
            "totals": sorted((unit_total(total) for total in one["totals"]), key=lambda total: total.limit is None),
        }
        for one in found["datasets"]
    ]
    refused = [{**one, "why": cause_in_words(one["cause"])} for one in reversed(found["refused"])]
    values = {"refused": refused, "refused_in_all": found["refused_in_all"]}
    return desk.page("datasets", "Datasets", datasets=shown, entries=found["entries"], link=found["hash"], **values)


def unit_total(total: dict[str, Any]) -> UnitTotal:
    """What a statement says of one unit, with what is left."""
    parameters = settings_in_words({key: value for key, value in total["unit"].items() if key != "name"})
    limit, used = total["limit"], float(total["used"])
    left, share = None, 0.0
    if limit is not None:
        left = max(0.0, limit["epsilon"] - used) if math.isfinite(used) else 0.0
        share = min(1.0, used / limit["epsilon"]) if limit["epsilon"] > 0.0 else 1.0
    return UnitTotal(
        unit=total["unit"]["name"] + (f" ({parameters})" if parameters else ""),
        words=total["words"],
        reason=total["reason"],
        private=total["private"],
        used=used,
        limit=limit,
        left=left,
        share=share,
        history=tuple(limit_words(one) for one in total["limits"]),
    )


def show_check(desk: Desk) -> HTMLResponse:
    """The whole ledger checked: file, chain, prices, limits, sign-offs, and the heads that models keep."""
    from hushgraph.ledger.verify import verify_ledger

    book = desk.ledger
    if not book.exists:
        return desk.message("Ledger", f"No ledger in {desk.ledger_folder} yet. Make it with `hushgraph init`.", 200)
    try:
        found = verify_ledger(book)
    except HushgraphError as error:
        return desk.message("Ledger", str(error), 500)
    rows = [(one.what, one.status.value, one.detail) for one in found.findings]
    return desk.page("check", "Ledger check", headline=found.headline, status_word=found.status.value, rows=rows)
