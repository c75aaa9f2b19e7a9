"""The page about DP-APPR: tables and pictures of its two studies, noise beside that of its publication, t-SNE.

    hushgraph study run studies/dpappr-paper.yaml
    hushgraph study run studies/dpappr.yaml
    python benchmarks/dpappr.py [--stores studies] [--embeddings] [--write]

`--write` writes docs/results-dpappr.md and its pictures from the results there are, whichever version of the code they
are of; `--embeddings` trains six models and draws their embeddings. Data: the folder that HUSHGRAPH_DATA names.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import hushgraph as hg
from hushgraph.graph.checks import check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.dpappr import DPAPPR
from hushgraph.methods.dpappr_paper import row_scales
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.units import NodeWithEdges
from hushgraph.study.plots import draw
from hushgraph.study.results import Results, Row
from hushgraph.study.run import read_study
from hushgraph.study.stats import summarize
from hushgraph.study.store import Store
from hushgraph.study.views import View

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parent.parent
PAGE, PICTURES, PREFACE = ROOT / "docs" / "results-dpappr.md", ROOT / "docs" / "pictures", ROOT / "benchmarks"
DATASETS = ("cora_ml", "pubmed", "coauthor_cs")
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SIZES = {
    "cora_ml": (Metadata(2_995, 2_396, 0, 599, 256, 7), 70, 0.09, 2e-3),
    "pubmed": (Metadata(19_717, 15_774, 0, 3_943, 256, 3), 60, 0.01, 2e-4),
    "coauthor_cs": (Metadata(18_333, 14_666, 0, 3_667, 256, 15), 150, 0.03, 2e-4),
}
PUBLISHED = {
    "rows": 70,
    "sample": 0.09,
    "epochs": 200,
    "batch_size": 60,
    "lr": 0.005,
    "own_weight": 0.0,
    "pagerank_share": 0.5,
    "activation": "relu",
}


def read(name: str, stores: Path) -> Results:
    """The results of one study."""
    return Results(read_study(ROOT / "studies" / f"{name}.yaml", {}), Store(stores / f"{name}.sqlite"), any_code=True)


def shown(rows: list[Row], metric: str) -> str:
    """The mean, with half of its 95% interval where there are several seeds."""
    found = summarize([row.metrics[metric] for row in rows if row.metrics.get(metric) is not None])
    if found is None:
        return "not run"
    return f"{found.mean:.1f}" + ("" if found.half_width is None else f" ± {found.half_width:.1f}")


def accuracy_table(results: Results, dataset: str, metric: str = "test_accuracy") -> list[str]:
    """One line per variant and K; one column per epsilon."""
    lines = ["| variant | K | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " | seeds |", "| --- " * 7 + "|"]
    mine = [row for row in results.rows if str(row.cell.axis("dataset")) == dataset]
    main = [row for row in mine if row.cell.part in (dataset, f"dpsgd, {dataset}")]
    names = list(dict.fromkeys(str(row.cell.axis("method")) for row in main))
    for name in names:
        for top in (4, 16):
            of = [row for row in main if row.cell.axis("method") == name and row.cell.axis("top") == top]
            if of:
                cells = [shown([row for row in of if row.cell.epsilon == e], metric) for e in EPSILONS]
                seeds = len({row.cell.seed for row in of})
                lines.append(f"| {name} | {top} | {' | '.join(cells)} | {seeds} |")
    for row in _without_privacy(mine, metric):
        lines.append(row)
    return lines if len(lines) > 2 else ["No runs yet."]


def _without_privacy(rows: list[Row], metric: str) -> list[str]:
    lines = []
    for top in (4, 16):
        of = [row for row in rows if row.cell.part.startswith("vanilla") and row.cell.axis("top") == top]
        if of:
            lines.append(f"| vanilla (no privacy) | {top} | {shown(of, metric)} | | | | {len(of)} |")
    return lines


def sweep_table(results: Results, part: str, axis: str) -> list[str]:
    """One line per variant, one column per value of one setting; accuracy at epsilon 8."""
    rows = [row for row in results.rows if row.cell.part == part]
    values = sorted({row.cell.axis(axis) for row in rows})
    if not values:
        return ["No runs yet."]
    lines = [f"| variant | {' | '.join(f'{axis} {value:g}' for value in values)} |", "| --- " * (len(values) + 1) + "|"]
    for name in dict.fromkeys(str(row.cell.axis("method")) for row in rows):
        of = [row for row in rows if row.cell.axis("method") == name]
        cells = [shown([row for row in of if row.cell.axis(axis) == value], "test_accuracy") for value in values]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def split_table(results: Results) -> list[str]:
    """Epsilon of DP-SGD at 4, that of the rows in the columns."""
    parts = {1: ("split 1 + 4", 5.0), 2: ("split 2 + 4", 6.0), 4: ("cora_ml", 8.0), 8: ("split 8 + 4", 12.0)}
    lines = ["| variant | K | " + " | ".join(f"rows {e}" for e in parts) + " |", "| --- " * 6 + "|"]
    for name in ("gm", "em-v0", "em-v1"):
        for top in (4, 16):
            cells = []
            for part, epsilon in parts.values():
                wanted = {"part": part, "epsilon": epsilon, "method": name, "top": top}
                cells.append(shown(results.where(wanted), "test_accuracy"))
            lines.append(f"| {name} | {top} | {' | '.join(cells)} |")
    return lines


def degree_table(results: Results, dataset: str) -> list[str]:
    """RMSE of guessed degrees beside accuracy, K = 4."""
    head = [f"epsilon {e:g}: RMSE | accuracy" for e in EPSILONS]
    lines = ["| variant | " + " | ".join(head) + " |", "| --- " * 9 + "|"]
    for name in ("gm", "em-v0", "em-v1", "features", "random", "dpsgd"):
        cells = []
        for epsilon in EPSILONS:
            rows = results.where({"part": dataset, "method": name, "top": 4, "epsilon": epsilon})
            cells += [shown(rows, "degree_rmse"), shown(rows, "test_accuracy")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    everyone = results.where({"part": dataset, "top": 4})
    return [*lines, "", f"Guessing the mean degree: {shown(everyone, 'degree_rmse_of_the_mean')}."]


def noise_table() -> list[str]:
    """Noise of one entry over C1 for epsilon 4 of the rows alone, as published (without and with q') and as proved."""
    head = [
        "graph",
        "rows M",
        "delta of the rows",
        "published",
        "proved",
        "ratio",
        "published, epsilon / q'",
        "proved for that",
    ]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    unit = NodeWithEdges()
    for name, (metadata, count, rate, delta) in SIZES.items():
        method = DPAPPR(variant="gm", rows=count, pagerank_share=0.5)
        (theirs,), (sampled,) = (row_scales(method, metadata, 4.0 / q, 0.5 * delta) for q in (1.0, rate))
        (ours,) = method._within_share(method.row_stages(metadata), unit, hg.Budget(8.0, delta))
        proved = PrivacyLoss(sampled.event(unit), unit.relation).epsilon(0.5 * delta)
        noises = [f"{stage.scale / method.row_bound:.2f}" for stage in (theirs, ours, sampled)]
        ratio = f"{theirs.scale / ours.scale:.1f}"
        cells = [name, str(count), f"{0.5 * delta:g}", *noises[:2], ratio, noises[2], f"epsilon {proved:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


# Pictures


def pictures(paper: Results, honest: Results) -> dict[str, str]:
    """Every figure that has results, as name and what it shows."""
    wanted: list[tuple[str, str, Results, dict[str, object]]] = []
    for number, dataset in enumerate(DATASETS, 1):
        where = {"part": dataset}
        wanted.append((f"fig-5-{number}", f"accuracy against epsilon, {dataset}, paper mode", paper, {"where": where}))
        wanted.append((f"proved-{dataset}", f"accuracy against epsilon, {dataset}, proved", honest, {"where": where}))
    for number, dataset in ((4, "cora_ml"), (5, "pubmed")):
        where = {"part": dataset, "top": 4}
        view = {"where": where, "value": "degree_rmse"}
        wanted.append((f"fig-5-{number}", f"error of guessed degrees, {dataset}, paper mode", paper, view))
    sweeps = (("8", "batch", "batch_size"), ("10-C1", "C1", "row_bound"), ("10-C2", "C2", "entry_bound"))
    for name, part, axis in (*sweeps, ("12", "C", "max_grad_norm")):
        view = {"where": {"part": part}, "x": axis, "series": "method"}
        wanted.append((f"fig-5-{name}", f"accuracy against {axis} at epsilon 8, cora_ml, paper mode", paper, view))
    drawn = {}
    for name, words, results, view in wanted:
        if results.where(dict(view["where"])):  # type: ignore[call-overload]
            options = {"value": "test_accuracy", "x": "epsilon", "series": "method", **view}
            draw(results, View(words, "lines", **options), PICTURES / f"dpappr-{name}.svg")  # type: ignore[arg-type]
            drawn[name] = words
    return drawn


def embeddings() -> None:
    """Figs 5.6-5.7: t-SNE of the training nodes' embeddings, colored by class. Not private: evaluation."""
    from matplotlib import pyplot
    from sklearn.manifold import TSNE

    data = hg.datasets.load("cora_ml/cora_ml", split=[0.80, 0.0, 0.20], project=256)
    graph = check_graph(data)
    figure, axes = pyplot.subplots(2, 3, figsize=(10, 6.5), layout="constrained")
    for line, variant in zip(axes, ("gm", "em-v1"), strict=True):
        for place, epsilon in zip(line, (1.0, 8.0, 64.0), strict=True):
            method = DPAPPR(variant=variant, **PUBLISHED)
            options = {"ledger": Ledger.in_memory(warn=False), "seed": 0, "paper_mode": True}
            model = method.fit(data, NodeWithEdges(), hg.Budget(epsilon, 2e-3), **options)
            nodes = graph.train[torch.randperm(graph.train.numel(), generator=torch.Generator().manual_seed(0))[:600]]
            with torch.no_grad():
                rows = model.network.scorer.layers[:-1](graph.features[nodes]).numpy()
            flat = TSNE(random_state=0, init="pca").fit_transform(rows.astype(np.float64))
            place.scatter(flat[:, 0], flat[:, 1], c=graph.labels[nodes], s=5, cmap="tab10")
            place.set(title=f"{variant}, claimed epsilon {epsilon:g}", xticks=[], yticks=[])
    figure.suptitle("600 training nodes of cora_ml, paper mode. Not private: evaluation")
    figure.savefig(PICTURES / "dpappr-fig-5-6.svg", metadata={"Date": None})


def page(paper: Results, honest: Results) -> str:
    """The whole page."""
    text = (PREFACE / "dpappr.md.in").read_text()
    parts = {"NOISE": noise_table(), "SPLIT": split_table(paper), "DEGREES": degree_table(paper, "cora_ml")}
    parts["DEGREES_PUBMED"] = degree_table(paper, "pubmed")
    for dataset in DATASETS:
        parts[f"PAPER_{dataset}"] = accuracy_table(paper, dataset)
        parts[f"PROVED_{dataset}"] = accuracy_table(honest, dataset)
        parts[f"OWN_{dataset}"] = accuracy_table(honest, dataset, "own_accuracy")
    for part, axis in (("batch", "batch_size"), ("C1", "row_bound"), ("C2", "entry_bound"), ("C", "max_grad_norm")):
        parts[f"SWEEP_{part}"] = sweep_table(paper, part, axis)
    for part, axis in (("support", "max_support"), ("share", "pagerank_share"), ("few rows", "rows")):
        parts[f"SWEEP_{part}"] = sweep_table(honest, part, axis)
    drawn = pictures(paper, honest)
    if (PICTURES / "dpappr-fig-5-6.svg").exists():
        drawn["fig-5-6"] = "t-SNE of embeddings, cora_ml, paper mode; not private: evaluation"
    parts["PICTURES"] = [f"![{words}](pictures/dpappr-{name}.svg)\n" for name, words in sorted(drawn.items())]
    for name, lines in parts.items():
        text = text.replace("{" + name + "}", "\n".join(lines))
    return text


def main() -> None:
    """Draw embeddings, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", type=Path, default=ROOT / "studies", help="the folder of the studies' results")
    parser.add_argument("--embeddings", action="store_true", help="train six models and draw their embeddings")
    parser.add_argument("--write", action="store_true", help="write the page from the results there are")
    options = parser.parse_args()
    if options.embeddings:
        embeddings()
    text = page(read("dpappr-paper", options.stores), read("dpappr", options.stores))
    if options.write:
        PAGE.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
