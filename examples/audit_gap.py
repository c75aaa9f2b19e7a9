"""Train GAP and try to contradict its epsilon.

    python examples/audit_gap.py

Paper mode counts one direction of every friendship. On a symmetric graph the audit catches it. A saved folder is
audited in the same way: `hushgraph audit FOLDER`.
"""

from __future__ import annotations

import hushgraph as hg
from hushgraph import datasets
from hushgraph.audit import audit_run


def main() -> None:
    """Audit an honest run and one in paper mode."""
    graph = datasets.load("campus", num_nodes=2000)
    budget = hg.Budget(epsilon=1.0, delta=1e-6)
    honest = hg.GAP().fit(graph, hg.units.UndirectedEdge(), budget)
    paper = hg.GAP().fit(graph, hg.units.DirectedEdge(), budget, paper_mode=True)
    for model in (honest, paper):
        found = audit_run(model)
        print(found.sentence())
        for finding in found.findings:
            print(f"  {finding.name}, {finding.method}: at least {finding.lower_bound:.3g} of {finding.claimed:.3g}")


if __name__ == "__main__":
    main()
