"""PATE on pictures: students of four kinds, counts against labels, k-means queries. Writes docs/results-pate.md.

    python benchmarks/pate.py quick                         # five minutes: a little of everything, on its own page
    python benchmarks/pate.py kernel                        # minutes: teachers once, then students in closed form
    python benchmarks/pate.py plain --data mnist            # a part of it on digits
    python benchmarks/pate.py tau gan beta                  # tau chosen on public pictures, then four students
    python benchmarks/pate.py page                          # write the page from what is there

Needs HUSHGRAPH_DATA. Every cell is a line in benchmarks/results/pate.jsonl; a command that was stopped, killed even,
goes on with the cells that are missing. Noise is seeded: these are research runs on public data.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
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
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.mechanisms.view import View
from hushgraph.mechanisms.votes import Ballot, Votes
from hushgraph.methods.pate import PATE
from hushgraph.nn.gan import Panel
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Plan
from hushgraph.training.learners import Learner, Part, learner_from
from hushgraph.training.lesson import Lesson
from hushgraph.training.semi_gan import PatePlusPlus
from hushgraph.training.teachers import central_rows

HERE = Path(__file__).parent
CELLS = HERE / "results" / "pate.jsonl"
PAGE = HERE.parent / "docs" / "results-pate.md"
SCRATCH = HERE.parent / "runs" / "pate"
DELTA = 1e-5
BUDGETS = (4.05, 5.04)
CHOICE = 100
"""The seed of cells by which settings are chosen; no result is taken from it."""
PUBLISHED = {
    4.05: {"gan": 74.8, "co-teaching": 77.3, "pate+": 76.5, "pate++": 79.6},
    5.04: {"gan": 82.1, "co-teaching": 82.5, "pate+": 82.7, "pate++": 82.9},
}


class Bench:
    """The data, the teachers' exact votes on all public pictures, and the cells that are done."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        data = hg.datasets.load(options.data, public=options.public)
        self.graph: CheckedGraph = check_graph(data, needs_edges=False)
        self.public = Part(self.graph.features[self.graph.public])
        self.truth = self.graph.labels[self.graph.public]
        self.done = {line["key"]: line for line in read_cells(options.cells)}

    def counts(self, teachers: int) -> Tensor:
        """Exact counts on all public pictures; kept in the scratch folder, because teachers take a while."""
        path: Path = self.options.scratch / f"counts-{self.options.data}-{teachers}.npy"
        if not path.is_file():
            ballot = Votes(teachers=teachers, queries=len(self.public), learner=_learner())
            view = View(self.graph, ballot.reads, None, NoiseSource.seeded(0), "bench")
            unfinished = path.with_suffix(".part.npy")
            np.save(unfinished, ballot.counts(view, self.public).numpy())
            unfinished.replace(path)
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

    def cell(self, what: str, method: PATE, epsilon: float, seed: int) -> None:
        """Run one cell unless it is there already."""
        key = self.key(what, method, epsilon, seed)
        if key not in self.done:
            started = time.process_time()
            lesson, plan = self.lesson(method, epsilon, seed)
            network = method.network(plan, torch.Generator().manual_seed(seed))
            student = method.student_with_settings()
            student.learn(network, lesson, torch.Generator().manual_seed(seed), lambda done, total: None)
            self.write(key, what, method, epsilon, seed, plan, lesson, network, time.process_time() - started)

    def key(self, what: str, method: PATE, epsilon: float, seed: int) -> str:
        """Names a cell by all its settings."""
        named = [what, self.options.data, self.options.public, epsilon, seed, method.as_dict()]
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]

    def write(
        self,
        key: str,
        what: str,
        method: PATE,
        epsilon: float,
        seed: int,
        plan: Plan,
        lesson: Lesson,
        network: Any,
        seconds: float,
        **more: Any,
    ) -> None:
        """Add a line, at once: accuracy on test pictures, and on the public pictures that nobody voted on."""
        wrong = lesson.labels != self.truth[lesson.labeled]
        others = torch.ones(len(self.public), dtype=torch.bool).index_fill_(0, lesson.labeled, False)
        line = {
            "key": key,
            "what": what,
            "data": self.options.data,
            "epsilon": epsilon,
            "seed": seed,
            "settings": method.as_dict(),
            "std": plan["votes"].scale,
            "spent": plan.epsilon,
            "wrong": 100.0 * float(wrong.float().mean()),
            "accuracy": accuracy(network, self.graph.features[self.graph.test], self.graph.labels[self.graph.test]),
            "public": accuracy(network, self.public.x[others], self.truth[others]),
            "seconds": seconds,
            **more,
        }
        append_cell(self.options.cells, line)
        self.done[key] = line

    def chosen_tau(self) -> float:
        """The tau that did best on public pictures, in cells that no table of results uses."""
        tried = [cell for cell in self.done.values() if cell["what"] == "tau"]
        best = max(tried, key=lambda cell: cell["public"], default=None)
        return PATE().removed if best is None else float(best["settings"]["removed"])


def accuracy(network: Any, x: Tensor, y: Tensor) -> float:
    """In percent."""
    return 100.0 * float((network.eval()(x).argmax(1) == y).float().mean())


def kernel(bench: Bench) -> None:
    """Kernel and plain CNN students: labels against counts, few teachers, k-means queries."""
    base = _base(bench)
    for seed in bench.options.seeds:
        for use_counts in (False, True):
            for epsilon in (*BUDGETS, 1.0):
                bench.cell("kernel", replace(base, use_counts=use_counts), epsilon, seed)
                bench.cell("kernel", replace(base, teachers=100, use_counts=use_counts), epsilon, seed)
        for epsilon in BUDGETS:
            bench.cell("kernel", replace(base, student="cnn", use_counts=False), epsilon, seed)
            for ask in ("centers", "random"):
                bench.cell("kernel", replace(base, ask=ask, queries=300, use_counts=False), epsilon, seed)


def plain(bench: Bench) -> None:
    """Kernel students alone, from labels and from counts."""
    for seed in bench.options.seeds:
        for epsilon in (1.0, *BUDGETS):
            for use_counts in (False, True):
                bench.cell("kernel", replace(_base(bench), use_counts=use_counts), epsilon, seed)


def gan(bench: Bench) -> None:
    """The four students of the thesis, small and of equal size, with tau as chosen on public pictures."""
    for epsilon in bench.options.budgets:
        for seed in bench.options.seeds:
            for student in ("gan", "co-teaching", "pate+", "pate++"):
                bench.cell("gan", _gan(bench, student), epsilon, seed)


def beta(bench: Bench) -> None:
    """Table 3.2: the expected share of wrong labels."""
    for rate in (0.1, 0.2, 0.3, 0.4):
        for student in ("co-teaching", "pate+"):
            bench.cell("beta", replace(_gan(bench, student), noise_rate=rate), 4.05, CHOICE)


def tau(bench: Bench) -> None:
    """Table 3.3: the share of labels that is taken away, after one search for wrong labels, which is Fig. 3.3."""
    made = _gan(bench, "pate++")
    methods = [replace(made, removed=removed) for removed in (0.182, 0.318, 0.091, 0.227, 0.273, 0.364)]
    keys = [bench.key("tau", method, 4.05, CHOICE) for method in methods]
    if all(key in bench.done for key in keys):
        return
    lesson, plan = bench.lesson(made, 4.05, CHOICE)
    network = cast(Panel, made.network(plan, torch.Generator().manual_seed(CHOICE)))
    first, generator = copy.deepcopy(network.state_dict()), torch.Generator().manual_seed(CHOICE)
    student, curve = cast(PatePlusPlus, made.student_with_settings()), Curve(lesson, bench.truth)
    search = (lesson.labeled, lesson.labels, generator, _silent)
    dispute = student.train(network, lesson, *search, curve.watch)
    for key, method in zip(keys, methods):
        if key not in bench.done:
            started = time.process_time()
            cleansing = cast(PatePlusPlus, method.student_with_settings())
            kept = cleansing.cleansed(dispute)
            network.load_state_dict(first)
            cleansing.train(network, lesson, lesson.labeled[kept], lesson.labels[kept], generator, _silent)
            seconds = time.process_time() - started
            found = {"curve": curve.rows, **curve.found(kept)}
            bench.write(key, "tau", method, 4.05, CHOICE, plan, lesson, network, seconds, **found)


class Curve:
    """What is seen of the search for wrong labels, epoch by epoch."""

    def __init__(self, lesson: Lesson, truth: Tensor) -> None:
        self.labels, self.wrong = lesson.labels, lesson.labels != truth[lesson.labeled]
        self.rows: list[list[float]] = []

    def watch(self, epoch: int, said: list[Tensor]) -> None:
        """How often each agrees with the labels, how often they disagree, and the wrong labels among these."""
        apart = said[0] != said[1]
        right = [100.0 * float((one == self.labels).float().mean()) for one in said]
        among = 100.0 * float(self.wrong[apart].float().mean()) if bool(apart.any()) else 0.0
        self.rows.append([epoch + 1, *right, int(apart.sum()), among])

    def found(self, kept: Tensor) -> dict[str, float]:
        """How many of the labels that were taken away are wrong, and how many wrong ones were."""
        removed = torch.ones_like(self.wrong).index_fill_(0, kept, False)
        hits = float((removed & self.wrong).sum())
        return {
            "chance": 100.0 * float(self.wrong.float().mean()),
            "precision": 100.0 * hits / max(float(removed.sum()), 1.0),
            "recall": 100.0 * hits / max(float(self.wrong.sum()), 1.0),
        }


def quick(bench: Bench) -> None:
    """A little of everything with one seed: labels, counts, k-means queries, and the four students of a few epochs."""
    base = _base(bench)
    for use_counts in (False, True):
        bench.cell("kernel", replace(base, use_counts=use_counts), 4.05, 0)
    bench.cell("kernel", replace(base, ask="centers", queries=min(300, base.queries), use_counts=False), 4.05, 0)
    for student in ("gan", "co-teaching", "pate+", "pate++"):
        bench.cell("gan", _gan(bench, student), 4.05, 0)


def append_cell(path: Path, line: dict[str, Any]) -> None:
    """Add a line, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_off = path.is_file() and not path.read_text().endswith("\n") and path.stat().st_size > 0
    with path.open("a") as file:
        file.write("\n" * cut_off + json.dumps(line) + "\n")
    shown = [line["what"], line["data"], line["epsilon"], line["seed"], line["settings"]["student"]]
    print(*shown, f"{line['accuracy']:.1f}", flush=True)


def read_cells(path: Path) -> list[dict[str, Any]]:
    """All whole lines; one that was cut off by a kill is left out."""
    cells = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        with contextlib.suppress(json.JSONDecodeError):
            cells.append(json.loads(line))
    return cells


def _base(bench: Bench) -> PATE:
    return PATE(teachers=bench.options.teachers, queries=bench.options.queries)


def _gan(bench: Bench, student: str) -> PATE:
    """Equal size for all; beta as published, tau as chosen, or as published where nothing was chosen."""
    small = {"epochs": bench.options.epochs, "width": bench.options.width, "use_counts": False}
    return replace(_base(bench), student=student, removed=bench.chosen_tau(), **small)


def _learner() -> Learner:
    return learner_from({"name": PATE().learner})


def _silent(done: int, total: int) -> None:
    """No progress."""


PARTS = {"quick": quick, "kernel": kernel, "plain": plain, "gan": gan, "beta": beta, "tau": tau}


def main() -> None:
    """Run the parts that were named, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "page"])
    parser.add_argument("--data", default="fashion_mnist", help="fashion_mnist or mnist")
    parser.add_argument("--public", type=int, default=9000, help="public pictures; the other test pictures test")
    parser.add_argument("--teachers", type=int, default=PATE().teachers)
    parser.add_argument("--queries", type=int, default=PATE().queries)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--budgets", type=float, nargs="+", default=list(BUDGETS), help="epsilons of the GANs")
    parser.add_argument("--cells", type=Path, default=CELLS, help="where results are kept")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page that is written")
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help="keeps exact votes between commands")
    options = parser.parse_args()
    if "quick" in options.parts and options.cells == CELLS:
        options.cells, options.page = (options.scratch / name for name in ("quick.jsonl", "quick.md"))
        options.epochs = 5
    torch.set_num_threads(1)
    options.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    bench = None if options.parts == ["page"] else Bench(options)
    for part in options.parts:
        if bench is not None and part != "page":
            PARTS[part](bench)
    from pate_page import write_page

    write_page(read_cells(options.cells), options.page, PUBLISHED)


if __name__ == "__main__":
    main()
