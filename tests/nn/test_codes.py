from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from hushgraph.nn import codes as nc
from hushgraph.nn import neighborhoods as nb


def model_of(classes: int, mix: Tensor | None = None) -> nb.Neighborhoods:
    mix = 0.8 * torch.eye(classes) + 0.2 / classes if mix is None else mix
    return nb.Neighborhoods(mix, torch.tensor([5.0, 20.0]), torch.full((classes, 2), 0.5))


def chosen(model: nb.Neighborhoods, prior: Tensor, noise: float = 1.0, mixing: Tensor | None = None) -> Tensor:
    heard = nb.Heard(nb.Parts.of(model), len(prior))
    joint = nb.joint_probabilities(nb.log_likelihoods(heard), model, prior.log())
    return nc.best_codes(model, heard, joint, torch.eye(model.classes) if mixing is None else mixing, noise)


def score(model: nb.Neighborhoods, joint: Tensor, code: Tensor, noise: float) -> float:
    """The variance of code . h between classes over that within them and the noise, of one node."""
    means, covariances = model.means() @ code, (model.covariances() @ code) @ code
    each = joint.view(model.classes, -1)
    q = each.sum(dim=1)
    centers = (each * means.view_as(each)).sum(dim=1) / q
    between = float((q * (centers - (q * centers).sum()).square()).sum())
    spread = float((each * (means.view_as(each) - centers.unsqueeze(1)).square()).sum())
    return between / (spread + float((joint * covariances).sum()) + noise**2)


@pytest.mark.parametrize("classes", [3, 6])
def test_the_best_of_all_codes_is_found(classes: int) -> None:
    torch.manual_seed(0)
    model, prior = model_of(classes), torch.rand(8, classes).softmax(dim=1)
    found = chosen(model, prior).float()
    joint = nb.joint_probabilities(torch.zeros(8, 2 * classes), model, prior.log())
    every = [torch.tensor(code) for code in itertools.product((1.0, -1.0), repeat=classes)]
    for node in range(8):
        best = max(score(model, joint[node], code, 1.0) for code in every)
        assert score(model, joint[node], found[node], 1.0) == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("classes", [6, 15, 40, 100])
def test_two_open_classes_are_told_apart_however_many_there_are(classes: int) -> None:
    prior = torch.full((3, classes), 1e-4)
    pairs = torch.tensor([[0, 1], [2, 5], [4, 3]])
    prior.scatter_(1, pairs, 0.5)
    signs = chosen(model_of(classes), prior / prior.sum(dim=1, keepdim=True)).gather(1, pairs)
    assert (signs[:, 0] == -signs[:, 1]).all()


@pytest.mark.parametrize("classes", [9, 12])
def test_a_climb_comes_close_to_the_best_of_all_codes(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model, prior = model_of(classes), torch.randn(30, classes).mul(2.0).softmax(dim=1)
    joint = nb.joint_probabilities(torch.zeros(30, 2 * classes), model, prior.log())
    climbed = chosen(model, prior).float()
    monkeypatch.setattr(nc, "_MOST_LISTED", classes)
    listed = chosen(model, prior).float()
    shares = [
        score(model, row, one, 1.0) / score(model, row, other, 1.0)
        for row, one, other in zip(joint, climbed, listed, strict=True)
    ]
    assert sum(shares) / 30 > 0.95
    assert max(shares) < 1.0 + 1e-4


def test_a_question_that_was_answered_is_not_asked_again() -> None:
    """Four classes, and a loud answer that it is one of the first two: the next code tells these apart."""
    model = model_of(4)
    heard = nb.Heard(nb.Parts.of(model), 1)
    heard.hear(torch.tensor([[1.0, 1.0, -1.0, -1.0]]), torch.tensor([15.0]), torch.tensor([1.0]))
    joint = nb.joint_probabilities(nb.log_likelihoods(heard), model, torch.zeros(4))
    assert nb.by_class(joint, 4)[0, :2].sum() > 0.99
    code = nc.best_codes(model, heard, joint, torch.eye(4), 1.0)[0]
    assert code[0] == -code[1]


def test_a_code_is_judged_as_it_is_answered() -> None:
    """Two classes that guesses cannot tell apart are not asked about; without guesses they are."""
    mixing, prior = torch.eye(3), torch.tensor([[0.45, 0.45, 0.1]])
    mixing[:2, :2] = 0.5
    alone, mixed = (chosen(model_of(3), prior, mixing=one)[0] for one in (None, mixing))
    assert alone[0] == -alone[1]
    answered = mixing @ mixed.float()
    assert answered[0] == answered[1] != answered[2]


def test_nobody_listens() -> None:
    assert chosen(model_of(3), torch.ones(0, 3)).shape == (0, 3)
