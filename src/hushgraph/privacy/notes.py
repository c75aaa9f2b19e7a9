"""Notes: what a run takes as public, leaves unprotected or decided, as a code with values.

Programs compare codes. People get the sentence, made from the one table at the end of this file, when a page or a
terminal asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hushgraph.errors import InputError


class Code(StrEnum):
    """Everything that can be noted."""

    # Taken as public
    SIZES = "sizes"
    SETTINGS = "settings"
    ALL_OF = "all-of"
    EDGES_DECLARED = "edges-declared"
    EDGES_ASSUMED = "edges-assumed"
    DEGREE_CAP = "degree-cap"
    DEGREE_BOUND = "degree-bound"
    NO_CAP = "no-cap"
    BALANCED = "balanced"
    TRAINING_CAP = "training-cap"
    RANGE = "range"
    RANGE_PER_COLUMN = "range-per-column"
    RANGE_FROM_DATA = "range-from-data"
    AVERAGE_DEGREE = "average-degree"
    RULE = "rule"
    CLASSES_FROM_LABELS = "classes-from-labels"
    DEVICE_TASK = "device-task"
    PUBLIC_RECORDS = "public-records"
    PARTS_OF_CLASSES = "parts-of-classes"
    OWN_MODULES = "own-modules"
    EDGE_TYPES = "edge-types"
    RELATIONS = "relations"
    BATCHES = "batches"

    # Left unprotected
    FEATURES = "features"
    LABELS = "labels"
    EDGES = "edges"
    NODE_SET = "node-set"
    SPLIT = "split"
    PEOPLE = "people"
    MANY_EDGES = "many-edges"
    OTHER_LISTS = "other-lists"
    OWN_PREDICTION = "own-prediction"
    OWN_ROW = "own-row"
    NUM_RECORDS = "num-records"
    CLASSES = "classes"
    PARTS = "parts"
    RAW_PREDICTIONS = "raw-predictions"
    PUBLIC_EDGES = "public-edges"
    PUBLIC_PART = "public-part"
    LARGE_DELTA = "large-delta"

    # Whatever it is about, as an earlier version wrote it down
    EARLIER_WORDS = "earlier-words"

    # Decided, and why
    CHOSE_LABELS = "chose-labels"
    CHOSE_RECORDS = "chose-records"
    CHOSE_ONE_BATCH = "chose-one-batch"
    CHOSE_FEW_TRAIN = "chose-few-train"
    CHOSE_MANY_TRAIN = "chose-many-train"
    CHOSE_DEGREE = "chose-degree"
    CHOSE_AGREEMENT = "chose-agreement"
    CHOSE_VALIDATION = "chose-validation"

    # Stated beside what is charged
    AT_HAND = "at-hand"


@dataclass(frozen=True)
class Note:
    """One fact worth knowing. `values` hold plain JSON values."""

    code: Code
    values: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return _SENTENCES[self.code].format(**{key: _shown(value) for key, value in self.values.items()})

    def as_dict(self) -> dict[str, Any]:
        """The note as plain JSON values."""
        return {"code": self.code.value, **self.values}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Note:
        """The inverse of `as_dict`."""
        rest = dict(values)
        try:
            return cls(Code(rest.pop("code")), rest)
        except (KeyError, ValueError) as error:
            raise InputError(f"expected a note with a known code; got {values!r}") from error


def read_notes(listed: Iterable[dict[str, Any]]) -> tuple[Note, ...]:
    """Notes from their JSON form, each once."""
    found: list[Note] = []
    for values in listed:
        one = Note.from_dict(values)
        if one not in found:
            found.append(one)
    return tuple(found)


def note(code: Code, **values: Any) -> Note:
    """Shorthand for a note with values."""
    return Note(code, values)


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(str(_shown(one)) for one in value)
    if isinstance(value, dict):  # batches of DP-SGD
        steps = f"{value['steps']:,} step" + "s" * (value["steps"] != 1)
        return f"{value['stage']}: {steps} at {value['rate']:.4g}"
    return f"{value:.4g}" if isinstance(value, float) else value


_SENTENCES = {
    Code.SIZES: "the set of {nodes} nodes, the split ({train} of them for training) and the class names",
    Code.SETTINGS: "all settings, chosen without looking at the private data",
    Code.ALL_OF: "all {part}",
    Code.EDGES_DECLARED: "the number of edges ({edges} entries), as declared; it sets the largest delta allowed",
    Code.EDGES_ASSUMED: (
        "the largest delta allowed is that of {per_node} edges per node; the real number of edges was not looked at"
    ),
    Code.DEGREE_CAP: "the cap on a node's outgoing list: {max_degree} entries",
    Code.DEGREE_BOUND: "the promise that no node has more than {max_degree} neighbors",
    Code.NO_CAP: "no cap on outgoing lists: a node divides its message by the square root of its own list's length",
    Code.BALANCED: "no cap on lists and no promise of a degree: a sender's weights add up to at most {capacity}",
    Code.TRAINING_CAP: "the cap on a node's outgoing list during training: {max_degree} entries",
    Code.RANGE: "the range of the features, [{low}, {high}]; values outside it are clipped on the device",
    Code.RANGE_PER_COLUMN: "the range of each feature; values outside it are clipped on the device",
    Code.RANGE_FROM_DATA: "the range of the features was taken from the data, as publications do: nothing is proved",
    Code.AVERAGE_DEGREE: "the average degree ({degree}), as declared",
    Code.RULE: "the rule that chooses {methods} from these sizes and from what was asked with noise",
    Code.CLASSES_FROM_LABELS: "the number of classes ({classes}), taken from the labels, which are public here",
    Code.DEVICE_TASK: "the collection task {task} and the randomizer it names",
    Code.PUBLIC_RECORDS: "the features of {records} records and the edges between them, declared public knowledge",
    Code.PARTS_OF_CLASSES: "the rule that puts every record, by itself, into one of {parts} parts of its class",
    Code.OWN_MODULES: "the modules of the user ({modules}): their layers and the weights they started from",
    Code.EDGE_TYPES: "the types of edges ({types}); one edge is one edge of one type",
    Code.BATCHES: "the steps of DP-SGD and the rate at which each draws its Poisson batch ({batches})",
    Code.RELATIONS: (
        "the epsilon of each type of edge: {costs}. The largest is promised for one edge of any type; edges of several "
        "types together are not one edge"
    ),
    Code.FEATURES: "features",
    Code.LABELS: "labels",
    Code.EDGES: "the edges",
    Code.NODE_SET: "the set of nodes",
    Code.SPLIT: "the set of nodes and which of them are for training, validation and testing",
    Code.PEOPLE: "the set of people and which of them are for training, validation and testing",
    Code.MANY_EDGES: "many edges of one node together",
    Code.OTHER_LISTS: "entries of other nodes' lists that name the node",
    Code.OWN_PREDICTION: "a prediction about the node itself: it is computed from the node's own record",
    Code.OWN_ROW: "the node's own aggregated row and a prediction about the node itself",
    Code.NUM_RECORDS: "the number of records",
    Code.CLASSES: "the list of classes",
    Code.PARTS: "the rule by which records fall into parts of their class",
    Code.LARGE_DELTA: (
        "one of {units} units, with probability {delta}: delta is that of the publication, which is above 1/{units}"
    ),
    Code.RAW_PREDICTIONS: (
        "predictions: they read the raw records of the nodes around each node; only the model's weights are protected"
    ),
    Code.PUBLIC_EDGES: "{edges} edges (entries) that were declared public: they are released as they are",
    Code.PUBLIC_PART: "edges that were declared public",
    Code.EARLIER_WORDS: "{words} (in the words of an earlier version)",
    Code.CHOSE_LABELS: "{method}: labels are public at edge level, so they are the messages",
    Code.CHOSE_RECORDS: "{method}: a table of records has no edges, so there is nothing to sum",
    Code.CHOSE_ONE_BATCH: (
        "{method}: {train} training nodes of {nodes} at epsilon {epsilon} fit in one batch; with {classes} classes a "
        "linear model learns more than an MLP"
    ),
    Code.CHOSE_FEW_TRAIN: (
        "{method}: {train} training nodes of {nodes} at epsilon {epsilon} are too few for sums of labels to be worth "
        "their noise at any degree"
    ),
    Code.CHOSE_MANY_TRAIN: (
        "{method}: {train} training nodes of {nodes} at epsilon {epsilon} are enough for sums of labels to be worth "
        "their noise at any degree"
    ),
    Code.CHOSE_DEGREE: (
        "{method}: {train} training nodes of {nodes} at epsilon {epsilon}, average degree {degree} ({source}); sums of "
        "labels are worth their noise from {needed} on"
    ),
    Code.CHOSE_AGREEMENT: (
        "{method}: {train} training nodes of {nodes} at epsilon {epsilon}, average degree {degree} ({source}); "
        "neighbors share a label {points} points (noisy) more often than two nodes at random, and sums of labels need "
        "{needed_points}"
    ),
    Code.CHOSE_VALIDATION: "{method}: {ours} on public validation labels, against {other} for {rival}",
    Code.AT_HAND: (
        "the votes of this run cost at most epsilon {epsilon} at delta {delta}, for these data and no others: a noisy "
        "figure, itself private, whose cost is in it. What is charged, and adds up, is {charged}"
    ),
}
