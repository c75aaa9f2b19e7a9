"""What each feature is worth to a public model and betrays about what must not be known: the inputs of FeatureRR.

Both are computed from public records only. A graph must say which of its records are public (`data.public_mask`); a
score that follows from a protected record is refused, because the budgets of FeatureRR would then follow from it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from hushgraph.errors import InputError
from hushgraph.graph.rows import dense_rows


@dataclass(frozen=True)
class FeatureScores:
    """One number per feature each, which sum to 1 (alpha and beta of Eqs 5 and 6)."""

    importance: tuple[float, ...]
    sensitivity: tuple[float, ...]


def feature_scores(model: nn.Module, data: Data, masked: Tensor | None = None) -> FeatureScores:
    """Scores from the public records of `data`, for the settings `importance` and `sensitivity` of FeatureRR.

    model: a public model of rows, class scores `[n, classes]` for rows `[n, features]`. Importance is the mean over
        records of the size of integrated gradients toward the predicted class, from the mean public row.
    masked: what the rows of the public records become when the sensitive part of the input is masked out, such as the
        embedding of an image with a covered face. Sensitivity is the mean size of that change; without it all alike.
    """
    rows = _public_rows(data)
    changed = None if masked is None else _like(masked, rows)
    importance = _importance(model, rows)
    sensitivity = torch.ones(rows.shape[1]) if changed is None else (rows - changed).abs().mean(0)
    return FeatureScores(_shares(importance), _shares(sensitivity))


def _public_rows(data: Data) -> Tensor:
    mask: Any = data.get("public_mask")
    if not isinstance(mask, Tensor) or mask.dtype is not torch.bool or mask.shape != (data.num_nodes,):
        raise InputError(
            "scores: expected data.public_mask, which says whose records are public; got none. Scores of protected "
            "records would betray them: use records of others, or a model of public data"
        )
    if not bool(mask.any()):
        raise InputError("scores: expected at least one public record; got none in data.public_mask")
    return dense_rows(data.x).float()[mask] if not isinstance(data.x, Tensor) else data.x.to_dense().float()[mask]


def _like(masked: Tensor, rows: Tensor) -> Tensor:
    if masked.shape != rows.shape:
        raise InputError(f"masked: expected a row for each public record, {list(rows.shape)}; got {list(masked.shape)}")
    return masked.float()


def _importance(model: nn.Module, rows: Tensor) -> Tensor:
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise InputError("scores need the package captum; install it: pip install 'hushgraph[scores]'") from error
    was_training = model.training
    model.eval()
    with torch.no_grad():
        predicted = model(rows).argmax(1)
    found = IntegratedGradients(model).attribute(rows, baselines=rows.mean(0, keepdim=True), target=predicted)
    model.train(was_training)
    average: Tensor = found.detach().abs().mean(0)
    return average


def _shares(sizes: Tensor) -> tuple[float, ...]:
    """Scaled to sum 1; all alike where nothing stands out."""
    total = sizes.double().sum()
    even = torch.full_like(sizes.double(), 1.0 / len(sizes))
    return tuple((sizes.double() / total if total > 0 else even).tolist())
