"""Whether all rows are treated alike, to the last bit. Proof that needs it: docs/proofs/gradient.md.

What is computed for an example may depend on this example and the weights alone: not on other rows, on its place or on
the size of the batch. Mathematics says so for row-wise layers; kernels of linear algebra libraries may choose the order
of their additions by the place of a row, by the number of rows or by the number of threads. So examples are computed on
one thread, in pieces of one shape, and before private data is used, equal rows are put in all places of such a piece:
where they do not come out equal bit by bit, examples are taken one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hushgraph.graph.rows import JoinedRows, SparseRows
from hushgraph.nn.layers import linear_input

TRIALS = 5
"""Rows that are tried. Another order of additions stays unseen only if all entries of all rows come out equal."""

_ENTRIES = 7


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and its linear algebra library work on one thread."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class EvenLinear(TorchFunctionMode):
    """Lets the linear layers of torch compute narrow products in the way in which places do not matter."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """`linear_input` in the place of `torch.nn.functional.linear`."""
        return (linear_input if func is F.linear else func)(*args, **(kwargs or {}))


def treats_rows_alike(
    module: nn.Module, rows: Any, labels: Tensor, count: int, compute: Callable[[Any, Tensor], Iterable[Tensor]]
) -> bool:
    """Whether `compute(rows, labels)` gives the same for each of `count` equal rows, with random weights.

    `rows` and `labels` show the kind and the width; no entry of them is read.
    """
    for trial in range(TRIALS):
        generator = torch.Generator().manual_seed(trial)
        with _random_weights(module, generator):
            found = compute(_equal_rows(rows, count, generator), _equal_labels(labels, count, generator))
            if not all(bool((part == part[:1]).all()) for part in found):
                return False
    return True


@contextmanager
def _random_weights(module: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Other weights, in the same memory, and nothing random in the module, for the time being."""
    kept = [(p.data, p.data.clone()) for p in module.parameters()]
    training = [layer for layer in module.modules() if layer.training]
    module.eval()
    try:
        for weight, _ in kept:
            scale = max(1, weight.shape[-1]) ** -0.5 if weight.dim() > 1 else 1.0
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype).mul_(scale))
        yield
    finally:
        for weight, value in kept:
            weight.copy_(value)
        for layer in training:
            layer.training = True


def _equal_rows(like: Any, count: int, generator: torch.Generator) -> Any:
    """So many times one random row of the kind of `like`."""
    if isinstance(like, JoinedRows):
        return JoinedRows([_equal_rows(part, count, generator) for part in like.parts])
    if not isinstance(like, SparseRows):
        row = torch.randn((1, *like.shape[1:]), generator=generator, dtype=like.dtype)
        return row.expand(count, *like.shape[1:]).contiguous()
    columns = torch.randperm(like.shape[1], generator=generator)[:_ENTRIES]
    ends = torch.arange(count + 1) * len(columns)
    values = None if like.values is None else torch.randn(len(columns), generator=generator).to(like.values.dtype)
    return SparseRows(
        ends, columns.repeat(count), None if values is None else values.repeat(count), (count, like.shape[1])
    )


def _equal_labels(like: Tensor, count: int, generator: torch.Generator) -> Tensor:
    if not like.is_floating_point():
        return torch.zeros((count, *like.shape[1:]), dtype=like.dtype)
    return (
        torch.rand((1, *like.shape[1:]), generator=generator, dtype=like.dtype).expand(count, *like.shape[1:]).clone()
    )
