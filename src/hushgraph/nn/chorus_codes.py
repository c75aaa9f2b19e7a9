"""The network of Chorus with codes: a model of features, and what was learned about neighborhoods."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hushgraph.graph.rows import JoinedRows
from hushgraph.nn.chorus import Ensemble, LinearNetwork
from hushgraph.nn.layers import Linear, log_probabilities, probabilities
from hushgraph.nn.neighborhoods import Neighborhoods
from hushgraph.nn.rowwise import rowwise

SIZES = 10
"""How many sizes of neighborhoods are told apart."""


@rowwise("Adds log likelihoods of one row to the log probabilities of one row.")
class ChorusCodesNetwork(nn.Module):
    """Features and log likelihoods in, log probabilities of classes out.

    `plain`: the model of features is a small ensemble, trained where labels are public. Otherwise it is linear, and
    `lesson` is what the learners' lesson is written to. `mixing` is what guesses added in each round,
    `blend` how features and numbers are joined. With `few_labels`, `power` is how far features are believed alone, and
    `beliefs` are how features and numbers were joined after each round.
    """

    mix: Tensor
    sizes: Tensor
    weights: Tensor
    grain_and_spread: Tensor
    shares: Tensor
    mixing: Tensor
    blend: Tensor
    power: Tensor
    beliefs: Tensor

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        plain: bool,
        few_labels: bool = False,
        rounds: int,
        hidden: int,
        members: int,
        dropout: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.plain, self.few_labels = plain, plain and few_labels
        self.features: nn.Module
        if plain:
            self.features = Ensemble(
                [num_features], hidden, num_classes, members=members, dropout=dropout, generator=generator
            )
        else:
            self.features = LinearNetwork([num_features], num_classes)
            self.lesson = Linear(num_classes + 1, num_classes, bias=False)
            nn.init.zeros_(self.lesson.weight)
        self.register_buffer("mix", torch.eye(num_classes).repeat(rounds + 1, 1, 1))
        self.register_buffer("sizes", torch.ones(rounds + 1, SIZES))
        self.register_buffer("weights", torch.full((rounds + 1, num_classes, SIZES), 1.0 / SIZES))
        self.register_buffer("grain_and_spread", torch.tensor([1.0, 0.03]).repeat(rounds + 1, 1))
        self.register_buffer("shares", torch.full((num_classes,), 1.0 / num_classes))
        self.register_buffer("blend", torch.zeros(4 + num_classes))
        self.register_buffer("mixing", torch.eye(num_classes).repeat(rounds, 1, 1))
        if self.few_labels:
            self.register_buffer("power", torch.ones(()))
            self.register_buffer("beliefs", torch.zeros(rounds, 4 + num_classes))

    def forward(self, rows: JoinedRows) -> Tensor:
        """Log probabilities up to a constant, from features and log likelihoods side by side."""
        said = log_probabilities(self.features(JoinedRows(rows.parts[:1])))
        return said + torch.as_tensor(rows.parts[1])

    @torch.no_grad()
    def guess(self, rows: JoinedRows) -> Tensor:
        """Class probabilities, fit to be sent as messages, from class scores and log likelihoods side by side."""
        said, heard = map(torch.as_tensor, rows.parts)
        return probabilities(said + heard)

    def remember(self, model: Neighborhoods, after: int = 0) -> None:
        """Keep what was known about neighborhoods after so many rounds."""
        for name in ("mix", "sizes", "weights"):
            getattr(self, name)[after] = getattr(model, name)
        self.grain_and_spread[after] = torch.tensor([model.grain, model.spread])

    def recall(self, after: int = 0) -> Neighborhoods:
        """What was known about neighborhoods after so many rounds."""
        grain, spread = self.grain_and_spread[after].tolist()
        return Neighborhoods(self.mix[after], self.sizes[after], self.weights[after], grain, spread)
