"""`hushgraph plan`: the price of a run before any data is read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hushgraph.cli.console import Json, Settings, command, show_json, words
from hushgraph.text import rounded_up

Method = Annotated[str, typer.Argument(help="auto, gap, progap, chorus, dp-gnn, mlp, dp-mlp, sage, gcn, ...")]
UnitName = Annotated[
    str, typer.Option(help="What is protected: undirected-edge, directed-edge, node, node-replace, ...")
]
Epsilon = Annotated[float, typer.Option(help="The budget; inf asks for no protection.")]
Delta = Annotated[float | None, typer.Option(help="Default: the largest power of ten below 1/(10 x units).")]
PaperMode = Annotated[bool, typer.Option("--paper-mode", help="Calibrate as the paper does, and show both epsilons.")]


@command
def plan(
    method: Method,
    unit: UnitName,
    nodes: Annotated[int, typer.Option(help="Number of nodes (public).")],
    epsilon: Epsilon,
    edges: Annotated[
        int | None, typer.Option(help="Number of directed edges (public); asked for where the unit is an edge.")
    ] = None,
    delta: Delta = None,
    train_nodes: Annotated[int | None, typer.Option(help="Number of train nodes; default 75% of the nodes.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes; some choices of auto depend on it.")] = None,
    paper_mode: PaperMode = False,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show which releases a method would make, with how much noise, without reading any data."""
    from hushgraph.cli.choices import read_choices
    from hushgraph.data.metadata import PublicFacts

    choices = read_choices(method, unit, epsilon, delta, words(settings))
    facts = PublicFacts.from_sizes(nodes, edges, train_nodes, classes)
    assert choices.unit is not None
    made = choices.method.plan(facts, choices.unit, choices.budget, paper_mode=paper_mode).as_dict()
    if as_json:
        show_json(made)
    else:
        _show(made)


def _show(plan: dict[str, Any]) -> None:
    from rich.console import Console

    title = f"{plan['method']}: what would be released"
    options = plan.get("then_one_of", [])
    console = Console()
    console.print(_table(title + (" first" if options else ""), plan["stages"]))
    for option in options:
        console.print(_table(f"then {option['method']}, if the rule chooses it", option["stages"]))
    if options:
        cost = sum(float(stage["epsilon"]) for stage in plan["stages"])
        names = " or ".join(option["method"] for option in options)
        asked = " and ".join(stage["name"] for stage in plan["stages"])
        console.print(
            f"First this is asked with noise, for epsilon {rounded_up(cost)}: {asked}. A rule chooses {names} from the "
            f"answer and the public sizes. The chosen one gets the rest, {options[0]['budget']:.4g}. Declare "
            "average_degree (--set) if it is public: then edges are not counted.",
            highlight=False,
        )
    console.print(
        f"epsilon {rounded_up(plan['epsilon'])} at delta {plan['delta']:g} for the unit '{plan['unit']}'",
        highlight=False,
    )
    if plan.get("paper_mode"):
        console.print(
            f"paper mode: claimed epsilon {rounded_up(plan['claimed_epsilon'])} for '{plan['unit']}'; "
            f"provable {rounded_up(plan['provable_epsilon'])} for '{plan['provable_unit']}'",
            highlight=False,
        )
    console.print(f"accountant: {plan['accountant']}. Nothing was read and nothing was charged.", highlight=False)


def _table(title: str, stages: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title=title)
    for column in ("stage", "mechanism", "count", "noise multiplier", "sensitivity", "noise std"):
        table.add_column(column, justify="left" if column in ("stage", "mechanism") else "right")
    for stage in stages:
        numbers = (f"{float(stage[key]):.5g}" for key in ("noise_multiplier", "sensitivity", "std"))
        table.add_row(stage["name"], stage["mechanism"], str(stage["count"]), *numbers)
    return table
