"""Squared norms of per-root gradients of one linear layer, without forming these gradients.

With inputs a_j and output gradients g_j over the rows j of a root, the gradient of the weight is sum_j g_j a_j^T and

    | sum_j g_j a_j^T |^2 = sum_{j,k} <a_j, a_k> <g_j, g_k>;      the bias adds 1 to every <a_j, a_k>.

For a few rows per root the products of rows are cheap; for a root with many rows (a hub) forming its gradient is
cheaper. Both work on blocks padded to the longest root of the chunk. Products of sparse *input* rows never change, so
they are computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from hushgraph.data.rows import SparseRows
from hushgraph.graph.rooted import RootedSubgraphs, ragged
from hushgraph.training.rooted_inputs import InputRows

# Single precision loses digits where large terms cancel; this share of the sum of absolute terms is added to be safe.
_SAFETY = 1e-6
_FORMED_NUMBERS = 2**24
_WASTE = 1.5
_KEPT_ROWS = 256
_KEPT_PRODUCTS = 2**26


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
        if self.longest == 1 and self.even:
            return values
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


def layer_square_norms(
    inputs: Tensor | InputRows,
    gradients: Tensor,
    layout: RowLayout,
    bias: bool,
    products: InputProducts | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """Squared norms of the gradients of one linear layer, one per root, never below the true ones.

    `products` and `positions` are needed for sparse inputs only: the kept products, and which roots these are.
    """
    row_squares = inputs.square().sum(1) if isinstance(inputs, Tensor) else inputs.row_square_norms()
    row_squares = row_squares.to(gradients.dtype).add_(1.0 if bias else 0.0)
    terms = row_squares.mul_(gradients.square().sum(1))
    if layout.longest == 1 and layout.even:
        return terms
    squares = layout.per_root(terms.sqrt_()).square_().mul_(_SAFETY)
    for part in layout.parts:
        a, g = (inputs, gradients) if part.rows is None else (inputs, gradients.index_select(0, part.rows))
        if isinstance(a, InputRows):
            assert products is not None
            assert positions is not None
            which = positions if part.roots is None else positions[part.roots]
            exact = products.square_norms(a, part.rows, g, part.layout, bias, which)
        else:
            exact = _dense(a if part.rows is None else a.index_select(0, part.rows), g, part.layout, bias)
        if part.roots is None:
            squares += exact.clamp_(min=0.0)
        else:
            squares.index_add_(0, part.roots, exact.clamp_(min=0.0))
    return squares


def _dense(inputs: Tensor, gradients: Tensor, layout: RowLayout, bias: bool) -> Tensor:
    """The cheaper of the two ways, by the number of multiplications."""
    columns, outputs = inputs.shape[1], gradients.shape[1]
    way = _by_products if layout.longest * (columns + outputs) <= columns * outputs else _by_forming
    return way(layout.padded(inputs), layout.padded(gradients), bias)


def _by_products(inputs: Tensor, gradients: Tensor, bias: bool) -> Tensor:
    pairs = torch.bmm(inputs, inputs.transpose(1, 2))
    if bias:
        pairs += 1.0
    return pairs.mul_(torch.bmm(gradients, gradients.transpose(1, 2))).sum((1, 2))


def _by_forming(inputs: Tensor, gradients: Tensor, bias: bool) -> Tensor:
    """Form the gradients of a few roots at a time."""
    size = max(1, _FORMED_NUMBERS // (inputs.shape[2] * gradients.shape[2]))
    found = [
        torch.bmm(g.transpose(1, 2), a).square_().sum((1, 2)) for a, g in zip(inputs.split(size), gradients.split(size))
    ]
    total = torch.cat(found)
    return total.add_(gradients.sum(1).square_().sum(1)) if bias else total


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
    ) -> Tensor:
        """As `layer_square_norms`, without its margin; `rows` picks the rows of `inputs` that belong to `layout`."""
        kept = self.sizes[positions] > 0
        if bool(kept.all()):
            return self._by_products(gradients, layout, bias, positions)
        return _by_forming_sparse(inputs.picked(rows), gradients, layout, bias)

    def _by_products(self, gradients: Tensor, layout: RowLayout, bias: bool, positions: Tensor) -> Tensor:
        counts, local = layout.counts.view(-1, 1, 1), torch.arange(layout.longest)
        places = self.starts[positions].view(-1, 1, 1) + counts * local.view(1, -1, 1) + local
        pairs = self.values[places.clamp_(max=self.values.numel() - 1)].to(gradients.dtype)
        if bias:
            pairs += 1.0
        # Places beyond a root's own products hold those of another: zero, so that not even infinity gets across.
        inside = local < counts.view(-1, 1)
        pairs.masked_fill_(~(inside.unsqueeze(1) & inside.unsqueeze(2)), 0.0)
        padded = layout.padded(gradients)
        return pairs.mul_(torch.bmm(padded, padded.transpose(1, 2))).sum((1, 2))


def _root_products(subgraphs: RootedSubgraphs, features: SparseRows, positions: Tensor) -> Tensor:
    """<a_j, a_k> for all pairs of rows of each root: one sparse product in which roots share no column."""
    counts = subgraphs.num_rows[positions]
    rows = features.rows(subgraphs.nodes[ragged(subgraphs.row_starts[positions], counts)])
    root = np.repeat(np.arange(len(counts)), counts.numpy())
    column = np.repeat(root * features.shape[1], rows.indptr.diff().numpy()) + rows.indices.numpy()
    data = np.ones(len(column), dtype=np.float32) if rows.values is None else rows.values.numpy()
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
        total = inputs.narrow(start, count).transpose_matmul(gradient).square_().sum()
        squares.append(total + gradient.sum(0).square().sum() if bias else total)
    return torch.stack(squares)
