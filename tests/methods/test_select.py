"""Private selection: all of it within the budget, one charge, and nothing of the runs that were not chosen."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.errors import InputError, UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.best_of import BestOf
from hushgraph.methods.select import fit_best, selection_plan
from hushgraph.privacy.metadata import Metadata

EDGE, NODE = hg.units.UndirectedEdge(), hg.units.Node(max_degree=5)
BUDGET = hg.Budget(6.0, 1e-4)
GAPS = [hg.GAP(hops=hops, epochs=1, hidden_channels=4) for hops in (1, 2)]


@pytest.mark.parametrize("unit", [EDGE, NODE])
def test_the_whole_selection_stays_within_its_budget_and_is_charged_once(unit: hg.Unit, graph: Data) -> None:
    ledger = Ledger()
    model = fit_best(GAPS, graph, unit, BUDGET, mean=3.0, ledger=ledger)
    certificate = model.certificate
    assert 0.9 * BUDGET.epsilon < certificate.epsilon <= BUDGET.epsilon
    assert certificate.method == "best-of"
    assert [charge.mechanism for charge in certificate.charges] == ["best-of"]
    assert model.plan.epsilon < certificate.epsilon == pytest.approx(model.get_epsilon(1e-4))
    history = ledger.history()
    assert [entry.values["stage"] for entry in history.of_run(certificate.run, "charge")] == ["selection"]
    assert history.is_closed(certificate.run)
    assert ("score" in model.released) == (unit is NODE)


def test_the_charge_is_written_before_the_first_run(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()

    def crash(*_: object, **__: object) -> None:
        (run,) = ledger.history().runs()
        assert len(ledger.history().of_run(run, "charge")) == 1
        raise RuntimeError("the power went")

    monkeypatch.setattr("hushgraph.methods.select._trial", crash)
    with pytest.raises(RuntimeError, match="power"):
        fit_best(GAPS, graph, EDGE, BUDGET, ledger=ledger)


def test_a_selected_model_is_saved_audited_and_reported(graph: Data, tmp_path: Path) -> None:
    model = fit_best(GAPS, graph, EDGE, BUDGET, mean=3.0, ledger=Ledger(), seed=1)
    read = hg.load(model.save(tmp_path / "model"))
    assert bool((read.predict(graph) == model.predict(graph)).all())
    assert read.get_epsilon(1e-4) == model.get_epsilon(1e-4)
    result = model.audit(canaries=200, seed=0)
    assert result.verdict.value == "consistent"
    assert [(one.reason.value, one.stage) for one in result.skipped] == [("no-canary", "selection")]
    page = model.report(tmp_path / "page.html").read_text()
    assert "a random number of runs" in page
    again = fit_best(GAPS, graph, EDGE, BUDGET, mean=3.0, ledger=Ledger(), seed=1)
    assert bool((again.predict(graph) == model.predict(graph)).all())


def test_the_best_score_wins(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many runs the candidate that cannot learn is hardly ever kept."""
    monkeypatch.setattr(BestOf, "draw_runs", lambda *_: 12)
    good, bad = hg.MLP(epochs=30), hg.MLP(epochs=1, lr=1e-9)
    graph.x[:, :3] = 4.0 * (graph.y[:, None] == graph.y.new_tensor([0, 1, 2]))
    model = fit_best([bad, good], graph, EDGE, BUDGET, ledger=Ledger(), seed=0)
    assert model.method == good
    assert model.certificate.epsilon == 0.0
    assert model.certificate.charges == ()


def test_what_cannot_be_selected_privately_is_refused(graph: Data) -> None:
    metadata = hg.GAP().fit(graph, EDGE, hg.Budget(math.inf), ledger=Ledger(), seed=0).metadata
    with pytest.raises(UnprovenError, match="raw neighborhoods"):
        selection_plan([hg.DPGNN()], metadata, NODE, BUDGET)
    with pytest.raises(UnprovenError, match="choice of its own"):
        selection_plan([hg.Auto()], Metadata(8_000, 6_000, 800, 1_200, 30, 6), hg.units.Node(), BUDGET)
    with pytest.raises(InputError, match="finite Budget"):
        fit_best(GAPS, graph, EDGE, hg.Budget(math.inf))
    with pytest.raises(InputError, match="at least one method"):
        selection_plan([], metadata, EDGE, BUDGET)


def test_a_selection_costs_less_than_publishing_as_many_runs(graph: Data) -> None:
    metadata = hg.GAP().fit(graph, EDGE, hg.Budget(math.inf), ledger=Ledger(), seed=0).metadata
    plan = selection_plan(GAPS, metadata, EDGE, BUDGET, mean=10.0)
    one = plan.mechanism("selection", BestOf).candidates[0]
    assert plan.epsilon < 3.0 * one.epsilon
