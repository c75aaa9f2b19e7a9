"""`hushgraph ledger`, `init` and `verify` as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hushgraph.cli import app
from hushgraph.datasets.npz import write_npz
from hushgraph.ledger.ledger import Ledger
from small_graphs import random_graph
from toy_plans import EDGE, carry_out, sums_of, training

FORMAT1 = Path(__file__).parents[1] / "ledger" / "format1"


def run(*words: object, expect: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == expect, result.output
    return result.output


def run_json(*words: object) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(run(*words, "--json"))
    return values


@pytest.fixture
def ledger() -> Ledger:
    """The project's ledger, with three runs on two datasets."""
    book = Ledger(os.environ["HUSHGRAPH_LEDGER"])
    carry_out(book, sums_of(1.0), operator="ann", purpose="a trial")
    carry_out(book, sums_of(1.0))
    carry_out(book, training(), "other")
    return book


def test_init_makes_a_project_once(tmp_path: Path) -> None:
    made = run_json("init", tmp_path)
    assert made["new"] is True
    assert (tmp_path / ".hushgraph" / "ledger.db").exists()
    assert run_json("init", tmp_path)["new"] is False
    assert run_json("init", tmp_path)["ledger"] == made["ledger"]
    signs = run_json("init", tmp_path, "--as", "officer")
    assert len(signs["public_key"]) == 64
    assert "officer signs with" in run("init", tmp_path, "--as", "officer")


def test_show_in_words_as_json_and_as_a_page(ledger: Ledger, tmp_path: Path) -> None:
    shown = run("ledger", "show")
    assert "total per undirected-edge: epsilon 2 at delta 2e-06 (basic composition, 2" in shown
    assert "by ann: a trial" in shown
    assert "no limit declared" in shown
    found = run_json("ledger", "show", "--last", 1, "--dataset", "other")
    assert [run["dataset"] for run in found["runs"]] == ["other"]
    asked = run_json("ledger", "show", "--unit", "node", "--max-degree", 5)
    assert [one["totals"][0]["private"] for one in asked["datasets"]] == [False, True]
    page = tmp_path / "ledger.html"
    assert str(page) in run("ledger", "show", "--html", page)
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert page.stat().st_mode & 0o777 == 0o600


def test_show_at_a_delta(ledger: Ledger) -> None:
    at = run_json("ledger", "show", "--delta", 1e-6, "--dataset", "data")["datasets"][0]["totals"][0]
    assert at["delta"] == 1e-6
    assert at["epsilon"] > 2.0


def test_a_limit_is_set_raised_and_explained(ledger: Ledger) -> None:
    words = ["ledger", "limit", "--dataset", "data", "--delta", 1e-4]
    shown = run(*words, "--epsilon", 3, "--operator", "officer", "--purpose", "decision 12")
    assert "limit set for 'data', unit 'undirected-edge': epsilon 3" in shown
    assert "earlier runs leave epsilon 1" in shown
    assert "set by officer: decision 12" in run("ledger", "show")
    assert "expected why the limit is raised" in run(*words, "--epsilon", 5, expect=2)
    found = run_json(*words, "--epsilon", 5, "--why", "decision 13", "--operator", "ben")
    assert found["limit"]["change"] == "set"  # no run was let in under the first limit yet
    assert "nothing is left under it" in run(*words, "--epsilon", 1)
    assert "pending: it binds the first data of that name" in run(
        "ledger", "limit", "--dataset", "new", "--unit", "node", "--max-degree", 5, "--epsilon", 1, "--delta", 1e-6
    )
    assert "expected a positive number" in run(*words, "--epsilon", -1, expect=2)


def test_verify_head_and_an_older_copy(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.folder is not None
    found = run_json("ledger", "verify")
    assert found["sound"] is True
    assert found["status"] == "not verified"  # no head was given: an older copy would pass
    shutil.copytree(ledger.folder, tmp_path / "copy")
    carry_out(ledger, sums_of(0.1))
    assert run_json("ledger", "head") == json.loads(run("ledger", "head"))
    assert json.loads(run("ledger", "head"))["number"] == len(ledger.history().entries) - 1
    assert "keep it where" in run("ledger", "head", "--out", tmp_path / "head.json")
    assert "agrees" in run("ledger", "verify", "--head", tmp_path / "head.json")
    older = run("ledger", "verify", tmp_path / "copy", "--head", tmp_path / "head.json", expect=4)
    assert "entries are gone" in " ".join(older.split())
    gone = run("ledger", "verify", tmp_path / "nowhere", "--head", tmp_path / "head.json", expect=4)
    assert "now there is no sound ledger" in " ".join(gone.split())


def test_runs_are_approved_and_rejected(ledger: Ledger) -> None:
    first, second, _ = ledger.history().runs()
    run("init", "--as", "officer")
    assert "approved by officer, signed" in run("ledger", "approve", first[:8], "--as", "officer", "--note", "fine")
    assert run_json("ledger", "reject", second, "--as", "officer")["verdict"] == "rejected"
    shown = run("ledger", "show")
    assert "approved by officer" in shown
    assert "rejected by officer" in shown
    assert "hushgraph init --as nobody" in run("ledger", "approve", first, "--as", "nobody", expect=2)


def test_export_import_and_format_1(ledger: Ledger, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert f"entries written to {out}" in run("ledger", "export", out)
    assert run_json("ledger", "import", out, "--ledger", tmp_path / "new")["runs"] == 3
    old = tmp_path / "old"
    old.mkdir()
    shutil.copy(FORMAT1 / "edge.jsonl", old / "ledger.jsonl")
    assert "epsilon 3.336 at delta 0.00076 (basic composition," in run("ledger", "show", old)
    assert "every cost, charge and limit follows" in run("ledger", "verify", old)
    assert "2 runs entered" in run("ledger", "import", old, "--ledger", tmp_path / "new", "--dataset", "campus")
    assert Ledger(tmp_path / "new").total("campus", EDGE).runs == 2
    assert "is only read" in run(
        "ledger", "limit", old, "--dataset", "x", "--unit", "record", "--epsilon", 1, "--delta", 1e-6, expect=2
    )


def test_a_damaged_ledger_is_named_and_recovered(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.path is not None
    run("ledger", "export", tmp_path / "copy.jsonl")
    content = ledger.path.read_bytes()
    ledger.path.write_bytes(content[: len(content) - 8192])
    assert "changed or damaged" in run("ledger", "show", expect=2)
    assert "changed or damaged" in run("ledger", "verify", expect=4)
    assert "0 lost" in run("ledger", "recover", "--from", tmp_path / "copy.jsonl")
    run("ledger", "verify")
    assert ledger.total("data", EDGE).epsilon == pytest.approx(2.0)


def test_no_ledger_is_said_so(tmp_path: Path) -> None:
    for words in (("ledger", "show"), ("ledger", "head"), ("ledger", "export", tmp_path / "x")):
        assert "no ledger in" in run(*words, expect=2)


def test_verify_of_a_folder_without_a_manifest_and_of_none(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / "model").mkdir()
    shown = run("verify", tmp_path / "model", expect=5)
    assert "NOT VERIFIED" in shown
    assert "manifest: is missing" in shown
    assert "expected a trained model in" in run("verify", tmp_path / "nothing", expect=2)


def test_a_limit_on_data_binds_every_copy_of_it(data: Path, tmp_path: Path) -> None:
    """Data that was trained on under another name first does not escape a limit, whichever way it was set."""
    copy = shutil.copy(data, tmp_path / "copy.npz")
    words = ["--unit", "undirected-edge", "--epsilon", 1, "--delta", 1e-6]
    assert "pending: it binds the first data of that name" in run("ledger", "limit", "--dataset", "toy", *words)
    shown = " ".join(run("ledger", "show").split())
    assert "pending: no data of this name was seen yet; the limit binds the first data used under that name" in shown
    quick = ["--delta", 1e-6, "--set", "hidden_channels=4", "--set", "epochs=1"]
    run("train", "gap", "--data", copy, "--epsilon", 8, "--out", tmp_path / "one", *quick)
    assert "the dataset's limit is epsilon 1" in run(
        "train", "gap", "--data", data, "--epsilon", 0.5, "--out", tmp_path / "two", *quick, expect=3
    )
    (dataset,) = run_json("ledger", "show")["datasets"]
    assert (dataset["dataset"], dataset["names"], dataset["pending"]) == ("copy", ["copy", "toy"], False)
    assert dataset["totals"][0]["limit"]["epsilon"] == 1.0


def test_a_limit_on_a_file_is_not_pending(data: Path, tmp_path: Path) -> None:
    words = ["--unit", "undirected-edge", "--epsilon", 1, "--delta", 1e-6]
    assert "nothing has been run on it yet" in run("ledger", "limit", "--data", data, *words)
    copy = shutil.copy(data, tmp_path / "copy.npz")
    assert "the dataset's limit is epsilon 1" in run(
        "train", "gap", "--data", copy, "--epsilon", 8, "--delta", 1e-6, "--out", tmp_path / "one", expect=3
    )


def test_the_history_of_limits_is_shown(ledger: Ledger, tmp_path: Path) -> None:
    words = ["ledger", "limit", "--dataset", "data", "--operator", "ben"]
    run(*words, "--epsilon", 8, "--delta", 1e-4, "--purpose", "decision 12")
    last = carry_out(ledger, sums_of(0.5)).identity
    run(*words, "--epsilon", 50, "--delta", 2e-4, "--why", "decision 13")
    expected = f"raised from 8 at delta 0.0001 to 50 at delta 0.0002 after run {last[:8]} by ben: decision 13"
    page = tmp_path / "ledger.html"
    assert expected in " ".join(run("ledger", "show", "--html", page).split())
    assert expected in page.read_text()


def test_runs_that_were_declared_together_join_their_group_and_others_do_not(tmp_path: Path) -> None:
    write_npz(random_graph(0), tmp_path / "members.npz")
    settings = ("--unit", "undirected-edge", "--epsilon", 2, "--delta", 1e-4, "--set", "epochs=1")
    planned = run("plan", "gap", *settings, "--nodes", 40, "--json")
    (tmp_path / "plan.json").write_text(planned)
    twice = ("--plan", tmp_path / "plan.json") * 2
    assert "2 runs, epsilon" in run("ledger", "declare", "study", "--dataset", "members", *twice)
    train = ("train", "gap", "--data", tmp_path / "members.npz", *settings, "--group", "study")
    for name in ("one", "two"):
        run(*train, "--out", tmp_path / name)
    assert "0 of 2 are left" in " ".join(run(*train, "--out", tmp_path / "three", expect=2).split())
    (total,) = run_json("ledger", "show")["datasets"][0]["totals"]
    assert (total["kind"], total["runs"]) == ("declared together", 2)
    assert 2.0 < total["epsilon"] < 4.0
    run("ledger", "verify")
