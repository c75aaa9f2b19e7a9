"""Votes: one record moves one teacher, the filter pays for the worst course, and too little noise is caught."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hushgraph as hg
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.mechanisms.confident_votes import ConfidentVotes
from hushgraph.mechanisms.laplace_votes import LaplaceVotes
from hushgraph.mechanisms.votes import Ballot, Votes
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.mechanism import mechanism_from_dict
from hushgraph.privacy.metadata import Metadata
from hushgraph.testing import Variations
from hushgraph.training.learners import GraphNet, NeighborRidge, Part, Ridge
from hushgraph.training.teachers import _links, parts_of
from matrix_graphs import GRAPHS, fits, view_of

EDGELESS = torch.empty((2, 0), dtype=torch.int64)


def asked(count: int, columns: int = 3) -> Part:
    return Part(torch.randn(count, columns, generator=torch.Generator().manual_seed(5)), EDGELESS)


def test_counts_equal_those_of_teachers_one_by_one() -> None:
    graph, queries = GRAPHS[0], asked(6)
    made = Votes(teachers=3, queries=6)
    counts = made.query(view_of(graph, made, units.Record()), queries).counts
    expected = torch.zeros_like(counts)
    for part in parts_of(graph.train, 3, 0):
        voted = Ridge().votes(Part(graph.features[part]), graph.labels[part], queries, 2, torch.Generator())
        for row, vote in enumerate(voted.tolist()):
            expected[row, vote] += 1
    assert torch.equal(counts, expected)


@pytest.mark.parametrize("unit", [units.NodeWithEdges(), units.UndirectedEdge(), units.Node(max_degree=4)], ids=str)
def test_teachers_on_graphs_move_one_vote_at_a_time_whatever_the_degree(unit: units.Unit) -> None:
    made = Votes(teachers=2, queries=4, learner=GraphNet(hidden=4, epochs=3, lr=0.5))
    queries = replace(asked(5), nodes=torch.tensor([0, 1, 3, 4]))
    moved = 0
    for graph in (one for one in GRAPHS[:4] if fits(one, unit)):
        before = made.query(view_of(graph, made, unit), queries).counts
        for other in list(unit.neighbors(Variations(graph), np.random.default_rng(0)))[:9]:
            change = made.query(view_of(other, made, unit), queries).counts - before
            assert float(change.double().norm()) <= made.sensitivity(unit)
            assert int(change.abs().sum(dim=1).max()) <= 2
            moved += bool(change.any())
    assert moved or unit.footprint.records == 0


def with_public_nodes(graph: CheckedGraph, public: Tensor) -> CheckedGraph:
    train = graph.train[~torch.isin(graph.train, public)]
    metadata = replace(graph.metadata, num_public=public.numel(), num_train=train.numel())
    return replace(graph, public=public, train=train, metadata=metadata)


@pytest.mark.parametrize("unit", [units.NodeWithEdges(), units.UndirectedEdge()], ids=str)
def test_edges_to_public_nodes_are_seen_by_the_teacher_of_the_private_node_alone(unit: units.Unit) -> None:
    """Among the graphs: a hub that everybody is linked to, public nodes among them, moves one vote a query."""
    public, moved, linked = torch.tensor([1, 2, 7]), 0, 0
    made = Votes(teachers=2, queries=3, learner=NeighborRidge(trust=3.0))
    for graph in (one for one in GRAPHS[:7] if fits(one, unit)):
        known = Part(graph.features[public], graph.edges.load().induced(public).edge_index())
        before = made.query(view_of(with_public_nodes(graph, public), made, unit), known).counts
        for other in unit.neighbors(Variations(graph), np.random.default_rng(0)):
            if torch.equal(other.features[public], graph.features[public]):  # public nodes do not change
                change = made.query(view_of(with_public_nodes(other, public), made, unit), known).counts - before
                assert int(change.abs().sum(dim=1).max()) <= 2
                moved += bool(change.any())
        alone = replace(graph, edges=MemoryEdges.from_edge_index(EDGELESS, graph.metadata.num_nodes))
        without = made.query(view_of(with_public_nodes(alone, public), made, unit), replace(known, edge_index=EDGELESS))
        linked += not torch.equal(before, without.counts)
    assert moved
    assert linked


def test_links_of_parts_are_those_between_them_and_public_nodes() -> None:
    ends = torch.tensor([[0, 1, 2, 3, 0, 4, 3, 2], [4, 0, 4, 5, 5, 5, 0, 3]])
    edges = MemoryEdges.from_edge_index(ends, 6)
    first, second = _links(edges, [torch.tensor([0, 2]), torch.tensor([3])], torch.tensor([5, 4]), 2)
    assert first.T.tolist() == [[0, 0], [0, 1], [1, 1]]  # node 0 to 5 and 4, node 2 to 4; node 1 is in no part
    assert second.T.tolist() == [[0, 0]]
    with pytest.raises(InputError, match="expected all 2 public nodes"):
        _links(edges, [torch.tensor([0])], torch.tensor([5, 4]), 3)


@pytest.mark.parametrize(
    "made", [Votes(4, 9), LaplaceVotes(4, 9), ConfidentVotes(4, 5, checks=9)], ids=lambda m: m.name
)
def test_all_data_of_one_teacher_replaced_moves_one_vote_a_query(made: Ballot) -> None:
    graph, queries, moved = GRAPHS[0], asked(9), 0
    before = made.counts(view_of(graph, made, units.Record()), queries)
    for part in parts_of(graph.train, made.teachers, made.seed):
        for seed in range(5):
            random = torch.Generator().manual_seed(seed)
            x, y = graph.features.clone(), graph.labels.clone()
            x[part] = 3.0 * torch.randn(part.numel(), x.shape[1], generator=random)
            y[part] = torch.randint(-1, 2, (part.numel(),), generator=random)
            other = replace(graph, features=x, labels=y)
            change = made.counts(view_of(other, made, units.Record()), queries) - before
            assert float(change.double().norm(dim=1).max()) <= math.sqrt(2.0) + 1e-12
            assert int(change.abs().sum(dim=1).max()) <= 2
            moved += bool(change.any())
    assert moved > 5


def test_units_that_change_more_than_one_record_are_refused() -> None:
    class Household(units.Unit):
        name = "household"

        @property
        def footprint(self) -> units.Footprint:
            return units.Footprint(records=4)

    with pytest.raises(UnprovenError, match="votes of teachers"):
        Votes(queries=2).require(Household())
    with pytest.raises(UnprovenError):
        Votes(queries=2, learner=GraphNet()).require(units.Record())


def test_what_confident_votes_cost_is_the_worst_course_of_events() -> None:
    made = ConfidentVotes(teachers=10, queries=20, checks=100, threshold=5.0, check_noise=3.0)
    assert made.sensitivity(units.Record()) == pytest.approx(math.sqrt(100 / 9 + 40))
    with pytest.raises(InputError, match="checks: expected at least 20"):
        replace(made, checks=10)


def test_confident_votes_answer_the_first_that_pass_and_no_more() -> None:
    graph, queries = GRAPHS[0], asked(8)
    made = ConfidentVotes(teachers=3, queries=2, checks=8, threshold=3.0)
    view = view_of(graph, made, units.Record())
    counts = made.counts(view, queries)
    agreed = (counts.max(dim=1).values == 3).nonzero().squeeze(1)[:2]
    assert torch.equal(made.query(view, queries).queries, agreed)
    answers = replace(made, threshold=-1e6).release(view, 1.0, NoiseSource.seeded(0), queries)
    assert answers.queries.tolist() == [0, 1]
    assert replace(made, threshold=1e6).release(view, 1.0, NoiseSource.seeded(0), queries).counts.shape == (0, 2)


def test_more_queries_than_planned_are_refused() -> None:
    made = Votes(teachers=3, queries=2)
    with pytest.raises(InputError, match="expected 2 queries, as planned; got 3"):
        made.check(asked(3))


@pytest.mark.parametrize(
    "made",
    [
        Votes(7, 3, GraphNet(hidden=9)),
        LaplaceVotes(5, 2),
        ConfidentVotes(5, 2, checks=9, threshold=4.0),
    ],
    ids=lambda made: made.name,
)
def test_mechanisms_are_read_back(made: Any) -> None:
    assert mechanism_from_dict(made.as_dict()) == made


def test_laplace_noise_costs_more_than_gaussian_noise_of_the_same_size_and_less_than_its_sum() -> None:
    metadata = Metadata(100, 100, num_features=3, num_classes=2)
    budget = hg.Budget(4.0, 1e-5)
    made = hg.Plan.make("toy", metadata, units.Record(), budget, [hg.Stage("votes", LaplaceVotes(10, 500))])
    gaussian = hg.Plan.make("toy", metadata, units.Record(), budget, [hg.Stage("votes", Votes(10, 500))])
    assert made.epsilon <= 4.0
    assert made["votes"].scale * math.sqrt(2) > gaussian["votes"].scale
    assert made["votes"].scale < 2 * 500 / 4.0
