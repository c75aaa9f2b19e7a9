"""One row for all its copies gives the same training as all the copies."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hushgraph.data.rows import SparseRows
from hushgraph.nn import MLP, Encoder
from hushgraph.training.plain import train_plainly
from hushgraph.training.repeats import merge_repeats


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def few_kinds(n: int, kinds: int, width: int = 12, values: bool = False) -> tuple[Tensor, Tensor]:
    patterns = (torch.rand(kinds, width, generator=generator(1)) < 0.3).float()
    patterns[0] = 0.0  # an empty row
    if values:
        patterns *= torch.rand(kinds, width, generator=generator(2))
    rows = patterns[torch.randint(kinds, (n,), generator=generator(3))]
    return rows, torch.randint(3, (n,), generator=generator(4))


@given(n=st.integers(1, 60), kinds=st.integers(1, 8), values=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_copies_add_up_to_the_rows(n: int, kinds: int, values: bool) -> None:
    dense, labels = few_kinds(n, kinds, values=values)
    merged = merge_repeats(SparseRows.from_tensor(dense), labels, 3)
    distinct = torch.unique(dense, dim=0)
    if merged is None:
        assert len(distinct) > 0.8 * n
        return
    assert len(merged.rows) == len(distinct)
    for row, shares, count in zip(merged.rows.to_dense(), merged.labels, merged.copies):
        same = (dense == row).all(dim=1)
        assert int(count) == int(same.sum())
        expected = torch.bincount(labels[same], minlength=3) / same.sum()
        torch.testing.assert_close(shares, expected.to(shares.dtype))


@pytest.mark.parametrize("make", [lambda: Encoder(12, 8, 3, norm="batch"), lambda: MLP(12, 8, 3, 3)])
@pytest.mark.parametrize("n", [80, 9000])  # small: ordinary memory; large: reused memory
def test_training_on_distinct_rows_is_training_on_all(make: object, n: int) -> None:
    dense, labels = few_kinds(n, n // 4)
    module = make()  # type: ignore[operator]
    twin = copy.deepcopy(module)
    train_plainly(module, SparseRows.from_tensor(dense), labels, epochs=6, lr=0.01)
    train_plainly(twin, dense, labels, epochs=6, lr=0.01)
    torch.testing.assert_close(module.train()(dense), twin.train()(dense), rtol=1e-3, atol=5e-4)
    for name, buffer in module.named_buffers():
        if not name.endswith("running_mean"):  # a bias just before batch norm has gradient zero and may drift freely
            torch.testing.assert_close(buffer, twin.get_buffer(name), rtol=1e-3, atol=1e-4)


def test_rows_that_are_all_different_are_left_alone() -> None:
    rows = SparseRows.from_tensor(torch.eye(10))
    assert merge_repeats(rows, torch.zeros(10, dtype=torch.int64), 2) is None


def test_equal_fingerprints_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = SparseRows.from_tensor(torch.eye(4)[torch.tensor([0, 1, 2, 2])])
    monkeypatch.setattr("hushgraph.training.repeats._fingerprints", lambda rows: torch.zeros(len(rows)).numpy())
    assert merge_repeats(rows, torch.zeros(4, dtype=torch.int64), 2) is None
