"""`load` finds what is asked for, gives every graph the same attributes, and says clearly what it cannot find."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from hushgraph.datasets import load, write_npz
from hushgraph.datasets.built_in import campus
from hushgraph.datasets.splits import MASKS
from hushgraph.errors import InputError


def _bare(count: int = 40, classes: int = 4) -> Data:
    ring = torch.stack([torch.arange(count), (torch.arange(count) + 1) % count])
    return Data(
        x=torch.eye(count),
        edge_index=torch.cat([ring, ring.flip(0)], dim=1),
        y=torch.arange(count) % classes,
        class_names=[f"class {number}" for number in range(classes)],
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path))
    (tmp_path / "school").mkdir()
    write_npz(_bare(), tmp_path / "school" / "ring.npz")
    return tmp_path


def _check_contract(data: Data) -> None:
    assert data.x.dtype == torch.float32
    assert data.edge_index.dtype == data.y.dtype == torch.int64
    assert all(data[name].dtype == torch.bool for name in MASKS)
    assert all(isinstance(name, str) for name in data.class_names)
    assert isinstance(data.name, str)


def test_built_in_with_options() -> None:
    data = load("campus", num_nodes=300, seed=4)
    _check_contract(data)
    assert torch.equal(data.edge_index, campus(300, seed=4).edge_index)
    few, many = load("digits", neighbors=2), load("digits", neighbors=5)
    _check_contract(few)
    assert few.edge_index.shape[1] < many.edge_index.shape[1]


def test_file_by_name_and_by_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = load("school/ring")
    _check_contract(by_name)
    assert by_name.name == "school/ring"
    assert [int(by_name[name].sum()) for name in MASKS] == [30, 4, 6]
    for path in (folder / "school" / "ring.npz", str(folder / "school" / "ring.npz"), "school/ring.npz"):
        assert torch.equal(load(path).train_mask, by_name.train_mask)
    monkeypatch.chdir(folder / "school")
    assert load("ring.npz").name == "ring"
    assert not torch.equal(load("school/ring", seed=1).train_mask, by_name.train_mask)


def test_public_dataset_by_name(tmp_path: Path) -> None:
    raw = tmp_path / "Twitch" / "RU" / "raw"
    raw.mkdir(parents=True)
    edges = np.array([[0, 1], [1, 2]])
    np.savez(raw / "RU.npz", features=np.eye(20, 3), target=np.arange(20) % 2, edges=edges)
    data = load("twitch-ru", root=tmp_path)
    _check_contract(data)
    assert data.edge_index.shape == (2, 4)
    assert int(data.train_mask.sum()) == 15
    assert load("twitch-ru", root=tmp_path, as_published=True).edge_index.shape == (2, 2)


def test_a_split_in_the_file_is_kept_unless_another_is_asked_for(folder: Path) -> None:
    data = _bare()
    for number, name in enumerate(MASKS):
        data[name] = torch.arange(40) % 5 == number
    write_npz(data, folder / "public")
    assert torch.equal(load("public", seed=9).train_mask, data.train_mask)
    assert int(load("public", split="random").train_mask.sum()) == 30
    assert [int(load("public", split=(0.5, 0.25, 0.25))[name].sum()) for name in MASKS] == [20, 10, 10]


def test_split_file_by_path_and_by_name(folder: Path) -> None:
    masks = {name: np.arange(40) % 4 == number for number, name in enumerate(MASKS)}
    np.savez(folder / "school" / "ring-split.npz", node_ids=np.arange(40), **masks)
    for split in (folder / "school" / "ring-split.npz", "school/ring-split", "school/ring-split.npz"):
        assert load("school/ring", split=split).test_mask.tolist() == masks["test_mask"].tolist()


def test_split_by_number(folder: Path) -> None:
    stacks = {f"{name}s": np.stack([np.arange(40) % 3 == (n + k) % 3 for k in (0, 1)]) for n, name in enumerate(MASKS)}
    with np.load(folder / "school" / "ring.npz", allow_pickle=False) as stored:
        np.savez(folder / "several.npz", **stored, **stacks)
    assert load("several").train_mask.tolist() == stacks["train_masks"][0].tolist()
    assert load("several", split=1).train_mask.tolist() == stacks["train_masks"][1].tolist()
    with pytest.raises(InputError, match="split number"):
        load("campus", split=1)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("split", [(0.5, 0.5), True, 0.5, "no-such-split", {}])
def test_refuses_other_splits(split: object) -> None:
    with pytest.raises(InputError, match="expected split to be 'random', three fractions"):
        load("school/ring", split=split)  # type: ignore[arg-type]


def test_known_files_bring_their_number_of_classes(folder: Path) -> None:
    data = _bare(classes=7)
    del data.class_names
    (folder / "planetoid").mkdir()
    write_npz(data, folder / "planetoid" / "cora")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for source in ("planetoid/cora", "planetoid/cora.npz", folder / "planetoid" / "cora.npz"):
            assert len(load(source).class_names) == 7
    assert load("planetoid/cora").name == "planetoid/cora"
    with pytest.raises(InputError, match="from 0 to 3 in y"):
        load("planetoid/cora", num_classes=4)


def test_a_file_of_a_known_name_that_names_its_own_classes_is_left_alone(folder: Path) -> None:
    (folder / "planetoid").mkdir()
    write_npz(_bare(classes=3), folder / "planetoid" / "cora")
    assert load("planetoid/cora").class_names == ["class 0", "class 1", "class 2"]


@pytest.mark.parametrize("name", ["twitch/DE", "twitch/ENGB", "twitch/ES", "twitch/PTBR", "tolokers/tolokers"])
def test_no_known_file_takes_its_classes_from_the_labels(folder: Path, name: str) -> None:
    data = _bare(classes=2)
    del data.class_names
    data.y = torch.zeros(40, dtype=torch.int64)  # the labels do not even show the second class
    (folder / name).parent.mkdir()
    write_npz(data, folder / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(folder / f"{name}.npz").class_names == ["0", "1"]


@pytest.mark.usefixtures("folder")
def test_unknown_names() -> None:
    with pytest.raises(InputError, match="did you mean 'campus'"):
        load("campsu")
    with pytest.raises(InputError, match=r"there is no 'my\.graph'\. hushgraph import makes a graph"):
        load("my.graph")
    with pytest.raises(InputError, match="did you mean 'school/ring'"):
        load("school/rnig")
    with pytest.raises(InputError, match=r"expected a graph file at nowhere\.npz; there is none"):
        load("nowhere.npz")


def test_missing_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path / "gone"))
    with pytest.raises(InputError, match=r"there is no folder .*gone; set it"):
        load("facebook100/Berkeley13")
    monkeypatch.delenv("HUSHGRAPH_DATA")
    for name in ("facebook100/Berkeley13", "school/ring"):
        with pytest.raises(InputError) as caught:
            load(name)
        assert str(caught.value) == (
            f"expected HUSHGRAPH_DATA to name the folder that holds '{name}'; it is not set; set it"
        )
    with pytest.raises(InputError, match="neither a file nor the name of one; check it, and HUSHGRAPH_DATA"):
        load("campus", split="school/ring-split")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "option"), [("campus", "num_node"), ("digits", "k"), ("school/ring", "tsk"), ("cora", "x")]
)
def test_unknown_options(name: str, option: str) -> None:
    with pytest.raises(InputError, match=f"expected an option of '{name}'; got '{option}'"):
        load(name, **{option: 1})
