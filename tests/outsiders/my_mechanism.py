"""How many neighbors every node has, with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import hushgraph as hg
from hushgraph.mechanisms.canaries import Tally, audit_graph, lay_out
from hushgraph.privacy.mechanism import GaussianMechanism


@hg.register
@dataclass(frozen=True)
class NoisyDegrees(GaussianMechanism):
    """The length of every list, at most `cap`, as whole numbers with Gaussian noise rounded to whole numbers.

    Bound (L2): the unit's own list counts for at most `cap`; other changed entries may all be in one other list.
    """

    cap: int = 10

    name, proof, released = "noisy-degrees", "noisy-degrees", "the lengths of lists"
    reads = frozenset({"edges"})

    def sensitivity(self, unit: hg.Unit) -> float:
        f = unit.footprint
        return math.hypot(min(self.cap, f.own_list), f.other_entries)

    def query(self, data: Any) -> Tensor:
        return data.whole_lists.out_degree().to(torch.int64).clamp(max=self.cap).unsqueeze(1)

    def release(self, data: Any, scale: float, noise: Any) -> Tensor:
        exact = self.query(data)
        return exact + noise.integer_gaussian(tuple(exact.shape), scale)

    def canary(self, stage: hg.Stage, unit: hg.Unit, coins: Any, open_vault: Any, rng: Any) -> Any:
        if unit.footprint.records:
            return None  # an audit then says that this stage has no canary for such units
        layout = lay_out(unit, coins, rng)
        vault, tally = open_vault(audit_graph(torch.zeros(layout.num_nodes, 1), layout.edges())), Tally(layout)
        for _ in range(stage.count):
            seen = vault.release(stage.name)[layout.sender].double()
            tally.add(seen, torch.ones_like(seen), stage.scale)
        return tally.evidence("edge")
