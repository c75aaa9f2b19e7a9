"""The main job on the built-in graph: train at several budgets, audit, and write a report.

The folder is a project: all runs are in its ledger, `.hushgraph`, and `hushgraph ledger show` works in it.
Run it with `make demo`, or `python examples/demo.py [FOLDER]`.
"""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import torch

import hushgraph as hg
from hushgraph.audit.run import require_consistent

UNIT = hg.units.UndirectedEdge()
DEFAULT = Path("demo-output")


def main(folder: Path) -> None:
    """Everything, in the order a person would do it."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    if folder == DEFAULT:
        shutil.rmtree(folder, ignore_errors=True)
    elif folder.exists() and any(folder.iterdir()):
        sys.exit(f"demo: expected a new or empty folder; {folder} is not")
    graph = hg.datasets.load("campus")
    say(f"Campus is a made-up social network: {graph.num_nodes:,} students, {graph.num_edges // 2:,} friendships.")
    say(
        "The task is to guess each student's class year. Profiles are public; who is friends with whom is the secret.\n"
    )

    runs = {
        "MLP, profiles only": (hg.MLP(), 1.0),
        "GAP, epsilon 1": (hg.GAP(hops=2), 1.0),
        "GAP, epsilon 4": (hg.GAP(hops=2), 4.0),
        "GAP, no privacy": (hg.GAP(hops=2), math.inf),
        "auto, epsilon 1": (hg.Auto(), 1.0),
    }
    models: dict[str, hg.Model] = {}
    book = hg.Ledger(folder / ".hushgraph")
    for name, (method, epsilon) in runs.items():
        budget = hg.Budget(epsilon, 1e-7)
        # What has no protection is for comparison only, and nothing of it may be published.
        occasion = replace(book.occasion, purpose=name, unpublished=math.isinf(epsilon))
        models[name] = method.fit(graph, UNIT, budget, ledger=book.on(occasion))
        models[name].save(folder / _slug(name))
        accuracy = models[name].metrics["accuracy"]["test"]
        print(f"  {name:<20} test accuracy {accuracy:5.1f}%  {_promise(models[name])}", flush=True)

    chosen = models["GAP, epsilon 4"]
    say(f"\n'auto' is the default. Its choice: {models['auto, epsilon 1'].reason}.")
    say("The private models use the friendships and still hide each one. The certificate of GAP at epsilon 4:\n")
    print(chosen.explain(), flush=True)
    say("\nAn audit now tries to break that promise, on canary edges planted in data made for it:")
    audit = chosen.audit()
    say(f"  {audit.sentence()}")
    require_consistent(audit)
    others = [model for model in models.values() if model is not chosen]
    report = chosen.report(folder / "report.html", compare=others, audit=audit.as_dict())
    say(
        f"\nAll runs are in one ledger. Published together they add up: {book.total(chosen.certificate.dataset, UNIT)}."
    )
    say(f"Look: cd {folder}; hushgraph ledger show; hushgraph verify gap-epsilon-4")
    say(f"Done in {time.perf_counter() - started:.0f} s.")
    say(f"\nOpen the report: {report}")


def _promise(model: hg.Model) -> str:
    epsilon = model.certificate.epsilon
    if epsilon == 0.0:
        return "reads no friendships"
    if math.isinf(epsilon):
        return "no protection at all"
    return f"friendships hidden, epsilon {epsilon:.3g}"


def _slug(name: str) -> str:
    return name.lower().replace(",", "").replace(" ", "-")


def say(text: str) -> None:
    """Print at once, so that a person sees progress, in lines of 80 columns."""
    for line in text.split("\n"):
        start = line[: len(line) - len(line.lstrip())]
        print(textwrap.fill(line, 80, subsequent_indent=start, break_on_hyphens=False), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
