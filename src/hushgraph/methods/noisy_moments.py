"""One noisy sum per class in a random feature space, and a ridge classifier solved from it: no teachers, no steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from hushgraph.graph.rows import dense_rows
from hushgraph.mechanisms.class_sums import ClassSums
from hushgraph.methods.base import Method, Output
from hushgraph.nn import Linear
from hushgraph.nn.described import Described, Description, UnitRows
from hushgraph.nn.fourier import RandomFourier
from hushgraph.nn.hog import HOG
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.moment_ridge import PublicMoment
from hushgraph.vault import Vault


@dataclass(frozen=True)
class NoisyMoments(Method):
    """Random Fourier features of pictures (or of other rows), their noisy sums by class, and ridge regression.

    Everything but the sums is public: the features are random or fixed, their mean and second moment come from public
    records (`data.public_mask`), and the ridge follows from those and the known noise. Without public records the
    noisy class means classify.
    """

    frequencies: int = setting(2_000, least=1, help="random directions; the rows have twice as many columns")
    bandwidth: float = setting(0.7, above=0, help="of the kernel, in median distances of public rows")
    image_height: int | None = setting(None, least=0, help="of pictures that are not square; 0: rows are no pictures")
    cell: int = setting(4, least=1, help="pixels along a cell of the histograms of gradients")
    bins: int = setting(8, least=2, help="directions in a histogram")
    ridge_share: float = setting(1.0, above=0, help="of the ridge that is best for squared error by estimate")

    name = "noisy-moments"
    summary = "one release: noisy sums by class of random features of the records, then ridge regression"
    one_class = "sums records by their one class"
    paper = "hushgraph"

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The sums, once."""
        return [Stage("sums", ClassSums(metadata.classes))]

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """Fourier features of histograms of gradients, or of rows, and a linear layer."""
        columns = plan.metadata.features
        seen = self._histograms(columns)
        width = columns if seen is None else seen.width_out
        waves = RandomFourier(width, self.frequencies, self.bandwidth, generator)
        head = Linear(waves.width_out, plan.metadata.classes, bias=False, generator=generator)
        return Described(Description(seen or UnitRows(), waves), head)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Fit the features to public records, release the sums, solve."""
        network, settings = cast(Described, network), {}
        if train:
            public = dense_rows(vault.public_features) if vault.metadata.num_public else None
            if public is not None:
                network.description.fit(public)
            vault.release("sums", network.head, network.description, vault.features)
            if public is not None:
                settings["ridge"] = self._solve(vault, network, public)
        return Output(scores=vault.scores(network, vault.features), settings=settings)

    def _solve(self, vault: Vault, network: Described, public: Tensor) -> float:
        with torch.no_grad():
            noise = vault.plan["sums"].scale or 0.0
            sums, rows = cast(nn.Linear, network.head).weight.T, network.description(public)
            weights, ridge = PublicMoment(rows).solve(sums, vault.metadata.num_train, noise, self.ridge_share)
            cast(nn.Linear, network.head).weight.copy_(weights.T)
        return ridge

    def _histograms(self, columns: int) -> HOG | None:
        side = math.isqrt(columns)
        square = side**2 == columns and side >= 2 * self.cell
        if self.image_height == 0 or (self.image_height is None and not square):
            return None
        return HOG(columns, self.image_height, self.cell, self.bins)
