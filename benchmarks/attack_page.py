"""docs/results-attacks.md, written from the rows that benchmarks/attacks.py keeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Table = list[list[str]]
BEFORE_VERSIONS = "0.1.0"  # of rows that do not say
HEAD = """# What attacks achieve

Written by `python benchmarks/attacks.py`, from the rows in benchmarks/results/attacks.json. What each attack assumes,
and what a failed one does not prove, is in [threats.md](threats.md). AUC 0.5 is guessing; intervals are 95% for the
sample of guesses, not for the training of the model (one model each). Seconds of CPU were taken on a busy machine.
"""
LINKS = """
## Links, degrees, features and an attribute

A GCN without privacy and GAP at edge epsilon 1 (delta 1e-7), all nodes of the graph. LinkTeller asks about more than
5,000 pairs of which half are connected; against GAP every query is a new private inference with fresh noise, and
`cached` is what happens when the published rows answer instead. Degrees are judged by the root-mean-square error
beside that of guessing the mean, features by the share of variance explained; half of the nodes are known to the
attacker. Gender is a feature that both models read: an edge unit does not protect it.
"""
MEMBERSHIP = """
## Membership

A fifth of the nodes are members. The first two targets are made to overfit, so that there is something to find.
"""
INVERSION = """
## Model inversion

Distance of a class: from its reconstruction, clipped to [0, 1], to the nearest training image of the class. The
original attack has the settings of its paper; those of the enhanced one were chosen on the digit CNN with a model
seed that is not among these. `closer` counts classes in which the enhanced attack has the smaller distance; `closer if
not clipped` compares as the papers do, with the original's pixels as they come, in the measure usual for the data
(Euclidean for digits, 1 - SSIM for faces). `black` and `mean` are what a black picture and the mean of the class's own
images would score: these distances reward faint pictures, so compare with those columns and look at the pictures.
"""


def write_page(rows: dict[str, Row], root: Path) -> None:
    """Write the page; parts without rows say so."""
    versions = sorted({row.get("version", BEFORE_VERSIONS) for row in rows.values()})
    parts = [
        HEAD,
        f"\nMeasured with version {' and '.join(versions)}.\n",
        _graph_part(rows, "links", LINKS, _link_cells),
        _graph_part(rows, "membership", MEMBERSHIP, _member_cells),
    ]
    parts += [_inversion_part(rows, root)]
    page = root / "docs" / "results-attacks.md"
    page.write_text("".join(parts))
    print(f"wrote {page.name}: {len(rows)} rows")


def _graph_part(rows: dict[str, Row], part: str, words: str, cells: Any) -> str:
    found = [(key.split("|"), row) for key, row in rows.items() if key.startswith(part + "|")]
    body = [[graph, target, attack, *cells(row)] for (_, graph, target, attack), row in found]
    head = ["graph", "target", "attack", "AUC", "TPR at 1% FPR", "TPR at 0.1% FPR", "balanced", *EXTRA[part], "CPU s"]
    return words + table(head, sorted(body))


EXTRA = {"links": ["test accuracy", "other figures"], "membership": ["accuracy on members", "on others"]}


def _link_cells(row: Row) -> list[str]:
    return [*_common(row), f"{row['accuracy']['test']:.1f}", _other(row["details"]), f"{row['cpu_seconds']:.1f}"]


def _member_cells(row: Row) -> list[str]:
    rates = [f"{row['accuracy'][name]:.1f}" for name in ("members", "others")]
    return [*_common(row), *rates, f"{row['cpu_seconds']:.0f}"]


def _common(row: Row) -> list[str]:
    auc = f"{row['auc']:.3f} [{row['auc_low']:.3f}, {row['auc_high']:.3f}]"
    return [auc, *[_rate(row["tpr_at"].get(key)) for key in ("0.01", "0.001")], f"{row['balanced_accuracy']:.3f}"]


def _rate(rate: Row | None) -> str:
    return (
        "too few" if rate is None else f"{100 * rate['value']:.2f} [{100 * rate['low']:.2f}, {100 * rate['high']:.2f}]"
    )


def _other(details: Row) -> str:
    if "rmse" in details:
        return f"RMSE {details['rmse']:.1f}, mean {details['rmse of guessing the mean']:.1f}"
    if "explained_variance" in details:
        return f"explains {100 * details['explained_variance']:.1f}%"
    if "share" in details:
        return f"{100 * details['share']:.1f}% have it"
    if details.get("queries"):
        total = details.get("epsilon of all queries together")
        return f"{details['queries']} queries" + (f", epsilon {total:.3g} together" if total else "")
    return ""


def _inversion_part(rows: dict[str, Row], root: Path) -> str:
    found = [(key.split("|"), row) for key, row in sorted(rows.items()) if key.startswith("inversion|")]
    names = ("original", "enhanced", "training mean", "a black picture")
    body = [[data, kind, seed, *_inversion_cells(row, names)] for (_, data, kind, seed), row in found]
    head = ["data", "model", "seed", "train accuracy", "closer if not clipped"]
    for word in ("Euclidean", "1 - SSIM"):
        head += [f"{word}: closer", "original", "enhanced", "mean", "black"]
    parts = [INVERSION, table([*head, "CPU s"], body)]
    parts += [_by_class(data, kind, seed, row) for (_, data, kind, seed), row in found if data == "MNIST"]
    return "".join([*parts, *_pictures(found, root)])


def _inversion_cells(row: Row, names: Sequence[str]) -> Iterable[str]:
    yield f"{row['figures']['train accuracy']:.1f}"
    yield _closer(row["distances before clipping"]) if "distances before clipping" in row else "not kept"
    for by_name in row["distances"].values():
        yield _closer(by_name)
        yield from (f"{sum(by_name[name]) / len(by_name[name]):.2f}" for name in names)
    yield f"{row['attack_seconds']:.0f}"


def _closer(by_name: Row) -> str:
    hits = [a < b for a, b in zip(by_name["enhanced"], by_name["original"], strict=True)]
    return f"{sum(hits)} of {len(hits)}"


def _by_class(data: str, kind: str, seed: str, row: Row) -> str:
    classes = range(len(row["confidence"]["original"]))
    body = [
        [f"{name}, {word}", *[f"{value:.2f}" for value in row["distances"][metric][name]]]
        for metric, word in (("euclidean", "Euclidean"), ("ssim", "1 - SSIM"))
        for name in ("original", "enhanced", "a black picture")
    ]
    body += [
        [f"{name}, confidence", *[f"{p:.2f}" for p in row["confidence"][name]]] for name in ("original", "enhanced")
    ]
    return f"\n### {data}, {kind}, model seed {seed}, by class\n" + table(["", *[str(c) for c in classes]], body)


def _pictures(found: Sequence[Any], root: Path) -> Iterable[str]:
    kinds = dict.fromkeys((data, kind) for (_, data, kind, _), _ in found)
    for data, kind in kinds:
        name = f"{data}-{kind}".replace(" ", "-").lower()
        strips = [
            (row, root / "docs" / "pictures" / f"{name}-{row}.png") for row in ("training-mean", "original", "enhanced")
        ]
        if all(path.exists() for _, path in strips):
            shown = "\n\n".join(f"{row}:\n![{data}, {kind}, {row}](pictures/{path.name})" for row, path in strips)
            yield f"\n### {data}, {kind}: the first ten classes\n\n{shown}\n"


def table(head: Sequence[str], body: Table) -> str:
    """A Markdown table, or a line that says there is nothing yet."""
    if not body:
        return "\nNot run yet.\n"
    lines = ["| " + " | ".join(cells) + " |" for cells in [list(head), ["---"] * len(head), *body]]
    return "\n" + "\n".join(lines) + "\n"
