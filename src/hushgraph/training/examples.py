"""Private examples: Poisson batches of rows or of rooted subgraphs, and the clipped gradient sum of each batch.

`train_private` in `loop` knows nothing else of the data. Batches come from the sampler in random order, without null
records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.rooted import RootedSubgraphs
from hushgraph.graph.rows import Rows, narrow_rows, part_square_norms, take_rows
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.noise import grid_of
from hushgraph.training.clipping import ClippedGradient
from hushgraph.training.losses import RowLoss, are_present, check_labels, loss_for
from hushgraph.training.rooted import rooted_gradient
from hushgraph.training.sampler import Noise, PoissonSampler

# Rows of several steps are gathered up to about this many numbers, where a row counts as at least so many (measured).
_NUMBERS_AT_ONCE, _ROW_COST = 2**19, 64
# Multiples of the grid up to this are exact in float64, with noise added.
_MOST_GRID_STEPS = 2.0**51


@dataclass(frozen=True)
class NoisySteps:
    """What is released: `steps` noisy sums of clipped gradients, one per Poisson batch.

    One example changes a sum by at most `max_grad_norm`; `noise_std` is absolute (noise multiplier times the bound).
    Zero noise is refused unless `allow_no_noise` says that no privacy is claimed.
    """

    sampler: PoissonSampler
    steps: int
    max_grad_norm: float
    noise_std: float
    allow_no_noise: bool = False

    def __post_init__(self) -> None:
        problems = []
        if self.steps < 0:
            problems.append(f"expected steps >= 0; got {self.steps}; 0 trains nothing")
        if not (math.isfinite(self.max_grad_norm) and self.max_grad_norm > 0):
            problems.append(f"expected a finite max_grad_norm > 0; got {self.max_grad_norm}; 1.0 is usual")
        fits = math.isfinite(self.noise_std) and self.noise_std >= 0
        if not fits or (self.noise_std == 0 and not self.allow_no_noise):
            problems.append(
                f"expected a finite noise_std > 0; got {self.noise_std};"
                " for a run without privacy pass allow_no_noise=True"
            )
        elif self.noise_std > 0 and self.sampler.num_examples * self.max_grad_norm > _MOST_GRID_STEPS * self.grid:
            problems.append(
                f"expected noise that is not tiny beside {self.sampler.num_examples} gradients of norm"
                f" {self.max_grad_norm}; got noise_std {self.noise_std}; a larger one, or none"
            )
        InputError.collect(problems)

    @cached_property
    def grid(self) -> float:
        """What the sums are rounded to multiples of before noise is added; 0: there is no noise."""
        return grid_of(self.noise_std) if self.noise_std > 0 else 0.0

    def check_examples(self, found: int) -> None:
        """Refuse examples of another number than the sampler draws from."""
        if found != self.sampler.num_examples:
            raise InputError(
                f"expected {self.sampler.num_examples} rows, as the sampler says; got {found}; pass the same set"
            )


class Examples(Protocol):
    """What the private loop trains on."""

    module: nn.Module
    noisy_steps: NoisySteps

    @property
    def without_autograd(self) -> bool:
        """Whether sums are computed without automatic differentiation."""
        ...

    def sums(self, noise: Noise, done: int = 0) -> Iterator[Tensor | None]:
        """The clipped sum of each step's batch, float64; computed when asked for, with the weights of that moment.

        None for the first `done` steps: their batches are drawn and left.
        """
        ...


class RowExamples:
    """One example per row of `rows`, or per row named by `index`; other settings as in `ClippedGradient`.

    Without `loss`, the one that fits the labels.
    """

    def __init__(
        self,
        module: nn.Module,
        rows: Rows,
        labels: Tensor,
        noisy_steps: NoisySteps,
        *,
        index: Tensor | None = None,
        loss: str | RowLoss | None = None,
        microbatch: int | None = None,
        normalize: bool = False,
    ) -> None:
        if index is not None:
            rows, labels = take_rows(rows, index), labels.index_select(0, index)
        self.square_norms = part_square_norms(rows)
        noisy_steps.check_examples(len(rows))
        check_labels(labels, len(rows), with_null=True)
        self.module, self.rows, self.labels, self.noisy_steps = module, rows, labels, noisy_steps
        batch = noisy_steps.sampler.expected_batch_size
        self.engine = ClippedGradient(
            module,
            max_grad_norm=noisy_steps.max_grad_norm,
            grid=noisy_steps.grid,
            loss=loss_for(labels) if loss is None else loss,
            microbatch=microbatch,
            normalize=normalize,
            expected_rows=batch,
        )
        self.present = are_present(labels)
        self.piece_rows = 1
        width = rows[0].numel() if isinstance(rows, Tensor) and len(rows) else 1
        self.at_once = max(1, int(_NUMBERS_AT_ONCE / (batch * max(width, _ROW_COST))))

    @property
    def without_autograd(self) -> bool:
        """Whether sums are computed without automatic differentiation."""
        return self.engine.method == "manual"

    def sums(self, noise: Noise, done: int = 0) -> Iterator[Tensor | None]:
        """The clipped sum of each step's batch; rows of several small steps are gathered at once."""
        self.piece_rows = self.engine.piece_rows(self.rows, self.labels)
        for batches in self.noisy_steps.sampler.batches(noise, self.noisy_steps.steps, self.present):
            for first in range(0, len(batches), self.at_once):
                group = batches[first : first + self.at_once]
                left = min(done, len(group))
                done -= left
                yield from [None] * left
                if left < len(group):
                    yield from self._sums_of(group, left)

    def _sums_of(self, batches: list[Tensor], left: int = 0) -> Iterator[Tensor]:
        index, start = filled_up(batches, self.piece_rows), 0
        rows, labels = take_rows(self.rows, index), self.labels.index_select(0, index)
        square_norms = self.square_norms.index_select(0, index)
        for number, size in enumerate(batch.numel() for batch in batches):
            stop = start + whole_pieces(size, self.piece_rows)
            if number < left:
                start = stop
                continue
            piece, known = narrow_rows(rows, start, stop - start), square_norms[start:stop]
            yield self.engine.sum(piece, labels[start:stop], size=size, input_square_norms=known)
            start = stop


class RootedExamples:
    """One example per root of `subgraphs`, whose rows are `features` of the graph's nodes; one label per root."""

    def __init__(
        self,
        network: RootedNetwork,
        subgraphs: RootedSubgraphs,
        features: Rows,
        labels: Tensor,
        noisy_steps: NoisySteps,
    ) -> None:
        noisy_steps.check_examples(subgraphs.num_roots)
        check_labels(labels, subgraphs.num_roots, with_null=True)
        self.module: nn.Module = network
        self.noisy_steps = noisy_steps
        self.engine = rooted_gradient(
            network,
            subgraphs,
            features,
            labels,
            max_grad_norm=noisy_steps.max_grad_norm,
            grid=noisy_steps.grid,
        )
        self.present = are_present(labels)
        self.without_autograd = False

    def sums(self, noise: Noise, done: int = 0) -> Iterator[Tensor | None]:
        """The clipped sum of each step's batch of roots."""
        for batches in self.noisy_steps.sampler.batches(noise, self.noisy_steps.steps, self.present):
            for batch in batches:
                done -= 1
                yield None if done >= 0 else self.engine.sum(batch)


def whole_pieces(size: int, piece_rows: int) -> int:
    """The next number of rows that fills whole pieces."""
    return -(-size // piece_rows) * piece_rows


def filled_up(batches: Sequence[Tensor], piece_rows: int) -> Tensor:
    """The batches one after the other, the first row of each repeated to whole pieces."""
    pieces = []
    for batch in batches:
        size = batch.numel()
        pieces += [batch, batch[:1].expand(whole_pieces(size, piece_rows) - size)]
    return torch.cat(pieces)
