"""Plain training in minibatches, where rows are many: what it costs follows from what there is to learn.

Full batches take as many passes over all rows as there are epochs. From `MANY_ROWS` rows on, steps on a few thousand
rows each learn the same in a small part of the time: after every few of them the validation rows are looked at; when
that has not brought anything for a while, training goes on from the best state with smaller steps, and stops at last.
Where there is nothing to look at, and for fewer rows, full batches are kept: they are as good, or better, there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from hushgraph.privacy.metadata import MANY_ROWS
from hushgraph.training.loop import BestEpoch, Progress
from hushgraph.training.optimizers import FlatAdam, FlatSGD


@dataclass(frozen=True)
class Minibatches:
    """Steps on `size` rows; a look at up to `rows_looked_at` validation rows after every `steps_between_looks`.

    The learning rate is multiplied by each of `rates` in turn, for as long as `patience` looks in a row bring something
    better.
    """

    size: int = 4096
    steps_between_looks: int = 50
    rows_looked_at: int = 1 << 16
    patience: int = 5
    rates: tuple[float, ...] = (1.0, 0.3, 0.1)

    @classmethod
    def by_rule(cls, rows: int, looked_at: int) -> Minibatches | None:
        """What is used for so many training and validation rows; None: full batches."""
        return cls() if rows >= MANY_ROWS and looked_at > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return {**asdict(self), "rates": list(self.rates)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Minibatches:
        """The inverse of `as_dict`."""
        whole = {name: int(values[name]) for name in ("size", "steps_between_looks", "rows_looked_at", "patience")}
        return cls(rates=tuple(float(rate) for rate in values["rates"]), **whole)

    def looked_at(self, val: Tensor, generator: torch.Generator) -> Tensor:
        """The validation rows that are looked at: all of them, or some that are drawn once."""
        if val.numel() <= self.rows_looked_at:
            return val
        return val[torch.randperm(val.numel(), generator=generator)[: self.rows_looked_at]]

    def batches(self, index: Tensor, epochs: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Up to so many passes over the rows, in batches of one size and in a new order each time."""
        for _ in range(epochs):
            order = torch.randperm(index.numel(), generator=generator)
            for batch in order.split(self.size):
                if batch.numel() == min(self.size, index.numel()):
                    yield index[batch]

    def train(
        self,
        step: Callable[[Tensor], None],
        batches: Iterator[Tensor],
        optimizer: FlatAdam | FlatSGD,
        best: BestEpoch[float],
        on_look: Progress | None = None,
    ) -> int:
        """Take steps until they bring nothing more; the best state is left behind. Returns how many were taken."""
        lr, steps, looks = optimizer.lr, 0, 0
        for number, rate in enumerate(self.rates):
            optimizer.lr = lr * rate
            waited = 0
            while waited < self.patience:
                before = steps
                for batch in batches:
                    step(batch)
                    steps += 1
                    if steps - before == self.steps_between_looks:
                        break
                looks += 1
                best.look(looks)
                waited = 0 if best.epoch == looks else waited + 1
                is_over = on_look is not None and on_look(number, len(self.rates)) is True
                if is_over or steps - before < self.steps_between_looks:  # somebody ends it, or all passes are made
                    best.restore()
                    return steps
            best.restore()
        return steps
