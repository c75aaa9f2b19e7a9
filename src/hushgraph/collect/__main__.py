"""`python -m hushgraph.collect`: the commands of `hushgraph collect` on their own."""

from __future__ import annotations

from hushgraph.cli.collect import app

app()
