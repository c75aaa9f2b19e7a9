"""One door to every graph: built in, in a file, or public.

Public benchmark graphs by name, through the loaders of PyTorch Geometric and of OGB.

Nothing is imported or downloaded until a dataset is asked for. Files are checked before they are opened (see
`archive`), and the edges come out as everywhere in this package: both directions, no self loops, no duplicates.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, remove_self_loops, to_undirected

from hushgraph.datasets import archive
from hushgraph.datasets.catalog import (
    DATA_VARIABLE,
    MAKERS,
    PUBLIC,
    PublicDataset,
    available,
    cache_folder,
    data_folder,
    declares_classes,
    holds_images,
    known_file,
    public_dataset,
    require_known,
)
from hushgraph.datasets.public_edges import groups_of, split_edges
from hushgraph.datasets.splits import MASKS, has_split, random_split, split_from
from hushgraph.datasets.splits import project as reduced
from hushgraph.datasets.stored import is_stored, read_stored
from hushgraph.errors import HushgraphError, InputError, did_you_mean
from hushgraph.executors.base import as_executor
from hushgraph.ledger.manifest import GRAPH

Split = int | str | Path | tuple[float, ...] | list[float] | None


def load(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    split: Split = None,
    seed: int = 0,
    private_edges: float | str | None = None,
    public_only: bool = False,
    project: int | None = None,
    **options: Any,
) -> Data:
    """Load a graph by name (`available()` lists them), from an npz file, or from the folder, or the URL of a folder, of
    a graph that was imported or released.

    Names with a slash are files in the data folder, which the environment variable HUSHGRAPH_DATA names.

    root: the folder of downloads, for public datasets.
    split: "random"; three fractions (train, val, test); the path of a split file, or its name in the data folder; the
        number of a split, for files with several. Without it, the split that comes with the data, or else a random
        75/10/15 split.
    seed: for the random split, and for what is generated.
    private_edges: the share of pairs that is private, or the rule "array:column" by which pairs with the same public
        value are public and others private ("local_info:4", the house, in the facebook100 files); see `split_edges`.
    public_only: leave the private edges out, for a comparison with what is public anyway.
    project: how many features to keep, by a public random projection to [0, 1]; see `hushgraph.datasets.project`.
    options: passed to the reader, for example `num_nodes` for "campus", `task=False` for a file, or `memory="4GiB"` for
        an imported graph: what it may take decides whether its edges are used from memory or from the disk;
        `workers="ray"` or a `hushgraph.Ray` lets others add up its edges (docs/scale.md); `as_lists=True` keeps them in
        order, as `fit` uses them soonest and in the least memory: `edges` (`MemoryEdges`), and no `edge_index`.

    The result has `x` (dense or sparse CSR, float32), `edge_index`, `y`, the three masks, `name`, and `class_names`
    where they are declared.
    """
    _check_split(split)
    if isinstance(private_edges, str):
        options = {"keep": [private_edges.partition(":")[0]], **options}
    data = _with_split(_read(name_or_path, root, split, seed, options), split, seed)
    data = data if project is None else reduced(data, project)
    if private_edges is None:
        return data
    rule = groups_of(data, private_edges) if isinstance(private_edges, str) else private_edges
    data = split_edges(data, rule, seed)
    if public_only:
        data.edge_index = data.public_edge_index
    return data


def _with_split(data: Data, split: Split, seed: int) -> Data:
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
    if is_stored(source):
        if number is not None or options.keys() - {"memory", "workers", "as_lists"}:
            raise InputError(f"{name}: expected no split number and no options for an imported graph; got some")
        workers = options.get("workers")
        executor = None if workers is None else as_executor(workers)
        return read_stored(source, options.get("memory"), executor, as_lists=bool(options.get("as_lists")))
    path = _graph_file(source)
    known = known_file(path)
    if known is not None and not declares_classes(path):
        options = {"num_classes": known.classes, **options}
    if holds_images(path):
        from hushgraph.datasets.images import read_images

        data = _call(read_images, name, options, path)
    else:
        from hushgraph.datasets.npz import read_npz

        data = _call(read_npz, name, options, path, split=number)
    if Path(name).suffix != ".npz":
        data.name = name
    return data


def _read_named(name: str, root: str | Path | None, seed: int, options: dict[str, Any]) -> Data:
    if name in MAKERS:
        module, _, maker = MAKERS[name].partition(":")
        return _call(getattr(importlib.import_module(module), maker), name, options, seed=seed)
    from hushgraph.datasets.loading import load_public

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
    found = local_file(source)
    if found is not None:
        return found
    name = str(source)
    if Path(source).suffix == ".npz":
        raise InputError(f"expected a graph file at {source}; there is none; check the path")
    require_known(name)
    if (here := Path(name).expanduser()).is_dir():
        raise InputError(
            f"expected a graph; got the folder '{here}', in which no graph was stored. `hushgraph import` makes one "
            "from your own files; a trained model is for `hushgraph predict`"
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
    found = path if path.is_file() else local_file(split)
    if found is not None:
        return found
    where = "" if data_folder() is None else f" in {data_folder()}"
    raise InputError(
        f"expected split to be 'random', three fractions, a number or a split file; got '{split}', "
        f"which is neither a file nor the name of one{where}; check it, and {DATA_VARIABLE}"
    )


def local_file(source: str | Path) -> Path | None:
    """The npz file at this path, in the folder of a released graph, or of this name in the data folder."""
    path, folder = Path(source).expanduser(), data_folder()
    known = known_file(source)
    short = known.name if known is not None and path.name == str(source) else path  # mnist is mnist/mnist
    named = path if path.suffix == ".npz" else Path(f"{short}.npz")
    places = [path, path / GRAPH, *([] if folder is None else [folder / named])]
    try:
        return next((place for place in places if place.suffix == ".npz" and place.is_file()), None)
    except (OSError, ValueError):  # too long for a name, or with a character that no name has
        return None


def _check_split(split: object) -> None:
    if split is None or (isinstance(split, int | str | Path) and not isinstance(split, bool)):
        return
    if not isinstance(split, tuple | list) or len(split) != 3:
        raise InputError(
            "expected split to be 'random', three fractions (train, val, test), a number or a split file; "
            f"got {split!r}"
        )


def load_public(name: str, root: str | Path | None = None, *, as_published: bool = False) -> Data:
    """A public dataset by name (`available()` lists them), downloaded below `root` unless it is there already.

    root: the folder of downloads; without it, the environment variable HUSHGRAPH_CACHE or ~/.cache/hushgraph.
    as_published: keep the edges as they come. Otherwise self loops and duplicates are dropped and missing reverse
        directions are added.
    """
    entry = public_dataset(name)
    if entry is None:
        known = [each.record.name for each in PUBLIC]
        raise InputError(f"expected the name of a public dataset; got '{name}'; {did_you_mean(name, known)}")
    folder = cache_folder(root)
    maker = _import_maker(entry)
    try:
        # OGB and PyTorch Geometric report progress on standard output, which belongs to our caller.
        with torch.serialization.safe_globals(plain_containers()), contextlib.redirect_stdout(sys.stderr):
            for path in sorted((folder / entry.folder).rglob("*.pt")):
                archive.refuse_code_in_torch(path)
            raw_data, masks = _make(entry, _checked(maker, entry, folder), folder)
    except HushgraphError:
        raise
    except (Exception, SystemExit) as error:
        raise _failure(entry, folder, error) from error
    return _uniform(entry, raw_data, masks, as_published)


def _import_maker(entry: PublicDataset) -> Any:
    if entry.maker != "ogb":
        return getattr(importlib.import_module("torch_geometric.datasets"), entry.maker)
    try:
        return importlib.import_module("ogb.nodeproppred").PygNodePropPredDataset
    except ImportError as error:
        raise InputError(
            f"{entry.record.name} needs the package ogb, which cannot be imported ({error}); "
            "install it with: pip install ogb"
        ) from error


def plain_containers() -> list[Any]:
    """The holders of tensors that OGB saves and that torch would not load back on its own."""
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    return [DataEdgeAttr, DataTensorAttr, GlobalStorage]


def _checked(maker: Any, entry: PublicDataset, folder: Path) -> Any:
    """The maker with one step put before its processing: its raw files must be plain data."""

    def process(self: Any) -> None:
        for file in entry.raw:
            path = entry.raw_folder(folder) / file
            if entry.maker == "Planetoid" and not file.endswith("test.index"):
                archive.refuse_code_in_pickle(path)
            if file.endswith(".npz"):
                archive.refuse_code_in_npz(path)
        maker.process(self)

    return type(maker.__name__, (maker,), {"process": process})


def _make(entry: PublicDataset, maker: Any, folder: Path) -> tuple[Data, dict[str, Tensor]]:
    family = folder / entry.folder.split("/")[0]
    family.mkdir(parents=True, exist_ok=True)
    if entry.maker == "ogb":
        dataset = maker(name=entry.argument, root=str(family))
        parts = dataset.get_idx_split()
        names = zip(MASKS, ("train", "valid", "test"))
        return dataset[0], {mask: index_to_mask(parts[part], dataset[0].num_nodes) for mask, part in names}
    if entry.maker == "PPI":
        return _joined([maker(str(family), split=part) for part in ("train", "val", "test")])
    dataset = maker(str(family)) if entry.argument is None else maker(str(family), entry.argument)
    data = dataset[0]
    return data, {name: data[name] for name in MASKS if isinstance(data.get(name), Tensor)}


def _joined(parts: Sequence[Any]) -> tuple[Data, dict[str, Tensor]]:
    """The graphs of three parts as one graph without edges between them, and the masks of the parts."""
    from torch_geometric.data import Batch

    data = Batch.from_data_list([graph for part in parts for graph in part])
    sizes = torch.tensor([sum(int(graph.num_nodes or 0) for graph in part) for part in parts])
    of_node = torch.arange(len(parts)).repeat_interleave(sizes)
    return data, {name: of_node == number for number, name in enumerate(MASKS)}


def _uniform(entry: PublicDataset, raw: Data, masks: dict[str, Tensor], as_published: bool) -> Data:
    """The same attributes for every dataset, whatever its maker gave."""
    several = raw.y.dim() == 2 and raw.y.shape[1] > 1
    y = (raw.y if several else raw.y.flatten()).to(torch.int64)
    edges = raw.edge_index.to(torch.int64)
    if entry.tidy and not as_published:
        edges = to_undirected(remove_self_loops(edges)[0], num_nodes=len(y))
    return Data(
        x=raw.x.to(torch.float32),
        edge_index=edges,
        y=y,
        num_nodes=len(y),
        class_names=[str(number) for number in range(entry.record.classes or 0)],
        name=entry.record.name,
        **masks,
    )


def _failure(entry: PublicDataset, folder: Path, error: BaseException) -> InputError:
    where = entry.raw_folder(folder)
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    if entry.is_present(folder):
        return InputError(
            f"expected the files of {entry.record.name} in {where} to be readable; {reason}; "
            "delete them to download them again"
        )
    return InputError(
        f"could not download {entry.record.name} ({reason}); expected its files in {where}: "
        f"{', '.join(entry.raw)}; put them there, or check the connection and try again"
    )
