"""The list of datasets: true for the built-in ones, and right about what is on the disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgraph.datasets.built_in import campus, digits
from hushgraph.datasets.catalog import (
    PUBLIC,
    available,
    cache_folder,
    data_folder,
    declares_classes,
    known_file,
    public_dataset,
)
from hushgraph.datasets.npz import write_npz


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HUSHGRAPH_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.usefixtures("folders")
def test_nothing_but_the_built_in_ones_without_folders() -> None:
    records = available()
    assert {record.name for record in records if record.present} == {"campus", "digits"}
    assert {record.kind for record in records} == {"built-in", "file", "download"}
    names = [record.name for record in records]
    assert len(names) == len(set(names))


def test_built_in_sizes_are_true() -> None:
    records = {record.name: record for record in available()}
    for data in (campus(), digits()):
        record = records[data.name]
        assert record.nodes == data.num_nodes
        assert record.classes == len(data.class_names)
        assert record.edges is not None
        # Library versions may place ties of the nearest neighbors differently.
        assert abs(record.edges - data.edge_index.shape[1]) <= 0.01 * record.edges


def test_files_are_found(folders: Path) -> None:
    graph = campus(300)
    for name in ("mine", "school/small", "planetoid/cora"):
        (folders / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        write_npz(graph, folders / "data" / name)
    np.savez(folders / "data" / "picture.npz", x=np.zeros((2, 2)), y=np.zeros(2))
    (folders / "data" / "broken.npz").write_bytes(b"PK nothing")
    present = {record.name: record for record in available() if record.present and record.kind == "file"}
    assert set(present) == {"mine", "school/small", "planetoid/cora"}
    mine = present["mine"]
    assert (mine.nodes, mine.edges, mine.classes) == (300, graph.edge_index.shape[1], 6)


def test_headers_tell_whether_classes_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "named.npz", class_names=np.array(["a"]), y=np.zeros(2))
    np.savez(tmp_path / "bare.npz", y=np.zeros(2))
    assert declares_classes(tmp_path / "named.npz")
    assert not declares_classes(tmp_path / "bare.npz")


def test_downloads_are_found(folders: Path) -> None:
    raw = folders / "cache" / "Twitch" / "DE" / "raw"
    raw.mkdir(parents=True)
    (raw / "DE.npz").touch()
    assert [record.name for record in available() if record.present and record.kind == "download"] == ["twitch-de"]
    elsewhere = {record.name: record for record in available(root=folders / "other")}
    assert not elsewhere["twitch-de"].present


def test_names_of_public_datasets() -> None:
    assert all(public_dataset(entry.record.name) is entry for entry in PUBLIC)
    assert public_dataset("Coauthor_CS") is public_dataset("coauthor-cs")
    assert public_dataset("campus") is None
    record = known_file("facebook100/Berkeley13")
    assert record is not None
    assert record.classes == 6
    assert known_file("cora") is None
    assert known_file(Path("/anywhere/planetoid/cora.npz")) is known_file("planetoid/cora") is not None
    assert known_file("/anywhere/mine/cora.npz") is None


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HUSHGRAPH_DATA", raising=False)
    monkeypatch.delenv("HUSHGRAPH_CACHE", raising=False)
    assert data_folder() is None
    assert {record.name for record in available() if record.kind != "download" and record.present} == {
        "campus",
        "digits",
    }
    monkeypatch.setenv("HUSHGRAPH_DATA", "~/data")
    assert data_folder() == Path.home() / "data"
    assert cache_folder() == Path.home() / ".cache" / "hushgraph"
    assert cache_folder(tmp_path) == tmp_path
    monkeypatch.setenv("HUSHGRAPH_CACHE", "~/graphs")
    assert cache_folder() == Path.home() / "graphs"
