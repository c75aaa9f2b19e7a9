"""Local differential privacy: mechanisms that run on a person's own device.

Only numpy is needed; nothing here imports torch. Every mechanism is a frozen object of public parameters with

- `perturb(values, rng=None)`: random reports, from operating-system entropy unless a generator is passed for a test;
- `estimate(report)`: an unbiased estimate, computed by whoever receives the report;
- `variance(values)`: the exact variance of that estimate;
- `epsilon`: what one report spends, and `law` or `density` to check it (`realized_epsilon`).

    mechanism = MultiBit(epsilon=1.0, dimensions=1433)
    report = mechanism.perturb(features)          # on the device
    estimate = mechanism.estimate(report)         # on the server
"""

from __future__ import annotations

from hushgraph.local.additive import GaussianMechanism, Laplace, calibrate_gaussian, gaussian_delta
from hushgraph.local.base import ContinuousMechanism, DiscreteMechanism, ScalarMechanism
from hushgraph.local.check import realized_epsilon
from hushgraph.local.duchi import Duchi
from hushgraph.local.hybrid import Hybrid
from hushgraph.local.labels import RandomizedResponse, UnaryEncoding
from hushgraph.local.multi_bit import MultiBit, best_bits
from hushgraph.local.one_bit import OneBit
from hushgraph.local.packing import PackedReport, pack, pack_bits, unpack, unpack_bits
from hushgraph.local.piecewise import Piecewise, Suboptimal
from hushgraph.local.randomness import OsRandom, Randomness, os_generator
from hushgraph.local.three_output import ThreeOutput
from hushgraph.local.vectors import PerFeature, SampledFeatures, SampledReport, best_sampled

__all__ = [
    "ContinuousMechanism",
    "DiscreteMechanism",
    "Duchi",
    "GaussianMechanism",
    "Hybrid",
    "Laplace",
    "MultiBit",
    "OneBit",
    "OsRandom",
    "PackedReport",
    "PerFeature",
    "Piecewise",
    "RandomizedResponse",
    "Randomness",
    "SampledFeatures",
    "SampledReport",
    "ScalarMechanism",
    "Suboptimal",
    "ThreeOutput",
    "UnaryEncoding",
    "best_bits",
    "best_sampled",
    "calibrate_gaussian",
    "gaussian_delta",
    "os_generator",
    "pack",
    "pack_bits",
    "realized_epsilon",
    "unpack",
    "unpack_bits",
]
