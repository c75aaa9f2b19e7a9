from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import tensor

import hushgraph as hg
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.pagerank import TopRows
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.dpappr import DPAPPR, VARIANTS
from hushgraph.methods.dpappr_paper import network_scale, picks_cost, row_scales
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.metadata import Metadata
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
    exact = fit(variant="dpsgd", rows=6).plan["network"].mechanism
    assert exact.touched(NodeWithEdges()) == (6, 5)
    assert exact.touched(hg.units.UndirectedEdge()) == (6, 6)


def test_rows_take_their_share_of_epsilon_alone() -> None:
    for variant in ("gm", "em-v0", "em-v1", "em-v1-gaussian"):
        plan = fit(variant=variant, pagerank_share=0.25).plan
        rows = [stage.event(plan.unit) for stage in plan.stages if stage.name != "network"]
        spent = PrivacyLoss(events.composed(rows), plan.unit.relation).epsilon(0.5 * BUDGET.delta)
        assert spent == pytest.approx(1.0, rel=2e-3)


def test_rows_over_the_cap_are_refused_before_anything_is_charged() -> None:
    mechanism = DPAPPR(variant="random").training(Metadata(40, 30, 0, 10, 4, 3), 0)
    with pytest.raises(InputError, match="support"):
        mechanism.check(None, TopRows(tensor([0, 1]), tensor([[5], [5]]), tensor([[1.0], [1.0]])))


def test_a_cut_graph_names_its_own_nodes_only() -> None:
    for variant in ("gm", "em-v0", "em-v1", "dpsgd"):
        model = fit(variant=variant, sample=0.5, rows=5)
        for released in (model.released.get("rows", []), model.released.get("picks", [])):
            for rows in released:
                assert rows.sources.numel() == 5
                assert torch.isin(rows.columns, model.nodes["train"]).all()
                assert torch.unique(torch.cat([rows.columns.flatten(), rows.sources])).numel() <= 15


def test_nodes_without_a_row_are_examples_of_their_own_features() -> None:
    plain, filled = (fit(variant="em-v0", rows=5, fill=fill) for fill in (False, True))
    assert plain.plan["picks"] == filled.plan["picks"]
    assert plain.plan["network"].mechanism.sample_rate == 1.0  # batches of 8 from 5 rows
    assert filled.plan["network"].mechanism.sample_rate == pytest.approx(8 / len(filled.nodes["train"]))
    with pytest.raises(InputError, match="fill"):
        fit(variant="dpsgd", rows=5, fill=True)


def test_another_graph_costs_nothing_more() -> None:
    model = fit()
    assert model.predict_on(random_graph(5), BUDGET, ledger=Ledger(), seed=2).plan.stages == ()


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


# Paper mode

CORA = Metadata(2995, 2396, 0, 599, 2879, 7)
AS_PUBLISHED = {"rows": 70, "sample": 0.09, "epochs": 200, "batch_size": 60, "lr": 0.005, "pagerank_share": 0.5}


def test_the_noise_is_that_of_the_publication() -> None:
    """Theorem 6 for 70 rows: epsilon 4 of 70 rows at delta 1e-3, by hand."""
    (rows,) = row_scales(DPAPPR(variant="gm", **AS_PUBLISHED), CORA, 4.0, 1e-3)
    each = 4.0 / (2.0 * math.sqrt(70.0 * math.log(math.e + 4.0 / 1e-3)))
    assert rows.scale == pytest.approx(math.sqrt(2.0 * math.log(1.25 * 140 / 1e-3)) * 0.01 / each)
    picks, values = row_scales(DPAPPR(variant="em-v1", **AS_PUBLISHED), CORA, 4.0, 1e-3)
    assert picks_cost(1.0 / picks.scale, 4, 1e-3 / 140) == pytest.approx(each / 2.0)
    assert values.scale / values.mechanism.steps == pytest.approx(4.0 / (each / 2.0))
    assert network_scale(DPAPPR(variant="dpsgd", **AS_PUBLISHED), CORA, 4.0, 1e-3) == pytest.approx(
        60.0 * network_scale(DPAPPR(variant="features", **AS_PUBLISHED), CORA, 4.0, 1e-3)
    )


def test_six_times_less_noise_a_row_than_the_publication_for_the_same_proof() -> None:
    method = DPAPPR(variant="gm", **AS_PUBLISHED)
    (theirs,) = row_scales(method, CORA, 4.0, 1e-3)
    ours = method._within_share(method.row_stages(CORA), NodeWithEdges(), hg.Budget(8.0, 2e-3))[0]
    assert 5.5 < theirs.scale / ours.scale < 7.0


def test_the_layout_of_the_reference_code_draws_batches_from_all_sampled_nodes() -> None:
    """Then the rate that the publication states is the real one, and `features` keeps to its claim."""
    method = DPAPPR(variant="features", rows=8, epochs=2, batch_size=4)
    budget, metadata = hg.Budget(4.0, 1e-2), Metadata(40, 30, 0, 10, 4, 3)
    published, reference = (
        replace(method, fill=fill).plan(metadata, NodeWithEdges(), budget, paper_mode=True) for fill in (False, True)
    )
    assert published.epsilon > 4.0
    assert reference["network"].mechanism.sample_rate == pytest.approx(4 / 30)
    assert reference.epsilon <= 4.0


def test_paper_mode_shows_its_claim_and_says_that_delta_is_large() -> None:
    graph = random_graph(0)
    method = DPAPPR(variant="features", rows=8, sample=0.5, epochs=2, batch_size=4)
    model = method.fit(graph, NodeWithEdges(), hg.Budget(4.0, 0.1), ledger=Ledger(), seed=1, paper_mode=True)
    assert model.certificate.paper.epsilon == 4.0
    assert model.certificate.epsilon > 4.0
    assert "large-delta" in [note.code.value for note in model.plan.unprotected]
    assert "above 1/40" in str(model)
    with pytest.raises(InputError, match="delta"):
        method.fit(graph, NodeWithEdges(), hg.Budget(4.0, 0.1), ledger=Ledger())
