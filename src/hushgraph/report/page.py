"""The page: everything known about a run, in one HTML file that opens offline.

The file carries its own style and script and asks the browser not to fetch anything (a content security policy).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError
from hushgraph.ledger.certificate import certify
from hushgraph.ledger.ledger import History
from hushgraph.privacy.adaptive import WorstOf
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.report import html, sections, verdicts
from hushgraph.report.accuracy import accuracy
from hushgraph.report.checklists import nist_rows, reporting_list
from hushgraph.report.record import RunRecord, find_ledger, priced_stages, read_run

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_SECTIONS = {
    "claim": "Claim",
    "accuracy": "Accuracy",
    "budget": "Budget",
    "attacks": "Attacks",
    "audit": "Audit",
    "scope": "Scope",
    "reporting": "Reporting list",
    "nist": "NIST SP 800-226",
    "provenance": "Provenance",
}


def write_report(
    source: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    compare: Sequence[Any] = (),
    audit: Any | None = None,
    attacks: Any | None = None,
    ledger: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Path:
    """Write the report of a model (its folder, or the model itself) and return the file's path.

    `compare` are further models for the plot of accuracy against epsilon. `audit` and `attacks` are what `hushgraph
    audit` and `hushgraph attack` wrote: values, or paths of JSON files; files called audit.json and attacks.json in
    the model's folder are found without being named. `ledger` is the folder of the ledger, to check the certificate
    against. The file is `out`, or report.html in the model's folder.
    """
    record = read_run(source)
    target = _target(out, record)
    page = render(
        record,
        compare=[read_run(one) for one in compare],
        audit=_given_or_found(audit, record, "audit.json"),
        attacks=_attack_list(_given_or_found(attacks, record, "attacks.json")),
        history=find_ledger(record, ledger),
        title=title,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".new")
    temporary.write_text(page, encoding="utf-8")
    os.replace(temporary, target)
    return target


def render(
    record: RunRecord,
    *,
    compare: Sequence[RunRecord] = (),
    audit: dict[str, Any] | None = None,
    attacks: Sequence[dict[str, Any]] = (),
    history: History | None = None,
    title: str | None = None,
) -> str:
    """The page as text."""
    prices, loss = priced_stages(record, history)
    ledger_words = _check_ledger(record, history)
    heading = title or f"{record.method} on {record.certificate['dataset']}"
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = [
        sections.claim(record, loss),
        accuracy(record, compare),
        sections.budget(record, prices),
        sections.attacks(record, attacks, _limits(loss)),
        verdicts.audit(audit),
        sections.promises(record),
        sections.checklist(
            "reporting",
            "Reporting list",
            reporting_list(record, ledger_checked=history is not None),
            "The points that “How to DP-fy ML” asks every private model to report.",
        ),
        sections.checklist(
            "nist",
            "NIST SP 800-226",
            nist_rows(record, audited=audit is not None),
            "The blocks of the evaluation pyramid, from the top: what this run handles, and what it leaves to others.",
        ),
        sections.provenance(record, ledger_words, written),
    ]
    return _document(heading, record, "".join(body))


def _document(heading: str, record: RunRecord, body: str) -> str:
    links = "".join(f'<a href="#{name}">{html.text(word)}</a>' for name, word in _SECTIONS.items())
    style, script = _asset("style.css"), _asset("page.js")
    top = (
        f'<header class="top"><div><p class="brand">hushgraph privacy report</p><h1>{html.text(heading)}</h1>'
        f'<div class="lead">Run {html.text(record.certificate["run"])}, unit {html.text(record.unit.name)}</div>'
        f"<nav>{links}</nav></div></header>"
    )
    foot = (
        "<footer>This file is complete in itself and fetches nothing. Epsilon is an upper bound on privacy loss; "
        "audits give lower bounds; neither attacks nor audits can prove privacy.</footer>"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html.text(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.text(heading)}: privacy report</title><style>{style}</style></head>"
        f'<body>{top}<main>{body}</main>{foot}<div id="tip" role="status" hidden></div>'
        f"<script>{script}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return files("hushgraph.report").joinpath(name).read_text(encoding="utf-8")


def _check_ledger(record: RunRecord, history: History | None) -> str:
    if history is None:
        return "not at hand when this page was written; check with: hushgraph ledger verify"
    again = certify(history, record.certificate["run"])
    same = math.isclose(again.epsilon, record.epsilon, rel_tol=1e-9) or again.epsilon == record.epsilon
    if not same:
        raise InputError(
            f"report: expected the certificate's epsilon {record.epsilon:g} from the ledger; the ledger gives "
            f"{again.epsilon:g}. One of the two was changed: train again, or find the right ledger"
        )
    return "read again when this page was written: it is unbroken and gives the same epsilon"


def _limits(loss: PrivacyLoss | WorstOf | None) -> list[tuple[float, float]]:
    """The highest true-positive rate that the loss allows at each false-positive rate, for any test of one unit."""
    if loss is None:
        return []
    slopes = [0.0, *[10 ** (-2 + k / 10) for k in range(36)]]
    profile = [(slope, loss.delta(slope)) for slope in slopes]
    rates = [10 ** (-4 + k / 10) for k in range(41)]
    return [(x, min(1.0, min(math.exp(slope) * x + delta for slope, delta in profile))) for x in rates]


def _target(out: str | os.PathLike[str] | None, record: RunRecord) -> Path:
    if out is not None:
        path = Path(out)
        return path / "report.html" if path.is_dir() else path
    if record.folder is None:
        raise InputError("report: a model that was not saved has no folder; say where to write (out=...)")
    return record.folder / "report.html"


def _given_or_found(given: Any, record: RunRecord, name: str) -> Any:
    if given is None and record.folder is not None and (record.folder / name).exists():
        given = record.folder / name
    if isinstance(given, str | os.PathLike):
        try:
            return json.loads(Path(given).read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"{given}: expected a JSON file; {error}") from error
    return given.as_dict() if hasattr(given, "as_dict") else given


def _attack_list(found: Any) -> list[dict[str, Any]]:
    if found is None:
        return []
    if isinstance(found, dict):
        return list(found["attacks"]) if "attacks" in found else [found]
    return [one.as_dict() if hasattr(one, "as_dict") else one for one in found]
