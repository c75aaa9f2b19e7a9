"""Squared norms of per-root gradients of one linear layer, without forming these gradients.

With inputs a_j and output gradients g_j over the rows j of a root, the gradient of the weight is sum_j g_j a_j^T and

    | sum_j g_j a_j^T |^2 = sum_{j,k} <a_j, a_k> <g_j, g_k>;      the bias adds 1 to every <a_j, a_k>.

For a few rows per root the products of rows are cheap; for a root with many rows (a hub) forming its gradient is
cheaper. Both work on blocks padded to the longest root of the chunk. Products of sparse *input* rows never change, so
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

from hushgraph.data.rows import SparseRows, linear_input
from hushgraph.errors import InputError
from hushgraph.graph.rooted import RootedSubgraphs, ragged
from hushgraph.nn.layers import Linear
from hushgraph.training.rounding import SINGLE, UNDERFLOW

_FORMED_NUMBERS = 2**24
_WASTE = 1.5
_KEPT_ROWS = 256
_KEPT_PRODUCTS = 2**26
# With this share of a graph's nodes in a batch, taking all of them is cheaper than picking rows (measured).
_TAKE_ALL = 0.4


class RowLayout:
    """How the rows of one level are split into roots, and the same rows padded to a block."""

    def __init__(self, offsets: Tensor) -> None:
        self.offsets = offsets
        self.counts = offsets.diff()
        self.num_roots = self.counts.numel()
        self.longest = int(self.counts.max()) if self.num_roots else 0
        self.even = bool((self.counts == self.longest).all())

    @cached_property
    def _root_of_row(self) -> Tensor:
        return torch.repeat_interleave(torch.arange(self.num_roots), self.counts)

    @cached_property
    def _places(self) -> Tensor:
        return ragged(torch.arange(self.num_roots) * self.longest, self.counts)

    def padded(self, rows: Tensor) -> Tensor:
        """`[roots, longest, columns]`, zeros where a root has fewer rows."""
        if self.even:
            return rows.view(self.num_roots, self.longest, -1)
        block = rows.new_zeros(self.num_roots * self.longest, rows.shape[1])
        block.index_copy_(0, self._places, rows)
        return block.view(self.num_roots, self.longest, -1)

    def per_root(self, values: Tensor) -> Tensor:
        """Sums of one value per row over each root."""
        # Not a running total: what is infinite in one root must not reach another.
        return values.new_zeros(self.num_roots).index_add_(0, self._root_of_row, values)

    @cached_property
    def parts(self) -> list[Part]:
        """The roots in groups of similar size, so that little is padded: up to 2, 4, 8, ... rows."""
        if self.num_roots * self.longest <= _WASTE * int(self.offsets[-1]):
            return [Part(None, None, self)]
        size = self.counts.to(torch.float64).log2().ceil_().clamp_(min=1.0)
        found = []
        for value in size.unique():
            roots = (size == value).nonzero().squeeze(1)
            counts = self.counts[roots]
            offsets = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
            found.append(Part(roots, ragged(self.offsets[roots], counts), RowLayout(offsets)))
        return found


@dataclass(frozen=True)
class Part:
    """Some roots of a layout with their rows (None: all of them), and how these rows are split."""

    roots: Tensor | None
    rows: Tensor | None
    layout: RowLayout


@dataclass(frozen=True)
class RootNorms:
    """Of one layer and every root: the squared gradient norm (never below the true one), and the square of A, float64.

    A is the length that the root's rows would have if nothing canceled.
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
    if layout.longest == 1 and layout.even:
        return RootNorms(terms, terms)
    together = layout.per_root(terms.sqrt_()).square_()
    squares = torch.zeros_like(together)
    for part in layout.parts:
        g = gradients if part.rows is None else gradients.index_select(0, part.rows)
        together_here = together if part.roots is None else together[part.roots]
        if isinstance(inputs, InputRows):
            assert products is not None
            assert positions is not None
            which = positions if part.roots is None else positions[part.roots]
            found = products.square_norms(inputs, part.rows, g, part.layout, bias, which, together_here)
        else:
            a = inputs if part.rows is None else inputs.index_select(0, part.rows)
            found = _dense(a, g, part.layout, bias, together_here)
        if part.roots is None:
            squares = found
        else:
            squares[part.roots] = found
    return RootNorms(squares, together)


def _dense(inputs: Tensor, gradients: Tensor, layout: RowLayout, bias: bool, together: Tensor) -> Tensor:
    """The cheaper of the two ways, by the number of multiplications."""
    columns, outputs = inputs.shape[1], gradients.shape[1]
    a, g = layout.padded(inputs), layout.padded(gradients)
    if layout.longest * (columns + outputs) <= columns * outputs:
        return _by_products(a, g, bias) + _margin_of_products(columns + outputs) * together
    return _with_margin_of_forming(_by_forming(a, g, bias), layout, together)


def _margin_of_products(width: int) -> float:
    return 2.0 * (width + 4) * SINGLE


def _with_margin_of_forming(squares: Tensor, layout: RowLayout, together: Tensor) -> Tensor:
    """(x + y)^2 <= (1 + 2^-12) x^2 + (1 + 2^12) y^2, where y = T 2^-24 A."""
    return (1.0 + 2.0**-12) * squares + 2.0**13 * ((layout.longest + 4) * SINGLE) ** 2 * together


def _by_products(inputs: Tensor, gradients: Tensor, bias: bool) -> Tensor:
    pairs = torch.bmm(inputs, inputs.transpose(1, 2))
    if bias:
        pairs += 1.0
    return _sum_of_pairs(pairs, gradients)


def _sum_of_pairs(pairs: Tensor, gradients: Tensor) -> Tensor:
    pairs.mul_(torch.bmm(gradients, gradients.transpose(1, 2)))
    return pairs.sum((1, 2), dtype=torch.float64).clamp_(min=0.0)


def _by_forming(inputs: Tensor, gradients: Tensor, bias: bool) -> Tensor:
    """Form the gradients of a few roots at a time."""
    size = max(1, _FORMED_NUMBERS // (inputs.shape[2] * gradients.shape[2]))
    found = [
        torch.bmm(g.transpose(1, 2), a).square_().sum((1, 2), dtype=torch.float64)
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
            self._place, self._taken = torch.arange(len(self.features)), self.features.keep_transposed()
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

    def picked(self, index: Tensor | None) -> SparseRows:
        """The rows at these positions (None: all), written out."""
        return self.shared.features.rows(self.nodes if index is None else self.nodes[index])


class InputProducts:
    """Products of the sparse input rows of every root with few rows, kept one root after the other."""

    def __init__(self, subgraphs: RootedSubgraphs, features: SparseRows) -> None:
        rows = subgraphs.num_rows
        sizes = torch.where(rows <= _KEPT_ROWS, rows.square(), 0)
        fits = torch.cumsum(sizes, 0) <= _KEPT_PRODUCTS
        self.sizes = torch.where(fits, sizes, 0)
        self.starts = torch.cumsum(self.sizes, 0) - self.sizes
        kept = self.sizes.nonzero().squeeze(1)
        parts = [_root_products(subgraphs, features, chunk) for chunk in kept.split(500)]
        self.values = torch.cat(parts) if parts else torch.zeros(1)

    def square_norms(
        self,
        inputs: InputRows,
        rows: Tensor | None,
        gradients: Tensor,
        layout: RowLayout,
        bias: bool,
        positions: Tensor,
        together: Tensor,
    ) -> Tensor:
        """Squared norms, never below the true ones; `rows` picks the rows of `inputs` that belong to `layout`."""
        kept = self.sizes[positions] > 0
        if bool(kept.all()):
            exact = self._by_products(gradients, layout, bias, positions)
            return exact + _margin_of_products(gradients.shape[1]) * together
        formed = _by_forming_sparse(inputs.picked(rows), gradients, layout, bias)
        return _with_margin_of_forming(formed, layout, together)

    def _by_products(self, gradients: Tensor, layout: RowLayout, bias: bool, positions: Tensor) -> Tensor:
        counts, local = layout.counts.view(-1, 1, 1), torch.arange(layout.longest)
        places = self.starts[positions].view(-1, 1, 1) + counts * local.view(1, -1, 1) + local
        pairs = self.values[places.clamp_(max=self.values.numel() - 1)].to(gradients.dtype)
        if bias:
            pairs += 1.0
        # Places beyond a root's own products hold those of another: zero, so that not even infinity gets across.
        inside = local < counts.view(-1, 1)
        pairs.masked_fill_(~(inside.unsqueeze(1) & inside.unsqueeze(2)), 0.0)
        return _sum_of_pairs(pairs, layout.padded(gradients))


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


def _by_forming_sparse(inputs: SparseRows, gradients: Tensor, layout: RowLayout, bias: bool) -> Tensor:
    """For hubs, of which there are few: one sparse product per root."""
    squares = []
    for start, count in zip(layout.offsets[:-1].tolist(), layout.counts.tolist()):
        gradient = gradients[start : start + count]
        total = inputs.narrow(start, count).transpose_matmul(gradient).square_().sum(dtype=torch.float64)
        squares.append(total + gradient.sum(0).square().sum() if bias else total)
    return torch.stack(squares)
