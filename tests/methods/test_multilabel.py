"""Nodes with several classes, through the product: checks, training, predictions, files, report and study."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sklearn.metrics import f1_score
from torch import nn

import hushgraph as hg
from commands import flat, run, run_json
from hushgraph import registry
from hushgraph.datasets import load, write_npz
from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph, is_labeled
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.evaluation import main_measure
from hushgraph.nn import MLP
from hushgraph.training import ClippedGradient
from hushgraph.training.losses import are_present, loss_for, micro_f1
from small_graphs import random_graph

EDGE = hg.units.UndirectedEdge()


def several(seed: int = 0, nodes: int = 120) -> Any:
    """A graph whose nodes have those of three classes whose feature is positive in the mean of their neighbors."""
    data = random_graph(seed, num_nodes=nodes, num_edges=4 * nodes)
    data.y = (data.x[:, :3] > 0).long()
    data.class_names = ["red", "green", "blue"]
    return data


def ledger() -> Ledger:
    return Ledger.in_memory(warn=False)


@pytest.mark.parametrize(
    ("method", "unit", "budget"),
    [
        (hg.GCN(epochs=60), None, hg.Budget(math.inf)),
        (hg.ARR(epochs=60), EDGE, hg.Budget(8.0, 1e-4)),
        (hg.EdgeRR(epochs=60, steps_per_node=5), EDGE, hg.Budget(8.0, 1e-4)),
        (hg.FeatureRR(low=-3, high=3, epochs=60, lr=0.05), None, hg.Budget(100.0, 1e-4)),
    ],
    ids=["gcn", "arr", "edge-rr", "feature-rr"],
)
def test_a_model_of_several_classes_is_trained_saved_and_read(
    method: Any, unit: Any, budget: Any, tmp_path: Path
) -> None:
    data = several()
    model = method.fit(data, unit, budget, ledger=ledger(), seed=0)
    found = model.predict(None if model.scores is not None else data)
    assert found.shape == data.y.shape
    assert set(found.unique().tolist()) <= {0, 1}
    probabilities = model.predict_proba()
    assert bool(((probabilities > 0) & (probabilities < 1)).all())
    assert not torch.allclose(probabilities.sum(1), torch.ones(len(probabilities)))
    name, values = main_measure(model.metrics)
    test = data.test_mask.numpy()
    assert name == "micro-F1"
    assert values["test"] == pytest.approx(100 * f1_score(data.y[test], found.numpy()[test], average="micro"))
    assert values["train"] > 60.0
    model.save(tmp_path)
    assert torch.equal(hg.load(tmp_path).predict(), found)


def test_methods_that_need_one_class_say_so_and_name_others() -> None:
    metadata = check_graph(several()).metadata
    assert metadata.multilabel
    takers = {name for name in registry.names("methods") if registry.load("methods", name).takes_multilabel}
    assert {"gcn", "sage", "arr", "edge-rand", "lap-graph", "edge-rr", "priv-hrg", "feature-rr"} <= takers
    assert {"gap", "progap", "mlp", "dp-mlp", "dp-gnn", "dp-appr"} <= takers
    for name in set(registry.names("methods")) - takers:
        kind = registry.load("methods", name)
        method = kind(low=0.0, high=1.0) if kind.trust == "local" else kind()
        with pytest.raises(InputError, match=rf"{name}: expected one class for each node; .* edge-rr"):
            method.plan(metadata, EDGE, hg.Budget(1.0, 1e-5))


def test_a_matrix_of_labels_is_checked() -> None:
    data = several()
    data.y = data.y.bool()
    assert check_graph(data).labels.dtype is torch.int64
    data.y = data.y.float()
    data.y[5] = -1.0
    known = is_labeled(check_graph(data).labels)
    assert known.sum() == len(known) - 1
    data.y[6, 0] = -1.0
    with pytest.raises(InputError, match="known in part"):
        check_graph(data)
    data.y[6, 0] = 0.5
    with pytest.raises(InputError, match="expected 0 and 1"):
        check_graph(data)
    data.y = torch.zeros(len(data.y), 4)
    with pytest.raises(InputError, match="column for each of the 3 classes; got 4"):
        check_graph(data)
    data.y = torch.zeros(7, 3)
    with pytest.raises(InputError, match="one per node"):
        check_graph(data)


def test_metadata_reads_back_and_old_metadata_has_one_class_a_node() -> None:
    metadata = check_graph(several()).metadata
    assert type(metadata).from_dict(metadata.as_dict()) == metadata
    plain = check_graph(random_graph(0)).metadata
    assert "multilabel" not in plain.as_dict()
    assert not type(plain).from_dict(plain.as_dict()).multilabel


def test_micro_f1_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = (torch.from_numpy(rng.integers(0, 2, (50, 4))) for _ in range(2))
    assert micro_f1(predicted, truth) == pytest.approx(f1_score(truth, predicted, average="micro"))
    assert micro_f1(torch.zeros(3, 2), torch.zeros(3, 2)) == 0.0


def test_from_a_file_by_commands_to_a_report(tmp_path: Path) -> None:
    data = write_npz(several(), tmp_path / "several.npz")
    assert torch.equal(load(data).y, several().y)
    out = tmp_path / "model"
    asked = ["train", "lap-graph", "--data", data, "--epsilon", "4", "--delta", "1e-4", "--set", "epochs=3"]
    text = flat(run(*asked, "--out", out))
    assert "micro-F1" in text
    assert "not private: evaluation" in text
    shown = run_json("predict", out, "--out", tmp_path / "p.csv")
    named = {"red": 0, "green": 1, "blue": 2}
    lines = [line.split(",")[1] for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    told = [[int(name in line.split("; ")) for name in named] for line in lines]
    assert told == shown["predictions"]
    assert shown["nodes"] == 120
    assert sum(map(sum, shown["predictions"])) == sum(shown["classes"].values())
    assert run("report", out, "--out", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "test micro-F1" in page
    assert "test accuracy" not in page
    refused = run("train", "chorus", "--data", data, "--epsilon", "4", "--out", tmp_path / "no")
    assert refused.exit_code == 2
    assert "expected one class for each node" in refused.output


def test_a_study_has_micro_f1(tmp_path: Path) -> None:
    file = write_npz(several(), tmp_path / "several.npz")
    values = {
        "name": "several",
        "privacy": "research",
        "seeds": 1,
        "datasets": [{"load": str(file)}],
        "methods": ["arr"],
        "settings": {"epochs": [2]},
        "units": ["undirected-edge"],
        "epsilons": [4],
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(values))
    (row,) = hg.study(tmp_path / "study.yaml", workers=0).rows
    assert row.metrics["test_micro_f1"] is not None
    assert row.metrics["test_auc"] is not None
    assert "test_accuracy" not in row.metrics


def test_a_released_graph_keeps_the_matrix(tmp_path: Path) -> None:
    found = hg.release_graph(hg.ARR(), several(), EDGE, hg.Budget(4.0, 1e-4), ledger=ledger())
    assert torch.equal(load(found.save(tmp_path)).y, several().y)


TRAINED = [
    (hg.GAP(epochs=40), EDGE, 8.0, 60.0),
    (hg.ProGAP(epochs=40), EDGE, 8.0, 60.0),
    (hg.MLP(epochs=40), EDGE, 8.0, 60.0),
    (hg.GAP(epochs=3, batch_size=30), hg.units.Node(max_degree=5), 8.0, 0.0),
    (hg.ProGAP(epochs=3, batch_size=30), hg.units.NodeReplace(max_degree=5), 8.0, 0.0),
    (hg.DPMLP(epochs=150, batch_size=60), hg.units.Node(max_degree=5), 500.0, 60.0),
    (hg.DPGNN(epochs=80, batch_size=60), hg.units.Node(max_degree=5), 2000.0, 60.0),
    (hg.DPGNN(epochs=2, batch_size=60, encoder=nn.Linear(5, 4)), hg.units.NodeReplace(max_degree=5), 8.0, 0.0),
    (hg.DPGNN(epochs=2, num_layers=2, inference="noisy"), hg.units.Node(max_degree=5), 8.0, 0.0),
    (hg.DPAPPR(epochs=150), EDGE, 8.0, 60.0),
    (hg.DPAPPR(variant="features", epochs=100, batch_size=60), hg.units.Node(max_degree=5), 500.0, 60.0),
    (hg.DPAPPR(epochs=3, batch_size=30), hg.units.NodeReplace(max_degree=5), 8.0, 0.0),
    (hg.DPAPPR(variant="dpsgd", epochs=3, batch_size=30), hg.units.Node(max_degree=5), 8.0, 0.0),
]


@pytest.mark.parametrize(("method", "unit", "epsilon", "least"), TRAINED, ids=str)
def test_methods_whose_gradients_are_clipped_row_by_row_take_them(
    method: Any, unit: Any, epsilon: float, least: float
) -> None:
    data = several()
    data.y[3] = -1  # a node whose classes are not known
    model = method.fit(data, unit, (epsilon, 1e-4), ledger=ledger(), seed=0)
    assert model.certificate.epsilon <= epsilon
    assert model.metrics["micro_f1"]["train"] > least
    assert model.score(data) == pytest.approx(model.metrics["micro_f1"]["test"] / 100)
    with pytest.raises(InputError, match="expected one class for each node; got a matrix of labels"):
        method.fit(data, unit, (epsilon, 1e-4), ledger=ledger(), class_weights=[1.0, 2.0, 1.0])


def test_one_record_with_several_classes_moves_a_clipped_sum_by_at_most_the_bound() -> None:
    data = several(nodes=30)
    layer = MLP(data.num_features, 4, 3, 2)
    engine = ClippedGradient(layer, max_grad_norm=0.1, loss=loss_for(data.y))
    whole = engine.sum(data.x, data.y)
    norms = torch.stack([engine.sum(data.x[i : i + 1], data.y[i : i + 1]).norm() for i in range(30)])
    assert float(norms.max()) > 0.09
    for node in range(30):
        others = torch.arange(30) != node
        assert float((whole - engine.sum(data.x[others], data.y[others])).norm()) <= 0.1
    assert are_present(torch.tensor([[0, 1], [-1, -1]])).tolist() == [True, False]
