"""Edges that are declared public: from a table of their own to the folder, the unit `private-edge` and a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import hushgraph as hg
from commands import flat, run, run_json
from hushgraph.datasets import load
from hushgraph.datasets.stored import read_facts
from hushgraph.errors import InputError
from hushgraph.importing import importer
from hushgraph.importing.edges import EdgeColumns
from hushgraph.importing.findings import Code
from hushgraph.importing.importer import import_files
from hushgraph.importing.nodes import NodeColumns
from hushgraph.ledger.ledger import Ledger
from importing.tables_of_people import CITIES, IMPORT, ROLES, people, write_csv, write_people

COLUMNS = NodeColumns("person", "role", None, {"age": (0, 120), "city": CITIES}, ROLES)
MUTUAL = EdgeColumns(directed=False)
PUBLIC = {"from": ["p001", "p058", "p001", "p007"], "to": ["p058", "p059", "p058", "p007"]}
"""Two pairs, one of which comes twice, and a node with itself; p058 and p059 have no private edge."""
Pairs = set[frozenset[str]]


def files(folder: Path, public: dict[str, Any] | None = None) -> tuple[Path, Path, Path]:
    """Nodes, edges, and public edges: half of the first few edges, and pairs that the table of edges does not have."""
    nodes, edges = write_people(folder)
    return nodes, edges, write_csv(folder / "public.csv", public or _declared())


def _declared() -> dict[str, list[str]]:
    edges = people()[1]
    return {name: [*edges[name][:20:2], *PUBLIC[name]] for name in PUBLIC}


def named(index: torch.Tensor, ids: Any) -> Pairs:
    return {frozenset((ids[one], ids[other])) for one, other in index.T.tolist()}


def pairs_of(columns: dict[str, list[str]]) -> Pairs:
    return {frozenset(pair) for pair in zip(columns["from"], columns["to"]) if len(set(pair)) == 2}


@pytest.mark.parametrize("memory", ["1GiB", "1KiB"], ids=["memory", "disk"])
def test_public_edges_come_back_and_are_edges_of_the_graph(
    tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "MEMORY", 4096)
    nodes, edges, public = files(tmp_path)
    done = import_files(tmp_path / "my.graph", edges, nodes, COLUMNS, MUTUAL, public=public)
    (told,) = [one for one in done.findings if one.code is Code.PUBLIC_EDGES]
    assert told.count == len(pairs_of(_declared()))
    graph = load(tmp_path / "my.graph", memory=memory)
    ids = graph.user_ids.tolist()
    assert named(graph.public_edge_index, ids) == pairs_of(_declared())
    whole = graph.edge_index if "edge_index" in graph else graph.edges.edge_index()
    assert named(whole, ids) == pairs_of(people()[1]) | pairs_of(_declared())
    assert whole.shape[1] == done.num_edges == 2 * len(named(whole, ids))


def test_a_private_edge_changes_nothing_public(tmp_path: Path) -> None:
    """Also where it is on both lists: what is public does not depend on what the private table says."""
    _, edges, public = files(tmp_path)
    fewer = {name: values[1:] for name, values in people()[1].items()}
    assert frozenset((people()[1]["from"][0], people()[1]["to"][0])) in pairs_of(_declared())
    found = []
    for number, table in enumerate((edges, write_csv(tmp_path / "fewer.csv", fewer))):
        import_files(tmp_path / f"{number}.graph", table, tmp_path / "nodes.csv", COLUMNS, MUTUAL, public=public)
        found.append(load(tmp_path / f"{number}.graph"))
    assert torch.equal(found[0].public_edge_index, found[1].public_edge_index)
    assert torch.equal(found[0].edge_index, found[1].edge_index)


def test_a_model_protects_the_other_edges(tmp_path: Path) -> None:
    nodes, edges, public = files(tmp_path)
    words = ["--edges", edges, "--nodes", nodes, "--public-edges", public, *IMPORT, "--out", tmp_path / "my.graph"]
    shown = flat(run("import", *words))
    count = len(pairs_of(_declared()))
    assert f"{count} edges of {public} are public knowledge" in shown
    assert f"{count} edges were declared public: --unit private-edge" in flat(run("describe", tmp_path / "my.graph"))
    asked = ["--data", tmp_path / "my.graph", "--unit", "private-edge", "--epsilon", "4", "--set", "epochs=2"]
    done = run_json("train", "edge-rr", *asked, "--set", "steps_per_node=5", "--out", tmp_path / "model")
    assert done["certificate"]["unit"]["name"] == "private-edge"


def test_tables_in_python_have_them_too() -> None:
    nodes, edges = people()
    features = {"age": (0, 120), "city": CITIES}
    shared: dict[str, Any] = {"id": "person", "label": "role", "classes": ROLES, "features": features}
    graph = hg.Graph.from_frames(nodes, edges, directed=False, public_edges=_declared(), **shared)
    assert named(graph.public_edge_index, graph.user_ids) == pairs_of(_declared())
    assert named(graph.edge_index, graph.user_ids) == pairs_of(edges) | pairs_of(_declared())
    assert any(one.code is Code.PUBLIC_EDGES for one in graph.findings)
    model = hg.ARR(epochs=2).fit(graph, "private-edge", (4.0, 1e-4), ledger=Ledger.in_memory(warn=False), seed=0)
    assert model.plan.metadata.num_public_edges == 2 * len(pairs_of(_declared()))


def test_a_header_from_before_there_were_public_edges_has_its_old_checksum(tmp_path: Path) -> None:
    nodes, edges, _ = files(tmp_path)
    import_files(tmp_path / "my.graph", edges, nodes, COLUMNS, MUTUAL)
    path = tmp_path / "my.graph" / "graph.json"
    header = json.loads(path.read_text())
    assert header.pop("public_edges") is False
    path.write_text(json.dumps(header))
    assert read_facts(tmp_path / "my.graph").public_edges is False
    assert "public_edge_index" not in load(tmp_path / "my.graph")


@pytest.mark.parametrize("changed", ["public/sources.bin", "public/header.json"])
def test_public_edges_that_were_changed_are_refused(tmp_path: Path, changed: str) -> None:
    nodes, edges, public = files(tmp_path)
    import_files(tmp_path / "my.graph", edges, nodes, COLUMNS, MUTUAL, public=public)
    path = tmp_path / "my.graph" / changed
    values = bytearray(path.read_bytes())
    values[-3] ^= 1
    path.write_bytes(bytes(values))
    with pytest.raises(InputError, match=r"[iI]mport the graph again|write the edges again"):
        load(tmp_path / "my.graph")


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    nodes, edges, public = files(tmp_path)
    typed = EdgeColumns(directed=False, kind="from", kinds=("a",))
    with pytest.raises(InputError, match="--public-edges: expected edges without types"):
        import_files(tmp_path / "a.graph", edges, nodes, COLUMNS, typed, public=public)
    stranger = files(tmp_path, {"from": ["p001"], "to": ["nobody"]})[2]
    with pytest.raises(InputError, match=r"public\.csv: expected edges between nodes of the list; got 'nobody'"):
        import_files(tmp_path / "b.graph", edges, nodes, COLUMNS, MUTUAL, public=stranger)
    words = ["--edges", edges, "--nodes", nodes, *IMPORT, "--out", tmp_path / "c.graph"]
    for asked, said in (
        (["import", *words, "--public-edges", tmp_path / "none.csv"], "there is no such file"),
        (["import", edges, "--public-edges", public, "--out", tmp_path / "d.graph"], "expected a table of edges"),
    ):
        refused = run(*asked)
        assert refused.exit_code == 2
        assert said in " ".join(refused.output.split())
