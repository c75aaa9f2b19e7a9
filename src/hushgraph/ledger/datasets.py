"""The datasets of a ledger: known by their content where it was seen, by a name where it was not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from hushgraph.errors import InputError, LedgerError
from hushgraph.files.reading import damage_named
from hushgraph.ledger.entries import canonical
from hushgraph.ledger.identity import DatasetIdentity, Likeness
from hushgraph.ledger.store import Rows

KINDS = ("dataset", "alias", "continues", "identified")
UNNAMED = "graph"
"""What data is called that was given no name: it says nothing about whose data it is."""
JOINED = "joined"
"""A dataset that was known by its name alone turned out to be another one, which was known by its content."""


@dataclass
class Dataset:
    """One dataset: its id, the names it was given, and hashes of what recognizes its content."""

    id: str
    names: list[str] = field(default_factory=list)
    sketches: list[str] = field(default_factory=list)


def known_datasets(rows: Rows) -> dict[str, Dataset]:
    """All datasets by their id."""
    found: dict[str, Dataset] = {}
    entries = sorted(
        (entry for kind in (*KINDS, JOINED) for entry in rows.of_kind(kind)), key=lambda entry: entry.number
    )
    for entry in entries:
        values = entry.values
        if entry.kind == JOINED:
            found.pop(values["dataset"], None)
            values = {"dataset": values["into"], "name": values["name"]}
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
        with damage_named(f"{rows.store.where}: the sketch of a dataset", LedgerError):
            found[link] = DatasetIdentity.from_dict(json.loads(content))
    return found


@dataclass(frozen=True)
class Decision:
    """The dataset that some data belongs to, the entry to write, if any is needed, and the ids that join it."""

    dataset: str
    kind: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    joins: tuple[str, ...] = ()


def decide(
    rows: Rows, identity: DatasetIdentity, name: str, continues: str | None = None, separate: str | None = None
) -> Decision:
    """Which dataset this data is: the same content, one that it is declared to continue, or a new one.

    Data that shares most entries with a known dataset needs `continues` (its name) or `separate` (the reason). A name
    that was entered before any data of it was seen (a pending limit) goes with the data that is called so.
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
        return _same_content(rows, known[same[0]], name, continues, separate, known)
    if continues is not None:
        chosen = resolve(known, continues)
        closest = _alike(known[chosen], identity, sketches)
        likeness = None if closest is None else closest.as_dict()
        values = {"dataset": chosen, "name": name, "sketch": link, "likeness": likeness}
        return Decision(chosen, "continues", values, _joins(rows, known, chosen, [name], None))
    alike_to = {one.id: found for one in known.values() if (found := _alike(one, identity, sketches))}
    needing = {dataset: likeness for dataset, likeness in alike_to.items() if likeness.needs_decision}
    if needing and separate is None:
        raise _undecided(name, needing)
    called = [one.id for one in known.values() if name in one.names and one.sketches]
    if called and separate is None and name != UNNAMED:
        raise _name_taken(name, called[0])
    alike = {dataset: likeness.as_dict() for dataset, likeness in needing.items()}
    told: dict[str, Any] = {"name": name, "sketch": link, "separate": separate, "alike": alike}
    if name in known and not known[name].sketches:
        return Decision(name, "identified", {"dataset": name, **told})
    new = _free_id(rows, known, name)
    return Decision(new, "dataset", {"dataset": new, **told})


def _same_content(
    rows: Rows, dataset: Dataset, name: str, continues: str | None, separate: str | None, known: dict[str, Dataset]
) -> Decision:
    meant = [name] if continues is None else [name, resolve(known, continues)]
    if continues is not None and meant[1] != dataset.id and known[meant[1]].sketches:
        raise InputError(f"continues: expected '{dataset.id}', which has exactly this content; got '{continues}'")
    joins = _joins(rows, known, dataset.id, meant, separate)
    if name in (dataset.id, *dataset.names):
        return Decision(dataset.id, joins=joins)
    return Decision(dataset.id, "alias", {"dataset": dataset.id, "name": name, "separate": separate}, joins)


def _joins(
    rows: Rows, known: dict[str, Dataset], dataset: str, names: list[str], separate: str | None
) -> tuple[str, ...]:
    """Those of the names that were entered without any data, and now turn out to be this dataset."""
    found = [one for one in dict.fromkeys(names) if one in known and one != dataset and not known[one].sketches]
    with_runs = [one for one in found if rows.count("open", one)]
    if with_runs and separate is None:
        raise InputError(
            f"'{with_runs[0]}': expected runs on known data; its runs were entered by name only, and this data "
            f"is known as '{dataset}'. Two histories cannot be joined. If those runs are about other data, say why "
            "(--separate REASON, separate=REASON); if they are about this data, the totals of both have to be added"
        )
    return tuple(one for one in found if one not in with_runs)


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
        f"'{name}' is not new and not exactly known: it shares {shares}. Decide, and it will be written down: if "
        f"it is about the same people, continue that dataset (--continues {first}, continues={first!r}); if it is not, "
        "say why (--separate REASON, separate=REASON)"
    )


def _name_taken(name: str, dataset: str) -> InputError:
    other = "" if dataset == name else f", known as '{dataset}'"
    return InputError(
        f"'{name}': expected the content that this ledger knows by that name{other}; got wholly other content. Decide, "
        f"and it will be written down: if it is about the same people (a later copy, other numbers for the nodes), "
        f"continue that dataset (--continues {dataset}, continues={dataset!r}); if it is not, say why (--separate "
        "REASON, separate=REASON) or give the data another name"
    )


def _free_id(rows: Rows, known: dict[str, Dataset], name: str) -> str:
    number, found = 2, name
    while found in known or rows.of_kind("dataset", last=1, dataset=found):
        found, number = f"{name}-{number}", number + 1
    return found
