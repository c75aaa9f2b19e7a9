"""The datasets of a ledger: known by their content where it was seen, by a name where it was not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.entries import canonical
from hushgraph.ledger.identity import DatasetIdentity, Likeness
from hushgraph.ledger.store import Rows

KINDS = ("dataset", "alias", "continues", "identified")


@dataclass
class Dataset:
    """One dataset: its id, the names it was given, and hashes of what recognizes its content."""

    id: str
    names: list[str] = field(default_factory=list)
    sketches: list[str] = field(default_factory=list)


def known_datasets(rows: Rows) -> dict[str, Dataset]:
    """All datasets by their id."""
    found: dict[str, Dataset] = {}
    entries = sorted((entry for kind in KINDS for entry in rows.of_kind(kind)), key=lambda entry: entry.number)
    for entry in entries:
        values = entry.values
        dataset = found.setdefault(values["dataset"], Dataset(values["dataset"]))
        if values["name"] not in dataset.names:
            dataset.names.append(values["name"])
        if values.get("sketch") is not None:
            dataset.sketches.append(values["sketch"])
    return found


def resolve(known: dict[str, Dataset], name: str) -> str:
    """The id of the dataset called `name`, by its id or one of its names."""
    if name in known:
        return name
    called = [dataset.id for dataset in known.values() if name in dataset.names]
    if len(called) == 1:
        return called[0]
    if called:
        raise InputError(f"'{name}': expected the name of one dataset; got that of {', '.join(called)}. Use the id")
    raise InputError(f"'{name}': expected a dataset of this ledger; known: {', '.join(known) or 'none'}")


def sketch_text(identity: DatasetIdentity) -> tuple[str, str]:
    """What is kept of an identity, and its hash."""
    content = canonical(identity.as_dict())
    return content, hashlib.sha256(content.encode()).hexdigest()


def read_sketches(rows: Rows) -> dict[str, DatasetIdentity]:
    """All identities by their hash; an error where one was changed."""
    found = {}
    for link, content in rows.sketches().items():
        if hashlib.sha256(content.encode()).hexdigest() != link:
            raise LedgerError(f"{rows.store.where}: the sketch of a dataset was changed or damaged")
        found[link] = DatasetIdentity.from_dict(json.loads(content))
    return found


@dataclass(frozen=True)
class Decision:
    """The dataset that some data belongs to, and the entry to write, if any is needed."""

    dataset: str
    kind: str | None = None
    values: dict[str, Any] = field(default_factory=dict)


def decide(
    rows: Rows, identity: DatasetIdentity, name: str, continues: str | None = None, separate: str | None = None
) -> Decision:
    """Which dataset this data is: the same content, one that it is declared to continue, or a new one.

    Data that shares most entries with a known dataset needs `continues` (its name) or `separate` (the reason).
    """
    if continues is not None and separate is not None:
        raise InputError("expected continues or separate; got both. Say one of the two")
    known, sketches = known_datasets(rows), read_sketches(rows)
    for dataset in known.values():  # one that was lost with a damaged file recognizes nothing any more
        dataset.sketches = [sketch for sketch in dataset.sketches if sketch in sketches]
    _, link = sketch_text(identity)
    same = [
        one.id for one in known.values() if any(sketches[s].fingerprint == identity.fingerprint for s in one.sketches)
    ]
    if same:
        return _same_content(known[same[0]], name, continues, known)
    if continues is not None:
        chosen = resolve(known, continues)
        closest = _alike(known[chosen], identity, sketches)
        likeness = None if closest is None else closest.as_dict()
        return Decision(chosen, "continues", {"dataset": chosen, "name": name, "sketch": link, "likeness": likeness})
    alike_to = {one.id: found for one in known.values() if (found := _alike(one, identity, sketches))}
    needing = {dataset: likeness for dataset, likeness in alike_to.items() if likeness.needs_decision}
    if needing and separate is None:
        raise _undecided(name, needing)
    if name in known and not known[name].sketches and not needing:
        return Decision(name, "identified", {"dataset": name, "name": name, "sketch": link})
    new = _free_id(known, name)
    alike = {dataset: likeness.as_dict() for dataset, likeness in needing.items()}
    values = {"dataset": new, "name": name, "sketch": link, "separate": separate, "alike": alike}
    return Decision(new, "dataset", values)


def _same_content(dataset: Dataset, name: str, continues: str | None, known: dict[str, Dataset]) -> Decision:
    if continues is not None and resolve(known, continues) != dataset.id:
        raise InputError(f"continues: expected '{dataset.id}', which has exactly this content; got '{continues}'")
    if name in (dataset.id, *dataset.names):
        return Decision(dataset.id)
    return Decision(dataset.id, "alias", {"dataset": dataset.id, "name": name})


def _alike(dataset: Dataset, identity: DatasetIdentity, sketches: dict[str, DatasetIdentity]) -> Likeness | None:
    """The closest likeness to any content that the dataset had."""
    found = [identity.likeness(sketches[link]) for link in dataset.sketches]
    return max(found, key=lambda likeness: (likeness.needs_decision, likeness.largest), default=None)


def _undecided(name: str, alike: dict[str, Likeness]) -> InputError:
    shares = "; ".join(
        f"about {100 * likeness.largest:.0f}% of its entries with '{dataset}'" for dataset, likeness in alike.items()
    )
    first = next(iter(alike))
    return InputError(
        f"'{name}': expected data that is new or known; it shares {shares}. Decide, and it will be written down: if "
        f"it is about the same people, continue that dataset (--continues {first}, continues={first!r}); if it is not, "
        "say why (--separate REASON, separate=REASON)"
    )


def _free_id(known: dict[str, Dataset], name: str) -> str:
    number, found = 2, name
    while found in known:
        found, number = f"{name}-{number}", number + 1
    return found
