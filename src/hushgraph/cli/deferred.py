"""Methods without their layers: `plan` and `methods` read settings and bounds, and should not wait for PyTorch.

    with deferred():
        kind = registry.load("methods", "gap")

Inside, importing one of `HEAVY` gives a module that hands out promises for its names; afterwards no such module is left
where others could find it. A promise that is needed in earnest (called, derived from, looked through) imports what it
stands for. The words of a constant (`ACTIVATIONS = {"relu": ...}`) are read off its source, where they stand as words,
because settings choose among them. Only a process that `main` started does this, and it ends after one command: where
methods may be trained with as well, imports are what they say.
"""

from __future__ import annotations

import ast
import importlib
import sys
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

HEAVY = (
    "dp_accounting.pld",
    "dp_accounting.rdp",
    "hushgraph.graph",
    "hushgraph.ledger",
    "hushgraph.methods.folder",
    "hushgraph.methods.model",
    "hushgraph.methods.running",
    "hushgraph.nn",
    "hushgraph.noise.keys",
    "hushgraph.noise.normal",
    "hushgraph.noise.sampler",
    "hushgraph.noise.source",
    "hushgraph.training",
    "hushgraph.vault",
    "numpy.f2py",
    "safetensors",
    "scipy.optimize",
    "scipy.signal",
    "scipy.sparse",
    "scipy.special",
    "scipy.stats",
    "sklearn",
    "torch",
    "torch_geometric",
)
FROM_ACCOUNTING = ("scipy.optimize", "scipy.signal", "scipy.stats")
"""What `dp_accounting` imports at its top and needs for few distributions: these wait when it is imported as well."""
BESIDE_TENSORS = ("dp_accounting", "hushgraph.ledger", "numpy.f2py", *FROM_ACCOUNTING, "sklearn", "torch_geometric")
"""What a command that reads and writes tensors, and trains nothing, has no use for most of the time."""
LIGHT = ("hushgraph.training.learners",)
"""Modules of heavy packages that define settings alone: they are imported, with promises for what they import."""

_SOURCE = Path(__file__).parents[1]

_one_command = False


def expect_one_command() -> None:
    """This process runs one command and ends: imports may wait."""
    global _one_command
    _one_command = True


@contextmanager
def deferred(names: Sequence[str] = HEAVY) -> Iterator[None]:
    """Imports of heavy modules wait until they are needed; those that are loaded already stay as they are."""
    if not _one_command:
        yield
        return
    with _promises(names):
        yield


@contextmanager
def _promises(names: Sequence[str]) -> Iterator[None]:
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.give_way()


class _Finder:
    """Answers for heavy modules, until one of them is needed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        heavy = any(name == one or name.startswith(f"{one}.") for one in self.names)
        if not heavy or name in LIGHT:
            return None
        spec = ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = [str(_SOURCE.parent.joinpath(*name.split(".")))]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Later(spec.name, self)

    def exec_module(self, module: ModuleType) -> None:
        pass

    def give_way(self) -> None:
        """From now on imports are what they say."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            for name in [name for name, module in sys.modules.items() if isinstance(module, _Later)]:
                parent, _, own = name.rpartition(".")
                if parent in sys.modules:
                    vars(sys.modules[parent]).pop(own, None)
                del sys.modules[name]


class _Later(ModuleType):
    """A module that was not imported: every public name of it is a promise."""

    def __init__(self, name: str, finder: _Finder) -> None:
        super().__init__(name)
        self.finder = finder

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Promise(self.finder, self.__name__, (name,))


_NOT_LOADED = _Later("", _Finder(()))


class _Promise:
    """A name of a module that was not imported."""

    def __init__(self, finder: _Finder, module: str, names: tuple[str, ...]) -> None:
        self._finder, self._module, self._names = finder, module, names

    def _kept(self) -> Any:
        self._finder.give_way()
        with _promises(FROM_ACCOUNTING if self._module.startswith("dp_accounting") else ()):
            found = importlib.import_module(self._module)
        for name in self._names:
            found = getattr(found, name)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if isinstance(sys.modules.get(self._module, _NOT_LOADED), _Later):
            return _Promise(self._finder, self._module, (*self._names, name))
        return getattr(self._kept(), name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._kept()(*given, **named)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._kept(),)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._kept())

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007  # in an annotation

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def _words(self) -> Any:
        """The words of a constant, or what the promise stands for."""
        found = _constant_words(self._module, self._names[0]) if len(self._names) == 1 else None
        return self._kept() if found is None else found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._words())

    def __contains__(self, value: Any) -> bool:
        return value in self._words()

    def __getitem__(self, key: Any) -> Any:
        return self._kept()[key]


def _constant_words(module: str, name: str) -> tuple[str, ...] | None:
    """The entries of a tuple, or the keys of a dictionary, that is written out in a module of hushgraph."""
    path = _SOURCE.parent.joinpath(*module.split(".")).with_suffix(".py")
    if not path.is_file():
        return None
    for line in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        if isinstance(line, ast.Assign | ast.AnnAssign) and name in (getattr(one, "id", None) for one in targets):
            entries = line.value.keys if isinstance(line.value, ast.Dict) else getattr(line.value, "elts", [None])
            words: list[Any] = [getattr(entry, "value", None) for entry in entries]
            return tuple(words) if all(isinstance(word, str) for word in words) else None
    return None
