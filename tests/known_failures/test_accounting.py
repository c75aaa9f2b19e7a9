"""Known failures about what is charged and what is looked at for free: P20, P21, P30, and two of libraries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import dp_event as dpa
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.errors import BudgetError, InputError, PrivateAccessError
from hushgraph.graph.checks import check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.base import Method
from hushgraph.methods.gap import GAP
from hushgraph.methods.mlp import DPMLP
from hushgraph.methods.model import Model
from hushgraph.methods.running import open_vault
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.units import Node, Relation, UndirectedEdge
from hushgraph.testing import Variations
from known_failures.common import BUDGET, proven_methods, small_graph
from small_graphs import random_graph

UNIT = Node(3)
AT_NODE_LEVEL = [method for method, unit in proven_methods(check_graph(random_graph(0))) if unit == UNIT]
over_methods = pytest.mark.parametrize("method", AT_NODE_LEVEL, ids=lambda one: one.name)

# P20: no free looks


def relabeled(graph: Data, label: int) -> Data:
    """The same graph with other labels outside the training split."""
    other = graph.clone()
    other.y = torch.where(graph.train_mask, graph.y, torch.full_like(graph.y, label))
    return other


def trace(model: Model) -> list[Tensor]:
    """Everything that a model made of the data."""
    released = [
        tensor
        for stage, values in model.released.items()
        for value in values
        for tensor in model.plan[stage].mechanism.to_tensors(value).values()
    ]
    return [*model.network.state_dict().values(), *released]


def same_trace(one: Model, other: Model) -> bool:
    pairs = zip(trace(one), trace(other), strict=True)
    return all(torch.equal(left, right) for left, right in pairs)


def ignores_held_out_labels(method: Method) -> bool:
    """Whether validation and test labels have no influence on what is learned where labels are private."""
    graph = random_graph(0)
    models = [method.fit(one, UNIT, BUDGET, seed=0) for one in (graph, *(relabeled(graph, c) for c in range(3)))]
    return all(same_trace(models[0], model) for model in models[1:])


class BestOnValidation(DPMLP):
    """Keeps the weights that do best on the private validation labels."""

    def run(self, vault: Any, network: Any, *, train: bool) -> Any:
        val, labels = vault.nodes("val"), vault._graph.labels
        before = {name: value.clone() for name, value in network.state_dict().items()}
        right_before = self._right(network, vault, val, labels)
        output = super().run(vault, network, train=train)
        if right_before > self._right(network, vault, val, labels):
            network.load_state_dict(before)
        return output

    def _right(self, network: Any, vault: Any, val: Tensor, labels: Tensor) -> int:
        with torch.no_grad():
            return int((network(vault._graph.features)[val].argmax(dim=1) == labels[val]).sum())


@over_methods
def test_p20_held_out_labels_have_no_influence_where_labels_are_private(method: Method) -> None:
    assert ignores_held_out_labels(method)


def test_p20_the_best_epoch_on_private_labels_would_be_noticed() -> None:
    assert not ignores_held_out_labels(BestOnValidation(epochs=20, lr=0.3))


class ReadsLabels(DPMLP):
    """Asks the vault for labels, as a method that selects by them would have to."""

    def run(self, vault: Any, network: Any, *, train: bool) -> Any:
        assert len(vault.labels)
        return super().run(vault, network, train=train)


def test_p20_a_method_that_asks_for_private_labels_is_refused() -> None:
    with pytest.raises(PrivateAccessError, match="labels are private"):
        ReadsLabels(epochs=1).fit(random_graph(0), UNIT, BUDGET)


def without_isolated(graph: Data) -> Metadata:
    """Sizes after nodes without an edge were dropped."""
    return Metadata(num_nodes=int(graph.edge_index.unique().numel()), num_train=1)


def depends_on_edges(sizes: Callable[[Data], Metadata]) -> bool:
    graph, emptied = random_graph(0), random_graph(0)
    emptied.edge_index = graph.edge_index[:, :1]
    return sizes(graph) != sizes(emptied)


def test_p20_public_sizes_do_not_follow_from_private_edges() -> None:
    assert not depends_on_edges(lambda graph: check_graph(graph).metadata)
    assert depends_on_edges(without_isolated)


@over_methods
def test_p20_the_list_of_classes_is_declared_where_labels_are_private(method: Method) -> None:
    graph = random_graph(0)
    del graph.class_names
    with pytest.raises(InputError, match="classes"):
        method.fit(graph, UNIT, BUDGET)
    graph.num_classes = 3
    method.fit(graph, UNIT, BUDGET)


# P21: every release is charged to the dataset


QUICK = GAP(encoder_layers=0, epochs=1)
EDGE = UndirectedEdge()


def fresh_predictions(model: Model, graph: Data) -> Tensor:
    """Makes the releases of inference again, on a ledger that nobody reads."""
    checked = check_graph(graph)
    plan = model.method.inference_plan(checked.metadata, EDGE, BUDGET)
    vault, _ = open_vault(checked, plan, None, None, None)
    scores = vault.hand_over(model.method.run(vault, model.network, train=False).scores)
    assert scores is not None
    return scores


def says_the_same_twice(predict: Callable[[], Tensor]) -> bool:
    """Fresh noise on every call could be averaged away."""
    return torch.equal(predict(), predict())


def test_p21_predictions_repeat_what_was_released_and_draw_nothing() -> None:
    graph = random_graph(2)
    model = QUICK.fit(graph, EDGE, BUDGET)
    assert says_the_same_twice(lambda: model.predict_proba(graph))
    assert says_the_same_twice(lambda: model.predict_proba())
    assert not says_the_same_twice(lambda: fresh_predictions(model, graph))
    with pytest.raises(InputError, match="predict_on"):
        model.predict(random_graph(3, num_nodes=44))


def composes(use_again: Callable[[Data, Ledger], object]) -> bool:
    """Whether a second use of a dataset is refused where the limit has room for one."""
    graph, ledger = random_graph(2), Ledger()
    QUICK.fit(graph, EDGE, BUDGET, ledger=ledger)
    ledger.set_limit(1.05 * BUDGET.epsilon, 1e-3)
    try:
        use_again(graph, ledger)
    except BudgetError:
        return True
    return False


def test_p21_a_second_fit_or_inference_on_the_same_data_adds_up() -> None:
    model = QUICK.fit(random_graph(2), EDGE, BUDGET)
    assert composes(lambda graph, ledger: QUICK.fit(graph, EDGE, BUDGET, ledger=ledger))
    assert composes(lambda graph, ledger: model.predict_on(graph, BUDGET, ledger=ledger))
    assert not composes(lambda graph, ledger: QUICK.fit(graph, EDGE, BUDGET, ledger=Ledger()))


# P30: a price that depends on the data is private itself


def data_dependent_price(votes: np.ndarray, gamma: float = 0.5) -> float:
    """Epsilon of one noisy maximum given how clear it was (Papernot et al. 2017), at small loss."""
    gaps = votes.max() - np.delete(votes, votes.argmax())
    q = float(((2.0 + gamma * gaps) / (4.0 * np.exp(gamma * gaps))).sum())
    if q >= (math.exp(2 * gamma) - 1) / (math.exp(4 * gamma) - 1):
        return 2 * gamma
    return min(2 * gamma, math.log((1 - q) / (1 - math.exp(2 * gamma) * q)))


def is_public_price(price: Callable[[Any], float], neighbors: list[Any]) -> bool:
    """Whether all neighbors have the same price, so that it tells nothing about which one it is."""
    return len({price(one) for one in neighbors}) == 1


@over_methods
def test_p30_a_certificate_tells_nothing_about_the_data(method: Method) -> None:
    graph = small_graph(UNIT)
    neighbors = list(UNIT.neighbors(Variations(graph), np.random.default_rng(0)))
    kept = [one for one in neighbors if bool((one.labels[one.train] >= 0).all())][:2]
    assert len(kept) == 2
    assert is_public_price(lambda one: method.fit(one, UNIT, BUDGET, seed=0).certificate.epsilon, [graph, *kept])


def test_p30_a_price_by_the_clearness_of_votes_would_tell() -> None:
    """Guards labels by vote of teachers when they are built: the price is the same whatever the votes."""
    votes = [np.array([40.0, 10.0, 10.0]), np.array([39.0, 11.0, 10.0])]
    assert is_public_price(lambda _: 2 * 0.5, votes)
    assert not is_public_price(data_dependent_price, votes)


def changed_parts(edges: set[tuple[int, int]], other: set[tuple[int, int]], parts: int, *, cut: bool) -> int:
    """How many teachers see a difference; node v belongs to teacher v % parts, a public rule."""

    def seen(by: int, pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
        inside = all if cut else any
        return {pair for pair in pairs if inside(node % parts == by for node in pair)}

    return sum(seen(part, edges) != seen(part, other) for part in range(parts))


def test_p30_one_node_is_seen_by_one_teacher() -> None:
    """Guards the split among teachers when it is built: edges between teachers are left out."""
    edges = {(0, other) for other in range(1, 9)} | {(3, 6), (4, 7)}
    without = {pair for pair in edges if 0 not in pair}
    assert changed_parts(edges, without, parts=3, cut=True) <= 1
    assert changed_parts(edges, without, parts=3, cut=False) > 1


# Of libraries


def test_repeated_events_cost_their_number_of_times() -> None:
    """An accountant that drops the count of a repeated event says that a hundred uses cost one."""
    one = dpa.RandomizedResponseDpEvent(2.0 / (1.0 + math.e), 2)
    price = PrivacyLoss(one, Relation.REPLACE).epsilon(1e-6)
    hundred = PrivacyLoss(events.repeated(one, 100), Relation.REPLACE).epsilon(1e-6)
    assert price == pytest.approx(1.0, abs=2e-3)
    assert hundred > 30 * price


def test_the_best_of_several_runs_costs_more_than_one() -> None:
    """Choosing the best of ten tries for free."""
    one = events.gaussian(4.0)
    price = PrivacyLoss(one, Relation.NULL).epsilon(1e-6)
    best = PrivacyLoss(dpa.RepeatAndSelectDpEvent(one, 10.0, 1.0), Relation.NULL)
    assert best.accountant == "RDP"
    assert 1.3 * price < best.epsilon(1e-6) < 4.0 * price
