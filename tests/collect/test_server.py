from __future__ import annotations

import asyncio
import io
import json
import logging
import random
from collections import Counter

import numpy as np
import pytest
from fastapi.testclient import TestClient

from hushgraph.collect.committer import Committer, Overloaded
from hushgraph.collect.guard import TokenBuckets
from hushgraph.collect.server import create_app


def test_stored_then_replayed(world):
    body = world.body()
    assert world.post(body).status_code == 201
    assert world.post(body).status_code == 200
    assert len(world.stored()) == 1


def test_a_different_report_of_the_same_node_is_a_conflict(world):
    first = world.body()
    world.post(first)
    before = world.stored()
    for other in (world.body(), {**first, "y": 2}, {**first, "x": [[0, 1], [1, 1]]}):
        assert world.post(other).status_code == 409
    assert world.stored() == before


def test_unknown_task_and_unknown_node(world):
    assert world.web.post("/v1/tasks/none/reports", json=world.body()).status_code == 404
    assert world.post(world.body(node_token="A" * 43)).status_code == 403
    assert world.stored() == []


WRONG = {
    "extra entry": lambda b: {**b, "more": 1},
    "missing entry": lambda b: {k: v for k, v in b.items() if k != "y"},
    "report id": lambda b: {**b, "report_id": "z" * 32},
    "short report id": lambda b: {**b, "report_id": "ab"},
    "upper case id": lambda b: {**b, "report_id": "A" * 32},
    "token type": lambda b: {**b, "node_token": 5},
    "token form": lambda b: {**b, "node_token": "é" * 43},
    "task hash": lambda b: {**b, "task_hash": "0" * 64},
    "x missing": lambda b: {**b, "x": None},
    "x short": lambda b: {**b, "x": [[0, 1]]},
    "x long": lambda b: {**b, "x": [[0, 1], [1, 1], [2, 1]]},
    "x unsorted": lambda b: {**b, "x": [[3, 1], [1, 1]]},
    "x repeated": lambda b: {**b, "x": [[3, 1], [3, 1]]},
    "x out of range": lambda b: {**b, "x": [[0, 1], [8, 1]]},
    "x negative": lambda b: {**b, "x": [[-1, 1], [3, 1]]},
    "x bit": lambda b: {**b, "x": [[0, 2], [3, 1]]},
    "x bool": lambda b: {**b, "x": [[0, True], [3, 1]]},
    "x float": lambda b: {**b, "x": [[0.0, 1], [3, 1]]},
    "x raw numbers": lambda b: {**b, "x": [0.1, 0.2]},
    "x triple": lambda b: {**b, "x": [[0, 1, 1], [3, 1, 1]]},
    "y class": lambda b: {**b, "y": 3},
    "y negative": lambda b: {**b, "y": -1},
    "y bool": lambda b: {**b, "y": True},
    "y text": lambda b: {**b, "y": "red"},
    "y large": lambda b: {**b, "y": 10**300},
}


@pytest.mark.parametrize("name", WRONG)
def test_reports_outside_the_mechanism_are_refused(world, name):
    answer = world.post(WRONG[name](world.body()))
    assert answer.status_code == 422
    assert world.stored() == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"a":' * 5000,
        b"[" * 60000,
        b"1" * 6000,
        b'{"x":NaN}',
        b'{"x":1,"x":1}',
        b"\x00" * 100,
    ],
)
def test_bodies_that_are_not_reports_are_refused(world, content):
    assert world.post(content).status_code == 422
    assert world.stored() == []


def test_large_bodies_are_refused_before_they_are_read_whole(world):
    assert world.post(b" " * (64 * 1024 + 1)).status_code == 413

    def pieces():
        for _ in range(100):
            yield b" " * 1024

    assert world.web.post(world.url, content=pieces()).status_code == 413
    for length in ("-1", "x", "9" * 400):
        assert world.web.post(world.url, content=b"{}", headers={"content-length": length}).status_code in (400, 413)
    assert world.stored() == []


def test_optional_label_may_be_absent(world):
    assert world.post(world.body(y=None)).status_code == 201


def test_closed_and_replay_after_close(world):
    kept = world.body(0)
    world.post(kept)
    assert world.web.post("/v1/tasks/survey/close", headers=world.as_operator()).status_code == 200
    assert world.post(world.body(1)).status_code == 410
    assert world.post(kept).status_code == 200
    assert len(world.stored()) == 1
    assert world.web.get("/v1/tasks/survey/status").json()["state"] == "closed"


def test_days_of_the_task_are_kept(world, task_maker):
    from datetime import date

    from hushgraph.collect import admin

    task = task_maker(id="dated", opens="2026-03-02", closes="2026-03-03")
    admin.create_task(world.store, task)
    world.task, world.tokens = task, dict(admin.enroll(world.store, "dated"))
    assert world.post(world.body()).status_code == 410
    world.days[0] = date(2026, 3, 3)
    assert world.post(world.body()).status_code == 201
    world.days[0] = date(2026, 3, 4)
    assert world.post(world.body(1)).status_code == 410


def test_too_many_tries_of_one_token(world):
    limits = TokenBuckets(burst=3, per_second=0.0)
    with TestClient(create_app(world.store, limits=limits)) as web:
        codes = [web.post(world.url, json=world.body(0)).status_code for _ in range(5)]
        assert codes == [201, 409, 409, 429, 429]
        assert web.post(world.url, json=world.body(1)).status_code == 201


@pytest.mark.parametrize(("method", "path"), [("POST", "close"), ("GET", "export")])
def test_operator_only(world, method, path):
    url = f"/v1/tasks/survey/{path}"
    wrong = [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer " + world.tokens[0]},
        {"Authorization": world.operator},
    ]
    for headers in wrong:
        assert world.web.request(method, url, headers=headers).status_code == 401
    assert world.store.task("survey").state == "open"
    assert world.web.request(method, url, headers=world.as_operator()).status_code == 200


def test_a_stolen_node_token_can_neither_read_nor_overwrite(world):
    genuine = world.body(0)
    world.post(genuine)
    before = world.stored()
    thief = {"Authorization": f"Bearer {world.tokens[0]}"}
    for path in ("", "/status", "/export", "/reports", "/reports/0", "/nodes/0"):
        answer = world.web.get(f"/v1/tasks/survey{path}", headers=thief)
        assert genuine["report_id"] not in answer.text
        assert answer.status_code in (200, 401, 404, 405)
    # Guessing the exact payload is answered like any other guess: without the secret report id there is no oracle.
    guess = {**genuine, "report_id": "0" * 32}
    assert world.post(guess).status_code == world.post(world.body(0)).status_code == 409
    assert world.web.delete(world.url).status_code == 405
    assert world.web.put(world.url, json=genuine).status_code == 405
    assert world.stored() == before


def test_no_address_returns_a_single_report(world):
    marker = world.body(0)
    world.post(marker)
    paths = {route.path for route in world.web.app.routes}
    for path in paths - {"/v1/tasks/{task_id}/export"}:
        answer = world.web.get(path.replace("{task_id}", "survey"), headers=world.as_operator())
        assert marker["report_id"] not in answer.text
        assert marker["node_token"] not in answer.text
    assert paths == {
        "/",
        "/healthz",
        "/metrics",
        "/readyz",
        "/tasks/{task_id}",
        "/v1/tasks/{task_id}",
        "/v1/tasks/{task_id}/close",
        "/v1/tasks/{task_id}/export",
        "/v1/tasks/{task_id}/reports",
        "/v1/tasks/{task_id}/status",
    }


def test_status_is_rounded(world):
    for node in range(17):
        world.post(world.body(node))
    status = world.web.get("/v1/tasks/survey/status").json()
    assert status["reports_at_least"] == 10
    page = world.web.get("/tasks/survey").text
    assert ">10+<" in page
    assert ">17" not in page


def test_task_is_served_with_its_hash(world):
    body = world.web.get("/v1/tasks/survey").json()
    assert body == {"task": world.task.canonical_json(), "sha256": world.task.sha256}


def test_export_holds_the_reports_and_the_task(world):
    world.post(world.body(4, x=[[2, 1], [5, 0]], y=None))
    world.post(world.body(2, x=[[0, 0], [7, 1]], y=2))
    answer = world.web.get("/v1/tasks/survey/export", headers=world.as_operator())
    with np.load(io.BytesIO(answer.content), allow_pickle=False) as arrays:
        assert arrays["task"].tobytes().decode() == world.task.canonical_json()
        assert arrays["node"].tolist() == [2, 4]
        assert arrays["x_index"].tolist() == [[0, 7], [2, 5]]
        assert arrays["x_bit"].tolist() == [[0, 1], [1, 0]]
        assert arrays["y"].tolist() == [2, -1]
        assert set(arrays.files) == {"task", "node", "x_index", "x_bit", "y"}


def test_neither_bodies_nor_addresses_are_logged(world, caplog, capfd):
    body = world.body(0)
    with caplog.at_level(logging.DEBUG):
        world.post(body)
        world.post({**body, "y": 99})
        world.post(b"{secret-body")
        world.web.post("/v1/tasks/survey/close", headers=world.as_operator())
    ours = [
        record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore", "asyncio"))
    ]
    written = "\n".join(ours) + "".join(capfd.readouterr())
    for secret in (body["node_token"], body["report_id"], "secret-body", "testclient", "127.0.0.1", world.operator):
        assert secret not in written
    assert "closed by the operator" in written


def test_errors_never_repeat_what_was_sent(world):
    answer = world.post(world.body(x="SENSITIVE", y="ALSO"))
    assert answer.status_code == 422
    assert "SENSITIVE" not in answer.text
    assert "ALSO" not in answer.text


def test_a_failing_store_hides_its_reason_and_stores_nothing(world, monkeypatch, caplog):
    def broken(self, arrivals):
        raise RuntimeError(f"cannot write {arrivals}")

    with monkeypatch.context() as patch:
        patch.setattr(type(world.store), "add", broken)
        body = world.body(0)
        answer = world.post(body)
    assert answer.status_code == 500
    assert "cannot write" not in answer.text
    ours = [record for record in caplog.records if record.name == "hushgraph.collect"]
    assert any("RuntimeError" in record.getMessage() for record in ours)
    assert all("cannot write" not in record.getMessage() for record in ours)
    assert world.post(body).status_code == 201


def test_a_full_queue_asks_to_come_back(world, monkeypatch):
    async def full(self, arrival):
        raise Overloaded("full")

    monkeypatch.setattr(Committer, "add", full)
    assert world.post(world.body()).status_code == 503
    assert world.stored() == []


def mutate(body, rng):
    """One random change of an honest report: of a byte, of a value, or of the whole."""
    kind = rng.randrange(4)
    if kind == 0:
        raw = bytearray(json.dumps(body).encode())
        for _ in range(rng.randint(1, 8)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(raw)
    if kind == 1:
        return rng.randbytes(rng.randint(0, 300))
    values = [None, True, -1, 2**70, 1.5, "", "x" * 50, [], {}, [[0, 0]], [[0, 0]] * 9, {"a": [1]}, float("1e300")]
    changed = dict(body)
    if kind == 2:
        changed[rng.choice(sorted(body))] = rng.choice(values)
    else:
        changed.pop(rng.choice(sorted(body)))
    return json.dumps(changed).encode()


def test_fuzzed_bodies_are_refused_and_nothing_is_stored(world, fast_post):
    # Node 0 has reported, so even a mutation that is still a valid report can only be a conflict.
    rng = random.Random(20260301)
    honest = world.body(0)
    world.post(honest)
    before = world.stored()
    bodies = [mutate(honest, rng) for _ in range(3000)]

    async def send_all():
        return [await fast_post(world.web.app, world.url, body) for body in bodies]

    codes = Counter(asyncio.run(send_all()))
    assert world.stored() == before
    # 200: the mutation did not change the meaning (a byte of white space); 429: the node's own allowance ran out.
    assert set(codes) <= {200, 403, 409, 422, 429}
    assert codes[200] < 60
    assert codes[422] > 2000
