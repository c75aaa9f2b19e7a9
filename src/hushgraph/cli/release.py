"""`hushgraph release`: a graph with noisy edges, and noisy features if asked, that may leave with its certificates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import (
    Json,
    Settings,
    command,
    echo,
    progress_bar,
    require_new_folder,
    show_json,
    words,
)
from hushgraph.cli.data import read_graph, require_data
from hushgraph.cli.ledger import LedgerOption, Operator, Purpose, ledger_to_charge, occasion_of
from hushgraph.cli.plan import Delta, Edges, Epsilon, PaperMode
from hushgraph.cli.train import Continues, Data, Directed, Group, Seed, Separate, Split, Unit, Unpublished
from hushgraph.errors import InputError
from hushgraph.privacy.budget import Budget

if TYPE_CHECKING:
    from hushgraph.methods.released import ReleasedGraph

_OF_FEATURES = ("low", "high", "bins", "gamma", "importance", "sensitivity", "mechanism", "clip")
"""Settings of FeatureRR that say how features are randomized; the others are about a network."""


@command
def release(
    method: Annotated[
        str,
        typer.Argument(
            help="A method that releases a graph: edge-rand, lap-graph, arr, edge-rr, priv-hrg; or hetero-rr, which is "
            "edge-rr with --feature-epsilon."
        ),
    ],
    data: Data,
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="Folder for the graph; must be new or empty.")],
    feature_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Randomize features too, by FeatureRR at this epsilon per person; needs --set low= and high=."
        ),
    ] = None,
    unit: Unit = None,
    delta: Delta = None,
    edges: Edges = None,
    split: Split = None,
    directed: Directed = False,
    paper_mode: PaperMode = False,
    seed: Seed = None,
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

    Pass the folder to --data or hushgraph.datasets.load; `hushgraph verify` and `hushgraph audit` check it.
    With --feature-epsilon features are randomized too, each person's by itself: a second promise, for the unit local.
    """
    require_data(data)
    require_new_folder(out)
    from hushgraph.cli.choices import read_choices

    if method == "hetero-rr" and feature_epsilon is None:
        raise InputError("hetero-rr: expected --feature-epsilon beside --epsilon, which is that of the edges; got none")
    own = {key: word for key, word in words(settings).items() if feature_epsilon is not None and key in _OF_FEATURES}
    rest = {key: word for key, word in words(settings).items() if key not in own}
    choices = read_choices("edge-rr" if method == "hetero-rr" else method, unit, epsilon, delta, rest)
    if feature_epsilon is not None and paper_mode:
        raise InputError("--paper-mode: expected it without --feature-epsilon; publications state no such pair")
    from hushgraph.methods.feature_rr import FeatureRR
    from hushgraph.methods.hetero_rr import HeteroRR
    from hushgraph.methods.released import release_graph

    graph = read_graph(data, split, directed=directed)
    declared = {"unpublished": unpublished, "group": group, "continues": continues, "separate": separate}
    book = ledger_to_charge(ledger).on(occasion_of(operator, purpose, **declared))
    with progress_bar(as_json) as progress:
        common: dict[str, Any] = {"ledger": book, "num_edges": edges, "seed": seed, "progress": progress}
        if feature_epsilon is None:
            more = {"paper_mode": paper_mode, **common}
            found = release_graph(choices.method, graph, choices.unit, choices.budget, **more)
        else:
            both = HeteroRR(choices.method, FeatureRR(**FeatureRR.from_words(own)))  # type: ignore[arg-type]
            found = both.release(graph, choices.budget, Budget(feature_epsilon, delta), unit=choices.unit, **common)
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
        "features": None if found.features is None else found.features.certificate.as_dict(),
        "seconds": found.seconds,
        "out": str(out),
    }


def _show(found: ReleasedGraph, out: Path) -> None:
    from hushgraph.report.words import explain

    nodes = found.plan.metadata.num_nodes
    for part in (found, found.features):
        if part is not None:
            echo(explain(part.certificate) + "\n")
    echo(f"released        {found.num_edges:,} edges (entries), {found.num_edges / nodes:.1f} a node")
    echo(f"time            {found.seconds:.1f} s")
    echo(f"graph           {out}")
