"""Archives: an array is judged by its header, bombs and lies are refused before memory is taken."""

from __future__ import annotations

import io
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hushgraph.datasets import read_npz
from hushgraph.errors import InputError
from hushgraph.files.npz import NpzFile

GOOD = {"y": np.array([0, 1]), "edge_index": np.array([[0, 1], [1, 0]]), "x": np.ones((2, 3), dtype=np.float32)}


def with_member(path: Path, name: str, content: bytes, **others: np.ndarray) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for other, array in others.items():
            with archive.open(f"{other}.npy", "w") as member:
                np.lib.format.write_array(member, array)
        archive.writestr(f"{name}.npy", content)
    return path


def header(shape: tuple[int, ...], kind: str = "<i8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def test_arrays_come_back_as_they_were_stored(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(6).reshape(2, 3),
        "b": np.asfortranarray(np.eye(3)),
        "c": np.array(["x", "é"]),
        "d": np.int8(3),
    }
    arrays["e"] = np.zeros((0, 4), dtype="<f4")
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    with NpzFile(tmp_path / "a.npz", of="arrays") as archive:
        found = {name: archive.read(name) for name in archive.names}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("shape", [(2**33,), (2**60,), (2**20, 2**20)])
def test_a_header_that_promises_gigabytes_is_refused_at_once(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = with_member(tmp_path / "bomb.npz", "y", header(shape) + bytes(1_000_000), edge_index=GOOD["edge_index"])
    before = peak()
    with pytest.raises(InputError, match=r"expected y to need at most|expected y of shape"):
        read_npz(path)
    assert peak() - before < 100


def test_a_bomb_of_zeros_is_refused_by_its_ratio(tmp_path: Path) -> None:
    count = 100 << 20
    path = with_member(
        tmp_path / "bomb.npz", "y", header((count,), "|i1") + bytes(count), edge_index=GOOD["edge_index"]
    )
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match="expected y to need at most 67,108,864 bytes"):
        read_npz(path)


@pytest.mark.parametrize("kind", ["|O", "<U1000000000"])
def test_objects_and_endless_words_are_refused(tmp_path: Path, kind: str) -> None:
    path = with_member(tmp_path / "a.npz", "class_names", header((3,), kind) + bytes(100), **GOOD)
    with pytest.raises(InputError, match="class_names"):
        read_npz(path)


def test_one_label_of_two_to_the_33_makes_no_billion_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{**GOOD, "y": np.array([0, 2**33])})
    with pytest.raises(InputError, match=r"expected at most 131,072 classes; got 8,589,934,593"):
        read_npz(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", **GOOD, num_classes=np.int64(2**40))
    with pytest.raises(InputError, match="expected at most 131,072 classes"):
        read_npz(tmp_path / "b.npz")


def test_a_renamed_member_is_noticed(tmp_path: Path) -> None:
    """The two places that name a member disagree: an optional array would vanish without a word."""
    np.savez(tmp_path / "a.npz", **GOOD, class_names=np.array(["a", "b"]))
    content = (tmp_path / "a.npz").read_bytes()
    at = content.rfind(b"class_names")
    (tmp_path / "a.npz").write_bytes(content[:at] + b"k" + content[at + 1 :])
    with pytest.raises(InputError, match="cannot be opened"):
        NpzFile(tmp_path / "a.npz")


def test_a_list_of_members_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    end = b"PK\x05\x06" + bytes(8) + (50 << 20).to_bytes(4, "little") + bytes(6)
    (tmp_path / "a.npz").write_bytes(bytes(1000) + end)
    with pytest.raises(InputError, match="its list of members has 52,428,800 bytes"):
        NpzFile(tmp_path / "a.npz")


def test_names_lose_what_steers_a_terminal(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **GOOD, class_names=np.array(["a\x1b]0;owned\x07", "b"]))
    assert read_npz(tmp_path / "a.npz").class_names == ["a\\x1b]0;owned\\x07", "b"]


def damaged(path: Path, at: int, new: bytes) -> Path:
    content = bytearray(path.read_bytes())
    content[at : at + len(new)] = new
    path.write_bytes(content)
    return path


def test_a_list_of_arrays_that_swallows_some_of_them_is_refused(tmp_path: Path) -> None:
    # The checksums of an archive cover its arrays, not their list: an entry whose comment is as long as all entries
    # behind it makes them vanish without a trace.
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **GOOD, train_mask=np.array([True, False]), class_names=np.array(["a", "b"]))
    content = path.read_bytes()
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"x.npy"))
    after = content.index(b"PK\x01\x02", entry + 4)
    rest = content.index(b"PK\x05\x06") - after
    damaged(path, entry + 32, rest.to_bytes(2, "little"))
    assert zipfile.ZipFile(path).namelist() == ["y.npy", "edge_index.npy", "x.npy"]  # and Python says nothing
    with pytest.raises(InputError, match="says that it holds 5 arrays and lists 3"):
        read_npz(path)
    damaged(path, path.stat().st_size - 12, (3).to_bytes(2, "little"))
    with pytest.raises(InputError, match="belongs to no array"):
        read_npz(path)


def test_bytes_between_arrays_are_refused_and_archives_from_a_pipe_are_not(tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError("a pipe")

    pipe = Pipe()
    np.savez_compressed(pipe, **GOOD)
    (tmp_path / "pipe.npz").write_bytes(pipe.getvalue())
    assert read_npz(tmp_path / "pipe.npz").num_nodes == 2
    np.savez(tmp_path / "a.npz", **GOOD)
    (tmp_path / "a.npz").write_bytes(b"#!/bin/sh\n" + (tmp_path / "a.npz").read_bytes())
    with pytest.raises(InputError, match="list of members does not end where"):
        read_npz(tmp_path / "a.npz")
