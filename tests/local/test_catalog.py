"""Randomizers by name, as values that are written down and read back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hushgraph import local
from hushgraph.errors import InputError
from hushgraph.local import (
    FEATURES,
    RANDOMIZERS,
    SCALARS,
    FeatureRR,
    MultiBit,
    OneBit,
    PerFeature,
    RandomizedResponse,
    SampledFeatures,
    UnaryEncoding,
    realized_epsilon,
)

EXAMPLES = [
    *(local.scalar(name, 0.1 + 0.2, -1.5, 2.0) for name in SCALARS),
    MultiBit(np.float64(4.4), np.int64(12), 0.0, 3.0),
    MultiBit(2.0, 12, sampled=7),
    FeatureRR(1.5, (0.1, 0.6, 0.3), 4, -1.0, 2.0),
    PerFeature(local.scalar("piecewise", 1 / 3), 5),
    SampledFeatures.with_total(SCALARS["hybrid"], 2.0, 9, -1.0, 1.0),
    RandomizedResponse(1.0, 4),
    UnaryEncoding(2.5, 3, "symmetric"),
]


@pytest.mark.parametrize("randomizer", EXAMPLES, ids=lambda each: each.name)
def test_what_was_written_as_json_is_read_back_exactly(randomizer):
    text = json.dumps(randomizer.as_dict(), allow_nan=False)
    again = local.from_dict(json.loads(text))
    assert again == randomizer
    assert type(again) is type(randomizer)
    assert again.epsilon == randomizer.epsilon
    assert json.dumps(again.as_dict()) == text


def test_every_randomizer_has_an_example_and_a_name_of_its_own():
    assert {type(each) for each in EXAMPLES} == set(RANDOMIZERS.values())
    assert all(kind.name == name for name, kind in RANDOMIZERS.items())
    assert len(set(RANDOMIZERS.values())) == len(RANDOMIZERS)


@pytest.mark.parametrize("randomizer", EXAMPLES, ids=lambda each: each.name)
def test_parts_add_up_to_the_whole_and_each_realizes_its_share(randomizer):
    assert randomizer.parts * randomizer.one_part.epsilon == pytest.approx(randomizer.epsilon, rel=1e-12)
    assert realized_epsilon(randomizer.one_part) == pytest.approx(randomizer.epsilon / randomizer.parts, abs=1e-9)


@pytest.mark.parametrize("randomizer", EXAMPLES, ids=lambda each: each.name)
def test_ratios_of_drawn_reports_have_a_column_for_each_part_and_favor_the_truth(randomizer):
    top, bottom = randomizer.extreme_inputs()
    people = 4000
    means = []
    for value in (top, bottom):
        values = np.tile(value, (people, 1)) if np.ndim(value) else np.full(people, value)
        ratios = randomizer.log_ratio(randomizer.perturb(values, np.random.default_rng(0)), top, bottom)
        assert ratios.shape == (people, randomizer.parts)
        assert np.abs(ratios).max() <= randomizer.one_part.epsilon + 1e-9
        means.append(ratios.sum(axis=1).mean())
    assert means[0] > 0 > means[1]


@pytest.mark.parametrize("name", SCALARS)
def test_numbers_by_name(name):
    mechanism = local.scalar(name, 1.5, -2.0, 2.0)
    assert mechanism == SCALARS[name](1.5, -2.0, 2.0)
    assert mechanism.name == name


@pytest.mark.parametrize("name", FEATURES)
def test_vectors_by_name_spend_at_most_the_total(name):
    chosen = local.feature_randomizer(name, 3.3, 11, -1.0, 1.0)
    everything = local.feature_randomizer(name, 3.3, 11, -1.0, 1.0, sampled=11)
    for randomizer in (chosen, everything):
        assert randomizer.epsilon <= 3.3
        assert randomizer.epsilon == pytest.approx(3.3)
    assert everything.parts == 11
    assert isinstance(everything, MultiBit if name == "multi-bit" else PerFeature)
    assert isinstance(chosen, MultiBit if name == "multi-bit" else SampledFeatures)
    estimates = chosen.estimate(chosen.perturb(np.zeros((3, 11))))
    assert estimates.shape == (3, 11)


def test_mistakes_are_named():
    with pytest.raises(InputError, match="did you mean 'piecewise'"):
        local.scalar("piecwise", 1.0)
    with pytest.raises(InputError, match="randomizer of features; got 'unary'"):
        local.feature_randomizer("unary", 1.0, 3)
    with pytest.raises(InputError, match="did you mean 'one-bit'"):
        local.from_dict({"name": "one_bit", "epsilon": 1.0})
    with pytest.raises(InputError, match="with its name and parameters"):
        local.from_dict("one-bit")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got None"):
        local.from_dict({"epsilon": 1.0})
    with pytest.raises(InputError, match=r"got \['one-bit'\]"):
        local.from_dict({"name": ["one-bit"], "epsilon": 1.0})


def test_all_wrong_parameters_are_reported_together():
    with pytest.raises(InputError) as caught:
        local.from_dict({"name": "unary", "epsilon": 1.0, "kinds": "symmetric"})
    assert "unknown parameter 'kinds'; did you mean 'kind'" in str(caught.value)
    assert "expected the parameter 'classes'" in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": "1.0"},
        {"epsilon": True},
        {"epsilon": None},
        {"low": "0"},
        {"low": 1.0},
        {"dimensions": 2.5},
        {"dimensions": True},
        {"sampled": 9},
        {"sampled": [1]},
    ],
)
def test_values_of_the_wrong_kind_are_refused(changes):
    with pytest.raises(InputError):
        local.from_dict({**MultiBit(2.0, 8).as_dict(), **changes})


def test_nested_values_are_checked_as_deeply():
    whole = PerFeature(OneBit(1.0), 4).as_dict()
    with pytest.raises(InputError, match="did you mean 'one-bit'"):
        local.from_dict({**whole, "mechanism": {"name": "onebit", "epsilon": 1.0}})
    with pytest.raises(InputError, match="single numbers as mechanism; got RandomizedResponse"):
        local.from_dict({**whole, "mechanism": RandomizedResponse(1.0, 3).as_dict()})
    with pytest.raises(InputError, match="single numbers as mechanism; got float"):
        local.from_dict({**whole, "mechanism": 1.0})
