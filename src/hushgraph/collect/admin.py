"""What an operator does: create a task, enroll nodes, hold the operator's token, export.

Tokens are shown once, in files only the operator can read; the store keeps their hashes. They are written before they
are registered, so that a full disk or a wrong path never leaves tokens that are valid and lost.

The operator's page: one HTML file without anything from elsewhere.

It shows only what anyone may know (the task, its price, rounded counts) and how to stop. The token for stopping is
typed in by the operator, kept in the page's memory only, and sent in a header. The content policy names the hashes of
the one style sheet and the one script, so nothing injected can run.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
import html
import io
import os
import secrets
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from hushgraph.collect.export import export_arrays
from hushgraph.collect.store import Store, TaskRecord
from hushgraph.collect.task import BinnedQuestion, FeatureQuestion, Task, explain_task, odds_factor
from hushgraph.errors import InputError
from hushgraph.files.writing import flush_folder, told_if_unwritable

Keep = Callable[[str], object]
KeepAll = Callable[[Sequence[tuple[int, str]]], object]
OPERATOR = "operator_token_sha256"
ROUND_TO = 10


def new_token() -> str:
    """256 random bits, 43 characters."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> bytes:
    """What is stored of a token. Tokens are long and random, so a plain hash cannot be reversed by guessing."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def make_operator_token(store: Store, keep: Keep = lambda token: None) -> str | None:
    """A new operator's token, once per store; None if it has one already. `keep` writes it down before it is valid."""
    if store.setting(OPERATOR) is not None:
        return None
    token = new_token()
    keep(token)
    if not store.set_once(OPERATOR, token_hash(token).hex()):
        raise InputError("another process made the operator's token meanwhile: what was written here is not valid")
    return token


def rotate_operator_token(store: Store, keep: Keep = lambda token: None) -> str:
    """A new operator's token in the place of the old one, which is refused from then on."""
    token = new_token()
    keep(token)
    store.set_setting(OPERATOR, token_hash(token).hex())
    return token


def is_operator(store: Store, token: str) -> bool:
    """Whether `token` is the operator's, compared in constant time."""
    stored = store.setting(OPERATOR)
    return stored is not None and hmac.compare_digest(stored, token_hash(token).hex())


def create_task(store: Store, task: Task) -> TaskRecord:
    """Add a task and read it back."""
    store.create_task(task)
    return require_task(store, task.id)


def require_task(store: Store, task_id: str) -> TaskRecord:
    """A task that must exist."""
    record = store.task(task_id)
    if record is None:
        known = ", ".join(store.task_ids()) or "none"
        raise InputError(f"expected a task of this store; got {task_id!r}; known: {known}")
    return record


def enroll(
    store: Store, task_id: str, nodes: Sequence[int] | None = None, keep: KeepAll = lambda tokens: None
) -> list[tuple[int, str]]:
    """Tokens for nodes (all of the task by default). `keep` writes them down before they are valid.

    They cannot be shown again: tokens that were registered and then lost would shut their owners out.
    """
    chosen = _chosen(store, task_id, nodes)
    taken = sorted(set(chosen) - set(store.without_token(task_id, chosen)))
    if taken:
        raise InputError(f"expected nodes without a token; node {taken[0]} has one; enroll only new nodes, or reissue")
    tokens = [(node, new_token()) for node in chosen]
    keep(tokens)
    store.enroll(task_id, [(node, token_hash(token)) for node, token in tokens])
    return tokens


def reissue(
    store: Store, task_id: str, nodes: Sequence[int], keep: KeepAll = lambda tokens: None
) -> list[tuple[int, str]]:
    """New tokens for enrolled nodes; the old ones are refused from then on. A report that was sent stays theirs."""
    chosen = _chosen(store, task_id, nodes)
    if missing := store.without_token(task_id, chosen):
        raise InputError(f"expected enrolled nodes; node {missing[0]} has no token; enroll it")
    tokens = [(node, new_token()) for node in chosen]
    keep(tokens)
    store.reissue(task_id, [(node, token_hash(token)) for node, token in tokens])
    return tokens


def revoke(store: Store, task_id: str, nodes: Sequence[int]) -> int:
    """Make the tokens of nodes unknown; how many had one. They can be enrolled again."""
    return store.revoke(task_id, _chosen(store, task_id, nodes))


def _chosen(store: Store, task_id: str, nodes: Sequence[int] | None) -> list[int]:
    task = require_task(store, task_id).task
    chosen = list(range(task.nodes)) if nodes is None else [int(node) for node in nodes]
    if len(set(chosen)) != len(chosen) or not all(0 <= node < task.nodes for node in chosen):
        raise InputError(f"expected different nodes in 0..{task.nodes - 1}; got others; check the list")
    return chosen


def write_secret(path: str | Path, content: str) -> Path:
    """Write a new file that only its owner can read, whole or not at all; an existing one is never overwritten."""
    target = Path(path)
    with told_if_unwritable(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InputError(
                f"expected a new file; {target} exists; tokens are not overwritten, choose another name"
            ) from None
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        flush_folder(target.parent)
    return target


def tokens_csv(tokens: Sequence[tuple[int, str]]) -> str:
    """`node,token` lines."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("node", "token"))
    writer.writerows(tokens)
    return text.getvalue()


def status(store: Store, task_id: str, period: float = 0.0) -> dict[str, object]:
    """What anyone may know: the state, and counts rounded down that change once in a `period` of seconds.

    Rounding alone can be undone by somebody who sends reports of their own until the count moves: that takes as many
    periods as there are values to try, and others report meanwhile. 0: the counts of now.
    """
    record = require_task(store, task_id)
    enrolled, received = (
        store.stepped_counts(task_id, int(time.time() // period)) if period > 0 else store.counts(task_id)
    )
    return {
        "task_id": task_id,
        "state": record.state,
        "task_sha256": record.task.sha256,
        "enrolled_at_least": rounded(enrolled),
        "reports_at_least": rounded(received),
        "rounded_to": ROUND_TO,
        "changes_every_seconds": period,
    }


def rounded(count: int) -> int:
    """Down to a multiple of ten."""
    return count - count % ROUND_TO


def export_npz(store: Store, task_id: str) -> bytes:
    """The noisy reports of a task with the task itself, as an npz file without Python objects."""
    record = require_task(store, task_id)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **export_arrays(record.task, store.reports(task_id)))
    return buffer.getvalue()


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
        f"<p class='note'>Counts are rounded down to a multiple of {status['rounded_to']} and change every "
        f"{status.get('changes_every_seconds', 0)} seconds, so that nobody's arrival can be watched.</p></section>"
    )


def _facts(task: Task) -> str:
    rows = [("Task", f"<code>{task.id}</code>"), ("Hash", f"<code>{task.sha256}</code>")]
    if task.features is not None:
        asked = task.features
        rows.append(
            (
                "Features",
                f"{asked.dimensions:,} numbers in [{asked.low:g}, {asked.high:g}]; {asked.mechanism}, "
                f"{_sent(asked)} sent; epsilon {asked.epsilon:g}",
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


def _sent(asked: FeatureQuestion | BinnedQuestion) -> str:
    if isinstance(asked, BinnedQuestion):
        return f"one of {asked.bins} bins each"
    return f"{asked.sampled:,} bit{'s' if asked.sampled > 1 else ''}"


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
