"""The vault: the only holder of private tensors.

It hands out what the unit leaves public, as tensors, and everything else as `PrivateRows`: a handle with a shape and
nothing inside. Handles can be transformed row by row, stacked, trained on and aggregated, always inside the vault; a
tensor comes out only of a mechanism, after its charge is in the ledger. So a method is checked by reading one file:
every line that touches private data is a call on the vault.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.accounting.label_sum import LabelSumStage
from hushgraph.accounting.plan import AggregationStage, GradientStage, LocalStage, RootedGradientStage, UnprotectedStage
from hushgraph.errors import BudgetError, InputError, PrivateAccessError, UnprovenError
from hushgraph.facts import PublicFacts
from hushgraph.graph.aggregate import sum_in_neighbours
from hushgraph.graph.csr import InNeighbours
from hushgraph.graph.degree import cap_senders
from hushgraph.graph.rooted import RootedSubgraphs, whole_graph
from hushgraph.intake import CheckedGraph, check_unit
from hushgraph.mechanisms.aggregate import bounded_rows, noisy_sum
from hushgraph.mechanisms.devices import FeatureRandomiser, LabelRandomiser, Range, device_randomness, unit_interval
from hushgraph.mechanisms.label_sum import known_labels, label_messages, noisy_label_sum
from hushgraph.mechanisms.noise import NoiseSource
from hushgraph.nn.chorus import Ensemble
from hushgraph.nn.joined import JoinedRows
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.nn.sparse import Rows, dense_rows
from hushgraph.run import Run
from hushgraph.training.ensemble import train_ensemble
from hushgraph.training.optimizers import OptimizerName
from hushgraph.training.plain import train_plainly
from hushgraph.training.private import train_privately
from hushgraph.training.rooted import train_rooted_privately
from hushgraph.training.rooted_plain import train_whole_graph
from hushgraph.training.rowwise import require_rowwise
from hushgraph.training.sampling import PoissonSampler
from hushgraph.units import Local

Progress = Callable[[str, int, int], None]

RAW_PREDICTIONS = (
    "predictions: they read the raw records of the nodes around each node; only the weights of the model are protected"
)


class PrivateRows:
    """A handle to rows that stay in a vault. It knows its shape; everything else raises."""

    __slots__ = ("__weakref__", "shape", "what")

    def __init__(self, shape: tuple[int, ...], what: str) -> None:
        self.shape = shape
        self.what = what

    def __repr__(self) -> str:
        return f"PrivateRows({self.what}, shape={self.shape})"

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise PrivateAccessError(
            f"{self.what} are private under the unit in force and stay in the vault; pass the handle to a vault method"
        )

    def __getattr__(self, name: str) -> Any:
        self._refuse()

    __getitem__ = __iter__ = __array__ = __bool__ = __float__ = __int__ = __reduce_ex__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __rmatmul__ = _refuse


@dataclass(frozen=True)
class Recipe:
    """How to train: public choices. `epochs` counts passes over the train nodes.

    `normalise` and `average_last` concern private training (see `train_privately`).
    """

    epochs: int
    lr: float = 0.01
    optimizer: OptimizerName = "adam"
    weight_decay: float = 0.0
    batch_size: int | None = None
    select_best: bool = False
    normalise: bool = False
    average_last: float = 0.0


class Vault:
    """Holds `graph` for one `run`. `progress(stage, done, total)` is called while it works."""

    def __init__(self, graph: CheckedGraph, run: Run, noise: NoiseSource, progress: Progress | None = None) -> None:
        unit = run.plan.charged_unit
        check_unit(graph, unit)
        self.facts: PublicFacts = graph.facts
        self.unit = unit
        self.unprotected = False
        self._graph = graph
        self._run = run
        self._noise = noise
        self._progress = progress
        self._releases = 0
        self.seconds: dict[str, float] = {}
        self._taught: dict[str, Tensor] = {}
        self._rows: weakref.WeakKeyDictionary[PrivateRows, Rows] = weakref.WeakKeyDictionary()
        for stage in run.plan.stages:
            if isinstance(stage, UnprotectedStage):
                run.charge(stage)
                self.unprotected = True
        self._edges = graph.edges if self.unprotected else self._capped(graph.edges)

    # What is public, and handles to the rest

    def is_public(self, part: str) -> bool:
        """Whether the unit leaves `edges`, `features` or `labels` public (all, in a run without protection)."""
        return self.unprotected or part in self.unit.public

    @property
    def features(self) -> Rows | PrivateRows:
        """The features: a tensor where they are public, a handle otherwise."""
        return self._guarded(self._graph.features, "features")

    @property
    def labels(self) -> Tensor:
        """The labels, where they are public."""
        if not self.is_public("labels"):
            raise PrivateAccessError(f"labels are private under the unit '{self.unit}'; train through the vault")
        return self._graph.labels

    @property
    def edge_index(self) -> Tensor:
        """The edges, in a run without protection only."""
        if not self.is_public("edges"):
            raise PrivateAccessError(
                f"edges are private under the unit '{self.unit}'; the only way out is a charged mechanism (aggregate)"
            )
        return self._edges.edge_index()

    def nodes(self, split: str) -> Tensor:
        """The node numbers of `train`, `val` or `test` (membership is public)."""
        return self._graph.split(split)

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for public randomness such as initial weights."""
        return self._noise.torch_generator(purpose)

    # Work that stays inside

    def apply(self, function: Callable[[Any], Tensor], rows: Rows | PrivateRows) -> Rows | PrivateRows:
        """A row-wise module (or a bound method of one) on every row; private rows give a new handle."""
        if not isinstance(rows, PrivateRows):
            with torch.no_grad():
                return function(rows)
        owner = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
        if not isinstance(owner, nn.Module):
            raise UnprovenError("private rows: expected a module, or a method of one; got an arbitrary function")
        require_rowwise(owner)
        with torch.no_grad():
            return self._keep(function(self._rows[rows]), f"rows computed from {rows.what}")

    def stack(self, parts: Sequence[Rows | PrivateRows]) -> Rows | PrivateRows:
        """The parts side by side, `[nodes, parts, columns]`; private as soon as one part is."""
        stacked = torch.stack([dense_rows(self._open(part)) for part in parts], dim=1)
        private = [part for part in parts if isinstance(part, PrivateRows)]
        return self._keep(stacked, private[0].what) if private else stacked

    def join(self, parts: Sequence[Rows | PrivateRows]) -> Rows | PrivateRows:
        """The parts side by side, each in its own form and width; private as soon as one part is."""
        joined = cast(Rows, JoinedRows([self._open(part) for part in parts]))
        private = [part for part in parts if isinstance(part, PrivateRows)]
        return self._keep(joined, private[0].what) if private else joined

    def predictions(self, module: nn.Module, rows: Rows | PrivateRows) -> Tensor:
        """Class scores, one row per node, each meant for that node's owner.

        Where features are private a node's scores depend on its own record: what others see of the run stays
        protected, the node's own row does not (`Unit.not_protected` says so).
        """
        if isinstance(rows, PrivateRows):
            require_rowwise(module)
        module.eval()
        with torch.no_grad():
            scores: Tensor = module(self._open(rows))
        if scores.shape != (self.facts.num_nodes, self.facts.num_classes):
            raise UnprovenError(f"predictions: expected class scores; got shape {tuple(scores.shape)}")
        return scores

    def raw_predictions(self, network: RootedNetwork) -> Tensor:
        """Class scores that read raw neighbourhoods. They are NOT protected, and the plan must have said so.

        Only the weights of `network` are covered by the guarantee. A node's scores are for someone who may see the
        records of the nodes around it.
        """
        if not self.unprotected and RAW_PREDICTIONS not in self._run.plan.not_protected:
            raise UnprovenError("predictions from raw neighbourhoods: expected a plan that declares them unprotected")
        network.eval()
        with torch.no_grad():
            scores: Tensor = network(self._graph.features, whole_graph(self._graph.edges, network.num_layers))
        return scores

    def label_rows(self, guesses: Rows | PrivateRows | None = None) -> Rows | PrivateRows:
        """One-hot labels of the train nodes; for all others, zeros or their row of `guesses`.

        Labels of nodes outside the train split are never read.
        """
        rows = known_labels(self._graph.labels, self._graph.train, len(self._graph.class_names))
        if guesses is not None:
            rows = torch.where(self._labelled().unsqueeze(1), rows, dense_rows(self._open(guesses)))
        private = isinstance(guesses, PrivateRows) or not self.is_public("labels")
        return self._keep(rows, "label rows") if private else rows

    def _labelled(self) -> Tensor:
        return torch.zeros(self.facts.num_nodes, dtype=torch.bool).index_fill_(0, self._graph.train, True)

    # Mechanisms: charged before anything leaves

    def aggregate_labels(
        self, rows: Rows | PrivateRows, stage: LabelSumStage, receivers: Tensor | None = None
    ) -> Tensor | PrivateRows:
        """One noisy sum over in-neighbours of label rows; the noise of a row depends on the kind of its node.

        A shared stage bounds what a record sends by itself, so it reads whole lists: the unit's cap is not needed.
        With a public mask of `receivers`, all other nodes get zeros and entries that name them are not used.
        """
        with self._timed(stage.name):
            opened, labelled = dense_rows(self._open(rows)), self._labelled()
            edges = self._graph.edges if stage.shared else self._edges
            if receivers is not None:
                edges = InNeighbours.from_edge_index(
                    edges.edge_index()[:, receivers[edges.targets().long()]], len(opened)
                )
            if self.unprotected:
                return sum_in_neighbours(edges, label_messages(edges, opened, labelled, stage))
            self._run.charge(stage, 1)
            self._releases += 1
            self.report(stage.name, self._releases, stage.count)
            noise = self._noise.stream(f"label sum/{stage.name}/{self._releases}")
            released = noisy_label_sum(edges, opened, labelled, stage, noise)
            if receivers is not None:
                released[~receivers] = 0.0
            return self._keep(released, "aggregated rows") if self.unit.degree_promised else released

    def aggregate(self, rows: Rows | PrivateRows, stage: AggregationStage) -> Tensor | PrivateRows:
        """One noisy sum over in-neighbours of the rows, each scaled to the stage's norm first.

        Under `node-promise` a node's own sum is part of its own record, so the result stays in the vault.
        """
        with self._timed(stage.name):
            return self._aggregate(rows, stage)

    def _aggregate(self, rows: Rows | PrivateRows, stage: AggregationStage) -> Tensor | PrivateRows:
        if self.unprotected:
            with torch.no_grad():
                return sum_in_neighbours(self._edges, bounded_rows(dense_rows(self._open(rows)), stage.row_norm))
        self._run.charge(stage, 1)
        self._releases += 1
        self.report(stage.name, self._releases, stage.count)
        noise = self._noise.stream(f"aggregate/{stage.name}/{self._releases}")
        released = noisy_sum(self._edges, dense_rows(self._open(rows)), stage.row_norm, stage.std, noise)
        return self._keep(released, "aggregated rows") if self.unit.degree_promised else released

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
            normalise=recipe.normalise,
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

    # Local reports: the vault plays every person's device

    def collect_features(self, mechanism: FeatureRandomiser, stage: LocalStage, low: Range, high: Range) -> Any:
        """Every person's randomised features, drawn once: clipped to the range, moved to [0, 1], randomised."""
        with self._timed(stage.name):
            self._charge_report(mechanism.epsilon, stage)
            rows = unit_interval(dense_rows(self._graph.features).numpy(), low, high)
            return mechanism.perturb(rows, device_randomness(self._noise, stage.name))

    def collect_labels(self, mechanism: LabelRandomiser, stage: LocalStage) -> Tensor:
        """The randomised labels of train and validation nodes, drawn once; -1 for everybody else."""
        with self._timed(stage.name):
            self._charge_report(mechanism.epsilon, stage)
            asked = torch.cat([self._graph.train, self._graph.val])
            reports = torch.full((self.facts.num_nodes,), -1, dtype=torch.int64)
            truth = self._graph.labels[asked].numpy()
            reports[asked] = torch.from_numpy(mechanism.perturb(truth, device_randomness(self._noise, stage.name)))
            return reports

    def raw_range(self) -> tuple[Range, Range]:
        """The least and the largest value of every column, as publications take them; proves nothing."""
        if not (self.unprotected or (isinstance(self.unit, Local) and self.unit.range_from_data)):
            raise PrivateAccessError("the range of raw features is private; state a public one (low, high)")
        rows = dense_rows(self._graph.features).numpy()
        low, high = rows.min(axis=0), rows.max(axis=0)
        return low, np.where(high > low, high, low + 1.0).astype(rows.dtype)

    def _charge_report(self, epsilon: float, stage: LocalStage) -> None:
        if not epsilon <= stage.epsilon:
            raise BudgetError(
                f"'{stage.name}' was planned at epsilon {stage.epsilon:g}; its randomiser has {epsilon:g}"
            )
        self._run.charge(stage)

    # Inside

    def _guarded(self, rows: Rows, part: str) -> Rows | PrivateRows:
        return rows if self.is_public(part) else self._keep(rows, part)

    def _keep(self, rows: Rows, what: str) -> PrivateRows:
        handle = PrivateRows(tuple(rows.shape), what)
        self._rows[handle] = rows
        return handle

    def _open(self, rows: Rows | PrivateRows) -> Rows:
        if not isinstance(rows, PrivateRows):
            return rows
        if rows not in self._rows:
            raise InputError("these private rows belong to another vault")
        return self._rows[rows]

    def _capped(self, edges: InNeighbours) -> InNeighbours:
        """The owned lists cut to the unit's cap, where it has one; a promised bound was checked instead."""
        cap = self.unit.max_out_degree
        if cap is None or self.unit.degree_promised:
            return edges
        return self._capped_at(edges, cap)

    def _capped_at(self, edges: InNeighbours, cap: int) -> InNeighbours:
        """Every owner keeps at most `cap` entries, by its own keys; a smaller cap keeps a part of a larger one."""
        return cap_senders(edges, cap, self._noise.stream("degree cap"))

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def report(self, stage: str, done: int, total: int) -> None:
        """Tell whoever watches how far a stage is; carries no private value."""
        if self._progress is not None:
            self._progress(stage, done, total)
