"""The certificate: what a run promises, computed from the ledger and from nothing else.

It holds data only. `hushgraph.report.words` makes sentences of it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Any

from hushgraph.errors import LedgerError
from hushgraph.ledger.ledger import History
from hushgraph.ledger.run import chosen, spent
from hushgraph.privacy.notes import Note
from hushgraph.privacy.plan import PaperClaim
from hushgraph.privacy.units import Unit
from hushgraph.privacy.units import from_dict as unit_from_dict
from hushgraph.text import plain

OTHER_DELTAS = (1e-5, 1e-6, 1e-7, 1e-8)


class Randomness(StrEnum):
    """Where the noise of a run came from."""

    SYSTEM = "system"
    DEVICES = "devices"
    SEEDED = "seeded"
    UNUSED = "unused"
    ABSENT = "absent"


@dataclass(frozen=True)
class Charge:
    """What was released under one stage: how often, by which mechanism, with how much noise."""

    stage: str
    mechanism: str
    law: str
    sampling: str | None
    count: int
    scale: float
    sensitivity: float

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Charge:
        """The inverse of `asdict`, also after a way through JSON."""
        return cls(**{**values, "scale": float(values["scale"]), "sensitivity": float(values["sensitivity"])})


@dataclass(frozen=True)
class DatasetTotal:
    """What all runs on the dataset cost together at `delta`, and by which kind of composition that is proved."""

    epsilon: float
    delta: float
    kind: str
    private: bool
    runs: int
    limit: float | None


@dataclass(frozen=True)
class Certificate:
    """The promise of one run. `epsilon` is proved for `unit`; `paper` is set in paper mode only."""

    run: str
    method: str
    chosen: str | None
    dataset: str
    unit: Unit
    epsilon: float
    delta: float
    profile: dict[str, float]
    mu: float | None
    accountant: str
    charges: tuple[Charge, ...]
    public: tuple[Note, ...]
    unprotected: tuple[Note, ...]
    randomness: Randomness
    paper: PaperClaim | None
    reason: Note | None
    total: DatasetTotal
    ledger_hash: str
    versions: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """The certificate as plain JSON values (infinity as the string "inf")."""
        values = {
            **vars(self),
            "unit": self.unit.as_dict(),
            "charges": [asdict(charge) for charge in self.charges],
            "public": [note.as_dict() for note in self.public],
            "unprotected": [note.as_dict() for note in self.unprotected],
            "randomness": self.randomness.value,
            "paper": None if self.paper is None else self.paper.as_dict(),
            "reason": None if self.reason is None else self.reason.as_dict(),
            "total": asdict(self.total),
        }
        return {key: plain(value) for key, value in values.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Certificate:
        """The inverse of `as_dict`."""
        read = dict(values)
        read["unit"] = unit_from_dict(read["unit"])
        read["epsilon"] = float(read["epsilon"])
        read["profile"] = {key: float(value) for key, value in read["profile"].items()}
        read["charges"] = tuple(Charge.from_dict(one) for one in read["charges"])
        for key in ("public", "unprotected"):
            read[key] = tuple(Note.from_dict(one) for one in read[key])
        read["randomness"] = Randomness(read["randomness"])
        read["paper"] = None if read["paper"] is None else PaperClaim.from_dict(read["paper"])
        read["reason"] = None if read["reason"] is None else Note.from_dict(read["reason"])
        read["total"] = DatasetTotal(**{**read["total"], "epsilon": float(read["total"]["epsilon"])})
        return cls(**read)

    @property
    def is_private(self) -> bool:
        """Whether anything is promised: a finite epsilon, with noise that nobody can repeat."""
        return math.isfinite(self.epsilon) and self.randomness is not Randomness.SEEDED


def certify(history: History, run: str) -> Certificate:
    """The certificate of `run`, from the entries of the ledger alone."""
    opened = history.of_run(run, "open")
    if len(opened) != 1:
        raise LedgerError(f"the ledger has no run '{run}'")
    entry = opened[0].values
    branch = chosen(history, run)
    loss, delta = spent(history, run), float(entry["plan"]["budget"]["delta"])
    epsilon = loss.epsilon(delta)
    charges = _charges(history, run)
    paper, limit = entry["plan"]["paper"], history.limit()
    unit = unit_from_dict(entry["plan"]["unit"])
    return Certificate(
        run=run,
        method=entry["plan"]["method"],
        chosen=branch.get("method"),
        dataset=history.header["dataset"],
        unit=unit,
        epsilon=epsilon,
        delta=delta,
        profile=_profile(loss, delta) if math.isfinite(epsilon) else {},
        mu=loss.mu,
        accountant=loss.accountant,
        charges=charges,
        public=_notes(entry["plan"], branch, "public"),
        unprotected=(*unit.unprotected, *_notes(entry["plan"], branch, "unprotected")),
        randomness=_randomness(entry, charges, epsilon),
        paper=None if paper is None else PaperClaim.from_dict(paper),
        reason=Note.from_dict(branch["reason"]) if branch.get("reason") else None,
        total=DatasetTotal(
            epsilon=spent(history).epsilon(delta),
            delta=delta,
            kind="together",
            private=not any(e.values.get("seeded") for e in history.entries if e.kind == "open"),
            runs=len(history.runs()),
            limit=None if limit is None else limit["epsilon"],
        ),
        ledger_hash=history.last_hash,
        versions={name: version(name) for name in ("hushgraph", "torch", "numpy", "dp-accounting")},
    )


def _profile(loss: Any, delta: float) -> dict[str, float]:
    return {f"{d:g}": loss.epsilon(d) for d in sorted((d for d in OTHER_DELTAS if d < delta), reverse=True)}


def _notes(plan: dict[str, Any], branch: dict[str, Any], key: str) -> tuple[Note, ...]:
    """What the plan and the branch that was chosen say, each note once."""
    found: list[Note] = []
    for values in (*branch.get(key, ()), *plan[key]):
        note = Note.from_dict(values)
        if note not in found:
            found.append(note)
    return tuple(found)


def _charges(history: History, run: str) -> tuple[Charge, ...]:
    """The charges of a run, those of one stage together."""
    found: dict[str, Charge] = {}
    for entry in history.of_run(run, "charge"):
        values = {key: entry.values[key] for key in ("stage", "mechanism", "law", "sampling")}
        before = found[values["stage"]].count if values["stage"] in found else 0
        found[values["stage"]] = Charge(
            **values,
            count=before + entry.values["count"],
            scale=float(entry.values["scale"]),
            sensitivity=float(entry.values["sensitivity"]),
        )
    return tuple(found.values())


def _randomness(entry: dict[str, Any], charges: tuple[Charge, ...], epsilon: float) -> Randomness:
    if not charges:
        return Randomness.UNUSED
    if not math.isfinite(epsilon):
        return Randomness.ABSENT
    if entry["seeded"]:
        return Randomness.SEEDED
    return Randomness.DEVICES if all(charge.law == "randomizer" for charge in charges) else Randomness.SYSTEM
