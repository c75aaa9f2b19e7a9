"""`python -m hushgraph.collect`: the commands of `hushgraph collect` on their own."""

from __future__ import annotations

from hushgraph.collect.cli import app

app()
