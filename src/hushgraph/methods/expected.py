"""What a fit will take, from the sizes in its plan: processor time of one thread, and memory.

The figures per edge, node and step were measured by `benchmarks/scale.py` on a machine of two cores (docs/scale.md) and
are good to about a factor of two elsewhere. They are about graphs that were imported, and count what grows with the
graph; a few seconds for loading libraries come on top.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hushgraph.graph.room import BYTES_PER_ENTRY
from hushgraph.privacy.metadata import MANY_ROWS
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units.edge import EDGES_PER_NODE

_START, _IMPORT, _RECOGNIZE, _PER_NODE = 4.0, 50e-9, 25e-9, 1e-6
_SUM, _SUM_COLUMN, _NOISE = 1.5e-9, 0.45e-9, 80e-9
_STEP, _EXAMPLE = 150e-6, 0.2e-6
_PLAIN_ROW, _PLAIN_EPOCHS, _MINIBATCHES = 0.4e-6, 100, 2.0
_BASE, _NODE_BYTES, _HIDDEN = 0.75 * 2**30, 70, 16
_COLUMN_BYTES, _HOP_BYTES = 8, 8


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
    hops = max(count for _, count in parts)
    per_node = 4 * features + _NODE_BYTES + columns * (_COLUMN_BYTES + _HOP_BYTES * max(0, hops - 1))
    nodes = int(_BASE + per_node * metadata.num_nodes)
    return Expected(
        entries,
        metadata.num_edges is None,
        features,
        columns,
        _START + _IMPORT * entries + _PER_NODE * metadata.num_nodes,
        seconds,
        nodes,
        nodes + BYTES_PER_ENTRY * entries,
    )


def _of_stages(plan: Plan, stages: list[Stage]) -> tuple[float, int]:
    """Seconds of all stages, and how many sums are kept at the same time."""
    metadata = plan.metadata
    entries = metadata.num_edges if metadata.num_edges is not None else 2 * EDGES_PER_NODE * metadata.num_nodes
    columns = metadata.num_classes or _HIDDEN
    seconds, sums = 0.0, 0
    for stage in stages:
        if stage.mechanism.trains:
            seconds += stage.count * _training(plan, stage)
        elif "edges" in stage.mechanism.reads:
            values = metadata.num_nodes * columns
            seconds += stage.count * (entries * (_SUM + columns * _SUM_COLUMN) + values * _NOISE)
            sums += stage.count
    return seconds, sums


def _training(plan: Plan, stage: Stage) -> float:
    rows, public = plan.metadata.num_train, stage.mechanism.as_dict()
    if not plan.runs_exactly(stage.name):
        examples = rows * public.get("sample_rate", 1.0)
        return max(1, stage.parallel) * public.get("steps", 1) * (_STEP + examples * _EXAMPLE)
    if rows >= MANY_ROWS:
        return _MINIBATCHES + plan.metadata.num_nodes * _PLAIN_ROW
    return _PLAIN_EPOCHS * rows * _PLAIN_ROW
