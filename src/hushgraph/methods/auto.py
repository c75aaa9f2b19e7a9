"""Auto: chooses a method from public sizes, and says why.

Edge level: features and labels are public, so a model without edges is free, and so is asking the validation labels
which of two finished models is better. Auto releases the sums of Chorus with codes (of Chorus, where few nodes have a
label and hardly any validate), trains it and an MLP, and keeps the MLP where it is clearly better. The sums are charged
either way: the choice is made after the release.

Node level: validation labels are private, so the choice is made before: DP-MLP where the sums are expected to be mostly
noise (few training nodes, few labeled neighbors) or neighbors have no more in common than strangers, Chorus with codes
otherwise; Chorus where training nodes are very few, and under units for which codes have no bound. Sizes are public.
The average degree (unless it was declared) and whether neighbors agree are not: where the choice depends on them, both
are asked with noise first, for a small part of the budget; the rest goes to the method. A table of records has no
edges: DP-MLP. Nothing private is read without a charge. All constants of the rule were found on BU10, JohnsHopkins55,
Caltech36, Facebook pages, PubMed, Coauthor CS, Amazon Computers, Tolokers, Cora, Cora ML, CiteSeer and Twitch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph.executors.base import Executor
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.edge_count import EdgeCount
from hushgraph.mechanisms.pair_count import PairCount
from hushgraph.methods.base import Method, Output
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.chorus_codes import ChorusCodes
from hushgraph.methods.mlp import DPMLP, MLP
from hushgraph.methods.model import Model
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import PureMechanism
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.vault import Progress, Vault

# Average degrees of 5 to 90 and 1% to 75% training nodes: sums take a share of the budget from the gradients, and
# readers of sums from the model of features. That is worth it where there are enough training nodes and labeled
# neighbors; more neighbors are needed where there are fewer training nodes or less budget.
_ENOUGH = (  # from this epsilon on: training nodes and labeled neighbors per node; either pair will do
    (5.0, ((7_000, 3.0), (1_000, 12.0))),
    (4.0, ((10_000, 10.0), (3_000, 16.0))),
    (0.0, ((3_000, 30.0),)),
)
# Chorus with codes gains with fewer of both: two seeds, epsilon 2, 8 and 16 with 75% training nodes, epsilon 8 with 3%
# and 10%. From 5,000 training nodes on (7,000 below epsilon 5) it was at most 0.2 points below DP-MLP, even where
# neighbors do not agree (Tolokers, Twitch DE); but for epsilon 2 on PubMed (3.4 labeled neighbors): 0.7 +- 0.4 points.
# With 2,000 to 2,500 of them, at epsilon 5 and 8, eight seeds: +2 and +7 points on Cora (2.9 labeled neighbors), +9 and
# +12 on Cora ML (4.1), -3 and +1 on CiteSeer (2.1). Few training nodes will do where they have many neighbors: with 300
# to 1,200 of them and 23 to 62 labeled neighbors (Caltech36, and the people of BU10 and JohnsHopkins55 with the most
# friends), three seeds, 60% of the nodes training, accuracy on the rest: +23 to +44 points at epsilon 5 and 8, +5 to
# +21 at 2.
_ENOUGH_FOR_CODES = (
    (5.0, ((5_000, 0.0), (1_500, 2.5), (300, 20.0))),
    (3.0, ((7_000, 0.0), (2_000, 16.0), (300, 20.0))),
    (2.0, ((7_000, 3.75), (2_000, 16.0), (300, 20.0))),
    (0.0, ((3_000, 30.0),)),
)
# From this epsilon and so many training nodes on, sums that say nothing do no harm: neighbors need not agree.
_HARMLESS = (2.0, 7_000)
# At edge level codes need labels, of training nodes or of validation nodes. With 2% and 5% training nodes and less than
# 50 that validate they lost 1 to 10 points on JohnsHopkins55 and gained -2 to 12 on Cora ML (epsilon 1, three seeds).
_LABELED_SHARE = 0.05
# Very few training nodes are another matter: while they fit into one batch, DP-MLP takes ten steps and hardly leaves
# its start. Chorus's linear model gets further, if it has fewer numbers to learn than the first layer of DP-MLP, that
# is, clearly fewer classes than hidden units. Seven graphs with 44 to 235 training nodes, ten seeds, epsilon 2, 8 and
# 16: 0 points with 2 classes, +10 with 3, +2 with 4, +3 with 6, +1 with 10, -2 with 15. From 261 nodes on DP-MLP
# catches up.
_ONE_BATCH = DPMLP().batch_size
_FEW_CLASSES = DPMLP().hidden_channels // 2

# The count of edges: lists are cut at `COUNT_CAP` entries; it costs at most `COUNT_SHARE` of the budget, and less where
# noise of `COUNT_ERROR` of the degree that decides (one standard deviation) can be had for less.
COUNT_CAP, COUNT_SHARE, COUNT_ERROR = 100, 0.02, 0.15
COUNT = "count of edges"

# Neighbors must have the same label this much more often than two training nodes at random. The graphs have 0.43 to
# 0.71, and Tolokers, where no method gains, 0.03. With more and more edges moved at random, Chorus stayed ahead of
# DP-MLP down to 0.1 (BU10, epsilon 2) and down to 0.24 (Amazon Computers, epsilon 8), by validation accuracy. About a
# fifth of the training nodes come to answer; noise of `PAIR_ERROR` in the share is wanted. Where that costs more than
# `PAIR_SHARE` of the budget it is not asked: 1% of epsilon 2 is worth 0.1 points on JohnsHopkins55 (40 seeds), and
# sums that say nothing cost about two points where sizes are small, much less than sums that were missed.
NEEDED_EXCESS, PAIR_SHARE, PAIR_ERROR = 0.2, 0.015, 0.1
PAIRS = "pairs of neighbors"
_ANSWERS = 0.2


@dataclass(frozen=True)
class Answers:
    """What is known of the edges: the average degree, where it comes from, and how much more neighbors agree."""

    degree: float | None = None
    source: str = "as declared"
    excess: float | None = None


@dataclass(frozen=True)
class Auto(Method):
    """No settings but one: all choices are made by rule.

    Edge level: `chorus-codes` (`chorus`, where less than 5% of the nodes train and less than 50 validate), or an `mlp`
    where public validation labels say that it is clearly better. A table: `dp-mlp`. Node level: `chorus-codes`,
    `chorus` or `dp-mlp`, by unit, sizes and epsilon, and where these leave it open by average degree and whether
    neighbors have the same label more often than others. Where these decide they are asked with noise, charged and
    certified: edges for at most 2% of epsilon, pairs of neighbors for at most 1.5% or not at all; the method then gets
    the rest.
    """

    average_degree: float | None = setting(
        None, least=0, help="declared public (lists cut at 100 entries); it is then believed and not counted"
    )

    name = "auto"
    summary = "chooses between chorus-codes, chorus and a model of features alone, and says why"
    one_class = "chooses among methods that need one"
    paper = "hushgraph"

    # Before any data is read

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """What is asked; else the stages of the method that sizes alone decide for."""
        if not unit.has_edges:
            return DPMLP().stages(metadata, unit, budget)
        if budget.is_private and not _has_sums(unit):  # refused: no choice is left
            return Chorus().stages(metadata, unit, budget)
        speaker = _speaker(metadata, unit)
        if "labels" in unit.public:
            return [*speaker.stages(metadata, unit, budget), *MLP().stages(metadata, unit, budget)]
        if not budget.is_private:  # without protection the data may be asked, when it is there
            return [
                *self._questions(metadata, unit, replace(budget, epsilon=1e3)),
                *speaker.stages(metadata, unit, budget),
                *DPMLP().stages(metadata, unit, budget),
            ]
        return self._questions(metadata, unit, budget) or self._decide(metadata, unit, budget)[0].stages(
            metadata, unit, budget
        )

    def plan(self, metadata: Metadata, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """The chosen method's plan; or the questions that the choice needs, and what may follow from them."""
        budget = budget.for_units(unit.count(metadata), unit.counted(metadata))
        private = budget.is_private and "labels" not in unit.public
        asked = self._questions(metadata, unit, budget) if private and _has_sums(unit) else []
        if not asked:
            return super().plan(metadata, unit, budget, paper_mode=paper_mode)
        cost = math.fsum(_cost(stage, unit) for stage in asked)
        # Rounded down: the sum of rounded numbers must not exceed the budget by a last digit.
        rest = Budget((budget.epsilon - cost) * (1.0 - 1e-12), budget.delta)
        branches = [method.plan(metadata, unit, rest) for method in (_speaker(metadata, unit), DPMLP())]
        rule = note(Code.RULE, methods=" or ".join(branch.method for branch in branches))
        return Plan.make(
            self.name,
            metadata,
            unit,
            budget,
            asked,
            public=[*self._declared(), rule],
            paper="tightest" if paper_mode else None,
            branches=branches,
        )

    def public_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """Those of the methods that may be chosen."""
        method = _speaker(metadata, unit) if unit.has_edges else DPMLP()
        return [*method.public_notes(metadata, unit), *self._declared()]

    def _declared(self) -> list[Note]:
        return [] if self.average_degree is None else [note(Code.AVERAGE_DEGREE, degree=self.average_degree)]

    def _questions(self, metadata: Metadata, unit: Unit, budget: Budget) -> list[Stage]:
        """The noisy numbers that the choice depends on; none where public sizes (and a declared degree) decide."""
        needed, declared = needed_degree(metadata, unit, budget), self.average_degree
        if (
            not unit.has_edges
            or needed == 0.0
            or not math.isfinite(needed)
            or (declared is not None and declared < needed)
        ):
            return []
        asked = []
        if declared is None:
            wanted = math.floor(COUNT_ERROR * needed * metadata.num_nodes / math.sqrt(2.0))
            asked.append(_question(COUNT, EdgeCount(COUNT_CAP), COUNT_SHARE * budget.epsilon, unit, wanted))
        wanted = math.floor(PAIR_ERROR * _ANSWERS * metadata.num_train / math.sqrt(2.0))
        pairs = PairCount()
        # Infinite: there is no bound for pairs under other units. Neighbors are trusted there, as where it is too dear.
        dear = pairs.sensitivity(unit) > wanted * PAIR_SHARE * budget.epsilon
        if not dear and not _harmless(metadata, unit, budget):
            asked.append(Stage(PAIRS, pairs, noise=None, scale=wanted))
        return asked

    def _decide(
        self, metadata: Metadata, unit: Unit, budget: Budget, answers: Answers | None = None
    ) -> tuple[Method, Note]:
        """The method and the reason, from public sizes, a declared degree, and what was asked."""
        return decide(metadata, unit, budget, answers or Answers(self.average_degree))

    # On the data

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """None yet: it is that of the method that is chosen."""
        return nn.Identity()

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Choose, asking first if the plan says so, and run the chosen method.

        Where validation labels are public, it is then compared with an MLP.
        """
        answers = Answers(self.average_degree)
        if COUNT in vault.plan:
            degree = max(0, vault.release(COUNT)) / vault.metadata.num_nodes
            answers = replace(answers, degree=degree, source="counted with noise")
        if PAIRS in vault.plan:
            answers = replace(answers, excess=vault.release(PAIRS).excess)
        method, reason = self._decide(vault.metadata, vault.unit, vault.plan.budget, answers)
        if vault.plan.branches:
            vault.choose(vault.plan.branch(method.name), reason)
        output = _run_as(method, vault, reason)
        if not isinstance(method, DPMLP) and vault.is_public("labels") and vault.labeled("val").numel():
            return _better(vault, output, _run_as(MLP(), vault, reason))
        return output


def _fits_one_batch(metadata: Metadata) -> bool:
    classes = metadata.num_classes
    return metadata.num_train <= _ONE_BATCH and classes is not None and classes <= _FEW_CLASSES


def _speaker(metadata: Metadata, unit: Unit) -> Method:
    """The method that listens to neighbors, where one does; edges with types or weights are read by Chorus alone."""
    if metadata.edge_types or metadata.weighted:
        return Chorus()
    if "labels" in unit.public:
        codes, enough = ChorusCodes(), _LABELED_SHARE * metadata.num_nodes
        return codes if metadata.num_train >= enough or codes.has_few_labels(metadata) else Chorus()
    return ChorusCodes() if unit.footprint.owned and not _fits_one_batch(metadata) else Chorus()


def needed_degree(metadata: Metadata, unit: Unit, budget: Budget) -> float:
    """The average degree from which on sums are expected to be better than DP-MLP, where neighbors agree.

    Zero: they are at any degree. Infinite: at none.
    """
    if _fits_one_batch(metadata):
        return 0.0
    table = _ENOUGH_FOR_CODES if isinstance(_speaker(metadata, unit), ChorusCodes) else _ENOUGH
    enough = next(pairs for epsilon, pairs in table if _worth(unit, budget) >= epsilon)
    labeled = [neighbors for nodes, neighbors in enough if metadata.num_train >= nodes]
    degree = min(labeled, default=math.inf) * metadata.num_nodes / max(1, metadata.num_train)
    return degree if degree <= COUNT_CAP else math.inf


def _worth(unit: Unit, budget: Budget) -> float:
    """Epsilon as a rule takes it: a record that is replaced moves a number in a code twice as far."""
    return budget.epsilon / (2.0 if unit.footprint.owned and unit.footprint.replaced else 1.0)


def _harmless(metadata: Metadata, unit: Unit, budget: Budget) -> bool:
    """Whether sums can be had without asking first whether neighbors agree."""
    epsilon, train = _HARMLESS
    return _worth(unit, budget) >= epsilon and metadata.num_train >= train


def _has_sums(unit: Unit) -> bool:
    """Whether sums over neighbors can have a bound."""
    return unit.has_edges and math.isfinite(unit.footprint.receivers)


def decide(metadata: Metadata, unit: Unit, budget: Budget, answers: Answers) -> tuple[Method, Note]:
    """The method and the reason, from public sizes and what is known of the edges."""
    speaker = _speaker(metadata, unit)
    if "labels" in unit.public:
        return speaker, note(Code.CHOSE_LABELS, method=speaker.name)
    if not unit.has_edges:
        return DPMLP(), note(Code.CHOSE_RECORDS, method="dp-mlp")
    needed = needed_degree(metadata, unit, budget)
    sizes = {"train": metadata.num_train, "nodes": metadata.num_nodes, "epsilon": budget.epsilon}
    if needed == 0.0 and _fits_one_batch(metadata):
        return speaker, note(Code.CHOSE_ONE_BATCH, method=speaker.name, classes=metadata.num_classes, **sizes)
    if needed == 0.0:
        return speaker, note(Code.CHOSE_MANY_TRAIN, method=speaker.name, **sizes)
    if not math.isfinite(needed) or answers.degree is None:
        return DPMLP(), note(Code.CHOSE_FEW_TRAIN, method="dp-mlp", **sizes)
    known = {**sizes, "degree": answers.degree, "source": answers.source}
    if answers.degree < needed:
        return DPMLP(), note(Code.CHOSE_DEGREE, method="dp-mlp", needed=needed, **known)
    if answers.excess is None:
        return speaker, note(Code.CHOSE_DEGREE, method=speaker.name, needed=needed, **known)
    method: Method = speaker if answers.excess >= NEEDED_EXCESS else DPMLP()
    points = {"points": round(100 * answers.excess), "needed_points": round(100 * NEEDED_EXCESS)}
    return method, note(Code.CHOSE_AGREEMENT, method=method.name, **known, **points)


def _question(name: str, mechanism: PureMechanism, epsilon: float, unit: Unit, wanted_scale: int) -> Stage:
    """Noise of `wanted_scale` if that costs less than `epsilon`, else what `epsilon` buys."""
    scale = max(mechanism.whole_scale_within(epsilon, unit), wanted_scale)
    return Stage(name, mechanism, noise=None, scale=scale)


def _cost(stage: Stage, unit: Unit) -> float:
    return stage.sensitivity(unit) / float(stage.scale or math.nan)


def _run_as(method: Method, vault: Vault, reason: Note) -> Output:
    """Run another method on this vault, and say so."""
    network = method.network(vault.plan, vault.generator("weights"))
    output = method.run(vault, network, train=True)
    output.method, output.network, output.reason = method, network, reason
    return output


def _better(vault: Vault, output: Output, plain: Output) -> Output:
    """The one with sums, unless an MLP on features (which reads no edge) is right on clearly more validation nodes.

    Clearly: the nodes that one of the two alone gets right are divided by more than a fair coin's deviation. The method
    with sums has a model of features of its own and does not hear the sums where validation labels speak against them.
    """
    ours, features = _right(vault, output.scores), _right(vault, plain.scores)
    lead, apart = int(features.sum() - ours.sum()), int((ours != features).sum())
    assert output.method is not None
    winner, rival = (plain, output.method.name) if lead > math.sqrt(apart) else (output, "an mlp")
    kept, other = (features, ours) if winner is plain else (ours, features)
    assert winner.method is not None
    winner.reason = note(
        Code.CHOSE_VALIDATION, method=winner.method.name, ours=_share(kept), other=_share(other), rival=rival
    )
    return winner


def _right(vault: Vault, scores: Any) -> Tensor:
    """Which validation nodes are classified correctly."""
    assert isinstance(scores, Tensor)
    val = vault.labeled("val")
    return scores[val].argmax(dim=1) == vault.labels[val]


def _share(right: Tensor) -> str:
    return f"{float(right.double().mean()):.1%}"


def fit(
    graph: Any,
    unit: Unit | str | None = None,
    budget: Budget | float | tuple[float, float] | None = None,
    *,
    average_degree: float | None = None,
    ledger: Ledger | None = None,
    num_edges: int | None = None,
    paper_mode: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
    memory: str | int | None = None,
    workers: int | str | Executor | None = None,
) -> Model:
    """Train the default model for this graph, unit and budget. `model.reason` says what was chosen and why.

    Other arguments are those of `Method.fit`.
    """
    return Auto(average_degree=average_degree).fit(
        graph,
        unit,
        budget,
        ledger=ledger,
        num_edges=num_edges,
        paper_mode=paper_mode,
        seed=seed,
        progress=progress,
        memory=memory,
        workers=workers,
    )
