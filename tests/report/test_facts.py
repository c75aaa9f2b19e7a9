"""privacy.json: the certificate's own numbers under names that stay."""

from __future__ import annotations

import json
import math

from hushgraph.privacy.tradeoff import best_guess
from hushgraph.report.context import read_context
from hushgraph.report.facts import SCHEMA, render_facts
from reports import context, fitted

NAMES = {
    *(
        "what",
        "features",
        "schema",
        "run",
        "method",
        "chosen",
        "dataset",
        "private",
        "unit",
        "epsilon",
        "delta",
        "profile",
        "mu",
    ),
    *("accountant", "asymptotic", "attacker", "released", "public", "not_protected", "randomness", "paper"),
    *("dataset_total", "verification", "operator", "purpose", "ledger", "versions"),
}


def test_numbers_are_those_of_the_certificate() -> None:
    about = read_context(fitted("gap", "node", 4.0))
    facts = json.loads(render_facts(about))
    assert facts["schema"] == SCHEMA == "hushgraph-privacy/1"
    assert set(facts) == NAMES
    assert (facts["epsilon"], facts["delta"]) == (about.epsilon, about.delta)
    assert about.loss is not None
    assert facts["attacker"]["best_guess"] == best_guess(about.loss)
    assert [one["stage"] for one in facts["released"]] == [one.stage for one in about.certificate.charges]
    assert facts["verification"] == "not verified"


def test_no_attacker_is_bounded_where_nothing_is_protected() -> None:
    facts = json.loads(render_facts(context(epsilon=math.inf)))
    assert facts["attacker"] is None
    assert facts["private"] is False
    assert facts["epsilon"] == "inf"
