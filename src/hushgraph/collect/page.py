"""The operator's page: one HTML file without anything from elsewhere.

It shows only what anyone may know (the task, its price, rounded counts) and how to stop. The token for stopping is
typed in by the operator, kept in the page's memory only, and sent in a header. The content policy names the hashes of
the one style sheet and the one script, so nothing injected can run.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib.resources import files

from hushgraph.collect.task import Task, explain_task, odds_factor

_FILES = files("hushgraph.collect")
STYLE = (_FILES / "page.css").read_text(encoding="utf-8")
SCRIPT = (_FILES / "page.js").read_text(encoding="utf-8")


def _source(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


SECURITY_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {_source(STYLE)}; script-src {_source(SCRIPT)}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def index_page(tasks: Sequence[tuple[Task, dict[str, object]]]) -> str:
    """All tasks of the service."""
    rows = "".join(
        f'<tr><td><a href="/tasks/{task.id}">{_text(task.title or task.id)}</a></td>'
        f'<td><span class="badge {status["state"]}">{status["state"]}</span></td>'
        f"<td>{_count(status['reports_at_least'])}</td><td>{task.epsilon:g}</td></tr>"
        for task, status in tasks
    )
    body = (
        "<header><p class='brand'>hushgraph collect</p><h1>Collection tasks</h1></header><section><table class='list'>"
        "<tr><th>Task</th><th>State</th><th>Reports</th><th>Epsilon</th></tr>"
        f"{rows or '<tr><td colspan=4>No task yet: hushgraph collect create</td></tr>'}</table></section>"
    )
    return _document("Collection tasks", f"<main>{body}</main>")


def task_page(task: Task, status: dict[str, object]) -> str:
    """One task: what it asks, how far it is, how to stop it."""
    reports = int(str(status["reports_at_least"]))
    share = min(100, 100 * reports // task.nodes)
    state = _text(str(status["state"]))
    parts = [
        f"<header><a class='brand' href='/'>hushgraph collect</a><h1>{_text(task.title)} "
        f"<span id='state' class='badge {state}'>{state}</span></h1><p>{_text(task.purpose)}</p></header>",
        _tiles(task, reports),
        _progress(share, status),
        _facts(task),
        _what_people_see(task),
        _stopping(task, state),
    ]
    return _document(task.title, f"<main data-task='{task.id}' data-nodes='{task.nodes}'>{''.join(parts)}</main>")


def _tiles(task: Task, reports: int) -> str:
    tiles = [
        (f"<b id='reports'>{_count(reports)}</b>", "reports, rounded down"),
        (f"<b>{task.nodes:,}</b>", "nodes in the graph"),
        (f"<b>{task.epsilon:g}</b>", "epsilon per person, in total"),
        (f"<b>{odds_factor(task.epsilon):.3g}×</b>", "largest change of anyone's odds"),
    ]
    return (
        "<section class='tiles'>"
        + "".join(f"<div class='tile'>{a}<span>{b}</span></div>" for a, b in tiles)
        + "</section>"
    )


def _progress(share: int, status: dict[str, object]) -> str:
    # The width is set by a presentation attribute of SVG: inline styles are not allowed by the content policy.
    return (
        "<section><h2>Progress</h2><div class='bar'>"
        "<svg width='100%' height='100%' role='img' aria-label='share of reports'>"
        f"<rect id='bar' width='{share}%' height='100%' rx='5' fill='currentColor'/></svg></div>"
        f"<span id='share'>about {share}% of the nodes</span>"
        f"<p class='note'>Counts are rounded down to a multiple of {status['rounded_to']}, so that nobody's arrival "
        "can be watched. This page renews them every ten seconds.</p></section>"
    )


def _facts(task: Task) -> str:
    rows = [("Task", f"<code>{task.id}</code>"), ("Hash", f"<code>{task.sha256}</code>")]
    if task.features is not None:
        asked = task.features
        rows.append(
            (
                "Features",
                f"{asked.dimensions:,} numbers in [{asked.low:g}, {asked.high:g}]; {asked.mechanism}, "
                f"{asked.sampled:,} bit{'s' if asked.sampled > 1 else ''} sent; epsilon {asked.epsilon:g}",
            )
        )
    if task.labels is not None:
        names = ", ".join(_text(name) for name in task.labels.classes[:12])
        more = f" and {len(task.labels.classes) - 12} more" if len(task.labels.classes) > 12 else ""
        rows.append(("Label", f"{names}{more}; {task.labels.mechanism}; epsilon {task.labels.epsilon:g}"))
    rows.append(("Open", f"{task.opens or 'from the start'} to {task.closes or 'until it is closed'}"))
    rows.append(("Contact", _text(task.contact) or "none given"))
    rows.append(("Not protected", "who takes part, and the graph itself: the server knows both"))
    cells = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows)
    return f"<section><h2>The task</h2><table>{cells}</table></section>"


def _what_people_see(task: Task) -> str:
    example = explain_task(task, 0.0, max(10.0, 2 * task.epsilon)).partition("\n\n")[2].rpartition("\n")[0]
    return f"<section><h2>What each person is told</h2><pre class='words'>{_text(example)}</pre></section>"


def _stopping(task: Task, state: str) -> str:
    disabled = "" if state == "open" else " disabled"
    return (
        "<section><h2>Stop collecting</h2><p>Closing is final: reports already stored stay, new ones are refused. "
        "It needs the operator's token.</p>"
        "<form id='stopform'><input id='token' type='password' autocomplete='off' placeholder='Operator token' "
        f"aria-label='Operator token'><button id='stop'{disabled}>Close this task</button></form>"
        "<p class='note' id='said' role='status'></p>"
        f"<pre>hushgraph collect close {task.id} --server ADDRESS --operator-token-file operator.token\n"
        f"hushgraph collect export {task.id} --server ADDRESS --operator-token-file operator.token</pre>"
        "<p class='note'>To stop the service itself, end its process: every acknowledged report is on disk.</p>"
        "</section>"
    )


def _count(value: object) -> str:
    number = int(str(value))
    return f"{number:,}+" if number else "under 10"


def _text(value: str) -> str:
    return html.escape(value, quote=True)


def _document(title: str, body: str) -> str:
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{_text(title)} · hushgraph collect</title><style>{STYLE}</style></head>"
        f"<body>{body}<script>{SCRIPT}</script></body></html>"
    )
