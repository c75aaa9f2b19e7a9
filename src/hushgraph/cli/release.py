"""`hushgraph release`: a graph with noisy edges that may leave, with its certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import Json, Settings, command, echo, progress_bar, require_new_folder, show_json, words
from hushgraph.cli.ledger import LedgerOption, Operator, Purpose, occasion_of
from hushgraph.cli.plan import Delta, Edges, Epsilon, PaperMode
from hushgraph.cli.train import Continues, Data, Directed, Group, Separate, Split, Unpublished

if TYPE_CHECKING:
    from hushgraph.methods.released import ReleasedGraph


@command
def release(
    method: Annotated[
        str, typer.Argument(help="A method that releases a graph: edge-rand, lap-graph, arr, edge-rr, priv-hrg.")
    ],
    data: Data,
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="Folder for the graph; must be new or empty.")],
    unit: Annotated[str | None, typer.Option(help="What is protected; default: one edge of the graph.")] = None,
    delta: Delta = None,
    edges: Edges = None,
    split: Split = None,
    directed: Directed = False,
    paper_mode: PaperMode = False,
    seed: Annotated[int | None, typer.Option(help="Repeatable and NOT private; for tests and studies.")] = None,
    ledger: LedgerOption = None,
    continues: Continues = None,
    separate: Separate = None,
    unpublished: Unpublished = False,
    group: Group = None,
    operator: Operator = None,
    purpose: Purpose = "",
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Release a graph with noisy edges within a privacy budget: graph.npz, its certificate and a manifest.

    The folder is taken by --data and by hushgraph.datasets.load; `hushgraph verify` and `hushgraph audit` check it.
    """
    from hushgraph.cli.choices import read_choices

    choices = read_choices(method, unit, epsilon, delta, words(settings))
    require_new_folder(out)
    from hushgraph.datasets import load
    from hushgraph.ledger.identity import arrays_of
    from hushgraph.ledger.project import default_ledger
    from hushgraph.methods.released import release_graph

    options: dict[str, Any] = {"directed": True} if directed else {}
    graph = load(data, split=split, **options)
    declared = {"unpublished": unpublished, "group": group, "continues": continues, "separate": separate}
    book = default_ledger(ledger).on(occasion_of(operator, purpose, arrays=arrays_of(graph), **declared))
    with progress_bar(as_json) as progress:
        found = release_graph(
            choices.method,
            graph,
            choices.unit,
            choices.budget,
            ledger=book,
            num_edges=edges,
            paper_mode=paper_mode,
            seed=seed,
            progress=progress,
        )
    found.save(out)
    if as_json:
        show_json(summary(found, out))
    else:
        _show(found, out)


def summary(found: ReleasedGraph, out: Path) -> dict[str, Any]:
    """What `--json` prints."""
    certificate = found.certificate
    return {
        "method": found.method.name,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "unit": certificate.unit.name,
        "released_edges": found.num_edges,
        "certificate": certificate.as_dict(),
        "seconds": found.seconds,
        "out": str(out),
    }


def _show(found: ReleasedGraph, out: Path) -> None:
    from hushgraph.report.words import explain

    nodes = found.plan.metadata.num_nodes
    echo(explain(found.certificate) + "\n")
    echo(f"released        {found.num_edges} edges (entries), {found.num_edges / nodes:.1f} a node")
    echo(f"time            {found.seconds:.1f} s")
    echo(f"graph           {out}")
