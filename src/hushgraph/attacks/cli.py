"""The command `hushgraph attack NAME --data ... --model RUN_DIR`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hushgraph.console import words


def attack(
    name: Annotated[str, typer.Argument(help="linkteller, similarity, released-rows, membership, lira, degree, ...")],
    model: Annotated[Path, typer.Option(help="The folder of a trained model.")],
    data: Annotated[str, typer.Option(help="The graph it was trained on: a name or an npz file.")],
    split: Annotated[str | None, typer.Option(help="The split, as for `train`.")] = None,
    seed: Annotated[int, typer.Option(help="For what the attack draws.")] = 0,
    parameter: Annotated[list[str] | None, typer.Option("--set", help="A parameter of the attack: key=value.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to add the result; default: attacks.json there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Attack a trained model with what an adversary may have. A failed attack proves nothing."""
    from hushgraph import datasets
    from hushgraph.attacks.catalogue import ATTACKS, attack_by_name, attack_model
    from hushgraph.methods.parameters import from_words
    from hushgraph.methods.saving import load_model

    attack_by_name(name)
    chosen = from_words(ATTACKS[name], words(parameter))  # type: ignore[arg-type]
    result = attack_model(name, load_model(model), datasets.load(data, split=split), **{"seed": seed, **chosen})
    add_result(out or model / "attacks.json", result.as_dict())
    typer.echo(json.dumps(result.as_dict()) if as_json else f"{result}\nassumes: {result.assumes}")


def add_result(path: Path, result: dict[str, Any]) -> None:
    """Put a result in the file of all attacks on a model; the same attack on the same target is replaced."""
    from hushgraph.methods.saving import read_json, write_json

    before = read_json(path)["attacks"] if path.exists() else []
    same = (result["name"], result["target"])
    kept = [one for one in before if (one["name"], one["target"]) != same]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"format": 1, "attacks": [*kept, result]})
