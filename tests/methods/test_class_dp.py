"""Class- and subclass-DP: every network trains within its budget; rules look at one record at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hushgraph as hg
from hushgraph.errors import CalibrationError, InputError
from hushgraph.methods.class_dp import ClassDP
from hushgraph.nn.filters import PublicFilters
from hushgraph.nn.partition import NearestCenter, Spread, k_means
from hushgraph.nn.rowwise import require_rowwise
from hushgraph.privacy import units
from small_pictures import SIDE, pictures

BUDGET = hg.Budget(6.0, 1e-2)


def fit(method: ClassDP, unit: units.Unit, budget: hg.Budget = BUDGET) -> hg.Model:
    return method.fit(pictures(), unit, budget, ledger=hg.Ledger(), seed=0)


@pytest.mark.parametrize("kind", ["softmax", "mlp"])
def test_networks_on_pixels_train_within_the_budget(kind: str, tmp_path: Path) -> None:
    model = fit(ClassDP(network_kind=kind, steps=5, lr=1.0), units.Class())
    assert 0.0 < model.plan.epsilon <= 6.0
    data = pictures()
    assert torch.equal(hg.load(model.save(tmp_path / "run")).predict(data), model.predict(data))


@pytest.mark.parametrize("rule", ["spread", "nearest"])
def test_parts_of_classes_train_by_both_rules(rule: str) -> None:
    method = ClassDP(network_kind="softmax", steps=30, lr=10.0, rule=rule)
    model = fit(method, units.Subclass(parts=20))
    assert model.plan["classifier"].mechanism.as_dict()["parts"] == 20
    assert model.metrics["accuracy"]["test"] > 60.0


def test_noise_that_is_given_is_used_and_must_fit_the_budget() -> None:
    method = ClassDP(network_kind="softmax", steps=5, noise_multiplier=3.0)
    model = fit(method, units.Class())
    assert model.plan["classifier"].scale == pytest.approx(0.3)
    with pytest.raises(CalibrationError, match="over its budget"):
        fit(method, units.Class(), hg.Budget(0.1, 1e-2))


def test_without_protection_it_trains_plainly() -> None:
    model = fit(ClassDP(network_kind="softmax", epochs=20), units.Class(), hg.Budget(float("inf")))
    assert model.metrics["accuracy"]["test"] > 95.0


def test_a_part_follows_from_one_record_and_all_parts_are_used() -> None:
    made = torch.Generator().manual_seed(0)
    rows = torch.rand(3000, 64, generator=made)
    for rule in (Spread(64, 10), NearestCenter(k_means(rows[:500], 10))):
        require_rowwise(rule)
        parts = rule(rows)
        assert parts.shape == (3000, 1)
        assert set(parts.squeeze(1).tolist()) == set(range(10))
        changed = rows.clone()
        changed[17] = 0.0
        kept = torch.arange(3000) != 17
        assert torch.equal(rule(changed)[kept], parts[kept])


def test_public_filters_describe_pictures_by_uncorrelated_columns_and_let_gradients_through() -> None:
    data = pictures(400, 800)
    filters = PublicFilters((SIDE, SIDE), 6, filters=8, side=3, places=2)
    with pytest.raises(InputError, match="contrast"):
        filters.fit(torch.zeros(50, SIDE * SIDE))
    filters.fit(data.x[400:])
    found = filters(data.x)
    assert found.shape == (1200, filters.width_out)
    columns = found[400:, :-1]
    covariance = (columns - columns.mean(dim=0)).T @ (columns - columns.mean(dim=0))
    off = covariance - covariance.diagonal().diag()
    assert float(off.abs().max()) < 1e-3 * float(covariance.diagonal().max())
    rows = data.x[:2].clone().requires_grad_()
    filters(rows).sum().backward()
    assert rows.grad is not None
    assert bool(rows.grad.any())
