"""The graphs that need no file: a made-up campus, generated on the spot, and handwritten digits.

**Campus** is a social network. Students have a class year (the class to predict) and a house. Friendships follow a
degree-corrected stochastic block model: everybody has a sociability (heavy-tailed), and a friendship is formed with a
house mate of the same year, somebody of the same year, of a neighboring year, of the same house, or anybody. Attributes
(status, gender, major, house) say something about the year but not much, and many are missing, so a model that sees
only the attributes is right about half the time, while one that also sees the friendships does far better.
Nobody real is in it: the seed is public and the graph may be published.

**Digits** links each image with the images most like it. The images ship with scikit-learn. The graph is made from the
pixels alone, which makes this a small test bed where edges follow features; it is not a social network.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from hushgraph.datasets.splits import random_split, to_torch_csr
from hushgraph.errors import InputError

CLASS_NAMES = ("2020", "2021", "2022", "2023", "2024", "2025")
YEARS = len(CLASS_NAMES)
HOUSES = 24
MAJORS = 40
MEAN_DEGREE = 37.5
SMALLEST = 200

# A pixel counts the dots set in a 4 x 4 block, so 16 is the largest value by design: no data is looked at.
LARGEST_PIXEL = 16.0
DIGITS = 1797

_YEAR_SHARES = np.array([0.13, 0.15, 0.17, 0.18, 0.19, 0.18])
_SOCIABILITY_SPREAD = 0.7
_LONERS = 0.004

# How a friendship comes about; the shares sum to one.
_TIES = {"year and house": 0.20, "year": 0.42, "next year": 0.18, "house": 0.06, "anybody": 0.14}

# Rows: class year; columns: student, alumnus, staff. Only the oldest have mostly left.
_STATUS_GIVEN_YEAR = np.array(
    [
        [0.25, 0.70, 0.05],
        [0.50, 0.47, 0.03],
        [0.85, 0.13, 0.02],
        [0.96, 0.03, 0.01],
        [0.98, 0.01, 0.01],
        [0.99, 0.01, 0.00],
    ]
)
# Younger students have often not chosen a major; older ones have often left the houses.
_MAJOR_MISSING = np.array([0.08, 0.08, 0.12, 0.20, 0.45, 0.75])
_HOUSE_MISSING = np.array([0.60, 0.50, 0.35, 0.25, 0.12, 0.08])
_GENDER_MISSING = 0.08
_STATUS_MISSING = 0.04

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Students(NamedTuple):
    """What is drawn for every student before any friendship is."""

    year: Ints
    house: Ints
    sociability: Floats


def campus(num_nodes: int = 8000, seed: int = 0) -> Data:
    """Generate the campus network; the same arguments always give the same graph.

    At the default size: 8,000 nodes, about 300,000 directed edges (each friendship is stored in both directions, no
    self loops, no duplicates), a few students without friends, 6 classes. `x` is a sparse CSR tensor of one-hot
    attributes, where a missing value is an empty block. The split is 75/10/15, uniform.
    """
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, int) or num_nodes < SMALLEST:
        raise InputError(f"expected num_nodes to be an integer of at least {SMALLEST}; got {num_nodes!r}")
    rng = np.random.default_rng(seed)
    students = _draw_students(num_nodes, rng)
    attributes = _draw_attributes(students, rng)
    data = Data(
        x=to_torch_csr(attributes),
        edge_index=torch.from_numpy(_draw_friendships(students, rng)),
        y=torch.from_numpy(students.year),
        class_names=list(CLASS_NAMES),
        name="campus",
    )
    return random_split(data, seed=seed)


def digits(neighbors: int = 10, seed: int = 0) -> Data:
    """The symmetric nearest-neighbor graph of the 1,797 digits: 64 features in [0, 1], 10 classes.

    Two images are linked when either is among the `neighbors` nearest of the other. `seed` makes the 75/10/15 split.
    """
    from sklearn.datasets import load_digits

    if isinstance(neighbors, bool) or not isinstance(neighbors, int) or not 1 <= neighbors < DIGITS:
        raise InputError(f"expected neighbors to be an integer from 1 to {DIGITS - 1}; got {neighbors!r}")
    pixels, label = load_digits(return_X_y=True)
    scaled = np.asarray(pixels, dtype=np.float32) / np.float32(LARGEST_PIXEL)
    data = Data(
        x=torch.from_numpy(scaled),
        # Whole numbers keep the distances exact, so that ties fall the same way everywhere.
        edge_index=_nearest_neighbor_edges(np.asarray(pixels, dtype=np.float64), neighbors),
        y=torch.from_numpy(np.asarray(label, dtype=np.int64)),
        class_names=[str(digit) for digit in range(10)],
        name="digits",
    )
    return random_split(data, seed=seed)


def _draw_students(count: int, rng: np.random.Generator) -> Students:
    year = rng.choice(YEARS, size=count, p=_YEAR_SHARES)
    house = _draw_houses(year, rng)
    sociability = rng.lognormal(0.0, _SOCIABILITY_SPREAD, size=count)
    sociability[rng.random(count) < _LONERS] = 0.0
    return Students(year.astype(np.int64), house, sociability)


def _draw_houses(year: Ints, rng: np.random.Generator) -> Ints:
    """Houses fill up by age: each year prefers a stretch of houses, and the stretches overlap."""
    center = (year + 0.5) * HOUSES / YEARS
    near = np.floor(center + rng.normal(0.0, 0.12 * HOUSES, size=len(year))).astype(np.int64) % HOUSES
    anywhere = rng.integers(HOUSES, size=len(year))
    return np.where(rng.random(len(year)) < 0.70, near, anywhere)


def _draw_attributes(students: Students, rng: np.random.Generator) -> sparse.csr_matrix:
    """One-hot blocks for status, gender, major and house, side by side; -1 (missing) leaves its block empty."""
    year, count = students.year, len(students.year)
    status = _rowwise_choice(_STATUS_GIVEN_YEAR[year], rng)
    gender = rng.integers(2, size=count)
    major = _draw_majors(year, rng)
    blocks = [
        _one_hot(status, rng.random(count) < _STATUS_MISSING, _STATUS_GIVEN_YEAR.shape[1]),
        _one_hot(gender, rng.random(count) < _GENDER_MISSING, 2),
        _one_hot(major, rng.random(count) < _MAJOR_MISSING[year], MAJORS),
        _one_hot(students.house, rng.random(count) < _HOUSE_MISSING[year], HOUSES),
    ]
    return sparse.hstack(blocks, format="csr", dtype=np.float32)


def _draw_majors(year: Ints, rng: np.random.Generator) -> Ints:
    """Popularity falls with the rank of a major, and fashions change a little from year to year."""
    rank = np.arange(MAJORS)
    fashion = rng.normal(0.0, 0.6, size=(YEARS, MAJORS))
    popularity = np.exp(fashion) / (rank + 4.0)
    return _rowwise_choice((popularity / popularity.sum(1, keepdims=True))[year], rng)


def _rowwise_choice(probabilities: Floats, rng: np.random.Generator) -> Ints:
    """One column per row, drawn with that row's probabilities."""
    steps = probabilities.cumsum(1)[:, :-1]
    return (rng.random(len(probabilities))[:, None] > steps).sum(1).astype(np.int64)


def _one_hot(value: Ints, missing: NDArray[np.bool_], width: int) -> sparse.csr_matrix:
    rows = np.flatnonzero(~missing)
    ones = np.ones(len(rows), dtype=np.float32)
    return sparse.csr_matrix((ones, (rows, value[rows])), shape=(len(value), width))


def _draw_friendships(students: Students, rng: np.random.Generator) -> Ints:
    """Both directions of every friendship, sorted by source then target."""
    count = len(students.year)
    # A twentieth of the draws hits a pair that exists already (or oneself); the factor makes up for it.
    draws = round(1.05 * MEAN_DEGREE * count / 2)
    everybody = np.zeros(count, dtype=np.int64)
    source = _pick(everybody, np.zeros(draws, dtype=np.int64), students.sociability, rng)
    tie = rng.choice(len(_TIES), size=draws, p=list(_TIES.values()))
    target = np.empty(draws, dtype=np.int64)
    for number, kind in enumerate(_TIES):
        chosen = np.flatnonzero(tie == number)
        groups, wanted = _group_of_friend(kind, students, source[chosen], rng)
        target[chosen] = _pick(groups, wanted, students.sociability, rng)
    return _both_directions(source, target, count)


def _group_of_friend(kind: str, students: Students, source: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """The group of every student under this kind of tie, and the group in which each source looks for a friend."""
    year, house = students.year, students.house
    if kind == "year":
        return year, year[source]
    if kind == "house":
        return house, house[source]
    if kind == "year and house":
        both = year * HOUSES + house
        return both, both[source]
    if kind == "next year":
        step = rng.choice([-1, 1], size=len(source))
        inside = (year[source] + step >= 0) & (year[source] + step < YEARS)
        return year, year[source] + np.where(inside, step, -step)
    return np.zeros_like(year), np.zeros_like(source)


def _pick(groups: Ints, wanted: Ints, weight: Floats, rng: np.random.Generator) -> Ints:
    """For every entry of `wanted`, a member of that group, drawn with probability proportional to its weight."""
    order = np.argsort(groups, kind="stable")
    ends = weight[order].cumsum()
    size = np.bincount(groups, minlength=int(wanted.max(initial=0)) + 1).cumsum()
    upper = np.where(size > 0, ends[size - 1], 0.0)
    lower = np.concatenate([[0.0], upper[:-1]])
    point = lower[wanted] + rng.random(len(wanted)) * (upper - lower)[wanted]
    return order[np.minimum(np.searchsorted(ends, point, side="right"), len(order) - 1)]


def _both_directions(source: Ints, target: Ints, count: int) -> Ints:
    apart = source != target
    low, high = np.minimum(source, target)[apart], np.maximum(source, target)[apart]
    pairs = np.unique(low * count + high)
    low, high = pairs // count, pairs % count
    edges = np.stack([np.concatenate([low, high]), np.concatenate([high, low])])
    return edges[:, np.lexsort((edges[1], edges[0]))]


def _nearest_neighbor_edges(points: np.ndarray, neighbors: int) -> torch.Tensor:
    from sklearn.neighbors import kneighbors_graph

    nearest = kneighbors_graph(points, neighbors, include_self=False)
    either = (nearest + nearest.T).tocsr()
    either.sort_indices()
    source = np.repeat(np.arange(len(points)), np.diff(either.indptr))
    return torch.from_numpy(np.stack([source, either.indices]).astype(np.int64))
