"""What there is to load: the built-in graphs, the benchmark files, the public datasets, and which are on this disk.

Nothing here reads data or imports torch. The number of classes of a known dataset is a public fact and stands here.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from numpy.lib import format as npy

from hushgraph.errors import InputError, did_you_mean

DATA_VARIABLE = "HUSHGRAPH_DATA"
CACHE_VARIABLE = "HUSHGRAPH_CACHE"


@dataclass(frozen=True)
class DatasetRecord:
    """One line of the list of datasets. `edges` counts stored (directed) entries; `None` means not known."""

    name: str
    kind: str
    nodes: int | None = None
    edges: int | None = None
    classes: int | None = None
    note: str = ""
    present: bool = False


@dataclass(frozen=True)
class PublicDataset:
    """How PyTorch Geometric (or OGB) makes a public dataset, and where below the root its files lie."""

    record: DatasetRecord
    maker: str
    argument: str | None
    folder: str
    raw: tuple[str, ...]
    tidy: bool

    def raw_folder(self, root: Path) -> Path:
        """Where the downloaded files are expected."""
        return root / self.folder / "raw"

    def is_present(self, root: Path) -> bool:
        """Whether the files have been downloaded already."""
        return all((self.raw_folder(root) / name).is_file() for name in self.raw)


BUILT_IN = (
    DatasetRecord("campus", "built-in", 8000, 299692, 6, "generated social network", True),
    DatasetRecord("digits", "built-in", 1797, 24680, 10, "nearest neighbors of scikit-learn's digits", True),
)
MAKERS = {"campus": "hushgraph.datasets.built_in:campus", "digits": "hushgraph.datasets.built_in:digits"}
"""Where the built-in graphs are made: "module:function"."""


def _file(name: str, nodes: int, edges: int, classes: int, note: str = "") -> DatasetRecord:
    return DatasetRecord(name, "file", nodes, edges, classes, note)


FILES = (
    _file("planetoid/cora", 2708, 10556, 7, "public split"),
    _file("planetoid/citeseer", 3327, 9104, 6, "public split; 15 nodes without a class"),
    _file("planetoid/pubmed", 19717, 88648, 3, "public split"),
    _file("cora_ml/cora_ml", 2995, 16316, 7),
    _file("coauthor_cs/coauthor_cs", 18333, 163788, 15),
    _file("coauthor_physics/coauthor_physics", 34493, 495924, 5),
    _file("amazon_computers/amazon_computers", 13752, 491722, 10),
    _file("facebook_pagepage/facebook_pagepage", 22470, 341646, 4),
    _file("twitch/DE", 9498, 306276, 2),
    _file("twitch/ENGB", 7126, 70648, 2),
    _file("twitch/ES", 4648, 118764, 2),
    _file("twitch/PTBR", 1912, 62598, 2),
    _file("lastfm_asia/lastfm_asia_nofeatures", 7624, 55612, 18, "no features: pass features='constant'"),
    _file("tolokers/tolokers", 11758, 1038000, 2, "ten public splits: split=0 to 9"),
    _file("facebook100/Berkeley13", 18939, 1354934, 6, "split file: facebook100/Berkeley13-split"),
    _file("facebook100/BU10", 17387, 1116776, 6),
    _file("facebook100/Cornell5", 15348, 1303452, 6, "split file: facebook100/Cornell5-split"),
    _file("facebook100/JohnsHopkins55", 4414, 325990, 6),
    _file("facebook100/Caltech36", 561, 26598, 4),
    _file("mnist/mnist", 70000, 0, 10, "pictures of 28 x 28; public=N: so many test pictures are public"),
    _file("fashion_mnist/fashion_mnist", 70000, 0, 10, "pictures of 28 x 28; public=N: as for mnist"),
    _file("orl_faces/orl_faces", 400, 0, 40, "pictures of 112 x 92, ten of each person in turn"),
)


def _public(
    name: str,
    maker: str,
    argument: str | None,
    folder: str,
    raw: tuple[str, ...],
    sizes: tuple[int, int | None, int],
    note: str = "",
    tidy: bool = False,
) -> PublicDataset:
    record = DatasetRecord(name, "download", *sizes, note=note)
    return PublicDataset(record, maker, argument, folder, raw, tidy)


def _planetoid(name: str, sizes: tuple[int, int, int], note: str = "public split") -> PublicDataset:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    raw = tuple(f"ind.{name.lower()}.{part}" for part in parts)
    return _public(name.lower(), "Planetoid", name, f"Planetoid/{name}", raw, sizes, note)


def _twitch(language: str, sizes: tuple[int, int, int]) -> PublicDataset:
    name, folder, raw = f"twitch-{language.lower()}", f"Twitch/{language}", (f"{language}.npz",)
    return _public(name, "Twitch", language, folder, raw, sizes, "self loops dropped", tidy=True)


_PPI_FILES = ("feats.npy", "graph_id.npy", "graph.json", "labels.npy")
_FLICKR_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
_OGB_FILES = ("edge.csv.gz", "node-feat.csv.gz")
_CITESEER_NOTE = "public split; 15 nodes without features, which PyTorch Geometric puts into class 0"

PUBLIC = (
    _planetoid("Cora", (2708, 10556, 7)),
    _planetoid("CiteSeer", (3327, 9104, 6), _CITESEER_NOTE),
    _planetoid("PubMed", (19717, 88648, 3)),
    _public("reddit", "Reddit", None, "Reddit", ("reddit_data.npz", "reddit_graph.npz"), (232965, 114615892, 41)),
    _public("coauthor-cs", "Coauthor", "CS", "Coauthor/CS", ("ms_academic_cs.npz",), (18333, 163788, 15)),
    _public(
        "coauthor-physics",
        "Coauthor",
        "Physics",
        "Coauthor/Physics",
        ("ms_academic_phy.npz",),
        (34493, 495924, 5),
    ),
    _public(
        "amazon-computers",
        "Amazon",
        "Computers",
        "Amazon/Computers",
        ("amazon_electronics_computers.npz",),
        (13752, 491722, 10),
    ),
    _public("amazon-photo", "Amazon", "Photo", "Amazon/Photo", ("amazon_electronics_photo.npz",), (7650, 238162, 8)),
    _public(
        "ppi",
        "PPI",
        None,
        "PPI",
        tuple(f"{part}_{file}" for part in ("train", "valid", "test") for file in _PPI_FILES),
        (56944, None, 121),
        "24 graphs as one, each in one part of the split; several classes a node",
        tidy=True,
    ),
    _public("flickr", "Flickr", None, "Flickr", _FLICKR_FILES, (89250, 899756, 7), "public split", tidy=True),
    _public(
        "facebook-pagepage",
        "FacebookPagePage",
        None,
        "FacebookPagePage",
        ("facebook.npz",),
        (22470, 341646, 4),
        "self loops dropped",
        tidy=True,
    ),
    _public("lastfm-asia", "LastFMAsia", None, "LastFMAsia", ("lastfm_asia.npz",), (7624, 55612, 18), tidy=True),
    _twitch("DE", (9498, 306276, 2)),
    _twitch("EN", (7126, 70648, 2)),
    _twitch("ES", (4648, 118764, 2)),
    _twitch("FR", (6551, 225332, 2)),
    _twitch("PT", (1912, 62598, 2)),
    _twitch("RU", (4385, 74608, 2)),
    _public(
        "ogbn-arxiv",
        "ogb",
        "ogbn-arxiv",
        "OGB/ogbn_arxiv",
        _OGB_FILES,
        (169343, 2315598, 40),
        "needs the package ogb; citations taken as undirected; public split",
        tidy=True,
    ),
    _public(
        "ogbn-products",
        "ogb",
        "ogbn-products",
        "OGB/ogbn_products",
        _OGB_FILES,
        (2449029, 123718280, 47),
        "needs the package ogb; public split; the few self loops counted here are dropped",
        tidy=True,
    ),
)


def data_folder() -> Path | None:
    """The folder of graph files, which HUSHGRAPH_DATA names; None when it is not set."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else None


def cache_folder(root: str | Path | None = None) -> Path:
    """The folder of downloads: `root`, else HUSHGRAPH_CACHE, else ~/.cache/hushgraph."""
    return Path(root or os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "hushgraph").expanduser()


def public_dataset(name: str) -> PublicDataset | None:
    """The public dataset of that name; capitals do not matter, and underscores may stand for hyphens."""
    plain = name.lower().replace("_", "-")
    return next((entry for entry in PUBLIC if entry.record.name == plain), None)


def known_file(name: str | Path) -> DatasetRecord | None:
    """The benchmark file of that name, or at that path: its last two parts are the name. `mnist` is `mnist/mnist`."""
    last_two = "/".join(Path(name).parts[-2:]).removesuffix(".npz")
    last_two = last_two if "/" in last_two else f"{last_two}/{last_two}"
    return next((record for record in FILES if record.name == last_two), None)


def require_known(name: str) -> None:
    """Refuse a word that is neither a file or folder, nor a name that could be one of a dataset."""
    path = Path(name).expanduser()
    if path.exists() or name in MAKERS or public_dataset(name) or known_file(name):
        return
    if path.is_absolute() or name.startswith("."):
        raise InputError(f"expected a graph at {name}; there is none; check the path")
    if "/" in name:
        return  # of a file in the data folder, which the loader looks for
    if path.suffix == ".npz":
        raise InputError(f"expected a graph file at {name}; there is none; check the path")
    records = available()
    if name not in (record.name for record in records):
        known = [record.name for record in records if "/" not in record.name]
        raise InputError(
            f"expected the path of a graph or the name of a dataset; there is no '{name}'. hushgraph import makes a "
            f"graph from your own files; {did_you_mean(name, known)}"
        )


def declares_classes(path: Path) -> bool:
    """Whether a graph file names its classes; only the headers of its arrays are read."""
    return not {"class_names", "class_years"}.isdisjoint(_array_shapes(path))


def holds_images(path: Path) -> bool:
    """Whether a file holds pictures instead of a graph; only the headers of its arrays are read."""
    shapes = _array_shapes(path)
    return "edge_index" not in shapes and any(len(shapes.get(name, ())) == 3 for name in ("x", "x_train"))


def available(root: str | Path | None = None) -> list[DatasetRecord]:
    """Everything `load` knows by name, with `present` telling what is on this disk.

    Only file names and array shapes are looked at; no features, edges or labels are read.
    """
    files, cache = data_folder(), cache_folder(root)
    known = [
        replace(record, present=files is not None and (files / f"{record.name}.npz").is_file()) for record in FILES
    ]
    names = {record.name for record in known}
    found = [record for record in _graph_files(files) if record.name not in names]
    public = [replace(entry.record, present=entry.is_present(cache)) for entry in PUBLIC]
    return [*BUILT_IN, *known, *found, *public]


def _graph_files(folder: Path | None) -> Iterator[DatasetRecord]:
    """The other graph files of the folder and of its folders."""
    if folder is None or not folder.is_dir():
        return
    for path in sorted([*folder.glob("*.npz"), *folder.glob("*/*.npz")]):
        shapes = _array_shapes(path)
        if {"edge_index", "y"} <= shapes.keys() and shapes["y"] and len(shapes["edge_index"]) == 2:
            names = shapes.get("class_names") or shapes.get("class_years") or (None,)
            name = path.relative_to(folder).with_suffix("").as_posix()
            yield DatasetRecord(name, "file", shapes["y"][0], shapes["edge_index"][1], names[0], "", True)


def _array_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays in an npz file, from their headers; empty for anything that is not one."""
    shapes = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    version = npy.read_magic(file)
                    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                    shapes[member.removesuffix(".npy")] = read(file)[0]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return {}
    return shapes
