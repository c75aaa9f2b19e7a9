"""The certificate: what a run promises, computed from the ledger and from nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from hushgraph.ledger.accounts import fold
from hushgraph.ledger.entries import History
from hushgraph.ledger.prices import chosen, spent, unit_key
from hushgraph.ledger.totals import Kind, Total, curves_of, total_of
from hushgraph.privacy.units import Unit, from_dict
from hushgraph.text import plain_json, rounded_up

_COUNT = "noisy count"
OTHER_DELTAS = (1e-5, 1e-6, 1e-7, 1e-8)


@dataclass(frozen=True)
class Certificate:
    """The promise of one run. `epsilon` is proved for `unit`; `claimed` is set in paper mode only.

    What begins with `dataset_` is about all runs on the dataset for that unit, as the ledger stood then.
    """

    sentence: str
    method: str
    dataset: str
    unit: dict[str, Any]
    change: str
    relation: str
    epsilon: float
    delta: float
    epsilon_at: dict[str, float]
    mu: float | None
    accountant: str
    released: tuple[str, ...]
    public: tuple[str, ...]
    not_protected: tuple[str, ...]
    noise_source: str
    claimed: dict[str, Any] | None
    dataset_epsilon: float
    dataset_runs: int
    dataset_limit: dict[str, float] | None
    ledger_hash: str
    run: str
    versions: dict[str, str]
    dataset_delta: float = 0.0
    dataset_kind: str = ""
    dataset_private: bool = True
    dataset_used: float = 0.0
    operator: str = ""
    purpose: str = ""
    unpublished: bool = False
    ledger_in_memory: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The certificate as plain JSON values (infinity as the string "inf")."""
        values: dict[str, Any] = plain_json(vars(self))
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Certificate:
        """The inverse of `as_dict`."""
        read = dict(values)
        for key in ("epsilon", "dataset_epsilon", "dataset_used"):
            read[key] = float(read.get(key, 0.0))
        read["epsilon_at"] = {key: float(value) for key, value in read["epsilon_at"].items()}
        for key in ("released", "public", "not_protected"):
            read[key] = tuple(read[key])
        return cls(**read)

    def __str__(self) -> str:
        return "\n".join([self.sentence, "", *self._lines()])

    def _lines(self) -> list[str]:
        deltas = ", ".join(f"{rounded_up(eps)} at delta {delta}" for delta, eps in self.epsilon_at.items())
        lines = [
            f"unit            {self.unit['name']}: {self.change}",
            f"relation        {self.relation}",
            f"epsilon         {rounded_up(self.epsilon)} at delta {self.delta:g}"
            + (f" (also {deltas})" if deltas else ""),
        ]
        if self.mu is not None:
            lines.append(f"Gaussian DP     mu = {self.mu:.4g}")
        if self.claimed is not None:
            lines.append(
                f"paper mode      the paper would claim epsilon {rounded_up(float(self.claimed['epsilon']))} for "
                f"'{self.claimed['unit']['name']}'; what can be proved is the epsilon above"
            )
        lines += [f"accountant      {self.accountant}", *_block("released", self.released)]
        lines += [*_block("taken as public", self.public), *_block("not protected", self.not_protected)]
        lines += [
            f"noise           {self.noise_source}",
            f"dataset total   {self._total()}",
            f"operator        {self.operator or 'unknown'}{f': {self.purpose}' if self.purpose else ''}",
            f"ledger          {self.ledger_hash}{_IN_MEMORY if self.ledger_in_memory else ''}",
            f"versions        {', '.join(f'{name} {number}' for name, number in self.versions.items())}",
        ]
        return lines

    def _total(self) -> str:
        limit = "no limit declared" if self.dataset_limit is None else f"limit {self.dataset_limit['epsilon']:g}"
        if not self.dataset_private:
            return f"NOT PRIVATE over {self.dataset_runs} run(s); {limit}"
        used = f"{rounded_up(self.dataset_used)} used, at most " if self.dataset_kind == Kind.FILTER else ""
        return (
            f"epsilon {used}{rounded_up(self.dataset_epsilon)} at delta {self.dataset_delta:.3g} over "
            f"{self.dataset_runs} run(s) ({self.dataset_kind}); {limit}"
        )


_IN_MEMORY = " (IN MEMORY: it ended with its process, and adds up no other run)"


def certify(history: History, run: str) -> Certificate:
    """The certificate of `run`, from the entries of the ledger alone."""
    entry = history.opened(run)
    unit = from_dict(entry["unit"])
    claim, loss, delta = entry["claim"], spent(history, run), entry["claim"]["delta"]
    option = chosen(history, run)
    epsilon = loss.epsilon(delta)
    deltas = sorted({d for d in OTHER_DELTAS if d < delta}, reverse=True)
    return Certificate(
        sentence=_sentence(entry, unit, epsilon, delta),
        method=entry["method"],
        dataset=entry["dataset"],
        unit=unit.as_dict(),
        change=unit.change,
        relation=unit.relation.value,
        epsilon=epsilon,
        delta=delta,
        epsilon_at={f"{d:g}": loss.epsilon(d) for d in deltas} if math.isfinite(epsilon) else {},
        mu=loss.mu,
        accountant=f"{loss.accountant} (dp_accounting {version('dp-accounting')})",
        released=tuple(_released(history, run)),
        public=_lines_of(entry, option, "assumed_public"),
        not_protected=(*unit.not_protected, *_lines_of(entry, option, "not_protected")),
        noise_source=_noise_words(entry, epsilon),
        claimed=claim if entry["paper_mode"] else None,
        ledger_hash=history.last_hash,
        run=run,
        versions={"hushgraph": version("hushgraph"), "torch": version("torch"), "numpy": version("numpy")},
        operator=entry["operator"],
        purpose=entry["purpose"],
        unpublished=entry["unpublished"],
        ledger_in_memory=history.in_memory,
        **_about_dataset(dataset_total(history, entry["dataset"], entry["unit"])),
    )


def dataset_total(history: History, dataset: str, unit: dict[str, Any]) -> Total:
    """What all runs on a dataset add up to for a unit that was charged, as this history has it."""
    account = fold(history).accounts[dataset, unit_key(unit)]
    return total_of(account, None, lambda: curves_of(history, account))


def _about_dataset(total: Total) -> dict[str, Any]:
    limit = None if total.limit is None else {name: total.limit[name] for name in ("epsilon", "delta")}
    return {
        "dataset_epsilon": total.epsilon,
        "dataset_runs": total.runs,
        "dataset_limit": limit,
        "dataset_delta": total.delta,
        "dataset_kind": total.kind.value,
        "dataset_private": total.private,
        "dataset_used": total.used,
    }


def _sentence(entry: dict[str, Any], unit: Unit, epsilon: float, delta: float) -> str:
    subject = f"The output of {entry['method']} on '{entry['dataset']}'"
    if not math.isfinite(epsilon):
        return f"{subject} carries NO differential privacy guarantee (epsilon is infinite)."
    if entry["seeded"]:
        return f"{subject} was made with a SEEDED random source: NOT PRIVATE, whatever epsilon says; for tests only."
    if epsilon == 0.0:
        return f"{subject} does not depend on {unit.protects} at all: epsilon is 0 for the unit '{unit.name}'."
    return (
        f"{subject} is ({rounded_up(epsilon)}, {delta:g})-differentially private for the unit '{unit.name}': its "
        f"distribution changes by at most that much when {unit.change}."
    )


def _lines_of(entry: dict[str, Any], option: dict[str, Any], key: str) -> tuple[str, ...]:
    """What the plan and the option that was chosen say, each line once."""
    return tuple(dict.fromkeys((*option.get(key, ()), *entry.get(key, ()))))


def _noise_words(entry: dict[str, Any], epsilon: float) -> str:
    if epsilon == 0.0:
        return "none needed"
    if not math.isfinite(epsilon):
        return "none"
    if entry["seeded"]:
        return "seeded: not private"
    if all(_is_local(stage["mechanism"]) for stage in entry["stages"]):
        return "operating-system entropy, drawn once by each person's own randomizer"
    words = "operating-system entropy, AES-256 in counter mode, double precision, rounded to a grid"
    if any(stage["mechanism"].startswith(_COUNT) for stage in entry["stages"]):
        words += "; counts: whole numbers, sampled exactly"
    return words


def _released(history: History, run: str) -> list[str]:
    lines: dict[tuple[str, str], list[Any]] = {}
    for entry in history.of_run(run, "charge"):
        values = entry.values
        line = lines.setdefault((values["stage"], values["mechanism"]), [0, values["std"], values["sensitivity"]])
        line[0] += values["count"]
    shown = [
        f"{stage}: {count} x {mechanism}{_noise_of(mechanism, std, float(sensitivity))}"
        for (stage, mechanism), (count, std, sensitivity) in lines.items()
    ]
    if reason := chosen(history, run).get("reason"):
        shown.append(f"the choice that follows, at no further cost: {reason}")
    return shown


def _noise_of(mechanism: str, std: float, sensitivity: float) -> str:
    if _is_local(mechanism):
        return ""
    bound = rounded_up(sensitivity)
    if mechanism.startswith(_COUNT):
        return f", whole-number noise of std {std:.4g}, sensitivity {bound}, pure epsilon"
    return f", noise std {std:.4g}, sensitivity {bound}"


def _is_local(mechanism: str) -> bool:
    return mechanism.startswith("local report")


def _block(title: str, items: tuple[str, ...]) -> list[str]:
    padded = [title, *[""] * len(items)]
    return [f"{head:<15} {item}" for head, item in zip(padded, items or ("nothing",))]
