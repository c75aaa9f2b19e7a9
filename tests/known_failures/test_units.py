"""Known failures about what is protected: P7, P27, P36."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hushgraph.errors import InputError, PrivateAccessError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.local import realized_epsilon
from hushgraph.mechanisms.label_sum import LabelSum
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.methods.gap import GAP
from hushgraph.methods.progap import ProGAP
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import BoundedDegreeNode, DirectedEdge, Footprint, Node, Record, UndirectedEdge, Unit
from hushgraph.testing import Variations
from hushgraph.vault import PrivateRows
from known_failures.common import (
    BUDGET,
    EDGE_READERS,
    ROUNDING,
    STAGE,
    UNITS,
    inputs_of,
    keeps_its_bound,
    moves,
    proven_methods,
    small_graph,
    stage_vault,
)
from small_graphs import random_graph

# P7: an undirected edge is two entries


class HalfAnEdge(UndirectedEdge):
    """Counts one direction of a symmetric graph."""

    @property
    def footprint(self) -> Footprint:
        return DirectedEdge().footprint

    def neighbors(self, data: Any, rng: Any) -> Any:
        return UndirectedEdge().neighbors(data, rng)


BOUNDED = [one for one in EDGE_READERS if math.isfinite(one.sensitivity(UndirectedEdge()))]


@pytest.mark.parametrize("mechanism", BOUNDED, ids=repr)
def test_p07_both_directions_of_an_edge_count(mechanism: Mechanism) -> None:
    assert keeps_its_bound(mechanism, UndirectedEdge())
    assert not keeps_its_bound(mechanism, HalfAnEdge())


def test_p07_a_symmetric_graph_is_never_protected_per_direction() -> None:
    graph = random_graph(0)
    assert isinstance(GAP().default_unit(check_graph(graph)), UndirectedEdge)
    with pytest.raises(InputError, match="symmetric"):
        GAP(epochs=1).fit(graph, DirectedEdge(), BUDGET)


@pytest.mark.parametrize(("claimed", "proved"), [(0.25, 0.36), (1.0, 1.45), (4.0, 5.89), (8.0, 12.0)])
def test_p07_paper_mode_shows_what_an_epsilon_per_direction_proves(claimed: float, proved: float) -> None:
    sizes = Metadata(10_000, 7_500, 0, 0, 8, 3, num_edges=40_000)
    plan = GAP(hops=1).plan(sizes, DirectedEdge(), Budget(claimed, 1e-7), paper_mode=True)
    assert plan.paper is not None
    assert plan.paper.epsilon == pytest.approx(claimed, abs=1e-4)
    assert plan.epsilon == pytest.approx(proved, abs=0.05)
    assert plan.unit == UndirectedEdge()


# P27: the set of nodes is public; all parts of a budget add up


class Removed(Record):
    """Takes the node out of the table, so that everybody sees that it is gone."""

    def neighbors(self, data: Any, rng: Any) -> Any:
        graph = data.graph
        for node in range(3):
            kept = torch.arange(graph.metadata.num_nodes) != node
            yield check_graph(shrunk(graph, kept))


def shrunk(graph: CheckedGraph, kept: torch.Tensor) -> Any:
    data = random_graph(1, num_nodes=int(kept.sum()))
    data.x, data.y = graph.features[kept], graph.labels[kept]
    return data


def same_places(unit: Unit) -> bool:
    """Whether neighbors have the same nodes and public sizes, so that no answer has a place the other lacks."""
    graph = small_graph(unit)
    found = unit.neighbors(Variations(graph), np.random.default_rng(0))
    return all(one.metadata == graph.metadata and len(one.features) == len(graph.features) for one in found)


def test_p27_a_removed_node_leaves_an_empty_place() -> None:
    for unit in (*UNITS, Record()):
        assert same_places(unit), unit
    assert not same_places(Removed())


class NoisyChoice:
    """The exponential mechanism over candidate nodes; `data` are the nodes that exist, with a score each."""

    epsilon = 1.0

    def __init__(self, public_candidates: bool) -> None:
        self.public = public_candidates

    def inputs(self) -> list[dict[int, float]]:
        return [{0: 1.0, 1: 0.4, 2: 0.0}, {0: 1.0, 1: 0.4}, {0: 0.3, 2: 1.0}]

    def law(self, data: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
        scores = np.array([data.get(node, 0.0 if self.public else -np.inf) for node in range(3)])
        weights = np.exp(self.epsilon / 2 * scores)  # one node moves scores by at most 1
        return np.arange(3), weights / weights.sum()


def test_p27_a_choice_of_nodes_is_made_among_public_candidates() -> None:
    """Guards the choice of PageRank entries when it is built."""
    assert realized_epsilon(NoisyChoice(public_candidates=True)) <= NoisyChoice.epsilon  # type: ignore[arg-type]
    assert realized_epsilon(NoisyChoice(public_candidates=False)) == math.inf  # type: ignore[arg-type]


def covers_all_stages(plan: Plan, epsilon: float) -> bool:
    """Whether a price is at least that of all stages of the plan, worked out by Renyi DP or exactly."""
    together = PrivacyLoss(events.composed([stage.event(plan.unit) for stage in plan]), plan.unit.relation)
    return epsilon >= together.epsilon(plan.budget.definite_delta) * (1.0 - 1e-9)


def test_p27_the_parts_of_a_budget_add_up() -> None:
    graph = small_graph(Node(3))
    for method, unit in proven_methods(graph):
        plan = method.plan(graph.metadata, unit, BUDGET)
        paid = [stage for stage in plan if not stage.is_free(unit)]
        if len(paid) < 2 or plan.branches:
            continue
        assert covers_all_stages(plan, plan.epsilon), method.name
        last = PrivacyLoss(paid[-1].event(unit), unit.relation).epsilon(plan.budget.definite_delta)
        assert not covers_all_stages(plan, last), method.name  # a later part overwrites what the earlier ones cost


# P36: a node's own row stays with the node


class HandedOut(NeighborSum):
    """Hands out every row, the one of the changed node too."""

    def stays_private(self, unit: Unit) -> bool:
        return False


class LabelsHandedOut(LabelSum):
    """The same for sums of labels."""

    def stays_private(self, unit: Unit) -> bool:
        return False


def may_be_seen(mechanism: Mechanism, unit: Unit) -> bool:
    """Whether what leaves the vault moves by no more than is declared: all rows of it, or a handle to none."""
    graph = small_graph(unit)
    vault = stage_vault(graph, mechanism, unit)
    value = vault.release(STAGE, *inputs_of(mechanism, graph))
    if isinstance(value, PrivateRows):
        with pytest.raises(PrivateAccessError):
            value[0]
        return STAGE not in vault.released
    return moves(mechanism, unit, graph, own_row=True) <= mechanism.sensitivity(unit) * (1.0 + ROUNDING)


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_p36_what_leaves_the_vault_keeps_the_bound_with_all_its_rows(unit: Unit) -> None:
    for mechanism in EDGE_READERS:
        if math.isfinite(mechanism.sensitivity(unit)):
            assert may_be_seen(mechanism, unit), mechanism
    if isinstance(unit, BoundedDegreeNode):
        assert not may_be_seen(HandedOut(), unit)
        assert not may_be_seen(LabelsHandedOut(), unit)


class SpreadScores(GAP):
    """Keeps a table of what every node received."""

    def run(self, vault: Any, network: Any, *, train: bool) -> Any:
        output = super().run(vault, network, train=train)
        output.kept["rows seen"] = vault.hand_over(output.scores)
        return output


def stored_about_nodes(method: GAP, folder: Path) -> set[str]:
    """The names of stored tensors that have a row for every node."""
    graph = random_graph(0, num_edges=60)
    model = method.fit(graph, BoundedDegreeNode(20), BUDGET, seed=0)
    tensors = load_file(model.save(folder) / "model.safetensors")
    return {name for name, value in tensors.items() if value.dim() > 1 and len(value) == 40}


def test_p36_nothing_about_single_nodes_is_stored_under_a_degree_promise(tmp_path: Path) -> None:
    for number, method in enumerate((GAP(epochs=1), ProGAP(epochs=1))):
        assert stored_about_nodes(method, tmp_path / str(number)) == set()
    assert stored_about_nodes(SpreadScores(epochs=1), tmp_path / "broken") != set()


def test_p36_certificates_say_what_predictions_leave_unprotected() -> None:
    graph, unit = random_graph(0), Node(5)
    for method, proven in proven_methods(check_graph(graph)):
        if proven == Node(3):
            model = method.fit(graph, unit, BUDGET, seed=0)
            codes = {note.code for note in model.certificate.unprotected}
            assert codes & {Code.OWN_PREDICTION, Code.OWN_ROW}, method.name
