"""Small plans and runs for tests of the ledger."""

from __future__ import annotations

from typing import Any

from scipy import optimize

from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import Run, open_run
from hushgraph.mechanisms import EdgeCount, Gradient, NeighborSum, Raw, RootedGradient
from hushgraph.privacy import events, units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
DELTA = 1e-6
SIZES = Metadata(1_000, 750)


def plan_of(
    *stages: Stage, unit: Unit = EDGE, epsilon: float = 500.0, delta: float = DELTA, method: str = "toy"
) -> Plan:
    """A plan with these stages as they are."""
    return Plan(method, SIZES, unit, Budget(epsilon, delta), stages)


def sum_stage(name: str, count: int, std: float) -> Stage:
    """Gaussian sums over neighbors with this noise."""
    return Stage(name, NeighborSum(), count, scale=std)


def gradient_stage(name: str, steps: int, std: float, rate: float) -> Stage:
    """DP-SGD with clip norm 1."""
    return Stage(name, Gradient(1.0, rate, steps), scale=std)


def sums(std: float = 20.0, count: int = 2, unit: Unit = EDGE, delta: float = DELTA) -> Plan:
    """Gaussian sums over neighbors."""
    return plan_of(sum_stage("aggregation", count, std), unit=unit, delta=delta)


def sums_of(epsilon: float, unit: Unit = EDGE, delta: float = DELTA) -> Plan:
    """One Gaussian sum that costs exactly `epsilon`."""

    def cost(multiplier: float) -> float:
        return PrivacyLoss(events.gaussian(multiplier), unit.relation).epsilon(delta) - epsilon

    multiplier = float(optimize.brentq(cost, 0.01, 1e4, xtol=1e-14, rtol=1e-14))
    return sums(multiplier * NeighborSum().sensitivity(unit), 1, unit, delta)


def training(std: float = 2.0, steps: int = 100, rate: float = 0.05, unit: Unit = NODE, delta: float = DELTA) -> Plan:
    """DP-SGD: sampled Gaussian releases."""
    return plan_of(gradient_stage("training", steps, std, rate), unit=unit, delta=delta)


def rooted(std: float = 20.0, steps: int = 20, delta: float = DELTA) -> Plan:
    """DP-GNN: batches in which one node touches several examples."""
    stage = Stage("training", RootedGradient(1.0, 0.05, steps, 3, 1), scale=std)
    return plan_of(stage, unit=NODE, delta=delta)


def baseline(unit: Unit = EDGE) -> Plan:
    """No protection at all."""
    return plan_of(Stage("edges", Raw("edges"), scale=0.0), unit=unit, epsilon=float("inf"))


def option(method: str, stage: str, std: float, unit: Unit = NODE, delta: float = DELTA) -> Plan:
    return plan_of(sum_stage(stage, 1, std), unit=unit, epsilon=5.0, delta=delta, method=method)


COUNT = Stage("count", EdgeCount(5), noise=None, scale=EdgeCount(5).whole_scale_within(0.25, NODE))


def choice(**changes: Any) -> Plan:
    """A noisy count, and then one of two methods."""
    values: dict[str, Any] = {
        "method": "toy",
        "metadata": SIZES,
        "unit": NODE,
        "budget": Budget(5.0, DELTA),
        "stages": (COUNT,),
        "branches": (option("cheap", "low", 20.0), option("dear", "high", 10.0)),
    }
    return Plan(**{**values, **changes})


def carry_out(
    ledger: Ledger,
    plan: Plan,
    dataset: str = "data",
    *,
    seeded: bool = False,
    tensors_hash: str | None = None,
    **occasion: Any,
) -> Run:
    """Open a run, charge all of it, close it."""
    run = open_run(ledger, plan, dataset, seeded=seeded, **occasion)
    for stage in plan.stages:
        run.charge(stage)
    run.close(tensors_hash=tensors_hash)
    return run
