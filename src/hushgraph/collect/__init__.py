"""Collecting locally private reports: the client on a device, the server, and what an operator does.

`Client`, `Task` and the estimates need numpy and the standard library only. The server (`hushgraph.collect.server`)
needs FastAPI and is never imported from here.
"""

from __future__ import annotations

from hushgraph.collect.client import Client, SendError, Sent, TaskMismatch
from hushgraph.collect.estimate import Estimates, estimate, write_graph
from hushgraph.collect.export import Export, read_export
from hushgraph.collect.task import FeatureQuestion, LabelQuestion, Task

__all__ = [
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
