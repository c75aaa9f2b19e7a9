from __future__ import annotations

import math

import pytest
from torch import tensor

import hushgraph as hg
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.pagerank import TopRows
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.dpappr import DPAPPR, VARIANTS
from hushgraph.privacy.units import NodeWithEdges
from small_graphs import random_graph

BUDGET = hg.Budget(4.0, 1e-3)


def fit(**settings):
    small = {"epochs": 2, "batch_size": 8, "hidden_channels": 4, "top": 2, **settings}
    return DPAPPR(**small).fit(random_graph(0), NodeWithEdges(), BUDGET, ledger=Ledger(), seed=1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_within_its_budget(variant: str) -> None:
    model = fit(variant=variant)
    assert 0.0 < model.plan.epsilon <= BUDGET.epsilon


def test_what_depends_on_one_node_is_what_is_charged() -> None:
    assert fit(variant="em-v0", max_support=2).plan["network"].mechanism.touched(NodeWithEdges()) == (3, 2)
    assert fit(variant="features").plan["network"].mechanism.touched(NodeWithEdges()) == (1, 0)


def test_rows_over_the_cap_are_refused_before_anything_is_charged() -> None:
    mechanism = DPAPPR(variant="random", max_support=0)._training(4)

    with pytest.raises(InputError, match="support"):
        mechanism.check(None, TopRows(tensor([0, 1]), tensor([[5], [5]]), tensor([[1.0], [1.0]])))


def test_raw_predictions_are_declared_and_the_other_inference_needs_no_such_note() -> None:
    assert any(note.code.value == "raw-predictions" for note in fit().plan.unprotected)
    assert not any(note.code.value == "raw-predictions" for note in fit(inference="own").plan.unprotected)


def test_sums_over_neighbors_are_refused_for_this_unit() -> None:
    with pytest.raises(UnprovenError, match="node-with-edges"):
        hg.GAP().fit(random_graph(0), NodeWithEdges(), BUDGET, ledger=Ledger())


def test_without_protection_it_learns_from_exact_rows() -> None:
    model = DPAPPR(variant="gm", top=2, epochs=5).fit(
        random_graph(0), NodeWithEdges(), hg.Budget(math.inf), ledger=Ledger(), seed=1
    )
    assert model.plan.epsilon == math.inf
