from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.transfer import export, import_into, read_export
from toy_plans import carry_out, sums


def test_an_export_has_one_entry_a_line_and_reads_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    carry_out(ledger, sums())
    path = tmp_path / "out.jsonl"
    assert export(ledger, path) == len(ledger.history().entries)
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == list(range(6))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_export(path).entries == ledger.history().entries


def test_a_changed_export_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    carry_out(ledger, sums())
    path = tmp_path / "out.jsonl"
    export(ledger, path)
    content = path.read_text()
    assert "neighbor-sum" in content
    for changed in (content.replace("neighbor-sum", "neighbor-smu"), "\n".join(content.splitlines()[1:]), "{}", ""):
        path.write_text(changed)
        with pytest.raises(LedgerError, match=r"out\.jsonl"):
            read_export(path)


def test_an_export_of_several_datasets_is_not_renamed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    for name in ("one", "two"):
        carry_out(ledger, sums(), name)
    export(ledger, tmp_path / "out.jsonl")
    other = Ledger(tmp_path / "other")
    with pytest.raises(InputError, match="expected an export of one dataset"):
        import_into(other, tmp_path / "out.jsonl", "three")
    assert import_into(other, tmp_path / "out.jsonl")["runs"] == 2
    assert set(other.datasets()) == {"one", "two"}
