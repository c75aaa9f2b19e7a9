"""Public datasets: small files in the layout of PyTorch Geometric through its real code, and stand-ins for the rest."""

from __future__ import annotations

import json
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.datasets
from scipy import sparse
from torch_geometric.data import Data

from hushgraph.datasets.catalog import PUBLIC, public_dataset
from hushgraph.datasets.loading import load_public
from hushgraph.datasets.splits import MASKS, has_split
from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph

# Node 2 has a self loop, and 0 - 3 is stored once only.
EDGES = np.array([[0, 1], [1, 0], [2, 2], [0, 3]])
TIDY = [[0, 0, 1, 3], [1, 3, 0, 0]]


class _Trap:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.trace,))


def _raw(root: Path, name: str) -> Path:
    entry = public_dataset(name)
    assert entry is not None
    folder = entry.raw_folder(root)
    folder.mkdir(parents=True)
    return folder


def _write_musae(path: Path) -> None:
    np.savez(path, features=np.eye(4, 3), target=np.array([0, 1, 1, 0]), edges=EDGES)


@pytest.mark.parametrize(
    ("name", "file"),
    [("facebook-pagepage", "facebook.npz"), ("lastfm-asia", "lastfm_asia.npz"), ("twitch-pt", "PT.npz")],
)
def test_musae_files_through_real_processing(tmp_path: Path, name: str, file: str) -> None:
    _write_musae(_raw(tmp_path, name) / file)
    data = load_public(name, tmp_path)
    assert data.edge_index.tolist() == TIDY
    assert data.x.tolist() == np.eye(4, 3).tolist()
    assert data.y.tolist() == [0, 1, 1, 0]
    assert data.name == name
    assert not has_split(data)
    # The second time the processed file is read.
    as_is = load_public(name.upper().replace("-", "_"), tmp_path, as_published=True)
    assert as_is.edge_index.t().tolist() == EDGES.tolist()


def test_shchur_files_through_real_processing(tmp_path: Path) -> None:
    adjacency, x = sparse.csr_matrix(np.eye(4, k=1)), sparse.csr_matrix(np.eye(4, 3) * 5)
    parts = {}
    for prefix, matrix in (("adj", adjacency), ("attr", x)):
        parts.update({f"{prefix}_{key}": getattr(matrix, key) for key in ("data", "indices", "indptr", "shape")})
    for name, file in (("coauthor-cs", "ms_academic_cs"), ("amazon-photo", "amazon_electronics_photo")):
        np.savez(_raw(tmp_path, name) / f"{file}.npz", labels=np.array([0, 1, 2, 0]), **parts)
        data = load_public(name, tmp_path)
        assert data.edge_index.tolist() == [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
        assert data.x.tolist() == np.eye(4, 3).tolist()


def _write_planetoid(folder: Path, name: str, graph: object) -> None:
    rng = np.random.default_rng(0)
    x, one_hot = rng.integers(2, size=(530, 8)).astype(np.float32), np.eye(7)[rng.integers(7, size=530)]
    pieces = {
        "x": sparse.csr_matrix(x[:14]),
        "allx": sparse.csr_matrix(x[:520]),
        "tx": sparse.csr_matrix(x[520:]),
        "y": one_hot[:14],
        "ally": one_hot[:520],
        "ty": one_hot[520:],
        "graph": graph,
    }
    for piece, value in pieces.items():
        (folder / f"ind.{name}.{piece}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / f"ind.{name}.test.index").write_text("\n".join(str(node) for node in range(520, 530)) + "\n")


def test_planetoid_files_through_real_processing(tmp_path: Path) -> None:
    ring = {node: [(node - 1) % 530, (node + 1) % 530] for node in range(530)}
    _write_planetoid(_raw(tmp_path, "cora"), "cora", ring)
    data = load_public("Cora", tmp_path)
    assert data.num_nodes == 530
    assert data.edge_index.shape == (2, 1060)
    assert [int(data[name].sum()) for name in MASKS] == [14, 500, 10]
    assert data.class_names == [str(number) for number in range(7)]


def test_planetoid_file_with_code_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    _write_planetoid(_raw(tmp_path, "cora"), "cora", {0: [_Trap(trace)]})
    with pytest.raises(InputError, match="would run code"):
        load_public("cora", tmp_path)
    assert not trace.exists()


def test_npz_and_processed_files_with_code_are_refused(tmp_path: Path) -> None:
    trace, folder = tmp_path / "trace", _raw(tmp_path, "lastfm-asia")
    trap = np.array([_Trap(trace)], dtype=object)
    np.savez(folder / "lastfm_asia.npz", features=trap, target=np.zeros(1), edges=EDGES)
    with pytest.raises(InputError, match="would run code"):
        load_public("lastfm-asia", tmp_path)
    _write_musae(folder / "lastfm_asia.npz")
    load_public("lastfm-asia", tmp_path)
    for file in ("data.pt", "pre_transform.pt"):
        torch.save(_Trap(trace), folder.parent / "processed" / file)
        with pytest.raises(InputError, match="would run code"):
            load_public("lastfm-asia", tmp_path)
    assert not trace.exists()


def test_flickr_files_through_real_processing(tmp_path: Path) -> None:
    folder = _raw(tmp_path, "flickr")
    matrix = sparse.csr_matrix(np.eye(4, k=1) + np.eye(4, k=-1))
    parts = {key: getattr(matrix, key) for key in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "adj_full.npz", **parts)
    np.save(folder / "feats.npy", np.eye(4))
    (folder / "class_map.json").write_text(json.dumps({str(node): node % 2 for node in range(4)}))
    (folder / "role.json").write_text(json.dumps({"tr": [0, 1], "va": [2], "te": [3]}))
    data = load_public("flickr", tmp_path)
    assert data.edge_index.shape == (2, 6)
    assert [torch.nonzero(data[name]).flatten().tolist() for name in MASKS] == [[0, 1], [2], [3]]


class _Stand:
    """Stands in for a dataset class: notes how it was made and gives a small graph."""

    made: list[tuple[Any, ...]]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        type(self).made.append((*arguments, named))

    def __getitem__(self, number: int) -> Data:
        return Data(x=torch.eye(4), edge_index=torch.from_numpy(EDGES.T), y=torch.zeros(4, 1), num_nodes=4)

    def get_idx_split(self) -> dict[str, torch.Tensor]:
        return {"train": torch.tensor([0, 1]), "valid": torch.tensor([2]), "test": torch.tensor([3])}


@pytest.mark.parametrize("entry", [each for each in PUBLIC if each.maker != "PPI"], ids=lambda entry: entry.record.name)
def test_every_dataset_is_asked_for_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Any
) -> None:
    stand = type("Stand", (_Stand,), {"made": []})
    if entry.maker == "ogb":
        module = types.ModuleType("ogb.nodeproppred")
        module.PygNodePropPredDataset = stand  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "ogb", types.ModuleType("ogb"))
        monkeypatch.setitem(sys.modules, "ogb.nodeproppred", module)
        expected: tuple[Any, ...] = ({"name": entry.argument, "root": str(tmp_path / "OGB")},)
    else:
        monkeypatch.setattr(torch_geometric.datasets, entry.maker, stand)
        given = () if entry.argument is None else (entry.argument,)
        expected = (str(tmp_path / entry.maker), *given, {})
    data = load_public(entry.record.name, tmp_path)
    assert stand.made == [expected]  # type: ignore[attr-defined]
    assert len(data.class_names) == entry.record.classes
    assert data.y.shape == (4,)
    assert data.y.dtype == torch.int64
    assert data.edge_index.tolist() == (TIDY if entry.tidy else EDGES.T.tolist())
    assert has_split(data) == (entry.maker == "ogb")


@pytest.mark.parametrize("entry", [each for each in PUBLIC if each.maker != "ogb"], ids=lambda entry: entry.record.name)
def test_catalog_agrees_with_pyg_on_where_files_lie(tmp_path: Path, entry: Any) -> None:
    maker = getattr(torch_geometric.datasets, entry.maker)
    dataset = maker.__new__(maker)
    dataset.root = str(tmp_path / entry.maker)
    dataset.name, dataset.split = entry.argument, "public"
    if entry.maker == "Amazon":
        dataset.name = entry.argument.lower()
    assert [Path(path) for path in dataset.raw_paths] == [entry.raw_folder(tmp_path) / file for file in entry.raw]


def test_failed_download_says_where_files_were_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(self: object) -> None:
        raise OSError("Network is unreachable\nand more")

    monkeypatch.setattr(torch_geometric.datasets.Reddit, "download", no_network)
    with pytest.raises(InputError) as caught:
        load_public("reddit", tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "Reddit" / "raw") in message
    assert "reddit_data.npz, reddit_graph.npz" in message
    assert "OSError: Network is unreachable" in message
    assert "\n" not in message


def test_broken_raw_file_is_named_as_such(tmp_path: Path) -> None:
    np.savez(_raw(tmp_path, "twitch-de") / "DE.npz", features=np.eye(3))
    with pytest.raises(InputError, match="to be readable; KeyError"):
        load_public("twitch-de", tmp_path)


def test_ogb_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(InputError, match="pip install ogb"):
        load_public("ogbn-arxiv", tmp_path)


def test_unknown_name() -> None:
    with pytest.raises(InputError, match="did you mean 'citeseer'"):
        load_public("citeseeer")


def test_ppi_is_one_graph_of_many_with_several_classes_a_node(tmp_path: Path) -> None:
    raw, rng = _raw(tmp_path, "ppi"), np.random.default_rng(0)
    for part, graphs in (("train", 2), ("valid", 1), ("test", 1)):
        nodes, links = 3 * graphs, [(3 * g + a, 3 * g + b) for g in range(graphs) for a, b in ((0, 1), (1, 2), (0, 0))]
        listed = {"nodes": [{"id": i} for i in range(nodes)], "links": [{"source": a, "target": b} for a, b in links]}
        (raw / f"{part}_graph.json").write_text(
            json.dumps({"directed": True, "graph": {}, "multigraph": False, **listed})
        )
        np.save(raw / f"{part}_feats.npy", rng.random((nodes, 5)))
        np.save(raw / f"{part}_labels.npy", rng.integers(0, 2, (nodes, 121)))
        np.save(raw / f"{part}_graph_id.npy", 1 + np.arange(nodes) // 3)
    data = load_public("PPI", tmp_path)
    assert data.y.shape == (12, 121)
    assert [int(data[name].sum()) for name in MASKS] == [6, 3, 3]
    assert data.edge_index.shape == (2, 16)
    assert bool((data.edge_index[0] // 3 == data.edge_index[1] // 3).all())
    assert len(data.class_names) == 121
    assert check_graph(data).metadata.multilabel
