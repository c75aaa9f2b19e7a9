"""Random numbers that protect: one secret key, named streams, exact laws.

Names are loaded when they are first used: the parts without torch stay free of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.noise.discrete import discrete_laplace as discrete_laplace
    from hushgraph.noise.discrete import discrete_laplace_std as discrete_laplace_std
    from hushgraph.noise.normal import grid_of as grid_of
    from hushgraph.noise.normal import perturb as perturb
    from hushgraph.noise.source import NoiseSource as NoiseSource

_HOMES = {
    "NoiseSource": "source",
    "discrete_laplace": "discrete",
    "discrete_laplace_std": "discrete",
    "grid_of": "normal",
    "perturb": "normal",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"hushgraph.noise.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hushgraph.noise' has no attribute '{name}'")
