from __future__ import annotations

import numpy as np
import pytest

from hushgraph.collect import FeatureQuestion, LabelQuestion, estimate, read_export, write_graph
from hushgraph.collect.export import export_arrays, feature_reports
from hushgraph.collect.report import check_report, draw_payload, encode_payload
from hushgraph.errors import InputError

FEATURES = ["multi_bit", "one_bit"]
LABELS = ["randomized_response", "unary_symmetric", "unary_optimized"]


def collected(task, values, labels, rng, skip=()):
    """Stored pairs of simulated people, each passed through the server's own checks."""
    pairs = []
    for node in range(task.nodes):
        if node in skip:
            continue
        answer = draw_payload(task, values[node], labels[node], rng)
        body = {**answer, "report_id": f"{node:032x}", "node_token": "t" * 43, "task_hash": task.sha256}
        report = check_report(task, body)
        assert report.payload == encode_payload(answer["x"], answer["y"])
        pairs.append((node, report.payload))
    return pairs


def written(tmp_path, task, pairs):
    path = tmp_path / "export.npz"
    np.savez(path, allow_pickle=False, **export_arrays(task, pairs))
    return path


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("labels", LABELS)
def test_every_mechanism_goes_from_device_to_estimate(tmp_path, task_maker, features, labels):
    # The mean over 600 equal people is within 5 standard errors of the truth, for 5 features and 3 classes.
    n = 600
    task = task_maker(
        nodes=n,
        features=FeatureQuestion(5, 3.0, -1.0, 1.0, features),
        labels=LabelQuestion(("a", "b", "c"), 1.0, labels),
    )
    rng = np.random.default_rng(3)
    value = np.array([-1.0, -0.5, 0.0, 0.6, 1.0])
    export = read_export(written(tmp_path, task, collected(task, [value] * n, [2] * n, rng)))
    found = estimate(export)
    spread = task.features.build().variance(value)
    assert (np.abs(found.x.mean(axis=0) - value) < 5 * np.sqrt(spread / n)).all()
    label_spread = task.labels.build().variance(np.array(2))
    assert (np.abs(found.y_one_hot.mean(axis=0) - [0, 0, 1]) < 5 * np.sqrt(label_spread / n)).all()
    assert found.reported.all()


def test_people_who_sent_nothing_are_marked(tmp_path, task_maker):
    task = task_maker(nodes=6)
    rng = np.random.default_rng(0)
    values = [np.zeros(8)] * 6
    export = read_export(written(tmp_path, task, collected(task, values, [0, None, 1, 2, 0, 1], rng, skip={2, 5})))
    found = estimate(export)
    assert found.reported.tolist() == [True, True, False, True, True, False]
    assert (found.x[[2, 5]] == 0.5).all()
    assert found.y[[1, 2, 5]].tolist() == [-1, -1, -1]
    assert not found.y_one_hot[[1, 2, 5]].any()
    assert int(np.abs(feature_reports(export).value).sum(1).astype(bool).sum()) == 4


def test_an_empty_task_exports(tmp_path, task_maker):
    for mechanism in FEATURES:
        task = task_maker(features=FeatureQuestion(8, 4.0, mechanism=mechanism))
        assert estimate(read_export(written(tmp_path, task, []))).reported.sum() == 0


def test_graph_file_is_read_by_the_dataset_reader(tmp_path, task_maker):
    task = task_maker(nodes=4)
    pairs = collected(task, [np.ones(8)] * 4, [0, 1, 2, None], np.random.default_rng(1))
    export = read_export(written(tmp_path, task, pairs))
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    path = write_graph(export, edges, tmp_path / "graph.npz")
    with np.load(path, allow_pickle=False) as arrays:
        assert np.array_equal(arrays["edge_index"], edges)
        assert np.array_equal(arrays["x"], estimate(export).x)
        assert arrays["y"][3] == -1
        assert arrays["class_names"].tolist() == ["red", "green", "blue"]
    from hushgraph.datasets import read_npz

    data = read_npz(path)
    assert np.array_equal(data.x.numpy(), estimate(export).x)
    assert data.y.tolist() == estimate(export).y.tolist()
    for wrong in (np.array([[0], [4]]), np.zeros((2, 2)), np.zeros((3, 2), dtype=int)):
        with pytest.raises(InputError):
            write_graph(export, wrong, tmp_path / "wrong.npz")


@pytest.mark.parametrize(
    "change",
    [
        lambda a: {**a, "x_bit": a["x_bit"] + 2},
        lambda a: {**a, "x_index": a["x_index"] + 100},
        lambda a: {**a, "node": a["node"] * 0},
        lambda a: {**a, "node": a["node"] + 100},
        lambda a: {**a, "y": a["y"][:1]},
        lambda a: {**a, "y": a["y"].astype(float)},
        lambda a: {**a, "more": a["y"]},
        lambda a: {k: v for k, v in a.items() if k != "y"},
        lambda a: {k: v for k, v in a.items() if k != "task"},
        lambda a: {**a, "task": a["task"][:-1]},
    ],
)
def test_changed_exports_are_refused(tmp_path, task_maker, change):
    task = task_maker(nodes=3)
    arrays = export_arrays(task, collected(task, [np.ones(8)] * 3, [0, 1, 2], np.random.default_rng(1)))
    path = tmp_path / "export.npz"
    np.savez(path, **change(arrays))
    with pytest.raises(InputError):
        read_export(path)


def test_pickles_are_never_loaded(tmp_path):
    path = tmp_path / "export.npz"
    np.savez(path, task=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError):
        read_export(path)
