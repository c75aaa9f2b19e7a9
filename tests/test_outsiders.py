"""A method and a mechanism from outside do all that the project's own do, without touching the project.

tests/outsiders/ holds the two files of CONTRIBUTING.md. The same steps are gone through in this process, and in fresh
ones that know the files by an import or by an entry point.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import hushgraph as hg
from charges import charged_stages
from hushgraph import registry
from hushgraph.audit.run import audit_run, require_consistent
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.mechanisms import Gradient
from hushgraph.mechanisms.view import View
from hushgraph.methods.running import open_vault
from hushgraph.nn import MLP
from hushgraph.privacy.plan import Plan
from hushgraph.testing import Variations
from hushgraph.training.config import Training
from small_graphs import hub_graph, random_graph

ROOT = Path(__file__).resolve().parents[1]
OUTSIDERS = ROOT / "tests" / "outsiders"
EDGE, NODE = hg.units.UndirectedEdge(), hg.units.Node(max_degree=5)
BUDGET = hg.Budget(4.0, 1e-3)
UNITS = [EDGE, hg.units.DirectedEdge(), NODE, hg.units.NodeReplace(max_degree=5), hg.units.BoundedDegreeNode(60)]


@dataclass(frozen=True)
class Outsiders:
    """The classes of the two files, and a method that uses the mechanism."""

    method: Any
    mechanism: Any
    by_degree: Any


@pytest.fixture(scope="module")
def mine() -> Iterator[Outsiders]:
    """The files, imported as an outsider would; what they register is forgotten afterwards."""
    known = {kind: dict(found) for kind, found in registry._KNOWN.items()}
    sys.path.insert(0, str(OUTSIDERS))
    method, mechanism = importlib.import_module("my_method"), importlib.import_module("my_mechanism")
    yield Outsiders(method.NoisySGC, mechanism.NoisyDegrees, by_degree(mechanism.NoisyDegrees))
    sys.path.remove(str(OUTSIDERS))
    for name in ("my_method", "my_mechanism"):
        del sys.modules[name]
    for kind, found in known.items():
        registry._KNOWN[kind].clear()
        registry._KNOWN[kind].update(found)


def by_degree(degrees: Any) -> Any:
    """A method that guesses a node's class from its noisy number of neighbors alone."""

    @hg.register
    @dataclass(frozen=True)
    class ByDegree(hg.Method):
        name = "by-degree"
        summary = "a linear model of noisy degrees"

        def stages(self, metadata: Any, unit: hg.Unit, budget: hg.Budget) -> Sequence[hg.Stage]:
            training = Gradient.of(metadata.num_train, 8, 2, 1.0)
            return [hg.Stage("degrees", degrees()), hg.Stage("classifier", training)]

        def network(self, plan: hg.Plan, generator: torch.Generator) -> nn.Module:
            return MLP(1, 4, plan.metadata.classes, num_layers=1, generator=generator)

        def run(self, vault: Any, network: nn.Module, *, train: bool) -> hg.Output:
            rows = vault.release("degrees").float()
            if train:
                vault.release("classifier", network, rows, Training(2))
            return hg.Output(scores=vault.scores(network, rows))

    return ByDegree


def trained(method: Any, unit: hg.Unit, **options: Any) -> hg.Model:
    graph = random_graph(0, symmetric=not isinstance(unit, hg.units.DirectedEdge))
    model: hg.Model = method.fit(graph, unit, BUDGET, seed=0, **options)
    return model


# In this process


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_method_trains_saves_loads_and_predicts(mine: Outsiders, unit: hg.Unit, tmp_path: Path) -> None:
    ledger, method = hg.Ledger(), mine.method(epochs=2, batch_size=8)
    model = trained(method, unit, ledger=ledger)
    assert 0 < model.certificate.epsilon <= 4.0
    training = [] if "labels" in unit.public else ["classifier"]
    assert charged_stages(ledger) == ["sums", "sums", *training]
    loaded = hg.load(model.save(tmp_path / "model"))
    assert (loaded.method, loaded.plan, loaded.certificate) == (method, model.plan, model.certificate)
    graph = random_graph(0, symmetric=not isinstance(unit, hg.units.DirectedEdge))
    if model.released:
        torch.testing.assert_close(loaded.predict_proba(graph), model.predict_proba(), rtol=0, atol=1e-6)
    other = random_graph(3, num_nodes=30, symmetric=not isinstance(unit, hg.units.DirectedEdge))
    assert loaded.predict_on(other, BUDGET).predict().shape == (30,)


def test_the_registry_lists_both_and_settings_are_checked(mine: Outsiders) -> None:
    assert registry.load("methods", "noisy-sgc") is mine.method
    assert registry.load("mechanisms", "noisy-degrees") is mine.mechanism
    assert "noisy-degrees" not in registry.names("methods")
    assert mine.method.units() == [
        *("undirected-edge", "private-edge", "directed-edge"),
        *("node", "node-replace", "bounded-degree-node"),
    ]
    assert mine.method.from_words({"hops": "3"}) == {"hops": 3}
    with pytest.raises(InputError, match="hops: expected at least 1; got 0"):
        mine.method(hops=0)
    with pytest.raises(UnprovenError, match="neighbor-sum has no proof under the unit 'record'"):
        trained(mine.method(), hg.units.Record())


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("data", [random_graph(1, num_nodes=12, num_edges=30), hub_graph(20)], ids=["random", "hub"])
def test_no_neighbor_moves_the_mechanism_further_than_its_bound(mine: Outsiders, unit: hg.Unit, data: Data) -> None:
    graph, mechanism = check_graph(data), mine.mechanism(cap=4)

    def degrees(of: Any) -> np.ndarray:
        view = View(of, mechanism.reads, unit.cap, None, "degrees")  # type: ignore[arg-type]
        return mechanism.query(view).numpy()

    before = degrees(graph)
    moved = [np.linalg.norm(degrees(of) - before) for of in unit.neighbors(Variations(graph), np.random.default_rng(0))]
    assert 0 < max(moved) <= mechanism.sensitivity(unit) * (1 + 1e-12)


def test_the_mechanism_has_the_law_it_states(mine: Outsiders) -> None:
    """4,000 nodes, fixed seed: the deviation is within 6% (5 standard errors) of the scale; 2/3 and 3/2 are far off."""
    graph = random_graph(0, num_nodes=4_000, num_edges=100)
    model = mine.by_degree().fit(graph, EDGE, hg.Budget(0.5, 1e-5), seed=0)
    (released,) = model.released["degrees"]
    exact = torch.bincount(graph.edge_index[0], minlength=4_000).clamp(max=10)
    spread = float((released.squeeze(1) - exact).double().std())
    scale = model.plan["degrees"].scale or math.nan
    assert spread == pytest.approx(math.sqrt(scale**2 + 1 / 12), rel=0.06)


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_mechanism_is_planned_charged_replayed_and_read_back(mine: Outsiders, unit: hg.Unit, tmp_path: Path) -> None:
    model = trained(mine.by_degree(), unit)
    assert Plan.from_dict(json.loads(json.dumps(model.plan.as_dict()))) == model.plan
    assert model.certificate.charges[0].mechanism == "noisy-degrees"
    loaded = hg.load(model.save(tmp_path / "model"))
    assert torch.equal(loaded.released["degrees"][0], model.released["degrees"][0])
    torch.testing.assert_close(loaded.predict_proba(), model.predict_proba(), rtol=0, atol=1e-6)
    with pytest.raises(UnprovenError, match="noisy-degrees has no proof under the unit 'record'"):
        trained(mine.by_degree(), hg.units.Record())


@pytest.mark.parametrize("unit", [EDGE, hg.units.DirectedEdge()], ids=str)
def test_planted_edges_show_in_the_mechanism_as_far_as_its_price_allows(mine: Outsiders, unit: hg.Unit) -> None:
    """Canary scores of planted and of absent edges are mu apart; 2,000 canaries, fixed seed, 6 standard errors."""
    plan = mine.by_degree().plan(check_graph(random_graph(0)).metadata, unit, BUDGET)
    coins = np.random.default_rng(0).random(2_000) < 0.5

    def open_one(graph: Any, progress: Any = None) -> Any:
        return open_vault(graph, plan, None, 7, progress)[0]

    evidence = plan["degrees"].mechanism.canary(plan["degrees"], unit, coins, open_one, np.random.default_rng(1))
    apart = evidence.normal[coins].mean() - evidence.normal[~coins].mean()
    mu = plan["degrees"].sensitivity(unit) / plan["degrees"].scale
    assert apart == pytest.approx(mu, abs=6 * 2 / math.sqrt(2_000))
    assert mine.mechanism().canary(plan["degrees"], NODE, coins, open_one, np.random.default_rng(1)) is None


# Audits and reports


@pytest.mark.parametrize("unit", [EDGE, NODE], ids=str)
def test_an_audit_plants_canaries_in_both(mine: Outsiders, unit: hg.Unit) -> None:
    for method in (mine.method(epochs=2, batch_size=8), mine.by_degree()):
        result = audit_run(trained(method, unit), canaries=500, seed=0)
        assert result.lower_bound <= 4.0
        require_consistent(result)
        skipped = {one.stage for one in result.skipped}
        assert ("degrees" in skipped) == (method.name == "by-degree" and unit is NODE)


def test_a_report_is_written_of_both(mine: Outsiders, tmp_path: Path) -> None:
    for method in (mine.method(epochs=2, batch_size=8), mine.by_degree()):
        model = trained(method, EDGE)
        model.save(tmp_path / method.name)
        page = Path(model.report(tmp_path / f"{method.name}.html")).read_text()
        assert method.name in page
        assert "undirected-edge" in page


# In a fresh process

LOAD = """
import json, sys
import hushgraph as hg
models = [hg.load(folder) for folder in sys.argv[1:]]
print(json.dumps([[model.method.name, model.predict().tolist()] for model in models]))
"""


def in_a_fresh_process(code: str, folders: list[Path], *places: Path) -> Any:
    path = os.pathsep.join(str(place) for place in (ROOT / "src", *places))
    words = [sys.executable, "-c", code, *map(str, folders)]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)


@pytest.fixture
def saved(mine: Outsiders, tmp_path: Path) -> tuple[list[Path], list[Any]]:
    models = [trained(mine.method(epochs=2, batch_size=8), EDGE)]
    return [models[0].save(tmp_path / "sgc")], [["noisy-sgc", models[0].predict().tolist()]]


def test_a_fresh_process_loads_after_an_import(saved: tuple[list[Path], list[Any]]) -> None:
    folders, expected = saved
    done = in_a_fresh_process(f"import my_method{LOAD}", folders, OUTSIDERS)
    assert json.loads(done.stdout) == expected, done.stderr


def test_a_fresh_process_loads_by_entry_points_alone(saved: tuple[list[Path], list[Any]], tmp_path: Path) -> None:
    folders, expected = saved
    info = tmp_path / "installed" / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    points = "[hushgraph.methods]\nnoisy-sgc = my_method:NoisySGC\n"
    points += "[hushgraph.mechanisms]\nnoisy-degrees = my_mechanism:NoisyDegrees\n"
    (info / "entry_points.txt").write_text(points)
    found = (
        "from hushgraph import registry; assert registry.load('mechanisms', 'noisy-degrees').name == 'noisy-degrees'"
    )
    done = in_a_fresh_process(f"{LOAD}\n{found}", folders, OUTSIDERS, info.parent)
    assert (json.loads(done.stdout), done.returncode) == (expected, 0), done.stderr


def test_a_fresh_process_that_knows_nothing_says_what_is_missing(saved: tuple[list[Path], list[Any]]) -> None:
    done = in_a_fresh_process(LOAD, saved[0])
    assert done.returncode != 0
    assert "the method 'noisy-sgc' of this model is not known here" in done.stderr


# The page


@pytest.mark.parametrize(("name", "most"), [("my_method.py", 60), ("my_mechanism.py", 50)])
def test_the_page_shows_the_files_themselves(name: str, most: int) -> None:
    text = (OUTSIDERS / name).read_text()
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.DOTALL)
    assert text in blocks
    assert len(text.splitlines()) <= most
