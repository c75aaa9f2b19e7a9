"""The shape of the source: imports go down only, and habits that were left behind may only become rarer."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import measures

NOT_MOVED_YET: frozenset[str] = frozenset()
"""Packages that still have their older shape; they are left out of the strict rules below."""

MOST = {
    "unit type tests": (measures.unit_type_tests, 0),
    "stage type tests": (measures.stage_type_tests, 0),
    "prose parsers": (measures.prose_parsers, 0),
    "protection branches": (measures.protection_branches, 1),
    "small files": (measures.small_files, 7),
}
"""Counts outside `NOT_MOVED_YET`, which may fall and never rise: lower the number whenever it falls."""


def moved(places: list[str]) -> list[str]:
    return [place for place in places if place.split("/")[0] not in NOT_MOVED_YET]


def test_every_package_has_its_layer() -> None:
    assert [name for name in measures.packages() - {"__init__"} if measures.level(name) is None] == []
    assert measures.packages() >= NOT_MOVED_YET


def test_imports_go_down_only() -> None:
    assert moved(measures.upward_imports()) == []


def test_packages_do_not_import_each_other_in_circles() -> None:
    assert [group for group in measures.cycles() if not set(group) <= NOT_MOVED_YET] == []


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("privacy", {"numpy", "scipy", "dp_accounting", "attr"}),
        ("ledger", {"filelock", "numpy", "cryptography", "platformdirs", "dp_accounting"}),
        ("local", {"numpy"}),
        ("errors", set()),
        ("registry", set()),
        ("settings", set()),
        ("text", set()),
    ],
)
def test_packages_that_others_rest_on_need_little(package: str, allowed: set[str]) -> None:
    assert measures.third_party(package) <= allowed


def test_a_ledger_is_read_without_torch() -> None:
    ledger = ("ledger", "run", "certificate", "verify", "manifest", "statement")
    modules = [*(f"ledger.{name}" for name in ledger), "privacy.plan", "privacy.loss", "local"]
    lines = [f"import hushgraph.{name}" for name in modules]
    code = "; ".join(["import sys", *lines, "print('torch' in sys.modules)"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_ray_is_imported_by_one_file_and_by_no_other_use() -> None:
    files = {str(path.relative_to(measures.SOURCE)) for path in measures.files() if "ray" in _outside(path)}
    assert files == {"executors/ray.py"}
    code = "import sys, hushgraph, hushgraph.study.run; hushgraph.Ray, hushgraph.fit; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def _outside(path: Path) -> set[str]:
    return {module.split(".")[0] for module, _ in measures.imports(path)}


@pytest.mark.parametrize("habit", MOST)
def test_old_habits_only_become_rarer(habit: str) -> None:
    measure, most = MOST[habit]
    found = moved(measure())
    assert len(found) <= most, f"{habit}: at most {most} are left; got {len(found)}: {found}"
    assert len(found) == most, f"{habit}: only {len(found)} are left; lower the number in MOST"


def test_the_measures_see_what_they_look_for() -> None:
    """Each habit in a line of its own is counted, and harmless relatives are not."""

    def counted(line: str) -> set[str]:
        nodes = list(ast.walk(ast.parse(line)))
        found = set()
        if any(measures._asks_type(node, measures.UNITS, "unit") for node in nodes):
            found.add("unit")
        if any(measures._asks_type(node, {"NeighborSum"}, "stage") for node in nodes):
            found.add("stage")
        if any(measures._reads_prose(node) for node in nodes):
            found.add("prose")
        return found

    assert counted("isinstance(unit, units.Node)") == {"unit"}
    assert counted("type(self.unit) is Node") == {"unit"}
    assert counted("assert isinstance(stage.mechanism, (NeighborSum, int))") == {"stage"}
    assert counted("line.startswith('noise std')") == {"prose"}
    assert counted("re.compile(r'(.+): sensitivity (.*)')") == {"prose"}
    assert counted("name.startswith('weights/'); isinstance(x, int); type(value); re.compile('[a-z]+')") == set()
