"""GAP's network: the encoder and the classifier of hops, kept together so that they are saved together."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hushgraph.nn.encoder import Encoder
from hushgraph.nn.hops import HopClassifier


class GapNetwork(nn.Module):
    """Features to unit rows (`encoder`), and hops 0 to K of those rows to class scores (`classifier`)."""

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        hops: int,
        hidden_channels: int,
        encoder_layers: int,
        base_layers: int,
        head_layers: int,
        combine: str,
        activation: str,
        norm: str | None,
        dropout: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        shared: dict[str, Any] = {
            "activation": activation,
            "norm": norm,
            "dropout": dropout,
            "generator": generator,
        }
        self.encoder = Encoder(num_features, hidden_channels, num_classes, encoder_layers=encoder_layers, **shared)
        self.classifier = HopClassifier(
            hops,
            hidden_channels if encoder_layers else num_features,
            hidden_channels,
            num_classes,
            base_layers=base_layers,
            head_layers=head_layers,
            combine=combine,  # type: ignore[arg-type]
            **shared,
        )
