"""The small layers every model here is made of: linear, dropout, row normalization, activations and norms.

They differ from the ones in torch in two ways: random numbers come from a generator that is given, never from the
global one, and `Linear` also takes sparse rows.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.data.rows import Rows
from hushgraph.errors import InputError, did_you_mean
from hushgraph.nn.rowwise import rowwise

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
        keep = torch.rand(x.shape, generator=self.generator, dtype=x.dtype) >= self.p
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
        return F.linear(x, weight, bias)
    product = x.matmul(weight.t())
    return product if bias is None else product + bias
