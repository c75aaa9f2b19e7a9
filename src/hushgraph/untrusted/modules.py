"""A network whose sizes come from a file: built only as far as the file itself has weights for it."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hushgraph.errors import InputError

_ROOM = 4_000_000
_MOST_SECONDS = 20.0


class WithinBudget(TorchDispatchMode):
    """Counts the numbers that tensors take while a network is built, and refuses before one goes over the budget.

    The weights are initialized in place and sometimes from copies, so a network of `elements` weights may take a few
    times as many; `_ROOM` is there for small ones. One that takes nothing and does not end is stopped by the clock.
    """

    def __init__(self, elements: int, where: object) -> None:
        super().__init__()
        self.left, self.where = 8 * elements + _ROOM, where
        self._until = time.monotonic() + _MOST_SECONDS

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Judge a creation by its arguments, then carry it out."""
        sizes = next((list(one) for one in args if _is_shape(one)), None)
        if sizes is not None and "view" not in func.__name__ and "expand" not in func.__name__:
            self.left -= math.prod(sizes)
        if self.left < 0 or time.monotonic() > self._until:
            raise InputError(
                f"{self.where}: its settings describe a network that is much larger than the weights beside them: "
                "the folder was changed or damaged. Restore it"
            )
        return func(*args, **(kwargs or {}))


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple | torch.Size) and bool(value) and all(type(one) is int for one in value)
