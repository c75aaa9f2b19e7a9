from __future__ import annotations

import html
import shutil
from pathlib import Path

from hushgraph.ui import runs
from hushgraph.ui.datasets import show_datasets
from hushgraph.ui.shell import Desk

from .conftest import EVIL, Team


def test_who_when_why_and_the_report(team: Team) -> None:
    page = team.get("runs")
    assert f"{team.root}runs/{team.runs[0]}/report" in page
    for words in ("ann", html.escape(f"first {EVIL}").replace("&#x27;", "&#39;").replace("&quot;", "&#34;"), "gap"):
        assert words in page
    assert "<script>alert" not in page


def test_what_comes_from_outside_is_escaped_everywhere(team: Team) -> None:
    for path in ("", "runs", f"runs/{team.runs[0]}", f"runs/{team.runs[0]}/report"):
        assert "<script>alert" not in team.get(path)


def test_verified_until_a_file_changes(team: Team) -> None:
    run = team.runs[0]
    asked = f"{team.root}runs/{run}/verification"
    assert team.web.get(asked).json() == {"words": "verified", "kind": "good"}
    certificate = team.home / "model" / "certificate.json"
    text = certificate.read_text()
    certificate.write_text(text.replace('"operator": "ann"', '"operator": "bob"'))
    assert team.web.get(asked).json() == {"words": "contradicted", "kind": "bad"}
    assert "contradicted" in team.get(f"runs/{run}")
    certificate.write_text(text)
    assert team.web.get(asked).json()["words"] == "verified"
    (team.home / "model").rename(team.home / "moved")
    assert team.web.get(asked).json() == {"words": "model not here", "kind": "warn"}
    assert team.web.get(f"{team.root}runs/{run}/report").status_code == 404


def test_what_did_not_change_is_not_checked_again(team: Team, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    counted = []
    whole = runs.verify_model
    monkeypatch.setattr(runs, "verify_model", lambda *args: counted.append(1) or whole(*args))
    for _ in range(3):
        team.web.get(f"{team.root}runs/{team.runs[0]}/verification")
    assert len(counted) == 1
    assert team.sign(team.runs[0]).status_code == 303  # a new entry of the ledger
    team.web.get(f"{team.root}runs/{team.runs[0]}/verification")
    assert len(counted) == 2


def test_runs_come_in_pages(team: Team, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(runs, "ON_A_PAGE", 1)
    book = team.book
    import hushgraph as hg
    from small_graphs import random_graph

    graph = random_graph(1)
    model = hg.MLP(epochs=1, hidden_channels=2).fit(graph, "undirected-edge", (1.0, 1e-3), ledger=book)
    first, second = team.get("runs"), team.get("runs?page=2")
    assert f"runs/{model.certificate.run}" in first
    assert f"runs/{team.runs[0]}" not in first
    assert "page 1 of 2" in first
    assert f"runs/{team.runs[0]}" in second
    assert "no model" in first


def test_only_a_whole_id_is_a_run(team: Team) -> None:
    assert team.web.get(f"{team.root}runs/{team.runs[0][:8]}").status_code == 404


def test_a_project_without_a_ledger_says_so(tmp_path) -> None:  # type: ignore[no-untyped-def]
    desk = Desk(tmp_path / ".hushgraph")
    assert "No runs yet" in bytes(runs.show_runs(desk, None, 1).body).decode()
    assert not (tmp_path / ".hushgraph").exists()


def test_a_ledger_of_the_older_format_is_shown(tmp_path) -> None:  # type: ignore[no-untyped-def]
    source = Path(__file__).parents[1] / "ledger" / "format1" / "edge.jsonl"
    shutil.copy(source, tmp_path / "ledger.jsonl")
    desk = Desk(tmp_path)
    assert "left</span> of 5" in bytes(show_datasets(desk).body).decode()
    assert "4c36ed72" in bytes(runs.show_runs(desk, None, 1).body).decode()
    page = bytes(runs.show_run(desk, "4c36ed720d4823fc").body).decode()
    assert "Nobody has signed this run" in page
