"""Rows of whole numbers with a bound on their exact integer norm: what a released sum is made of.

Proof of what this bounds: docs/proofs/aggregation.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError

BITS = 12
MOST_SHORT_BITS = 14
"""Entries of up to so many bits are kept in 16: whatever is added to them there has room for a sign and a carry."""
_MOST_BITS = 20
_CHUNK = 1 << 18  # entries at a time: they stay in the cache
_SMALLEST_NORM, _LARGEST_NORM = 2.0**-40, 2.0**40
_TINY, _HUGE = 2.0**-50, 2.0**50  # rows with norms between these are scaled in float32 without trouble
_SHORTER = 1.0 - 2.0**-16


@dataclass(frozen=True)
class QuantizedRows:
    """Rows of whole numbers, made by `quantize`: the number k stands for k * `step`.

    Attributes:
        values: `[nodes, columns]`, whole numbers of at most 2^bits; int16 up to 14 bits, int32 above. Read-only.
        bits: what bounds the entries and norms.
        step: what one unit stands for.
    """

    values: Tensor
    bits: int
    step: float

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and columns."""
        return self.values.shape[0], self.values.shape[1]


@dataclass(frozen=True)
class RowsInParts:
    """Float32 rows that are made where they are used, because all of them at once would take much memory."""

    shape: tuple[int, int]
    part: Callable[[slice], Tensor]


def quantize(
    rows: Tensor | RowsInParts,
    norm: float | Tensor = 1.0,
    *,
    bits: int = BITS,
    lengths: Tensor | None = None,
    normalize: bool = False,
) -> QuantizedRows:
    """Rows as whole multiples of `largest norm / 2^bits`, shortened to their norm and truncated toward zero.

    `norm` bounds every row, or row i by `norm[i]`. Longer rows are scaled down to it; with `normalize`, all rows but
    zero ones are scaled to it. With `lengths`, how many entries every sender's list has, row i is divided by
    sqrt(lengths[i]) as well, so that all copies a sender sends have together the norm of one row.

    Formal guarantee, checked in exact integers on the tensor that is returned: the squared norm of row i, times
    max(lengths[i], 1), is at most (2^bits * norm[i] / largest norm)^2. Row i of the result depends on row i alone.

    Edge cases: zero, denormal and huge rows work. A row that is not finite becomes zero: it may be computed from one
    private record, which must not decide whether there is a result.
    """
    norms = torch.as_tensor(norm, dtype=torch.float64)
    InputError.collect(_problems(rows, norms, bits, lengths))
    part_of = rows.part if isinstance(rows, RowsInParts) else rows.detach().__getitem__
    values = torch.empty(rows.shape, dtype=torch.int16 if bits <= MOST_SHORT_BITS else torch.int32)
    if values.numel() == 0:
        return QuantizedRows(values, bits, 1.0)
    largest = norms.max()
    size = max(_CHUNK // values.shape[1], 1)
    for start in range(0, len(values), size):
        part = slice(start, start + size)
        copies = None if lengths is None else lengths[part]
        bound = _Bound.of(norms[part] if norms.dim() else norms, largest, bits, copies, normalize)
        _quantize_chunk(part_of(part), bound, values[part])
    return QuantizedRows(values, bits, float(largest) / 2**bits)


@dataclass(frozen=True)
class _Bound:
    """What rows may be at most: one number for all of them, or one each.

    `norms` is what longer rows are shortened to (0: all rows are scaled), `longest` how long they are then in whole
    numbers, `limits` the squared norm that is never exceeded, a whole number.
    """

    norms: Tensor | float
    longest: Tensor | float
    limits: Tensor | float

    @classmethod
    def of(cls, norms: Tensor, largest: Tensor, bits: int, lengths: Tensor | None, normalize: bool) -> _Bound:
        copies = torch.ones((), dtype=torch.int64) if lengths is None else lengths.to(torch.int64).clamp(min=1)
        relative = norms / largest
        exact = (torch.frexp(relative).mantissa == 0.5) & (relative * largest == norms)  # powers of two
        squared = 4.0**bits * torch.where(exact, relative.square(), relative.square() * (1.0 - 2.0**-50))
        limits = squared.floor().to(torch.int64).div(copies, rounding_mode="floor")
        longest = 2.0**bits * relative / copies.to(torch.float64).sqrt()
        parts = (torch.zeros(()) if normalize else norms, longest, limits)
        return cls(*(part.to(torch.float64) if part.dim() else float(part) for part in parts))

    def of_rows(self, rows: slice | Tensor) -> _Bound:
        parts = (self.norms, self.longest, self.limits)
        return _Bound(*(part[rows] if isinstance(part, Tensor) else part for part in parts))


def _quantize_chunk(rows: Tensor, bound: _Bound, out: Tensor) -> None:
    """Write the rows as whole numbers to `out`; see `quantize`."""
    if rows.dtype == torch.float64:
        out.copy_(_carefully(rows, bound))
    else:
        sizes = torch.linalg.vector_norm(rows, dim=1)
        reach = torch.clamp(sizes, min=bound.norms)
        factor = (bound.longest / reach).to(torch.float32)
        out.copy_(rows * factor.unsqueeze(1))  # cuts toward zero
        low, high = torch.aminmax(reach)
        if not (float(low) > _TINY and float(high) < _HUGE):
            hard = ~((reach > _TINY) & (reach < _HUGE))
            out[hard] = _carefully(rows[hard], bound.of_rows(hard)).to(out.dtype)
    _shorten(rows, bound, out)


def _carefully(rows: Tensor, bound: _Bound, shorter: float = 1.0) -> Tensor:
    """The rows as whole numbers, by way of float64, whatever the size of their entries."""
    wide = rows.to(torch.float64)
    wide = torch.where(torch.isfinite(wide).all(dim=1, keepdim=True), wide, 0.0)
    largest = wide.abs().amax(dim=1)
    largest[largest == 0.0] = 1.0
    wide = wide / largest.unsqueeze(1)
    norms = torch.as_tensor(bound.norms, dtype=torch.float64) / largest  # by a tensor: no reciprocal, which overflows
    reach = torch.maximum(torch.linalg.vector_norm(wide, dim=1), norms)
    reach[reach == 0.0] = 1.0  # zero rows stay zero
    factor = shorter * bound.longest / reach
    return (wide * factor.unsqueeze(1)).to(torch.int32)


def _shorten(rows: Tensor, bound: _Bound, out: Tensor) -> None:
    """Scale down the rows of `out` that rounding left too long, and make sure in exact integers that none is left."""
    quick = _squared_norms(out, torch.float32)  # exact below 2^24; larger sums are rounded to no less than 2^24
    if float(quick.max()) < 2.0**24 and float((quick - bound.limits).max()) < 0.0:
        return
    too_long = _squared_norms(out, torch.float64) > bound.limits  # exact below 2^53
    if bool(too_long.any()):
        out[too_long] = _carefully(rows[too_long], bound.of_rows(too_long), _SHORTER).to(out.dtype)
        if bool((_squared_norms(out, torch.float64) > bound.limits).any()):
            raise HushgraphError("expected quantized rows within their bound; got a longer one; please report this")


def _squared_norms(whole: Tensor, dtype: torch.dtype) -> Tensor:
    squares = whole.to(dtype).square_()
    return torch.mv(squares, squares.new_ones(squares.shape[1]))


def _problems(rows: Tensor | RowsInParts, norms: Tensor, bits: int, lengths: Tensor | None) -> list[str]:
    problems = []
    if isinstance(rows, Tensor) and (rows.dim() != 2 or rows.dtype not in (torch.float32, torch.float64)):
        problems.append(f"expected float rows [nodes, columns]; got {rows.dtype} {list(rows.shape)}; give one per node")
    count = rows.shape[0] if rows.shape else 0
    if norms.dim() and norms.shape != (count,):
        problems.append(f"expected one norm, or one for each of {count} rows; got shape {list(norms.shape)}")
    if not bool(((norms >= _SMALLEST_NORM) & (norms <= _LARGEST_NORM)).all()):
        problems.append("expected norms from 2^-40 to 2^40; got one outside; state the bound in another unit")
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= _MOST_BITS:
        problems.append(f"expected from 1 to {_MOST_BITS} bits; got {bits!r}; 12 is a good choice")
    if lengths is not None and (lengths.shape != (count,) or lengths.is_floating_point()):
        problems.append(f"expected one whole list length for each of {count} rows; got {list(lengths.shape)}")
    return problems
