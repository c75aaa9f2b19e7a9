"""`hushgraph describe`: what is in a graph, and what that means for privacy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import Json, command, echo, show_json, show_words
from hushgraph.cli.data import load_graph, require_data

if TYPE_CHECKING:
    from torch_geometric.data import Data as Graph

_HOLDER = "for the holder of the data: not private, not for publication"


@command
def describe(
    data: Annotated[str, typer.Argument(help="A dataset's name, a file, or the folder that `import` wrote.")],
    as_json: Json = False,
) -> None:
    """Describe a graph: what is in it, what is public under which unit, and what to declare before training."""
    require_data(data)
    graph = load_graph(data, needs_split=False, quiet=True, as_lists=True)
    shown = {"data": data, **public_facts(graph), "holder": holder_facts(graph), "lines": _lines(data)}
    show_json(shown) if as_json else _show(shown)


def public_facts(graph: Graph) -> dict[str, Any]:
    """Sizes and declarations, which are public under every unit."""
    from hushgraph.datasets.splits import MASKS

    made = "split_seed" in graph
    names = graph.get("class_names")
    return {
        "nodes": int(graph.num_nodes or 0),
        "features": int(graph.x.shape[1]),
        "feature_names": list(graph.get("feature_names") or ()),
        "classes": None if names is None else [str(name) for name in names],
        "classes_declared": names is not None and bool(graph.get("classes_declared", True)),
        "split": None if made else {name: int(graph[name].sum()) for name in MASKS if name in graph},
        "public_edges": _public_edges(graph),
        "edge_types": [str(name) for name in graph.get("edge_type_names") or ()],
        "ids": "own" if graph.get("user_ids") is not None else "numbers",
    }


def _public_edges(graph: Graph) -> int:
    """How many edges were declared to be public knowledge."""
    known = graph.get("public_edge_index")
    return 0 if known is None else int(known.shape[1]) // (1 if graph.get("directed") else 2)


def holder_facts(graph: Graph) -> dict[str, Any]:
    """What is private under some unit: counted for whoever has the data before them anyway."""
    import torch

    from hushgraph.graph.edges import MemoryEdges

    edges = graph.get("edges")
    edges = MemoryEdges.from_edge_index(graph.edge_index, int(graph.num_nodes or 0)) if edges is None else edges
    degree = edges.out_degree()
    return {
        "directed_edges": edges.num_edges,
        "symmetric": edges.is_symmetric(),
        "isolated": int(((degree == 0) & (edges.in_degree() == 0)).sum()),
        "largest_out_degree": int(degree.max()) if degree.numel() else 0,
        "nodes_without_label": int((torch.as_tensor(graph.y) < 0).sum()),
    }


def _lines(data: str) -> list[str]:
    """What `import` did, of a graph that it wrote."""
    from hushgraph.datasets.stored import is_stored, read_facts
    from hushgraph.importing.findings import Finding

    return [str(Finding.from_dict(one)) for one in read_facts(data).findings] if is_stored(data) else []


def _show(shown: dict[str, Any]) -> None:
    holder, classes = shown["holder"], shown["classes"]
    echo(f"{shown['nodes']:,} nodes, {shown['features']:,} features")
    if classes is not None:
        how = "declared" if shown["classes_declared"] else "read off the labels"
        show_words(f"{len(classes)} classes ({how}): {', '.join(classes)}", indent=2)
    show_words(f"split: {_split_words(shown['split'])}", indent=2)
    kind = "undirected" if holder["symmetric"] else "directed"
    count = holder["directed_edges"] // (2 if holder["symmetric"] else 1)
    show_words(
        f"{count:,} {kind} edges, {holder['isolated']:,} nodes without one, at most {holder['largest_out_degree']:,} "
        f"from one node, {holder['nodes_without_label']:,} nodes without a label ({_HOLDER})",
        indent=2,
    )
    echo("\nwhat it means for privacy")
    for line in meaning(shown):
        show_words(f"  - {line}", indent=4)
    if shown["lines"]:
        show_words(f"\nwhat was done when it was imported ({_HOLDER})", indent=2)
    for line in shown["lines"]:
        show_words(f"  - {line}", indent=4)


def _split_words(split: dict[str, int] | None) -> str:
    if not split:
        return "none; a random one is made, 75/10/15 with seed 0 (--split, --split-seed)"
    return ", ".join(f"{name.removesuffix('_mask')} {count:,}" for name, count in split.items())


def meaning(shown: dict[str, Any]) -> list[str]:
    """What is public, what each kind of unit protects here, and what is left to declare."""
    edge = "undirected-edge" if shown["holder"]["symmetric"] else "directed-edge"
    lines = [
        "public under every unit: who the nodes are (their number, and the split), the names of features and classes",
        f"--unit {edge}: one edge is protected; features and labels count as public, so nothing is promised for them",
        "--unit node: a node's features, label and outgoing list are protected together; say how long a list may be, "
        "--set max_degree=D, from public knowledge, and not the largest number above",
        "the number of edges is private; --edges N declares it where everybody knows it",
    ]
    if shown["public_edges"]:
        lines.append(
            f"{shown['public_edges']:,} edges were declared public: --unit private-edge protects one edge that was not"
        )
    if shown["edge_types"]:
        first, *rest = shown["edge_types"]
        example = ",".join([f"{first}=4", *(f"{name}=1" for name in rest)])
        lines.append(
            f"edges have declared types ({', '.join(shown['edge_types'])}), and one edge is one edge of one type; "
            f"chorus, gap and progap tell them apart, under an edge unit with a budget each if you like: --epsilon "
            f"{example}"
        )
    if not shown["classes_declared"]:
        lines.append("classes are not declared: units that protect labels need them (--classes A,B,C)")
    return lines
