"""Small plans and runs for tests of the ledger."""

from __future__ import annotations

from typing import Any

from hushgraph.privacy.count import CountStage
from scipy import optimize

from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import Run, open_run
from hushgraph.privacy import events, units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.plan import AggregationStage, GradientStage, Plan, RootedGradientStage, UnprotectedStage
from hushgraph.privacy.units import Unit

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
DELTA = 1e-6


def sums(std: float = 20.0, count: int = 2, unit: Unit = EDGE, delta: float = DELTA) -> Plan:
    """Gaussian sums over neighbors."""
    return Plan("toy", unit, Budget(500.0, delta), (AggregationStage("aggregation", count, std),), unit)


def sums_of(epsilon: float, unit: Unit = EDGE, delta: float = DELTA) -> Plan:
    """One Gaussian sum that costs exactly `epsilon`."""

    def cost(multiplier: float) -> float:
        return PrivacyLoss(events.gaussian(multiplier), unit.relation).epsilon(delta) - epsilon

    multiplier = float(optimize.brentq(cost, 0.01, 1e4, xtol=1e-14, rtol=1e-14))
    return sums(multiplier * unit.aggregation_sensitivity(1.0), 1, unit, delta)


def training(std: float = 2.0, steps: int = 100, rate: float = 0.05, unit: Unit = NODE, delta: float = DELTA) -> Plan:
    """DP-SGD: sampled Gaussian releases."""
    stage = GradientStage("training", steps, std, 1.0, rate)
    return Plan("toy", unit, Budget(500.0, delta), (stage,), unit)


def rooted(std: float = 20.0, steps: int = 20, delta: float = DELTA) -> Plan:
    """DP-GNN: batches in which one node touches several examples."""
    stage = RootedGradientStage("training", steps, std, 1.0, 0.05, 3, 1)
    return Plan("toy", NODE, Budget(500.0, delta), (stage,), NODE)


def baseline(unit: Unit = EDGE) -> Plan:
    """No protection at all."""
    return Plan("toy", unit, Budget(float("inf"), DELTA), (UnprotectedStage("unprotected", 1, 0.0),), unit)


def option(method: str, stage: str, std: float, unit: Unit = NODE, delta: float = DELTA) -> Plan:
    return Plan(method, unit, Budget(5.0, delta), (AggregationStage(stage, 1, std),), unit)


COUNT = CountStage.within("count", 0.25, NODE, 5)


def choice(**changes: Any) -> Plan:
    """A noisy count, and then one of two methods."""
    values: dict[str, Any] = {
        "method": "toy",
        "unit": NODE,
        "budget": Budget(5.0, DELTA),
        "stages": (COUNT,),
        "charged_unit": NODE,
        "options": (option("cheap", "low", 20.0), option("dear", "high", 10.0)),
    }
    return Plan(**{**values, **changes})


def carry_out(ledger: Ledger, plan: Plan, dataset: str = "data", *, seeded: bool = False, **occasion: Any) -> Run:
    """Open a run, charge all of it, close it."""
    run = open_run(ledger, plan, dataset, seeded=seeded, **occasion)
    for stage in plan.stages:
        run.charge(stage)
    run.close()
    return run
