"""Arrays in npz archives, read one by one: what an array would need is judged by its header, before any of it is read.

Nothing is unpickled. An archive that unpacks to much more than its own size (a zip bomb) is refused: an array may have
64 MB, or 200 times as many bytes as it takes in the file. Checksums cover the arrays, but not the list of them: an
archive whose list has another length than it says, or whose arrays leave a gap, is refused as one that lost some.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hushgraph.errors import HushgraphError, InputError

MOST_ARRAYS = 1_000
SMALL = 64 << 20
LARGEST_RATIO = 200
_LONGEST_HEADER = 10_000
_MOST_DIRECTORY = 1 << 20
_PIECE = 1 << 20
_SIZES_FOLLOW = 0x08  # a flag: checksum and sizes of a member stand behind it, in an archive written to a pipe
_SIZES: tuple[int, ...] = (12, 16, 20, 24)
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ArithmeticError,
    SyntaxError,
    MemoryError,
)


class NpzFile:
    """The plain arrays of an npz archive. Use it in a `with` statement."""

    def __init__(self, path: str | os.PathLike[str], *, of: str = "an npz archive") -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"expected {of} at {self.path}; there is none; check the path")
        try:
            with open(self.path, "rb") as file:
                self._refuse_single(file.read(len(npy.MAGIC_PREFIX)), of)
                count, start = _read_directory(file)
                self._zip = zipfile.ZipFile(self.path)
                for info in self._zip.infolist():  # compares the two places that name a member
                    self._zip.open(info).close()
                _refuse_gaps(file, self._zip.infolist(), count, start)
        except _DAMAGE as error:
            if isinstance(error, HushgraphError):
                raise
            raise InputError(f"{self.path}: expected {of}; it cannot be opened as one ({_said(error)})") from error
        self._members = self._listed(of)

    def _refuse_single(self, first: bytes, of: str) -> None:
        if first == npy.MAGIC_PREFIX:
            raise InputError(f"{self.path}: expected {of}; got a single array (npy); use np.savez")

    def _listed(self, of: str) -> dict[str, zipfile.ZipInfo]:
        infos = self._zip.infolist()
        names = [info.filename.removesuffix(".npy") for info in infos]
        if len(set(names)) != len(names) or len(names) > MOST_ARRAYS:
            self.close()
            raise InputError(f"{self.path}: expected {of} of at most {MOST_ARRAYS} arrays, each once; got others")
        return dict(zip(names, infos))

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    @property
    def names(self) -> list[str]:
        """The names of the arrays."""
        return list(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and kind of an array, without its values."""
        try:
            with self._zip.open(self._members[name]) as file:
                shape, _, kind = _read_header(file)
        except _DAMAGE as error:
            raise self._unreadable(name, error) from error
        return shape, kind

    def read(self, name: str) -> NDArray[Any]:
        """An array; refused where it holds objects, is cut off, or would take more memory than it should."""
        info = self._members[name]
        try:
            with self._zip.open(info) as file:
                shape, fortran, kind = _read_header(file)
                need = math.prod(shape) * kind.itemsize
                self._judge(name, info, need)
                content, got = np.empty(need, dtype=np.uint8), 0
                while got < need and (piece := file.read(min(_PIECE, need - got))):
                    content[got : got + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
                    got += len(piece)
                rest = file.read(1)  # the end of the member is where its checksum is compared
        except _DAMAGE as error:
            if isinstance(error, HushgraphError):
                raise
            raise self._unreadable(name, error) from error
        if got != need or rest:
            raise InputError(f"{self.path}: expected a plain array {name}; it cannot be read; the file may be cut off")
        array = content.view(kind) if need else np.empty(0, dtype=kind)
        return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)

    def _judge(self, name: str, info: zipfile.ZipInfo, need: int) -> None:
        most = max(SMALL, LARGEST_RATIO * info.compress_size)
        if need > most:
            raise InputError(
                f"{self.path}: expected {name} to need at most {most:,} bytes, {LARGEST_RATIO} times what it takes in "
                f"the file; it would need {need:,}. Store what it really holds, without compression if it must be"
            )

    def _unreadable(self, name: str, error: Exception) -> InputError:
        objects = "object" in str(error).lower() or "pickle" in str(error).lower()
        reason = (
            "holds pickled objects, which are never loaded; store plain numbers or strings"
            if objects
            else "cannot be read; the file may be cut off"
        )
        return InputError(f"{self.path}: expected a plain array {name}; it {reason}")


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        shape, fortran, kind = read(file, max_header_size=_LONGEST_HEADER)
    except Exception as error:  # numpy tries to repair headers as Python source, which fails in ways of its own
        raise ValueError(_said(error)) from error
    if kind.hasobject:
        raise ValueError("it holds Python objects")
    if kind.names is not None or kind.subdtype is not None or any(length < 0 for length in shape):
        raise ValueError("it is no plain array")
    return shape, fortran, kind


def _read_directory(file: BinaryIO) -> tuple[int, int]:
    """How many members the archive says it has, and where their list starts.

    A list that alone would fill the memory is refused, because `zipfile` reads it whole; so is one that does not end
    where the end of the archive begins.
    """
    size = file.seek(0, os.SEEK_END)
    first = max(0, size - 65_557)
    file.seek(first)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 22:
        raise ValueError("no list of members was found")
    count, length, start = struct.unpack("<HLL", tail[at + 10 : at + 20])
    if 0xFFFFFFFF in (length, start) or count == 0xFFFF:
        at = tail.rfind(b"PK\x06\x06", 0, at)
        if at < 0 or len(tail) < at + 56:
            raise ValueError("no list of members was found")
        count, length, start = struct.unpack("<QQQ", tail[at + 32 : at + 56])
    if length > _MOST_DIRECTORY:
        raise ValueError(f"its list of members has {length:,} bytes")
    if start + length != first + at:
        raise ValueError("its list of members does not end where the archive says")
    return count, start


def _refuse_gaps(file: BinaryIO, infos: list[zipfile.ZipInfo], count: int, start: int) -> None:
    """Refuse an archive that lists fewer members than it says, or holds bytes that belong to none of them."""
    if len(infos) != count:
        raise ValueError(f"it says that it holds {count} arrays and lists {len(infos)}")
    ends = 0
    gaps: tuple[int, ...] = (0,)
    for info in sorted(infos, key=lambda one: one.header_offset):
        if info.header_offset - ends not in gaps:
            raise ValueError(f"what stands before {info.filename!r} belongs to no array, or to two")
        file.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
        ends = info.header_offset + 30 + name + extra + info.compress_size
        gaps = _SIZES if info.flag_bits & _SIZES_FOLLOW else (0,)
    if start - ends not in gaps:
        raise ValueError("what stands before its list of members belongs to no array, or to two")


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
