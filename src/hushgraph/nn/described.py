"""A description that is fixed or fitted to public rows, and what is trained on it."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.graph.rows import Rows, dense_rows, take_rows
from hushgraph.nn.rowwise import rowwise

_AT_ONCE = 1_000


@rowwise("Only passes rows through the layers inside it.")
class Description(nn.Sequential):
    """Layers that nothing private is trained into. Those with a method `fit` are fitted to public rows."""

    def fit(self, public: Tensor) -> None:
        """Fit every layer to what the layers before it make of public rows."""
        for layer in self:
            fit = getattr(layer, "fit", None)
            if fit is not None:
                fit(public)
            public = layer(public)

    def forward(self, rows: Rows) -> Tensor:
        """A thousand rows at a time, so that memory stays small."""
        if len(rows) <= _AT_ONCE:
            return cast(Tensor, super().forward(dense_rows(rows)))
        parts = torch.arange(len(rows)).split(_AT_ONCE)
        return torch.cat([super(Description, self).forward(dense_rows(take_rows(rows, part))) for part in parts])


@rowwise("Only passes rows through the layers inside it.")
class Described(nn.Module):
    """`head` on the description of rows."""

    def __init__(self, description: Description, head: nn.Module) -> None:
        super().__init__()
        self.description, self.head = description, head

    def forward(self, rows: Rows) -> Tensor:
        """Class scores."""
        scores: Tensor = self.head(self.description(rows))
        return scores


@rowwise("Looks at the length of one row.")
class UnitRows(nn.Module):
    """Rows scaled to norm 1; zero rows stay zero."""

    def forward(self, rows: Tensor) -> Tensor:
        """`[n, columns]`, the same shape."""
        return F.normalize(rows, dim=1)
