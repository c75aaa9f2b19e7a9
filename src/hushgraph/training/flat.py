"""All trainable parameters of a module as one vector.

A small step is mostly overhead: one update of one vector is cheaper than one update per tensor.
"""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that training may change, each once, in the module's own order."""
    return [p for p in module.parameters() if p.requires_grad]


def views_of(vector: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Pieces of `vector`, one per parameter and shaped like it, sharing its memory."""
    pieces = vector.split([p.numel() for p in parameters])
    return [piece.view(p.shape) for piece, p in zip(pieces, parameters)]


class FlatParameters:
    """While open, the module's parameters are views of `vector`: change the vector and the model changes.

    Closing gives every parameter its own memory again (savers refuse shared memory). Use as a context manager.
    """

    def __init__(self, module: nn.Module) -> None:
        self.parameters = trainable(module)
        if not self.parameters:
            raise InputError("expected a module with trainable parameters; got none; there is nothing to train")
        if len({p.dtype for p in self.parameters}) != 1:
            raise InputError("expected parameters of one dtype; got several; call module.float() first")
        self.vector = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.gradient = torch.zeros_like(self.vector)

    def __enter__(self) -> FlatParameters:
        for parameter, view in zip(self.parameters, views_of(self.vector, self.parameters)):
            parameter.data = view
        return self

    def collect_gradients(self) -> None:
        """Let automatic differentiation add every gradient straight into `gradient`."""
        for parameter, view in zip(self.parameters, views_of(self.gradient, self.parameters)):
            parameter.grad = view

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for parameter in self.parameters:
            parameter.data = parameter.detach().clone()
            parameter.grad = None
