"""A graph network for a public graph: MLP layers, convolutions, MLP layers, with jumping knowledge if wanted.

Convolutions are PyG's. GraphSAGE, GCN, GIN and GAT (one head) are computed by the faster forms of `pyg_models`; any
other convolution of `torch_geometric.nn` that is made from two widths and called with rows and edges is run as it is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.rows import Rows
from hushgraph.nn.layers import MLP, make_activation

if TYPE_CHECKING:  # PyG takes a second to import: only when a network is built
    from hushgraph.nn.pyg_models import PygNeighborhood

CONVOLUTIONS = ("sage", "gcn", "gin", "gat")
AGGREGATIONS = ("mean", "sum")
JUMPS = ("none", "cat", "max")


class GraphNetwork(nn.Module):
    """`pre_layers` of an MLP, `num_layers` convolutions, `post_layers` of an MLP; batch norm after every layer.

    Without MLP layers behind them, the last convolution gives the class scores. `jumping` hands the rows of all
    convolutions to what follows, side by side ("cat") or by their largest entries ("max").
    """

    def __init__(
        self,
        columns: int,
        classes: int,
        *,
        convolution: str = "sage",
        aggregation: str = "mean",
        num_layers: int = 2,
        hidden_channels: int = 16,
        pre_layers: int = 1,
        post_layers: int = 1,
        jumping: str = "none",
        activation: str = "selu",
        dropout: float = 0.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        if jumping != "none" and not post_layers:
            raise InputError("jumping: expected layers behind the convolutions (post_layers); got none")
        width, last = hidden_channels, hidden_channels if post_layers else classes
        options: dict[str, Any] = {"activation": activation, "norm": "batch", "dropout": dropout}
        options["generator"] = generator
        self.jumping = jumping
        self.pre = MLP(columns, width, width, pre_layers, plain_last=False, **options) if pre_layers else None
        first = width if pre_layers else columns
        sizes = [first, *[width] * (num_layers - 1), last]
        with torch.random.fork_rng(devices=[]):  # PyG draws the first weights from the global generator
            torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
            made = (make_convolution(convolution, a, b, aggregation) for a, b in pairwise(sizes))
            self.convolutions = nn.ModuleList(made)
        self.norms = nn.ModuleList(nn.BatchNorm1d(size) for size in sizes[1 : None if post_layers else -1])
        self.activation, self.dropout = make_activation(activation), nn.Dropout(dropout)
        joined = width * num_layers if jumping == "cat" else width
        self.post = MLP(joined, width, classes, post_layers, **options) if post_layers else None

    def forward(self, rows: Rows, graph: PygNeighborhood) -> Tensor:
        """Class scores, one row per node."""
        from hushgraph.nn.pyg_models import convolve

        x = rows if self.pre is None else self.pre(rows)
        passed: list[Tensor] = []
        for place, layer in enumerate(self.convolutions):
            x = convolve(layer, x, graph)
            if place < len(self.norms):
                x = self.dropout(self.activation(self.norms[place](x)))
            passed.append(x)
        if self.post is None:
            return passed[-1]
        return self.post(self._joined(passed))

    def _joined(self, passed: list[Tensor]) -> Tensor:
        if self.jumping == "cat":
            return torch.cat(passed, dim=1)
        return torch.stack(passed).amax(dim=0) if self.jumping == "max" else passed[-1]


def make_convolution(name: str, columns: int, width: int, aggregation: str = "mean") -> nn.Module:
    """One of `CONVOLUTIONS`, or the convolution of `torch_geometric.nn` with this class name."""
    import torch_geometric.nn as pyg

    made = {
        "sage": lambda: pyg.SAGEConv(columns, width, aggr=aggregation),
        "gcn": lambda: pyg.GCNConv(columns, width),
        "gin": lambda: pyg.GINConv(pyg.MLP([columns, width, width])),
        "gat": lambda: pyg.GATConv(columns, width, heads=1),
    }
    if name in made:
        return made[name]()
    found = getattr(pyg, name, None)
    if not (isinstance(found, type) and issubclass(found, pyg.MessagePassing)):
        known = ", ".join(CONVOLUTIONS)
        raise InputError(f"convolution: expected {known} or a convolution of torch_geometric.nn; got '{name}'")
    try:
        return found(columns, width)
    except TypeError as error:
        raise InputError(f"convolution: {name} is not made from two widths alone ({error}); use another") from error
