"""What a tracker is told of a finished run, and nothing else: an `Entry`, made from the run's certificate and plan.

Losses, gradient norms and accuracies are functions of private data that nothing was charged for. An entry has no place
for them; figures on the data's own labels go into a part of their own, on explicit request, named for what they are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.files.writing import json_text, plain
from hushgraph.registry import Kind

if TYPE_CHECKING:
    from hushgraph.methods.model import Model

FIGURES = ("epsilon", "delta", "mu", "claimed_epsilon", "dataset_epsilon", "dataset_delta", "dataset_runs")
"""The figures of a certificate that may be tracked, beside those of a stage."""
OF_A_STAGE = ("scale", "sensitivity", "count")
EVALUATION = "not_private_evaluation"
"""The name under which figures on the data's own labels go, where they are asked for."""
RELEASED = "released"
"""The name under which figures go that an experiment declared to be released."""
_LONGEST = 500


@dataclass(frozen=True)
class Entry:
    """A finished run.

    `settings` were chosen without looking at private data, `figures` are of the certificate (its names are checked),
    `certificate` is all of it as JSON. `released` are figures that an experiment declared to follow from its releases.
    `evaluation` is empty unless somebody asked for it: it is not private.
    """

    name: str
    settings: Mapping[str, str | int | float | bool]
    figures: Mapping[str, float]
    certificate: str
    evaluation: Mapping[str, float] = field(default_factory=dict)
    released: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        strange = [name for name in self.figures if not _is_of_a_certificate(name)]
        InputError.collect(
            f"tracking: expected figures of a certificate; got '{name}'. What a run computes on private data on the "
            "way is not covered by its epsilon, and is never tracked"
            for name in strange
        )

    @property
    def numbers(self) -> dict[str, float]:
        """All finite figures by the names that a tracker shows; those of the evaluation say what they are."""
        parts = {RELEASED: self.released, EVALUATION: self.evaluation}
        named = {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}
        return {name: float(value) for name, value in {**self.figures, **named}.items() if math.isfinite(value)}


def _is_of_a_certificate(name: str) -> bool:
    what, slash, stage = name.partition("/")
    return name in FIGURES or (what in OF_A_STAGE and bool(slash and stage))


def entry_of(model: Model, *, evaluation: bool = False) -> Entry:
    """What may be tracked of a model; with `evaluation`, also its figures on the data's own labels."""
    certificate = model.certificate
    total = certificate.total
    figures = {"epsilon": certificate.epsilon, "delta": certificate.delta, "mu": certificate.mu}
    figures |= {"dataset_epsilon": total.epsilon, "dataset_delta": total.delta, "dataset_runs": total.runs}
    if certificate.paper is not None:
        figures["claimed_epsilon"] = certificate.paper.epsilon
    for charge in certificate.charges:
        figures |= {f"{what}/{charge.stage}": getattr(charge, what) for what in OF_A_STAGE}
    settings = {
        "method": certificate.method,
        "unit": certificate.unit.name,
        "dataset": certificate.dataset,
        "run": certificate.run,
        "private": certificate.is_private,
        "budget_epsilon": model.plan.budget.epsilon,
        **{f"set_{name}": value for name, value in model.method.as_dict().items()},
    }
    return Entry(
        name=f"{certificate.method}-{certificate.run}",
        settings=flat(settings),
        figures={name: float(value) for name, value in figures.items() if value is not None},
        certificate=json_text(certificate.as_dict()),
        evaluation=dict(_evaluated(model.metrics)) if evaluation else {},
    )


def flat(settings: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Settings as the words and numbers that trackers take; what is not set is left out."""
    shown = {name: plain(value) for name, value in settings.items() if value is not None}
    simple = {
        name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in shown.items()
    }
    return {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in simple.items()}


def _evaluated(metrics: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _evaluated(value, f"{before}{name}_")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{before}{name}", float(value)


class Tracker(ABC):
    """Where finished runs are shown. One that is made for a place writes there, and nowhere else."""

    kind: ClassVar[Kind] = "trackers"
    name: ClassVar[str]
    place_help: ClassVar[str] = "a place"

    def __init__(self, place: str) -> None:
        if not place:
            raise InputError(f"track: expected {self.name}:PLACE, with {self.place_help}; got no place")
        self.place = place

    @abstractmethod
    def log(self, entry: Entry) -> None:
        """Write one finished run down."""


def tracker_of(words: str | Tracker) -> Tracker:
    """The tracker that `NAME:PLACE` means, or the one that is given."""
    if isinstance(words, Tracker):
        return words
    name, _, place = words.partition(":")
    found: Tracker = registry.load("trackers", name)(place)
    return found


def track(model: Model, to: str | Tracker | Sequence[str | Tracker], *, evaluation: bool = False) -> None:
    """Show a finished model in a tracker: `track(model, "tensorboard:runs")`, `track(model, "mlflow:http://...")`.

    Settings, plan and certificate are sent. Accuracy is not, because it is a figure of private labels that nothing was
    charged for; `evaluation=True` sends it all the same, under the name "not_private_evaluation".
    """
    entry = entry_of(model, evaluation=evaluation)
    for one in [to] if isinstance(to, str | Tracker) else to:
        tracker_of(one).log(entry)
