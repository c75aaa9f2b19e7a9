"""What a report says of the ledger: nothing it did not read, and whatever it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hushgraph.errors import BudgetError, InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.report.context import RunContext, read_context, with_ledger
from hushgraph.text import to_the_minute
from reports import fitted, shown


def saved(home: Path, name: str, **options: object) -> Path:
    return fitted("gap", "undirected-edge", 2.0, ledger=Ledger(home / "ledger"), **options).save(home / name)


def standing(folder: Path) -> RunContext:
    return with_ledger(read_context(folder), folder.parent / "ledger")


def test_without_a_ledger_nothing_is_said_to_be_verified(tmp_path: Path) -> None:
    found = with_ledger(read_context(saved(tmp_path, "one")))  # the project has none
    assert (found.verification, found.dataset) == ("not verified", None)
    assert "the promise cannot be computed again" in shown("verification", found)
    assert "When this run ended" in shown("dataset", found)
    assert 'class="pill good"' not in shown("claim", found)


def test_the_present_total_has_all_runs(tmp_path: Path) -> None:
    first = saved(tmp_path, "one")
    alone = with_ledger(read_context(first), tmp_path / "ledger").dataset
    saved(tmp_path, "two")
    found = with_ledger(read_context(first), tmp_path / "ledger")
    assert alone is not None
    assert found.dataset is not None
    assert [len(alone.runs), len(found.dataset.runs)] == [1, 2]
    assert found.total.epsilon > 1.3 * alone.total.epsilon
    page = shown("dataset", found)
    assert page.count("this run") == 1
    assert all(run.run in page and to_the_minute(run.time) in page for run in found.dataset.runs)
    assert f"{len(found.dataset.runs)} runs" in shown("claim", found)


def test_a_limit_and_a_seeded_run_are_shown(tmp_path: Path) -> None:
    folder = saved(tmp_path, "one")
    saved(tmp_path, "two", seed=1)
    assert "NOT PRIVATE over 2 runs, because of a seeded one" in shown("dataset", standing(folder))
    limited = saved(tmp_path / "other", "one")
    Ledger(tmp_path / "other" / "ledger").set_limit(9.0, 1e-2)
    assert "limit 9" in shown("dataset", standing(limited))
    with pytest.raises(BudgetError, match="seeded noise is not private"):
        saved(tmp_path / "other", "two", seed=1)


def test_a_changed_certificate_is_a_contradiction_that_names_the_field(tmp_path: Path) -> None:
    folder = saved(tmp_path, "one")
    values = json.loads((folder / "certificate.json").read_text())
    (folder / "certificate.json").write_text(json.dumps({**values, "epsilon": 0.01}))
    found = with_ledger(read_context(folder), tmp_path / "ledger")
    assert found.verification == "contradicted"
    contradicted = [finding for finding in found.findings if finding.startswith("contradicted")]
    assert len(contradicted) == 2
    assert "certificate.json: was changed since it was saved" in contradicted[0]
    assert "certificate, epsilon: says 0.01; the ledger gives 1.99" in contradicted[1]
    assert "CONTRADICTED" in shown("verification", found)
    assert "contradicted by the ledger" in shown("claim", found)


def test_an_agreeing_ledger_says_what_was_compared(tmp_path: Path) -> None:
    found = with_ledger(read_context(saved(tmp_path, "one")), tmp_path / "ledger")
    assert found.verification == "verified"
    for words in ("model.safetensors", "signed with the ledger's key", "recomputed from the ledger's events; all"):
        assert any(words in finding for finding in found.findings), words
    assert "verified against the ledger" in shown("claim", found)


def test_another_ledger_verifies_nothing_and_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "a", "one")
    saved(tmp_path / "b", "two")
    found = with_ledger(read_context(folder), tmp_path / "b" / "ledger")
    assert (found.verification, found.dataset) == ("not verified", None)
    with pytest.raises(InputError, match="expected a ledger that holds the run"):
        with_ledger(read_context(folder), tmp_path / "c" / "ledger")
