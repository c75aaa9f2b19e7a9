"""Folders of imported graphs: what was changed since is refused, and nothing in a header is taken at its word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from hushgraph.datasets.stored import GraphFacts, read_facts, read_stored, write_stored
from hushgraph.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    data = Data(x=torch.rand(4, 2), y=torch.tensor([0, 1, 0, -1]), edge_index=edges, num_nodes=4)
    data.train_mask = torch.tensor([True, False, False, False])
    data.val_mask = data.test_mask = ~data.train_mask
    facts = GraphFacts("small", 4, False, ["a", "b"], "<i8", ["red", "blue"], True, has_split=True)
    return write_stored(data, tmp_path / "small.graph", facts, edges)


FILES = ["features.bin", "labels.bin", "parts.bin", "ids.bin", "edges/header.json", "edges/sources.bin"]


@pytest.mark.parametrize("name", FILES)
def test_one_bit_is_noticed(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=r"changed|damaged|checksum|expected"):
        read_stored(folder)


def test_another_header_is_noticed(folder: Path) -> None:
    text = (folder / "graph.json").read_text()
    (folder / "graph.json").write_text(text.replace("blue", "grey"))
    with pytest.raises(InputError, match="its checksum is another one"):
        read_facts(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"id_type": "O"},
        {"id_type": "|S99999"},
        {"id_type": "V8"},
        {"num_nodes": 0},
        {"num_nodes": 5},
        {"num_nodes": 10**15},
        {"num_nodes": True},
        {"feature_names": [1, 2]},
        {"class_names": {"a": 1}},
        {"target_range": ["a", "b"]},
        {"has_split": 1},
    ],
)
def test_a_header_without_checksums_is_not_believed(folder: Path, change: dict[str, object]) -> None:
    header = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(json.dumps(header | {"sha256": None}))
    assert read_stored(folder).num_nodes == 4  # a graph that was imported before there were checksums
    (folder / "graph.json").write_text(json.dumps(header | {"sha256": None} | change))
    with pytest.raises(InputError, match=r"(?i)import the graph again"):
        read_stored(folder)
