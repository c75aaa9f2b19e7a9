from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from charges import charged_stages
from hushgraph.errors import InputError, UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms import CodedSum, DividedCodedSum, Gradient, LabelSum
from hushgraph.methods.chorus_codes import FEATURES, FIRST, LESSONS, ROUNDS, ChorusCodes
from hushgraph.methods.model import load
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from small_graphs import random_graph

EDGE, NODE, REPLACED = units.UndirectedEdge(), units.Node(max_degree=5), units.NodeReplace(max_degree=5)
SIZES = Metadata.from_sizes(26_406, 2_117_924, num_classes=6)
QUICK = ChorusCodes(rounds=3, hidden_channels=4, epochs=2, ensemble_size=2, batch_size=8)
BUDGET = Budget(4.0, 1e-3)


def test_edge_level_charges_rounds_alone_and_a_friendship_costs_as_much_as_one_direction() -> None:
    both, one = (ChorusCodes().plan(SIZES, unit, Budget(1.0, 1e-7)) for unit in (EDGE, units.DirectedEdge()))
    assert [stage.name for stage in both if not stage.is_free(EDGE)] == [ROUNDS]
    assert 0.999 < both.epsilon <= 1.0
    assert both[ROUNDS].scale == pytest.approx(one[ROUNDS].scale, rel=1e-6)
    assert isinstance(both[ROUNDS].mechanism, CodedSum)


def test_node_level_charges_a_first_sum_rounds_and_one_lesson() -> None:
    plan = ChorusCodes().plan(SIZES, NODE, Budget(8.0, 1e-5))
    assert [(stage.name, stage.count, stage.parallel) for stage in plan] == [
        (FIRST, 1, 1),
        (ROUNDS, 5, 1),
        (LESSONS, 1, 2),
    ]
    first, later = (1.0 / plan[name].scale ** 2 for name in (FIRST, ROUNDS))
    assert first / (first + 5 * later) == pytest.approx(0.3)
    batch = math.ceil((SIZES.num_train - ChorusCodes().num_learners(SIZES)) / 6)
    assert first + 5 * later == pytest.approx((0.5 * math.sqrt(768 / batch) * plan[LESSONS].scale) ** -2)
    assert plan.mechanism(LESSONS, Gradient).steps == 72
    assert isinstance(plan[ROUNDS].mechanism, DividedCodedSum)
    codes = {note.code for note in plan.public}
    assert Code.NO_CAP in codes
    assert Code.DEGREE_CAP not in codes


def test_the_mean_of_a_first_message_stays_within_its_proof() -> None:
    for classes, share in ((2, 0.05), (40, 1 / 40)):
        plan = ChorusCodes().plan(Metadata.from_sizes(5_000, num_classes=classes), NODE, Budget(8.0, 1e-5))
        assert plan.mechanism(FIRST, LabelSum).mean_share == share
    replaced = ChorusCodes().plan(SIZES, REPLACED, Budget(8.0, 1e-5))
    assert not replaced.mechanism(FIRST, LabelSum).centered


@pytest.mark.parametrize("unit", [units.BoundedDegreeNode(max_degree=60), units.NodeWithEdges(), units.Record()])
def test_units_without_proof_are_refused(unit: units.Unit) -> None:
    with pytest.raises(UnprovenError, match=unit.name):
        QUICK.plan(SIZES, unit, Budget(4.0, 1e-6))


@pytest.mark.parametrize("bad", [{"rounds": 1}, {"first_share": 1.0}, {"mean_share": 0.0}, {"lr": 0.0}])
def test_bad_parameters_are_named(bad: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        ChorusCodes(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
@pytest.mark.parametrize("unit", [EDGE, units.DirectedEdge(), NODE, REPLACED])
def test_every_unit_trains_saves_and_predicts_the_same_again(unit: units.Unit, epsilon: float, tmp_path: Path) -> None:
    graph = random_graph(2, symmetric=unit.name != "directed-edge")
    model = QUICK.fit(graph, unit, Budget(epsilon, 1e-3), seed=0)
    expected = model.predict_proba()
    assert torch.allclose(expected.sum(dim=1), torch.ones(40), atol=1e-5)
    assert model.certificate.epsilon <= epsilon
    loaded = load(model.save(tmp_path / "model"))
    assert torch.equal(loaded.predict_proba(graph), expected)


def test_each_round_and_one_lesson_are_charged() -> None:
    for unit, stages in ((EDGE, [ROUNDS] * 3), (NODE, [LESSONS, FIRST, ROUNDS, ROUNDS])):
        ledger = Ledger()
        QUICK.fit(random_graph(2), unit, BUDGET, ledger=ledger)
        assert charged_stages(ledger) == stages
    parallel = [entry for entry in ledger.history().entries if entry.kind == "parallel"]
    assert [entry.values["stage"] for entry in parallel] == [LESSONS]


@pytest.mark.parametrize(("unit", "hidden"), [(EDGE, ("test",)), (NODE, ("val", "test"))])
def test_hidden_labels_have_no_influence(unit: units.Unit, hidden: tuple[str, ...]) -> None:
    graph, other = random_graph(2), random_graph(2)
    for split in hidden:
        other.y = torch.where(getattr(other, f"{split}_mask"), (other.y + 1) % 3, other.y)
    first, second = (QUICK.fit(data, unit, BUDGET, seed=1) for data in (graph, other))
    assert torch.equal(first.predict_proba(), second.predict_proba())


@pytest.mark.parametrize("unit", [EDGE, NODE])
def test_another_graph_is_predicted_at_its_own_cost(unit: units.Unit) -> None:
    model = QUICK.fit(random_graph(2), unit, BUDGET, seed=0)
    ledger = Ledger()
    other = model.predict_on(random_graph(5, num_nodes=30), Budget(2.0, 1e-3), ledger=ledger, seed=1)
    assert other.predict_proba().shape == (30, 3)
    assert set(charged_stages(ledger)) == {ROUNDS} if unit is EDGE else {FIRST, ROUNDS}
    assert other.certificate.epsilon <= 2.0


def test_codes_at_node_level_do_not_follow_the_receiver_s_features() -> None:
    """Nothing but releases is known of receivers: other features leave their codes and weights as they are."""
    graph, other = random_graph(2), random_graph(2)
    receivers = ~other.train_mask
    other.x = torch.where(receivers.unsqueeze(1), -3.0 * other.x, other.x)
    first, second = (
        ChorusCodes(rounds=2, epochs=1, batch_size=8, guesses=False).fit(data, NODE, BUDGET, seed=1)
        for data in (graph, other)
    )
    for part in ("codes", "weights", "numbers"):
        assert torch.equal(getattr(first.released[ROUNDS][0], part), getattr(second.released[ROUNDS][0], part))
    assert not torch.equal(first.predict_proba(), second.predict_proba())


def test_only_nodes_without_a_label_get_numbers() -> None:
    graph = random_graph(2)
    for unit in (EDGE, NODE):
        model = QUICK.fit(graph, unit, BUDGET, seed=1)
        for answer in model.released[ROUNDS]:
            assert not answer.numbers[graph.train_mask].any()
            assert answer.numbers[~graph.train_mask].all()
    assert FEATURES not in model.plan


def blocks_graph(classes: int, homophily: float) -> object:
    """Communities whose features say little; with low homophily neighbors are of the next class."""
    from torch_geometric.data import Data

    made = torch.Generator().manual_seed(classes)
    nodes = 60 * classes
    y = torch.arange(nodes) % classes
    source = torch.randint(0, nodes, (nodes * 12,), generator=made)
    same = torch.rand(len(source), generator=made) < homophily
    target_class = torch.where(same, y[source], (y[source] + classes // 2) % classes)
    target = target_class + classes * torch.randint(0, 60, (len(source),), generator=made)
    pairs = torch.stack([source, target])[:, source != target]
    x = torch.randn(nodes, 4, generator=made)
    split = torch.rand(nodes, generator=made)
    return Data(
        x=x,
        y=y,
        edge_index=torch.unique(torch.cat([pairs, pairs.flip(0)], dim=1), dim=1),
        train_mask=split < 0.6,
        val_mask=(split >= 0.6) & (split < 0.7),
        test_mask=split >= 0.7,
        num_classes=classes,
    )


@pytest.mark.parametrize(("classes", "homophily"), [(2, 0.9), (4, 0.9), (4, 0.05), (12, 0.9)])
def test_it_learns_from_neighbors_alike_and_unlike_with_few_and_many_classes(classes: int, homophily: float) -> None:
    """Features are noise, so accuracy above chance is what neighbors told; seeded."""
    model = ChorusCodes(epochs=20).fit(blocks_graph(classes, homophily), EDGE, Budget(8.0, 1e-6), seed=0)
    assert model.metrics["accuracy"]["test"] > 0.75


def made_graph(classes: int, agree: float, *, nodes: int = 400, degree: int = 30, train: float = 0.7) -> Data:
    """Features say nothing; a neighbor is of the same class with probability `agree`, else of the next one."""
    rng = np.random.default_rng(0)
    labels = np.arange(nodes) % classes
    source = np.repeat(np.arange(nodes), degree // 2)
    wanted = (labels[source] + (rng.random(len(source)) >= agree)) % classes
    target = wanted + classes * rng.integers(0, nodes // classes, len(source))
    kept = source != target
    edges = np.unique(np.sort(np.stack([source[kept], target[kept]]), axis=0), axis=1)
    both = np.concatenate([edges, edges[::-1]], axis=1)
    draw = torch.from_numpy(rng.random(nodes))
    return Data(
        x=torch.from_numpy(rng.normal(size=(nodes, 2))).float(),
        edge_index=torch.from_numpy(both),
        y=torch.from_numpy(labels),
        train_mask=draw < train,
        val_mask=(draw >= train) & (draw < train + 0.1),
        test_mask=draw >= train + 0.1,
        class_names=[str(number) for number in range(classes)],
    )


@pytest.mark.parametrize("agree", [0.9, 0.1])
def test_neighbors_that_differ_say_as_much_as_those_that_agree(agree: float) -> None:
    for unit, budget in ((EDGE, Budget(8.0, 1e-4)), (NODE, Budget(20.0, 1e-4))):
        model = ChorusCodes(epochs=5).fit(made_graph(2, agree), unit, budget, seed=0)
        assert model.metrics["accuracy"]["test"] > 75.0  # features alone: 50


@pytest.mark.parametrize(("classes", "unit"), [(15, EDGE), (40, EDGE), (100, EDGE), (15, NODE), (40, NODE)])
def test_many_classes_are_told_apart(classes: int, unit: units.Unit) -> None:
    """With so much budget that noise is no matter; chance is 1 in `classes`."""
    graph = made_graph(classes, 0.9, nodes=4 * classes, degree=20)
    model = ChorusCodes(epochs=2, ensemble_size=1).fit(graph, unit, Budget(50.0, 1e-4), seed=0)
    assert model.metrics["accuracy"]["test"] > 400.0 / classes


@pytest.mark.parametrize("unit", [EDGE, NODE])
def test_very_few_labels_train(unit: units.Unit) -> None:
    model = ChorusCodes(epochs=2).fit(made_graph(3, 0.9, nodes=300, train=0.05), unit, Budget(4.0, 1e-4), seed=0)
    assert torch.isfinite(model.predict_proba()).all()
