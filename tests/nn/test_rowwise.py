from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from hushgraph.errors import UnprovenError
from hushgraph.nn import MLP, Encoder, HopClassifier, L2Normalize, Linear, rowwise
from hushgraph.nn.rowwise import apply_to, register_rowwise, require_rowwise, unfolded, unfolds


def _is_accepted(module: nn.Module) -> bool:
    try:
        require_rowwise(module)
    except UnprovenError:
        return False
    return True


def test_known_models_pass() -> None:
    for norm in (None, "group"):
        for dropout in (0.0, 0.5):
            assert _is_accepted(MLP(5, 4, 3, 3, norm=norm, dropout=dropout))
            assert _is_accepted(Encoder(5, 4, 3, norm=norm, dropout=dropout))
            for combine in ("cat", "sum", "max", "attention"):
                assert _is_accepted(HopClassifier(2, 5, 4, 3, norm=norm, dropout=dropout, combine=combine))
    assert _is_accepted(nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.LayerNorm(2), nn.Softmax(dim=-1)))


def test_batch_norm_is_refused_by_name_with_the_alternative() -> None:
    with pytest.raises(UnprovenError, match=r"layers\.1.*BatchNorm1d.*mixes the rows.*GroupNorm"):
        require_rowwise(MLP(5, 4, 3, 2, norm="batch"))
    with pytest.raises(UnprovenError, match="batch norm"):
        require_rowwise(nn.Sequential(nn.BatchNorm2d(3)))


def test_message_passing_is_refused() -> None:
    with pytest.raises(UnprovenError, match=r"SAGEConv.*neighbors"):
        require_rowwise(SAGEConv(4, 2))


class Mixing(nn.Linear):
    """Looks like a linear layer, but centers the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


class MixingContainer(nn.Sequential):
    """A container whose own forward mixes rows."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).cumsum(0)


@pytest.mark.parametrize(
    "layer",
    [
        Mixing(3, 3),
        MixingContainer(nn.Linear(3, 3)),
        nn.Conv1d(1, 1, 1),
        nn.Softmax(dim=0),
        nn.LogSoftmax(dim=-2),
        nn.Softmax(),
        nn.LayerNorm((4, 3)),
        nn.Flatten(0),
        nn.MultiheadAttention(4, 1),
        nn.LSTM(3, 3),
    ],
)
def test_anything_without_proof_is_refused(layer: nn.Module) -> None:
    with pytest.raises(UnprovenError, match=type(layer).__name__):
        require_rowwise(nn.Sequential(Linear(3, 3), layer))


def test_all_objections_are_reported_together() -> None:
    with pytest.raises(UnprovenError, match="2 problems"):
        require_rowwise(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3), Mixing(3, 3)))


def test_hooks_and_replaced_methods_are_refused() -> None:
    hooked = MLP(3, 3, 3, 2)
    hooked.layers[0].register_forward_hook(lambda module, inputs, output: output.cumsum(0))
    with pytest.raises(UnprovenError, match="hooks"):
        require_rowwise(hooked)
    replaced = MLP(3, 3, 3, 2)
    replaced.forward = lambda x: x.cumsum(0)  # type: ignore[method-assign, assignment]
    with pytest.raises(UnprovenError, match="replaced forward"):
        require_rowwise(replaced)
    parametrized = MLP(3, 3, 3, 2)
    torch.nn.utils.parametrizations.weight_norm(parametrized.layers[0])
    with pytest.raises(UnprovenError, match="without proof"):
        require_rowwise(parametrized)


def test_registering_needs_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowwise, "_ROWWISE", dict(rowwise._ROWWISE))
    with pytest.raises(UnprovenError, match="reason"):
        register_rowwise(nn.Hardtanh, " ")
    register_rowwise(nn.Hardtanh, "Applied to each entry by itself.")
    require_rowwise(nn.Hardtanh())
    assert rowwise.is_registered(nn.Hardtanh())


def test_a_class_declares_itself_and_its_subclasses_do_not_inherit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowwise, "_ROWWISE", dict(rowwise._ROWWISE))
    monkeypatch.setattr(rowwise, "_UNFOLDINGS", dict(rowwise._UNFOLDINGS))

    @rowwise.rowwise("Negates each entry.", lambda layer: None if layer.training else "expected training mode")
    @unfolds(lambda layer: [layer.inside])
    class Negated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Identity()

    class Other(Negated):
        pass

    require_rowwise(Negated())
    assert unfolded(Negated()) is not None
    assert unfolded(Other()) is None
    with pytest.raises(UnprovenError, match="without proof"):
        require_rowwise(Other())
    with pytest.raises(UnprovenError, match="training mode"):
        require_rowwise(Negated().eval())


@pytest.mark.parametrize(
    "layer",
    [
        *(kind() for kind in (nn.ELU, nn.GELU, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.SELU, nn.SiLU, nn.Sigmoid)),
        *(kind() for kind in (nn.Softplus, nn.Tanh, nn.Flatten, L2Normalize)),
        *(kind(6, 6) for kind in (nn.Linear, Linear)),
        *(kind(-1) for kind in (nn.Softmax, nn.LogSoftmax)),
        nn.LayerNorm(6),
        nn.GroupNorm(2, 6),
        MLP(6, 6, 6, 2),
        Encoder(6, 6, 6),
        nn.Sequential(nn.Linear(6, 6), nn.Tanh()),
    ],
)
def test_registered_layers_are_rowwise_in_fact(layer: nn.Module) -> None:
    """Changing other rows never changes a row's output."""
    require_rowwise(layer)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    y = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    y[2] = x[2]
    torch.testing.assert_close(layer(x)[2], layer(y)[2])


@pytest.mark.parametrize("count", [8, 9, 11, 12, 13])
def test_many_rows_are_taken_a_block_at_a_time_where_each_stands_alone(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rowwise, "_MANY_ROWS", 8)
    monkeypatch.setattr(rowwise, "_BLOCK", 4)
    rows, alone, mixing = torch.randn(count, 3), Linear(3, 2), nn.BatchNorm1d(3)
    for module, blocks in ((alone, -(-count // 4) if count > 8 else 1), (mixing, 1)):
        seen: list[int] = []

        def noted(part: Tensor, module: nn.Module = module, seen: list[int] = seen) -> Tensor:
            seen.append(len(part))
            result: Tensor = module(part)
            return result

        found = apply_to(rows, noted, module)
        assert len(seen) == blocks
        assert sum(seen) == count
        if module is alone:
            torch.testing.assert_close(found, alone(rows))
