"""Message passing on rooted subgraphs: encoder, r layers of messages, decoder.

The same network runs on a batch of rooted subgraphs (training, one example per root) and on a whole graph (inference):
both are a `RootedBatch`. All weights sit in linear layers, and every use of one goes through a `Tape`, which is how the
private engine sees inputs and outputs without hooks.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.errors import InputError, did_you_mean
from hushgraph.graph.rooted import RootedBatch
from hushgraph.graph.rows import Rows
from hushgraph.nn.layers import Linear, fresh_generator, make_activation
from hushgraph.nn.messages import (
    AnyMessages,
    largest_of_edges,
    sum_edges,
    sum_messages,
    take_sources,
    take_targets,
)
from hushgraph.nn.rowwise import rowwise

Convolution = Literal["gcn", "sage", "gin", "attention"]
CONVOLUTIONS = ("gcn", "sage", "gin", "attention")


class Tape(Protocol):
    """Applies linear layers; level l means: the rows of level l of the batch."""

    def linear(self, layer: Linear, x: Rows, level: int) -> Tensor:
        """`layer(x)`."""
        ...


class _NoTape:
    def linear(self, layer: Linear, x: Rows, level: int) -> Tensor:
        output: Tensor = layer(x)
        return output


class GCNLayer(nn.Module):
    """The mean of a node's own row and its in-neighbors' rows, (d + 1)^-1 (A + I), then a linear map."""

    def __init__(self, width: int, heads: int, activation: nn.Module, generator: torch.Generator) -> None:
        super().__init__()
        self.linear = Linear(width, width, generator=generator)

    def combine(self, own: Tensor, received: Tensor, counts: Tensor) -> Tensor:
        """What enters the linear map, from the own row and the sum of the received ones."""
        return (own + received) / (counts + 1.0).unsqueeze(1)

    def forward(self, x: Tensor, messages: AnyMessages, level: int, tape: Tape) -> Tensor:
        """From the rows of `level` to those of the next."""
        own, received = x.index_select(0, messages.own), sum_messages(x, messages)
        return tape.linear(self.linear, self.combine(own, received, messages.counts.to(x.dtype)), level + 1)


class SAGELayer(GCNLayer):
    """A node's own row beside the mean of its in-neighbors' rows, then a linear map (Hamilton et al. 2017)."""

    def __init__(self, width: int, heads: int, activation: nn.Module, generator: torch.Generator) -> None:
        super().__init__(width, heads, activation, generator)
        self.linear = Linear(2 * width, width, generator=generator)

    def combine(self, own: Tensor, received: Tensor, counts: Tensor) -> Tensor:
        """Both rows, side by side."""
        return torch.cat((own, received / counts.clamp(min=1.0).unsqueeze(1)), dim=1)


class GINLayer(GCNLayer):
    """The sum of a node's own row and its in-neighbors' rows, then two linear maps (Xu et al. 2019, epsilon 0)."""

    def __init__(self, width: int, heads: int, activation: nn.Module, generator: torch.Generator) -> None:
        super().__init__(width, heads, activation, generator)
        self.activation = activation
        self.second = Linear(width, width, generator=generator)

    def combine(self, own: Tensor, received: Tensor, counts: Tensor) -> Tensor:
        """The plain sum."""
        return own + received

    def forward(self, x: Tensor, messages: AnyMessages, level: int, tape: Tape) -> Tensor:
        """From the rows of `level` to those of the next."""
        return tape.linear(self.second, self.activation(super().forward(x, messages, level, tape)), level + 1)


class AttentionLayer(nn.Module):
    """Dot-product attention over a node itself and its in-neighbors, in `heads` parts of equal width."""

    def __init__(self, width: int, heads: int, activation: nn.Module, generator: torch.Generator) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise InputError(f"heads: expected a divisor of the hidden width {width}; got {heads}")
        self.heads = heads
        self.query, self.key, self.value = (Linear(width, width, generator=generator) for _ in range(3))

    def forward(self, x: Tensor, messages: AnyMessages, level: int, tape: Tape) -> Tensor:
        """From the rows of `level` to those of the next."""
        query = tape.linear(self.query, x.index_select(0, messages.own), level + 1)
        key, value = tape.linear(self.key, x, level), tape.linear(self.value, x, level)
        scale = 1.0 / math.sqrt(x.shape[1] / self.heads)
        scores = scale * self._dot(take_targets(query, messages), take_sources(key, messages))
        own_score = scale * self._dot(query, key.index_select(0, messages.own))
        top = largest_of_edges(own_score, scores, messages)  # shifting a row's scores only keeps exp finite
        weight = (scores - take_targets(top, messages)).exp()
        own_weight = (own_score - top).exp()
        total = own_weight + sum_edges(weight, messages)
        sent = sum_edges(self._times(weight, take_sources(value, messages)), messages)
        return self._times(1.0 / total, sent + self._times(own_weight, value.index_select(0, messages.own)))

    def _dot(self, a: Tensor, b: Tensor) -> Tensor:
        return (a * b).unflatten(1, (self.heads, -1)).sum(2)

    def _times(self, weight: Tensor, rows: Tensor) -> Tensor:
        return (rows.unflatten(1, (self.heads, -1)) * weight.unsqueeze(2)).flatten(1)


_LAYERS: dict[str, type[GCNLayer] | type[AttentionLayer]] = {
    "gcn": GCNLayer,
    "sage": SAGELayer,
    "gin": GINLayer,
    "attention": AttentionLayer,
}


class RootedNetwork(nn.Module):
    """Encoder MLP, `num_layers` message-passing layers, decoder MLP; an activation after each map but the last.

    `own_encoder` and `own_decoder` are row-wise modules in the place of the two perceptrons. What they hold does not go
    through a tape, so gradients of such a network are formed outright.
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        num_classes: int,
        *,
        num_layers: int = 1,
        convolution: str = "gcn",
        encoder_layers: int = 1,
        decoder_layers: int = 1,
        heads: int = 1,
        activation: str = "tanh",
        generator: torch.Generator | None = None,
        own_encoder: nn.Module | None = None,
        own_decoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        generator = fresh_generator(generator)
        self.own_encoder, self.own_decoder = own_encoder, own_decoder
        if convolution not in _LAYERS:
            raise InputError(f"convolution: got '{convolution}'; {did_you_mean(convolution, _LAYERS)}")
        if encoder_layers < 1 or decoder_layers < 1 or num_layers < 1:
            raise InputError("expected at least one encoder, message-passing and decoder layer each")
        self.activation = make_activation(activation)
        sizes = [in_features, *[hidden] * encoder_layers] if own_encoder is None else []
        self.encoder = nn.ModuleList(Linear(a, b, generator=generator) for a, b in pairwise(sizes))
        make = _LAYERS[convolution]
        self.convolutions = nn.ModuleList(make(hidden, heads, self.activation, generator) for _ in range(num_layers))
        sizes = [*[hidden] * decoder_layers, num_classes] if own_decoder is None else []
        self.decoder = nn.ModuleList(Linear(a, b, generator=generator) for a, b in pairwise(sizes))

    @property
    def num_layers(self) -> int:
        """The number of message-passing layers, i.e. how far a root sees."""
        return len(self.convolutions)

    def encode(self, x: Rows, tape: Tape | None = None) -> Tensor:
        """The rows that are sent in the first layer; each depends on one input row only."""
        if self.own_encoder is not None:
            rows: Tensor = self.own_encoder(x)
            return rows
        tape = tape if tape is not None else _NoTape()
        for layer in self.encoder:
            x = self.activation(tape.linear(layer, x, 0))  # type: ignore[arg-type]
        assert isinstance(x, Tensor)
        return x

    def decode(self, x: Tensor, tape: Tape | None = None) -> Tensor:
        """Class scores from the rows of the last level."""
        if self.own_decoder is not None:
            scores: Tensor = self.own_decoder(x)
            return scores
        tape = tape if tape is not None else _NoTape()
        for i, layer in enumerate(self.decoder):
            x = tape.linear(layer, self.activation(x) if i else x, self.num_layers)  # type: ignore[arg-type]
        return x

    def forward(self, x: Rows, batch: RootedBatch, tape: Tape | None = None) -> Tensor:
        """Class scores, one row per root; `x` holds the features of `batch.nodes`."""
        tape = tape if tape is not None else _NoTape()
        if len(batch.layers) != self.num_layers:
            raise InputError(f"expected subgraphs of {self.num_layers} layers; got {len(batch.layers)}")
        rows = self.encode(x, tape)
        for level, (layer, messages) in enumerate(zip(self.convolutions, batch.layers)):
            rows = self.activation(layer(rows, messages, level, tape))
        return self.decode(rows, tape)

    # The network for rows whose sums over neighbors come from elsewhere (noisy inference): row-wise parts

    def row_encoder(self) -> nn.Sequential:
        """The encoder."""
        if self.own_encoder is not None:
            return nn.Sequential(self.own_encoder)
        return nn.Sequential(*[part for layer in self.encoder for part in (layer, self.activation)])

    def row_sender(self) -> nn.Module:
        """What is done to rows before they are sent: a mean needs the number of senders beside the sum."""
        return WithRest() if isinstance(self.convolutions[0], GINLayer) else WithConstant()

    def row_layer(self, level: int, std: float) -> nn.Sequential:
        """One message-passing layer after its sum, on (own row, sum with noise of size `std`)."""
        layer = self.convolutions[level]
        if isinstance(layer, GINLayer):
            return nn.Sequential(NoisySum(std), layer.linear, self.activation, layer.second, self.activation)
        assert isinstance(layer, GCNLayer)
        mean = NoisyPair(std) if isinstance(layer, SAGELayer) else NoisyMean(std)
        return nn.Sequential(mean, layer.linear, self.activation)

    def row_decoder(self) -> nn.Sequential:
        """The decoder."""
        if self.own_decoder is not None:
            return nn.Sequential(self.own_decoder)
        parts = [part for layer in self.decoder for part in (self.activation, layer)]
        return nn.Sequential(*parts[1:])


@rowwise("Appends a constant to a row and scales that row.")
class WithConstant(nn.Module):
    """Append a constant column, so that a sum over neighbors also tells (noisily) how many there were."""

    def forward(self, x: Tensor) -> Tensor:
        """The rows with sqrt(columns) appended, scaled to unit length."""
        constant = x.new_full((x.shape[0], 1), math.sqrt(x.shape[1]))
        return F.normalize(torch.cat((x, constant), dim=1), dim=1)


@rowwise("Divides a row by its own last entry.")
class NoisyMean(nn.Module):
    """The mean of a node's own row and a noisy sum of others' rows, all of them made by `WithConstant`.

    `std` is the (public) size of the noise, by which the sum is shrunk.
    """

    def __init__(self, std: float = 0.0) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        """From `[nodes, 2, columns + 1]` (own row, noisy sum) to `[nodes, columns]`, in the scale of the rows sent.

        The last column of the total is the weight of the mean. Noise cannot push it below that of the own row.
        """
        own = x[:, 0]
        total = own + shrunk(x[:, 1], self.std)
        weight = torch.maximum(total[:, -1:], own[:, -1:])
        return total[:, :-1] / weight * math.sqrt(x.shape[2] - 1)


@rowwise("Divides both parts of one row by last entries of that row.")
class NoisyPair(nn.Module):
    """A node's own row beside the mean of others' rows, all made by `WithConstant`; `std` as above."""

    def __init__(self, std: float = 0.0) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        """From `[nodes, 2, columns + 1]` (own row, noisy sum) to `[nodes, 2 * columns]`, in the scale of the rows sent.

        The last column of the sum is the weight of the mean. Noise cannot push it below that of the own row.
        """
        own, others = x[:, 0], shrunk(x[:, 1], self.std)
        weight = torch.maximum(others[:, -1:], own[:, -1:])
        rows = torch.cat((own[:, :-1] / own[:, -1:], others[:, :-1] / weight), dim=1)
        return rows * math.sqrt(x.shape[2] - 1)


def shrunk(rows: Tensor, std: float) -> Tensor:
    """Noisy rows scaled by the share of their squared length that noise does not explain (James and Stein 1961).

    A row that is no longer than noise alone becomes zero: a node then answers by its own row, not by noise.
    """
    squares = rows.square().sum(1, keepdim=True)
    signal = (squares - rows.shape[1] * std**2).clamp(min=0.0)
    return rows * (signal / squares.clamp(min=1e-30))


@rowwise("Scales a row by its own length and appends what is missing.")
class WithRest(nn.Module):
    """Append what a row lacks to the length sqrt(columns), so that rows of one length have sums that are exact."""

    def forward(self, x: Tensor) -> Tensor:
        """The rows divided by sqrt(columns), or by their own length if they are longer, with the rest appended."""
        rows = x / x.norm(dim=1, keepdim=True).clamp(min=math.sqrt(x.shape[1]))
        rest = (1.0 - rows.square().sum(1, keepdim=True)).clamp(min=0.0).sqrt()
        return torch.cat((rows, rest), dim=1)


@rowwise("Adds the two parts of one row.")
class NoisySum(nn.Module):
    """The sum of a node's own row and a noisy sum of others' rows, all made by `WithRest`; `std` as above."""

    def __init__(self, std: float = 0.0) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        """From `[nodes, 2, columns + 1]` (own row, noisy sum) to `[nodes, columns]`, in the scale of the rows sent."""
        return (x[:, 0] + shrunk(x[:, 1], self.std))[:, :-1] * math.sqrt(x.shape[2] - 1)
