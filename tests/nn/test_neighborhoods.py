from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hushgraph.nn import neighborhoods as nb

SIZES = 3


def model_of(classes: int, seed: int = 0) -> nb.Neighborhoods:
    g = torch.Generator().manual_seed(seed)
    mix = torch.rand(classes, classes, generator=g) + 2.0 * torch.eye(classes)
    weights = torch.rand(classes, SIZES, generator=g) + 0.1
    sizes = torch.tensor([2.0, 8.0, 20.0])
    return nb.Neighborhoods(mix / mix.sum(dim=1, keepdim=True), sizes, weights / weights.sum(dim=1, keepdim=True))


def told(heard: nb.Heard, classes: int, rounds: int, seed: int = 1) -> nb.Heard:
    g = torch.Generator().manual_seed(seed)
    for _ in range(rounds):
        codes = torch.where(torch.rand(heard.nodes, classes, generator=g) < 0.5, -1.0, 1.0)
        numbers = 5.0 * torch.randn(heard.nodes, generator=g)
        heard.hear(codes, numbers, 1.0 + torch.rand(heard.nodes, generator=g))
    return heard


def plain_densities(parts: nb.Parts, heard: nb.Heard, node: int, means: Tensor, covariances: Tensor) -> Tensor:
    """Log densities of one node's numbers, from the joint Gaussian of all of them at once."""
    codes = torch.stack([code[node] for code in heard.codes]).double()
    numbers = torch.stack([number[node] for number in heard.numbers]).double()
    found = []
    for mean, covariance in zip(means.double(), covariances.double(), strict=True):
        law = torch.distributions.MultivariateNormal(
            codes @ mean, codes @ covariance @ codes.t() + torch.eye(len(numbers), dtype=torch.float64)
        )
        found.append(law.log_prob(numbers) + 0.5 * len(numbers) * math.log(2.0 * math.pi))
    return torch.stack(found)


@pytest.mark.parametrize("classes", [2, 6, 12])
def test_likelihoods_are_those_of_the_joint_law_of_all_numbers(classes: int) -> None:
    model = model_of(classes)
    heard = told(nb.Heard(nb.Parts.of(model), 5), classes, 4)
    found = nb.log_likelihoods(heard)
    for node in range(5):
        expected = plain_densities(heard.parts, heard, node, model.means(), model.covariances())
        assert torch.allclose(found[node].double(), expected, atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("classes", [3, 12])
def test_a_first_row_counts_as_numbers_about_every_class(classes: int) -> None:
    """A row h + noise, then numbers: the posterior after both, whichever way it is computed."""
    model = model_of(classes)
    noise = 0.8 * torch.eye(classes) + 0.1
    rows = 3.0 * torch.rand(4, classes, generator=torch.Generator().manual_seed(3))
    heard = told(nb.Heard(nb.Parts.after_rows(model, rows, noise), 4), classes, 2)
    found = nb.log_likelihoods(heard)
    root = torch.linalg.cholesky(noise.double())
    for node in range(4):
        whitened = torch.linalg.solve_triangular(root, torch.eye(classes, dtype=torch.float64), upper=False)
        codes = torch.cat([whitened, torch.stack([code[node] for code in heard.codes]).double()])
        numbers = torch.cat(
            [whitened @ rows[node].double(), torch.stack([number[node] for number in heard.numbers]).double()]
        )
        expected = []
        for mean, covariance in zip(model.means().double(), model.covariances().double(), strict=True):
            law = torch.distributions.MultivariateNormal(
                codes @ mean, codes @ covariance @ codes.t() + torch.eye(len(numbers), dtype=torch.float64)
            )
            expected.append(law.log_prob(numbers))
        difference = found[node].double() - torch.stack(expected)
        assert float(difference.max() - difference.min()) < 2e-2  # equal up to a constant


@pytest.mark.parametrize("classes", [3, 12])
def test_few_and_many_classes_are_the_same_in_both_forms(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = model_of(classes), torch.rand(7, classes)
    results = []
    for limit in (0, 100):
        monkeypatch.setattr(nb, "_FEW_CLASSES", limit)
        parts = nb.Parts.after_rows(model, rows, 0.5 * torch.eye(classes) + 0.05)
        heard = told(nb.Heard(parts, 7), classes, 3)
        joint = nb.joint_probabilities(nb.log_likelihoods(heard), model, torch.zeros(classes))
        results.append((joint, parts.all_means(), parts.mean_covariance(joint)))
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(*results, strict=True))


def test_rows_of_diagonal_and_mean_need_no_inverse() -> None:
    model, rows = model_of(5), 4.0 * torch.rand(6, 5, generator=torch.Generator().manual_seed(2))
    plain = nb.log_densities(rows, model.means(), model.covariances() + 0.7 * torch.eye(5))
    found = nb.log_densities_of(rows, model.means(), model.own_variances() + 0.7, model.spread)
    assert torch.allclose(found, plain, atol=1e-3)


def test_what_is_kept_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(4)
    monkeypatch.setattr(nb, "_FEWEST_NODES", 3)
    monkeypatch.setattr(nb, "_BLOCK", 1)
    results = []
    for most in (0, 3 * 12 * 4, 1 << 20):  # nothing, some and all of the blocks
        monkeypatch.setattr(nb, "_MOST_KEPT", most)
        heard = nb.Heard(nb.Parts.of(model), 10)
        for seed in range(3):
            told(heard, 4, 1, seed)
            nb.log_likelihoods(heard)
        codes = torch.ones(10, 4)
        joint = nb.joint_probabilities(nb.log_likelihoods(heard), model, torch.zeros(4))
        results.append(torch.cat([nb.log_likelihoods(heard), nb.expected_numbers(heard, joint, codes).unsqueeze(1)], 1))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_nobody_listens() -> None:
    heard = nb.Heard(nb.Parts.of(model_of(3)), 0)
    assert nb.log_likelihoods(heard).shape == (0, 9)
    assert nb.expected_numbers(heard, torch.zeros(0, 9), torch.zeros(0, 3)).shape == (0,)
