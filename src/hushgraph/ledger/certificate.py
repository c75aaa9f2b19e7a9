"""The certificate: what a run promises, computed from the ledger and from nothing else.

It holds data only. `hushgraph.report.words` makes sentences of it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from typing import Any

from hushgraph.files.reading import Form, damage_named, require_fields
from hushgraph.files.writing import plain
from hushgraph.ledger.accounts import fold
from hushgraph.ledger.entries import History
from hushgraph.ledger.prices import chosen, loss_of, unit_key, ways_of_run
from hushgraph.ledger.totals import Total, curves_of, total_of
from hushgraph.privacy.loss import NO_LOSS
from hushgraph.privacy.notes import Note, read_notes
from hushgraph.privacy.plan import PaperClaim
from hushgraph.privacy.units import Unit
from hushgraph.privacy.units import from_dict as unit_from_dict

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
    """What was released under one stage: how often, by which mechanism, with how much noise.

    What is proved of an `asymptotic` one holds in the limit of a long chain.
    """

    stage: str
    mechanism: str
    law: str
    sampling: str | None
    count: int
    scale: float
    sensitivity: float
    asymptotic: bool = False

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Charge:
        """The inverse of `asdict`, also after a way through JSON."""
        return cls(**{**values, "scale": float(values["scale"]), "sensitivity": float(values["sensitivity"])})


@dataclass(frozen=True)
class DatasetTotal:
    """What all runs on the dataset cost together at `delta`, and by which kind of composition that is proved.

    `used` is how much of a limit the runs have used so far, where a filter had to prove more; `left_out` counts runs
    that were declared unpublished. Where it is not private, `seeded` says why: seeded noise, or a run without proof.
    """

    epsilon: float
    delta: float
    kind: str
    private: bool
    runs: int
    limit: float | None
    used: float = 0.0
    left_out: int = 0
    seeded: bool = False

    @classmethod
    def of(cls, total: Total) -> DatasetTotal:
        """From the ledger's own account."""
        limit = None if total.limit is None else float(total.limit["epsilon"])
        sums = (total.epsilon, total.delta, total.kind.value, total.private, total.runs)
        return cls(*sums, limit, total.used, total.left_out, bool(total.seeded))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DatasetTotal:
        """The inverse of `asdict`, also after a way through JSON."""
        numbers = {name: float(values[name]) for name in ("epsilon", "delta", "used")}
        return cls(**{**values, **numbers})


@dataclass(frozen=True)
class Certificate:
    """The promise of one run. `epsilon` is proved for `unit`; `paper` is set in paper mode only.

    `asymptotic` names the stages of which it is proved in the limit of a long chain only; mostly there are none.
    """

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
    operator: str
    purpose: str
    unpublished: bool
    ledger_in_memory: bool
    ledger_hash: str
    versions: dict[str, str]
    asymptotic: tuple[str, ...] = ()

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
            "asymptotic": list(self.asymptotic),
        }
        return {key: plain(value) for key, value in values.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Certificate:
        """The inverse of `as_dict`."""
        require_fields(values, _FORM, "certificate")
        with damage_named("certificate"):
            return cls._read(dict(values))

    @classmethod
    def _read(cls, read: dict[str, Any]) -> Certificate:
        read["epsilon"] = float(read["epsilon"])
        read["profile"] = {key: float(value) for key, value in read["profile"].items()}
        read["charges"] = tuple(Charge.from_dict(one) for one in read["charges"])
        read["randomness"] = Randomness(read["randomness"])
        read["total"] = DatasetTotal.from_dict(read["total"])
        read["unit"] = unit_from_dict(read["unit"])
        for key in ("public", "unprotected"):
            read[key] = tuple(Note.from_dict(one) for one in read[key])
        read["asymptotic"] = tuple(read.get("asymptotic", ()))
        read["paper"] = None if read["paper"] is None else PaperClaim.from_dict(read["paper"])
        read["reason"] = None if read["reason"] is None else Note.from_dict(read["reason"])
        return cls(**read)

    @property
    def is_private(self) -> bool:
        """Whether anything is promised: a finite epsilon, with noise that nobody can repeat."""
        return math.isfinite(self.epsilon) and self.randomness is not Randomness.SEEDED

    @property
    def is_free(self) -> bool:
        """Whether nothing of what is protected was read: epsilon and delta are both 0."""
        return self.accountant == NO_LOSS


_WORDS = ("run", "method", "dataset", "accountant", "randomness", "operator", "purpose", "ledger_hash")
_FORM: dict[str, Form] = {
    **dict.fromkeys(_WORDS, str),
    **dict.fromkeys(("unit", "profile", "total", "versions"), dict),
    **dict.fromkeys(("charges", "public", "unprotected"), list),
    **dict.fromkeys(("unpublished", "ledger_in_memory"), bool),
    **dict.fromkeys(("paper", "reason"), (dict, type(None))),
    "chosen": (str, type(None)),
    "epsilon": (float, str),
    "delta": float,
    "mu": (float, str, type(None)),
}


def certify(history: History, run: str) -> Certificate:
    """The certificate of `run`, from the entries of the ledger alone."""
    opened = history.opened(run)
    return certify_run(history, run, dataset_total(history, opened["dataset"], opened["unit"]), history.last_hash)


def certify_run(history: History, run: str, total: Total, ledger_hash: str, unit: Unit | None = None) -> Certificate:
    """The same from the entries of the run, what its dataset adds up to, and the hash of the ledger's last entry.

    `unit` is the one of the entries, where the caller has it at hand.
    """
    entry = history.opened(run)
    branch = chosen(history, run)
    unit = unit or unit_from_dict(entry["unit"])
    charges, spent, versions = _charges(history, run), DatasetTotal.of(total), dict(_versions())
    randomness = _randomness(entry, charges)
    loss, delta = loss_of([ways_of_run(history, run) or []], unit.relation), float(entry["claim"]["delta"])
    epsilon = loss.epsilon(delta)
    is_private = math.isfinite(epsilon)
    paper = (entry.get("plan") or {}).get("paper")
    public, unprotected = (read_notes([*branch.get(key, ()), *entry.get(key, ())]) for key in ("public", "unprotected"))
    return Certificate(
        run=run,
        method=entry["method"],
        chosen=branch.get("method"),
        dataset=entry["dataset"],
        unit=unit,
        epsilon=epsilon,
        delta=delta,
        profile={f"{d:g}": loss.epsilon(d) for d in OTHER_DELTAS if d < delta} if is_private else {},
        mu=loss.mu,
        accountant=loss.accountant,
        charges=charges,
        public=public,
        unprotected=(*unit.unprotected, *unprotected),
        randomness=randomness if is_private or not charges else Randomness.ABSENT,
        paper=None if paper is None else PaperClaim.from_dict(paper),
        reason=Note.from_dict(branch["reason"]) if branch else None,
        total=spent,
        operator=entry["operator"],
        purpose=entry["purpose"],
        unpublished=entry["unpublished"],
        ledger_in_memory=history.in_memory,
        ledger_hash=ledger_hash,
        versions=versions,
        asymptotic=tuple(charge.stage for charge in charges if charge.asymptotic),
    )


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    return tuple((name, version(name)) for name in ("hushgraph", "torch", "numpy", "dp-accounting"))


def dataset_total(history: History, dataset: str, unit: dict[str, Any]) -> Total:
    """What all runs on a dataset add up to for a unit that was charged, as this history has it."""
    account = fold(history).accounts[dataset, unit_key(unit)]
    return total_of(account, None, lambda: curves_of(history, account))


def _charges(history: History, run: str) -> tuple[Charge, ...]:
    """The charges of a run, those of one stage together."""
    found: dict[str, Charge] = {}
    for entry in history.of_run(run, "charge"):
        values = {key: entry.values.get(key) for key in ("stage", "mechanism", "law", "sampling")}
        stage = str(values["stage"])
        before = found[stage].count if stage in found else 0
        found[stage] = Charge(
            stage=stage,
            mechanism=str(values["mechanism"]),
            law=str(values["law"] or "unknown"),
            sampling=values["sampling"],
            count=before + entry.values["count"],
            scale=float(entry.values["scale"] or 0.0),
            sensitivity=float(entry.values["sensitivity"]),
            asymptotic=bool(entry.values.get("asymptotic", False)),
        )
    return tuple(found.values())


def _randomness(entry: dict[str, Any], charges: tuple[Charge, ...]) -> Randomness:
    """Where the noise of the charges came from, if they had any."""
    if not charges:
        return Randomness.UNUSED
    if entry["seeded"]:
        return Randomness.SEEDED
    return Randomness.DEVICES if all(charge.law == "randomizer" for charge in charges) else Randomness.SYSTEM
