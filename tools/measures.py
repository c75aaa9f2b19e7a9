"""Measures of the source tree, read off its syntax: who imports whom, and habits that are to die out.

`tests/test_architecture.py` holds them to limits; `tools/shape.py` prints them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "hushgraph"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors"}),
    frozenset({"files"}),
    frozenset({"registry", "settings", "text"}),
    frozenset({"executors"}),
    frozenset({"privacy", "noise", "local"}),
    frozenset({"ledger", "graph"}),
    frozenset({"datasets"}),
    frozenset({"importing"}),
    frozenset({"nn"}),
    frozenset({"training"}),
    frozenset({"mechanisms"}),
    frozenset({"vault"}),
    frozenset({"methods"}),
    frozenset({"audit", "attacks", "collect", "testing", "torch", "tracking"}),
    frozenset({"report"}),
    frozenset({"study"}),
    frozenset({"ui"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
"""What may import what: each layer the layers before it, and each package itself."""

UNITS = {"Unit", "DirectedEdge", "UndirectedEdge", "Node", "NodeReplace", "BoundedDegreeNode", "Record", "Local"}
SMALL = 50
_LOOKS_FOR = {"startswith", "endswith", "removeprefix", "partition", "find", "index"}
_LOOKS_FOR |= {"search", "match", "fullmatch", "findall", "finditer", "compile"}


@cache
def files() -> tuple[Path, ...]:
    """All source files."""
    return tuple(sorted(SOURCE.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax of one file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def package(path: Path) -> str:
    """The package of a file, or the module where it stands alone."""
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


@cache
def packages() -> frozenset[str]:
    """All packages and lone modules."""
    return frozenset(package(path) for path in files())


def place(path: Path, node: ast.AST) -> str:
    """Where something was found, as package/file.py:line."""
    return f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"


# Imports


def imports(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Every module that a file imports when it runs, wherever in the file; types alone do not count."""
    skipped = {id(node) for test in ast.walk(tree(path)) if _types_only(test) for node in ast.walk(test)}
    for node in ast.walk(tree(path)):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "hushgraph":
            yield from ((f"hushgraph.{alias.name}", node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node


def _types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def package_imports() -> Iterator[tuple[str, str, str]]:
    """Importing package, imported package, and where; imports inside one package are left out."""
    for path in files():
        if path == SOURCE / "__init__.py":
            continue
        for module, node in imports(path):
            parts = module.split(".")
            if parts[0] == "hushgraph" and len(parts) > 1 and parts[1] in packages() - {package(path)}:
                yield package(path), parts[1], place(path, node)


def level(name: str) -> int | None:
    """The number of a package's layer."""
    return next((number for number, layer in enumerate(LAYERS) if name in layer), None)


def upward_imports() -> list[str]:
    """Imports of a package of the same layer or of one above."""
    found = []
    for own, other, where in package_imports():
        low, high = level(own), level(other)
        if low is None or high is None or high >= low:
            found.append(f"{where} imports {other}")
    return found


def cycles() -> list[list[str]]:
    """Groups of packages that reach each other."""
    edges: dict[str, set[str]] = {}
    for own, other, _ in package_imports():
        edges.setdefault(own, set()).add(other)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            todo.extend(new := edges.get(todo.pop(), set()) - seen)
            seen |= new
        return seen

    reach = {name: reached(name) for name in edges}
    groups = {tuple(sorted(b for b in reach if b in reach[a] and a in reach[b])) for a in edges}
    return sorted(list(group) for group in groups if group)


def third_party(name: str) -> set[str]:
    """Packages outside this project and the standard library that a package imports."""
    import sys

    found = set()
    for path in files():
        if package(path) == name:
            found |= {module.split(".")[0] for module, _ in imports(path)}
    return found - set(sys.stdlib_module_names) - {"hushgraph"}


# Habits


def unit_type_tests() -> list[str]:
    """Questions of what type a unit is, outside the files of units."""
    inside = {SOURCE / "privacy" / "unit.py", SOURCE / "privacy" / "units"}
    outside = [(node, where) for path, node, where in _nodes() if not inside & {path, path.parent}]
    return [where for node, where in outside if _asks_type(node, UNITS, "unit")]


def stage_type_tests() -> list[str]:
    """Questions of what type a stage or its mechanism is, outside the files of mechanisms."""
    names = {"Stage", "Mechanism", *_mechanisms()}
    inside = {"mechanisms"}
    return [w for path, node, w in _nodes() if package(path) not in inside and _asks_type(node, names, "stage")]


def prose_parsers() -> list[str]:
    """Regular expressions and prefixes that look for words of a sentence."""
    skipped = {"datasets", "local", "noise"}  # they read file formats and no sentence
    return [where for path, node, where in _nodes() if package(path) not in skipped and _reads_prose(node)]


def protection_branches() -> list[str]:
    """Branches on whether a run protects anything."""
    return [
        where
        for _, node, where in _nodes()
        if isinstance(node, ast.If | ast.IfExp | ast.While)
        and any(
            isinstance(one, ast.Attribute) and one.attr in ("unprotected", "protects") for one in ast.walk(node.test)
        )
    ]


def small_files() -> list[str]:
    """Files of at most 50 lines, without `__init__.py`."""
    return [
        str(path.relative_to(SOURCE))
        for path in files()
        if path.name != "__init__.py" and len(path.read_text(encoding="utf-8").splitlines()) <= SMALL
    ]


def lines(*names: str) -> int:
    """The number of lines of files or folders of the source tree."""
    paths = [
        path for name in names for path in ([SOURCE / name] if name.endswith(".py") else (SOURCE / name).glob("*.py"))
    ]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _nodes() -> Iterator[tuple[Path, ast.AST, str]]:
    for path in files():
        for node in ast.walk(tree(path)):
            yield path, node, place(path, node)


def _asks_type(node: ast.AST, names: set[str], what: str) -> bool:
    """`isinstance(x, Name)`, or `type(unit)` of something called by what it is; an assertion for a checker counts."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id == "isinstance" and len(node.args) == 2:
        asked = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
        asked |= {one.attr for one in ast.walk(node.args[1]) if isinstance(one, ast.Attribute)}
        return bool(asked & names)
    return node.func.id == "type" and len(node.args) == 1 and ast.unparse(node.args[0]).split(".")[-1] == what


def _mechanisms() -> set[str]:
    found = {"GaussianMechanism", "PureMechanism"}
    for path in files():
        if package(path) == "mechanisms":
            found |= {node.name for node in tree(path).body if isinstance(node, ast.ClassDef) and _is_mechanism(node)}
    return found


def _is_mechanism(node: ast.ClassDef) -> bool:
    bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
    return bool(bases & {"Mechanism", "GaussianMechanism", "PureMechanism", "Gradient"})


def _reads_prose(node: ast.AST) -> bool:
    """A call of `re`, `startswith` and their like with several words to look for."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr not in _LOOKS_FOR:
        return False
    words = [one.value for arg in node.args for one in ast.walk(arg) if isinstance(one, ast.Constant)]
    return any(isinstance(word, str) and " " in word.strip() for word in words)
