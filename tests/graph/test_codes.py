from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.codes import WHOLE, check_codes, decoded, messages
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.edges import MemoryEdges


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, WHOLE))
def test_no_code_makes_more_of_a_message_than_its_sum(seed: int, columns: int, most: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(-1, columns, (20,), generator=generator)
    sums = torch.randint(0, most + 1, (20,), generator=generator)
    guesses = torch.rand(20, columns, generator=generator) ** 9
    guesses[3] = torch.nan
    guesses[4] = 0.0
    sent = messages(classes, columns, sums, guesses).values.to(torch.int64)
    codes = 1 - 2 * torch.randint(0, 2, (20, columns), generator=generator)
    assert bool((decoded(codes, sent).abs() <= sums).all())
    whole = (classes >= 0) | ~torch.isin(torch.arange(20), torch.tensor([3, 4]))
    assert torch.equal(sent.sum(dim=1)[whole], sums[whole])  # nothing is lost
    assert int(sent[~whole].sum()) == 0


def test_a_guess_is_shared_out_and_what_is_left_goes_to_the_likeliest() -> None:
    sent = messages(torch.tensor([-1, 1, -1]), 3, torch.tensor([10, 10, 10]), torch.tensor([[0.55, 0.25, 0.2]] * 3))
    assert sent.values.tolist() == [[6, 2, 2], [0, 10, 0], [6, 2, 2]]
    assert messages(torch.tensor([-1, 1]), 3, torch.tensor([10, 10])).values.tolist() == [[0, 0, 0], [0, 10, 0]]


def test_a_message_beyond_its_grid_is_refused() -> None:
    with pytest.raises(HushgraphError, match="within their sum"):
        messages(torch.tensor([0]), 2, torch.tensor([WHOLE + 1]))


@pytest.mark.parametrize("bad", ["a handle", torch.ones(3, 2), torch.full((3, 2), 2), torch.ones(3, dtype=torch.int8)])
def test_codes_that_are_no_public_signs_are_refused(bad: object) -> None:
    with pytest.raises(InputError, match="codes"):
        check_codes(bad)


def test_sums_over_receivers_are_the_same_from_memory_and_disk(tmp_path: object) -> None:
    generator = torch.Generator().manual_seed(1)
    index = torch.unique(torch.randint(0, 30, (2, 200), generator=generator), dim=1)
    values = torch.randint(0, 50, (30,), generator=generator)
    expected = torch.zeros(30, dtype=torch.int64).index_add_(0, index[0], values[index[1]])
    memory = MemoryEdges.from_edge_index(index, 30)
    disk = DiskEdges.write(tmp_path / "edges", [index], 30)  # type: ignore[operator]
    kept = index[0] != index[1]
    without_loops = torch.zeros(30, dtype=torch.int64).index_add_(0, index[0][kept], values[index[1][kept]])
    assert torch.equal(memory.out_sums(values), expected)
    assert torch.equal(disk.out_sums(values), without_loops)


@pytest.mark.parametrize("wrong", [torch.full((3, 2), -128, dtype=torch.int8), torch.full((3, 2), -(2**63))])
def test_the_smallest_whole_numbers_are_no_codes(wrong: torch.Tensor) -> None:
    """Their absolute value is negative on a computer."""
    with pytest.raises(InputError, match="-1, 0 or 1"):
        check_codes(wrong)


def test_codes_have_one_column_per_class() -> None:
    with pytest.raises(InputError, match="one column per class"):
        check_codes(torch.ones(3, 50, dtype=torch.int64), 1)
    with pytest.raises(InputError, match="one entry per node and class"):
        decoded(torch.ones(3, 50, dtype=torch.int64), torch.ones(3, 1, dtype=torch.int64))
