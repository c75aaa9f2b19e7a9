from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Data

from hushgraph import local
from hushgraph.attacks.base import Target
from hushgraph.attacks.reconstruction import ImageReconstruction
from hushgraph.errors import InputError


def pictures(count: int = 600) -> tuple[Data, torch.Tensor]:
    """Pictures of 36 pixels from six numbers each, and their embeddings: other six numbers in [0, 1]."""
    generator = torch.Generator().manual_seed(0)
    seeds = torch.randn(count, 6, generator=generator)
    images = torch.sigmoid(seeds @ torch.randn(6, 36, generator=generator))
    embeddings = torch.sigmoid(seeds @ torch.randn(6, 6, generator=generator))
    nobody = torch.empty((2, 0), dtype=torch.int64)
    return Data(x=images, edge_index=nobody, public_mask=torch.arange(count) < 400, num_nodes=count), embeddings


def attacked(data: Data, embeddings: torch.Tensor) -> tuple[float, float]:
    attack = ImageReconstruction(hidden=64, epochs=40, lr=0.003)
    found = attack.run(Target("model", torch.empty(0), embeddings), data)
    return float(roc_auc_score(found.truth, found.scores)), found.details["explained_variance"]


def test_clean_embeddings_give_images_away_and_reports_do_not() -> None:
    data, embeddings = pictures()
    area, explained = attacked(data, embeddings)
    assert area > 0.95
    assert explained > 0.7
    reports = local.FeatureRR.even(1.0, 6).perturb(embeddings.numpy(), np.random.default_rng(0))
    area, explained = attacked(data, torch.from_numpy(reports.astype(np.float32)))
    assert 0.4 < area < 0.65
    assert explained < 0.1


def test_a_large_epsilon_protects_nobody() -> None:
    data, embeddings = pictures()
    reports = local.FeatureRR.even(150.0, 6).perturb(embeddings.numpy(), np.random.default_rng(0))
    assert attacked(data, torch.from_numpy(reports.astype(np.float32)))[0] > 0.9


def test_public_images_are_needed() -> None:
    data, embeddings = pictures(20)
    with pytest.raises(InputError, match="public_mask"):
        attacked(data, embeddings)
    data.public_mask = None
    with pytest.raises(InputError, match="public_mask"):
        attacked(data, embeddings)
