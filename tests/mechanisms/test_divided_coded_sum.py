from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.codes import WHOLE
from hushgraph.graph.edges import Edges, MemoryEdges
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import open_run
from hushgraph.mechanisms import DividedCodedSum
from hushgraph.mechanisms.divided_coded_sum import MOST_WEIGHT
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.testing import Cell
from hushgraph.vault import Vault
from matrix_graphs import GRAPHS, largest_share, view_of

NODE, REPLACED = units.Node(), units.NodeReplace()
SUMS = DividedCodedSum()


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda one: one.metadata.name)
def test_it_is_what_adding_entry_by_entry_gives(graph: Any) -> None:
    codes, weights, guesses = SUMS.example_inputs(graph)
    found = SUMS.query(view_of(graph, SUMS, None), codes, weights, guesses)
    train = torch.zeros(graph.metadata.num_nodes, dtype=torch.bool).index_fill_(0, graph.train, True)
    pairs, expected = graph.edges.edge_index().t().tolist(), torch.zeros(len(train))
    squares = torch.zeros(len(train))
    for s, t in pairs:
        squares[s] += weights[t] ** 2
    for s, t in pairs:
        sent = torch.eye(2)[graph.labels[s]] if train[s] else guesses[s]
        if weights[t]:
            expected[t] += weights[t] * float(codes[t].float() @ sent) / squares[s].sqrt()
    assert torch.allclose(found.numbers, expected, atol=0.01)
    assert not found.numbers[weights == 0].any()


def test_all_that_a_sender_says_has_norm_one_in_whole_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    lists = MemoryEdges.from_edge_index(torch.unique(torch.randint(0, 300, (2, 9000), generator=generator), dim=1), 300)
    weights = torch.randint(0, MOST_WEIGHT + 1, (300,), generator=generator)
    said = SUMS.shares(lists, weights).square() * lists.out_sums(weights * weights)
    assert int(said.max()) <= WHOLE**2
    assert float(said.double().min()) > 0.98 * WHOLE**2


def test_the_price_by_unit() -> None:
    assert SUMS.sensitivity(NODE) == 1.0
    assert SUMS.sensitivity(REPLACED) == 2.0
    for unit in (units.UndirectedEdge(), units.DirectedEdge(), units.BoundedDegreeNode(), units.Record()):
        with pytest.raises(UnprovenError, match=unit.name):
            SUMS.event(unit, 1.0)


@dataclass(frozen=True)
class LengthsAlone(DividedCodedSum):
    """Divides by the root of the list's length and leaves out the weights."""

    def shares(self, lists: Edges, weights: Tensor) -> Tensor:
        average = int(weights.double().square().mean().sqrt())
        return (WHOLE / lists.out_degree().clamp(min=1).double().sqrt() / average).to(torch.int64)


@dataclass(frozen=True)
class CodesOfRows(DividedCodedSum):
    """A code that follows from private rows: its sign turns with the number of those who name the receiver."""

    def _whole(self, data: Any, codes: Tensor, weights: Tensor, guesses: Any) -> Tensor:
        turn = 1 - 2 * (data.whole_lists.in_degree() % 2)
        return super()._whole(data, codes * turn.unsqueeze(1), weights, guesses)


@pytest.mark.parametrize("broken", [LengthsAlone(), CodesOfRows()])
def test_broken_variants_are_caught_by_neighbors(broken: DividedCodedSum) -> None:
    assert largest_share(Cell(SUMS, NODE)) <= 1.0 + 1e-12
    assert largest_share(Cell(broken, NODE)) > 1.2


@pytest.mark.parametrize("place", [0, 1])
def test_codes_and_weights_from_private_rows_are_refused(place: int) -> None:
    graph = GRAPHS[0]
    plan = Plan.make("toy", graph.metadata, NODE, Budget(2.0, 1e-3), [Stage("sums", SUMS)])
    run = open_run(Ledger(), plan, "toy", seeded=True)
    vault = Vault(graph, plan, run, NoiseSource.seeded(1))
    inputs: list[Any] = list(SUMS.example_inputs(graph))
    inputs[place] = vault._keep(inputs[place], "private rows")
    with pytest.raises(InputError, match="private rows"):
        vault.release("sums", *inputs)
    assert run.ledger.history().of_run(run.identity, "charge") == []


@pytest.mark.parametrize("bad", [torch.full((9,), 8), torch.full((9,), -1), torch.ones(9)])
def test_weights_outside_the_proof_are_refused(bad: Tensor) -> None:
    codes, _, guesses = SUMS.example_inputs(GRAPHS[0])
    with pytest.raises(InputError, match="weights"):
        SUMS.query(view_of(GRAPHS[0], SUMS, None), codes, bad, guesses)
