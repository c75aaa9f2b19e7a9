"""Random splits, splits from files, and node-disjoint graphs for inductive evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from hushgraph.datasets.built_in import campus
from hushgraph.datasets.splits import MASKS, disjoint_graphs, has_split, random_split, split_from
from hushgraph.errors import InputError


def _graph(count: int, unlabeled: int = 0) -> Data:
    y = torch.arange(count) % 3
    y[:unlabeled] = -1
    return Data(x=torch.zeros(count, 1), edge_index=torch.zeros(2, 0, dtype=torch.int64), y=y, name="toy")


def _sizes(data: Data) -> list[int]:
    return [int(data[name].sum()) for name in MASKS]


@given(count=st.integers(1, 400), unlabeled=st.integers(0, 20), seed=st.integers(0, 1000))
def test_every_node_is_in_one_part_whoever_has_a_label(count: int, unlabeled: int, seed: int) -> None:
    data = _graph(count + unlabeled, unlabeled)
    split = random_split(data, seed=seed)
    parts = torch.stack([split[name] for name in MASKS]).int().sum(0)
    assert bool((parts == 1).all())
    assert not has_split(data)
    assert abs(_sizes(split)[0] - 0.75 * (count + unlabeled)) <= 0.5
    other = random_split(_graph(count + unlabeled), seed=seed)  # a split is public: labels may not decide it
    assert all(torch.equal(split[name], other[name]) for name in MASKS)


def test_sizes_and_seed() -> None:
    data = _graph(1000)
    assert _sizes(random_split(data)) == [750, 100, 150]
    assert _sizes(random_split(data, 0.5, 0.25, 0.25)) == [500, 250, 250]
    assert _sizes(random_split(data, 0.1, 0.0, 0.2)) == [100, 0, 200]
    assert torch.equal(random_split(data, seed=4).train_mask, random_split(data, seed=4).train_mask)
    assert not torch.equal(random_split(data, seed=4).train_mask, random_split(data, seed=5).train_mask)


def test_each_node_is_equally_likely_to_be_tested() -> None:
    data = _graph(20)
    hits = sum(random_split(data, seed=seed).test_mask.int() for seed in range(2000))
    # Binomial(2000, 0.15): standard deviation 16; five of them are exceeded less than once in 50,000 runs.
    assert int((hits - 300).abs().max()) < 80  # type: ignore[union-attr]
    assert int(hits.sum()) == 2000 * 3  # type: ignore[union-attr]


def test_an_existing_split_is_replaced_in_the_copy_only() -> None:
    data = random_split(_graph(100), seed=1)
    before = data.train_mask.clone()
    again = random_split(data, seed=2)
    assert torch.equal(data.train_mask, before)
    assert not torch.equal(again.train_mask, before)
    assert again.name == "toy"


def test_labeled_restricts_the_nodes() -> None:
    allowed = torch.arange(40) < 20
    split = random_split(_graph(40, unlabeled=4), labeled=allowed)
    used = split.train_mask | split.val_mask | split.test_mask
    assert torch.nonzero(used).flatten().tolist() == list(range(20))


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ((0.8, 0.2, 0.2), "sum to at most 1"),
        ((-0.1, 0.5, 0.5), "train to be a fraction"),
        ((0.5, float("nan"), 0.2), "val to be a fraction"),
        ((0.0, 0.5, 0.5), "above 0"),
        ((True, 0.0, 0.0), "train to be a fraction"),
    ],
)
def test_refuses_wrong_fractions(fractions: tuple[float, float, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        random_split(_graph(10), *fractions)


def test_reports_all_wrong_fractions_together() -> None:
    with pytest.raises(InputError, match="2 problems"):
        random_split(_graph(10), -1, 0.1, 7)


def test_refuses_what_cannot_be_split() -> None:
    with pytest.raises(InputError, match="at least one node"):
        random_split(_graph(5), labeled=torch.zeros(5, dtype=torch.bool))
    with pytest.raises(InputError, match=r"data\.y"):
        random_split(Data(x=torch.zeros(3, 1)))
    with pytest.raises(InputError, match="boolean mask of shape"):
        random_split(_graph(5), labeled=torch.ones(4, dtype=torch.bool))


def _write_split(path: Path, count: int, **changes: object) -> Path:
    masks = np.arange(count) % 3
    arrays: dict[str, object] = {name: masks == number for number, name in enumerate(MASKS)}
    arrays.update(changes)
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})  # type: ignore[arg-type]
    return path


def test_split_from_file(tmp_path: Path) -> None:
    data = _graph(9, unlabeled=1)
    split = split_from(data, _write_split(tmp_path / "s.npz", 9, node_ids=np.arange(9)))
    assert torch.nonzero(split.train_mask).flatten().tolist() == [0, 3, 6]
    assert torch.nonzero(split.test_mask).flatten().tolist() == [2, 5, 8]
    assert not has_split(data)


def test_split_from_checks_the_node_ids(tmp_path: Path) -> None:
    data = _graph(4)
    data.node_ids = torch.tensor([2, 5, 7, 9])
    assert has_split(split_from(data, _write_split(tmp_path / "a.npz", 4, node_ids=np.array([2, 5, 7, 9]))))
    with pytest.raises(InputError, match="first at position 1: graph 5, file 6"):
        split_from(data, _write_split(tmp_path / "b.npz", 4, node_ids=np.array([2, 6, 7, 9])))
    with pytest.raises(InputError, match="split of the 4 nodes"):
        split_from(data, _write_split(tmp_path / "c.npz", 5, node_ids=np.arange(5)))


def test_split_from_refuses_broken_files(tmp_path: Path) -> None:
    data = _graph(6)
    with pytest.raises(InputError, match="there is none"):
        split_from(data, tmp_path / "absent.npz")
    with pytest.raises(InputError, match="missing: val_mask"):
        split_from(data, _write_split(tmp_path / "a.npz", 6, val_mask=None))
    with pytest.raises(InputError, match=r"shape \(6\); got \(5,\)"):
        split_from(data, _write_split(tmp_path / "b.npz", 5))
    with pytest.raises(InputError, match="2 nodes in more than one"):
        split_from(data, _write_split(tmp_path / "c.npz", 6, val_mask=np.arange(6) % 3 == 0))


@pytest.fixture(scope="module")
def graph() -> Data:
    return campus(600, seed=2)


def test_nodes_are_disjoint_and_complete(graph: Data) -> None:
    learn, test = disjoint_graphs(graph, seed=0)
    assert sorted(learn.node_ids.tolist() + test.node_ids.tolist()) == list(range(600))
    assert int(learn.test_mask.sum()) == 0
    assert int((test.train_mask | test.val_mask).sum()) == 0
    assert int(learn.train_mask.sum()) == int(graph.train_mask.sum())
    assert int(test.test_mask.sum()) == int(graph.test_mask.sum()) == test.num_nodes


def test_only_edges_between_the_graphs_are_dropped(graph: Data) -> None:
    learn, test = disjoint_graphs(graph, seed=0)
    source, target = graph.edge_index
    across = int((graph.test_mask[source] != graph.test_mask[target]).sum())
    kept = learn.edge_index.shape[1] + test.edge_index.shape[1]
    assert across > 0
    assert kept == graph.edge_index.shape[1] - across
    original = set(map(tuple, graph.edge_index.t().tolist()))
    for part in (learn, test):
        assert set(map(tuple, part.node_ids[part.edge_index].t().tolist())) <= original


def test_nodes_in_no_mask_are_dealt_out_by_seed(graph: Data) -> None:
    sparse_split = random_split(graph, 0.2, 0.1, 0.1)
    first, again, other = (disjoint_graphs(sparse_split, seed)[1].node_ids.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other
    # A quarter of 600: 60 tested ones and Binomial(360, 1/4), whose standard deviation is 8.2; fixed seed.
    assert abs(len(first) - 150) < 42


def test_input_is_not_changed(graph: Data) -> None:
    before = graph.edge_index.clone(), graph.train_mask.clone()
    disjoint_graphs(graph, 0)
    assert torch.equal(graph.edge_index, before[0])
    assert torch.equal(graph.train_mask, before[1])
    assert "node_ids" not in graph


def test_refuses_data_without_a_usable_split(graph: Data) -> None:
    bare = Data(x=torch.zeros(2, 1), y=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InputError, match="random_split"):
        disjoint_graphs(bare, 0)
    with pytest.raises(InputError, match="both sides"):
        disjoint_graphs(random_split(graph, 1.0, 0.0, 0.0), 0)
