"""The rule by which `auto` chooses between Chorus and DP-MLP at node level, and what it must ask first.

`questions` lists the noisy numbers that the choice depends on, `decide` makes the choice from public sizes and their
answers. All constants were found on BU10, JohnsHopkins55, Facebook pages, PubMed, Coauthor CS, Amazon Computers and
Tolokers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError
from hushgraph.methods.base import Method
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.mlp import DPMLP
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.count import CountStage
from hushgraph.privacy.pairs import PairStage
from hushgraph.privacy.units import Node, NodeReplace, Unit
from hushgraph.privacy.whole_numbers import WholeNumberStage

# Average degrees of 5 to 90 and 1% to 75% train nodes: sums take a share of the budget from the gradients, and readers
# of sums from the model of features. That is worth it where there are enough train nodes and labeled neighbors; more
# neighbors are needed where there are fewer train nodes or less budget.
_ENOUGH = (  # from this epsilon on: train nodes and labeled neighbors per node; either pair will do
    (5.0, ((7_000, 3.0), (1_000, 12.0))),
    (4.0, ((10_000, 10.0), (3_000, 16.0))),
    (0.0, ((3_000, 30.0),)),
)
# Very few train nodes are another matter: while they fit into one batch, DP-MLP takes ten steps and hardly leaves its
# start. Chorus's linear model gets further, if it has fewer numbers to learn than the first layer of DP-MLP, that is,
# clearly fewer classes than hidden units. Seven graphs with 44 to 235 train nodes, ten seeds, epsilon 2, 8 and 16: 0
# points with 2 classes, +10 with 3, +2 with 4, +3 with 6, +1 with 10, -2 with 15. From 261 nodes on DP-MLP catches up.
_ONE_BATCH = DPMLP().batch_size
_FEW_CLASSES = DPMLP().hidden // 2

# The count of edges: lists are cut at `COUNT_CAP` entries; it costs at most `COUNT_SHARE` of the budget, and less where
# noise of `COUNT_ERROR` of the degree that decides (one standard deviation) can be had for less.
COUNT_CAP = 100
COUNT_SHARE = 0.02
COUNT_ERROR = 0.05
COUNT = "count of edges"

# Neighbors must have the same label this much more often than two train nodes at random. The graphs have 0.43 to 0.71,
# and Tolokers, where no method gains, 0.03. With more and more edges moved at random, Chorus stayed ahead of DP-MLP
# down to 0.1 (BU10, epsilon 2) and down to 0.24 (Amazon Computers, epsilon 8), by validation accuracy. About a fifth of
# the train nodes come to answer; noise of `PAIR_ERROR` in the share is wanted, for at most `PAIR_SHARE` of the budget.
NEEDED_EXCESS = 0.2
PAIR_SHARE = 0.03
PAIR_ERROR = 0.06
PAIRS = "pairs of neighbors"
_ANSWERS = 0.2


@dataclass(frozen=True)
class Answers:
    """What is known of the edges: the average degree, where it comes from, and how much more neighbors agree."""

    degree: float | None = None
    source: str = "as declared"
    excess: float | None = None


def needed_degree(facts: PublicFacts, budget: Budget) -> float:
    """The average degree from which on Chorus is expected to be better than DP-MLP, where neighbors agree.

    Zero: it is at any degree. Infinite: at none.
    """
    if facts.num_train <= _ONE_BATCH and facts.num_classes is not None and facts.num_classes <= _FEW_CLASSES:
        return 0.0
    enough = next(pairs for epsilon, pairs in _ENOUGH if budget.epsilon >= epsilon)
    labeled = [neighbors for nodes, neighbors in enough if facts.num_train >= nodes]
    degree = min(labeled, default=math.inf) * facts.num_nodes / max(1, facts.num_train)
    return degree if degree <= COUNT_CAP else math.inf


def questions(facts: PublicFacts, unit: Unit, budget: Budget, declared: float | None) -> tuple[WholeNumberStage, ...]:
    """The noisy numbers that the choice depends on; none where public facts (and a `declared` degree) decide."""
    needed = needed_degree(facts, budget)
    if needed == 0.0 or not math.isfinite(needed) or (declared is not None and declared < needed):
        return ()
    asked: list[WholeNumberStage] = []
    if declared is None:
        wanted = math.floor(COUNT_ERROR * needed * facts.num_nodes / math.sqrt(2.0))
        asked.append(_cheapest(CountStage, COUNT, COUNT_SHARE * budget.epsilon, unit, wanted, COUNT_CAP))
    if type(unit) in (Node, NodeReplace):  # there is no bound for pairs under other units: neighbors are trusted there
        wanted = math.floor(PAIR_ERROR * _ANSWERS * facts.num_train / math.sqrt(2.0))
        asked.append(_cheapest(PairStage, PAIRS, PAIR_SHARE * budget.epsilon, unit, wanted))
    return tuple(asked)


def _cheapest(
    kind: type[WholeNumberStage], name: str, epsilon: float, unit: Unit, wanted_scale: int, *more: int
) -> WholeNumberStage:
    """Noise of `wanted_scale` if that costs less than `epsilon`, else what `epsilon` buys."""
    largest = kind.within(name, epsilon, unit, *more)
    if wanted_scale <= largest.scale:
        return largest
    return kind.within(name, largest.sensitivity(unit) / wanted_scale, unit, *more)


def decide(facts: PublicFacts, unit: Unit, budget: Budget, answers: Answers) -> tuple[Method, str]:
    """The method and the reason, from public facts and what is known of the edges."""
    if "labels" in unit.public:
        return Chorus(), "chorus: labels are public at edge level, so they are the messages"
    needed = needed_degree(facts, budget)
    sizes = f"{facts.num_train} train nodes of {facts.num_nodes} at epsilon {budget.epsilon:g}"
    if needed == 0.0:
        words = f"in one batch and {facts.num_classes} classes a linear model learns more than an MLP"
        return Chorus(), f"chorus: {sizes}: {words}"
    if not math.isfinite(needed):
        return DPMLP(), f"dp-mlp: {sizes}: too few for sums of labels to be worth their noise at any degree"
    if answers.degree is None:
        raise InputError("auto: expected an average degree, declared or counted with noise; got none")
    known = f"average degree {answers.degree:.3g} ({answers.source})"
    words = f"{sizes}, {known}; sums of labels are worth their noise from {needed:.3g} on"
    if answers.degree < needed:
        return DPMLP(), f"dp-mlp: {words}"
    if answers.excess is None:
        return Chorus(), f"chorus: {words}"
    points = f"{100 * answers.excess:.0f} points (noisy)"
    agree = f"neighbors have the same label {points} more often than two nodes at random"
    if answers.excess < NEEDED_EXCESS:
        return DPMLP(), f"dp-mlp: {sizes}; {agree}, and sums of labels need {100 * NEEDED_EXCESS:.0f}"
    return Chorus(), f"chorus: {words}; {agree}"
