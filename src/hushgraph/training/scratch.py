"""Reusable memory for large intermediate results.

Fresh memory for a large tensor comes from the operating system page by page, which costs more than most of the
arithmetic done on it. Small tensors are cheap to allocate and are left alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LARGE = 32_768


class Scratch:
    """Named pieces of memory that grow when needed and are overwritten by the next use of the same name."""

    def __init__(self) -> None:
        self._pieces: dict[str, Tensor] = {}
        self._views: dict[tuple[str, torch.dtype, tuple[int, ...]], Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor | None:
        """Memory of the given shape and the type of `like`, for `out=`; None (allocate as usual) when small."""
        view = self._views.get((name, like.dtype, shape))
        return view if view is not None else self._make(name, like.dtype, shape)

    def _make(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor | None:
        size = math.prod(shape)
        if size < _LARGE:
            return None
        piece = self._pieces.get(name)
        if piece is None or piece.numel() < size or piece.dtype != dtype:
            piece = self._pieces[name] = torch.empty(size + size // 8, dtype=dtype)
            self._views = {key: view for key, view in self._views.items() if key[0] != name}
        view = self._views[name, dtype, shape] = piece[:size].view(shape)
        return view
