"""Row-sparse feature matrices that stay sparse through the first layer.

One-hot and bag-of-words features are almost all zeros. `SparseRows` keeps only the non-zeros, hands out batches of
rows without a Python loop, and multiplies with a weight matrix in both directions: forward (`matmul`) and for the
gradient of that weight (`transpose_matmul`). The helpers at the end of the file take dense and sparse rows alike, so
that models and training loops need not know which kind they hold.

Rows made of several parts side by side, each kept in its own form.

A classifier on features and released sums reads a wide sparse part (features) next to narrow dense ones. Writing them
into one matrix would lose the sparse form; `JoinedRows` only keeps them together, and answers to the same calls as
the other kinds of rows (`rows`, `narrow`, `row_square_norms`, `to_dense`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.errors import InputError

# Below this many non-zeros, adding entry by entry beats the fixed cost of building a scipy matrix (measured).
_SMALL = 6_000
NARROW = 12
"""Products with fewer columns than this are computed transposed: faster, and the same for every row wherever it stands.

Kernels of linear algebra libraries treat rows of a narrow result differently, depending on their place.
"""


class SparseRows:
    """A matrix stored row by row: row `i` has columns `indices[indptr[i]:indptr[i+1]]`, each at most once.

    `values` is None when every stored entry is one (one-hot data); it is data, so no gradient flows to it. Rows may be
    empty. Entries never change after construction. Rows that are `reused` keep a transposed copy once it was needed.
    """

    __slots__ = ("_owners", "_transposed", "indices", "indptr", "reused", "shape", "values")

    def __init__(self, indptr: Tensor, indices: Tensor, values: Tensor | None, shape: tuple[int, int]) -> None:
        """Check the structure and keep it; indices are stored as int64. Values that are all one are dropped."""
        self.indptr = indptr.to(torch.int64).contiguous()
        self.indices = indices.to(torch.int64).contiguous()
        self.values = None if values is None else values.detach().contiguous()
        self.shape = (int(shape[0]), int(shape[1]))
        self._transposed: SparseRows | None = None
        self._owners: Tensor | None = None
        self.reused = False
        InputError.collect(self._problems())
        if self.values is not None and not self.values.is_floating_point():
            self.values = self.values.to(torch.get_default_dtype())
        if self.values is not None and bool((self.values == 1).all()):
            self.values = None

    @classmethod
    def _trusted(cls, indptr: Tensor, indices: Tensor, values: Tensor | None, shape: tuple[int, int]) -> SparseRows:
        """Build from parts that are known to be well formed, without reading them."""
        rows = cls.__new__(cls)
        rows.indptr, rows.indices, rows.values, rows.shape = indptr, indices, values, shape
        rows._transposed = rows._owners = None
        rows.reused = False
        return rows

    @classmethod
    def empty(cls, rows: int, columns: int) -> SparseRows:
        """Rows without any entry."""
        return cls(torch.zeros(rows + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int64), None, (rows, columns))

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> SparseRows:
        """From a 2-D torch tensor: sparse CSR, sparse COO (duplicates are added up) or dense."""
        if tensor.dim() != 2:
            raise InputError(f"expected a matrix; got {tensor.dim()} dimensions; reshape it to [rows, columns]")
        if tensor.layout is torch.sparse_csr:
            csr = tensor
        elif tensor.layout is torch.sparse_coo:
            csr = tensor.coalesce().to_sparse_csr()
        else:
            csr = tensor.to_sparse_csr()
        rows, columns = tensor.shape
        return cls(csr.crow_indices(), csr.col_indices(), csr.values(), (rows, columns))

    def _problems(self) -> list[str]:
        """Everything that is wrong with the structure, in words."""
        rows, columns = self.shape
        if self.indptr.numel() != rows + 1:
            return [f"expected indptr of length rows + 1 = {rows + 1}; got {self.indptr.numel()}; check the shape"]
        lengths = self.indptr.diff()
        if int(self.indptr[0]) != 0 or int(self.indptr[-1]) != self.indices.numel() or bool((lengths < 0).any()):
            return ["expected indptr rising from 0 to the number of entries; got another; rebuild the CSR matrix"]
        found = []
        if self.values is not None and self.values.shape != self.indices.shape:
            found.append(f"expected one value per entry; got {self.values.numel()}; pass None for all ones")
        if self.indices.numel() == 0:
            return found
        if int(self.indices.min()) < 0 or int(self.indices.max()) >= columns:
            found.append(f"expected column indices in [0, {columns}); got others; check the shape")
            return found
        keys = self._row_of_entry() * columns + self.indices
        if torch.unique(keys).numel() != keys.numel():
            found.append("expected each column at most once per row; got duplicates; coalesce the matrix first")
        return found

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"SparseRows(shape={self.shape}, nonzeros={self.indices.numel()})"

    def _row_of_entry(self) -> Tensor:
        """The row number of every stored entry, computed once."""
        if self._owners is None:
            self._owners = torch.repeat_interleave(torch.arange(self.shape[0]), self.indptr.diff())
        return self._owners

    def rows(self, index: Tensor) -> SparseRows:
        """The rows named by `index` (int64 positions, repeats allowed, or a boolean mask), in that order."""
        if index.dtype is torch.bool:
            index = index.nonzero().squeeze(1)
        starts = self.indptr.index_select(0, index)
        lengths = self.indptr.index_select(0, index + 1).sub_(starts)
        indptr = lengths.new_zeros(index.numel() + 1)
        torch.cumsum(lengths, 0, out=indptr[1:])
        shift = starts.sub_(indptr[:-1])
        total = int(indptr[-1])
        place = torch.repeat_interleave(shift, lengths, output_size=total).add_(torch.arange(total))
        values = None if self.values is None else self.values.index_select(0, place)
        return self._trusted(indptr, self.indices.index_select(0, place), values, (index.numel(), self.shape[1]))

    def narrow(self, start: int, length: int) -> SparseRows:
        """Rows `start` to `start + length`, sharing memory with this matrix."""
        indptr = self.indptr.narrow(0, start, length + 1)
        first, last = int(indptr[0]), int(indptr[-1])
        values = None if self.values is None else self.values[first:last]
        part = self._trusted(indptr - first, self.indices[first:last], values, (length, self.shape[1]))
        part._owners = self._row_of_entry()[first:last] - start
        return part

    def to_dense(self) -> Tensor:
        """The same matrix with its zeros written out."""
        values = torch.ones(self.indices.numel()) if self.values is None else self.values
        dense = torch.zeros(self.shape, dtype=values.dtype)
        dense[self._row_of_entry(), self.indices] = values
        return dense

    def row_square_norms(self) -> Tensor:
        """The squared L2 norm of every row."""
        lengths = self.indptr.diff()
        if self.values is None:
            return lengths.to(torch.get_default_dtype())
        return torch.zeros(self.shape[0], dtype=self.values.dtype).index_add_(
            0, self._row_of_entry(), self.values.square()
        )

    def matmul(self, weight_t: Tensor) -> Tensor:
        """This matrix times `weight_t` ([columns, out]); differentiable with respect to `weight_t`."""
        if torch.is_grad_enabled() and weight_t.requires_grad:
            product: Tensor = _SparseMatmul.apply(weight_t, self)
            return product
        return self._matmul(weight_t)

    def _matmul(self, weight_t: Tensor) -> Tensor:
        return F.embedding_bag(
            self.indices,
            weight_t.contiguous(),
            self.indptr,
            mode="sum",
            per_sample_weights=self._weights(weight_t.dtype),
            include_last_offset=True,
        )

    def _weights(self, dtype: torch.dtype) -> Tensor | None:
        return None if self.values is None else self.values.to(dtype)

    def transpose_matmul(self, grad: Tensor) -> Tensor:
        """The transposed matrix times `grad` ([rows, out]): the gradient of the weight in `matmul`."""
        if self.reused:
            self._transposed = self._transpose() if self._transposed is None else self._transposed
            return self._transposed._matmul(grad)
        values = self._weights(grad.dtype)
        if self.indices.numel() < _SMALL:
            entries = grad.index_select(0, self._row_of_entry())
            entries = entries if values is None else entries.mul_(values.unsqueeze(1))
            return grad.new_zeros(self.shape[1], grad.shape[1]).index_add_(0, self.indices, entries)
        data = np.ones(1, dtype=grad.numpy().dtype) if values is None else values.numpy()
        if values is None:
            data = np.broadcast_to(data, self.indices.shape).copy()
        columns_first = scipy.sparse.csc_array(
            (data, self.indices.numpy(), self.indptr.numpy()), shape=(self.shape[1], self.shape[0]), copy=False
        )
        return torch.from_numpy(columns_first @ grad.contiguous().numpy())

    def _transpose(self) -> SparseRows:
        columns, order = torch.sort(self.indices)
        indptr = torch.searchsorted(columns, torch.arange(self.shape[1] + 1))
        values = None if self.values is None else self.values.index_select(0, order)
        entries = self._row_of_entry().index_select(0, order)
        return self._trusted(indptr, entries, values, (self.shape[1], self.shape[0]))


class _SparseMatmul(torch.autograd.Function):
    """`SparseRows` times a dense weight, with the gradient of the weight computed without densifying."""

    @staticmethod
    def forward(ctx, weight_t: Tensor, rows: SparseRows) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.rows = rows
        return rows._matmul(weight_t)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return ctx.rows.transpose_matmul(grad), None


Rows = Tensor | SparseRows
AnyRows = TypeVar("AnyRows", bound="Tensor | SparseRows | JoinedRows")


def take_rows(x: Rows, index: Tensor) -> Rows:
    """The rows named by `index` (int64), dense or sparse."""
    return x.index_select(0, index) if isinstance(x, Tensor) else x.rows(index)


def narrow_rows(x: Rows, start: int, length: int) -> Rows:
    """Consecutive rows, sharing memory where possible."""
    return x.narrow(0, start, length) if isinstance(x, Tensor) else x.narrow(start, length)


def row_square_norms(x: Rows) -> Tensor:
    """Squared L2 norms over the last dimension, dense or sparse."""
    return x.square().sum(-1) if isinstance(x, Tensor) else x.row_square_norms()


def dense_rows(x: Rows) -> Tensor:
    """The rows as an ordinary tensor."""
    return x if isinstance(x, Tensor) else x.to_dense()


class JoinedRows:
    """Parts with the same number of rows. Module inputs: `module(joined)` reads `joined.parts`."""

    __slots__ = ("parts", "shape")

    def __init__(self, parts: Sequence[Rows]) -> None:
        """Keep the parts; they must agree in their number of rows."""
        if len({len(part) for part in parts}) != 1:
            raise InputError(f"expected parts with one number of rows; got {[len(part) for part in parts]}")
        self.parts = tuple(parts)
        self.shape = (len(parts[0]), sum(int(part.shape[1]) for part in parts))

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"JoinedRows(shape={self.shape}, parts={len(self.parts)})"

    def matmul(self, weight: Tensor) -> Tensor:
        """Refused: parts of several widths have no common weight."""
        raise InputError(
            "joined rows: expected a module that reads each of `rows.parts`; got a linear layer. Give every part a "
            "layer of its own, or use vault.stack for parts of one width"
        )

    def rows(self, index: Tensor) -> JoinedRows:
        """The rows named by `index` (positions or a boolean mask), in that order."""
        if index.dtype is torch.bool:
            index = index.nonzero().squeeze(1)
        return JoinedRows([take_rows(part, index) for part in self.parts])

    def narrow(self, start: int, length: int) -> JoinedRows:
        """Rows `start` to `start + length`."""
        return JoinedRows([narrow_rows(part, start, length) for part in self.parts])

    def row_square_norms(self) -> Tensor:
        """The squared L2 norm of every row over all parts."""
        return torch.stack([row_square_norms(part) for part in self.parts]).sum(0)

    def to_dense(self) -> Tensor:
        """All parts in one matrix."""
        return torch.cat([dense_rows(part) for part in self.parts], dim=1)


def part_square_norms(x: Rows | JoinedRows) -> Tensor:
    """Squared norms: `[n]`, or `[n, parts]` for joined rows."""
    if not isinstance(x, JoinedRows):
        return row_square_norms(x)
    return torch.stack([row_square_norms(part) for part in x.parts], dim=1)


def for_many_steps(x: AnyRows) -> AnyRows:
    """The same rows, of which sparse ones keep a transposed copy: they are used whole in many steps."""
    for part in getattr(x, "parts", (x,)):
        if isinstance(part, SparseRows):
            part.reused = True
    return x
