from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow.parquet
import pytest

import hushgraph as hg
from commands import TRAIN, flat, run, run_json
from hushgraph.ledger.ledger import Ledger
from importing.tables_of_people import IMPORT, ROLES, people, write_csv, write_people

WORKERS: dict[str, list[str]] = {"alone": [], "shared": ["--workers", "1"]}
NODE = ["--unit", "node", "--set", "batch_size=8", "--set", "max_degree=5"]


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    nodes, edges = write_people(tmp_path)
    done = run("import", "--edges", edges, "--nodes", nodes, *IMPORT, "--out", tmp_path / "my.graph")
    assert done.exit_code == 0, done.output
    return tmp_path / "my.graph"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_from_tables_to_predictions_with_ones_own_ids(ending: str, imported: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    run_json("train", "gap", "--data", imported, *TRAIN, *NODE, "--out", model)
    out = tmp_path / f"predictions.{ending}"
    run_json("predict", model, "--data", imported, "--out", out)
    if ending == "csv":
        with out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = pyarrow.parquet.read_table(out).to_pylist()
    assert [row["id"] for row in rows] == people()[0]["person"]
    for row in rows:
        shares = {name: float(row[f"p({name})"]) for name in ROLES}
        assert row["class"] == max(shares, key=lambda name: shares[name])
        assert sum(shares.values()) == pytest.approx(1.0, abs=1e-5)


def test_without_data_nodes_are_called_by_their_number(imported: Path, tmp_path: Path) -> None:
    run_json("train", "gap", "--data", imported, *TRAIN, "--out", tmp_path / "model")
    run_json("predict", tmp_path / "model", "--out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text().splitlines()[1].startswith("0,")
    refused = run("predict", tmp_path / "model", "--out", tmp_path / "p.xlsx")
    assert (refused.exit_code, "--out: expected a file .csv, .parquet, .npz" in flat_errors(refused)) == (2, True)


def flat_errors(result: object) -> str:
    return " ".join(result.stderr.split())  # type: ignore[attr-defined]


def test_every_column_without_a_use_is_told_together(tmp_path: Path) -> None:
    nodes, edges = write_people(tmp_path)
    refused = run(
        "import", "--edges", edges, "--nodes", nodes, "--id", "person", "--undirected", "--out", tmp_path / "g"
    )
    said = flat_errors(refused)
    assert (refused.exit_code, said.count("--numeric")) == (2, 1)
    first, *others = [column for column in nodes.read_text().splitlines()[0].split(",") if column != "person"]
    assert f"each of the columns {', '.join(repr(column) for column in [first, *others])}; got none" in said
    assert f"--numeric {first}=LOW:HIGH" in said
    assert f"--ignore {','.join([first, *others])}" in said


def test_what_a_line_of_edges_means_has_to_be_said(tmp_path: Path) -> None:
    nodes, edges = write_people(tmp_path)
    words = [word for word in IMPORT if word != "--undirected"]
    refused = run("import", "--edges", edges, "--nodes", nodes, *words, "--out", tmp_path / "g")
    assert (refused.exit_code, "--undirected (directed=False)" in flat_errors(refused)) == (2, True)


def test_the_set_of_nodes_is_never_read_off_the_edges(tmp_path: Path) -> None:
    edges = write_csv(tmp_path / "e.csv", {"u": [0, 1], "v": [1, 2]})
    refused = run("import", "--edges", edges, "--undirected", "--out", tmp_path / "g")
    assert (refused.exit_code, "never read off the edges" in flat_errors(refused)) == (2, True)
    done = run_json("import", "--edges", edges, "--undirected", "--num-nodes", 5, "--out", tmp_path / "g")
    assert (done["num_nodes"], done["num_edges"]) == (5, 4)


def test_a_table_as_data_says_what_to_do(tmp_path: Path) -> None:
    _, edges = write_people(tmp_path)
    refused = run("train", "gap", "--data", edges, *TRAIN, "--out", tmp_path / "m")
    assert (refused.exit_code, "hushgraph import --edges" in flat_errors(refused)) == (2, True)


def test_a_file_that_holds_everything_is_data_as_it_is(tmp_path: Path) -> None:
    nodes, edges = people()
    found = {
        "directed": False,
        "nodes": [{"id": name, "label": role} for name, role in zip(nodes["person"], nodes["role"])],
        "links": [{"source": one, "target": other} for one, other in zip(edges["from"], edges["to"])],
    }
    (tmp_path / "g.json").write_text(json.dumps(found))
    done = run("train", "mlp", "--data", tmp_path / "g.json", *TRAIN, "--out", tmp_path / "m")
    assert done.exit_code == 0, done.output
    assert "every node has the same single feature" in flat_errors(done)


def test_describe_says_what_is_in_it_and_what_is_public(imported: Path) -> None:
    shown = run_json("describe", imported)
    assert (shown["nodes"], shown["features"], shown["classes"]) == (60, 4, ROLES)
    assert (shown["classes_declared"], shown["split"], shown["ids"]) == (True, None, "own")
    assert shown["holder"]["symmetric"]
    assert any("both of its directions" in line for line in shown["lines"])
    words = flat(run("describe", imported))
    assert "not private, not for publication" in words
    assert "--unit undirected-edge: one edge is protected" in words
    assert run("describe", "campus").exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--numeric", "age"], "--numeric: expected COLUMN=LOW:HIGH; got 'age'"),
        (["--numeric", "age=old:young"], "--numeric: expected COLUMN=LOW:HIGH"),
        (["--numeric", "age=9:1"], "LOW below HIGH"),
        (["--hashed", "city=many"], "--hashed: expected COLUMN=BUCKETS"),
        (["--hashed", "city=1"], "expected 2 to 65536 buckets"),
        (["--category", "city=Rome,Rome"], "expected distinct categories"),
        (["--numeric", "age=0:9", "--category", "age=A,B"], "for a column that has no other rule"),
        (["--numeric", "weight=0:9"], "expected the column 'weight'"),
    ],
)
def test_rules_that_make_no_sense(words: list[str], told: str, tmp_path: Path) -> None:
    nodes, edges = write_people(tmp_path)
    given = ["--edges", edges, "--nodes", nodes, "--id", "person", "--label", "role", "--undirected", *words]
    refused = run("import", *given, "--ignore", "*", "--out", tmp_path / "g")
    assert (refused.exit_code, told in flat_errors(refused)) == (2, True), refused.stderr


def test_workers_for_a_small_graph_are_told_not_to_pay(imported: Path, tmp_path: Path) -> None:
    arguments = ["train", "gap", "--data", imported, *TRAIN, *NODE]
    alone, shared = (run(*arguments, "--out", tmp_path / name, *more) for name, more in WORKERS.items())
    assert (alone.exit_code, shared.exit_code) == (0, 0)
    assert "begin to pay at about 200,000 nodes" in flat_errors(shared)
    assert "begin to pay" not in flat_errors(alone)


def test_types_of_edges_from_a_column_to_a_promise_for_each(tmp_path: Path) -> None:
    nodes, _ = write_people(tmp_path)
    columns = people()[1]
    columns["kind"] = ["pays" if number % 3 else "follows" for number in range(len(columns["from"]))]
    edges, graph = write_csv(tmp_path / "typed.csv", columns), tmp_path / "typed.graph"
    shown = run(
        *("import", "--edges", edges, "--nodes", nodes, *IMPORT, "--out", graph),
        *("--edge-type", "kind", "--edge-types", "follows,pays"),
    )
    assert "types of edges: follows, pays" in flat(shown)
    assert "--epsilon follows=4,pays=1" in flat(run("describe", graph))
    words = ["--data", graph, "--unit", "undirected-edge", "--epsilon", "follows=4,pays=1", "--set", "epochs=2"]
    done = run_json("train", "gap", *words, "--out", tmp_path / "model")
    (note,) = [one for one in done["certificate"]["public"] if one["code"] == "relations"]
    assert note["epsilons"]["pays"] <= 1.0 < note["epsilons"]["follows"] <= 4.0
    refused = run("train", "lpgnet", *words[:4], "--epsilon", "4", "--out", tmp_path / "other")
    assert refused.exit_code == 2
    assert "import the edges without --edge-type" in " ".join(refused.output.split())
    doubled = run("plan", "gap", "--nodes", "9", "--unit", "node", "--epsilon", "a=1,a=2")
    assert doubled.exit_code == 2
    assert "such as follows=4,pays=1" in " ".join(doubled.output.split())


def test_a_plan_takes_a_budget_for_each_type() -> None:
    words = ["plan", "gap", "--unit", "undirected-edge", "--nodes", "500", "--epsilon", "follows=4,pays=1"]
    plan = run_json(*words)["plan"]
    assert plan["metadata"]["edge_types"] == ["follows", "pays"]
    assert plan["budget"]["relations"] == [["follows", 4.0], ["pays", 1.0]]
    assert re.search(r"follows 4, pays 1 \(sums of it have 3\.\d+ times the stated noise\)", flat(run(*words)))


def test_ids_that_a_spreadsheet_would_run_are_said_and_may_be_written_as_text(tmp_path: Path) -> None:
    columns, edges = people()
    odd = {"p000": "=1+1", "p001": "@sum", "p002": "-5"}
    columns["person"] = [odd.get(name, name) for name in columns["person"]]
    edges = {name: [odd.get(one, one) for one in values] for name, values in edges.items()}
    nodes, links = write_csv(tmp_path / "n.csv", columns), write_csv(tmp_path / "e.csv", edges)
    graph, model = tmp_path / "my.graph", tmp_path / "model"
    assert run("import", "--edges", links, "--nodes", nodes, *IMPORT, "--out", graph).exit_code == 0
    run_json("train", "gap", "--data", graph, *TRAIN, "--out", model)
    said = run("predict", model, "--data", graph, "--out", tmp_path / "as-they-came.csv")
    assert "3 ids in" in " ".join(said.output.split())
    assert "--spreadsheet" in said.output
    quiet = run("predict", model, "--data", graph, "--out", tmp_path / "as-text.csv", "--spreadsheet")
    assert "begin with" not in quiet.output
    for name, first in (
        ("as-they-came", ["=1+1", "@sum", "-5", "p003"]),
        ("as-text", ["'=1+1", "'@sum", "'-5", "p003"]),
    ):
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            assert [row["id"] for row in csv.DictReader(file)][:4] == first


def test_edges_in_several_files_or_a_folder_are_one_table(tmp_path: Path) -> None:
    nodes, edges = write_people(tmp_path)
    head, *lines = edges.read_text().splitlines()
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(3):
        (parts / f"part-{number}.csv").write_text("\n".join([head, *lines[number::3]]) + "\n")
    (parts / "_SUCCESS").touch()
    several = [word for number in range(3) for word in ("--edges", parts / f"part-{number}.csv")]
    found = []
    for name, given in (("one", ["--edges", edges]), ("several", several), ("folder", ["--edges", parts])):
        done = run("import", *given, "--nodes", nodes, *IMPORT, "--out", tmp_path / f"{name}.graph")
        assert done.exit_code == 0, done.output
        found.append((tmp_path / f"{name}.graph" / "edges" / "sources.bin").read_bytes())
    assert found[0] == found[1] == found[2]
    (parts / "people.csv").write_text(nodes.read_text())
    refused = run("import", "--edges", parts, "--nodes", nodes, *IMPORT, "--out", tmp_path / "other.graph")
    assert (refused.exit_code, "people.csv: expected the columns of" in flat_errors(refused)) == (2, True)
    (tmp_path / "empty").mkdir()
    refused = run("import", "--edges", tmp_path / "empty", "--nodes", nodes, *IMPORT, "--out", tmp_path / "other.graph")
    assert (refused.exit_code, "got no file in it" in flat_errors(refused)) == (2, True)


def test_an_import_that_is_stopped_says_how_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, edges = write_people(tmp_path)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hushgraph.graph.disk.write_edges", stopped)
    left = run("import", "--edges", edges, "--nodes", nodes, *IMPORT, "--out", tmp_path / "my.graph")
    assert left.exit_code == 130
    words = flat_errors(left)
    assert "nothing was charged" in words
    assert "takes the import" in words
    kept = next(tmp_path.glob(".my.graph.partial-*"))
    assert kept.name in words
    monkeypatch.undo()
    assert run("import", "--edges", edges, "--nodes", nodes, *IMPORT, "--out", tmp_path / "my.graph").exit_code == 0
    assert not kept.exists()


def test_another_graph_is_predicted_from_its_folder(imported: Path, tmp_path: Path) -> None:
    run_json("train", "chorus", "--data", imported, *TRAIN, "--out", tmp_path / "model")
    model = hg.load(tmp_path / "model")
    ledger = Ledger(tmp_path / "ledger")
    found = model.predict_on(str(imported), (1.0, 1e-4), ledger=ledger, memory="1MiB", seed=1)
    again = model.predict_on(hg.datasets.load(imported), (1.0, 1e-4), ledger=ledger, seed=1)
    assert found.predict().tolist() == again.predict().tolist()
    on = ["--on", imported, "--epsilon", 1, "--memory", "1MiB", "--out", tmp_path / "on.csv"]
    assert run_json("predict", tmp_path / "model", *on)["charged"]
