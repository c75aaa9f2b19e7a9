"""The small layers every model here is made of: linear, dropout, row normalization, activations and norms.

They differ from the ones in torch in two ways: random numbers come from a generator that is given, never from the
global one, and `Linear` also takes sparse rows.

A multilayer perceptron whose first layer takes dense or sparse rows.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.errors import InputError, did_you_mean
from hushgraph.graph.rows import NARROW, Rows, dense_rows
from hushgraph.nn.rowwise import rowwise, unfolds

Norm = Literal["batch", "group"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "identity": nn.Identity,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


def fresh_generator(generator: torch.Generator | None = None) -> torch.Generator:
    """The given generator, or a new one seeded by the operating system; the global one is never touched."""
    if generator is None:
        generator = torch.Generator()
        generator.seed()
    return generator


def make_activation(name: str) -> nn.Module:
    """An activation layer by name."""
    if name not in ACTIVATIONS:
        raise InputError(f"expected an activation; got '{name}'; {did_you_mean(name, ACTIVATIONS)}")
    return ACTIVATIONS[name]()


def make_norm(name: str | None, channels: int) -> nn.Module:
    """A normalization layer by name; "group" is GroupNorm(1, C), i.e. each row by itself. None is the identity."""
    if name is None:
        return nn.Identity()
    if name == "batch":
        return nn.BatchNorm1d(channels)
    if name == "group":
        return nn.GroupNorm(1, channels)
    raise InputError(f"expected norm None, 'batch' or 'group'; got '{name}'; {did_you_mean(name, ['batch', 'group'])}")


@rowwise("Each output row is the weight applied to one input row.")
class Linear(nn.Linear):
    """`torch.nn.Linear` that also accepts `SparseRows` and draws its start from a given generator."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.reset_parameters(fresh_generator(generator))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Uniform in +-1/sqrt(in_features), torch's own rule. Does nothing without a generator."""
        if generator is None:  # torch's constructor calls this before the generator is known
            return
        bound = 1.0 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=generator)
            if self.bias is not None:
                self.bias.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Rows) -> Tensor:
        """Rows times the transposed weight, plus the bias."""
        return linear_input(x, self.weight, self.bias)


@rowwise("Each entry is dropped by its own coin.")
class Dropout(nn.Module):
    """Zero each entry with probability `p` while training, from a generator of its own."""

    def __init__(self, p: float, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise InputError(f"expected a dropout probability in [0, 1); got {p}; 0 switches it off")
        self.p = p
        self.generator = fresh_generator(generator) if p > 0 else None

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Use a new source of randomness from now on (nothing else to reset)."""
        if self.p > 0:
            seed = int(torch.randint(2**62, (1,), generator=generator))
            self.generator = torch.Generator().manual_seed(seed)

    def forward(self, x: Tensor) -> Tensor:
        """Drop and rescale while training; the identity otherwise."""
        if not self.training or self.p == 0:
            return x
        keep = (torch.rand(x.shape, generator=self.generator, dtype=x.dtype) >= self.p).to(x.device)
        return x * keep / (1.0 - self.p)

    def extra_repr(self) -> str:
        """Show the probability."""
        return f"p={self.p}"


@rowwise("Divides a row by its own length.")
class L2Normalize(nn.Module):
    """Scale each row to length one; an all-zero row stays zero."""

    eps = 1e-12

    def forward(self, x: Tensor) -> Tensor:
        """Rows of unit length."""
        return F.normalize(x, dim=-1, eps=self.eps)


def reset_all(module: nn.Module, generator: torch.Generator) -> None:
    """Draw new starting values for every layer inside `module`, in the order they appear."""
    for layer in module.modules():
        if isinstance(layer, Linear | Dropout):
            layer.reset_parameters(generator)
        elif isinstance(layer, nn.BatchNorm1d | nn.GroupNorm | nn.LayerNorm):
            layer.reset_parameters()


def linear_input(x: Rows, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias` for dense or sparse rows; `weight` is [out, in] as in `torch.nn.Linear`."""
    if isinstance(x, Tensor):
        return F.linear(x, weight, bias) if min(weight.shape) >= NARROW else _narrow_linear(x, weight, bias)
    product = x.matmul(weight.t())
    return product if bias is None else product + bias


def _narrow_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same, stored one column after the other; so is the gradient of `x`, whichever of the two is narrow."""
    columns = x.reshape(-1, x.shape[-1]).t()
    product = weight @ columns if bias is None else torch.addmm(bias.unsqueeze(1), weight, columns)
    return product.t() if x.dim() == 2 else product.t().reshape(*x.shape[:-1], len(weight))


def probabilities(scores: Tensor) -> Tensor:
    """Softmax of each row; by columns, which for a few classes takes a twentieth of the time."""
    return scores.t().softmax(dim=0).t()


def log_probabilities(scores: Tensor) -> Tensor:
    """The logarithms of the same."""
    return scores.t().log_softmax(dim=0).t()


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


@rowwise("Each entry is scaled by itself.")
class ColumnWeights(nn.Module):
    """One weight per column, and as many classes as columns."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, columns))

    def forward(self, rows: Rows) -> Tensor:
        """Class scores."""
        return dense_rows(rows) * self.weight


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
