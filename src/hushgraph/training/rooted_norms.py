"""Squared norms of per-root gradients of one linear layer, without forming these gradients.

With inputs a_j and output gradients g_j over the rows j of a root, the gradient of the weight is sum_j g_j a_j^T and

    | sum_j g_j a_j^T |^2 = sum_{j,k} <a_j, a_k> <g_j, g_k>;      the bias adds 1 to every <a_j, a_k>.

For a few rows per root the products of rows are cheap; for a root with many rows (a hub) forming its gradient is
cheaper. Both work on blocks of roots of similar size, padded. Products of sparse *input* rows never change, so
they are computed once.

Large terms may cancel, and rounding then counts: with A = sum_j |a_j| |g_j|, products of rows are off by at most
(width + 4) 2^-24 A^2 together, and a gradient formed from T rows by T 2^-24 A. That much is added, twice to be safe.

Rooted subgraphs overlap, so a node's features occur in many of them, and the product of sparse features with the first
weight is the same in each (`SharedInputs`): it is computed once for every node of a batch and handed out row by row. In
the other direction clipped output gradients are added up per node, and one product with the transposed features ends
the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.rooted import RootedSubgraphs, ragged
from hushgraph.graph.rows import SparseRows, for_many_steps
from hushgraph.nn.layers import Linear, linear_input
from hushgraph.training.even_products import multiply_each
from hushgraph.training.rounding import SINGLE, UNDERFLOW

_FORMED_NUMBERS = 2**24
_MOST_ROWS = 256
_KEPT_PRODUCTS = 2**26
# With this share of a graph's nodes in a batch, taking all of them is cheaper than picking rows (measured).
_TAKE_ALL = 0.4


class RowLayout:
    """How the rows of one level are split into roots, and the roots in groups of similar size.

    What is computed for a root depends on its own size alone: all roots of a group are padded to the same number of
    rows (`padded_length`).
    """

    def __init__(self, offsets: Tensor) -> None:
        self.offsets = offsets
        self.counts = offsets.diff()
        self.num_roots = self.counts.numel()
        self.single = self.num_roots == int(offsets[-1]) and bool((self.counts == 1).all())

    @cached_property
    def _root_of_row(self) -> Tensor:
        return torch.repeat_interleave(torch.arange(self.num_roots), self.counts)

    def per_root(self, values: Tensor) -> Tensor:
        """Sums of one value per row over each root."""
        # Not a running total: what is infinite in one root must not reach another.
        return values.new_zeros(self.num_roots).index_add_(0, self._root_of_row, values)

    @cached_property
    def groups(self) -> list[RootGroup]:
        """The roots of more than one row, in many groups: little is padded, where that counts."""
        return self._groups(4)

    @cached_property
    def few_groups(self) -> list[RootGroup]:
        """The roots of more than one row, in groups of up to 2, 4, 8, ... rows."""
        return self._groups(1)

    def _groups(self, per_doubling: int) -> list[RootGroup]:
        lengths = padded_length(self.counts, per_doubling)
        found = []
        for length in lengths[self.counts > 1].unique().tolist():
            roots = (lengths == length).nonzero().squeeze(1)
            found.append(RootGroup(roots, self.offsets[roots], self.counts[roots], length))
        return found


def padded_length(counts: Tensor, per_doubling: int) -> Tensor:
    """The next number of rows of which there are so many between n and 2n: 8, 10, 12, 14, 16, 20, ... for four."""
    doublings = torch.from_numpy(np.frexp((counts - 1).clamp_(min=0).numpy())[1]).long()
    step = torch.pow(2, (doublings - 1).clamp_(min=0)).div_(per_doubling, rounding_mode="floor").clamp_(min=1)
    return (counts + step - 1) // step * step


@dataclass(frozen=True)
class RootGroup:
    """Some roots: where the rows of each begin, how many there are, and how many they are padded to."""

    roots: Tensor
    starts: Tensor
    counts: Tensor
    length: int

    @cached_property
    def rows(self) -> Tensor:
        """The rows of all these roots."""
        return ragged(self.starts, self.counts)

    @cached_property
    def _places(self) -> Tensor:
        return ragged(torch.arange(self.counts.numel()) * self.length, self.counts)

    def padded(self, rows: Tensor) -> Tensor:
        """The rows of these roots among all `rows`: `[roots, length, columns]`, zeros where a root has fewer."""
        block = rows.new_zeros(self.counts.numel() * self.length, rows.shape[1])
        block.index_copy_(0, self._places, rows.index_select(0, self.rows))
        return block.view(self.counts.numel(), self.length, -1)

    def some(self, index: Tensor) -> RootGroup:
        """The roots at these places of the group."""
        return RootGroup(self.roots[index], self.starts[index], self.counts[index], self.length)


@dataclass(frozen=True)
class RootNorms:
    """Of one layer and every root: the squared gradient norm and the square of A, float64.

    The norm is not below the true one, but for the rounding of sums of positive terms (`norm_slack`). A is the length
    that the root's rows would have if nothing canceled.
    """

    squares: Tensor
    together: Tensor


def layer_norms(
    inputs: Tensor | InputRows,
    gradients: Tensor,
    layout: RowLayout,
    bias: bool,
    products: InputProducts | None = None,
    positions: Tensor | None = None,
) -> RootNorms:
    """Norms of the gradients of one linear layer, one per root.

    `products` and `positions` are needed for sparse inputs only: the kept products, and which roots these are.
    """
    row_squares = inputs.square().sum(1) if isinstance(inputs, Tensor) else inputs.row_square_norms()
    row_squares = row_squares.to(gradients.dtype).add_(1.0 if bias else UNDERFLOW)
    terms = row_squares.mul_(gradients.square().sum(1).add_(UNDERFLOW)).double()
    if layout.single:
        return RootNorms(terms, terms)
    together = layout.per_root(terms.sqrt_()).square_()
    squares = together.clone()  # right for a root of one row
    if isinstance(inputs, InputRows):
        assert products is not None
        assert positions is not None
        for group in layout.few_groups:
            products.write_square_norms(squares, inputs, gradients, group, bias, positions, together)
    else:
        for group in layout.groups:
            squares[group.roots] = _dense(inputs, gradients, group, bias, together[group.roots])
    return RootNorms(squares, together)


def _dense(inputs: Tensor, gradients: Tensor, group: RootGroup, bias: bool, together: Tensor) -> Tensor:
    """The cheaper of the two ways, by the number of multiplications."""
    columns, outputs = inputs.shape[1], gradients.shape[1]
    a, g = group.padded(inputs), group.padded(gradients)
    if group.length * (columns + outputs) <= columns * outputs:
        return _by_products(a, g, bias) + _margin_of_products(columns + outputs) * together
    return _with_margin_of_forming(_by_forming(a, g, bias), group, together)


def _margin_of_products(width: int) -> float:
    return 2.0 * (width + 4) * SINGLE


def _with_margin_of_forming(squares: Tensor, group: RootGroup, together: Tensor) -> Tensor:
    """(x + y)^2 <= (1 + 2^-12) x^2 + (1 + 2^12) y^2, where y = T 2^-24 A."""
    return (1.0 + 2.0**-12) * squares + 2.0**13 * ((group.length + 4) * SINGLE) ** 2 * together


def _by_products(inputs: Tensor, gradients: Tensor, bias: bool) -> Tensor:
    pairs = multiply_each(inputs, inputs.transpose(1, 2))
    if bias:
        pairs += 1.0
    return _sum_of_pairs(pairs, gradients)


def _sum_of_pairs(pairs: Tensor, gradients: Tensor) -> Tensor:
    pairs.mul_(multiply_each(gradients, gradients.transpose(1, 2)))
    return pairs.sum((1, 2), dtype=torch.float64).clamp_(min=0.0)


def _by_forming(inputs: Tensor, gradients: Tensor, bias: bool) -> Tensor:
    """Form the gradients of a few roots at a time."""
    size = max(1, _FORMED_NUMBERS // (inputs.shape[2] * gradients.shape[2]))
    found = [
        multiply_each(g.transpose(1, 2), a).square_().sum((1, 2), dtype=torch.float64)
        for a, g in zip(inputs.split(size), gradients.split(size))
    ]
    total = torch.cat(found)
    return total.add_(gradients.sum(1).square_().sum(1)) if bias else total


class SharedInputs:
    """The sparse `features` of a graph, one batch after the other: `begin`, then `rows` per chunk, then `finish`."""

    def __init__(self, features: SparseRows) -> None:
        if features.values is not None and not bool(torch.isfinite(features.values).all()):
            raise InputError("expected finite features; got others; clean them first")
        self.features = features
        self.square_norms = features.row_square_norms()
        self._place = torch.zeros(len(features), dtype=torch.int64)
        self._taken: SparseRows = features
        self._product: Tensor | None = None
        self._gradient: Tensor | None = None

    def begin(self, nodes: Tensor) -> None:
        """Prepare for a batch that meets these nodes (repeats allowed)."""
        used = torch.zeros(len(self.features), dtype=torch.bool).index_fill_(0, nodes, True)
        chosen = used.nonzero().squeeze(1)
        if chosen.numel() >= _TAKE_ALL * len(self.features):
            self._place, self._taken = torch.arange(len(self.features)), for_many_steps(self.features)
        else:
            self._place[chosen] = torch.arange(chosen.numel())
            self._taken = self.features.rows(chosen)
        self._product = self._gradient = None

    def rows(self, nodes: Tensor) -> InputRows:
        """The rows of these nodes, not written out."""
        return InputRows(self, nodes)

    def product(self, layer: Linear, nodes: Tensor) -> Tensor:
        """`layer` on the rows of these nodes. The weights must not change during a batch."""
        if self._product is None:
            bias = None if layer.bias is None else layer.bias.detach()
            with torch.no_grad():
                self._product = linear_input(self._taken, layer.weight.detach(), bias)
        return self._product.index_select(0, self._place[nodes])

    def add(self, nodes: Tensor, gradient: Tensor) -> None:
        """Add output gradients of these nodes' rows, in double precision."""
        if self._gradient is None:
            self._gradient = torch.zeros(len(self._taken), gradient.shape[1], dtype=torch.float64)
        self._gradient.index_add_(0, self._place[nodes], gradient.double())

    def finish(self, weight: Tensor) -> None:
        """Add the gradient of the first weight, `[out, in]` in double precision, over all since `begin`."""
        if self._gradient is not None:
            weight += self._taken.transpose_matmul(self._gradient).t()
        self._product = self._gradient = None


class InputRows:
    """Some rows of `SharedInputs`."""

    def __init__(self, shared: SharedInputs, nodes: Tensor) -> None:
        self.shared, self.nodes = shared, nodes

    def row_square_norms(self) -> Tensor:
        """The squared L2 norm of every row."""
        return self.shared.square_norms.index_select(0, self.nodes)

    def narrow(self, start: int, count: int) -> SparseRows:
        """So many consecutive rows, written out."""
        return self.shared.features.rows(self.nodes[start : start + count])


class InputProducts:
    """Products of the sparse input rows of every root with few rows, kept one root after the other as far as they fit.

    The others are computed when they are needed, in the same way.
    """

    def __init__(self, subgraphs: RootedSubgraphs, features: SparseRows) -> None:
        self.subgraphs, self.features = subgraphs, features
        rows = subgraphs.num_rows
        sizes = torch.where(rows <= _MOST_ROWS, rows.square(), 0)
        self.sizes = torch.where(torch.cumsum(sizes, 0) <= _KEPT_PRODUCTS, sizes, 0)
        self.starts = torch.cumsum(self.sizes, 0) - self.sizes
        kept = self.sizes.nonzero().squeeze(1)
        parts = [_root_products(subgraphs, features, chunk) for chunk in kept.split(500)]
        self.values = torch.cat(parts) if parts else torch.zeros(1)

    def write_square_norms(
        self,
        squares: Tensor,
        inputs: InputRows,
        gradients: Tensor,
        group: RootGroup,
        bias: bool,
        positions: Tensor,
        together: Tensor,
    ) -> None:
        """Write squared norms, never below the true ones, of the roots of `group` to their places in `squares`."""
        if group.length > _MOST_ROWS:
            formed = _by_forming_sparse(inputs, gradients, group, bias)
            squares[group.roots] = _with_margin_of_forming(formed, group, together[group.roots])
            return
        margin = _margin_of_products(gradients.shape[1])
        is_kept = self.sizes[positions[group.roots]] > 0
        if bool(is_kept.all()):
            parts = [(group, True)]
        else:
            parts = [(group.some(is_kept), True), (group.some(~is_kept), False)]
        for part, kept in parts:
            if part.counts.numel():
                exact = _sum_of_pairs(self._pairs(part, bias, positions, kept), part.padded(gradients))
                squares[part.roots] = exact + margin * together[part.roots]

    def _pairs(self, group: RootGroup, bias: bool, positions: Tensor, kept: bool) -> Tensor:
        """<a_j, a_k> of all pairs of rows of each root, in single precision, zeros where a root has fewer rows."""
        which, sizes = positions[group.roots], group.counts.square()
        values = self.values if kept else _root_products(self.subgraphs, self.features, which)
        starts = self.starts[which] if kept else torch.cumsum(sizes, 0) - sizes
        counts, local = group.counts.view(-1, 1, 1), torch.arange(group.length)
        places = starts.view(-1, 1, 1) + counts * local.view(1, -1, 1) + local
        pairs = values[places.clamp_(max=values.numel() - 1)]
        if bias:
            pairs += 1.0
        # Places beyond a root's own products hold those of another: zero, so that not even infinity gets across.
        inside = local < counts.view(-1, 1)
        return pairs.masked_fill_(~(inside.unsqueeze(1) & inside.unsqueeze(2)), 0.0)


def _root_products(subgraphs: RootedSubgraphs, features: SparseRows, positions: Tensor) -> Tensor:
    """<a_j, a_k> for all pairs of rows of each root: one sparse product in which roots share no column."""
    counts = subgraphs.num_rows[positions]
    rows = features.rows(subgraphs.nodes[ragged(subgraphs.row_starts[positions], counts)])
    root = np.repeat(np.arange(len(counts)), counts.numpy())
    column = np.repeat(root * features.shape[1], rows.indptr.diff().numpy()) + rows.indices.numpy()
    data = np.ones(len(column)) if rows.values is None else rows.values.double().numpy()
    shape = (len(root), len(counts) * features.shape[1])
    matrix = scipy.sparse.csr_array((data, column, rows.indptr.numpy()), shape=shape)
    product = (matrix @ matrix.T).tocoo()
    first = np.cumsum(counts.numpy()) - counts.numpy()
    squares = counts.numpy() ** 2
    starts = np.cumsum(squares) - squares
    out = np.zeros(int(squares.sum()), dtype=np.float32)
    of = root[product.row]
    out[starts[of] + (product.row - first[of]) * counts.numpy()[of] + (product.col - first[of])] = product.data
    return torch.from_numpy(out)


def _by_forming_sparse(inputs: InputRows, gradients: Tensor, group: RootGroup, bias: bool) -> Tensor:
    """For hubs, of which there are few: one sparse product per root."""
    squares = []
    for start, count in zip(group.starts.tolist(), group.counts.tolist()):
        rows, gradient = inputs.narrow(start, count), gradients[start : start + count]
        total = rows.transpose_matmul(gradient).square_().sum(dtype=torch.float64)
        squares.append(total + gradient.sum(0).square().sum() if bias else total)
    return torch.stack(squares)
