"""PGC: private graph convolution (Sajadmanesh and Gatica-Perez 2020), for node classification.

Every person sends one random bit about each feature. The first GCN layer adds up unbiased estimates over the
neighborhood, which is where the noise averages out; the rest of the network is ordinary. Labels and edges are public.

A person who sends d bits at epsilon each spends d times epsilon. Publications quote the per-feature epsilon; the
certificate gives the total. Other randomizers of one number take the place of the bit on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph import local
from hushgraph.data.checks import CheckedGraph
from hushgraph.data.rows import Rows, SparseRows
from hushgraph.errors import InputError
from hushgraph.local.base import LARGEST_EPSILON
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.methods.base import Output
from hushgraph.methods.local import LocalMethod, require_local, within
from hushgraph.nn.backbones import Gcn
from hushgraph.nn.kprop import PropagatedRows
from hushgraph.nn.propagation import Neighborhood, Propagation
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

    feature_steps: int = setting(0, least=0, help="propagations before the first layer; 0 as published")
    hidden_channels: int = setting(32, least=1)
    dropout: float = setting(0.5, least=0, below=1)
    lr: float = setting(0.01, above=0)
    weight_decay: float = setting(0.01, least=0)
    epochs: int = setting(500, least=1)
    patience: int = setting(20, least=1)

    name = "pgc"
    summary = "one random bit per feature from every person; the first graph convolution averages the noise"
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
        settings = {"epochs": self._train(network, rows, graph, vault)} if train else {}
        with torch.no_grad():
            scores: Tensor = network.eval()(rows, graph)
        return Output(scores=scores, settings=settings)

    def _train(self, network: nn.Module, rows: PropagatedRows, graph: Neighborhood, vault: Vault) -> int:
        labels, train, val = vault.labels, vault.labeled("train"), vault.labeled("val")

        def loss(nodes: Tensor) -> Tensor:
            scores = network(rows, graph)
            return nn.functional.cross_entropy(scores[nodes], labels[nodes])

        held_out = val if val.numel() else train
        judge = at_inference(network, lambda: -float(loss(held_out)))
        best = BestEpoch(network, judge, patience=self.patience, least=10)
        training = Training(self.epochs, self.lr, weight_decay=self.weight_decay)
        with fresh_start(network, int(torch.randint(2**62, (1,), generator=vault.generator("weights")))):
            train_on_graph(network, lambda: loss(train), training, best=best, on_epoch=vault.progress_of("training"))
        return best.epoch
