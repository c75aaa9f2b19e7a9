from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hushgraph.nn.neighborhoods import Heard, Parts
from hushgraph.training.agreement import Agreement, best_power, likeliest

SHARES = torch.tensor([0.5, 0.3, 0.2])


def told(truth: Agreement, nodes: int, rounds: int = 3) -> tuple[Heard, Tensor]:
    """Numbers in random codes about neighborhoods that are drawn one neighbor at a time; and the nodes' classes."""
    generator = torch.Generator().manual_seed(0)
    own = torch.multinomial(SHARES, nodes, replacement=True, generator=generator)
    mix = truth.neighborhoods(SHARES, 10).mix
    histogram = torch.poisson(truth.average * mix[own], generator=generator)
    heard = Heard(Parts.of(truth.neighborhoods(SHARES, 10)), nodes)
    for _ in range(rounds):
        codes = 1.0 - 2.0 * torch.randint(0, 2, (nodes, 3), generator=generator)
        numbers = (codes * histogram).sum(dim=1) + 2.0 * torch.randn(nodes, generator=generator)
        heard.hear(codes, numbers, torch.full((nodes,), 2.0))
    return heard, own


@pytest.mark.parametrize(("level", "average"), [(0.65, 8.0), (0.2, 64.0), (-0.8, 32.0), (0.0, 32.0)])
def test_agreement_and_number_of_neighbors_are_found_from_numbers(level: float, average: float) -> None:
    """From 1,500 nodes with known classes, one step of the grid at most away; seeded."""
    heard, own = told(Agreement(level, average), 1_500)
    known = torch.nn.functional.one_hot(own, 3).float().log()
    found = likeliest(heard, known, SHARES, 10, counted=torch.full((3, 3), 1.0 / 3))
    assert found.level == pytest.approx(level, abs=0.15)
    assert average / 2.0 <= found.average <= average * 2.0


def test_classes_need_not_be_known_for_sure() -> None:
    heard, own = told(Agreement(0.65, 32.0), 1_500)
    unsure = (torch.nn.functional.one_hot(own, 3) * 0.5 + 0.5 / 3).log()
    found = likeliest(heard, unsure, SHARES, 10, counted=torch.full((3, 3), 1.0 / 3))
    assert found.level is not None
    assert found.level >= 0.5


def test_what_was_counted_is_taken_where_it_explains_more() -> None:
    """Neighbors are of the next class, which no level says."""
    counted = 0.1 + 0.7 * torch.eye(3).roll(1, dims=1)
    generator = torch.Generator().manual_seed(1)
    own = torch.randint(0, 3, (500,), generator=generator)
    histogram = torch.poisson(20.0 * counted[own], generator=generator)
    heard = Heard(Parts.of(Agreement().neighborhoods(SHARES, 10)), 500)
    for entry in range(3):
        codes = torch.ones(500, 3).index_fill_(1, torch.tensor([entry]), -1.0)
        heard.hear(codes, (codes * histogram).sum(dim=1), torch.ones(500))
    known = torch.nn.functional.one_hot(own, 3).float().log()
    found = likeliest(heard, known, SHARES, 10, counted)
    assert found.level is None
    assert torch.equal(found.neighborhoods(SHARES, 10, counted).mix, counted)


@pytest.mark.parametrize("level", [-0.8, 0.0, 0.5])
def test_shares_and_sizes_mean_what_they_say(level: float) -> None:
    model = Agreement(level, average=12.0).neighborhoods(SHARES, 10)
    assert torch.allclose(model.mix.sum(dim=1), torch.ones(3))
    assert torch.allclose((model.weights * model.sizes).sum(dim=1), torch.full((3,), 12.0))
    own, chance = model.mix.diagonal(), SHARES
    assert bool((own > chance).all()) == (level > 0.0)
    assert bool((own < chance).all()) == (level < 0.0)


@pytest.mark.parametrize("off", [0.125, 1.0, 4.0])
def test_a_model_that_is_too_sure_or_not_sure_enough_is_set_right(off: float) -> None:
    """Labels are drawn from probabilities whose power `off` is what the model says: 1 / `off` sets it right."""
    generator = torch.Generator().manual_seed(2)
    true = (2.0 * torch.randn(4_000, 4, generator=generator)).log_softmax(dim=1)
    labels = torch.multinomial(true.exp(), 1, generator=generator).squeeze(1)
    assert best_power((off * true).log_softmax(dim=1), labels) == pytest.approx(1.0 / off)


def test_without_labels_a_model_is_believed_as_it_is() -> None:
    assert best_power(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)) == 1.0
