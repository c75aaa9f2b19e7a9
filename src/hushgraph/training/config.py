"""How to train: public choices, the same for every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hushgraph import settings
from hushgraph.errors import InputError
from hushgraph.training.optimizers import OPTIMIZERS, OptimizerName

BestBy = Literal["accuracy", "loss"]
BEST_BY: tuple[BestBy, ...] = get_args(BestBy)


@dataclass(frozen=True)
class Training:
    """How to train. `epochs` counts passes over the train nodes.

    Where all that is read is public, or no protection is claimed:

    - `batch_size` None is one step per epoch on all rows;
    - `select_best` keeps the weights of the epoch with the highest accuracy on the validation nodes, or with the lowest
      loss there (`best_by`), and `patience` stops after so many epochs without a better one (None: never).

    Where training is private:

    - `normalize` lengthens short gradients to the bound as well (the bound, hence the cost, is the same);
    - `average_last` is the share of the steps whose weights are averaged at the end: the model is the mean of the
      weights after each of the last `round(average_last * steps)` steps (0: the last weights), which were all released.
    """

    epochs: int
    lr: float = 0.01
    optimizer: OptimizerName = "adam"
    weight_decay: float = 0.0
    batch_size: int | None = None
    select_best: bool = False
    best_by: BestBy = "accuracy"
    patience: int | None = None
    normalize: bool = False
    average_last: float = 0.0

    def __post_init__(self) -> None:
        InputError.collect(
            [
                *settings.at_least(0, epochs=self.epochs, weight_decay=self.weight_decay),
                *settings.at_least(1, batch_size=self.batch_size, patience=self.patience),
                *settings.above(0, lr=self.lr),
                *settings.one_of(OPTIMIZERS, optimizer=self.optimizer),
                *settings.one_of(BEST_BY, best_by=self.best_by),
                *([] if 0.0 <= self.average_last <= 1.0 else [self._not_a_share()]),
            ]
        )

    def _not_a_share(self) -> str:
        return f"average_last: expected a share of the steps, 0 to 1; got {self.average_last}; 0 averages nothing"
