"""Wrapping a message-passing layer in Opacus is not private: one node moves far more than the clipped sum may.

Opacus clips the gradient of each *row*. With neighbors mixed inside a layer one node reaches many rows, so the bound
of 2C per changed record is broken. Ours refuses the same layer, and keeps its own bound on the same graph.
"""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from hushgraph.errors import UnprovenError
from hushgraph.nn import MLP
from hushgraph.nn.rowwise import require_rowwise
from hushgraph.training.clipping import ClippedGradient
from small_graphs import hub_graph

CLIP = 1.0


class Sage(nn.Module):
    """One SAGE layer whose linear maps Opacus can hook."""

    def __init__(self) -> None:
        super().__init__()
        generator_state = torch.random.get_rng_state()
        torch.manual_seed(0)
        self.conv = SAGEConv(5, 3)
        torch.random.set_rng_state(generator_state)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


def opacus_clipped_sum(x: Tensor, edge_index: Tensor, labels: Tensor) -> Tensor:
    """The sum of per-row gradients, each clipped to CLIP, as Opacus computes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule

        wrapped = GradSampleModule(Sage(), strict=False, loss_reduction="sum")
        F.cross_entropy(wrapped(x, edge_index), labels, reduction="sum").backward()
    samples = torch.cat([p.grad_sample.flatten(1) for p in wrapped.parameters()], dim=1)
    factors = (CLIP / samples.norm(dim=1)).clamp(max=1.0)
    return (samples * factors[:, None]).sum(0)


def test_opacus_with_a_sage_layer_breaks_its_own_bound() -> None:
    graph = hub_graph(60)
    changed = graph.x.clone()
    changed[0] = -50.0 * changed[0]
    move = opacus_clipped_sum(graph.x, graph.edge_index, graph.y) - opacus_clipped_sum(
        changed, graph.edge_index, graph.y
    )
    assert float(move.norm()) > 2 * CLIP * 1.5


def test_ours_keeps_the_bound_on_the_same_change() -> None:
    graph = hub_graph(60)
    changed = graph.x.clone()
    changed[0] = -50.0 * changed[0]
    engine = ClippedGradient(MLP(5, 8, 3, 2, generator=torch.Generator().manual_seed(0)), max_grad_norm=CLIP)
    move = engine.sum(graph.x, graph.y) - engine.sum(changed, graph.y)
    assert float(move.norm()) <= 2 * CLIP * (1 + 1e-5)


def test_ours_refuses_the_layer_by_name() -> None:
    with pytest.raises(UnprovenError, match="message passing"):
        require_rowwise(Sage())
