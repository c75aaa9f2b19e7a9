"""The lock has a hash for everything and names no host; the bill of materials names what the lock names."""

from __future__ import annotations

import re
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement

import lock
import supply_chain


def test_everything_in_the_lock_has_hashes_and_no_address() -> None:
    text = lock.LOCK.read_text()
    packages = lock.read(text)  # refuses a line that is no package with hashes
    assert all(hashes for _, hashes in packages.values())
    assert "://" not in text
    assert lock.write(packages) == text
    assert packages["torch"][0] == lock.TORCH
    assert f"torch=={lock.TORCH}\n" in (lock.ROOT / "Makefile").read_text()


def test_a_line_without_a_hash_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"expected packages with hashes; got 'numpy==2\.4\.6'; run `make lock`"):
        lock.read("numpy==2.4.6\n")


def test_everything_that_the_project_asks_for_is_locked() -> None:
    assert _needed("hushgraph", ("dev",)) - lock.read(lock.LOCK.read_text()).keys() == {"hushgraph"}


def test_the_image_of_the_service_has_what_it_needs() -> None:
    words = (lock.ROOT / "deploy" / "Dockerfile").read_text().partition("--only")[2].partition(">")[0]
    without = ("torch", "torch-geometric", "dp-accounting", "scikit-learn", "safetensors", "mpmath")
    needed = _needed("hushgraph", ("collect", "postgres"), without)
    assert {*words.replace("\\", " ").split()} == {*needed, "setuptools"}


def _needed(name: str, extras: tuple[str, ...], without: tuple[str, ...] = ()) -> set[str]:
    """The names of all that a package needs here, with some extras and without some of its own requirements."""
    found: set[str] = set()
    open_ends = [(name, extras)]
    while open_ends:
        one, wanted = open_ends.pop()
        for line in distribution(one).requires or []:
            asked = Requirement(line)
            called = re.sub(r"[-_.]+", "-", asked.name).lower()
            if asked.marker and not any(asked.marker.evaluate({"extra": extra}) for extra in ("", *wanted)):
                continue
            if called not in without and (called not in found or asked.extras):
                found.add(called)
                open_ends.append((called, tuple(asked.extras)))
    return found


def test_the_bill_lists_the_lock() -> None:
    packages = supply_chain.locked()
    assert {"torch", "numpy", "cryptography"} <= packages.keys()
    some = {name: packages[name] for name in ("numpy", "cryptography", "safetensors")}
    found = supply_chain.bill(supply_chain.installed(some))
    assert [one["name"] for one in found["components"]] == ["cryptography", "numpy", "safetensors"]
    for one in found["components"]:
        assert one["purl"] == f"pkg:pypi/{one['name']}@{packages[one['name']]}"
        assert one["licenses"][0]["license"]["name"] != "not stated"
    assert found == supply_chain.bill(supply_chain.installed(some))


def test_what_differs_from_the_lock_is_an_error() -> None:
    with pytest.raises(SystemExit, match=r"(?s)no-such-package 1 is not installed.*numpy: expected 0.1"):
        supply_chain.installed({"numpy": "0.1", "no-such-package": "1"})
