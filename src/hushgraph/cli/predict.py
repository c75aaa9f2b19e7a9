"""`hushgraph predict`: classes from a trained model's folder, or for another graph as a new charged release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgraph.cli.console import Json, command, show_json
from hushgraph.cli.ledger import LedgerOption, Operator, Purpose, occasion_of
from hushgraph.cli.train import Continues, Directed, Separate, Split
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from hushgraph.ledger.ledger import Ledger


@command
def predict(
    model: Annotated[Path, typer.Argument(help="The folder that `train` wrote.")],
    data: Annotated[
        str | None, typer.Option(help="Transductive: the nodes' own features, where they are private.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="Inductive: another graph. A new release, with its own budget.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="With --on: the budget of that release.")] = None,
    delta: Annotated[float | None, typer.Option(help="With --on: its delta.")] = None,
    ledger: LedgerOption = None,
    continues: Continues = None,
    separate: Separate = None,
    operator: Operator = None,
    purpose: Purpose = "",
    split: Split = None,
    directed: Directed = False,
    out: Annotated[Path | None, typer.Option(help="Write probabilities and classes to this .npz file.")] = None,
    as_json: Json = False,
) -> None:
    """Predict every node's class. Without --on nothing is charged: what was released before is used again."""
    import torch

    from hushgraph.ledger.identity import arrays_of
    from hushgraph.ledger.manifest import require_uncontradicted
    from hushgraph.ledger.project import default_ledger
    from hushgraph.methods.saving import load_model

    torch.set_num_threads(1)
    if out is not None and out.exists():
        raise InputError(f"--out: expected a new file; {out} exists already")
    book = default_ledger(ledger)
    files = require_uncontradicted(model, book)
    trained = load_model(model)
    shown: dict[str, Any] = {"model": str(model), "files": files.value, "unit": trained.unit.name}
    if on is not None:
        graph = _load(on, split, directed)
        book = book.on(occasion_of(operator, purpose, arrays=arrays_of(graph), continues=continues, separate=separate))
        probabilities, certificate = _predict_on(trained, graph, epsilon, delta, book)
        shown |= {"certificate": certificate, "charged": True}
    else:
        probabilities = trained.predict_proba(_load(data, split, directed))
        shown |= {"charged": False, "own_features": _own_features(trained, data)}
    shown["not_protected"] = _unprotected_predictions(trained)
    classes = probabilities.argmax(dim=1)
    counts = torch.bincount(classes, minlength=probabilities.shape[1]).tolist()
    shown |= {"nodes": int(classes.numel()), "classes": dict(zip(trained.class_names, counts))}
    if out is not None:
        _write(out, probabilities, classes)
        shown["out"] = str(out)
    if as_json:
        shown["predictions"] = classes.tolist()
        show_json(shown)
    else:
        _show(shown)


def _predict_on(
    trained: Any, graph: Any, epsilon: float | None, delta: float | None, ledger: Ledger
) -> tuple[Any, dict[str, Any]]:
    from hushgraph.privacy.budget import Budget

    if epsilon is None:
        raise InputError("--on: expected --epsilon too, because another graph is a new release; got none")
    if not hasattr(trained, "predict_on"):
        raise InputError(f"--on: {trained.method.name} has no inductive inference")
    fresh = trained.predict_on(graph, Budget(epsilon, delta), ledger=ledger)
    return fresh.predict_proba(), fresh.certificate.as_dict()


def _load(name: str | None, split: str | None, directed: bool) -> Any:
    from hushgraph.datasets import load

    options: dict[str, Any] = {"directed": True} if directed else {}
    return None if name is None else load(name, split=split, **options)


def _own_features(trained: Any, data: str | None) -> str:
    if "features" in trained.unit.public:
        return "public, stored with the model"
    return "read from --data" if data else "absent: predicted from the released neighborhood sums alone"


def _unprotected_predictions(trained: Any) -> list[str]:
    """What the certificate says of predictions that are not protected (raw neighborhoods)."""
    lines = trained.certificate.as_dict().get("not_protected", [])
    return [line for line in lines if line.startswith("predictions:")]


def _write(out: Path, probabilities: Any, classes: Any) -> None:
    import numpy as np

    with open(out, "wb") as file:
        np.savez_compressed(file, probabilities=probabilities.numpy(), classes=classes.numpy())


def _show(shown: dict[str, Any]) -> None:
    typer.echo(f"{shown['nodes']} nodes predicted with the model in {shown['model']}")
    for name, count in shown["classes"].items():
        typer.echo(f"  {name:<20} {count}")
    if shown["charged"]:
        typer.echo(shown["certificate"]["sentence"])
    else:
        typer.echo(f"nothing was charged; the nodes' own features: {shown['own_features']}")
    for line in shown["not_protected"]:
        typer.echo(f"NOT PROTECTED: {line}")
    if "out" in shown:
        typer.echo(f"written to {shown['out']}")
