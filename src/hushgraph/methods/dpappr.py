"""DP-APPR: node-level private training on private PageRank rows (Zhang, Emory University, chapter 5).

1. For every source among the training nodes, the K nodes of the largest approximate personalized PageRank are released:
   from rows with Gaussian noise (`gm`), or chosen by the exponential mechanism, with equal weights (`em-v0`) or with
   noisy ones (`em-v1`, `em-v1-gaussian`). In what is released each node stays in at most R rows of others.
2. An MLP is trained by DP-SGD; the score of a source is the weighted mean over its row.
3. Predictions: power iteration of the MLP's scores over raw edges, which the certificate says plainly, or scores of
   nodes from their own features.

What differs from the publication, and why: docs/proofs/dpappr.md. `features`, `random` and `dpsgd` are its baselines;
with epsilon infinite, `gm` is the one it calls vanilla.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.edges import Edges
from hushgraph.graph.pagerank import TopRows
from hushgraph.graph.rows import Rows
from hushgraph.mechanisms.pagerank_gradient import PageRankGradient
from hushgraph.mechanisms.pagerank_laplace import PageRankLaplace
from hushgraph.mechanisms.pagerank_rows import PageRankRows
from hushgraph.mechanisms.pagerank_top import PageRankTop
from hushgraph.mechanisms.pagerank_values import PageRankValues
from hushgraph.mechanisms.weighted_gradient import WeightedGradient
from hushgraph.methods.base import Method, Output
from hushgraph.methods.dpappr_paper import paper_plan
from hushgraph.methods.refusals import with_types
from hushgraph.nn.layers import ACTIVATIONS, MLP
from hushgraph.nn.weighted import WeightedMean, power_iteration
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import noise_scale
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.vault import Vault

VARIANTS = ("gm", "em-v0", "em-v1", "em-v1-gaussian", "features", "random", "dpsgd")
INFERENCES = ("power", "own")
_LOST = (
    ". Such rows do no better than random ones (docs/results-dpappr.md): variant=features leaves them out, and quorum "
    "reads edges under the unit node-with-edges"
)


@dataclass(frozen=True)
class DPAPPR(Method):
    """Settings of DP-APPR."""

    variant: str = setting("em-v0", among=VARIANTS, help="how rows are released; features, random, dpsgd: baselines")
    top: int = setting(4, least=1, help="K: entries of a row")
    rows: int | None = setting(None, least=1, help="M: sources, drawn from the training nodes; by rule all of them")
    sample: float | None = setting(
        None, above=0, most=1, help="q': cut to this share of training nodes; by rule no cut"
    )
    fill: bool = setting(False, help="training nodes without a row are examples too, of their own features")
    max_support: int = setting(3, least=0, help="R: rows of others in which a node may have an entry")
    own_weight: float = setting(0.5, least=0, below=1, help="share of a source's own features in its row")
    row_bound: float = setting(0.01, above=0, help="C1: norm to which rows are clipped (gm)")
    entry_bound: float = setting(0.001, above=0, help="C2: to which entries are clipped (em)")
    alpha: float = setting(0.25, above=0, below=1, help="teleportation of PageRank")
    rho: float = setting(1e-4, above=0, below=1, help="accuracy of PageRank")
    pagerank_share: float = setting(0.3, above=0, below=1, help="share of epsilon that rows may take alone")
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
    takes_multilabel = True
    paper = "Zhang (Emory University)"
    aliases = {"hidden": "hidden_channels", "layers": "num_layers"}

    def num_nodes(self, metadata: Metadata) -> int:
        """The training nodes that are left after the cut."""
        return max(1, round((self.sample or 1.0) * metadata.num_train))

    def num_rows(self, metadata: Metadata) -> int:
        """M."""
        return min(self.rows or metadata.num_train, self.num_nodes(metadata))

    def num_examples(self, metadata: Metadata) -> int:
        """The sources, or with `fill` all training nodes that are left."""
        return self.num_nodes(metadata) if self.fill else self.num_rows(metadata)

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The rows, with their share of the budget, and the gradient steps over them."""
        rows, network = self.row_stages(metadata), Stage("network", self.training(metadata, self.max_support))
        return [*(rows if network.is_free(unit) else self._within_share(rows, unit, budget)), network]

    def row_stages(self, metadata: Metadata) -> list[Stage]:
        """What is released of PageRank."""
        size, walk = (self.num_rows(metadata), self.top), (self.alpha, self.rho)
        entries = (*size, self.entry_bound, *walk)
        picks = Stage("picks", PageRankTop(*entries))
        released = {
            "gm": [Stage("rows", PageRankRows(*size, self.row_bound, *walk))],
            "em-v0": [picks],
            "em-v1": [picks, Stage("values", PageRankLaplace(*entries))],
            "em-v1-gaussian": [picks, Stage("values", PageRankValues(*entries))],
        }
        return released.get(self.variant, [])

    def _within_share(self, stages: list[Stage], unit: Unit, budget: Budget) -> list[Stage]:
        """The stages with the noise that their share of epsilon, and half of delta, pay for."""
        proved = all(math.isfinite(stage.mechanism.sensitivity(unit)) for stage in stages)
        if not stages or not budget.is_private or not proved or any(stage.is_free(unit) for stage in stages):
            return stages

        def event_at(factor: float) -> events.Event:
            return events.composed([stage.scaled(factor, unit).event(unit) for stage in stages])

        part = Budget(self.pagerank_share * budget.epsilon, 0.5 * budget.definite_delta)
        factor = noise_scale(event_at, unit.relation, part)
        return [replace(stage.scaled(factor, unit), noise=None) for stage in stages]

    def training(self, metadata: Metadata, support: int) -> WeightedGradient:
        """The gradient steps, where a node is read by at most `support` examples of others."""
        rows, examples = self.num_rows(metadata), self.num_examples(metadata)
        steps = WeightedGradient.of(examples, self.batch_size, self.epochs, self.max_grad_norm)
        batches = (steps.max_grad_norm, steps.sample_rate, steps.steps)
        if self.variant == "dpsgd":
            if rows != examples:
                raise InputError(
                    "fill: expected all examples to have exact rows with dpsgd; got fill beside fewer rows"
                )
            return PageRankGradient(*batches, rows - 1, rows, self.top, self.alpha, self.rho, self.own_weight)
        return WeightedGradient(*batches, 0 if self.variant == "features" else support)

    def with_noise(self, metadata: Metadata, unit: Unit, budget: Budget, *, paper_mode: bool) -> Plan:
        """In paper mode with the noise that the publication would use, and its claim beside what can be proved."""
        if not paper_mode or not budget.is_private:
            return super().with_noise(metadata, unit, budget, paper_mode=False)
        return with_types(paper_plan(self, metadata, unit, budget))

    def _stages_without_training(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """None: rows are for training alone."""
        return []

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """An MLP, averaged over rows."""
        sizes = plan.metadata.features, self.hidden_channels, plan.metadata.classes
        return WeightedMean(MLP(*sizes, self.num_layers, activation=self.activation, generator=generator))

    def unprotected_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """Predictions, where they read raw edges."""
        return [note(Code.RAW_PREDICTIONS)] if self.inference == "power" else []

    def remarks(self, plan: Plan) -> Sequence[str]:
        """How much of PageRank the noise of the rows leaves."""
        stage = next((one for one in plan.stages if one.name in ("rows", "picks")), None)
        if stage is None or not stage.scale or plan.runs_exactly(stage.name):
            return ()
        if stage.name == "rows":
            noise = stage.scale / self.row_bound
            found, lost = f"the noise of an entry is {noise:.3g} times as large as any entry can be", noise > 1.0
        else:
            odds = math.exp(min(700.0, 1.0 / stage.scale))
            found, lost = f"the nodes of the largest PageRank are preferred by odds of {odds:.4g} to 1", odds < 2.0
        return [f"{stage.name}: {found}{_LOST if lost else ''}"]

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Release rows, train on them, predict."""
        assert isinstance(network, WeightedMean)
        if train:
            self._train(vault, network)
        if self.inference == "own":
            return Output(scores=vault.scores(network.scorer, vault.features))

        def scores(features: Rows, edges: Edges) -> Tensor:
            return power_iteration(cast(Tensor, network.scorer.eval()(features)), edges, self.alpha, self.power_steps)

        return Output(scores=vault.raw_scores(scores))

    def _train(self, vault: Vault, network: WeightedMean) -> None:
        kept, sources, among = self._sources(vault)
        training = Training(self.epochs, self.lr, "adam")
        if self.variant == "dpsgd":
            vault.release("network", network, sources, among, training)
            return
        support = vault.plan.mechanism("network", WeightedGradient).max_support
        rows = self._rows(vault, sources, among).with_support(support)
        if self.fill:
            rows = rows.with_own(kept)
        vault.release("network", network, rows.mixed(self.own_weight), training)

    def _sources(self, vault: Vault) -> tuple[Tensor, Tensor, Tensor | None]:
        """The training nodes that are left, the sources among them, and the nodes of their graph (None: all).

        All of it is public: nothing is claimed for how they were drawn.
        """
        order = vault.in_random_order("train", "sources")
        kept = order[: self.num_nodes(vault.metadata)]
        sources = kept[: self.num_rows(vault.metadata)].sort().values
        kept = kept.sort().values
        return kept, sources, None if self.sample is None else kept

    def _rows(self, vault: Vault, sources: Tensor, among: Tensor | None) -> TopRows:
        """Released rows, or those of a baseline, which follow from nothing."""
        if self.variant == "gm":
            return cast(TopRows, vault.release("rows", sources, among))
        if self.variant.startswith("em"):
            picks = vault.release("picks", sources, among)
            return cast(TopRows, picks if self.variant == "em-v0" else vault.release("values", picks, among))
        shape = (sources.numel(), self.top)
        nodes = torch.arange(vault.metadata.num_nodes) if among is None else among
        others = nodes[torch.randint(nodes.numel(), shape, generator=vault.generator("random rows"))]
        own = sources.unsqueeze(1).expand(shape)
        return TopRows(sources, others if self.variant == "random" else own, torch.full(shape, 1.0 / self.top))
