"""The bill of materials names what the lock names, with the licenses that packages state."""

from __future__ import annotations

import pytest

import supply_chain


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
