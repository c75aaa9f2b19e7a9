"""Small graphs that several tests share."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.graph.edges import MemoryEdges
from hushgraph.noise.source import NoiseSource


def random_graph(
    seed: int, num_nodes: int = 40, num_edges: int = 120, *, symmetric: bool = True, num_features: int = 5
) -> Data:
    """A random graph with isolated nodes among the last ones, three classes and a split."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, num_nodes - 2, (2, num_edges), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    if symmetric:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    edges = torch.unique(edges, dim=1)
    split = torch.arange(num_nodes) % 4
    return Data(
        x=torch.randn(num_nodes, num_features, generator=generator),
        y=torch.randint(0, 3, (num_nodes,), generator=generator),
        edge_index=edges,
        train_mask=split < 2,
        val_mask=split == 2,
        test_mask=split == 3,
        class_names=["a", "b", "c"],
        name=f"random-{seed}",
    )


def hub_graph(num_leaves: int = 60) -> Data:
    """A hub that everybody names and that names everybody, plus a ring: the worst case for degree caps."""
    nodes = torch.arange(1, num_leaves + 1)
    hub = torch.zeros_like(nodes)
    ring = torch.stack([nodes, nodes.roll(1)])
    edges = torch.cat([torch.stack([hub, nodes]), torch.stack([nodes, hub]), ring, ring.flip(0)], dim=1)
    graph = random_graph(0, num_leaves + 1)
    graph.edge_index = torch.unique(edges, dim=1)
    graph.name = "hub"
    return graph


def capped_edges(edge_index: Tensor, num_nodes: int, max_degree: int, noise: NoiseSource) -> Tensor:
    """The edges that the degree cap keeps, sorted by sender and then by target."""
    kept = MemoryEdges.from_edge_index(edge_index, num_nodes).cap(max_degree, noise)
    return kept.transpose().edge_index().flip(0)


def with_public_nodes(data: Data, count: int = 4) -> Data:
    """The graph with the last of its test nodes declared public knowledge, for methods that ask about such."""
    public = data.test_mask.nonzero().squeeze(1)[-count:]
    data.test_mask = data.test_mask.clone().index_fill_(0, public, False)
    data.public_mask = torch.zeros_like(data.test_mask).index_fill_(0, public, True)
    return data
