from __future__ import annotations

import gzip
import json
from pathlib import Path

import networkx
import pytest
import torch
from torch_geometric.data import Data

from hushgraph.datasets import load
from hushgraph.errors import InputError
from hushgraph.importing.importer import import_whole
from hushgraph.importing.nodes import NodeColumns
from small_graphs import random_graph

COLUMNS = NodeColumns("id", "group", None, {"age": (0, 100)}, ["a", "b"])


def network() -> networkx.Graph:
    graph = networkx.Graph()
    for name, age, group in (("x", 20, "a"), ("y", 50, "b"), ("z", 70, "a")):
        graph.add_node(name, age=age, group=group)
    graph.add_edge("x", "y")
    return graph


@pytest.mark.parametrize("ending", ["graphml", "json"])
def test_graphs_of_networkx(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"g.{ending}"
    if ending == "graphml":
        networkx.write_graphml(network(), path)
    else:
        path.write_text(json.dumps(networkx.node_link_data(network())))
    import_whole(tmp_path / "my.graph", path, COLUMNS)
    graph = load(tmp_path / "my.graph")
    assert graph.user_ids.tolist() == ["x", "y", "z"]
    assert graph.edge_index.tolist() == [[1, 0], [0, 1]]
    assert graph.y.tolist() == [0, 1, 0]
    assert graph.x.flatten().tolist() == pytest.approx([0.2, 0.5, 0.7])


@pytest.mark.parametrize("plain", [True, False])
def test_graphs_of_pyg(plain: bool, tmp_path: Path) -> None:
    data = random_graph(3)
    held = {key: value for key, value in data.to_dict().items() if isinstance(value, torch.Tensor)}
    torch.save(held if plain else Data(**held), tmp_path / "g.pt")
    import_whole(tmp_path / "my.graph", tmp_path / "g.pt", NodeColumns("id", classes=["a", "b", "c"]))
    graph = load(tmp_path / "my.graph")
    assert torch.equal(graph.x, data.x)
    assert torch.equal(graph.train_mask, data.train_mask)
    assert graph.class_names == ["a", "b", "c"]
    assert set(map(tuple, graph.edge_index.T.tolist())) == set(map(tuple, data.edge_index.T.tolist()))


class _Evil:
    def __reduce__(self) -> tuple:
        return print, ("run",)


def test_a_file_that_would_run_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"edge_index": torch.zeros(2, 0), "x": _Evil()}, tmp_path / "g.pt")
    with pytest.raises(InputError, match="would run code"):
        import_whole(tmp_path / "my.graph", tmp_path / "g.pt", NodeColumns("id"))
    assert capsys.readouterr().out == ""


def test_a_folder_of_ogb(tmp_path: Path) -> None:
    folder = tmp_path / "arxiv"
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / "time").mkdir(parents=True)
    for name, text in (
        ("raw/edge", "0,1\n1,2\n"),
        ("raw/node-feat", "0.5,1\n-1,2\n3,4\n"),
        ("raw/node-label", "0\n2\n1\n"),
        ("split/time/train", "0\n"),
        ("split/time/valid", "1\n"),
        ("split/time/test", "2\n"),
    ):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            file.write(text)
    import_whole(tmp_path / "my.graph", folder, NodeColumns("id", classes=["r", "s", "t"]))
    graph = load(tmp_path / "my.graph")
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.x.tolist() == [[0.5, 1.0], [-1.0, 2.0], [3.0, 4.0]]
    assert (graph.y.tolist(), graph.test_mask.tolist(), graph.directed) == ([0, 2, 1], [False, False, True], True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.json", "[" * 100_000),
        ("digits.json", '{"nodes": [{"id": ' + "9" * 5000 + '}], "links": []}'),
        ("others.json", '{"nodes": [7], "links": []}'),
        ("links.json", '{"nodes": [{"id": 1}], "links": [null]}'),
        ("loud.graphml", "<!DOCTYPE g [<!ENTITY a 'lol'>{}]><graphml><graph><node id='&a9;'/></graph></graphml>"),
        ("outside.graphml", "<!DOCTYPE g [<!ENTITY a9 SYSTEM 'file:///etc/passwd'>]><graphml>&a9;</graphml>"),
    ],
)
def test_hostile_graphs_are_refused(name: str, text: str, tmp_path: Path) -> None:
    unfolding = "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 10)).replace("&a0;", "&a;")
    (tmp_path / name).write_text(text.replace("{}]", f"{unfolding}]"))
    with pytest.raises(InputError, match="expected"):
        import_whole(tmp_path / "my.graph", tmp_path / name, COLUMNS)
    assert not (tmp_path / "my.graph").exists()
