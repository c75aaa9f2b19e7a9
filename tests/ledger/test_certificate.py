from __future__ import annotations

import json
import math

import pytest

from hushgraph.errors import LedgerError
from hushgraph.ledger.certificate import Certificate, certify
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.occasion import Occasion
from hushgraph.methods import auto, auto_rule
from hushgraph.methods.gap import GAP
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from small_graphs import random_graph

QUICK = GAP(hidden=4, epochs=2, batch_size=8)


def test_the_certificate_comes_from_the_ledger_alone() -> None:
    ledger = Ledger()
    model = QUICK.fit(random_graph(1), units.UndirectedEdge(), Budget(2.0, 1e-3), ledger=ledger)
    history = ledger.history()
    assert certify(history, history.runs()[0]) == model.certificate


def test_it_says_all_that_an_officer_needs() -> None:
    model = QUICK.fit(random_graph(1), units.Node(max_degree=5), Budget(2.0, 1e-3))
    text = str(model.certificate)
    for word in ("unit", "becomes null", "epsilon", "released", "aggregation: 2 x aggregate", "taken as public"):
        assert word in text
    for word in ("not protected", "operating-system entropy", "max_degree = 5", "dp_accounting", "ledger"):
        assert word in text


def test_it_survives_json_even_with_infinite_epsilon() -> None:
    for epsilon in (2.0, math.inf):
        certificate = QUICK.fit(random_graph(1), None, Budget(epsilon, 1e-3), seed=0).certificate
        assert Certificate.from_dict(json.loads(json.dumps(certificate.as_dict(), allow_nan=False))) == certificate


def test_paper_mode_shows_the_claim_beside_the_proof() -> None:
    certificate = QUICK.fit(random_graph(1), units.DirectedEdge(), Budget(1.0, 1e-3), paper_mode=True).certificate
    assert certificate.claimed is not None
    assert certificate.claimed["epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert certificate.unit["name"] == "undirected-edge"
    assert certificate.epsilon > 1.3


def test_smaller_deltas_cost_more() -> None:
    certificate = QUICK.fit(random_graph(1), None, Budget(1.0, 1e-3)).certificate
    values = [certificate.epsilon, *certificate.epsilon_at.values()]
    assert len(values) == 5
    assert values == sorted(values)


def test_it_says_what_all_runs_add_up_to_and_how_that_is_proved() -> None:
    ledger = Ledger().on(Occasion(operator="ann", purpose="a trial"))
    fitted = [QUICK.fit(random_graph(1), units.UndirectedEdge(), Budget(1.0, 1e-3), ledger=ledger) for _ in range(2)]
    certificate = fitted[1].certificate
    assert certificate.dataset_epsilon == pytest.approx(2.0, abs=1e-3)
    assert certificate.dataset_delta == pytest.approx(2e-3)
    assert (certificate.dataset_kind, certificate.dataset_private) == ("basic composition", True)
    assert (certificate.operator, certificate.purpose, certificate.ledger_in_memory) == ("ann", "a trial", True)
    text = str(certificate)
    for words in ("over 2 run(s) (basic composition); no limit declared", "ann: a trial", "IN MEMORY"):
        assert words in text
    seeded = QUICK.fit(random_graph(1), units.UndirectedEdge(), Budget(1.0, 1e-3), ledger=ledger, seed=0).certificate
    assert "dataset total   NOT PRIVATE over 3 run(s)" in str(seeded)
    ledger.set_limit(9.0, 1e-2, dataset="limited", unit=units.UndirectedEdge())
    graph = random_graph(1)
    graph.name = "limited"
    limited = QUICK.fit(graph, units.UndirectedEdge(), Budget(1.0, 1e-3), ledger=ledger).certificate
    assert (limited.dataset_kind, limited.dataset_epsilon) == ("filter", 9.0)
    assert limited.dataset_used < 1.0
    assert "used, at most 9 at delta 0.01 over 1 run(s) (filter); limit 9" in str(limited)


def test_a_certificate_of_an_earlier_version_is_read() -> None:
    values = QUICK.fit(random_graph(1), None, Budget(1.0, 1e-3)).certificate.as_dict()
    later = ("dataset_delta", "dataset_kind", "dataset_private", "dataset_used", "operator", "purpose")
    for name in (*later, "unpublished", "ledger_in_memory"):
        values.pop(name)
    assert Certificate.from_dict(values).operator == ""


def test_an_unknown_run_is_an_error() -> None:
    ledger = Ledger()
    QUICK.fit(random_graph(1), None, Budget(1.0, 1e-3), ledger=ledger)
    with pytest.raises(LedgerError, match="no run"):
        certify(ledger.history(), "nobody")


def test_a_count_and_the_choice_made_from_it_are_on_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_rule, "needed_degree", lambda facts, budget: 6.0)
    ledger = Ledger()
    model = auto.Auto().fit(random_graph(1), units.Node(max_degree=5), Budget(4.0, 1e-3), ledger=ledger)
    certificate = model.certificate
    assert certify(ledger.history(), certificate.run) == certificate
    assert certificate.method == "auto"
    assert certificate.accountant.startswith("sum of pure epsilons + PLD; the costliest of 2 options")
    assert certificate.mu is None
    assert certificate.noise_source.endswith("counts: whole numbers, sampled exactly")
    text = str(certificate)
    for words in (
        "count of edges: 1 x noisy count, whole-number noise",
        "sensitivity 100, pure epsilon",
        f"the choice that follows, at no further cost: {model.method.name}: 20 train nodes of 40",
        "the rule that chooses chorus or dp-mlp",
        "the set of 40 nodes",
    ):
        assert words in text
    deltas = [certificate.epsilon, *certificate.epsilon_at.values()]
    assert deltas == sorted(deltas)
    assert Certificate.from_dict(json.loads(json.dumps(certificate.as_dict()))) == certificate
