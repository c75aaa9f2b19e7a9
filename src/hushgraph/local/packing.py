"""Bit-packed reports: what n people sent, in as few bytes as a fixed layout allows.

The layout depends only on the public sizes n, m and d, so the number of bytes says nothing about anyone.

- m = d (every feature sent): one bit per feature.
- otherwise the shorter of: m codes of ceil(log2(2 d)) bits per person (feature number and sign), or two bits per
  feature (sent or not, and the sign).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgraph.errors import InputError
from hushgraph.local.vectors import SampledReport

ROWS_AT_ONCE = 16_384
"""Rows unpacked to single bits at a time: keeps the working memory small."""


@dataclass(frozen=True)
class PackedReport:
    """Packed sign reports of `people` rows; `data` has one padded row of bytes per person."""

    data: np.ndarray
    sampled: int
    dimensions: int

    @property
    def people(self) -> int:
        """Number of rows."""
        return len(self.data)


def layout(sampled: int, dimensions: int) -> str:
    """Which of the three layouts is used: 'all', 'codes' or 'planes'. A function of public sizes only."""
    if sampled == dimensions:
        return "all"
    return "codes" if sampled * code_bits(dimensions) <= 2 * dimensions else "planes"


def code_bits(dimensions: int) -> int:
    """Bits of one (feature number, sign) code."""
    return (2 * dimensions - 1).bit_length()


def bytes_per_person(sampled: int, dimensions: int) -> int:
    """Length of one packed row."""
    bits = {"all": dimensions, "codes": sampled * code_bits(dimensions), "planes": 2 * dimensions}
    return (bits[layout(sampled, dimensions)] + 7) // 8


def pack_bits(bits: np.ndarray) -> np.ndarray:
    """Pack an (n, d) array of 0/1 (one-bit reports, unary labels) into (n, ceil(d/8)) bytes."""
    return np.packbits(np.asarray(bits, dtype=np.uint8), axis=1)


def unpack_bits(data: np.ndarray, dimensions: int) -> np.ndarray:
    """The inverse of `pack_bits`."""
    _check_bytes(data, (dimensions + 7) // 8)
    return np.unpackbits(data, axis=1, count=dimensions)


def pack(report: SampledReport) -> PackedReport:
    """Pack multi-bit reports (signs in {-1, +1}) row by row, without a Python loop over people."""
    if not (np.abs(report.value) == 1).all():
        raise InputError("expected signs in {-1, +1}; got other report values; pack only multi-bit reports")
    sampled, dimensions = report.index.shape[1], report.dimensions
    data = np.empty((len(report), bytes_per_person(sampled, dimensions)), dtype=np.uint8)
    packer = {"all": _pack_all, "codes": _pack_codes, "planes": _pack_planes}[layout(sampled, dimensions)]
    for start in range(0, len(report), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        data[rows] = packer(report.index[rows], report.value[rows] > 0, dimensions)
    return PackedReport(data, sampled, dimensions)


def unpack(packed: PackedReport) -> SampledReport:
    """The inverse of `pack`; bytes that no report packs to are refused."""
    sampled, dimensions = packed.sampled, packed.dimensions
    _check_bytes(packed.data, bytes_per_person(sampled, dimensions))
    unpacker = {"all": _unpack_all, "codes": _unpack_codes, "planes": _unpack_planes}[layout(sampled, dimensions)]
    index = np.empty((packed.people, sampled), dtype=np.int32)
    plus = np.empty((packed.people, sampled), dtype=bool)
    for start in range(0, packed.people, ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        index[rows], plus[rows] = unpacker(packed.data[rows], sampled, dimensions)
    if ((index < 0) | (index >= dimensions)).any() or (np.diff(index, axis=1) <= 0).any():
        raise InputError("expected sorted, different feature numbers; got others; the packed report was changed")
    return SampledReport(index, np.where(plus, 1, -1).astype(np.int8), dimensions)


def _check_bytes(data: np.ndarray, width: int) -> None:
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != width:
        raise InputError(f"expected (n, {width}) bytes; got {data.dtype} {data.shape}; check the sizes of the task")


def _pack_all(index: np.ndarray, plus: np.ndarray, dimensions: int) -> np.ndarray:
    return np.packbits(plus, axis=1)


def _unpack_all(data: np.ndarray, sampled: int, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    plus = np.unpackbits(data, axis=1, count=dimensions).astype(bool)
    return np.broadcast_to(np.arange(dimensions, dtype=np.int32), plus.shape), plus


def _pack_codes(index: np.ndarray, plus: np.ndarray, dimensions: int) -> np.ndarray:
    codes = (2 * index + plus).astype(np.int64)
    shifts = np.arange(code_bits(dimensions))[::-1]
    bits = ((codes[:, :, None] >> shifts) & 1).astype(np.uint8)
    return np.packbits(bits.reshape(len(codes), -1), axis=1)


def _unpack_codes(data: np.ndarray, sampled: int, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    width = code_bits(dimensions)
    bits = np.unpackbits(data, axis=1, count=sampled * width).reshape(len(data), sampled, width)
    codes = bits.astype(np.int64) @ (1 << np.arange(width)[::-1])
    return (codes >> 1).astype(np.int32), (codes & 1).astype(bool)


def _pack_planes(index: np.ndarray, plus: np.ndarray, dimensions: int) -> np.ndarray:
    planes = np.zeros((len(index), 2, dimensions), dtype=np.uint8)
    places = index.astype(np.intp)
    np.put_along_axis(planes[:, 0], places, 1, axis=1)
    np.put_along_axis(planes[:, 1], places, plus.astype(np.uint8), axis=1)
    return np.packbits(planes.reshape(len(index), -1), axis=1)


def _unpack_planes(data: np.ndarray, sampled: int, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    planes = np.unpackbits(data, axis=1, count=2 * dimensions).reshape(len(data), 2, dimensions)
    if (planes[:, 0].sum(axis=1) != sampled).any() or (planes[:, 1] > planes[:, 0]).any():
        raise InputError(f"expected {sampled} sent features in every row; got another number; the bytes were changed")
    rows, columns = np.nonzero(planes[:, 0])
    index = columns.reshape(len(data), sampled).astype(np.int32)
    return index, planes[:, 1][rows, columns].reshape(index.shape).astype(bool)
