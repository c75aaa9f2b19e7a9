"""External sort: equal to an ordinary sort, in pieces that stay small and whole."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.graph import external_sort as module
from hushgraph.graph.external_sort import external_sort, read_array


@pytest.fixture(autouse=True)
def _tiny_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SMALLEST_RUN", 1)


@given(
    chunks=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=30), max_size=8),
    room=st.integers(1, 60),
    whole=st.booleans(),
    left=st.sets(st.integers(0, 3)),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equals_an_ordinary_sort(
    tmp_path_factory: pytest.TempPathFactory,
    chunks: list[list[tuple[int, int]]],
    room: int,
    whole: bool,
    left: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("sort")
    for number in left:
        (folder / f"run-{number}.tmp").write_bytes(b"left by a killed process")
    arrays = [np.array([a << 32 | b for a, b in chunk], dtype=np.int64) for chunk in chunks]
    pieces = list(external_sort(arrays, folder, room, whole_majors=whole))
    everything = np.concatenate([np.empty(0, np.int64), *arrays])
    assert np.array_equal(np.concatenate([np.empty(0, np.int64), *pieces]), np.sort(everything))
    for before, after in itertools.pairwise(pieces):
        assert before[-1] < after[0]
        if whole:
            assert before[-1] >> 32 < after[0] >> 32
    assert all(len(piece) for piece in pieces)
    assert {path.name for path in folder.iterdir()} <= {f"run-{number}.tmp" for number in left}


@pytest.mark.parametrize("order", ["random", "sorted", "reversed"])
def test_pieces_stay_within_the_room(tmp_path: Path, order: str) -> None:
    values = np.random.default_rng(0).permutation(5000).astype(np.int64)
    values = {"random": values, "sorted": np.sort(values), "reversed": np.sort(values)[::-1]}[order]
    pieces = list(external_sort(np.array_split(values, 13), tmp_path, 300))
    assert max(map(len, pieces)) <= 300
    assert np.array_equal(np.concatenate(pieces), np.arange(5000))


def test_the_chunks_are_left_alone(tmp_path: Path) -> None:
    chunk = np.array([3, 1, 2], dtype=np.int64)
    list(external_sort([chunk], tmp_path, 10))
    assert chunk.tolist() == [3, 1, 2]


def test_a_short_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values.bin"
    np.arange(4, dtype="<i8").tofile(path)
    assert read_array(path, np.dtype("<i8"), 1, 3).tolist() == [1, 2, 3]
    assert len(read_array(path, np.dtype("<i8"), 9, 0)) == 0
    with pytest.raises(InputError, match="ends before"):
        read_array(path, np.dtype("<i8"), 2, 3)
