"""Tensors in files: as the library of the format reads and writes them."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save

from hushgraph.files.reading import hash_of_tensors, tensors_hash
from hushgraph.files.tensors import KINDS, described, write_tensors


def some_tensors() -> dict[str, torch.Tensor]:
    kinds = {f"of/{name}": torch.arange(6).to(kind).reshape(2, 3) for kind, name in KINDS.items()}
    return {**kinds, "one": torch.tensor(3.5), "none": torch.empty(0, 4), "turned": torch.arange(6).reshape(2, 3).t()}


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    tensors = some_tensors()
    with (tmp_path / "t.safetensors").open("wb") as file:
        write_tensors(file, tensors, {"ledger": "abc"})
    with safe_open(tmp_path / "t.safetensors", framework="pt") as found:
        assert found.metadata() == {"ledger": "abc"}
        assert set(found.keys()) == set(tensors)
        for name, tensor in tensors.items():
            assert found.get_tensor(name).dtype is tensor.dtype
            assert torch.equal(found.get_tensor(name), tensor)


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    tensors = some_tensors()
    with (tmp_path / "t.safetensors").open("wb") as file:
        write_tensors(file, tensors, {"ledger": "abc"})
    expected = tensors_hash(save({name: tensor.contiguous() for name, tensor in tensors.items()}))
    assert tensors_hash((tmp_path / "t.safetensors").read_bytes()) == expected
    assert hash_of_tensors(described(dict(sorted(tensors.items())))) == expected
