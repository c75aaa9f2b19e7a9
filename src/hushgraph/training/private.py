"""Private training on rows by its former name; `hushgraph.training.loop.train_private` does it."""

from __future__ import annotations

from torch import Tensor, nn

from hushgraph.data.rows import Rows
from hushgraph.noise.sampler import PoissonSampler
from hushgraph.training.config import Training
from hushgraph.training.examples import Noise, NoisySteps, RowExamples
from hushgraph.training.loop import Progress, train_private
from hushgraph.training.losses import RowLoss
from hushgraph.training.optimizers import OptimizerName


def train_privately(
    module: nn.Module,
    rows: Rows,
    labels: Tensor,
    *,
    sampler: PoissonSampler,
    steps: int,
    max_grad_norm: float,
    noise_std: float,
    noise: Noise,
    lr: float,
    optimizer: OptimizerName = "adam",
    weight_decay: float = 0.0,
    loss: str | RowLoss = "cross_entropy",
    microbatch: int | None = None,
    allow_no_noise: bool = False,
    normalize: bool = False,
    average_last: float = 0.0,
    on_step: Progress | None = None,
) -> None:
    """`train_private` on rows, with its settings one by one."""
    training = Training(0, lr, optimizer, weight_decay, normalize=normalize, average_last=average_last)
    noisy_steps = NoisySteps(sampler, steps, max_grad_norm, noise_std, allow_no_noise)
    examples = RowExamples(
        module, rows, labels, noisy_steps, loss=loss, microbatch=microbatch, normalize=training.normalize
    )
    train_private(examples, training, noise, on_step=on_step)
