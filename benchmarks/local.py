"""Local mechanisms and the collection service, measured.

    python benchmarks/local.py [packing] [throughput] [restarts] [fuzz]

Without words, all four. Times are ratios measured side by side in one run where that makes sense:

- packing: encoding and packing multi-bit reports of 100,000 x 1,433 features, as multiples of copying that array;
- throughput: reports a second accepted by one server process over loopback, each on disk before its answer;
- restarts: 20 times kill -9 and restart under load; no report may be lost or doubled;
- fuzz: 10,000 malformed or hostile bodies against a real server; all must be answered 4xx and nothing stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from hushgraph.collect import FeatureQuestion, LabelQuestion, Task, admin
from hushgraph.collect.store import SqliteStore
from hushgraph.local import MultiBit, pack

CONNECTIONS = 32


class Server:
    """The service in its own process, on a free port of this machine."""

    def __init__(self, store: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.command = [sys.executable, "-m", "hushgraph", "collect", "serve", "--store", str(store)]
        self.command += ["--port", str(self.port)]

    def start(self) -> None:
        """Start, and wait until it listens."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)

    def processor_seconds(self) -> float:
        """Processor time of the server so far (Linux)."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it without warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def prepare(folder: str, nodes: int) -> tuple[SqliteStore, Task, dict[int, bytes], Path]:
    """A store with a task, and one honest body per node."""
    path = Path(folder) / "collect.db"
    store = SqliteStore(path)
    labels = LabelQuestion(("a", "b", "c", "d", "e", "f", "g"), 1.0)
    task = Task("bench", "Benchmark", nodes, FeatureQuestion(1433, 1.0), labels)
    admin.create_task(store, task)
    rng = random.Random(1)
    bodies = {}
    for node, token in admin.enroll(store, task.id):
        body = {"report_id": secrets.token_hex(16), "node_token": token, "task_hash": task.sha256}
        body |= {"x": [[rng.randrange(1433), rng.randrange(2)]], "y": rng.randrange(7)}
        bodies[node] = json.dumps(body).encode()
    return store, task, bodies, path


class Connection:
    """A kept-alive HTTP connection that only knows how to post and read a status code."""

    def __init__(self, port: int, path: str) -> None:
        self.port, self.path, self.reader, self.writer = port, path, None, None

    async def post(self, body: bytes) -> int:
        """The status, or 0 when the server went away."""
        try:
            if self.writer is None:
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
            head = f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            self.writer.write(head.encode() + body)
            answer = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)
            lines = answer.split(b"\r\n")
            length = next(int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length"))
            await asyncio.wait_for(self.reader.readexactly(length), 10)
            if b"connection: close" in answer.lower():
                self.close()
            return int(lines[0].split()[1])
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.close()
            return 0

    def close(self) -> None:
        """Forget the connection; the next post opens a new one."""
        if self.writer is not None:
            self.writer.close()
        self.writer = None


async def upload(port: int, task: Task, bodies: dict[int, bytes], codes: dict[int, list[int]]) -> None:
    """Send every body over a few connections; a lost connection is answered by the same bytes again."""
    waiting = list(bodies.items())

    async def work() -> None:
        connection = Connection(port, f"/v1/tasks/{task.id}/reports")
        while waiting:
            node, body = waiting.pop()
            while not (code := await connection.post(body)):
                await asyncio.sleep(0.02)
            codes.setdefault(node, []).append(code)
        connection.close()

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))


def packing() -> None:
    features = np.random.default_rng(0).random((100_000, 1433), dtype=np.float32)
    print("100,000 x 1,433 float32, encoded with OS entropy and packed, as multiples of copying that array (limit 20):")
    for epsilon, sampled in ((1.0, None), (3.0, None), (30.0, None), (1433.0, 1433)):
        mechanism = MultiBit(epsilon, 1433, sampled=sampled)
        copying = min(_seconds(features.copy) for _ in range(5))
        encoding = min(_seconds(lambda m=mechanism: m.perturb(features)) for _ in range(3))
        report = mechanism.perturb(features)
        packed = min(_seconds(lambda r=report: pack(r)) for _ in range(3))
        size = pack(report).data.shape[1]
        print(
            f"  m = {mechanism.bits:4d}: {(encoding + packed) / copying:5.2f}x (encode {encoding / copying:5.2f}x, "
            f"pack {packed / copying:4.2f}x; the copy took {copying:.3f} s), {size} bytes a person"
        )


def throughput(nodes: int = 10_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, task, bodies, path = prepare(folder, nodes)
        server = Server(path)
        server.start()
        codes: dict[int, list[int]] = {}
        seconds = _seconds(lambda: asyncio.run(upload(server.port, task, bodies, codes)))
        used = server.processor_seconds()
        server.kill()
        stored = store.counts(task.id)[1]
        answers = dict(Counter(code for seen in codes.values() for code in seen))
    print(
        f"throughput: {nodes / seconds:,.0f} reports/s ({nodes:,} in {seconds:.1f} s; server used {used:.1f} s of "
        f"processor), answers {answers}, stored {stored:,}"
    )


def restarts(times: int = 20, nodes: int = 20_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, task, bodies, path = prepare(folder, nodes)
        server = Server(path)
        server.start()
        codes: dict[int, list[int]] = {}
        killed = asyncio.run(_kill_under_load(server, task, bodies, codes, times))
        again: dict[int, list[int]] = {}
        asyncio.run(upload(server.port, task, bodies, again))
        server.kill()
        stored = {node: json.loads(payload) for node, payload in store.reports(task.id)}
    sent = {node: json.loads(body) for node, body in bodies.items()}
    lost = sum(node not in stored for node in bodies)
    changed = sum(stored[node] != {"x": sent[node]["x"], "y": sent[node]["y"]} for node in stored)
    doubled = sum(seen.count(201) > 1 for seen in codes.values()) + sum(seen != [200] for seen in again.values())
    acknowledged = Counter(code for seen in codes.values() for code in seen)
    print(
        f"restarts: {killed} x kill -9 under load, {nodes:,} reports: lost {lost}, doubled {doubled}, "
        f"changed {changed}; "
        f"new {acknowledged[201]:,}, found already there after a retry {acknowledged[200]:,}"
    )


async def _kill_under_load(
    server: Server, task: Task, bodies: dict[int, bytes], codes: dict[int, list[int]], times: int
) -> int:
    """Feed the bodies in portions, and kill the server in the middle of each portion."""
    nodes = list(bodies)
    portions = [{node: bodies[node] for node in nodes[start::times]} for start in range(times)]
    rng = random.Random(3)
    for portion in portions:
        load = asyncio.ensure_future(upload(server.port, task, portion, codes))
        while not any(node in codes for node in portion):
            await asyncio.sleep(0.001)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        assert not load.done(), "the portion was over before the kill; raise the number of nodes"
        server.kill()
        await asyncio.to_thread(server.start)
        await load
    return len(portions)


def fuzz(requests: int = 10_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, task, bodies, path = prepare(folder, 100)
        server = Server(path)
        server.start()
        rng = random.Random(4)
        hostile = {number: _hostile(json.loads(bodies[number % 100]), rng) for number in range(requests)}
        codes: dict[int, list[int]] = {}
        asyncio.run(upload(server.port, task, hostile, codes))
        server.kill()
        stored = store.counts(task.id)[1]
    answers = Counter(code for seen in codes.values() for code in seen)
    refused = sum(count for code, count in answers.items() if 400 <= code < 500)
    print(f"fuzz: {requests:,} hostile bodies, {refused:,} answered 4xx {dict(answers)}, stored {stored}")


def _hostile(body: dict, rng: random.Random) -> bytes:
    """A body that no honest client sends."""
    strange = [None, True, -1, 2**70, 1.5, "", "x" * 50, [], {}, [[0, 2]], [[0, 0]] * 9, {"a": [1]}, 1e300, "\ud800"]
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randint(0, 400))
    if kind == 1:
        return b"[" * rng.randint(1, 60_000)
    if kind == 2:
        return b" " * rng.randint(65_537, 80_000)
    if kind == 3:
        return json.dumps({**body, "node_token": secrets.token_urlsafe(32)}).encode()
    if kind == 4:
        body[rng.choice(["report_id", "task_hash", "node_token", "x", "y"])] = rng.choice(strange)
        return json.dumps(body).encode()
    return json.dumps(body).encode()[: rng.randint(0, 200)]


def _seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parts = {"packing": packing, "throughput": throughput, "restarts": restarts, "fuzz": fuzz}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(parts)} (default: all)")
    chosen = parser.parse_args().parts or list(parts)
    if unknown := [name for name in chosen if name not in parts]:
        parser.error(f"expected parts out of {', '.join(parts)}; got {', '.join(unknown)}")
    for name in chosen:
        parts[name]()


if __name__ == "__main__":
    main()
