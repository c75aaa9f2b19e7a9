"""Reports: one HTML file that a privacy officer can read, offline, without this package.

`write_report` puts a trained model's certificate, budget, accuracy, attacks and audits on one page; `words` makes the
sentences. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.report.page import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    if name != "write_report":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hushgraph.report.page import write_report

    return write_report
