"""What people expect of an estimator: parameters, scores, short names, exports."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from scipy import sparse
from sklearn.base import clone

import hushgraph as hg
from hushgraph.errors import InputError
from small_graphs import random_graph

BUDGET = (4.0, 1e-4)


@pytest.fixture(scope="module")
def model() -> hg.Model:
    return hg.GAP(hops=3, epochs=2).fit(random_graph(1), "undirected-edge", BUDGET, seed=0)


def test_parameters_in_the_words_of_scikit_learn() -> None:
    method = hg.GAP(hops=3)
    assert method.get_params()["hops"] == 3
    assert clone(method) == method
    assert method.set_params(hops=1) == hg.GAP(hops=1)
    assert method.hops == 3
    with pytest.raises(InputError, match="unknown setting 'hop'; did you mean 'hops'"):
        method.set_params(hop=1)
    with pytest.raises(InputError, match="hops: expected at least 1"):
        method.set_params(hops=0)


def test_short_names(model: hg.Model) -> None:
    assert (repr(hg.GAP()), repr(hg.GAP(hops=3))) == ("GAP()", "GAP(hops=3)")
    assert repr(model) == "Model(gap, unit=undirected-edge, epsilon=4)"
    table = model._repr_html_()
    assert "<td>GAP(hops=3, epochs=2)</td>" in table
    assert "NOT PRIVATE: 4 at delta 0.0001" in table
    named = random_graph(1)
    named.name = "<script>"
    assert "<script>" not in hg.MLP(epochs=1).fit(named, "undirected-edge", BUDGET)._repr_html_()


def test_the_score_is_the_share_of_right_predictions(model: hg.Model) -> None:
    graph = random_graph(1)
    right = model.predict(graph) == graph.y
    assert model.score(graph) == pytest.approx(float(right[graph.test_mask].double().mean()))
    assert model.score(graph, "train") == pytest.approx(float(right[graph.train_mask].double().mean()))
    graph.y = torch.full_like(graph.y, -1)
    with pytest.raises(InputError, match="score: expected labeled nodes"):
        model.score(graph)


def test_nodes_that_came_later(model: hg.Model) -> None:
    graph = random_graph(1)
    features_only = hg.MLP(epochs=2).fit(graph, "undirected-edge", BUDGET)
    assert torch.equal(features_only.predict_nodes(graph.x), features_only.predict())
    assert features_only.predict_nodes(np.zeros((2, 5))).shape == (2,)
    with pytest.raises(InputError, match="use predict_on with the new graph and a budget"):
        model.predict_nodes(graph.x)
    with pytest.raises(InputError, match="expected rows of 5 features"):
        features_only.predict_nodes(torch.zeros(2, 4))


def _rows(model: hg.Model) -> torch.Tensor:
    sums = [torch.nn.functional.normalize(one) for one in model.released["aggregation"]]
    return torch.stack([model.network.encoder.encode(random_graph(1).x), *sums], dim=1)


def test_the_classifier_goes_to_other_programs_with_its_promise(model: hg.Model, tmp_path: Path) -> None:
    rows, expected = _rows(model), model.predict_proba()
    model.export(tmp_path / "classifier.pt2")
    facts = {"hushgraph.json": ""}
    program = torch.export.load(tmp_path / "classifier.pt2", extra_files=facts).module()
    assert torch.allclose(program(rows).softmax(dim=1), expected, atol=1e-6)
    model.export(tmp_path / "classifier.onnx")
    stored = onnx.load(tmp_path / "classifier.onnx")
    found = ReferenceEvaluator(stored).run(None, {stored.graph.input[0].name: rows.numpy()})[0]
    assert torch.allclose(torch.from_numpy(found).softmax(dim=1), expected, atol=1e-5)
    for text in (facts["hushgraph.json"], stored.metadata_props[0].value):
        about = json.loads(text)
        assert (about["unit"], about["classes"], about["private"]) == ("undirected-edge", ["a", "b", "c"], False)


def test_exports_that_make_no_sense(model: hg.Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a file \.pt2 or \.onnx"):
        model.export(tmp_path / "classifier.pkl")
    (tmp_path / "there.onnx").write_text("")
    with pytest.raises(InputError, match="exists already"):
        model.export(tmp_path / "there.onnx")
    progap = hg.ProGAP(epochs=1).fit(random_graph(1), "undirected-edge", BUDGET)
    with pytest.raises(InputError, match="progap has none to export"):
        progap.export(tmp_path / "classifier.onnx")


def test_later_nodes_come_in_any_form() -> None:
    graph = random_graph(1)
    model = hg.MLP(epochs=2).fit(graph, "undirected-edge", (4.0, 1e-3), ledger=hg.Ledger.in_memory(warn=False))
    few = graph.x[:4]
    forms = [few, few.to_sparse_csr(), few.numpy(), few.tolist(), pd.DataFrame(few.numpy()), sparse.csr_matrix(few)]
    for form in forms:
        assert torch.equal(model.predict_nodes(form), model.predict(graph)[:4])
    with pytest.raises(InputError, match="expected finite numbers"):
        model.predict_nodes(few * torch.nan)
    with pytest.raises(InputError, match=r"expected rows of 5 features; got \[4, 2\]"):
        model.predict_nodes(few[:, :2])


def test_epsilon_at_the_own_delta_and_at_others() -> None:
    model = hg.GAP(epochs=2).fit(random_graph(1), "undirected-edge", (4.0, 1e-3), seed=0)
    assert model.get_epsilon() == model.get_epsilon(1e-3) == model.certificate.epsilon
    assert model.get_epsilon(1e-6) > model.get_epsilon()
    with pytest.raises(InputError, match="delta: expected a number"):
        model.get_epsilon("1e-5")  # type: ignore[arg-type]


def test_a_model_says_its_epsilon_and_is_never_pickled(model: hg.Model, tmp_path: Path) -> None:
    assert model.epsilon == model.certificate.epsilon
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InputError, match=r"expected model\.save\(folder\) and hushgraph\.load\(folder\)"):
            attempt(model)
    assert copy.deepcopy(model.method) == pickle.loads(pickle.dumps(model.method)) == model.method


def test_what_is_left_out_or_too_much_is_told_in_a_sentence(model: hg.Model, tmp_path: Path) -> None:
    graph = random_graph(1)
    with pytest.raises(InputError, match=r"predict_on: expected a budget, such as 4\.0"):
        model.predict_on(graph)
    with pytest.raises(InputError, match=r"Labels are those of the graph: score\(graph\)"):
        model.score(graph, graph.y)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'train', 'val' or 'test'; got 'tset'"):
        model.score(graph, "tset")
    assert model.export(tmp_path / "new" / "classifier.pt2").is_file()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="which is a file"):
        model.export(tmp_path / "file" / "classifier.pt2")


def test_the_rows_of_an_exported_classifier_are_those_of_all_hops(model: hg.Model, tmp_path: Path) -> None:
    program = torch.export.load(model.export(tmp_path / "c.pt2"))
    hops, columns = 3, model.released["aggregation"][0].shape[1]
    assert program.module()(torch.randn(7, hops + 1, columns)).shape == (7, len(model.class_names))


def test_a_symmetric_matrix_of_scipy_holds_every_edge_twice() -> None:
    matrix = sparse.csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    assert hg.Graph.from_scipy(matrix).num_edges == 4
    assert hg.Graph.from_scipy(matrix, directed=True).num_edges == 4
    with pytest.raises(InputError, match=r"got class_names\. The names of classes are classes="):
        hg.Graph.from_scipy(matrix, class_names=["a"])
    with pytest.raises(InputError, match=r"scipy\.sparse\.csr_array\(array\)"):
        hg.Graph.from_scipy(matrix.toarray())


def test_lazy_layers_are_told_by_name() -> None:
    lazy = torch.nn.Sequential(torch.nn.LazyLinear(4))
    with pytest.raises(InputError, match="expected layers of known width; got lazy ones"):
        hg.GAP(encoder=lazy).fit(random_graph(1), "undirected-edge", BUDGET)
