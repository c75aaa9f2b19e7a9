"""`hushgraph plan`: what a run would cost, before any data is read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph import registry
from hushgraph.cli.console import Json, Settings, command, echo, known, show_json, show_table, show_words, words
from hushgraph.cli.deferred import deferred
from hushgraph.text import counted, rounded_up

if TYPE_CHECKING:
    from hushgraph.privacy.plan import Plan, Stage
    from hushgraph.privacy.units import Unit

Method = Annotated[
    str, typer.Argument(help=f"One of: {', '.join(registry.names('methods'))}.", autocompletion=known("methods"))
]
UnitName = Annotated[
    str,
    typer.Option(help=f"What is protected: {', '.join(registry.names('units'))}.", autocompletion=known("units")),
]


def number(word: str | float) -> float:
    """A number, or a message that says what was given."""
    try:
        return float(word)
    except ValueError:
        raise typer.BadParameter(f"expected a number; got '{word}'") from None


def epsilon_of(word: str | float) -> float | dict[str, float]:
    """An epsilon, or one for each type of edge: `follows=4,pays=1`."""
    if "=" not in str(word):
        return number(word)
    pairs = [part.rpartition("=") for part in str(word).split(",")]
    found = {name.strip(): number(value) for name, _, value in pairs}
    if len(found) < len(pairs) or not all(found):
        raise typer.BadParameter(f"expected an epsilon for each type of edge, such as follows=4,pays=1; got '{word}'")
    return found


Epsilon = Annotated[
    Any,
    typer.Option(
        parser=epsilon_of,
        metavar="NUMBER",
        help="The budget; inf asks for no protection. For each type of edge: follows=4,pays=1.",
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        parser=number,
        metavar="NUMBER",
        help="Default: the largest power of ten below 1/(10 n), n nodes or edges (see --edges).",
    ),
]
PaperMode = Annotated[bool, typer.Option("--paper-mode", help="Calibrate as the paper does, and show both epsilons.")]
Edges = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Directed edges, if their number is public; otherwise 10 undirected ones per node are assumed for delta.",
    ),
]


@command
def plan(
    method: Method,
    unit: UnitName,
    nodes: Annotated[int, typer.Option(help="Number of nodes (public).")],
    epsilon: Epsilon,
    edges: Edges = None,
    delta: Delta = None,
    train_nodes: Annotated[int | None, typer.Option(help="Number of train nodes; default 75% of the nodes.")] = None,
    features: Annotated[int | None, typer.Option(help="Number of features; local methods need it.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes; some choices depend on it.")] = None,
    paper_mode: PaperMode = False,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show which releases a method would make, with how much noise, without reading any data."""
    with deferred():
        from hushgraph.cli.choices import read_choices
        from hushgraph.privacy.metadata import Metadata

        if registry.knows("methods", method):
            registry.load("methods", method)
    choices = read_choices(method, unit, epsilon, delta, words(settings))
    metadata = Metadata.from_sizes(nodes, edges, train_nodes, features, classes)
    metadata = replace(metadata, edge_types=tuple(name for name, _ in choices.budget.relations))
    assert choices.unit is not None
    made = choices.method.plan(metadata, choices.unit, choices.budget, paper_mode=paper_mode)
    remarks = list(choices.method.remarks(made))
    if as_json:
        show_json({**summary(made), "remarks": remarks})
    else:
        _show(made, remarks)


def summary(plan: Plan) -> dict[str, Any]:
    """What `--json` prints: the figures of every stage, and the whole plan as the ledger would store it."""
    from hushgraph.methods.expected import expected

    paper = plan.paper
    return {
        "method": plan.method,
        "unit": plan.unit.name,
        "epsilon": plan.epsilon,
        "delta": plan.budget.definite_delta,
        "accountant": _accountant(plan),
        "stages": [stage_figures(stage, plan) for stage in plan],
        "branches": [
            {"method": one.method, "budget": one.budget.epsilon, "stages": [stage_figures(s, one) for s in one]}
            for one in plan.branches
        ],
        "paper": None if paper is None else paper.as_dict(),
        "expected": expected(plan).as_dict(),
        "plan": plan.as_dict(),
    }


def stage_figures(stage: Stage, plan: Plan) -> dict[str, Any]:
    """What a stage releases, with how much noise, and what it costs alone; a free stage has no noise and no cost."""
    from hushgraph.privacy.loss import PrivacyLoss

    unit, free = plan.unit, plan.runs_exactly(stage.name)
    loss = PrivacyLoss(stage.event(unit), unit.relation)
    return {
        "name": stage.name,
        "mechanism": stage.mechanism.name,
        "count": stage.count,
        "law": "none" if free else stage.mechanism.law,
        "sampling": None if free else stage.mechanism.sampling,
        "scale": None if free else stage.scale,
        "sensitivity": None if free else stage.sensitivity(unit),
        "noise_multiplier": None if free else _multiplier(stage, unit),
        "epsilon_alone": loss.epsilon(plan.budget.definite_delta),
    }


def _multiplier(stage: Stage, unit: Unit) -> float | None:
    """Noise over sensitivity, where the noise is Gaussian."""
    bound = stage.sensitivity(unit)
    gaussian = stage.mechanism.law == "gaussian" and math.isfinite(bound) and bound > 0.0
    return stage.scale / bound if gaussian and stage.scale is not None else None


# In words


def _show(plan: Plan, remarks: list[str]) -> None:
    first = " first" if plan.branches else ""
    _show_stages(f"{plan.method}: what would be released{first}", plan)
    for branch in plan.branches:
        _show_stages(f"then {branch.method}, if the rule chooses it", branch)
    show_words("scale: of the noise; sens.: how far one unit moves a release; epsilon: of a stage alone\n")
    for line in [*remarks, *_lines(plan)]:
        show_words(line)


def _lines(plan: Plan) -> list[str]:
    delta, unit = plan.budget.definite_delta, plan.unit.name
    lines = [_choice(plan)] if plan.branches else []
    lines += [batches for part in (plan, *plan.branches) for batches in _batches(part)]
    lines.append(f"epsilon {_number(plan.epsilon)} at delta {delta:g} for the unit '{unit}'")
    lines += [str(note) for note in plan.public if note.code == "relations"]
    if plan.paper is not None:
        claimed = f"claimed epsilon {rounded_up(plan.paper.epsilon)} for '{plan.paper.unit.name}'"
        lines.append(f"paper mode: {claimed}; provable {_number(plan.epsilon)} for '{unit}'")
    return [*lines, _takes(plan), f"accountant: {_accountant(plan)}. Nothing was read and nothing was charged."]


def _batches(plan: Plan) -> list[str]:
    """Steps and sampling rate of the stages that draw batches, a line for all with the same."""
    found: dict[tuple[int, float], list[str]] = {}
    for stage in plan:
        drawn = stage.mechanism.as_dict()
        if stage.mechanism.sampling == "poisson" and not plan.runs_exactly(stage.name) and "steps" in drawn:
            found.setdefault((drawn["steps"], drawn["sample_rate"]), []).append(stage.name)
    return [
        f"{' and '.join(names)} of {plan.method}: {counted(steps, 'step')}, each on a Poisson batch at rate {rate:.4g}"
        for (steps, rate), names in found.items()
    ]


def _takes(plan: Plan) -> str:
    """What time and memory to expect, in words."""
    from hushgraph.methods.expected import expected

    found = expected(plan)
    assumed = "an assumed " if found.entries_assumed else ""
    return (
        f"expected, for {assumed}{found.entries:,} directed edges, {found.features} features and {found.columns} "
        f"classes: importing {_duration(found.import_seconds)}, fitting {_duration(found.fit_seconds)} of one thread; "
        f"memory {found.bytes_on_disk / 2**30:.1f} GiB with edges on disk, {found.bytes_in_memory / 2**30:.1f} GiB "
        "without (within a factor of two; docs/scale.md)"
    )


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _accountant(plan: Plan) -> str:
    return plan.loss.accountant if math.isfinite(plan.epsilon) else "none, because there is no finite bound"


def _choice(plan: Plan) -> str:
    cost = math.fsum(stage_figures(stage, plan)["epsilon_alone"] for stage in plan)
    names = " or ".join(branch.method for branch in plan.branches)
    asked = " and ".join(stage.name for stage in plan)
    return (
        f"First this is asked with noise, for epsilon {rounded_up(cost)}: {asked}. A rule chooses {names} from the "
        f"answers and the public sizes. The chosen one gets the rest, {plan.branches[0].budget.epsilon:.4g}. Declare "
        "average_degree (--set) if it is public: then edges are not counted."
    )


def _show_stages(title: str, plan: Plan) -> None:
    rows = []
    for stage in plan:
        found = stage_figures(stage, plan)
        times = found["mechanism"] if stage.count == 1 else f"{stage.count} x {found['mechanism']}"
        numbers = (_cell(found[key]) for key in ("scale", "sensitivity", "noise_multiplier", "epsilon_alone"))
        rows.append([stage.name, times, *numbers])
    head = ["stage", "mechanism", "scale", "sens.", "multiplier", "epsilon"]
    echo(title + "\n")
    show_table(head, rows, numeric=(2, 3, 4, 5))


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _number(value: float) -> str:
    return "infinite" if math.isinf(value) else rounded_up(value)
