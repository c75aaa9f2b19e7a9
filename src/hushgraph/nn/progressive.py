"""ProGAP's submodels: one base network per stage, jumping knowledge over their outputs, a one-layer head."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph.graph.rows import JoinedRows
from hushgraph.nn.gap import Combination, Combine
from hushgraph.nn.layers import MLP, L2Normalize, Linear, fresh_generator
from hushgraph.nn.own import own_module
from hushgraph.nn.rowwise import Branches, rowwise, unfolds


@rowwise("Only passes rows through the layers inside it.")
@unfolds(lambda net: [Branches(net.bases, net.combine.mode), net.normalize, net.head])
class Submodel(nn.Module):
    """Stage s: rows `(features, sum 1, ..., sum s)` to class scores, through bases 0..s.

    The bases are handed in, because each stage continues with those of the stage before; jumping knowledge and head
    are new. Every output row depends on one input row only, unless the bases hold batch norm.
    """

    def __init__(
        self,
        bases: Sequence[nn.Module],
        hidden: int,
        num_classes: int,
        combine: Combination = "cat",
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        generator = fresh_generator(generator)
        self.bases = nn.ModuleList(bases)
        self.combine = Combine(combine, len(bases), hidden, generator=generator)
        self.normalize = L2Normalize()
        self.head = Linear(self.combine.out_features, num_classes, generator=generator)

    def forward(self, rows: JoinedRows) -> Tensor:
        """Class scores, one row per node."""
        return self.scores([base(part) for base, part in zip(self.bases, rows.parts)])

    def scores(self, outputs: Sequence[Tensor]) -> Tensor:
        """Class scores from the outputs of all bases."""
        return self.head(self.normalize(self.combine(torch.stack(list(outputs), 1))))


def stage_base(
    stage: int, num_features: int, hidden: int, num_layers: int, norm: str | None, types: int = 1, **options: Any
) -> nn.Module:
    """The base network of one stage: features in at stage 0, `hidden` columns of noisy sums per type of edge later."""
    width = num_features if stage == 0 else types * hidden
    return MLP(width, hidden, hidden, num_layers, norm=norm, order="activation-first", plain_last=False, **options)


@rowwise("Only passes rows through the layers inside it.")
class ProgressiveNetwork(nn.Module):
    """All of ProGAP: a base and a head per stage, and what each stage sent to the next (`senders`).

    A base goes on learning after its output has been summed, so the state that produced the cached sums is kept apart:
    inference on another graph must send the same kind of rows that the later stages learned to read.
    """

    def __init__(
        self,
        num_features: int,
        hidden: int,
        num_classes: int,
        *,
        hops: int,
        base_layers: int,
        combine: str,
        norm: str | None,
        generator: torch.Generator,
        encoder: nn.Module | None = None,
        types: int = 1,
        **options: Any,
    ) -> None:
        super().__init__()
        bases: list[nn.Module] = []
        self.stages = nn.ModuleList()
        for s in range(hops + 1):
            if s == 0 and encoder is not None:
                plain = norm == "batch"
                bases.append(own_module(encoder, "encoder", num_features, generator, plain=plain, out=hidden))
            else:
                sizes = (s, num_features, hidden, base_layers, norm, types)
                bases.append(stage_base(*sizes, generator=generator, **options))
            self.stages.append(Submodel(bases, hidden, num_classes, combine, generator=generator))  # type: ignore[arg-type]
        self.senders = nn.ModuleList(copy.deepcopy(base) for base in bases[:-1])

    def submodel(self, stage: int) -> Submodel:
        """The network of one stage: bases 0..s, shared with the other stages, and its own head."""
        found = self.stages[stage]
        assert isinstance(found, Submodel)
        return found

    def keep_sender(self, stage: int) -> None:
        """Keep the newest base of `stage` as it is now: what it puts out is about to be summed."""
        self.senders[stage].load_state_dict(self.submodel(stage).bases[stage].state_dict())
        self.senders[stage].eval()

    def freeze_before(self, stage: int) -> None:
        """Train the bases from `stage` on, and leave earlier ones as they are."""
        for number, base in enumerate(self.submodel(len(self.stages) - 1).bases):
            base.requires_grad_(number >= stage)
