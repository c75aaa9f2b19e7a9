"""How to train: public choices that a method hands to a mechanism that trains."""

from __future__ import annotations

from dataclasses import dataclass

from hushgraph.training.optimizers import OptimizerName
from hushgraph.training.plain import BestBy


@dataclass(frozen=True)
class Training:
    """`epochs`, `batch_size`, `best_by` and `patience` concern plain training, where labels are public.

    Plain training keeps the epoch that is best on the validation nodes (`best_by`; None: the last one). `normalize` and
    `average_last` concern private training; how many steps it takes is part of the plan.
    """

    epochs: int
    lr: float = 0.01
    optimizer: OptimizerName = "adam"
    weight_decay: float = 0.0
    batch_size: int | None = None
    best_by: BestBy | None = "accuracy"
    patience: int | None = None
    normalize: bool = False
    average_last: float = 0.0
