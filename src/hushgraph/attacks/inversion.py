"""Model inversion: an image of a class, from the model alone (Fredrikson and others 2015; an enhanced form of it).

The attacker has the weights and a class, and never sees an image. Original: gradient descent on 1 - f_class(x) from a
blank image. Enhanced: Adam, penalties (l1 norm, and bilateral total variation), and x = (tanh(w) + 1) / 2 so that
pixels stay in [0, 1]; it may ask for confidence that outlasts noise on the pixels, and may average several starts. All
classes and starts are inverted at once, in one batch. A reconstruction is judged by its distance to the nearest
training image of its class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn
from torch_geometric.data import Data

from hushgraph.attacks.base import Attack, AttackScores, Progress, Target, silent
from hushgraph.errors import InputError
from hushgraph.settings import setting

Metric = Literal["euclidean", "ssim"]
_WINDOW = 7
_C1, _C2 = 0.01**2, 0.03**2  # the constants of Wang and others (2004), for values in [0, 1]


@dataclass(frozen=True)
class Inversion(Attack):
    """How to invert. `l1` and `btv` weigh the penalties; `box` is the change of variable; `log` descends on -log f.

    `window` and `decay` are the p and alpha of bilateral total variation. `noise` is the standard deviation of what is
    added to the pixels before every step; `starts` images from random starts (of standard deviation `spread` in w) are
    averaged. Judged by `metric`, the smallest distance to a training image of the class, after clipping to [0, 1].
    """

    steps: int = setting(500, least=1)
    lr: float = setting(0.1, above=0)
    optimizer: str = setting("adam", among=("adam", "sgd"))
    l1: float = setting(0.0, least=0)
    btv: float = setting(0.0, least=0)
    box: bool = False
    log: bool = False
    window: int = setting(2, least=1)
    decay: float = setting(0.9, above=0)
    noise: float = setting(0.0, least=0)
    starts: int = setting(1, least=1)
    spread: float = setting(0.0, least=0)
    metric: str = setting("euclidean", among=("euclidean", "ssim"))
    seed: int = 0

    name = "model inversion"
    assumes = "has the weights and knows the classes and the size of an image; no data"

    def run(self, target: Target, data: Data, progress: Progress = silent) -> AttackScores:
        """Invert all classes of `data` (images `x` `[n, height, width]`, classes `y`); say whose each one looks like.

        Guesses are pairs of a reconstruction and a class: the score is minus the distance from the one to the nearest
        training image of the other, the truth is whether they belong together. `details` has the distances of those
        that do, the confidence of the model in each reconstruction, and the reconstructions.
        """
        classes = int(data.y.max()) + 1
        raw = self.reconstruct(target.needs("network"), classes, tuple(data.x.shape[1:]), progress)
        images = raw.clamp(0.0, 1.0)
        distances = class_table(images.numpy(), data.x.numpy(), data.y.numpy(), self._metric())
        details = {
            "metric": self.metric,
            "distances": distances.diagonal().tolist(),
            "distances before clipping": class_distances(raw.numpy(), data.x.numpy(), data.y.numpy(), self._metric()),
            "confidence": confidence(target.needs("network"), images).tolist(),
            "images": images.tolist(),
        }
        return self.scored(target, -distances.ravel(), np.eye(classes, dtype=bool).ravel(), **details)

    def reconstruct(
        self, model: nn.Module, classes: int, shape: tuple[int, ...], progress: Progress = silent
    ) -> Tensor:
        """One image per class, `[classes, height, width]`, as the descent leaves it; in [0, 1] only with `box`."""
        model.eval()
        generator = torch.Generator().manual_seed(self.seed)
        free = self.spread * torch.randn(self.starts, classes, *shape, generator=generator)
        free.requires_grad_(True)
        make = torch.optim.Adam if self.optimizer == "adam" else torch.optim.SGD
        optimizer = make([free], lr=self.lr)
        for step in range(self.steps):
            optimizer.zero_grad()
            self._cost(model, self._image(free), generator).backward()
            optimizer.step()
            progress(self.name, step + 1, self.steps)
        return self._image(free.detach()).mean(dim=0)

    def _cost(self, model: nn.Module, images: Tensor, generator: torch.Generator) -> Tensor:
        """Summed over all images, so that no image's descent depends on how many there are."""
        starts, classes, *shape = images.shape
        seen = images.reshape(starts * classes, 1, *shape)
        if self.noise:
            seen = seen + self.noise * torch.randn(seen.shape, generator=generator)
        labels = torch.arange(classes).repeat(starts).unsqueeze(1)
        sure = model(seen).log_softmax(dim=1).gather(1, labels)
        cost = (-sure if self.log else 1.0 - sure.exp()).sum()
        if self.l1:
            cost = cost + self.l1 * images.abs().sum()
        if self.btv:
            cost = cost + self.btv * bilateral_total_variation(images, self.window, self.decay)
        return cost

    def _image(self, free: Tensor) -> Tensor:
        return 0.5 * (torch.tanh(free) + 1.0) if self.box else free

    def _metric(self) -> Metric:
        return "ssim" if self.metric == "ssim" else "euclidean"


@dataclass(frozen=True)
class OriginalInversion(Inversion):
    """The attack of 2015: plain descent from a blank image, with the settings of its paper (5,000 steps of 0.1)."""

    steps: int = 5000
    optimizer: str = "sgd"

    name = "model inversion, original"


@dataclass(frozen=True)
class EnhancedInversion(Inversion):
    """The enhanced attack, with settings for digits.

    Weights, steps and starts were chosen on a CNN that no figure is reported on: of those tried, the ones whose
    largest ratio to the original's distance, over the classes, was smallest.
    """

    steps: int = 1000
    l1: float = 0.006
    btv: float = 0.004
    box: bool = True
    log: bool = True
    starts: int = 4
    spread: float = 1.0

    name = "model inversion, enhanced"


@torch.no_grad()
def confidence(model: nn.Module, images: Tensor) -> Tensor:
    """How sure the model is that each image is of its class."""
    return model(images.unsqueeze(1)).softmax(dim=1).diagonal()


def bilateral_total_variation(images: Tensor, window: int, decay: float) -> Tensor:
    """Sum over shifts l in -p..p, m in 0..p with l + m >= 0 of decay^(m + l) |x - shift(x)|_1, inside the image."""
    total = images.new_zeros(())
    for across in range(-window, window + 1):
        for down in range(max(0, -across), window + 1):
            if across == 0 and down == 0:
                continue
            total = total + decay ** (down + across) * _differences(images, across, down).abs().sum()
    return total


def _differences(images: Tensor, across: int, down: int) -> Tensor:
    """Each pixel minus the one `across` columns left and `down` rows above it, where there is one."""
    height, width = images.shape[-2:]
    lower, upper = images[..., down:, :], images[..., : height - down, :]
    if across >= 0:
        return lower[..., across:] - upper[..., : width - across]
    return lower[..., :across] - upper[..., -across:]


def mia_distance(image: np.ndarray, training: np.ndarray, metric: Metric = "euclidean") -> float:
    """The smallest distance between `image` and any of the `training` images `[n, height, width]`."""
    if training.ndim != 3 or image.shape != training.shape[1:]:
        raise InputError(f"distance: expected images of one shape; got {image.shape} and {training.shape}")
    if metric == "euclidean":
        return float(np.sqrt(((training - image) ** 2).sum(axis=(1, 2))).min())
    if metric == "ssim":
        return float((1.0 - structural_similarity(image, training)).min())
    raise InputError(f"distance: expected 'euclidean' or 'ssim'; got '{metric}'")


def class_table(images: np.ndarray, x: np.ndarray, y: np.ndarray, metric: Metric) -> np.ndarray:
    """`[images, classes]`: the MIA distance of every image to every class."""
    groups = [x[y == label] for label in range(int(y.max()) + 1)]
    if min(len(group) for group in groups) == 0:
        raise InputError("distance: expected an image of every class; a class has none")
    return np.array([[mia_distance(image, group, metric) for group in groups] for image in images])


def class_distances(images: np.ndarray, x: np.ndarray, y: np.ndarray, metric: Metric) -> list[float]:
    """The MIA distance of every class: its reconstruction to the nearest training image of the class."""
    return [mia_distance(image, x[y == label], metric) for label, image in enumerate(images)]


def structural_similarity(image: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The mean structural similarity (SSIM) of `image` with each of `others`, over uniform windows of 7 x 7."""
    one, many = image.astype(np.float64)[None], others.astype(np.float64)
    mean_one, mean_many = _smooth(one), _smooth(many)
    variance_one = _smooth(one * one) - mean_one**2
    variance_many = _smooth(many * many) - mean_many**2
    covariance = _smooth(one * many) - mean_one * mean_many
    top = (2.0 * mean_one * mean_many + _C1) * (2.0 * covariance + _C2)
    bottom = (mean_one**2 + mean_many**2 + _C1) * (variance_one + variance_many + _C2)
    return np.asarray((top / bottom).mean(axis=(1, 2)))


def _smooth(images: np.ndarray) -> np.ndarray:
    smoothed: np.ndarray = ndimage.uniform_filter(images, size=(1, _WINDOW, _WINDOW), mode="reflect")
    return smoothed
