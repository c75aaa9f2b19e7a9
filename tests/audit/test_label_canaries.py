from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import hushgraph as hg
from hushgraph import datasets
from hushgraph.audit import audit_plan, audit_run
from hushgraph.audit.bounds import gaussian_bound
from hushgraph.audit.label_canaries import costliest_kinds, observe_labels, plant_labels
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError
from hushgraph.graph.edges import InNeighbors
from hushgraph.mechanisms import label_sum
from hushgraph.methods.auto import Auto
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.saving import save_model
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.label_sum import LabelSumStage
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import DirectedEdge, Node, NodePromise, NodeReplace, UndirectedEdge, Unit

FACTS = PublicFacts(20_000, 1_000_000, 15_000)
LOUD_LABELS = {"quiet": 0.5, "labeled_noise": math.sqrt(1.75)}


def plan_of(unit: Unit, count: int, multiplier: float, **shape: object) -> Plan:
    stage = LabelSumStage("label sums", count, 0.0, **shape)  # type: ignore[arg-type]
    stage = replace(stage, std=multiplier * stage.sensitivity(unit))
    return Plan("test", unit, hg.Budget(50.0, 1e-6), (stage,), unit)


@pytest.mark.parametrize(
    ("unit", "count", "shape"),
    [
        (UndirectedEdge(), 1, LOUD_LABELS),
        (UndirectedEdge(), 3, LOUD_LABELS),
        (UndirectedEdge(), 2, {"quiet": 0.9, "labeled_noise": 2.0}),
        (UndirectedEdge(), 2, {"quiet": 1.0, "labeled_noise": 3.0}),
        (DirectedEdge(), 2, {}),
        (DirectedEdge(), 1, {"quiet": 0.5, "labeled_noise": 1.5}),
        (Node(max_degree=5), 2, {"shared": True}),
        (Node(max_degree=5), 1, {}),
        (NodeReplace(max_degree=5), 2, {"shared": True}),
        (NodePromise(max_degree=5), 2, {}),
    ],
)
def test_canaries_reach_the_separation_that_the_accounting_allows(
    unit: Unit, count: int, shape: dict[str, object]
) -> None:
    plan = plan_of(unit, count, 2.0, **shape)
    planted = plant_labels(plan, 4000, np.random.default_rng(0))
    scores = observe_labels(plan, planted, NoiseSource.seeded(0))
    # Means of 2,000 unit normals: 5 standard errors, off once in a million.
    assert scores[planted.planted].mean() == pytest.approx(0.5 * math.sqrt(count), abs=0.12)
    assert scores[~planted.planted].mean() == pytest.approx(0.0, abs=0.12)
    assert scores[~planted.planted].std() == pytest.approx(1.0, abs=0.08)


def test_edges_are_planted_between_the_kinds_of_node_that_cost_most() -> None:
    def kinds(unit: Unit, **shape: float) -> set[tuple[bool, bool]]:
        return set(costliest_kinds(unit, [LabelSumStage("sums", 1, 1.0, **shape)]))  # type: ignore[arg-type]

    one_labeled = {(True, False), (False, True)}
    assert kinds(UndirectedEdge(), **LOUD_LABELS) == {(True, True), *one_labeled}
    assert kinds(UndirectedEdge(), quiet=0.5, labeled_noise=2.0) == one_labeled
    assert kinds(UndirectedEdge(), quiet=0.5) == {(True, True)}
    assert kinds(UndirectedEdge(), quiet=1.0, labeled_noise=3.0) == {(False, False)}
    assert len(kinds(UndirectedEdge())) == len(kinds(DirectedEdge())) == 4
    assert kinds(DirectedEdge(), **LOUD_LABELS) == {(True, False)}


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.7), (4.0, 3.6), (8.0, 7.5)])
@pytest.mark.parametrize("stages", [1, 2])
def test_ten_thousand_friendships_come_close_to_the_truth(epsilon: float, least: float, stages: int) -> None:
    # The smallest of 40 measured bounds were 0.74, 3.69 and 7.60, the medians 0.88, 3.84 and 7.77.
    plan = Chorus(num_stages=stages).plan(FACTS, UndirectedEdge(), hg.Budget(epsilon, 1e-7))
    bounds = []
    for seed in range(6):
        planted = plant_labels(plan, 10_000, np.random.default_rng(seed))
        scores = observe_labels(plan, planted, NoiseSource.seeded(seed))
        bounds.append(gaussian_bound(scores, planted.planted, 1e-7))
    assert min(bounds) >= least
    assert sum(bound > epsilon for bound in bounds) <= 3  # Binomial(6, 0.05) exceeds 3 with probability 1e-4


@pytest.mark.parametrize("unit", [UndirectedEdge(), Node(), NodeReplace()])
def test_half_the_noise_is_caught(unit: Unit, half_noise: Callable[[int], NoiseSource]) -> None:
    plan = plan_of(unit, 2, 4.0, shared=isinstance(unit, Node))
    assert audit_plan(plan, canaries=4000, seed=0).verdict == "consistent"
    found = audit_plan(plan, canaries=4000, seed=0, noise=half_noise(0))
    assert found.verdict == "contradicted"
    assert found.lower_bound > 1.4 * found.claimed


def test_directed_accounting_on_a_symmetric_graph_is_caught() -> None:
    plan = Chorus().plan(FACTS, DirectedEdge(), hg.Budget(1.0, 1e-7), paper_mode=True)
    found = audit_plan(plan, canaries=10_000, seed=0)
    assert found.verdict == "contradicted"
    assert found.planted_unit == "undirected-edge"
    assert 1.0 < found.lower_bound <= plan.provable_epsilon * 1.1


def test_equal_noise_for_labeled_nodes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Chorus().plan(FACTS, UndirectedEdge(), hg.Budget(4.0, 1e-7))
    assert audit_plan(plan, seed=0).verdict == "consistent"
    monkeypatch.setattr(label_sum, "relative_noise", lambda labeled, stage: torch.ones(len(labeled), 1))
    assert audit_plan(plan, seed=0).verdict == "contradicted"


@pytest.mark.parametrize(
    ("unit", "forgotten"),
    [(UndirectedEdge(), {"quiet": 1.0}), (Node(), {"shared": False})],
    ids=["loud guesses", "messages that are not shared"],
)
def test_messages_louder_than_planned_are_caught(
    monkeypatch: pytest.MonkeyPatch, unit: Unit, forgotten: dict[str, object]
) -> None:
    right: Callable[..., Tensor] = label_sum.label_messages

    def louder(edges: InNeighbors, rows: Tensor, labeled: Tensor, stage: LabelSumStage) -> Tensor:
        return right(edges, rows, labeled, replace(stage, **forgotten))  # type: ignore[arg-type]

    shape = {"shared": True} if isinstance(unit, Node) else LOUD_LABELS
    plan = plan_of(unit, 2, 1.0, **shape)
    assert audit_plan(plan, seed=0).verdict == "consistent"
    monkeypatch.setattr(label_sum, "label_messages", louder)
    assert audit_plan(plan, seed=0).verdict == "contradicted"


def test_a_chorus_model_is_audited(tmp_path: Path) -> None:
    data = datasets.load("campus", num_nodes=300)
    model = Chorus(epochs=1, members=1).fit(data, UndirectedEdge(), hg.Budget(1.0, 1e-5))
    folder = save_model(model, tmp_path / "run")
    found = audit_run(folder, canaries=4000, seed=1)
    assert {finding.name for finding in found.findings} == {"edge canaries in sums of labels"}
    assert found.skipped == ()
    assert found.verdict == "consistent"
    assert 0.5 < found.lower_bound < found.claimed

    certificate = json.loads((folder / "certificate.json").read_text())
    certificate["epsilon"] = 0.2
    (folder / "certificate.json").write_text(json.dumps(certificate))
    found = audit_run(folder, canaries=400, seed=1)
    assert found.verdict == "contradicted"
    assert any("noise on record" in finding.name for finding in found.findings)


def test_a_node_level_chorus_model_is_audited_stage_by_stage() -> None:
    data = datasets.load("campus", num_nodes=300)
    found = audit_run(Chorus(epochs=1).fit(data, Node(), hg.Budget(4.0, 1e-5)), canaries=1000, seed=1)
    assert found.findings[0].name == "all stages together"
    assert {finding.name for finding in found.findings} == {
        "all stages together",
        "node canaries in sums of labels",
        "gradient canaries in 'stage_1'",
    }
    assert found.verdict == "consistent"
    assert 0.6 * found.claimed < found.lower_bound < found.claimed


@pytest.mark.slow
@pytest.mark.parametrize("informative", [True, False])
def test_the_default_model_is_audited_where_it_reads_the_sums(informative: bool) -> None:
    data = datasets.load("campus", num_nodes=300)
    if not informative:
        pairs = torch.randint(0, 300, (2, 200), generator=torch.Generator().manual_seed(0))
        data.edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    model = Auto().fit(data, UndirectedEdge(), hg.Budget(2.0 if informative else 0.1, 1e-5), seed=2)
    found = audit_run(model, canaries=2000, seed=1)
    assert model.method.name == ("chorus" if informative else "mlp")
    if informative:
        assert found.verdict == "consistent"
        assert found.findings[0].name == "edge canaries in sums of labels"
    else:
        assert found.verdict == "nothing to audit"
        assert found.claimed == pytest.approx(0.1, rel=1e-3)
        assert "does not read the stage 'label sums'" in found.sentence()


def test_too_few_canaries_are_refused() -> None:
    with pytest.raises(InputError, match="at least 4"):
        plant_labels(plan_of(UndirectedEdge(), 1, 2.0), 3, np.random.default_rng(0))
