"""What users ask `fit` for, in the forms they ask in, and what they are told where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hushgraph as hg
from hushgraph.errors import InputError, UnprovenError
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from small_graphs import random_graph, with_public_nodes

QUICK = hg.GAP(hidden_channels=4, epochs=2)
SIZES = Metadata(1_000, 750, 100, 150, 16, 4)
BUDGET, SMALL = hg.Budget(4.0, 1e-4), hg.Budget(4.0, 1e-6)


@pytest.mark.parametrize("unit", ["undirected-edge", hg.units.UndirectedEdge, hg.units.UndirectedEdge()])
@pytest.mark.parametrize("budget", [4, 4.0, (4, 1e-3), hg.Budget(4.0)])
def test_units_and_budgets_are_taken_in_the_forms_people_write(unit: object, budget: object) -> None:
    model = QUICK.fit(random_graph(1), unit, budget, seed=1)  # type: ignore[arg-type]
    assert model.unit == hg.units.UndirectedEdge()
    assert model.certificate.epsilon <= 4.0
    assert model.certificate.delta == (1e-3 if isinstance(budget, tuple) else 1e-4)


def test_what_is_no_unit_and_no_budget_is_said() -> None:
    with pytest.raises(InputError, match=r"unit: expected a unit such as .*; got 4"):
        QUICK.fit(random_graph(1), 4, BUDGET)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="did you mean 'undirected-edge'"):
        QUICK.fit(random_graph(1), "undirected-edges", BUDGET)
    with pytest.raises(InputError, match=r"budget: expected a Budget\(epsilon, delta\), 4.0 or .*; got none"):
        QUICK.fit(random_graph(1))
    with pytest.raises(InputError, match=r"got \[4\]"):
        QUICK.fit(random_graph(1), None, [4])  # type: ignore[arg-type]


def test_paper_mode_states_the_unit_of_publications_where_none_is_named() -> None:
    model = QUICK.fit(random_graph(1), None, BUDGET, paper_mode=True, seed=1)
    paper = model.certificate.paper
    assert paper is not None
    assert paper.unit == hg.units.DirectedEdge()
    assert paper.epsilon <= 4.0 < model.certificate.epsilon
    assert model.certificate.unit == hg.units.UndirectedEdge()


def test_a_refusal_names_units_and_methods_that_work() -> None:
    with pytest.raises(UnprovenError, match=r"dp-gnn is proved for: node, node-replace\. Proved for 'undirected-edge'"):
        hg.DPGNN().plan(SIZES, hg.units.UndirectedEdge(), SMALL)
    with pytest.raises(UnprovenError, match="sage runs with epsilon=inf only") as caught:
        hg.GraphSAGE().plan(SIZES, hg.units.UndirectedEdge(), SMALL)
    named = str(caught.value).partition("Proved for 'undirected-edge': ")[2].split(", ")
    assert {"auto", "chorus", "gap", "progap", "mlp"} <= set(named)
    assert "dp-mlp" not in str(caught.value)
    with pytest.raises(InputError, match="--set low=0 --set high=1"):
        hg.LPGNN().plan(SIZES, hg.units.Local(), SMALL)


def test_a_cap_on_lists_is_noted_only_where_lists_are_read() -> None:
    def codes(method: hg.Method) -> set[Code]:
        return {note.code for note in method.plan(SIZES, hg.units.Node(), SMALL).public}

    assert Code.DEGREE_CAP in codes(hg.GAP())
    assert Code.DEGREE_CAP not in codes(hg.DPMLP())


def test_a_model_of_an_absent_package_says_what_to_install(tmp_path: Path) -> None:
    folder = QUICK.fit(random_graph(1), None, BUDGET, seed=1, ledger=hg.Ledger.in_memory(warn=False)).save(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "method": "noisy-sgc"}))
    (folder / "manifest.json").unlink()  # as if another package had written the folder
    with pytest.raises(InputError, match=r"the method 'noisy-sgc' of this model is not known here.*install"):
        hg.load(folder)


def test_what_a_method_needs_is_said_before_a_run_is_entered(tmp_path: Path) -> None:
    ledger = hg.Ledger(tmp_path / "ledger")
    with pytest.raises(InputError, match=r"(?s)public_mask.*learner=gnn"):
        hg.PATE().fit(random_graph(1), hg.units.Node(5), hg.Budget(4.0, 1e-3), ledger=ledger)
    assert not ledger.exists


def test_a_run_that_is_refused_on_the_way_costs_what_it_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teachers for pictures have nothing to do on a graph: nothing was charged, and nothing stays counted."""
    monkeypatch.setattr(hg.PATE, "require", lambda self, metadata: None)
    ledger, graph = hg.Ledger(tmp_path / "ledger"), with_public_nodes(random_graph(1))
    with pytest.raises(InputError, match="pictures"):
        hg.PATE(teachers=2, queries=2).fit(graph, hg.units.Node(5), hg.Budget(4.0, 1e-3), ledger=ledger)
    kinds = [entry.kind for entry in ledger.history().entries]
    assert "close" in kinds
    assert "charge" not in kinds
    opened = next(entry for entry in ledger.history().entries if entry.kind == "open")
    assert ledger.total(opened.values["dataset"], hg.units.Node(5)).epsilon == 0.0
