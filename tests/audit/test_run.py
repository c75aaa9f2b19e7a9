from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hushgraph as hg
from hushgraph import datasets
from hushgraph.audit import audit_plan, audit_run
from hushgraph.audit.bounds import gaussian_bound
from hushgraph.audit.canaries import observe, plant
from hushgraph.audit.run import require_consistent
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import AuditContradiction
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods import auto, auto_rule
from hushgraph.methods.gap import GAP
from hushgraph.methods.mlp import MLP
from hushgraph.methods.saving import save_model
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import AggregationStage, Plan, Stage
from hushgraph.privacy.units import DirectedEdge, Node, UndirectedEdge, Unit
from small_graphs import random_graph


def trained(folder: Path, unit: object, paper_mode: bool = False) -> Path:
    data = datasets.load("campus", num_nodes=400)
    method = GAP(epochs=1)
    model = method.fit(data, unit, hg.Budget(1.0, 1e-5), paper_mode=paper_mode, ledger=Ledger(folder / "ledger"))
    return save_model(model, folder / "run")


def test_a_run_is_audited_without_touching_its_ledger(tmp_path: Path) -> None:
    folder = trained(tmp_path, UndirectedEdge())
    before = (tmp_path / "ledger" / "ledger.db").read_bytes()
    found = audit_run(folder, canaries=4000, seed=1)
    assert found.verdict == "consistent"
    assert 0.5 < found.lower_bound < found.claimed
    assert (tmp_path / "ledger" / "ledger.db").read_bytes() == before
    assert "not charged" in found.as_dict()["ran_on"]
    json.dumps(found.as_dict(), allow_nan=False)
    require_consistent(found)


def test_a_paper_mode_run_is_contradicted(tmp_path: Path) -> None:
    found = audit_run(trained(tmp_path, DirectedEdge(), paper_mode=True), canaries=10_000, seed=1)
    assert found.claimed == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(AuditContradiction, match="CONTRADICTED") as error:
        require_consistent(found)
    assert error.value.exit_code == 4


def test_a_certificate_that_claims_less_than_its_noise_gives_is_contradicted(tmp_path: Path) -> None:
    folder = trained(tmp_path, UndirectedEdge())
    certificate = json.loads((folder / "certificate.json").read_text())
    certificate["epsilon"] = 0.2
    (folder / "certificate.json").write_text(json.dumps(certificate))
    found = audit_run(folder, canaries=1000, seed=1)
    assert found.verdict == "contradicted"
    assert any("noise on record" in finding.name for finding in found.findings)


def test_node_level_runs_are_audited_stage_by_stage(tmp_path: Path) -> None:
    found = audit_run(trained(tmp_path, Node(max_degree=10)), canaries=1000, seed=2)
    names = {finding.name for finding in found.findings}
    assert found.findings[0].name == "all stages together"
    assert names == {
        "all stages together",
        "node canaries in noisy sums",
        "gradient canaries in 'encoder'",
        "gradient canaries in 'classifier'",
    }
    assert found.verdict == "consistent"
    assert all(finding.claimed <= found.claimed for finding in found.findings)
    assert 0.5 * found.claimed < found.lower_bound < found.claimed


def test_a_model_that_reads_no_edges_has_nothing_to_audit() -> None:
    data = datasets.load("campus", num_nodes=300)
    model = MLP(epochs=1).fit(data, UndirectedEdge(), hg.Budget(1.0, 1e-5))
    found = audit_run(model)
    assert found.verdict == "nothing to audit"
    assert "never reads" in found.sentence()


class NewStage(Stage):
    """A release that nobody has written canaries for."""

    mechanism = "new"  # type: ignore[assignment]

    def sensitivity(self, unit: Unit) -> float:
        return 1.0


def test_a_count_is_named_and_what_was_chosen_is_audited_within_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_rule, "needed_degree", lambda facts, budget: 6.0)
    model = auto.Auto().fit(random_graph(1), Node(max_degree=5), hg.Budget(4.0, 1e-3), seed=0)
    result = audit_run(model, canaries=200, seed=1)
    assert result.verdict == "consistent"
    assert result.claimed == pytest.approx(model.settings["planned_within"])
    assert result.claimed < 4.0
    assert any("'count of edges' has no canaries" in line for line in result.skipped)


def test_a_stage_without_canaries_is_named_and_not_passed_over() -> None:
    unit = UndirectedEdge()
    stages = (AggregationStage("sums", 1, 4.0), NewStage("mystery", 1, 4.0))
    found = audit_plan(Plan("test", unit, hg.Budget(9.0, 1e-5), stages, unit), canaries=1000, seed=0)
    assert found.skipped == ("no canaries are known for the stage 'mystery'",)
    assert "NOT AUDITED: no canaries are known for the stage 'mystery'" in found.sentence()
    alone = audit_plan(Plan("test", unit, hg.Budget(9.0, 1e-5), stages[1:], unit), canaries=1000, seed=0)
    assert alone.verdict == "nothing to audit"


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.75), (4.0, 3.5), (8.0, 7.0)])
def test_ten_thousand_edge_canaries_come_close_and_rarely_exceed_the_truth(epsilon: float, least: float) -> None:
    plan = GAP(hops=1).plan(PublicFacts(20_000, 1_000_000, 15_000), UndirectedEdge(), hg.Budget(epsilon, 1e-7))
    bounds = []
    for seed in range(40):
        planted = plant(plan.charged_unit, 10_000, np.random.default_rng(seed))
        scores = observe(plan, planted, NoiseSource.seeded(seed))
        bounds.append(gaussian_bound(scores, planted.planted, 1e-7))
    assert np.median(bounds) >= least
    assert np.mean(np.array(bounds) >= least) >= 0.9
    assert sum(bound > epsilon for bound in bounds) <= 7  # Binomial(40, 0.05) exceeds 7 with probability 1e-3
