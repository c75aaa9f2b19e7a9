"""A mechanism, a unit and a method written outside the package, in one file, do all that the built-in ones do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hushgraph as hg
from hushgraph import registry, units
from hushgraph.errors import UnprovenError
from hushgraph.noise import perturb
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism
from hushgraph.privacy.units import Footprint, Relation
from hushgraph.settings import setting
from hushgraph.testing import Cell, NodeRecord, matrix
from matrix_graphs import largest_share
from small_graphs import random_graph


@dataclass(frozen=True)
class ClassCount(GaussianMechanism):
    """How many training nodes each class has. Bound: one record leaves one class, and enters another if replaced."""

    name = "class-count"
    proof = "none"
    reads = frozenset({"labels"})
    released = "counts of classes"

    def sensitivity(self, unit: hg.Unit) -> float:
        f = unit.footprint
        return math.sqrt(2.0 if f.replaced else 1.0) if f.records == 1 else math.inf

    def query(self, data: Any) -> Tensor:
        known = data.labels[data.train]
        return torch.bincount(known[known >= 0], minlength=data.metadata.classes).float()

    def release(self, data: Any, scale: float, noise: NoiseSource) -> Tensor:
        return perturb(self.query(data), scale, noise).to(torch.float32)


@dataclass(frozen=True)
class OneLabel(hg.Unit):
    """One node's label becomes another; features and edges are public."""

    name = "one-label"
    noun = "one node's label"
    protects = "one node's label"
    relation = Relation.REPLACE
    public = frozenset({"edges", "features"})

    @property
    def footprint(self) -> Footprint:
        return Footprint(own_list=0, other_entries=0, records=1, replaced=True)

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        for node in range(data.metadata.num_nodes):
            record = data.opposite_record(node)
            yield data.with_record(node, NodeRecord(data.graph.features[node], record.label, None))


@dataclass(frozen=True)
class Majority(hg.Method):
    """Predicts the classes in the order of their noisy counts, the same for every node."""

    weight: float = setting(1.0, above=0)

    name = "majority"
    summary = "noisy counts of classes"

    def stages(self, metadata: Any, unit: hg.Unit, budget: hg.Budget) -> Sequence[hg.Stage]:
        return [hg.Stage("counts", ClassCount())]

    def network(self, plan: hg.Plan, generator: torch.Generator) -> nn.Module:
        return nn.Linear(1, 1)

    def run(self, vault: Any, network: nn.Module, *, train: bool) -> hg.Output:
        counts = self.weight * vault.release("counts")
        return hg.Output(scores=counts.expand(vault.metadata.num_nodes, -1).clone())


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    hg.register(ClassCount, "mechanisms")
    hg.register(OneLabel, "units")
    hg.register(Majority)
    yield
    for kind, found in (("mechanisms", ClassCount), ("units", OneLabel), ("methods", Majority)):
        del registry._KNOWN[kind][found.name]


def test_all_three_are_in_the_matrix() -> None:
    mine = {cell.unit.name: cell.status for cell in matrix() if isinstance(cell.mechanism, ClassCount)}
    assert mine["one-label"] == mine["node"] == mine["record"] == "bounded"
    assert mine["undirected-edge"] == "free"
    theirs = {cell.mechanism.name: cell.status for cell in matrix() if isinstance(cell.unit, OneLabel)}
    assert theirs["neighbor-sum"] == theirs["edge-count"] == "free"
    assert {theirs["label-sum"], theirs["pair-count"]} == {"bounded"}
    assert theirs["gradient"] == "bounded"
    assert theirs["raw"] == "refused"
    assert "one-label" in Majority.units()


@pytest.mark.parametrize("unit", [OneLabel(), units.Node(), units.NodeReplace(), units.Record()], ids=str)
def test_the_bound_is_checked_on_neighbors_like_any_other(unit: hg.Unit) -> None:
    assert 0.7 < largest_share(Cell(ClassCount(), unit)) <= 1.0 + 1e-6


def test_known_mechanisms_keep_their_bounds_under_the_new_unit() -> None:
    found = [cell for cell in matrix() if isinstance(cell.unit, OneLabel) and cell.status == "bounded"]
    assert {cell.mechanism.name for cell in found} >= {"gradient", "label-sum", "class-count"}
    for cell in found:
        if cell.mechanism.law != "randomizer":
            assert largest_share(cell) <= 1.0 + 1e-4, cell


class Careless(OneLabel):
    """Says that no sum changes, because no entry does; but the rows that its node sends do."""

    name = "careless"
    footprint = Footprint(receivers=1, own_list=0, other_entries=0, records=1, replaced=True)


def test_a_footprint_that_promises_too_much_is_caught() -> None:
    assert largest_share(Cell(hg.mechanisms.LabelSum(), Careless())) > 1.0


@pytest.mark.parametrize("unit", [OneLabel(), units.Node()], ids=str)
def test_fit_save_load_and_predict(unit: hg.Unit, tmp_path: Path) -> None:
    graph = random_graph(0)
    model = Majority(weight=2.0).fit(graph, unit, hg.Budget(1.0, 1e-3), seed=1)
    assert 0.9 < model.certificate.epsilon <= 1.0
    loaded = hg.load(model.save(tmp_path / "model"))
    assert loaded.method == Majority(weight=2.0)
    assert loaded.unit == unit
    assert loaded.plan == model.plan
    assert torch.equal(loaded.predict_proba(graph), model.predict_proba())


def test_what_has_no_bound_is_refused() -> None:
    with pytest.raises(UnprovenError, match="majority has no proof under the unit 'local'"):
        Majority().fit(random_graph(0), units.Local(), hg.Budget(1.0, 1e-3))
