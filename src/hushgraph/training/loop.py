"""The two training loops, private and plain, and the keeper of the best epoch.

Private: clipped, noised gradient steps (DP-SGD, DP-Adam) on one flat parameter vector. Nothing here charges a ledger:
whoever owns the examples charges for the noisy sums before the loop is called. Plain: for data that is public under the
unit in force, or for baselines that claim nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from hushgraph.errors import HushgraphError
from hushgraph.training.alike import one_thread
from hushgraph.training.config import Training
from hushgraph.training.examples import Examples, NoisySteps
from hushgraph.training.optimizers import FlatParameters
from hushgraph.training.sampler import Noise

Progress = Callable[[int, int], object]
"""Told how many of how many steps are done; one that returns True has seen enough, and training ends."""

Verdict = TypeVar("Verdict")

# Noise is drawn for so many numbers together, where a step has fewer.
_NUMBERS_AT_ONCE = 2**15


class StepKeeper(Protocol):
    """Keeps the state of a training between two steps, so that it can go on after its process was stopped."""

    def begin(self, state: dict[str, Tensor]) -> int:
        """Fill `state` with what was kept last; how many steps that were."""
        ...

    def keep(self, step: int, state: dict[str, Tensor]) -> None:
        """The state after `step` steps."""
        ...


def train_private(
    examples: Examples,
    training: Training,
    noise: Noise,
    *,
    on_step: Progress | None = None,
    keeper: StepKeeper | None = None,
) -> None:
    """Train `examples.module` in place with noisy clipped gradient sums; the final weights are the release.

    Each step draws a Poisson batch, clips every example's gradient, rounds the sum to the grid of the noise, adds the
    noise, divides by the *expected* batch size and updates. `noise` must be a stream that nobody else draws from.
    `on_step(done, steps)` learns nothing. A training that `keeper` saw before goes on from there: batches and noise of
    earlier steps are drawn and left, so that later ones are those that they would have been.
    """
    steps, module = examples.noisy_steps, examples.module
    batch_size, was_training = steps.sampler.expected_batch_size, module.training
    module.train()
    with one_thread(), FlatParameters(module) as flat, _without_autograd(examples):
        variance = (steps.noise_std / batch_size) ** 2
        update = training.update(flat.vector, steps.steps, noise_variance=variance)
        tail = _Tail(flat.vector, steps.steps, training.average_last)
        perturb = StepNoise(steps, flat.vector.numel(), noise)
        state = {"weights": flat.vector, "tail": tail.mean, **update.state()}
        done = 0 if keeper is None else keeper.begin(state)
        update.steps, tail.count = done, max(0, done - tail.first)
        for step, total in enumerate(examples.sums(noise, done)):
            if total is None:
                perturb.skip()
                continue
            update.step(torch.mul(perturb(total), perturb.grid / batch_size, out=flat.gradient))
            tail.add(step)
            if keeper is not None:
                keeper.keep(step + 1, state)
            if on_step is not None and on_step(step + 1, steps.steps) is True:
                break  # all steps are paid for
        tail.use()
        if not bool(torch.isfinite(flat.vector).all()):
            raise HushgraphError("expected finite weights after training; got others; lower the learning rate")
    module.train(was_training)


def _without_autograd(examples: Examples) -> AbstractContextManager[Any]:
    """Inference mode, which makes small operations cheaper still, where no gradient comes from autograd."""
    return torch.inference_mode() if examples.without_autograd else torch.no_grad()


class StepNoise:
    """`hushgraph.noise.perturb` in place, with the noise of several steps drawn at once: each call has a fixed cost.

    No sum is too large for the grid: `NoisySteps` says so.
    """

    def __init__(self, steps: NoisySteps, size: int, noise: Noise) -> None:
        self.steps, self.left, self.size, self.noise = steps, steps.steps, size, noise
        self.grid = steps.grid or 1.0
        self.rows: Iterator[Tensor] = iter(())

    def __call__(self, total: Tensor) -> Tensor:
        """The sum rounded to the grid, with noise, in place and in units of `grid` (as it is, where there is none)."""
        return total if self.steps.grid == 0 else total.mul_(1.0 / self.grid).round_().add_(self._next())

    def skip(self) -> None:
        """Leave the noise of one step."""
        if self.steps.grid:
            self._next()

    def _next(self) -> Tensor:
        found = next(self.rows, None)
        if found is None:
            count = min(self.left, max(1, _NUMBERS_AT_ONCE // self.size))
            self.left -= count
            drawn = self.noise.integer_gaussian((count, self.size), self.steps.noise_std / self.steps.grid)
            self.rows = iter(drawn.double())
            found = next(self.rows)
        return found


class _Tail:
    """The mean of the weights after the last steps. Every one of them is released already: this is free."""

    def __init__(self, vector: Tensor, steps: int, share: float) -> None:
        self.vector, self.count = vector, 0
        self.first = steps - round(share * steps)
        self.mean = torch.zeros_like(vector)

    def add(self, step: int) -> None:
        if step >= self.first:
            self.count += 1
            self.mean.lerp_(self.vector, 1.0 / self.count)

    def use(self) -> None:
        if self.count:
            self.vector.copy_(self.mean)


class Observer(Protocol):
    """Somebody who looks at the state of a network between epochs, as `BestEpoch` does."""

    def look(self, epoch: int) -> bool:
        """The state after `epoch` epochs; True: stop."""
        ...

    def restore(self) -> None:
        """Called at the end: the state to leave behind."""
        ...


def train_epochs(
    epoch: Callable[[], object],
    epochs: int,
    *,
    best: Observer | None = None,
    on_epoch: Progress | None = None,
) -> None:
    """The plain loop: `epoch()` up to `epochs` times, then back to the best state, if somebody looks for it.

    `best` looks at the state before the first epoch and after every one.
    """
    for done in range(epochs + 1):
        is_over = best is not None and best.look(done)
        if is_over or done == epochs:
            break
        epoch()
        if on_epoch is not None and on_epoch(done + 1, epochs) is True:
            if best is not None:
                best.look(done + 1)
            break
    if best is not None:
        best.restore()


def larger(new: Any, kept: Any) -> bool:
    """Whether the new number is larger; what is not a number is smaller than all."""
    return bool(new > kept or kept != kept)


@dataclass
class BestEpoch(Generic[Verdict]):
    """Judges the state of a module between epochs and keeps the best one (the first, among equals).

    `judge()` says how good the present state is and `improves(new, kept)` which of two is better: by default the larger
    number, and what is not a number is never better. `patience`: stop after so many looks without a better state, but
    not before epoch `least`. `first` and `every` say after how many epochs to look.

    This looks at what `judge` reads after every epoch: legal only where that is public or already randomized.
    """

    module: nn.Module
    judge: Callable[[], Verdict]
    improves: Callable[[Verdict, Verdict], bool] = larger
    patience: int | None = None
    least: int = 0
    first: int = 1
    every: int = 1
    verdict: Verdict | None = field(default=None, init=False)
    epoch: int = field(default=0, init=False)
    _waited: int = field(default=0, init=False)
    _state: dict[str, Tensor] = field(default_factory=dict, init=False)

    def look(self, epoch: int) -> bool:
        """Judge the state after `epoch` epochs, keep it if it is the best so far; True: stop."""
        if epoch < self.first or epoch % self.every:
            return False
        found = self.judge()
        if self.verdict is None or self.improves(found, self.verdict):
            self.verdict, self.epoch, self._waited = found, epoch, 0
            self._state = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        else:
            self._waited += 1
        return self.patience is not None and self._waited >= self.patience and epoch >= self.least

    def restore(self) -> None:
        """Go back to the best state, if there was one."""
        if self._state:
            self.module.load_state_dict(self._state)
