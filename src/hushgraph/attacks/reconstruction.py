"""Images from embeddings: an attacker with public images learns to invert them (after Dosovitskiy and Brox 2016).

The attacker knows some public images and what is released about each of them, embeddings as they are or their
randomized reports, and trains a decoder from the one to the other. So it knows the mechanism and adapts to its noise:
it is stronger than a decoder of clean embeddings. The decoder is then run on what is released about everybody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from hushgraph.attacks.base import Attack, AttackScores, Progress, Target, dense_features, silent
from hushgraph.errors import InputError
from hushgraph.settings import setting


@dataclass(frozen=True)
class ImageReconstruction(Attack):
    """Decode the rows of the target into the images `data.x`, values in [0, 1]; `data.public_mask` are the attacker's.

    Guesses are pairs of a reconstruction and an image, its own one and somebody else's: the score is minus their
    distance. `details` holds mean squared errors beside those of guessing the mean public image, and reconstructions.
    """

    hidden: int = setting(256, least=1)
    epochs: int = setting(60, least=1)
    lr: float = setting(0.001, above=0)
    batch_size: int = setting(128, least=1)
    shown: int = setting(16, least=0, help="reconstructions kept for pictures")
    seed: int = 0

    name = "image reconstruction"
    assumes = "has public images, what is released about them, and what is released about everybody"

    def run(self, target: Target, data: Data, progress: Progress = silent) -> AttackScores:
        """Learn on public images, decode the others."""
        images, known = dense_features(data), _public(data)
        rows = target.needs("embeddings").float()
        rows = (rows - rows[known].mean(0)) / rows[known].std(0).clamp_min(1e-6)
        guesses = self.decode(rows, images, known, progress)
        real, blank = images[~known], images[known].mean(0)
        own = (guesses - real).pow(2).mean(1)
        other = (guesses - real.roll(1, 0)).pow(2).mean(1)
        scores = -torch.cat([own, other]).double().numpy()
        truth = np.repeat([True, False], len(real))
        mean_error = float((real - blank).pow(2).mean())
        figures: dict[str, Any] = {
            "mse": float(own.mean()),
            "mse of the mean image": mean_error,
            "explained_variance": 1.0 - float(own.mean()) / max(mean_error, 1e-12),
            "images": guesses[: self.shown].tolist(),
            "originals": real[: self.shown].tolist(),
        }
        return self.scored(target, scores, truth, **figures)

    def decode(self, rows: Tensor, images: Tensor, known: Tensor, progress: Progress = silent) -> Tensor:
        """The decoder's images of those who are not `known`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            decoder = _decoder(rows.shape[1], self.hidden, images.shape[1])
            optimizer = torch.optim.Adam(decoder.parameters(), self.lr)
            mine, wanted = rows[known], images[known]
            for epoch in range(self.epochs):
                for batch in torch.randperm(len(mine)).split(self.batch_size):
                    optimizer.zero_grad()
                    F.mse_loss(decoder(mine[batch]), wanted[batch]).backward()
                    optimizer.step()
                progress(self.name, epoch + 1, self.epochs)
        with torch.no_grad():
            found: Tensor = decoder(rows[~known])
        return found


def _decoder(columns: int, hidden: int, pixels: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(columns, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, pixels),
        nn.Sigmoid(),
    )


def _public(data: Data) -> Tensor:
    mask: Any = data.get("public_mask")
    count = int(data.num_nodes or 0)
    good = isinstance(mask, Tensor) and mask.dtype is torch.bool and mask.shape == (count,)
    if not good or int(mask.sum()) < 2 or int((~mask).sum()) < 2:
        raise InputError("reconstruction: expected data.public_mask with two public images and two others at least")
    found: Tensor = mask
    return found
