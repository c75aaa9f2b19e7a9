"""Study files: everything wrong is said at once, and the grid is every combination."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgraph.errors import InputError, MissingDataError
from hushgraph.study.axes import _known_datasets
from hushgraph.study.cell import code_version
from hushgraph.study.spec import Study

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"privacy": "research", "datasets": ["campus"], "methods": ["gap"], "epsilons": [1]}


def problems(values: dict[str, object]) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        Study.from_dict(values)
    return caught.value.problems


def test_all_problems_are_reported_at_once_with_what_was_meant() -> None:
    found = problems(
        {
            "privcy": "research",
            "datasets": ["campos"],
            "methods": ["gapp", {"method": "gap", "set": {"hopps": 2}}],
            "units": ["undirected-egde"],
            "epsilons": [1, -2],
            "seeds": 0,
            "inference": "both",
            "settings": {"hops": [0]},
            "choose": {"over": []},
        }
    )
    text = "\n".join(found)
    for words in (
        "privcy: unknown; did you mean 'privacy'",
        "did you mean 'campus'",
        "did you mean 'gap'",
        "did you mean 'hops'",
        "did you mean 'undirected-edge'",
        "epsilons: expected numbers above 0",
        "seeds: expected a number of repetitions",
        "inference: expected transductive",
        "choose.over: expected the axes",
        "privacy: expected 'charged'",
    ):
        assert words in text
    assert len(found) >= 10


def test_a_setting_is_checked_against_every_method() -> None:
    (problem,) = problems({**SMALL, "methods": ["gap", "mlp"], "settings": {"hops": [1, 2]}})
    assert "unknown setting 'hops'" in problem


@pytest.mark.parametrize("missing", ["datasets", "methods", "epsilons"])
def test_what_a_fit_needs_is_asked_for(missing: str) -> None:
    (problem,) = problems({key: value for key, value in SMALL.items() if key != missing})
    assert problem == f"{missing}: expected at least one; got none"


def test_a_view_of_an_axis_that_is_not_there_is_refused() -> None:
    (problem,) = problems({**SMALL, "tables": [{"rows": ["hops"]}]})
    assert "no axis 'hops'" in problem


def test_the_grid_is_every_combination_and_numbers_may_be_words() -> None:
    study = Study.from_dict(
        {
            **SMALL,
            "methods": ["mlp", {"method": "gap", "set": {"hops": [1, 2]}}],
            "units": ["undirected-edge", {"name": "node", "max_degree": 5}],
            "epsilons": ["1e-1", 4, "inf"],
            "deltas": "1e-7",
            "seeds": 2,
            "split_seeds": [3, 4],
            "paper_mode": [False, True],
            "inference": ["transductive", "inductive"],
            "label_shares": [0.1, 0.5],
        }
    )
    assert len(study.cells) == 3 * 2 * 3 * 2 * 2 * 2 * 2 * 2
    assert len({cell.key("") for cell in study.cells}) == len(study.cells)
    assert {cell.delta for cell in study.cells} == {1e-7}
    assert {cell.epsilon for cell in study.cells} == {0.1, 4.0, float("inf")}
    assert {cell.axis("unit") for cell in study.cells} == {"undirected-edge", "node (max_degree=5)"}


def test_parts_take_from_the_top_what_they_do_not_say_and_names_do_not_change_a_cell() -> None:
    parts = [{"name": "a"}, {"name": "b", "epsilons": [1, 2]}]
    study = Study.from_dict({**SMALL, "parts": parts})
    assert [cell.part for cell in study.cells] == ["a", "b", "b"]
    assert len({cell.key("") for cell in study.cells}) == 2
    renamed = Study.from_dict({**SMALL, "name": "other", "methods": [{"method": "gap", "name": "GAP of 2023"}]})
    assert renamed.cells[0].key("") == study.cells[0].key("")
    assert renamed.cells[0].key(code_version()) != study.cells[0].key("")


def test_an_experiment_says_by_its_parameters_which_settings_it_takes() -> None:
    values = {"privacy": "research", "experiment": "toy_experiments:noisy"}
    assert len(Study.from_dict({**values, "settings": {"size": [1, 2]}}).cells) == 2
    assert "did you mean 'size'" in problems({**values, "settings": {"sise": [1]}})[0]
    assert "can be imported" in problems({**values, "experiment": "toy_experiments:absent"})[0]
    assert "did you mean 'fit'" in problems({**SMALL, "experiment": "fitt"})[0]


def test_a_file_is_plain_yaml_without_a_key_twice(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    for text, words in (
        ("privacy: research\nprivacy: charged\n", "twice"),
        ("a: [", "expected YAML"),
        ("!!python/object/apply:os.getcwd []", "expected YAML"),
        ("- a", "expected a mapping"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            Study.read(path)


def test_a_file_whose_bytes_change_is_other_data(tmp_path: Path) -> None:
    from hushgraph import datasets

    file = tmp_path / "graph.npz"
    keys = []
    for seed in (0, 1):
        datasets.write_npz(datasets.load("campus", num_nodes=200, seed=seed), file)
        keys.append(Study.from_dict({**SMALL, "datasets": [str(file)]}).cells[0].key(""))
    assert keys[0] != keys[1]


def test_the_studies_of_the_project_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(Study.read(ROOT / "studies" / "campus.yaml").cells) > 30
    monkeypatch.setattr("hushgraph.study.axes._require_known", lambda source: None)
    assert len(Study.read(ROOT / "studies" / "results.yaml").cells) > 1_500


def test_whoever_has_no_data_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHGRAPH_DATA", raising=False)
    parts = [{"name": "a"}, {"name": "b", "datasets": ["mnist/mnist"]}]
    found = problems({**SMALL, "datasets": ["planetoid/cora", "tolokers/tolokers"], "parts": parts})
    assert found == MissingDataError("planetoid/cora", "tolokers/tolokers", "mnist/mnist").problems
    assert "Set HUSHGRAPH_DATA to the folder" in found[0]


@pytest.mark.parametrize("file", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_study_without_its_data_says_so_in_one_sentence(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHGRAPH_DATA", raising=False)
    _known_datasets.cache_clear()
    if "Needs HUSHGRAPH_DATA" not in file.read_text():
        assert Study.read(file).cells
        return
    with pytest.raises(InputError, match="Set HUSHGRAPH_DATA") as caught:
        Study.read(file)
    assert len(caught.value.problems) == 1
    assert len(str(caught.value)) < 600


def test_equal_problems_are_listed_once_with_their_places() -> None:
    parts = [{"name": f"{n}", "methods": ["gapp"]} for n in range(5)]
    (found,) = problems({**SMALL, "methods": ["gap"], "parts": parts})
    assert found.startswith("parts[0].methods, parts[1].methods, parts[2].methods and 2 more: ")
    assert found.count("did you mean 'gap'") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": 10**12}, "seeds: expected a number of repetitions"),
        ({"seeds": 90_000, "epsilons": list(range(1, 2000))}, "expected at most 100,000 runs; got 179,910,000"),
        ({"methods": [{"method": "gap", "set": {"lr": [0.1] * 500, "hops": [1] * 500}}]}, "at most 10,000 methods"),
        ({"name": "../../elsewhere"}, "name: expected a name for files"),
        ({"name": ".hidden"}, "name: expected a name for files"),
        ({"ledger": 7}, "ledger: expected a word"),
        ({"tables": [{"baseline": [1]}]}, "baseline: expected a word or a number"),
        ({"datasets": ["x" * 5000]}, "no dataset"),
        ({"settings": {"dropout": 1e300}}, "dropout: expected at most"),
    ],
)
def test_a_study_nobody_could_run_is_refused_before_it_is_written_out(change: dict[str, object], said: str) -> None:
    text = "\n".join(problems({**SMALL, **change}))
    assert said in text
    assert len(text) < 12_000
