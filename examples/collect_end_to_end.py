"""From 2,000 devices to a trained network, with the server killed in between.

    python examples/collect_end_to_end.py [--devices 2000] [--folder demo-output/collect]

What happens:

1. The operator creates a task (69 features and a class year of a made-up campus) and enrols every student.
2. The service runs in its own process. The devices run in other processes; each has its own folder, its own budget
   and its own token, draws its answer once and sends it.
3. In the middle the server is killed without warning and started again. The devices just send the same bytes again.
4. The operator closes the task and exports. Every answer is there, once.
5. The noisy answers are joined with the friendships, which the operator knows, into a graph file.
6. LPGNN is trained on what arrived.

No private value leaves a device process other than through its mechanism.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from hushgraph.collect import (
    Client,
    Export,
    FeatureQuestion,
    LabelQuestion,
    Task,
    admin,
    estimate,
    read_export,
    write_graph,
)
from hushgraph.collect.client import HttpTransport
from hushgraph.collect.store import SqliteStore
from hushgraph.collect.training import train_from_export

PROCESSES = 4
LIFETIME_EPSILON = 4.0
DEFAULT = Path("demo-output/collect")


class Service:
    """`hushgraph collect serve` in a process of its own."""

    def __init__(self, store: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.command = [sys.executable, "-m", "hushgraph", "collect", "serve", "--store", str(store)]
        self.command += ["--port", str(self.port)]

    def start(self) -> None:
        """Start, and wait until it answers."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        while HttpTransport(timeout=5).get(f"{self.address}/healthz").status != 200:
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def run_devices(job: tuple[str, str, str, list[tuple[int, str, np.ndarray, int | None]], str]) -> Counter[str]:
    """Some devices, one after the other, in this process. Each only knows its own values."""
    address, task_id, agreed, devices, folder = job
    told: Counter[str] = Counter()
    for node, token, features, label in devices:
        client = Client(Path(folder) / f"device-{node}", LIFETIME_EPSILON, HttpTransport(timeout=10))
        task = _fetch_patiently(client, address, task_id)
        client.answer(task, agreed, token, features, label)
        sent = client.send(address, task, tries=40)
        told["new" if sent.status == 201 else "already there"] += 1
        told["sent again"] += sent.tries - 1
    return told


def _fetch_patiently(client: Client, address: str, task_id: str) -> Task:
    """The server may be down just now."""
    for _ in range(600):
        try:
            return client.fetch(address, task_id)
        except Exception:
            time.sleep(0.1)
    return client.fetch(address, task_id)


def collect(graph, folder: Path, devices: int) -> tuple[Task, Path]:
    """Steps 1 to 4: create, enroll, collect with a crash in the middle, close, export."""
    task = Task(
        id="campus",
        title="Life on campus",
        nodes=devices,
        features=FeatureQuestion(dimensions=graph.x.shape[1], epsilon=1.0, low=0.0, high=1.0),
        labels=LabelQuestion(tuple(graph.class_names), epsilon=1.0, optional=True),
        purpose="Learn how interests follow friendships, without learning anybody's answer.",
        contact="privacy@example.org",
    )
    store = SqliteStore(folder / "collect.db")
    admin.create_task(store, task)
    operator = admin.make_operator_token(store)
    assert operator is not None
    tokens = dict(admin.enroll(store, task.id))
    service = Service(folder / "collect.db")
    service.start()
    print(f"operator's page: {service.address}/tasks/{task.id}")
    print(Client(folder / "devices" / "device-0", LIFETIME_EPSILON).explain(task), "\n")

    start = time.perf_counter()
    told = _devices_with_a_crash(service, store, task, graph, tokens, folder)
    seconds = time.perf_counter() - start
    print(f"{devices:,} devices in {seconds:.1f} s: {dict(told)}")

    transport = HttpTransport()
    transport.post(f"{service.address}/v1/tasks/{task.id}/close", b"", operator)
    exported = transport.get_with_token(f"{service.address}/v1/tasks/{task.id}/export", operator)
    service.kill()
    path = folder / "campus-export.npz"
    path.write_bytes(exported.body)
    return task, path


def _devices_with_a_crash(
    service: Service, store: SqliteStore, task: Task, graph, tokens: dict[int, str], folder: Path
) -> Counter[str]:
    """Run all devices; kill the server when a third of the reports is in, and start it again a second later."""
    features, labels, private = graph.x.to_dense().numpy(), graph.y.numpy(), (graph.train_mask | graph.val_mask).numpy()
    everybody = [
        (node, token, features[node], int(labels[node]) if private[node] else None) for node, token in tokens.items()
    ]
    jobs = [
        (service.address, task.id, task.sha256, everybody[part::PROCESSES], str(folder / "devices"))
        for part in range(PROCESSES)
    ]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        running = pool.map_async(run_devices, jobs)
        while store.counts(task.id)[1] < task.nodes // 3:
            time.sleep(0.02)
        service.kill()
        print(f"server killed at {store.counts(task.id)[1]:,} reports", end="; ", flush=True)
        time.sleep(1.0)
        service.start()
        print("started again", flush=True)
        return sum(running.get(), Counter())


def check(export: Export, graph) -> None:
    """Every device is there once, and the estimates are right on average."""
    found = estimate(export)
    assert found.x is not None
    assert found.y_one_hot is not None
    assert found.reported.all(), "a report was lost"
    truth = graph.x.to_dense().numpy()
    error = np.abs(found.x.mean(axis=0) - truth.mean(axis=0)).mean()
    spread = np.sqrt(export.task.features.build().variance(truth).mean() / len(truth))
    print(f"reports: {len(export.node):,}, none lost; mean features off by {error:.3f}, expected {0.8 * spread:.3f}")
    sent = (graph.train_mask | graph.val_mask).numpy()
    shares = np.bincount(graph.y.numpy()[sent], minlength=len(graph.class_names)) / sent.sum()
    guessed = found.y_one_hot[sent].mean(axis=0)
    for name, share, guess in zip(graph.class_names, shares, guessed):
        print(f"  class {name}: true share {share:.3f}, estimated from noisy labels {guess:.3f}")


def train(export: Path, graph) -> None:
    """Step 6, training: LPGNN starts from the reports and costs nobody anything more."""
    model = train_from_export(export, graph.edge_index)
    hits = (model.predict() == graph.y).float()
    quiet = ~(graph.train_mask | graph.val_mask)
    print(model.explain())
    print(f"accuracy on the people who sent no label: {100 * float(hits[quiet].mean()):.1f}% (not private: evaluation)")


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--devices", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=DEFAULT)
    options = parser.parse_args()
    from hushgraph.datasets.built_in import campus

    if options.folder == DEFAULT:
        shutil.rmtree(DEFAULT, ignore_errors=True)
    elif options.folder.exists() and any(options.folder.iterdir()):
        sys.exit(f"expected a new or empty folder; {options.folder} is not")
    options.folder.mkdir(parents=True, exist_ok=True)
    graph = campus(options.devices, seed=1)
    _, exported = collect(graph, options.folder, options.devices)
    export = read_export(exported)
    check(export, graph)
    write_graph(export, graph.edge_index.numpy(), options.folder / "campus-noisy.npz")
    train(exported, graph)


if __name__ == "__main__":
    main()
