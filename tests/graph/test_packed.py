"""Pairs of node numbers as 64-bit numbers, against plain Python."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hushgraph.graph.packed import distinct, offsets_of, pack, run_lengths, unpack_minor

PAIRS = st.lists(st.tuples(st.integers(0, 9) | st.just(2**31 - 1), st.integers(0, 9) | st.just(2**31 - 1)), max_size=40)


def unpacked(packed: np.ndarray) -> np.ndarray:
    """Majors and minors."""
    return np.stack((packed >> 32, packed & 0xFFFFFFFF))


def arrays(pairs: list[tuple[int, int]]) -> np.ndarray:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return pack(both[:, 0], both[:, 1])


@given(PAIRS)
def test_order_and_parts(pairs: list[tuple[int, int]]) -> None:
    packed = arrays(pairs)
    assert unpacked(np.sort(packed)).T.tolist() == [list(pair) for pair in sorted(pairs)]
    assert unpack_minor(packed).tolist() == [minor for _, minor in pairs]
    assert unpack_minor(packed).dtype == np.int32


@given(PAIRS)
def test_runs_of_one_major(pairs: list[tuple[int, int]]) -> None:
    packed = np.sort(arrays(pairs))
    once = sorted(set(pairs))
    assert unpacked(distinct(packed)).T.tolist() == [list(pair) for pair in once]
    expected = [len(list(group)) for _, group in groupby(sorted(pairs), key=lambda pair: pair[0])]
    assert run_lengths(packed).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_offsets(pairs: list[tuple[int, int]]) -> None:
    expected = [sum(major < node for major, _ in pairs) for node in range(11)]
    assert offsets_of(np.sort(arrays(pairs)), 10).tolist() == expected
