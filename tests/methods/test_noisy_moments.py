"""One release and a ridge: it learns, stays in its budget, and needs no public records to run."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.methods.noisy_moments import NoisyMoments
from hushgraph.privacy import units
from hushgraph.training.moment_ridge import PublicMoment
from small_pictures import CLASSES, pictures


def fit(data: Data, epsilon: float = 2.0) -> hg.Model:
    method = NoisyMoments(frequencies=40)
    return method.fit(data, units.Record(), hg.Budget(epsilon, 1e-5), ledger=hg.Ledger(), seed=0)


def test_it_learns_within_its_budget_and_predicts_the_same_after_loading(tmp_path: object) -> None:
    data = pictures()
    model = fit(data)
    assert model.metrics["accuracy"]["test"] > 95.0
    assert 0.0 < model.plan.epsilon <= 2.0
    assert [stage.mechanism.name for stage in model.plan] == ["class-sums"]
    loaded = hg.load(model.save(tmp_path / "run"))  # type: ignore[operator]
    assert torch.equal(loaded.predict(data), model.predict(data))


def test_without_public_records_the_noisy_means_classify() -> None:
    data = pictures()
    data.public_mask = None
    model = fit(data)
    assert "ridge" not in model.settings
    assert model.metrics["accuracy"]["test"] > 80.0


def test_the_weights_follow_from_releases_and_public_records_alone() -> None:
    """Labels of records that do not train, and of public ones, change nothing."""
    data = pictures()
    first = fit(data).network.state_dict()
    data.y = torch.where(data.train_mask, data.y, (data.y + 1) % CLASSES)
    second = fit(data).network.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_ridge_grows_with_the_noise_and_little_noise_gives_good_weights() -> None:
    made = torch.Generator().manual_seed(1)
    rows = torch.randn(3000, 20, generator=made) / 20**0.5
    labels = (rows[:, :2] @ torch.tensor([[1.0, -1.0], [0.0, 2.0]])).argmax(dim=1)
    sums = rows[:2000].T @ (torch.eye(2)[labels[:2000]] - 0.5)
    ridges, moment = [], PublicMoment(rows[2000:])
    for noise in (0.1, 10.0, 100.0):
        noisy = sums + noise * torch.randn(sums.shape, generator=made)
        weights, ridge = moment.solve(noisy, 2000, noise)
        ridges.append(ridge)
        assert ridge == moment.choose_ridge(noisy.double() / 2000, 2000, noise / 2000)
        assert torch.equal(weights, PublicMoment(rows[2000:]).solve(noisy, 2000, noise)[0])  # solving changes nothing
        if noise == 0.1:
            assert float(((rows @ weights).argmax(dim=1) == labels).float().mean()) > 0.9
    assert ridges[0] < ridges[1] < ridges[2]
