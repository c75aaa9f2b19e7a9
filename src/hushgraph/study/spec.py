"""What a study file says: typed, with every problem reported at once, and the grid of cells that follows from it.

A study has axes (datasets, methods, any setting, units, epsilons, ...) and does every combination of them. `parts` are
several such grids in one study; what a part does not say it takes from the top of the file.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError
from hushgraph.files.plain_yaml import read_yaml
from hushgraph.study.axes import read_dataset, read_experiment, read_methods, read_named, read_settings, read_split
from hushgraph.study.cell import INDUCTIVE, TRANSDUCTIVE, Cell, Dataset, Inference, Named, Privacy, digest
from hushgraph.study.reader import Problems, Reader
from hushgraph.study.views import Choice, View, read_choice, read_views

PART = (
    "experiment",
    "datasets",
    "methods",
    "settings",
    "units",
    "epsilons",
    "deltas",
    "label_shares",
    "splits",
    "split_seeds",
    "seeds",
    "inference",
    "paper_mode",
    "attacks",
    "audit",
)
MOST_CELLS = 100_000
_LONGEST_NAME = 100
TOP = ("name", "privacy", "ledger", "parts", "choose", "tables", "plots", *PART)


@dataclass(frozen=True)
class Part:
    """One full grid: every combination of its axes is a cell."""

    name: str
    experiment: str
    datasets: Sequence[Dataset | None]
    methods: Sequence[Named | None]
    settings: Mapping[str, Sequence[Any]]
    units: Sequence[Named | None]
    epsilons: Sequence[float | None]
    deltas: Sequence[float | None]
    label_shares: Sequence[float | None]
    splits: Sequence[Any]
    split_seeds: Sequence[int]
    seeds: Sequence[int]
    inference: Sequence[Inference]
    paper_mode: Sequence[bool]
    attacks: tuple[Named, ...]
    audit: dict[str, Any] | None

    @property
    def axes(self) -> list[Sequence[Any]]:
        """The values of every axis, seeds first: after one round every entry of a table has its first value."""
        return [
            self.seeds,
            self.split_seeds,
            self.datasets,
            self.splits,
            self.label_shares,
            self.inference,
            self.methods,
            self.units,
            self.paper_mode,
            self.epsilons,
            self.deltas,
            *self.settings.values(),
        ]

    def cells(self, privacy: Privacy) -> Iterator[Cell]:
        """The whole grid, in the order of its axes."""
        for seed, split_seed, data, split, share, inference, method, unit, paper, epsilon, delta, *rest in product(
            *self.axes
        ):
            yield Cell(
                part=self.name,
                experiment=self.experiment,
                privacy=privacy,
                seed=seed,
                dataset=data,
                method=method,
                unit=unit,
                epsilon=epsilon,
                delta=delta,
                label_share=share,
                split=split,
                split_seed=split_seed,
                inference=inference,
                paper_mode=paper,
                attacks=self.attacks,
                audit=self.audit,
                settings=dict(zip(self.settings, rest)),
            )


@dataclass(frozen=True)
class Study:
    """A checked study."""

    name: str
    privacy: Privacy
    parts: tuple[Part, ...]
    ledger: str | None = None
    choose: Choice | None = None
    views: tuple[View, ...] = ()
    folder: Path = field(default_factory=Path.cwd)
    file: Path | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, contents: Mapping[str, str] | None = None) -> Study:
        """The study in a YAML file. With `contents`, its data need not be here: what was kept of it can be shown."""
        source, whole = Path(path), Path(path).absolute()
        values = read_yaml(source, of="a study file")
        return replace(cls.from_dict(values, folder=whole.parent, name=source.stem, contents=contents), file=whole)

    @classmethod
    def from_dict(
        cls,
        values: Mapping[str, Any],
        *,
        folder: Path | None = None,
        name: str = "study",
        contents: Mapping[str, str] | None = None,
    ) -> Study:
        """The study that plain values describe, or one error with everything that is wrong with them."""
        folder = folder or Path.cwd()
        if str(folder) not in sys.path:
            sys.path.append(str(folder))  # experiments may be files beside the study
        top = Reader.of(values, "", Problems())
        top.only(TOP)
        parts = tuple(_parts(top, contents))
        _require_feasible(top, parts)
        title = top.text("name", name)
        if not _is_file_name(title):
            top.problem("name", "a name for files: letters, digits and -_+() ., at most 100 of them")
        ledger = top.text("ledger") or None
        privacy = _privacy(top)
        choose = read_choice(top)
        views = read_views(top)
        InputError.collect(top.problems.listed())
        found = cls(
            title,
            privacy,
            parts,
            ledger,
            choose,
            views,
            folder,
        )
        InputError.collect(found.problems())
        return found

    def problems(self) -> list[str]:
        """What is wrong with the study as a whole."""
        known = {axis for cell in self.cells for axis in cell.axes}
        asked = [(view.name, view.axes) for view in self.views]
        asked += [("choose.over", self.choose.over)] if self.choose else []
        return [
            f"{place}: no axis '{axis}' in this study; it has {', '.join(sorted(known))}"
            for place, axes in asked
            for axis in axes
            if axis not in known
        ]

    @property
    def cells(self) -> list[Cell]:
        """Every cell, in the order in which they are run; a cell that two parts share is there twice."""
        return _cells(self.parts, self.privacy)

    @property
    def group(self) -> str:
        """What the runs of a charged study are declared together as: the name and a hash of all of them."""
        return f"study {self.name} {digest([cell.identity() for cell in self.cells])[:12]}"


def _cells(parts: tuple[Part, ...], privacy: Privacy) -> list[Cell]:
    return [cell for part in parts for cell in part.cells(privacy)]


def _is_file_name(name: str) -> bool:
    """Whether results may be kept under a name: one that leads nowhere else."""
    plain = all(one.isalnum() or one in "_+-() .," for one in name)
    return plain and 0 < len(name) <= _LONGEST_NAME and name[0] not in " .,"


def _require_feasible(top: Reader, parts: tuple[Part, ...]) -> None:
    """Refuse a grid that nobody could run before any of it is written out."""
    count = sum(math.prod(len(values) for values in part.axes) for part in parts)
    if count > MOST_CELLS:
        top.problems.add("study", f"expected at most {MOST_CELLS:,} runs; got {count:,}; shorten an axis")


def _privacy(top: Reader) -> Privacy:
    value = top.among("privacy", ("research", "charged"), None)
    if value == "charged":
        return "charged"
    if value is None:
        top.problems.add(
            "privacy",
            "expected 'charged' (every run is charged to the ledger of its data) or 'research' (seeded, on "
            "public data, not private); got nothing. A study never decides this by itself",
        )
    return "research"


def _parts(top: Reader, contents: Mapping[str, str] | None) -> Iterator[Part]:
    shared = {key: top.values[key] for key in PART if key in top.values}
    listed = top.listed("parts")
    if not listed:
        yield _part(Reader(shared, "", top.problems), "study", contents)
    for number, values in enumerate(listed):
        own = Reader.of(values, f"parts[{number}]", top.problems)
        own.only(("name", *PART))
        name = own.text("name", f"part {number + 1}")
        yield _part(Reader({**shared, **own.values}, own.where, top.problems), name, contents)


def _part(at: Reader, name: str, contents: Mapping[str, str] | None) -> Part:
    experiment = at.text("experiment", "fit")
    needs = read_experiment(at, experiment)
    datasets = [
        _each(at, "datasets", value, partial(read_dataset, contents=contents)) for value in at.listed("datasets")
    ]
    methods = read_methods(at)
    settings = read_settings(at, needs, methods)
    _require(at, needs.axes)
    return Part(
        name=name,
        experiment=experiment,
        datasets=datasets or [None],
        methods=methods or [None],
        settings=settings,
        units=[read_named(at, "units", value) for value in at.listed("units")] or [None],
        epsilons=at.numbers("epsilons", above=0.0) or [None],
        deltas=at.numbers("deltas", above=0.0, most=1.0) or [None],
        label_shares=at.numbers("label_shares", above=0.0, most=1.0) or [None],
        splits=[read_split(at, value) for value in at.listed("splits")] or [None],
        split_seeds=at.count_or_list("split_seeds", [0]),
        seeds=at.count_or_list("seeds", [0]),
        inference=_inference(at),
        paper_mode=at.flags("paper_mode"),
        attacks=tuple(one for value in at.listed("attacks") if (one := read_named(at, "attacks", value)) is not None),
        audit=_audit(at),
    )


def _each(at: Reader, key: str, value: Any, read: Callable[[Any], Any]) -> Any:
    return at.attempt(key, lambda: read(value))


def _require(at: Reader, axes: Sequence[str]) -> None:
    for axis in axes:
        if axis not in at:
            at.problems.add(at.at(axis), "expected at least one; got none")


def _inference(at: Reader) -> Sequence[Inference]:
    found = at.listed("inference") or [TRANSDUCTIVE]
    if all(one in (TRANSDUCTIVE, INDUCTIVE) for one in found):
        return found
    at.problem("inference", "transductive, inductive, or a list of both")
    return [TRANSDUCTIVE]


def _audit(at: Reader) -> dict[str, Any] | None:
    value = at.values.get("audit")
    if value in (None, False):
        return None
    own = Reader.of({} if value is True else value, at.at("audit"), at.problems)
    own.only(("canaries", "confidence"))
    if any(not isinstance(one, int | float) or isinstance(one, bool) for one in own.values.values()):
        at.problem("audit", "numbers for canaries and confidence")
    return own.values
