"""What a report is made from: a model's folder (or a model), read into plain values, with its stages priced again."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import HushgraphError, InputError
from hushgraph.ledger.ledger import FILE, History, Ledger
from hushgraph.ledger.run import spent
from hushgraph.methods.base import Method
from hushgraph.methods.saving import read_json
from hushgraph.privacy import events, units
from hushgraph.privacy.adaptive import WorstOf
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.events import Event
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.registry import method_class


@dataclass(frozen=True)
class StagePrice:
    """One stage of a run: what it released and what it would cost alone."""

    name: str
    mechanism: str
    count: int
    std: float
    sensitivity: float
    epsilon_alone: float


@dataclass(frozen=True)
class RunRecord:
    """A run as its folder tells it."""

    config: dict[str, Any]
    certificate: dict[str, Any]
    metrics: dict[str, Any]
    folder: Path | None = None

    @property
    def epsilon(self) -> float:
        """Epsilon as proved (infinite for a run without protection)."""
        return float(self.certificate["epsilon"])

    @property
    def delta(self) -> float:
        """The delta of that epsilon."""
        return float(self.certificate["delta"])

    @property
    def unit(self) -> units.Unit:
        """The unit the certificate is for."""
        return units.from_dict(self.certificate["unit"])

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self.certificate["method"])

    def public_facts(self) -> dict[str, Any]:
        """The sizes that are public under the unit, also where an older version wrote others down."""
        written = self.config.get("facts")
        return PublicFacts(**written).for_unit(self.unit).as_dict() if written else {}

    def accuracy(self, split: str = "test") -> float | None:
        """Accuracy in percent on a split, if it was measured."""
        value = (self.metrics.get("accuracy") or {}).get(split)
        return None if value is None else float(value)


def read_run(source: Any) -> RunRecord:
    """The record of a model's folder, or of a trained model that was not saved."""
    if isinstance(source, str | os.PathLike):
        folder = Path(source)
        names = ("config", "certificate", "metrics")
        config, certificate, metrics = (read_json(folder / f"{name}.json") for name in names)
        return RunRecord(config, certificate, metrics, folder)
    if not hasattr(source, "certificate"):
        raise InputError(f"report: expected a model's folder or a trained model; got {type(source).__name__}")
    config = {
        "method": source.method.name,
        "parameters": source.method.as_dict(),
        "unit": source.unit.as_dict(),
        "facts": source.facts.as_dict(),
        "settings": source.settings,
    }
    return RunRecord(config, source.certificate.as_dict(), {**source.metrics, "seconds": source.seconds})


def find_ledger(record: RunRecord, folder: Any | None) -> History | None:
    """The ledger that holds this run: the one named, or one beside the model; None when there is none."""
    named = [] if folder is None else [Path(folder)]
    home = [] if record.folder is None else [record.folder, record.folder / "ledger", record.folder.parent / "ledger"]
    for place in [*named, *home]:
        if not (place / FILE).exists():
            continue
        history = Ledger(place).history()
        if record.certificate["run"] in history.runs():
            return history
    if named:
        raise InputError(f"{folder}: expected a ledger that holds the run {record.certificate['run']}; found none")
    return None


def rebuild_plan(record: RunRecord) -> Any:
    """The run's plan, made again from its public choices and its certified budget; None where it cannot be."""
    claimed = record.certificate.get("claimed")
    epsilon = float(claimed["epsilon"]) if claimed else record.epsilon
    # A method that a rule chose was planned within what the count left: the rest of the budget.
    epsilon = min(epsilon, record.config.get("settings", {}).get("planned_within", epsilon))
    unit = units.from_dict(claimed["unit"] if claimed else record.certificate["unit"])
    facts = PublicFacts(**record.config["facts"])
    return rebuild_method(record).plan(facts, unit, Budget(epsilon, record.delta), paper_mode=claimed is not None)


def rebuild_method(record: RunRecord) -> Method:
    """The method with the run's own choices."""
    return method_class(record.config["method"])(**record.config["parameters"])


def priced_stages(record: RunRecord, history: History | None) -> tuple[list[StagePrice], PrivacyLoss | WorstOf | None]:
    """The stages with their price alone, and the loss of all: from the ledger if there is one, else from the plan."""
    if not math.isfinite(record.epsilon) or record.epsilon == 0.0:
        return [], None
    found = _stages_of_ledger(record, history) if history is not None else _stages_of_plan(record)
    relation = record.unit.relation
    prices = [
        StagePrice(**values, epsilon_alone=PrivacyLoss(event, relation).epsilon(record.delta))
        for values, event in found
    ]
    if history is not None and found:
        return prices, spent(history, record.certificate["run"])
    total = events.composed([event for _, event in found])
    return prices, PrivacyLoss(total, relation) if found else None


def _stages_of_ledger(record: RunRecord, history: History) -> list[tuple[dict[str, Any], Event]]:
    grouped: dict[str, tuple[dict[str, Any], list[Event]]] = {}
    for entry in history.of_run(record.certificate["run"], "charge"):
        charge = entry.values
        blank = {"name": charge["stage"], "mechanism": charge["mechanism"], "count": 0, "std": charge["std"]}
        values, parts = grouped.setdefault(
            charge["stage"], ({**blank, "sensitivity": float(charge["sensitivity"])}, [])
        )
        values["count"] += charge["count"]
        parts.append(events.from_json(charge["event"]))
    return [(values, events.composed(parts)) for values, parts in grouped.values()]


def _stages_of_plan(record: RunRecord) -> list[tuple[dict[str, Any], Event]]:
    try:
        plan = rebuild_plan(record)
    except HushgraphError:
        return []  # another version's method or parameters: the page then shows the certificate's own lines
    unit = plan.charged_unit
    return [
        (
            {
                "name": stage.name,
                "mechanism": stage.mechanism,
                "count": stage.count,
                "std": stage.std,
                "sensitivity": stage.sensitivity(unit),
            },
            stage.event(unit),
        )
        for stage in plan.stages
    ]
