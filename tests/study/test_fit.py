"""The default experiment and private selection on small graphs; what a charged study writes in the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.errors import InputError, UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.study.cell import code_version
from hushgraph.study.cost import cost_of
from hushgraph.study.results import Results
from hushgraph.study.run import study
from hushgraph.study.spec import Study
from hushgraph.study.store import Store

SMALL: dict[str, Any] = {
    "privacy": "research",
    "datasets": [{"load": "campus", "options": {"num_nodes": 300}}],
    "methods": [{"method": "gap", "set": {"epochs": 2, "hidden": 4}}],
    "units": ["undirected-edge"],
    "epsilons": [4],
    "deltas": [1e-4],
}


def run(tmp_path: Path, **values: Any) -> Results:
    found = study({**SMALL, **values}, store=tmp_path / "s.sqlite", workers=0)
    assert found.counts == {"done": len(found.study.cells)}, [one.message for _, one in found.by_cell if one]
    return found


def test_a_fit_is_measured_attacked_and_audited(tmp_path: Path) -> None:
    found = run(tmp_path, attacks=["similarity"], audit={"canaries": 200}, paper_mode=[False, True])
    plain, paper = (row.metrics for row in found.rows)
    for name in ("test_accuracy", "val_balanced_accuracy", "test_micro_f1", "test_auc", "similarity_auc"):
        assert plain[name] is not None
    assert plain["audit_contradicted"] == 0.0
    assert plain["proved_epsilon"] == pytest.approx(4.0, abs=1e-3)
    assert paper["claimed_epsilon"] == pytest.approx(4.0, abs=1e-3)
    assert paper["proved_epsilon"] == plain["proved_epsilon"]


def test_seeds_splits_shares_and_inductive_cells_differ_and_repeat(tmp_path: Path) -> None:
    axes = {"seeds": 2, "split_seeds": 2, "splits": ["random"], "label_shares": [0.2, 0.7]}
    found = run(tmp_path, **axes, inference=["transductive", "inductive"])
    values = [row.metrics["test_auc"] for row in found.rows]
    assert len(set(values)) > 8
    again = study({**SMALL, **axes, "inference": ["transductive", "inductive"]}, store=tmp_path / "t", workers=0)
    assert [row.metrics["test_auc"] for row in again.rows] == values


def test_a_label_share_beyond_the_split_is_refused(tmp_path: Path) -> None:
    found = study({**SMALL, "label_shares": [0.9]}, store=tmp_path / "s.sqlite", workers=0)
    assert found.counts == {"refused": 1}


def test_selection_is_an_experiment_that_hides_its_time_where_it_is_charged(tmp_path: Path) -> None:
    values = {"experiment": "select", "settings": {"over": {"hops": [1, 2]}, "mean": 2.0}}
    found = run(tmp_path, **values, privacy="charged", ledger=str(tmp_path / "ledger"))
    ((_, result),) = found.by_cell
    assert result is not None
    assert result.seconds == 0.0
    assert result.facts["chosen"]["hops"] in (1, 2)
    assert result.facts["epsilon_of_one_run"] < 4.0
    cost = cost_of(found.study)
    assert cost.runs[0].epsilon == pytest.approx(result.facts["epsilon"])


def test_a_charged_study_is_entered_run_by_run_as_declared_together(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    found = run(tmp_path, privacy="charged", ledger=str(folder), seeds=3)
    (account,) = {(one.dataset, one.unit["name"]): one for one in Ledger(folder).accounts()}.values()
    total = Ledger(folder).total(account.dataset, hg.units.UndirectedEdge())
    (together,) = cost_of(found.study).together
    assert total.runs == together.runs == 3
    assert total.kind.value == "declared together"
    assert total.epsilon == pytest.approx(together.epsilon)
    assert total.private
    run(tmp_path, privacy="charged", ledger=str(folder), seeds=3)
    more = run(tmp_path, privacy="charged", ledger=str(folder), seeds=4)
    assert more.counts == {"done": 4}
    later = Ledger(folder).total(account.dataset, hg.units.UndirectedEdge())
    assert (later.runs, later.groups, later.kind.value) == (4, 2, "basic composition")
    assert later.epsilon == pytest.approx(total.epsilon + 4.0, rel=1e-3)


def test_a_run_that_was_begun_before_is_charged_apart(tmp_path: Path) -> None:
    """A number of runs that grew after a crash was not fixed beforehand."""
    values = {**SMALL, "privacy": "charged", "ledger": str(tmp_path / "ledger"), "seeds": 2}
    declared, store = Study.from_dict(values), Store(tmp_path / "s.sqlite")
    store.begin(declared.cells[0].key(code_version()))
    study(values, store=store.path, workers=0)
    history = Ledger(tmp_path / "ledger").history()
    groups = [history.opened(one)["group"] for one in history.runs()]
    assert sorted(groups, key=str) == [None, f"{declared.group} undirected-edge 0.0001"]


def test_research_touches_no_ledger_that_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHGRAPH_LEDGER", str(tmp_path / "mine"))
    run(tmp_path, attacks=["similarity"])
    assert not (tmp_path / "mine").exists()


def test_what_a_charged_study_may_not_do_is_refused_before_it_runs(tmp_path: Path) -> None:
    silent = {"privacy": "charged", "experiment": "toy_experiments:noisy"}
    with pytest.raises(InputError, match="state their cost"):
        study(silent, store=tmp_path / "s.sqlite", workers=0)
    choice = {"choose": {"by": "val_accuracy", "over": ["hops"]}, "settings": {"hops": [1, 2]}}
    node = {**SMALL, **choice, "privacy": "charged", "units": ["node"]}
    with pytest.raises(UnprovenError, match="experiment: select"):
        study(node, store=tmp_path / "s.sqlite", workers=0)
    assert Store(tmp_path / "s.sqlite").begun() == {}


def test_costs_of_runs_refusals_and_the_choice() -> None:
    values = {**SMALL, "epsilons": [1, "inf"], "settings": {"hops": [1, 2]}, "seeds": 2}
    cost = cost_of(Study.from_dict({**values, "choose": {"over": ["hops"]}}))
    assert [(one.count, round(one.epsilon, 3)) for one in cost.runs if one.epsilon < 10] == [(2, 1.0), (2, 1.0)]
    (together,) = cost.together
    assert (together.runs, together.open_runs) == (4, 4)
    (tuning,) = cost.tuning
    assert (tuning.settings, tuning.runs, tuning.free_scores) == (2, 4, True)
    assert tuning.one < tuning.all < 4 * tuning.one
    refused = cost_of(Study.from_dict({**SMALL, "methods": ["mlp"], "units": ["node"]}))
    assert "no privacy proof" in refused.runs[0].refused


def test_the_price_of_an_inductive_run_is_what_both_halves_are_charged(tmp_path: Path) -> None:
    found = run(tmp_path, inference=["inductive"], privacy="charged", ledger=str(tmp_path / "ledger"))
    first, second = cost_of(found.study).runs
    assert (first.is_known, second.is_known) == (True, True)
    assert second.label == f"{first.label}-inference"
    (account,) = Ledger(tmp_path / "ledger").accounts()
    total = Ledger(tmp_path / "ledger").total(account.dataset, hg.units.UndirectedEdge())
    assert (account.dataset, total.runs) == ("campus", 2)
    assert first.epsilon < total.epsilon <= first.epsilon + second.epsilon


def test_an_experiment_that_names_no_price_is_not_called_refused() -> None:
    declared = Study.from_dict({"privacy": "research", "experiment": "toy_experiments:noisy", "seeds": 2})
    (kind,) = cost_of(declared).runs
    assert (kind.count, kind.is_known, kind.refused) == (2, False, "")
    assert kind.price == "not known: the experiment does not say what it releases"


def test_plans_made_in_other_processes_are_the_same() -> None:
    declared = Study.from_dict({**SMALL, "epsilons": [1, 2], "methods": ["gap", "mlp"]})
    told: list[tuple[int, int]] = []
    assert cost_of(declared, lambda *how_far: told.append(how_far), workers=2) == cost_of(declared)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_package_is_callable(tmp_path: Path) -> None:
    found = hg.study(SMALL, store=tmp_path / "s.sqlite", workers=0)
    assert found.table().column_keys == ("gap",)
