"""`hushgraph predict`: classes from a trained model's folder, or for another graph as a new charged release."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import Json, command, echo, progress_bar, require_model, show_json, show_words, tell
from hushgraph.cli.data import Directed, Memory, load_graph, require_data
from hushgraph.cli.ledger import LedgerOption, Operator, Purpose, ledger_to_charge, occasion_of
from hushgraph.cli.plan import Edges, number
from hushgraph.cli.train import Continues, Separate
from hushgraph.errors import InputError
from hushgraph.files.writing import require_writable
from hushgraph.text import counted

if TYPE_CHECKING:
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.methods.model import Model


@command
def predict(
    model: Annotated[Path, typer.Argument(help="The folder that `train` wrote.")],
    data: Annotated[
        str | None, typer.Option(help="The training graph, where predictions read the nodes' own private features.")
    ] = None,
    on: Annotated[str | None, typer.Option(help="Another graph: a new release, with its own budget.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(parser=number, metavar="NUMBER", help="With --on: the budget of that release.")
    ] = None,
    delta: Annotated[float | None, typer.Option(parser=number, metavar="NUMBER", help="With --on: its delta.")] = None,
    edges: Edges = None,
    ledger: LedgerOption = None,
    continues: Continues = None,
    separate: Separate = None,
    operator: Operator = None,
    purpose: Purpose = "",
    directed: Directed = False,
    memory: Memory = None,
    out: Annotated[
        Path | None, typer.Option(help="Write classes and probabilities to this .csv, .parquet or .npz file.")
    ] = None,
    spreadsheet: Annotated[
        bool, typer.Option("--spreadsheet", help="Put an apostrophe before ids that a spreadsheet would run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Predict every node's class. Without --on nothing is charged: what was released before is used again."""
    InputError.collect(_problems(data, on, {"--epsilon": epsilon, "--delta": delta, "--edges": edges}, out))
    require_model(model)
    require_data(data or on)
    import torch

    from hushgraph.ledger.manifest import require_uncontradicted
    from hushgraph.ledger.project import default_ledger
    from hushgraph.methods.evaluation import EVALUATION
    from hushgraph.methods.model import Model

    torch.set_num_threads(1)
    book = default_ledger(ledger) if on is None else ledger_to_charge(ledger)
    files = require_uncontradicted(model, default_ledger(ledger, near=model))
    trained = Model.load(model)
    shown: dict[str, Any] = {"model": str(model), "files": files.value, "unit": trained.unit.name}
    shown["charged"] = on is not None
    how: dict[str, Any] = {"directed": directed, "memory": memory, "needs_split": False, "as_lists": True}
    if on is not None:
        book = book.on(occasion_of(operator, purpose, continues=continues, separate=separate))
        with progress_bar(as_json, "predicting"):
            about = graph = load_graph(on, **how)
            answering = _predict_on(trained, graph, epsilon, delta, book, edges)
            probabilities = answering.predict_proba()
        shown["certificate"] = answering.certificate.as_dict()
    else:
        answering = trained
        with progress_bar(as_json, "predicting"):
            about = None if data is None else load_graph(data, **how)
            probabilities = trained.predict_proba(about)
        shown["own_features"] = _own_features(trained, data)
    shown["not_protected"] = _unprotected_predictions(answering)
    if trained.is_multilabel:
        classes = (probabilities > 0.5).long()
        counts = classes.sum(dim=0).tolist()
    else:
        classes = probabilities.argmax(dim=1)
        counts = torch.bincount(classes, minlength=probabilities.shape[1]).tolist()
    shown |= {"nodes": len(classes), "classes": dict(zip(trained.class_names, counts))}
    shown["classes_note"] = EVALUATION if _reads_records(answering, data) else ""
    if out is not None:
        from hushgraph.cli.predictions import run_by_spreadsheets, write_predictions

        ids = None if about is None else about.get("user_ids")
        values = None if trained.numbers is None else trained.numbers.expected(probabilities)
        write_predictions(out, probabilities, classes, trained.class_names, ids, values, for_spreadsheet=spreadsheet)
        shown["out"] = str(out)
        if out.suffix == ".csv" and not spreadsheet and (formulas := run_by_spreadsheets(ids)):
            tell(
                f"{counted(formulas, 'id')} in {out} begin with = + - or @, which a spreadsheet would run: import that "
                "column as text, or write the file with --spreadsheet"
            )
    if as_json:
        shown["predictions"] = classes.tolist()
        show_json(shown)
    else:
        _show(shown, answering)


def _predict_on(
    trained: Model, graph: Any, epsilon: float | None, delta: float | None, ledger: Ledger, edges: int | None
) -> Model:
    from hushgraph.graph.checks import check_graph
    from hushgraph.privacy.budget import Budget

    assert epsilon is not None
    checked = check_graph(graph, known_classes=trained.class_names, num_edges=edges)
    return trained.predict_on(checked, Budget(epsilon, delta), ledger=ledger)


def _problems(data: str | None, on: str | None, of_release: dict[str, Any], out: Path | None) -> list[str]:
    problems = []
    if on is not None and data is not None:
        problems.append("--data and --on: expected one of them, the training graph or another one; got both")
    if on is None:
        given = [name for name, value in of_release.items() if value is not None]
        problems += [f"{name}: expected --on GRAPH, the other graph that this release is about" for name in given]
    elif of_release["--epsilon"] is None:
        problems.append("--on: expected --epsilon too, because another graph is a new release; got none")
    if out is not None and out.suffix not in (known := _formats()):
        problems.append(f"--out: expected a file {', '.join(known)}; got '{out.name}'")
    if out is not None and out.exists():
        problems.append(f"--out: expected a new file; {out} exists already")
    elif out is not None and not problems:
        require_writable(out)
    return problems


def _formats() -> Iterable[str]:
    from hushgraph.cli.predictions import FORMATS

    return FORMATS


def _own_features(trained: Model, data: str | None) -> str:
    """Where the nodes' own features came from: `given` by --data, `public`, or `not read`."""
    if data is not None:
        return "given"
    return "public" if "features" in trained.unit.public else "not read"


_NOT_CHARGED = {
    "given": "Nothing was charged: the predictions follow from the model and from --data.",
    "public": "Nothing was charged: the predictions are stored with the model. They follow from what was released and "
    "from public features.",
    "not read": "Nothing was charged: the predictions are stored with the model. They follow from what was released "
    "alone.",
}


def _reads_records(model: Model, data: str | None) -> bool:
    """Whether predictions were computed from private records, so that a count of them is no release."""
    if not model.certificate.is_private or model.scores_are_private:
        return True
    return data is not None and not {"features", "labels"} <= model.unit.public


def _unprotected_predictions(model: Model) -> list[str]:
    """What the certificate says of predictions that are not protected."""
    from hushgraph.privacy.notes import Code

    return [str(note) for note in model.certificate.unprotected if note.code is Code.RAW_PREDICTIONS]


def _show(shown: dict[str, Any], model: Model) -> None:
    if shown["files"] != "verified":
        show_words("NOT VERIFIED: no ledger confirms the files of this model (hushgraph verify tells more)", indent=2)
    echo(f"{shown['nodes']:,} nodes predicted with the model in {shown['model']}")
    if shown["classes_note"]:
        echo(f"nodes in each class ({shown['classes_note']}):")
    for name, count in shown["classes"].items():
        echo(f"  {name:<20} {count}")
    if shown["charged"]:
        from hushgraph.report.words import claim

        show_words(claim(model.certificate))
    else:
        show_words(_NOT_CHARGED[shown["own_features"]])
    for line in shown["not_protected"]:
        show_words(f"NOT PROTECTED: {line}", indent=2)
    if "out" in shown:
        echo(f"written to {shown['out']}")
