"""Per-example gradients in full, by `torch.func`: works for every row-wise module, at the price of memory and time."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from hushgraph.data.rows import Rows, dense_rows
from hushgraph.training.losses import RowLoss
from hushgraph.training.manual_layers import Views


class PerExampleGradient:
    """Per-example norms and weighted sums from per-example gradients that are formed outright."""

    def __init__(self, module: nn.Module, loss: RowLoss, views: Views) -> None:
        self.module, self.loss, self.views = module, loss, views
        self.parameters = {name: p for name, p in module.named_parameters() if id(p) in views}
        self.constants: dict[str, Tensor] = {name: p for name, p in module.named_parameters() if id(p) not in views}
        self.constants |= dict(module.named_buffers())
        self._gradients = vmap(grad(self._one_loss), in_dims=(None, 0, 0), randomness="different")

    def _one_loss(self, parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        state = {**parameters, **{name: t.detach() for name, t in self.constants.items()}}
        scores = functional_call(self.module, state, (row.unsqueeze(0),))
        return self.loss(scores, label.unsqueeze(0)).squeeze(0)

    def square_norms(self, rows: Rows, labels: Tensor, input_square_norms: Tensor | None) -> Tensor:
        """Each example's squared gradient norm; keeps what `write_sum` needs."""
        detached = {name: p.detach() for name, p in self.parameters.items()}
        self.gradients = self._gradients(detached, dense_rows(rows), labels)
        parts = [g.flatten(1).square().sum(1) for g in self.gradients.values()]
        return torch.stack(parts).sum(0)

    @torch.no_grad()
    def write_sum(self, factors: Tensor) -> None:
        """Write the sum of the gradients, example i scaled by `factors[i]`, into the views."""
        for name, gradients in self.gradients.items():
            view = self.views[id(self.parameters[name])]
            torch.mv(gradients.flatten(1).t(), factors, out=view.view(-1))
        self.gradients = {}
