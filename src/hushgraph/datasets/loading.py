"""One door to every graph: built in, in a file, or public."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from hushgraph.datasets.catalog import (
    DATA_VARIABLE,
    MAKERS,
    available,
    data_folder,
    declares_classes,
    known_file,
    public_dataset,
)
from hushgraph.datasets.splits import has_split, random_split, split_from
from hushgraph.errors import InputError, did_you_mean
from hushgraph.ledger.manifest import GRAPH

Split = int | str | Path | tuple[float, ...] | list[float] | None


def load(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    split: Split = None,
    seed: int = 0,
    **options: Any,
) -> Data:
    """Load a graph by name (`available()` lists them), from an npz file, or from the folder of a released graph.

    Names with a slash are files in the data folder, which the environment variable HUSHGRAPH_DATA names.

    root: the folder of downloads, for public datasets.
    split: "random"; three fractions (train, val, test); the path of a split file, or its name in the data folder; the
        number of a split, for files with several. Without it, the split that comes with the data, or else a random
        75/10/15 split.
    seed: for the random split, and for what is generated.
    options: passed to the reader, for example `num_nodes` for "campus" or `task=False` for a file.

    The result has `x` (dense or sparse CSR, float32), `edge_index`, `y`, the three masks, `name`, and `class_names`
    where they are declared.
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
    if name in MAKERS or public_dataset(name):
        if number is not None:
            raise InputError(f"expected a split number only for files with several splits; got {number} for {name}")
        return _read_named(name, root, seed, options)
    path = _graph_file(source)
    from hushgraph.datasets.npz import read_npz

    known = known_file(path)
    if known is not None and not declares_classes(path):
        options = {"num_classes": known.classes, **options}
    data = _call(read_npz, name, options, path, split=number)
    if Path(name).suffix != ".npz":
        data.name = name
    return data


def _read_named(name: str, root: str | Path | None, seed: int, options: dict[str, Any]) -> Data:
    if name in MAKERS:
        module, _, maker = MAKERS[name].partition(":")
        return _call(getattr(importlib.import_module(module), maker), name, options, seed=seed)
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
    found = _existing(source)
    if found is not None:
        return found
    name = str(source)
    if Path(source).suffix == ".npz":
        raise InputError(f"expected a graph file at {source}; there is none; check the path")
    if known_file(name) is None and "/" not in name:
        known = [record.name for record in available()]
        raise InputError(
            f"expected the name of a dataset or the path of an npz file; got '{name}'; {did_you_mean(name, known)}"
        )
    folder = data_folder()
    if folder is None or not folder.is_dir():
        given = "it is not set" if folder is None else f"there is no folder {folder}"
        raise InputError(f"expected {DATA_VARIABLE} to name the folder that holds '{name}'; {given}; set it")
    present = [record.name for record in available() if record.kind == "file" and record.present]
    raise InputError(
        f"expected the file of '{name}' at {folder / name}.npz; there is none; {did_you_mean(name, present)}"
    )


def _split_file(split: str | Path) -> Path:
    path = Path(split).expanduser()
    found = path if path.is_file() else _existing(split)
    if found is not None:
        return found
    where = "" if data_folder() is None else f" in {data_folder()}"
    raise InputError(
        f"expected split to be 'random', three fractions, a number or a split file; got '{split}', "
        f"which is neither a file nor the name of one{where}; check it, and {DATA_VARIABLE}"
    )


def _existing(source: str | Path) -> Path | None:
    """The npz file at this path, in the folder of a released graph, or of this name in the data folder."""
    path, folder = Path(source).expanduser(), data_folder()
    named = path if path.suffix == ".npz" else Path(f"{path}.npz")
    places = [path, path / GRAPH, *([] if folder is None else [folder / named])]
    return next((place for place in places if place.suffix == ".npz" and place.is_file()), None)


def _check_split(split: object) -> None:
    if split is None or (isinstance(split, int | str | Path) and not isinstance(split, bool)):
        return
    if not isinstance(split, tuple | list) or len(split) != 3:
        raise InputError(
            "expected split to be 'random', three fractions (train, val, test), a number or a split file; "
            f"got {split!r}"
        )
