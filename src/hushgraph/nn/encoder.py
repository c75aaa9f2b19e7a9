"""GAP's encoder: a perceptron that turns features into unit rows, pre-trained with a classification head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.data.rows import Rows
from hushgraph.nn.layers import L2Normalize, fresh_generator, reset_all
from hushgraph.nn.mlp import MLP, between_layers
from hushgraph.nn.rowwise import rowwise, unfolds


@rowwise("Only passes rows through the layers inside it.")
@unfolds(lambda encoder: [encoder.body, encoder.middle, encoder.head])
class Encoder(nn.Module):
    """Features to unit rows of width `hidden` (`encode`); as a module, class scores for pre-training.

    Body: `encoder_layers` linear layers, the last one plain, then L2-normalized rows. Head: norm, dropout, activation
    and `head_layers` linear layers. Every output row depends on one input row only, unless `norm="batch"`.
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        num_classes: int,
        *,
        encoder_layers: int = 2,
        head_layers: int = 1,
        activation: str = "selu",
        norm: str | None = None,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        generator = fresh_generator(generator)
        shared = {"activation": activation, "norm": norm, "dropout": dropout, "generator": generator}
        self.body = MLP(in_features, hidden, hidden, encoder_layers, **shared)  # type: ignore[arg-type]
        width = self.body.out_features
        self.middle = nn.Sequential(
            L2Normalize(), *between_layers(width, activation, norm, dropout, "norm-first", generator)
        )
        self.head = MLP(width, hidden, num_classes, head_layers, **shared)  # type: ignore[arg-type]

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw new starting values from `generator`."""
        reset_all(self, generator)

    def forward(self, x: Rows) -> Tensor:
        """Class scores, for pre-training."""
        return self.head(self.middle(self.body(x)))

    @torch.no_grad()
    def encode(self, x: Rows) -> Tensor:
        """The unit rows, computed as at inference (no dropout, running batch-norm statistics), without gradients."""
        was_training = self.training
        self.eval()
        try:
            rows: Tensor = self.middle[0](self.body(x))
        finally:
            self.train(was_training)
        return rows
