"""What floating point may add to a clipped sum, and sums that keep it small. Proof: docs/proofs/gradient.md.

An example is clipped to a little less than the declared bound, so that the bound holds for the numbers that the machine
adds: with the error of the computed norm, the rounding of the sum and the rounding to the grid of the noise included.

Products of rows are added up in single precision within blocks of 128 rows (32 where batches are small), and the blocks
in double precision. One example touches its own block and, because batches are in random order, one more: what rounding
adds is bounded by two blocks, however many rows there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError

SINGLE, DOUBLE = 2.0**-24, 2.0**-53
"""The largest relative error of one rounded operation."""

LARGE_BLOCK, SMALL_BLOCK = 128, 32
"""Rows that are added up in single precision, where batches are large and where they are small (measured).

Half as many in layers where an example has several rows. The block may not depend on the rows at hand: all sums would
be rounded differently at once.
"""

VECTOR_ROWS = 32
"""Vector instructions treat the end of an array differently: arrays are filled up to a multiple of so many rows."""

PIECE_ROWS = 2**13
"""Rows of a batch that are processed together, at most."""

MOST_ROWS, MOST_PIECES = 2**24, 2**13
"""Rows and pieces of one batch, at most: what rounding in double precision may add is bounded for so many."""

UNDERFLOW = 2.0**-100
"""More than a sum of squares can lack because some of them are too small for single precision."""

Memory = Callable[..., Tensor | None]

_LEAST_BOUND, _LARGEST_BOUND = 2.0**-40, 2.0**40
# For results of more numbers than this, one block at a time is faster (measured).
_LARGE_OUTPUT = 2**15


def norm_slack(width: int) -> float:
    """How much longer, relatively, an example can be than its norm in single precision says.

    `width` is the number of squares that are added up, over the widest layer's inputs and outputs.
    """
    return (width + 32) * SINGLE


def block_slack(rows: int, lengths: int) -> float:
    """What the rounding of sums may add to the change that one example makes, relative to the clip norm.

    Both blocks that the example touches are rounded differently, each by at most `rows` roundings of what it holds,
    which is `lengths` times the clip norm at most. An eighth is for layers with other blocks, of half that error.
    """
    return 4.0 * rows * lengths * SINGLE * 1.125


def double_slack(depth: int = PIECE_ROWS + MOST_PIECES, examples: int = MOST_ROWS) -> float:
    """The same for sums in double precision: at most `depth` additions on the way of any one term."""
    return 2.0 * depth * examples * DOUBLE


def clip_norm(max_grad_norm: float, slack: float, grid: float, num_parameters: int) -> float:
    """The norm to clip to, so that one example changes the released sum by at most `max_grad_norm`.

    `slack` is relative; rounding every entry to a multiple of `grid` adds at most grid * sqrt(entries).
    """
    if not _LEAST_BOUND <= max_grad_norm <= _LARGEST_BOUND:
        raise InputError(f"expected max_grad_norm between 2^-40 and 2^40; got {max_grad_norm}; 1.0 is usual")
    left = (max_grad_norm - grid * math.sqrt(num_parameters)) / (1.0 + slack)
    if left < max_grad_norm / 2.0:
        raise InputError(
            f"expected rounding far below max_grad_norm {max_grad_norm}; got up to {max_grad_norm - left:.3g} over"
            f" {num_parameters} parameters; use less noise or a smaller network"
        )
    return left


def rows_together(expected: float, block: int) -> int:
    """How many rows are processed together, always: most batches of so many expected rows fit into whole pieces."""
    usual = expected + 2.0 * math.sqrt(expected)
    pieces = math.ceil(usual / PIECE_ROWS)
    return max(1, math.ceil(usual / pieces / block)) * block


def check_size(rows: int, most: int) -> None:
    """Refuse a batch that is so large that what rounding adds is not bounded any more."""
    if rows > most:
        raise InputError(f"expected at most {most} rows in a batch; got {rows}; lower the sampling rate")


def clip_factors(norms: Tensor, bound: float) -> Tensor:
    """What to scale gradients of these norms by, so that none is longer than `bound`; overwrites the norms."""
    return norms.clamp_(min=bound).reciprocal_().mul_(bound)


def checked_sum(total: Tensor, examples: int, max_grad_norm: float) -> Tensor:
    """The sum, if it is not longer than so many clipped gradients can be together; an error otherwise."""
    square = float(total.dot(total))
    if not square <= (examples * max_grad_norm) ** 2:
        raise HushgraphError(
            f"expected a sum of {examples} gradients of norm at most {max_grad_norm}; got one of norm"
            f" {math.sqrt(square)}; nothing was released"
        )
    return total


def write_products(
    left: Tensor, right: Tensor, out: Tensor, block: int = LARGE_BLOCK, memory: Memory = lambda *_: None
) -> None:
    """Write `left.T @ right`, a sum over rows, to `out`.

    An `out` of the rows' own type is plain training; one in double precision gets sums of blocks of rows. `memory` may
    have room for intermediate results.
    """
    if out.dtype is left.dtype:
        torch.mm(left.t(), right, out=out)
    elif out.numel() > _LARGE_OUTPUT:
        add_products(left, right, out.zero_(), range(0, len(left) + block, block))
    else:
        torch.sum(products_of_blocks(left, right, block, memory), 0, dtype=out.dtype, out=out)


def add_products(left: Tensor, right: Tensor, out: Tensor, cuts: Sequence[int], row_sum: Tensor | None = None) -> None:
    """Add `left.T @ right` to `out`, block by block; `cuts` says where blocks of rows begin and end.

    `row_sum`, if wanted, gets the sum of the rows of `left` added.
    """
    if isinstance(cuts, range) and out.numel() <= _LARGE_OUTPUT:
        out += products_of_blocks(left, right, cuts.step).sum(0, dtype=out.dtype)
        if row_sum is not None:
            row_sum += left.sum(0, dtype=row_sum.dtype)
        return
    product, sums = left.new_empty(out.shape), left.new_empty(len(cuts) - 1, left.shape[1])
    for block, (start, stop) in enumerate(pairwise(cuts)):
        rows = left[start:stop]
        torch.mm(rows.t(), right[start:stop], out=product)
        out += product
        torch.sum(rows, 0, out=sums[block])
    if row_sum is not None:
        row_sum += sums.sum(0, dtype=row_sum.dtype)


def products_of_blocks(left: Tensor, right: Tensor, block: int, memory: Memory = lambda *_: None) -> Tensor:
    """One product per block of rows, `[blocks, columns of left, columns of right]`; the last block may be short."""
    (rows, first), second = left.shape, right.shape[1]
    full, rest = divmod(rows, block)
    products = memory("products", left, full + bool(rest), first, second)
    if not rest:
        return torch.bmm(left.view(full, block, first).mT, right.view(full, block, second), out=products)
    products = left.new_empty(full + 1, first, second) if products is None else products
    end = rows - rest
    torch.bmm(left[:end].view(full, block, first).mT, right[:end].view(full, block, second), out=products[:full])
    torch.mm(left[end:].t(), right[end:], out=products[full])
    return products


def write_row_sum(rows: Tensor, out: Tensor) -> None:
    """Write the sum of the rows to `out`, in its precision."""
    torch.sum(rows, 0, dtype=out.dtype, out=out)
