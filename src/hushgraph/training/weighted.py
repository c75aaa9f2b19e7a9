"""Private and plain training where an example reads several nodes, with the weights of a released row.

Formal guarantee: that of `ClippedGradient`, for examples of several rows each (docs/proofs/gradient.md). Let k examples
of a batch change, come or go: then its sum is at most k times `max_grad_norm` away from what it is without them, in
exact arithmetic on the numbers that are returned. An example is gathered into a block of its own, so what is computed
for it follows from what it reads, to the last bit. Edge cases:

| case | what happens |
| --- | --- |
| empty batch | a zero vector |
| gradient that cancels between the nodes of an example | counted as at least 1/K of what it is without signs |
| gradient not finite | the example counts as zero |
| more than 64 nodes an example | gradients are formed one by one: slow, the same sums |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from hushgraph.graph.rows import Rows
from hushgraph.nn.weighted import WeightedMean, WeightedRows
from hushgraph.training.clipping import ClippedGradient
from hushgraph.training.config import Training
from hushgraph.training.examples import NoisySteps, whole_pieces
from hushgraph.training.loop import Progress, train_epochs
from hushgraph.training.losses import are_present, check_labels, loss_for, mean_loss
from hushgraph.training.optimizers import FlatParameters
from hushgraph.training.rounding import MOST_PIECES, VECTOR_ROWS, check_size
from hushgraph.training.sampler import Noise

_MANY_ROWS = 1000.0
"""Sums in blocks of 128 rows: smaller ones have room for 16 nodes an example only."""

_NUMBERS_AT_ONCE = 2**23


class WeightedExamples:
    """One example for each of `rows`, with one label each; an example without a label is left out."""

    without_autograd = False

    def __init__(self, network: WeightedMean, rows: WeightedRows, labels: Tensor, noisy_steps: NoisySteps) -> None:
        noisy_steps.check_examples(len(rows))
        check_labels(labels, len(rows), with_null=True)
        self.module: nn.Module = network
        self.rows, self.labels, self.noisy_steps = rows, labels, noisy_steps
        batch = noisy_steps.sampler.expected_batch_size
        self.engine = ClippedGradient(
            network,
            max_grad_norm=noisy_steps.max_grad_norm,
            loss=loss_for(labels),
            grid=noisy_steps.grid,
            microbatch=_examples_at_once(rows, batch),
            expected_rows=max(_MANY_ROWS, batch),
        )
        self.present = are_present(labels)

    def sums(self, noise: Noise, done: int = 0) -> Iterator[Tensor | None]:
        """The clipped sum of each step's batch."""
        first = torch.zeros(1, dtype=torch.int64)
        length = self.engine.piece_rows(cast(Rows, self.rows.rows(first).gathered()), self.labels[first])
        for batches in self.noisy_steps.sampler.batches(noise, self.noisy_steps.steps, self.present):
            for batch in batches:
                done -= 1
                yield None if done >= 0 else self._sum(batch, length)

    def _sum(self, batch: Tensor, length: int) -> Tensor:
        """Piece after piece, the last one filled up with examples that count as zero."""
        check_size(len(batch), length * MOST_PIECES)
        total = torch.zeros_like(self.engine.buffer)
        filled = torch.cat([batch, batch[:1].expand(whole_pieces(len(batch), length) - len(batch))])
        for start in range(0, len(batch), length):
            piece = filled[start : start + length]
            rows = cast(Rows, self.rows.rows(piece).gathered())
            total += self.engine.sum(rows, self.labels[piece], size=min(length, len(batch) - start))
        return total


def _examples_at_once(rows: WeightedRows, batch: float) -> int:
    """How many are processed together: a usual batch, or as many as fit in memory."""
    usual = whole_pieces(math.ceil(batch + 2.0 * math.sqrt(batch)), VECTOR_ROWS)
    room = _NUMBERS_AT_ONCE // (rows.columns.shape[1] * rows.features.shape[1])
    return max(VECTOR_ROWS, min(usual, room // VECTOR_ROWS * VECTOR_ROWS))


def train_weighted(
    network: WeightedMean, rows: WeightedRows, labels: Tensor, training: Training, on_epoch: Progress | None = None
) -> None:
    """Train on all examples at once, without privacy."""
    with FlatParameters(network) as flat, torch.enable_grad():
        flat.collect_gradients()
        update = training.update(flat.vector, training.epochs)

        def epoch() -> None:
            flat.gradient.zero_()
            mean_loss(network.at_once(rows), labels).backward()
            update.step(flat.gradient)

        network.train()
        train_epochs(epoch, training.epochs, on_epoch=on_epoch)
