"""Are the audit's bounds valid, and how close do they come? Every kind of canary, many times over.

    python benchmarks/audit.py [--repeats 100] [--only WORDS ...] [--write]

Each repeat is a whole audit with fresh coins and fresh noise (from the operating system, as a user's would be). A bound
at 95% confidence may exceed the truth in 5 of 100 repeats. The truth is what the accountant charges: for Gaussian sums
it is exact, for the others an upper bound. Repeats are kept in benchmarks/results/audit.json, so a run that was broken
off goes on where it stopped; a row of another version is measured anew. Needs no data. The page is
docs/results-audit.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy import stats

import hushgraph as hg
from hushgraph.audit.result import Bound
from hushgraph.audit.run import audit_plan
from hushgraph.mechanisms import DividedCodedSum, Gradient, RootedGradient
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import DirectedEdge, Local, Node, NodeReplace, UndirectedEdge, Unit

ROOT = Path(__file__).parent.parent
KEEP = ROOT / "benchmarks" / "results" / "audit.json"
PAGE = ROOT / "docs" / "results-audit.md"
SIZES = Metadata(20_000, 15_000, 2_000, 3_000, 30, 6, 1_000_000)
CONFIDENCE = 0.95
BEFORE_VERSIONS = "0.1.0"  # of rows that do not say
PUBLIC_LABELS = Local(private_labels=False)
FOREWORD = """# Audits: how close, how often too high

Written by `benchmarks/audit.py`. Each row is a number of whole audits with fresh coins and fresh noise; canaries run
through the library's own vault and mechanisms. `truth` is the epsilon that is charged. `median bound` is the lower
bound at 95% confidence; `too high` counts audits whose bound exceeded the truth, which may happen in 5% of them
(`allowed`: the number that a valid bound exceeds with probability 1 in 1,000). `false alarms` counts verdicts of
contradiction, which need confidence 1 - 10^-4. Rows in paper mode claim less than the truth on purpose: there `caught`
says how many were contradicted. `CPU s` is for one audit. Proofs: [proofs/audit.md](proofs/audit.md).
"""


@dataclass(frozen=True)
class Case:
    """One row: a plan, and how many canaries."""

    plan: Plan
    canaries: int

    def audit(self) -> tuple[float, float]:
        """The bound at 95% confidence and the one that a verdict needs, from one audit."""
        found = audit_plan(self.plan, canaries=self.canaries, confidence=CONFIDENCE).findings
        drawn = next(one for one in found if one.bound not in (Bound.LAW, Bound.ONE_RUN_PURE))
        return drawn.lower_bound, drawn.strict_bound


def whole(
    method: hg.Method, unit: Unit, epsilon: float, canaries: int = 10_000, delta: float = 1e-5, paper: bool = False
) -> Callable[[], Case]:
    """All stages of a method, together."""
    return lambda: Case(method.plan(SIZES, unit, hg.Budget(epsilon, delta), paper_mode=paper), canaries)


def sums(method: hg.Method, unit: Unit, epsilon: float, paper: bool = False) -> Callable[[], Case]:
    """A method's plan at edge level, with ten thousand canaries."""
    return whole(method, unit, epsilon, delta=1e-7, paper=paper)


def steps(mechanism: Mechanism, unit: Unit, epsilon: float, canaries: int) -> Callable[[], Case]:
    """One stage with the least noise that meets `epsilon`."""
    budget = hg.Budget(epsilon, 1e-5)
    return lambda: Case(Plan.make("benchmark", SIZES, unit, budget, [Stage("steps", mechanism)]), canaries)


def rounds(unit: Unit, epsilon: float) -> Callable[[], Case]:
    """Five rounds of sums in codes and weights that follow earlier answers, with the least noise for `epsilon`."""
    stage = Stage("rounds", DividedCodedSum(), 5)
    return lambda: Case(Plan.make("benchmark", SIZES, unit, hg.Budget(epsilon, 1e-5), [stage]), 10_000)


_sgd = Gradient(1.0, 0.05, 200)
_one_layer = RootedGradient(1.0, 0.1, 60, 7, 1)
_two_layers = RootedGradient(1.0, 0.1, 60, 2, 2)

CASES: dict[str, Callable[[], Case]] = {
    **{f"edges, GAP, epsilon {e}": sums(hg.GAP(), UndirectedEdge(), e) for e in (1, 4, 8)},
    **{f"edges, Chorus, epsilon {e}": sums(hg.Chorus(), UndirectedEdge(), e) for e in (1, 4, 8)},
    **{f"adaptive codes, edges, epsilon {e}": sums(hg.ChorusCodes(), UndirectedEdge(), e) for e in (1, 4, 8)},
    **{f"adaptive codes, node, epsilon {e}": rounds(Node(), e) for e in (2, 8)},
    "adaptive codes, node-replace, epsilon 8": rounds(NodeReplace(), 8),
    **{f"paper mode, GAP, claimed {e}": sums(hg.GAP(), DirectedEdge(), e, True) for e in (1, 4, 8)},
    **{f"gradients, node, epsilon {e}": steps(_sgd, Node(), e, n) for e, n in ((1, 10_000), (4, 4_000), (8, 4_000))},
    "gradients, node-replace, epsilon 4": steps(_sgd, NodeReplace(), 4, 4_000),
    "rooted, K 7, 1 layer, epsilon 8": steps(_one_layer, Node(), 8, 3_000),
    "rooted, K 2, 2 layers, epsilon 4": steps(_two_layers, Node(), 4, 3_000),
    "rooted, K 2, 2 layers, replace, epsilon 8": steps(_two_layers, NodeReplace(), 8, 2_000),
    "all stages, GAP, node, epsilon 8": whole(hg.GAP(epochs=2), Node(max_degree=20), 8, 4_000),
    "all stages, ProGAP, node, epsilon 8": whole(hg.ProGAP(epochs=1), Node(max_degree=20), 8, 4_000),
    "reports, LPGNN features, epsilon 6": whole(hg.LPGNN(low=0.0, high=1.0), PUBLIC_LABELS, 6.0),
    "reports, LPGNN labels, epsilon 2": whole(hg.LPGNN(features="codes"), Local(), 2.0),
    "reports, PGC, epsilon 30": whole(hg.PGC(low=0.0, high=1.0), PUBLIC_LABELS, 30.0),
}


def measure(name: str, repeats: int) -> None:
    """Audits that are still missing in a row, each kept as soon as it is there."""
    kept = read()
    row = kept.get(name, {})
    if row.get("version", BEFORE_VERSIONS) != hg.__version__:  # repeats of two versions do not belong in one row
        row = {"bounds": [], "strict": [], "seconds": [], "version": hg.__version__}
    if len(row["bounds"]) >= repeats:
        return
    case = CASES[name]()
    claimed = case.plan.epsilon if case.plan.paper is None else case.plan.paper.epsilon
    row |= {"truth": case.plan.epsilon, "claimed": claimed, "canaries": case.canaries}
    while len(row["bounds"]) < repeats:
        started = time.process_time()
        low, strict = case.audit()
        row["bounds"].append(low)
        row["strict"].append(strict)
        row["seconds"].append(time.process_time() - started)
        keep(name, row)
    print(_line(name, row), flush=True)


def keep(name: str, row: dict[str, Any]) -> None:
    """Put one row into the file, which is whole at any moment."""
    new = KEEP.with_name(f"{KEEP.name}.{os.getpid()}")
    new.write_text(json.dumps({**read(), name: row}))
    os.replace(new, KEEP)


def read() -> dict[str, Any]:
    """All rows there are."""
    return dict(json.loads(KEEP.read_text())) if KEEP.exists() else {}


def write_page() -> None:
    """The page from the rows there are."""
    head = (
        "| canaries | truth | number | audits | median bound | of truth | too high | allowed | false alarms | CPU s |"
    )
    kept = read()
    lines = [_line(name, kept[name]) for name in CASES if name in kept]
    missing = [name for name in CASES if name not in kept]
    note = f"\nNot run: {', '.join(missing)}.\n" if missing else ""
    versions = sorted({kept[name].get("version", BEFORE_VERSIONS) for name in CASES if name in kept})
    measured = f"Measured with version {' and '.join(versions)}.\n"
    PAGE.write_text("\n".join([FOREWORD, measured, head, "| --- " * 10 + "|", *lines, note]))


def _line(name: str, row: dict[str, Any]) -> str:
    found, repeats = np.array(row["bounds"]), len(row["bounds"])
    # A family is searched in small steps, so a bound that exceeds the truth by less than a step is equal to it.
    high = int((found >= row["truth"] * (1.0 - 1e-6)).sum())
    alarms = int((np.array(row["strict"]) > row["claimed"]).sum())
    allowed = int(stats.binom.ppf(0.999, repeats, 1.0 - CONFIDENCE))
    verdicts = f"{alarms} caught" if row["claimed"] < 0.999 * row["truth"] else f"{alarms}"
    median = float(np.median(found))
    cells = [name, f"{row['truth']:.3g}", f"{row['canaries']:,}", repeats, f"{median:.3g}"]
    cells += [f"{median / row['truth']:.2f}", high, allowed, verdicts, f"{np.median(row['seconds']):.2g}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[], metavar="WORDS", help="rows whose name has one of these")
    parser.add_argument("--write", action="store_true", help="only write the page from the rows there are")
    chosen = parser.parse_args()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    for name in CASES:
        if not chosen.write and (not chosen.only or any(words in name for words in chosen.only)):
            measure(name, chosen.repeats)
    write_page()


if __name__ == "__main__":
    main()
