"""Every method is a public name of the package, and a class to a type checker."""

from __future__ import annotations

import pytest

import hushgraph as hg
from hushgraph import registry


@pytest.mark.parametrize("name", registry.names("methods"))
def test_a_method_is_public(name: str) -> None:
    found = registry.load("methods", name)
    if found.__module__.startswith("hushgraph."):
        assert getattr(hg, found.__name__) is found
        assert found.__name__ in hg.__all__
