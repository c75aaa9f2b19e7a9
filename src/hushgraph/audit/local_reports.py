"""Audits of local reports: the law of the randomizer that a run uses, and reports drawn by the device's own code.

The method collects reports from people made for the audit: each tosses a coin for one of two extreme records, all
features at the top of the range and class 1, or all at the bottom and class 0. The vault that plays their devices keeps
the randomizer it was given, so what is audited is what the run used. Two questions are asked of it:

* its law, enumerated: the largest log ratio between two inputs. A report of several parts that are drawn independently
  (features that the device picks without looking, then one bit or number for each) adds up over its parts;
* the reports themselves: a bound for one part, with the stated confidence, times the number of parts; and one for the
  whole report that assumes nothing about parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.audit import bounds, one_run
from hushgraph.audit.enumeration import within_rounding
from hushgraph.audit.layout import flip_coins
from hushgraph.audit.result import Finding
from hushgraph.data.checks import CheckedGraph, check_graph
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import open_run
from hushgraph.local import MultiBit, PerFeature, RandomizedResponse, SampledReport
from hushgraph.local.check import realized_epsilon
from hushgraph.methods.local_base import LocalMethod
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import LocalStage, Plan
from hushgraph.vault import Vault

MOST_NUMBERS = 8_000_000
FEWEST_PEOPLE = 200


@dataclass(frozen=True)
class Collected:
    """One stage's randomizer and the reports it drew, split into parts.

    `scores` are the log likelihood ratios of single parts, `[people, parts]`; `one_part` is the mechanism of one part.
    """

    randomizer: Any
    one_part: Any
    scores: np.ndarray

    @property
    def parts(self) -> int:
        """How many parts one report has."""
        return int(self.scores.shape[1])


class _EverythingCollectedError(Exception):
    """Raised to stop a method after its last report: an audit trains nothing."""


@dataclass
class _Kept:
    reports: dict[str, tuple[Any, Any]] = field(default_factory=dict)


class WatchedVault(Vault):
    """A vault that remembers which randomizers it was given and what they drew."""

    kept: _Kept
    stages: frozenset[str]

    def collect_features(self, mechanism: Any, stage: LocalStage, low: Any, high: Any) -> Any:
        """As `Vault.collect_features`."""
        return self._keep_report(stage, mechanism, super().collect_features(mechanism, stage, low, high))

    def collect_labels(self, mechanism: Any, stage: LocalStage) -> Tensor:
        """As `Vault.collect_labels`."""
        reports = super().collect_labels(mechanism, stage)
        self._keep_report(stage, mechanism, reports.numpy())
        return reports

    def _keep_report(self, stage: LocalStage, mechanism: Any, report: Any) -> Any:
        self.kept.reports[stage.name] = (mechanism, report)
        if self.kept.reports.keys() == self.stages:
            raise _EverythingCollectedError
        return report


def local_stages(plan: Plan) -> list[LocalStage]:
    """The local reports of `plan`."""
    return [stage for stage in plan.stages if isinstance(stage, LocalStage)]


def audit_reports(
    method: LocalMethod,
    facts: PublicFacts,
    plan: Plan,
    canaries: int,
    confidence: float,
    risk: float,
    noise: NoiseSource,
    rng: np.random.Generator,
) -> list[Finding]:
    """All findings about a method's reports; the enumerated law of everything together comes first."""
    coins = flip_coins(min(canaries, _most_people(facts)), rng)
    collected = collect(method, facts, plan, coins, noise)
    stages = local_stages(plan)
    laws = [_law(stage, collected[stage.name]) for stage in stages]
    drawn = [finding for stage in stages for finding in _drawn(stage, collected[stage.name], coins, confidence, risk)]
    return [*([_together(laws)] if len(laws) > 1 else []), *laws, *drawn]


def collect(
    method: LocalMethod, facts: PublicFacts, plan: Plan, coins: np.ndarray, noise: NoiseSource
) -> dict[str, Collected]:
    """Let the method collect the reports of people with these coins, by its own code, on a ledger in memory."""
    run = open_run(Ledger.in_memory(warn=False), plan, "audit canaries", seeded=noise.seeded_run)
    vault = WatchedVault(_people(method, facts, coins), run, noise)
    vault.kept, vault.stages = _Kept(), frozenset(stage.name for stage in local_stages(plan))
    try:
        method.learn(vault, plan)
    except _EverythingCollectedError:
        return {name: _split(mechanism, report) for name, (mechanism, report) in vault.kept.reports.items()}
    raise InputError(f"audit: the method {method.name} did not collect {', '.join(sorted(vault.stages))}")


def realized_total(collected: Collected) -> float:
    """The enumerated epsilon of a whole report: parts are drawn independently of each other and of what was picked."""
    return collected.parts * realized_epsilon(collected.one_part, _extremes(collected.one_part))


def _extremes(part: Any) -> Sequence[Any] | None:
    """Vectors of one feature have to be listed; for labels and numbers there are defaults."""
    return [np.array([x]) for x in np.linspace(part.low, part.high, 33)] if isinstance(part, MultiBit) else None


def _split(mechanism: Any, report: Any) -> Collected:
    if isinstance(mechanism, RandomizedResponse):
        law = {value: mechanism.law(value)[1] for value in (0, 1)}
        return Collected(mechanism, mechanism, np.log(law[1][report] / law[0][report])[:, None])
    if isinstance(mechanism, MultiBit):
        assert isinstance(report, SampledReport)
        part = replace(mechanism, epsilon=mechanism.epsilon_per_bit, dimensions=1, sampled=1)
        return Collected(mechanism, part, report.value * mechanism.epsilon_per_bit)
    if isinstance(mechanism, PerFeature):
        return Collected(mechanism, mechanism.mechanism, _log_ratio(mechanism.mechanism, np.asarray(report)))
    raise InputError(f"audit: no enumeration is known for the randomizer {type(mechanism).__name__}")


def _log_ratio(part: Any, report: np.ndarray) -> np.ndarray:
    """log P[report | top of the range] / P[report | bottom]."""
    if hasattr(part, "density"):
        top, bottom = (part.density(value, report.reshape(-1)) for value in (part.high, part.low))
        return np.asarray(np.log(np.maximum(top, 1e-300)) - np.log(np.maximum(bottom, 1e-300))).reshape(report.shape)
    values, top = part.law(part.high)
    order = np.argsort(values)
    place = order[np.searchsorted(values[order], report)]
    return np.asarray(np.log(top[place] / part.law(part.low)[1][place]))


def _law(stage: LocalStage, collected: Collected) -> Finding:
    name = f"law of {type(collected.randomizer).__name__} in '{stage.name}'"
    realized = realized_total(collected)
    return Finding(name, "exact enumeration", 0, stage.epsilon, realized, within_rounding(realized, stage.epsilon))


def _together(laws: Sequence[Finding]) -> Finding:
    """One person's whole report: epsilons of independent reports add up, exactly."""
    claimed, bound, strict = (
        sum(getattr(law, key) for law in laws) for key in ("claimed", "lower_bound", "strict_bound")
    )
    return Finding("law of one person's whole report", "exact enumeration", 0, claimed, bound, strict)


def _drawn(stage: LocalStage, collected: Collected, coins: np.ndarray, confidence: float, risk: float) -> list[Finding]:
    people = min(len(coins), max(FEWEST_PEOPLE, MOST_NUMBERS // 4 // collected.parts))
    parts = collected.scores[:people].reshape(-1)
    named = np.repeat(coins[:people], collected.parts)
    whole = collected.scores.sum(axis=1)

    def finding(method: str, low: float, strict: float) -> Finding:
        return Finding(f"reports drawn in '{stage.name}'", method, len(coins), stage.epsilon, low, strict)

    each = [collected.parts * bounds.threshold_bound(parts, named, 0.0, level) for level in (confidence, 1.0 - risk)]
    run = [one_run.one_run_bound(whole, coins, 0.0, level) for level in (confidence, 1.0 - risk)]
    words = "Clopper-Pearson" + (f" on each of {collected.parts} parts" if collected.parts > 1 else "")
    return [finding(words, *each), *([finding("one run, pure epsilon", *run)] if collected.parts > 1 else [])]


def _most_people(facts: PublicFacts) -> int:
    return max(FEWEST_PEOPLE, MOST_NUMBERS // max(1, facts.num_features or 1))


def _people(method: LocalMethod, facts: PublicFacts, coins: np.ndarray) -> CheckedGraph:
    """People with extreme records on a ring of public edges; all are train nodes."""
    people, columns, classes = len(coins), facts.num_features or 1, facts.num_classes or 2
    low, high = (
        (np.broadcast_to(bound, columns) for bound in method.public_range())
        if method.reads_features
        else (
            np.zeros(columns),
            np.ones(columns),
        )
    )
    ring = torch.stack([torch.arange(people), (torch.arange(people) + 1) % people])
    data = Data(
        x=torch.from_numpy(np.where(coins[:, None], high, low).astype(np.float32)),
        edge_index=torch.cat([ring, ring.flip(0)], dim=1),
        y=torch.from_numpy(coins.astype(np.int64)),
        train_mask=torch.ones(people, dtype=torch.bool),
        num_classes=classes,
    )
    return check_graph(data)
