"""The tables of the pages are those that the registry gives: `make docs` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

import docs
from hushgraph import registry


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda page: page.name)
def test_tables_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- table: " in text
    assert docs.written(page) == text, "run make docs"


def test_every_table_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in docs.PAGES)
    assert [name for name in docs.TABLES if f"<!-- table: {name} -->" not in text] == []


def test_every_mechanism_s_proof_is_a_page() -> None:
    for name in registry.names("mechanisms"):
        proof = registry.load("mechanisms", name).proof
        assert proof == "none" or (docs.ROOT / "docs" / "proofs" / f"{proof}.md").exists()
