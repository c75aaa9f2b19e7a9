from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import hushgraph as hg
from hushgraph import datasets, registry
from hushgraph.attacks.base import Attack
from hushgraph.attacks.catalog import attack_by_name, attack_class, attack_model
from hushgraph.cli.attack import attack
from hushgraph.errors import InputError
from hushgraph.methods.gap import GAP
from hushgraph.methods.plain_gnn import GCN
from hushgraph.privacy.units import UndirectedEdge


def test_attacks_are_found_by_name_and_mistakes_are_named() -> None:
    assert attack_by_name("linkteller", sources=3).name == "LinkTeller"
    with pytest.raises(InputError, match="did you mean 'linkteller'"):
        attack_by_name("linkteler")
    with pytest.raises(InputError, match="unknown setting 'shadows' of PosteriorSimilarity"):
        attack_by_name("similarity", shadows=3)


@pytest.mark.parametrize("name", registry.names("attacks"))
def test_every_attack_is_where_the_catalog_says(name: str) -> None:
    assert issubclass(attack_class(name), Attack)
    assert attack_class(name)().assumes


def test_names_are_had_without_torch_and_nothing_above_attacks_is_imported() -> None:
    light = "import sys, hushgraph.attacks.catalog; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, check=True).stdout == "False\n"
    modules = ", ".join(sorted({attack_class(name).__module__ for name in registry.names("attacks")}))
    all_of_it = f"import sys, {modules}, hushgraph.attacks.images, hushgraph.attacks.targets; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", all_of_it], capture_output=True, text=True, check=True).stdout
    assert not [name for name in loaded.split() if name.startswith(("hushgraph.report", "hushgraph.cli"))]


def test_every_graph_attack_runs_on_a_saved_kind_of_model() -> None:
    data = datasets.load("campus", num_nodes=300)
    gap = GAP(epochs=1).fit(data, UndirectedEdge(), hg.Budget(1.0, 1e-5))
    gcn = GCN(epochs=1).fit(data, UndirectedEdge(), hg.Budget(math.inf, 1e-5))
    small: dict[str, Any] = {"sources": 5, "per_source": 6}
    for name, options in {
        "linkteller": small,
        "similarity": small,
        "degree": {},
        "features": {},
        "attribute": {},
    }.items():
        for model in (gap, gcn):
            found = attack_model(name, model, data, **options)
            assert 0.0 <= found.auc.value <= 1.0
            assert found.as_dict()["note"] == "not private: evaluation"
    assert attack_model("released-rows", gap, data, **small).attack == "released rows"
    assert "again" in attack_model("membership", gap, data, per_class=20, epochs=5).target


def test_the_command_adds_to_one_file_and_replaces_the_same_attack(tmp_path: Path) -> None:
    data = datasets.load("campus")
    folder = GAP(epochs=1).fit(data, UndirectedEdge(), hg.Budget(1.0, 1e-6)).save(tmp_path / "run")
    app = typer.Typer()
    app.command()(attack)
    for name in ("similarity", "degree", "similarity"):
        shown = CliRunner().invoke(app, [name, "--model", str(folder), "--data", "campus", "--json"])
        assert shown.exit_code == 0, shown.output
        assert json.loads(shown.output)["auc"] <= 1.0
        assert json.loads(shown.output)["note"] == "not private: evaluation"
    in_words = CliRunner().invoke(app, ["degree", "--model", str(folder), "--data", "campus"])
    assert "not private: evaluation" in in_words.output
    names = [one["name"] for one in json.loads((folder / "attacks.json").read_text())["attacks"]]
    assert names == ["posterior similarity", "degree inference"]
    for words, problem in (
        (["similarity", "--model", str(folder), "--data", "campus", "--set", "sources"], "KEY=VALUE"),
        (["similarity", "--data", "campus"], "needs MODEL"),
        (["inversion", "--data", "x.npz", "--model", str(folder)], "leave MODEL out"),
        (
            ["similarity", "--model", str(folder), "--data", "digits"],
            "expected the graph that the model was trained on",
        ),
        (
            ["linkteller", "--model", str(folder), "--data", "campus", "--set", "sources=0"],
            "sources: expected at least",
        ),
        (["degree", "--model", str(folder), "--data", "campus", "--set", "known=2"], "known: expected below 1"),
    ):
        refused = CliRunner().invoke(app, words)
        assert refused.exit_code == InputError.exit_code, words
        assert problem in " ".join(refused.output.split())


def test_the_command_inverts_images_and_adds_the_grids(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 255, size=(40, 12, 12)).astype(np.uint8)
    np.savez(tmp_path / "images.npz", x=x, y=np.arange(40) % 2)
    app = typer.Typer()
    app.command()(attack)
    out = tmp_path / "run" / "attacks.json"
    words = ["inversion", "--data", str(tmp_path / "images.npz"), "--classifier", "softmax", "--out", str(out)]
    shown = CliRunner().invoke(app, [*words, "--set", "steps=5"])
    assert shown.exit_code == 0, shown.output
    assert "of 2" in shown.output
    assert "classes 0 to 1" in json.loads(out.read_text())["attacks"][0]["grids"]
