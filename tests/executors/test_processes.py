"""Other processes: results in order, errors and dead processes as what they are, and how executors are asked for."""

from __future__ import annotations

import os
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import pytest

from dying import OneDies, ends_its_process, plus, refuses, summed, whose
from hushgraph.errors import HushgraphError, InputError
from hushgraph.executors.base import Lost, as_executor, cores, working
from hushgraph.executors.processes import Processes
from hushgraph.executors.shared import Shared
from hushgraph.methods.base import takes_workers


@pytest.mark.parametrize("count", [0, 1, 2])
def test_results_come_in_order_and_errors_come_back(count: int) -> None:
    assert list(Processes(count).map(plus, range(7), 5)) == list(range(5, 12))
    with pytest.raises(InputError, match="expected another"):
        list(Processes(count).map(refuses, [1]))


@pytest.mark.parametrize("count", [0, 2])
def test_each_task_is_done_once_and_new_ones_may_follow(count: int) -> None:
    waiting, seen = [3, 2, 1], []
    for task, result in Processes(count).each(plus, lambda: waiting.pop() if waiting else None):
        seen.append((task, result))
        if task == 3:
            waiting.append(10)
    assert sorted(seen) == [(1, 1), (2, 2), (3, 3), (10, 10)]


def test_a_process_that_ends_is_a_lost_task() -> None:
    waiting = [1]
    ((task, result),) = Processes(1).each(ends_its_process, lambda: waiting.pop() if waiting else None)
    assert task == 1
    assert result == Lost("the process that ran it ended with exit code 9")


def test_how_they_are_asked_for() -> None:
    assert [as_executor(given).count for given in (3, "2", "processes:4", "processes")] == [3, 2, 4, cores()]
    own = Processes(2)
    assert as_executor(own) is own
    for bad in ("ray:", "2.5", "-1", True, "rya"):
        with pytest.raises(InputError, match="workers: expected"):
            as_executor(bad)
    with pytest.raises(InputError, match="0 or more"):
        Processes(-1)


def test_one_that_was_made_for_a_call_is_closed_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Processes] = []
    monkeypatch.setattr(Processes, "close", lambda self: closed.append(self))
    own = Processes(2)
    with working(own) as same, working(None) as nobody:
        assert same is own
        assert nobody is None
    assert closed == []
    count = takes_workers(lambda workers=None: workers.count)
    assert count(workers=3) == 3
    assert [one.count for one in closed] == [3]


def test_processes_stay_until_they_are_closed() -> None:
    workers = Processes(2)
    first = {process for process, _ in workers.map(whose, range(8), np.arange(3))}
    again = {process for process, _ in workers.map(whose, range(8), np.arange(3))}
    assert os.getpid() not in first
    assert again <= first or len(first | again) <= 2
    workers.close()
    assert not {process for process, _ in workers.map(whose, range(2))} & (first | again)
    workers.close()


def test_what_is_shared_is_read_where_it_lies_and_replaced_by_what_comes_next() -> None:
    workers, kinds = Processes(2), (np.int16, np.float64, np.uint8)
    for number in range(4):
        arrays = {kind.__name__: np.arange(number * 1000, dtype=kind) for kind in kinds}
        for total, writable in workers.map(summed, range(5), arrays, np.empty((0, 3))):
            assert total == sum(float(one.sum()) for one in arrays.values())
            assert not writable
    workers.close()


def test_shared_memory_is_gone_afterwards() -> None:
    with Shared((1, np.arange(10))) as given:
        name = given.place.name
        SharedMemory(name).close()
    with pytest.raises(FileNotFoundError):
        SharedMemory(name)


def test_the_task_of_a_killed_process_is_done_again(tmp_path: Path) -> None:
    workers = Processes(2)
    dying = OneDies(workers, tmp_path / "mark")
    assert list(dying.map(plus, range(9), 5)) == list(range(5, 14))
    assert dying.mark.exists()
    with pytest.raises(HushgraphError, match="a process ended before it gave one, 4 times"):
        list(workers.map(ends_its_process, [1]))
    assert list(workers.map(plus, [1])) == [1]
    workers.close()
