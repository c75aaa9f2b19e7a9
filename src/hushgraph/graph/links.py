"""Held-out links of a public, symmetric graph, and pairs that are not linked, for link prediction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hushgraph.errors import InputError


@dataclass(frozen=True)
class LinkSplit:
    """Pairs `[2, P]`: train links (each once), validation and test links, and as many unlinked pairs for those two."""

    train: Tensor
    val: Tensor
    test: Tensor
    val_apart: Tensor
    test_apart: Tensor

    @property
    def train_edges(self) -> Tensor:
        """Both directions of the train links."""
        return torch.cat([self.train, self.train.flip(0)], dim=1)


def split_links(edge_index: Tensor, num_nodes: int, val: float, test: float, generator: torch.Generator) -> LinkSplit:
    """Hold out shares `val` and `test` of the undirected links, at random, with as many unlinked pairs."""
    links = edge_index[:, edge_index[0] < edge_index[1]]
    total = links.shape[1]
    held = [int(total * share) for share in (val, test)]
    if min(held) < 1 or sum(held) >= total:
        raise InputError(f"link shares: expected val and test to hold out some links of {total}; got {val:g}, {test:g}")
    links = links[:, torch.randperm(total, generator=generator)]
    parts = torch.split(links, [total - sum(held), *held], dim=1)
    apart = unlinked_pairs(edge_index, num_nodes, sum(held), generator)
    return LinkSplit(parts[0], parts[1], parts[2], apart[:, : held[0]], apart[:, held[0] :])


def unlinked_pairs(edge_index: Tensor, num_nodes: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` different pairs (smaller number first) that are not linked, uniformly at random."""
    linked = torch.unique(_keys(edge_index, num_nodes))
    if count > (num_nodes * (num_nodes - 1)) // 2 - linked.numel():
        raise InputError(f"unlinked pairs: expected at least {count} in the graph; it has fewer. Hold out less")
    found = torch.empty(0, dtype=torch.int64)
    while found.numel() < count:
        drawn = torch.randint(num_nodes, (2, 2 * count), generator=generator)
        keys = _keys(drawn[:, drawn[0] != drawn[1]], num_nodes)
        keys = keys[~torch.isin(keys, linked)]
        found = torch.unique(torch.cat([found, keys]))
    found = found[torch.randperm(found.numel(), generator=generator)[:count]]
    return torch.stack([found // num_nodes, found % num_nodes])


def _keys(pairs: Tensor, num_nodes: int) -> Tensor:
    return torch.minimum(pairs[0], pairs[1]) * num_nodes + torch.maximum(pairs[0], pairs[1])
