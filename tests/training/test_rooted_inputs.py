from __future__ import annotations

import pytest
import torch

from hushgraph.data.rows import SparseRows
from hushgraph.errors import InputError
from hushgraph.nn.layers import Linear
from hushgraph.training import rooted_inputs
from hushgraph.training.rooted_inputs import SharedInputs


@pytest.mark.parametrize("take_all", [0.0, 2.0])
def test_shared_products_are_those_of_written_out_rows(take_all: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooted_inputs, "_TAKE_ALL", take_all)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(12, 5, generator=generator) * (torch.rand(12, 5, generator=generator) < 0.4)
    shared, layer = SharedInputs(SparseRows.from_tensor(dense)), Linear(5, 3, generator=generator)
    for batch in (torch.tensor([3, 3, 0, 7]), torch.tensor([11, 1, 0, 1, 1])):  # a second batch forgets the first
        shared.begin(batch)
        weight = torch.zeros(3, 5)
        for chunk in batch.split(2):
            rows = shared.rows(chunk)
            torch.testing.assert_close(shared.product(layer, chunk), layer(dense[chunk]).detach())
            torch.testing.assert_close(rows.row_square_norms(), dense[chunk].square().sum(1))
            torch.testing.assert_close(rows.picked(torch.tensor([0])).to_dense(), dense[chunk][:1])
        gradient = torch.randn(batch.numel(), 3, generator=generator)
        for chunk, part in zip(batch.split(2), gradient.split(2)):
            shared.add(chunk, part)
        shared.finish(weight)
        torch.testing.assert_close(weight, gradient.t() @ dense[batch])


def test_an_empty_batch_adds_nothing() -> None:
    shared = SharedInputs(SparseRows.from_tensor(torch.eye(4)))
    shared.begin(torch.tensor([], dtype=torch.int64))
    weight = torch.zeros(3, 4)
    shared.finish(weight)
    assert not weight.any()


def test_features_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="finite"):
        SharedInputs(SparseRows.from_tensor(torch.tensor([[0.0, torch.inf]])))
