"""The vault itself: one graph for one run, handles to its rows, and `release`, the only way out."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError, PrivateAccessError, UnprovenError
from hushgraph.executors.base import Executor
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.edges import Edges
from hushgraph.graph.rows import JoinedRows, Rows, dense_rows, take_rows
from hushgraph.ledger.run import Run
from hushgraph.mechanisms.view import View
from hushgraph.nn.rowwise import apply_to, require_rowwise
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.training.config import Training
from hushgraph.training.fit_options import FitOptions
from hushgraph.training.minibatches import Minibatches
from hushgraph.vault.checkpoint import Checkpoint, draws_masks
from hushgraph.vault.handles import Ended, Held, PrivateRows

Progress = Callable[[str, int, int], None]
_TOLD_TO_THE_OWNER = {Code.OWN_PREDICTION, Code.OWN_ROW, Code.RAW_PREDICTIONS}
NOBODY: Progress = lambda stage, done, total: None  # noqa: E731
"""Watches no progress."""


@dataclass(frozen=True)
class _Act:
    """A release that has been charged: what is left to do, and where its result belongs."""

    run: Callable[..., Any]
    stays_inside: bool = False
    replayed: bool = False


class Vault:
    """Holds `graph` for one `run` under one `plan`. `progress(stage, done, total)` is called while it works.

    `options` are a user's wishes about all trainings; `executor` does what a mechanism hands out.
    """

    def __init__(
        self,
        graph: CheckedGraph,
        plan: Plan,
        run: Run,
        noise: NoiseSource,
        progress: Progress | None = None,
        checkpoint: Checkpoint | None = None,
        options: FitOptions | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.plan, self.unit = plan, plan.unit
        self.seconds: dict[str, float] = {}
        self.trained_how: dict[str, Any] = {}
        """How stages were trained, where a rule decided that."""
        self.released: dict[str, list[Any]] = {}
        self._graph = graph if plan.holds is None else graph.only(plan.holds)
        self._run, self._noise, self._progress = run, noise, progress or NOBODY
        self._checkpoint, self._options, self._executor = checkpoint, options, executor
        self._nodes = {"train": graph.train, "val": graph.val, "test": graph.test}
        self._cut: dict[int | str, Edges] = {}
        self._count: Counter[str] = Counter()
        self._trained: dict[str, Tensor] = {}
        self._charging = threading.Lock()
        self._rows: weakref.WeakKeyDictionary[PrivateRows, Rows] = weakref.WeakKeyDictionary()
        self._scores: weakref.WeakSet[PrivateRows] = weakref.WeakSet()

    # What is public, and handles to the rest

    @property
    def metadata(self) -> Metadata:
        """The public sizes."""
        return self._graph.metadata

    @property
    def protects(self) -> bool:
        """False in a run without protection, where everything is handed out."""
        return self.plan.budget.is_private

    def is_public(self, part: str) -> bool:
        """Whether `edges`, `features` or `labels` may be handed out."""
        return not self.protects or part in self.unit.public

    @property
    def features(self) -> Held:
        """The features: a tensor where they are public, a handle otherwise."""
        rows = self._graph.features
        return rows if self.is_public("features") else self._keep(rows, "features")

    @property
    def labels(self) -> Tensor:
        """The labels, where they are public."""
        self._require_public("labels")
        return self._graph.labels

    @property
    def edges(self) -> Edges:
        """The edges, where they are public."""
        self._require_public("edges")
        return self._graph.edges

    @property
    def public_features(self) -> Rows:
        """The features of the records that were declared public knowledge (`data.public_mask`)."""
        return take_rows(self._graph.features, self._public_nodes())

    @property
    def public_node_edges(self) -> Edges:
        """The edges between records that were declared public knowledge, numbered as the rows of `public_features`."""
        return self._graph.edges.load().induced(self._public_nodes())

    def _public_nodes(self) -> Tensor:
        if not self.metadata.num_public:
            raise InputError("public records: expected some, declared by data.public_mask; got none")
        return self._graph.public

    def nodes(self, split: str) -> Tensor:
        """The node numbers of `train`, `val` or `test` (membership is public)."""
        return self._nodes[split]

    def in_random_order(self, split: str, purpose: str) -> Tensor:
        """The nodes of a split in an order that is drawn for `purpose` and as public as they are."""
        nodes = self.nodes(split)
        return nodes[torch.randperm(nodes.numel(), generator=self.generator(purpose))]

    def labeled(self, split: str) -> Tensor:
        """The nodes of a split that have a label, where labels are public."""
        self._require_public("labels")
        return self._graph.labeled(split)

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for public randomness such as initial weights."""
        return self._noise.torch_generator(purpose)

    # The way out

    def release(self, name: str, *inputs: Any, nodes: Tensor | None = None, **options: Any) -> Any:
        """Carry out a stage of the plan on the data, and charge it before anything leaves.

        Where all that the mechanism reads is public, or nothing is protected, it runs without noise. `nodes` keeps a
        mechanism that trains to a part of the training nodes; parts without a common node share one charge.
        """
        started = time.perf_counter()
        stage, exact = self.plan[name], self.plan.runs_exactly(name)
        if not exact:
            stage.mechanism.check(*inputs)
        cap = None if exact else self.unit.cap
        inside = not exact and stage.mechanism.stays_private(self.unit)
        inputs = self._as_wanted(inputs, exact)
        opened = [self._open(one) for one in inputs]  # what no mechanism may read is refused before it is charged
        if nodes is not None:
            options = {**options, "nodes": self._checked_nodes(nodes)}
        view = self._view(stage, cap, inputs)
        act = self._exact(stage, view, inputs, nodes) if exact else self._noisy(stage, view, inputs, nodes, inside)
        do = partial(act.run, *opened, **options)
        kept = self._checkpoint is not None and (stage.mechanism.trains or not exact)
        value = cast(Checkpoint, self._checkpoint).carried_out(stage, do, inputs, nodes) if kept else do()
        if act.replayed:
            self.released.setdefault(name, []).append(value)
        if isinstance(value, Minibatches):
            self.trained_how[name] = value.as_dict()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
        return self._keep(value, f"the result of '{name}'") if act.stays_inside else value

    def _exact(self, stage: Stage, view: View, inputs: tuple[Any, ...], nodes: Tensor | None) -> _Act:
        """Without noise: all that is read is public, or nothing is protected, which is charged as such."""
        if stage.is_free(self.unit):
            self._refuse_private(stage, inputs)
        else:
            self._charge(stage, nodes)
        return _Act(partial(stage.mechanism.query, view))

    def _noisy(self, stage: Stage, view: View, inputs: tuple[Any, ...], nodes: Tensor | None, inside: bool) -> _Act:
        """With noise, after the charge; a result that is part of a node's own record stays `inside`."""
        mechanism, scale = stage.mechanism, _noise_of(stage)
        number = self._charge(stage, nodes)
        noise = self._noise.stream(f"{mechanism.name}/{stage.name}/{number}")
        if self._checkpoint is not None and mechanism.trains and not any(map(draws_masks, inputs)):
            view.keeper = self._checkpoint.steps(stage.name)  # masks are no part of its state: it would begin again
        return _Act(partial(mechanism.release, view, scale, noise), inside, not (inside or mechanism.trains))

    def _charge(self, stage: Stage, nodes: Tensor | None) -> int:
        """Charge one use of the stage, or note that an earlier charge covers it; the number of this use."""
        with self._charging:
            number = self._count[stage.name]
            before = self._trained.get(stage.name)
            covered = before is not None and nodes is not None and not bool(torch.isin(nodes, before).any())
            if covered and number < stage.parallel:
                self._run.note_parallel(stage, int(cast(Tensor, nodes).numel()))
            else:
                self._run.charge(stage, 1)
            if nodes is not None:
                self._trained[stage.name] = nodes if before is None else torch.cat([before, nodes])
            self._count[stage.name] += 1
        if not stage.mechanism.trains:
            self._progress(stage.name, number + 1, stage.count)
        return number

    def _as_wanted(self, inputs: tuple[Any, ...], exact: bool) -> tuple[Any, ...]:
        """The inputs, with trainings as the user wants them."""
        if self._options is None:
            return inputs
        return tuple(self._options.apply(one, exact=exact) if isinstance(one, Training) else one for one in inputs)

    def _view(self, stage: Stage, cap: int | None, inputs: tuple[Any, ...]) -> View:
        report: Callable[[int, int], object] = self.progress_of(stage.name)
        if self._options is not None and self._options.callbacks:
            report = self._options.watched(stage.name, inputs, self.progress_of(stage.name))
        given = (self._graph, stage.mechanism.reads, cap, self._noise, stage.name, report, self._cut)
        return View(*given, executor=self._executor)

    def _checked_nodes(self, nodes: Tensor) -> Tensor:
        mask = torch.zeros(self.metadata.num_nodes, dtype=torch.bool)
        among = bool(mask.index_fill_(0, self._graph.train, True)[nodes].all())
        if not among or int(mask.zero_().index_fill_(0, nodes, True).sum()) != nodes.numel():
            raise InputError("training: expected distinct training nodes; got others")
        return nodes

    def _refuse_private(self, stage: Stage, inputs: tuple[Any, ...]) -> None:
        for one in inputs:
            if isinstance(one, PrivateRows):
                raise PrivateAccessError(
                    f"'{stage.name}' runs without noise under the unit '{self.unit}' and may not read {one.what}, "
                    "which are private"
                )

    def charge_what_was_open(self) -> None:
        """Charge what a run without protection planned and did not release: raw data was there to be read anyway."""
        for stage in self.plan.stages:
            raw = self.plan.runs_exactly(stage.name) and not stage.is_free(self.unit)
            if raw and not self._count[stage.name]:
                self._charge(stage, None)

    def choose(self, branch: Plan, reason: Note) -> None:
        """Enter in the ledger which branch of the plan follows; from then on its stages are those of the vault."""
        self._run.choose(branch.method, reason)
        self.plan = branch

    def end(self, scores: Tensor | PrivateRows | None) -> Ended:
        """What leaves when the run is over, after the charge of what was open: the scores, and what was released."""
        self.charge_what_was_open()
        stages = {stage.name for stage in self.plan.stages}
        released = {name: values for name, values in self.released.items() if name in stages}
        private = isinstance(scores, PrivateRows)
        nodes = {split: self.nodes(split) for split in ("train", "val", "test")}
        return Ended(self.plan, self.hand_over(scores), private, released, nodes, self.seconds, self.trained_how)

    # Work that stays inside

    def apply(self, function: Callable[[Any], Any], rows: Held) -> Held:
        """A row-wise module (or a bound method of one) on every row; private rows give a new handle."""
        owner = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
        if not isinstance(rows, PrivateRows):
            return cast(Rows, apply_to(rows, function, owner))
        if not isinstance(owner, nn.Module):
            raise UnprovenError("private rows: expected a module, or a method of one; got an arbitrary function")
        opened = self._open(rows)
        require_rowwise(owner)
        return self._keep(apply_to(opened, function, owner), f"rows computed from {rows.what}")

    def stack(self, parts: Sequence[Held], *more: Held) -> Held:
        """The parts of one width side by side, `[nodes, parts, columns]`; private as soon as one part is."""
        _require_list("stack", parts, more)
        widths = [int(part.shape[-1]) for part in parts]
        if len(set(widths)) > 1:
            raise InputError(f"stack: expected parts of one width; got {widths}. Parts of several widths: vault.join")
        return self._combined(parts, torch.stack([dense_rows(self._open(part)) for part in parts], dim=1))

    def join(self, parts: Sequence[Held], *more: Held) -> Held:
        """The parts side by side, each in its own form and width; private as soon as one part is.

        A module gets them as `JoinedRows` and reads `rows.parts`; a linear layer takes no joined rows.
        """
        _require_list("join", parts, more)
        return self._combined(parts, cast(Rows, JoinedRows([self._open(part) for part in parts])))

    def _combined(self, parts: Sequence[Held], together: Rows) -> Held:
        private = [part for part in parts if isinstance(part, PrivateRows)]
        return self._keep(together, private[0].what) if private else together

    def scores(self, module: nn.Module, rows: Held) -> Tensor | PrivateRows:
        """Class scores, one row per node: a tensor where they follow from what is public, a handle otherwise.

        Scores of private rows are each meant for that node's owner: they depend on its own record, so what others see
        of the run stays protected, the node's own row does not (`Unit.unprotected` says so).
        """
        if isinstance(rows, PrivateRows):
            require_rowwise(module)
        expected = (self.metadata.num_nodes, self.metadata.num_classes)
        scores: Tensor = apply_to(self._open(rows), module.eval(), module)
        if scores.shape != expected:
            raise UnprovenError(f"predictions: expected class scores; got shape {tuple(scores.shape)}")
        return self._keep(scores, "class scores", are_scores=True) if isinstance(rows, PrivateRows) else scores

    def raw_scores(self, network: Callable[[Rows, Edges], Tensor]) -> PrivateRows | Tensor:
        """Class scores from raw features and edges. They are NOT protected, and the plan must say so."""
        private = self.protects
        if private and not any(note.code is Code.RAW_PREDICTIONS for note in self.plan.unprotected):
            raise UnprovenError("predictions from raw neighborhoods: expected a plan that declares them unprotected")
        with torch.no_grad():
            scores = network(self._graph.features, self._graph.edges)
        what = "class scores from raw neighborhoods"
        return self._keep(scores, what, raw=True, are_scores=True) if private else scores

    def hand_over(self, scores: Tensor | PrivateRows | None) -> Tensor | None:
        """The scores for the holder of the data, who evaluates them; not protected where they are private.

        Nothing but class scores can be opened so, and these only where the unit or the plan says that a prediction
        about a node is not protected from whoever receives it.
        """
        if not isinstance(scores, PrivateRows):
            return scores
        self._require_own(scores)
        said = {note.code for note in (*self.unit.unprotected, *self.plan.unprotected)}
        if scores not in self._scores or not said & _TOLD_TO_THE_OWNER:
            raise PrivateAccessError(
                f"expected class scores, under a unit or plan that declares them unprotected; got {scores.what}, "
                "which stay in the vault. The only way out is a charged mechanism (release)"
            )
        return cast(Tensor, self._rows[scores])

    def report(self, stage: str, done: int, total: int) -> None:
        """Tell whoever watches how far a stage is; carries no private value."""
        self._progress(stage, done, total)

    def progress_of(self, stage: str) -> Callable[[int, int], None]:
        """`report` for one stage."""
        return partial(self._progress, stage)

    # Inside

    def _require_public(self, part: str) -> None:
        if not self.is_public(part):
            raise PrivateAccessError(
                f"{part} are private under the unit '{self.unit}'; the only way out is a charged mechanism (release)"
            )

    def _keep(self, rows: Rows, what: str, *, raw: bool = False, are_scores: bool = False) -> PrivateRows:
        handle = PrivateRows(tuple(rows.shape), what, raw=raw)
        self._rows[handle] = rows
        if are_scores:
            self._scores.add(handle)
        return handle

    def _open(self, rows: Any) -> Any:
        """What a handle stands for; anything else is given back as it is."""
        if not isinstance(rows, PrivateRows):
            return rows
        self._require_own(rows)
        if rows.raw:
            raise UnprovenError(f"{rows.what} can only be handed over: nothing is proved of what is computed from them")
        return self._rows[rows]

    def _require_own(self, rows: PrivateRows) -> None:
        if rows not in self._rows:
            raise InputError("these private rows belong to another vault")


def _require_list(name: str, parts: Any, more: Any) -> None:
    if more or not isinstance(parts, list | tuple) or not parts:
        raise InputError(f"{name}: expected one list of rows, vault.{name}([a, b]); got something else")


def _noise_of(stage: Stage) -> float:
    """The scale of a stage's noise; one that would be carried out without noise is refused."""
    if stage.scale is None or not 0.0 < stage.scale < math.inf:
        raise UnprovenError(
            f"'{stage.name}': expected a positive, finite scale of noise, as a plan within a budget has it; got "
            f"{stage.scale!r}. Make the plan with Plan.make"
        )
    return stage.scale
