"""Per-root clipped gradients: what a training step may use when one example is a whole rooted subgraph.

Formal guarantee: `RootedClippedGradient.sum` is a sum of one vector per root, each of norm at most `max_grad_norm` over
all parameters together, and each a function of that root's rooted subgraph alone. Who can change how many of them is
the business of the graph (docs/proofs/dpgnn.md). Edge cases:

| case | what happens |
| --- | --- |
| empty batch | a zero vector |
| gradient norm above the bound | scaled down to the bound (less one part in a million, for rounding) |
| gradient not finite | the root counts as zero |
| a layer that the closed form does not know | refused here; `rooted_gradient` takes the way of `rooted_functional` |

How: a linear layer that was applied to several rows of a root has the gradient sum_j g_j a_j^T, with a its inputs and g
the gradients of its outputs. Its norm follows from the products of rows of one root (`rooted_norms`), so no per-root
gradient is formed; the clipped sum is then one matrix product with the g scaled per root. Roots are taken in chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.data.rows import Rows, SparseRows, take_rows
from hushgraph.errors import HushgraphError, InputError, UnprovenError
from hushgraph.graph.rooted import RootedBatch, RootedSubgraphs
from hushgraph.nn.layers import Linear
from hushgraph.nn.rooted import AttentionLayer, GCNLayer, GINLayer, RootedNetwork
from hushgraph.noise.sampler import Noise, PoissonSampler
from hushgraph.training.flat import FlatParameters, trainable, views_of
from hushgraph.training.optimizers import OptimizerName, make_optimizer
from hushgraph.training.rooted_functional import FormedRootedGradient, check_rooted, state_objection
from hushgraph.training.rooted_inputs import InputRows, SharedInputs
from hushgraph.training.rooted_norms import InputProducts, RowLayout, layer_square_norms
from hushgraph.training.rowwise import is_registered

_ROUNDING = 1e-6
_KNOWN = (RootedNetwork, GCNLayer, GINLayer, AttentionLayer)
CHUNK_ROOTS = 1_000
CHUNK_ROWS = 16_384


@dataclass
class RecordedLinear:
    """One use of a linear layer: its input rows and output rows, on level `level` of the batch."""

    layer: Linear
    inputs: Tensor | InputRows
    outputs: Tensor
    level: int


class RecordingTape:
    """Keeps inputs and outputs of linear layers; weights are constants, so autograd stops at the outputs."""

    def __init__(self) -> None:
        self.used: list[RecordedLinear] = []

    def linear(self, layer: Linear, x: Tensor | InputRows, level: int) -> Tensor:
        """`layer(x)`, recorded."""
        if isinstance(x, InputRows):
            outputs = x.shared.product(layer, x.nodes)
        else:
            outputs = F.linear(x, layer.weight.detach(), None if layer.bias is None else layer.bias.detach())
        if not outputs.requires_grad:
            outputs.requires_grad_()
        self.used.append(RecordedLinear(layer, x, outputs, level))
        return outputs


class RootedClippedGradient:
    """Clipped gradient sums of `network` over roots of `subgraphs`, whose rows are `features` of the graph's nodes.

    `labels` has one class per root. `chunk_roots` and `chunk_rows` bound the work done at a time and change nothing
    else. Memory grows with `chunk_rows`, not with the batch.
    """

    def __init__(
        self,
        network: RootedNetwork,
        subgraphs: RootedSubgraphs,
        features: Rows,
        labels: Tensor,
        *,
        max_grad_norm: float,
        chunk_roots: int = CHUNK_ROOTS,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        require_rooted(network)
        check_rooted(network, subgraphs, labels, max_grad_norm)
        self.network, self.subgraphs, self.features, self.labels = network, subgraphs, features, labels
        self.max_grad_norm = float(max_grad_norm)
        self.chunk_roots, self.chunk_rows = chunk_roots, chunk_rows
        parameters = trainable(network)
        self.buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
        self.views = {id(p): view for p, view in zip(parameters, views_of(self.buffer, parameters))}
        self.products = InputProducts(subgraphs, features) if isinstance(features, SparseRows) else None
        self.shared = SharedInputs(features) if isinstance(features, SparseRows) else None

    @property
    def num_parameters(self) -> int:
        """The length of the sum."""
        return self.buffer.numel()

    def sum(self, positions: Tensor) -> Tensor:
        """The clipped sum over the roots at these positions, in the order of the network's trainable parameters."""
        self.buffer.zero_()
        if self.shared is not None:
            self.shared.begin(self.subgraphs.nodes_of(positions))
        for chunk in self._chunks(positions):
            self._add_chunk(chunk)
        if self.shared is not None:
            self.shared.finish(self.views[id(self.network.encoder[0].weight)])
        return self.buffer.clone()

    def square_norms(self, positions: Tensor) -> Tensor:
        """Upper bounds, tight up to rounding, of the squared gradient norms of these roots (tests, diagnostics)."""
        batch = self.subgraphs.batch(positions)
        if self.shared is not None:
            self.shared.begin(batch.nodes)
        return self._square_norms(self._record(batch, positions), batch, positions)[0]

    def _chunks(self, positions: Tensor) -> Iterator[Tensor]:
        """Roots of similar size together: less padding, and a bounded number of rows (but at least one root)."""
        rows = self.subgraphs.num_rows[positions]
        order = torch.argsort(rows)
        positions, ends = positions[order], torch.cumsum(rows[order], 0)
        first = 0
        while first < positions.numel():
            begin = int(ends[first - 1]) if first else 0
            last = int(torch.searchsorted(ends, begin + self.chunk_rows, right=True))
            last = min(max(last, first + 1), first + self.chunk_roots)
            yield positions[first:last]
            first = last

    def _add_chunk(self, positions: Tensor) -> None:
        batch = self.subgraphs.batch(positions)
        used = self._record(batch, positions)
        squares, gradients = self._square_norms(used, batch, positions)
        bad = ~torch.isfinite(squares)
        if bool(bad.any()):  # zero times NaN would still be NaN: start again without these roots
            if not bool(bad.all()):
                self._add_chunk(positions[~bad])
            return
        factors = self._factors(squares.sqrt())
        for use, gradient in zip(used, gradients):
            self._add_layer(use, gradient * batch_rows(factors, batch, use.level))

    def _record(self, batch: RootedBatch, positions: Tensor) -> list[RecordedLinear]:
        tape = RecordingTape()
        with torch.enable_grad():
            scores = self.network(self._inputs(batch.nodes), batch, tape)
            self._loss = F.cross_entropy(scores, self.labels[positions], reduction="sum")
        if len({id(use.layer) for use in tape.used}) != len(tape.used):
            raise UnprovenError("expected each linear layer to be used once per example; got one used more often")
        return tape.used

    def _inputs(self, nodes: Tensor) -> Any:
        return take_rows(self.features, nodes) if self.shared is None else self.shared.rows(nodes)

    def _square_norms(
        self, used: list[RecordedLinear], batch: RootedBatch, positions: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Squared norms per root, and the gradients of all outputs. Roots share no row, so one backward pass does."""
        gradients = torch.autograd.grad(self._loss, [use.outputs for use in used])
        total = torch.zeros(batch.num_roots, dtype=gradients[0].dtype)
        layouts = [RowLayout(offsets) for offsets in batch.row_offsets]
        with torch.no_grad():
            for use, gradient in zip(used, gradients):
                inputs = use.inputs.detach() if isinstance(use.inputs, Tensor) else use.inputs
                bias = use.layer.bias is not None
                total += layer_square_norms(inputs, gradient, layouts[use.level], bias, self.products, positions)
        return total, gradients

    def _add_layer(self, use: RecordedLinear, gradient: Tensor) -> None:
        if isinstance(use.inputs, InputRows):
            use.inputs.shared.add(use.inputs.nodes, gradient)
        else:
            self.views[id(use.layer.weight)].addmm_(gradient.t(), use.inputs.detach())
        if use.layer.bias is not None:
            self.views[id(use.layer.bias)] += gradient.sum(0)

    def _factors(self, norms: Tensor) -> Tensor:
        """What to scale each root by; checked on the very numbers that are used."""
        bound = self.max_grad_norm
        factors = norms.reciprocal().mul_(bound * (1.0 - _ROUNDING)).clamp_(max=1.0)
        largest = float((norms * factors).max()) if norms.numel() else 0.0
        if not largest <= bound * (1.0 + _ROUNDING):
            raise HushgraphError(f"expected clipped norms of at most {bound}; got {largest}; nothing was released")
        return factors


def batch_rows(values: Tensor, batch: RootedBatch, level: int) -> Tensor:
    """One value per root, repeated for the root's rows on `level`, as a column."""
    counts = batch.row_offsets[level].diff()
    return torch.repeat_interleave(values, counts).unsqueeze(1)


def require_rooted(network: RootedNetwork) -> None:
    """Refuse networks that the closed form does not cover: known layers, weights in linear ones only, no hooks."""
    if type(network) is not RootedNetwork:
        raise UnprovenError(f"expected a RootedNetwork; got {type(network).__name__}, for which there is no proof")
    parts = dict(network.named_modules())
    unknown = [
        f"{name} ({type(p).__name__})" for name, p in parts.items() if type(p) not in _KNOWN and not is_registered(p)
    ]
    if unknown:
        raise UnprovenError(f"expected layers that the closed form knows; got {', '.join(unknown)}")
    linear = {id(p) for layer in network.modules() if type(layer) is Linear for p in layer.parameters()}
    outside = [name for name, p in network.named_parameters() if id(p) not in linear]
    if outside:
        raise UnprovenError(f"expected all weights in linear layers; got {', '.join(outside)}")
    hooked = [name for name, part in parts.items() if state_objection(part) is not None]
    if hooked:
        raise UnprovenError(f"expected plain layers; got hooks, buffers or a replaced forward in {', '.join(hooked)}")
    frozen = [name for name, p in network.named_parameters() if not p.requires_grad]
    if frozen:
        raise InputError(f"expected trainable weights; got frozen ones: {', '.join(frozen)}")


def rooted_gradient(
    network: RootedNetwork, subgraphs: RootedSubgraphs, features: Rows, labels: Tensor, *, max_grad_norm: float
) -> RootedClippedGradient | FormedRootedGradient:
    """The closed form where it is known, and otherwise gradients formed outright: the same sum, slower."""
    try:
        require_rooted(network)
    except UnprovenError:
        return FormedRootedGradient(network, subgraphs, features, labels, max_grad_norm=max_grad_norm)
    return RootedClippedGradient(network, subgraphs, features, labels, max_grad_norm=max_grad_norm)


def train_rooted_privately(
    network: RootedNetwork,
    subgraphs: RootedSubgraphs,
    features: Rows,
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
    averaged: float = 0.5,
    allow_no_noise: bool = False,
    on_step: Callable[[int, int], None] | None = None,
) -> None:
    """Train `network` in place with `steps` noisy sums of clipped per-root gradients (DP-SGD or DP-Adam).

    `sampler` draws roots; `noise_std` is absolute. The sum is divided by the expected batch size. The network ends with
    the mean of the weights after each step of the last share `averaged` (0: with the last weights): noise moves the
    weights to and fro, and the mean of what was released costs nothing. Nothing is charged here: the vault that owns
    the rows charges before it calls.
    """
    if sampler.num_examples != subgraphs.num_roots:
        raise InputError(f"expected a sampler over {subgraphs.num_roots} roots; got {sampler.num_examples}")
    if not (math.isfinite(noise_std) and noise_std >= 0) or (noise_std == 0 and not allow_no_noise):
        raise InputError(f"expected a finite noise_std > 0; got {noise_std}; a plan without privacy trains plainly")
    if not 0.0 <= averaged <= 1.0:
        raise InputError(f"averaged: expected a share of the steps, 0 to 1; got {averaged}")
    engine = rooted_gradient(network, subgraphs, features, labels, max_grad_norm=max_grad_norm)
    with FlatParameters(network) as flat, torch.no_grad():
        update = make_optimizer(optimizer, flat.vector, lr, weight_decay)
        mean, first = torch.zeros_like(flat.vector), min(int((1.0 - averaged) * steps), max(steps - 1, 0))
        for step in range(steps):
            total = engine.sum(sampler.draw(noise))
            if noise_std > 0:
                total += noise.gaussian((engine.num_parameters,), noise_std)
            update.step(total.div_(sampler.expected_batch_size))
            if step >= first:
                mean.add_(flat.vector, alpha=1.0 / (steps - first))
            if on_step is not None:
                on_step(step + 1, steps)
        if steps > 0:
            flat.vector.copy_(mean)
        if not bool(torch.isfinite(flat.vector).all()):
            raise HushgraphError("expected finite weights after training; got others; lower the learning rate")
