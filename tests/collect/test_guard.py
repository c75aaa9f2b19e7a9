"""A hostile network: guesses, slow and silent connections, floods of random tokens."""

from __future__ import annotations

import asyncio
import json
import resource
import secrets
import socket
import subprocess
import sys
import time

import pytest

from hushgraph.collect import admin
from hushgraph.collect.client import HttpTransport
from hushgraph.collect.guard import Gate, KnownTokens
from hushgraph.collect.store import SqliteStore, Unavailable


def test_guesses_of_tokens_share_one_allowance(world):
    codes = [world.post(world.body(node_token=secrets.token_urlsafe(32))).status_code for _ in range(300)]
    assert codes.count(403) < 100
    assert codes.count(403) + codes.count(429) == 300
    assert world.post(world.body(0)).status_code == 201  # an enrolled one is served as ever


def test_random_tokens_do_not_renew_the_allowance_of_a_real_one(world):
    body = world.body(0)
    codes = [world.post(body).status_code for _ in range(30)]
    assert codes.count(429) > 5
    for _ in range(200):
        world.post(world.body(node_token=secrets.token_urlsafe(32)))
    assert world.post(body).status_code == 429


def test_an_enrolled_token_is_known_soon():
    now, listed = [0.0], [b"a" * 32]

    async def go():
        known = KnownTokens(lambda task: list(listed) if task == "survey" else [], every=5.0, clock=lambda: now[0])
        assert await known.has("survey", b"a" * 32)
        assert not await known.has("survey", b"b" * 32)
        assert not await known.has("other", b"a" * 32)
        listed.append(b"b" * 32)
        assert not await known.has("survey", b"b" * 32)
        now[0] = 5.0
        assert await known.has("survey", b"b" * 32)

    asyncio.run(go())


def test_all_who_come_while_the_list_is_read_wait_for_one_reading():
    readings = []

    def read(task):
        readings.append(task)
        time.sleep(0.05)
        return [bytes([one]) * 32 for one in range(64)]

    async def go():
        known = KnownTokens(read)
        asked = [known.has("survey", bytes([one]) * 32) for one in range(100)]
        assert await asyncio.gather(*asked) == [True] * 64 + [False] * 36

    asyncio.run(go())
    assert readings == ["survey"]


def test_a_list_that_cannot_be_read_is_tried_again():
    answers = [Unavailable("away"), [b"a" * 32]]

    def read(task):
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def go():
        known = KnownTokens(read)
        with pytest.raises(Unavailable):
            await known.has("survey", b"a" * 32)
        assert await known.has("survey", b"a" * 32)

    asyncio.run(go())


def test_operators_are_not_guessed_quickly(world):
    def guess():
        return world.web.get("/metrics", headers={"Authorization": f"Bearer {secrets.token_urlsafe(32)}"}).status_code

    codes = [guess() for _ in range(100)]
    assert set(codes) == {401, 429}
    assert codes.count(401) < 80
    assert world.web.get("/metrics", headers=world.as_operator()).status_code == 200


class Wire:
    """A connection that remembers whether it was cut."""

    def __init__(self):
        self.transport, self.cut = self, False

    def abort(self):
        self.cut = True


def test_the_one_that_waits_longest_makes_room():
    async def go():
        gate = Gate(most=3, seconds=60.0)
        wires = [Wire() for _ in range(5)]
        for wire in wires[:3]:
            gate.enter(wire)
        gate.received(wires[0])  # its request is being answered
        gate.enter(wires[3])
        gate.enter(wires[4])
        assert [wire.cut for wire in wires] == [False, True, True, False, False]
        gate.leave(wires[0])
        assert len(gate.open) == 2

    asyncio.run(go())


def test_a_connection_that_says_nothing_is_cut():
    async def go():
        gate = Gate(seconds=0.01)
        silent, busy = Wire(), Wire()
        gate.enter(silent)
        gate.enter(busy)
        gate.received(busy)
        await asyncio.sleep(0.2)
        assert silent.cut
        assert not busy.cut
        gate.expect(busy)
        await asyncio.sleep(0.2)
        assert busy.cut

    asyncio.run(go())


@pytest.fixture
def small_server(tmp_path, task_maker):
    """A real server that may open 96 files."""
    store, task = SqliteStore(tmp_path / "collect.db"), task_maker()
    admin.create_task(store, task)
    tokens = dict(admin.enroll(store, task.id))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "hushgraph", "collect", "serve", "--store", str(tmp_path / "collect.db")]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96)),
        )
    for _ in range(1200):
        if HttpTransport(timeout=5).get(f"http://127.0.0.1:{port}/healthz").status == 200:
            break
        time.sleep(0.05)
    yield port, task, tokens
    process.terminate()
    process.wait(timeout=60)
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert "collection service stopped" in events  # it ended in order


@pytest.mark.slow
def test_slow_connections_do_not_lock_out_an_honest_client(small_server):
    port, task, tokens = small_server
    slow = []
    for number in range(150):
        wire = socket.create_connection(("127.0.0.1", port), timeout=10)
        wire.sendall(
            b"POST /v1/tasks/survey/reports HTTP/1.1\r\nHost: x\r\n"
            + (b"" if number % 2 else b"Content-Length: 9\r\n\r\n")
        )
        slow.append(wire)
    pairs = [[i, i % 2] for i in range(task.features.sampled)]
    for node in range(5):
        body = {
            "report_id": secrets.token_hex(16),
            "node_token": tokens[node],
            "task_hash": task.sha256,
            "x": pairs,
            "y": 1,
        }
        url = f"http://127.0.0.1:{port}/v1/tasks/survey/reports"
        assert HttpTransport(timeout=20).post(url, json.dumps(body).encode()).status == 201
    for wire in slow:
        wire.close()


@pytest.mark.slow
def test_an_endless_head_is_cut(small_server):
    port, _, _ = small_server
    with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError, match=r".+"):
            wire.sendall((b"X-A: " + b"a" * 1000 + b"\r\n") * 30_000)
