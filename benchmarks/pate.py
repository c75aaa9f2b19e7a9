"""PATE on Fashion-MNIST: students of four kinds, counts against labels, k-means queries. Writes docs/results-pate.md.

    python benchmarks/pate.py kernel            # minutes: teachers once, then students in closed form
    python benchmarks/pate.py gan --epochs 20   # minutes to hours, by --width and --epochs
    python benchmarks/pate.py beta tau figure   # Tables 3.2 and 3.3 and Fig. 3.3 of the thesis, small
    python benchmarks/pate.py page              # write the page from what is there

Needs HUSHGRAPH_DATA. Every cell is a line in benchmarks/results/pate.jsonl; a command that was stopped goes on with the
cells that are missing. Noise is seeded: these are research runs on public data.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import hushgraph as hg
from hushgraph.data.checks import CheckedGraph, check_graph
from hushgraph.mechanisms.view import View
from hushgraph.mechanisms.votes import Ballot, Votes
from hushgraph.methods.pate import PATE
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Plan
from hushgraph.training.learners import Learner, Part, learner_from
from hushgraph.training.lesson import Lesson
from hushgraph.training.semi_gan import PatePlusPlus
from hushgraph.training.students import STUDENTS
from hushgraph.training.teachers import central_rows

HERE = Path(__file__).parent
CELLS = HERE / "results" / "pate.jsonl"
PAGE = HERE.parent / "docs" / "results-pate.md"
DELTA = 1e-5
BUDGETS = (4.05, 5.04)
SEEDS = (0, 1, 2)
PUBLISHED = {
    4.05: {"gan": 74.8, "co-teaching": 77.3, "pate+": 76.5, "pate++": 79.6},
    5.04: {"gan": 82.1, "co-teaching": 82.5, "pate+": 82.7, "pate++": 82.9},
}


class Bench:
    """The data, the teachers' exact votes on all public pictures, and the cells that are done."""

    def __init__(self, scratch: Path, limit: int | None) -> None:
        data = hg.datasets.load("fashion_mnist", public=9000)
        if limit is not None:
            data.train_mask[limit:] = False
        self.graph: CheckedGraph = check_graph(data, needs_edges=False)
        self.public = Part(self.graph.features[self.graph.public])
        self.truth = self.graph.labels[self.graph.public]
        self.scratch, self.limit = scratch, limit
        self.done = {line["key"]: line for line in map(json.loads, _lines(CELLS))}

    def counts(self, teachers: int) -> Tensor:
        """Exact counts on all 9,000 public pictures; kept in the scratch folder, because teachers take a while."""
        path = self.scratch / f"counts-{teachers}-{self.limit}.npy"
        if not path.is_file():
            ballot = Votes(teachers=teachers, queries=len(self.public), learner=_learner())
            view = View(self.graph, ballot.reads, None, NoiseSource.seeded(0), "bench")
            np.save(path, ballot.counts(view, self.public).numpy())
        return torch.from_numpy(np.load(path))

    def lesson(self, method: PATE, epsilon: float, seed: int) -> tuple[Lesson, Plan]:
        """What a student of this method would be given: the plan's noise on the exact counts."""
        plan = method.plan(self.graph.metadata, hg.units.Record(), hg.Budget(epsilon, DELTA))
        ballot, source = cast(Ballot, plan["votes"].mechanism), NoiseSource.seeded(seed)
        generator = source.torch_generator("queries")
        if method.ask == "centers":
            asked = central_rows(_learner().rows(self.public.x), ballot.asked, generator)
        else:
            asked = torch.randperm(len(self.public), generator=generator)[: ballot.asked]
        exact = self.counts(method.teachers)[asked]
        noisy = exact + source.stream("votes").integer_gaussian(tuple(exact.shape), plan["votes"].scale or 0.0)
        return Lesson(self.public, asked, noisy, method.teachers, bool(method.use_counts)), plan

    def cell(self, what: str, method: PATE, epsilon: float, seed: int, **more: Any) -> None:
        """Run one cell unless it is there already."""
        named = {"what": what, "epsilon": epsilon, "seed": seed, "limit": self.limit, **more, **method.as_dict()}
        key = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]
        if key in self.done:
            return
        started = time.process_time()
        lesson, plan = self.lesson(method, epsilon, seed)
        network = method.network(plan, torch.Generator().manual_seed(seed))
        student = method.student_with_settings()
        found = student.learn(network, lesson, torch.Generator().manual_seed(seed), lambda done, total: None)
        wrong = lesson.labels != self.truth[lesson.labeled]
        line = {
            "key": key,
            "what": what,
            "epsilon": epsilon,
            "seed": seed,
            "settings": {**method.as_dict(), **more},
            "std": plan["votes"].scale,
            "spent": plan.epsilon,
            "wrong": 100.0 * float(wrong.float().mean()),
            "accuracy": self.accuracy(network),
            "found": found,
            "seconds": time.process_time() - started,
            "limit": self.limit,
        }
        self.write(line)

    def accuracy(self, network: Any) -> float:
        """On the last 1,000 pictures."""
        test = self.graph.test
        return 100.0 * float(
            (network.eval()(self.graph.features[test]).argmax(1) == self.graph.labels[test]).float().mean()
        )

    def write(self, line: dict[str, Any]) -> None:
        """Add a line, at once."""
        _append(line)
        self.done[line["key"]] = line


def kernel(bench: Bench, options: argparse.Namespace) -> None:
    """Kernel and plain CNN students: labels against counts, few teachers, k-means queries."""
    for seed in SEEDS:
        for epsilon in (*BUDGETS, 1.0):
            for use_counts in (False, True):
                bench.cell("kernel", PATE(use_counts=use_counts), epsilon, seed)
        for use_counts in (False, True):
            bench.cell("few teachers", PATE(teachers=100, use_counts=use_counts), 4.05, seed)
        for epsilon in BUDGETS:
            bench.cell("cnn", PATE(student="cnn", use_counts=False), epsilon, seed)
            for ask in ("centers", "random"):
                bench.cell("300 queries", PATE(ask=ask, queries=300, use_counts=False), epsilon, seed)


def gan(bench: Bench, options: argparse.Namespace) -> None:
    """The four students of the thesis, small and of equal size."""
    for seed in SEEDS[: options.seeds]:
        for epsilon in BUDGETS:
            for student in ("gan", "co-teaching", "pate+", "pate++"):
                bench.cell("gan", _gan(student, options), epsilon, seed)


def beta(bench: Bench, options: argparse.Namespace) -> None:
    """Table 3.2: the expected share of wrong labels."""
    for rate in (0.1, 0.2, 0.3, 0.4):
        for student in ("co-teaching", "pate+"):
            bench.cell("beta", replace(_gan(student, options), noise_rate=rate), 4.05, 0)


def tau(bench: Bench, options: argparse.Namespace) -> None:
    """Table 3.3: the share of labels that is taken away."""
    for removed in (0.091, 0.182, 0.227, 0.273, 0.318, 0.364):
        bench.cell("tau", replace(_gan("pate++", options), removed=removed), 4.05, 0)


def figure(bench: Bench, options: argparse.Namespace) -> None:
    """Fig. 3.3: accuracies, disagreements and wrong labels among them; and how well PATE++ finds wrong labels."""
    method = _gan("pate++", options)
    lesson, plan = bench.lesson(method, 4.05, 0)
    wrong = lesson.labels != bench.truth[lesson.labeled]
    student, curve = PatePlusPlus(**{n: getattr(method, n) for n in STUDENTS["pate++"].settings()}), []

    def watch(epoch: int, said: list[Tensor]) -> None:
        apart = said[0] != said[1]
        right = [100.0 * float((one == lesson.labels).float().mean()) for one in said]
        curve.append([epoch + 1, *right, int(apart.sum()), 100.0 * float(wrong[apart].float().mean())])

    network = method.network(plan, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    dispute = student.train(network, lesson, lesson.labeled, lesson.labels, generator, lambda *a: None, watch)
    removed = torch.ones_like(wrong).index_fill_(0, student.cleansed(dispute), False)
    hits = float((removed & wrong).sum())
    line = {
        "key": f"figure-{options.epochs}-{options.width}",
        "what": "figure",
        "epsilon": 4.05,
        "seed": 0,
        "settings": method.as_dict(),
        "curve": curve,
        "chance": 100.0 * float(wrong.float().mean()),
        "precision": 100.0 * hits / float(removed.sum()),
        "recall": 100.0 * hits / float(wrong.sum()),
        "removed": 100.0 * float(removed.float().mean()),
        "accuracy": bench.accuracy(network),
    }
    bench.write(line)


def graph(bench: Bench | None, options: argparse.Namespace) -> None:
    """PATE on a graph beside DP-MLP and Chorus at the same epsilon, through `fit` as everybody uses it."""
    done = {line["key"] for line in map(json.loads, _lines(CELLS))}
    name = "facebook100/Berkeley13"
    for seed in SEEDS:
        data = hg.datasets.load(name, split=f"{name}-split")
        train = data.train_mask.nonzero().squeeze(1)
        public = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))[: len(train) // 5]]
        shared = data.clone()
        shared.train_mask[public] = False
        shared.public_mask = torch.zeros_like(data.train_mask).index_fill_(0, public, True)
        pate = PATE(teachers=100, queries=100, learner="gnn", student="gnn", width=32, epochs=100, lr=0.01)
        whole, capped = hg.units.NodeWithEdges(), hg.units.Node()
        for epsilon in (4.0, 8.0):
            for method, unit, given in (
                (pate, whole, shared),
                (hg.DPMLP(), whole, data),
                (hg.Chorus(), capped, data),
            ):
                key = f"graph-{method.name}-{unit.name}-{epsilon}-{seed}"
                if key not in done:
                    model = method.fit(given, unit, hg.Budget(epsilon, 1e-6), seed=seed, ledger=hg.Ledger())
                    settings = {"method": method.name, "unit": unit.name, "student": method.name}
                    line = {"key": key, "what": "graph", "epsilon": epsilon, "seed": seed, "settings": settings}
                    _append({**line, "accuracy": model.metrics["accuracy"]["test"]})


def _append(line: dict[str, Any]) -> None:
    """Add a line, at once."""
    CELLS.parent.mkdir(exist_ok=True)
    with CELLS.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(
        line["what"], line["epsilon"], line["seed"], line["settings"]["student"], f"{line['accuracy']:.1f}", flush=True
    )


def _gan(student: str, options: argparse.Namespace) -> PATE:
    return PATE(student=student, epochs=options.epochs, width=options.width, use_counts=False)


def _learner() -> Learner:
    return learner_from({"name": PATE().learner})


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


PARTS = {"kernel": kernel, "gan": gan, "beta": beta, "tau": tau, "figure": figure, "graph": graph}


def main() -> None:
    """Run the parts that were named, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "page"])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the GAN students")
    parser.add_argument("--limit", type=int, default=None, help="use so many private pictures, for a trial")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp"), help="keeps exact votes between commands")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if set(options.parts) - {"page"}:
        options.scratch.mkdir(parents=True, exist_ok=True)
        bench = Bench(options.scratch, options.limit)
        for part in options.parts:
            if part != "page":
                PARTS[part](bench, options)
    from pate_page import write_page

    write_page(CELLS, PAGE, PUBLISHED)


if __name__ == "__main__":
    main()
