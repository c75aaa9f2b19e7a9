"""Local differential privacy: randomizers that run on a person's own device.

Only numpy is needed; nothing here imports torch. Every randomizer is a frozen value of public parameters with

- `perturb(values, rng=None)`: random reports, from operating-system entropy unless a generator is passed for a test;
- `estimate(report)`: an unbiased estimate, computed by whoever receives the report;
- `variance(values)`: the exact variance of that estimate;
- `epsilon`: what one report spends, and `law` to check it (`realized_epsilon`);
- `as_dict()`, read back by `from_dict`, for plans and ledgers.

    randomizer = MultiBit(epsilon=1.0, dimensions=1433)
    report = randomizer.perturb(features)          # on the device
    estimate = randomizer.estimate(report)         # on the server

By name: `scalar("piecewise", 1.0)` for one number, `feature_randomizer("hybrid", 4.0, 1433)` for a vector.
"""

from __future__ import annotations

from hushgraph.local.base import OsRandom, Randomizer, Randomness, ScalarMechanism, os_generator, realized_epsilon
from hushgraph.local.bits import Duchi, OneBit, ThreeOutput
from hushgraph.local.catalog import FEATURES, RANDOMIZERS, SCALARS, feature_randomizer, from_dict, scalar
from hushgraph.local.feature_rr import FeatureRR, unified_scores
from hushgraph.local.grid import Hybrid, Laplace, Piecewise, Suboptimal
from hushgraph.local.labels import RandomizedResponse, UnaryEncoding
from hushgraph.local.multi_bit import MultiBit, best_bits
from hushgraph.local.packing import PackedReport, pack, pack_bits, unpack, unpack_bits
from hushgraph.local.vectors import PerFeature, SampledFeatures, SampledReport, best_sampled

__all__ = [
    "FEATURES",
    "RANDOMIZERS",
    "SCALARS",
    "Duchi",
    "FeatureRR",
    "Hybrid",
    "Laplace",
    "MultiBit",
    "OneBit",
    "OsRandom",
    "PackedReport",
    "PerFeature",
    "Piecewise",
    "RandomizedResponse",
    "Randomizer",
    "Randomness",
    "SampledFeatures",
    "SampledReport",
    "ScalarMechanism",
    "Suboptimal",
    "ThreeOutput",
    "UnaryEncoding",
    "best_bits",
    "best_sampled",
    "feature_randomizer",
    "from_dict",
    "os_generator",
    "pack",
    "pack_bits",
    "realized_epsilon",
    "scalar",
    "unified_scores",
    "unpack",
    "unpack_bits",
]
