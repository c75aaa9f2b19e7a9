from __future__ import annotations

import torch

from hushgraph.training.blend import best_blend, blended, first_alone, plain_blend


def opinions(seed: int, first: float, second: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Labels, and scores that are right as strongly as given."""
    made = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (600,), generator=made)
    hot = torch.nn.functional.one_hot(labels, 3).float()
    return labels, *(size * hot + torch.randn(600, 3, generator=made) for size in (first, second))


def accuracy(scores: torch.Tensor, labels: torch.Tensor) -> float:
    return float((scores.argmax(dim=1) == labels).double().mean())


def test_the_plain_blend_adds_log_probabilities() -> None:
    _, one, other = opinions(0, 1.0, 1.0)
    expected = (one.log_softmax(1) + other.log_softmax(1)).log_softmax(1)
    assert torch.allclose(blended(one, other, plain_blend(3)), expected, atol=1e-6)
    assert torch.allclose(blended(one, other, first_alone(3)), one.log_softmax(1), atol=1e-6)


def test_an_overconfident_opinion_is_believed_less() -> None:
    labels, one, other = opinions(1, 2.0, 0.2)
    other = 20.0 * other
    best = best_blend(one, other, labels)
    assert accuracy(blended(one, other, best), labels) > accuracy(one + other, labels) + 0.2
    assert accuracy(blended(one, other, best), labels) >= accuracy(one, labels)


def test_without_labels_both_are_believed_and_one_label_changes_little() -> None:
    labels, one, other = opinions(2, 1.0, 1.0)
    assert torch.equal(best_blend(one[:0], other[:0], labels[:0]), plain_blend(3))
    assert bool(torch.isfinite(best_blend(one[:1], other[:1], labels[:1])).all())


def test_a_missing_class_leaves_the_blend_finite() -> None:
    labels, one, other = opinions(3, 1.0, 1.0)
    few = labels < 1
    assert bool(torch.isfinite(best_blend(one[few], other[few], labels[few])).all())
