"""Train GAP, try to contradict its epsilon, attack it, and write the report.

    python examples/audit_gap.py

Paper mode counts one direction of every friendship. On a symmetric graph the audit catches it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import hushgraph as hg
from hushgraph import datasets
from hushgraph.attacks.catalog import attack_model
from hushgraph.audit import audit_run
from hushgraph.methods.gap import GAP
from hushgraph.report import write_report


def main() -> None:
    """Audit an honest run and one in paper mode."""
    graph = datasets.load("campus", num_nodes=2000)
    budget = hg.Budget(epsilon=1.0, delta=1e-6)
    honest = GAP().fit(graph, hg.units.UndirectedEdge(), budget)
    paper = GAP().fit(graph, hg.units.DirectedEdge(), budget, paper_mode=True)
    for model in (honest, paper):
        print(audit_run(model).sentence())

    attack = attack_model("linkteller", honest, graph, sources=20)
    print(attack)
    out = Path(tempfile.mkdtemp()) / "report.html"
    print("report:", write_report(honest, out, audit=audit_run(honest), attacks=[attack]))


if __name__ == "__main__":
    main()
