"""The package itself: light to import, and everything it promises is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hushgraph.datasets

PROGRAM = """
import sys
import hushgraph
before = "torch" in sys.modules
import hushgraph.datasets
assert len(hushgraph.datasets.available()) > 30
assert ("torch" in sys.modules) == before
"""


def test_listing_does_not_import_torch() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)


def test_all_names_can_be_had() -> None:
    for name in hushgraph.datasets.__all__:
        assert getattr(hushgraph.datasets, name).__name__ == name
    assert dir(hushgraph.datasets) == sorted(hushgraph.datasets.__all__)


def test_other_names_cannot() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        hushgraph.datasets.nonsense  # noqa: B018
