from __future__ import annotations

import torch
from torch import nn

from hushgraph.nn import Encoder, SparseRows


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_forward_equals_the_formula() -> None:
    encoder, x = Encoder(7, 4, 3, generator=generator()), torch.randn(6, 7, generator=generator(1))
    first, second = encoder.body.layers[0], encoder.body.layers[2]
    unit = nn.functional.normalize(second(nn.functional.selu(first(x))), dim=1)
    torch.testing.assert_close(encoder.encode(x), unit)
    torch.testing.assert_close(encoder(x), encoder.head.layers[0](nn.functional.selu(unit)))


def test_encode_gives_unit_rows_without_gradients_and_keeps_the_mode() -> None:
    encoder = Encoder(7, 4, 3, norm="batch", dropout=0.5, generator=generator())
    x = torch.randn(6, 7, generator=generator(1))
    statistics = [b.clone() for b in encoder.buffers()]
    rows = encoder.encode(x)
    assert encoder.training
    assert not rows.requires_grad
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(6))
    assert torch.equal(rows, encoder.encode(x))
    assert all(torch.equal(a, b) for a, b in zip(statistics, encoder.buffers()))
    torch.testing.assert_close(encoder.encode(x[:1]), rows[:1])


def test_sparse_rows() -> None:
    encoder = Encoder(7, 4, 3, generator=generator())
    dense = (torch.rand(6, 7, generator=generator(1)) < 0.4).float()
    torch.testing.assert_close(encoder.encode(SparseRows.from_tensor(dense)), encoder.encode(dense))


def test_shape_of_the_reference_encoder() -> None:
    encoder = Encoder(7, 4, 3, norm="batch", generator=generator())
    assert [type(layer).__name__ for layer in encoder.body.layers] == ["Linear", "BatchNorm1d", "SELU", "Linear"]
    assert [type(layer).__name__ for layer in encoder.middle] == ["L2Normalize", "BatchNorm1d", "SELU"]
    encoder.reset_parameters(generator(3))
    assert len(encoder.head.layers) == 1
