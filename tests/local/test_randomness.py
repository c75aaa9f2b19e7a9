from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from hushgraph.errors import InputError
from hushgraph.local import MultiBit, OsRandom, os_generator

N = 100_000


def test_uniforms_follow_the_uniform_law():
    # Not seeded by design. Kolmogorov-Smirnov at p = 1e-9: one failure in a billion runs.
    draws = OsRandom().random(N)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert stats.kstest(draws, "uniform").pvalue > 1e-9
    assert stats.kstest(draws**1.05, "uniform").pvalue < 1e-9


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
    assert rng.random((2, 3)).shape == (2, 3)
    assert len(rng.bytes(5)) == 5
    assert rng.random(0).shape == (0,)


def drawn(rng: OsRandom) -> bytes:
    """Some of every kind of draw, and a report."""
    numbers = np.concatenate([rng.random(8), rng.integers(2**40, size=8)])
    return (
        numbers.tobytes()
        + rng.bytes(16)
        + MultiBit(64.0, 64, sampled=64).perturb(np.full(64, 0.5), rng).value.tobytes()
    )


def drawn_in_a_child(rng: OsRandom) -> bytes:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, drawn(rng))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return answer


def shares_a_stretch(answers: list[bytes]) -> bool:
    """Whether two of the answers have the same 128 random bits at the same place."""
    stretches = [{answer[start : start + 16] for answer in answers} for start in range(0, len(answers[0]) - 15, 16)]
    return any(len(found) < len(answers) for found in stretches)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_does_not_repeat_its_parent():
    rng = os_generator()
    drawn(rng)  # whatever a first draw might keep is there before the fork
    assert not shares_a_stretch([drawn_in_a_child(rng), drawn_in_a_child(rng), drawn(rng)])
    seeded = np.random.default_rng(0)  # keeps a state, so its children repeat it: the test would see that
    assert shares_a_stretch([drawn_in_a_child(seeded), drawn(seeded)])


def test_local_package_needs_neither_torch_nor_scipy():
    code = "import sys, hushgraph.local; print([m for m in ('torch', 'scipy', 'sklearn') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
