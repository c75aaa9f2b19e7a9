from __future__ import annotations

import numpy as np
import pytest
import torch

from hushgraph.attacks.distances import mia_distance, structural_similarity
from hushgraph.attacks.image_models import KINDS, image_accuracy, image_model, train_images
from hushgraph.attacks.inversion import Inversion, bilateral_total_variation, class_distances
from hushgraph.errors import InputError


def bars(per_class: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of 12 x 12: a horizontal bar, a vertical bar, a bright middle, each with some noise."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.zeros(3, 12, 12)
    clean[0, 5:7], clean[1, :, 5:7], clean[2, 3:9, 3:9] = 1.0, 1.0, 1.0
    y = torch.arange(3).repeat_interleave(per_class)
    x = (clean[y] + 0.1 * torch.randn(len(y), 12, 12, generator=generator)).clamp(0, 1)
    return x, y


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_learns_and_is_inverted_to_something_it_believes(kind: str) -> None:
    torch.manual_seed(0)
    x, y = bars()
    model = train_images(image_model(kind, (12, 12), 3), x, y, epochs=25, lr=1e-2)
    assert image_accuracy(model, x, y) > 95
    found = Inversion(steps=80, lr=0.1, btv=1e-3, box=True, log=True).run(model, 3, (12, 12))
    assert found.min() >= 0
    assert found.max() <= 1
    assert float(model(found.unsqueeze(1)).detach().softmax(1).diagonal().min()) > 0.8


def test_the_enhanced_attack_comes_closer_than_the_original() -> None:
    torch.manual_seed(0)
    x, y = bars()
    model = train_images(image_model("softmax", (12, 12), 3), x, y, epochs=25, lr=1e-2)
    original = Inversion(steps=1000, lr=1.0, optimizer="sgd").run(model, 3, (12, 12)).numpy()
    enhanced = Inversion(steps=150, lr=0.1, l1=1e-3, btv=1e-3, box=True, log=True).run(model, 3, (12, 12)).numpy()
    for metric in ("euclidean", "ssim"):
        before = class_distances(original, x.numpy(), y.numpy(), metric)
        after = class_distances(enhanced, x.numpy(), y.numpy(), metric)
        assert np.mean(after) < np.mean(before)


def test_total_variation_is_zero_for_flat_pictures_and_counts_edges() -> None:
    assert float(bilateral_total_variation(torch.full((2, 6, 6), 0.3), 2, 0.9)) == 0.0
    edge = torch.zeros(1, 6, 6)
    edge[:, :, 3:] = 1.0
    # Shifts with p = 1: (0,1) down, (1,0) across, (1,1), (-1,1): the three that move across see 6 pixels each.
    assert float(bilateral_total_variation(edge, 1, 1.0)) == pytest.approx(18.0)


def test_distances_are_smallest_to_the_same_picture() -> None:
    rng = np.random.default_rng(0)
    pictures = rng.random((4, 16, 16))
    assert mia_distance(pictures[2], pictures) == 0.0
    assert mia_distance(pictures[2], pictures, "ssim") == pytest.approx(0.0, abs=1e-9)
    similar = structural_similarity(pictures[2], pictures)
    assert similar.argmax() == 2
    assert (similar <= 1.0 + 1e-9).all()
    with pytest.raises(InputError, match="one shape"):
        mia_distance(np.zeros((3, 3)), pictures)


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(InputError, match="optimizer"):
        Inversion(optimizer="newton")
    with pytest.raises(InputError, match="unknown image model"):
        image_model("resnet", (4, 4), 2)
