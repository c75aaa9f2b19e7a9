"""The vault: the only holder of private tensors.

It hands out what the unit leaves public, as tensors, and everything else as `PrivateRows`: a handle with a shape and
nothing inside. Handles can be transformed row by row, stacked and joined, always inside the vault; a tensor comes out
only of a mechanism, through `Vault.release`, after its charge is in the ledger. So a method is checked by reading one
file: every line that touches private data is a call on the vault.
"""

from __future__ import annotations

from hushgraph.vault.handles import Ended, Held, PrivateRows
from hushgraph.vault.replay import Collection, Replay
from hushgraph.vault.vault import Progress, Vault

__all__ = ["Collection", "Ended", "Held", "PrivateRows", "Progress", "Replay", "Vault"]
