"""`hushgraph train`: fit a method on a graph, charge the ledger, write the model's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import (
    Json,
    Settings,
    Track,
    TrackEvaluation,
    command,
    echo,
    known,
    progress_bar,
    require_new_folder,
    show_json,
    show_words,
    tell,
    words,
)
from hushgraph.cli.data import (
    Classes,
    Data,
    Directed,
    Memory,
    Split,
    SplitSeed,
    Workers,
    load_graph,
    require_data,
    why_separate,
)
from hushgraph.cli.ledger import LedgerOption, Operator, Purpose, ledger_to_charge, occasion_of
from hushgraph.cli.plan import Delta, Edges, Epsilon, Method, PaperMode
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from hushgraph.methods.model import Model
    from hushgraph.training.ranks import Ranks

Unit = Annotated[
    str | None,
    typer.Option(help="What is protected; default: one edge of the graph.", autocompletion=known("units")),
]
Continues = Annotated[str | None, typer.Option(help="The known dataset that this data continues.")]
Separate = Annotated[str | None, typer.Option(help="Why this data is separate from the datasets it resembles.")]
Unpublished = Annotated[
    bool,
    typer.Option("--unpublished", help="Leave a seeded or unprotected run out of totals: it will not be published."),
]
Seed = Annotated[int | None, typer.Option(help="Makes the run repeatable and NOT private; for tests and studies.")]
Group = Annotated[
    str | None, typer.Option(help="The group that declared this run beforehand (`hushgraph ledger declare`).")
]

PrivateNetwork = Annotated[
    bool,
    typer.Option(
        "--private-network",
        help="Declare that nobody else sees or changes what travels between machines (--ranks, --workers ray@...).",
    ),
]


@command
def train(
    method: Method,
    data: Data,
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="Folder for the model; must be new or empty.")],
    unit: Unit = None,
    delta: Delta = None,
    edges: Edges = None,
    split: Split = None,
    split_seed: SplitSeed = None,
    classes: Classes = None,
    directed: Directed = False,
    paper_mode: PaperMode = False,
    seed: Seed = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Checkpoint folder: the same command resumes the run. As secret as the data."),
    ] = None,
    ledger: LedgerOption = None,
    continues: Continues = None,
    separate: Separate = None,
    unpublished: Unpublished = False,
    group: Group = None,
    operator: Operator = None,
    purpose: Purpose = "",
    memory: Memory = None,
    workers: Workers = None,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Share DP-SGD among the processes that torchrun started (docs/scale.md).")
    ] = False,
    private_network: PrivateNetwork = False,
    track: Track = None,
    track_evaluation: TrackEvaluation = False,
    threads: Annotated[int, typer.Option(min=1, metavar="N", help="Threads of the numeric library.")] = 1,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Train METHOD on a graph within a privacy budget and write the model, its certificate and its metrics.

    `hushgraph methods METHOD` lists what --set can change.
    """
    require_data(data)
    require_new_folder(out)
    together = _ranks(private_network) if ranks else None
    if together is not None and not together.leads:
        together.help()
        return
    from hushgraph.cli.choices import read_choices

    choices = read_choices(method, unit, epsilon, delta, words(settings))
    from hushgraph.tracking.base import entry_of, tracker_of

    trackers = [tracker_of(one) for one in track or []]  # before anything is charged
    import torch

    from hushgraph.executors.base import as_executor
    from hushgraph.graph.checks import check_graph

    torch.set_num_threads(threads)
    executor = None if workers is None else as_executor(workers, private_network=private_network)
    how: dict[str, Any] = {"directed": directed, "classes": classes, "memory": memory, "workers": executor}
    with progress_bar(as_json, "reading"):
        graph = load_graph(data, split, split_seed, as_lists=True, **how)
    if executor is not None:
        _tell_of_few(graph, choices.method)
    book = ledger_to_charge(ledger)
    if continues is None and separate is None:
        separate = why_separate(data, lambda: choices.unit or choices.method.default_unit(check_graph(graph)), book)
    declared = {"unpublished": unpublished, "group": group, "continues": continues, "separate": separate}
    book = book.on(occasion_of(operator, purpose, **declared))
    with progress_bar(as_json) as progress:
        model = choices.method.fit(
            graph,
            choices.unit,
            choices.budget,
            ledger=book,
            num_edges=edges,
            paper_mode=paper_mode,
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
            workers=executor,
            ranks=together,
        )
    if executor is not None:
        executor.close()
    if together is not None:
        together.leave()
    model.save(out)
    for one in trackers:
        try:
            one.log(entry_of(model, evaluation=track_evaluation))
        except InputError as error:
            tell(f"{error}. The model is saved all the same")
    shown = summary(model, out, book.folder)
    if as_json:
        show_json(shown)
    else:
        _show(model, out, graph)


def _tell_of_few(graph: Any, method: Any) -> None:
    """Say so where workers cost more than they bring. Teachers that a method hands out are another case."""
    from hushgraph.graph.spread import FEW_NODES, SpreadEdges

    is_spread = isinstance(getattr(graph, "edges", None), SpreadEdges) and not hasattr(method, "workers")
    if is_spread and graph.num_nodes < FEW_NODES:
        tell(
            f"workers: {graph.num_nodes:,} nodes are few. Starting workers and sending them rows takes longer than "
            f"adding up takes here; they begin to pay at about {FEW_NODES:,} nodes. The model is the same"
        )


def _ranks(private_network: bool) -> Ranks:
    from hushgraph.training.ranks import Ranks

    return Ranks.join(private_network=private_network)


def summary(model: Model, out: Path, ledger: Path | None) -> dict[str, Any]:
    """What `--json` prints."""
    from hushgraph.methods.evaluation import EVALUATION

    certificate = model.certificate
    return {
        "method": model.method.name,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "unit": certificate.unit.name,
        "paper": None if certificate.paper is None else certificate.paper.as_dict(),
        "reason": None if model.reason is None else {**model.reason.as_dict(), "words": str(model.reason)},
        "accuracy": model.metrics.get("accuracy", {}),
        **{name: model.metrics[name] for name in ("micro_f1", "mean_absolute_error") if name in model.metrics},
        "accuracy_by_class": model.metrics.get("test_by_class", []),
        "accuracy_note": EVALUATION,
        "certificate": certificate.as_dict(),
        "seconds": model.seconds,
        "out": str(out),
        "ledger": None if ledger is None else str(ledger),
    }


def _show(model: Model, out: Path, graph: Any) -> None:
    from hushgraph.methods.evaluation import EVALUATION, main_measure

    echo(str(model) + "\n")
    measure = main_measure(model.metrics)[0]
    shown = [(measure, _accuracy(model)), ("mean error", _errors(model)), ("lowest classes", _lowest_classes(model))]
    for title, text in shown:
        if text:
            show_words(f"{title:<15} {text} ({EVALUATION})", indent=18)
    show_words(f"split           {_split(graph)}", indent=16)
    echo(f"time            {model.seconds['total']:.1f} s")
    if model.ledger is not None and model.ledger.folder is not None:
        show_words(f"charged to      {model.ledger.folder}{_whose(model.ledger.folder)}", indent=16)
    echo(f"model           {out}")


def _whose(ledger: Path) -> str:
    """What to know about a ledger that no project has."""
    from hushgraph.ledger.project import user_folder

    own = ledger.absolute() == user_folder().absolute()
    return " (your own, for all that you run outside a project; `hushgraph init` makes one here)" if own else ""


def _split(graph: Any) -> str:
    """How many nodes are for what, and whose choice that was; the split is public."""
    parts = {name: graph.get(f"{name}_mask") for name in ("train", "val", "test")}
    counts = ", ".join(f"{name} {int(mask.sum()):,}" for name, mask in parts.items() if mask is not None)
    if "split_seed" not in graph:
        return f"{counts} (comes with the data)"
    return f"{counts} (drawn with seed {graph.split_seed}; --split-seed or --split 75/10/15 draws another)"


def _accuracy(model: Model) -> str:
    from hushgraph.methods.evaluation import main_measure

    shown = [f"{name} {value:.1f}%" for name, value in main_measure(model.metrics)[1].items() if value is not None]
    if "test_auc" in model.metrics:
        shown.append(f"area under the ROC curve of test links {model.metrics['test_auc']:.1f}%")
    return ", ".join(shown)


def _errors(model: Model) -> str:
    """How far predicted numbers are off on average; nothing where classes are predicted."""
    found = model.metrics.get("mean_absolute_error", {})
    return ", ".join(f"{name} {value:.4g}" for name, value in found.items() if value is not None)


def _lowest_classes(model: Model, count: int = 3) -> str:
    """The classes a private model is worst at: mostly the rare ones, whose examples noise drowns first."""
    rows = [row for row in model.metrics.get("test_by_class", []) if row.get("accuracy") is not None]
    lowest = sorted(rows, key=lambda row: row["accuracy"])[:count]
    names = model.class_names
    return ", ".join(f"{names[row['class']]} {row['accuracy']:.1f}% of {row['tested']}" for row in lowest)
