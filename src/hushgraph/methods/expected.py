"""What a fit will take, from the sizes in its plan: processor time of one thread, and memory.

The figures per edge, node and step were measured by `benchmarks/scale.py` on a machine of two cores (docs/scale.md) and
are good to about a factor of two elsewhere. They are about graphs that were imported, and count what grows with the
graph; a few seconds for loading libraries come on top.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hushgraph.privacy.metadata import MANY_ROWS
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units.edge import EDGES_PER_NODE

_START, _IMPORT, _RECOGNIZE, _PER_NODE = 4.0, 50e-9, 25e-9, 1e-6
_SUM, _SUM_COLUMN, _NOISE = 1.5e-9, 0.45e-9, 80e-9
_STEP, _EXAMPLE = 300e-6, 0.2e-6
_PLAIN_ROW, _PLAIN_EPOCHS, _MINIBATCHES = 0.4e-6, 100, 2.0
_BASE, _NODE_BYTES, _HIDDEN, _ENTRY_BYTES = 0.75 * 2**30, 70, 16, 16
_COLUMN_BYTES, _ROWS, _ROW_BYTES, _ROW_HOP_BYTES = 8, "neighbor-sum", 40, 4
_CODES, _MODELS_OF_FEATURES, _ANSWER, _ANSWER_PAIR, _ANSWER_BYTES = "coded-sum", 5, 0.18e-6, 0.045e-6, 16


@dataclass(frozen=True)
class Expected:
    """Seconds of one thread and bytes at the peak; `entries` and `columns` are what was declared, or assumed."""

    entries: int
    entries_assumed: bool
    features: int
    columns: int
    import_seconds: float
    fit_seconds: float
    bytes_on_disk: int
    bytes_in_memory: int

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
        return asdict(self)


def expected(plan: Plan) -> Expected:
    """What importing the graph and fitting by `plan` will take; of a plan that chooses, its costliest branch."""
    parts = [_of_stages(plan, list(plan)), *(_of_stages(branch, list(branch)) for branch in plan.branches)]
    metadata = plan.metadata
    entries = metadata.num_edges if metadata.num_edges is not None else 2 * EDGES_PER_NODE * metadata.num_nodes
    features, columns = metadata.num_features or _HIDDEN, metadata.num_classes or _HIDDEN
    seconds = _START + _RECOGNIZE * entries + _PER_NODE * metadata.num_nodes + max(used for used, _ in parts)
    sums = max(columns * _COLUMN_BYTES, *(kept for _, kept in parts))
    per_node = 4 * features + _NODE_BYTES + sums
    nodes = int(_BASE + per_node * metadata.num_nodes)
    return Expected(
        entries,
        metadata.num_edges is None,
        features,
        columns,
        _START + _IMPORT * entries + _PER_NODE * metadata.num_nodes,
        seconds,
        nodes,
        nodes + _ENTRY_BYTES * entries,
    )


def _of_stages(plan: Plan, stages: list[Stage]) -> tuple[float, int]:
    """Seconds of all stages, and the bytes of a node for the sums that are kept at the same time."""
    metadata = plan.metadata
    entries = metadata.num_edges if metadata.num_edges is not None else 2 * EDGES_PER_NODE * metadata.num_nodes
    columns = metadata.num_classes or _HIDDEN
    models = _MODELS_OF_FEATURES if any(stage.mechanism.name == _CODES for stage in stages) else 1
    seconds, kept = 0.0, 0
    for stage in stages:
        if stage.mechanism.trains:
            seconds += stage.count * models * _training(plan, stage)
            models = 1  # of those beside codes, the first one is of features
        elif "edges" in stage.mechanism.reads:
            values = metadata.num_nodes * columns
            seconds += stage.count * (entries * (_SUM + columns * _SUM_COLUMN) + values * _NOISE)
            if stage.mechanism.name == _CODES:
                seconds += (
                    stage.count * values * (_ANSWER + columns * _ANSWER_PAIR)
                )  # every pair of classes is compared
            kept += _kept(stage, columns)
    return seconds, kept


def _kept(stage: Stage, columns: int) -> int:
    """Bytes of a node for the sums of a stage, and for what they are made of while they are made."""
    if stage.mechanism.name == _ROWS:
        return _HIDDEN * (_ROW_BYTES + _ROW_HOP_BYTES * stage.count)
    if stage.mechanism.name == _CODES:
        return columns * _ANSWER_BYTES * stage.count
    return columns * _COLUMN_BYTES * stage.count


def _training(plan: Plan, stage: Stage) -> float:
    rows, public = plan.metadata.num_train, stage.mechanism.as_dict()
    if not plan.runs_exactly(stage.name):
        examples = rows * public.get("sample_rate", 1.0)
        return max(1, stage.parallel) * public.get("steps", 1) * (_STEP + examples * _EXAMPLE)
    if rows >= MANY_ROWS:
        return _MINIBATCHES + plan.metadata.num_nodes * _PLAIN_ROW
    return _PLAIN_EPOCHS * rows * _PLAIN_ROW
