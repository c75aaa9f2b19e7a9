"""The attacks by name, and what `hushgraph attack` runs for each: a trained model against its graph, or images.

Importing this file imports no attack: that happens when one is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushgraph import registry
from hushgraph.errors import InputError

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from hushgraph.attacks.analysis import Analysis
    from hushgraph.attacks.base import Attack, Progress, Target
    from hushgraph.methods.model import Model

_RETRAINS = {"membership", "lira"}


def attack_class(name: str) -> type[Attack]:
    """The class of the attack called `name`."""
    found: type[Attack] = registry.load("attacks", name)
    return found


def attack_by_name(name: str, **parameters: Any) -> Attack:
    """The attack called `name`, with these parameters."""
    kind = attack_class(name)
    try:
        return kind(**parameters)
    except TypeError as error:
        raise InputError(f"the attack '{name}' does not take {', '.join(sorted(parameters))}: {error}") from error


def attack_model(
    name: str, model: Model, data: Data, *, progress: Progress | None = None, **parameters: Any
) -> Analysis:
    """Run one attack on a trained model and its graph.

    Membership attacks need members to be apart from the rest, so they train the model's method again, on the train
    nodes only, under the same budget; the result is about the method, and its target's name says so.
    """
    from hushgraph.attacks.analysis import analyze
    from hushgraph.attacks.base import silent
    from hushgraph.attacks.targets import target_of

    if name == "released-rows":
        parameters.setdefault("width", _hop_width(model))
    attack = attack_by_name(name, **parameters)
    _same_graph(model, data)
    target = _retrained(model, data) if name in _RETRAINS else target_of(model, data)
    return analyze(attack.run(target, data, progress or silent))


def attack_images(
    path: str, classifier: str, *, model_seed: int = 0, progress: Progress | None = None, **parameters: Any
) -> dict[str, Any]:
    """Train a classifier on the images of an npz file and invert it, by the original and by the enhanced attack."""
    from hushgraph.attacks.base import silent
    from hushgraph.attacks.images import compare_inversions, image_target, read_images
    from hushgraph.attacks.inversion import EnhancedInversion

    enhanced, watched = EnhancedInversion(**parameters), progress or silent
    images = read_images(path)
    target = image_target(images, classifier, seed=model_seed, progress=watched)
    return compare_inversions(target, images, enhanced=enhanced, progress=watched)


def _same_graph(model: Model, data: Data) -> None:
    nodes, width = model.metadata.num_nodes, model.metadata.num_features
    if data.num_nodes != nodes or (width is not None and data.x.shape[1] != width):
        raise InputError(
            f"attack: expected the graph that the model was trained on ({nodes} nodes, {width} features); got "
            f"{data.num_nodes} nodes with {data.x.shape[1]} features"
        )


def _retrained(model: Model, data: Data) -> Target:
    from hushgraph.attacks.membership import trained_target
    from hushgraph.attacks.targets import method_trainer

    trainer = method_trainer(model.method, model.unit, model.plan.budget, seeded=False)
    return trained_target(f"{model.method.name} trained again on the train nodes", data, trainer, 0)


def _hop_width(model: Model) -> int:
    from hushgraph.attacks.targets import released_tensors

    widths = {int(value.shape[1]) for value in released_tensors(model)}
    if len(widths) != 1:
        raise InputError("released-rows: expected a model that stores rows of one width for every hop; got another")
    return widths.pop()
