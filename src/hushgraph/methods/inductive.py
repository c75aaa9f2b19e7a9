"""Inference on a graph that was not there in training: the releases are made again on it, and charged to its ledger."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hushgraph.data.checks import check_graph, check_unit
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.base import Method, TrainedModel, open_vault
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Plan
from hushgraph.vault import Vault


@dataclass
class InductiveModel(TrainedModel):
    """A model that reads noisy sums, and can read those of another graph."""

    @abstractmethod
    def inference(self) -> Method:
        """The releases of this model's method without its training."""

    @abstractmethod
    def release(self, vault: Vault, plan: Plan) -> tuple[dict[str, Tensor], Tensor | None]:
        """Make the releases on the graph in the vault: those that may leave, and the class scores from them."""

    def predict_on(
        self,
        graph: Any,
        budget: Budget,
        *,
        ledger: Ledger | None = None,
        seed: int | None = None,
        paper_mode: bool = False,
    ) -> TrainedModel:
        """Inductive inference: sum over another graph privately, under the same unit, charged to its own ledger.

        Nothing is trained. Returns a model of that graph: its `predict`, its `released` sums and its own certificate.
        """
        checked = check_graph(graph, known_classes=self.class_names)
        check_unit(checked, self.unit, paper_mode=paper_mode)
        self.check_sizes(checked.facts)
        plan = self.inference().plan(checked.facts, self.unit, budget, paper_mode=paper_mode)
        vault, run = open_vault(checked, plan, ledger, seed, None)
        released, scores = self.release(vault, plan)
        model = type(self)(
            method=self.method,
            facts=checked.facts,
            unit=self.unit,
            network=self.network,
            settings=self.settings,
            released=released,
            scores=scores,
        )
        model.finish(checked, vault, run, sum(vault.seconds.values()))
        return model

    def check_sizes(self, facts: PublicFacts) -> None:
        """Refuse a graph whose rows the network cannot read."""
        if facts.num_features != self.facts.num_features:
            raise InputError(f"predict_on: expected {self.facts.num_features} features; got {facts.num_features}")
