from __future__ import annotations

from hushgraph.collect.guard import TokenBuckets


def test_burst_then_refill():
    now = [0.0]
    buckets = TokenBuckets(burst=2, per_second=0.5, clock=lambda: now[0])
    assert [buckets.allow(b"a") for _ in range(3)] == [True, True, False]
    assert buckets.allow(b"b")
    now[0] = 2.0
    assert [buckets.allow(b"a") for _ in range(2)] == [True, False]
    now[0] = 1e6
    assert [buckets.allow(b"a") for _ in range(3)] == [True, True, False]


def test_memory_is_bounded():
    buckets = TokenBuckets(keys=10)
    for number in range(1000):
        buckets.allow(str(number).encode())
    assert len(buckets._levels) == 10
