"""Careful reading of npz archives: no pickled objects, and an error that names what is wrong with which array."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from hushgraph.errors import InputError

Shape = tuple[int | None, ...]


class Archive:
    """An npz file whose arrays are checked for type and shape as they are read. Use it in a `with` statement."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"expected an npz file at {self.path}; there is none; check the path")
        try:
            opened = np.load(self.path, allow_pickle=False)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
            raise InputError(f"{self.path}: expected an npz archive; it cannot be opened as one") from error
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise InputError(f"{self.path}: expected an npz archive; got a single array (npy); use np.savez")
        self._arrays = opened

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._arrays.close()

    def __contains__(self, name: str) -> bool:
        return name in self._arrays.files

    def require(self, names: Iterable[str], what: str) -> None:
        """Refuse the file unless all `names` are in it; `what` begins the sentence that says what is expected."""
        wanted = list(names)
        missing = [name for name in wanted if name not in self]
        if missing:
            found = ", ".join(sorted(self._arrays.files)) or "nothing"
            raise InputError(f"{self.path}: {what} {', '.join(wanted)}; missing: {', '.join(missing)}; found: {found}")

    def integers(self, name: str, shape: Shape) -> NDArray[np.int64]:
        """An array of whole numbers, as int64. `None` in `shape` stands for any length."""
        array = self._checked(name, shape, "iu", "integers")
        if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise InputError(f"{self.path}: expected {name} to fit into int64; got {int(array.max())}")
        return array.astype(np.int64)

    def booleans(self, name: str, shape: Shape) -> NDArray[np.bool_]:
        """An array of booleans."""
        return self._checked(name, shape, "b", "booleans")

    def numbers(self, name: str, shape: Shape) -> NDArray[np.float32]:
        """An array of finite numbers of any kind, as float32."""
        with np.errstate(over="ignore"):
            array = self._checked(name, shape, "biuf", "numbers").astype(np.float32)
        if not np.isfinite(array).all():
            bad = int((~np.isfinite(array)).sum())
            raise InputError(
                f"{self.path}: expected finite numbers in {name}; got {bad} that are NaN or infinite in float32"
            )
        return array

    def words(self, name: str) -> list[str]:
        """A one-dimensional array of strings or whole numbers, as strings."""
        return [str(item) for item in self._checked(name, (None,), "Uiu", "strings")]

    def _checked(self, name: str, shape: Shape, kinds: str, meaning: str) -> NDArray:
        array = self._read(name)
        problems = []
        if array.dtype.kind not in kinds:
            problems.append(f"{self.path}: expected {name} to hold {meaning}; got dtype {array.dtype}")
        fits = len(array.shape) == len(shape) and all(want in (None, got) for want, got in zip(shape, array.shape))
        if not fits:
            wanted = ", ".join("any" if want is None else str(want) for want in shape)
            problems.append(f"{self.path}: expected {name} of shape ({wanted}); got {array.shape}")
        InputError.collect(problems)
        return array

    def _read(self, name: str) -> NDArray:
        self.require([name], "expected the array")
        try:
            array = self._arrays[name]
        except (ValueError, EOFError, OSError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
            pickled = "object" in str(error).lower()
            reason = (
                "holds pickled objects, which are never loaded; store plain numbers or strings"
                if pickled
                else "cannot be read; the file may be cut off"
            )
            raise InputError(f"{self.path}: expected a plain array {name}; it {reason}") from error
        if not isinstance(array, np.ndarray):
            raise InputError(f"{self.path}: expected {name} to be an array; got other bytes")
        return array
