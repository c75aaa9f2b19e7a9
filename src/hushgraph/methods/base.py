"""What all methods share: plan, fit, and the trained model.

A `Method` is a frozen set of public choices. `plan` prices it before any data is read. `fit` checks the graph, enters
the plan in the ledger, puts the graph in a vault, lets `learn` do the work on the vault, and certifies the result from
the ledger. A subclass writes `stages` (what it will release) and `learn` (the algorithm).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hushgraph.data.checks import CheckedGraph, check_graph, check_unit, default_unit
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError, UnprovenError
from hushgraph.ledger.certificate import Certificate, certify
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import Run, open_run
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.plan import Plan, Stage, UnprotectedStage
from hushgraph.privacy.units import EDGE_UNITS, DirectedEdge, UndirectedEdge, Unit
from hushgraph.tasks import balanced_accuracy, by_class
from hushgraph.vault import Progress, Vault

SCORES = "scores"
EVALUATION_NOTE = "not private: evaluation"


@dataclass(frozen=True)
class Method(ABC):
    """Public choices of one method."""

    name: ClassVar[str]
    summary: ClassVar[str]
    units: ClassVar[frozenset[str]]
    trains: ClassVar[bool] = True

    @abstractmethod
    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """The releases to make, with the least noise that meets `budget` for `unit`."""

    @abstractmethod
    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """The algorithm, on the vault."""

    def paper_accountant(self, unit: Unit) -> Accountant:
        """The accountant of the method's publication, for paper mode."""
        return "tightest"

    def assumptions(self, facts: PublicFacts, unit: Unit) -> tuple[str, ...]:
        """What is taken as public, in words."""
        sizes = f"the set of {facts.num_nodes} nodes, the split ({facts.num_train} train) and the class names"
        shared = [sizes, "all hyperparameters (chosen without looking at the private data)"]
        if unit.name in EDGE_UNITS:
            shared.append(f"the number of edges ({facts.num_edges} entries), used to check delta")
        shared += [f"all {part}" for part in sorted(unit.public)]
        if unit.max_out_degree is not None:
            kind = "the promise that no node has more" if unit.degree_promised else "the cap on a node's own list"
            shared.append(f"{kind}: max_degree = {unit.max_out_degree}")
        return tuple(shared)

    def not_protected(self, facts: PublicFacts, unit: Unit) -> tuple[str, ...]:
        """What this method leaves unprotected beyond what the unit does, in words (it goes into the certificate)."""
        return ()

    def plan(self, facts: PublicFacts, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """The releases and their price, from public facts only."""
        facts = facts.for_unit(unit)
        if unit.name not in self.units:
            raise UnprovenError(f"{self.name} has no proof under the unit '{unit.name}'; proven: {sorted(self.units)}")
        if self.trains and facts.num_train < 1:
            raise InputError(f"train nodes: expected at least 1; got {facts.num_train}")
        budget = budget.for_units(facts.count_units(unit))
        accountant = self.paper_accountant(unit) if paper_mode else "tightest"
        if budget.is_private:
            stages = self.stages(facts, unit, budget, accountant)
        else:
            stages = (UnprotectedStage("unprotected", 1, 0.0),)
        charged = UndirectedEdge() if paper_mode and isinstance(unit, DirectedEdge) else unit
        return Plan(
            method=self.name,
            unit=unit,
            budget=budget,
            stages=stages,
            charged_unit=charged,
            paper_mode=paper_mode,
            assumptions=self.assumptions(facts, unit),
            paper_accountant=accountant,
            not_protected=self.not_protected(facts, unit),
        )

    def fit(
        self,
        graph: Any,
        unit: Unit | None = None,
        budget: Budget | None = None,
        *,
        ledger: Ledger | None = None,
        paper_mode: bool = False,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> TrainedModel:
        """Train on a PyG `Data` graph and return the model with its certificate.

        Without `unit`, a symmetric graph is protected per undirected edge. Without `ledger`, charges are kept in
        memory, and other runs on the same data are not added up. `seed` makes the run repeatable and NOT private.
        """
        if budget is None:
            raise InputError("budget: expected a Budget(epsilon, delta); got none")
        checked = graph if isinstance(graph, CheckedGraph) else check_graph(graph)
        unit = unit if unit is not None else default_unit(checked)
        check_unit(checked, unit, paper_mode=paper_mode)
        plan = self.plan(checked.facts, unit, budget, paper_mode=paper_mode)
        started = time.perf_counter()
        vault, run = open_vault(checked, plan, ledger, seed, progress)
        model = self.learn(vault, plan)
        model.finish(checked, vault, run, time.perf_counter() - started)
        return model

    def as_dict(self) -> dict[str, Any]:
        """The choices as plain JSON values."""
        return asdict(self)


def open_vault(
    graph: CheckedGraph, plan: Plan, ledger: Ledger | None, seed: int | None, progress: Progress | None
) -> tuple[Vault, Run]:
    """Enter `plan` in the ledger and put the graph in a vault that charges to it."""
    noise = NoiseSource.from_os() if seed is None else NoiseSource.seeded(seed)
    run = open_run(ledger if ledger is not None else Ledger(), plan, graph.facts.name, seeded=seed is not None)
    return Vault(graph, run, noise, progress), run


@dataclass
class TrainedModel(ABC):
    """What `fit` returns. `released` holds the noisy tensors that predictions read, as far as they are protected."""

    method: Method
    facts: PublicFacts
    unit: Unit
    network: nn.Module
    settings: dict[str, Any]
    released: dict[str, Tensor]
    scores: Tensor | None = None
    class_names: tuple[str, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    _certificate: Certificate | None = None

    def __post_init__(self) -> None:
        # A model is saved and shown: it must not carry sizes that are private under its unit.
        self.facts = self.facts.for_unit(self.unit)

    @property
    def certificate(self) -> Certificate:
        """What this run promises, computed from the ledger."""
        if self._certificate is None:
            raise InputError("this model has no certificate: it was not made by fit")
        return self._certificate

    @property
    def reason(self) -> str:
        """Why this method was chosen, where a rule chose it."""
        return str(self.settings.get("reason", ""))

    @abstractmethod
    def class_scores(self, graph: Any | None) -> Tensor:
        """Unnormalized scores `[nodes, classes]` for the training graph's nodes, from released values only."""

    def predict_proba(self, graph: Any | None = None) -> Tensor:
        """Class probabilities for the nodes of the training graph. Reads no edges and costs nothing."""
        kept = self.scores if self.scores is not None else self.released.get(SCORES)
        scores = self.class_scores(graph) if graph is not None or kept is None else kept
        return scores.softmax(dim=1)

    def predict(self, graph: Any | None = None) -> Tensor:
        """The likeliest class of every node."""
        return self.predict_proba(graph).argmax(dim=1)

    def get_epsilon(self, delta: float) -> float:
        """Epsilon at the certificate's delta or at one of its other deltas."""
        known = {f"{self.certificate.delta:g}": self.certificate.epsilon, **self.certificate.epsilon_at}
        if f"{delta:g}" not in known:
            raise InputError(f"delta: expected one of {sorted(known)}; got {delta:g}. See `hushgraph ledger show`")
        return known[f"{delta:g}"]

    def finish(self, graph: CheckedGraph, vault: Vault, run: Run, seconds: float) -> None:
        """Close the run, certify it, and measure accuracy (an evaluation, outside the guarantee)."""
        run.close()
        self._certificate = certify(run.ledger.history(), run.identity)
        self.class_names = graph.class_names
        self.seconds = {**vault.seconds, "total": seconds}
        if self.scores is not None:
            self.metrics = accuracies(self.scores, graph)


def accuracies(scores: Tensor, graph: CheckedGraph) -> dict[str, Any]:
    """Accuracy on train, val and test nodes, in percent, and on the test nodes of every class."""
    hits = (scores.argmax(dim=1) == graph.labels).to(torch.float64)
    found = {name: graph.split(name) for name in ("train", "val", "test")}
    accuracy = {name: 100.0 * float(hits[nodes].mean()) if nodes.numel() else None for name, nodes in found.items()}
    rows = by_class(scores.argmax(dim=1), graph.labels, found["test"], found["train"], len(graph.class_names))
    return {
        "accuracy": accuracy,
        "test_by_class": rows,
        "test_balanced_accuracy": balanced_accuracy(rows),
        "note": EVALUATION_NOTE,
    }


def checked_training_graph(model: TrainedModel, graph: Any) -> CheckedGraph:
    """The graph given to `predict`, if it can be the one the model was trained on."""
    checked = graph if isinstance(graph, CheckedGraph) else check_graph(graph, known_classes=model.class_names)
    facts, expected = checked.facts, model.facts
    if (facts.num_nodes, facts.num_features) != (expected.num_nodes, expected.num_features):
        raise InputError(
            f"predict: expected the training graph ({expected.num_nodes} nodes, {expected.num_features} features); got "
            f"{facts.num_nodes} nodes, {facts.num_features} features. Another graph is a new release: use predict_on"
        )
    return checked
