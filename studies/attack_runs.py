"""What the runs of studies/attacks.yaml do: one attack on one target, on graphs and on pictures."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from hushgraph.attacks.analysis import analyze
from hushgraph.attacks.base import Attack, Target
from hushgraph.attacks.images import compare_inversions, image_target, read_images
from hushgraph.attacks.inversion import EnhancedInversion, OriginalInversion
from hushgraph.attacks.links import LinkTeller, PosteriorSimilarity, ReleasedRows
from hushgraph.attacks.membership import Lira, ShadowMembership, trained_target
from hushgraph.attacks.regression import AttributeInference, DegreeInference, FeatureReconstruction
from hushgraph.attacks.targets import method_trainer, target_of
from hushgraph.datasets.loading import local_file
from hushgraph.study.lab import Lab

Metrics = dict[str, float | None]
PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SOURCES = 118
"""More than 5,000 pairs: up to 25 neighbors and 25 others of each."""
GENDER = 1
"""The group of feature columns that is taken as the sensitive attribute."""
FACES = EnhancedInversion(steps=150, lr=0.05, l1=0.0, btv=1e-4, starts=1, spread=0.0, metric="ssim")
FIRST = 1
"""The seed whose pictures are shown; the settings of the enhanced attack were chosen with seed 0."""

ON_GRAPHS: dict[str, Callable[[Lab], Attack]] = {
    "LinkTeller": lambda lab: LinkTeller(sources=SOURCES, seed=lab.cell.seed),
    "LinkTeller, cached": lambda lab: LinkTeller(sources=SOURCES, seed=lab.cell.seed),
    "posterior similarity": lambda lab: PosteriorSimilarity(sources=SOURCES, seed=lab.cell.seed),
    "released rows": lambda lab: ReleasedRows(sources=SOURCES, seed=lab.cell.seed),
    "degrees from rows": lambda lab: DegreeInference(seed=lab.cell.seed),
    "degrees from predictions": lambda lab: DegreeInference(source="posteriors", seed=lab.cell.seed),
    "features from rows": lambda lab: FeatureReconstruction(seed=lab.cell.seed),
    "gender from predictions": lambda lab: AttributeInference(column=_gender(lab), seed=lab.cell.seed),
}


def attacked(lab: Lab, *, attack: str) -> Metrics:
    """What one attack finds out about edges, degrees, features or an attribute from one trained model."""
    model, data = _trained(_Kept(lab)), lab.data
    target = target_of(model, data, fresh_noise=not attack.endswith("cached"))
    found = analyze(ON_GRAPHS[attack](lab).run(target, data)).as_dict()
    details = found["details"]
    return {
        **_measures(found),
        "test_accuracy": model.metrics["accuracy"]["test"],
        "rmse": details.get("rmse"),
        "rmse_of_the_mean": details.get("rmse of guessing the mean"),
        "explained": details.get("explained_variance"),
        "epsilon_of_queries": details.get("epsilon of all queries together"),
    }


def found_members(lab: Lab, *, attack: str, shadows: int = 8) -> Metrics:
    """Who trained a model, by a shadow model or by LiRA; the target trains on the training nodes alone."""
    data = lab.data
    target = _member_target(_Kept(lab))
    per_class = 300 if int(data.num_nodes or 0) < 10_000 else 1000
    chosen: Attack = ShadowMembership(per_class=per_class) if attack == "shadow model" else Lira(shadows=shadows)
    found = analyze(chosen.run(target, data)).as_dict()
    return {
        **_measures(found),
        "members": _accuracy(target, data, "train_mask"),
        "others": _accuracy(target, data, "test_mask"),
    }


def inverted(lab: Lab, *, images: str, kind: str) -> Metrics:
    """Pictures of the classes of a classifier, by the original and by the enhanced attack."""
    data = read_images(local_file(f"{images}/{images}"))
    faces = images == "orl_faces"
    if faces:
        data = Data(x=data.x[:, ::2, ::2].contiguous(), y=data.y)
    enhanced = FACES if faces else EnhancedInversion()
    target = image_target(data, kind, seed=lab.cell.seed)
    original = OriginalInversion(metric=enhanced.metric)
    found = compare_inversions(target, data, original=original, enhanced=enhanced)
    if lab.cell.seed == FIRST:
        _keep_pictures(f"{images}-{kind}".replace("_", "-"), next(iter(found["grids"].values())))
    metrics: Metrics = {"train_accuracy": target.notes.get("accuracy")}
    for metric, by_name in found["distances"].items():
        metrics[f"{metric}_closer"] = 100.0 * _share_closer(by_name)
        for name, short in _SHOWN.items():
            metrics[f"{metric}_{short}"] = float(np.mean(by_name[name]))
    metrics["closer_unclipped"] = 100.0 * _share_closer(found["distances before clipping"])
    return metrics


_SHOWN = {"original": "original", "enhanced": "enhanced", "training mean": "mean", "a black picture": "black"}


def _measures(found: dict[str, Any]) -> Metrics:
    rates = {name: found["tpr_at"].get(rate) for name, rate in (("tpr_at_1", "0.01"), ("tpr_at_0.1", "0.001"))}
    shares = {name: None if rate is None else 100.0 * rate["value"] for name, rate in rates.items()}
    return {"auc": found["auc"], "balanced": found["balanced_accuracy"], **shares}


class _Kept:
    """A lab that a cache knows by what is trained: attacks on one model train it once."""

    def __init__(self, lab: Lab) -> None:
        cell = lab.cell
        self.lab = lab
        self.key = str((cell.dataset, cell.method, cell.unit, cell.epsilon, cell.delta, cell.seed))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept) and self.key == other.key


def _method(lab: Lab) -> Any:
    from hushgraph import registry

    assert lab.cell.method is not None
    return registry.load("methods", lab.cell.method.name)(**lab.cell.method.settings)


@lru_cache(maxsize=1)
def _trained(kept: _Kept) -> Any:
    lab = kept.lab
    return _method(lab).fit(lab.data, lab.unit, lab.budget, ledger=lab.ledger, seed=lab.seed)


@lru_cache(maxsize=1)
def _member_target(kept: _Kept) -> Target:
    lab = kept.lab
    assert lab.unit is not None
    trainer = method_trainer(_method(lab), lab.unit, lab.budget)
    return trained_target(str(lab.cell.axis("method")), lab.data, trainer, seed=lab.cell.seed)


def _gender(lab: Lab) -> int:
    """The more common value of the sensitive attribute, as a column of the features."""
    assert lab.cell.dataset is not None
    with np.load(local_file(lab.cell.dataset.load), allow_pickle=False) as arrays:
        columns = np.flatnonzero(arrays["x_group"] == GENDER)
        counts = np.bincount(arrays["x_indices"], minlength=len(arrays["x_group"]))
    return int(columns[np.argmax(counts[columns])])


def _accuracy(target: Target, data: Any, mask: str) -> float:
    chosen = data[mask]
    right: torch.Tensor = target.posteriors[chosen].argmax(1) == data.y[chosen]
    return 100.0 * float(right.float().mean())


def _share_closer(by_name: dict[str, list[float]]) -> float:
    return float(np.mean([a < b for a, b in zip(by_name["enhanced"], by_name["original"], strict=True)]))


def _keep_pictures(name: str, strips: dict[str, str]) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for row, uri in strips.items():
        (PICTURES / f"{name}-{row.replace(' ', '-')}.png").write_bytes(base64.b64decode(uri.split(",", 1)[1]))
