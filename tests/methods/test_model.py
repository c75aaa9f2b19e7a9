from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch_geometric.data import Data

from charges import charged_stages
from hushgraph.errors import ContradictionError, InputError, LedgerError
from hushgraph.ledger.checking import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import verify_model
from hushgraph.methods.auto import Auto
from hushgraph.methods.base import Method
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.dpgnn import DPGNN
from hushgraph.methods.gap import GAP
from hushgraph.methods.lpgnn import LPGNN
from hushgraph.methods.mlp import DPMLP, MLP
from hushgraph.methods.model import Model, load
from hushgraph.methods.pgc import PGC, PGCLinks
from hushgraph.methods.progap import ProGAP
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from small_graphs import random_graph

EDGE, DIRECTED, LOCAL = units.UndirectedEdge(), units.DirectedEdge(), units.Local()
NODE, REPLACE, BOUNDED = units.Node(max_degree=5), units.NodeReplace(max_degree=5), units.BoundedDegreeNode(60)
BUDGET = Budget(4.0, 1e-3)
RANGE: dict[str, Any] = {"low": -1.0, "high": 1.0}
GAP_ = GAP(hidden_channels=4, epochs=2, batch_size=8)
PROGAP = ProGAP(hidden_channels=4, epochs=2, batch_size=8)
CHORUS = Chorus(hops=2, epochs=2, batch_size=8)
READERS = Chorus(hops=2, epochs=2, batch_size=8, train_fraction=0.5)
ROOTED = DPGNN(hidden_channels=4, epochs=1, batch_size=8, num_layers=2, max_degree=2)
NOISY = DPGNN(hidden_channels=4, epochs=1, batch_size=8, num_layers=2, max_degree=2, inference="noisy")
DP_MLP = DPMLP(epochs=1, batch_size=8)
REPORTS = LPGNN(**RANGE, epochs=2, label_steps=2)
BITS = PGC(**RANGE, epochs=2)

CASES: list[tuple[Method, units.Unit]] = [
    *[(method, unit) for method in (GAP_, PROGAP, CHORUS) for unit in (EDGE, DIRECTED, NODE, REPLACE)],
    *[(READERS, unit) for unit in (NODE, REPLACE)],
    *[(method, unit) for method in (ROOTED, NOISY) for unit in (NODE, REPLACE)],
    *[(DP_MLP, unit) for unit in (NODE, REPLACE, BOUNDED, units.Record())],
    (MLP(epochs=2), EDGE),
    (REPORTS, LOCAL),
    (REPORTS, units.Local(private_labels=False)),
    (BITS, units.Local(private_labels=False)),
    (Auto(), EDGE),
    (Auto(), NODE),
]
IDS = [f"{method.name}-{unit}-{number}" for number, (method, unit) in enumerate(CASES)]


def graph_for(unit: units.Unit) -> Data:
    return random_graph(2, symmetric=unit is not DIRECTED)


@pytest.fixture(scope="module")
def gap() -> Model:
    return GAP_.fit(random_graph(2), EDGE, BUDGET, seed=1, ledger=Ledger.in_memory(warn=False))


@pytest.fixture
def folder(gap: Model, tmp_path: Path) -> Path:
    return gap.save(tmp_path / "model")


# What was released is replayed


@pytest.mark.parametrize(("method", "unit"), CASES, ids=IDS)
def test_a_replay_gives_the_scores_of_the_run_before_and_after_saving(
    method: Method, unit: units.Unit, tmp_path: Path
) -> None:
    graph = graph_for(unit)
    model = method.fit(graph, unit, BUDGET, seed=1)
    loaded = load(model.save(tmp_path / "model"))
    for found in (model, loaded):
        torch.testing.assert_close(found.predict_proba(graph), model.predict_proba(), rtol=0, atol=1e-6)


def test_a_replay_costs_nothing_and_releases_nothing_new(gap: Model) -> None:
    graph, ledger = random_graph(2), Ledger()
    model = GAP_.fit(graph, EDGE, BUDGET, seed=1, ledger=ledger)
    before = len(ledger.history().entries), {name: len(values) for name, values in model.released.items()}
    for _ in range(3):
        model.predict(graph)
    assert (len(ledger.history().entries), {name: len(v) for name, v in model.released.items()}) == before


def test_what_is_part_of_each_record_cannot_be_replayed() -> None:
    graph = random_graph(2)
    model = GAP_.fit(graph, BOUNDED, BUDGET, seed=1)
    assert model.released == {}
    with pytest.raises(InputError, match=r"part of each node's own record.*use predict_on"):
        model.predict(graph)
    assert model.predict().shape == (40,)  # the holder has the predictions of the run itself


def test_graphs_that_cannot_be_the_training_graph_are_refused(gap: Model) -> None:
    with pytest.raises(InputError, match=r"expected the training graph .40 nodes.; got one with 50"):
        gap.predict(random_graph(2, num_nodes=50))
    with pytest.raises(InputError, match=r"expected 5 features, as in training; got 9\. Give a graph"):
        gap.predict(random_graph(2, num_features=9))
    with pytest.raises(InputError, match=r"expected the features of the training graph; got others.*use predict_on"):
        gap.predict(random_graph(9))
    with pytest.raises(InputError, match="gap does not predict links"):
        gap.link_scores(torch.tensor([[0], [1]]))


# Another graph


@pytest.mark.parametrize(("method", "unit"), CASES, ids=IDS)
def test_predictions_about_another_graph_are_charged_to_its_own_ledger(method: Method, unit: units.Unit) -> None:
    model = method.fit(graph_for(unit), unit, BUDGET, seed=1)
    other, ledger = random_graph(3, num_nodes=50, symmetric=unit is not DIRECTED), Ledger()
    fresh = model.predict_on(other, Budget(2.0, 1e-4), ledger=ledger, seed=1)
    assert fresh.predict().shape == (50,)
    assert fresh.certificate.epsilon <= 2.0
    assert fresh.certificate.method == f"{model.method.name}-inference"
    trained = {stage.name for stage in model.plan if stage.mechanism.trains}
    assert set(charged_stages(ledger)) == {s.name for s in fresh.plan if s.name in fresh.released} - trained
    for name, value in fresh.network.state_dict().items():
        assert torch.equal(value, model.network.state_dict()[name])  # nothing was trained


def test_a_model_of_another_graph_is_saved_with_the_plan_it_was_trained_under(tmp_path: Path) -> None:
    """At node level the training decides what the network looks like, and inference has no training stage."""
    for unit in (EDGE, NODE):
        model, other = GAP_.fit(random_graph(2), unit, BUDGET, seed=1), random_graph(3, num_nodes=50)
        fresh = load(model.save(tmp_path / unit.name)).predict_on(other, BUDGET, seed=2)
        assert fresh.trained == model.plan
        again = load(fresh.save(tmp_path / f"{unit.name}-other"))
        assert again.trained == model.plan
        assert torch.equal(again.predict_proba(other), fresh.predict_proba(other))
        assert again.predict_on(random_graph(4), BUDGET).trained == model.plan


# The folder


def test_what_is_read_is_what_was_written(gap: Model, folder: Path) -> None:
    loaded = load(folder)
    for part in ("method", "plan", "run_plan", "certificate", "metrics", "settings", "reason", "class_names"):
        assert getattr(loaded, part) == getattr(gap, part), part
    assert {name: nodes.tolist() for name, nodes in loaded.nodes.items()} == {
        name: nodes.tolist() for name, nodes in gap.nodes.items()
    }
    assert loaded.seconds == pytest.approx(gap.seconds)
    assert loaded.get_epsilon(1e-6) == gap.get_epsilon(1e-6) > gap.get_epsilon(1e-3) == gap.certificate.epsilon


def test_a_folder_holds_json_and_tensors_that_only_its_owner_can_read(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        model = GAP_.fit(random_graph(2), EDGE, BUDGET, ledger=Ledger(tmp_path / "ledger"))
        target = model.save(tmp_path / "new" / "model")
        (target / "config.json").chmod(0o644)
        model.save(target)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in target.iterdir()}
    own = ("certificate.json", "config.json", "metrics.json", "model.safetensors")
    assert modes == dict.fromkeys((*own, "ledger_head.json", "manifest.json"), 0o600)


def test_nothing_of_a_nodes_own_record_is_written_at_node_level(tmp_path: Path) -> None:
    """Neither features nor rows computed from them, nor predictions about single nodes, nor labels, nor edges."""
    graph = random_graph(2)
    for method in (GAP_, PROGAP, READERS, DP_MLP, ROOTED, NOISY):
        for unit in (NODE, REPLACE):
            model = method.fit(graph, unit, BUDGET, seed=1)
            assert model.scores is not None
            assert model.scores_are_private
            tensors = load_file(model.save(tmp_path / f"{method.name}-{unit}") / "model.safetensors")
            released = {name for name in tensors if name.startswith("released/")}
            assert not any(name.startswith("kept/") for name in tensors)
            about_nodes = {name for name, value in tensors.items() if value.dim() > 1 and len(value) == 40}
            assert about_nodes - {name for name in tensors if name.startswith("weights/")} <= released
            # Every matrix about nodes was released by a stage that was charged.
            charged = {charge.stage for charge in model.certificate.charges}
            assert {name.split("/")[1] for name in released} <= charged
            for private in (graph.x, model.scores, model.scores.softmax(dim=1)):
                assert not any(
                    value.shape == private.shape and torch.allclose(value, private) for value in tensors.values()
                )


def test_what_follows_from_public_values_is_kept(gap: Model, folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    assert torch.equal(tensors["kept/scores"], gap.scores)
    assert {name.split("/")[0] for name in tensors} == {"weights", "released", "kept", "nodes"}
    reports = REPORTS.fit(random_graph(2), LOCAL, BUDGET, seed=1)
    assert not reports.scores_are_private  # all of it follows from reports


def test_under_a_promised_degree_no_row_of_a_single_node_is_written(tmp_path: Path) -> None:
    for method in (GAP_, PROGAP, CHORUS):
        model = method.fit(random_graph(2), BOUNDED, BUDGET, seed=1)
        tensors = load_file(model.save(tmp_path / method.name) / "model.safetensors")
        assert {name.split("/")[0] for name in tensors} == {"weights", "nodes"}
        with pytest.raises(InputError, match="predict_on"):
            load(tmp_path / method.name).predict()


def test_links_are_predicted_after_loading(tmp_path: Path) -> None:
    model = PGCLinks(**RANGE, feature_epsilon=0.5).fit(random_graph(2), None, BUDGET, seed=1)
    loaded, pairs = load(model.save(tmp_path / "model")), torch.tensor([[0, 1, 2], [3, 4, 5]])
    assert torch.equal(loaded.link_scores(pairs), model.link_scores(pairs))


# What is refused


def test_a_folder_of_another_format_is_refused_with_the_command_that_trains_again(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "manifest.json").unlink()
    for known in ({**config, "format": 1}, {**config, "format": 3}, {k: v for k, v in config.items() if k != "format"}):
        (folder / "config.json").write_text(json.dumps(known))
        with pytest.raises(
            InputError, match=r"expected a model of format 2.*Train it again: hushgraph train gap --data"
        ):
            load(folder)


def test_weights_of_another_network_are_refused_in_a_sentence(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    weights = load_file(folder / "model.safetensors")
    name = min(one for one in weights if one.startswith("weights/") and weights[one].dim() == 2)
    save_file({**weights, name: weights[name][:1].clone()}, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"Another version wrote this model, or it was changed; read it with") as found:
        load(folder)
    assert f"'{name.removeprefix('weights/')}'" in str(found.value)


@pytest.mark.parametrize("form", [torch.float64, torch.int8])
def test_released_values_of_another_form_are_refused_in_a_sentence(folder: Path, form: torch.dtype) -> None:
    (folder / "manifest.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("kept/scores", None)
    name = max(one for one in tensors if one.startswith("released/"))
    save_file({**tensors, name: tensors[name].to(form)}, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"is damaged or was changed .* Restore the folder from a copy"):
        load(folder).predict(graph_for(EDGE))


def test_damaged_and_missing_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"expected a trained model in .*nowhere; there is no such folder; check the path"
    ):
        load(tmp_path / "nowhere")
    (folder / "manifest.json").unlink()
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(InputError, match=r"expected a readable model\.safetensors"):
        load(folder)
    (folder / "model.safetensors").write_bytes(weights)
    assert load(folder).predict().shape == (40,)
    (folder / "certificate.json").write_text("{")
    with pytest.raises(InputError, match=r"certificate.json: is damaged"):
        load(folder)


def test_a_folder_that_was_changed_since_it_was_saved_is_refused(tmp_path: Path) -> None:
    model = GAP_.fit(random_graph(2), EDGE, BUDGET, ledger=Ledger(tmp_path / "ledger"))
    folder = model.save(tmp_path / "model")
    assert load(folder).certificate == model.certificate
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    with pytest.raises(ContradictionError, match=r"config\.json: was changed since it was saved"):
        load(folder)


def test_a_method_that_is_not_known_here_is_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "manifest.json").unlink()
    (folder / "config.json").write_text(json.dumps({**config, "method": "gapp"}))
    with pytest.raises(InputError, match="the method 'gapp' of this model is not known here"):
        load(folder)


def test_a_model_that_was_changed_after_fit_is_saved_only_with_a_word_about_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for change in ("weights", "released"):
        model = GAP(epochs=1).fit(random_graph(0), units.UndirectedEdge(), Budget(4.0, 1e-4), ledger=ledger)
        untouched = model.save(tmp_path / f"{change} as fitted")
        assert verify_model(untouched, ledger).status is Status.VERIFIED
        changed = next(model.network.parameters()).data if change == "weights" else model.released["aggregation"][0]
        changed += 1.0
        with pytest.raises(ContradictionError, match="expected the weights and released values that the run ended"):
            model.save(tmp_path / change)
        assert not (tmp_path / change).exists()
        folder = model.save(tmp_path / change, altered="tuned on public data")
        assert verify_model(folder, ledger).status is Status.NOT_VERIFIED
        loaded = Model.load(folder)
        assert loaded.altered == "tuned on public data"
        assert str(loaded).startswith("ALTERED AFTER THE RUN: not verified (tuned on public data)")


def test_a_folder_of_a_run_in_memory_is_listed_too(tmp_path: Path) -> None:
    """No ledger can confirm it; what was changed in it since is still noticed."""
    folder = GAP(epochs=1).fit(random_graph(0), EDGE, BUDGET).save(tmp_path / "model")
    assert load(folder).files is Status.NOT_VERIFIED
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "class_names": config["class_names"][::-1]}))
    with pytest.raises(ContradictionError, match=r"config\.json: was changed since it was saved"):
        load(folder)


def test_a_disk_that_fills_leaves_no_half_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = GAP(epochs=1).fit(random_graph(0), EDGE, BUDGET)
    done: list[int] = []

    def fills(_: int) -> None:
        done.append(1)
        if len(done) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fills)
    with pytest.raises(LedgerError, match="Make room on the disk"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
