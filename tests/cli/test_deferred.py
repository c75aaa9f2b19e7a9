"""`plan` and `methods` do not wait for PyTorch, and say the same as if they had."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys

import pytest

from commands import run
from hushgraph import registry
from hushgraph.cli import deferred

_PLAN = ["plan", "gap", "--unit", "undirected-edge", "--nodes", "8000", "--epsilon", "4", "--json"]


def _in_a_process(words: list[str]) -> tuple[str, list[str]]:
    """What a command prints, and which of the heavy libraries it loaded."""
    program = (
        "import sys; from hushgraph.cli import main; sys.argv = ['hushgraph', *sys.argv[1:]]\n"
        "try:\n    main()\nfinally:\n"
        "    heavy = ('torch', 'torch_geometric', 'sklearn', 'scipy.signal', 'scipy.stats')\n"
        "    print([n for n in heavy if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr.strip().splitlines()


def test_a_plan_is_made_without_torch_and_is_the_same_plan():
    shown, loaded = _in_a_process(_PLAN)
    assert loaded == ["[]"]
    assert json.loads(shown) == json.loads(run(*_PLAN).stdout)


@pytest.mark.parametrize("method", ["auto", "chorus", "dp-appr", "dp-gnn", "dp-mlp", "gap", "progap", "quorum"])
def test_a_plan_for_nodes_imports_what_it_computes_with(method):
    words = ["plan", method, "--unit", "node", "--nodes", "8000", "--epsilon", "4", "--json"]
    shown, loaded = _in_a_process(words)
    assert loaded == ["[]"]
    assert json.loads(shown) == json.loads(run(*words).stdout)


def test_methods_are_listed_without_torch():
    shown, loaded = _in_a_process(["methods"])
    assert loaded == ["[]"]
    assert all(name in shown for name in registry.names("methods"))


def test_the_words_of_a_setting_are_known_without_its_layers():
    shown, loaded = _in_a_process([*_PLAN, "--set", "combine=sum"])
    assert loaded == ["[]"]
    assert json.loads(shown)["epsilon"] <= 4.0


def test_settings_are_shown_without_torch_and_are_the_same():
    program = (
        "import contextlib, io, json, sys\nfrom hushgraph.cli import main\nshown = {}\n"
        "for name in sys.argv[1:]:\n    sys.argv = ['hushgraph', 'methods', name, '--json']\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):\n        main()\n"
        "    shown[name] = json.loads(out.getvalue())\n"
        "print(json.dumps({'torch': 'torch' in sys.modules, **shown}))"
    )
    names = registry.names("methods")
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)
    assert shown.pop("torch") is False
    assert shown == {name: json.loads(run("methods", name, "--json").stdout) for name in names}


@pytest.mark.parametrize("words", [["pate", "--unit", "record"], ["edge-rand", "--unit", "undirected-edge"]])
def test_plans_of_methods_with_other_parts_do_not_wait_either(words):
    shown, loaded = _in_a_process(["plan", *words, "--nodes", "900", "--epsilon", "4", "--json"])
    assert loaded == ["[]"]
    assert json.loads(shown) == json.loads(run("plan", *words, "--nodes", "900", "--epsilon", "4", "--json").stdout)


@pytest.mark.parametrize(
    ("module", "name"), [("hushgraph.nn.layers", "ACTIVATIONS"), ("hushgraph.training.config", "BEST_BY")]
)
def test_words_read_off_the_source_are_those_of_the_module(module, name):
    assert list(deferred._constant_words(module, name)) == list(getattr(importlib.import_module(module), name))
    assert deferred._constant_words(module, "NOTHING") is None


@pytest.mark.parametrize("name", registry.names("methods"))
def test_every_default_fits_its_own_rule(name):
    kind = registry.load("methods", name)
    for field in dataclasses.fields(kind):
        among = field.metadata.get("rules", {}).get("among")
        assert among is None or field.default is None or field.default in among, field.name


@pytest.mark.parametrize(
    "words",
    [
        ["import", "--edges", "none.csv", "--out", "new.graph"],
        ["import", "--edges", "none.csv", "--num-nodes", "5", "--numeric", "age", "--out", "new.graph"],
        ["train", "gap", "--data", "nowhere", "--epsilon", "1", "--out", "new-model"],
        ["train", "gap", "--data", "./nowhere", "--epsilon", "1", "--out", "new-model"],
        ["train", "gap", "--dta", "campus", "--epsilon", "1", "--out", "new-model"],
        ["train", "gapp", "--data", "campus", "--epsilon", "1", "--out", "new-model"],
        ["train", "gap", "--data", "campus", "--epsilon", "one", "--out", "new-model"],
        ["train", "gap", "--data", "campus", "--unit", "noed", "--epsilon", "1", "--out", "new-model"],
        ["release", "arr", "--data", "nowhere", "--epsilon", "1", "--out", "new-graph"],
        ["describe", "nowhere"],
        ["predict", "no-model"],
        ["predict", "no-model", "--on", "campus"],
        ["audit", "no-model"],
        ["report", "no-model"],
        ["attack", "similarity", "no-model", "--data", "campus"],
    ],
    ids=" ".join,
)
def test_a_mistake_in_a_command_does_not_wait_for_torch(words):
    program = (
        "import sys; from hushgraph.cli import main; sys.argv = ['hushgraph', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    print(ended.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"], done.stderr
