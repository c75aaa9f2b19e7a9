"""One person's report on the wire: drawing it, writing it down, and checking one that arrived.

The body is JSON: `report_id` (16 random bytes, hex), `node_token`, `task_hash`, `x` and `y`. For multi-bit features `x`
is a list of [feature number, bit] pairs; for one-bit features the packed bits in hex; for binned ones a byte each.
`y` is a class number, or the bits of a unary code, or null. `payload` is the canonical form of x and y,
which is all that the server stores.

The checks accept exactly the reports the mechanism can produce: nothing else is ever stored.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgraph.collect.task import BinnedQuestion, FeatureQuestion, LabelQuestion, Task
from hushgraph.errors import InputError
from hushgraph.local import FeatureRR, MultiBit, Randomness, pack_bits

_REPORT_ID = re.compile(r"[0-9a-f]{32}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_KEYS = frozenset({"report_id", "node_token", "task_hash", "x", "y"})


class ReportError(InputError):
    """A report that no honest client sends; `reason` is safe to show (it never repeats what was sent)."""


@dataclass(frozen=True)
class Report:
    """A checked report, ready to be stored."""

    report_id: bytes
    node_token: str
    payload: bytes


def draw_payload(task: Task, features: Any, label: int | None, rng: Randomness | None = None) -> dict[str, Any]:
    """Draw the random answers of one person: the only place where private values meet the mechanisms."""
    answer: dict[str, Any] = {"x": None, "y": None}
    if task.features is not None:
        answer["x"] = _draw_features(task.features, features, rng)
    if task.labels is not None and label is not None:
        drawn = task.labels.build().perturb(np.asarray(label), rng)
        answer["y"] = int(drawn) if drawn.ndim == 0 else [int(bit) for bit in drawn]
    return answer


def _draw_features(question: FeatureQuestion | BinnedQuestion, features: Any, rng: Randomness | None) -> Any:
    mechanism = question.build()
    if isinstance(mechanism, MultiBit):
        drawn = mechanism.perturb(features, rng)
        bits = (drawn.value[0] > 0).astype(int)
        return [[int(index), int(bit)] for index, bit in zip(drawn.index[0], bits)]
    if isinstance(mechanism, FeatureRR):
        return mechanism.perturb(features, rng).tobytes().hex()
    return pack_bits(mechanism.perturb(features, rng)).tobytes().hex()


def encode_payload(x: Any, y: Any) -> bytes:
    """Canonical bytes of an answer."""
    return json.dumps({"x": x, "y": y}, separators=(",", ":"), sort_keys=True).encode("ascii")


def parse_body(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`; duplicate names, NaN, deep nesting and anything else odd are refused."""
    try:
        parsed = json.loads(body.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    except (ValueError, RecursionError) as error:
        raise ReportError("expected one JSON object; got something else; send what the client wrote") from error
    if not isinstance(parsed, dict) or parsed.keys() != _KEYS:
        raise ReportError(f"expected exactly the entries {sorted(_KEYS)}; got others; update the client")
    return parsed


def check_report(task: Task, parsed: dict[str, Any]) -> Report:
    """Accept exactly what the task's mechanisms can produce."""
    report_id, token = parsed["report_id"], parsed["node_token"]
    if not (isinstance(report_id, str) and _REPORT_ID.fullmatch(report_id)):
        raise ReportError("expected report_id as 32 hex digits; got something else; update the client")
    if not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        raise ReportError("expected a node token of 43 characters; got something else; ask the operator for one")
    if parsed["task_hash"] != task.sha256:
        raise ReportError("expected the hash of this task; got another; fetch the task and agree to it again")
    _check_features(task.features, parsed["x"])
    _check_label(task.labels, parsed["y"])
    return Report(bytes.fromhex(report_id), token, encode_payload(parsed["x"], parsed["y"]))


def _check_features(question: FeatureQuestion | BinnedQuestion | None, x: Any) -> None:
    if question is None:
        _require(x is None, "x to be null: this task asks for no features")
    elif isinstance(question, BinnedQuestion):
        _require(_is_hex(x, question.dimensions), f"x as {question.dimensions} bytes in hex")
        _require(max(bytes.fromhex(x)) < question.bins, "bins of this task")
    elif question.mechanism == "one_bit":
        width = (question.dimensions + 7) // 8
        _require(_is_hex(x, width), f"x as {width} bytes in hex")
        padding = 8 * width - question.dimensions
        _require(bytes.fromhex(x)[-1] & ((1 << padding) - 1) == 0, "zero padding after the last feature")
    else:
        _require(isinstance(x, list) and len(x) == question.sampled, f"x as {question.sampled} pairs")
        _require(all(isinstance(pair, list) and len(pair) == 2 for pair in x), "pairs of feature number and bit")
        _require(all(_is_integer(i) and _is_integer(b) and b in (0, 1) for i, b in x), "whole numbers and bits")
        numbers = [pair[0] for pair in x]
        _require(all(0 <= i < question.dimensions for i in numbers), "feature numbers of this task")
        _require(all(a < b for a, b in itertools.pairwise(numbers)), "sorted, different feature numbers")


def _check_label(question: LabelQuestion | None, y: Any) -> None:
    if question is None or (question.optional and y is None):
        _require(y is None, "y to be null: this task asks for no label")
    elif question.mechanism == "randomized_response":
        _require(_is_integer(y) and 0 <= y < len(question.classes), f"y in 0..{len(question.classes) - 1}")
    else:
        right_length = isinstance(y, list) and len(y) == len(question.classes)
        _require(right_length and all(_is_integer(bit) and bit in (0, 1) for bit in y), "y as one bit per class")


def _require(condition: bool, expected: str) -> None:
    if not condition:
        raise ReportError(f"expected {expected}; got something else; update the client")


def _is_hex(value: Any, width: int) -> bool:
    return isinstance(value, str) and len(value) == 2 * width and _HEX.fullmatch(value) is not None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _no_constants(name: str) -> None:
    raise ValueError("not a JSON number")
