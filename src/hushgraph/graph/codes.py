"""Codes of receivers, and messages of whole numbers that a code of signs cannot make larger than their sum.

A receiver's code has an entry -1, 0 or 1 for every class. What arrives from a sender is the code times the sender's
message, a row of whole numbers without a negative one: at most the sum of that row. Proof of what this bounds:
docs/proofs/chorus-codes.md.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.quantized import MOST_SHORT_BITS, QuantizedRows

BITS = MOST_SHORT_BITS
WHOLE = 1 << BITS
"""The sum of a message of size one."""


def messages(classes: Tensor, columns: int, sums: Tensor, guesses: Tensor | None = None) -> QuantizedRows:
    """One row per node whose sum is at most `sums`: all of it for its class, or shared out by its row of `guesses`.

    Class -1 has no label: such a node sends its guess, or nothing. A guess is brought to sum 1 first; one that is not
    finite, or has nothing positive, sends nothing: it may be computed from one private record, which must not decide
    whether there is a result.

    Formal guarantee, checked in whole numbers on what is returned: no entry is negative and row i adds up to at most
    `sums[i]`, itself at most 2^14. Row i depends on class i, guess i and `sums[i]` alone.
    """
    if guesses is None:
        rows = torch.zeros((len(classes), columns), dtype=torch.int64)
    else:
        rows = _shared_out(guesses, torch.where(classes < 0, sums, 0))
    known = (classes >= 0).nonzero().squeeze(1)
    rows[known, classes[known]] = sums[known]
    if rows.numel() and (bool((rows < 0).any()) or bool((rows.sum(dim=1) > sums.clamp(max=WHOLE)).any())):
        raise HushgraphError("expected messages within their sum; got a larger one; please report this")
    return QuantizedRows(rows.to(torch.int16), BITS, 1.0 / WHOLE)


def _shared_out(guesses: Tensor, sums: Tensor) -> Tensor:
    """Whole parts of the sum by guess; what is left over goes to the likeliest class."""
    positive = torch.where(torch.isfinite(guesses).all(dim=1, keepdim=True), guesses, 0.0).double().clamp(min=0.0)
    total = positive.sum(dim=1, keepdim=True)
    sums = torch.where(total.squeeze(1) > 0.0, sums, 0)
    rows = (positive / total.clamp(min=1e-300) * sums.unsqueeze(1)).to(torch.int64)
    likeliest = rows.argmax(dim=1, keepdim=True)
    return rows.scatter_add_(1, likeliest, (sums - rows.sum(dim=1)).unsqueeze(1))


def decoded(codes: Tensor, sums: Tensor) -> Tensor:
    """The one number that every receiver gets: its code times the sum of the messages sent to it, int64."""
    if codes.shape != sums.shape:
        raise InputError(f"codes: expected one entry per node and class, {list(sums.shape)}; got {list(codes.shape)}")
    return (codes.to(torch.int64) * sums).sum(dim=1)


def check_codes(codes: Any, columns: int | None = None) -> None:
    """Refuse codes that are not a public tensor of signs `[nodes, columns]`; handles to private rows are no tensors."""
    if not isinstance(codes, Tensor):
        raise InputError(
            "codes: expected a tensor that follows from public or released values; got a handle to private rows, from "
            "which no code may be chosen"
        )
    fits = codes.dim() == 2 and columns in (None, codes.shape[1]) and not codes.is_floating_point()
    if not fits or codes.dtype is torch.bool or bool(((codes < -1) | (codes > 1)).any()):
        raise InputError(
            "codes: expected whole entries -1, 0 or 1, one row per node and one column per class; got "
            f"{codes.dtype} {list(codes.shape)}"
        )
