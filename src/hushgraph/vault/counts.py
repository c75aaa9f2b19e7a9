"""Noisy counts (of edges, of pairs that agree), and the choice among planned options that may follow from them."""

from __future__ import annotations

from hushgraph.errors import InputError
from hushgraph.mechanisms.count import capped_entries, noisy_count
from hushgraph.mechanisms.pairs import PairCounts, count_pairs, noisy_pairs
from hushgraph.privacy.count import CountStage
from hushgraph.privacy.pairs import PairStage
from hushgraph.privacy.plan import Plan
from hushgraph.vault.holder import Holder


class Counts(Holder):
    """The part of the vault that counts."""

    def count_entries(self, stage: CountStage) -> int:
        """How many entries all own lists have together, each cut at the stage's cap; noisy, charged before it leaves.

        Whole lists are counted, not those cut to the unit's cap. In a run without protection the count is exact.
        """
        with self._timed(stage.name):
            if self.unprotected:
                return capped_entries(self._graph.edges.out_degree(), stage.cap)
            self._require_promised_degrees()
            self._run.charge(stage, 1)
            self.report(stage.name, 1, stage.count)
            # A stream goes on where it stopped, so a second count would get noise of its own.
            return noisy_count(self._graph.edges.out_degree(), stage, self._noise.stream(f"count/{stage.name}"))

    def compare_pairs(self, stage: PairStage) -> PairCounts:
        """How many pairs of neighbors agree, and how many blind pairs; noisy, charged before it leaves.

        Each train node is in at most one pair. In a run without protection the counts are exact.
        """
        with self._timed(stage.name):
            noise = self._noise.stream(f"pairs/{stage.name}")
            asked = (self._graph.edges, self._graph.labels, self._graph.train)
            if self.unprotected:
                return count_pairs(*asked, noise)
            self._run.charge(stage, 1)
            self.report(stage.name, 1, stage.count)
            return noisy_pairs(*asked, stage, noise)

    def choose(self, method: str, reason: str) -> Plan:
        """Enter in the ledger which option of the plan follows, and return that option's plan."""
        return self._run.choose(method, reason)

    def _require_promised_degrees(self) -> None:
        """Under a promised degree the bound of a count needs the promise for both directions."""
        bound = self.unit.max_out_degree
        if not self.unit.degree_promised or bound is None:
            return
        largest = int(self._graph.edges.in_degree().max())
        if largest > bound:
            raise InputError(
                f"node-promise: expected no node that more than {bound} others name (max_degree), which a count of "
                f"edges needs; got one with {largest}. Declare average_degree, raise max_degree, or use the unit node"
            )
