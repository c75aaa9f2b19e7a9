from __future__ import annotations

import json
import math

import pytest

from hushgraph.errors import LedgerError
from hushgraph.ledger.certificate import Certificate, Randomness, certify
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods import auto
from hushgraph.methods.gap import GAP
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.report.words import explain
from small_graphs import random_graph

QUICK = GAP(hidden_channels=4, epochs=2, batch_size=8)


def test_the_certificate_comes_from_the_ledger_alone() -> None:
    ledger = Ledger()
    model = QUICK.fit(random_graph(1), units.UndirectedEdge(), Budget(2.0, 1e-3), ledger=ledger)
    history = ledger.history()
    assert certify(history, history.runs()[0]) == model.certificate


def test_the_certificate_of_a_run_is_that_of_the_whole_history_whatever_else_was_run() -> None:
    ledger = Ledger()
    QUICK.fit(random_graph(1), units.Node(max_degree=5), Budget(2.0, 1e-3), ledger=ledger)
    QUICK.fit(random_graph(2), units.UndirectedEdge(), Budget(2.0, 1e-3), ledger=ledger, seed=0)
    model = QUICK.fit(random_graph(1), units.Node(max_degree=5), Budget(1.0, 1e-3), ledger=ledger)
    history = ledger.history()
    assert certify(history, model.certificate.run) == model.certificate


def test_a_fit_reads_the_same_number_of_rows_however_many_runs_there_are() -> None:
    ledger = Ledger()

    def rows_of_a_fit() -> int:
        before = ledger.rows_read
        QUICK.fit(random_graph(1), units.UndirectedEdge(), Budget(2.0, 1e-3), ledger=ledger)
        return ledger.rows_read - before

    rows_of_a_fit()  # enters the dataset and its unit
    assert rows_of_a_fit() == rows_of_a_fit() == rows_of_a_fit()


def test_it_says_all_that_an_officer_needs() -> None:
    model = QUICK.fit(random_graph(1), units.Node(max_degree=5), Budget(2.0, 1e-3))
    text = " ".join(explain(model.certificate).split())
    for word in (
        "unit",
        units.Node().change,
        "epsilon",
        "released",
        "aggregation: 2 x neighbor-sum",
        "taken as public",
    ):
        assert word in text
    for word in ("not protected", "operating-system entropy", "outgoing list: 5 entries", "dp-accounting", "ledger"):
        assert word in text


def test_it_survives_json_even_with_infinite_epsilon() -> None:
    for epsilon in (2.0, math.inf):
        certificate = QUICK.fit(random_graph(1), None, Budget(epsilon, 1e-3), seed=0).certificate
        assert Certificate.from_dict(json.loads(json.dumps(certificate.as_dict(), allow_nan=False))) == certificate


def test_paper_mode_shows_the_claim_beside_the_proof() -> None:
    certificate = QUICK.fit(random_graph(1), units.DirectedEdge(), Budget(1.0, 1e-3), paper_mode=True).certificate
    assert certificate.paper is not None
    assert certificate.paper.epsilon == pytest.approx(1.0, abs=1e-3)
    assert certificate.paper.unit == units.DirectedEdge()
    assert certificate.unit == units.UndirectedEdge()
    assert certificate.epsilon > 1.3


def test_smaller_deltas_cost_more() -> None:
    certificate = QUICK.fit(random_graph(1), None, Budget(1.0, 1e-3)).certificate
    values = [certificate.epsilon, *certificate.profile.values()]
    assert len(values) == 5
    assert values == sorted(values)


def test_an_unknown_run_is_an_error() -> None:
    ledger = Ledger()
    QUICK.fit(random_graph(1), None, Budget(1.0, 1e-3), ledger=ledger)
    with pytest.raises(LedgerError, match="no run"):
        certify(ledger.history(), "nobody")


def test_a_count_and_the_choice_made_from_it_are_on_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "needed_degree", lambda *_: 6.0)
    ledger = Ledger()
    model = auto.Auto().fit(random_graph(1), units.Node(max_degree=5), Budget(4.0, 1e-3), ledger=ledger)
    certificate = model.certificate
    assert certify(ledger.history(), certificate.run) == certificate
    assert (certificate.method, certificate.chosen) == ("auto", model.method.name)
    assert certificate.reason == model.reason
    assert certificate.accountant.startswith("sum of pure epsilons + PLD; the costliest of 2 options")
    assert certificate.mu is None
    assert certificate.randomness is Randomness.SYSTEM
    count = certificate.charges[0]
    assert (count.stage, count.mechanism, count.law, count.sensitivity) == (
        auto.COUNT,
        "edge-count",
        "discrete-laplace",
        auto.COUNT_CAP,
    )
    text = " ".join(explain(certificate).split())
    for words in (
        f"{auto.COUNT}: edge-count, discrete Laplace noise",
        "sensitivity 100",
        f"choice {model.method.name}: 20 training nodes of 40",
        "the rule that chooses chorus or dp-mlp",
        "the set of 40 nodes",
        "noise on counts is a whole number, sampled exactly",
    ):
        assert words in text, words
    deltas = [certificate.epsilon, *certificate.profile.values()]
    assert deltas == sorted(deltas)
    assert Certificate.from_dict(json.loads(json.dumps(certificate.as_dict()))) == certificate


def test_the_total_says_why_it_is_not_private() -> None:
    for epsilon, seed, words in (
        (2.0, 0, "NOT PRIVATE over 1 run, because of a seeded one"),
        (math.inf, None, "NOT PRIVATE over 1 run, because nothing is proved about one of them or more for this unit"),
    ):
        certificate = QUICK.fit(
            random_graph(1), None, Budget(epsilon, 1e-3), seed=seed, ledger=Ledger.in_memory(warn=False)
        ).certificate
        assert not certificate.total.private
        assert certificate.total.seeded is (seed is not None)
        assert words in " ".join(explain(certificate).split())
