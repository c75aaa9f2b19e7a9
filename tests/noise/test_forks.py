"""A forked process may not use a source that it inherited: its noise would be that of its parent."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable

import numpy as np
import pytest
import torch

from hushgraph.errors import HushgraphError
from hushgraph.noise import NoiseSource, discrete_laplace, perturb

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

DRAWS: dict[str, Callable[[NoiseSource], object]] = {
    "integer_gaussian": lambda noise: noise.integer_gaussian(3, 10.0),
    "integer_gaussian, served from what was computed ahead": lambda noise: noise.integer_gaussian(1, 10.0),
    "dense coins": lambda noise: noise.bernoulli_indices(100, 0.5),
    "sparse coins": lambda noise: noise.bernoulli_indices(100, 0.01),
    "integers": lambda noise: noise.integers(3, 10),
    "addressed pair keys": lambda noise: noise.pair_keys("cap", np.arange(3), np.arange(3)),
    "a stream of its own name": lambda noise: noise.stream("child"),
    "a stream that existed": lambda noise: noise.stream("before"),
    "an inherited stream": lambda noise: noise._children["before"].integer_gaussian(3, 10.0),
    "generator": lambda noise: noise.torch_generator("weights"),
    "discrete Laplace": lambda noise: discrete_laplace(5, noise),
    "perturb": lambda noise: perturb(torch.zeros(3), 1.0, noise),
}


def used_source(seed: int | None = None) -> NoiseSource:
    noise = NoiseSource.from_os() if seed is None else NoiseSource.seeded(seed)
    noise.integer_gaussian(5, 10.0)
    noise.integer_gaussian(5, 10.0)
    noise.bernoulli_indices(100, 0.01)
    noise.stream("before").integer_gaussian(1, 10.0)
    return noise


def in_child(task: Callable[[], str]) -> str:
    """What `task` returns in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, task().encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def refused(noise: NoiseSource) -> str:
    """The draws that were refused, by name."""
    names = []
    for name, draw in DRAWS.items():
        try:
            draw(noise)
        except HushgraphError as error:
            if "inherited from the parent" in str(error):
                names.append(name)
    return "\n".join(names)


@pytest.mark.parametrize("seed", [None, 3])
def test_a_forked_child_is_refused_every_draw_and_its_parent_is_not(seed: int | None) -> None:
    noise = used_source(seed)
    assert in_child(lambda: refused(noise)).split("\n") == list(DRAWS)
    assert refused(noise) == ""


def test_a_grandchild_is_refused_too_even_under_its_grandparents_number(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = used_source()
    number = os.getpid()

    def same_number() -> str:
        monkeypatch.setattr(os, "getpid", lambda: number)
        return refused(noise)

    assert in_child(lambda: in_child(same_number)).split("\n") == list(DRAWS)


def _report_refused(noise: NoiseSource, results: multiprocessing.SimpleQueue[str]) -> None:
    results.put(refused(noise))


def test_a_child_of_multiprocessing_is_refused_every_draw() -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    process = context.Process(target=_report_refused, args=(used_source(), results))
    process.start()
    found = results.get()
    process.join()
    assert found.split("\n") == list(DRAWS)


def test_a_source_made_in_the_child_works_and_differs() -> None:
    noise = NoiseSource.from_os()

    def fresh() -> str:
        own = NoiseSource.from_os()
        return str(own.integer_gaussian(4, 2.0**20).tolist())

    children = [in_child(fresh) for _ in range(3)]
    assert all(child.startswith("[") for child in children)
    assert len({*children, str(noise.integer_gaussian(4, 2.0**20).tolist())}) == 4


def test_a_child_does_not_wait_for_a_lock_that_its_parent_held() -> None:
    noise = used_source()
    with noise._lock:
        assert in_child(lambda: refused(noise)).split("\n") == list(DRAWS)
