"""The student on graphs in closed form: noise of mean 0 in the counts is averaged away."""

from __future__ import annotations

import torch

from hushgraph.graph.edges import MemoryEdges
from hushgraph.nn.backbones import MeanRidge
from hushgraph.nn.propagation import Neighborhood
from hushgraph.training.learners import Part, neighborhood
from hushgraph.training.lesson import Lesson
from hushgraph.training.students import NeighborStudent


def test_means_over_neighbors_and_their_neighbors() -> None:
    chain = Neighborhood(MemoryEdges.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3))
    x = torch.tensor([[1.0], [0.0], [3.0]])
    expected = torch.tensor([[1.0, 0.0, 4.0], [0.0, 4.0, 0.0], [3.0, 0.0, 4.0]])
    assert torch.allclose(MeanRidge(1, 2).rows(x, chain), expected)


def test_a_student_on_a_graph_learns_from_counts_of_which_nearly_half_have_a_wrong_maximum() -> None:
    made = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 3
    ends = torch.randint(0, 600, (2, 6_000), generator=made)
    ends = ends[:, y[ends[0]] == y[ends[1]]]
    x = torch.nn.functional.one_hot(y, 3).float() + 2.0 * torch.randn(600, 3, generator=made)
    public = Part(x, torch.cat([ends, ends.flip(0)], dim=1))
    counts = 20.0 * torch.nn.functional.one_hot(y, 3) + 40.0 * torch.randn(600, 3, generator=made)
    lesson = Lesson(public, torch.arange(600), counts.round().long(), 20, True)
    assert float((lesson.labels == y).float().mean()) < 0.55
    student = NeighborStudent()
    network = student.network(3, 3, 600)
    student.learn(network, lesson, made, lambda done, total: None)
    said = network.backbone(x, neighborhood(public)).argmax(dim=1)
    assert float((said == y).float().mean()) > 0.8
