"""How to train: public choices, the same for every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from hushgraph.settings import Settings, setting
from hushgraph.training.optimizers import OptimizerName, Update, check_optimizer, check_schedule, make_optimizer

BestBy = Literal["accuracy", "loss"]
BEST_BY: tuple[BestBy, ...] = ("accuracy", "loss")


@dataclass(frozen=True)
class Training(Settings):
    """How to train. `epochs` counts passes over the training nodes; `class_weights` are public factors of the loss.

    An optimizer is a name, or a class of `torch.optim`; a schedule a name, or a function from the share of the steps
    that is done to a factor of the learning rate.

    Where all that is read is public, or no protection is claimed:

    - `device` is where it is computed; clipped sums are computed on the CPU, for which their rounding is bounded;
    - `batch_size` None is one step per epoch on all rows, or minibatches by rule where rows are many;
    - `select_best` keeps the weights of the epoch with the highest accuracy on the validation nodes, or with the lowest
      loss there (`best_by`), and `patience` stops after so many epochs without a better one (None: never).

    Where training is private:

    - `normalize` lengthens short gradients to the bound as well (the bound, hence the cost, is the same);
    - `average_last` is the share of the steps whose weights are averaged at the end: the model is the mean of the
      weights after each of the last `round(average_last * steps)` steps (0: the last weights), which were all released.
    """

    epochs: int = setting(1, least=0)
    lr: float = setting(0.01, above=0)
    optimizer: OptimizerName | Callable[..., Any] = "adam"
    weight_decay: float = setting(0.0, least=0)
    batch_size: int | None = setting(None, least=1)
    select_best: bool = False
    best_by: BestBy = setting("accuracy", among=BEST_BY)
    patience: int | None = setting(None, least=1)
    normalize: bool = False
    average_last: float = setting(0.0, least=0, most=1)
    schedule: str | Callable[[float], float] = "constant"
    class_weights: tuple[float, ...] | None = None
    device: str = "cpu"
    ranks: object = None
    """The processes that share private training (`hushgraph.training.ranks.Ranks`); None: this one alone."""
    is_fixed: bool = False
    """Whether something is read off the steps as they are here: options of `fit` leave it alone."""

    def problems(self) -> list[str]:
        """Those of all settings, and an optimizer or a schedule that is none."""
        return [*super().problems(), *check_optimizer(self.optimizer), *check_schedule(self.schedule)]

    @property
    def leaves_batches_open(self) -> bool:
        """Whether a rule may choose minibatches: nothing was asked for that they do not have."""
        usual = (None, "adam", "constant", None, "cpu")
        return (self.batch_size, self.optimizer, self.schedule, self.class_weights, self.device) == usual

    def update(self, vector: Tensor, steps: int, *, noise_variance: float = 0.0) -> Update:
        """The optimizer, for a vector that it changes in place in so many steps."""
        return make_optimizer(
            self.optimizer,
            vector,
            self.lr,
            self.weight_decay,
            noise_variance=noise_variance,
            schedule=self.schedule,
            steps=steps,
        )
