"""Tensors as safetensors files, written and hashed one after the other: nothing is held twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO

import torch
from torch import Tensor

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
    """Name, kind, shape and bytes of every tensor; one that is not contiguous is copied while it is looked at."""
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
