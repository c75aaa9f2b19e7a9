"""Neighbors' labels as votes: how a noisy sum of them is read without learning anything."""

from __future__ import annotations

from torch import Tensor, nn

from hushgraph.data.rows import JoinedRows
from hushgraph.nn.rowwise import rowwise


@rowwise("Adds a multiple of one row's own sum, which follows from that sum alone, to one row's own class scores.")
class VoteReader(nn.Module):
    """Adds what neighbors vote for to what a classifier of features says; takes `JoinedRows` of both.

    If neighbors agree with a node more often than not, the centered sum S of a node of class c is about a (e_c - 1/C),
    with noise of variance std^2 and a spread of the votes themselves that grows with their number, about `spread` a.
    Bayes' rule then adds a S / (std^2 + spread a) to the log probabilities. The strength a is estimated from the length
    of S beyond that of its noise: where nothing but noise is heard, nothing is added.
    """

    def __init__(self, std: float, spread: float = 1.0) -> None:
        super().__init__()
        self.std, self.spread = std, spread

    def forward(self, rows: JoinedRows) -> Tensor:
        """Class scores, one row per node."""
        said, votes = rows.parts
        assert isinstance(said, Tensor)
        assert isinstance(votes, Tensor)
        votes = votes - votes.mean(dim=1, keepdim=True)
        columns = votes.shape[1]
        beyond_noise = votes.square().sum(dim=1, keepdim=True) - (columns - 1) * self.std**2
        strength = (beyond_noise.clamp(min=0.0) * columns / max(1, columns - 1)).sqrt()
        return said.log_softmax(dim=1) + votes * (strength / (self.std**2 + self.spread * strength).clamp(min=1e-12))
