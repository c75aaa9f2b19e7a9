from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from hushgraph.attacks import Target, analyze
from hushgraph.attacks.images import KINDS, image_accuracy, image_model, train_images
from hushgraph.attacks.inversion import (
    EnhancedInversion,
    Inversion,
    OriginalInversion,
    bilateral_total_variation,
    class_distances,
    class_table,
    mia_distance,
    structural_similarity,
)
from hushgraph.errors import InputError


def bars(per_class: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of 16 x 16: a horizontal bar, a vertical bar, a bright middle, each with some noise."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.zeros(3, 16, 16)
    clean[0, 7:9], clean[1, :, 7:9], clean[2, 5:11, 5:11] = 1.0, 1.0, 1.0
    y = torch.arange(3).repeat_interleave(per_class)
    x = (clean[y] + 0.1 * torch.randn(len(y), 16, 16, generator=generator)).clamp(0, 1)
    return x, y


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_learns_and_is_inverted_to_something_it_believes(kind: str) -> None:
    torch.manual_seed(0)
    x, y = bars()
    model = train_images(image_model(kind, (16, 16), 3), x, y, epochs=25, lr=1e-2)
    assert image_accuracy(model, x, y) > 95
    found = Inversion(steps=80, lr=0.1, btv=1e-3, box=True, log=True).reconstruct(model, 3, (16, 16))
    assert found.min() >= 0
    assert found.max() <= 1
    assert float(model(found.unsqueeze(1)).detach().softmax(1).diagonal().min()) > 0.8


@pytest.mark.parametrize(
    "attack", [OriginalInversion(steps=500, lr=1.0), EnhancedInversion(steps=150, l1=1e-3, btv=1e-3)]
)
def test_a_trained_model_shows_its_classes_and_an_untrained_one_does_not(attack: Inversion) -> None:
    torch.manual_seed(0)
    x, y = bars()
    data = Data(x=x, y=y)
    blank = Target("untrained", torch.empty(0, 3), network=image_model("softmax", (16, 16), 3))
    before = attack.run(blank, data)
    model = train_images(image_model("softmax", (16, 16), 3), x, y, epochs=25, lr=1e-2)
    after = attack.run(Target("bars", torch.empty(0, 3), network=model), data)
    assert max(after.details["distances"]) < min(before.details["distances"])
    assert analyze(after).auc.value > analyze(before).auc.value
    assert after.truth.sum() == 3
    assert np.array(after.details["images"]).shape == (3, 16, 16)
    again = class_distances(np.array(after.details["images"]), x.numpy(), y.numpy(), "euclidean")
    assert after.details["distances"] == pytest.approx(again, rel=1e-5)


def test_starts_are_averaged_and_their_number_does_not_change_a_descent() -> None:
    torch.manual_seed(0)
    model = image_model("softmax", (16, 16), 3)
    one = Inversion(steps=5, box=True, log=True).reconstruct(model, 3, (16, 16))
    same = Inversion(steps=5, box=True, log=True, starts=4).reconstruct(model, 3, (16, 16))
    assert torch.allclose(one, same, atol=1e-6)
    spread = Inversion(steps=5, box=True, log=True, starts=4, spread=1.0).reconstruct(model, 3, (16, 16))
    assert not torch.allclose(one, spread, atol=1e-3)


def test_the_original_descends_by_plain_gradients_from_a_blank_image() -> None:
    torch.manual_seed(0)
    model = image_model("mlp", (4, 4), 2)
    x = torch.zeros(2, 1, 4, 4)
    for _ in range(3):
        x = x.detach().requires_grad_(True)
        (1.0 - model(x).softmax(dim=1).diagonal()).sum().backward()
        assert x.grad is not None
        x = x - 0.1 * x.grad
    assert torch.allclose(OriginalInversion(steps=3).reconstruct(model, 2, (4, 4)), x.detach().squeeze(1), atol=1e-6)


def test_total_variation_is_zero_for_flat_pictures_and_counts_edges() -> None:
    assert float(bilateral_total_variation(torch.full((2, 6, 6), 0.3), 2, 0.9)) == 0.0
    edge = torch.zeros(1, 6, 6)
    edge[:, :, 3:] = 1.0
    # Shifts with p = 1: down sees nothing, across 6 pixels, and both diagonals 5 each (they lose a row).
    assert float(bilateral_total_variation(edge, 1, 1.0)) == pytest.approx(16.0)


def test_total_variation_agrees_with_a_loop_over_pixels() -> None:
    image = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    total = 0.0
    for across in range(-2, 3):
        for down in range(max(0, -across), 3):
            for row in range(5):
                for column in range(7):
                    if row >= down and 0 <= column - across < 7:
                        change = image[row, column] - image[row - down, column - across]
                        total += 0.8 ** (down + across) * abs(float(change))
    assert float(bilateral_total_variation(image.unsqueeze(0), 2, 0.8)) == pytest.approx(total, rel=1e-5)


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
    with pytest.raises(InputError, match="image of every class"):
        class_table(pictures, pictures, np.array([0, 0, 2, 2]), "euclidean")


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(InputError, match="optimizer"):
        Inversion(optimizer="newton")
    with pytest.raises(InputError, match="steps"):
        EnhancedInversion(steps=0)
    with pytest.raises(InputError, match="needs the target's network"):
        EnhancedInversion().run(Target("graph", torch.empty(0, 2)), Data(y=torch.tensor([0, 1])))
    with pytest.raises(InputError, match="at least 14"):
        image_model("cnn", (4, 4), 2)
    with pytest.raises(InputError, match="unknown image model"):
        image_model("resnet", (4, 4), 2)
