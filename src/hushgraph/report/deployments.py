"""An entry for the registry of differential privacy deployments that OpenDP keeps, as YAML of its tier 3.

What a run knows is filled in; what only its publisher knows is left out, and a comment names it.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from hushgraph.privacy.units import Relation
from hushgraph.report import words
from hushgraph.report.context import RunContext
from hushgraph.report.sections.nist import nist_rows
from hushgraph.text import rounded_up

_RELATIONS = {
    Relation.ADD_OR_REMOVE: "one is added or removed",
    Relation.NULL: "one is replaced by an empty record",
    Relation.REPLACE: "one is replaced by any other",
}
_TO_FILL_IN = (
    "data_curators, intended_use, data_product_region, data_product_sector and registry_authors are the publisher's "
    "to add"
)
_MEASURES = ("Randomness", "Floating-point side channels", "Timing side channels")


def render_deployment(context: RunContext) -> str:
    """The entry; every value is JSON, which YAML reads."""
    entry = {"url_slug": _slug(context), "status": "Draft", "tier": 3, "deployment": _deployment(context)}
    return f"# {_TO_FILL_IN}\n" + "\n".join(_lines(entry)) + "\n"


_MADE = {"model": "A graph neural network trained by", "graph": "A graph released by"}


def _deployment(context: RunContext) -> dict[str, Any]:
    certificate = context.certificate
    return {
        "product": {
            "name": f"{context.label} on {certificate.dataset}",
            "data_product_type": "Machine learning model" if context.what == "model" else "Synthetic data",
            "description": certificate.purpose or f"{_MADE[context.what]} {certificate.method}",
            "publication_date": datetime.now(UTC).date().isoformat(),
        },
        "dp_flavor": {
            "name": _flavor(context),
            "input_metric": f"Number of units ({context.unit.name}) in which two datasets differ",
            "bound_on_input_distance": "1",
            "data_domain": ", ".join(str(note) for note in certificate.public),
            "unprotected_quantities": _list(str(note) for note in certificate.unprotected),
        },
        "privacy_loss": {
            "privacy_unit": context.unit.name,
            "privacy_unit_description": f"{context.unit.protects}; {_RELATIONS[context.unit.relation]}",
            "privacy_parameters": _parameters(context),
            "privacy_parameters_description": words.claim(certificate),
        },
        "model": {
            "model_name": "Central" if context.unit.trust == "central" else "Local",
            "model_name_description": words.trust(certificate),
            "release_type": "One release",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": "Everything after the releases below, including predictions on the same graph",
            "composition": f"{words.accountant(certificate)}; all runs on the dataset: {words.total(context.total)}",
        },
        "implementation": {
            "pre_processing_eda_hyperparameter_tuning": "Not part of this run; other runs are in the data's ledger",
            "mechanisms": _list([*words.released(certificate), *_measures(context)]),
            "justification": certificate.purpose or "",
        },
        "resources": {"sources": f"hushgraph run {certificate.run}, ledger {certificate.ledger_hash}"},
    }


def _measures(context: RunContext) -> list[str]:
    """What is done about how computers draw, round and take their time."""
    return [f"{row.name}: {row.words}" for row in nist_rows(context) if row.name in _MEASURES]


def _flavor(context: RunContext) -> str:
    if not context.certificate.is_private:
        return "None"
    if context.certificate.mu is not None:
        return "Gaussian DP"
    same_at_every_delta = set(context.certificate.profile.values()) == {context.epsilon}
    return "Pure DP" if same_at_every_delta else "Approximate DP"


def _parameters(context: RunContext) -> dict[str, Any]:
    if not context.certificate.is_private:
        return {}
    found: dict[str, Any] = {"epsilon": float(rounded_up(context.epsilon)), "delta": context.delta}
    return found if context.certificate.mu is None else {**found, "mu": float(rounded_up(context.certificate.mu))}


def _list(items: Any) -> str:
    return "\n".join(f"- {item}" for item in items)


def _slug(context: RunContext) -> str:
    name = f"{context.certificate.dataset}-{context.method}-{context.certificate.run[:8]}"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _lines(values: dict[str, Any], indent: str = "") -> list[str]:
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", *_lines(value, indent + "  ")] if value else []
        elif value != "":
            lines.append(f"{indent}{key}: {json.dumps(value)}")
    return lines
