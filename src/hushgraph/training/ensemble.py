"""Plain training of several small networks at once, with the gradient written out.

For Chorus at edge level, where features, labels and released sums are public. The members of an `Ensemble` read the
same rows and share no weight, so the gradient of the sum of their losses holds the gradient of each, and one step of
Adam is one step of each. Compared with automatic differentiation member by member this takes a fifth of the time: a
dropout mask is made of 16 random bits per entry instead of a whole random number, and large results reuse memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.rows import JoinedRows, for_many_steps
from hushgraph.nn.chorus import Ensemble
from hushgraph.nn.layers import fresh_generator
from hushgraph.training.loop import BestEpoch, Progress, train_epochs
from hushgraph.training.losses import check_labels, cross_entropy_gradient, weighted_labels
from hushgraph.training.manual_batch_norm import BatchNormStep
from hushgraph.training.manual_layers import ACTIVATIONS, ActivationStep, LinearStep, Parameterless, Scratch
from hushgraph.training.minibatches import Minibatches
from hushgraph.training.optimizers import FlatAdam, FlatParameters, Update, make_optimizer, views_of
from hushgraph.training.plain_rows import merit_of, scores_on


def train_ensemble(
    network: Ensemble,
    rows: JoinedRows,
    labels: Tensor,
    train: Tensor,
    val: Tensor | None = None,
    *,
    epochs: int,
    lr: float,
    patience: int | None = None,
    generator: torch.Generator | None = None,
    on_epoch: Progress | None = None,
    optimizer: Callable[[Tensor, int], Update] | None = None,
    class_weights: tuple[float, ...] | None = None,
) -> None:
    """Train all members in place, one step per epoch on all train rows; dropout draws from `generator`.

    By Adam with rate `lr`, or by what `optimizer` makes of a vector and a number of steps.

    With `val`, the weights of the epoch with the highest validation accuracy of the whole ensemble are kept (the first
    one, among equals), and training stops after `patience` epochs without a better one: legal only where validation
    labels are public. The network is left in evaluation mode.
    """
    inputs, targets = for_many_steps(rows.rows(train)), labels.index_select(0, train)
    check_labels(targets, len(inputs))
    if len(inputs) < 2:
        raise InputError(f"expected at least two training rows; got {len(inputs)}; check the training mask")
    if class_weights is not None:
        targets = weighted_labels(targets, class_weights)
    best = None if val is None or val.numel() == 0 else _best_epoch(network, rows, labels, val, patience)
    network.train()
    with FlatParameters(network) as flat, torch.no_grad():
        gradient = EnsembleGradient(network, flat, fresh_generator(generator))
        update = make_optimizer("adam", flat.vector, lr) if optimizer is None else optimizer(flat.vector, epochs)

        def epoch() -> None:
            gradient.write(inputs, targets)
            update.step(flat.gradient)

        train_epochs(epoch, epochs, best=best, on_epoch=on_epoch)
    network.eval()


def train_ensemble_in_minibatches(
    network: Ensemble,
    rows: JoinedRows,
    labels: Tensor,
    train: Tensor,
    val: Tensor,
    minibatches: Minibatches,
    *,
    epochs: int,
    lr: float,
    generator: torch.Generator | None = None,
    on_look: Progress | None = None,
) -> None:
    """The same by Adam on some of the rows at a time: training ends by the rule of `minibatches`."""
    random = fresh_generator(generator)
    best = _best_epoch(network, rows, labels, minibatches.looked_at(val, random), None)
    check_labels(labels.index_select(0, train), len(train))
    network.train()
    with FlatParameters(network) as flat, torch.no_grad():
        gradient, update = EnsembleGradient(network, flat, random), FlatAdam(flat.vector, lr)

        def step(batch: Tensor) -> None:
            gradient.write(rows.rows(batch), labels.index_select(0, batch))
            update.step(flat.gradient)

        minibatches.train(step, minibatches.batches(train, epochs, random), update, best, on_look)
    network.eval()


def _best_epoch(
    network: Ensemble, rows: JoinedRows, labels: Tensor, val: Tensor, patience: int | None
) -> BestEpoch[float]:
    held_out, classes = rows.rows(val), labels.index_select(0, val)
    check_labels(classes, len(held_out))
    scores = scores_on(network, held_out)  # type: ignore[arg-type]
    return BestEpoch(network, lambda: merit_of(scores(), classes), patience=patience)


class DropoutStep(Parameterless):
    """Zero each entry with probability `p` (to the nearest 2^-16) and lengthen the others to make up for it."""

    def __init__(self, p: float, generator: torch.Generator) -> None:
        self.dropped, self.generator = round(p * 2**16), generator
        self.scratch = self.temporary = Scratch()

    def forward(self, x: Tensor, square_norms: Tensor | None = None) -> Tensor:
        """Draw a new mask and apply it in place."""
        if self.dropped == 0:
            return x
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None, generator=self.generator)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        mask = self.scratch("mask", x, *x.shape)
        self.mask = torch.empty_like(x) if mask is None else mask
        torch.ge(bits, self.dropped - 2**15, out=self.mask)
        return x.mul_(self.mask.mul_(2**16 / (2**16 - self.dropped)))

    def backward(self, grad: Tensor, first: bool = False) -> Tensor:
        """Apply the same mask in place."""
        return grad if self.dropped == 0 else grad.mul_(self.mask)


class EnsembleGradient:
    """Writes the gradient of the members' mean losses, added up, to `flat.gradient`."""

    def __init__(self, network: Ensemble, flat: FlatParameters, generator: torch.Generator) -> None:
        views = dict(zip(map(id, flat.parameters), views_of(flat.gradient, flat.parameters)))
        self.first = LinearStep(_linear(network.maps[0]), views)
        self.others = [(_linear(layer).weight, views[id(layer.weight)]) for layer in list(network.maps)[1:]]
        self.activation = ActivationStep(*ACTIVATIONS[nn.SELU])
        self.activation.in_place = True
        self.norm = BatchNormStep(network.norm, views)
        self.dropout = DropoutStep(network.dropout.p, generator)
        self.heads = [LinearStep(_linear(head), views) for head in network.heads]

    def write(self, rows: JoinedRows, labels: Tensor) -> None:
        """One pass forward and back over some rows."""
        hidden = self._hidden(rows)
        back = torch.empty_like(hidden)
        for head, x, grad in zip(self.heads, self._by_member(hidden), self._by_member(back)):
            scores = head.forward(x, None)
            grad.copy_(head.backward(cross_entropy_gradient(scores, labels).div_(len(x)), first=False))
            head.write(None)
        back = self.norm.backward(self.dropout.backward(back), first=False)
        self.norm.write(None)
        self._write_maps(rows, self.activation.backward(back, first=False))

    def _by_member(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.chunk(len(self.heads), dim=1)

    def _hidden(self, rows: JoinedRows) -> Tensor:
        inner = self.first.forward(rows.parts[0], None)
        for (weight, _), part in zip(self.others, rows.parts[1:]):
            inner = inner.addmm_(part, weight.t()) if isinstance(part, Tensor) else inner + part.matmul(weight.t())
        return self.dropout.forward(self.norm.forward(self.activation.forward(inner, None), None))

    def _write_maps(self, rows: JoinedRows, grad: Tensor) -> None:
        self.first.backward(grad, first=True)
        self.first.write(None)
        for (_, view), part in zip(self.others, rows.parts[1:]):
            # This way round a product with a few columns is several times faster (measured).
            product = torch.mm(part.t(), grad) if isinstance(part, Tensor) else part.transpose_matmul(grad)
            view.copy_(product.t())


def _linear(layer: nn.Module) -> nn.Linear:
    assert isinstance(layer, nn.Linear)
    return layer
