"""How to train: public choices, the same for every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hushgraph.settings import Settings, setting
from hushgraph.training.optimizers import OPTIMIZERS, OptimizerName

BestBy = Literal["accuracy", "loss"]
BEST_BY: tuple[BestBy, ...] = get_args(BestBy)


@dataclass(frozen=True)
class Training(Settings):
    """How to train. `epochs` counts passes over the training nodes.

    Where all that is read is public, or no protection is claimed:

    - `batch_size` None is one step per epoch on all rows;
    - `select_best` keeps the weights of the epoch with the highest accuracy on the validation nodes, or with the lowest
      loss there (`best_by`), and `patience` stops after so many epochs without a better one (None: never).

    Where training is private:

    - `normalize` lengthens short gradients to the bound as well (the bound, hence the cost, is the same);
    - `average_last` is the share of the steps whose weights are averaged at the end: the model is the mean of the
      weights after each of the last `round(average_last * steps)` steps (0: the last weights), which were all released.
    """

    epochs: int = setting(1, least=0)
    lr: float = setting(0.01, above=0)
    optimizer: OptimizerName = setting("adam", among=OPTIMIZERS)
    weight_decay: float = setting(0.0, least=0)
    batch_size: int | None = setting(None, least=1)
    select_best: bool = False
    best_by: BestBy = setting("accuracy", among=BEST_BY)
    patience: int | None = setting(None, least=1)
    normalize: bool = False
    average_last: float = setting(0.0, least=0, most=1)
