"""Matrix products in which it does not matter to the last bit how many rows, or how many products, there are.

Rooted subgraphs have different numbers of rows, so a batch of them has no fixed shape (docs/proofs/gradient.md). Rows
are multiplied with a weight in blocks of one shape, and where many small products are computed at once, their number
must not matter. Both are checked once per shape; what fails is computed one by one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from hushgraph.graph.rows import NARROW
from hushgraph.training.alike import TRIALS

BLOCK_ROWS = 256
"""Rows that are multiplied with a weight at a time."""

_COUNTS = (1, 2, 64)
_MOST_NUMBERS = 2**20


def linear_in_blocks(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x @ weight.T + bias` for whole blocks of rows; only `x` has a gradient."""
    return cast(Tensor, _LinearInBlocks.apply(x, weight.detach(), None if bias is None else bias.detach()))


class _LinearInBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.weight = weight
        product = multiply_blocks(x, weight.t())
        return product if bias is None else product.add_(bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return multiply_blocks(grads[0].contiguous(), ctx.weight), None, None


def multiply_blocks(rows: Tensor, matrix: Tensor) -> Tensor:
    """`rows @ matrix`, a block of rows after the other; the last one may not be short."""
    block = BLOCK_ROWS if _treats_places_alike(*matrix.shape, matrix.is_contiguous(), rows.dtype) else 1
    out = rows.new_empty(len(rows), matrix.shape[1])
    for start in range(0, len(rows), block):
        _multiply(rows[start : start + block], matrix, out[start : start + block])
    return out


def _multiply(rows: Tensor, matrix: Tensor, out: Tensor) -> None:
    if matrix.shape[1] < NARROW:
        out.copy_(torch.mm(matrix.t(), rows.t()).t())
    else:
        torch.mm(rows, matrix, out=out)


@lru_cache(maxsize=256)
def _treats_places_alike(columns: int, outputs: int, contiguous: bool, dtype: torch.dtype) -> bool:
    """Whether equal rows of a block get equal products, wherever they stand."""
    for trial in range(TRIALS):
        generator = torch.Generator().manual_seed(trial)
        row = torch.randn(1, columns, generator=generator, dtype=dtype)
        matrix = torch.randn(outputs, columns, generator=generator, dtype=dtype).t()
        out = row.new_empty(BLOCK_ROWS, outputs)
        _multiply(row.repeat(BLOCK_ROWS, 1), matrix.contiguous() if contiguous else matrix, out)
        if not bool((out == out[:1]).all()):
            return False
    return True


def multiply_each(left: Tensor, right: Tensor) -> Tensor:
    """`torch.bmm`, one pair after the other where it matters how many there are."""
    turned = (left.is_contiguous(), right.is_contiguous())
    if _treats_numbers_alike(left.shape[1], left.shape[2], right.shape[2], turned, left.dtype):
        return torch.bmm(left, right)
    return torch.cat([torch.bmm(a, b) for a, b in zip(left.split(1), right.split(1))])


@lru_cache(maxsize=2048)
def _treats_numbers_alike(rows: int, inner: int, columns: int, turned: tuple[bool, bool], dtype: torch.dtype) -> bool:
    """Whether equal products come out equal, however many there are (tried for 1, 2 and 64)."""
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(1, rows, inner, generator=generator, dtype=dtype)
    right = torch.randn(1, inner, columns, generator=generator, dtype=dtype)
    alone, found = None, True
    for count in _COUNTS:
        count = max(1, min(count, _MOST_NUMBERS // max(1, inner * max(rows, columns))))
        a, b = left.repeat(count, 1, 1), right.repeat(count, 1, 1)
        product = torch.bmm(*[p if flat else p.mT.contiguous().mT for p, flat in zip((a, b), turned)])
        alone = product if alone is None else alone
        found = found and bool((product == alone[:1]).all())
    return found
