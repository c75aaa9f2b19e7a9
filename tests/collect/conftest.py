"""A small task, a store with enrolled nodes, and a server in the same process."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import date

import pytest
from fastapi.testclient import TestClient

import postgres_server
from hushgraph.collect import FeatureQuestion, LabelQuestion, Task, admin
from hushgraph.collect.client import Answer
from hushgraph.collect.server import create_app
from hushgraph.collect.store import SqliteStore


def make_task(**changes):
    values = {
        "id": "survey",
        "title": "A survey",
        "nodes": 40,
        "features": FeatureQuestion(8, 4.0),
        "labels": LabelQuestion(("red", "green", "blue"), 1.0, optional=True),
        "purpose": "testing",
        "contact": "someone@example.org",
    }
    return Task(**{**values, **changes})


@pytest.fixture(scope="session")
def postgres():
    """A server that is started; tests that stop it start it again."""
    pytest.importorskip("psycopg_pool")
    reason = postgres_server.missing()
    if reason is not None:
        pytest.skip(reason)
    server = postgres_server.PostgresServer()
    server.start()
    yield server
    server.remove()


@dataclass
class World:
    """A running service and everything a test needs to speak with it."""

    store: SqliteStore
    task: Task
    tokens: dict[int, str]
    operator: str
    web: TestClient
    days: list[date]

    @property
    def url(self):
        return f"/v1/tasks/{self.task.id}/reports"

    def body(self, node=0, **changes):
        pairs = [[i, i % 2] for i in range(self.task.features.sampled)]
        values = {
            "report_id": secrets.token_hex(16),
            "node_token": self.tokens[node],
            "task_hash": self.task.sha256,
            "x": pairs,
            "y": 1,
        }
        return {**values, **changes}

    def post(self, body):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.web.post(self.url, content=content)

    def as_operator(self):
        return {"Authorization": f"Bearer {self.operator}"}

    def stored(self):
        return self.store.reports(self.task.id)


@pytest.fixture
def world(tmp_path):
    store = SqliteStore(tmp_path / "collect.db")
    task = make_task()
    admin.create_task(store, task)
    tokens = dict(admin.enroll(store, task.id))
    operator = admin.make_operator_token(store)
    days = [date(2026, 3, 1)]
    with TestClient(create_app(store, today=lambda: days[0]), raise_server_exceptions=True) as web:
        yield World(store, task, tokens, operator, web, days)


async def asgi_post(app, path, content):
    """The status code of one upload, without any HTTP in between: fast enough for thousands."""
    codes = []
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [], "http_version": "1.1", "scheme": "http", "root_path": "", "asgi": {"version": "3.0"}}

    async def receive():
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            codes.append(message["status"])

    await app(scope, receive, send)
    return codes[0]


class WebTransport:
    """The client's transport over an in-process server; `lose` answers are dropped after the server handled them."""

    def __init__(self, web, lose=0):
        self.web, self.lose, self.sent = web, lose, []

    def get(self, url):
        answer = self.web.get(url)
        return Answer(answer.status_code, answer.content)

    def post(self, url, content):
        self.sent.append(content)
        answer = self.web.post(url, content=content)
        if self.lose:
            self.lose -= 1
            return Answer(0)
        return Answer(answer.status_code, answer.content)


@pytest.fixture
def transport(world):
    return WebTransport(world.web)


@pytest.fixture
def losing_transport(world):
    return WebTransport(world.web, lose=2)


@pytest.fixture
def fast_post():
    return asgi_post


@pytest.fixture
def task_maker():
    return make_task
