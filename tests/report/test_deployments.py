"""The registry's entry: YAML of the groups it asks for, with the run's own figures."""

from __future__ import annotations

import math

import pytest
import yaml

from hushgraph.report.context import read_context
from hushgraph.report.deployments import render_deployment
from reports import context, fitted

GROUPS = {"product", "dp_flavor", "privacy_loss", "model", "accounting", "implementation", "resources"}


@pytest.mark.parametrize(
    ("method", "unit", "flavor", "model"),
    [
        ("gap", "undirected-edge", "Gaussian DP", "Central"),
        ("dp-mlp", "node", "Approximate DP", "Central"),
        ("lpgnn", "local", "Pure DP", "Local"),
    ],
)
def test_groups_and_figures(method: str, unit: str, flavor: str, model: str) -> None:
    about = read_context(fitted(method, unit, 4.0))
    entry = yaml.safe_load(render_deployment(about))
    assert entry["tier"] == 3
    found = entry["deployment"]
    assert set(found) == GROUPS
    assert found["dp_flavor"]["name"] == flavor
    assert found["model"]["model_name"] == model
    assert found["privacy_loss"]["privacy_unit"] == unit
    assert about.epsilon <= found["privacy_loss"]["privacy_parameters"]["epsilon"] <= 1.001 * about.epsilon
    assert "Floating-point side channels" in found["implementation"]["mechanisms"]


def test_nothing_is_claimed_without_protection() -> None:
    found = yaml.safe_load(render_deployment(context(epsilon=math.inf)))["deployment"]
    assert found["dp_flavor"]["name"] == "None"
    assert "privacy_parameters" not in found["privacy_loss"]
