from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from hushgraph.audit.enumeration import audit_local, largest_sum_change
from hushgraph.errors import InputError
from hushgraph.graph.degree import cap_owned_lists
from hushgraph.local.labels import RandomizedResponse
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.units import DirectedEdge, Node, Record, UndirectedEdge


@pytest.mark.parametrize("unit", [UndirectedEdge(), DirectedEdge()])
def test_tiny_graphs_reach_the_declared_edge_sensitivity_exactly(unit: UndirectedEdge) -> None:
    assert largest_sum_change(unit, 4 if isinstance(unit, UndirectedEdge) else 3) == pytest.approx(
        unit.aggregation_sensitivity(1.0)
    )


def test_owned_lists_with_a_cap_never_move_a_sum_further_than_declared() -> None:
    noise = NoiseSource.seeded(0)

    def cap(edges: Tensor) -> Tensor:
        return cap_owned_lists(edges, 3, 1, noise.stream("cap"))

    assert largest_sum_change(Node(max_degree=1), 3, cap) == pytest.approx(1.0)
    assert largest_sum_change(Node(max_degree=2), 3) == pytest.approx(math.sqrt(2))


def test_a_cap_that_looks_at_the_receivers_is_caught() -> None:
    """Broken on purpose: receivers keep their first in-neighbor, so a freed place is refilled by another sender."""

    def first_senders(edges: Tensor) -> Tensor:
        order = torch.argsort(edges[1] * 100 + edges[0])
        edges = edges[:, order]
        first = torch.ones(edges.shape[1], dtype=torch.bool)
        first[1:] = edges[1, 1:] != edges[1, :-1]
        kept = edges[:, first]
        out: list[Tensor] = [kept[:, kept[0] == sender][:, :1] for sender in range(3)]
        return torch.cat(out, dim=1)

    assert largest_sum_change(Node(max_degree=1), 3, first_senders) > 1.0 + 1e-9


def test_a_local_mechanism_is_enumerated_and_a_liar_is_caught() -> None:
    honest = audit_local(RandomizedResponse(1.2, 4))
    assert honest.lower_bound == pytest.approx(1.2)
    assert not honest.contradicts

    class Liar(RandomizedResponse):
        def law(self, value: int) -> tuple[np.ndarray, np.ndarray]:
            return RandomizedResponse(2 * self.epsilon, self.classes).law(value)

    assert audit_local(Liar(1.2, 4)).contradicts


def test_large_graphs_and_other_units_are_refused() -> None:
    with pytest.raises(InputError, match="2 to 5"):
        largest_sum_change(UndirectedEdge(), 9)
    with pytest.raises(InputError, match="no neighboring graphs"):
        largest_sum_change(Record(), 3)
