"""Attacks: what an adversary learns from a trained model, in practice.

Every attack has one method, `run(target, data)`, that returns scores with the truth; `analysis` turns those into a ROC
curve and its figures, the same for all. What each attack assumes, and what it does not show when it fails, is in
docs/threats.md. Names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.attacks.analysis import Analysis, analyze
    from hushgraph.attacks.base import Attack, AttackScores, Target
    from hushgraph.attacks.links import LinkTeller, PosteriorSimilarity, ReleasedRows
    from hushgraph.attacks.membership import Lira, ShadowMembership
    from hushgraph.attacks.targets import target_of

_HOME = {
    "Analysis": "analysis",
    "Attack": "base",
    "AttackScores": "base",
    "LinkTeller": "links",
    "Lira": "membership",
    "PosteriorSimilarity": "links",
    "ReleasedRows": "links",
    "ShadowMembership": "membership",
    "Target": "base",
    "analyze": "analysis",
    "target_of": "targets",
}
__all__ = [
    "Analysis",
    "Attack",
    "AttackScores",
    "LinkTeller",
    "Lira",
    "PosteriorSimilarity",
    "ReleasedRows",
    "ShadowMembership",
    "Target",
    "analyze",
    "target_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
