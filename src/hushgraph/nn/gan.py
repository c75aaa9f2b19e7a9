"""Generator and discriminators of the semi-supervised students: small, with the width as a setting.

A discriminator has one output per class. "Made by the generator" is the class whose logit is always 0, so that
P[made] = 1 / (1 + sum of exp(logits)) (Salimans et al., NeurIPS 2016).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hushgraph.graph.rows import Rows, dense_rows
from hushgraph.nn.pictures import AsPictures, PictureConv
from hushgraph.nn.rowwise import rowwise

NOISE_COLUMNS = 100
_BATCH = 1_000


@rowwise("Only passes rows through the layers inside it.")
class Discriminator(nn.Module):
    """A body of `8 width` features, and one linear layer to the classes."""

    def __init__(self, body: nn.Sequential, width: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(8 * width, classes)

    def features(self, x: Tensor) -> Tensor:
        """What the generator tries to match."""
        made: Tensor = self.body(x)
        return made

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the classes."""
        logits: Tensor = self.head(self.features(x))
        return logits


def convolutions(shape: tuple[int, int], width: int) -> nn.Sequential:
    """Four convolutions, of which three halve the picture, then a linear layer."""
    down, across = (_halved(_halved(_halved(size))) for size in shape)
    return nn.Sequential(
        AsPictures(shape),
        PictureConv(1, width, 5, stride=2, padding=2),
        nn.LeakyReLU(0.2),
        PictureConv(width, 2 * width, 3, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.2),
        PictureConv(2 * width, 2 * width, 3, padding=1),
        nn.LeakyReLU(0.2),
        PictureConv(2 * width, 4 * width, 3, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(4 * width * down * across, 8 * width),
        nn.LeakyReLU(0.2),
    )


@rowwise("Each entry is kept or left out by itself.")
class ByteDropout(nn.Module):
    """Dropout with one random byte for each entry, so `rate` is a multiple of 1/256.

    Half of the time of a student on histograms went into the masks of wide rows; eight bytes are drawn at once here.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.below = round(256 * rate)

    def forward(self, x: Tensor) -> Tensor:
        """As it is where nothing is trained."""
        if not self.training:
            return x
        drawn = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        kept = drawn.view(torch.uint8)[: x.numel()].view_as(x) >= self.below
        return x * kept * (256.0 / (256.0 - self.below))


def layers(columns: int, width: int) -> nn.Sequential:
    """Two linear layers, for rows that say more than pixels."""
    return nn.Sequential(
        ByteDropout(0.2),
        nn.Linear(columns, 8 * width),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.5),
        nn.Linear(8 * width, 8 * width),
        nn.LeakyReLU(0.2),
    )


class Generator(nn.Sequential):
    """Three linear layers from noise to rows of numbers from 0 to 1."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__(
            nn.Linear(NOISE_COLUMNS, 16 * width),
            nn.BatchNorm1d(16 * width),
            nn.Softplus(),
            nn.Linear(16 * width, 16 * width),
            nn.BatchNorm1d(16 * width),
            nn.Softplus(),
            nn.Linear(16 * width, columns),
            nn.Sigmoid(),
        )


@rowwise("Adds up what its members say about the same row.")
class Panel(nn.Module):
    """One discriminator, or two whose probabilities are averaged; they see what `look` makes of a row."""

    def __init__(self, look: nn.Module, members: Sequence[Discriminator]) -> None:
        super().__init__()
        self.look = look
        self.members = nn.ModuleList(members)

    @torch.no_grad()
    def forward(self, x: Rows) -> Tensor:
        """Log probabilities of the classes."""
        return torch.cat([self._scores(rows) for rows in dense_rows(x).split(_BATCH)])

    def _scores(self, rows: Tensor) -> Tensor:
        seen = self.look(rows)
        return torch.stack([member(seen).softmax(dim=1) for member in self.members]).mean(dim=0).log()


def _halved(size: int) -> int:
    return (size + 1) // 2
