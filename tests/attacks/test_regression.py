from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from hushgraph import datasets
from hushgraph.attacks import Target, analyze
from hushgraph.attacks.base import dense_features
from hushgraph.attacks.regression import AttributeInference, DegreeInference, FeatureReconstruction, ridge
from hushgraph.errors import InputError


@pytest.fixture(scope="module")
def campus() -> Data:
    return datasets.load("campus", num_nodes=600)


def with_rows(data: Data, rows: torch.Tensor) -> Target:
    return Target("t", torch.ones(data.num_nodes, 6) / 6, rows)


def test_rows_that_hold_degrees_give_them_away_and_noise_does_not(campus: Data) -> None:
    degrees = torch.bincount(campus.edge_index[0], minlength=campus.num_nodes).float()
    told = DegreeInference().run(with_rows(campus, degrees.log1p().unsqueeze(1)), campus)
    noise = torch.randn(campus.num_nodes, 4, generator=torch.Generator().manual_seed(0))
    hidden = DegreeInference().run(with_rows(campus, noise), campus)
    assert told.details["rmse"] < 0.3 * told.details["rmse of guessing the mean"]
    assert hidden.details["rmse"] > 0.9 * hidden.details["rmse of guessing the mean"]
    assert analyze(told).auc.value > 0.99
    assert 0.4 < analyze(hidden).auc.value < 0.6


def test_features_are_found_in_a_linear_image_of_them_and_not_in_noise(campus: Data) -> None:
    x = dense_features(campus)
    mixed = x @ torch.randn(x.shape[1], x.shape[1], generator=torch.Generator().manual_seed(1))
    told = FeatureReconstruction().run(with_rows(campus, mixed), campus)
    noise = torch.randn(campus.num_nodes, 4, generator=torch.Generator().manual_seed(2))
    hidden = FeatureReconstruction().run(with_rows(campus, noise), campus)
    assert told.details["explained_variance"] > 0.5
    assert hidden.details["explained_variance"] < 0.1


def test_an_attribute_that_the_predictions_show_is_inferred(campus: Data) -> None:
    value = dense_features(campus)[:, 0]
    posteriors = torch.stack([0.1 + 0.8 * value, 0.9 - 0.8 * value], dim=1)
    assert analyze(AttributeInference(column=0).run(Target("t", posteriors), campus)).auc.value > 0.99
    with pytest.raises(InputError, match="column"):
        AttributeInference(column=10_000).run(Target("t", posteriors), campus)


def test_ridge_recovers_a_linear_map() -> None:
    rng = np.random.default_rng(0)
    shown = rng.standard_normal((500, 3))
    wanted = shown @ np.array([[1.0], [2.0], [-1.0]]) + 4.0
    known = np.arange(500) < 250
    assert np.abs(ridge(shown, wanted, known)[~known] - wanted[~known]).max() < 0.1
