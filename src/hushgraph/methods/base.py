"""What all methods share: plan, and fit.

A `Method` is a frozen set of public settings with three parts: `stages` (what it will release, with relative noise),
`network` (what it trains) and `run` (the algorithm, on a vault). The same `run` is used three times: by `fit` on the
data, by `predict_on` on another graph, and by `predict` on a replay of what was released.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from hushgraph import registry
from hushgraph.errors import HushgraphError, InputError, UnprovenError
from hushgraph.executors.base import Executor, working
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.resuming import enter_plan
from hushgraph.methods.model import Model
from hushgraph.methods.refusals import (
    require_fitting,
    require_public_classes,
    require_weights_read,
    require_work,
    with_types,
)
from hushgraph.methods.running import finished
from hushgraph.nn.own import described, rebuilt
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget, as_budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.metadata import EXAMPLE, Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage, batch_notes
from hushgraph.privacy.units import DirectedEdge, UndirectedEdge, Unit, as_unit
from hushgraph.settings import Settings
from hushgraph.training.fit_options import Callback, FitOptions
from hushgraph.training.ranks import Ranks
from hushgraph.vault import PrivateRows, Progress, Vault
from hushgraph.vault.checkpoint import Checkpoint

Stages = Callable[[Metadata, Unit, Budget], Sequence[Stage]]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Output:
    """What a run leaves: class scores, or other tensors worth keeping, and what was found out on the way.

    `kept` are tensors that follow from released and public values alone. A run that chose among methods says which
    (`method`, with the `network` and `plan` it used) and why (`reason`).
    """

    scores: Tensor | PrivateRows | None = None
    kept: dict[str, Tensor] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    method: Method | None = None
    network: nn.Module | None = None
    reason: Note | None = None


def takes_workers(function: F) -> F:
    """The function with its `workers` as an executor, if any were asked for; one that was made here is closed then."""

    @wraps(function)
    def called(*given: Any, workers: int | str | Executor | None = None, **options: Any) -> Any:
        if workers is None:
            return function(*given, **options)
        with working(workers) as executor:
            return function(*given, workers=executor, **options)

    return cast(F, called)


@dataclass(frozen=True)
class Method(Settings):
    """Public settings of one method. With `trust` "central" a trusted holder of the data runs it."""

    kind: ClassVar[registry.Kind] = "methods"
    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    trust: ClassVar[Literal["central", "local"]] = "central"
    takes_multilabel: ClassVar[bool] = False
    """Whether nodes may have several classes: the proof must not need one class a node."""
    one_class: ClassVar[str] = "nothing is proved for several"
    """Why a method that takes one class a node takes no more."""

    # Modules of the user

    def own_modules(self) -> dict[str, nn.Module]:
        """The settings that are modules of the user."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.metadata.get("in_python")}
        return {name: module for name, module in given.items() if module is not None}

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        cls.__repr__ = Method.__repr__  # type: ignore[method-assign]  # a dataclass would write out every setting

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values; a user's module by its layers, or by the name of its class."""
        own = self.own_modules()
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: described(own[name]) if name in own else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any], modules: dict[str, nn.Module]) -> Self:
        """The inverse of `as_dict`; `modules` are those of the user that cannot be made from it."""
        own = {one.name for one in fields(cls) if one.metadata.get("in_python")}
        written = {name: values[name] for name in own if values.get(name) is not None}
        found = {name: modules.get(name) or rebuilt(one) for name, one in written.items()}
        InputError.collect(
            f"{name}: expected the module that this model was trained with, a {written[name]['class']}; got none. Do: "
            f"hushgraph.load(folder, {name}={written[name]['class']}(...))"
            for name, module in found.items()
            if module is None
        )
        unknown = sorted(modules.keys() - written.keys())
        InputError.collect(f"{name}: expected no such module: this model was trained without" for name in unknown)
        return cls(**{**values, **found})

    @abstractmethod
    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The releases to make, each with its noise relative to the others."""

    @abstractmethod
    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """The untrained network; its first weights are drawn from `generator`."""

    @abstractmethod
    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """The algorithm. With `train` False nothing that trains is released: the network is there already."""

    # What a method may say differently

    def paper_accountant(self, unit: Unit) -> Accountant:
        """The accountant of the method's publication, for paper mode."""
        return "tightest"

    def public_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """What is taken as public."""
        modules = ", ".join(self.own_modules())
        sizes = note(Code.SIZES, nodes=metadata.num_nodes, train=metadata.num_train)
        records = [note(Code.PUBLIC_RECORDS, records=metadata.num_public)] if metadata.num_public else []
        own = [note(Code.OWN_MODULES, modules=modules)] if modules else []
        own += [note(Code.EDGE_TYPES, types=", ".join(metadata.edge_types))] if metadata.edge_types else []
        return [sizes, note(Code.SETTINGS), *own, *records, *unit.notes(metadata)]

    def unprotected_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """What this method leaves unprotected beyond what the unit does."""
        return ()

    def remarks(self, plan: Plan) -> Sequence[str]:
        """What one should know before paying for a run: sentences that follow from its plan alone."""
        return ()

    def classifier(self, network: nn.Module, plan: Plan) -> tuple[nn.Module, Tensor] | None:
        """What turns rows of numbers into class scores, and rows of the right shape; None: it takes other input."""
        return None

    def require(self, metadata: Metadata) -> None:
        """Refuse data that this method has no use for, before a run is entered."""

    def default_unit(self, graph: CheckedGraph) -> Unit:
        """The undirected edge for a symmetric graph, the directed edge otherwise."""
        return UndirectedEdge() if graph.is_symmetric() else DirectedEdge()

    def evaluate(self, model: Model, graph: CheckedGraph) -> dict[str, Any]:
        """How well the model does on the data: an evaluation, outside the guarantee."""
        return model.class_metrics(graph)

    # What all methods do

    def plan(self, metadata: Metadata, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """The releases and what they cost, from public sizes only."""
        if metadata.num_train < 1:
            raise InputError(f"train nodes: expected at least 1; got {metadata.num_train}")
        if metadata.multilabel and not self.takes_multilabel:
            others = [name for name in registry.names("methods") if registry.load("methods", name).takes_multilabel]
            raise InputError(
                f"{self.name}: expected one class for each node; got a matrix of labels, several a node "
                f"({self.one_class}). Use one of {', '.join(others)}, or one column of y"
            )
        try:
            self._require_trust(unit, budget)
            made = self.with_noise(metadata, unit, budget, paper_mode=paper_mode)
            if metadata.weighted:
                require_weights_read(made)
            return made
        except UnprovenError as error:
            raise UnprovenError(f"{error}. {self._instead(unit)}") from error

    def with_noise(self, metadata: Metadata, unit: Unit, budget: Budget, *, paper_mode: bool) -> Plan:
        """The plan of all stages, each with its noise; `plan` refuses data that the method does not take."""
        return self._planned(self.name, metadata, unit, budget, self.stages, paper_mode)

    def _instead(self, unit: Unit) -> str:
        """Units that this method is proved for, and methods that are proved for the unit."""
        own, others = self.units(), [name for name in registry.names("methods") if _is_proved(name, unit)]
        units = f"{self.name} is proved for: {', '.join(own)}" if own else f"{self.name} runs with epsilon=inf only"
        return f"{units}. Proved for '{unit.name}': {', '.join(others) or 'no method'}"

    def inference_plan(self, metadata: Metadata, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """The releases without the training: what predictions about another graph cost."""
        name = f"{self.name}-inference"
        return self._planned(name, metadata, unit, budget, self._stages_without_training, paper_mode)

    def _stages_without_training(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        return [stage for stage in self.stages(metadata, unit, budget) if not stage.mechanism.trains]

    def _planned(
        self, name: str, metadata: Metadata, unit: Unit, budget: Budget, listed: Stages, paper_mode: bool
    ) -> Plan:
        """What is not protected, what is public, then what is released."""
        unprotected, public = self.unprotected_notes(metadata, unit), self.public_notes(metadata, unit)
        stages = listed(metadata, unit, budget.for_units(unit.count(metadata), unit.counted(metadata)))
        if paper_mode:
            stages = [replace(stage, mechanism=stage.mechanism.as_published()) for stage in stages]
        if not any("edges" in stage.mechanism.reads for stage in stages):
            public = [one for one in public if one.code is not Code.DEGREE_CAP]
        paper = self.paper_accountant(unit) if paper_mode else None
        public = [*public, *batch_notes(stages, unit, budget)]
        made = Plan.make(name, metadata, unit, budget, stages, public=public, unprotected=unprotected, paper=paper)
        return with_types(made) if metadata.edge_types or budget.relations else made

    @takes_workers
    def fit(
        self,
        graph: Any,
        unit: Unit | str | None = None,
        budget: Budget | float | tuple[float, float] | None = None,
        *,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        num_edges: int | None = None,
        paper_mode: bool = False,
        seed: int | None = None,
        progress: Progress | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        optimizer: Any = None,
        schedule: Any = None,
        callbacks: Sequence[Callback] | Callback | None = None,
        early_stopping: int | None = None,
        class_weights: Sequence[float] | Mapping[str, float] | None = None,
        device: str | torch.device | None = None,
        memory: str | int | None = None,
        workers: int | str | Executor | None = None,
        ranks: Ranks | None = None,
    ) -> Model:
        """Train on a graph and return the model with its certificate.

        `graph` is a PyG `Data`, an `hg.Graph`, a NetworkX graph, the name of a dataset or the path of a file. Without
        `unit`, a symmetric graph is protected per undirected edge, and in paper mode the unit is the one that
        publications state. A unit may be given by its name, a budget as epsilon or (epsilon, delta), a ledger by its
        folder. `num_edges` declares the number of directed edges to be public knowledge. `seed` makes the run
        repeatable and NOT private.
        `checkpoint` is a folder: a run that was stopped goes on from there when the same call is made again, with the
        same noise and without another charge. It is as secret as the data, and removed when the model is saved.

        `optimizer` (a name, or a class of `torch.optim`), `schedule` ("linear", "cosine", or a function from the share
        of steps that is done to a factor of the learning rate), `callbacks` (functions of a step; True ends a
        training), `early_stopping` (epochs without a better one, where validation labels are public), `class_weights`
        (public numbers) and `device` (of plain training) are about all trainings of this fit (docs/modules.md).

        `memory` ("4GiB"; by default half of what is free) is for a graph that is named by its folder: edges that are
        too many for it are used from the disk, with the same result (docs/scale.md).

        `workers` (a number of processes, "ray", or a `hushgraph.Ray`) add up the edges of a graph that is named by its
        folder or URL, and train the teachers of PATE. They draw no noise; the result is the same, to the last byte.
        `ranks` are the processes of torchrun, which share DP-SGD (`hushgraph.Ranks`): same law, same charge.
        """
        if not isinstance(self, Method):
            raise InputError("fit: expected a method that was made, such as GAP().fit(graph, ...); got its class")
        budget, named = as_budget(budget), None if unit is None else as_unit(unit)
        needs_edges = named is None or named.has_edges
        checked = graph
        if not isinstance(graph, CheckedGraph):
            executor = cast(Executor | None, workers)
            data = graph if hasattr(graph, "edge_index") else _read(graph, memory, executor)
            checked = check_graph(data, num_edges=num_edges, needs_edges=needs_edges)
        default = self.default_unit(checked) if named is None else named
        unit = default.published if named is None and paper_mode else default
        unit.check(checked, paper_mode=paper_mode)
        require_public_classes(checked, unit, budget)
        self.require(checked.metadata)
        plan = self.plan(checked.metadata, unit, budget, paper_mode=paper_mode)
        wanted = (optimizer, schedule, callbacks, early_stopping, class_weights, device)
        options = None
        if any(one is not None for one in (*wanted, ranks)):
            options = FitOptions.of(*wanted, class_names=checked.class_names, ranks=ranks)
            require_fitting(options, plan)
        changed = {} if options is None else options.changed()
        if workers is not None:
            require_work(checked, plan)
        if self.own_modules():
            self.network(plan, torch.Generator())  # a module that does not fit is refused before a run is entered
        started = time.perf_counter()
        kept = checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        if kept is not None and ranks is not None:
            raise InputError("checkpoint: expected one process, which can go on by itself; got ranks; use one of them")
        if kept is not None:
            self._require_known_code(options)
            kept.begin(self.name, {**self.as_dict(), **changed}, plan, checked, seed)
        seeded, known_as = seed is not None, None if kept is None else kept.identity
        run = enter_plan(checked, plan, ledger, seeded=seeded, identity=known_as)
        noise = NoiseSource.of(seed) if kept is None else kept.noise(seeded=seeded)
        try:
            network = self.network(plan, noise.torch_generator("weights"))
            vault = Vault(checked, plan, run, noise, progress, kept, options, cast(Executor | None, workers))
            output = self.run(vault, network, train=True)
        except HushgraphError:
            if kept is None:
                run.close()  # what was charged stays charged; what was only planned does not count
            raise
        model = finished(self, network, output, vault.end(output.scores), run, checked, time.perf_counter() - started)
        model.checkpoint = kept
        model.settings |= {"fit": changed} if changed else {}
        return model

    @classmethod
    def units(cls) -> list[str]:
        """The names of the units under which no stage is refused with the default settings."""
        proven = []
        for name in registry.names("units"):
            if any(cls().proves(EXAMPLE, unit) for unit in registry.load("units", name).variants()):
                proven.append(name)
        return proven

    def _require_known_code(self, options: FitOptions | None) -> None:
        """A checkpoint uses its noise again: nothing may enter a run that the settings and versions do not tell."""
        written = options is not None and options.is_code
        if self.own_modules() or written or not type(self).__module__.startswith("hushgraph."):
            raise InputError(
                "checkpoint: expected a method of hushgraph without code of your own; got other code, which could "
                "change between two calls, and the same noise on something else would give the data away. Train without"
            )

    def _require_trust(self, unit: Unit, budget: Budget) -> None:
        if unit.trust == "local" and self.trust != "local" and budget.is_private:
            raise UnprovenError(
                f"{self.name} has no proof under the unit '{unit}': it is run by a holder who sees raw data, and there "
                "nobody may"
            )

    def proves(self, metadata: Metadata, unit: Unit) -> bool:
        """Whether no stage is refused under `unit`."""
        try:
            self._require_trust(unit, Budget(1.0, 1e-6))
            for stage in self.stages(metadata, unit, Budget(1.0, 1e-6)):
                if not stage.is_free(unit):
                    stage.mechanism.require(unit)
        except InputError:
            return False
        return True


def _read(graph: Any, memory: str | int | None, workers: Executor | None) -> Any:
    from hushgraph.importing.graph import as_graph  # loads PyTorch Geometric, which a plan does not need

    return as_graph(graph, memory, workers)


def _is_proved(method: str, unit: Unit) -> bool:
    return unit.name in registry.load("methods", method).units()
