from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from hushgraph.errors import InputError
from hushgraph.local import OsRandom, os_generator

N = 100_000


def test_uniforms_follow_the_uniform_law():
    # Not seeded by design. Kolmogorov-Smirnov at p = 1e-9: one failure in a billion runs.
    draws = OsRandom().random(N)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert stats.kstest(draws, "uniform").pvalue > 1e-9
    assert stats.kstest(draws**1.05, "uniform").pvalue < 1e-9


def test_normals_follow_the_normal_law():
    draws = OsRandom().standard_normal((N // 10, 10)).ravel()
    assert stats.kstest(draws, "norm").pvalue > 1e-9
    assert stats.kstest(draws * 1.5, "norm").pvalue < 1e-9
    assert abs(np.corrcoef(draws[: N // 2], draws[N // 2 :])[0, 1]) < 0.03


def test_integers_are_uniform_and_in_range():
    draws = OsRandom().integers(3, 10, N)
    counts = np.bincount(draws - 3, minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts).pvalue > 1e-9


def test_integer_rejection_covers_awkward_widths():
    draws = OsRandom().integers(2**62 + 12345, size=2000)
    assert draws.min() >= 0
    assert draws.max() < 2**62 + 12345
    with pytest.raises(InputError):
        OsRandom().integers(5, 5)


def test_scalars_and_shapes():
    rng = os_generator()
    assert isinstance(rng.random(), float)
    assert isinstance(rng.integers(4), int)
    assert isinstance(rng.standard_normal(), float)
    assert rng.random((2, 3)).shape == (2, 3)
    assert rng.standard_normal(5).shape == (5,)
    assert rng.random(0).shape == (0,)


def test_local_package_needs_neither_torch_nor_scipy():
    code = "import sys, hushgraph.local; print([m for m in ('torch', 'scipy', 'sklearn') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
