"""Archives are read with care and refused with a reason."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from hushgraph.datasets.archive import Archive
from hushgraph.errors import InputError


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle was loaded",))


def _save(folder: Path, **arrays: object) -> Path:
    path = folder / "a.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_reads_each_kind(tmp_path: Path) -> None:
    path = _save(
        tmp_path, i=np.int8([1, -1]), b=np.array([True]), f=np.float64([[0.5]]), u=np.uint8([[3]]), w=["x", "é"]
    )
    with Archive(path) as archive:
        assert archive.integers("i", (2,)).dtype == np.int64
        assert archive.booleans("b", (None,)).tolist() == [True]
        assert archive.numbers("f", (1, 1)).dtype == np.float32
        assert archive.numbers("u", (None, 1)).tolist() == [[3.0]]
        assert archive.words("w") == ["x", "é"]
        assert archive.words("i") == ["1", "-1"]
        assert "i" in archive
        assert "q" not in archive


def test_wrong_type_and_shape_are_reported_together(tmp_path: Path) -> None:
    with Archive(_save(tmp_path, y=np.zeros((2, 2)))) as archive, pytest.raises(InputError) as caught:
        archive.integers("y", (4,))
    assert "2 problems" in str(caught.value)
    assert "float64" in str(caught.value)
    assert "(2, 2)" in str(caught.value)


def test_missing_arrays_are_named_with_what_was_found(tmp_path: Path) -> None:
    with Archive(_save(tmp_path, a=np.zeros(1))) as archive, pytest.raises(InputError) as caught:
        archive.require(["a", "b", "c"], "a file holds")
    assert "a file holds a, b, c; missing: b, c; found: a" in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_refuses_numbers_that_are_not_finite_in_float32(tmp_path: Path, value: float) -> None:
    with Archive(_save(tmp_path, x=np.array([value, 1.0]))) as archive, pytest.raises(InputError, match="got 1"):
        archive.numbers("x", (2,))


def test_refuses_integers_beyond_int64(tmp_path: Path) -> None:
    with Archive(_save(tmp_path, x=np.array([2**63], np.uint64))) as archive, pytest.raises(InputError):
        archive.integers("x", (1,))


def test_never_unpickles(tmp_path: Path) -> None:
    trap = np.array([_Trap()], dtype=object)
    with Archive(_save(tmp_path, y=trap)) as archive, pytest.raises(InputError, match="pickled objects"):
        archive.integers("y", (1,))
    bare = tmp_path / "bare.npz"
    bare.write_bytes(pickle.dumps(_Trap()))
    with pytest.raises(InputError, match="npz archive"):
        Archive(bare)


def test_refuses_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is none"):
        Archive(tmp_path / "absent.npz")
    with pytest.raises(InputError, match="there is none"):
        Archive(tmp_path)
    np.save(tmp_path / "one.npy", np.zeros(2))
    with pytest.raises(InputError, match="single array"):
        Archive(tmp_path / "one.npy")
    (tmp_path / "empty.npz").touch()
    with pytest.raises(InputError, match="cannot be opened"):
        Archive(tmp_path / "empty.npz")


def test_refuses_a_file_that_is_cut_off(tmp_path: Path) -> None:
    path = _save(tmp_path, y=np.arange(1000))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match="cannot be opened"):
        Archive(path)
