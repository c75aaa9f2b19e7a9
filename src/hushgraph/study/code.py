"""Which code made a result: a hash of everything that can change one. Commands, pages and tables are left out."""

from __future__ import annotations

import hashlib
import importlib
import sys
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

_SHOWS_ONLY = {"cli", "report", "collect"}
_MAKES_RESULTS = {"cell.py", "lab.py", "metrics.py", "experiments"}
_LIBRARIES = ("torch", "torch_geometric", "numpy", "scipy", "dp-accounting")


def code_version(experiment: str = "fit") -> str:
    """The version of the code that an experiment runs with."""
    return f"{_package()}{_own(experiment)}"


@lru_cache(maxsize=1)
def _package() -> str:
    root = Path(__file__).resolve().parent.parent
    found = hashlib.sha256(" ".join(f"{name}={version(name)}" for name in _LIBRARIES).encode())
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if parts[0] in _SHOWS_ONLY or (parts[0] == "study" and parts[1] not in _MAKES_RESULTS):
            continue
        found.update("/".join(parts).encode() + path.read_bytes())
    return found.hexdigest()[:16]


@lru_cache(maxsize=64)
def _own(experiment: str) -> str:
    """The file of an experiment outside the package."""
    module = experiment.partition(":")[0] if ":" in experiment else ""
    if not module:
        return ""
    importlib.import_module(module)
    file = getattr(sys.modules[module], "__file__", None)
    inside = file is not None and Path(file).resolve().is_relative_to(Path(__file__).resolve().parent.parent)
    return "" if file is None or inside else "-" + hashlib.sha256(Path(file).read_bytes()).hexdigest()[:8]
