"""A real server process, killed without warning and started again while reports come in."""

from __future__ import annotations

import json
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from hushgraph.collect import admin
from hushgraph.collect.client import HttpTransport
from hushgraph.collect.store import SqliteStore

NODES = 400


class ServerProcess:
    """`hushgraph collect serve` on a free port; `kill` is SIGKILL."""

    def __init__(self, store, errors):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.command = [
            sys.executable,
            "-m",
            "hushgraph",
            "collect",
            "serve",
            "--store",
            str(store),
            "--port",
            str(self.port),
        ]
        self.errors = errors

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.errors, stderr=self.errors)
        transport = HttpTransport(timeout=5)
        for _ in range(2400):
            if transport.get(f"{self.address}/healthz").status == 200:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError("the server did not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def send_until_taken(address, task, body, log, stop_after=5000):
    transport = HttpTransport(timeout=5)
    for _ in range(stop_after):
        status = transport.post(f"{address}/v1/tasks/{task.id}/reports", body).status
        if status:
            log.append(status)
            return
        time.sleep(0.02)


@pytest.mark.slow
def test_kill_and_restart_loses_and_doubles_nothing(tmp_path, task_maker):
    store_path = tmp_path / "collect.db"
    store, task = SqliteStore(store_path), task_maker(nodes=NODES)
    admin.create_task(store, task)
    tokens = dict(admin.enroll(store, task.id))
    rng = random.Random(5)
    bodies = {}
    for node, token in tokens.items():
        answer = {"x": [[0, rng.randrange(2)], [rng.randrange(1, 8), 1]], "y": rng.randrange(3)}
        rest = {"report_id": secrets.token_hex(16), "node_token": token, "task_hash": task.sha256}
        bodies[node] = json.dumps({**answer, **rest}).encode()
    log_path = tmp_path / "server.log"
    with open(log_path, "wb") as errors:
        server = ServerProcess(store_path, errors)
        server.start()
        logs = {node: [] for node in bodies}

        def work(part):
            for node in part:
                send_until_taken(server.address, task, bodies[node], logs[node])

        threads = [threading.Thread(target=work, args=(range(i, NODES, 4),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            time.sleep(rng.uniform(0.05, 0.3))
            server.kill()
            server.start()
        for thread in threads:
            thread.join()
        # Every report once more: each must be known, byte for byte.
        transport = HttpTransport(timeout=5)
        url = f"{server.address}/v1/tasks/{task.id}/reports"
        again = [transport.post(url, bodies[node]).status for node in range(0, NODES, 8)]
        server.kill()
    assert all(log in ([200], [201]) for log in logs.values())
    assert set(again) == {200}
    stored = store.reports(task.id)
    assert [node for node, _ in stored] == list(range(NODES))
    for node, payload in stored:
        sent = json.loads(bodies[node])
        assert json.loads(payload) == {"x": sent["x"], "y": sent["y"]}
    written = log_path.read_text()
    assert "127.0.0.1" not in written.replace(f"operator's page: {server.address}/", "")
    assert not any(token in written for token in tokens.values())
