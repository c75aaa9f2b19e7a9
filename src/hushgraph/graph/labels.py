"""Rows that are labels: one entry for the own class and another for all others, in whole numbers.

A sum of such rows is a histogram of classes, which needs one step per edge whatever the number of classes is. Proof of
what this bounds: docs/proofs/aggregation.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.quantized import BITS, MOST_SHORT_BITS, QuantizedRows

MOST_CLASSES = (1 << 16) - 1


@dataclass(frozen=True)
class QuantizedLabels:
    """Rows of whole numbers, made by `quantize_labels`: the number k stands for k * `step`.

    Attributes:
        classes: the column of every node's own class; `columns` for nodes that send nothing.
        columns: how many classes there are.
        hot: the entry of the own class, int64; one for all nodes, or one each.
        cold: the entry of all other classes, in the same shape, not positive.
        bits: what bounds the entries and norms.
        step: what one unit stands for.
    """

    classes: Tensor
    columns: int
    hot: Tensor
    cold: Tensor
    bits: int
    step: float

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and columns."""
        return len(self.classes), self.columns

    def dense(self) -> QuantizedRows:
        """The same rows, written out."""
        classes = self.classes.to(torch.int64)
        sends = classes < self.columns
        cold, hot = (torch.where(sends, part, 0).to(torch.int16).unsqueeze(1) for part in (self.cold, self.hot))
        values = cold.repeat(1, self.columns + 1).scatter_(1, classes.unsqueeze(1), hot)
        return QuantizedRows(values[:, : self.columns].contiguous(), self.bits, self.step)


def quantize_labels(
    classes: Tensor,
    columns: int,
    *,
    bits: int = BITS,
    lengths: Tensor | None = None,
    centered: bool = False,
    mean_share: float = 0.0,
) -> QuantizedLabels:
    """One-hot rows of norm 1 in whole multiples of 1 / 2^bits, cut toward zero; class -1 sends a zero row.

    With `centered`, the mean is taken away from each row and the rest brought back to norm 1, or the mean is made so
    small that it has `mean_share` of the squared norm (from 0 to 1 / columns, which is where it started). With
    `lengths`, how many entries every sender's list has, row i is divided by sqrt(lengths[i]) as well.

    Formal guarantee, checked in exact integers on the numbers that are returned: the squared norm of row i, times
    max(lengths[i], 1), is at most 4^bits. Row i depends on class i and lengths[i] alone.
    """
    InputError.collect(_problems(classes, columns, bits, lengths, mean_share))
    copies = torch.ones((), dtype=torch.int64) if lengths is None else lengths.to(torch.int64).clamp(min=1)
    longest = int(copies.max()) if copies.numel() else 0
    if longest < copies.numel():  # every length once, and then for every node what its length has
        every = torch.arange(longest + 1).clamp(min=1)
        hot, cold = (part.index_select(0, copies) for part in _entries(every, columns, bits, centered, mean_share))
    else:
        hot, cold = _entries(copies, columns, bits, centered, mean_share)
    return QuantizedLabels(torch.where(classes < 0, columns, classes), columns, hot, cold, bits, 2.0**-bits)


def _entries(copies: Tensor, columns: int, bits: int, centered: bool, mean_share: float) -> tuple[Tensor, Tensor]:
    """The own entry and that of all others, of rows whose squared norm, times so many copies, is bounded."""
    others = max(columns - 1, 1)
    apart, together = math.sqrt((1.0 - mean_share) * (columns - 1) / columns), math.sqrt(mean_share / columns)
    length = 4.0**bits * ((apart + together) ** 2 if centered else 1.0)
    hot = (length / copies.to(torch.float64)).sqrt().to(torch.int64)

    def cold() -> Tensor:
        if not centered or columns == 1:
            return torch.zeros_like(hot)
        # hot is the whole part of an entry x; the whole part of x / others is that of hot / others
        evenly = hot.div(others, rounding_mode="floor")
        return (
            -evenly if together == 0.0 else -(hot * ((apart / others - together) / (apart + together))).to(torch.int64)
        )

    def too_long() -> Tensor:
        return copies * (hot.square() + others * cold().square()) > 4**bits

    hot -= too_long().to(torch.int64)  # where the root was rounded up
    if bool(too_long().any()):
        raise HushgraphError("expected quantized labels within their bound; got a longer one; please report this")
    return hot, cold()


def _problems(classes: Tensor, columns: int, bits: int, lengths: Tensor | None, mean_share: float) -> list[str]:
    problems = []
    if not 0.0 <= mean_share * columns <= 1.0:
        problems.append(f"mean_share: expected from 0 to 1 / {columns}; got {mean_share!r}")
    if classes.dim() != 1 or classes.dtype != torch.int64:
        problems.append(f"expected one whole class per node; got {classes.dtype} {list(classes.shape)}; give int64")
    elif classes.numel() and (int(classes.min()) < -1 or int(classes.max()) >= columns):
        problems.append(f"expected classes from 0 to {columns - 1}, or -1 for none; got another; check the labels")
    if not 1 <= columns <= MOST_CLASSES:
        problems.append(f"expected from 1 to {MOST_CLASSES} classes; got {columns}; join some of them")
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= MOST_SHORT_BITS:
        problems.append(f"expected from 1 to {MOST_SHORT_BITS} bits; got {bits!r}; 12 is a good choice")
    if lengths is not None and (lengths.shape != classes.shape or lengths.is_floating_point()):
        problems.append(f"expected one whole list length for each of {len(classes)} nodes; got {list(lengths.shape)}")
    return problems
