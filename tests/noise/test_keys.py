"""Named keys, and random bits that are the same however they are asked for."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.noise import keys
from hushgraph.noise.keys import BlockFunction, KeyStream, derive_key

KEY = bytes(range(32))


def test_key_stream_is_aes_256_in_counter_mode() -> None:
    # Counter mode is the cipher applied to 0, 1, 2, ...; the block function applies the same cipher directly.
    key = bytes(range(32))
    words = keys.KeyStream(key).words(0, 8)
    low = np.arange(4, dtype=np.uint64).byteswap()
    blocks = keys.BlockFunction(key).words(0, low)
    assert words[::2].astype(np.uint64).tolist() == blocks.tolist()


@given(first=st.integers(0, 2**40), cuts=st.lists(st.integers(0, 300), max_size=5))
@settings(max_examples=50, deadline=None)
def test_words_are_the_same_in_any_parts(first: int, cuts: list[int]) -> None:
    whole = KeyStream(KEY).words(first, 300)
    stream = KeyStream(KEY)
    edges = sorted({0, 300, *cuts})
    parts = [stream.words(first + a, b - a) for a, b in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(stream.words(first, 300), whole)


def test_more_bits_leave_the_first_ones_in_front() -> None:
    function = BlockFunction(KEY)
    few, many = function.bits(77, 2), function.bits(77, 5)
    assert many >> (3 * 64) == few
    assert few >> 64 == int(function.words(0, np.array([77]))[0])
    assert function.bits(78, 2) != few


def test_no_two_lists_of_names_give_one_key() -> None:
    names = [("a",), ("a", ""), ("ab",), ("a", "b"), ("", "ab"), ("a", b"\x00"), ("a", "\x00" * 9)]
    assert len({derive_key(KEY, *parts) for parts in names}) == len(names)
    assert derive_key(KEY, "a") != derive_key(bytes(32), "a")
