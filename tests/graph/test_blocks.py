"""Sums out of core: the same bits as in memory for any limit, with and without noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.graph.blocks import RowNoise, aggregate_blocks, blocks, sum_block
from hushgraph.graph.edges import InNeighbors
from hushgraph.graph.store import BlockedGraph, ingest
from hushgraph.graph.sums import sum_in_neighbors
from hushgraph.noise.source import NoiseSource, round_to_grid

NODES, COLUMNS = 301, 16
LIMITS = [1, 20_000, 10**7]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> BlockedGraph:
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(0, NODES, (6000,), generator=generator)
    target = (torch.rand(6000, generator=generator) ** 2 * (NODES - 5)).long()
    folder = tmp_path_factory.mktemp("blocks") / "graph"
    return ingest(torch.stack((source, target)), folder, num_nodes=NODES, memory_limit=10**6)


def rows_of(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(NODES, COLUMNS, generator=torch.Generator().manual_seed(1), dtype=dtype)


def mapped(path: Path, values: torch.Tensor) -> np.memmap:
    values.numpy().tofile(path)
    return np.memmap(path, dtype=values.numpy().dtype, mode="r", shape=tuple(values.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("memory_limit", LIMITS)
def test_same_bits_as_in_memory(graph: BlockedGraph, tmp_path: Path, dtype: torch.dtype, memory_limit: int) -> None:
    rows = rows_of(dtype)
    expected = sum_in_neighbors(graph.load(), rows)
    assert torch.equal(aggregate_blocks(graph, rows, memory_limit=memory_limit), expected)
    assert torch.equal(aggregate_blocks(graph, rows.numpy(), memory_limit=memory_limit), expected)
    on_disk = mapped(tmp_path / "rows.bin", rows)
    assert torch.equal(aggregate_blocks(graph, on_disk, memory_limit=memory_limit), expected)


@pytest.mark.parametrize("memory_limit", [30_000, 90_000, 10**7])
def test_noise_is_added_once_per_row_and_repeats_byte_for_byte(
    graph: BlockedGraph, tmp_path: Path, memory_limit: int
) -> None:
    source, std = NoiseSource.seeded(3), 2.5
    rows = rows_of(torch.float32)
    exact = sum_in_neighbors(graph.load(), rows).to(torch.float64)
    expected = round_to_grid(exact + source.gaussian_rows("hop 1", 0, NODES, COLUMNS, std), std)
    noise = RowNoise(source, "hop 1", std)
    for given in (rows, mapped(tmp_path / "rows.bin", rows)):
        for _ in range(2):
            result = aggregate_blocks(graph, given, memory_limit=memory_limit, noise=noise)
            assert result.numpy().tobytes() == expected.numpy().tobytes()
    other = aggregate_blocks(graph, rows, memory_limit=memory_limit, noise=RowNoise(source, "hop 2", std))
    assert not bool((other == expected).any())


@pytest.mark.parametrize("columns_that_fit", range(1, 18))
def test_rows_on_disk_are_read_in_groups_of_columns(graph: BlockedGraph, tmp_path: Path, columns_that_fit: int) -> None:
    rows = rows_of(torch.float32)
    limit = 4 * (NODES * 4 * columns_that_fit // 3 + 1)
    result = aggregate_blocks(graph, mapped(tmp_path / "rows.bin", rows), memory_limit=limit)
    assert torch.equal(result, sum_in_neighbors(graph.load(), rows))


def test_output_may_be_a_file(graph: BlockedGraph, tmp_path: Path) -> None:
    rows = rows_of(torch.float32)
    out = np.memmap(tmp_path / "out.bin", dtype=np.float32, mode="w+", shape=(NODES, COLUMNS))
    aggregate_blocks(graph, rows, memory_limit=5000, out=out)
    assert np.array_equal(np.asarray(out), sum_in_neighbors(graph.load(), rows).numpy())


def test_one_block_alone_gives_the_same_rows(graph: BlockedGraph) -> None:
    rows = rows_of(torch.float32)
    expected = sum_in_neighbors(graph.load(), rows)
    for first, last in [(0, 1), (17, 90), (NODES - 3, NODES), (5, 5)]:
        assert torch.equal(sum_block(graph, rows, first, last), expected[first:last])


@pytest.mark.parametrize("memory_limit", LIMITS)
def test_blocks_cover_every_target_and_respect_the_limit(graph: BlockedGraph, memory_limit: int) -> None:
    runs = list(blocks(graph, COLUMNS, 4, memory_limit))
    assert [node for first, last in runs for node in range(first, last)] == list(range(NODES))
    degree = graph.load().in_degree()
    for first, last in runs:
        edges = int(degree[first:last].sum())
        assert last == first + 1 or 4 * edges + (last - first) * COLUMNS * 4 <= memory_limit


def test_empty_graphs_and_widths(tmp_path: Path) -> None:
    empty = ingest(torch.zeros((2, 0), dtype=torch.int64), tmp_path / "e", num_nodes=4, memory_limit=1000)
    assert aggregate_blocks(empty, torch.ones(4, 2), memory_limit=100).tolist() == [[0.0, 0.0]] * 4
    assert aggregate_blocks(empty, torch.ones(4, 0), memory_limit=100).shape == (4, 0)
    assert torch.equal(empty.load().offsets, InNeighbors.from_edge_index(torch.zeros(2, 0).long(), 4).offsets)


def test_wrong_rows_and_outputs_are_refused(graph: BlockedGraph) -> None:
    rows = rows_of(torch.float32)
    with pytest.raises(InputError, match="columns"):
        aggregate_blocks(graph, rows[:-1], memory_limit=1000)
    with pytest.raises(InputError, match="float32 or float64"):
        aggregate_blocks(graph, rows.to(torch.int32), memory_limit=1000)
    with pytest.raises(InputError, match="output"):
        aggregate_blocks(graph, rows, memory_limit=1000, out=torch.zeros(NODES, COLUMNS, dtype=torch.int64))
    with pytest.raises(InputError, match="noise scale"):
        aggregate_blocks(graph, rows, memory_limit=1000, noise=RowNoise(NoiseSource.seeded(0), "a", 0.0))
