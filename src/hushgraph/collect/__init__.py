"""Collecting locally private reports: the client on a device, the server, and what an operator does.

`Client`, `Task` and the estimates need numpy and the standard library only; each name is loaded when it is first used,
so that the commands start fast. The server (`hushgraph.collect.server`) needs FastAPI and is never imported from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.collect.client import Client, SendError, Sent, TaskMismatch
    from hushgraph.collect.export import Estimates, Export, estimate, read_export, write_graph
    from hushgraph.collect.task import BinnedQuestion, FeatureQuestion, LabelQuestion, Task

__all__ = [
    "BinnedQuestion",
    "Client",
    "Estimates",
    "Export",
    "FeatureQuestion",
    "LabelQuestion",
    "SendError",
    "Sent",
    "Task",
    "TaskMismatch",
    "estimate",
    "read_export",
    "write_graph",
]

_HOMES = {
    "client": ("Client", "SendError", "Sent", "TaskMismatch"),
    "export": ("Estimates", "Export", "estimate", "read_export", "write_graph"),
    "task": ("BinnedQuestion", "FeatureQuestion", "LabelQuestion", "Task"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            found = getattr(importlib.import_module(f"hushgraph.collect.{home}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
