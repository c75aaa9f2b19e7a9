from __future__ import annotations

import math

import pytest
import torch

from hushgraph.errors import UnprovenError
from hushgraph.graph.degree import cap_owned_lists
from hushgraph.ledger.across import grouped, priced_across
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events, units
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.units import Unit
from toy_plans import COUNT, EDGE, NODE, rooted, sums, training

DIRECTED = units.DirectedEdge()


def multiplier(plan, charged: Unit, asked: Unit) -> float:
    (way,) = priced_across(plan.ways, charged, asked)
    ((leaf, count),) = events.flatten(way)
    assert count == plan.stages[0].count
    return float(leaf.noise_multiplier)


@pytest.mark.parametrize(
    ("charged", "asked"),
    [
        (EDGE, NODE),  # features and labels were used as public
        (DIRECTED, units.NodeReplace(5)),
        (EDGE, units.Local()),
        (NODE, units.Local()),  # a trusted holder saw everything
        (units.Local(), EDGE),
        (units.Local(), NODE),
        (units.NodePromise(5), NODE),  # nothing was cut
        (NODE, units.NodePromise(5)),
        (units.Record(), NODE),
        (units.Local(private_labels=False), units.Local()),
    ],
)
def test_what_has_no_bound_is_said_so(charged: Unit, asked: Unit) -> None:
    with pytest.raises(UnprovenError, match=f"'{charged.name}' has no bound under the unit '{asked.name}'"):
        priced_across(lambda unit: [events.gaussian(1.0)], charged, asked)


def test_edges_translate_into_each_other() -> None:
    plan = sums(std=10.0)
    assert multiplier(plan, EDGE, EDGE) == pytest.approx(10.0 / math.sqrt(2.0))
    assert multiplier(plan, EDGE, DIRECTED) == pytest.approx(10.0)
    assert multiplier(plan, DIRECTED, EDGE) == pytest.approx(10.0 / math.sqrt(2.0))


def test_the_cap_that_was_applied_counts_if_it_is_the_larger_one() -> None:
    plan = sums(std=10.0, unit=units.Node(10))
    assert multiplier(plan, units.Node(10), units.Node(5)) == pytest.approx(10.0 / math.sqrt(10))
    assert multiplier(plan, units.Node(10), units.Node(20)) == pytest.approx(10.0 / math.sqrt(20))
    assert multiplier(plan, units.Node(10), units.NodeReplace(5)) == pytest.approx(10.0 / (2 * math.sqrt(10)))


def test_an_edge_is_up_to_four_entries_of_lists_that_were_cut() -> None:
    plan = sums(std=10.0, unit=NODE)
    assert multiplier(plan, NODE, DIRECTED) == pytest.approx(10.0 / 2)
    assert multiplier(plan, NODE, EDGE) == pytest.approx(10.0 / 4)


def test_the_bound_for_cut_lists_holds_where_one_more_entry_comes_in() -> None:
    """Two hubs over the cap that are linked: without their edge, another entry takes its place on each list.

    The plain bound for an edge is broken by what a cut does; the bound used here holds. Over many keys.
    """
    num_nodes, cap = 30, 4
    hubs = torch.tensor([[0] * 8 + [1] * 8, [*range(2, 10), *range(2, 10)]])
    edge = torch.tensor([[0, 1], [1, 0]])
    moved = []
    for seed in range(60):
        sums_of = []
        for graph in (torch.cat([hubs, edge], 1), hubs):
            kept = cap_owned_lists(graph, num_nodes, cap, NoiseSource.seeded(seed))
            total = torch.zeros(num_nodes, dtype=torch.float64)
            sums_of.append(total.index_add(0, kept[1], torch.ones(kept.shape[1], dtype=torch.float64)))
        moved.append(float((sums_of[0] - sums_of[1]).norm()))
    assert max(moved) > math.sqrt(2.0) + 1e-9
    assert max(moved) <= 4.0


def test_counts_are_grouped_too_and_samples_are_not() -> None:
    (way,) = priced_across(lambda unit: [COUNT.event(unit)], NODE, EDGE)
    one = PrivacyLoss(COUNT.event(DIRECTED), EDGE.relation).epsilon(1e-6)
    assert PrivacyLoss(way, EDGE.relation).epsilon(1e-6) == pytest.approx(4 * one)
    assert grouped(events.gaussian(1.0), 1) == events.gaussian(1.0)
    with pytest.raises(UnprovenError, match=r"PoissonSampled.* when 4 units change together"):
        grouped(events.sampled_gaussian(0.1, 1.0, 1), 4)


def test_training_on_records_costs_an_edge_nothing_and_rooted_training_has_no_bound() -> None:
    (way,) = priced_across(training().ways, NODE, EDGE)
    assert PrivacyLoss(way, EDGE.relation).epsilon(1e-6) == 0.0
    with pytest.raises(UnprovenError):
        priced_across(rooted().ways, NODE, EDGE)
