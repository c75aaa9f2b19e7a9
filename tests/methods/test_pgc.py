from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Data

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.links import split_links, unlinked_pairs
from hushgraph.graph.rows import SparseRows, dense_rows
from hushgraph.local import OneBit, PerFeature
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.methods import pgc
from hushgraph.methods.model import load
from hushgraph.methods.pgc import PGC, Estimates, PGCLinks, area_under_curve
from hushgraph.nn.links import divergence
from hushgraph.nn.propagation import Neighborhood, PropagatedRows
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.vault import Vault
from small_graphs import random_graph

SIZES = Metadata(2708, 140, 500, 1000, 1433, 7)
LOCAL = units.Local(private_labels=False)
RANGE: dict[str, Any] = {"low": -1.0, "high": 1.0}


@pytest.mark.parametrize("each", [1.0, 5.0, 9.0])
def test_the_price_is_the_sum_over_features(each: float) -> None:
    plan = PGC(low=0, high=1, feature_epsilon=each).plan(SIZES, LOCAL, Budget(1433 * each))
    assert plan.epsilon == 1433 * each
    assert plan["features"].mechanism == LocalReport(PerFeature(OneBit(each), 1433), "features", 0, 1)


@pytest.mark.parametrize("total", [1.0, 7.7, 100.3])
def test_a_total_is_divided_and_never_exceeded(total: float) -> None:
    plan = PGC(low=0, high=1).plan(SIZES, LOCAL, Budget(total))
    assert plan.epsilon <= total
    assert plan.epsilon == pytest.approx(total, rel=1e-12)


def test_a_price_per_feature_over_the_budget_is_refused() -> None:
    with pytest.raises(InputError, match="1433 features at 1 each spend 1433"):
        PGC(low=0, high=1, feature_epsilon=1.0).plan(SIZES, LOCAL, Budget(1.0))


def test_private_labels_a_missing_range_and_absurd_budgets_are_refused(graph: Data) -> None:
    with pytest.raises(InputError, match="private_labels"):
        PGC(low=0, high=1).plan(SIZES, units.Local(), Budget(1.0))
    with pytest.raises(InputError, match="public range"):
        PGC().fit(graph, LOCAL, Budget(1.0))
    with pytest.raises(InputError, match="feature_epsilon"):
        PGC(low=0, high=1).plan(SIZES, LOCAL, Budget(1433 * 40.0))


@pytest.mark.parametrize("mechanism", ["one-bit", "laplace", "piecewise"])
def test_every_mechanism_trains_and_the_certificate_has_the_total(mechanism: str, graph: Data, tmp_path: Path) -> None:
    method = PGC(**RANGE, feature_epsilon=0.5, mechanism=mechanism, epochs=3, hidden_channels=4)
    model = method.fit(graph, None, Budget(2.5), seed=0)
    assert model.certificate.epsilon == 2.5
    assert model.unit == LOCAL
    loaded = load(model.save(tmp_path / "model"))
    assert torch.equal(loaded.predict_proba(), model.predict_proba())


def dense_estimates(estimates: Estimates) -> torch.Tensor:
    return estimates.center + estimates.step * dense_rows(estimates.reports)


def test_the_first_convolution_is_estimated_without_bias(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    # 4,000 equal graphs in one: the mean estimate of every entry is within 5 deviations of the truth (fixed seed), and
    # a bit drawn at 2/3 of the epsilon that the estimate assumes would be far outside.
    seen: list[torch.Tensor] = []
    estimates = PGC.estimates

    def watched(self: PGC, vault: Vault) -> Estimates:
        found = estimates(self, vault)
        seen.append(dense_estimates(found))
        return found

    monkeypatch.setattr(PGC, "estimates", watched)
    graph = random_graph(0, 4000, 60, num_features=2)
    graph.x = torch.tensor([0.25, 1.0]).expand(4000, 2).clone()
    PGC(low=0, high=1, feature_epsilon=1.0, epochs=1, hidden_channels=2).fit(graph, None, Budget(2.0), seed=0)
    deviation = OneBit(1.0).variance(torch.tensor([0.25, 1.0]).numpy()) ** 0.5 / math.sqrt(4000)
    assert abs(float(seen[0][:, 0].mean()) - 0.25) < 5 * deviation[0]
    assert abs(float(seen[0][:, 1].mean()) - 1.0) < 5 * deviation[1]
    wrong = 0.5 + 0.5 * math.tanh(1.0 / 3.0) / math.tanh(0.5)
    assert abs(wrong - 1.0) > 5 * deviation[1]


@pytest.mark.parametrize("scorer", ["hops", "vgae"])
def test_links_are_predicted_from_noisy_features(scorer: str, graph: Data, tmp_path: Path) -> None:
    method = PGCLinks(**RANGE, feature_epsilon=1.0, scorer=scorer, epochs=20, hidden_channels=8, width=4)
    model = method.fit(graph, None, Budget(5.0), seed=0)
    assert model.certificate.epsilon == 5.0
    assert 0.0 <= model.metrics["test_auc"] <= 100.0
    loaded = load(model.save(tmp_path / "model"))
    pairs = torch.tensor([[0, 1, 2], [3, 4, 5]])
    assert torch.equal(loaded.link_scores(pairs), model.link_scores(pairs))
    with pytest.raises(InputError, match="link_scores"):
        loaded.predict()


def test_hidden_links_are_predicted_without_being_seen(graph: Data) -> None:
    links = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    whole = Neighborhood(MemoryEdges.from_edge_index(graph.edge_index, 40))
    torch.manual_seed(0)
    shown, predicted = PGCLinks(**RANGE, hidden_share=0.4)._hide_some(links, whole)
    seen = {tuple(pair) for pair in shown.edge_index.T.tolist()}
    asked = {tuple(pair) for pair in predicted.T.tolist()}
    assert 0 < len(asked) < links.shape[1]
    assert not asked & seen
    assert {(b, a) for a, b in seen} == seen
    assert {(a, b) for a, b in seen if a < b} | asked == {tuple(pair) for pair in links.T.tolist()}
    same, everything = PGCLinks(**RANGE, scorer="vgae", hidden_share=0.0)._hide_some(links, whole)
    assert same is whole
    assert torch.equal(everything, links)
    with pytest.raises(InputError, match="hidden_share"):
        PGCLinks(**RANGE, hidden_share=1.0)
    with pytest.raises(InputError, match="learns from hidden links"):
        PGCLinks(**RANGE, hidden_share=0.0)


def two_communities(nodes: int, degree: int) -> Data:
    """Most links join nodes of the same half; the features say nothing."""
    generator = torch.Generator().manual_seed(0)
    half = nodes // 2
    ends = torch.randint(nodes, (nodes * degree // 2,), generator=generator)
    inside = torch.rand(ends.shape, generator=generator) < 0.95
    others = (
        torch.randint(half, ends.shape, generator=generator) + torch.where(inside, ends >= half, ends < half) * half
    )
    edges = torch.stack([ends, others])[:, ends != others]
    edges = torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)
    masks = {f"{name}_mask": torch.arange(nodes) % 3 == place for place, name in enumerate(("train", "val", "test"))}
    features, classes = torch.zeros(nodes, 40), (torch.arange(nodes) >= half).long()
    return Data(x=features, edge_index=edges, y=classes, **masks)


def test_hops_find_links_whatever_the_start_where_noise_is_all_there_is() -> None:
    # A pair within a half is linked far more often than one across, which bounds the area under the curve by about
    # 72.5 = 50 + 45 / 2. Seeds are fixed; chance alone would give 50 with a deviation of 3.
    graph = two_communities(300, 8)
    found = [PGCLinks(low=0, high=1).fit(graph, None, Budget(40.0), seed=seed).metrics["test_auc"] for seed in range(4)]
    assert min(found) > 62.0


def test_no_held_out_link_reaches_the_scores_of_hops(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = two_communities(60, 6)
    model = PGCLinks(low=0, high=1).fit(graph, None, Budget(40.0), seed=3)
    held = {tuple(sorted(pair)) for pair in model.kept["test_links"].T.tolist()}
    seen: list[set[tuple[int, ...]]] = []
    make = pgc.HopRows.__init__

    def watched(self: Any, rows: Any, hood: Neighborhood, *words: Any) -> None:
        seen.append({tuple(sorted(pair)) for pair in hood.edge_index.T.tolist()})
        make(self, rows, hood, *words)

    monkeypatch.setattr(pgc.HopRows, "__init__", watched)
    PGCLinks(low=0, high=1).fit(graph, None, Budget(40.0), seed=3)
    assert len(seen) == 2
    assert len(seen[0]) < len(seen[1]) < len(held | seen[1])
    assert not held & (seen[0] | seen[1])


def test_held_out_links_are_links_and_the_others_are_not(graph: Data) -> None:
    split = split_links(graph.edge_index, 40, 0.1, 0.2, torch.Generator().manual_seed(0))
    linked = {tuple(pair) for pair in graph.edge_index.T.tolist()}
    parts = [{tuple(pair) for pair in part.T.tolist()} for part in (split.train, split.val, split.test)]
    assert set().union(*parts) == {(a, b) for a, b in linked if a < b}
    assert sum(map(len, parts)) == len(linked) // 2
    apart = torch.cat([split.val_apart, split.test_apart], dim=1).T.tolist()
    assert len({tuple(pair) for pair in apart}) == len(apart) == len(parts[1]) + len(parts[2])
    assert not linked & {tuple(pair) for pair in apart}
    with pytest.raises(InputError, match="unlinked"):
        unlinked_pairs(graph.edge_index, 40, 10_000, torch.Generator())


def test_the_area_under_the_curve_equals_sklearn_with_ties() -> None:
    generator = torch.Generator().manual_seed(0)
    linked = torch.randint(5, (30,), generator=generator).float() + 1.0
    apart = torch.randint(5, (50,), generator=generator).float()
    truth = [1] * 30 + [0] * 50
    assert area_under_curve(linked, apart) == pytest.approx(roc_auc_score(truth, torch.cat([linked, apart])))


def test_the_divergence_from_a_standard_normal() -> None:
    assert float(divergence(torch.zeros(3, 2), torch.zeros(3, 2))) == pytest.approx(0.0)
    # KL(N(1, 1) || N(0, 1)) = 1/2 per entry.
    assert float(divergence(torch.ones(3, 2), torch.zeros(3, 2))) == pytest.approx(1.0)


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_sparse_and_dense_bits_give_the_estimates_of_the_mechanism(share: float) -> None:
    bits = (torch.rand(30, 40, generator=torch.Generator().manual_seed(1)) < share).to(torch.uint8)
    estimates = Estimates.of(bits, PerFeature(OneBit(2.0), 40))
    assert isinstance(estimates.reports, SparseRows) == (share < 0.1)
    expected = torch.from_numpy(OneBit(2.0).estimate(bits.numpy())).to(torch.float32)
    torch.testing.assert_close(dense_estimates(estimates), expected)
    hood = Neighborhood(MemoryEdges.from_edge_index(random_graph(0, 30, 60).edge_index, 30))
    weight = torch.randn(40, 3, generator=torch.Generator().manual_seed(2))
    plain = PropagatedRows(expected, hood.kprop, 2).matmul(weight)
    torch.testing.assert_close(estimates.propagated(hood.kprop, 2).matmul(weight), plain, rtol=1e-4, atol=1e-4)
