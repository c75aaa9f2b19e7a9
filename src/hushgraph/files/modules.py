"""A network whose sizes come from a file: built only as far as the file itself has weights for it."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hushgraph.errors import InputError

_TIMES = 8
_ROOM, _ROOM_TENSORS, _ROOM_SECONDS = 1_000_000, 1_000, 5.0
_PER_SECOND = 1_000_000


class WithinBudget(TorchDispatchMode):
    """Counts what is created while a network is built, and refuses before more is taken than `weights` account for.

    Layers are initialized in place and sometimes from copies, so building a network may create a few times as many
    numbers and tensors as it ends up with; small ones have some room. What creates nothing and does not end is stopped
    by the clock of this thread (a busy machine is no damage) as soon as it touches a tensor.
    """

    def __init__(self, weights: Collection[torch.Tensor], where: object) -> None:
        super().__init__()
        elements = sum(one.numel() for one in weights)
        self.elements, self.tensors = _TIMES * elements + _ROOM, _TIMES * len(weights) + _ROOM_TENSORS
        self.until = time.thread_time() + _ROOM_SECONDS + elements / _PER_SECOND
        self.where = where

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Judge an operation by its arguments, then carry it out."""
        shape = next((one for one in args if _is_shape(one)), None)
        if shape is not None and _creates(func):
            self.elements -= math.prod(shape)
            self.tensors -= 1
        if min(self.elements, self.tensors) < 0 or time.thread_time() > self.until:
            raise InputError(
                f"{self.where}: its settings describe a network that is much larger than the weights beside them: "
                "the folder was changed or damaged. Restore it"
            )
        return func(*args, **(kwargs or {}))


def _creates(func: Any) -> bool:
    return not any(word in func.__name__ for word in ("view", "expand", "reshape", "permute"))


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple | torch.Size) and bool(value) and all(type(one) is int for one in value)
