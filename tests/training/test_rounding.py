"""The declared bound holds for the very numbers that are added, in exact arithmetic, whatever the rows hold.

Two batches are compared as the proof couples them: a batch in some order, and the same batch with one more example,
which takes the place of another one that moves to the end.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import RootedSubgraphs
from hushgraph.graph.rows import SparseRows
from hushgraph.nn import MLP, HopClassifier, Linear
from hushgraph.nn.rooted import CONVOLUTIONS, RootedNetwork
from hushgraph.training import ClippedGradient, rounding
from hushgraph.training.clipping import METHODS
from hushgraph.training.rooted import RootedClippedGradient
from hushgraph.training.rooted_functional import FormedRootedGradient

BATCHES = (1, 2, 33, 127, 128, 129, 400, 1030, 4096)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def squared_distance(a: Tensor, b: Tensor, grid: float = 0.0) -> Fraction:
    """Without any rounding but that to the grid."""
    if grid > 0:
        a, b = torch.round(a / grid) * grid, torch.round(b / grid) * grid
    return sum(((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(a.tolist(), b.tolist())), Fraction(0))


def is_within(a: Tensor, b: Tensor, bound: float, grid: float = 0.0) -> bool:
    return squared_distance(a, b, grid) <= Fraction(bound) ** 2


def with_one_more(rows: Tensor, one: Tensor, place: int) -> Tensor:
    """One more example at `place`; what was there goes to the end."""
    if len(rows) == 0:
        return one
    more = torch.cat([rows, rows[place : place + 1]])
    more[place : place + 1] = one
    return more


def adversarial(rows: int, width: tuple[int, ...], kind: str, seed: int) -> Tensor:
    """Rows that are hard on single precision."""
    g = generator(seed)
    x = torch.randn(rows, *width, generator=g)
    lead = (rows, *[1] * len(width))
    if kind == "wild":  # from numbers below the normal range to large ones, row by row
        return x * torch.exp2(torch.randint(-140, 60, lead, generator=g).float())
    if kind == "edges":  # next to powers of two
        near = torch.exp2(torch.randint(-6, 7, x.shape, generator=g).float())
        return near * (1.0 + torch.randint(-1, 2, x.shape, generator=g) * 2.0**-23) * x.sign()
    if kind == "alike":  # all in one direction, so that the sum grows with every row
        return torch.ones_like(x) * (1.0 + 2.0**-20 * torch.rand(lead, generator=g))
    return torch.where(torch.rand(x.shape, generator=g) < 0.5, x, torch.zeros_like(x)) * 1e-3


KINDS = ("wild", "edges", "alike", "small")


def row_models() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    g = generator(5)
    flat = Linear(3, 2, bias=False, generator=g)
    nn.init.zeros_(flat.weight)
    return {
        "mlp": (MLP(5, 6, 3, 2, generator=g), (5,)),
        "zero": (flat, (3,)),
        "group": (MLP(5, 4, 3, 2, norm="group", order="activation-first", generator=g), (5,)),
        "hops": (HopClassifier(1, 3, 4, 2, generator=g), (2, 3)),
        "attention": (HopClassifier(1, 3, 4, 2, combine="attention", generator=g), (2, 3)),
    }


ROW_MODELS = row_models()


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(sorted(ROW_MODELS)),
    method=st.sampled_from(METHODS),
    kind=st.sampled_from(KINDS),
    others=st.sampled_from(BATCHES),
    seed=st.integers(0, 10**6),
    bound=st.sampled_from([2.0**-9, 0.1, 1.0, 37.0]),
    noise=st.sampled_from([0.0, 0.5, 20.0]),
    sparse=st.booleans(),
    expected=st.sampled_from([10, 10_000]),
)
def test_one_row_changes_the_sum_by_at_most_the_bound(
    name: str, method: str, kind: str, others: int, seed: int, bound: float, noise: float, sparse: bool, expected: int
) -> None:
    module, width = ROW_MODELS[name]
    others = min(others, 400) if method == "per-sample" else others
    if method == "manual" and name == "attention":
        method = "ghost"
    rows, one = adversarial(others, width, kind, seed), adversarial(1, width, KINDS[seed % 4], seed + 1)
    labels = torch.randint(2, (others,), generator=generator(seed))
    label, place = torch.tensor([seed % 2]), seed % others
    grid = bound * noise * 2.0**-20
    engine = ClippedGradient(
        module,
        max_grad_norm=bound,
        grid=grid,
        method=method,  # type: ignore[arg-type]
        expected_rows=expected,
    )

    def total(x: Tensor, y: Tensor) -> Tensor:
        return engine.sum(SparseRows.from_tensor(x) if sparse and x.dim() == 2 else x, y)

    without = total(rows, labels)
    first = total(with_one_more(rows, one, place), with_one_more(labels, label, place))
    assert is_within(first, without, bound, grid)
    other = total(with_one_more(rows, -3.0 * one, place), with_one_more(labels, 1 - label, place))
    assert is_within(other, without, bound, grid)
    assert is_within(first, other, 2 * bound, grid)


def crafted_rows() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """100,000 rows that lead a running sum to a power of two and then down in steps of a little more than half a unit.

    Below the power of two every step is rounded up to a whole unit; one tiny row lifts the sum above it, where units
    are twice as long and every step is rounded to nothing.
    """
    up, down = torch.ones(2**15, 1), torch.full((67_000, 1), 2.0**-10 * (1 + 2.0**-10))
    rows = torch.cat([up, torch.zeros(1, 1), down])
    labels = torch.cat([torch.zeros(len(up) + 1), torch.ones(len(down))]).long()
    with_v = rows.clone()
    with_v[len(up)] = 2.0**-8
    return rows, labels, with_v, labels


def zero_line() -> nn.Linear:
    line = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(line.weight)
    return line


def test_a_running_sum_in_single_precision_breaks_the_bound_and_ours_does_not() -> None:
    """The broken variant: no room for rounding, one float32 total; a row of norm 0.003 moves it by more than 60."""
    rows, labels, with_v, _ = crafted_rows()
    engine = ClippedGradient(zero_line(), max_grad_norm=1.0)

    def running(x: Tensor) -> float:
        sign = torch.where(labels == 0, 0.5, -0.5)  # minus the gradient of the first weight: all norms are below 1
        return float(np.add.accumulate((x[:, 0] * sign).numpy())[-1])

    assert abs(running(rows) - running(with_v)) > 60.0
    assert is_within(engine.sum(rows, labels), engine.sum(with_v, labels), 1.0)
    assert float((engine.sum(rows, labels) - engine.sum(with_v, labels)).norm()) < 0.01


def test_without_room_for_rounding_the_bound_is_broken() -> None:
    module = MLP(5, 6, 3, 2, generator=generator())
    engine, broken = ClippedGradient(module, max_grad_norm=0.1), ClippedGradient(module, max_grad_norm=0.1)
    broken.clip_norm = 0.1
    found = {"ours": 0, "broken": 0}
    for seed in range(12):
        rows, one = adversarial(400, (5,), "alike", seed), adversarial(1, (5,), "edges", seed)
        labels, label = torch.randint(3, (400,), generator=generator(seed)), torch.tensor([seed % 3])
        for name, one_of in (("ours", engine), ("broken", broken)):
            more = one_of.sum(with_one_more(rows, one, 7), with_one_more(labels, label, 7))
            found[name] += not is_within(more, one_of.sum(rows, labels), 0.1)
    assert found["ours"] == 0
    assert found["broken"] > 0


def test_the_grid_takes_its_share_of_the_bound() -> None:
    engine = ClippedGradient(MLP(5, 6, 3, 2, generator=generator()), max_grad_norm=1.0, grid=0.01)
    without = ClippedGradient(MLP(5, 6, 3, 2, generator=generator()), max_grad_norm=1.0)
    share = 0.01 * math.sqrt(engine.num_parameters)
    assert engine.clip_norm == pytest.approx(without.clip_norm * (1.0 - share))
    # Entries just below and above half a grid step: rounding moves them a whole step apart.
    low, high = torch.full((57,), 0.00499, dtype=torch.float64), torch.full((57,), 0.00501, dtype=torch.float64)
    assert not is_within(low, high, 0.01 * math.sqrt(56), grid=0.01)
    assert is_within(low, high, 0.01 * math.sqrt(57) + 1e-3, grid=0.01)


def test_what_rounding_takes_is_small_and_stated() -> None:
    module = MLP(501, 16, 6, 3)
    for rows, most in ((256, 2.0**-10), (4096, 0.005)):
        engine = ClippedGradient(module, max_grad_norm=1.0, grid=2.0**-20, expected_rows=rows)
        assert 1.0 - engine.clip_norm < most
    assert rounding.block_slack(128, 128) == pytest.approx(2.0**-8, rel=0.13)
    assert rounding.block_slack(32, 32) < 2.0**-11
    assert rounding.double_slack() <= 2.0**-14
    with pytest.raises(InputError, match="less noise or a smaller network"):
        ClippedGradient(module, max_grad_norm=1.0, grid=0.01)


@pytest.mark.parametrize("rows", [1, 31, 32, 127, 128, 129, 256, 300])
@pytest.mark.parametrize(("left", "right"), [(3, 5), (16, 501), (70, 60)])
def test_products_of_blocks_are_the_product(rows: int, left: int, right: int) -> None:
    a, b = torch.randn(rows, left, generator=generator()), torch.randn(rows, right, generator=generator(1))
    out = torch.full((left, right), torch.nan, dtype=torch.float64)
    rounding.write_products(a, b, out)
    torch.testing.assert_close(out, a.double().t() @ b.double(), rtol=1e-4, atol=1e-4)
    plain = torch.empty(left, right)
    rounding.write_products(a, b, plain)
    assert torch.equal(plain, a.t() @ b)


def test_the_rounding_of_one_block_stays_in_it() -> None:
    """Rows 0 to 127 change; what the other blocks add to the sum is the same bit by bit."""
    a, b = torch.randn(384, 16, generator=generator()), torch.randn(384, 200, generator=generator(1))
    first, second, rest = (torch.zeros(16, 200, dtype=torch.float64) for _ in range(3))
    rounding.write_products(a, b, first)
    changed = a.clone()
    changed[:128] *= 1e3
    rounding.write_products(changed, b, second)
    rounding.write_products(a[128:], b[128:], rest)
    blocks = [(x[:128].t() @ b[:128]).double() for x in (a, changed)]
    torch.testing.assert_close(first - blocks[0], rest, rtol=0, atol=1e-12)
    torch.testing.assert_close(second - blocks[1], rest, rtol=0, atol=1e-9)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("left", "right", "block"), [(16, 501, 128), (6, 16, 32), (100, 64, 128), (3, 5, 32)])
def test_how_a_block_is_rounded_does_not_depend_on_how_many_there_are(
    left: int, right: int, block: int, turned: bool
) -> None:
    b = torch.randn(4096, right, generator=generator(1))
    products = []
    for rows in (2 * block, 2 * block + 32, 1000, 4096):
        a = torch.randn(4096, left, generator=generator())[:rows]
        a = a.t().contiguous().t() if turned else a
        products.append(rounding.products_of_blocks(a, b[:rows], block)[:2])
    for found in products[1:]:
        assert torch.equal(found, products[0])


# Rooted examples


def star_graph(roots: int, leaves: int) -> tuple[MemoryEdges, Tensor]:
    """Roots that share nothing: each receives from `leaves` nodes of its own."""
    nodes = roots * (leaves + 1)
    targets = torch.arange(roots).repeat_interleave(leaves) * (leaves + 1)
    sources = targets + torch.arange(leaves).repeat(roots) + 1
    return MemoryEdges.from_edge_index(torch.stack((sources, targets)), nodes), torch.arange(roots) * (leaves + 1)


@settings(max_examples=60, deadline=None)
@given(
    convolution=st.sampled_from(CONVOLUTIONS),
    formed=st.booleans(),
    kind=st.sampled_from(KINDS),
    roots=st.sampled_from([2, 17, 64, 65, 150, 400]),
    leaves=st.sampled_from([0, 1, 7]),
    seed=st.integers(0, 10**6),
    sparse=st.booleans(),
)
def test_roots_change_the_sum_by_at_most_the_bound_each(
    convolution: str, formed: bool, kind: str, roots: int, leaves: int, seed: int, sparse: bool
) -> None:
    """Up to three roots are left out, or hold other records; a root that comes takes the place of another."""
    graph, nodes = star_graph(roots, leaves)
    network = RootedNetwork(4, 6, 3, convolution=convolution, generator=generator(1))
    bound, touched = 0.1, min(1 + seed % 3, roots - 1)
    x = adversarial(graph.num_nodes, (4,), kind, seed)
    changed = x.clone()
    for root in range(touched):
        changed[root * (leaves + 1) : (root + 1) * (leaves + 1)] = adversarial(leaves + 1, (4,), KINDS[seed % 4], seed)
    y = torch.randint(3, (roots,), generator=generator(seed))
    engine_of = FormedRootedGradient if formed else RootedClippedGradient

    def engine(features: Tensor) -> FormedRootedGradient | RootedClippedGradient:
        rows = SparseRows.from_tensor(features) if sparse else features
        return engine_of(network, RootedSubgraphs(graph, nodes, 1), rows, y, max_grad_norm=bound)

    order = torch.randperm(roots - touched, generator=generator(seed)) + touched
    without = engine(x).sum(order)
    for root in range(touched):
        order = with_one_more(order, torch.tensor([root]), seed % len(order))
    first, second = engine(x).sum(order), engine(changed).sum(order)
    assert is_within(first, without, bound * touched)
    assert is_within(second, without, bound * touched)
    assert is_within(first, second, 2 * bound * touched)


def test_a_root_whose_rows_cancel_is_clipped_as_if_it_were_longer() -> None:
    """Leaves with opposite features: their gradients cancel in the first layer, in which rounding then counts most."""
    graph, nodes = star_graph(3, 40)
    network = RootedNetwork(4, 6, 3, convolution="gin", activation="identity", generator=generator(1))
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, Linear):
                layer.bias.zero_()
    x = torch.zeros(graph.num_nodes, 4)
    leaf = torch.randn(20, 4, generator=generator())
    for root in nodes.tolist():
        x[root + 1 : root + 41] = torch.cat([leaf, -leaf]) * 1e3
    y = torch.zeros(3, dtype=torch.int64)
    engine = RootedClippedGradient(network, RootedSubgraphs(graph, nodes, 1), x, y, max_grad_norm=1.0)
    exact = FormedRootedGradient(network, RootedSubgraphs(graph, nodes, 1), x, y, max_grad_norm=1.0)
    everyone = torch.arange(3)
    assert bool((engine.square_norms(everyone) > 100 * exact.square_norms(everyone)).all())
    assert float(engine.sum(everyone).norm()) < float(exact.sum(everyone).norm())
