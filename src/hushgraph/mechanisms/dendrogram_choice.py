"""The best of several dendrograms that were made from public edges. Proof: docs/proofs/dendrogram.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.graph.dendrogram import GRID, Chain, Dendrogram, likelihood, sensitivity
from hushgraph.mechanisms.dendrogram import NOTHING, TreeMechanism, both_ends, start_of
from hushgraph.noise.discrete import bernoulli_exp, uniform_below
from hushgraph.noise.source import NoiseSource


@dataclass(frozen=True)
class DendrogramChoice(TreeMechanism):
    """`candidates` trees come from a chain that sees public edges alone; one is drawn by the exponential mechanism.

    The chain needs no limit for the promise: whatever the trees are, they follow from what is public. The draw is
    exact, in whole numbers, so the promise is exact too.
    """

    candidates: int = 64

    name = "dendrogram-choice"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.candidates, bool) or not isinstance(self.candidates, int) or self.candidates < 1:
            raise InputError(f"candidates: expected a whole number of at least 1; got {self.candidates!r}")

    def query(self, data: Any, *inputs: Any) -> Dendrogram:
        """The tree with the largest score."""
        trees, scores = self._candidates(data, NoiseSource.seeded(0))
        return trees[int(np.argmax(scores))]

    def release(self, data: Any, scale: float, noise: NoiseSource) -> Dendrogram:
        """One tree with probability in proportion to exp(score / (2 Delta scale))."""
        trees, scores = self._candidates(data, noise.stream("public chain"))
        return trees[drawn(scores, self.denominator(data.metadata.num_nodes, scale), noise.stream("choice"))]

    @staticmethod
    def denominator(num_nodes: int, scale: float) -> int:
        """How many steps of the score make a factor e; rounded up, which only costs accuracy."""
        return math.ceil(2.0 * sensitivity(num_nodes) * scale * GRID * (1.0 + 2.0**-40)) + 1

    def _candidates(self, data: Any, noise: NoiseSource) -> tuple[list[Dendrogram], list[int]]:
        nodes, (public, private) = data.metadata.num_nodes, both_ends(data, public=self.public)
        chain = Chain(nodes, public, NOTHING, noise, start_of(nodes, public))
        every = -(-self.steps_per_node * nodes // self.candidates)
        trees: list[Dendrogram] = []
        for number in range(self.candidates):
            chain.run(every, 0.0)
            trees.append(chain.tree)
            data.report(number + 1, self.candidates)
        counts = [(tree.count(*public), tree.count(*private)) for tree in trees]
        return trees, [likelihood(tree, *both)[1] for tree, both in zip(trees, counts, strict=True)]

    @classmethod
    def variants(cls) -> list[DendrogramChoice]:
        """Few trees."""
        return [cls(steps_per_node=20, candidates=4)]


def drawn(scores: list[int], denominator: int, noise: NoiseSource) -> int:
    """A place with probability in proportion to exp(score / denominator), exact given fair bits, by rejection."""
    best = max(scores)
    while True:
        place = uniform_below(len(scores), noise)
        whole, rest = divmod(best - scores[place], denominator)
        if all(bernoulli_exp(1, 1, noise) for _ in range(whole)) and bernoulli_exp(rest, denominator, noise):
            return place
