"""One door to every graph: built in, in a file, or public."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from hushgraph.datasets.catalog import (
    DATA_VARIABLE,
    available,
    data_folder,
    known_file,
    public_dataset,
)
from hushgraph.datasets.splits import has_split, random_split, split_from
from hushgraph.errors import InputError, did_you_mean

Split = int | str | Path | tuple[float, ...] | list[float] | None


def load(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    split: Split = None,
    seed: int = 0,
    **options: Any,
) -> Data:
    """Load a graph by name (`available()` lists them) or from an npz file.

    root: the folder of downloads, for public datasets.
    split: "random"; three fractions (train, val, test); the path of a split file, or its name in the data folder; the
        number of a split, for files with several. Without it, the split that comes with the data, or else a random
        75/10/15 split.
    seed: for the random split, and for what is generated.
    options: passed to the reader, for example `num_nodes` for "campus" or `task=False` for a file.

    The result has `x` (dense or sparse CSR, float32), `edge_index`, `y`, the three masks, `class_names` and `name`.
    """
    _check_split(split)
    data = _read(name_or_path, root, split, seed, options)
    if split == "random":
        return random_split(data, seed=seed)
    if isinstance(split, str | Path):
        return split_from(data, _split_file(split))
    if isinstance(split, tuple | list):
        train, val, test = split
        return random_split(data, train, val, test, seed=seed)
    return data if has_split(data) else random_split(data, seed=seed)


def _read(source: str | Path, root: str | Path | None, split: Split, seed: int, options: dict[str, Any]) -> Data:
    name = str(source)
    number = split if isinstance(split, int) else None
    if name in ("campus", "digits") or public_dataset(name):
        if number is not None:
            raise InputError(f"expected a split number only for files with several splits; got {number} for {name}")
        return _read_named(name, root, seed, options)
    path = _graph_file(source)
    from hushgraph.datasets.npz import read_npz

    known = known_file(name)
    if known is not None:
        options = {"num_classes": known.classes, **options}
    data = _call(read_npz, name, options, path, split=number)
    if Path(name).suffix != ".npz":
        data.name = name
    return data


def _read_named(name: str, root: str | Path | None, seed: int, options: dict[str, Any]) -> Data:
    if name == "campus":
        from hushgraph.datasets.campus import campus

        return _call(campus, name, options, seed=seed)
    if name == "digits":
        from hushgraph.datasets.digits import digits

        return _call(digits, name, options, seed=seed)
    from hushgraph.datasets.public import load_public

    return _call(load_public, name, options, name, root=root)


def _call(reader: Callable[..., Data], name: str, options: dict[str, Any], *given: Any, **fixed: Any) -> Data:
    """Call the reader, with a clear answer to an option it does not have."""
    parameters = list(inspect.signature(reader).parameters)[len(given) :]
    allowed = [parameter for parameter in parameters if parameter not in fixed]
    InputError.collect(
        f"expected an option of '{name}'; got '{option}'; {did_you_mean(option, allowed)}"
        for option in options
        if option not in allowed
    )
    return reader(*given, **fixed, **options)


def _graph_file(source: str | Path) -> Path:
    """The file a path or a name stands for."""
    path = Path(source).expanduser()
    if path.suffix == ".npz" and path.is_file():
        return path
    named = data_folder() / (path if path.suffix == ".npz" else f"{source}.npz")
    if named.is_file():
        return named
    name = str(source)
    if path.suffix == ".npz":
        raise InputError(f"expected a graph file at {path}; there is none; check the path")
    if known_file(name) is not None or "/" in name:
        raise _missing_file(name, named)
    known = [record.name for record in available()]
    raise InputError(
        f"expected the name of a dataset or the path of an npz file; got '{name}'; {did_you_mean(name, known)}"
    )


def _missing_file(name: str, expected: Path) -> InputError:
    folder = data_folder()
    if not folder.is_dir():
        return InputError(
            f"expected the file of '{name}' in the data folder {folder}; there is no such folder; "
            f"set {DATA_VARIABLE} to the folder that holds the graph files"
        )
    known = [record.name for record in available() if record.kind == "file" and record.present]
    return InputError(f"expected the file of '{name}' at {expected}; there is none; {did_you_mean(name, known)}")


def _split_file(split: str | Path) -> Path:
    path = Path(split).expanduser()
    if path.is_file():
        return path
    named = data_folder() / (path if path.suffix == ".npz" else f"{split}.npz")
    if named.is_file():
        return named
    raise InputError(
        f"expected split to be 'random', three fractions, a number or a split file; got '{split}', "
        f"which is neither a file nor in the data folder {data_folder()}"
    )


def _check_split(split: object) -> None:
    if split is None or (isinstance(split, int | str | Path) and not isinstance(split, bool)):
        return
    if not isinstance(split, tuple | list) or len(split) != 3:
        raise InputError(
            "expected split to be 'random', three fractions (train, val, test), a number or a split file; "
            f"got {split!r}"
        )
