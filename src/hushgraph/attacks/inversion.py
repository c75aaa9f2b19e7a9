"""Model inversion: an image of a class, from the model alone (Fredrikson and others 2015; enhanced, seed 002 ch. 4.3).

The attacker has the weights and a class. Original: gradient descent on 1 - f_class(x) from a blank image. Enhanced:
Adam, a penalty (l1 norm, or bilateral total variation for grey images), and x = (tanh(w) + 1) / 2 so that pixels stay
in [0, 1]. All classes are inverted at once, in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.attacks.distances import Metric, mia_distance
from hushgraph.errors import InputError


@dataclass(frozen=True)
class Inversion:
    """How to invert. `l1` and `btv` weigh the penalties; `box` is the change of variable; `log` descends on -log f.

    `window` and `decay` are the p and alpha of bilateral total variation.
    """

    steps: int = 500
    lr: float = 0.1
    optimizer: str = "adam"
    l1: float = 0.0
    btv: float = 0.0
    box: bool = False
    log: bool = False
    window: int = 2
    decay: float = 0.9

    def __post_init__(self) -> None:
        if self.optimizer not in ("adam", "sgd"):
            raise InputError(f"inversion: optimizer: expected 'adam' or 'sgd'; got {self.optimizer!r}")

    def run(self, model: nn.Module, classes: int, shape: tuple[int, int]) -> Tensor:
        """One image per class, `[classes, height, width]`, as the descent leaves it; in [0, 1] only with `box`."""
        model.eval()
        free = torch.zeros(classes, *shape, requires_grad=True)
        labels = torch.arange(classes)
        make = torch.optim.Adam if self.optimizer == "adam" else torch.optim.SGD
        optimizer = make([free], lr=self.lr)
        for _ in range(self.steps):
            optimizer.zero_grad()
            image = self._image(free)
            confidence = model(image.unsqueeze(1)).log_softmax(dim=1).gather(1, labels.unsqueeze(1))
            cost = (-confidence if self.log else 1.0 - confidence.exp()).sum() + self._penalty(image)
            cost.backward()
            optimizer.step()
        with torch.no_grad():
            return self._image(free).detach()

    def _penalty(self, images: Tensor) -> Tensor:
        found = images.new_zeros(())
        if self.l1:
            found = found + self.l1 * images.abs().sum()
        if self.btv:
            found = found + self.btv * bilateral_total_variation(images, self.window, self.decay)
        return found

    def _image(self, free: Tensor) -> Tensor:
        return 0.5 * (torch.tanh(free) + 1.0) if self.box else free


ORIGINAL = Inversion(steps=2000, lr=1.0, optimizer="sgd")
ENHANCED_DIGITS = Inversion(steps=500, lr=0.1, l1=0.005, btv=0.005, box=True, log=True)
ENHANCED_FACES = Inversion(steps=150, lr=0.05, btv=1e-4, box=True, log=True)


def bilateral_total_variation(images: Tensor, window: int, decay: float) -> Tensor:
    """Sum over shifts l in -p..p, m in 0..p with l + m >= 0 of decay^(m + l) |x - shift(x)|_1."""
    total = images.new_zeros(())
    for across in range(-window, window + 1):
        for down in range(max(0, -across), window + 1):
            if across == 0 and down == 0:
                continue
            total = total + decay ** (down + across) * (images - _shifted(images, across, down)).abs().sum()
    return total


def _shifted(images: Tensor, across: int, down: int) -> Tensor:
    """The images moved by whole pixels; what comes in from outside repeats the edge."""
    height, width = images.shape[-2:]
    rows = (torch.arange(height) - down).clamp(0, height - 1)
    columns = (torch.arange(width) - across).clamp(0, width - 1)
    return images[..., rows, :][..., columns]


def class_distances(images: np.ndarray, x: np.ndarray, y: np.ndarray, metric: Metric) -> list[float]:
    """The MIA distance of every class: its reconstruction to the nearest training image of the class."""
    return [mia_distance(image, x[y == label], metric) for label, image in enumerate(images)]
