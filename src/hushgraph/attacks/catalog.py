"""The attacks by name, and what `hushgraph attack` runs for each: a trained model against its graph, or images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_geometric.data import Data

from hushgraph.attacks.analysis import Analysis, analyze
from hushgraph.attacks.base import Attack, Progress, Target, silent
from hushgraph.attacks.inversion import EnhancedInversion
from hushgraph.attacks.links import LinkTeller, PosteriorSimilarity, ReleasedRows
from hushgraph.attacks.lira import Lira
from hushgraph.attacks.membership import ShadowMembership, trained_target
from hushgraph.attacks.regression import AttributeInference, DegreeInference, FeatureReconstruction
from hushgraph.attacks.targets import method_trainer, target_of
from hushgraph.errors import InputError, did_you_mean
from hushgraph.methods.base import TrainedModel
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget

ATTACKS: dict[str, Callable[..., Attack]] = {
    "linkteller": LinkTeller,
    "similarity": PosteriorSimilarity,
    "released-rows": ReleasedRows,
    "membership": ShadowMembership,
    "lira": Lira,
    "degree": DegreeInference,
    "features": FeatureReconstruction,
    "attribute": AttributeInference,
    "inversion": EnhancedInversion,
}
_RETRAINS = {"membership", "lira"}


def attack_by_name(name: str, **parameters: Any) -> Attack:
    """The attack called `name`."""
    if name not in ATTACKS:
        raise InputError(f"unknown attack '{name}'; {did_you_mean(name, ATTACKS)}")
    try:
        return ATTACKS[name](**parameters)
    except TypeError as error:
        raise InputError(f"the attack '{name}' does not take {', '.join(sorted(parameters))}: {error}") from error


def attack_model(
    name: str, model: TrainedModel, data: Data, *, progress: Progress = silent, **parameters: Any
) -> Analysis:
    """Run one attack on a trained model and its graph.

    Membership attacks need members to be apart from the rest, so they train the model's method again, on the train
    nodes only, under the same budget; the result is about the method, and its target's name says so.
    """
    if name == "released-rows":
        parameters.setdefault("width", _hop_width(model))
    attack = attack_by_name(name, **parameters)
    _same_graph(model, data)
    target = _retrained(model, data) if name in _RETRAINS else target_of(model, data)
    return analyze(attack.run(target, data, progress))


def attack_images(
    path: str, classifier: str, *, model_seed: int = 0, progress: Progress = silent, **parameters: Any
) -> dict[str, Any]:
    """Train a classifier on the images of an npz file and invert it, by the original and by the enhanced attack."""
    from hushgraph.attacks.images import compare_inversions, image_target, read_images

    enhanced = EnhancedInversion(**parameters)
    images = read_images(path)
    target = image_target(images, classifier, seed=model_seed, progress=progress)
    return compare_inversions(target, images, enhanced=enhanced, progress=progress)


def _same_graph(model: TrainedModel, data: Data) -> None:
    nodes, width = model.facts.num_nodes, model.facts.num_features
    if data.num_nodes != nodes or (width is not None and data.x.shape[1] != width):
        raise InputError(
            f"attack: expected the graph that the model was trained on ({nodes} nodes, {width} features); got "
            f"{data.num_nodes} nodes with {data.x.shape[1]} features"
        )


def _retrained(model: TrainedModel, data: Data) -> Target:
    certificate = model.certificate
    trainer = method_trainer(
        model.method, units.from_dict(certificate.unit), Budget(certificate.epsilon, certificate.delta), seeded=False
    )
    return trained_target(f"{model.method.name} trained again on the train nodes", data, trainer, 0)


def _hop_width(model: TrainedModel) -> int:
    widths = {value.shape[1] for value in model.released.values() if value.dim() == 2}
    if len(widths) != 1:
        raise InputError("released-rows: expected a model that stores rows of one width for every hop; got another")
    return int(widths.pop())
