from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.local import MultiBit, OneBit, PackedReport, SampledReport, pack, pack_bits, unpack, unpack_bits
from hushgraph.local.packing import bytes_per_person, layout


@settings(max_examples=120, deadline=None)
@given(people=st.integers(0, 40), dimensions=st.integers(1, 300), seed=st.integers(0, 2**32), data=st.data())
def test_round_trip_for_every_layout(people, dimensions, seed, data):
    sampled = data.draw(st.integers(1, dimensions))
    rng = np.random.default_rng(seed)
    report = MultiBit(2.0, dimensions, sampled=sampled).perturb(rng.uniform(size=(people, dimensions)), rng)
    packed = pack(report)
    back = unpack(packed)
    assert np.array_equal(back.index, report.index)
    assert np.array_equal(back.value, report.value)
    assert packed.data.shape == (people, bytes_per_person(sampled, dimensions))


def test_layouts_are_chosen_by_public_sizes():
    assert layout(1433, 1433) == "all"
    assert layout(1, 1433) == "codes"
    assert layout(1000, 1433) == "planes"
    assert bytes_per_person(1, 1433) == 2
    assert bytes_per_person(1433, 1433) == 180


def test_more_rows_than_one_block():
    rng = np.random.default_rng(0)
    report = MultiBit(1.0, 5).perturb(rng.uniform(size=(40_000, 5)), rng)
    assert np.array_equal(unpack(pack(report)).dense(np.int8), report.dense(np.int8))


def test_one_bit_round_trip():
    bits = OneBit(1.0).perturb(np.random.default_rng(0).uniform(size=(7, 13)))
    assert np.array_equal(unpack_bits(pack_bits(bits), 13), bits)


def test_changed_bytes_are_refused():
    with pytest.raises(InputError, match="feature numbers"):
        unpack(PackedReport(np.full((1, 2), 255, dtype=np.uint8), 1, 1433))
    with pytest.raises(InputError, match="bytes"):
        unpack(PackedReport(np.zeros((1, 3), dtype=np.uint8), 1, 1433))
    planes = pack(MultiBit(4.0, 6, sampled=5).perturb(np.zeros((2, 6))))
    with pytest.raises(InputError, match="sent features"):
        unpack(PackedReport(planes.data ^ np.uint8(128), 5, 6))


def test_only_signs_are_packed():
    with pytest.raises(InputError, match="signs"):
        pack(SampledReport(np.zeros((1, 1), dtype=int), np.array([[0.5]]), 4))
