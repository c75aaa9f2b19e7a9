"""What an operator does: create a task, enroll nodes, hold the operator's token, export.

Tokens are shown once, in files only the operator can read; the store keeps their hashes.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import io
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hushgraph.collect.export import export_arrays
from hushgraph.collect.store import Store, TaskRecord
from hushgraph.collect.task import Task
from hushgraph.errors import InputError

OPERATOR = "operator_token_sha256"
ROUND_TO = 10


def new_token() -> str:
    """256 random bits, 43 characters."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> bytes:
    """What is stored of a token. Tokens are long and random, so a plain hash cannot be reversed by guessing."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def make_operator_token(store: Store) -> str | None:
    """A new operator's token, once per store; None if it has one already."""
    token = new_token()
    return token if store.set_once(OPERATOR, token_hash(token).hex()) else None


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


def enroll(store: Store, task_id: str, nodes: Sequence[int] | None = None) -> list[tuple[int, str]]:
    """Tokens for nodes (all of the task by default). They cannot be shown again."""
    task = require_task(store, task_id).task
    chosen = list(range(task.nodes)) if nodes is None else [int(node) for node in nodes]
    if len(set(chosen)) != len(chosen) or not all(0 <= node < task.nodes for node in chosen):
        raise InputError(f"expected different nodes in 0..{task.nodes - 1}; got others; check the list")
    tokens = [(node, new_token()) for node in chosen]
    store.enroll(task_id, [(node, token_hash(token)) for node, token in tokens])
    return tokens


def write_secret(path: str | Path, content: str) -> Path:
    """Write a new file that only its owner can read; an existing file is never overwritten."""
    target = Path(path)
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(
            f"expected a new file; {target} exists; tokens are not overwritten, choose another name"
        ) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return target


def tokens_csv(tokens: Sequence[tuple[int, str]]) -> str:
    """`node,token` lines."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("node", "token"))
    writer.writerows(tokens)
    return text.getvalue()


def status(store: Store, task_id: str) -> dict[str, object]:
    """What anyone may know: the state, and counts rounded down so that no single arrival can be watched."""
    record = require_task(store, task_id)
    enrolled, received = store.counts(task_id)
    return {
        "task_id": task_id,
        "state": record.state,
        "task_sha256": record.task.sha256,
        "enrolled_at_least": rounded(enrolled),
        "reports_at_least": rounded(received),
        "rounded_to": ROUND_TO,
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
