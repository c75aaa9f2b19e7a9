"""Public benchmark graphs by name, through the loaders of PyTorch Geometric and of OGB.

Nothing is imported or downloaded until a dataset is asked for. Files are checked before they are opened (see
`archive`), and the edges come out as everywhere in this package: both directions, no self loops, no duplicates.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, remove_self_loops, to_undirected

from hushgraph.datasets import archive
from hushgraph.datasets.catalog import PUBLIC, PublicDataset, cache_folder, public_dataset
from hushgraph.datasets.splits import MASKS
from hushgraph.errors import HushgraphError, InputError, did_you_mean


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
        with torch.serialization.safe_globals(_plain_containers()), contextlib.redirect_stdout(sys.stderr):
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


def _plain_containers() -> list[Any]:
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
    dataset = maker(str(family)) if entry.argument is None else maker(str(family), entry.argument)
    data = dataset[0]
    return data, {name: data[name] for name in MASKS if isinstance(data.get(name), Tensor)}


def _uniform(entry: PublicDataset, raw: Data, masks: dict[str, Tensor], as_published: bool) -> Data:
    """The same attributes for every dataset, whatever its maker gave."""
    y = raw.y.flatten().to(torch.int64)
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
