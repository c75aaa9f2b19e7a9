"""PATE: teachers on disjoint parts of the private records label public ones, and a student learns from those.

Papernot et al., ICLR 2017 and 2018. What leaves the vault are the teachers' noisy votes on public records; whatever the
student does with them costs nothing more. Public records are declared by `data.public_mask`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.rows import dense_rows
from hushgraph.mechanisms.confident_votes import ConfidentVotes
from hushgraph.mechanisms.label_votes import Labels, LabelVotes
from hushgraph.mechanisms.laplace_votes import LaplaceVotes
from hushgraph.mechanisms.votes import Answers, Ballot, Votes
from hushgraph.methods.base import Method, Output
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import NodeWithEdges, Record, Unit
from hushgraph.settings import setting
from hushgraph.training.learners import PICTURE_LEARNERS, Part, learner_from, learner_names
from hushgraph.training.lesson import Lesson, Student
from hushgraph.training.students import GRAPH_STUDENTS, STUDENTS
from hushgraph.training.teachers import central_rows
from hushgraph.vault import Vault

_NOISE_DOMINATES = 0.4
"""Of the number of teachers: with more noise in a count, the largest noisy count is often of a wrong class."""


@dataclass(frozen=True)
class PATE(Method):
    """Settings of the teachers, of what they are asked, and of the student.

    `threshold` None: every query is answered; else the first `queries` of `checks` whose noisy largest count reaches
    it. `use_counts` None: by rule, where the noise is large against the number of teachers.
    """

    teachers: int = setting(250, least=1, most=100_000, help="disjoint parts of the training records")
    learner: str = setting("hog-ridge", help="a teacher: ridge, hog-ridge, cnn, gnn, neighbors, or one of yours")
    queries: int = setting(2200, least=1, help="public records that are labeled, at most")
    ask: str = setting("random", among=("random", "centers"), help="which: a random choice, or centers of k-means")
    noise: str = setting("gaussian", among=("gaussian", "laplace"))
    threshold: float | None = setting(None, help="least noisy largest count that is answered")
    checks: int | None = setting(None, least=1, help="queries that are checked against it; by rule all public records")
    check_noise: float = setting(2.0, above=0, help="noise of a check over that of a count")
    data_dependent: bool = setting(False, help="release labels alone, and a smaller epsilon for the votes at hand")
    student: str = setting("kernel", among=STUDENTS)
    use_counts: bool | None = setting(None, help="learn from noisy counts instead of the largest one's class")
    look: str = setting("hog", among=("hog", "pixels"), help="what students with a GAN see of a picture")
    width: int = setting(16, least=1, most=1 << 16, help="channels of convolutions, or hidden units, of the student")
    epochs: int = setting(30, least=1, help="passes of the student over its records")
    batch_size: int = setting(100, least=1)
    lr: float = setting(0.002, above=0, help="learning rate of the student")
    average_last: float = setting(0.5, least=0, most=1, help="share of epochs whose weights a GAN student averages")
    noise_rate: float = setting(0.2, least=0, below=1, help="beta: share of wrong labels that co-teaching expects")
    warm_up: int = setting(3, least=0, help="epochs on all labels before PATE+ learns from disagreements alone")
    removed: float = setting(0.318, least=0, below=1, help="tau: share of labels that PATE++ takes away")
    decay: float = setting(0.9, above=0, most=1, help="alpha: weight of earlier epochs in the counts of PATE++")
    image_height: int | None = setting(None, least=8, most=1 << 16, help="of pictures that are not square")
    workers: int = setting(1, least=1, help="processes that train teachers")
    folder: str | None = setting(
        None, help="keeps votes WITHOUT noise until all teachers are done, to go on after a stop"
    )

    name = "pate"
    summary = "teachers on disjoint parts of the records label public ones with noise; a student learns from those"
    one_class = "a teacher has one vote a query"
    paper = "Papernot et al., ICLR 2018; PATE+ and PATE++ of Zhang (Emory University)"

    def problems(self) -> list[str]:
        """Also: what goes together."""
        found = super().problems()
        if self.learner != type(self).learner and self.learner not in learner_names():
            found.append(f"learner: got '{self.learner}'; expected one of {', '.join(learner_names())}")
        elif (self.student in GRAPH_STUDENTS) != self.reads_edges:
            graph = " or ".join(f"'{name}'" for name in GRAPH_STUDENTS)
            found.append(f"student: expected {graph} with a learner that reads edges, and only there")
        if self.threshold is not None and self.noise == "laplace":
            found.append("threshold: expected none with Laplace noise, for which no filter is proved here")
        if self.data_dependent and (self.threshold is not None or self.noise == "laplace" or self.use_counts):
            found.append(
                "data_dependent: expected Gaussian noise, no threshold and no use_counts; it is about labels alone"
            )
        return found

    @property
    def reads_edges(self) -> bool:
        """Whether teachers look at a graph."""
        return "edges" in learner_from({"name": self.learner}).reads

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The votes on all queries, in one release."""
        return [Stage("votes", self._ballot(metadata))]

    def _ballot(self, metadata: Metadata) -> Ballot:
        pictures = {} if self.learner not in PICTURE_LEARNERS else {"image_height": self.image_height}
        learner = learner_from({"name": self.learner, **pictures})
        asked = min(self.queries, metadata.num_public or self.queries)
        if self.noise == "laplace":
            return LaplaceVotes(self.teachers, asked, learner)
        if self.data_dependent:
            return LabelVotes(self.teachers, asked, learner)
        if self.threshold is None:
            return Votes(self.teachers, asked, learner)
        checks = self.checks or metadata.num_public or self.queries
        return ConfidentVotes(
            self.teachers,
            min(asked, checks),
            learner,
            checks=checks,
            threshold=self.threshold,
            check_noise=self.check_noise,
        )

    def require(self, metadata: Metadata) -> None:
        """Public records, and pictures where teachers or students read them."""
        problems = []
        if not metadata.num_public:
            problems.append(
                "pate: expected public records, which the teachers label and the student learns from; got none. Mark "
                "them in Python: data.public_mask, True for nodes that are public knowledge and in no split"
            )
        if self.learner in PICTURE_LEARNERS and not _is_picture(metadata.features, self.image_height):
            problems.append(
                f"pate: expected pictures, which learner={self.learner} reads; got {metadata.features} features. On a "
                "graph, set learner=gnn student=gnn (or neighbors for both); on a table, learner=ridge; for pictures "
                "that are not square, image_height"
            )
        InputError.collect(problems)

    def default_unit(self, graph: CheckedGraph) -> Unit:
        """A node with all its edges where edges are read, else a record."""
        return NodeWithEdges() if self.reads_edges else Record()

    def unprotected_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """A student on graphs reads the raw neighborhood of whatever it predicts."""
        return (note(Code.RAW_PREDICTIONS),) if self.student in GRAPH_STUDENTS else ()

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """The student's."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            most = _ballot_of(plan).queries
            return self.student_with_settings().network(plan.metadata.features, plan.metadata.classes, most)

    def student_with_settings(self) -> Student:
        """The student, with the settings that are its own."""
        settings = {name: getattr(self, name) for name in STUDENTS[self.student].settings()}
        return STUDENTS[self.student](**settings)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Ask the teachers, teach the student."""
        student = self.student_with_settings()
        found: dict[str, float] = {}
        reason: Note | None = None
        if train:
            public = self._public(vault)
            asked = self._asked(vault, public)
            folder = None if self.folder is None else Path(self.folder)
            answers: Answers = vault.release("votes", _chosen(public, asked), workers=self.workers, folder=folder)
            lesson = self.lesson(vault.plan, public, asked[answers.queries], answers.counts)
            found = student.learn(network, lesson, vault.generator("student"), vault.progress_of("student"))
            reason = self.at_hand(vault.plan, answers)
        if self.student in GRAPH_STUDENTS:
            return Output(scores=vault.raw_scores(network), settings=found, reason=reason)
        return Output(scores=vault.scores(network, vault.features), settings=found, reason=reason)

    def _public(self, vault: Vault) -> Part:
        rows = dense_rows(vault.public_features)
        return Part(rows, vault.public_node_edges.edge_index() if self.reads_edges else None)

    def _asked(self, vault: Vault, public: Part) -> Tensor:
        """The public records that are put to the teachers, by public randomness."""
        ballot = _ballot_of(vault.plan)
        count = ballot.asked
        if len(public.x) < count:
            raise InputError(f"public records: expected at least {count}, as planned; got {len(public.x)}")
        generator = vault.generator("queries")
        if self.ask == "random":
            return torch.randperm(len(public.x), generator=generator)[:count]
        return central_rows(ballot.learner.rows(public.x), count, generator)

    def learns_counts(self, plan: Plan) -> bool:
        """Whether the student learns from counts: as asked, else where the planned noise dominates."""
        if self.use_counts is not None or self.data_dependent:
            return bool(self.use_counts)
        return (plan["votes"].scale or 0.0) > _NOISE_DOMINATES * self.teachers

    @staticmethod
    def at_hand(plan: Plan, answers: Answers) -> Note | None:
        """What labels and the sum of leads cost for the votes at hand, from above: never more than what is charged."""
        made, scale = _ballot_of(plan), plan["votes"].scale
        if not (isinstance(made, LabelVotes) and isinstance(answers, Labels) and scale):
            return None
        delta = plan.budget.definite_delta
        found = min(made.epsilon_at_hand(answers, scale, delta), plan.epsilon)
        up = [math.ceil(100.0 * epsilon) / 100.0 for epsilon in (found, plan.epsilon)]
        return note(Code.AT_HAND, epsilon=up[0], delta=delta, charged=up[1])

    def lesson(self, plan: Plan, public: Part, labeled: Tensor, counts: Tensor) -> Lesson:
        """What the student is given; the law of the noise follows from the plan."""
        spread = math.sqrt(2.0) if self.noise == "laplace" else 1.0
        noise = spread * (plan["votes"].scale or 0.0)
        return Lesson(public, labeled, counts, self.teachers, self.learns_counts(plan), noise)


def _is_picture(columns: int, height: int | None) -> bool:
    tall = math.isqrt(columns) if height is None else height
    return tall > 0 and columns % tall == 0


def _ballot_of(plan: Plan) -> Ballot:
    return cast(Ballot, plan["votes"].mechanism)


def _chosen(public: Part, asked: Tensor) -> Part:
    """The queries; in a graph the other nodes stay beside them, as their neighbors."""
    if public.edge_index is not None:
        return replace(public, nodes=asked)
    return Part(public.x[asked])
