from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from charges import charged_stages
from hushgraph.collect import BinnedQuestion, FeatureQuestion, LabelQuestion
from hushgraph.collect.export import Export, export_arrays, feature_reports
from hushgraph.collect.report import draw_payload, encode_payload
from hushgraph.collect.training import train_from_export
from hushgraph.errors import InputError
from hushgraph.ledger.certificate import Randomness
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.feature_rr import FeatureRR
from hushgraph.methods.lpgnn import LPGNN
from hushgraph.methods.model import load
from hushgraph.privacy import units
from hushgraph.privacy.notes import Code


def exported(task, values, labels, skip=(), seed=0):
    rng = np.random.default_rng(seed)
    pairs = []
    for node in reversed(range(task.nodes)):
        if node not in skip:
            answer = draw_payload(task, values[node], None if labels is None else labels[node], rng)
            pairs.append((node, encode_payload(answer["x"], answer["y"])))
    arrays = export_arrays(task, pairs)
    arrays.pop("task")
    return Export(task, arrays)


def communities(people=300):
    """Two rings of cliques that do not touch: the class is where you are."""
    rng = np.random.default_rng(0)
    side = np.arange(people * 5) % 2
    ends = rng.integers(0, people // 2, (2, people * 5)) * 2 + side
    return np.concatenate([ends, ends[::-1]], axis=1), np.arange(people) % 2


@pytest.mark.parametrize("features", ["multi_bit", "one_bit"])
@pytest.mark.parametrize("labels", ["randomized_response", "unary_optimized"])
def test_from_devices_to_a_model_with_a_certificate(task_maker, tmp_path, features, labels):
    edges, truth = communities()
    task = task_maker(
        nodes=300,
        features=FeatureQuestion(4, 1.0, 0.0, 1.0, features),
        labels=LabelQuestion(("a", "b"), 1.5, labels),
    )
    export = exported(task, [np.full(4, float(t)) for t in truth], truth, skip=range(40))
    ledger = Ledger(tmp_path / "ledger")
    model = train_from_export(export, edges, LPGNN(epochs=40), ledger=ledger, seed=0)
    assert model.certificate.epsilon == 2.5 == task.epsilon
    assert (model.certificate.randomness, model.certificate.is_private) == (Randomness.DEVICES, True)
    assert model.unit == units.Local()
    assert Code.DEVICE_TASK in {note.code for note in model.plan.public}
    assert model.plan["labels"].mechanism.randomizer == task.labels.build()
    assert charged_stages(ledger) == ["features", "labels"]
    assert ledger.history().entries[-1].kind == "close"
    # Also for the 40 people who sent nothing. One report names the true class with probability 0.82 at best.
    assert float((model.predict() == torch.from_numpy(truth)).float().mean()) > 0.9
    loaded = load(model.save(tmp_path / "model"))
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    assert loaded.class_names == ("a", "b")
    blank = Data(x=torch.zeros(300, 4), edge_index=torch.from_numpy(edges))
    assert torch.allclose(loaded.predict_proba(blank), model.predict_proba(), atol=1e-5)  # from stored reports
    assert set(model.metrics["accuracy"].values()) == {None}  # nobody's label is known


@pytest.mark.parametrize("method", [LPGNN(epochs=40), FeatureRR(epochs=40, lr=0.01, hidden_channels=16)])
def test_binned_features_from_devices_to_a_model(task_maker, tmp_path, method):
    edges, truth = communities()
    task = task_maker(nodes=300, features=BinnedQuestion((0.1, 0.2, 0.3, 0.4), 2.0, bins=3, low=-1.0), labels=None)
    values = [np.full(4, 2.0 * t - 1.0) for t in truth]
    export = exported(task, values, None, skip=range(40))
    model = train_from_export(
        export, edges, method, public_labels=truth, class_names=("a", "b"), ledger=Ledger(tmp_path / "l"), seed=0
    )
    assert model.certificate.epsilon == 2.0 == task.epsilon
    assert model.plan["features"].mechanism.randomizer.scores == (0.1, 0.2, 0.3, 0.4)
    assert float((model.predict() == torch.from_numpy(truth)).float().mean()) > 0.9
    assert (feature_reports(export)[:40] == 1.0).all()  # the middle bin, for who sent nothing
    loaded = load(model.save(tmp_path / "model"))
    assert torch.equal(loaded.predict_proba(), model.predict_proba())


def test_reports_stand_in_the_row_of_their_node(task_maker):
    task = task_maker(nodes=6, features=FeatureQuestion(8, 1.0), labels=None)
    export = exported(task, [np.zeros(8)] * 6, None, skip=(1, 4))
    rows = feature_reports(export).dense()
    assert np.abs(rows).sum(1).tolist() == [1, 0, 1, 1, 0, 1]
    place = list(export.node).index(3)
    column, bit = int(export.arrays["x_index"][place, 0]), int(export.arrays["x_bit"][place, 0])
    assert rows[3, column] == 2 * bit - 1


def test_one_bit_reports_that_were_not_sent_say_nothing(task_maker):
    task = task_maker(nodes=5, features=FeatureQuestion(3, 3.0, -2.0, 2.0, "one_bit"), labels=None)
    export = exported(task, [np.ones(3)] * 5, None, skip=(2,))
    reports, randomizer = feature_reports(export), task.features.build()
    assert np.array_equal(reports[4], export.arrays["x_bits"][list(export.node).index(4)])
    assert randomizer.estimate(reports)[2].tolist() == [0.0, 0.0, 0.0]  # the middle of the range


def test_public_labels_take_the_place_of_reports(task_maker):
    edges, truth = communities()
    task = task_maker(nodes=300, features=FeatureQuestion(4, 1.0), labels=None)
    export = exported(task, [np.full(4, float(t)) for t in truth], None)
    known = np.where(np.arange(300) < 100, truth, -1)
    model = train_from_export(export, edges, public_labels=known, class_names=("a", "b"), seed=0)
    assert model.certificate.epsilon == 1.0
    assert model.unit == units.Local(private_labels=False)
    with pytest.raises(InputError, match="public_labels"):
        train_from_export(export, edges)


def test_exports_that_cannot_be_trained_on_are_refused(task_maker):
    edges, truth = communities()
    only_labels = task_maker(nodes=300, features=None, labels=LabelQuestion(("a", "b"), 1.0))
    with pytest.raises(InputError, match="features"):
        train_from_export(exported(only_labels, [None] * 300, truth), edges)
    few = task_maker(nodes=300, features=FeatureQuestion(4, 1.0), labels=LabelQuestion(("a", "b"), 1.0))
    with pytest.raises(InputError, match="2 reported labels"):
        train_from_export(exported(few, [np.zeros(4)] * 300, truth, skip=range(299)), edges)
    with pytest.raises(InputError, match="node numbers"):
        train_from_export(exported(few, [np.zeros(4)] * 300, truth), edges + 200)


def test_the_command_goes_from_an_export_to_a_model(task_maker, tmp_path):
    from typer.testing import CliRunner

    from hushgraph.cli.collect import app

    edges, truth = communities(60)
    task = task_maker(nodes=60, features=FeatureQuestion(4, 1.0), labels=LabelQuestion(("a", "b"), 1.5))
    export = exported(task, [np.full(4, float(t)) for t in truth], truth)
    arrays = {"task": np.frombuffer(task.canonical_json().encode("ascii"), dtype=np.uint8), **export.arrays}
    np.savez(tmp_path / "export.npz", **arrays)
    np.savez(tmp_path / "edges.npz", edge_index=edges)
    words = ["train", tmp_path / "export.npz", "--edges", tmp_path / "edges.npz", "--out", tmp_path / "model"]
    words += ["--set", "epochs=5", "--json"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    assert load(tmp_path / "model").certificate.epsilon == 2.5
    again = CliRunner().invoke(app, [str(word) for word in words])
    assert again.exit_code == 2
    assert "new or empty folder" in again.output
