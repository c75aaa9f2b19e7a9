"""A multilayer perceptron whose first layer takes dense or sparse rows."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from hushgraph.data.rows import Rows, dense_rows
from hushgraph.errors import InputError
from hushgraph.nn.layers import Dropout, Linear, fresh_generator, make_activation, make_norm, reset_all
from hushgraph.nn.rowwise import rowwise, unfolds

Order = Literal["norm-first", "activation-first"]


@rowwise("Only passes rows through the layers inside it.")
@unfolds(lambda mlp: [mlp.layers])
class MLP(nn.Module):
    """`num_layers` linear layers with norm, dropout and activation between them.

    `order="norm-first"` is Linear, norm, dropout, activation (GAP); `"activation-first"` is Linear, activation, norm,
    dropout (ProGAP). With `plain_last` the last layer is the linear map alone. `num_layers=0` is the identity. Every
    output row depends on one input row only, unless `norm="batch"`.
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        out_features: int,
        num_layers: int,
        *,
        activation: str = "selu",
        norm: str | None = None,
        dropout: float = 0.0,
        order: Order = "norm-first",
        plain_last: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if num_layers < 0:
            raise InputError(f"expected num_layers >= 0; got {num_layers}; 0 is the identity")
        if order not in ("norm-first", "activation-first"):
            raise InputError(f"expected order 'norm-first' or 'activation-first'; got '{order}'; choose one")
        generator = fresh_generator(generator)
        self.in_features, self.out_features = in_features, out_features if num_layers else in_features
        sizes = [in_features, *[hidden] * (num_layers - 1), out_features]
        layers: list[nn.Module] = []
        for i in range(num_layers):
            layers.append(Linear(sizes[i], sizes[i + 1], generator=generator))
            if not (plain_last and i == num_layers - 1):
                layers += between_layers(sizes[i + 1], activation, norm, dropout, order, generator)
        self.layers = nn.Sequential(*layers)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw new starting values from `generator`."""
        reset_all(self, generator)

    def forward(self, x: Rows) -> Tensor:
        """One output row per input row."""
        return self.layers(x) if len(self.layers) else dense_rows(x)


def between_layers(
    channels: int, activation: str, norm: str | None, dropout: float, order: Order, generator: torch.Generator
) -> list[nn.Module]:
    """What follows a linear layer, in the given order; parts that do nothing are left out."""
    act, normed = make_activation(activation), make_norm(norm, channels)
    drop = Dropout(
        dropout, generator=torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
    )
    parts = [normed, drop, act] if order == "norm-first" else [act, normed, drop]
    return [part for part in parts if not _does_nothing(part)]


def _does_nothing(layer: nn.Module) -> bool:
    return type(layer) is nn.Identity or (type(layer) is Dropout and layer.p == 0)
