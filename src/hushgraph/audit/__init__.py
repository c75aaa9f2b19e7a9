"""Audits: lower bounds on epsilon, measured by planting canaries.

A certificate is an upper bound, proved on paper. An audit runs the same mechanisms on data made for the purpose, tries
to tell planted units from absent ones, and proves a *lower* bound with a stated confidence. A lower bound above the
claim is a contradiction; one below it proves nothing. Audits never touch the real data or its ledger.

Proofs: docs/proofs/audit.md. Entry point: `audit_run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.audit.run import audit_plan, audit_run

__all__ = ["audit_plan", "audit_run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hushgraph.audit import run

    return getattr(run, name)
