"""Reports of all people at once. The randomizers themselves: tests/local."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.local import MultiBit, RandomizedResponse, UnaryEncoding
from hushgraph.mechanisms import LocalReport
from hushgraph.mechanisms.local_report import _device_randomness
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events, units
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.mechanism import mechanism_from_dict
from hushgraph.privacy.units import Relation
from matrix_graphs import view_of
from small_graphs import random_graph

ROWS = np.array([[-1.0, 0.5], [2.0, 9.0]], dtype=np.float32)
FEATURES, LABELS = LocalReport(MultiBit(2.0, 5)), LocalReport(RandomizedResponse(1.0, 3), "labels")


def unit_interval(low: object, high: object) -> np.ndarray:
    return LocalReport(MultiBit(1.0, 2), low=low, high=high)._unit_interval(ROWS)  # type: ignore[arg-type]


def test_rows_are_clipped_and_moved_to_the_unit_interval() -> None:
    assert unit_interval(0.0, 1.0).tolist() == [[0.0, 0.5], [1.0, 1.0]]
    assert unit_interval(-2.0, 2.0).tolist() == [[0.25, 0.625], [1.0, 1.0]]
    assert unit_interval((-1.0, 0.0), (2.0, 10.0)) == pytest.approx(np.array([[0.0, 0.05], [1.0, 0.9]]))
    assert ROWS.tolist() == [[-1.0, 0.5], [2.0, 9.0]]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (0.0, math.inf), (math.nan, 1.0), ((0.0,) * 3, (1.0,) * 3)])
def test_ranges_that_make_no_sense_are_refused(low: object, high: object) -> None:
    with pytest.raises(InputError, match="range"):
        unit_interval(low, high)


def test_a_range_from_the_data_is_that_of_each_column_and_nothing_is_proved() -> None:
    report = LocalReport(MultiBit(1.0, 2), range_from_data=True)
    assert report._unit_interval(ROWS).tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert report.event(units.Local(), 1.0) == events.non_private()
    assert report.claimed_event(units.Local(), 1.0) == events.pure(1.0)


def test_a_report_is_priced_for_the_local_unit_only() -> None:
    assert PrivacyLoss(FEATURES.event(units.Local(), 1.0), Relation.REPLACE).epsilon(1e-5) == 2.0
    assert FEATURES.event(units.Local(), 0.0) == events.non_private()
    for unit in (units.Node(), units.Record()):
        with pytest.raises(UnprovenError, match=f"local-report has no proof under the unit '{unit.name}'"):
            FEATURES.event(unit, 1.0)


def test_only_a_seeded_run_has_repeatable_devices() -> None:
    source = NoiseSource.from_os()
    assert _device_randomness(source).random(4).tolist() != _device_randomness(source).random(4).tolist()
    first, second = (_device_randomness(NoiseSource.seeded(1).stream("features")).random(4) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first.tolist() != _device_randomness(NoiseSource.seeded(1).stream("labels")).random(4).tolist()


def test_a_report_of_bits_is_drawn_kept_and_read_back() -> None:
    bits = LocalReport(UnaryEncoding(1.0, 3), "labels")
    graph = check_graph(random_graph(0))
    reports = bits.release(view_of(graph, bits, None), 1.0, NoiseSource.seeded(0))
    asked = torch.cat([graph.train, graph.val])
    assert reports.shape == (40, 3)
    assert set(reports[asked].unique().tolist()) == {0, 1}
    assert (reports[graph.test] == -1).all()
    again = mechanism_from_dict(json.loads(json.dumps(bits.as_dict())))
    assert torch.equal(again.from_tensors(again.to_tensors(reports)), reports)


@pytest.mark.parametrize("randomizer", [RandomizedResponse(1.0, 3), UnaryEncoding(1.0, 3)])
def test_a_report_of_somebody_without_a_label_is_within_epsilon_of_every_other(randomizer: Any) -> None:
    """No label has the mean of the laws of all labels: it is one more input under the same claim."""
    laws = [randomizer.law(label)[1] for label in range(3)]
    nothing = np.mean(laws, axis=0)
    assert max(np.abs(np.log(nothing / law)).max() for law in laws) < 1.0
    graph = random_graph(0, num_nodes=60_000, num_edges=2)
    graph.y[:] = -1
    checked, mechanism = check_graph(graph), LocalReport(randomizer, "labels")
    drawn = mechanism.release(view_of(checked, mechanism, None), 1.0, NoiseSource.seeded(0))
    reports = drawn[torch.cat([checked.train, checked.val])].numpy()
    outcomes = randomizer.law(0)[0]
    equal = (reports[:, None] == outcomes[None]).reshape(len(reports), len(outcomes), -1).all(axis=2)
    assert chisquare(equal.sum(axis=0), nothing * len(reports)).pvalue > 1e-7  # seeded: always the same


def test_labels_are_asked_of_training_and_validation_nodes_only() -> None:
    graph = check_graph(random_graph(0))
    reports = LABELS.release(view_of(graph, LABELS, None), 1.0, NoiseSource.seeded(0))
    asked = torch.cat([graph.train, graph.val])
    silent = torch.ones(40, dtype=torch.bool).index_fill_(0, asked, False)
    assert (reports[silent] == -1).all()
    assert (reports[asked] >= 0).all()
    exact = LABELS.query(view_of(graph, LABELS, None))
    assert torch.equal(exact, graph.labels)


def test_reports_survive_a_model_folder() -> None:
    graph = check_graph(random_graph(0))
    features, labels = (
        (report, mechanism.from_tensors(mechanism.to_tensors(report)))
        for mechanism in (FEATURES, LABELS)
        for report in [mechanism.release(view_of(graph, mechanism, None), 1.0, NoiseSource.seeded(0))]
    )
    assert np.array_equal(*(FEATURES.randomizer.estimate(report) for report in features))
    assert torch.equal(*labels)


def test_the_randomizer_and_the_range_read_back() -> None:
    for mechanism in (FEATURES, LABELS, LocalReport(MultiBit(1.0, 2), low=(-1.0, 0.0), high=(1.0, 2.0))):
        assert mechanism_from_dict(json.loads(json.dumps(mechanism.as_dict()))) == mechanism


def test_only_the_reported_part_is_read() -> None:
    assert FEATURES.reads == {"features"}
    assert LABELS.reads == {"labels"}
    assert LABELS.query(SimpleNamespace(labels=7)) == 7
