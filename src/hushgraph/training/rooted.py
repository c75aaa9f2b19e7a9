"""Per-root clipped gradients: what a training step may use when one example is a whole rooted subgraph.

Formal guarantee: let k roots of a batch change (the batch is in random order, and they may also come or go). Then
`RootedClippedGradient.sum`, each entry rounded to a multiple of `grid`, is at most k times `max_grad_norm` away from
what it is without these roots: in exact arithmetic on the numbers that are returned (docs/proofs/gradient.md). Who can
change how many roots is the business of the graph (docs/proofs/dpgnn.md). Edge cases:

| case | what happens |
| --- | --- |
| empty batch | a zero vector |
| gradient norm above the clip norm | scaled down to it; it is the bound less what rounding may add (`rounding`) |
| gradient of which more than 3/4 cancels between the rows of a root | clipped as if it were longer |
| gradient not finite | the root counts as zero |
| a layer that the closed form does not know | refused here; `rooted_gradient` takes the way of `rooted_functional` |

How: a linear layer that was applied to several rows of a root has the gradient sum_j g_j a_j^T, with a its inputs and g
the gradients of its outputs. Its norm follows from the products of rows of one root (`rooted_norms`), so no per-root
gradient is formed; the clipped sum is then matrix products with the g scaled per root, over blocks of 32 roots. Roots
are taken in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.rooted import Messages, RootedBatch, RootedSubgraphs
from hushgraph.graph.rows import Rows, SparseRows, take_rows
from hushgraph.nn.layers import Linear
from hushgraph.nn.rooted import AttentionLayer, GCNLayer, GINLayer, RootedNetwork, SAGELayer
from hushgraph.nn.rowwise import is_registered
from hushgraph.training.alike import one_thread
from hushgraph.training.clipping import widest_layer
from hushgraph.training.even_products import BLOCK_ROWS as EVEN_ROWS
from hushgraph.training.even_products import linear_in_blocks
from hushgraph.training.losses import loss_for, row_loss
from hushgraph.training.optimizers import trainable, views_of
from hushgraph.training.rooted_functional import FormedRootedGradient, check_rooted, state_objection
from hushgraph.training.rooted_norms import InputProducts, InputRows, RowLayout, SharedInputs, layer_norms
from hushgraph.training.rounding import (
    add_products,
    block_slack,
    check_size,
    checked_sum,
    clip_factors,
    clip_norm,
    double_slack,
    norm_slack,
)

_KNOWN = (RootedNetwork, GCNLayer, SAGELayer, GINLayer, AttentionLayer)
CHUNK_ROOTS = 2_048
CHUNK_ROWS = 16_384
# Roots in a block, rows of them that are added up in single precision, and roots in a block where each has one row.
BLOCK_ROOTS, BLOCK_ROWS, SINGLE_ROOTS = 32, 256, 128
_MOST_CANCELED = SINGLE_ROOTS // BLOCK_ROOTS
_MOST_BLOCKS = 2**20


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
            outputs = linear_in_blocks(x, layer.weight, layer.bias)
        if not outputs.requires_grad:
            outputs.requires_grad_()
        self.used.append(RecordedLinear(layer, x, outputs, level))
        return outputs


class RootedClippedGradient:
    """Clipped gradient sums of `network` over roots of `subgraphs`, whose rows are `features` of the graph's nodes.

    `labels` has one class per root, or a row of 0 and 1, or of weighted classes. `max_grad_norm` and `grid` as in
    `ClippedGradient`. `chunk_roots` and `chunk_rows` bound the work done at a time (not below 128 roots, and one root)
    and change nothing else. Memory grows with `chunk_rows`, not with the batch.
    """

    def __init__(
        self,
        network: RootedNetwork,
        subgraphs: RootedSubgraphs,
        features: Rows,
        labels: Tensor,
        *,
        max_grad_norm: float,
        grid: float = 0.0,
        chunk_roots: int = CHUNK_ROOTS,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        require_rooted(network)
        check_rooted(network, subgraphs, labels, max_grad_norm)
        self.network, self.subgraphs, self.features, self.labels = network, subgraphs, features, labels
        self.loss = row_loss(loss_for(labels))
        self.chunk_roots, self.chunk_rows = chunk_roots, chunk_rows
        parameters = trainable(network)
        self.buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        self.views = {id(p): view for p, view in zip(parameters, views_of(self.buffer, parameters))}
        terms, lengths = len(features) + subgraphs.num_roots + _MOST_BLOCKS, subgraphs.num_roots * _MOST_CANCELED
        slack = norm_slack(widest_layer(network)) + block_slack(BLOCK_ROWS, SINGLE_ROOTS) + double_slack(terms, lengths)
        self.max_grad_norm = float(max_grad_norm)
        self.clip_norm = clip_norm(max_grad_norm, slack, grid, self.num_parameters)
        self.products = InputProducts(subgraphs, features) if isinstance(features, SparseRows) else None
        self.shared = SharedInputs(features) if isinstance(features, SparseRows) else None

    @property
    def num_parameters(self) -> int:
        """The length of the sum."""
        return self.buffer.numel()

    def sum(self, positions: Tensor) -> Tensor:
        """The clipped sum over the roots at these positions, in the order of the network's trainable parameters."""
        check_size(int(self.subgraphs.num_rows[positions].sum()), _MOST_BLOCKS * SINGLE_ROOTS)
        with one_thread():
            self._add_all(positions)
        return checked_sum(self.buffer.clone(), len(positions), self.max_grad_norm)

    def _add_all(self, positions: Tensor) -> None:
        self.buffer.zero_()
        if self.shared is not None:
            self.shared.begin(self.subgraphs.nodes_of(positions))
        for start, stop in self._chunks(self.subgraphs.num_rows[positions].tolist()):
            self._add_chunk(positions[start:stop])
        if self.shared is not None:
            self.shared.finish(self.views[id(self.network.encoder[0].weight)])

    def square_norms(self, positions: Tensor) -> Tensor:
        """Upper bounds, tight up to rounding, of the squared gradient norms of these roots (tests, diagnostics)."""
        batch = self.subgraphs.batch(positions)
        if self.shared is not None:
            self.shared.begin(batch.nodes)
        return self._square_norms(self._record(batch, positions), batch, positions)[0]

    def _chunks(self, rows: list[int]) -> Iterator[tuple[int, int]]:
        """Where to cut a batch of roots with so many rows: groups of 128 together, up to a bounded number of rows.

        How one group is cut depends on its own roots alone.
        """
        first = held = 0
        for start in range(0, len(rows), SINGLE_ROOTS):
            stop = min(start + SINGLE_ROOTS, len(rows))
            found = sum(rows[start:stop])
            if first < start and (held + found > self.chunk_rows or stop - first > self.chunk_roots):
                yield first, start
                first, held = start, 0
            held += found
            if held > self.chunk_rows:
                yield from self._cut_group(rows, start, stop)
                first, held = stop, 0
        if first < len(rows):
            yield first, len(rows)

    def _cut_group(self, rows: list[int], start: int, stop: int) -> Iterator[tuple[int, int]]:
        """A group of too many rows, cut into its blocks, and these into single roots where they are too large."""
        for first in range(start, stop, BLOCK_ROOTS):
            last = min(first + BLOCK_ROOTS, stop)
            if sum(rows[first:last]) <= self.chunk_rows:
                yield first, last
            else:
                yield from ((root, root + 1) for root in range(first, last))

    def _add_chunk(self, positions: Tensor) -> None:
        """Add the clipped gradients of these roots; those that are not finite count as zero."""
        counted = torch.ones(len(positions), dtype=torch.bool)
        while True:
            batch = self.subgraphs.batch(positions)
            used = self._record(batch, positions)
            squares, gradients = self._square_norms(used, batch, positions)
            finite = torch.isfinite(squares)
            if bool(finite.all()):
                break
            counted &= finite
            if not bool(counted.any()):
                return
            # Zero times NaN would still be NaN: start again with another root in its place.
            positions = torch.where(counted, positions, positions[counted.nonzero()[0]])
        factors = clip_factors(squares.sqrt_(), self.clip_norm).mul_(counted).to(gradients[0].dtype)
        *below, roots = batch.row_offsets
        cuts = [*map(_row_cuts, below), range(0, len(roots) - 1 + SINGLE_ROOTS, SINGLE_ROOTS)]
        for use, gradient in zip(used, gradients):
            self._add_layer(use, gradient * batch_rows(factors, batch, use.level), cuts[use.level])

    def _record(self, batch: RootedBatch, positions: Tensor) -> list[RecordedLinear]:
        tape, filled = RecordingTape(), filled_up(batch)
        with torch.enable_grad():
            scores = self.network(self._inputs(filled.nodes), filled, tape)
            # Of whole blocks of rows too: an entry at the end of an array may be computed in another way.
            places = torch.cat((positions, positions[:1].expand(len(scores) - len(positions))))
            self._loss = self.loss(scores, self.labels[places])[: batch.num_roots].sum()
        if len({id(use.layer) for use in tape.used}) != len(tape.used):
            raise UnprovenError("expected each linear layer to be used once per example; got one used more often")
        return tape.used

    def _inputs(self, nodes: Tensor) -> Any:
        return take_rows(self.features, nodes) if self.shared is None else self.shared.rows(nodes)

    def _square_norms(
        self, used: list[RecordedLinear], batch: RootedBatch, positions: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Squared norms per root, and the gradients of all outputs. Roots share no row, so one backward pass does."""
        found = torch.autograd.grad(self._loss, [use.outputs for use in used])
        rows = [int(offsets[-1]) for offsets in batch.row_offsets]
        gradients = tuple(gradient[: rows[use.level]] for use, gradient in zip(used, found))
        squares = torch.zeros(batch.num_roots, dtype=torch.float64)
        together = torch.zeros_like(squares)
        layouts = [RowLayout(offsets) for offsets in batch.row_offsets]
        with torch.no_grad():
            for use, gradient in zip(used, gradients):
                use.inputs = _first_rows(use.inputs, len(gradient))
                bias = use.layer.bias is not None
                norms = layer_norms(use.inputs, gradient, layouts[use.level], bias, self.products, positions)
                squares += norms.squares
                together += norms.together
        return torch.maximum(squares, together / _MOST_CANCELED**2), gradients

    def _add_layer(self, use: RecordedLinear, gradient: Tensor, cuts: Sequence[int]) -> None:
        bias = None if use.layer.bias is None else self.views[id(use.layer.bias)]
        if not isinstance(use.inputs, InputRows):
            add_products(gradient, use.inputs, self.views[id(use.layer.weight)], cuts, bias)
            return
        use.inputs.shared.add(use.inputs.nodes, gradient)
        if bias is not None:
            bias += gradient.sum(0, dtype=torch.float64)


def _first_rows(inputs: Tensor | InputRows, count: int) -> Tensor | InputRows:
    if isinstance(inputs, Tensor):
        return inputs.detach()[:count]
    return InputRows(inputs.shared, inputs.nodes[:count])


def filled_up(batch: RootedBatch) -> RootedBatch:
    """The batch with rows at the end of every level that nobody reads, so that each level has whole blocks of rows.

    What is computed for a row would otherwise depend on whether it stands at the end of an array.
    """
    rows = [int(offsets[-1]) for offsets in batch.row_offsets]
    extra = [0] * len(rows)
    least = 0
    for level in reversed(range(len(rows))):  # a row needs one on the level before
        least = extra[level] = least + -(rows[level] + least) % EVEN_ROWS
    layers = []
    for level, messages in enumerate(batch.layers):
        own = torch.arange(rows[level], rows[level] + extra[level + 1])
        layers.append(
            Messages(
                rows[level] + extra[level],
                torch.cat((messages.own, own)),
                torch.cat((messages.offsets, messages.offsets[-1:].expand(extra[level + 1]))),
                messages.sources,
            )
        )
    nodes = torch.cat((batch.nodes, batch.nodes[:1].expand(extra[0])))
    return RootedBatch(nodes, batch.row_offsets, tuple(layers))


def _row_cuts(offsets: Tensor) -> Sequence[int]:
    """Where the rows of a level below the roots are cut into blocks: those of 32 roots, at most 256 rows.

    The first and last roots of a block follow from places alone, also where all happen to have one row: were blocks
    then larger, as they are on the last level, one root that gains a row would move the blocks of all others.
    """
    cuts = [0]
    for end in [*offsets[BLOCK_ROOTS:-1:BLOCK_ROOTS].tolist(), int(offsets[-1])]:
        while end - cuts[-1] > BLOCK_ROWS:
            cuts.append(cuts[-1] + BLOCK_ROWS)
        cuts.append(end)
    return cuts


def batch_rows(values: Tensor, batch: RootedBatch, level: int) -> Tensor:
    """One value per root, repeated for the root's rows on `level`, as a column."""
    counts = batch.row_offsets[level].diff()
    return torch.repeat_interleave(values, counts).unsqueeze(1)


def require_rooted(network: RootedNetwork) -> None:
    """Refuse networks that the closed form does not cover: known layers, weights in linear ones only, no hooks."""
    if type(network) is not RootedNetwork:
        raise UnprovenError(f"expected a RootedNetwork; got {type(network).__name__}, for which there is no proof")
    if network.own_encoder is not None or network.own_decoder is not None:
        raise UnprovenError("expected layers whose uses are recorded; got modules of the user, which run by themselves")
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
    network: RootedNetwork,
    subgraphs: RootedSubgraphs,
    features: Rows,
    labels: Tensor,
    *,
    max_grad_norm: float,
    grid: float = 0.0,
) -> RootedClippedGradient | FormedRootedGradient:
    """The closed form where it is known, and otherwise gradients formed outright: the same sum, slower."""
    try:
        require_rooted(network)
    except UnprovenError:
        return FormedRootedGradient(network, subgraphs, features, labels, max_grad_norm=max_grad_norm, grid=grid)
    return RootedClippedGradient(network, subgraphs, features, labels, max_grad_norm=max_grad_norm, grid=grid)
