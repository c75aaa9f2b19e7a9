"""What nothing leads to: modules that no command and no public name imports, and definitions that nothing names.

Reading the syntax cannot tell what runs; it can tell what certainly does not. A definition counts as named when its
name occurs anywhere else in the sources (or in a string of the registry), so what is listed is dead, and more may be.
"""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path

from measures import SOURCE, files, imports, package, tree

ROOTS = ("__init__", "__main__", "registry", "cli.__init__")
"""Where commands (also as `python -m hushgraph`) and public names start."""
COMMANDS = ("main", "_repr_html_", "set_params", "make_private_with_epsilon", "create_module", "exec_module")
"""Named in pyproject.toml, called by notebooks, by scikit-learn and by importlib, and what `hushgraph.torch` is for."""


def unreachable_lines() -> dict[str, int]:
    """Lines of dead modules and of dead definitions in the others, by place."""
    reached = _reached()
    found = {}
    names = _names()
    for path in files():
        if _module(path) not in reached:
            found[str(path.relative_to(SOURCE))] = len(path.read_text(encoding="utf-8").splitlines())
            continue
        for node in _definitions(path):
            if names[node.name] <= 1 and node.name not in COMMANDS and not _called_by_others(path, node):
                place = f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
                found[place] = (node.end_lineno or node.lineno) - node.lineno + 1
    return found


def _module(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def _reached() -> set[str]:
    known = {_module(path): path for path in files()}
    seen: set[str] = set()
    todo = list(ROOTS)
    while todo:
        name = todo.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        todo += [f"{name.rsplit('.', 1)[0]}.__init__"] if "." in name else []
        todo += _targets(known[name], set(known))
    return seen


def _targets(path: Path, known: set[str]) -> list[str]:
    """Modules that a file imports, or names in a string such as "hushgraph.methods.gap:GAP" or "methods.gap".

    A package that goes through its own modules leads to all of them.
    """
    strings = [node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)]
    words = [word for word in strings if isinstance(word, str)]
    prefixes = [word for word in words if word.startswith("hushgraph.") and word.endswith((".", ":"))]
    places = [module for module, _ in imports(path)]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            places += [f"{node.module}.{alias.name}" for alias in node.names]
    places += [word.split(":")[0] for word in words]
    places += [(prefix + word).split(":")[0] for prefix in prefixes for word in words]
    places += [f"{package(path)}.{word}" for word in words]
    if any(isinstance(node, ast.Attribute) and node.attr == "iter_modules" for node in ast.walk(tree(path))):
        folder = _module(path).removesuffix("__init__")
        places += [name for name in known if name.startswith(folder)]
    bare = {place.removeprefix("hushgraph.") for place in places}
    return [name for one in bare for name in (one, f"{one}.__init__") if name in known]


def _definitions(path: Path) -> list[ast.FunctionDef | ast.ClassDef]:
    """Top-level functions and classes and the methods of classes; decorated ones are found by their decorator."""
    found: list[ast.FunctionDef | ast.ClassDef] = []
    for node in tree(path).body:
        inside = node.body if isinstance(node, ast.ClassDef) else []
        found += [one for one in (node, *inside) if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    return [node for node in found if not _found_otherwise(node)]


def _found_otherwise(node: ast.FunctionDef | ast.ClassDef) -> bool:
    kept = {"property", "classmethod", "staticmethod", "cached_property", "dataclass"}
    decorators = {ast.unparse(one).split("(")[0].split(".")[-1] for one in node.decorator_list}
    return bool(decorators - kept) or (node.name.startswith("__") and node.name.endswith("__"))


def _called_by_others(path: Path, node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether a method takes the place of one of another package's class, which calls it (`nn.Module.extra_repr`)."""
    owners = [one for one in tree(path).body if isinstance(one, ast.ClassDef) and node in one.body]
    if not owners:
        return False
    owner = getattr(importlib.import_module(f"hushgraph.{_module(path)}"), owners[0].name)
    bases = [base for base in owner.__mro__ if not base.__module__.startswith("hushgraph")]
    return any(node.name in vars(base) for base in bases)


def _names() -> Counter[str]:
    """How often every identifier occurs, definitions included; the words of registry and `__all__` count too."""
    found: Counter[str] = Counter()
    for path in files():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Name):
                found[node.id] += 1
            elif isinstance(node, ast.Attribute):
                found[node.attr] += 1
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] += 1
            elif isinstance(node, ast.alias):
                found[node.name.split(".")[-1]] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 80:
                found.update(word for word in node.value.replace(":", " ").split())
    return found
