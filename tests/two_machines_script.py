"""What the first of two machines does once both are in a Ray cluster; the second does not see `hidden.graph`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hushgraph as hg
from dying import OneDies
from hushgraph.errors import InputError
from hushgraph.executors.base import Executor
from hushgraph.graph import spread
from hushgraph.ledger.ledger import Ledger
from test_matrix_disk import everything

UNITS = ("undirected-edge", "node")


@dataclass
class Noted:
    """An executor of which each task leaves a file named after the network that it ran on."""

    inner: Executor
    folder: Path
    is_here: bool = False

    @property
    def count(self) -> int:
        return self.inner.count

    def map(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        return self.inner.map(partial(noted, function, self.folder), tasks, *shared)

    def each(self, function: Callable[[Any], Any], pull: Callable[[], Any]) -> Iterator[tuple[Any, Any]]:
        return self.inner.each(function, pull)

    def close(self) -> None:
        self.inner.close()


def noted(function: Callable[..., Any], folder: Path, task: Any, *shared: Any) -> Any:
    (folder / os.readlink("/proc/self/ns/net")).touch()
    until = time.monotonic() + 30
    while len(list(folder.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.02)  # a machine that is busy leaves what is next to the other one
    return function(task, *shared)


def fitted(folder: Path, unit: str, workers: Executor | None) -> dict[str, bytes]:
    model = hg.Chorus().fit(str(folder), unit, (4.0, 1e-5), ledger=Ledger(), seed=5, workers=workers)
    return {name: tensor.numpy().tobytes() for name, tensor in everything(model).items()}


def refused(folder: Path, workers: Executor) -> dict[str, Any]:
    """What a graph that only this machine sees is refused with, and whether a ledger was begun."""
    ledger = folder.with_name("ledger")
    try:
        hg.Chorus().fit(str(folder), "undirected-edge", (4.0, 1e-5), ledger=str(ledger), workers=workers)
    except InputError as error:
        return {"said": str(error), "charged": (ledger / "ledger.db").exists()}
    return {"said": "", "charged": True}


def main(address: str, folder: Path) -> None:
    spread._LEAST_ENTRIES = spread._MOST_ENTRIES = 50
    cluster, graph = hg.Ray(address=address), folder / "small.graph"
    until = time.monotonic() + 40
    while cluster.count < 2 and time.monotonic() < until:
        time.sleep(0.2)
    found: dict[str, Any] = {"count": cluster.count, "networks": {}, "same": {}}
    for unit in UNITS:
        networks = folder / unit
        networks.mkdir()
        here = fitted(graph, unit, None)
        found["same"][unit] = fitted(graph, unit, Noted(cluster, networks)) == here
        found["networks"][unit] = len(list(networks.iterdir()))
    found["one dies"] = fitted(graph, unit, OneDies(cluster, folder / "killed")) == here
    found["refused"] = refused(folder / "hidden.graph", cluster)
    cluster.close()
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
