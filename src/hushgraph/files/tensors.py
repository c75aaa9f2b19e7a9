"""Tensors in safetensors files: read, and written and hashed one after the other, so that nothing is held twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hushgraph.errors import InputError

KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What the format calls the kinds of numbers."""


def described(tensors: dict[str, Tensor]) -> Iterator[tuple[str, str, list[int], memoryview]]:
    """Name, kind, shape and bytes of every tensor in turn; one that is not contiguous is copied while it is read."""
    for name, tensor in tensors.items():
        values = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
        yield name, KINDS[tensor.dtype], list(tensor.shape), values


def write_tensors(file: IO[bytes], tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file."""
    ordered = dict(sorted(tensors.items(), key=lambda one: (-one[1].element_size(), one[0])))
    header: dict[str, object] = {"__metadata__": metadata}
    place = 0
    for name, tensor in ordered.items():
        end = place + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, _, _, values in described(ordered):
        file.write(values)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(f"expected a readable {path.name} in {path.parent}: {error}") from error
