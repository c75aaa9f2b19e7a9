"""Options that name a graph, and the graph they name: its file or name, its split, its classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import tell
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from torch_geometric.data import Data as Graph

    from hushgraph.executors.base import Executor
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.privacy.units import Unit


def _names(incomplete: str) -> list[str]:
    """What a shell offers: datasets that are here. Where none fits, it offers files."""
    from hushgraph.datasets import available

    return [record.name for record in available() if record.present and record.name.startswith(incomplete)]


Data = Annotated[
    str,
    typer.Option(
        help="A dataset's name (see `hushgraph datasets`), a graph that `import` wrote, FILE.npz, FILE.graphml, ...",
        autocompletion=_names,
    ),
]
Split = Annotated[
    str | None, typer.Option(help="A file with train/val/test masks, or shares for a random split: 75/10/15.")
]
SplitSeed = Annotated[int | None, typer.Option(help="Seed of a random split; default: 0.")]
Directed = Annotated[bool, typer.Option("--directed", help="The file may hold edges in one direction only.")]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory for an imported graph, such as 4GiB; other edges stay on disk. Default: half of what is free.",
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        metavar="N|ray",
        help="What sums over the edges of an imported graph: processes, ray, ray:N, ray@HOST:PORT.",
    ),
]
Classes = Annotated[
    str | None, typer.Option(help="The classes, from public knowledge: their number, or names A,B,C in order.")
]


def require_data(name: str | None) -> None:
    """Refuse a name that stands for nothing, before anything large is imported."""
    from hushgraph.datasets.catalog import require_known

    if name is not None:
        require_known(name)


def load_graph(
    name: str,
    split: str | None = None,
    split_seed: int | None = None,
    *,
    directed: bool = False,
    classes: str | None = None,
    needs_split: bool = True,
    quiet: bool = False,
    memory: str | None = None,
    workers: Executor | None = None,
    as_lists: bool = False,
) -> Graph:
    """The graph, with the split and the classes that were asked for; says so where a split had to be made."""
    from hushgraph.datasets import random_split

    shares = None if split is None else _shares(split)
    how: dict[str, Any] = {"directed": directed, "quiet": quiet, "memory": memory, "workers": workers}
    graph = read_graph(name, None if shares else split, as_lists=as_lists, **how)
    made = "split_seed" in graph
    if shares is not None:
        graph = random_split(graph, *shares, seed=split_seed or 0)
    elif split_seed is not None and not made:
        raise InputError("--split-seed: expected a random split, --split 75/10/15; got a split that is fixed")
    elif split_seed is not None:
        graph = random_split(graph, seed=split_seed)
    elif made and needs_split and _is_own(name):
        tell(f"{name} has no split: a random one was made, 75/10/15 with seed 0 (--split, --split-seed)")
    return graph if classes is None else _with_classes(graph, classes)


def read_graph(
    name: str,
    split: str | None = None,
    *,
    directed: bool = False,
    quiet: bool = False,
    memory: str | None = None,
    workers: Executor | None = None,
    as_lists: bool = False,
) -> Graph:
    """The graph of a name, a file or a folder; of another tool's file, says what was done to it."""
    from hushgraph.datasets import load
    from hushgraph.datasets.stored import is_stored
    from hushgraph.importing.formats import is_whole_graph
    from hushgraph.importing.tables import is_table

    if is_table(name):
        raise InputError(
            f"{name}: expected a graph; got a table. What its columns mean has to be said once: hushgraph import "
            f"--edges {name} --nodes NODES --id COLUMN --label COLUMN --undirected --out my.graph; then --data my.graph"
        )
    if not is_whole_graph(name):
        options: dict[str, Any] = {"directed": True} if directed else {}
        if is_stored(name):
            wanted = {"memory": memory, "workers": workers, "as_lists": as_lists or None}
            options |= {option: value for option, value in wanted.items() if value is not None}
        return load(name, split=split, **options)
    from hushgraph.datasets.splits import split_from
    from hushgraph.importing.graph import Graph as Own

    graph = Own.read(name)
    for one in () if quiet else graph.findings:
        tell(f"{name}: {one}")
    return graph if split is None else split_from(graph, split)


def why_separate(name: str, unit: Callable[[], Unit], ledger: Ledger) -> str | None:
    """The answer for a released graph that the ledger confirms: its edges are private, whatever it resembles.

    Features and labels in it are the real ones, so it is refused under a `unit` that protects those, named or not.
    """
    from hushgraph.files.reading import read_json
    from hushgraph.ledger.certificate import Certificate
    from hushgraph.ledger.manifest import CERTIFICATE, GRAPH, verify_model

    folder = Path(name)
    if not (folder / GRAPH).is_file() or not (folder / CERTIFICATE).is_file():
        return None
    protected = unit()
    if not {"features", "labels"} <= protected.public:
        raise InputError(
            f"{name}: expected the real graph under the unit '{protected.name}'; got a released one. Its edges are "
            "noisy, but its records are the real ones and would be charged to nobody. Train on the real graph, or with "
            "a unit that leaves features and labels public, such as undirected-edge"
        )
    if verify_model(folder, ledger).exit_code != 0:
        return None
    certificate = Certificate.from_dict(read_json(folder / CERTIFICATE, of="the certificate of a released graph"))
    if certificate.unpublished or not certificate.is_private:
        return None  # its edges were charged to nobody, or its noise can be drawn again
    return "a graph released from it: what is protected is noisy already"


def _is_own(name: str) -> bool:
    from hushgraph.datasets.stored import is_stored
    from hushgraph.importing.formats import is_whole_graph

    return name.endswith(".npz") or is_stored(name) or is_whole_graph(name)


def _shares(split: str) -> tuple[float, float, float] | None:
    """Three shares of 100 from words like 75/10/15; None where it is the name of a file."""
    parts = split.split("/")
    if len(parts) != 3:
        return None
    try:
        given = [float(part) for part in parts]
    except ValueError:
        return None
    if sum(given) <= 1.0 + 1e-9 or not sum(given) <= 100.0 + 1e-9 or min(given) < 0.0:
        raise InputError(f"--split: expected three shares of 100, such as 75/10/15; got {split}")
    train, val, test = (share / 100 for share in given)
    return train, val, test


def _with_classes(graph: Graph, words: str) -> Graph:
    """The graph with declared classes; they may not contradict those that it declares itself."""
    names = [str(number) for number in range(int(words))] if words.isdecimal() else words.split(",")
    stored = graph.get("class_names")
    if stored is not None and words.isdecimal() and len(stored) == len(names):
        return graph
    if stored is not None and list(stored) != names:
        raise InputError(f"--classes: expected those of the data, {len(stored)}: {','.join(stored)}; got {words}")
    graph.class_names = names
    return graph
