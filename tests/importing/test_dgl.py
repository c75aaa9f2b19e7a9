"""DGL graphs: the real ones where DGL is installed, and always a stand-in with what is read of its interface."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import hushgraph as hg
from hushgraph.errors import InputError
from small_graphs import random_graph


class StandIn:
    """`ntypes`, `canonical_etypes`, `nodes[kind].data`, `edges(etype=...)`, `num_nodes(kind)` and `edata` of DGL."""

    def __init__(self, edges: dict[tuple[str, str, str], Any], num_nodes_dict: dict[str, int]) -> None:
        self._edges, self._counts = edges, num_nodes_dict
        self.ntypes, self.canonical_etypes = sorted(num_nodes_dict), sorted(edges)
        self.nodes = {kind: SimpleNamespace(data={}) for kind in self.ntypes}
        self.edata: dict[str, Any] = {}

    def edges(self, etype: tuple[str, str, str] | None = None) -> Any:
        return self._edges[self.canonical_etypes[0] if etype is None else etype]

    def num_nodes(self, ntype: str | None = None) -> int:
        return self._counts[ntype or self.ntypes[0]]

    def is_directed(self) -> bool:
        raise AssertionError("this is not a NetworkX graph")


def makers() -> list[Any]:
    """Whatever makes a heterogeneous graph of edges and numbers of nodes."""
    try:
        import dgl  # type: ignore[import-not-found]
    except Exception:  # not installed, or for another PyTorch
        return [StandIn]
    return [StandIn, dgl.heterograph]


@pytest.fixture(params=makers())
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


def people(make: Any, **relations: torch.Tensor) -> Any:
    """A graph of one kind of node, with masks as numbers, as DGL had them."""
    graph = random_graph(1)
    edges = {("person", name, "person"): (index[0].int(), index[1].int()) for name, index in relations.items()}
    made = make(edges, num_nodes_dict={"person": graph.num_nodes})
    held = made.nodes["person"].data
    held["feat"], held["label"] = graph.x, graph.y
    for part in ("train", "val", "test"):
        held[f"{part}_mask"] = graph[f"{part}_mask"].to(torch.uint8)
    return made


def test_a_homogeneous_graph_is_taken_by_fit(make: Any) -> None:
    theirs = random_graph(1)
    given = people(make, knows=theirs.edge_index)
    ours = hg.Graph.from_dgl(given, classes=theirs.class_names)
    assert torch.equal(ours.x, theirs.x)
    assert torch.equal(ours.edge_index, theirs.edge_index)
    assert torch.equal(ours.train_mask, theirs.train_mask)
    assert hg.GAP(epochs=1).fit(given, "undirected-edge", (4.0, 1e-3)).predict().shape == (theirs.num_nodes,)


def test_several_relations_are_types_of_edges(make: Any) -> None:
    index = random_graph(1).edge_index
    given = people(make, knows=index, pays=index[:, :7])
    with pytest.raises(InputError, match=r"which kind of edge .*person/knows/person, person/pays/person"):
        hg.Graph.from_dgl(given)
    assert torch.equal(hg.Graph.from_dgl(given, relation="knows").edge_index, index)
    both = hg.Graph.from_dgl(given, relations=["knows", "pays"])
    assert both.edge_type_names == ["knows", "pays"]
    assert both.edge_type.bincount().tolist() == [index.shape[1], 7]
    model = hg.GAP(epochs=1).fit(both, "directed-edge", ({"knows": 2.0, "pays": 1.0}, 1e-3))
    assert "knows 2, pays 1" in str(model)


def test_what_is_known_of_edges_is_left_out_with_a_line() -> None:
    given = people(StandIn, knows=random_graph(1).edge_index)
    given.edata["weight"] = torch.ones(3)
    assert "weight" in str(hg.Graph.from_dgl(given).findings[0])


def test_another_object_is_refused() -> None:
    with pytest.raises(InputError, match="from_dgl: expected a DGL graph; got int"):
        hg.Graph.from_dgl(3)
