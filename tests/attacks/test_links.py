from __future__ import annotations

import math

import pytest
import torch
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph import datasets
from hushgraph.attacks import LinkTeller, PosteriorSimilarity, ReleasedRows, Target, analyze, target_of
from hushgraph.attacks.base import dense_features
from hushgraph.attacks.links import sample_pairs
from hushgraph.errors import InputError
from hushgraph.methods.gap import GAP
from hushgraph.methods.plain_gnn import GCN
from hushgraph.privacy.units import UndirectedEdge


@pytest.fixture(scope="module")
def campus() -> Data:
    return datasets.load("campus", num_nodes=500)


def test_pairs_are_what_they_say_and_balanced(campus: Data) -> None:
    pairs = sample_pairs(campus, 20, 10, 0)
    edges = set(map(tuple, campus.edge_index.t().tolist()))
    for source, other, connected in zip(pairs.source, pairs.other, pairs.connected, strict=True):
        assert ((int(source), int(other)) in edges) == connected
        assert source != other
    assert pairs.connected.mean() == pytest.approx(0.5, abs=0.02)


def test_linkteller_breaks_a_gcn_and_not_gap(campus: Data) -> None:
    gcn = GCN(epochs=15).fit(campus, UndirectedEdge(), hg.Budget(math.inf, 1e-5), seed=0)
    gap = GAP(epochs=10).fit(campus, UndirectedEdge(), hg.Budget(1.0, 1e-5), seed=0)
    attack = LinkTeller(sources=20, per_source=20)
    broken = analyze(attack.run(target_of(gcn, campus), campus))
    assert broken.auc.value > 0.85
    assert broken.details["queries"] == 21
    protected = analyze(attack.run(target_of(gap, campus), campus))
    assert 0.35 < protected.auc.value < 0.65
    assert protected.details["epsilon of all queries together"] > 2.0  # what the owner would have had to refuse
    cached = analyze(attack.run(target_of(gap, campus, fresh_noise=False), campus))
    assert cached.auc.value == 0.5  # cached rows do not move at all


def test_influence_is_the_finite_difference_of_one_node_at_a_time(campus: Data) -> None:
    asked: list[int] = []
    features = dense_features(campus)

    def query(sent: torch.Tensor) -> torch.Tensor:
        changed = (sent != features).any(dim=1).nonzero().squeeze(1).tolist()
        asked.append(len(changed))
        return torch.full((campus.num_nodes, 2), 0.5)

    target = Target("still", torch.full((campus.num_nodes, 2), 0.5), query=query)
    found = LinkTeller(sources=5, per_source=4).run(target, campus)
    assert asked == [0, 1, 1, 1, 1, 1]
    assert (found.scores == 0).all()


def test_stored_rows_of_sums_without_noise_give_links_away(campus: Data) -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.nn.functional.normalize(torch.randn(campus.num_nodes, 64, generator=generator), dim=1)
    summed = torch.zeros_like(first).index_add_(0, campus.edge_index[1], first[campus.edge_index[0]])
    rows = torch.cat([first, torch.nn.functional.normalize(summed, dim=1)], dim=1)
    target = Target("raw sums", torch.ones(campus.num_nodes, 2) / 2, rows)
    assert analyze(ReleasedRows(width=64).run(target, campus)).auc.value > 0.8
    with pytest.raises(InputError, match="hops of width"):
        ReleasedRows(width=60).run(target, campus)


def test_similar_posteriors_are_scored_higher(campus: Data) -> None:
    truth = torch.nn.functional.one_hot(campus.y, 6) * 0.9 + 0.01
    assert analyze(PosteriorSimilarity().run(Target("labels", truth), campus)).auc.value > 0.6


def test_a_target_without_the_needed_part_is_refused(campus: Data) -> None:
    with pytest.raises(InputError, match="needs the target's query"):
        LinkTeller().run(Target("closed", torch.ones(campus.num_nodes, 2)), campus)
