"""Careful reading of npz archives: no pickled objects, and an error that names what is wrong with which array.

Refuse files that would run code when opened.

PyTorch Geometric reads some of its own files by unpickling: the raw files of Planetoid, npz files opened with pickles
allowed, and processed files, for which it falls back to plain unpickling. A pickle can run any program. These checks
read the files without executing anything and refuse what is not plain data, before PyTorch Geometric opens them.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hushgraph.errors import InputError
from hushgraph.files.npz import NpzFile
from hushgraph.text import visible

Shape = tuple[int | None, ...]


class Archive(NpzFile):
    """An npz file whose arrays are checked for type and shape, by their headers, before they are read."""

    def __enter__(self) -> Archive:
        return self

    def require(self, names: Iterable[str], what: str) -> None:
        """Refuse the file unless all `names` are in it; `what` begins the sentence that says what is expected."""
        wanted = list(names)
        missing = [name for name in wanted if name not in self]
        if missing:
            found = ", ".join(sorted(self.names)) or "nothing"
            raise InputError(f"{self.path}: {what} {', '.join(wanted)}; missing: {', '.join(missing)}; found: {found}")

    def columns(self, name: str) -> int:
        """How many columns a matrix has; 1 for any other array."""
        shape, _ = self.header(name)
        return int(shape[1]) if len(shape) == 2 else 1

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
        """A one-dimensional array of strings or whole numbers, as strings, without control characters."""
        return [visible(str(item)) for item in self._checked(name, (None,), "Uiu", "strings")]

    def _checked(self, name: str, shape: Shape, kinds: str, meaning: str) -> NDArray[Any]:
        self.require([name], "expected the array")
        found, kind = self.header(name)
        problems = []
        if kind.kind not in kinds:
            problems.append(f"{self.path}: expected {name} to hold {meaning}; got dtype {kind}")
        fits = len(found) == len(shape) and all(want in (None, got) for want, got in zip(shape, found))
        if not fits:
            wanted = ", ".join("any" if want is None else str(want) for want in shape)
            problems.append(f"{self.path}: expected {name} of shape ({wanted}); got {found}")
        InputError.collect(problems)
        return self.read(name)


# All that the Planetoid files need: arrays, sparse matrices, dictionaries of lists.
_PLAIN_TYPES = {
    "numpy ndarray",
    "numpy dtype",
    "numpy.core.multiarray _reconstruct",
    "numpy._core.multiarray _reconstruct",
    "scipy.sparse.csr csr_matrix",
    "scipy.sparse._csr csr_matrix",
    "collections defaultdict",
    "copy_reg _reconstructor",
    "copyreg _reconstructor",
    "__builtin__ object",
    "builtins object",
    "__builtin__ list",
    "builtins list",
    "_codecs encode",
}
# These name what to call in a way that cannot be read off without running the pickle.
_OPAQUE = {"STACK_GLOBAL", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "INST"}


def refuse_code_in_pickle(path: Path) -> None:
    """Pass a pickle only if everything it would call is a known plain type."""
    try:
        for operation, argument, _ in pickletools.genops(path.read_bytes()):
            if operation.name in _OPAQUE:
                raise _refusal(path, f"the operation {operation.name}")
            if operation.name == "GLOBAL" and argument not in _PLAIN_TYPES:
                raise _refusal(path, str(argument).replace(" ", "."))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path}: expected a complete pickle of arrays; it cannot be read") from error


def refuse_code_in_npz(path: Path) -> None:
    """Pass an npz archive only if no array in it holds pickled objects."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if _holds_objects(archive, member):
                    raise _refusal(path, f"pickled objects in {member}")
    except (zipfile.BadZipFile, OSError, ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: expected an npz archive of plain arrays; it cannot be read") from error


def _holds_objects(archive: zipfile.ZipFile, member: str) -> bool:
    with archive.open(member) as file:
        if not file.read(npy.MAGIC_LEN).startswith(npy.MAGIC_PREFIX):
            return False
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        return bool(read_header(file)[2].hasobject)


def refuse_code_in_torch(path: Path, hint: str = "delete it, it is made again from the raw files") -> None:
    """Pass a file saved by torch only if torch itself would load it as weights alone."""
    from torch.serialization import get_unsafe_globals_in_checkpoint

    try:
        unsafe = get_unsafe_globals_in_checkpoint(str(path))
    except Exception as error:
        raise InputError(f"{path}: expected a file saved by torch; it cannot be read; {hint}") from error
    if unsafe:
        raise _refusal(path, ", ".join(sorted(map(str, unsafe))))


def _refusal(path: Path, what: str) -> InputError:
    return InputError(
        f"{path}: expected plain data; got a file that would run code when opened ({what}); "
        "delete it and get it again from a source you trust"
    )
