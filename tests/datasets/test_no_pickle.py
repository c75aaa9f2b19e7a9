"""Files that would run code are refused without running it; plain ones pass."""

from __future__ import annotations

import collections
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from hushgraph.datasets.archive import refuse_code_in_npz, refuse_code_in_pickle, refuse_code_in_torch
from hushgraph.errors import InputError


class _Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.trace,))


PLAIN = [
    np.arange(4.0),
    sparse.csr_matrix(np.eye(3)),
    {0: [1, 2], 1: []},
    collections.defaultdict(list, {0: [1]}),
]


@pytest.mark.parametrize("value", PLAIN, ids=["array", "sparse", "dict", "defaultdict"])
def test_plain_pickles_pass(tmp_path: Path, value: object) -> None:
    path = tmp_path / "plain"
    written = pickle.dumps(value, protocol=2)
    path.write_bytes(written)
    refuse_code_in_pickle(path)  # refuses by raising
    assert path.read_bytes() == written


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_with_code_are_refused_unopened(tmp_path: Path, protocol: int) -> None:
    path, trace = tmp_path / "bad", tmp_path / "trace"
    path.write_bytes(pickle.dumps({"x": _Trap(trace)}, protocol=protocol))
    with pytest.raises(InputError, match="would run code"):
        refuse_code_in_pickle(path)
    assert not trace.exists()


def test_old_style_instances_and_rubbish_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b"(S'echo'\nios\nsystem\n.")
    with pytest.raises(InputError, match="INST"):
        refuse_code_in_pickle(path)
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(InputError, match="cannot be read"):
        refuse_code_in_pickle(path)


def test_npz(tmp_path: Path) -> None:
    path, trace = tmp_path / "a.npz", tmp_path / "trace"
    np.savez(path, a=np.zeros(3), b=np.array(["x"]))
    refuse_code_in_npz(path)
    np.savez(path, a=np.zeros(3), b=np.array([_Trap(trace)], dtype=object))
    with pytest.raises(InputError, match=r"pickled objects in b\.npy"):
        refuse_code_in_npz(path)
    path.write_bytes(pickle.dumps(_Trap(trace)))
    with pytest.raises(InputError, match="npz archive"):
        refuse_code_in_npz(path)
    assert not trace.exists()


def test_torch_files(tmp_path: Path) -> None:
    path, trace = tmp_path / "data.pt", tmp_path / "trace"
    torch.save({"x": torch.ones(2)}, path)
    refuse_code_in_torch(path)
    torch.save({"x": _Trap(trace)}, path)
    with pytest.raises(InputError, match="would run code"):
        refuse_code_in_torch(path)
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read"):
        refuse_code_in_torch(path)
    assert not trace.exists()
