"""Rows of whole numbers: their exact integer norm stays within the bound, whatever the rows are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph import quantized
from hushgraph.graph.quantized import RowsInParts, _Bound, quantize

HUGEST = float(np.finfo(np.float32).max)
EDGES = [2.0**k * (1 + sign * 2.0**-24) for k in (-140, -30, -12, -1, 0, 1, 40, 100) for sign in (-1, 0, 2)]
ENTRIES = st.sampled_from([0.0, 2.0**-149, 1e-45, 1e-20, 1 / 3, 0.6, 0.8, 1.0, 1e19, 1e30, HUGEST, *EDGES])
SIGNED = st.tuples(ENTRIES, st.sampled_from([1.0, -1.0])).map(lambda pair: pair[0] * pair[1])
TABLES = st.integers(1, 64).flatmap(
    lambda columns: st.lists(
        st.lists(SIGNED | st.floats(-2, 2), min_size=columns, max_size=columns), min_size=1, max_size=6
    )
)


def squared(row: Tensor) -> int:
    """The squared norm in Python's integers; refuses what is not whole."""
    values = row.tolist()
    assert all(value == int(value) for value in values)
    return sum(int(value) ** 2 for value in values)


@given(table=TABLES, bits=st.integers(1, 20), normalize=st.booleans(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_no_row_exceeds_its_bound_in_exact_integers(
    table: list[list[float]], bits: int, normalize: bool, data: st.DataObject
) -> None:
    rows = torch.tensor(table, dtype=data.draw(st.sampled_from([torch.float32, torch.float64])))
    norms = data.draw(st.none() | st.lists(st.floats(1e-3, 1e3), min_size=len(table), max_size=len(table)))
    lengths = data.draw(st.none() | st.lists(st.integers(0, 10**6), min_size=len(table), max_size=len(table)))
    norm = 1.0 if norms is None else torch.tensor(norms, dtype=torch.float64)
    result = quantize(
        rows, norm, bits=bits, lengths=None if lengths is None else torch.tensor(lengths), normalize=normalize
    )
    assert result.values.dtype == (torch.int16 if bits <= 14 else torch.int32)
    largest = Fraction(1) if norms is None else Fraction(max(norms))
    for number, row in enumerate(result.values):
        share = Fraction(1) if norms is None else Fraction(norms[number]) / largest
        copies = 1 if lengths is None else max(lengths[number], 1)
        assert squared(row) * copies <= (2**bits * share) ** 2
        assert float(row.abs().max()) <= 2**bits


@pytest.mark.parametrize("normalize", [False, True])
def test_rows_made_in_parts_are_those_of_a_whole(normalize: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(100_000, 7, generator=draw)  # several parts, the last one shorter
    norms = torch.where(torch.rand(len(rows), generator=draw) < 0.5, 1.0, 0.5)
    norms[:40_000] = 0.5  # the largest norm is not in the first part
    how = {"bits": 14, "lengths": torch.randint(0, 90, (len(rows),), generator=draw), "normalize": normalize}
    asked = []

    def part(where: slice) -> torch.Tensor:
        asked.append(where)
        return rows[where]

    whole, in_parts = (quantize(one, norms, **how) for one in (rows, RowsInParts((100_000, 7), part)))
    assert len(asked) > 2
    assert in_parts.step == whole.step == 2.0**-14
    assert torch.equal(in_parts.values, whole.values)


def test_a_limit_is_never_above_the_square_of_the_norm_however_the_ratio_is_rounded() -> None:
    """Norms whose squared ratio lies just below a whole number of steps: double precision alone would reach it."""
    rng, bits = np.random.default_rng(0), 12
    largest, whole = rng.uniform(0.5, 2.0, 3_000), rng.integers(1, 4**bits, 3_000)
    norms = np.nextafter(largest * np.sqrt(whole) / 2.0**bits, 0.0)
    above = 0
    for top, norm in zip(largest, norms, strict=True):
        limits = _Bound.of(
            torch.tensor([top, norm], dtype=torch.float64), torch.tensor(top, dtype=torch.float64), bits, None, False
        ).limits
        exact = (2**bits * Fraction(float(norm)) / Fraction(float(top))) ** 2
        above += int(limits[1]) > exact
    assert above == 0


@given(table=TABLES, bits=st.integers(1, 20), normalize=st.booleans())
@settings(max_examples=150, deadline=None)
def test_entries_are_cut_toward_zero_by_less_than_one(table: list[list[float]], bits: int, normalize: bool) -> None:
    rows = torch.tensor(table, dtype=torch.float32)
    result = quantize(rows, bits=bits, normalize=normalize)
    assert result.step == 2.0**-bits
    # 80-bit floats hold the square of every float32.
    exact = rows.numpy().astype(np.longdouble)
    sizes = np.sqrt((exact**2).sum(1, keepdims=True))
    sizes = np.where(sizes == 0, 1, sizes) if normalize else np.maximum(sizes, 1)
    ideal = (exact / sizes * 2**bits).astype(np.float64)
    found = result.values.numpy().astype(np.float64)
    room = 2.0**bits * 2.0**-15  # float32 computes the scale; too long rows lose 2^-16
    assert (np.abs(found) <= np.abs(ideal) + room).all()
    assert (np.abs(ideal) - np.abs(found) < 1 + room).all()
    assert (found * ideal >= 0).all()


@pytest.mark.parametrize("value", [1.0, 2.0**-149, HUGEST, 1e-30, 1e25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_single_entry_of_any_size_is_scaled_to_the_whole_bound(value: float, dtype: torch.dtype) -> None:
    rows = torch.zeros(3, 5, dtype=dtype)
    rows[0, 2], rows[1, 4] = value, -value
    assert quantize(rows, normalize=True).values.tolist() == [[0, 0, 4096, 0, 0], [0, 0, 0, 0, -4096], [0] * 5]


def test_float64_rows_beyond_float32_work() -> None:
    rows = torch.tensor([[3e300, -4e300], [3e-310, 4e-310], [1e300, 1e-300]], dtype=torch.float64)
    assert quantize(rows, normalize=True).values.tolist() == [[2457, -3276], [2457, 3276], [4096, 0]]
    assert quantize(rows).values.tolist() == [[2457, -3276], [0, 0], [4096, 0]]


def test_one_hot_rows_are_exact_and_shared_ones_too() -> None:
    rows = torch.eye(4)
    assert torch.equal(quantize(rows).values, (4096 * rows).to(torch.int16))
    shared = quantize(rows, lengths=torch.tensor([1, 4, 0, 5])).values.diagonal()
    assert shared.tolist() == [4096, 2048, 4096, 1831]  # 4096 / sqrt(5) = 1831.8


def test_short_rows_keep_their_length_unless_normalized() -> None:
    rows = torch.tensor([[0.25, 0.0], [3.0, 4.0]])
    assert quantize(rows).values.tolist() == [[1024, 0], [2457, 3276]]
    assert quantize(rows, normalize=True).values.tolist() == [[4096, 0], [2457, 3276]]
    assert quantize(rows, norm=2.0, bits=4).step == 0.125
    assert quantize(rows, norm=2.0, bits=4).values.tolist() == [[2, 0], [9, 12]]
    kinds = quantize(rows, norm=torch.tensor([0.125, 1.0]))
    assert kinds.values.tolist() == [[512, 0], [2457, 3276]]
    assert kinds.step == 2.0**-12


@given(seed=st.integers(0, 10**6), columns=st.integers(1, 64), place=st.integers(0, 299), normalize=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_row_depends_on_itself_alone(seed: int, columns: int, place: int, normalize: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(300, columns, generator=generator) * torch.rand(300, 1, generator=generator).pow(8)
    other = rows.clone()
    other[place] = float("1e30")
    before, after = quantize(rows, normalize=normalize).values, quantize(other, normalize=normalize).values
    assert before[torch.arange(300) != place].equal(after[torch.arange(300) != place])
    assert torch.equal(quantize(rows[place : place + 1], normalize=normalize).values[0], before[place])


def test_chunks_and_threads_do_not_change_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(5000, 33, generator=torch.Generator().manual_seed(1))
    whole = quantize(rows, normalize=True).values
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(quantize(rows, normalize=True).values, whole)
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(quantized, "_CHUNK", 200)
    assert torch.equal(quantize(rows, normalize=True).values, whole)


def test_rows_that_rounding_left_too_long_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    # A scale that is a little too large, as a less exact square root would give.
    norm = torch.linalg.vector_norm
    monkeypatch.setattr(torch.linalg, "vector_norm", lambda rows, dim: norm(rows, dim=dim) * (1 - 1e-5))
    rows = torch.eye(64) + torch.eye(64).roll(1, dims=0)
    result = quantize(rows, normalize=True)
    assert 0.99 * 4**12 < max(squared(row) for row in result.values) <= 4**12
    monkeypatch.setattr(quantized, "_SHORTER", 1.0)
    with pytest.raises(HushgraphError, match="within their bound"):
        quantize(rows, bits=20, normalize=True)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_row_that_is_not_finite_becomes_zero_and_moves_no_other(
    bad: float, dtype: torch.dtype, normalize: bool
) -> None:
    rows = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = quantize(rows, normalize=normalize).values.clone()
    expected[7] = 0.0
    rows[7, 1] = bad
    assert torch.equal(quantize(rows, normalize=normalize).values, expected)


def test_what_has_no_bound_is_refused_all_at_once() -> None:
    with pytest.raises(InputError) as error:
        quantize(torch.zeros(3), norm=-1.0, bits=30, lengths=torch.zeros(2))
    for part in ("float rows", "norms from", "bits", "list length"):
        assert part in str(error.value)
    for wrong in (0.0, float("nan"), float("inf"), torch.tensor([1.0, 2.0])):
        with pytest.raises(InputError, match="norm"):
            quantize(torch.zeros(3, 2), norm=wrong)


def test_empty_tables() -> None:
    assert quantize(torch.zeros(0, 3)).values.shape == (0, 3)
    assert quantize(torch.zeros(3, 0)).values.shape == (3, 0)
    assert quantize(torch.zeros(0, 3), norm=torch.zeros(0, dtype=torch.float64)).step > 0
