"""`python -m hushgraph`: the command line."""

from __future__ import annotations

from hushgraph.cli import main

main()
