"""The folder that a model is saved in.

It holds safetensors and JSON, never pickle: `model.safetensors` the weights and the released tensors, `config.json` the
settings and the plan, `certificate.json` the promise, `metrics.json` the evaluation. What the unit does not protect (a
node's own rows) is not written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hushgraph import registry
from hushgraph.errors import ContradictionError, InputError
from hushgraph.files.modules import WithinBudget
from hushgraph.files.reading import Form, damage_named, hash_of_tensors, read_json, require_fields
from hushgraph.files.tensors import described, read_tensors, write_tensors
from hushgraph.files.writing import nothing_half_written, write_json, written_whole
from hushgraph.ledger.certificate import Certificate
from hushgraph.ledger.manifest import require_uncontradicted, write_manifest
from hushgraph.ledger.project import default_ledger
from hushgraph.privacy.notes import Note
from hushgraph.privacy.plan import Plan

if TYPE_CHECKING:
    from hushgraph.methods.base import Method
    from hushgraph.methods.model import Model

FORMAT = 2
_SCORES = "scores"
_KINDS = ("weights", "released", "kept", "nodes")
_CONFIG: dict[str, Form] = {
    "method": str,
    "parameters": dict,
    "plan": dict,
    "run_plan": (dict, type(None)),
    "trained": (dict, type(None)),
    "class_names": list,
    "features_digest": (str, type(None)),
    "settings": dict,
    "reason": (dict, type(None)),
    "altered": (str, type(None)),
}


def write_folder(model: Model, target: Path, altered: str | None) -> Path:
    """Write the files of a model, all or none; `altered` says what was done to it since its run ended."""
    tensors = _tensors_of(model)
    if model.ended_with is not None and altered is None and hash_of_tensors(described(tensors)) != model.ended_with:
        raise ContradictionError(
            "save: expected the weights and released values that the run ended with; got others. What was done to "
            "them since is not covered by the certificate. Say it (altered='tuned on public data ...'): the model "
            "is then labeled 'altered after the run: not verified'"
        )
    with nothing_half_written(target):
        _write(model, target, tensors, altered)
    return target


def _write(model: Model, target: Path, tensors: dict[str, Tensor], altered: str | None) -> None:
    with written_whole(target / "model.safetensors") as file:
        write_tensors(file, tensors, {"ledger": model.certificate.ledger_hash})
    config = {
        "format": FORMAT,
        "method": model.method.name,
        "parameters": model.method.as_dict(),
        "plan": model.plan.as_dict(),
        "run_plan": None if model.run_plan is None else model.run_plan.as_dict(),
        "trained": None if model.trained is None else model.trained.as_dict(),
        "class_names": list(model.class_names),
        "features_digest": model.features_digest if "features" in model.unit.public else None,
        "settings": model.settings,
        "reason": None if model.reason is None else model.reason.as_dict(),
        "altered": altered,
    }
    write_json(target / "config.json", config)
    write_json(target / "certificate.json", model.certificate.as_dict())
    write_json(target / "metrics.json", {**model.metrics, "seconds": model.seconds})
    if model.ledger is not None:
        write_manifest(target, model.ledger, model.certificate.run, altered)


def read_folder(source: Path, modules: dict[str, nn.Module]) -> dict[str, Any]:
    """The fields of the model in a folder. One that contradicts its manifest or ledger is refused."""
    with damage_named(source, do="Restore the folder from a copy, or train again"):
        return _read(source, modules)


def _read(source: Path, modules: dict[str, nn.Module]) -> dict[str, Any]:
    files = require_uncontradicted(source, default_ledger(near=source))
    config = read_json(source / "config.json", of="a trained model")
    if config.get("format") != FORMAT:
        raise InputError(
            f"{source}: expected a model of format {FORMAT}; got {config.get('format')!r}, which another version "
            f"wrote. Train it again: hushgraph train {config.get('method', 'METHOD')} --data ... --out ..."
        )
    require_fields(config, _CONFIG, source / "config.json")
    _require_known(source, config)
    plan = Plan.from_dict(config["plan"])
    tensors = read_tensors(source / "model.safetensors")
    kept = _under("kept", tensors)
    trained = None if config["trained"] is None else Plan.from_dict(config["trained"])
    weights = _under("weights", tensors)
    with WithinBudget(weights.values(), source / "config.json"):
        method: Method = registry.load("methods", config["method"]).from_dict(config["parameters"], modules)
    with WithinBudget(weights.values(), source / "config.json"):
        network = method.network(trained or plan, torch.Generator())
    _fill(source, network, weights)
    _check_tensors(source, plan, config, tensors)
    metrics = read_json(source / "metrics.json", of="a trained model")
    return {
        "method": method,
        "plan": plan,
        "network": network.eval(),
        "released": _read_released(plan, _under("released", tensors)),
        "nodes": _under("nodes", tensors),
        "kept": {name: value for name, value in kept.items() if name != _SCORES},
        "scores": kept.get(_SCORES),
        "settings": config["settings"],
        "reason": None if config["reason"] is None else Note.from_dict(config["reason"]),
        "class_names": tuple(config["class_names"]),
        "seconds": metrics.pop("seconds", {}),
        "metrics": metrics,
        "run_plan": None if config["run_plan"] is None else Plan.from_dict(config["run_plan"]),
        "trained": trained,
        "features_digest": config.get("features_digest"),
        "folder": source,
        "altered": config.get("altered"),
        "files": files,
        "certificate": Certificate.from_dict(read_json(source / "certificate.json", of="a trained model")),
    }


def _fill(source: Path, network: nn.Module, weights: dict[str, Tensor]) -> None:
    """Give the network its weights, or say that they are of another network: often that of an earlier version."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as found:
        made = {name: list(value.shape) for name, value in network.state_dict().items()}
        saved = {name: list(value.shape) for name, value in weights.items()}
        odd = next((name for name in sorted({*made, *saved}) if made.get(name) != saved.get(name)), None)
        if odd is None:
            raise
        raise InputError(
            f"{source}: expected weights as this version makes them ('{odd}': {made.get(odd, 'none')}); got "
            f"{saved.get(odd, 'none')}. Another version wrote this model, or it was changed; read it with the version "
            "that wrote it, or train again (train --out)"
        ) from found


def _check_tensors(source: Path, plan: Plan, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse tensors that do not fit one another: predictions are read off them without another look."""
    classes, nodes = len(config["class_names"]), plan.metadata.num_nodes
    problems = [f"{source}: unknown tensor '{name}'" for name in tensors if name.split("/")[0] not in _KINDS]
    if not all(isinstance(name, str) for name in config["class_names"]) or classes != plan.metadata.num_classes:
        problems.append(f"{source}: expected {plan.metadata.num_classes} class names; got {classes}, or not all words")
    scores = _under("kept", tensors).get(_SCORES)
    if scores is not None and (tuple(scores.shape) != (nodes, classes) or not bool(torch.isfinite(scores).all())):
        problems.append(f"{source}: expected finite scores [{nodes}, {classes}]; got {list(scores.shape)}")
    for name, listed in _under("nodes", tensors).items():
        inside = listed.dtype is torch.int64 and listed.dim() == 1
        if not inside or (listed.numel() and not 0 <= int(listed.min()) <= int(listed.max()) < nodes):
            problems.append(f"{source}: expected the nodes of '{name}' as numbers below {nodes}; got others")
    InputError.collect(problems)


def _require_known(source: Path, config: dict[str, Any]) -> None:
    """Refuse a model of a method, mechanism or unit that nobody has made known here."""
    plan = config["plan"]
    used: list[tuple[registry.Kind, str]] = [("methods", config["method"]), ("units", plan["unit"]["name"])]
    used += [("mechanisms", stage["mechanism"]["name"]) for stage in plan["stages"]]
    InputError.collect(
        f"{source}: the {kind.removesuffix('s')} '{name}' of this model is not known here. It comes from another "
        "package: install it (with its entry point), or import its module before loading the model"
        for kind, name in dict.fromkeys(used)
        if not registry.knows(kind, name)
    )


def _tensors_of(model: Model) -> dict[str, Tensor]:
    """Everything that may be written, under names that say what it is."""
    shown = {} if model.scores is None or model.scores_are_private else {_SCORES: model.scores}
    return flat_tensors(model.plan, model.network, model.released, {**model.kept, **shown}, model.nodes)


def hash_of(*parts: Any, scores: Tensor | None) -> str:
    """The hash of a model's tensors, from its parts as `flat_tensors` takes them; `scores` if they may be written."""
    plan, network, released, kept, nodes = parts
    shown = {} if scores is None else {_SCORES: scores}
    tensors = flat_tensors(plan, network, released, {**kept, **shown}, nodes)
    return hash_of_tensors(described(tensors))


def flat_tensors(
    plan: Plan,
    network: nn.Module,
    released: dict[str, list[Any]],
    kept: dict[str, Tensor],
    nodes: dict[str, Tensor],
) -> dict[str, Tensor]:
    """Weights, released values, kept tensors and the split, under one name each, in the order of names."""
    tensors = {f"weights/{name}": value for name, value in network.state_dict().items()}
    for stage, values in released.items():
        mechanism = plan[stage].mechanism
        for number, value in enumerate(values):
            tensors |= {f"released/{stage}/{number}/{k}": v for k, v in mechanism.to_tensors(value).items()}
    tensors |= {f"kept/{name}": value for name, value in kept.items()}
    tensors |= {f"nodes/{name}": value for name, value in nodes.items()}
    return {name: tensors[name].detach() for name in sorted(tensors)}


def _under(kind: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{kind}/"): value for name, value in tensors.items() if name.startswith(f"{kind}/")}


def _read_released(plan: Plan, tensors: dict[str, Tensor]) -> dict[str, list[Any]]:
    """The releases of every stage, in their order, as the mechanism gave them."""
    grouped: dict[str, dict[int, dict[str, Tensor]]] = {}
    for name, value in tensors.items():
        stage, number, part = name.rsplit("/", 2)
        grouped.setdefault(stage, {}).setdefault(int(number), {})[part] = value
    return {
        stage: [plan[stage].mechanism.from_tensors(values[number]) for number in sorted(values)]
        for stage, values in grouped.items()
    }
