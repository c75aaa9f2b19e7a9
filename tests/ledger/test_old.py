"""Ledgers of format 1, written by an earlier version of hushgraph, stay readable."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from charges import require_sound
from hushgraph.errors import BudgetError, InputError, LedgerError
from hushgraph.ledger.certificate import Certificate, certify
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.old import OldLedger, read_old
from hushgraph.ledger.run import check_history, open_run, spent
from hushgraph.ledger.statement import statement
from hushgraph.ledger.totals import Kind
from hushgraph.ledger.transfer import export, import_into, replay_old
from hushgraph.ledger.verify import verify_ledger
from hushgraph.privacy import units
from hushgraph.report.words import explain
from toy_plans import carry_out, sums, sums_of

FILES = Path(__file__).parent / "format1"
EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
DELTA = 1e-3


def folder_of(name: str, tmp_path: Path) -> Path:
    place = tmp_path / name
    place.mkdir()
    shutil.copy(FILES / f"{name}.jsonl", place / "ledger.jsonl")
    return place


def test_runs_totals_and_the_limit_are_what_they_were(tmp_path: Path) -> None:
    ledger = Ledger(folder_of("edge", tmp_path))
    assert ledger.exists
    assert ledger.is_old
    history = ledger.history()
    assert history.runs() == ["4c36ed720d4823fc", "4df2c1fbd21ca5c1"]
    assert not history.in_memory
    assert spent(history, "4c36ed720d4823fc").epsilon(DELTA) == pytest.approx(1.99999992)
    assert spent(history).epsilon(DELTA) == pytest.approx(2.36242725647772)  # what the version of then said
    total = ledger.total("random-1", EDGE, 2 * DELTA)
    assert (total.kind, total.runs) == (Kind.BASIC, 2)
    assert total.epsilon == pytest.approx(3.3359, abs=1e-3)  # stated at deltas that leave room under the limit
    assert total.limit is not None
    assert total.limit["epsilon"] == 5.0
    require_sound(verify_ledger(ledger))


def test_a_run_with_a_choice_a_seed_and_a_torn_line_is_read(tmp_path: Path) -> None:
    ledger = Ledger(folder_of("node", tmp_path))
    history = ledger.history()
    first, crashed = history.runs()
    assert spent(history, first).epsilon(DELTA) == pytest.approx(3.998044765193286)
    assert spent(history, crashed).epsilon(DELTA) == pytest.approx(0.6271915738038242)  # its whole plan
    assert not history.is_closed(crashed)
    total = ledger.total("random-1", NODE)
    assert not total.private
    assert first in total.reason
    certificate = certify(history, first)
    assert certificate.epsilon == pytest.approx(3.998044765193286)
    assert (certificate.method, certificate.chosen) == ("auto", "dp-mlp")
    charges = {charge.stage: (charge.law, charge.sampling, charge.scale) for charge in certificate.charges}
    assert charges["count of edges"] == ("discrete-laplace", None, 1250.0)
    assert charges["classifier"] == ("gaussian", "poisson", pytest.approx(2.712721650527393))
    require_sound(verify_ledger(ledger))


def test_what_was_taken_as_public_is_kept_in_the_words_of_then(tmp_path: Path) -> None:
    history = Ledger(folder_of("node", tmp_path)).history()
    certificate = certify(history, history.runs()[0])
    said = explain(certificate).replace("\n", " ")
    for words in ("the set of 40 nodes, the split (20 train)", "the rule that chooses chorus or dp-mlp"):
        assert any(str(note).startswith(words) for note in certificate.public)
    assert certificate.reason is not None
    assert str(certificate.reason).startswith("dp-mlp: 20 train nodes of 40 at epsilon 4")
    assert "in the words of an earlier version" in " ".join(said.split())
    assert Certificate.from_dict(json.loads(json.dumps(certificate.as_dict()))) == certificate


def test_a_charge_with_other_noise_than_planned_is_still_found(tmp_path: Path) -> None:
    entries = read_old(folder_of("node", tmp_path) / "ledger.jsonl").entries
    forged = tuple({**e, "std": 2.0} if e.get("stage") == "count of edges" else e for e in entries)
    ledger = Ledger.in_memory(warn=False)
    replay_old(ledger, OldLedger(forged, b""), "forged")
    with pytest.raises(LedgerError, match="a charge for 'count of edges' does not fit its plan"):
        check_history(ledger.history())


def test_they_are_shown_and_never_written(tmp_path: Path) -> None:
    place = folder_of("edge", tmp_path)
    before = (place / "ledger.jsonl").read_bytes()
    found = statement(Ledger(place))
    assert [run["method"] for run in found["runs"]] == ["gap", "gap"]
    assert found["runs"][0]["time"].startswith("2026-11-18")
    with pytest.raises(LedgerError, match="hushgraph ledger import"):
        open_run(Ledger(place), sums(), "random-1", seeded=False)
    assert [path.name for path in place.iterdir()] == ["ledger.jsonl"]
    assert (place / "ledger.jsonl").read_bytes() == before


def test_they_are_carried_on_in_a_new_ledger(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new")
    done = import_into(ledger, folder_of("edge", tmp_path))
    assert done["runs"] == 2
    assert ledger.total("random-1", EDGE).epsilon == pytest.approx(3.3359, abs=1e-3)
    carry_out(ledger, sums_of(1.0, delta=DELTA / 4), "random-1")
    with pytest.raises(BudgetError, match="limit is epsilon 5"):
        carry_out(ledger, sums_of(1.4, delta=DELTA / 4), "random-1")
    require_sound(verify_ledger(ledger))
    with pytest.raises(InputError, match="2 are known already"):
        import_into(ledger, tmp_path / "edge" / "ledger.jsonl", "elsewhere")


def test_a_dataset_with_a_limit_takes_no_import(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new")
    ledger.set_limit(1.0, DELTA, dataset="random-1", unit=EDGE)
    with pytest.raises(InputError, match="cannot be refused"):
        import_into(ledger, folder_of("edge", tmp_path))
    assert ledger.history().runs() == []
    import_into(ledger, tmp_path / "edge", "random-old")
    assert len(ledger.history().runs("random-old")) == 2


def test_two_of_them_can_be_one_dataset(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new")
    for name in ("node", "edge"):
        import_into(ledger, folder_of(name, tmp_path), "campus")
    assert [account.unit["name"] for account in ledger.accounts("campus")] == ["node", "undirected-edge"]
    assert not ledger.total("campus", NODE).private
    require_sound(verify_ledger(ledger))


def test_an_export_is_imported_like_one(tmp_path: Path) -> None:
    one, two = Ledger(tmp_path / "one"), Ledger(tmp_path / "two")
    carry_out(one, sums_of(1.0))
    one.declare_group("study", [sums(count=4)], dataset="data")
    run = open_run(one, sums(count=4), "data", seeded=False, operator="ann", group="study")
    run.charge(run.plan.stages[0], 1)
    run.close()
    export(one, tmp_path / "one.jsonl")
    import_into(two, tmp_path / "one.jsonl")
    assert two.history().opened(run.identity)["operator"] == "ann"
    expected = 1.0 + sums(count=1).epsilon
    assert two.total("data", EDGE).epsilon == pytest.approx(expected)
    require_sound(verify_ledger(two))
    with pytest.raises(InputError, match="expected an export"):
        import_into(two, tmp_path / "nothing")


# Damage


@pytest.mark.parametrize("damage", ["change", "remove", "swap", "header", "cut line"])
def test_changes_to_an_old_file_still_show(tmp_path: Path, damage: str) -> None:
    path = folder_of("edge", tmp_path) / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "change":
        lines[2] = lines[2].replace(b"aggregate", b"agregates")
    elif damage == "remove":
        del lines[2]
    elif damage == "swap":
        lines[1], lines[2] = lines[2], lines[1]
    elif damage == "header":
        del lines[0]
    else:
        lines[2] = lines[2][:10] + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "edge").history()


def test_a_last_line_without_its_end_is_whole(tmp_path: Path) -> None:
    path = folder_of("edge", tmp_path) / "ledger.jsonl"
    whole = read_old(path)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert read_old(path) == whole


def test_no_cut_of_an_old_file_after_its_first_entry_makes_it_unreadable(tmp_path: Path) -> None:
    path = folder_of("edge", tmp_path) / "ledger.jsonl"
    content = path.read_bytes()
    for end in range(content.index(b"\n"), len(content), 37):
        path.write_bytes(content[:end])
        assert read_old(path).entries[0]["dataset"] == "random-1"
