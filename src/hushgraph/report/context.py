"""What a report is made from: one run, read from a model or its folder, with what else is known about it.

Everything is read, nothing is planned or calibrated again: the plan and the certificate are those of the run.

`with_ledger` adds how the run stands with its ledger: checked or not, and what its dataset has spent by now.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from hushgraph.errors import InputError
from hushgraph.files.reading import damage_named, read_json
from hushgraph.ledger.certificate import Certificate, Charge, DatasetTotal
from hushgraph.ledger.checking import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import CERTIFICATE, CONFIG, FEATURES_CERTIFICATE, verify_model
from hushgraph.ledger.project import default_ledger
from hushgraph.ledger.statement import sign_off_words, statement
from hushgraph.ledger.totals import Kind
from hushgraph.methods.evaluation import main_measure
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.loss import PrivacyLoss, WorstOf
from hushgraph.privacy.notes import Code, Note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.minibatches import Minibatches


@dataclass(frozen=True)
class StageCost:
    """What was charged under one stage, and what it would cost alone."""

    charge: Charge
    stage: Stage
    epsilon: float


@dataclass(frozen=True)
class DatasetRun:
    """One run on the dataset: what it cost, who ran it, when and why."""

    run: str
    method: str
    unit: str
    epsilon: float
    delta: float
    closed: bool
    private: bool
    time: str = ""
    operator: str = ""
    purpose: str = ""
    signed: str = ""


@dataclass(frozen=True)
class DatasetState:
    """What the ledger says of a dataset at the time of writing.

    `used` is how much of the limit the runs have used so far, where more than that had to be proved (a filter);
    `left_out` counts runs that were declared unpublished.
    """

    name: str
    unit: str
    total: DatasetTotal
    runs: tuple[DatasetRun, ...]
    used: float | None = None
    left_out: int = 0


@dataclass(frozen=True)
class RunContext:
    """A run. `verification` is `verified`, `not verified`, `rejected` or `contradicted`; None: nothing was checked.

    `run_plan` is the plan of the whole run, where `plan` is the branch that it chose. `what` is what the run made: a
    model, or a released graph, whose `features` may have a promise of their own. `minibatches` says of plain training
    by stage where it took steps on some of the rows.
    """

    method: str
    parameters: dict[str, Any]
    plan: Plan
    certificate: Certificate
    run_plan: Plan | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    reason: Note | None = None
    minibatches: dict[str, Minibatches] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    what: Literal["model", "graph"] = "model"
    features: Certificate | None = None
    folder: Path | None = None
    verification: str | None = None
    headline: str = ""
    findings: tuple[str, ...] = ()
    dataset: DatasetState | None = None
    audit: dict[str, Any] | None = None
    attacks: tuple[dict[str, Any], ...] = ()
    others: tuple[RunContext, ...] = ()

    @property
    def label(self) -> str:
        """The method that ran, and the one it chose."""
        own = self.reason is None or self.reason.code is Code.AT_HAND
        return self.certificate.method if own else f"{self.certificate.method}: {self.method}"

    @property
    def unit(self) -> Unit:
        """What is protected."""
        return self.certificate.unit

    @property
    def epsilon(self) -> float:
        """Epsilon as the certificate states it (infinite for a run without protection)."""
        return self.certificate.epsilon

    @property
    def delta(self) -> float:
        """The delta of that epsilon."""
        return self.certificate.delta

    @property
    def total(self) -> DatasetTotal:
        """What all runs on the dataset cost: now, where the ledger is at hand, else when this run ended."""
        return self.certificate.total if self.dataset is None else self.dataset.total

    def accuracy(self, split: str = "test") -> float | None:
        """Accuracy (or what `measure` names) in percent on a split, if it was measured."""
        value = main_measure(self.metrics)[1].get(split)
        return None if value is None else float(value)

    @property
    def measure(self) -> str:
        """What the model was judged by: accuracy, or micro-F1 where a node may have several classes."""
        return main_measure(self.metrics)[0]

    @property
    def by_class(self) -> Sequence[dict[str, Any]]:
        """Test accuracy by class, most frequent class first; empty where it was not measured."""
        return self.metrics.get("test_by_class") or ()

    @property
    def has_noise(self) -> bool:
        """Whether anything was released at a finite cost, which may be delta alone."""
        return not self.certificate.is_free and math.isfinite(self.epsilon)

    @cached_property
    def stages(self) -> tuple[StageCost, ...]:
        """What every charged stage costs alone; none where there is no finite cost."""
        if not self.has_noise:
            return ()
        return tuple(self._cost(charge) for charge in self.certificate.charges)

    @cached_property
    def loss(self) -> PrivacyLoss | WorstOf | None:
        """The loss of what was charged; of all that could have been, where the run had a choice."""
        if not self.has_noise:
            return None
        if self.run_plan is not None:
            return self.run_plan.loss
        charged = [self._event(cost.stage, cost.charge) for cost in self.stages]
        return PrivacyLoss(events.composed(charged), self.unit.relation)

    def stage(self, name: str) -> Stage:
        """The stage called `name`: of the branch that was chosen, or of what came before the choice."""
        return self.plan[name] if name in self.plan or self.run_plan is None else self.run_plan[name]

    def _cost(self, charge: Charge) -> StageCost:
        stage = self.stage(charge.stage)
        loss = PrivacyLoss(self._event(stage, charge), self.unit.relation)
        return StageCost(charge, stage, loss.epsilon(self.delta))

    def _event(self, stage: Stage, charge: Charge) -> Event:
        return replace(stage, count=charge.count).event(self.unit)


def read_context(
    source: Any, *, audit: Any | None = None, attacks: Any | None = None, compare: Sequence[Any] = ()
) -> RunContext:
    """The context of a model or of its folder.

    `audit` and `attacks` are values or paths of JSON files; audit.json and attacks.json in the folder are found.
    """
    found = _from_folder(Path(source)) if isinstance(source, str | os.PathLike) else _from_model(source)
    return replace(
        found,
        audit=_given_or_found(audit, found.folder, "audit.json"),
        attacks=tuple(_attack_list(_given_or_found(attacks, found.folder, "attacks.json"))),
        others=tuple(read_context(one) for one in compare),
    )


def _from_folder(folder: Path) -> RunContext:
    config, certificate = (read_json(folder / name, of="a trained model") for name in (CONFIG, CERTIFICATE))
    if config.get("released") == "graph":
        return _of_graph(folder, config, certificate)
    metrics = read_json(folder / "metrics.json", of="a trained model")
    with damage_named(folder, do="Restore the folder from a copy, or train again"):
        return RunContext(
            method=config["method"],
            parameters=config["parameters"],
            plan=Plan.from_dict(config["plan"]),
            certificate=Certificate.from_dict(certificate),
            run_plan=None if config["run_plan"] is None else Plan.from_dict(config["run_plan"]),
            metrics=metrics,
            reason=None if config["reason"] is None else Note.from_dict(config["reason"]),
            minibatches=_minibatches(config["settings"]),
            class_names=tuple(config["class_names"]),
            folder=folder,
        )


def _of_graph(folder: Path, config: dict[str, Any], certificate: dict[str, Any]) -> RunContext:
    """A released graph: no predictions, so no figures; perhaps a second promise."""
    with damage_named(folder, do="Restore the folder from a copy, or release it again"):
        second = folder / FEATURES_CERTIFICATE
        return RunContext(
            method=config["method"],
            parameters=config["parameters"],
            plan=Plan.from_dict(config["plan"]),
            certificate=Certificate.from_dict(certificate),
            what="graph",
            features=Certificate.from_dict(read_json(second)) if second.is_file() else None,
            folder=folder,
        )


def _from_model(model: Any) -> RunContext:
    if not hasattr(model, "certificate"):
        raise InputError(f"report: expected a model or its folder; got {type(model).__name__}")
    if model.folder is not None and model.folder.is_dir():
        return _from_folder(model.folder)  # what is checked is then what is shown
    return RunContext(
        method=model.method.name,
        parameters=model.method.as_dict(),
        plan=model.plan,
        certificate=model.certificate,
        run_plan=model.run_plan,
        metrics={**model.metrics, "seconds": model.seconds},
        reason=model.reason,
        minibatches=_minibatches(model.settings),
        class_names=tuple(model.class_names),
    )


def _minibatches(settings: dict[str, Any]) -> dict[str, Minibatches]:
    """How stages were trained that took steps on some rows by rule."""
    return {stage: Minibatches.from_dict(values) for stage, values in settings.get("minibatches", {}).items()}


def _given_or_found(given: Any, folder: Path | None, name: str) -> Any:
    if given is None and folder is not None and (folder / name).exists():
        given = folder / name
    if isinstance(given, str | os.PathLike):
        if not Path(given).exists():
            raise InputError(f"{given}: expected a JSON file; there is none")
        return read_json(given)
    return given.as_dict() if hasattr(given, "as_dict") else given


def _attack_list(found: Any) -> list[dict[str, Any]]:
    if found is None:
        return []
    if isinstance(found, dict):
        return list(found["attacks"]) if "attacks" in found else [found]
    return [one.as_dict() if hasattr(one, "as_dict") else one for one in found]


_MOST_RUNS = 200


def with_ledger(context: RunContext, ledger: str | os.PathLike[str] | None = None) -> RunContext:
    """The context with what the ledger says: the one named, or the project's; unchanged where there is none."""
    book = default_ledger(ledger, near=context.folder)
    usable = book.exists and not book.is_old
    if not usable and ledger is not None:
        raise InputError(f"{ledger}: expected a ledger that holds the run {context.certificate.run}; found none")
    state = _dataset(context, book) if usable else None
    if context.folder is None:
        return replace(context, dataset=state)
    found = verify_model(context.folder, book)
    findings = tuple(str(finding) for finding in found.findings)
    headline = found.headline if found.status is Status.REJECTED else found.status.value
    return replace(context, verification=found.status.value, headline=headline, findings=findings, dataset=state)


def _dataset(context: RunContext, book: Ledger) -> DatasetState | None:
    """The present state of the dataset, if the ledger knows it."""
    certificate = context.certificate
    with book.reading() as rows:
        if not rows.of_run(certificate.run):
            return None
    found = statement(book, dataset=certificate.dataset, last=_MOST_RUNS)
    total = DatasetTotal.of(book.total(certificate.dataset, certificate.unit))
    return DatasetState(
        name=certificate.dataset,
        unit=certificate.unit.name,
        total=total,
        runs=tuple(_run(run) for run in found["runs"]),
        used=total.used if total.kind in (Kind.FILTER, Kind.RAISED) else None,
        left_out=total.left_out,
    )


def _run(values: dict[str, Any]) -> DatasetRun:
    method = values["method"] if values["chosen"] is None else f"{values['method']}: {values['chosen']}"
    return DatasetRun(
        run=values["run"],
        method=method,
        unit=values["unit"]["name"],
        epsilon=float(values["epsilon"]),
        delta=float(values["delta"]),
        closed=values["closed"],
        private=not values["seeded"],
        time=values["time"],
        operator=values["operator"],
        purpose=values["purpose"],
        signed=sign_off_words(values),
    )
