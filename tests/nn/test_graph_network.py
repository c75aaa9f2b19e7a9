from __future__ import annotations

import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.nn.graph_network import GraphNetwork, make_convolution
from hushgraph.nn.pyg_models import PygNeighborhood, convolve
from small_graphs import random_graph


def neighborhood() -> PygNeighborhood:
    return PygNeighborhood(MemoryEdges.from_edge_index(random_graph(0).edge_index, 40))


@pytest.mark.parametrize("aggregation", ["mean", "sum"])
@pytest.mark.parametrize("name", ["sage", "gcn", "gin", "gat", "TAGConv"])
def test_a_layer_gives_what_pyg_gives(name: str, aggregation: str) -> None:
    torch.manual_seed(0)
    layer, graph, rows = make_convolution(name, 5, 4, aggregation).eval(), neighborhood(), torch.randn(40, 5)
    assert torch.allclose(convolve(layer, rows, graph), layer(rows, graph.edge_index), atol=1e-5)


def network(**settings: object) -> GraphNetwork:
    return GraphNetwork(5, 3, generator=torch.Generator().manual_seed(0), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pre_layers": 0, "post_layers": 0},
        {"pre_layers": 2, "num_layers": 3, "jumping": "cat"},
        {"num_layers": 3, "jumping": "max", "dropout": 0.5},
        {"convolution": "gat", "num_layers": 1, "post_layers": 2},
    ],
)
def test_every_shape_gives_class_scores_and_gradients(settings: dict[str, object]) -> None:
    made = network(**settings)
    scores = made(torch.randn(40, 5), neighborhood())
    assert scores.shape == (40, 3)
    scores.sum().backward()
    assert all(weight.grad is not None for weight in made.parameters())


def test_the_generator_decides_the_weights_and_the_global_one_is_left_alone() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one, other = network(), network()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_unknown_and_unfit_convolutions_are_refused() -> None:
    for name in ("nothing", "Linear", "MLP"):
        with pytest.raises(InputError, match="sage, gcn, gin, gat or a convolution"):
            make_convolution(name, 5, 4)
    with pytest.raises(InputError, match="two widths"):
        make_convolution("NNConv", 5, 4)
    with pytest.raises(InputError, match="jumping"):
        network(jumping="cat", post_layers=0)
