"""What a report says of the ledger: nothing it did not read, and whatever it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hushgraph.errors import InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.report.context import read_context
from hushgraph.report.standing import with_ledger
from reports import fitted, shown


def saved(home: Path, name: str, **options: object) -> Path:
    return fitted("gap", "undirected-edge", 2.0, ledger=Ledger(home / "ledger"), **options).save(home / name)


def test_without_a_ledger_nothing_is_said_to_be_verified(tmp_path: Path) -> None:
    found = with_ledger(read_context(fitted("gap", "undirected-edge", 2.0).save(tmp_path / "m")))
    assert (found.verification, found.dataset) == (None, None)
    assert "no ledger was at hand" in shown("verification", found)
    assert "When this run ended" in shown("dataset", found)
    assert 'class="pill good"' not in shown("claim", found)


def test_the_present_total_has_all_runs(tmp_path: Path) -> None:
    first = saved(tmp_path, "one")
    alone = with_ledger(read_context(first)).dataset
    saved(tmp_path, "two")
    found = with_ledger(read_context(first))
    assert alone is not None
    assert found.dataset is not None
    assert [len(alone.runs), len(found.dataset.runs)] == [1, 2]
    assert found.total.epsilon > 1.3 * alone.total.epsilon
    page = shown("dataset", found)
    assert page.count("this run") == 1
    assert all(run.run in page and run.time in page for run in found.dataset.runs)
    assert f"{len(found.dataset.runs)} runs" in shown("claim", found)


def test_a_limit_and_a_seeded_run_are_shown(tmp_path: Path) -> None:
    folder = saved(tmp_path, "one")
    Ledger(tmp_path / "ledger").set_limit(9.0, 1e-3)
    assert "limit 9" in shown("dataset", with_ledger(read_context(folder)))
    saved(tmp_path, "two", seed=1)
    page = shown("dataset", with_ledger(read_context(folder)))
    assert "NOT PRIVATE over 2 runs" in page


def test_a_changed_certificate_is_a_contradiction_that_names_the_field(tmp_path: Path) -> None:
    folder = saved(tmp_path, "one")
    values = json.loads((folder / "certificate.json").read_text())
    (folder / "certificate.json").write_text(json.dumps({**values, "epsilon": 0.01}))
    found = with_ledger(read_context(folder), tmp_path / "ledger")
    assert found.verification == "contradicted"
    assert found.findings == ("the certificate's epsilon is not what the ledger gives",)
    assert "CONTRADICTED" in shown("verification", found)
    assert "contradicted by the ledger" in shown("claim", found)


def test_an_agreeing_ledger_says_what_was_compared(tmp_path: Path) -> None:
    found = with_ledger(read_context(saved(tmp_path, "one")), tmp_path / "ledger")
    assert found.verification == "not verified"
    assert any("field by field" in finding for finding in found.findings)
    assert any("weights were not compared" in finding for finding in found.findings)


def test_a_ledger_without_the_run_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "a", "one")
    saved(tmp_path / "b", "two")
    with pytest.raises(InputError, match="expected a ledger that holds the run"):
        with_ledger(read_context(folder), tmp_path / "b" / "ledger")
