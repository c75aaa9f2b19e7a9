"""Pages of the Python interface: every public name, by the part of the library it belongs to."""

from __future__ import annotations

import hushgraph
from docsite.markdown import table

GROUPS = {
    "training": ("Train, load, predict", ["Budget", "fit", "fit_best", "load", "Model", "Certificate", "track"]),
    "methods": ("Methods", ["Method", "Output"]),
    "data": ("Graphs and datasets", ["Graph", "DiskEdges", "datasets"]),
    "units": ("Units", ["units"]),
    "ledger": ("Ledger", ["Ledger", "default_ledger"]),
    "release": ("Released graphs", ["release_graph", "ReleasedGraph", "HeteroRR"]),
    "mechanisms": ("Plans and mechanisms", ["Plan", "Stage", "Mechanism", "Unit", "register", "mechanisms"]),
    "local": ("Local privacy", ["local", "FeatureScores", "feature_scores"]),
    "study": ("Studies", ["study"]),
    "testing": ("Testing mechanisms of your own", ["testing"]),
    "torch": ("A private loop of your own", ["torch"]),
}
"""A page: its title, and its names. Names of methods that stand nowhere belong to "methods", others to "training"."""


def names() -> list[str]:
    """The pages."""
    return list(GROUPS)


def listed(group: str) -> list[str]:
    """The names of one page."""
    named = {name for _, some in GROUPS.values() for name in some} | {"__version__"}
    rest = [name for name in hushgraph.__all__ if name not in named]
    own = {"methods": [name for name in rest if _place(name).startswith("hushgraph.methods.")]}
    own["training"] = [name for name in rest if name not in own["methods"]]
    return [*GROUPS[group][1], *own.get(group, [])]


def index() -> str:
    """What is where."""
    rows = [
        [f"[{title}]({group}.md)", ", ".join(f"`{name}`" for name in listed(group))]
        for group, (title, _) in GROUPS.items()
    ]
    words = "Everything public is a name of `hushgraph`; modules are loaded when they are first used.\n\n"
    return f"# Python\n\n{words}```python\nimport hushgraph as hg\n```\n\n{table(['', 'names'], rows)}"


def page(group: str) -> str:
    """The docstrings of one page."""
    parts = [f"::: {_place(name)}" + _options(name) for name in listed(group)]
    return f"# {GROUPS[group][0]}\n\n" + "\n\n".join(parts) + "\n"


def _place(name: str) -> str:
    """Where a name is defined."""
    if name in hushgraph._PLACES:
        return f"hushgraph.{hushgraph._PLACES[name]}.{name}"
    return f"hushgraph.{hushgraph._MODULES.get(name, name)}"


def _options(name: str) -> str:
    """A method's own settings are on its page: here its docstring suffices."""
    if name in GROUPS["methods"][1] or not _place(name).startswith("hushgraph.methods."):
        return ""
    return "\n    options:\n      members: false" if name in listed("methods") else ""
