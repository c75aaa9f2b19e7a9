"""A trained model as a folder: safetensors and JSON, never pickle.

`model.safetensors` holds the weights and the released tensors (with the ledger's hash in its header), `config.json` the
public choices, `certificate.json` the promise, `metrics.json` the evaluation. What the unit does not protect (a node's
own rows) is not written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError
from hushgraph.ledger.certificate import Certificate
from hushgraph.methods.base import SCORES, TrainedModel
from hushgraph.privacy import units
from hushgraph.registry import method_class, model_class

FORMAT = 1
_WEIGHTS, _RELEASED = "weights.", "released."


def save_model(model: TrainedModel, folder: str | os.PathLike[str]) -> Path:
    """Write the model's folder (created if needed) and return it."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    tensors = {_WEIGHTS + name: value.contiguous() for name, value in model.network.state_dict().items()}
    tensors |= {_RELEASED + name: value.contiguous() for name, value in _publishable(model).items()}
    save_file(tensors, target / "model.safetensors", metadata={"ledger": model.certificate.ledger_hash})
    config = {
        "format": FORMAT,
        "method": model.method.name,
        "parameters": model.method.as_dict(),
        "unit": model.unit.as_dict(),
        "facts": model.facts.as_dict(),
        "class_names": list(model.class_names),
        "settings": model.settings,
    }
    write_json(target / "config.json", config)
    write_json(target / "certificate.json", model.certificate.as_dict())
    write_json(target / "metrics.json", {**model.metrics, "seconds": model.seconds})
    return target


def _publishable(model: TrainedModel) -> dict[str, Tensor]:
    """The released tensors; where features and labels are public also the scores, which follow from them."""
    follows = model.unit.public >= {"features", "labels"} and model.scores is not None
    return {**model.released, SCORES: model.scores} if follows else model.released  # type: ignore[dict-item]


def load_model(folder: str | os.PathLike[str]) -> TrainedModel:
    """Read a model's folder; nothing in it is executed."""
    source = Path(folder)
    config = read_json(source / "config.json")
    if config.get("format") != FORMAT:
        raise InputError(f"{source}: expected a model of format {FORMAT}; got {config.get('format')!r}")
    method = method_class(config["method"])(**config["parameters"])
    facts = PublicFacts(**config["facts"])
    weights, released = _read_tensors(source / "model.safetensors")
    network = method.rebuild(facts, config["settings"])  # type: ignore[attr-defined]
    network.load_state_dict(weights)
    metrics = read_json(source / "metrics.json")
    return model_class(config["method"])(
        method=method,
        facts=facts,
        unit=units.from_dict(config["unit"]),
        network=network.eval(),
        settings=config["settings"],
        released=released,
        class_names=tuple(config["class_names"]),
        seconds=metrics.pop("seconds", {}),
        metrics=metrics,
        _certificate=Certificate.from_dict(read_json(source / "certificate.json")),
    )


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write the file whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n")
    os.replace(temporary, path)


def read_json(path: Path) -> dict[str, Any]:
    """Read one file of a model's folder, with a clear error when it is missing or damaged."""
    try:
        values: dict[str, Any] = json.loads(path.read_text())
        return values
    except FileNotFoundError as error:
        raise InputError(f"expected a trained model in {path.parent}; {path.name} is missing") from error
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from error


def _read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (FileNotFoundError, SafetensorError) as error:
        raise InputError(f"expected a readable {path.name} in {path.parent}: {error}") from error
    weights = {k.removeprefix(_WEIGHTS): v for k, v in tensors.items() if k.startswith(_WEIGHTS)}
    released = {k.removeprefix(_RELEASED): v for k, v in tensors.items() if k.startswith(_RELEASED)}
    return weights, released
