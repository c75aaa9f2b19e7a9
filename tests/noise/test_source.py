"""The noise source: its law and tails, its streams, and that blocks do not change a byte.

Statistical tests use fixed seeds. Each accepts with a level of 1e-4 (the chance that a fresh seed would fail a
correct source), and the wrong scales are rejected with p-values far below 1e-12.
"""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from hushgraph.errors import InputError
from hushgraph.noise import normal, perturb
from hushgraph.noise.source import NoiseSource

LEVEL = 1e-4
FINE = 2.0**20  # steps to one standard deviation: rounding is not seen by any test here


def normals(seed: int, n: int) -> torch.Tensor:
    return NoiseSource.seeded(seed).integer_gaussian(n, FINE) / FINE


def ks_p_value(samples: torch.Tensor, std: float) -> float:
    return float(stats.kstest(samples.numpy().reshape(-1) / std, "norm").pvalue)


@pytest.mark.parametrize("std", [0.25, 1.0, 7.0])
def test_law_is_normal_and_other_scales_are_rejected(std: float) -> None:
    noise = NoiseSource.seeded(11)
    samples = noise.integer_gaussian((400, 500), std * FINE) / FINE
    assert ks_p_value(samples, std) > LEVEL
    for wrong in (2 / 3, 3 / 2):
        assert ks_p_value(samples, std * wrong) < 1e-12


def test_moments_and_no_correlation_between_successive_samples() -> None:
    samples = normals(13, 1_000_000)
    n = samples.numel()
    # Each bound is four standard errors: a fresh seed would fail one of the five in about 3e-4 of cases.
    assert abs(float(samples.mean())) < 4 / math.sqrt(n)
    assert abs(float(samples.var()) - 1) < 4 * math.sqrt(2 / n)
    assert abs(float((samples**4).mean()) - 3) < 4 * math.sqrt(96 / n)
    assert abs(float((samples[1:] * samples[:-1]).mean())) < 4 / math.sqrt(n)
    assert abs(float((samples[1:] ** 2 * samples[:-1] ** 2).mean()) - 1) < 4 * math.sqrt(8 / n)


def test_tail_frequencies() -> None:
    samples = normals(14, 20_000_000).numpy()
    for threshold in (3.29, 4.0, 5.0):
        expected = 2 * special.ndtr(-threshold)
        for side in (samples, -samples):
            count = int((side > threshold).sum())
            p_value = stats.binomtest(count, len(samples), expected / 2).pvalue
            assert p_value > LEVEL
        both = int((np.abs(samples) > threshold).sum())
        for wrong in (2 / 3, 3 / 2):
            wrong_rate = 2 * special.ndtr(-threshold / wrong)
            assert stats.binomtest(both, len(samples), wrong_rate).pvalue < 1e-6


def test_tail_beyond_the_switch_has_the_conditional_law() -> None:
    samples = normals(15, 4_000_000).abs().numpy()
    tail = samples[samples > 3.3]
    survival = special.ndtr(-tail) / special.ndtr(-3.3)
    assert stats.kstest(survival, "uniform").pvalue > LEVEL


def test_map_reaches_beyond_8_standard_deviations_on_both_sides() -> None:
    extreme = np.array([1 - 2.0**-53, -(1 - 2.0**-53)])
    high, lower = np.full(2, 1 - 1e-12), np.full(2, 2.0**-6)
    assert normal._tail_normal(extreme, high) == pytest.approx([8.2095, -8.2095], abs=1e-3)
    assert normal._tail_normal(extreme, lower) == pytest.approx([8.697, -8.697], abs=1e-2)
    assert abs(special.ndtri(2.0**-25)) > 5.2  # what 24 bits would give
    assert np.isnan(normal._tail_normal(extreme, np.full(2, 1e-12))).all()  # too few bits: `whole` settles these


def test_tail_map_is_monotone_and_joins_the_body() -> None:
    edge = 1 - 2.0**-10
    cells = edge + np.arange(1, 400, 2) * 2.0**-53
    refined = [normal._tail_normal(cells, np.full(len(cells), inside)) for inside in (0.999, 0.5, 0.001)]
    assert (np.diff(np.stack(refined, axis=1).reshape(-1)) >= 0).all()
    body = math.sqrt(2) * float(torch.erfinv(torch.tensor(edge, dtype=torch.float64)))
    assert refined[0][0] == pytest.approx(body, rel=1e-9)


def test_integers_are_equally_likely() -> None:
    counts = np.bincount(NoiseSource.seeded(17).integers(70_000, 7).numpy(), minlength=7)
    assert stats.chisquare(counts).pvalue > LEVEL


def test_every_order_of_a_part_is_equally_likely() -> None:
    """Chi-square test of 6,000 parts (seed fixed); parts left in order, or cut once, are rejected."""
    parts = NoiseSource.seeded(5).shuffled([torch.tensor([10, 20, 30])] * 6000)
    orders = list(itertools.permutations([10, 20, 30]))

    def p_value(found: list[tuple[int, ...]]) -> float:
        counts = Counter(found)
        assert set(counts) <= set(orders)
        return float(stats.chisquare([counts[order] for order in orders]).pvalue)

    assert p_value([tuple(part.tolist()) for part in parts]) > LEVEL
    cut = [tuple(torch.tensor([10, 20, 30]).roll(k % 3).tolist()) for k in range(6000)]
    assert p_value(cut) < 1e-12


def test_parts_keep_their_members_and_equal_keys_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter([[5, 5, 1, 0, 9], [5, 6, 1, 9, 0]])
    monkeypatch.setattr(NoiseSource, "integers", lambda *_: torch.tensor(next(keys)))
    given = [torch.tensor([7, 8, 9]), torch.empty(0, dtype=torch.int64), torch.tensor([3, 4])]
    assert [part.tolist() for part in NoiseSource.seeded(0).shuffled(given)] == [[9, 7, 8], [], [4, 3]]
    assert next(keys, None) is None


@pytest.mark.parametrize(("n", "p"), [(2000, 0.004), (300, 0.3)])
def test_bernoulli_counts_are_binomial(n: int, p: float) -> None:
    noise = NoiseSource.seeded(18)
    sizes = np.array([len(noise.bernoulli_indices(n, p)) for _ in range(3000)])
    assert binomial_p_value(sizes, n, p) > LEVEL
    for wrong in (2 / 3, 3 / 2):
        assert binomial_p_value(sizes, n, p * wrong) < 1e-12


def binomial_p_value(sizes: np.ndarray, n: int, p: float) -> float:
    """Chi-square of the observed sizes against Bin(n, p) in ten classes of about equal probability."""
    edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 11)[1:-1], n, p))
    cumulative = np.r_[0, stats.binom.cdf(edges, n, p), 1]
    observed = np.histogram(sizes, np.r_[-1, edges, n] + 0.5)[0]
    return float(stats.chisquare(observed, len(sizes) * np.diff(cumulative)).pvalue)


@pytest.mark.parametrize("p", [0.01, 0.2])
def test_bernoulli_chooses_every_index_equally_often_and_pairs_independently(p: float) -> None:
    noise = NoiseSource.seeded(19)
    rounds, n = 4000, 50
    chosen = np.zeros((rounds, n))
    for row in chosen:
        row[noise.bernoulli_indices(n, p).numpy()] = 1
    totals = chosen.sum(axis=0)
    assert stats.chi2.sf((((totals - rounds * p) ** 2) / (rounds * p * (1 - p))).sum(), n) > LEVEL
    neighbors = int((chosen[:, 1:] * chosen[:, :-1]).sum())
    assert stats.poisson.sf(neighbors - 1, rounds * (n - 1) * p * p) > LEVEL
    assert stats.poisson.cdf(neighbors, rounds * (n - 1) * p * p) > LEVEL


@given(n=st.integers(0, 3000), p=st.floats(0, 1), seed=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_bernoulli_indices_are_sorted_distinct_and_in_range(n: int, p: float, seed: int) -> None:
    chosen = NoiseSource.seeded(seed).bernoulli_indices(n, p)
    assert chosen.dtype == torch.int64
    if len(chosen):
        assert int(chosen[0]) >= 0
        assert int(chosen[-1]) < n
        assert bool((torch.diff(chosen) > 0).all())


def test_bernoulli_limits() -> None:
    noise = NoiseSource.seeded(0)
    assert len(noise.bernoulli_indices(1000, 0.0)) == 0
    assert torch.equal(noise.bernoulli_indices(1000, 1.0), torch.arange(1000))
    assert len(noise.bernoulli_indices(1000, 1e-300)) == 0
    assert len(noise.bernoulli_indices(0, 0.5)) == 0
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="probability"):
            noise.bernoulli_indices(10, wrong)
    for coins in (-1, 1 << 54):
        with pytest.raises(InputError, match="coins"):
            noise.bernoulli_indices(coins, 0.5)


def test_streams_are_independent_and_do_not_depend_on_order() -> None:
    one, other = NoiseSource.seeded(20), NoiseSource.seeded(20)
    a, b = (one.stream(name).integer_gaussian(100_000, FINE) / FINE for name in ("a", "b"))
    b_first, a_second = (other.stream(name).integer_gaussian(100_000, FINE) / FINE for name in ("b", "a"))
    assert torch.equal(a, a_second)
    assert torch.equal(b, b_first)
    root = one.integer_gaussian(100_000, FINE) / FINE
    for x, y in ((a, b), (a, root), (b, root)):
        assert abs(float((x * y).mean())) < 4 / math.sqrt(len(x))  # fails a fresh seed in 6e-5 of cases


def test_the_same_label_continues_and_never_repeats() -> None:
    noise = NoiseSource.seeded(21)
    first, second = (noise.stream("hop").integer_gaussian(10, FINE) for _ in range(2))
    assert not bool((first == second).any())


def test_nested_labels_do_not_collide() -> None:
    noise = NoiseSource.seeded(22)
    values = [
        noise.stream("ab").stream("c").integer_gaussian(4, FINE),
        noise.stream("a").stream("bc").integer_gaussian(4, FINE),
        noise.stream("abc").integer_gaussian(4, FINE),
    ]
    assert len({tuple(value.tolist()) for value in values}) == len(values)


def test_many_samples_have_the_same_bytes_with_more_threads() -> None:
    threads = torch.get_num_threads()
    whole = NoiseSource.seeded(24).integer_gaussian((20_001, 7), FINE)
    try:
        torch.set_num_threads(3 if threads == 1 else 1)
        again = NoiseSource.seeded(24).integer_gaussian((20_001, 7), FINE)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(whole, again)


def test_a_result_is_not_changed_by_later_draws() -> None:
    noise = NoiseSource.seeded(28)
    drawn = [noise.integer_gaussian(700, FINE) for _ in range(8)]
    copies = [value.clone() for value in drawn]
    drawn[2].zero_()
    later = noise.integer_gaussian(700, FINE)
    assert all(torch.equal(a, b) for i, (a, b) in enumerate(zip(drawn, copies)) if i != 2)
    assert int(later.abs().min()) > 0


def test_pair_keys_depend_on_their_own_pair_only() -> None:
    noise = NoiseSource.seeded(29)
    owners, entries = np.arange(70_000) % 300, np.arange(70_000) // 300
    keys = noise.pair_keys("cap", owners, entries)
    some = np.array([69_999, 5, 40_000])
    assert np.array_equal(noise.pair_keys("cap", owners[some], entries[some]), keys[some])
    assert len(np.unique(keys)) == len(keys)
    assert len(noise.pair_keys("cap", owners[:0], entries[:0])) == 0
    assert stats.kstest(keys / 2.0**64, "uniform").pvalue > LEVEL


def test_operating_system_sources_differ_and_are_not_stamped() -> None:
    one, other = NoiseSource.from_os(), NoiseSource.from_os()
    assert not one.seeded_run
    assert not one.stream("a").seeded_run
    assert not bool((one.integer_gaussian(100, 2.0**40) == other.integer_gaussian(100, 2.0**40)).any())  # 3e-11


def test_a_seed_stays_visible_in_every_stream() -> None:
    noise = NoiseSource.seeded(1)
    assert noise.seeded_run
    assert noise.stream("a").stream("b").seeded_run
    assert repr(noise) == "NoiseSource(seeded: not private)"
    for wrong in (None, 1.5, True, "1"):
        with pytest.raises(InputError, match="integer seed"):
            NoiseSource.seeded(wrong)  # type: ignore[arg-type]


def test_the_key_is_never_shown_copied_or_pickled() -> None:
    noise = NoiseSource.from_os()
    assert noise._key.hex() not in repr(noise)
    assert repr(noise._key) not in repr(noise)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret key"):
            attempt(noise)


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_is_never_switched_off(std: float) -> None:
    noise = NoiseSource.seeded(4)
    with pytest.raises(InputError, match="noise scale"):
        noise.integer_gaussian(3, std)
    with pytest.raises(InputError, match="noise scale"):
        perturb(torch.zeros(1), std, noise)


def test_shapes_and_types() -> None:
    noise = NoiseSource.seeded(5)
    assert noise.integer_gaussian((2, 3), 1.0).shape == (2, 3)
    assert noise.integer_gaussian((), 1.0).shape == ()
    assert noise.integer_gaussian((0, 3), 1.0).shape == (0, 3)
    assert noise.integer_gaussian(torch.Size([4]), 1.0).dtype == torch.int64


def test_torch_generator_is_named_and_repeatable() -> None:
    draw = [
        torch.rand(3, generator=NoiseSource.seeded(seed).torch_generator(label))
        for seed, label in ((6, "weights"), (6, "weights"), (6, "other"), (7, "weights"))
    ]
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])
    assert not torch.equal(draw[0], draw[3])
