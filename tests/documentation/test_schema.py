"""docs/schemas/privacy-1.json describes what `hushgraph report --format json` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from documentation.pages import ROOT
from small_graphs import random_graph

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = json.loads((ROOT / "docs" / "schemas" / "privacy-1.json").read_text(encoding="utf-8"))
QUICK = {"hidden_channels": 4, "epochs": 2}
CASES = {
    "edge": (hg.GAP(**QUICK), "undirected-edge", (4.0, 1e-3), {}),
    "node": (hg.GAP(**QUICK), "node", (8.0, 1e-3), {}),
    "seeded": (hg.GAP(**QUICK), "undirected-edge", (4.0, 1e-3), {"seed": 1}),
    "no protection": (hg.GAP(**QUICK), "undirected-edge", float("inf"), {}),
    "paper mode": (hg.GAP(**QUICK), None, (4.0, 1e-3), {"paper_mode": True}),
    "nothing released": (hg.MLP(epochs=2), "undirected-edge", (4.0, 1e-3), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_schema_holds_for_runs_of_every_kind(case: str, tmp_path: Path) -> None:
    method, unit, budget, options = CASES[case]
    model = method.fit(random_graph(0), unit, budget, ledger=str(tmp_path / "ledger"), **options)
    written = model.report(tmp_path / "privacy.json", form="json")
    jsonschema.validate(json.loads(written.read_text()), SCHEMA)


def test_the_schema_names_exactly_what_is_written(tmp_path: Path) -> None:
    model = hg.GAP(**QUICK).fit(random_graph(0), "node", (8.0, 1e-3), ledger=str(tmp_path / "ledger"))
    facts = json.loads(model.report(tmp_path / "privacy.json", form="json").read_text())
    assert set(SCHEMA["properties"]) == set(SCHEMA["required"]) == set(facts)


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", "large"), ("verification", "fine"), ("schema", "hushgraph-privacy/2"), ("attacker", {})],
)
def test_other_values_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    model = hg.MLP(epochs=2).fit(random_graph(0), "undirected-edge", (4.0, 1e-3), ledger=str(tmp_path / "ledger"))
    facts = json.loads(model.report(tmp_path / "privacy.json", form="json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**facts, name: value}, SCHEMA)


def test_the_schema_holds_under_a_limit_and_for_released_graphs(tmp_path: Path) -> None:
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.methods.released import release_graph
    from hushgraph.report import write_report

    book = Ledger(tmp_path / "ledger")
    book.set_limit(40.0, 1e-3, dataset="random-0", unit=hg.units.UndirectedEdge())
    model = hg.GAP(**QUICK).fit(random_graph(0), "undirected-edge", (4.0, 1e-3), ledger=book)
    facts = json.loads(model.report(tmp_path / "privacy.json", form="json").read_text())
    jsonschema.validate(facts, SCHEMA)
    assert facts["dataset_total"]["limit"] == 40.0
    released = release_graph(hg.ARR(), random_graph(0), hg.units.UndirectedEdge(), hg.Budget(2.0, 1e-3), ledger=book)
    released.save(tmp_path / "graph")
    written = write_report(tmp_path / "graph", form="json", ledger=tmp_path / "ledger")
    facts = json.loads(written.read_text())
    jsonschema.validate(facts, SCHEMA)
    assert (facts["what"], facts["features"], facts["verification"]) == ("graph", None, "verified")
