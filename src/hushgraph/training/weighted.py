"""Clipped gradients of examples that read several nodes each, and the plain training of the same network.

Formal guarantee: let k examples of a batch change, come or go. Then `WeightedClippedGradient.sum`, each entry rounded
to a multiple of `grid`, is at most k times `max_grad_norm` away from what it is without them: for the numbers that are
returned (docs/proofs/dpappr.md). Edge cases:

| case | what happens |
| --- | --- |
| empty batch | a zero vector |
| gradient norm above the clip norm | scaled down to it; it is the bound less what rounding may add |
| gradient of which almost all (1 - 2^-10) cancels between the nodes of an example | clipped as if it were longer |
| gradient not finite | the example counts as zero |
| batch of more than 2^16 examples | refused |

How: a linear layer applied to K rows of an example has the gradient sum_k g_k a_k^T; its norm follows from the products
of the a and of the g among themselves, so no gradient of a single example is formed. Everything is in double precision,
and rows are multiplied in blocks of one shape, so that the place of a row does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.data.rows import dense_rows, take_rows
from hushgraph.errors import UnprovenError
from hushgraph.nn.layers import Linear
from hushgraph.nn.rowwise import is_registered, require_rowwise
from hushgraph.nn.weighted import WeightedMean, WeightedRows
from hushgraph.noise.sampler import Noise
from hushgraph.training.config import Training
from hushgraph.training.even_products import BLOCK_ROWS, linear_in_blocks, multiply_each
from hushgraph.training.examples import NoisySteps
from hushgraph.training.losses import are_present, check_labels
from hushgraph.training.optimizers import trainable, views_of
from hushgraph.training.rounding import check_size, checked_sum, clip_factors, clip_norm

_SLACK, _MOST_EXAMPLES, _MOST_CANCELED = 2.0**-9, 1 << 16, 2.0**-10
_NUMBERS_AT_ONCE = 1 << 23


class WeightedClippedGradient:
    """Clipped gradient sums of `network` over `rows`; `max_grad_norm` and `grid` as in `ClippedGradient`."""

    def __init__(
        self, network: WeightedMean, rows: WeightedRows, labels: Tensor, *, max_grad_norm: float, grid: float
    ) -> None:
        require_rowwise(network.mlp)
        self.layers = list(network.mlp.layers)
        if not all(
            isinstance(layer, Linear) or (is_registered(layer) and not list(layer.parameters()))
            for layer in self.layers
        ):
            raise UnprovenError("weighted rows: expected linear layers and activations; got others")
        self.rows, self.labels = rows, labels
        parameters = trainable(network)
        self.buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        self.views = {id(p): view for p, view in zip(parameters, views_of(self.buffer, parameters), strict=True)}
        self.max_grad_norm = float(max_grad_norm)
        self.clip_norm = clip_norm(max_grad_norm, _SLACK, grid, self.buffer.numel())
        width = rows.features.shape[1] * rows.columns.shape[1]
        self.at_once = max(1, _NUMBERS_AT_ONCE // width)

    def sum(self, positions: Tensor) -> Tensor:
        """The clipped sum over the examples at these positions, in the order of the network's trainable parameters."""
        check_size(len(positions), _MOST_EXAMPLES)
        self.buffer.zero_()
        for part in positions.split(self.at_once):
            if len(part):
                self._add(part)
        return checked_sum(self.buffer.clone(), len(positions), self.max_grad_norm)

    def _add(self, part: Tensor) -> None:
        used = self._backward(part)
        factors = self._factors(used)
        for layer, inputs, grads in used:
            scaled = (torch.nan_to_num(grads, 0.0, 0.0, 0.0) * factors[:, None, None]).flatten(0, 1)
            self.views[id(layer.weight)] += scaled.t() @ torch.nan_to_num(inputs, 0.0, 0.0, 0.0).flatten(0, 1)
            if layer.bias is not None:
                self.views[id(layer.bias)] += scaled.sum(0)

    def _backward(self, part: Tensor) -> list[tuple[Linear, Tensor, Tensor]]:
        """Every linear layer with its inputs and the gradients of its outputs, `[examples, K, columns]`."""
        columns, weights = self.rows.columns[part], self.rows.weights[part].double()
        count, shape = columns.numel(), columns.shape
        x = dense_rows(take_rows(self.rows.features, columns.flatten())).double()
        x = F.pad(x, (0, 0, 0, -count % BLOCK_ROWS))
        used: list[tuple[Linear, Tensor, Tensor]] = []
        with torch.enable_grad():
            for layer in self.layers:
                if isinstance(layer, Linear):
                    bias = None if layer.bias is None else layer.bias.detach().double()
                    out = linear_in_blocks(x, layer.weight.detach().double(), bias)
                    out = out if out.requires_grad else out.requires_grad_()
                    used.append((layer, x.detach(), out))
                    x = out
                else:
                    x = layer(x)
            scores = (x[:count].view(*shape, -1) * weights.unsqueeze(2)).sum(dim=1)
            loss = F.cross_entropy(scores, self.labels[part], reduction="sum")
            grads = torch.autograd.grad(loss, [out for _, _, out in used])
        return [
            (layer, inputs[:count].view(*shape, -1), grad[:count].view(*shape, -1))
            for (layer, inputs, _), grad in zip(used, grads, strict=True)
        ]

    def _factors(self, used: list[tuple[Linear, Tensor, Tensor]]) -> Tensor:
        """What to scale every example's gradient by; zero where it is not finite."""
        squares, lengths = torch.zeros(len(used[0][1]), dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        for layer, inputs, grads in used:
            of_inputs = multiply_each(inputs, inputs.transpose(1, 2)) + (0.0 if layer.bias is None else 1.0)
            of_grads = multiply_each(grads, grads.transpose(1, 2))
            squares += (of_inputs * of_grads).sum(dim=(1, 2))
            diagonals = of_inputs.diagonal(dim1=1, dim2=2) * of_grads.diagonal(dim1=1, dim2=2)
            lengths = lengths + diagonals.sqrt().sum(dim=1)
        norms = torch.maximum(squares.clamp(min=0.0).sqrt(), _MOST_CANCELED * lengths)
        finite = torch.isfinite(norms) & torch.isfinite(lengths)
        return torch.where(finite, clip_factors(torch.where(finite, norms, 1.0), self.clip_norm), 0.0)


class WeightedExamples:
    """One example for each of `rows`, with one label each; an example without a label is left out."""

    without_autograd = False

    def __init__(self, network: WeightedMean, rows: WeightedRows, labels: Tensor, noisy_steps: NoisySteps) -> None:
        noisy_steps.check_examples(len(rows))
        check_labels(labels, len(rows), with_null=True)
        self.module: nn.Module = network
        self.noisy_steps = noisy_steps
        self.engine = WeightedClippedGradient(
            network, rows, labels, max_grad_norm=noisy_steps.max_grad_norm, grid=noisy_steps.grid
        )
        self.present = are_present(labels)

    def sums(self, noise: Noise) -> Iterator[Tensor]:
        """The clipped sum of each step's batch."""
        for batches in self.noisy_steps.sampler.batches(noise, self.noisy_steps.steps, self.present):
            yield from map(self.engine.sum, batches)


def train_weighted(network: WeightedMean, rows: WeightedRows, labels: Tensor, training: Training) -> None:
    """Train on all examples at once, without privacy."""
    optimizer = torch.optim.Adam(network.parameters(), lr=training.lr, weight_decay=training.weight_decay)
    network.train()
    with torch.enable_grad():
        for _ in range(training.epochs):
            optimizer.zero_grad()
            F.cross_entropy(network(rows), labels).backward()
            optimizer.step()
