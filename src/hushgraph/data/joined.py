"""Rows made of several parts side by side, each kept in its own form.

A classifier on features and released sums reads a wide sparse part (features) next to narrow dense ones. Writing them
into one matrix would lose the sparse form; `JoinedRows` only keeps them together, and answers to the same calls as
the other kinds of rows (`rows`, `narrow`, `row_square_norms`, `to_dense`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hushgraph.data.rows import Rows, dense_rows, narrow_rows, row_square_norms, take_rows
from hushgraph.errors import InputError


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
