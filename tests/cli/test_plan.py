from __future__ import annotations

import json
import math

import pytest

from commands import flat, run, run_json
from hushgraph.privacy.plan import Plan

GAP = ["plan", "gap", "--nodes", 26406, "--edges", 2117924, "--epsilon", 4, "--delta", 1e-7]


def test_figures_of_every_stage_and_the_plan_itself() -> None:
    shown = run_json(*GAP, "--unit", "undirected-edge")
    assert (shown["method"], shown["unit"], shown["delta"]) == ("gap", "undirected-edge", 1e-7)
    assert 3.999 < shown["epsilon"] <= 4.0
    encoder, sums, _ = shown["stages"]
    assert [sums["mechanism"], sums["law"], sums["count"]] == ["neighbor-sum", "gaussian", 2]
    assert sums["scale"] == pytest.approx(sums["noise_multiplier"] * sums["sensitivity"])
    assert sums["epsilon_alone"] == pytest.approx(shown["epsilon"])
    assert (encoder["scale"], encoder["law"], encoder["epsilon_alone"]) == (None, "none", 0.0)
    plan = Plan.from_dict(shown["plan"])
    assert plan["aggregation"].scale == sums["scale"]
    assert plan.epsilon == shown["epsilon"]


def test_declared_edges_set_delta_and_are_not_needed() -> None:
    words = ["plan", "gap", "--unit", "undirected-edge", "--nodes", 1000, "--epsilon", 4]
    assert run_json(*words)["delta"] == 1e-6
    assert run_json(*words, "--edges", 200_000)["delta"] == 1e-7
    assert run_json(*words, "--edges", 200)["delta"] == 1e-5  # as for 1000 units: never more than nodes allow
    assert run_json(*words, "--edges", 200)["plan"]["metadata"]["num_edges"] == 200


def test_paper_mode_shows_both_epsilons() -> None:
    words = [*GAP, "--unit", "directed-edge", "--paper-mode"]
    assert "claimed epsilon 4 for 'directed-edge'; provable 5.89" in flat(run(*words))
    shown = run_json(*words)
    assert shown["paper"]["epsilon"] == pytest.approx(4.0, abs=1e-3)
    assert shown["paper"]["unit"]["name"] == "directed-edge"
    assert (shown["unit"], shown["epsilon"]) == ("undirected-edge", pytest.approx(5.89, abs=0.01))


def test_the_plan_of_auto_tells_what_is_asked_and_both_branches() -> None:
    words = ["plan", "auto", "--unit", "node", "--nodes", 6000, "--epsilon", 8]
    shown = run_json(*words)
    count, pairs = shown["stages"]
    assert [count["mechanism"], pairs["mechanism"]] == ["edge-count", "pair-count"]
    assert 0 < count["epsilon_alone"] <= 0.02 * 8
    assert 0 < pairs["epsilon_alone"] <= 0.03 * 8
    assert count["noise_multiplier"] is None
    assert [branch["method"] for branch in shown["branches"]] == ["chorus-codes", "dp-mlp"]
    rest = 8 - count["epsilon_alone"] - pairs["epsilon_alone"]
    assert [branch["budget"] for branch in shown["branches"]] == [pytest.approx(rest)] * 2
    assert 7.98 < shown["epsilon"] <= 8.0
    text = flat(run(*words))
    assert "First this is asked with noise, for epsilon" in text
    assert "count of edges and pairs of neighbors" in text
    assert "A rule chooses chorus-codes or dp-mlp" in text
    declared = run_json(*words, "--set", "average_degree=40")
    assert [stage["mechanism"] for stage in declared["stages"]] == ["pair-count"]
    assert run_json(*words, "--set", "average_degree=1")["branches"] == []


def test_node_units_take_a_degree_cap_and_older_names_work() -> None:
    words = ["plan", "gap", "--nodes", 26406, "--epsilon", 8, "--delta", 1e-5, "--set", "max_degree=25"]
    shown = run_json(*words, "--unit", "node", "--set", "hidden=8")
    assert shown["plan"]["unit"] == {"name": "node", "max_degree": 25}
    assert [stage["name"] for stage in shown["stages"]] == ["encoder", "aggregation", "classifier"]
    assert shown["stages"][1]["sensitivity"] == pytest.approx(5.0)
    assert shown["stages"][0]["sampling"] == "poisson"
    assert run_json(*words, "--unit", "node-promise")["unit"] == "bounded-degree-node"


def test_local_methods_need_features_and_classes() -> None:
    words = ["plan", "lpgnn", "--unit", "local", "--nodes", 1000, "--epsilon", 4, "--set", "low=0", "--set", "high=1"]
    refused = run(*words)
    assert (refused.exit_code, "features: expected their number" in refused.stderr) == (2, True)
    shown = run_json(*words, "--features", 8, "--classes", 3)
    assert [stage["epsilon_alone"] for stage in shown["stages"]] == [2.0, 2.0]
    assert "local-report" in flat(run(*words, "--features", 8, "--classes", 3))


def test_no_protection_is_shown_as_such() -> None:
    words = ["plan", "gcn", "--unit", "undirected-edge", "--nodes", 100, "--epsilon", "inf"]
    assert run_json(*words)["epsilon"] == "inf"
    assert "epsilon infinite" in flat(run(*words))


def test_everything_wrong_is_reported_at_once_and_as_json() -> None:
    words = ["plan", "gapp", "--unit", "nod", "--nodes", 10, "--epsilon", -1]
    result = run(*words)
    assert result.exit_code == 2
    for part in ("did you mean 'gap'", "did you mean 'node'", "epsilon: expected a positive number"):
        assert part in result.stderr
    error = json.loads(run(*words, "--json").stdout)
    assert (error["exit_code"], error["kind"]) == (2, "InputError")


def test_numbers_that_are_none_are_named_as_such() -> None:
    words = ["plan", "gap", "--unit", "node", "--nodes"]
    assert "expected a number; got 'abc'" in run(*words, 100, "--epsilon", "abc").output
    refused = run(*words, -5, "--epsilon", 4)
    assert (refused.exit_code, "nodes: expected at least 1; got -5" in refused.output) == (2, True)
    assert "at most" not in refused.output


def test_no_accountant_is_named_where_there_is_no_bound() -> None:
    shown = flat(run("plan", "sage", "--unit", "node", "--nodes", 100, "--epsilon", "inf"))
    assert "accountant: none, because there is no finite bound" in shown


def test_steps_and_sampling_rate_are_told_where_batches_are_drawn() -> None:
    words = ["plan", "gap", "--nodes", 500, "--epsilon", 8, "--set", "batch_size=75", "--set", "epochs=3"]
    text = flat(run(*words, "--unit", "node"))
    assert "encoder and classifier of gap: 15 steps, each on a Poisson batch at rate 0.2" in text
    assert "Poisson" not in flat(run(*words, "--unit", "undirected-edge"))


def test_what_the_noise_leaves_is_said_before_it_is_paid_for() -> None:
    rows = ["plan", "dp-appr", "--unit", "node-with-edges", "--nodes", 4000, "--epsilon", 4]
    (picks,) = run_json(*rows)["remarks"]
    assert picks.startswith("picks: the nodes of the largest PageRank are preferred by odds of 1.00")
    assert "variant=features" in picks
    assert "times as large as any entry can be" in flat(run(*rows, "--set", "variant=gm"))
    (clear,) = run_json(*rows[:-1], 4000, "--set", "rows=1", "--set", "top=1")["remarks"]
    assert "variant=features" not in clear
    assert run_json(*rows, "--set", "variant=features")["remarks"] == []
    flips = ["plan", "edge-rand", "--unit", "undirected-edge", "--nodes", 4001, "--epsilon", 6]
    (dense,) = run_json(*flips)["remarks"]
    false = 4001 * 4000 / 2 / (1 + math.exp(6))
    assert f"about {false:,.0f} pairs that are not linked" in dense
    assert run_json(*flips, "--set", "density=kept")["remarks"] == []
