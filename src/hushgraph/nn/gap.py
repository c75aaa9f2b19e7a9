"""GAP's network: the encoder and the classifier of hops, kept together so that they are saved together.

GAP's encoder: a perceptron that turns features into unit rows, pre-trained with a classification head.

GAP's classification module: one small network per hop, their outputs combined, then a head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError, did_you_mean
from hushgraph.graph.rows import Rows
from hushgraph.nn.layers import MLP, L2Normalize, Linear, between_layers, fresh_generator, reset_all
from hushgraph.nn.own import own_module
from hushgraph.nn.rowwise import Branches, rowwise, unfolds


class GapNetwork(nn.Module):
    """Features to unit rows (`encoder`), and hops 0 to K of those rows to class scores (`classifier`).

    A hop is as many sums side by side as edges have `types`: `blocks` take the unit rows of each out of them, and
    `together` those of their total (None: there is one type, whose rows these are).
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        hops: int,
        types: int = 1,
        hidden_channels: int,
        encoder_layers: int,
        base_layers: int,
        head_layers: int,
        combine: str,
        activation: str,
        norm: str | None,
        dropout: float,
        generator: torch.Generator,
        encoder: nn.Module | None = None,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        plain = norm == "batch"
        body = None if encoder is None else own_module(encoder, "encoder", num_features, generator, plain=plain)
        shared: dict[str, Any] = {
            "activation": activation,
            "norm": norm,
            "dropout": dropout,
            "generator": generator,
        }
        self.encoder = Encoder(
            num_features, hidden_channels, num_classes, encoder_layers=encoder_layers, body=body, **shared
        )
        self.classifier = HopClassifier(
            hops * types,
            self.encoder.width,
            hidden_channels,
            num_classes,
            base_layers=base_layers,
            head_layers=head_layers,
            combine=combine,  # type: ignore[arg-type]
            head=None if head is None else partial(own_module, head, "head", generator=generator, plain=plain),
            **shared,
        )
        several = types > 1
        self.blocks = nn.ModuleList([TypeBlock(one, types) for one in range(types)] if several else [L2Normalize()])
        self.together = TypeBlock(None, types) if several else None


@rowwise("Only passes rows through the layers inside it.")
@unfolds(lambda encoder: [encoder.body, encoder.middle, encoder.head])
class Encoder(nn.Module):
    """Features to unit rows of width `hidden` (`encode`); as a module, class scores for pre-training.

    Body: `encoder_layers` linear layers, the last one plain, then L2-normalized rows. Head: norm, dropout, activation
    and `head_layers` linear layers. Every output row depends on one input row only, unless `norm="batch"`. `body` is
    put in the place of the first layers; it says its `out_features`.
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
        body: nn.Module | None = None,
    ) -> None:
        super().__init__()
        generator = fresh_generator(generator)
        shared = {"activation": activation, "norm": norm, "dropout": dropout, "generator": generator}
        self.body = body or MLP(in_features, hidden, hidden, encoder_layers, **shared)  # type: ignore[arg-type]
        self.width = width = int(self.body.out_features)  # type: ignore[arg-type]
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


@rowwise("Takes some columns of a row, or adds them, and scales the result to length 1.")
class TypeBlock(nn.Module):
    """The sums over one type of edge, which stand side by side, as unit rows; None: those over all types together."""

    def __init__(self, number: int | None, types: int) -> None:
        super().__init__()
        self.number, self.types, self.normalize = number, types, L2Normalize()

    def forward(self, sums: Tensor) -> Tensor:
        """Unit rows of one block."""
        blocks = sums.unflatten(1, (self.types, -1))
        found: Tensor = self.normalize(blocks.sum(dim=1) if self.number is None else blocks[:, self.number])
        return found


Combination = Literal["cat", "sum", "max", "attention"]
COMBINATIONS = ("cat", "sum", "max", "attention")


@rowwise("Concatenates, adds or weighs the hops of one row.")
class Combine(nn.Module):
    """Turn the hops of each node, `[n, hops, width]`, into one row: `cat`, `sum`, `max` or learned `attention`.

    Attention scores each hop by a linear map of its row and takes the softmax-weighted sum over the hops of that node.
    """

    def __init__(
        self, mode: Combination, num_inputs: int, width: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if mode not in COMBINATIONS:
            raise InputError(f"expected a combination; got '{mode}'; {did_you_mean(mode, COMBINATIONS)}")
        self.mode = mode
        self.out_features = num_inputs * width if mode == "cat" else width
        self.score = Linear(width, 1, bias=False, generator=generator) if mode == "attention" else None

    def forward(self, stack: Tensor) -> Tensor:
        """Combine over the second dimension."""
        if self.mode == "cat":
            return stack.flatten(1)
        if self.mode == "sum":
            return stack.sum(1)
        if self.mode == "max":
            return stack.amax(1)
        assert self.score is not None
        return (self.score(stack).softmax(dim=1) * stack).sum(1)


@rowwise("Only passes rows through the layers inside it.")
@unfolds(lambda net: [Branches(net.bases, net.combine.mode), net.middle, net.head])
class HopClassifier(nn.Module):
    """Rows `[n, hops + 1, in]` (hop 0 to K embeddings of each node) to class scores `[n, classes]`.

    One base MLP per hop, combine, L2-normalize the combined row, norm, dropout, activation, head MLP. Every output row
    depends on one input row only, unless `norm="batch"`. `head` makes the last network from the number of columns.
    """

    def __init__(
        self,
        num_hops: int,
        in_features: int,
        hidden: int,
        num_classes: int,
        *,
        base_layers: int = 1,
        head_layers: int = 1,
        combine: Combination = "cat",
        activation: str = "selu",
        norm: str | None = None,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
        head: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        generator = fresh_generator(generator)
        self.num_hops, self.in_features = num_hops, in_features
        width = hidden if base_layers else in_features
        self.bases = nn.ModuleList(
            MLP(
                in_features,
                hidden,
                hidden,
                base_layers,
                activation=activation,
                norm=norm,
                dropout=dropout,
                generator=generator,
            )
            for _ in range(num_hops + 1)
        )
        self.combine = Combine(combine, num_hops + 1, width, generator=generator)
        combined = self.combine.out_features
        self.middle = nn.Sequential(
            L2Normalize(), *between_layers(combined, activation, norm, dropout, "norm-first", generator)
        )
        own = None if head is None else head(combined, out=num_classes)
        self.head = own or MLP(
            combined,
            hidden,
            num_classes,
            head_layers,
            activation=activation,
            norm=norm,
            dropout=dropout,
            generator=generator,
        )

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw new starting values from `generator`."""
        reset_all(self, generator)

    def forward(self, rows: Tensor) -> Tensor:
        """Class scores, one row per node."""
        if rows.dim() != 3 or rows.shape[1] != len(self.bases):
            expected = f"[n, {len(self.bases)}, {self.in_features}]"
            raise InputError(f"expected rows of shape {expected}; got {list(rows.shape)}; stack hops 0 to K")
        outputs = [base(hop) for base, hop in zip(self.bases, rows.unbind(1))]
        return self.head(self.middle(self.combine(torch.stack(outputs, 1))))
