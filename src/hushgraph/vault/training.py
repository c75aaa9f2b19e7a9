"""Training on what the vault holds: plainly where all of it is public, by clipped and noised gradients elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from hushgraph.data.joined import JoinedRows
from hushgraph.data.rows import Rows
from hushgraph.errors import InputError, PrivateAccessError, UnprovenError
from hushgraph.graph.rooted import RootedSubgraphs, whole_graph
from hushgraph.nn.chorus import Ensemble
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.noise.sampler import PoissonSampler
from hushgraph.privacy.plan import GradientStage, RootedGradientStage
from hushgraph.training.ensemble import train_ensemble
from hushgraph.training.optimizers import OptimizerName
from hushgraph.training.plain import BestBy, train_plainly
from hushgraph.training.private import train_privately
from hushgraph.training.rooted import train_rooted_privately
from hushgraph.training.rooted_plain import train_whole_graph
from hushgraph.training.rowwise import require_rowwise
from hushgraph.vault.handles import PrivateRows
from hushgraph.vault.holder import Holder

RAW_PREDICTIONS = (
    "predictions: they read the raw records of the nodes around each node; only the weights of the model are protected"
)


@dataclass(frozen=True)
class Recipe:
    """How to train: public choices. `epochs` counts passes over the train nodes.

    `best_by` says how the best epoch is told (see `train_plainly`). `patience` concerns ensembles (see
    `train_ensemble`), `normalize` and `average_last` private training (see `train_privately`).
    """

    epochs: int
    lr: float = 0.01
    optimizer: OptimizerName = "adam"
    weight_decay: float = 0.0
    batch_size: int | None = None
    select_best: bool = False
    best_by: BestBy = "accuracy"
    patience: int | None = None
    normalize: bool = False
    average_last: float = 0.0


class Training(Holder):
    """The part of the vault that trains networks."""

    def train(
        self,
        module: nn.Module,
        rows: Rows | PrivateRows,
        recipe: Recipe,
        stage: GradientStage | None,
        name: str,
        among: Tensor | None = None,
    ) -> None:
        """Train `module` on the train nodes: plainly where all it reads is public, by DP-SGD otherwise.

        DP-SGD can be kept to a part of the train nodes, named by the public numbers `among`. A stage may be carried out
        on several parts without a common node and is charged once: a record is an example of at most one of them.
        """
        with self._timed(name):
            if stage is None or self.unprotected:
                self._train_plainly(module, rows, recipe, name)
            else:
                self._train_privately(module, rows, recipe, stage, among)

    def _train_plainly(self, module: nn.Module, rows: Rows | PrivateRows, recipe: Recipe, name: str) -> None:
        if isinstance(rows, PrivateRows):
            raise PrivateAccessError(f"{rows.what} are private under the unit '{self.unit}': plan a gradient stage")
        labels = self.labels
        if isinstance(module, Ensemble):
            self._train_ensemble(module, cast(JoinedRows, rows), recipe, name)
            return
        train_plainly(
            module,
            rows,
            labels,
            self._graph.train,
            epochs=recipe.epochs,
            lr=recipe.lr,
            optimizer=recipe.optimizer,
            weight_decay=recipe.weight_decay,
            val=self._graph.val if self._graph.val.numel() else None,
            select_best=recipe.select_best and bool(self._graph.val.numel()),
            best_by=recipe.best_by,
            batch_size=recipe.batch_size,
            generator=self.generator(f"batches/{name}"),
            on_epoch=lambda done, total: self.report(name, done, total),
        )

    def _train_ensemble(self, network: Ensemble, rows: JoinedRows, recipe: Recipe, name: str) -> None:
        train_ensemble(
            network,
            rows,
            self.labels,
            self._graph.train,
            self._graph.val if recipe.select_best else None,
            epochs=recipe.epochs,
            lr=recipe.lr,
            patience=recipe.patience,
            generator=self.generator(f"dropout/{name}"),
            on_epoch=lambda done, total: self.report(name, done, total),
        )

    def _train_privately(
        self,
        module: nn.Module,
        rows: Rows | PrivateRows,
        recipe: Recipe,
        stage: GradientStage,
        among: Tensor | None,
    ) -> None:
        if recipe.select_best:
            raise UnprovenError(
                "best-epoch selection reads private validation labels for free; use a fixed number of epochs"
            )
        require_rowwise(module)
        train = self._graph.train if among is None else among
        if not bool(torch.isin(train, self._graph.train).all()) or train.unique().numel() != train.numel():
            raise InputError("training: expected distinct train nodes; got others")
        sampler = PoissonSampler(train.numel(), stage.sample_rate)
        part = self._charge_part(stage, train)
        opened = self._open(rows)
        train_privately(
            module,
            opened.rows(train) if not isinstance(opened, Tensor) else opened[train],
            self._graph.labels[train],
            sampler=sampler,
            steps=stage.count,
            max_grad_norm=stage.max_grad_norm,
            noise_std=stage.std,
            noise=self._noise.stream(f"gradient/{stage.name}{part}"),
            lr=recipe.lr,
            optimizer=recipe.optimizer,
            weight_decay=recipe.weight_decay,
            normalize=recipe.normalize,
            average_last=recipe.average_last,
            on_step=lambda done, total: self.report(stage.name, done, total),
        )

    def _charge_part(self, stage: GradientStage, nodes: Tensor) -> str:
        """Charge the stage, or note that its charge covers these nodes too; the name of this part's noise."""
        taught = self._taught.get(stage.name)
        if taught is None or bool(torch.isin(nodes, taught).any()):
            self._run.charge(stage)
        else:
            self._run.note_parallel(stage, nodes.numel())
        self._taught[stage.name] = nodes if taught is None else torch.cat([taught, nodes])
        return "" if taught is None else f"/after {taught.numel()}"

    def train_rooted(
        self, network: RootedNetwork, recipe: Recipe, stage: RootedGradientStage | None, name: str
    ) -> None:
        """Train a message-passing network on the train nodes as roots: per-root DP-SGD, or plainly if unprotected."""
        with self._timed(name):
            if self.unprotected:
                self._train_whole_graph(network, recipe, name)
            elif stage is None:
                raise PrivateAccessError(
                    f"edges are private under the unit '{self.unit}': plan a rooted gradient stage"
                )
            else:
                self._train_rooted_privately(network, recipe, stage)

    def _train_whole_graph(self, network: RootedNetwork, recipe: Recipe, name: str) -> None:
        train_whole_graph(
            network,
            whole_graph(self._edges, network.num_layers),
            self._graph.features,
            self._graph.labels,
            train=self._graph.train,
            val=self._graph.val,
            epochs=recipe.epochs,
            lr=recipe.lr,
            weight_decay=recipe.weight_decay,
            on_epoch=lambda done, total: self.report(name, done, total),
        )

    def _train_rooted_privately(self, network: RootedNetwork, recipe: Recipe, stage: RootedGradientStage) -> None:
        if network.num_layers != stage.layers:
            raise InputError(f"expected a network of {stage.layers} layers, as planned; got {network.num_layers}")
        train = self._graph.train
        sampler = PoissonSampler(train.numel(), stage.sample_rate)
        stage.touched(self.unit)
        lists = self._capped_at(self._edges, stage.max_degree)
        self._run.charge(stage)
        train_rooted_privately(
            network,
            RootedSubgraphs(lists, train, stage.layers),
            self._graph.features,
            self._graph.labels[train],
            sampler=sampler,
            steps=stage.count,
            max_grad_norm=stage.max_grad_norm,
            noise_std=stage.std,
            noise=self._noise.stream(f"gradient/{stage.name}"),
            lr=recipe.lr,
            optimizer=recipe.optimizer,
            weight_decay=recipe.weight_decay,
            on_step=lambda done, total: self.report(stage.name, done, total),
        )

    def raw_predictions(self, network: RootedNetwork) -> Tensor:
        """Class scores that read raw neighborhoods. They are NOT protected, and the plan must have said so.

        Only the weights of `network` are covered by the guarantee. A node's scores are for someone who may see the
        records of the nodes around it.
        """
        if not self.unprotected and RAW_PREDICTIONS not in self._run.plan.not_protected:
            raise UnprovenError("predictions from raw neighborhoods: expected a plan that declares them unprotected")
        network.eval()
        with torch.no_grad():
            scores: Tensor = network(self._graph.features, whole_graph(self._graph.edges, network.num_layers))
        return scores
