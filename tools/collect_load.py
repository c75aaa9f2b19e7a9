"""A collection service under load, with faults: how many reports a second, how long they take, what is lost.

    python tools/collect_load.py sqlite [--seconds 60] [--kill 5]
    python tools/collect_load.py postgres [--seconds 60] [--restart 5] [--servers 2]
    python tools/collect_load.py sqlite --slow 1100 [--files 1024]

`--kill` ends the server without warning so often (seconds) and starts it again, `--restart` does that to the database.
Clients send each report until it is taken, the same bytes each time. At the end every acknowledged report must be
stored once, with the bytes that were sent. `silence s` is the longest time in which no report was taken; `recovery s`
is how much of it was left when what was killed had been started and answered again (a server at /healthz, a database to
pg_ctl). `cpu ms each` is the servers' own time for a report, their starts included:
on a machine that does other things too it says more than reports a second. `--slow` opens connections that never
finish a request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import postgres_server
from hushgraph.collect import FeatureQuestion, LabelQuestion, Task, admin
from hushgraph.collect.client import HttpTransport
from hushgraph.collect.report import encode_payload
from hushgraph.collect.store import open_store


class Server:
    """`hushgraph collect serve` as a process of its own."""

    def __init__(self, store: str, files: int | None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.command = [sys.executable, "-m", "hushgraph", "collect", "serve", "--store", store]
        self.command += ["--port", str(self.port)]
        self.files = files

    def start(self) -> None:
        """Start it and wait until it answers."""
        limit = self.files
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        )
        while HttpTransport(timeout=5).get(f"http://127.0.0.1:{self.port}/healthz").status != 200:
            if self.process.poll() is not None:
                raise RuntimeError("the server did not start")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it without warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Load:
    """Clients that send reports over kept connections, each until it is taken."""

    def __init__(self, ports: list[int], task: Task, bodies: list[bytes], seconds: float) -> None:
        self.ports, self.task, self.bodies = ports, task, bodies
        self.until = time.monotonic() + seconds
        self.next, self.codes = 0, Counter[int]()
        self.waits: list[float] = []
        self.done: list[float] = []
        self.sent: set[int] = set()

    async def run(self, clients: int) -> None:
        """Send until the time is over or all are sent."""
        await asyncio.gather(*(self._client(number) for number in range(clients)))

    async def _client(self, number: int) -> None:
        wire: Any = None
        while time.monotonic() < self.until and self.next < len(self.bodies):
            at = self.next
            self.next += 1
            begun, code = time.monotonic(), 0
            while code not in (200, 201) and time.monotonic() < self.until + 30:
                port = self.ports[(number + at) % len(self.ports)]
                try:
                    if wire is None or wire[2] != port:
                        if wire is not None:
                            wire[1].close()
                        wire = (*await asyncio.open_connection("127.0.0.1", port), port)
                    code = await asyncio.wait_for(self._post(wire, self.bodies[at]), 15)
                except (OSError, EOFError, asyncio.IncompleteReadError, TimeoutError, ValueError, IndexError):
                    code, wire = 0, None
                self.codes[code] += 1
                if code not in (200, 201):
                    await asyncio.sleep(0.05)
            if code in (200, 201):
                self.sent.add(at)
                self.waits.append(time.monotonic() - begun)
                self.done.append(time.monotonic())

    async def _post(self, wire: Any, body: bytes) -> int:
        reader, writer, _ = wire
        head = f"POST /v1/tasks/{self.task.id}/reports HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        return int(answer.split(b" ")[1])


def make(store_address: str, nodes: int) -> tuple[Task, list[bytes], dict[int, bytes]]:
    """A task with enrolled nodes, a report for each, and what must be stored of it."""
    store = open_store(store_address)
    task = Task("load", "Load", nodes, FeatureQuestion(50, 4.0), LabelQuestion(("a", "b", "c"), 1.0))
    admin.create_task(store, task)
    rng, bodies, payloads = np.random.default_rng(0), [], {}
    question: Any = task.features
    for node, token in admin.enroll(store, task.id):
        chosen = sorted(rng.choice(50, question.sampled, replace=False).tolist())
        x, y = [[index, int(rng.integers(2))] for index in chosen], int(rng.integers(3))
        values = {"report_id": secrets.token_hex(16), "node_token": token, "task_hash": task.sha256, "x": x, "y": y}
        bodies.append(json.dumps(values).encode())
        payloads[node] = encode_payload(x, y)
    store.shut_down()
    return task, bodies, payloads


def slow_connections(port: int, count: int) -> list[socket.socket]:
    """Connections that have said half of what they have to say."""
    wires = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            wire = socket.create_connection(("127.0.0.1", port), timeout=5)
            wire.sendall(b"POST /v1/tasks/load/reports HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            wires.append(wire)
    return wires


def faults(every: float, until: float, act: Any, times: list[float]) -> threading.Thread:
    """Do `act` every so many seconds, in a thread; `times` gets the moments at which each was over."""

    def work() -> None:
        while time.monotonic() + every < until:
            time.sleep(every)
            act()
            times.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def measured(given: argparse.Namespace, address: str, database: Any) -> dict[str, Any]:
    """One run."""
    task, bodies, payloads = make(address, given.reports)
    servers = [Server(address, given.files) for _ in range(given.servers)]
    for server in servers:
        server.start()
    wires = slow_connections(servers[0].port, given.slow)
    load = Load([server.port for server in servers], task, bodies, given.seconds)
    moments: list[float] = []

    def kill() -> None:
        servers[0].kill()
        servers[0].start()

    def restart() -> None:
        database.stop("immediate")
        database.start()

    threads = [faults(given.kill, load.until, kill, moments)] if given.kill else []
    threads += [faults(given.restart, load.until, restart, moments)] if given.restart else []
    begun = time.monotonic()
    asyncio.run(load.run(given.clients))
    took = max(load.done, default=begun) - begun
    for thread in threads:
        thread.join()
    store = open_store(address)
    stored = store.reports(task.id)
    kept = dict(stored)
    store.shut_down()
    for server in servers:
        server.kill()
    for wire in wires:
        wire.close()
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = np.sort(np.array(load.done))
    after = [float(done[np.searchsorted(done, at)] - at) for at in moments if at < done[-1]]
    return {
        "reports": len(load.sent),
        "per second": round(len(load.sent) / took),
        "p50 ms": round(1000 * float(np.quantile(load.waits, 0.5)), 1),
        "p99 ms": round(1000 * float(np.quantile(load.waits, 0.99)), 1),
        "cpu ms each": round(1000 * (spent.ru_utime + spent.ru_stime) / max(1, len(load.sent)), 3),
        "faults": len(moments),
        "silence s": round(float(np.diff(done).max(initial=0.0)), 2),
        "recovery s": round(max(after, default=0.0), 2),
        "lost": sum(kept.get(node) != payloads[node] for node in load.sent),
        "doubled": len(stored) - len(kept),
        "slow": len(wires),
        "codes": {str(code): count for code, count in sorted(load.codes.items())},
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description="A collection service under load, with faults.")
    parser.add_argument("store", choices=("sqlite", "postgres"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--reports", type=int, default=200_000, help="at most so many")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--kill", type=float, default=0.0, help="kill the server every so many seconds")
    parser.add_argument("--restart", type=float, default=0.0, help="restart the database every so many seconds")
    parser.add_argument("--slow", type=int, default=0, help="slow connections beside the load")
    parser.add_argument("--files", type=int, default=None, help="the server's limit on open files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.store == "sqlite":
            found = measured(given, str(Path(folder) / "collect.db"), None)
        else:
            database = postgres_server.PostgresServer(fsync=True)
            database.start()
            try:
                found = measured(given, database.address, database)
            finally:
                database.remove()
    shown = {name: value for name, value in vars(given).items() if value}
    print(json.dumps({"run": shown, **found}), flush=True)


if __name__ == "__main__":
    main()
