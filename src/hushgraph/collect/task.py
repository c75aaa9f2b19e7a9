"""A collection task: what is asked, through which mechanism, at what epsilon.

A task is public and never changes. Its identity is the SHA-256 of its canonical JSON: both sides compute it, the person
agrees to that hash, and every report carries it. A different question is a different task with a different hash.

Only mechanisms with finitely many reports may be used: their law on a computer is the law that was proved.

`explain_task` says what a person is told before answering: what leaves the device, what stays, and what it costs.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date
from functools import cached_property
from typing import Any

from hushgraph.errors import InputError, did_you_mean
from hushgraph.files.reading import damage_named, parse_json
from hushgraph.local import FeatureRR, MultiBit, OneBit, PerFeature, RandomizedResponse, UnaryEncoding
from hushgraph.local.base import small_side
from hushgraph.local.feature_rr import PARTS_OF_ONE

FORMAT = "hushgraph-task/1"
LARGEST_TASK = 1 << 20
MOST_DIMENSIONS = 1 << 20
MOST_BINS = 256
MOST_NODES = 1 << 32
"""What fits in a request and in memory; a task that asks for more is a mistake or an attack."""
FEATURE_MECHANISMS = ("multi_bit", "one_bit")
BINNED = "feature_rr"
LABEL_MECHANISMS = ("randomized_response", "unary_symmetric", "unary_optimized")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True)
class FeatureQuestion:
    """A vector of `dimensions` numbers in [low, high]; `epsilon` is the total for the whole vector.

    `multi_bit` sends one bit about `sampled` random features; `one_bit` sends one bit about every feature, each at
    epsilon/dimensions.
    """

    dimensions: int
    epsilon: float
    low: float = 0.0
    high: float = 1.0
    mechanism: str = "multi_bit"
    sampled: int = 0

    def __post_init__(self) -> None:
        if self.mechanism not in FEATURE_MECHANISMS:
            raise InputError(
                f"expected a feature mechanism; got {self.mechanism!r}; "
                f"{did_you_mean(str(self.mechanism), (*FEATURE_MECHANISMS, BINNED))}"
            )
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))
        object.__setattr__(self, "epsilon", float(self.epsilon))
        _require_count("dimensions", self.dimensions, MOST_DIMENSIONS)
        built = self.build()
        bits = built.bits if isinstance(built, MultiBit) else self.dimensions
        # The number of sent bits is part of the agreement, so it is written down rather than recomputed by each side.
        if self.sampled not in (0, bits):
            raise InputError(f"expected sampled = {bits} for this mechanism; got {self.sampled}; leave it out")
        object.__setattr__(self, "sampled", bits)

    def build(self) -> MultiBit | PerFeature:
        """The mechanism of this question."""
        if self.mechanism == "one_bit":
            return PerFeature.with_total(OneBit, self.epsilon, self.dimensions, self.low, self.high)
        return MultiBit(self.epsilon, self.dimensions, self.low, self.high, self.sampled or None)


@dataclass(frozen=True)
class BinnedQuestion:
    """A vector of numbers in [low, high], each sent as one of `bins` bins (FeatureRR); `epsilon` is the total.

    `scores` say how much of it each feature gets. They are part of the task, so they were public before anybody
    answered: a device never computes a score from its own record.
    """

    scores: tuple[float, ...]
    epsilon: float
    bins: int = 10
    low: float = 0.0
    high: float = 1.0
    mechanism: str = BINNED

    def __post_init__(self) -> None:
        if self.mechanism != BINNED:
            raise InputError(f"expected the mechanism {BINNED!r} for binned features; got {self.mechanism!r}")
        for name in ("epsilon", "low", "high"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "scores", tuple(float(score) for score in self.scores))
        _require_count("bins", self.bins, MOST_BINS)
        _require_count("dimensions", len(self.scores), MOST_DIMENSIONS)
        self.build()

    @property
    def dimensions(self) -> int:
        """How many features there are."""
        return len(self.scores)

    def build(self) -> FeatureRR:
        """The mechanism of this question."""
        return FeatureRR(self.epsilon, self.scores, self.bins, self.low, self.high)


@dataclass(frozen=True)
class LabelQuestion:
    """One of `classes`. With `optional`, a person without a label may send none; that absence is visible."""

    classes: tuple[str, ...]
    epsilon: float
    mechanism: str = "randomized_response"
    optional: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "epsilon", float(self.epsilon))
        if self.mechanism not in LABEL_MECHANISMS:
            raise InputError(
                f"expected a label mechanism; got {self.mechanism!r}; "
                f"{did_you_mean(str(self.mechanism), LABEL_MECHANISMS)}"
            )
        if len(set(self.classes)) != len(self.classes) or not all(isinstance(c, str) and c for c in self.classes):
            raise InputError(f"expected different class names; got {list(self.classes)}; name each class once")
        self.build()

    def build(self) -> RandomizedResponse | UnaryEncoding:
        """The mechanism of this question."""
        if self.mechanism == "randomized_response":
            return RandomizedResponse(self.epsilon, len(self.classes))
        kind: Any = self.mechanism.removeprefix("unary_")
        return UnaryEncoding(self.epsilon, len(self.classes), kind)


@dataclass(frozen=True)
class Task:
    """Everything both sides must agree on. `opens` and `closes` are days (inclusive), empty for no limit."""

    id: str
    title: str
    nodes: int
    features: FeatureQuestion | BinnedQuestion | None = None
    labels: LabelQuestion | None = None
    purpose: str = ""
    contact: str = ""
    opens: str = ""
    closes: str = ""

    def __post_init__(self) -> None:
        InputError.collect(_problems(self))

    @property
    def epsilon(self) -> float:
        """What one person spends by answering: features and label together."""
        return sum(part.epsilon for part in (self.features, self.labels) if part is not None)

    def canonical_json(self) -> str:
        """The one text form of this task: sorted keys, no spaces, ASCII."""
        body = {"format": FORMAT, **asdict(self)}
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)

    @cached_property
    def sha256(self) -> str:
        """The identity of this task."""
        return hashlib.sha256(self.canonical_json().encode("ascii")).hexdigest()

    def is_open_on(self, day: date) -> bool:
        """Whether reports are accepted on this day."""
        return (not self.opens or date.fromisoformat(self.opens) <= day) and (
            not self.closes or day <= date.fromisoformat(self.closes)
        )

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Read a task; refused unless it is exactly in canonical form, so that text and hash cannot disagree."""
        try:
            body = parse_json(text) if len(text) <= LARGEST_TASK else None
        except ValueError as error:
            raise InputError("expected a task in JSON; got something else; fetch the task again") from error
        if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
            raise InputError(f"expected format {FORMAT!r}; got another; update hushgraph or fetch the task again")
        task = cls.from_dict(body)
        if task.canonical_json() != text:
            raise InputError("expected the canonical form of the task; got a rewritten one; fetch the task again")
        return task

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Task:
        """Build a task from plain data (a configuration file); unknown or missing names are refused."""
        with damage_named("task", do="See docs/collect.md"):
            task = cls._from_dict(body)
            task.canonical_json()  # refuses numbers that are not finite
            return task

    @classmethod
    def _from_dict(cls, body: Mapping[str, Any]) -> Task:
        values = dict(body)
        asked = values.get("features")
        binned = isinstance(asked, Mapping) and asked.get("mechanism") == BINNED
        for name, kind in (("features", BinnedQuestion if binned else FeatureQuestion), ("labels", LabelQuestion)):
            if values.get(name) is not None:
                values[name] = _build(kind, values[name], name)
        return _build(cls, values, "task")


def _require_count(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(f"expected {name} from 1 to {most}; got {value!r}; check the task")


def is_task_id(word: str) -> bool:
    """Whether a task could be called so."""
    return _NAME.fullmatch(word) is not None


def _build(kind: Any, values: Any, where: str) -> Any:
    """Call a dataclass with checked names, so that a typing mistake is an error with a suggestion."""
    known = [field.name for field in fields(kind)]
    if not isinstance(values, Mapping):
        raise InputError(f"expected named values for {where}; got {type(values).__name__}; see docs/collect.md")
    InputError.collect(
        f"unknown entry {name!r} in {where}; {did_you_mean(name, known)}" for name in values if name not in known
    )
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(f"expected all required entries of {where} with the right types; got: {error}") from error


def _problems(task: Task) -> list[str]:
    """Everything wrong with a task at once."""
    problems = []
    if not (isinstance(task.id, str) and _NAME.fullmatch(task.id)):
        problems.append(f"expected an id of small letters, digits and dashes; got {task.id!r}; rename the task")
    if not (isinstance(task.nodes, int) and not isinstance(task.nodes, bool) and 1 <= task.nodes <= MOST_NODES):
        problems.append(
            f"expected nodes from 1 to {MOST_NODES}; got {task.nodes!r}; give the number of nodes of the graph"
        )
    if task.features is None and task.labels is None:
        problems.append("expected features or labels; got neither; ask for something")
    for name in ("title", "purpose", "contact"):
        if not isinstance(getattr(task, name), str):
            problems.append(f"expected text for {name}; got {getattr(task, name)!r}; write a sentence")
    for name in ("opens", "closes"):
        if not _is_day(getattr(task, name)):
            problems.append(f"expected {name} as YYYY-MM-DD or empty; got {getattr(task, name)!r}; write a day")
    return problems


def _is_day(text: Any) -> bool:
    if text == "":
        return True
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def odds_factor(epsilon: float) -> float:
    """How much a report can change anyone's odds about a person: e^epsilon, infinite when it overflows."""
    return math.exp(epsilon) if epsilon < 700 else math.inf


def explain_task(task: Task, spent: float, limit: float, answered: bool = False) -> str:
    """The whole explanation of a task for one person with this budget."""
    lines = [f"Task: {task.title} ({task.id})", f"Hash: {task.sha256}"]
    if task.purpose:
        lines.append(f"Purpose: {task.purpose}")
    if task.contact:
        lines.append(f"Contact: {task.contact}")
    lines += ["", "If you answer, this leaves your device, once:"]
    if isinstance(task.features, BinnedQuestion):
        lines += _binned(task.features)
    elif task.features is not None:
        lines += _features(task.features)
    if task.labels is not None:
        lines += _label(task.labels)
    lines += [
        "  - your node token, a random number for this report, and the hash above.",
        "",
        "This does not leave your device: your exact numbers, your true label, any other file.",
        "The server knows anyway: that you are a node of its graph, who your neighbors are, and that you answered.",
        "",
        *_price(task, spent, limit, answered),
    ]
    return "\n".join(lines)


def _features(question: FeatureQuestion) -> list[str]:
    share = question.epsilon / question.sampled
    wrong = small_side(share)
    if question.mechanism == "one_bit":
        what = f"one random bit about each of your {question.dimensions} numbers"
    else:
        bits = (
            "one random bit about one" if question.sampled == 1 else f"one random bit about each of {question.sampled}"
        )
        what = f"{bits} of your {question.dimensions} numbers, picked at random"
    return [
        f"  - {what}.",
        f"    Numbers are first cut to the range from {question.low:g} to {question.high:g}.",
        f"    Even for a number at an end of the range the bit is the opposite one with probability {_percent(wrong)}.",
    ]


def _binned(question: BinnedQuestion) -> list[str]:
    randomizer = question.build()
    likeliest = float(randomizer.laws[:, 0, 0].max() / PARTS_OF_ONE)
    return [
        f"  - for each of your {question.dimensions} numbers one of {question.bins} bins, drawn at random, nearer ones "
        "more often.",
        f"    Numbers are first cut to the range from {question.low:g} to {question.high:g}.",
        f"    Even at an end of the range the true bin is sent with probability {_percent(likeliest)} at most;",
        f"    one number costs at most epsilon {max(randomizer.epsilons):g}, by scores that are part of the task.",
    ]


def _label(question: LabelQuestion) -> list[str]:
    mechanism = question.build()
    if isinstance(mechanism, RandomizedResponse):
        text = (
            f"  - one of {len(question.classes)} class names: the true one with probability "
            f"{_percent(mechanism.true_probability)}, each other one with {_percent(mechanism.other_probability)}."
        )
    else:
        text = (
            f"  - one bit for each of {len(question.classes)} classes: the bit of your class is 1 with probability "
            f"{_percent(1 - mechanism.drop_probability)}, any other with {_percent(mechanism.add_probability)}."
        )
    lines = [text]
    if question.optional:
        lines.append("    You may send no label; the server then sees that you sent none.")
    return lines


def _price(task: Task, spent: float, limit: float, answered: bool) -> list[str]:
    factor = odds_factor(task.epsilon)
    parts = [
        f"{part.epsilon:g} for {name}"
        for name, part in (("the numbers", task.features), ("the label", task.labels))
        if part is not None
    ]
    lines = [
        f"Cost: epsilon {task.epsilon:g} ({', '.join(parts)}).",
        f"Whoever sees the report can change their odds about you by a factor of at most {factor:.3g}, not more.",
    ]
    if answered:
        return [
            *lines,
            "You have answered this task already; sending again repeats the same bytes and costs nothing more.",
        ]
    left = limit - spent
    lines.append(
        f"Your lifetime budget is {limit:g}; {spent:g} is spent; after this task {left - task.epsilon:g} would be left."
    )
    if task.epsilon > left * (1 + 1e-12):
        lines.append("That is more than you have left: the client will refuse.")
    return lines


def _percent(probability: float) -> str:
    return f"{100 * probability:.3g}%"
