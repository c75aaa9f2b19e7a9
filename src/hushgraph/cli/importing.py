"""`hushgraph import`: tables and files of other tools become a graph for `--data`."""

from __future__ import annotations

import contextlib
import datetime
import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import Json, command, echo, progress_bar, show_json, show_words
from hushgraph.cli.deferred import BESIDE_TENSORS, deferred
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from hushgraph.graph.targets import NumberRange
    from hushgraph.importing.importer import Imported
    from hushgraph.importing.nodes import NodeColumns

Repeated = list[str] | None


@command
def import_graph(
    out: Annotated[Path, typer.Option(help="Folder for the graph, such as my.graph; must be new.")],
    source: Annotated[
        Path | None, typer.Argument(help="A whole graph: .graphml, node-link .json, PyG .pt, or a folder of OGB.")
    ] = None,
    edges: Annotated[
        list[Path] | None,
        typer.Option(
            help="A table of edges: .csv, .tsv, .txt, .parquet, .arrow, .npy; or .gz; or a folder of them; repeatable."
        ),
    ] = None,
    nodes: Annotated[Path | None, typer.Option(help="A table of nodes, one row each.")] = None,
    num_nodes: Annotated[int | None, typer.Option(help="Instead of --nodes: ids are 0 to N - 1.", metavar="N")] = None,
    id_column: Annotated[str, typer.Option("--id", help="The column of nodes with their ids.")] = "id",
    label: Annotated[str | None, typer.Option(help="The column of nodes with their classes.")] = None,
    classes: Annotated[str | None, typer.Option(help="The classes, from public knowledge: A,B,C in order.")] = None,
    number_range: Annotated[
        str | None,
        typer.Option(
            "--range", metavar="LOW:HIGH[:PARTS]", help="Instead of --classes: labels are numbers in this public range."
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="The column of nodes with train, val and test.")] = None,
    numeric: Annotated[
        Repeated, typer.Option(metavar="COLUMN=LOW:HIGH", help="A number and its public range; repeatable.")
    ] = None,
    date: Annotated[
        Repeated, typer.Option(metavar="COLUMN=FIRST:LAST", help="A date and its public range; repeatable.")
    ] = None,
    category: Annotated[
        Repeated, typer.Option(metavar="COLUMN=A,B,C", help="A word and its public list; repeatable.")
    ] = None,
    hashed: Annotated[
        Repeated,
        typer.Option(
            metavar="COLUMN=BUCKETS", help="A word from an open list, and how many buckets to hash it into; repeatable."
        ),
    ] = None,
    as_is: Annotated[
        Repeated, typer.Option(metavar="COLUMN", help="Numbers used as they are; x* for several; repeatable.")
    ] = None,
    ignore: Annotated[
        Repeated, typer.Option(metavar="COLUMN", help="A column of nodes to leave out; '*' for all others; repeatable.")
    ] = None,
    source_column: Annotated[str | None, typer.Option("--source", help="The column where an edge starts.")] = None,
    target_column: Annotated[str | None, typer.Option("--target", help="The column where it ends.")] = None,
    edge_type: Annotated[str | None, typer.Option(help="The column of edges with their types.")] = None,
    edge_types: Annotated[str | None, typer.Option(help="The types, from public knowledge: A,B,C in order.")] = None,
    public_edges: Annotated[
        Path | None,
        typer.Option(help="A table like --edges: edges that everybody knows. --unit private-edge protects all others."),
    ] = None,
    directed: Annotated[
        bool | None, typer.Option("--directed/--undirected", help="Whether a row of edges has a direction; required.")
    ] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether the first line of edges holds column names.")
    ] = None,
    drop_unknown: Annotated[
        bool, typer.Option("--drop-unknown", help="Drop edges of nodes or types that were not declared.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Import a graph from your own tables, or from a file of another tool, for use with --data.

    Features are made by public rules only: a range or a list of words is declared, never read off the data.
    """
    InputError.collect(_problems(source, edges, nodes, num_nodes, out, directed, public_edges))
    if source is not None and (edge_type is not None or edge_types is not None):
        raise InputError("--edge-type: expected a table of edges (--edges); got a whole graph")
    features = declared_features(numeric, category, hashed, as_is, date)
    named = _classes(classes, number_range)
    with deferred(BESIDE_TENSORS):
        from hushgraph.importing.edges import EdgeColumns
        from hushgraph.importing.importer import import_files, import_whole
        from hushgraph.importing.nodes import NodeColumns

    columns = NodeColumns(id_column, label, split, features, named, _words(ignore))
    if source is not None:
        done = import_whole(out, source, columns)
    else:
        assert edges
        kinds = tuple([] if edge_types is None else _list(edge_types))
        ends = EdgeColumns(source_column, target_column, directed, drop_unknown, edge_type, kinds)
        with _told_how_to_go_on(out), progress_bar(as_json, "reading") as progress:
            more: dict[str, Any] = {"num_nodes": num_nodes, "header": header, "public": public_edges}
            watched: dict[str, Any] = {} if progress is None else {"progress": progress}
            done = import_files(out, edges, nodes, columns, ends, **more, **watched)
    show_json(_summary(done)) if as_json else _show(done, columns)


@contextlib.contextmanager
def _told_how_to_go_on(out: Path) -> Iterator[None]:
    """Ctrl-C in the words of an import: what it leaves, and how it is taken up again."""
    try:
        yield
    except KeyboardInterrupt:
        words = f"stopped; nothing was charged. The same command takes the import of '{out}' up again"
        if left := sorted(out.expanduser().absolute().parent.glob(f".{glob.escape(out.name)}.partial-*")):
            words += f". Until then private data is in '{left[-1]}': remove that folder if you give up"
        raise KeyboardInterrupt(words) from None


def declared_features(
    numeric: Repeated, category: Repeated, hashed: Repeated, as_is: Repeated, date: Repeated = None
) -> dict[str, Any]:
    """The options that declare columns, as `features` takes them; everything wrong is told together."""
    found: dict[str, Any] = dict.fromkeys(_words(as_is))
    problems = []
    for option, given, form, read in (
        ("--numeric", numeric, "COLUMN=LOW:HIGH", _range),
        ("--date", date, "COLUMN=2010-01-01:2026-01-01", _dates),
        ("--category", category, "COLUMN=A,B,C", _list),
        ("--hashed", hashed, "COLUMN=BUCKETS", int),
    ):
        for word in given or []:
            column, equals, value = word.rpartition("=")
            try:
                if not equals or column in found:
                    raise ValueError
                found[column] = read(value)
            except ValueError:
                twice = " for a column that has no other rule" if column in found else ""
                problems.append(f"{option}: expected {form}{twice}; got '{word}'")
    InputError.collect(problems)
    return found


def _classes(classes: str | None, number_range: str | None) -> Sequence[str] | NumberRange | None:
    """The declared classes, or the range of the numbers to predict."""
    if number_range is None:
        return None if classes is None else [name.strip() for name in classes.split(",")]
    if classes is not None:
        raise InputError("--range: expected --classes or --range; got both; labels are classes or numbers")
    from hushgraph.graph.targets import NumberRange

    try:
        low, high, *parts = number_range.split(":")
        return NumberRange(float(low), float(high), *map(int, parts[:1]))
    except ValueError:
        raise InputError(f"--range: expected LOW:HIGH or LOW:HIGH:PARTS; got '{number_range}'") from None


def _range(value: str) -> tuple[float, float]:
    low, colon, high = value.rpartition(":")
    if not colon:
        raise ValueError
    return float(low), float(high)


def _dates(value: str) -> tuple[datetime.date, datetime.date]:
    first, last = value.split(":")
    return datetime.date.fromisoformat(first.strip()), datetime.date.fromisoformat(last.strip())


def _list(value: str) -> list[str]:
    return [word.strip() for word in value.split(",")]


def _words(given: Repeated) -> list[str]:
    return [word.strip() for one in given or [] for word in one.split(",")]


def _problems(
    source: Path | None,
    edges: list[Path] | None,
    nodes: Path | None,
    num_nodes: int | None,
    out: Path,
    directed: bool | None,
    public: Path | None,
) -> list[str]:
    """What is wrong with the options and the paths, all at once, before anything large is imported."""
    from hushgraph.importing.findings import NO_DIRECTION

    if source is not None and (edges or nodes is not None or num_nodes is not None):
        return ["expected one whole graph, or --edges with --nodes; got both; remove one"]
    if source is not None and public is not None:
        return ["--public-edges: expected a table of edges (--edges); got a whole graph"]
    if source is None and not edges:
        return ["expected a graph: --edges FILE --nodes FILE, or one file that holds both; got neither"]
    found = [
        f"expected a {kind} at {path}; there is no such file; check the path"
        for kind, path in (
            ("graph", source),
            *(("table", one) for one in edges or []),
            ("table", nodes),
            ("table", public),
        )
        if path is not None and not path.expanduser().exists()
    ]
    found += [NO_DIRECTION] if edges and directed is None else []
    taken = f"--out: expected a new folder; got '{out}', which exists; name another, or remove it"
    return [*found, taken] if out.exists() else found


def _summary(done: Imported) -> dict[str, Any]:
    from dataclasses import asdict

    lines = [str(one) for one in done.findings]
    return {"out": str(done.folder), **asdict(done.facts), "num_edges": done.num_edges, "lines": lines}


def _show(done: Imported, columns: NodeColumns) -> None:
    facts = done.facts
    kind = "directed edges" if facts.directed else "undirected edges"
    count = done.num_edges if facts.directed else done.num_edges // 2
    width = len(facts.feature_names)
    echo(f"{facts.num_nodes:,} nodes, {count:,} {kind}, {width:,} feature{'s' if width > 1 else ''}")
    if facts.edge_types:
        show_words(f"types of edges: {', '.join(facts.edge_types)}; one edge is protected with its type", indent=2)
    for one in done.findings:
        show_words(f"  - {one}", indent=4)
    show_words(
        f"written to {done.folder}; use it as --data {done.folder}, look at it with: hushgraph describe {done.folder}"
    )
