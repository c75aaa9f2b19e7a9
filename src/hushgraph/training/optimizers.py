"""All trainable parameters of a module as one vector, and Adam and SGD on it.

A small step is mostly overhead: one update of one vector is cheaper than one update per tensor. The updates are those
of `torch.optim`, in a handful of calls.
"""

from __future__ import annotations

import math
from types import TracebackType
from typing import Literal

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError, did_you_mean

OptimizerName = Literal["adam", "sgd", "adam-corrected"]
OPTIMIZERS = ("adam", "sgd", "adam-corrected")
_LEAST_SIGNAL = 0.1


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


class FlatAdam:
    """Adam as in `torch.optim.Adam`; weight decay is added to the gradient (L2).

    `noise_variance` is what noise of known size adds to every squared gradient entry. It is subtracted from the second
    moment, of which at least `_LEAST_SIGNAL` of that variance is kept: an average of squares is not known better.
    """

    def __init__(
        self,
        vector: Tensor,
        lr: float,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        noise_variance: float = 0.0,
    ) -> None:
        self.noise_variance = noise_variance
        self.vector, self.lr, self.weight_decay, self.betas, self.eps = vector, lr, weight_decay, betas, eps
        self.mean, self.square = torch.zeros_like(vector), torch.zeros_like(vector)
        self._scratch = torch.empty_like(vector)
        self.steps = 0

    def state(self) -> dict[str, Tensor]:
        """All that a later step depends on beside the vector and the number of steps."""
        return {"mean": self.mean, "square": self.square}

    def step(self, gradient: Tensor) -> None:
        """One update."""
        if self.weight_decay:
            gradient = gradient.add(self.vector, alpha=self.weight_decay)
        self.steps += 1
        first, second = self.betas
        self.mean.lerp_(gradient, 1 - first)
        self.square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        correction = math.sqrt(1 - second**self.steps)
        square = self.square
        if self.noise_variance:
            known = self.noise_variance * correction**2
            square = (square - known).clamp_min_(_LEAST_SIGNAL * known)
        denominator = torch.sqrt(square, out=self._scratch).add_(self.eps * correction)
        self.vector.addcdiv_(self.mean, denominator, value=-self.lr * correction / (1 - first**self.steps))


class FlatSGD:
    """Plain gradient descent with optional momentum, as in `torch.optim.SGD`."""

    def __init__(self, vector: Tensor, lr: float, weight_decay: float = 0.0, momentum: float = 0.0) -> None:
        self.vector, self.lr, self.weight_decay, self.momentum = vector, lr, weight_decay, momentum
        self.velocity: Tensor | None = torch.zeros_like(vector) if momentum else None
        self.steps = 0

    def state(self) -> dict[str, Tensor]:
        """All that a later step depends on beside the vector."""
        return {} if self.velocity is None else {"velocity": self.velocity}

    def step(self, gradient: Tensor) -> None:
        """One update."""
        if self.weight_decay:
            gradient = gradient.add(self.vector, alpha=self.weight_decay)
        self.steps += 1
        if self.velocity is not None:
            gradient = self.velocity.mul_(self.momentum).add_(gradient)
        self.vector.add_(gradient, alpha=-self.lr)


def make_optimizer(
    name: OptimizerName, vector: Tensor, lr: float, weight_decay: float = 0.0, *, noise_variance: float = 0.0
) -> FlatAdam | FlatSGD:
    """An optimizer by name, for the vector it will change in place.

    "adam-corrected" takes `noise_variance`, what noise adds to a squared gradient entry, off the second moment.
    """
    problems = []
    if name not in OPTIMIZERS:
        problems.append(f"expected an optimizer; got '{name}'; {did_you_mean(name, OPTIMIZERS)}")
    if not (math.isfinite(lr) and lr > 0):
        problems.append(f"expected a learning rate > 0; got {lr}; 0.01 is usual")
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        problems.append(f"expected weight_decay >= 0; got {weight_decay}; 0 switches it off")
    InputError.collect(problems)
    if name == "sgd":
        return FlatSGD(vector, lr, weight_decay)
    known = noise_variance if name == "adam-corrected" else 0.0
    return FlatAdam(vector, lr, weight_decay, noise_variance=known)
