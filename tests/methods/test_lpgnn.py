from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from hushgraph.errors import BudgetError, CalibrationError, InputError, PrivateAccessError, UnprovenError
from hushgraph.ledger.certificate import Randomness
from hushgraph.ledger.ledger import Ledger
from hushgraph.local import MultiBit, RandomizedResponse
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.methods.lpgnn import LPGNN
from hushgraph.methods.model import load
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Stage
from hushgraph.vault import Vault
from small_graphs import random_graph

LOCAL, FEATURES_ONLY = units.Local(), units.Local(private_labels=False)
SIZES = Metadata(2708, 1354, 677, 677, 1433, 7)
QUICK = LPGNN(low=-1.0, high=1.0, epochs=3, hidden_channels=4, feature_steps=2, label_steps=2)


def fit(graph: Data, method: LPGNN = QUICK, unit: units.Unit | None = None, epsilon: float = 2.0, **more: Any) -> Any:
    return method.fit(graph, unit, Budget(epsilon), **{"seed": 0, **more})


# The price


@pytest.mark.parametrize(("total", "label"), [(1.5, 0.5), (2.0, None), (0.3, 0.1), (1.01, 1.0), (3.7, 2.9)])
def test_the_price_is_exactly_the_sum(total: float, label: float | None) -> None:
    plan = LPGNN(low=0, high=1, label_epsilon=label).plan(SIZES, LOCAL, Budget(total))
    features, labels = plan.stages
    assert labels.mechanism.epsilon == (total / 2 if label is None else label)
    assert plan.epsilon == features.mechanism.epsilon + labels.mechanism.epsilon <= total
    assert plan.epsilon == pytest.approx(total, rel=1e-12)


def test_public_labels_cost_nothing_and_may_not_be_budgeted() -> None:
    (stage,) = LPGNN(low=0, high=1).plan(SIZES, FEATURES_ONLY, Budget(0.01)).stages
    assert stage == Stage("features", LocalReport(MultiBit(0.01, 1433), "features", 0, 1), noise=None, scale=1.0)
    with pytest.raises(InputError, match="label_epsilon"):
        LPGNN(low=0, high=1, label_epsilon=0.5).plan(SIZES, FEATURES_ONLY, Budget(1.0))


def test_predictions_about_another_graph_ask_for_features_alone(graph: Data) -> None:
    other, ledger = random_graph(1), Ledger.in_memory(warn=False)
    found = fit(graph).predict_on(other, Budget(2.0, 1e-3), ledger=ledger)
    (stage,) = found.plan.stages
    assert (stage.name, stage.mechanism.epsilon) == ("features", 2.0)
    assert found.certificate.epsilon == 2.0
    assert ledger.total(other.name, units.Local()).epsilon == 2.0
    free = fit(graph, LPGNN(features="ones", epochs=1, label_steps=2)).predict_on(other, Budget(2.0, 1e-3))
    assert (free.plan.stages, free.certificate.epsilon) == ((), 0.0)


def test_a_label_budget_over_the_total_is_refused() -> None:
    with pytest.raises(InputError, match="epsilon"):
        LPGNN(low=0, high=1, label_epsilon=2.0).plan(SIZES, LOCAL, Budget(2.0))


@pytest.mark.parametrize("kind", ["codes", "ones", "degree", "random"])
def test_free_features_cost_nothing_and_need_no_range(kind: str, graph: Data) -> None:
    method = LPGNN(features=kind, epochs=2, hidden_channels=4, label_steps=2)
    assert fit(graph, method, FEATURES_ONLY).certificate.epsilon == 0.0
    assert fit(graph, method, LOCAL, 0.7).certificate.epsilon == 0.7


def test_paper_mode_claims_the_number_and_proves_nothing(graph: Data) -> None:
    model = fit(graph, LPGNN(epochs=2, hidden_channels=4, label_steps=2), LOCAL, 2.0, paper_mode=True)
    assert model.plan.paper is not None
    assert model.plan.paper.epsilon == 2.0
    assert model.certificate.epsilon == math.inf == model.plan.epsilon
    assert not model.certificate.is_private


# The contract


def test_a_missing_range_is_refused_before_data_is_read(graph: Data, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with pytest.raises(InputError, match="public range"):
        LPGNN().fit(graph, LOCAL, Budget(1.0), ledger=ledger)
    assert not ledger.exists


@pytest.mark.parametrize("bad", [{"low": 1.0, "high": 0.0}, {"low": math.nan, "high": 1.0}, {"rule": "guess"}])
def test_bad_choices_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        LPGNN(**bad)


def test_missing_values_are_refused(graph: Data) -> None:
    graph.x[3, 1] = math.nan
    with pytest.raises(InputError, match="NaN"):
        fit(graph)


@pytest.mark.parametrize("unit", [units.UndirectedEdge(), units.Node(), units.Record()])
def test_other_units_are_refused_by_name(unit: units.Unit, graph: Data) -> None:
    with pytest.raises(UnprovenError, match=unit.name):
        fit(graph, unit=unit)


@pytest.mark.parametrize(("kind", "stage"), [(MultiBit, "features"), (RandomizedResponse, "labels")])
def test_the_charge_is_written_before_a_report_is_drawn(
    kind: type, stage: str, graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, drawn = Ledger(tmp_path), []
    real = kind.perturb

    def watched(self: Any, values: Any, rng: Any = None) -> Any:
        charges = [entry.values["stage"] for entry in ledger.history().entries if entry.kind == "charge"]
        drawn.append(charges[-1])
        return real(self, values, rng)

    monkeypatch.setattr(kind, "perturb", watched)
    fit(graph, ledger=ledger)
    assert drawn == [stage]


def test_a_dataset_over_its_limit_is_refused_and_nothing_is_drawn(
    graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path)
    fit(graph, ledger=ledger)
    ledger.set_limit(3.0, 1e-5)
    monkeypatch.setattr(MultiBit, "perturb", lambda *_: pytest.fail("drawn"))
    with pytest.raises(BudgetError, match="refused"):
        fit(graph, ledger=ledger)


def test_nobody_is_asked_twice(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Vault.release

    def twice(self: Vault, *words: Any) -> Any:
        real(self, *words)
        return real(self, *words)

    monkeypatch.setattr(Vault, "release", twice)
    with pytest.raises(BudgetError, match="used 1"):
        fit(graph)


def test_a_randomizer_over_the_budget_is_refused(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgraph.methods.lpgnn.MultiBit", lambda epsilon, columns: MultiBit(2 * epsilon, columns))
    with pytest.raises(CalibrationError, match="over its budget"):
        fit(graph)


def test_the_randomizer_that_draws_is_the_one_in_the_plan(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, real = [], MultiBit.perturb
    monkeypatch.setattr(MultiBit, "perturb", lambda self, *words: drawn.append(self) or real(self, *words))
    assert drawn == [] != [model := fit(graph)]
    assert drawn == [model.plan["features"].mechanism.randomizer]


def test_raw_features_stay_in_the_vault(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LPGNN, "_features", lambda self, vault: vault.features.max())
    with pytest.raises(PrivateAccessError, match="features are private"):
        fit(graph)


# What leaks


class Quantiles:
    """Randomness whose draws run through all equally likely cases, so that many equal people show the whole law."""

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def random(self, size: Any = None) -> np.ndarray:
        people = size[0] if isinstance(size, tuple) else size
        return ((np.arange(people) // self.columns + 0.5) / (people // self.columns)).reshape(size)

    def integers(self, low: int, high: int | None = None, size: Any = None) -> np.ndarray:
        return np.arange(size) % self.columns


def law_of_reports(row: list[float], epsilon: float, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], float]:
    """The law of one person's report, read off what the method released about 6,000 people with this row."""
    people = 6000
    monkeypatch.setattr("hushgraph.mechanisms.local_report._device_randomness", lambda noise: Quantiles(2))
    graph = random_graph(0, people, 50, num_features=2)
    graph.x = torch.tensor(row).expand(people, 2).clone()
    method = LPGNN(low=0.0, high=1.0, epochs=1, hidden_channels=2, feature_steps=1)
    model = fit(graph, method, FEATURES_ONLY, epsilon)
    (report,) = model.released["features"]
    pairs = list(zip(report.index[:, 0].tolist(), report.value[:, 0].tolist(), strict=True))
    return {(column, sign): pairs.count((column, sign)) / people for column in (0, 1) for sign in (-1, 1)}


def test_no_row_is_likelier_than_another_by_more_than_the_stated_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    epsilon = 1.2
    rows = [[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.3, 0.9], [7.0, -7.0]]
    laws = [law_of_reports(row, epsilon, monkeypatch) for row in rows]
    realized = max(math.log(first[report] / second[report]) for first in laws for second in laws for report in first)
    # Exact up to the grid of 3,000 quantiles; a scale of 2/3 or 3/2 would be far outside.
    assert realized == pytest.approx(epsilon, abs=0.01)
    assert laws[4] == laws[2]  # values outside the range are clipped


def test_everything_after_the_reports_depends_on_them_alone(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same reports, other people behind them: the same model, chosen the same way."""
    report = MultiBit(1.0, 5).perturb(np.zeros((40, 5)), np.random.default_rng(0))
    labels = torch.where(graph.test_mask, -1, torch.arange(40) % 3)
    kept = {"features": report, "labels": labels}
    monkeypatch.setattr(LocalReport, "release", lambda self, *_: kept[self.part])
    other = random_graph(0)
    other.x, other.y = torch.randn(40, 5), (graph.y + 1) % 3
    for rule in ("votes", "drop", "forward", "cross-entropy"):
        method = LPGNN(low=0, high=1, epochs=4, hidden_channels=4, rule=rule)
        one, two = fit(graph, method), fit(other, method)
        assert torch.equal(one.scores, two.scores)
        assert one.settings == two.settings


def test_labels_of_test_nodes_are_never_asked(graph: Data) -> None:
    model = fit(graph)
    (labels,) = model.released["labels"]
    assert bool((labels[graph.test_mask] == -1).all())
    assert bool((labels[~graph.test_mask] >= 0).all())


def test_private_runs_draw_fresh_reports_from_the_operating_system(graph: Data) -> None:
    one, two = (fit(graph, seed=None) for _ in range(2))
    first, second = (model.released["features"][0] for model in (one, two))
    assert not (np.array_equal(first.index, second.index) and np.array_equal(first.value, second.value))
    assert (one.certificate.epsilon, one.certificate.randomness) == (2.0, Randomness.DEVICES)


# The model


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
@pytest.mark.parametrize("unit", [LOCAL, FEATURES_ONLY])
def test_saved_models_predict_the_same(name: str, unit: units.Unit, graph: Data, tmp_path: Path) -> None:
    method = LPGNN(low=(-1.0,) * 5, high=(1.0,) * 5, epochs=2, hidden_channels=4, backbone=name, normalize=False)
    model = fit(graph, method, unit)
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.method == method
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    # From the stored reports and the public edges, without the features of the graph.
    blank = random_graph(0)
    blank.x = torch.zeros_like(blank.x)
    assert torch.allclose(loaded.predict_proba(blank), model.predict_proba(), atol=1e-5)
    assert loaded.certificate == model.certificate


def test_without_protection_it_is_a_plain_network(graph: Data) -> None:
    model = fit(graph, epsilon=math.inf)
    assert model.certificate.epsilon == math.inf
    assert model.settings["label_steps"] == 0
    labels_alone = LPGNN(features="ones", epochs=2, hidden_channels=4, label_steps=2)
    assert fit(graph, labels_alone, LOCAL, math.inf).certificate.epsilon == math.inf


def two_communities(people: int = 400) -> Data:
    """Two groups that keep to themselves and differ in their features: what LPGNN is for."""
    generator = torch.Generator().manual_seed(0)
    group = torch.arange(people) % 2
    first = torch.randint(people // 2, (people * 4,), generator=generator) * 2
    second = torch.randint(people // 2, (people * 4,), generator=generator) * 2
    side = torch.arange(people * 4) % 2
    edges = torch.stack([first + side, second + side])
    edges = edges[:, edges[0] != edges[1]]
    graph = random_graph(0, people, 10, num_features=4)
    graph.edge_index = torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)
    graph.x = group.unsqueeze(1).float().expand(people, 4).clone()
    graph.y, graph.class_names = group, ["a", "b"]
    return graph


def test_it_learns_from_noisy_answers_what_one_answer_does_not_say() -> None:
    method = LPGNN(low=0, high=1, label_epsilon=1.0, epochs=60)
    model = fit(two_communities(), method, LOCAL, 2.0)
    # One report names the true class with probability 0.73.
    assert model.metrics["accuracy"]["test"] > 95.0
