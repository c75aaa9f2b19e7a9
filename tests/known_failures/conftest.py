from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_books(own_books: None) -> None:
    """Every test here."""
