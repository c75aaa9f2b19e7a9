"""Ray: the same bytes whoever adds up, also after a worker was killed; clusters that are not safe are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import hushgraph as hg
from dying import OneDies, ends_its_process, plus, refuses
from hushgraph.datasets.stored import GraphFacts, write_stored
from hushgraph.errors import HushgraphError, InputError
from hushgraph.executors.base import Executor, as_executor
from hushgraph.executors.ray import Ray, _file_system
from hushgraph.graph import spread
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.model import Model
from small_graphs import random_graph
from test_matrix_disk import everything

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="could not import ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Ray]:
    """One cluster for all tests: starting it takes longer than they do."""
    made = Ray(2, store=100 << 20)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = random_graph(3, num_nodes=200)
    facts = GraphFacts("small", 200, False, ["x"] * data.x.shape[1], "<i8", ["a", "b", "c"], True, has_split=True)
    return write_stored(data, tmp_path / "small.graph", facts, data.edge_index)


def fitted(folder: Path | str, unit: str, workers: Executor | None) -> Model:
    return hg.Chorus().fit(str(folder), unit, (4.0, 1e-5), ledger=Ledger(), seed=5, workers=workers)


def same(first: Model, second: Model) -> bool:
    one, other = everything(first), everything(second)
    return one.keys() == other.keys() and all(one[key].numpy().tobytes() == other[key].numpy().tobytes() for key in one)


@pytest.mark.parametrize("unit", ["undirected-edge", "node"])
def test_the_same_bytes_also_when_a_worker_is_killed(
    cluster: Ray, folder: Path, unit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spread, "_LEAST_ENTRIES", 50)
    monkeypatch.setattr(spread, "_MOST_ENTRIES", 50)
    here, there = fitted(folder, unit, None), fitted(folder, unit, cluster)
    assert same(here, there)
    killed = fitted(folder, unit, OneDies(cluster, tmp_path / "killed"))
    assert (tmp_path / "killed").exists()
    assert same(here, killed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "small.graph"]


def test_a_task_that_kills_every_worker_is_an_error_and_errors_come_back(cluster: Ray) -> None:
    with pytest.raises(HushgraphError, match="lost 4 times"):
        list(cluster.map(ends_its_process, [1]))
    with pytest.raises(InputError, match="expected another"):
        list(cluster.map(refuses, [1]))
    assert list(cluster.map(plus, range(9), 10)) == list(range(10, 19))


def test_it_listens_here_alone_and_keeps_objects_in_memory(cluster: Ray) -> None:
    list(cluster.map(plus, [1], 1))
    import ray  # not before: it asks once whether clusters need a token

    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
    assert not ray._private.state.state.get_system_config()["automatic_object_spilling_enabled"]
    assert os.environ["RAY_AUTH_MODE"] == "token"
    room = Path(str(cluster._room))
    assert room.stat().st_mode & 0o077 == 0
    # More than the store holds: what does not fit is in memory too, and no file of it is among Ray's.
    big = [ray.put(np.ones(40 << 20, dtype=np.uint8)) for _ in range(4)]
    assert not [path for path in room.rglob("*") if path.is_file() and path.stat().st_size > 10 << 20]
    del big


UNSAFE = """
import ray
from hushgraph.executors import ray as ours
from hushgraph.errors import HushgraphError
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
for check in (lambda: ours._require_token(ray.get_runtime_context().gcs_address), lambda: ours._require_memory(ray),
              lambda: list(ours.Ray(1).map(str, [1]))):
    try:
        check()
        print("accepted")
    except HushgraphError as error:
        print(error)
"""


def test_a_cluster_that_lets_anybody_in_or_writes_to_a_disk_is_refused() -> None:
    quiet = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run([sys.executable, "-c", UNSAFE], env={**plain, **quiet}, capture_output=True, text=True)
    token, memory, joined = [line for line in done.stdout.splitlines() if line.startswith(("ray:", "accepted"))]
    assert token.startswith("ray: expected a cluster that asks for a token")
    assert "spilled to a disk" in memory
    assert "objects that do not fit go to" in memory
    assert joined.startswith(("ray: expected a cluster on this machine", "ray: expected a cluster that asks"))


def test_the_network_and_the_memory_are_looked_at() -> None:
    with pytest.raises(InputError, match=r"10\.0\.0\.1:6379 without"):
        list(Ray(address="10.0.0.1:6379").map(plus, [1], 1))
    assert _file_system("/proc") == "proc"
    with pytest.raises(InputError, match="at least 1"):
        Ray(0)
    made = as_executor("ray:3@host:1")
    assert isinstance(made, Ray)
    assert (made.workers, made.address, made.is_here, made.private_network) == (3, "host:1", False, False)
    assert as_executor("ray@host:1", private_network=True) == Ray(address="host:1", private_network=True)


def test_teachers_and_cells_on_ray(cluster: Ray, tmp_path: Path) -> None:
    data = random_graph(1, num_nodes=120)
    data.public_mask = torch.arange(120) >= 90
    for name in ("train", "val", "test"):
        data[f"{name}_mask"] &= ~data.public_mask
    pate = hg.PATE(teachers=6, learner="ridge", queries=20, student="kernel")
    found = [
        pate.fit(data, "record", (4.0, 1e-4), ledger=Ledger(), seed=1, workers=workers) for workers in (None, cluster)
    ]
    assert same(*found)
    values = {"privacy": "research", "experiment": "dying:counted", "seeds": 2, "settings": {"size": [1, 2]}}
    stores = [hg.study(values, store=tmp_path / f"{n}.sqlite", workers=w) for n, w in enumerate((0, cluster))]
    assert stores[1].counts == {"done": 4}
    assert [row.metrics for row in stores[0].rows] == [row.metrics for row in stores[1].rows]
