"""A cell: one run of a study, as plain values. What it is called and what it is are kept apart.

The key of a result is a hash of what the cell *is* and of the code that ran it, so a study that is renamed, extended or
started again finds what was done already.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from hushgraph.files.writing import plain

Privacy = Literal["research", "charged"]
Inference = Literal["transductive", "inductive"]

TRANSDUCTIVE: Inference = "transductive"
INDUCTIVE: Inference = "inductive"


@dataclass(frozen=True)
class Dataset:
    """What to load, with its split unless the cell says another; `content` identifies a file's bytes."""

    name: str
    load: str
    options: dict[str, Any] = field(default_factory=dict)
    split: Any = None
    content: str | None = None


@dataclass(frozen=True)
class Named:
    """Something by its registered name with parameters, and what it is called in tables."""

    name: str
    label: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One run. Parts that an experiment does not use are None."""

    part: str
    experiment: str
    privacy: Privacy
    seed: int
    dataset: Dataset | None = None
    method: Named | None = None
    unit: Named | None = None
    epsilon: float | None = None
    delta: float | None = None
    label_share: float | None = None
    split: Any = None
    split_seed: int = 0
    inference: Inference = TRANSDUCTIVE
    paper_mode: bool = False
    attacks: tuple[Named, ...] = ()
    audit: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """What decides the result: everything but what things are called."""
        values = asdict(self)
        values.pop("part")
        for named in (values["method"], values["unit"], *values["attacks"]):
            if named is not None:
                named.pop("label")
        if values["dataset"] is not None:
            values["dataset"].pop("name")
        found: dict[str, Any] = plain(values)
        return found

    def key(self, code: str) -> str:
        """The hash under which the result of this cell is stored."""
        return digest({"cell": self.identity(), "code": code})

    def axis(self, name: str) -> Any:
        """The value of an axis as tables and plots show it; None where the cell has no such axis."""
        if name in ("dataset", "method", "unit"):
            part = getattr(self, name)
            return None if part is None else (part.name if name == "dataset" else part.label)
        if name in self.settings:
            return _shown(self.settings[name])
        if self.method is not None and name in self.method.settings:
            return _shown(self.method.settings[name])
        return _shown(getattr(self, name)) if name in AXES else None

    @property
    def axes(self) -> tuple[str, ...]:
        """The names that `axis` knows."""
        own = self.method.settings if self.method is not None else {}
        return (*AXES, *self.settings, *(name for name in own if name not in self.settings))

    def __str__(self) -> str:
        shown = [self.part, self.axis("dataset"), self.axis("method") or self.experiment, self.axis("unit")]
        words = [str(one) for one in shown if one]
        if self.epsilon is not None:
            words.append(f"epsilon {self.epsilon:g}")
        words += [f"{name}={value}" for name, value in self.settings.items()]
        return ", ".join([*words, f"seed {self.seed}"])


AXES = (
    "part",
    "experiment",
    "dataset",
    "method",
    "unit",
    "epsilon",
    "delta",
    "label_share",
    "split",
    "split_seed",
    "inference",
    "paper_mode",
    "seed",
)
REPEATS = ("seed", "split_seed")
"""The axes that a mean is taken over."""


def _shown(value: Any) -> Any:
    """A value that can be compared and looked up."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    return tuple(map(_shown, value)) if isinstance(value, list) else value


def digest(values: Any) -> str:
    """A short hash of plain values."""
    text = json.dumps(plain(values), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# Which code made a result: commands, pages and tables do not change one

_SHOWS_ONLY = {"cli", "report", "collect", "tracking", "ui"}
_MAKES_RESULTS = {"cell.py", "lab.py", "metrics.py", "experiments"}
_LIBRARIES = ("torch", "torch_geometric", "numpy", "scipy", "dp-accounting")


def code_version(experiment: str = "fit") -> str:
    """The version of the code that an experiment runs with."""
    return f"{_package()}{_own(experiment)}"


@lru_cache(maxsize=1)
def _package() -> str:
    root = Path(__file__).resolve().parent.parent
    found = hashlib.sha256(" ".join(f"{name}={version(name)}" for name in _LIBRARIES).encode())
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if parts[0] in _SHOWS_ONLY or (parts[0] == "study" and parts[1] not in _MAKES_RESULTS):
            continue
        found.update("/".join(parts).encode() + path.read_bytes())
    return found.hexdigest()[:16]


@lru_cache(maxsize=64)
def _own(experiment: str) -> str:
    """The file of an experiment outside the package."""
    module = experiment.partition(":")[0] if ":" in experiment else ""
    if not module:
        return ""
    importlib.import_module(module)
    file = getattr(sys.modules[module], "__file__", None)
    inside = file is not None and Path(file).resolve().is_relative_to(Path(__file__).resolve().parent.parent)
    return "" if file is None or inside else "-" + hashlib.sha256(Path(file).read_bytes()).hexdigest()[:8]
