"""`hushgraph attack`: what a known attack learns from a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgraph import registry
from hushgraph.cli.console import Json, command, echo, known, progress_bar, require_model, show_json, show_words, words
from hushgraph.cli.data import Split, SplitSeed, load_graph, require_data
from hushgraph.errors import InputError


@command
def attack(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="One of: " + ", ".join(registry.names("attacks")) + ".",
            autocompletion=known("attacks"),
        ),
    ],
    data: Annotated[str, typer.Option(help="The graph it was trained on: a name or an npz file. Inversion: images.")],
    target: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="The folder of a trained model; not for inversion.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="The same, as an option.")] = None,
    split: Split = None,
    split_seed: SplitSeed = None,
    classifier: Annotated[
        str | None, typer.Option(help="Inversion: the model to train on the images: softmax, mlp or cnn (default).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the attack's random choices.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the attack; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The JSON file to add to; default: MODEL/attacks.json.")] = None,
    as_json: Json = False,
) -> None:
    """Attack a trained model with what an adversary may have. A failed attack proves nothing.

    The result is added to a file that `hushgraph report` shows. Inversion trains a classifier of images without
    privacy and inverts that: give --data IMAGES.npz, --classifier, and --out MODEL/attacks.json to see it in a
    report. What each attack assumes is in docs/threats.md.
    """
    if target is not None and model is not None:
        raise InputError("MODEL: expected once; got it by position and by --model")
    model = model or target
    _require_target(name, model, classifier)
    require_data(data)
    if model is not None:
        require_model(model)
    from hushgraph.attacks.catalog import attack_class
    from hushgraph.settings import from_words

    chosen = {"seed": seed, **from_words(attack_class(name), words(settings))}
    with progress_bar(as_json) as progress:
        if name == "inversion":
            result = _invert(data, classifier, {"progress": progress, **chosen})
        else:
            graph = load_graph(data, split, split_seed)
            result = _attack(name, graph, model, {"progress": progress, **chosen})
    home = out or (model / "attacks.json" if model is not None else None)
    if home is not None:
        add_result(home, result)
    if as_json:
        show_json(result)
        return
    for line in lines(result):
        show_words(line, indent=4)
    if home is not None:
        echo(f"added to {home}")


def _require_target(name: str, model: Path | None, classifier: str | None) -> None:
    """Inversion trains its own target; every other attack needs a trained model."""
    if name == "inversion" and model is not None:
        raise InputError(
            "inversion is for classifiers of images: leave MODEL out, give --classifier softmax, mlp or cnn, and "
            "--out MODEL/attacks.json to show the result in that run's report"
        )
    if name in registry.names("attacks") and name != "inversion" and (model is None or classifier is not None):
        raise InputError(f"the attack '{name}' needs MODEL, the folder of a trained model, and takes no --classifier")


def _attack(name: str, graph: Any, model: Any, options: dict[str, Any]) -> dict[str, Any]:
    from hushgraph.attacks.catalog import attack_model
    from hushgraph.methods.model import Model

    return attack_model(name, Model.load(model), graph, **options).as_dict()


def _invert(data: str, classifier: str | None, options: dict[str, Any]) -> dict[str, Any]:
    from hushgraph.attacks.catalog import attack_images

    return attack_images(data, classifier or "cnn", **options)


def lines(result: dict[str, Any]) -> list[str]:
    """The result for a terminal; all its figures are marked as an evaluation."""
    shown = [f"{result['name']} on {result['target']} ({result['note']})"]
    if "auc" in result:
        shown.append(f"  AUC {result['auc']:.3f} [{result['auc_low']:.3f}, {result['auc_high']:.3f}], 0.5 is guessing")
        shown.append(f"  balanced accuracy {result['balanced_accuracy']:.3f}")
        shown += [f"  {_rate(float(rate), found)}" for rate, found in result["tpr_at"].items()]
    figures = {**result.get("details", {}), **result.get("figures", {})}
    shown += [f"  {key}: {_short(value)}" for key, value in figures.items() if isinstance(value, int | float | str)]
    return [*shown, f"  assumes: {result['assumes']}", "  A failed attack proves nothing; see docs/threats.md."]


def _rate(rate: float, found: dict[str, float] | None) -> str:
    known = "too few guesses to say" if found is None else f"{100 * found['value']:.2f}% found"
    return f"at {100 * rate:g}% false positives: {known}"


def _short(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def add_result(path: Path, result: dict[str, Any]) -> None:
    """Put a result in the file of all attacks on a model; the same attack on the same target is replaced."""
    from hushgraph.files.reading import read_json
    from hushgraph.files.writing import write_json

    before = read_json(path).get("attacks", []) if path.exists() else []
    same = (result["name"], result["target"])
    kept = [one for one in before if (one["name"], one["target"]) != same]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"format": 1, "attacks": [*kept, result]})
