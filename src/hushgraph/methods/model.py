"""A trained model: predictions, and inference on another graph.

There is one class for all methods. A model keeps its method, its plan, its network and what was released; predictions
about the training graph run the method again on a replay of the releases, which costs nothing more.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.files.reading import damage_named
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.rows import Rows
from hushgraph.graph.targets import NumberRange
from hushgraph.ledger.certificate import Certificate
from hushgraph.ledger.checking import Status
from hushgraph.ledger.identity import digest_of
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.project import default_ledger
from hushgraph.methods.evaluation import class_metrics, score
from hushgraph.methods.folder import read_folder, write_folder
from hushgraph.privacy.budget import Budget, as_budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Note
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Unit
from hushgraph.text import rounded_up
from hushgraph.vault import Replay
from hushgraph.vault.checkpoint import Checkpoint

if TYPE_CHECKING:
    from hushgraph.methods.base import Method

NOT_VERIFIED = "NOT VERIFIED: no ledger confirms these files. What follows is what they state themselves."
_ANOTHER = "Another graph is a new release: use predict_on with a budget (--on GRAPH --epsilon E)"


@dataclass
class Model:
    """What `fit` returns. `released` holds the noisy values that predictions read, as far as they are protected."""

    method: Method
    plan: Plan
    network: nn.Module
    released: dict[str, list[Any]]
    certificate: Certificate
    kept: dict[str, Tensor] = field(default_factory=dict)
    scores: Tensor | None = None
    scores_are_private: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    reason: Note | None = None
    class_names: tuple[str, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ledger: Ledger | None = None
    """The ledger that was charged, which lists the files of the model when they are saved."""
    nodes: dict[str, Tensor] = field(default_factory=dict)
    """The public split: node numbers of `train`, `val` and `test`."""
    run_plan: Plan | None = None
    """The plan of the whole run, where `plan` is the branch that it chose."""
    files: Status | None = None
    """Of a model that was read from a folder: how its files came out against its manifest and the ledger."""
    folder: Path | None = None
    """Where it was saved last, or read from."""
    ended_with: str | None = None
    """The hash of weights and released values when the run was closed; None where no ledger on a disk holds it."""
    altered: str | None = None
    """What was done to them since, if anything was."""
    features_digest: str | None = None
    """Recognizes the features that it was trained on; saved only where they are public."""
    checkpoint: Checkpoint | None = None
    """Of a run that could have been resumed: what is removed when the model is saved."""
    trained: Plan | None = None
    """The plan that the network was trained under, where it is another one (inference on another graph)."""

    @property
    def unit(self) -> Unit:
        """What is protected."""
        return self.plan.unit

    @property
    def metadata(self) -> Metadata:
        """The public sizes of the training graph."""
        return self.plan.metadata

    @property
    def epsilon(self) -> float:
        """What is promised for one unit, at the certificate's delta."""
        return self.certificate.epsilon

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InputError(
            "a model: expected model.save(folder) and hushgraph.load(folder); got a copy or a pickle, which would lose "
            "its ledger. Methods such as GAP() can be copied"
        )

    def __repr__(self) -> str:
        return f"Model({self.method.name}, unit={self.unit.name}, epsilon={self.certificate.epsilon:.4g})"

    def __str__(self) -> str:
        return self.explain()

    @property
    def _doubt(self) -> str:
        """What has to be said before an epsilon, if anything."""
        if not self.certificate.is_private:
            return "NOT PRIVATE: "
        if self.altered is not None:
            return "ALTERED AFTER THE RUN: "
        return "NOT VERIFIED: " if self.files is Status.NOT_VERIFIED else ""

    def _repr_html_(self) -> str:
        """A short table for notebooks."""
        promise = self.certificate
        rows = {
            "method": repr(self.method),
            "unit": promise.unit.name,
            "epsilon": f"{self._doubt}{rounded_up(promise.epsilon)} at delta {promise.delta:g}",
            "dataset": f"{self.metadata.name}, {self.metadata.num_nodes:,} nodes",
            "run": promise.run,
        }
        cells = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{''.join(cells)}</table>"

    def explain(self) -> str:
        """The certificate in words."""
        words: str = registry.load("views", "words")(self.certificate, self.reason)
        if self.altered is not None:
            return f"ALTERED AFTER THE RUN: not verified ({self.altered})\n\n{words}"
        return f"{NOT_VERIFIED}\n\n{words}" if self.files is Status.NOT_VERIFIED else words

    # Predictions

    def predict_proba(self, graph: Any | None = None) -> Tensor:
        """Class probabilities for the nodes of the training graph; costs nothing more.

        Where a node may have several classes, each is a probability by itself.
        A model that was read from a folder needs `graph` where its predictions read the nodes' own private features.
        """
        scores = self._scores(graph)
        return scores.sigmoid() if self.is_multilabel else scores.softmax(dim=1)

    def predict(self, graph: Any | None = None) -> Tensor:
        """The likeliest class of every node; 0 and 1 for each class where a node may have several."""
        found = self.predict_proba(graph)
        return (found > 0.5).long() if self.is_multilabel else found.argmax(dim=1)

    def predict_values(self, graph: Any | None = None) -> Tensor:
        """A number for every node, of a model that was trained on numbers (`data.target_range`); costs nothing more."""
        return self._numbers("predict_values").expected(self.predict_proba(graph))

    @property
    def numbers(self) -> NumberRange | None:
        """The range that its classes are parts of, where it predicts numbers."""
        sizes = (self.trained or self.plan).metadata
        if sizes.target_low is None or sizes.target_high is None:
            return None
        return NumberRange(sizes.target_low, sizes.target_high, sizes.classes)

    def _numbers(self, what: str) -> NumberRange:
        if self.numbers is None:
            raise InputError(
                f"{what}: expected a model of numbers; got one of classes. Train on data.y with data.target_range = "
                "(low, high), or use predict"
            )
        return self.numbers

    @property
    def is_multilabel(self) -> bool:
        """Whether the model was trained on nodes with any number of classes."""
        return (self.trained or self.plan).metadata.multilabel

    @torch.no_grad()
    def _scores(self, graph: Any | None) -> Tensor:
        if graph is None and self.scores is not None:
            return self.scores
        checked = None if graph is None else self._training_graph(graph)
        vault = Replay(self.plan, self.released, checked, self.nodes, self._recognize)
        read = (
            contextlib.nullcontext()
            if self.folder is None
            else damage_named(self.folder, do="Restore the folder from a copy")
        )
        with read:  # released values of a folder that was changed may have any form
            output = self.method.run(vault, self.network.eval(), train=False)
        scores = vault.hand_over(output.scores)
        if scores is None:
            raise InputError(f"predict: {self.method.name} does not predict classes")
        return scores

    def _recognize(self, features: Rows) -> None:
        """Refuse the features of another graph, as far as they can be told apart."""
        if self.features_digest is not None:
            same: bool | None = self.features_digest == digest_of(features)
        else:
            book = self.ledger or default_ledger(near=self.folder)
            same = book.recognizes_records(self.certificate.run, features) if book.exists else None
        if same is False:
            raise InputError(f"predict: expected the features of the training graph; got others. {_ANOTHER}")

    def _training_graph(self, graph: Any) -> CheckedGraph:
        """The graph given to `predict`, if it can be the one the model was trained on."""
        checked = self._other_graph(graph)
        if checked.metadata.num_nodes != self.metadata.num_nodes:
            raise InputError(
                f"predict: expected the training graph ({self.metadata.num_nodes} nodes); got one with "
                f"{checked.metadata.num_nodes}. {_ANOTHER}"
            )
        return checked

    def _other_graph(self, graph: Any, memory: str | int | None = None) -> CheckedGraph:
        expected = self.metadata.num_features
        if not isinstance(graph, CheckedGraph) and not hasattr(graph, "edge_index"):
            from hushgraph.importing.graph import as_graph  # loads pyarrow, which tensors do not need

            graph = as_graph(graph, memory)
        if isinstance(graph, CheckedGraph):
            found = graph.metadata.num_features
        else:
            *_, found = getattr(getattr(graph, "x", None), "shape", (expected,))
        if expected != found:
            raise InputError(
                f"predict: expected {expected} features, as in training; got {found}. Give a graph with the "
                "same features"
            )
        return graph if isinstance(graph, CheckedGraph) else check_graph(graph, known_classes=self.class_names)

    def predict_on(
        self,
        graph: Any,
        budget: Budget | float | tuple[float, float] | None = None,
        *,
        ledger: Ledger | None = None,
        seed: int | None = None,
        paper_mode: bool = False,
        memory: str | int | None = None,
    ) -> Model:
        """Predictions about another graph: the releases are made again on it, and charged to its own ledger.

        `graph` and `memory` are as in `fit`. Nothing is trained. Returns a model of that graph: its `predict`, its
        `released` values and its certificate.
        """
        from hushgraph.methods.running import finished, open_vault

        if budget is None:
            raise InputError(
                "predict_on: expected a budget, such as 4.0 or (4.0, 1e-6), because another graph is a new release; "
                "got none. For the graph that it was trained on, predict costs nothing"
            )
        checked = self._other_graph(graph, memory)
        if checked.metadata.edge_types != self.metadata.edge_types:
            types, found = (", ".join(one) or "none" for one in (self.metadata.edge_types, checked.metadata.edge_types))
            raise InputError(f"predict: expected the types of edges as in training ({types}); got {found}")
        unit = self.plan.stated_unit
        unit.check(checked, paper_mode=paper_mode)
        plan = self.method.inference_plan(checked.metadata, unit, as_budget(budget), paper_mode=paper_mode)
        vault, run = open_vault(checked, plan, ledger, seed, None)
        output = self.method.run(vault, self.network.eval(), train=False)
        ended = vault.end(output.scores)
        model = finished(self.method, self.network, output, ended, run, checked, sum(ended.seconds.values()))
        model.trained = self.trained or self.plan
        return model

    def link_scores(self, pairs: Tensor) -> Tensor:
        """One score per pair of nodes (`[2, P]`), of a model that predicts links; larger means likelier linked."""
        if "rows" not in self.kept:
            raise InputError(f"link_scores: {self.method.name} does not predict links; use predict")
        rows, bias = self.kept["rows"], self.kept["bias"]
        return (rows[pairs[0]] * rows[pairs[1]]).sum(dim=1) + bias[pairs].sum(dim=0)

    def class_metrics(self, graph: CheckedGraph) -> dict[str, Any]:
        """Accuracies on the data: an evaluation, outside the guarantee."""
        return {} if self.scores is None else class_metrics(self.scores, graph, self.nodes, self.numbers)

    def score(self, graph: Any, split: str = "test") -> float:
        """The share of right predictions among the labeled nodes of a split, or the R^2 of numbers.

        An evaluation, outside the guarantee.
        """
        if split not in ("train", "val", "test"):
            raise InputError(
                f"score: expected a split, 'train', 'val' or 'test'; got {type(split).__name__} {str(split)[:40]!r}. "
                "Labels are those of the graph: score(graph)"
                if not isinstance(split, str)
                else f"score: expected a split, 'train', 'val' or 'test'; got '{split}'"
            )
        checked = self._training_graph(graph)
        numbers = self.numbers if checked.targets is not None else None
        predicted = self.predict(checked) if numbers is None else self.predict_values(checked)
        return score(predicted, checked, split, are_numbers=numbers is not None)

    @torch.no_grad()
    def predict_nodes(self, x: Any) -> Tensor:
        """The likeliest class of nodes that came later, from their features: costs nothing.

        Only for methods that read features alone: what others sum over neighbors would have to be released again.
        """
        if any("edges" in stage.mechanism.reads for stage in self.plan.stages):
            raise InputError(
                f"predict_nodes: expected a method that reads features alone; got {self.method.name}, which sums over "
                "neighbors. For nodes that came later use predict_on with the new graph and a budget of its own"
            )
        found = self.method.classifier(self.network.eval(), self.plan)
        if found is None:
            raise InputError(f"predict_nodes: {self.method.name} does not classify rows of features; use predict_on")
        rows = _feature_rows(x)
        if rows.dim() != 2 or rows.shape[1] != found[1].shape[1]:
            raise InputError(f"predict_nodes: expected rows of {found[1].shape[1]} features; got {list(rows.shape)}")
        if not bool(torch.isfinite(rows).all()):
            raise InputError("predict_nodes: expected finite numbers; got NaN or infinity. Fill what is missing")
        scores: Tensor = found[0](rows)
        return (scores > 0).long() if self.is_multilabel else scores.argmax(dim=1)

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the classifier alone for other programs: torch.export (.pt2) or ONNX (.onnx); see `methods.export`."""
        from hushgraph.methods.export import export_classifier

        return export_classifier(self, Path(path))

    def get_epsilon(self, delta: float | None = None) -> float:
        """Epsilon of this run at any delta, or at its own; what was planned and not used counts as spent."""
        at = self.certificate.delta if delta is None else delta
        if isinstance(at, bool) or not isinstance(at, int | float):
            raise InputError(f"delta: expected a number above 0 and below 1, such as 1e-6; got {at!r}")
        return (self.run_plan or self.plan).loss.epsilon(at)

    # Looking into it

    def audit(self, **options: Any) -> Any:
        """Try to contradict this run's epsilon on data made for the audit; options are those of `audit_run`."""
        return registry.load("views", "audit")(self, **options)

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write one HTML file about this model that opens offline; options are those of `write_report`.

        Of a model that was saved, the folder is shown, and checked against the ledger that it was charged to.
        """
        own = None if self.ledger is None else self.ledger.folder
        written: Path = registry.load("views", "report")(self, path, **{"ledger": own, **options})
        return written

    # The folder

    def save(self, folder: str | os.PathLike[str], *, altered: str | None = None) -> Path:
        """Write the model's folder (created if needed) and return it.

        Weights and released values must be those that the run ended with. Where they were changed on purpose (say,
        tuned on public data), `altered` says how; the folder is then labeled so, and never verified.
        """
        altered = altered or self.altered
        target = write_folder(self, Path(folder), altered)
        self.folder, self.altered = target, altered
        if self.checkpoint is not None:
            self.checkpoint.remove()
        return target

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **modules: nn.Module) -> Model:
        """Read a model's folder; nothing in it is executed. One that contradicts its manifest or ledger is refused.

        `modules` are those of the user that it was trained with (`encoder=MyModule()`): a folder holds their weights
        and, unless they are plain sequences of layers, only the name of their class.
        """
        return cls(**read_folder(Path(folder), modules))


def load(folder: str | os.PathLike[str], **modules: nn.Module) -> Model:
    """Read the folder of a trained model; `modules` are the user's own, where they are needed (`Model.load`)."""
    return Model.load(folder, **modules)


def _feature_rows(x: Any) -> Tensor:
    """Rows of a tensor, an array, a table, a sparse matrix or lists, as float32."""
    if isinstance(x, Tensor):
        return (x if x.layout is torch.strided else x.to_dense()).to(torch.float32)
    return torch.from_numpy(np.array(x.toarray() if hasattr(x, "toarray") else x, dtype=np.float32))
