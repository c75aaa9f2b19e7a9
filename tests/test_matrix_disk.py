"""Every method under every unit, from edges on disk: the same bytes of all that is released as from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph import registry
from hushgraph.graph import external_sort, sums
from hushgraph.graph.disk import DiskEdges
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.folder import flat_tensors
from hushgraph.methods.model import Model
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.units import Unit
from hushgraph.testing import units
from test_matrix_methods import graph_for, ids, planned, quick

CENTRAL = [name for name in registry.names("methods") if registry.load("methods", name).trust == "central"]
CASES = [(name, unit) for name in CENTRAL for unit in units()]
ENTRIES = 200  # bytes at a time: several parts even of a small graph


def on_disk(data: Data, folder: Path) -> Data:
    """The same graph with its edges in a folder."""
    stored = data.clone()
    stored.edges = DiskEdges.write(folder, data.edge_index, int(data.num_nodes or 0), memory_limit=ENTRIES)
    stored.edge_index = None
    return stored


def everything(model: Model) -> dict[str, Tensor]:
    """All tensors that a run ended with."""
    kept = {**model.kept, **({} if model.scores is None else {"scores": model.scores})}
    return flat_tensors(model.plan, model.network, model.released, kept, model.nodes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "unit"), CASES, ids=ids)
def test_the_same_bytes_from_disk_and_from_memory(
    name: str, unit: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_sort, "_SMALLEST_RUN", 1)
    if planned(name, unit, Budget(4.0)) is None:
        pytest.skip("not proved")
    data = graph_for(unit)
    found = [
        everything(quick(name).fit(graph, unit, Budget(4.0), ledger=Ledger(), seed=5))
        for graph in (data, on_disk(data, tmp_path / "edges"))
    ]
    assert found[0].keys() == found[1].keys()
    for key, value in found[0].items():
        assert value.numpy().tobytes() == found[1][key].numpy().tobytes(), key
    assert [path.name for path in tmp_path.iterdir()] == ["edges"]  # nothing temporary is left


COMPILED: list[tuple[str, dict[str, Any]]] = [("chorus", {}), ("gap", {}), ("chorus-codes", {}), ("quorum", {})]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "settings"), COMPILED, ids=lambda value: value if isinstance(value, str) else "")
def test_the_same_bytes_from_compiled_loops_and_any_number_of_threads(
    name: str, settings: dict[str, Any], threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    data, unit = graph_for(units()[0]), registry.load("units", "node")(3)
    expected = everything(quick(name).fit(data, unit, Budget(4.0), ledger=Ledger(), seed=5))
    monkeypatch.setattr(sums, "LEAST_COMPILED", 0)
    monkeypatch.setattr(sums, "_LEAST_PER_THREAD", 4)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        graph = on_disk(data, tmp_path / "edges")
        found = everything(quick(name).fit(graph, unit, Budget(4.0), ledger=Ledger(), seed=5))
    finally:
        torch.set_num_threads(before)
    for key, value in expected.items():
        assert value.numpy().tobytes() == found[key].numpy().tobytes(), key
