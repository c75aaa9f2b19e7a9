from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from hushgraph.data.checks import check_graph, check_unit, default_unit
from hushgraph.errors import InputError
from hushgraph.privacy import units
from small_graphs import hub_graph, random_graph


def test_public_sizes_are_read_and_isolated_last_nodes_stay(graph: Data) -> None:
    checked = check_graph(graph)
    assert checked.facts.num_nodes == 40
    assert checked.edges.num_nodes == 40
    assert checked.facts.num_classes == 3
    assert int(checked.edges.in_degree()[-1]) == 0


def test_sparse_features_stay_sparse(graph: Data) -> None:
    graph.x = (graph.x > 1).float().to_sparse_csr()
    features = check_graph(graph).features
    assert not isinstance(features, torch.Tensor)
    assert torch.equal(features.to_dense(), graph.x.to_dense())


def _broken(**changes: object) -> Data:
    graph = random_graph(0)
    for name, value in changes.items():
        graph[name] = value
    return graph


nan_features = random_graph(0).x.clone()
nan_features[3, 2] = float("nan")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (_broken(x=nan_features), "NaN"),
        (_broken(y=torch.full((40,), 7)), "labels: expected classes 0 to 2"),
        (_broken(y=torch.zeros(39, dtype=torch.long)), "one per node"),
        (_broken(y=torch.zeros(40)), "expected integers"),
        (_broken(edge_index=torch.tensor([[0], [40]])), "from 0 to 39; got 0 to 40"),
        (_broken(edge_index=torch.tensor([[-1], [3]])), "got -1 to 3"),
        (_broken(edge_index=torch.zeros(3, 4, dtype=torch.long)), r"shape \[2, E\]"),
        (_broken(train_mask=torch.zeros(40, dtype=torch.bool)), "at least one train node"),
        (_broken(train_mask=None), "train_mask"),
        (_broken(val_mask=torch.ones(40, dtype=torch.bool)), "disjoint"),
        (_broken(edge_weight=torch.ones(3)), "unweighted"),
        (_broken(y=torch.full((40,), -1)), "have none"),
        (HeteroData(), "HeteroData"),
        (Data(x=torch.ones(3, 1)), "edge_index"),
    ],
)
def test_bad_graphs_are_refused_with_the_reason(graph: Data, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_graph(graph)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        check_graph(_broken(x=nan_features, y=torch.full((40,), 7), edge_index=torch.tensor([[0], [99]])))
    assert len(caught.value.problems) == 3


def test_repeated_edges_and_self_loops_are_coalesced_and_written_down(graph: Data) -> None:
    clean = check_graph(graph)
    extra = torch.cat([graph.edge_index, graph.edge_index[:, :4], torch.tensor([[5], [5]])], dim=1)
    graph.edge_index = extra
    checked = check_graph(graph)
    assert torch.equal(checked.edges.sources, clean.edges.sources)
    assert any("4 repeated" in note for note in checked.notes)
    assert any("1 self loops" in note for note in checked.notes)


def test_units_must_fit_the_kind_of_graph() -> None:
    symmetric, directed = check_graph(random_graph(1)), check_graph(random_graph(1, symmetric=False))
    assert isinstance(default_unit(symmetric), units.UndirectedEdge)
    assert isinstance(default_unit(directed), units.DirectedEdge)
    check_unit(symmetric, units.UndirectedEdge())
    check_unit(directed, units.DirectedEdge())
    check_unit(symmetric, units.DirectedEdge(), paper_mode=True)
    with pytest.raises(InputError, match="symmetric"):
        check_unit(directed, units.UndirectedEdge())
    with pytest.raises(InputError, match="one friendship is two entries"):
        check_unit(symmetric, units.DirectedEdge())


def test_a_broken_degree_promise_is_refused() -> None:
    hub = check_graph(hub_graph(60))
    check_unit(hub, units.NodePromise(max_degree=60))
    with pytest.raises(InputError, match="got one with 60"):
        check_unit(hub, units.NodePromise(max_degree=59))
