"""PGC: private graph convolution (Sajadmanesh and Gatica-Perez 2020), for node classification.

Every person sends one random bit about each feature. The first GCN layer adds up unbiased estimates over the
neighborhood, which is where the noise averages out; the rest of the network is ordinary. Labels and edges are public.

A person who sends d bits at epsilon each spends d times epsilon. Publications quote the per-feature epsilon; the
certificate gives the total. Other randomizers of one number take the place of the bit on request.

PGC for link prediction, on privately collected features.

The edges are public under the local unit; what is protected are the features. Some links are held out to measure how
well the others predict them. Whatever is done with the reports after they were drawn costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from hushgraph import local
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.links import LinkSplit, split_links, unlinked_pairs
from hushgraph.graph.rows import Rows, SparseRows
from hushgraph.local.base import LARGEST_EPSILON
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.methods.base import Output
from hushgraph.methods.local import LocalMethod, require_local, train_plainly, within
from hushgraph.methods.model import Model
from hushgraph.nn.backbones import Gcn
from hushgraph.nn.links import (
    HOPS,
    HopRows,
    HopWeights,
    LinkEncoder,
    divergence,
    fit_weights,
    link_scores,
    log_degrees,
    reconstruction_loss,
)
from hushgraph.nn.propagation import Neighborhood, PropagatedRows, Propagation
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Local, Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.training.loop import BestEpoch
from hushgraph.training.whole_graph import at_inference, fresh_start, train_on_graph
from hushgraph.vault import Vault

_FEW_ONES = 0.1


@dataclass(frozen=True)
class PerFeatureMethod(LocalMethod):
    """Collecting every feature at `feature_epsilon` each."""

    feature_epsilon: float | None = setting(None, above=0, help="of each feature; by rule the budget over their number")
    mechanism: str = setting("one-bit", among=local.SCALARS, help="the randomizer of one feature")

    def default_unit(self, graph: CheckedGraph) -> Unit:
        """Labels are public."""
        return Local(private_labels=False)

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """One report with every feature in it."""
        require_local(unit, self.name)
        if "labels" not in unit.public:
            raise InputError(
                f"{self.name} reads labels: expected the unit local with private_labels=false; or use lpgnn"
            )
        columns = metadata.features
        each = self._each(columns, budget.epsilon if budget.is_private else float(columns))
        return [self.report("features", local.PerFeature(local.scalar(self.mechanism, each), columns))]

    def _each(self, columns: int, total: float) -> float:
        """Epsilon of one feature, checked against the budget."""
        each = within(total, columns) if self.feature_epsilon is None else self.feature_epsilon
        if columns * each > total:
            raise InputError(
                f"epsilon: {columns} features at {each:g} each spend {columns * each:g}; got a budget of "
                f"{total:g}. Ask for that much, or leave feature_epsilon out"
            )
        if each > LARGEST_EPSILON:
            raise InputError(f"feature_epsilon: expected at most {LARGEST_EPSILON:g}; got {each:g}")
        return each

    def estimates(self, vault: Vault) -> Estimates:
        """Unbiased estimates of the features (in [0, 1] units), from reports drawn once."""
        value = vault.release("features")
        if vault.plan.runs_exactly("features"):
            return Estimates(value)
        mechanism = vault.plan.mechanism("features", LocalReport)
        return Estimates.of(torch.as_tensor(value), mechanism.randomizer)


@dataclass(frozen=True)
class Estimates:
    """The estimates `center + step * reports`, not written out: bits that are almost all 0 are kept as a sparse matrix.

    At epsilon 9 per feature one bit in 8,000 is a false 1, so a first layer on sparse bits is much cheaper.
    """

    reports: Rows
    step: float = 1.0
    center: float = 0.0

    @classmethod
    def of(cls, report: Tensor, randomizer: local.PerFeature) -> Estimates:
        """From the reports of all features."""
        one_bit = randomizer.mechanism
        if not isinstance(one_bit, local.OneBit):
            return cls(torch.from_numpy(randomizer.estimate(report.numpy())).to(torch.float32))
        zero, one = (float(one_bit.estimate(bit)) for bit in (0, 1))
        rows = report.to(torch.float32)
        few = float(rows.mean()) < _FEW_ONES if rows.numel() else False
        return cls(SparseRows.from_tensor(rows) if few else rows, one - zero, zero)

    def propagated(self, propagation: Propagation, steps: int) -> PropagatedRows:
        """The estimates after `steps` propagations."""
        return PropagatedRows(self.reports, propagation, steps, self.step, self.center)


@dataclass(frozen=True)
class PGC(PerFeatureMethod):
    """Settings of PGC for node classification: a two-layer GCN on the estimated first convolution.

    Training stops when the validation loss has not fallen for `patience` epochs.
    """

    feature_steps: int = setting(0, least=0, most=1000, help="propagations before the first layer; 0 as published")
    hidden_channels: int = setting(32, least=1, most=1 << 16)
    dropout: float = setting(0.5, least=0, below=1)
    lr: float = setting(0.01, above=0)
    weight_decay: float = setting(0.01, least=0)
    epochs: int = setting(500, least=1)
    patience: int = setting(20, least=1)

    name = "pgc"
    summary = "one random bit per feature from every person; the first graph convolution averages the noise"
    one_class = "learns one class a node"
    paper = "Sajadmanesh and Gatica-Perez 2020"
    aliases = {"hidden": "hidden_channels"}

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """A two-layer GCN."""
        metadata = plan.metadata
        return Gcn(metadata.features, self.hidden_channels, metadata.classes, self.dropout, activation="relu")

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Collect once, then train plainly."""
        graph = Neighborhood(vault.edges.load())
        rows = self.estimates(vault).propagated(graph.kprop, self.feature_steps)
        settings = {}
        if train:
            training = Training(self.epochs, self.lr, weight_decay=self.weight_decay)
            settings["epochs"] = train_plainly(vault, network, lambda: network(rows, graph), training, self.patience)
        with torch.no_grad():
            scores: Tensor = network.eval()(rows, graph)
        return Output(scores=scores, settings=settings)


SCORERS = ("hops", "vgae")
# The rows and biases of all nodes, and what was found out in training.
_Learned = tuple[Tensor, Tensor, dict[str, Any]]


@dataclass(frozen=True)
class PGCLinks(PerFeatureMethod):
    """Settings of PGC for link prediction.

    `scorer` is "hops" (ours): a pair scores by the cosines of its rows after 0 to 16 propagations and by its degrees,
    with weights learned on `hidden_share` of the training links from a graph without them; `rank` columns are kept. Or
    it is "vgae", as published: a variational graph auto-encoder, which reads the settings from `hidden_channels` to
    `patience`. There, `hidden_share` of the training links are hidden in every step, others each time, and those are
    predicted; with 0, as published, the network sees every link that it is asked to predict.
    """

    scorer: str = setting("hops", among=SCORERS)
    rank: int = setting(256, least=1, help="columns kept by the scorer hops")
    hidden_channels: int = setting(32, least=1, most=1 << 16)
    width: int = setting(16, least=1, most=1 << 16, help="columns of a node's row (vgae)")
    dropout: float = setting(0.0, least=0, below=1)
    lr: float = setting(0.01, above=0)
    weight_decay: float = setting(0.01, least=0)
    epochs: int = setting(500, least=1)
    patience: int = setting(10, least=1)
    val_share: float = setting(0.05, above=0, help="links held out for validation")
    test_share: float = setting(0.10, above=0, help="links held out for the test")
    hidden_share: float = setting(0.2, least=0, below=1, help="training links hidden while learning")

    name = "pgc-links"
    summary = "one random bit per feature from every person; predicts links from averages over neighbors"
    one_class = "predicts links, and reads no labels"
    paper = "Sajadmanesh and Gatica-Perez 2020"
    aliases = {"hidden": "hidden_channels"}

    def problems(self) -> list[str]:
        """As for every method, and what the scorer needs."""
        found = super().problems()
        if self.scorer == "hops" and self.hidden_share == 0.0:
            found.append("hidden_share: the scorer 'hops' learns from hidden links; expected more than 0; got 0")
        return found

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """The weights of the hops, or an auto-encoder."""
        if self.scorer == "hops":
            return HopWeights()
        return LinkEncoder(plan.metadata.features, self.hidden_channels, self.width, self.dropout)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Collect once, hold out links, learn from the others."""
        if not train:
            raise InputError("predict: this model predicts links, not classes; use link_scores")
        estimates, nodes = self.estimates(vault), vault.metadata.num_nodes
        split = vault.generator("held-out links")
        links = split_links(vault.edges.edge_index(), nodes, self.val_share, self.test_share, split)
        graph = Neighborhood(MemoryEdges.from_edge_index(links.train_edges, nodes))
        learn = self._compare_hops if self.scorer == "hops" else self._auto_encode
        rows, bias, settings = learn(network, estimates, graph, links, vault)
        kept = {"rows": rows, "bias": bias, "test_links": links.test, "test_apart": links.test_apart}
        return Output(kept=kept, settings=settings)

    def evaluate(self, model: Model, graph: CheckedGraph) -> dict[str, Any]:
        """The area under the curve on held-out links; edges are public under this unit."""
        linked, apart = (model.link_scores(model.kept[name]) for name in ("test_links", "test_apart"))
        return {"test_auc": 100.0 * area_under_curve(linked, apart), "note": "edges are public under this unit"}

    def _compare_hops(
        self, network: nn.Module, estimates: Estimates, graph: Neighborhood, links: LinkSplit, vault: Vault
    ) -> _Learned:
        """Weights of the hops from links that the graph does not show, then rows on the graph with all train links."""
        generator = vault.generator("weights")
        shown, hidden = self._hide_some(links.train, graph, generator)
        apart = unlinked_pairs(links.train_edges, graph.num_nodes, hidden.shape[1], generator)
        pairs = torch.cat([hidden, apart], dim=1)
        linked = (torch.arange(pairs.shape[1]) < hidden.shape[1]).to(torch.float64)
        degrees = log_degrees(shown)[pairs].sum(dim=0)
        weights = fit_weights(HopRows(estimates.reports, shown).cosines(pairs), degrees, linked)
        network.load_state_dict(weights.state_dict())
        vault.report("training", 1, 2)
        used = tuple(hop for hop, weight in zip(HOPS, weights.hops, strict=True) if weight > 0) or HOPS[:1]
        kept = torch.stack([weights.hops[HOPS.index(hop)] for hop in used])
        rows = HopRows(estimates.reports, graph, used).narrow(kept, self.rank, generator)
        vault.report("training", 2, 2)
        shares = {str(hop): round(float(weight), 3) for hop, weight in zip(HOPS, weights.hops, strict=True)}
        bias = weights.degree * log_degrees(graph)
        return rows, bias, {"hop_weights": shares, "degree_weight": round(float(weights.degree), 3)}

    def _auto_encode(
        self, network: nn.Module, estimates: Estimates, graph: Neighborhood, links: LinkSplit, vault: Vault
    ) -> _Learned:
        """As published."""
        rows = estimates.propagated(graph.kprop, 0)
        epoch = self._train(network, rows, graph, links, vault)
        with torch.no_grad():
            embedding = network(rows, graph)[0]
        return embedding, torch.zeros(graph.num_nodes), {"epochs": epoch}

    def _train(
        self, network: nn.Module, rows: PropagatedRows, graph: Neighborhood, links: LinkSplit, vault: Vault
    ) -> int:
        nodes = vault.metadata.num_nodes

        def loss() -> Tensor:
            shown, predicted = self._hide_some(links.train, graph)
            mean, log_std = network(rows, shown)
            sampled = mean + torch.randn_like(mean) * log_std.exp()
            apart = torch.randint(nodes, (2, links.train.shape[1]))
            return reconstruction_loss(sampled, predicted, apart) + divergence(mean, log_std) / nodes

        def watched() -> float:
            rows_now = network(rows, graph)[0]
            return area_under_curve(link_scores(rows_now, links.val), link_scores(rows_now, links.val_apart))

        judge = at_inference(network, watched)
        best = BestEpoch(network, judge, patience=self.patience, least=min(100, self.epochs), every=10)
        training = Training(self.epochs, self.lr, weight_decay=self.weight_decay)
        with fresh_start(network, int(torch.randint(2**62, (1,), generator=vault.generator("weights")))):
            train_on_graph(network, loss, training, best=best, on_epoch=vault.progress_of("training"))
        return best.epoch

    def _hide_some(
        self, links: Tensor, graph: Neighborhood, generator: torch.Generator | None = None
    ) -> tuple[Neighborhood, Tensor]:
        """The graph without a random share of the train links, and those links (no generator: torch's global one)."""
        hidden = torch.rand(links.shape[1], generator=generator) < self.hidden_share
        if self.hidden_share == 0.0 or not bool(hidden.any()):
            return graph, links
        kept = links[:, ~hidden]
        edges = torch.cat([kept, kept.flip(0)], dim=1)
        return Neighborhood(MemoryEdges.from_edge_index(edges, graph.num_nodes)), links[:, hidden]


def area_under_curve(linked: Tensor, apart: Tensor) -> float:
    """The chance that a linked pair scores above an unlinked one (ties count half)."""
    truth = torch.cat([torch.ones(linked.numel()), torch.zeros(apart.numel())])
    return float(roc_auc_score(truth.numpy(), torch.cat([linked, apart]).detach().numpy()))
