from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgraph.errors import BudgetError, InputError
from hushgraph.ledger.checking import history_problems
from hushgraph.ledger.identity import GraphArrays
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.run import Run, check_history, open_run
from hushgraph.ledger.transfer import export
from toy_plans import DELTA, EDGE, sums_of


def graph(seed: int = 0, count: int = 4_000) -> GraphArrays:
    rng = np.random.default_rng(seed)
    return GraphArrays(rng.integers(0, 5_000, (2, count)), rng.standard_normal((500, 4)).astype(np.float32))


def changed(arrays: GraphArrays, share: float) -> GraphArrays:
    """The same graph with some other edges and all other features."""
    assert arrays.edges is not None
    kept = int((1 - share) * arrays.edges.shape[1])
    other = graph(99)
    assert other.edges is not None
    return GraphArrays(np.concatenate([arrays.edges[:, :kept], other.edges[:, kept:]], axis=1), other.features)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "book")


def test_the_same_data_under_another_name_is_the_same_dataset(ledger: Ledger) -> None:
    first = ledger.dataset_for(ledger.identify(graph()), "campus")
    assert ledger.dataset_for(ledger.identify(graph()), "copy of campus") == first == "campus"
    entries = len(ledger.history().entries)
    assert ledger.dataset_for(ledger.identify(graph()), "copy of campus") == "campus"
    assert len(ledger.history().entries) == entries  # a name is entered once
    assert ledger.datasets()["campus"].names == ["campus", "copy of campus"]
    assert ledger.find_dataset("copy of campus") == "campus"


def test_other_data_under_the_same_name_is_another_dataset(ledger: Ledger) -> None:
    assert ledger.dataset_for(ledger.identify(graph(1)), "graph") == "graph"
    assert ledger.dataset_for(ledger.identify(graph(2)), "graph") == "graph-2"
    assert ledger.dataset_for(ledger.identify(graph(3)), "graph") == "graph-3"
    assert ledger.dataset_for(ledger.identify(graph(2)), "graph") == "graph-2"
    assert ledger.find_dataset("graph") == "graph"


def test_data_that_resembles_a_known_dataset_needs_a_decision(ledger: Ledger) -> None:
    ledger.dataset_for(ledger.identify(graph()), "campus")
    before = len(ledger.history().entries)
    newer = ledger.identify(changed(graph(), 0.1))
    with pytest.raises(
        InputError, match=r"shares about \d\d% of its entries with 'campus'.*--continues campus.*--separate"
    ):
        ledger.dataset_for(newer, "campus-may")
    with pytest.raises(InputError, match="got both"):
        ledger.dataset_for(newer, "campus-may", continues="campus", separate="no")
    with pytest.raises(InputError, match="expected a dataset of this ledger"):
        ledger.dataset_for(newer, "campus-may", continues="campos")
    assert len(ledger.history().entries) == before
    assert ledger.dataset_for(newer, "campus-may", continues="campus") == "campus"
    decision = ledger.history().entries[-1]
    assert (decision.kind, decision.values["operator"]) == ("continues", "tester")
    assert decision.values["likeness"]["edges"] > 0.5
    assert ledger.dataset_for(newer, "campus-may") == "campus"  # decided once


def test_a_separate_dataset_keeps_the_reason(ledger: Ledger) -> None:
    ledger.dataset_for(ledger.identify(graph()), "campus")
    newer = ledger.identify(changed(graph(), 0.1))
    assert ledger.dataset_for(newer, "campus", separate="other people, same template") == "campus-2"
    values = ledger.history().entries[-1].values
    assert values["separate"] == "other people, same template"
    assert list(values["alike"]) == ["campus"]
    assert ledger.dataset_for(newer, "campus") == "campus-2"
    third = ledger.identify(changed(graph(), 0.15))
    with pytest.raises(InputError, match=r"'campus'.*'campus-2'"):
        ledger.dataset_for(third, "campus")


def test_a_dataset_that_changed_little_by_little_is_recognized_by_its_last_content(ledger: Ledger) -> None:
    ledger.dataset_for(ledger.identify(graph()), "campus")
    for share in (0.25, 0.5, 0.75):
        ledger.dataset_for(ledger.identify(changed(graph(), share)), "campus", continues="campus")
    with pytest.raises(InputError, match="campus"):
        ledger.dataset_for(ledger.identify(changed(graph(), 0.8)), "campus")


def test_a_dataset_entered_by_its_name_takes_the_first_content_that_comes_with_it(ledger: Ledger) -> None:
    ledger.create("campus", EDGE.as_dict())
    ledger.set_limit(1.0, DELTA)
    assert ledger.dataset_for(ledger.identify(graph()), "campus") == "campus"
    assert ledger.dataset_for(ledger.identify(graph(5)), "campus", separate="another campus") == "campus-2"
    book = ledger.on(Occasion(arrays=graph()))
    with pytest.raises(BudgetError):
        open_run(book, sums_of(2.0), "renamed", seeded=False)
    assert ledger.history().entries[-1].dataset == "campus"


def test_a_known_name_with_wholly_other_content_is_a_question(ledger: Ledger) -> None:
    ledger.dataset_for(ledger.identify(graph()), "campus")
    entries = len(ledger.history().entries)
    with pytest.raises(InputError, match=r"'campus'.*wholly other content.*--continues campus.*--separate"):
        ledger.dataset_for(ledger.identify(graph(5)), "campus")
    assert len(ledger.history().entries) == entries
    assert ledger.dataset_for(ledger.identify(graph(5)), "campus", continues="campus") == "campus"
    for seed in (6, 7):  # data that was given no name
        ledger.dataset_for(ledger.identify(graph(seed)), "graph")
    assert "graph-2" in {entry.dataset for entry in ledger.history().entries}


def test_runs_find_their_dataset_by_its_content(ledger: Ledger) -> None:
    for name in ("graph", "copy"):
        open_run(ledger.on(Occasion(arrays=graph())), sums_of(1.0), name, seeded=False)
    assert ledger.total("graph", EDGE).epsilon == pytest.approx(2.0)
    open_run(ledger.on(Occasion(arrays=changed(graph(), 0.1), continues="graph")), sums_of(1.0), "may", seeded=False)
    assert ledger.total("graph", EDGE).runs == 3
    book = ledger.on(Occasion(continues="graph"))  # a decision made before, for whoever asks without one
    assert book.dataset_for(book.identify(changed(graph(), 0.2)), "june") == "graph"
    entries = len(ledger.history().entries)
    assert book.dataset_for(book.identify(graph()), "graph") == "graph"
    assert len(ledger.history().entries) == entries


def test_the_wrong_dataset_cannot_be_continued_with_known_content(ledger: Ledger) -> None:
    ledger.dataset_for(ledger.identify(graph(1)), "one")
    ledger.dataset_for(ledger.identify(graph(2)), "two")
    with pytest.raises(InputError, match="expected 'one', which has exactly this content"):
        ledger.dataset_for(ledger.identify(graph(1)), "one", continues="two")


def test_what_recognizes_a_dataset_does_not_leave_the_folder(ledger: Ledger, tmp_path: Path) -> None:
    identity = ledger.identify(graph())
    ledger.dataset_for(identity, "campus")
    export(ledger, tmp_path / "out.jsonl")
    text = (tmp_path / "out.jsonl").read_text()
    assert identity.fingerprint not in text
    assert not any(f"{value:016x}" in text for value in identity.edges.values)
    other = Ledger(tmp_path / "other")
    assert other.identify(graph()).fingerprint != identity.fingerprint


# A limit on a name, and data that was known under another


def limit(ledger: Ledger, name: str, epsilon: float = 1.0, **more: str) -> None:
    ledger.on(Occasion(operator="officer", purpose="decision 12")).set_limit(
        epsilon, DELTA, dataset=name, unit=EDGE, **more
    )


def train(ledger: Ledger, arrays: GraphArrays, name: str, epsilon: float, **decided: str) -> Run:
    run = open_run(ledger.on(Occasion(arrays=arrays, **decided)), sums_of(epsilon), name, seeded=False)
    run.charge(run.plan.stages[0])
    run.close()
    return run


def test_a_limit_on_a_name_binds_runs_on_the_same_data_under_another_name(ledger: Ledger) -> None:
    limit(ledger, "members")
    train(ledger, graph(), "copy", 8.0)
    with pytest.raises(BudgetError, match=r"the dataset's limit is epsilon 1 at delta 1e-06"):
        train(ledger, graph(), "members", 0.5)
    assert list(ledger.datasets()) == ["copy"]
    assert ledger.find_dataset("members") == ledger.dataset_named("members") == "copy"
    total = ledger.total("members", EDGE)
    assert (total.runs, total.limit["epsilon"], total.limit["operator"]) == (1, 1.0, "officer")  # type: ignore[index]
    with pytest.raises(BudgetError):
        train(ledger, graph(), "copy", 0.01)
    check_history(ledger.history())


def test_joined_runs_that_fit_leave_the_rest_of_the_limit(ledger: Ledger) -> None:
    limit(ledger, "members", 5.0)
    train(ledger, graph(), "copy", 2.0)
    train(ledger, graph(), "members", 0.5)
    with pytest.raises(BudgetError):
        train(ledger, graph(), "copy", 4.0)
    assert ledger.total("copy", EDGE).runs == 2
    other = ledger.identify(graph(5))
    assert ledger.dataset_for(other, "members", separate="others") == "members-2"  # the name was used up
    check_history(ledger.history())


def test_of_two_limits_that_meet_the_stricter_one_binds(ledger: Ledger) -> None:
    for first, second in ((5.0, 2.0), (2.0, 5.0)):
        book, arrays = Ledger(ledger.folder.parent / f"{first}"), graph()  # type: ignore[union-attr]
        limit(book, "copy", first)
        train(book, arrays, "copy", 1.0)
        limit(book, "members", second)
        train(book, arrays, "members", 0.1)
        assert book.total("copy", EDGE).limit["epsilon"] == 2.0  # type: ignore[index]
        check_history(book.history())


@pytest.mark.parametrize("decided", [{"continues": "copy"}, {"separate": "another study"}])
def test_no_decision_about_similar_data_leaves_the_limit_behind(ledger: Ledger, decided: dict[str, str]) -> None:
    limit(ledger, "members")
    train(ledger, graph(), "copy", 0.5)
    with pytest.raises(BudgetError, match="limit is epsilon 1"):
        train(ledger, changed(graph(), 0.1), "members", 3.0, **decided)
    assert ledger.total("members", EDGE).limit is not None


def test_a_name_with_runs_of_its_own_is_not_joined_silently(ledger: Ledger) -> None:
    open_run(ledger, sums_of(1.0), "members", seeded=False)
    train(ledger, graph(), "copy", 1.0)
    with pytest.raises(InputError, match=r"Two histories cannot be joined.*--separate"):
        train(ledger, graph(), "members", 1.0)
    train(ledger, graph(), "members", 1.0, separate="those were about last year")
    assert ledger.total("copy", EDGE).runs == 2
    check_history(ledger.history())


def test_verification_finds_a_limit_that_was_left_behind(ledger: Ledger) -> None:
    limit(ledger, "members")
    train(ledger, graph(), "copy", 8.0)
    ledger.append("alias", {"dataset": "copy", "name": "members", "operator": "ben", "purpose": ""})
    assert any("are not bound by it" in problem for problem in history_problems(ledger.history()))
    with pytest.raises(BudgetError):  # the next run under that name joins them
        train(ledger, graph(), "members", 0.1)
    check_history(ledger.history())


def test_verification_finds_a_join_without_its_limit(ledger: Ledger) -> None:
    limit(ledger, "members")
    train(ledger, graph(), "copy", 0.5)
    ledger.append("joined", {"dataset": "members", "name": "members", "into": "copy", "operator": "ben", "purpose": ""})
    assert any("was not set on 'copy'" in problem for problem in history_problems(ledger.history()))
    train(ledger, graph(), "copy", 0.5)
    assert any("was let in before the limit" in problem for problem in history_problems(ledger.history()))
