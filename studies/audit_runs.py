"""What the runs of studies/audit.yaml do: one whole audit of one kind of canaries, and whether its bound is valid."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import hushgraph as hg
from hushgraph.audit.result import Bound
from hushgraph.audit.run import audit_plan
from hushgraph.errors import InputError, did_you_mean
from hushgraph.mechanisms import DividedCodedSum, Gradient, RootedGradient
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import DirectedEdge, Local, Node, NodeReplace, UndirectedEdge, Unit
from hushgraph.study.lab import Lab

SIZES = Metadata(20_000, 15_000, 2_000, 3_000, 30, 6, 1_000_000)
STEP = 1e-6
"""A family is searched in steps: a bound that exceeds the truth by less than one is equal to it."""


def audited(lab: Lab, *, case: str, canaries: int = 10_000) -> dict[str, float | None]:
    """The epsilon that is charged, the lower bound at 95% confidence, and whether the bound or the verdict is wrong.

    `caught`: the claim is contradicted, which needs a confidence of 1 - 10^-4. Right in paper mode, wrong elsewhere.
    """
    if case not in CASES:
        raise InputError(f"case: got '{case}'; {did_you_mean(case, CASES)}")
    plan = CASES[case](lab.budget.epsilon)
    started = time.process_time()
    own = zlib.crc32(f"{case} {lab.budget.epsilon:g} {lab.cell.seed}".encode())  # cases share no coins
    found = audit_plan(plan, canaries=canaries, confidence=0.95, seed=own).findings
    drawn = next(one for one in found if one.bound not in (Bound.LAW, Bound.ONE_RUN_PURE))
    claimed = plan.epsilon if plan.paper is None else plan.paper.epsilon
    return {
        "truth": plan.epsilon,
        "bound": drawn.lower_bound,
        "of_truth": drawn.lower_bound / plan.epsilon,
        "too_high": float(drawn.lower_bound >= plan.epsilon * (1.0 - STEP)),
        "caught": float(drawn.strict_bound > claimed),
        "cpu_seconds": time.process_time() - started,
    }


def _whole(method: hg.Method, unit: Unit, delta: float = 1e-5, paper: bool = False) -> Callable[[float], Plan]:
    """All stages of a method, together."""
    return lambda epsilon: method.plan(SIZES, unit, hg.Budget(epsilon, delta), paper_mode=paper)


def _stage(mechanism: Mechanism, unit: Unit, number: int = 1) -> Callable[[float], Plan]:
    """One stage with the least noise that meets epsilon."""
    stages = [Stage("steps", mechanism, number)]
    return lambda epsilon: Plan.make("audit", SIZES, unit, hg.Budget(epsilon, 1e-5), stages)


_edge, _public = UndirectedEdge(), Local(private_labels=False)
_sgd, _one, _two = Gradient(1.0, 0.05, 200), RootedGradient(1.0, 0.1, 60, 7, 1), RootedGradient(1.0, 0.1, 60, 2, 2)

CASES: dict[str, Callable[[float], Plan]] = {
    "edges, GAP": _whole(hg.GAP(), _edge, 1e-7),
    "edges, Chorus": _whole(hg.Chorus(), _edge, 1e-7),
    "adaptive codes, edges": _whole(hg.ChorusCodes(), _edge, 1e-7),
    "adaptive codes, node": _stage(DividedCodedSum(), Node(), 5),
    "adaptive codes, node-replace": _stage(DividedCodedSum(), NodeReplace(), 5),
    "paper mode, GAP": _whole(hg.GAP(), DirectedEdge(), 1e-7, paper=True),
    "gradients, node": _stage(_sgd, Node()),
    "gradients, node-replace": _stage(_sgd, NodeReplace()),
    "rooted, K 7, 1 layer": _stage(_one, Node()),
    "rooted, K 2, 2 layers": _stage(_two, Node()),
    "rooted, K 2, 2 layers, replace": _stage(_two, NodeReplace()),
    "all stages, GAP, node": _whole(hg.GAP(epochs=2), Node(max_degree=20)),
    "all stages, ProGAP, node": _whole(hg.ProGAP(epochs=1), Node(max_degree=20)),
    "reports, LPGNN features": _whole(hg.LPGNN(low=0.0, high=1.0), _public),
    "reports, LPGNN labels": _whole(hg.LPGNN(features="codes"), Local()),
    "reports, PGC": _whole(hg.PGC(low=0.0, high=1.0), _public),
}
