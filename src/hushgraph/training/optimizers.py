"""All trainable parameters of a module as one vector, and Adam, SGD or an optimizer of the user on it.

A small step is mostly overhead: one update of one vector is cheaper than one update per tensor. The updates are those
of `torch.optim`, in a handful of calls. Learning rates follow a schedule: the share of the steps that is done gives a
factor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError, did_you_mean

OptimizerName = Literal["adam", "sgd", "adam-corrected"]
OPTIMIZERS = ("adam", "sgd", "adam-corrected")
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""From the share of the steps that is done to a factor of the learning rate."""
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


class FlatTorch:
    """An optimizer of `torch.optim`, or of the user, on the vector: it sees one parameter and its gradient."""

    def __init__(self, vector: Tensor, make: Callable[..., Any], lr: float, weight_decay: float) -> None:
        parameter = nn.Parameter(vector, requires_grad=False)
        named = {"lr": lr} | ({"weight_decay": weight_decay} if weight_decay else {})
        made = make([parameter], **named) if _is_class(make) else make([parameter])
        if not isinstance(made, torch.optim.Optimizer):
            raise InputError(f"optimizer: expected one of torch.optim to be made; got {type(made).__name__}")
        InputError.collect(_kind_problems(type(made)))
        self.optimizer, self.parameter = made, parameter
        self.rates = [float(group["lr"]) for group in made.param_groups]
        self.steps = 0

    @property
    def lr(self) -> float:
        """The factor of the learning rates that the optimizer was made with."""
        return float(self.optimizer.param_groups[0]["lr"]) / self.rates[0] if self.rates[0] else 1.0

    @lr.setter
    def lr(self, factor: float) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = factor * rate

    def state(self) -> dict[str, Tensor]:
        """Its own business: a training with it does not go on after a stop."""
        return {}

    def step(self, gradient: Tensor) -> None:
        """One update."""
        self.steps += 1
        self.parameter.grad = gradient
        self.optimizer.step()


class Scheduled:
    """An optimizer whose learning rate follows a schedule over `total` steps."""

    def __init__(self, update: FlatAdam | FlatSGD | FlatTorch, schedule: Callable[[float], float], total: int) -> None:
        self.update, self.schedule, self.total = update, schedule, max(1, total)
        self.rate = update.lr

    @property
    def steps(self) -> int:
        """How many updates were made."""
        return self.update.steps

    @steps.setter
    def steps(self, count: int) -> None:
        self.update.steps = count

    def state(self) -> dict[str, Tensor]:
        """That of the optimizer."""
        return self.update.state()

    def step(self, gradient: Tensor) -> None:
        """One update at the rate of this moment."""
        factor = float(self.schedule(min(1.0, self.steps / self.total)))
        if not (math.isfinite(factor) and factor >= 0.0):
            raise InputError(f"schedule: expected a finite factor >= 0; got {factor} at step {self.steps}")
        self.update.lr = self.rate * factor
        self.update.step(gradient)


Update = FlatAdam | FlatSGD | FlatTorch | Scheduled


def _is_class(make: Any) -> bool:
    return isinstance(make.func if isinstance(make, functools.partial) else make, type)


def _kind_problems(kind: type) -> list[str]:
    if issubclass(kind, torch.optim.LBFGS):
        return ["optimizer: expected one that takes one step per gradient; got LBFGS, which asks for the loss again"]
    return []


def check_optimizer(optimizer: Any) -> list[str]:
    """What is wrong with a name, a class of optimizers, or a function from parameters to one."""
    if isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        return [
            f"optimizer: expected a class or a function of parameters; got a {kind} of other parameters. Write "
            f"optimizer=torch.optim.{kind}, or functools.partial of it"
        ]
    if isinstance(optimizer, str):
        known = optimizer in OPTIMIZERS
        return [] if known else [f"optimizer: got '{optimizer}'; {did_you_mean(optimizer, OPTIMIZERS)}"]
    if not callable(optimizer):
        return [f"optimizer: expected a name, a class of torch.optim or a function; got {optimizer!r}"]
    made = optimizer.func if isinstance(optimizer, functools.partial) else optimizer
    return _kind_problems(made) if isinstance(made, type) else []


def check_schedule(schedule: Any) -> list[str]:
    """What is wrong with a name, or a function from the share of steps that is done to a factor."""
    if isinstance(schedule, torch.optim.lr_scheduler.LRScheduler):
        return [
            "schedule: expected a name or a function from the share of steps that is done to a factor; got a scheduler "
            "of torch, which belongs to one optimizer. Write schedule='cosine' or schedule=lambda done: 1 - done"
        ]
    if isinstance(schedule, str):
        return [] if schedule in SCHEDULES else [f"schedule: got '{schedule}'; {did_you_mean(schedule, SCHEDULES)}"]
    return [] if callable(schedule) else [f"schedule: expected a name or a function; got {schedule!r}"]


def make_optimizer(
    name: OptimizerName | Callable[..., Any],
    vector: Tensor,
    lr: float,
    weight_decay: float = 0.0,
    *,
    noise_variance: float = 0.0,
    schedule: str | Callable[[float], float] = "constant",
    steps: int = 1,
) -> Update:
    """An optimizer by name, or as the user makes it, for the vector it will change in place; `schedule` over `steps`.

    "adam-corrected" takes `noise_variance`, what noise adds to a squared gradient entry, off the second moment.
    """
    problems = [*check_optimizer(name), *check_schedule(schedule)]
    if not (math.isfinite(lr) and lr > 0):
        problems.append(f"expected a learning rate > 0; got {lr}; 0.01 is usual")
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        problems.append(f"expected weight_decay >= 0; got {weight_decay}; 0 switches it off")
    InputError.collect(problems)
    update: FlatAdam | FlatSGD | FlatTorch
    if callable(name):
        update = FlatTorch(vector, name, lr, weight_decay)
    elif name == "sgd":
        update = FlatSGD(vector, lr, weight_decay)
    else:
        known = noise_variance if name == "adam-corrected" else 0.0
        update = FlatAdam(vector, lr, weight_decay, noise_variance=known)
    if schedule == "constant":
        return update
    return Scheduled(update, SCHEDULES[schedule] if isinstance(schedule, str) else schedule, steps)
