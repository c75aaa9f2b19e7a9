"""The default experiment: fit the cell's method, measure it, attack it and audit it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hushgraph.ledger.identity import arrays_of
from hushgraph.study.axes import Needs
from hushgraph.study.cell import INDUCTIVE
from hushgraph.study.lab import Lab
from hushgraph.study.metrics import of_classes, of_labels

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from hushgraph.ledger.ledger import Ledger
    from hushgraph.methods.model import Model
    from hushgraph.privacy.plan import Plan

Metrics = dict[str, float | None]
_OTHER_SEED = 1_000_003
"""Inference on another graph draws noise of its own."""


class Fit:
    """Train on the cell's graph; inductive cells train on one half of it and predict about the other."""

    needs = Needs(axes=("datasets", "methods", "epsilons"))
    released = ("proved_epsilon", "claimed_epsilon", "released_edges")
    """Metrics that the releases of the run give; all others are evaluations on private data."""

    def __call__(self, lab: Lab, **settings: Any) -> Metrics:
        """Every measure of one run."""
        data, rest = _graphs(lab)
        cell, budget = lab.cell, lab.budget
        book = lab.ledger if rest is None else _ledger_of_halves(lab)
        options: dict[str, Any] = {"ledger": book, "paper_mode": cell.paper_mode}
        model = lab.method.fit(data, lab.unit, budget, seed=lab.seed, **options)
        metrics = measured(model, data)
        if rest is not None:
            other = None if lab.seed is None else lab.seed + _OTHER_SEED
            answer = model.predict_on(rest, budget, seed=other, **options)
            test = {key: value for key, value in measured(answer, rest).items() if key.startswith("test_")}
            metrics = {**metrics, **test}
        lab.facts |= facts_of(model)
        metrics |= {"proved_epsilon": model.certificate.epsilon, "fit_seconds": model.seconds["total"]}
        if model.certificate.paper is not None:
            metrics["claimed_epsilon"] = model.certificate.paper.epsilon
        if "released_edges" in model.settings:
            metrics["released_edges"] = float(model.settings["released_edges"])
        return {**metrics, **_attacked(lab, model, data), **_audited(lab, model)}

    def plans(self, lab: Lab, **settings: Any) -> list[tuple[str, Plan]]:
        """What the run would release, and on which data, from public sizes alone."""
        from hushgraph.graph.checks import check_graph

        data, rest = _graphs(lab)
        method, cell, checked = lab.method, lab.cell, lab.checked if rest is None else check_graph(data)
        unit = lab.unit or method.default_unit(checked)
        name = str(cell.axis("dataset"))
        plan = method.plan(checked.metadata, unit, lab.budget, paper_mode=cell.paper_mode)
        if rest is None:
            return [(name, plan)]
        other_graph = check_graph(rest, known_classes=checked.class_names)
        other = method.inference_plan(other_graph.metadata, unit, lab.budget, paper_mode=cell.paper_mode)
        return [(name, plan), (name, other)]


def _graphs(lab: Lab) -> tuple[Data, Data | None]:
    if lab.cell.inference != INDUCTIVE:
        return lab.data, None
    from hushgraph.datasets.splits import disjoint_graphs

    return disjoint_graphs(lab.data, lab.cell.split_seed)


def _ledger_of_halves(lab: Lab) -> Ledger:
    """Where both halves of a graph are charged: they are about the people of the whole, whose account both go to."""
    book = lab.ledger
    if not lab.is_charged:
        return book
    whole = lab.checked
    name = book.dataset_for(book.identify(arrays_of(whole)), whole.metadata.name)
    return book.on(replace(book.occasion, continues=name))


def measured(model: Model, data: Data) -> Metrics:
    """Measures on the nodes of every part of the split, and what the method itself measures."""
    own: Metrics = {key: float(value) for key, value in model.metrics.items() if isinstance(value, int | float)}
    if model.scores is None:
        return own
    scores, labels = model.scores.numpy(), data.y.numpy()
    for name in ("train", "val", "test"):
        chosen = getattr(data, f"{name}_mask").numpy() & (labels >= 0).reshape(len(labels), -1).all(axis=1)
        measures = of_classes if labels.ndim == 1 else of_labels
        own |= measures(scores[chosen], labels[chosen], name)
    return own


def facts_of(model: Model) -> dict[str, Any]:
    """What the run's certificate says, for the table of costs."""
    certificate = model.certificate
    return {
        "run": certificate.run,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "unit": certificate.unit.as_dict(),
        "method": model.method.name,
    }


def _attacked(lab: Lab, model: Model, data: Data) -> Metrics:
    """The figures of every attack of the cell, named after it."""
    found: Metrics = {}
    for attack in lab.cell.attacks:
        from hushgraph.attacks.catalog import attack_model

        result = attack_model(attack.name, model, data, **{"seed": lab.cell.seed, **attack.settings}).as_dict()
        figures = {**result.get("details", {}), **result.get("figures", {})}
        figures |= {key: result[key] for key in ("auc", "balanced_accuracy") if key in result}
        rates = {f"tpr_at_{rate}": None if one is None else one["value"] for rate, one in result["tpr_at"].items()}
        known = {key: value for key, value in {**figures, **rates}.items() if isinstance(value, int | float)}
        found |= {f"{attack.label}_{key}".replace(" ", "_"): float(value) for key, value in known.items()}
    return found


def _audited(lab: Lab, model: Model) -> Metrics:
    """The lower bound that an audit proves, and whether it contradicts the claim."""
    if lab.cell.audit is None:
        return {}
    from hushgraph.audit.result import Verdict

    result = model.audit(seed=lab.cell.seed, **lab.cell.audit)
    bound = result.findings[0].lower_bound if result.findings else None
    return {"audit_epsilon": bound, "audit_contradicted": float(result.verdict is Verdict.CONTRADICTED)}


fit = Fit()
