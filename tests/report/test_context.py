from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hushgraph.errors import InputError
from hushgraph.files.writing import write_json
from hushgraph.report.context import RunContext, read_context
from reports import context, fitted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted("gap", "node", 4.0).save(tmp_path_factory.mktemp("gap"))


def facts(found: RunContext) -> tuple[object, ...]:
    return found.plan, found.run_plan, found.certificate, found.parameters, found.class_names, found.reason


def test_a_model_and_its_folder_give_the_same_context(tmp_path: Path) -> None:
    model = fitted("auto", "node", 4.0)
    assert facts(read_context(model)) == facts(read_context(model.save(tmp_path / "m")))
    assert read_context(tmp_path / "m").folder == tmp_path / "m"


def test_stages_cost_what_their_plan_says_and_together_the_certificate(folder: Path) -> None:
    found = read_context(folder)
    assert [cost.charge.stage for cost in found.stages] == ["encoder", "aggregation", "classifier"]
    assert all(0.0 < cost.epsilon < found.epsilon for cost in found.stages)
    assert found.loss is not None
    assert found.loss.epsilon(found.delta) == pytest.approx(found.epsilon, rel=1e-9)


def test_a_run_with_a_choice_costs_what_it_could_have_taken(tmp_path: Path) -> None:
    import hushgraph as hg
    from hushgraph import datasets

    graph = datasets.load("campus", num_nodes=2500)
    model = hg.Auto().fit(graph, hg.units.Node(max_degree=10), hg.Budget(8.0, 1e-5))
    found = read_context(model.save(tmp_path / "m"))
    assert found.run_plan is not None
    assert [cost.charge.stage for cost in found.stages][:2] == ["count of edges", "pairs of neighbors"]
    assert found.loss is not None
    assert found.loss.epsilon(found.delta) == pytest.approx(found.epsilon, rel=1e-9)
    assert found.label == f"auto: {model.method.name}"


@pytest.mark.parametrize("epsilon", [0.0, math.inf])
def test_runs_without_a_finite_cost_have_no_stages_to_show(epsilon: float) -> None:
    found = context(epsilon=epsilon)
    assert (found.stages, found.loss, found.has_noise) == ((), None, False)


def test_files_beside_the_model_are_found_and_given_ones_win(folder: Path, tmp_path: Path) -> None:
    write_json(folder / "audit.json", {"verdict": "consistent"})
    write_json(folder / "attacks.json", {"attacks": [{"name": "one"}, {"name": "two"}]})
    write_json(tmp_path / "other.json", {"verdict": "contradicted"})
    found = read_context(folder)
    assert found.audit == {"verdict": "consistent"}
    assert [one["name"] for one in found.attacks] == ["one", "two"]
    given = read_context(folder, audit=tmp_path / "other.json", attacks={"name": "three"})
    assert given.audit == {"verdict": "contradicted"}
    assert [one["name"] for one in given.attacks] == ["three"]


def test_others_are_read_too(folder: Path) -> None:
    (other,) = read_context(folder, compare=[folder]).others
    assert other.certificate == read_context(folder).certificate


def test_what_is_no_model_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json is missing"):
        read_context(tmp_path)
    with pytest.raises(InputError, match="expected a model or its folder; got int"):
        read_context(3)
    with pytest.raises(InputError, match=r"nowhere.json: expected a JSON file; there is none"):
        read_context(folder, audit=tmp_path / "nowhere.json")


def test_a_folder_of_another_version_is_refused_with_what_to_do(folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name in ("config", "certificate", "metrics"):
        (old / f"{name}.json").write_text((folder / f"{name}.json").read_text())
    config = json.loads((old / "config.json").read_text())
    del config["plan"]
    (old / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="or train again"):
        read_context(old)


def test_steps_on_some_rows_are_said_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hushgraph.report.page import render
    from hushgraph.training import minibatches

    assert "plain training" not in render(read_context(fitted("chorus", "undirected-edge", 4.0)))
    monkeypatch.setattr(minibatches, "MANY_ROWS", 10)
    model = fitted("chorus", "undirected-edge", 4.0)
    assert set(model.settings["minibatches"]) == {"stage_0", "stage_1", "stage_2", "stage_3"}
    found = read_context(model.save(tmp_path / "m"))
    assert found.minibatches == read_context(model).minibatches != {}
    page = render(found)
    assert (
        "stage_0, stage_1, stage_2 and stage_3 in steps on 4,096 rows, with a look at up to 65,536 validation" in page
    )
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["settings"]["minibatches"]["stage_0"]["size"] = None
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="Restore the folder"):
        read_context(tmp_path / "m")
