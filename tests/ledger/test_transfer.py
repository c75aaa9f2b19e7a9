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
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["number"] for line in lines[:-1]] == list(range(6))
    assert lines[-1] == {"head": ledger.head().as_dict()}
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


def test_an_export_that_was_cut_off_is_refused_at_every_length(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    carry_out(ledger, sums())
    path, cut = tmp_path / "out.jsonl", tmp_path / "cut.jsonl"
    export(ledger, path)
    content = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    for length in {*ends[:-1], *range(0, len(content), 97), len(content) - 1}:
        cut.write_bytes(content[:length])
        with pytest.raises(LedgerError, match=r"cut\.jsonl"):
            read_export(cut)


def test_only_the_text_that_was_written_is_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    carry_out(ledger, sums())
    path = tmp_path / "out.jsonl"
    export(ledger, path)
    content = path.read_bytes()
    *lines, head = content.splitlines(keepends=True)
    said = json.loads(head)["head"]
    later = json.dumps({"head": {**said, "time": "2001-01-01T00:00:00+00:00"}}, sort_keys=True, separators=(",", ":"))
    spaced = json.dumps(json.loads(lines[0]), sort_keys=True).encode() + b"\n"
    for changed in (
        content + b"\n",
        content.replace(b"\n", b"\r\n"),
        spaced + content[len(lines[0]) :],
        content + head,
        head + content,
        b"".join(lines) + later.encode() + b"\n",
    ):
        path.write_bytes(changed)
        with pytest.raises(LedgerError, match="Export it again"):
            read_export(path)


def test_an_export_with_the_head_of_another_ledger_is_refused(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        carry_out(Ledger(tmp_path / name), sums())
        export(Ledger(tmp_path / name), tmp_path / f"{name}.jsonl")
        texts.append((tmp_path / f"{name}.jsonl").read_bytes().splitlines(keepends=True))
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_bytes(b"".join([*texts[0][:-1], texts[1][-1]]))
    with pytest.raises(LedgerError, match="signed head in the last line"):
        read_export(mixed)


def test_an_export_without_a_head_helps_to_recover_and_is_not_imported(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    carry_out(ledger, sums())
    path = tmp_path / "out.jsonl"
    export(ledger, path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert read_export(path, headless=True).entries == ledger.history().entries
    with pytest.raises(LedgerError, match="an earlier version wrote it"):
        import_into(Ledger(tmp_path / "other"), path)


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
