"""The officer's story, as docs/ledger.md tells it: the commands run in this order, with these results."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hushgraph.cli import app
from hushgraph.datasets import write_npz
from small_graphs import random_graph

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"
QUICK = "--delta 1e-6 --set hidden_channels=4 --set epochs=2"


def run(words: str, *, who: str = "officer", expect: int = 0) -> str:
    result = CliRunner().invoke(app, shlex.split(words), env={"HUSHGRAPH_OPERATOR": who})
    assert result.exit_code == expect, f"{words}\n{result.output}"
    return result.output


def run_json(words: str, *, who: str = "officer", expect: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*shlex.split(words), "--json"], env={"HUSHGRAPH_OPERATOR": who})
    assert result.exit_code == expect, f"{words}\n{result.output}"
    values: dict[str, Any] = json.loads(result.stdout)
    return values


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one graph under two names, and a user without any ledger."""
    monkeypatch.delenv("HUSHGRAPH_LEDGER")
    monkeypatch.setattr("platformdirs.user_data_dir", lambda name: str(tmp_path / "home" / name))
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "config" / name))
    monkeypatch.chdir(tmp_path)
    for name in ("members.npz", "bens_copy.npz"):
        write_npz(random_graph(1, num_nodes=200, num_edges=1_500), tmp_path / name)
    return tmp_path


def totals() -> dict[str, dict[str, Any]]:
    (dataset,) = run_json("ledger show")["datasets"]
    return {total["unit"]["name"]: total for total in dataset["totals"]}


def test_the_officers_story(project: Path) -> None:
    run("init")
    run("init --as officer")
    assert (project / "config" / "hushgraph" / "keys" / "officer.pem").is_file()
    assert not (project / ".hushgraph" / "keys" / "officer.pem").exists()
    run("ledger limit --dataset members --unit undirected-edge --epsilon 4 --delta 1e-6 --purpose 'decision 12'")

    # Two engineers, one graph under two names, two runs for one friendship.
    run(f"train gap --data members.npz --epsilon 2 --out one --purpose 'first model' {QUICK}", who="ann")
    run(f"train gap --data bens_copy.npz --epsilon 2.5 --out two {QUICK}", who="ben")
    edge = totals()["undirected-edge"]
    assert (edge["runs"], edge["kind"], edge["epsilon"]) == (2, "filter", 4.0)
    assert 2.5 < edge["used"] < 4.0

    # A third run in another unit. The first two prove nothing for one person, and the total says so.
    run(f"train dp-mlp --unit node --data members.npz --epsilon 2 --out three {QUICK}", who="ann")
    node = totals()["node"]
    assert (node["private"], node["runs"], node["epsilon"]) == (False, 3, "inf")
    assert totals()["undirected-edge"]["private"] is True

    # A run over the limit is refused before anything is read, and the refusal is written down.
    refused = run(f"train gap --data bens_copy.npz --epsilon 3 --out four {QUICK}", who="ben", expect=3)
    assert "the dataset's limit is epsilon 4 at delta 1e-06 for the unit 'undirected-edge'" in " ".join(refused.split())
    assert not (project / "four").exists()
    shown = run("ledger show")
    for words in ("members (also called bens_copy)", "by ann: first model", "gap on members, by ben: epsilon 3"):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 80

    # The officer checks a model, signs, and keeps the head elsewhere.
    checked = run_json("verify one")
    assert checked["status"] == "verified"
    run_id = json.loads((project / "one" / "certificate.json").read_text())["run"]
    run(f"ledger approve {run_id[:8]} --as officer --note 'plan and purpose read'")
    assert "approved by officer: plan and purpose read" in run("verify one")
    run("ledger head --out safe.json")

    # Somebody edits a certificate, and puts weights with less noise into a good folder.
    for name in ("edited", "swapped"):
        shutil.copytree(project / "one", project / name)
    certificate = project / "edited" / "certificate.json"
    certificate.write_text(re.sub(r'"epsilon": [\d.]+', '"epsilon": 0.01', certificate.read_text()))
    shutil.copy(project / "two" / "model.safetensors", project / "swapped" / "model.safetensors")
    found = run_json("verify edited", expect=4)
    assert {"certificate.json", "certificate, epsilon"} <= {f["what"] for f in found["findings"]}
    assert "model.safetensors: was changed" in run("verify swapped", expect=4)
    for name in ("edited", "swapped"):
        assert "expected the model that was saved" in run(f"predict {name}", expect=4)
        assert "expected the model that was saved" in run(f"audit {name}", expect=4)
        assert run(f"report {name}", expect=4).startswith("contradicted; wrote")
        assert "contradicted by the ledger" in (project / name / "report.html").read_text()

    # From anywhere, the ledger of the model's own project is looked at.
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    with contextlib.chdir(elsewhere):
        run("init")
        run("verify ../one")
        assert "the model belongs to ledger" in run("verify ../one --ledger .hushgraph", expect=5)

    # Without its manifest a folder is not used, and a run that was rejected is not called verified.
    shutil.copytree(project / "one", project / "bare")
    (project / "bare" / "manifest.json").unlink()
    assert "manifest: is missing" in " ".join(run("predict bare", expect=4).split())
    run(f"ledger reject {run_id[:8]} --as officer --note 'read again'")
    assert run("verify one", expect=6).startswith(
        "one: REJECTED (rejected by officer: read again); all else is verified"
    )
    assert run("report one", expect=6).startswith("REJECTED")
    assert "rejected by officer (approved before)" in (project / "one" / "report.html").read_text()
    run(f"ledger approve {run_id[:8]} --as officer --note 'settled'")

    # The ledger is sound; an older copy in its place is not.
    shutil.copytree(project / ".hushgraph", project / "older")
    run(f"train gap --data members.npz --epsilon 0.1 --out five {QUICK}", who="ann")
    run("ledger verify --head safe.json")
    shutil.rmtree(project / ".hushgraph")
    shutil.copytree(project / "older", project / ".hushgraph")
    assert "entries are gone" in run("ledger verify --head .", expect=4)


def test_inference_on_another_graph_is_charged_to_its_own_account(project: Path) -> None:
    run("init")
    run(f"train gap --data members.npz --epsilon 2 --out one {QUICK}", who="ann")
    write_npz(random_graph(7, num_nodes=150, num_edges=900), project / "visitors.npz")
    run("predict one --on visitors.npz --epsilon 1 --delta 1e-6", who="ben")
    run("predict one --on bens_copy.npz --epsilon 1 --delta 1e-6", who="ben")  # the training graph, under another name
    found = {one["dataset"]: one["totals"][0] for one in run_json("ledger show")["datasets"]}
    assert (found["visitors"]["runs"], found["members"]["runs"]) == (1, 2)
    assert found["members"]["epsilon"] == pytest.approx(3.0, abs=1e-3)


def test_a_graph_that_changed_a_little_needs_a_decision(project: Path) -> None:
    run("init")
    run(f"train gap --data members.npz --epsilon 1 --out one {QUICK}")
    graph = random_graph(1, num_nodes=200, num_edges=1_500)
    graph.edge_index = graph.edge_index[:, graph.edge_index.sum(0) % 20 != 0]
    write_npz(graph, project / "may.npz")
    asked = run(f"train gap --data may.npz --epsilon 1 --out two {QUICK}", expect=2)
    assert "--continues members" in asked
    assert "--separate REASON" in asked
    run(f"train gap --data may.npz --epsilon 1 --out two --continues members {QUICK}")
    assert totals()["undirected-edge"]["runs"] == 2


def test_the_page_tells_the_commands_of_the_story() -> None:
    told = re.findall(r"^\$ hushgraph (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    for start in ("init", "ledger limit", "train gap", "train dp-mlp", "ledger show", "verify", "ledger approve"):
        assert any(command.startswith(start) for command in told), start
    source = Path(__file__).read_text()
    for command in told:
        first = shlex.split(command)[0]
        assert f'"{first}' in source or f"{first} " in source
