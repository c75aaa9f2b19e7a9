"""`plan` and `methods` do not wait for PyTorch, and say the same as if they had."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from commands import run
from hushgraph import registry

_PLAN = ["plan", "gap", "--unit", "undirected-edge", "--nodes", "8000", "--epsilon", "4", "--json"]


def _in_a_process(words: list[str]) -> tuple[str, list[str]]:
    """What a command prints, and which of the heavy libraries it loaded."""
    program = (
        "import sys; from hushgraph.cli import main; sys.argv = ['hushgraph', *sys.argv[1:]]\n"
        "try:\n    main()\nfinally:\n"
        "    print([n for n in ('torch', 'torch_geometric', 'sklearn') if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr.strip().splitlines()


def test_a_plan_is_made_without_torch_and_is_the_same_plan():
    shown, loaded = _in_a_process(_PLAN)
    assert loaded == ["[]"]
    assert json.loads(shown) == json.loads(run(*_PLAN).stdout)


def test_methods_are_listed_without_torch():
    shown, loaded = _in_a_process(["methods"])
    assert loaded == ["[]"]
    assert all(name in shown for name in registry.names("methods"))


def test_a_setting_that_needs_a_layer_loads_it():
    shown, loaded = _in_a_process([*_PLAN, "--set", "combine=sum"])
    assert loaded == ["['torch', 'torch_geometric']"] or loaded == ["['torch']"]
    assert json.loads(shown)["epsilon"] <= 4.0


@pytest.mark.parametrize("name", registry.names("methods"))
def test_every_default_fits_its_own_rule(name):
    kind = registry.load("methods", name)
    for field in dataclasses.fields(kind):
        among = field.metadata.get("rules", {}).get("among")
        assert among is None or field.default is None or field.default in among, field.name
