"""Sentences follow the fields they are made from: change the field, and the sentence changes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hushgraph.ledger.certificate import Certificate, Charge, DatasetTotal, Randomness
from hushgraph.privacy.loss import NO_LOSS
from hushgraph.privacy.notes import Code, note
from hushgraph.privacy.plan import PaperClaim
from hushgraph.privacy.units import DirectedEdge, Local, Node, NodeReplace, UndirectedEdge
from hushgraph.report import words
from reports import context

SUM = Charge("sums", "neighbor-sum", "gaussian", None, 2, 3.0, math.sqrt(2.0))
STEPS = Charge("classifier", "gradient", "gaussian", "poisson", 1, 2.5, 1.0)
COUNT = Charge("count", "edge-count", "discrete-laplace", None, 1, 848.0, 100.0)
REPORT = Charge("features", "local-report", "randomizer", None, 1, 1.0, 1.0)


def certificate(**changes: object) -> Certificate:
    return replace(context().certificate, **changes)  # type: ignore[arg-type]


def test_the_claim_states_epsilon_delta_unit_and_change() -> None:
    said = words.claim(certificate(epsilon=3.99991))
    assert "(4, 1e-05)-differentially private for the unit 'undirected-edge'" in said
    assert UndirectedEdge().change in said


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"epsilon": math.inf}, "NO differential privacy guarantee"),
        ({"randomness": Randomness.SEEDED}, "NOT PRIVATE"),
        ({"epsilon": 0.0, "accountant": NO_LOSS}, "does not depend on whether any one pair of nodes is connected"),
    ],
)
def test_a_claim_that_promises_nothing_or_needs_nothing_says_so(changes: dict[str, object], expected: str) -> None:
    said = words.claim(certificate(**changes))
    assert expected in said
    assert "differentially private for" not in said


def test_epsilon_zero_at_a_large_delta_is_not_said_to_read_nothing() -> None:
    said = words.claim(certificate(epsilon=0.0, delta=0.04))
    assert "(0, 0.04)-differentially private" in said
    assert "does not depend" not in said


def test_a_printed_epsilon_is_never_below_the_proved_one() -> None:
    assert "(1.001," in words.claim(certificate(epsilon=1.0001))
    assert words.number(1.00001) == "1.001"
    assert words.number(math.inf) == "infinite"


def test_each_relation_has_its_own_words() -> None:
    said = [words.relation(unit) for unit in (UndirectedEdge(), Node(), NodeReplace())]
    assert said == ["add or remove one", "replace one by an empty record", "replace one by any other"]


def test_a_release_names_noise_bound_and_batches_by_its_law() -> None:
    assert words.charge_line(SUM) == (
        "sums: 2 x neighbor-sum, Gaussian noise of standard deviation 3, sensitivity 1.415"
    )
    assert words.charge_line(STEPS).endswith("standard deviation 2.5, sensitivity 1, Poisson-sampled batches")
    assert "discrete Laplace noise of scale 848, sensitivity 100" in words.charge_line(COUNT)
    assert words.charge_line(REPORT) == "features: local-report, one randomized report per person"
    assert words.charge_line(replace(STEPS, scale=0.0)) == "classifier: gradient, no noise"
    flips = replace(COUNT, law="randomized-response", scale=0.2525)
    assert "on every pair of nodes, of loss 3.961 a pair" in words.charge_line(flips)
    assert "cauchy noise of scale 3" in words.charge_line(replace(SUM, law="cauchy"))


def test_sampling_is_assumed_exactly_where_a_charge_says_so() -> None:
    assert "No sampling is assumed" in words.sampling(certificate(charges=(SUM,)))
    both = words.sampling(certificate(charges=(SUM, STEPS)))
    assert "Poisson-sampled in classifier" in both
    assert "All other releases count in full" in both
    assert "All other" not in words.sampling(certificate(charges=(STEPS,)))
    assert "nothing is assumed" in words.sampling(certificate(charges=(replace(STEPS, scale=0.0),)))


def test_trust_follows_the_unit_and_the_guarantee() -> None:
    central, local = certificate(), certificate(unit=Local(), charges=(REPORT,), randomness=Randomness.DEVICES)
    assert words.setting(central).startswith("Central DP")
    assert "data holder is trusted" in words.trust(central)
    assert words.setting(local).startswith("Local DP")
    assert "server is not trusted" in words.trust(local)
    assert "data holder" not in words.trust(local)
    for nothing in (replace(central, epsilon=math.inf), replace(local, epsilon=math.inf)):
        assert words.setting(nothing).startswith("None")
        assert "nothing is protected" in words.trust(nothing)


def test_reports_come_from_devices_only_where_they_were_collected() -> None:
    study = certificate(unit=Local(), charges=(REPORT,), randomness=Randomness.DEVICES)
    collected = replace(study, public=(note(Code.DEVICE_TASK, task="survey"),))
    assert "one machine held all records" in words.trust(study)
    assert "in place of people's devices" in words.randomness(study)
    assert "stayed on people's devices" in words.trust(collected)
    assert "one machine" not in words.trust(collected) + words.randomness(collected) + words.setting(collected)


def test_the_source_of_noise_is_said_for_every_kind() -> None:
    found = {kind: words.randomness(certificate(randomness=kind)) for kind in Randomness}
    assert len(set(found.values())) == len(Randomness)
    assert "NOT PRIVATE" in found[Randomness.SEEDED]
    assert "operating-system entropy" in found[Randomness.SYSTEM]
    assert "no bound is proved" in found[Randomness.ABSENT]
    without = certificate(randomness=Randomness.ABSENT, charges=(replace(SUM, scale=0.0),))
    assert words.randomness(without) == "no noise: nothing is protected"


def test_how_noise_is_drawn_is_said_for_the_laws_in_use_alone() -> None:
    assert words.samplers(certificate(charges=(SUM, STEPS))) == ["Gaussian noise is drawn in whole multiples of a grid"]
    assert "grid" not in words.randomness(certificate(charges=(COUNT,)))
    assert "whole number" in words.randomness(certificate(charges=(COUNT,)))
    assert words.samplers(certificate(charges=(REPORT,))) == []


def test_paper_mode_shows_both_epsilons() -> None:
    assert words.paper(certificate()) is None
    said = words.paper(certificate(epsilon=5.9, paper=PaperClaim(DirectedEdge(), "renyi", 4.0)))
    assert said is not None
    for part in ("claim epsilon 4 for the unit 'directed-edge'", "'undirected-edge' is 5.9", "renyi"):
        assert part in said


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (DatasetTotal(4.0, 1e-5, "together", True, 1, None), "epsilon 4 at delta 1e-05 over 1 run; no limit declared"),
        (DatasetTotal(6.0, 1e-5, "filter", True, 2, 8.0), "by a privacy filter under a limit set beforehand"),
        (DatasetTotal(6.0, 2e-5, "basic composition", True, 3, 8.0), "by adding up epsilons and deltas"),
        (DatasetTotal(6.0, 1e-5, "declared together", True, 2, 8.0), "declared together"),
        (
            DatasetTotal(math.inf, 1e-5, "basic composition", False, 2, 8.0, seeded=True),
            "NOT PRIVATE over 2 runs, because of a seeded one; limit 8",
        ),
        (
            DatasetTotal(math.inf, 1e-5, "basic composition", False, 2, None),
            "NOT PRIVATE over 2 runs, because nothing is proved about one of them or more for this unit; no limit",
        ),
        (DatasetTotal(6.0, 1e-5, "a new kind", True, 2, 8.0), "by a new kind; limit 8"),
    ],
)
def test_a_total_says_how_it_is_proved(total: DatasetTotal, expected: str) -> None:
    assert expected in words.total(total)


def test_the_whole_certificate_fits_a_terminal() -> None:
    found = certificate(
        charges=(SUM, STEPS, COUNT),
        public=(note(Code.SIZES, nodes=100, train=75), note(Code.SETTINGS)),
        paper=PaperClaim(DirectedEdge(), "renyi", 4.0),
        profile={"1e-06": 5.0},
        mu=0.5,
    )
    text = words.explain(found, note(Code.CHOSE_LABELS, method="chorus"))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    for part in ("mu = 0.5", "epsilon 5 at delta 1e-06", "count: edge-count", "labels are public at edge level"):
        assert part in flat
    assert [str(one) in flat for one in (*found.public, *found.unprotected)] == [True] * 6


def test_equal_epsilons_are_not_repeated() -> None:
    assert words.profile(certificate(epsilon=8.0, profile={"1e-06": 8.0, "1e-07": 8.0})) == [
        "the same at every smaller delta"
    ]


def test_lists_read_as_people_write_them() -> None:
    assert [words.listed(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert [words.counted(n, "run") for n in (1, 2, 1000)] == ["1 run", "2 runs", "1,000 runs"]
