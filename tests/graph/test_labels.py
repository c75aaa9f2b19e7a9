"""Quantized labels: within their bound in exact integers, and as long as the grid allows."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph import labels as labels_module
from hushgraph.graph import sums as sums_module
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.labels import quantize_labels


@given(
    columns=st.integers(1, 3_000),
    bits=st.integers(1, 14),
    length=st.none() | st.integers(0, 2**31),
    centered=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_rows_are_within_their_bound_and_hardly_shorter(
    columns: int, bits: int, length: int | None, centered: bool
) -> None:
    lengths = None if length is None else torch.tensor([length])
    found = quantize_labels(torch.tensor([0]), columns, bits=bits, lengths=lengths, centered=centered)
    hot, cold, copies = int(found.hot), int(found.cold), max(length or 1, 1)
    assert copies * (hot**2 + (columns - 1) * cold**2) <= 4**bits
    ideal = 2.0**bits / math.sqrt(copies) * (math.sqrt((columns - 1) / columns) if centered else 1.0)
    assert ideal - 1 - 1e-9 <= hot <= ideal + 1e-9
    assert cold <= 0
    assert abs(cold) <= (ideal / max(columns - 1, 1) + 1e-9 if centered else 0)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.9, 1.0])
def test_a_single_class_has_no_entry_for_others(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry for all others had the wrong sign for compiled loops; with a large mean it was counted as too long."""
    found = quantize_labels(torch.tensor([0, -1]), 1, lengths=torch.tensor([1, 1]), centered=True, mean_share=share)
    assert found.cold.tolist() == [0, 0]
    assert found.hot.tolist() == [int(4096 * math.sqrt(share))] * 2
    edges = MemoryEdges.from_edge_index(torch.tensor([[0, 1, 0], [1, 0, 1]]), 2)
    plain = edges.sum(found)
    monkeypatch.setattr(sums_module, "LEAST_COMPILED", 0)
    assert torch.equal(edges.sum(found), plain)


def test_rows_written_out() -> None:
    found = quantize_labels(torch.tensor([2, -1, 0]), 3, centered=True)
    assert found.dense().values.tolist() == [[-1672, -1672, 3344], [0, 0, 0], [3344, -1672, -1672]]
    assert found.step == 2.0**-12
    shared = quantize_labels(torch.tensor([2, -1, 0]), 3, lengths=torch.tensor([4, 1, 0]))
    assert shared.dense().values.tolist() == [[0, 0, 2048], [0, 0, 0], [4096, 0, 0]]


def test_sums_without_compiled_loops() -> None:
    edges = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
    sums = MemoryEdges.from_edge_index(edges, 3).sum(quantize_labels(torch.tensor([1, -1, 0]), 2))
    assert sums.tolist() == [[4096, 0], [4096, 4096], [0, 0]]


def test_a_root_that_is_rounded_up_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    root = torch.Tensor.sqrt
    monkeypatch.setattr(torch.Tensor, "sqrt", lambda value: root(value) + 1.0)
    assert int(quantize_labels(torch.tensor([0]), 2).hot) == 4096
    monkeypatch.setattr(torch.Tensor, "sqrt", lambda value: root(value) + 2.0)
    with pytest.raises(HushgraphError, match="within their bound"):
        quantize_labels(torch.tensor([0]), 2)


def test_what_cannot_be_sent_is_refused_all_at_once() -> None:
    with pytest.raises(InputError) as error:
        quantize_labels(torch.tensor([3]), 3, bits=15, lengths=torch.tensor([1.0]))
    for part in ("classes from 0 to 2", "bits", "list length"):
        assert part in str(error.value)
    with pytest.raises(InputError, match="int64"):
        quantize_labels(torch.tensor([0.5]), 3)
    with pytest.raises(InputError, match="classes"):
        quantize_labels(torch.tensor([0]), labels_module.MOST_CLASSES + 1)


@pytest.mark.parametrize("mean_share", [0.0, 0.1])
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("longest", [0, 1, 98, 99, 100, 101, 5_000])
def test_a_node_has_the_entries_of_its_length_however_many_lengths_there_are(
    longest: int, centered: bool, mean_share: float
) -> None:
    draw = torch.Generator().manual_seed(longest)
    classes, lengths = torch.randint(-1, 7, (100,), generator=draw), torch.arange(100).clamp(max=longest)
    lengths[17] = longest
    options = {"bits": 14, "centered": centered, "mean_share": mean_share}
    found = quantize_labels(classes, 7, lengths=lengths, **options)
    alone = [quantize_labels(classes[i : i + 1], 7, lengths=lengths[i : i + 1], **options) for i in range(100)]
    for name in ("classes", "hot", "cold"):
        assert torch.equal(getattr(found, name), torch.cat([getattr(one, name) for one in alone]))
