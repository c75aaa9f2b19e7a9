"""The client that runs on a person's device: standard library and numpy only.

The order of its steps is the privacy argument:

1. the task's hash must be the one the person agreed to;
2. the price is charged to the lifetime budget;
3. the answer is drawn once, from operating-system entropy;
4. the exact bytes to send are stored durably;
5. only then are they sent, and every retry sends the same bytes.

So a crash at any point loses at most an answer that nobody has seen, and asking again never gives a second noisy look.

It talks to a server by two requests over the standard library, replaceable in tests.

The lifetime budget that a device keeps for its owner is in one small file (`LifetimeBudget`).
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import math
import os
import re
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from hushgraph.collect.report import draw_payload
from hushgraph.collect.task import Task, explain_task
from hushgraph.errors import BudgetError, HushgraphError, InputError, LedgerError
from hushgraph.files.writing import write_whole
from hushgraph.local import Randomness
from hushgraph.local.labels import valid_labels
from hushgraph.local.vectors import rows_of

_HASH = re.compile(r"[0-9a-f]{64}")
RETRY = frozenset({0, 408, 425, 429, 500, 502, 503, 504})
"""Status codes (0: no connection) after which the same bytes are sent again."""


class TaskMismatch(InputError):
    """The task is not the one the person agreed to. Nothing was drawn and nothing was sent."""


class SendError(HushgraphError):
    """The server did not take the report. The stored answer is kept and can be sent again."""


@dataclass(frozen=True)
class Sent:
    """The server has the report: `status` 201 when it was new, 200 when it was there already; `tries` needed."""

    status: int
    tries: int


class Client:
    """Answers collection tasks for one person.

    `folder` holds the stored answers and the budget and must survive restarts: without it a second answer would be a
    second release. `lifetime_epsilon` is the most this device will ever spend. `rng` is for tests only.
    """

    def __init__(
        self,
        folder: str | Path,
        lifetime_epsilon: float,
        transport: Transport | None = None,
        rng: Randomness | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.folder = Path(folder).expanduser()
        self.budget = LifetimeBudget(self.folder / "budget.json", lifetime_epsilon)
        self.transport = transport if transport is not None else HttpTransport()
        self._rng, self._wait = rng, wait

    def fetch(self, server: str, task_id: str) -> Task:
        """Read a task from a server. Fetching is not agreeing: show `explain` and compare the hash first."""
        answer = self.transport.get(f"{server.rstrip('/')}/v1/tasks/{task_id}")
        if answer.status != 200:
            raise SendError(f"expected the task; got status {answer.status}; check the address and the task's name")
        try:
            body = json.loads(answer.body)
            task, claimed = Task.from_json(body["task"]), body["sha256"]
        except (ValueError, KeyError, TypeError) as error:
            raise TaskMismatch("expected a task and its hash; got something else; do not answer") from error
        if task.sha256 != claimed or task.id != task_id:
            raise TaskMismatch("expected a task that fits its hash and name; got another; do not answer")
        return task

    def explain(self, task: Task) -> str:
        """In words: what would leave this device, what would not, and what it costs."""
        return explain_task(task, self.budget.spent, self.budget.limit, task.sha256 in self.budget.charges)

    def answer(
        self, task: Task, agreed_hash: str, node_token: str, features: Any = None, label: int | str | None = None
    ) -> bytes:
        """Draw and store the answer to a task (once), and return the bytes that will be sent.

        `label` is the name of a class of the task, or its number counted from 0.
        """
        self._check_agreement(task, agreed_hash)
        label = class_number(task, label)
        _check_values(task, features, label)
        with locked(self.folder):
            stored = self._stored(task.sha256)
            if stored is not None:
                return stored
            self.budget.charge(task.sha256, task.epsilon)
            body = {
                **draw_payload(task, features, label, self._rng),
                "report_id": secrets.token_hex(16),
                "node_token": node_token,
                "task_hash": task.sha256,
            }
            content = json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")
            path = self._path(task.sha256)
            path.parent.mkdir(exist_ok=True, mode=0o700)
            write_whole(path, content)
            return content

    def send(self, server: str, task: Task, tries: int = 5) -> Sent:
        """Send the stored answer; the same bytes again after a lost connection or a busy server."""
        content = self._stored(task.sha256)
        if content is None:
            raise InputError("expected a stored answer to this task; got none; call `answer` first")
        url = f"{server.rstrip('/')}/v1/tasks/{task.id}/reports"
        for attempt in range(1, tries + 1):
            answer = self.transport.post(url, content)
            if answer.status in (200, 201):
                return Sent(answer.status, attempt)
            if answer.status not in RETRY or attempt == tries:
                raise _refused(answer)
            self._wait(min(30.0, 0.2 * 2**attempt) * (0.5 + secrets.randbelow(1000) / 1000))
        raise InputError(f"expected at least one try; got {tries}; raise it")

    def _check_agreement(self, task: Task, agreed_hash: str) -> None:
        if not (isinstance(agreed_hash, str) and _HASH.fullmatch(agreed_hash)):
            raise TaskMismatch("expected the 64 hex digits of the agreed task; got something else; copy the whole hash")
        if not hmac.compare_digest(task.sha256, agreed_hash):
            raise TaskMismatch("expected the task that was agreed to; got a changed one; do not answer")

    def _path(self, task_hash: str) -> Path:
        return self.folder / "answers" / f"{task_hash}.json"

    def _stored(self, task_hash: str) -> bytes | None:
        path = self._path(task_hash)
        return path.read_bytes() if path.exists() else None


def class_number(task: Task, label: int | str | None) -> int | None:
    """The number of a class of the task, by its name; numbers and None stay as they are."""
    if not isinstance(label, str):
        return label
    classes = task.labels.classes if task.labels is not None else ()
    if label not in classes:
        raise InputError(f"expected one of the classes {list(classes)}; got another; check the label")
    return classes.index(label)


def _check_values(task: Task, features: Any, label: int | None) -> None:
    """Refuse missing or unasked values before anything is charged."""
    if (task.features is None) != (features is None):
        wanted = "features" if task.features is not None else "no features"
        raise InputError(f"expected {wanted}; got the opposite; give what the task asks for")
    if task.labels is None and label is not None:
        raise InputError("expected no label; got one; give only what the task asks for")
    if task.labels is not None:
        if label is None and not task.labels.optional:
            raise InputError("expected a label; got none; this task needs one")
        if label is not None:
            valid_labels(label, len(task.labels.classes))
    if task.features is not None:
        _check_features(features, task.features.dimensions)


def _check_features(features: Any, dimensions: int) -> None:
    if len(rows_of(features, dimensions)) != 1:
        raise InputError("expected one vector of features; got several; each person answers alone")


def _refused(answer: Answer) -> SendError:
    reasons = {
        0: "no connection",
        403: "the node token is not known",
        404: "the task does not exist there",
        409: "this node has reported something else already",
        410: "the task is closed",
        413: "the report is too large",
        422: "the report was refused",
        429: "too many tries",
    }
    reason = reasons.get(answer.status, f"status {answer.status}")
    return SendError(
        f"expected the report to be taken; got: {reason}; the answer is kept, try later or ask the contact"
    )


LARGEST_ANSWER = 16 * 2**20


@dataclass(frozen=True)
class Answer:
    """Status code (0: no connection) and body of a response."""

    status: int
    body: bytes = b""


class Transport(Protocol):
    """What the client needs from the network."""

    def get(self, url: str) -> Answer:
        """Fetch `url`."""
        ...

    def post(self, url: str, content: bytes) -> Answer:
        """Send `content` as JSON to `url`."""
        ...


class HttpTransport:
    """HTTP over `urllib`. `allow_plain` permits http:// to other machines; `timeout` in seconds."""

    def __init__(self, timeout: float = 30.0, allow_plain: bool = False) -> None:
        self.timeout, self.allow_plain = timeout, allow_plain
        self._opener = urllib.request.build_opener(_NoRedirect())

    def get(self, url: str) -> Answer:
        """Fetch `url`."""
        return self._open(urllib.request.Request(self._checked(url)))

    def post(self, url: str, content: bytes, token: str | None = None) -> Answer:
        """Send `content` as JSON to `url`; `token` is an operator's token."""
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self._open(urllib.request.Request(self._checked(url), data=content, headers=headers, method="POST"))

    def get_with_token(self, url: str, token: str) -> Answer:
        """Fetch `url` as the operator."""
        return self._open(urllib.request.Request(self._checked(url), headers={"Authorization": f"Bearer {token}"}))

    def _checked(self, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"expected an http(s) address; got {url!r}; check the server's address")
        if parts.scheme == "http" and not self.allow_plain and not is_loopback(parts.hostname):
            raise InputError(f"expected https for {parts.hostname}; got http; the token would travel readable")
        return url

    def _open(self, request: urllib.request.Request) -> Answer:
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                return Answer(response.status, response.read(LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read(LARGEST_ANSWER))
        except (urllib.error.URLError, OSError, EOFError):
            return Answer(0)
        except Exception as error:
            if type(error).__module__.startswith("http."):
                return Answer(0)
            raise


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        """Never follow."""


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


FORMAT = "hushgraph-lifetime/1"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that two programs of one owner cannot draw two answers."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(folder / "lock", "a+b") as file:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class LifetimeBudget:
    """Charges by task hash in `path`, never above `limit` in total."""

    def __init__(self, path: Path, limit: float) -> None:
        if not (math.isfinite(limit) and limit > 0):
            raise InputError(f"expected a lifetime epsilon > 0; got {limit}; choose what this device may ever spend")
        self.path, self.limit = path, limit

    @property
    def charges(self) -> dict[str, float]:
        """Task hash to epsilon. A damaged file is an error: guessing would risk spending twice."""
        if not self.path.exists():
            return {}
        try:
            body: Any = json.loads(self.path.read_bytes())
            charges = {str(task): float(epsilon) for task, epsilon in body["charges"].items()}
            valid = body["format"] == FORMAT and all(math.isfinite(e) and e > 0 for e in charges.values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerError(f"expected a budget file; got a damaged one at {self.path}; restore it") from error
        if not valid:
            raise LedgerError(f"expected a budget file; got other entries at {self.path}; restore it")
        return charges

    @property
    def spent(self) -> float:
        """The sum of all charges."""
        return math.fsum(self.charges.values())

    def charge(self, task_hash: str, epsilon: float) -> None:
        """Charge a task once; a second charge of the same task changes nothing, because its answer is drawn once."""
        charges = self.charges
        if task_hash in charges:
            return
        if self.spent + epsilon > self.limit * (1 + 1e-12):
            raise BudgetError(
                f"expected at most {self.limit:g} in a lifetime; {self.spent:g} is spent and this task asks for "
                f"{epsilon:g}; decline it, or raise the limit on purpose"
            )
        body = {"format": FORMAT, "charges": {**charges, task_hash: epsilon}}
        write_whole(self.path, json.dumps(body, sort_keys=True).encode("ascii"))
