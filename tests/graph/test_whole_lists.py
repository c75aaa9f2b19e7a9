"""Loops over whole lists: the same numbers as without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.graph import sums
from hushgraph.graph.disk import DiskEdges, hashes
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.packed import pack

kernels = pytest.importorskip("hushgraph.graph.kernels")


def graph(nodes: int, entries: int, seed: int = 0) -> MemoryEdges:
    """Nodes 0 and the last one have no list."""
    draw = np.random.default_rng(seed)
    target = draw.integers(1, nodes - 1, entries)
    return MemoryEdges.from_pairs(draw.integers(0, nodes, entries), target, nodes)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_lists_of_some_nodes(share: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    edges = graph(500, 4000)
    stored = DiskEdges.write(tmp_path / "edges", edges.edge_index(), 500, memory_limit=1 << 13)
    mask = torch.rand(500, generator=torch.Generator().manual_seed(1)) < share
    found = []
    for least in (0, 1 << 62):
        monkeypatch.setattr(sums, "LEAST_COMPILED", least)
        found.append((edges._only_at(mask), stored.ending_at(mask).load()))
    for (held, read), (held_too, read_too) in [found]:
        assert torch.equal(held.offsets, held_too.offsets)
        assert torch.equal(held.sources, held_too.sources)
        assert torch.equal(read.offsets, read_too.offsets)
        assert torch.equal(read.sources, read_too.sources)
    kept = edges.edge_index()
    assert torch.equal(found[0][0].edge_index(), kept[:, mask[kept[1]]])


@pytest.mark.parametrize("key", [0, 1, (1 << 64) - 1])
def test_what_hashes_add_up_to(key: int) -> None:
    edges = graph(300, 2000)
    sources, targets = edges.edge_index().numpy()
    own = np.uint64(key)
    parts = [hashes(pairs.astype(np.uint64), own) for pairs in (pack(targets, sources), pack(sources, targets))]
    expected = (int(parts[0].sum(dtype=np.uint64)) - int(parts[1].sum(dtype=np.uint64))) % (1 << 64)
    assert expected
    assert int(kernels.balance(0, edges.offsets.numpy(), edges.sources.numpy(), own)) == expected
    first, last = 100, 200
    part = edges.offsets[first : last + 1]
    some = edges.sources[int(part[0]) : int(part[-1])].numpy()
    others = (targets < first) | (targets >= last)
    rest = [hashes(pairs[others].astype(np.uint64), own) for pairs in (pack(targets, sources), pack(sources, targets))]
    left = int(rest[0].sum(dtype=np.uint64)) - int(rest[1].sum(dtype=np.uint64))
    assert int(kernels.balance(first, part.numpy(), some, own)) == (expected - left) % (1 << 64)


def test_one_edge_without_its_reverse_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sums, "LEAST_COMPILED", 0)
    index = graph(200, 1500).coalesce().edge_index()
    stored = DiskEdges.write(tmp_path / "both", index, 200, both=True, memory_limit=1 << 12)
    stored.require_symmetric()
    held = stored.load().edge_index()
    for at in (0, held.shape[1] // 2, held.shape[1] - 1):
        kept = torch.arange(held.shape[1]) != at
        fewer = DiskEdges.write(tmp_path / f"without-{at}", held[:, kept], 200)
        fewer._header["symmetric"] = True
        with pytest.raises(InputError, match="as its header says"):
            fewer.require_symmetric()
