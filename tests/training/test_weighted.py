from __future__ import annotations

import pytest
import torch

from hushgraph.graph.rows import SparseRows
from hushgraph.nn.layers import MLP
from hushgraph.nn.weighted import WeightedMean, WeightedRows
from hushgraph.noise.source import NoiseSource
from hushgraph.training.examples import NoisySteps
from hushgraph.training.ghost_clipping import _pairs
from hushgraph.training.losses import loss_for, row_loss, weighted_labels
from hushgraph.training.sampler import PoissonSampler
from hushgraph.training.weighted import WeightedExamples


def example(seed: int = 0, positions: int = 3, nodes: int = 20, examples: int = 12):
    made = torch.Generator().manual_seed(seed)
    network = WeightedMean(MLP(6, 5, 3, 2, generator=made))
    columns = torch.randint(0, nodes, (examples, positions), generator=made)
    weights = torch.rand(examples, positions, generator=made)
    rows = WeightedRows(torch.randn(nodes, 6, generator=made), columns, weights)
    return network, rows, torch.randint(0, 3, (examples,), generator=made)


def of_kind(kind: str, labels: torch.Tensor) -> torch.Tensor:
    """One class an example; several; or one with a public weight."""
    if kind == "several":
        return torch.stack((labels, labels.roll(1), labels.roll(3)), dim=1) % 2
    return labels if kind == "one" else weighted_labels(labels, (0.3, 1.0, 4.0))


def engine(network, rows, labels, bound: float = 1.0) -> WeightedExamples:
    steps = NoisySteps(PoissonSampler(len(rows), 1.0), 1, bound, 0.0, allow_no_noise=True)
    return WeightedExamples(network, rows, labels, steps)


def summed(examples: WeightedExamples, batch: torch.Tensor, length: int = 32) -> torch.Tensor:
    examples.engine._piece_rows = length
    return examples._sum(batch, length)


def naive(network, rows, labels, bound: float) -> torch.Tensor:
    total = 0.0
    for i in range(len(rows)):
        scores = network.at_once(rows.rows(torch.tensor([i])))
        loss = row_loss(loss_for(labels))(scores, labels[i : i + 1]).sum()
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(network.parameters()))]).double()
        total = total + gradient * min(1.0, bound / float(gradient.norm()))
    return total


@pytest.mark.parametrize("positions", [3, 17, 64])
@pytest.mark.parametrize("bound", [0.1, 0.7, 100.0])
@pytest.mark.parametrize("kind", ["one", "several", "weighted"])
def test_sums_equal_gradients_that_are_formed_and_clipped_one_by_one(bound: float, positions: int, kind: str) -> None:
    network, rows, labels = example(positions=positions)
    labels = of_kind(kind, labels)
    examples = engine(network, rows, labels, bound)
    expected = naive(network, rows, labels, examples.engine.clip_norm)
    (found,) = examples.sums(NoiseSource.seeded(0))
    assert examples.engine.method == "ghost"
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-5 * min(bound, 1.0))


def test_sparse_features_give_the_same_sums() -> None:
    network, rows, labels = example()
    features = torch.where(rows.features > 0.5, rows.features, 0.0)
    sums = [
        summed(engine(network, WeightedRows(held, rows.columns, rows.weights), labels), torch.arange(12))
        for held in (features, SparseRows.from_tensor(features))
    ]
    assert torch.equal(*sums)


def test_one_example_moves_the_sum_by_its_bound_and_one_without_a_finite_gradient_by_nothing() -> None:
    network, rows, labels = example()
    examples = engine(network, rows, labels, 0.01)
    whole, rest = summed(examples, torch.arange(12)), summed(examples, torch.arange(11))
    assert 0.009 < float((whole - rest).norm()) <= 0.01
    rows.features[rows.columns[11]] = float("nan")
    clean = torch.tensor([i for i in range(11) if not torch.isin(rows.columns[i], rows.columns[11]).any()])
    assert torch.equal(summed(examples, torch.cat([clean, torch.tensor([11])])), summed(examples, clean))


def adversarial(seed: int, examples: int, positions: int):
    """Gradients that nearly cancel between the nodes of an example, of very different sizes."""
    network, rows, labels = example(seed, positions, nodes=300, examples=examples)
    sizes = torch.logspace(-3, 5, 300)[torch.randperm(300, generator=torch.Generator().manual_seed(seed))]
    signs = torch.where(torch.arange(300) % 2 == 0, 1.0, -1.0)
    features = (signs * sizes).unsqueeze(1) * torch.ones(6) + 1e-4 * rows.features
    return network, WeightedRows(features, rows.columns, rows.weights), labels


@pytest.mark.parametrize("seed", range(6))
def test_the_exact_change_stays_within_the_bound_with_all_roundings(seed: int) -> None:
    """The last of a batch takes the place of the one that goes, as a random order has it."""
    network, rows, labels = adversarial(seed, 130, 5)
    examples = engine(network, rows, labels, 1.0)
    order = torch.randperm(130, generator=torch.Generator().manual_seed(seed))
    whole = summed(examples, order)
    for place in (0, 31, 64, 129):
        without = order.clone()
        without[place] = order[-1]
        assert float((whole - summed(examples, without[:-1])).norm()) <= 1.0


@pytest.mark.parametrize("kind", ["one", "several", "weighted"])
def test_what_is_computed_for_an_example_does_not_depend_on_its_place(kind: str) -> None:
    network, rows, labels = adversarial(1, 64, 5)
    labels = of_kind(kind, labels)
    examples = engine(network, rows, labels, 1.0)
    (_,) = examples.sums(NoiseSource.seeded(0))
    length = examples.engine.piece_rows(rows.rows(torch.arange(1)).gathered(), labels[:1])
    assert length > 1

    def parts(order: torch.Tensor) -> list[torch.Tensor]:
        return [part.clone() for part in examples.engine._per_row(rows.rows(order).gathered(), labels[order])]

    order = torch.arange(64)[:length]
    other = order.flip(0)
    for one, two in zip(parts(order), parts(other), strict=True):
        assert torch.equal(one, two.flip(0))


@pytest.mark.parametrize("positions", [2, 3, 5, 7, 9, 17])
@pytest.mark.parametrize("width", [2, 3, 5, 16, 33])
@pytest.mark.parametrize("across", [False, True])
def test_products_between_positions_are_the_same_in_all_places(positions: int, width: int, across: bool) -> None:
    """Equal bit by bit, also where columns come first in memory; without a common start in memory they are not."""
    one = torch.randn(1, positions, width, generator=torch.Generator().manual_seed(0))
    rows = one.expand(64, positions, width).contiguous()
    if across:
        rows = rows.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    found = _pairs(rows)
    assert bool((found == found[:1]).all())
    torch.testing.assert_close(found[0], one[0] @ one[0].t())
