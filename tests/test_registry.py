from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.mechanisms import NeighborSum
from hushgraph.methods.mlp import MLP
from hushgraph.privacy.mechanism import mechanism_from_dict
from hushgraph.testing import matrix

KINDS = ("methods", "units", "mechanisms")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """What a test registers is forgotten afterwards."""
    known, read = {kind: dict(found) for kind, found in registry._KNOWN.items()}, set(registry._external)
    yield
    for kind, found in known.items():
        registry._KNOWN[kind].clear()
        registry._KNOWN[kind].update(found)
    registry._external.clear()
    registry._external.update(read)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_registered_exists_and_has_its_own_name(kind: str) -> None:
    names = registry.names(kind)  # type: ignore[arg-type]
    assert names
    for name in names:
        assert registry.load(kind, name).name == name  # type: ignore[arg-type]


def test_unknown_names_are_refused_with_advice() -> None:
    with pytest.raises(InputError, match="unknown method 'gapp'; did you mean 'gap'"):
        registry.load("methods", "gapp")
    with pytest.raises(InputError, match="unknown unit 'nod'; did you mean 'node'"):
        registry.load("units", "nod")


def test_older_names_are_understood() -> None:
    assert registry.load("units", "node-promise").name == "bounded-degree-node"


def test_listing_names_imports_nothing_heavy() -> None:
    code = "import sys; from hushgraph import registry; registry.names('methods'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@dataclass(frozen=True)
class Loud(NeighborSum):
    name = "loud-sum"


def test_a_registered_mechanism_reads_back_and_is_in_the_matrix() -> None:
    assert registry.register(Loud, "mechanisms") is Loud
    assert mechanism_from_dict(Loud(2.0).as_dict()) == Loud(2.0)
    assert {cell.status for cell in matrix() if isinstance(cell.mechanism, Loud)} == {"free", "bounded", "refused"}


def test_register_is_a_decorator_and_refuses_taken_names_and_nameless_classes() -> None:
    @registry.register
    @dataclass(frozen=True)
    class Mine(MLP):
        name = "mine"

    assert registry.load("methods", "mine") is Mine
    assert "mine" in registry.names("methods")
    with pytest.raises(InputError, match="the method 'gap' exists already"):
        registry.register(type("Other", (), {"name": "gap"}))
    with pytest.raises(InputError, match="expected a class with a `name`"):
        registry.register(type("Nameless", (), {}))


def test_a_class_that_is_defined_again_takes_its_own_place() -> None:
    def define() -> type:
        return dataclass(frozen=True)(type("Mine", (MLP,), {"name": "mine", "__module__": "notebook"}))

    first, second = define(), define()
    registry.register(first)
    registry.register(second)
    assert registry.load("methods", "mine") is second


def test_other_packages_add_theirs_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "hushgraph.methods": [
            SimpleNamespace(name="theirs", value="hushgraph.methods.mlp:MLP"),
            SimpleNamespace(name="gap", value="somewhere.else:Gap"),
        ]
    }
    monkeypatch.setattr(registry, "entry_points", lambda group: points.get(group, []))
    registry._external.clear()
    assert "theirs" in registry.names("methods")
    assert registry.load("methods", "theirs") is MLP
    assert registry.load("methods", "gap").__name__ == "GAP"  # a known name is not taken over
