"""The vault: the only holder of private tensors.

It hands out what the unit leaves public, as tensors, and everything else as `PrivateRows`: a handle with a shape and
nothing inside. Handles can be transformed row by row, stacked, trained on and aggregated, always inside the vault; a
tensor comes out only of a mechanism, after its charge is in the ledger. So a method is checked by reading one file:
every line that touches private data is a call on the vault.

`holder` keeps the data; `sums`, `counts`, `training` and `reports` are the ways out, one per kind of mechanism.
"""

from __future__ import annotations

from hushgraph.vault.counts import Counts
from hushgraph.vault.handles import PrivateRows
from hushgraph.vault.holder import Progress
from hushgraph.vault.reports import LocalReports
from hushgraph.vault.sums import NoisySums
from hushgraph.vault.training import RAW_PREDICTIONS, Recipe, Training

__all__ = ["RAW_PREDICTIONS", "PrivateRows", "Progress", "Recipe", "Vault"]


class Vault(NoisySums, Counts, Training, LocalReports):
    """Holds one graph for one run; all its mechanisms together."""
