"""Attacks on real graphs and images, and the audit's figures: prints them and writes one JSON file.

    python benchmarks/attacks.py --out attacks.json [links] [membership] [inversion] [audit]

Needs the benchmark data (HUSHGRAPH_DATA, default ../shared/data beside the repository). Parts whose data is missing are
skipped and said so. Everything is printed as measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hushgraph as hg
from hushgraph import datasets
from hushgraph.attacks.analysis import analyse
from hushgraph.attacks.image_models import image_accuracy, image_model, train_images
from hushgraph.attacks.inversion import ENHANCED_DIGITS, ENHANCED_FACES, ORIGINAL, class_distances
from hushgraph.attacks.links import LinkTeller, PosteriorSimilarity, ReleasedRows
from hushgraph.attacks.lira import Lira
from hushgraph.attacks.membership import ShadowMembership, trained_target
from hushgraph.attacks.regression import DegreeInference
from hushgraph.attacks.targets import method_trainer, target_of
from hushgraph.audit.run import audit_plan
from hushgraph.facts import PublicFacts
from hushgraph.methods.gap import GAP
from hushgraph.methods.unprotected import GCN, GraphSAGE
from hushgraph.report.pictures import data_uri, image_grid

DATA = Path(os.environ.get("HUSHGRAPH_DATA", Path(__file__).parents[2] / "shared" / "data"))
EDGE = hg.units.UndirectedEdge()
FREE = hg.Budget(math.inf, 1e-7)


def school(name: str, **options: Any) -> Any:
    return datasets.load(DATA / "facebook100" / f"{name}.npz", **options)


def record(results: list[dict[str, Any]], graph: str, analysis: Any, started: float) -> None:
    seconds = time.perf_counter() - started
    results.append({"graph": graph, "seconds": seconds, **analysis.as_dict()})
    print(f"{graph}: {analysis} ({analysis.positives + analysis.negatives} guesses, {seconds:.1f} s)", flush=True)


def links(name: str) -> list[dict[str, Any]]:
    """LinkTeller and its rivals against a GCN without privacy and GAP at edge epsilon 1."""
    data, results = school(name), []
    gcn = GCN(epochs=20).fit(data, EDGE, FREE, seed=0)
    gap = GAP().fit(data, EDGE, hg.Budget(1.0, 1e-7), seed=0)
    print(f"{name}: test accuracy GCN {gcn.metrics['accuracy']['test']:.1f}, GAP {gap.metrics['accuracy']['test']:.1f}")
    for target in (target_of(gcn, data), target_of(gap, data), target_of(gap, data, fresh_noise=False)):
        # 5,000 pairs and more: 118 sources with up to 25 neighbours and 25 others each.
        started = time.perf_counter()
        record(results, name, analyse(LinkTeller(sources=118).run(target, data)), started)
    for target in (target_of(gcn, data), target_of(gap, data)):
        started = time.perf_counter()
        record(results, name, analyse(PosteriorSimilarity().run(target, data)), started)
        record(results, name, analyse(DegreeInference().run(target, data)), started)
    record(results, name, analyse(ReleasedRows().run(target_of(gap, data), data)), time.perf_counter())
    return results


def membership(name: str) -> list[dict[str, Any]]:
    """Shadow-model membership inference and LiRA against overfitted targets and GAP at node epsilon 8."""
    data, results = school(name, split=(0.2, 0.0, 0.8), seed=0), []
    cases = {
        "GAP, no privacy": (GAP(hidden=64, epochs=200), EDGE, FREE),
        "GraphSAGE, no privacy": (GraphSAGE(hidden=64, epochs=60), EDGE, FREE),
        "GAP, node epsilon 8": (GAP(), hg.units.Node(max_degree=100), hg.Budget(8.0, 1e-5)),
    }
    for title, (method, unit, budget) in cases.items():
        target = trained_target(title, data, method_trainer(method, unit, budget), seed=1)
        rates = [
            float((target.posteriors[m].argmax(1) == data.y[m]).float().mean())
            for m in (data.train_mask, data.test_mask)
        ]
        print(f"{name}: {title}: accuracy {100 * rates[0]:.1f} on members, {100 * rates[1]:.1f} on others")
        started = time.perf_counter()
        record(
            results,
            name,
            analyse(ShadowMembership(per_class=300 if "Hopkins" in name else 1000).run(target, data)),
            started,
        )
        if "Hopkins" in name and "SAGE" not in title:
            started = time.perf_counter()
            record(results, name, analyse(Lira(shadows=8).run(target, data)), started)
    return results


def inversion() -> list[dict[str, Any]]:
    """Model inversion, original and enhanced, on digits and faces."""
    results = []
    for title, kind, metric, enhanced, (x, y) in _pictures():
        torch.manual_seed(0)
        model = image_model(kind, x.shape[1:], int(y.max()) + 1)
        train_images(model, torch.from_numpy(x), torch.from_numpy(y), epochs=60 if len(x) < 1000 else 2)
        accuracy = image_accuracy(model, torch.from_numpy(x), torch.from_numpy(y))
        found, grids, confidence = {}, {}, {}
        for name, how in {"original": ORIGINAL, "enhanced": enhanced}.items():
            raw = how.run(model, int(y.max()) + 1, x.shape[1:])
            confidence[name] = float(model(raw.unsqueeze(1)).detach().softmax(1).diagonal().min())
            found[name] = class_distances(raw.numpy(), x, y, metric)
            found[f"{name}, clipped"] = class_distances(raw.numpy().clip(0, 1), x, y, metric)
            grids[f"{title}: {name}"] = data_uri(image_grid(raw.numpy()[:20], 10))
        blank = np.zeros((int(y.max()) + 1, *x.shape[1:]), dtype=np.float32)
        found["a black picture"] = class_distances(blank, x, y, metric)
        found["a grey picture"] = class_distances(blank + 0.5, x, y, metric)
        better = sum(a < b for a, b in zip(found["enhanced"], found["original"]))
        clipped = sum(a < b for a, b in zip(found["enhanced, clipped"], found["original, clipped"]))
        figures = {f"mean distance, {key}": float(np.mean(value)) for key, value in found.items()}
        figures |= {"classes closer": f"{better} of {len(raw)}", "closer after clipping": f"{clipped} of {len(raw)}"}
        figures |= {f"least confidence, {key}": value for key, value in confidence.items()} | {
            "train accuracy": accuracy
        }
        print(f"{title}: {figures}", flush=True)
        assumes = "has the weights and knows the classes; no data"
        entry = {"name": "model inversion", "target": title, "assumes": assumes}
        results.append({**entry, "figures": figures, "distances": found, "pictures": grids})
    return results


def _pictures() -> list[tuple[str, str, Any, Any, tuple[np.ndarray, np.ndarray]]]:
    found: list[tuple[str, str, Any, Any, tuple[np.ndarray, np.ndarray]]] = []
    if (DATA / "orl_faces" / "orl_faces.npz").exists():
        faces = np.load(DATA / "orl_faces" / "orl_faces.npz", allow_pickle=False)
        pair = (faces["x"][:, ::2, ::2].astype(np.float32) / 255, faces["y"].astype(np.int64))
        found.append(("ORL faces, softmax", "softmax", "ssim", ENHANCED_FACES, pair))
    if (DATA / "mnist" / "mnist.npz").exists():
        digits = np.load(DATA / "mnist" / "mnist.npz", allow_pickle=False)
        pair = (digits["x_train"][:20000].astype(np.float32) / 255, digits["y_train"][:20000].astype(np.int64))
        found += [(f"MNIST, {kind}", kind, "euclidean", ENHANCED_DIGITS, pair) for kind in ("cnn", "mlp")]
    return found


def audit(repeats: int = 100) -> list[dict[str, Any]]:
    """Edge canaries at true epsilon 1, 4 and 8: the lower bounds, and how often they exceed the truth."""
    facts, results = PublicFacts(20_000, 1_000_000, 15_000), []
    for hops in (1, 2):
        for epsilon in (1.0, 4.0, 8.0):
            plan = GAP(hops=hops).plan(facts, EDGE, hg.Budget(epsilon, 1e-7))
            bounds = np.array([_edge_bound(plan, seed) for seed in range(repeats)])
            row = {"hops": hops, "epsilon": epsilon, "median": float(np.median(bounds)), "least": float(bounds.min())}
            row |= {"tenth": float(np.quantile(bounds, 0.1)), "above the truth": int((bounds > epsilon).sum())}
            print(f"audit: {row} of {repeats}", flush=True)
            results.append(row)
    paper = GAP(hops=2).plan(facts, hg.units.DirectedEdge(), hg.Budget(1.0, 1e-7), paper_mode=True)
    caught = [audit_plan(paper, seed=seed).verdict == "contradicted" for seed in range(10)]
    print(f"audit: paper mode on a symmetric graph caught in {sum(caught)} of {len(caught)}")
    return [*results, {"paper mode caught": sum(caught), "of": len(caught)}]


def _edge_bound(plan: Any, seed: int) -> float:
    from hushgraph.audit.bounds import gaussian_bound
    from hushgraph.audit.canaries import observe, plant
    from hushgraph.mechanisms.noise import NoiseSource

    planted = plant(plan.charged_unit, 10_000, np.random.default_rng(seed))
    return gaussian_bound(observe(plan, planted, NoiseSource.seeded(seed)), planted.planted, 1e-7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["links", "membership", "inversion", "audit"])
    parser.add_argument("--schools", nargs="*", default=["JohnsHopkins55", "Berkeley13"])
    parser.add_argument("--out", type=Path, default=Path("attacks.json"))
    chosen = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    found: dict[str, Any] = {"format": 1, "attacks": []}
    graphs = [name for name in chosen.schools if (DATA / "facebook100" / f"{name}.npz").exists()]
    print(f"graphs: {graphs or 'none found'} in {DATA}")
    for part in ("audit", "inversion", "links", "membership"):
        if part not in chosen.parts:
            continue
        if part == "audit":
            found["audit"] = audit()
        elif part == "inversion":
            found["attacks"] += inversion()
        else:
            for name in graphs:
                found["attacks"] += {"links": links, "membership": membership}[part](name)
        chosen.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
