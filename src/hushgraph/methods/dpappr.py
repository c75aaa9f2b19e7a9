"""DP-APPR: node-level private training on private PageRank rows (chapter 5 of a thesis on private graph learning).

1. For every source among the training nodes, the K nodes of the largest approximate personalized PageRank are released:
   from rows with Gaussian noise (`gm`), or chosen by the exponential mechanism, with equal weights (`em-v0`) or with
   noisy ones (`em-v1`). What is released has each node in at most R rows of others (post-processing).
2. An MLP is trained by DP-SGD; the score of a source is the weighted mean over its row.
3. Predictions: power iteration of the MLP's scores over raw edges, which the certificate says plainly, or scores of
   nodes from their own features.

What differs from the publication, and why: docs/proofs/dpappr.md. `features`, `random` and `dpsgd` are its baselines;
with epsilon infinite, `gm` is the one it calls vanilla.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from hushgraph.data.rows import Rows
from hushgraph.graph.edges import Edges
from hushgraph.graph.pagerank import TopRows
from hushgraph.mechanisms.pagerank_rows import PageRankRows
from hushgraph.mechanisms.pagerank_top import PageRankTop
from hushgraph.mechanisms.pagerank_values import PageRankValues
from hushgraph.mechanisms.weighted_gradient import WeightedGradient
from hushgraph.methods.base import Method, Output
from hushgraph.nn.layers import ACTIVATIONS, MLP
from hushgraph.nn.weighted import WeightedMean, power_iteration
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.vault import Vault

VARIANTS = ("gm", "em-v0", "em-v1", "features", "random")
INFERENCES = ("power", "own")


@dataclass(frozen=True)
class DPAPPR(Method):
    """Settings of DP-APPR."""

    variant: str = setting("em-v0", among=VARIANTS, help="how rows are released; features and random are baselines")
    top: int = setting(4, least=1, help="K: entries of a row")
    rows: int | None = setting(None, least=1, help="M: sources, drawn from the training nodes; by rule all of them")
    max_support: int = setting(3, least=0, help="R: rows of others in which a node may have an entry")
    own_weight: float = setting(0.5, least=0, below=1, help="share of a source's own features in its row")
    row_bound: float = setting(0.01, above=0, help="C1: norm to which rows are clipped (gm)")
    entry_bound: float = setting(0.001, above=0, help="C2: to which entries are clipped (em)")
    alpha: float = setting(0.25, above=0, below=1, help="teleportation of PageRank")
    rho: float = setting(1e-4, above=0, below=1, help="accuracy of PageRank")
    pagerank_noise: float = setting(2.0, above=0, help="noise multiplier of rows over that of gradients")
    num_layers: int = setting(2, least=1, help="linear layers")
    hidden_channels: int = setting(32, least=1, help="width of the hidden layers")
    activation: str = setting("selu", among=ACTIVATIONS)
    lr: float = setting(0.01, above=0, help="learning rate")
    epochs: int = setting(20, least=1, help="passes over the sources; 200 without privacy is usual")
    batch_size: int = setting(256, least=1, help="expected batch of DP-SGD")
    max_grad_norm: float = setting(1.0, above=0, help="C: clip norm of one source's gradient")
    inference: str = setting("power", among=INFERENCES, help="power reads raw edges; own reads a node's own features")
    power_steps: int = setting(2, least=1, help="P: steps of the power iteration")

    name = "dp-appr"
    summary = "private PageRank rows, then an MLP averaged over them, trained by DP-SGD"
    paper = "Zhang et al. 2022"
    aliases = {"hidden": "hidden_channels", "layers": "num_layers"}

    def num_rows(self, metadata: Metadata) -> int:
        """M."""
        return min(self.rows or metadata.num_train, metadata.num_train)

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The rows, and the gradient steps over them."""
        rows, walk = (self.num_rows(metadata), self.top), (self.alpha, self.rho)
        noise = self.pagerank_noise
        picks = Stage("picks", PageRankTop(*rows, self.entry_bound, *walk), noise=noise)
        values = Stage("values", PageRankValues(*rows, self.entry_bound, *walk), noise=noise)
        released = {
            "gm": [Stage("rows", PageRankRows(*rows, self.row_bound, *walk), noise=noise)],
            "em-v0": [picks],
            "em-v1": [picks, values],
        }
        return [*released.get(self.variant, []), Stage("network", self._training(rows[0]))]

    def _training(self, rows: int) -> WeightedGradient:
        usual = WeightedGradient.of(rows, self.batch_size, self.epochs, self.max_grad_norm)
        support = 0 if self.variant == "features" else self.max_support
        return WeightedGradient(usual.max_grad_norm, usual.sample_rate, usual.steps, support)

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """An MLP, averaged over rows."""
        sizes = plan.metadata.features, self.hidden_channels, plan.metadata.classes
        return WeightedMean(MLP(*sizes, self.num_layers, activation=self.activation, generator=generator))

    def unprotected_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """Predictions, where they read raw edges."""
        return [note(Code.RAW_PREDICTIONS)] if self.inference == "power" else []

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Release rows, train on them, predict."""
        assert isinstance(network, WeightedMean)
        if train:
            rows = self._rows(vault).with_support(self._training(1).max_support)
            training = Training(self.epochs, self.lr, "adam")
            vault.release("network", network, rows.mixed(self.own_weight), training)
        if self.inference == "own":
            return Output(scores=vault.scores(network.scorer, vault.features))

        def scores(features: Rows, edges: Edges) -> Tensor:
            return power_iteration(cast(Tensor, network.scorer.eval()(features)), edges, self.alpha, self.power_steps)

        return Output(scores=vault.raw_scores(scores))

    def _rows(self, vault: Vault) -> TopRows:
        """The rows of the sources, which are public, and the same in every run."""
        nodes, made = vault.nodes("train"), torch.Generator().manual_seed(0)
        sources = nodes[torch.randperm(nodes.numel(), generator=made)[: self.num_rows(vault.metadata)]].sort().values
        if self.variant == "gm":
            return cast(TopRows, vault.release("rows", sources))
        if self.variant in ("em-v0", "em-v1"):
            picks = vault.release("picks", sources)
            return cast(TopRows, picks if self.variant == "em-v0" else vault.release("values", picks))
        shape = (sources.numel(), self.top)
        others = torch.randint(vault.metadata.num_nodes, shape, generator=made)
        own = sources.unsqueeze(1).expand(shape)
        return TopRows(sources, others if self.variant == "random" else own, torch.full(shape, 1.0 / self.top))
