"""What a user says about all trainings of one fit: optimizer, schedule, callbacks, early stopping, weights, device.

None of it touches a bound. An optimizer and a callback see noisy steps and the weights after them, which are released
whether anybody looks or not (docs/proofs/gradient.md), and a training that is stopped by what was released has been
paid for in full. Weights of classes change a gradient before it is clipped. Validation labels are looked at only where
they are public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.training.config import Training
from hushgraph.training.optimizers import check_optimizer, check_schedule


@dataclass(frozen=True)
class TrainingStep:
    """What a callback is told after a step, or an epoch of plain training; the module has the weights of then."""

    stage: str
    step: int
    steps: int
    module: nn.Module


Callback = Callable[[TrainingStep], Any]
"""Called after every step; one that returns True ends this training."""


@dataclass(frozen=True)
class FitOptions:
    """The options of `Method.fit` that are about training; None: as the method has it."""

    optimizer: Any = None
    schedule: Any = None
    callbacks: tuple[Callback, ...] = ()
    early_stopping: int | None = None
    class_weights: tuple[float, ...] | None = None
    device: str = "cpu"
    ranks: Any = None

    @classmethod
    def of(
        cls,
        optimizer: Any,
        schedule: Any,
        callbacks: Sequence[Callback] | Callback | None,
        early_stopping: int | None,
        class_weights: Sequence[float] | Mapping[str, float] | None,
        device: str | torch.device | None,
        class_names: Sequence[str],
        ranks: Any = None,
    ) -> FitOptions:
        """The options, checked, with all that is wrong in one error."""
        many: tuple[Any, ...] = () if callbacks is None else (callbacks,)
        if isinstance(callbacks, Iterable) and not callable(callbacks):
            many = tuple(callbacks)
        problems = [
            *([] if optimizer is None else check_optimizer(optimizer)),
            *([] if schedule is None else check_schedule(schedule) or _first_factor_problems(schedule)),
            *(f"callbacks: expected functions of one step; got {one!r}" for one in many if not callable(one)),
            *_stopping_problems(early_stopping),
            *_weight_problems(class_weights, class_names),
            *_device_problems(device),
        ]
        InputError.collect(problems)
        weights = None if class_weights is None else _weights(class_weights, class_names)
        return cls(optimizer, schedule, many, early_stopping, weights, str(device or "cpu"), ranks)

    @property
    def is_code(self) -> bool:
        """Whether there is code of the user among them."""
        return bool(self.callbacks) or callable(self.optimizer) or callable(self.schedule)

    def changed(self) -> dict[str, Any]:
        """What was asked for, in words for a saved model."""
        said = {
            "optimizer": self.optimizer if isinstance(self.optimizer, str) else _name_of(self.optimizer),
            "schedule": self.schedule if isinstance(self.schedule, str) else _name_of(self.schedule),
            "callbacks": [_name_of(one) for one in self.callbacks] or None,
            "early_stopping": self.early_stopping,
            "class_weights": None if self.class_weights is None else list(self.class_weights),
            "device": None if self.device == "cpu" else self.device,
            "ranks": None if self.ranks is None else self.ranks.count,
        }
        return {name: value for name, value in said.items() if value is not None}

    def apply(self, training: Training, *, exact: bool) -> Training:
        """The training as the user wants it; `exact`: it reads nothing that is private."""
        wanted: dict[str, Any] = {}
        if training.is_fixed:
            return training
        if self.optimizer is not None:
            wanted["optimizer"] = self.optimizer
        if self.schedule is not None:
            wanted["schedule"] = self.schedule
        if self.class_weights is not None:
            wanted["class_weights"] = self.class_weights
        if not exact and self.ranks is not None and self.ranks.count > 1:
            wanted["ranks"] = self.ranks
        if exact:
            wanted["device"] = self.device
            if self.early_stopping is not None:
                wanted["patience"] = self.early_stopping
        return replace(training, **wanted)

    def watched(
        self, stage: str, inputs: Sequence[Any], report: Callable[[int, int], None]
    ) -> Callable[[int, int], bool]:
        """`report`, and then the callbacks; True where one of them has seen enough."""
        module = next((one for one in inputs if isinstance(one, nn.Module)), None)
        if any(isinstance(one, Training) and one.is_fixed for one in inputs):
            module = None

        def told(done: int, total: int) -> bool:
            report(done, total)
            if module is None:
                return False
            seen = TrainingStep(stage, done, total, module)
            answers = [one(seen) for one in self.callbacks]
            return any(answer is True for answer in answers)

        return told


def _name_of(code: Any) -> str | None:
    kind = getattr(code, "func", code)  # of a functools.partial
    return None if code is None else getattr(kind, "__qualname__", type(kind).__qualname__)


def _first_factor_problems(schedule: Any) -> list[str]:
    """Asked once before anything is charged; a class, such as a scheduler of torch, gives no factor."""
    if isinstance(schedule, str):
        return []
    if isinstance(schedule, type):
        return [
            "schedule: expected a name or a function from the share of steps that is done to a factor; got the class "
            f"{schedule.__name__}. Write schedule='cosine' or schedule=lambda done: 1 - done"
        ]
    factor = schedule(0.0)
    if isinstance(factor, int | float) and math.isfinite(factor) and factor >= 0.0:
        return []
    return [f"schedule: expected a finite factor >= 0; got {factor!r} where nothing is done yet"]


def _stopping_problems(patience: int | None) -> list[str]:
    if patience is None or (isinstance(patience, int) and not isinstance(patience, bool) and patience >= 1):
        return []
    return [f"early_stopping: expected epochs without a better one, at least 1; got {patience!r}"]


def _weight_problems(weights: Any, names: Sequence[str]) -> list[str]:
    if weights is None:
        return []
    if isinstance(weights, str):
        return [
            f"class_weights: expected one number per class; got '{weights}'. How often a class occurs is private "
            "wherever labels are: give weights from public knowledge"
        ]
    if isinstance(weights, Mapping) and set(map(str, weights)) != set(names):
        return [f"class_weights: expected the classes {', '.join(names)}; got {', '.join(map(str, weights))}"]
    if len(weights) != len(names):
        return [f"class_weights: expected {len(names)} numbers, one per class; got {len(weights)}"]
    given = weights.values() if isinstance(weights, Mapping) else weights
    fits = all(0.0 < float(one) <= 1e6 for one in given)
    return [] if fits else ["class_weights: expected numbers above 0 and at most a million; got others"]


def _weights(weights: Sequence[float] | Mapping[str, float], names: Sequence[str]) -> tuple[float, ...]:
    if isinstance(weights, Mapping):
        by_name = {str(name): value for name, value in weights.items()}
        return tuple(float(by_name[name]) for name in names)
    return tuple(float(one) for one in weights)


def _device_problems(device: str | torch.device | None) -> list[str]:
    """What this machine cannot do."""
    name = str(device or "cpu")
    kind = name.split(":")[0]
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in there:
        return [f"device: expected cpu, cuda or mps; got '{name}'"]
    return [] if there[kind] else [f"device: expected one that this machine has; got '{name}'. Use device='cpu'"]
