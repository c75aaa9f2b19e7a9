"""Nothing that is written down about a run may follow from private data, except what was released and charged.

Every method is run, with the same seed, on a graph and on its neighbors under every unit it has a proof for. What the
two model folders and ledgers say must be the same byte for byte, apart from the released values themselves and what is
computed from them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.data import Data

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.base import Method
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.evaluation import EVALUATION
from hushgraph.methods.gap import GAP
from hushgraph.methods.model import Model
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.testing import NodeRecord, Variations
from small_graphs import random_graph, with_public_nodes

BUDGET = Budget(4.0, 1e-3)
QUICK: dict[str, dict[str, Any]] = {
    "chorus": {"hops": 1, "epochs": 1, "batch_size": 8, "train_fraction": 0.5},
    "chorus-codes": {"rounds": 2, "epochs": 1, "batch_size": 8},
    "gap": {"epochs": 1, "batch_size": 8},
    "progap": {"hops": 1, "epochs": 1, "batch_size": 8},
    "dp-gnn": {"epochs": 1, "batch_size": 8, "hidden_channels": 4},
    "dp-appr": {"epochs": 1, "batch_size": 8, "hidden_channels": 4},
    "mlp": {"epochs": 1},
    "dp-mlp": {"epochs": 1, "batch_size": 8},
    "quorum": {"epochs": 1, "batch_size": 8},
    "pate": {"learner": "ridge", "teachers": 3, "queries": 4},
    "class-dp": {"steps": 3, "sample_rate": 1.0},
    "noisy-moments": {"frequencies": 8},
    "lpgnn": {"low": -1.0, "high": 1.0, "epochs": 1, "label_steps": 2},
    "feature-rr": {"low": -1.0, "high": 1.0, "epochs": 1, "hidden_channels": 4},
    "pgc": {"low": -1.0, "high": 1.0, "epochs": 1},
    "pgc-links": {"low": -1.0, "high": 1.0},
}
UNITS: list[units.Unit] = [
    units.UndirectedEdge(),
    units.PrivateEdge(),
    units.DirectedEdge(),
    units.Node(max_degree=5),
    units.NodeReplace(max_degree=5),
    units.BoundedDegreeNode(max_degree=60),
    units.NodeWithEdges(),
    units.Record(),
    units.Class(),
    units.Class(removal=True),
    units.Subclass(parts=2),
    units.Subclass(parts=2, removal=True),
    units.Local(),
    units.Local(private_labels=False),
]
FOLLOWS_FROM_RELEASES = {"settings", "reason"}
OF_ONE_RUN = {
    "manifest",
    "weights_hash",
    "model_path",
    "time",
    "hash",
    "previous",
    "prev",
    "ledger_hash",
    "public_key",
    "secret_check",
}
TRAIN_NODE = 4


def quick(name: str) -> Method:
    found: Method = registry.load("methods", name)(**QUICK.get(name, {}))
    return found


def graph_for(unit: units.Unit) -> CheckedGraph:
    graph = random_graph(0, num_edges=150, symmetric=not isinstance(unit, units.DirectedEdge))
    return check_graph(with_public_nodes(graph))


def proven() -> list[tuple[str, units.Unit]]:
    return [
        (name, unit)
        for unit in UNITS
        for name in registry.names("methods")
        if quick(name).proves(graph_for(unit).metadata, unit)
    ]


def neighbor(graph: CheckedGraph, unit: units.Unit) -> CheckedGraph:
    """The graph without its first edge, or with other records of a class or node, as far as the unit hides them."""
    variations, rng = Variations(graph), np.random.default_rng(1)
    if unit.footprint.records == 0:
        return next(iter(unit.neighbors(variations, rng)))
    if unit.footprint.groups == 1:
        return list(unit.neighbors(variations, rng))[-1]
    kept = {"keep_list": "edges" in unit.public, "keep_label": "labels" in unit.public}
    return variations.with_record(TRAIN_NODE, variations.random_record(TRAIN_NODE, rng, **kept))


FILES = ["certificate.json", "config.json", "ledger_head.json", "manifest.json", "metrics.json", "model.safetensors"]


def without(value: Any, keys: set[str]) -> Any:
    """The value without these keys, at any depth."""
    if isinstance(value, dict):
        return {key: without(item, keys) for key, item in value.items() if key not in keys}
    return [without(item, keys) for item in value] if isinstance(value, list) else value


def entries(ledger: Ledger) -> list[Any]:
    return [[entry.kind, entry.values] for entry in ledger.history().entries]


def written(model: Model, ledger: Ledger, folder: Path) -> str:
    """All that is written down about a run, without its identity, times, hashes, and what releases say."""
    model.save(folder)
    files = [json.loads((folder / name).read_text()) for name in ("config.json", "certificate.json")]
    text = json.dumps(without([*files, entries(ledger)], FOLLOWS_FROM_RELEASES | OF_ONE_RUN), sort_keys=True)
    return text.replace(model.certificate.run, "RUN")


def empty_record(graph: CheckedGraph, unit: units.Unit) -> CheckedGraph:
    """The graph with an empty record of a training node: the unit's own neighbor, where records are not replaced."""
    return list(unit.neighbors(Variations(graph), np.random.default_rng(1)))[TRAIN_NODE]


def compared() -> list[Any]:
    """Methods, units, and neighbors to compare with."""
    found = [pytest.param(name, unit, neighbor, id=f"{name}-{unit}") for name, unit in proven()]
    for name, unit in proven():
        if unit.relation is units.Relation.NULL and unit.footprint.records == 1:
            found.append(pytest.param(name, unit, empty_record, id=f"{name}-{unit}-empty"))
    return found


@pytest.mark.parametrize(("name", "unit", "change"), compared())
def test_a_neighbor_changes_no_byte_but_released_values(
    name: str, unit: units.Unit, change: Callable[[CheckedGraph, units.Unit], CheckedGraph], tmp_path: Path
) -> None:
    graph = graph_for(unit)
    other, found = change(graph, unit), []
    assert other.metadata == graph.metadata
    assert change is neighbor or int(other.labels[TRAIN_NODE]) == -1
    for number, data in enumerate((graph, other)):
        ledger = Ledger.in_memory(warn=False)
        model = quick(name).fit(data, unit, BUDGET, seed=0, ledger=ledger)
        found.append(written(model, ledger, tmp_path / str(number)))
        files = sorted(path.name for path in (tmp_path / str(number)).iterdir())
        assert files == FILES
        if name != "pgc-links":  # which is judged on links, public under its unit
            assert json.loads((tmp_path / str(number) / "metrics.json").read_text())["note"] == EVALUATION
    assert found[0] == found[1]
    tensors = [load_file(tmp_path / number / "model.safetensors") for number in ("0", "1")]
    same = all(torch.equal(value, tensors[1][key]) for key, value in tensors[0].items())
    assert same == (model.certificate.epsilon == 0.0)  # the change was seen by what was released, and by that alone


def test_every_method_that_promises_something_is_compared() -> None:
    covered = {name for name, _ in proven()}
    assert covered == set(registry.names("methods")) - {"sage", "gcn", "gin", "gat"}
    assert {unit.name for _, unit in proven()} == set(registry.names("units"))


def test_the_comparison_sees_a_leak(tmp_path: Path) -> None:
    """A setting that was taken from the number of edges is caught."""
    unit = units.UndirectedEdge()
    graph, found = graph_for(unit), []
    for number, data in enumerate((graph, neighbor(graph, unit))):
        ledger, leaky = Ledger.in_memory(warn=False), GAP(hidden_channels=data.edges.num_edges, epochs=1)
        found.append(written(leaky.fit(data, unit, BUDGET, seed=0, ledger=ledger), ledger, tmp_path / str(number)))
    assert found[0] != found[1]


# Refusals


def with_records(unit: units.Unit, *, unlabeled: int = 0, size: float | None = None) -> Data:
    """A graph as people hand it in, with train, val and test nodes without a label, or one train node's huge row."""
    graph = with_public_nodes(random_graph(0, num_edges=150, symmetric=not isinstance(unit, units.DirectedEdge)))
    for mask in (graph.train_mask, graph.val_mask, graph.test_mask):
        graph.y[mask.nonzero().squeeze(1)[:unlabeled]] = -1
    if size is not None:
        graph.x[TRAIN_NODE] = size * torch.tensor([1.0, -1.0, 1.0, -1.0, 0.0])
    return graph


CHOOSES_BY_PUBLIC_LABELS = [(name, unit) for name, unit in proven() if name == "auto" and "labels" in unit.public]


@pytest.mark.parametrize(("name", "unit"), [one for one in proven() if one not in CHOOSES_BY_PUBLIC_LABELS], ids=str)
def test_a_node_without_a_label_decides_nothing(name: str, unit: units.Unit, tmp_path: Path) -> None:
    """Neighbors differ in who has a label: none of them is refused, and nothing says how many there are."""
    found = []
    for unlabeled in (0, 1, 3):
        ledger, data = Ledger.in_memory(warn=False), with_records(unit, unlabeled=unlabeled)
        model = quick(name).fit(data, unit, BUDGET, seed=0, ledger=ledger)
        found.append(written(model, ledger, tmp_path / str(unlabeled)))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", ["sage", "gcn", "gin", "gat", *sorted({name for name, _ in proven()})])
def test_a_run_without_protection_leaves_out_nodes_without_a_label(name: str) -> None:
    local = registry.load("methods", name).trust == "local"
    unit = units.Local(private_labels=name == "lpgnn") if local else units.Node(max_degree=5)
    method = quick(name) if name in QUICK or name == "auto" else registry.load("methods", name)(epochs=1)
    model = method.fit(with_records(unit, unlabeled=3), unit, Budget(math.inf, 1e-3), seed=0)
    assert math.isinf(model.certificate.epsilon) or name == "pgc-links"


@pytest.mark.parametrize("size", [1e20, 3e38])
@pytest.mark.parametrize(("name", "unit"), [pair for pair in proven() if "features" not in pair[1].public], ids=str)
def test_a_record_of_any_size_decides_nothing(name: str, unit: units.Unit, size: float) -> None:
    """Features are finite numbers, and every finite number is one: no run may break over one record."""
    graph = with_records(unit, size=size)
    model = quick(name).fit(graph, unit, BUDGET, seed=0, ledger=Ledger.in_memory(warn=False))
    weights = [value for value in model.network.state_dict().values() if value.is_floating_point()]
    assert all(bool(torch.isfinite(value).all()) for value in weights)


# The number of edges

WITH_PRIVATE_EDGES = [(name, unit) for name, unit in proven() if unit.has_edges and "edges" not in unit.public]


@pytest.mark.parametrize(("name", "unit"), WITH_PRIVATE_EDGES, ids=str)
def test_the_exact_number_of_edges_is_written_nowhere(name: str, unit: units.Unit, tmp_path: Path) -> None:
    directed = isinstance(unit, units.DirectedEdge)
    size = 3_000 if not isinstance(unit, units.BoundedDegreeNode) else 1_200
    data = with_public_nodes(random_graph(5, num_nodes=101, num_edges=size))
    if directed:
        data.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    graph, ledger = check_graph(data), Ledger(tmp_path / "ledger")
    exact = graph.edges.num_edges
    assert exact > 1_000  # long enough not to occur by chance
    model = quick(name).fit(graph, unit, Budget(4.0, 1e-5), seed=0, ledger=ledger)
    folder = model.save(tmp_path / "model")
    texts = [path.read_text() for path in sorted(folder.glob("*.json"))] + [json.dumps(entries(ledger))]
    assert len(texts) == 6  # with the manifest and the ledger's head
    for number in (exact, exact // 2):
        for text in texts:
            assert not re.search(rf"(?<![\w.])({number}|{number:,})(?![\w.])", text)


def test_a_declared_number_of_edges_is_used_and_said() -> None:
    graph, edge = random_graph(0), units.UndirectedEdge()
    declared = Chorus(hops=1, epochs=1).fit(graph, edge, Budget(4.0), num_edges=10_000, seed=0)
    assumed = Chorus(hops=1, epochs=1).fit(graph, edge, Budget(4.0), seed=0)
    assert (declared.metadata.num_edges, assumed.metadata.num_edges) == (10_000, None)
    assert declared.plan.budget.delta < assumed.plan.budget.delta


def test_a_model_of_another_graph_does_not_carry_its_number_of_edges() -> None:
    graph, other = random_graph(0, num_edges=250), random_graph(0, num_edges=30)
    for method in (Chorus(epochs=1), GAP(epochs=1)):
        model = method.fit(graph, units.Node(max_degree=5), BUDGET, seed=0)
        assert model.predict_on(other, BUDGET, seed=0).metadata.num_edges is None


# The list of classes


def without_class_names(**declared: Any) -> Data:
    graph = random_graph(0)
    values = {key: value for key, value in graph.to_dict().items() if key != "class_names"}
    return Data(**values, **declared)


@pytest.mark.parametrize(("name", "unit"), [pair for pair in proven() if "labels" not in pair[1].public], ids=str)
def test_where_labels_are_private_the_classes_must_be_declared(name: str, unit: units.Unit) -> None:
    with pytest.raises(InputError, match="classes: expected their names or number to be declared"):
        quick(name).fit(without_class_names(), unit, BUDGET, seed=0)


def test_declared_classes_are_fine_and_need_not_all_occur() -> None:
    node, method = units.Node(max_degree=5), quick("gap")
    for declared in ({"num_classes": 4}, {"class_names": ["a", "b", "c", "d"]}):
        model = method.fit(without_class_names(**declared), node, BUDGET, seed=0)
        assert model.predict_proba().shape == (40, 4)
    assert method.fit(without_class_names(), units.UndirectedEdge(), BUDGET, seed=0).metadata.num_classes == 3
    assert method.fit(without_class_names(), node, Budget(math.inf, 1e-3), seed=0).metadata.num_classes == 3


@pytest.mark.parametrize("unit", [units.Node(max_degree=5), units.Record(), units.NodeReplace(max_degree=5)])
def test_a_class_that_vanishes_with_a_record_changes_no_width(unit: units.Unit) -> None:
    """The only node of the last class gets another one: the network keeps its size."""
    graph = random_graph(0)
    graph.y = torch.where(torch.arange(40) == TRAIN_NODE, 2, graph.y % 2)
    checked = check_graph(graph)
    other = Variations(checked).with_record(TRAIN_NODE, NodeRecord(torch.zeros(5), 0, ()))
    assert int(other.labels.max()) == 1
    shapes = [
        {key: tuple(value.shape) for key, value in quick("dp-mlp").fit(data, unit, BUDGET).network.state_dict().items()}
        for data in (checked, other)
    ]
    assert shapes[0] == shapes[1]
