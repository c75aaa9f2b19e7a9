"""Ideas for Chorus with codes, each in pairs with the method as it is: validation accuracy, seeds, three graphs.

    python benchmarks/code_trials.py [--seeds 5] [--only NAME ...] [--graphs NAME ...] [--json]  (needs HUSHGRAPH_DATA)

Noise is seeded and the same in both runs of a pair. An idea is worth keeping if it wins over all graphs and seeds
together. Test nodes are not looked at. Ideas at edge level:

- self-training: nodes to predict that are nearly certain after all rounds join the training of the model of features;
- smoothing: what was heard about the ten nodes with the most similar features counts for a half beside one's own;
- echo: a neighbor's guess was moved by one's own last guess; the mean of that is taken out of each number;
- finer codes: entries in quarters from -1 to 1 instead of signs;
- later louder, earlier louder: rounds share the budget unequally, each with 4/3 of the next one's, or the reverse.

At node level, where features are private: the parts of the budget (first sum, all sums, number of rounds), and what the
learners say of each class taken as it is, without what all classes say together.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import hushgraph as hg
from hushgraph.datasets import load
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.codes import WHOLE
from hushgraph.graph.rows import dense_rows
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.coded_sum import CodedAnswer, CodedSum
from hushgraph.methods import chorus_codes as ours
from hushgraph.methods.base import Output
from hushgraph.nn import codes as choice
from hushgraph.nn import neighborhoods as nb
from hushgraph.nn.chorus import Ensemble
from hushgraph.nn.chorus_codes import ChorusCodesNetwork
from hushgraph.noise.normal import in_steps
from hushgraph.privacy.plan import Stage
from hushgraph.training import neighborhoods as lessons
from hushgraph.training.blend import best_blend, blended
from hushgraph.training.config import Training
from hushgraph.training.ensemble import train_ensemble
from hushgraph.vault import Vault

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="a ledger in memory")
GRAPHS = ("facebook100/JohnsHopkins55", "facebook100/BU10", "facebook_pagepage/facebook_pagepage")
LEVELS = {"edge": (hg.units.UndirectedEdge(), 1e-7, (0.25, 1.0)), "node": (hg.units.Node(), 1e-5, (2.0, 8.0))}
_ROUND = [0]  # which round of a run with unequal rounds comes next
CERTAIN, NEAREST, SMOOTHED, PARTS, GROWTH = 0.95, 10, 0.5, 4, 4 / 3


class Talk(ours.EdgeTalk):
    """The rounds as they are, in steps of which an idea changes one."""

    def round(self, *, guesses: bool = True) -> None:
        """Choose codes, ask, listen, learn."""
        mechanism = self.vault.plan.mechanism(ours.ROUNDS, CodedSum)
        joint = self.joint(self.prior[self.listeners])
        q, size = nb.by_class(joint, self.classes), mechanism.guess_norm
        mixing = self.network.mixing[self.done]
        mixing.copy_(self.mixing(q, size))
        codes = self.codes(joint, mixing)
        answer: CodedAnswer = self.vault.release(ours.ROUNDS, self.everyone(codes), self.everyone(q), self.readers)
        self.answers.append(answer)
        used = codes.float() / getattr(mechanism, "levels", 1)
        numbers = self.without_echo(joint, q, used, answer.numbers[self.listeners])
        self.heard.hear(used @ mixing.t(), numbers, self.guessed_noise(joint, q, used, size))
        self.listened(used)
        self.done += 1
        self.network.remember(self._learned(), self.done)
        self._recall()

    def codes(self, joint: Tensor, mixing: Tensor) -> Tensor:
        """Signs."""
        return choice.best_codes(self.model, self.heard, joint, mixing, self.noise)

    def without_echo(self, joint: Tensor, q: Tensor, used: Tensor, numbers: Tensor) -> Tensor:
        """As they came."""
        return numbers

    def listened(self, used: Tensor) -> None:
        """Nothing more."""

    def final(self) -> tuple[Tensor, Tensor]:
        """What features say and what was heard, before both are blended."""
        said = torch.zeros_like(self.prior)
        said[self.listeners] = nb.class_log_likelihoods(nb.log_likelihoods(self.heard), self.model)
        return self.prior, said

    def blend(self, prior: Tensor, said: Tensor) -> Tensor:
        """Blended as the method does."""
        val = self.vault.labeled("val")
        return blended(prior, said, best_blend(prior[val], said[val], self.vault.labels[val]))

    def scores(self) -> Tensor:
        """Of the nodes to predict; training nodes do not count here."""
        return self.blend(*self.final())


class SelfTraining(Talk):
    """The model of features learns from certain nodes, too."""

    def scores(self) -> Tensor:
        """Blended anew with what the second model of features says."""
        vault = self.vault
        prior, said = self.final()
        first = self.blend(prior, said)
        sure, guess = first.softmax(dim=1).max(dim=1)
        more = self.listeners[sure[self.listeners] > CERTAIN]
        labels = vault.labels.clone()
        labels[more] = guess[more]
        other = ChorusCodesNetwork(
            vault.metadata.features, self.classes, plain=True, rounds=1, hidden=32, members=4, dropout=0.3,
            generator=vault.generator("again"),
        )  # fmt: skip
        rows: Any = vault.join([vault.features])
        assert isinstance(other.features, Ensemble)
        train_ensemble(
            other.features, rows, labels, torch.cat([vault.labeled("train"), more]), None, epochs=60, lr=0.03,
            generator=vault.generator("again, dropout"),
        )  # fmt: skip
        again: Any = vault.apply(other.features, rows)
        return self.blend(again.log_softmax(dim=1).clamp(min=ours._SUREST), said)


class Smoothing(Talk):
    """Nodes with similar features share what they heard."""

    def scores(self) -> Tensor:
        """Each node's own, and a part of the mean of its nearest ones."""
        prior, said = self.final()
        features: Any = self.vault.features
        rows = torch.nn.functional.normalize(dense_rows(features)[self.listeners], dim=1)
        heard = said[self.listeners].log_softmax(dim=1)
        around = []
        for block in rows.split(2_000):
            near = block @ rows.t()
            around.append(heard[near.topk(NEAREST + 1, dim=1).indices[:, 1:]].mean(dim=1))
        said[self.listeners] = heard + SMOOTHED * torch.cat(around)
        return self.blend(prior, said)


class Echo(Talk):
    """A node's own last guess comes back through its neighbors; the mean of it is taken out."""

    last: Tensor | None = None
    turn: Tensor | None = None

    def without_echo(self, joint: Tensor, q: Tensor, used: Tensor, numbers: Tensor) -> Tensor:
        """Numbers without the expected echo of the last round's guesses."""
        size = self.vault.plan.mechanism(ours.ROUNDS, CodedSum).guess_norm
        if self.last is not None and self.turn is not None:
            guessing = self.ratio * nb.expected_sizes(joint, self.model)
            own = self.last - self.last.mean(dim=0)
            numbers = numbers - size**2 * guessing * (used * (own @ self.turn.t())).sum(dim=1)
        self.last = q
        return numbers

    def listened(self, used: Tensor) -> None:
        """How a listener's guess turns with the number it just heard, in its code: the mean over listeners."""
        prior, step = self.prior[self.listeners], 0.1
        now = nb.by_class(self.joint(prior), self.classes)
        moved = nb.Heard(self.heard.parts, self.heard.nodes)
        moved.codes = self.heard.codes
        moved.numbers = [*self.heard.numbers[:-1], self.heard.numbers[-1] + step / self.noise]
        density = nb.log_likelihoods(moved)
        then = nb.by_class(nb.joint_probabilities(density, self.model, prior), self.classes)
        self.turn = ((then - now) / step).t() @ used / max(1, len(used))


@dataclass(frozen=True)
class Uneven(CodedSum):
    """Numbers of one round after the other with these multiples of the noise."""

    multiples: tuple[float, ...] = ()
    levels: int = 1

    def check(self, *inputs: Any) -> None:
        """Codes may have fractions here, as whole numbers of `levels`-ths."""

    def release(self, data: Any, scale: float, noise: Any, *inputs: Any) -> CodedAnswer:
        """As it is, but for the noise of numbers and the fractions of codes."""
        codes, guesses, readers = inputs  # a code of fractions is the mean of `levels` codes of -1, 0 and 1
        signs = [(codes.abs() > level).long() * codes.sign() for level in range(self.levels)]
        parts = [self._whole(data, part, guesses, readers) for part in signs]
        numbers = torch.stack([part[0] for part in parts]).sum(dim=0) // self.levels
        rows, pairs = parts[0][1:]
        multiple = self.multiples[_ROUND[0]] if self.multiples else 1.0
        for part, times, step in (
            (numbers, multiple, 1.0 / WHOLE),
            (rows, self.rows_noise, 2.0**-12),
            (pairs, self.pairs_noise, 0.5),
        ):
            part += noise.integer_gaussian(tuple(part.shape), in_steps(scale * times, step))
        return self._answer(data, codes, readers, (numbers, rows, pairs))


class UnevenTalk(Talk):
    """Knows the noise of each round."""

    @property
    def noise(self) -> float:
        """Of the numbers of this round."""
        _ROUND[0] = min(self.done, 5)
        mechanism = self.vault.plan.mechanism(ours.ROUNDS, Uneven)
        return super().noise * mechanism.multiples[_ROUND[0]]


class Finer(Talk):
    """Codes of quarters: from the best signs, one entry at a time."""

    def codes(self, joint: Tensor, mixing: Tensor) -> Tensor:
        """In whole numbers of quarters."""
        found = []
        for block, told in self.heard.blocks():
            between, within = choice._variances(self.model, told, joint[block])
            now = choice._listed(between, within, mixing, self.noise).to(mixing.dtype)
            between, within = (mixing.t() @ one @ mixing for one in (between, within))
            for _, entry in itertools.product(range(2), range(self.classes)):
                ratios = []
                for level in range(-PARTS, PARTS + 1):
                    code = now.index_fill(1, torch.tensor([entry]), level / PARTS)
                    up, down = (((one @ code.unsqueeze(2)).squeeze(2) * code).sum(dim=1) for one in (between, within))
                    ratios.append(up / (down + self.noise**2))
                now[:, entry] = (torch.stack(ratios).argmax(dim=0) - PARTS).to(now.dtype) / PARTS
            found.append((now * PARTS).round().to(torch.int64))
        return torch.cat(found)


@dataclass(frozen=True)
class Trial(ours.ChorusCodes):
    """Chorus with codes with another way to talk, or another mechanism, at edge level."""

    idea: str = ""

    def stages(self, metadata: Any, unit: Any, budget: Any) -> list[Stage]:
        """As they are, but for the mechanism of the rounds."""
        stages = list(super().stages(metadata, unit, budget))
        if self.idea in MECHANISMS:
            known = stages[1].mechanism
            assert isinstance(known, CodedSum)
            other = Uneven(known.guess_norm, known.rows_noise, known.pairs_noise, **MECHANISMS[self.idea])
            stages[1] = replace(stages[1], mechanism=other)
        return stages

    def _over_edges(self, vault: Vault, network: ChorusCodesNetwork, train: bool) -> Output:
        rows = vault.join([vault.features])
        if train:
            vault.release(ours.FEATURES, network.features, rows, Training(150, 0.03, patience=20))
        said: Any = vault.apply(network.features, rows)
        prior = said.log_softmax(dim=1).clamp(min=ours._SUREST)
        talk = TALKS.get(self.idea, Talk)(vault, network, prior, learning=train)
        for _ in range(self.rounds):
            talk.round(guesses=True)
        return Output(scores=talk.scores())


def _uneven(growth: float, rounds: int = 6) -> dict[str, Any]:
    shares = growth ** np.arange(rounds)
    return {"multiples": tuple(float(one) for one in np.sqrt(shares.mean() / shares))}


MECHANISMS: dict[str, dict[str, Any]] = {
    "later louder": _uneven(GROWTH),
    "earlier louder": _uneven(1.0 / GROWTH),
    "finer codes": {"levels": PARTS},
}
TALKS: dict[str, Any] = {
    "self-training": SelfTraining,
    "smoothing": Smoothing,
    "echo": Echo,
    "later louder": UnevenTalk,
    "earlier louder": UnevenTalk,
    "finer codes": Finer,
}
NODE_IDEAS: dict[str, dict[str, Any]] = {
    "first sum 20%": {"first_share": 0.2},
    "first sum 45%": {"first_share": 0.45},
    "sums 4/5 noise": {"louder_sums": 0.8},
    "sums 5/4 noise": {"louder_sums": 1.25},
    "4 rounds": {"rounds": 4},
    "9 rounds": {"rounds": 9},
    "each class alone": {},
}


def node_method(graph: CheckedGraph, idea: str | None) -> hg.Method:
    """Chorus with codes with other parts of the budget."""
    changed = dict(NODE_IDEAS.get(idea or "", {}))
    times = changed.pop("louder_sums", None)
    if times:
        first, _, lesson = hg.ChorusCodes().plan(graph.metadata, *_asked("node", 8.0)).stages
        noise = float(first.scale or 1.0) / float(lesson.scale or 1.0) * math.sqrt(hg.ChorusCodes().first_share)
        changed["aggregation_noise"] = times * noise
    return hg.ChorusCodes(**changed)


def _asked(level: str, epsilon: float) -> tuple[Any, hg.Budget]:
    unit, delta, _ = LEVELS[level]
    return unit, hg.Budget(epsilon, delta)


def accuracy(method: hg.Method, graph: CheckedGraph, level: str, epsilon: float, seed: int) -> float:
    """On validation nodes."""
    _ROUND[0] = 0
    model = method.fit(graph, *_asked(level, epsilon), ledger=Ledger(), seed=seed)
    return float(model.metrics["accuracy"]["val"])


@contextlib.contextmanager
def unsteadied(idea: str | None) -> Iterator[None]:
    """Without `steadied`, for the one idea that says so."""
    usual = lessons.steadied
    if idea == "each class alone":
        lessons.steadied = lambda mix, *_: mix
    try:
        yield
    finally:
        lessons.steadied = usual


def compared(level: str, graphs: list[str], only: list[str], seeds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Every idea against the method as it is: mean difference and half of its 95% interval, by graph and epsilon."""
    ideas = [idea for idea in (TALKS if level == "edge" else NODE_IDEAS) if not only or idea in only]
    found: dict[str, Any] = {idea: {} for idea in ideas}
    every: dict[str, list[float]] = {idea: [] for idea in ideas}
    for name, epsilon in itertools.product(graphs if ideas else (), LEVELS[level][2]):
        graph = _graph(name)
        place = f"{name.split('/')[1]}, {epsilon:g}"

        def run(idea: str | None, graph: CheckedGraph = graph, epsilon: float = epsilon) -> np.ndarray:
            method = Trial(idea=idea or "") if level == "edge" else node_method(graph, idea)
            with unsteadied(idea):
                return np.array([accuracy(method, graph, level, epsilon, 10 + seed) for seed in range(seeds)])

        base = run(None)
        say(f"{level}, {place}: {base.mean():.2f} as it is")
        for idea in ideas:
            gains = run(idea) - base
            every[idea] += gains.tolist()
            found[idea][place] = _summary(gains)
            say(f"  {idea}: {found[idea][place][0]:+.2f} ± {found[idea][place][1]:.2f}")
    for idea in ideas:
        found[idea]["all"] = _summary(np.array(every[idea]))
    return found


def _summary(gains: np.ndarray) -> tuple[float, float]:
    mean, count = float(gains.mean()), len(gains)
    if count < 2:
        return round(mean, 2), math.nan
    width = stats.t.ppf(0.975, count - 1) * gains.std(ddof=1) / math.sqrt(count)
    return round(mean, 2), round(float(width), 2)


_GRAPHS: dict[str, CheckedGraph] = {}


def _graph(name: str) -> CheckedGraph:
    if name not in _GRAPHS:
        _GRAPHS[name] = check_graph(load(name, split=[0.75, 0.10, 0.15]))
    return _GRAPHS[name]


def main() -> None:
    """A Markdown table for each level, or all numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="names of ideas")
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS), help="as `hushgraph.datasets.load` names them")
    parser.add_argument("--levels", nargs="*", default=list(LEVELS))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    say: Callable[[str], None] = (lambda _: None) if asked.json else (lambda line: print(line, flush=True))
    found = {level: compared(level, asked.graphs, asked.only, asked.seeds, say) for level in asked.levels}
    if asked.json:
        print(json.dumps(found, indent=1))
        return
    for level, ideas in found.items():
        places = list(next(iter(ideas.values()), {}))
        print(f"\n| {level} level | {' | '.join(places)} |\n|{' --- |' * (len(places) + 1)}")
        for idea, values in ideas.items():
            print(f"| {idea} | " + " | ".join("{:+.2f} ± {:.2f}".format(*values[place]) for place in places) + " |")


if __name__ == "__main__":
    main()
