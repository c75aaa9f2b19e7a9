"""docs/results-class-dp.md, with its curves, from the cells that benchmarks/moments.py and class_dp.py wrote."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import class_dp
import moments
from cells import Cell, Cells, mean, table
from pictures import PICTURES

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "results-class-dp.md"
THESIS = {1.6: (18.6, 96), 3.0: (8.2, 93), 3.65: (7.0, 91)}
THESIS_FACES = {0.8: (62, 99.5), 1.2: (45.5, 99.2), 1.6: (40.5, 99)}
CLOSE = {"subclass": 2.5, "class": 5.0}
"""Accuracies that differ by at most so many points are matched; 120 faces test, with a standard error of 4.5 points."""


def main() -> None:
    """Fill the tables into the text; a table whose cells are missing says so."""
    one, groups = Cells(moments.RESULTS), Cells(class_dp.RESULTS)
    parts = {
        "moments": _moments(one),
        "accuracy": _accuracy(groups),
        "parts": _parts(groups),
        "digits-filters": _inversion(groups, "digits-filters", "subclass"),
        "digits-softmax": _inversion(groups, "digits-softmax", "subclass"),
        "faces": _inversion(groups, "faces-softmax", "class"),
        "published-faces": _published_faces(groups),
    }
    text = (HERE / "class_dp.md.in").read_text()
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part or "(not measured)")
    PAGE.write_text(text)
    print(f"wrote {PAGE}")


def _moments(cells: Cells) -> str:
    rows = []
    for epsilon in moments.EPSILONS:
        found = [
            mean(cells.where(data=name, split=split, epsilon=epsilon), "accuracy")
            for name, split in (("fashion_mnist", "first"), ("fashion_mnist", "second"), ("mnist", "second"))
        ]
        if set(found) != {"-"}:
            rows.append([f"{epsilon:g}", *found])
    head = ["epsilon", "Fashion-MNIST, split first", "Fashion-MNIST, split second", "MNIST, split second"]
    seconds = fmean(cell["seconds"] for cell in cells.done.values()) if cells.done else 0.0
    return f"{table(head, rows)}\n\nA run takes {seconds:.0f} CPU seconds on one core." if rows else ""


def _accuracy(cells: Cells) -> str:
    rows = []
    for noise, steps in class_dp.NOISE_AND_STEPS:
        by_rule = {
            rule: [cell for cell in cells.done.values() if cell["key"].startswith(f"accuracy-{rule}-{noise}-")]
            for rule in ("spread", "nearest")
        }
        first = [*by_rule["spread"], *by_rule["nearest"]][:1]
        if first:
            claimed, reached = THESIS[noise]
            found = [mean(by_rule[rule], "accuracy") for rule in by_rule]
            rows.append([noise, steps, f"{first[0]['epsilon']:.2f}", claimed, *found, reached])
    head = ["noise", "steps", "epsilon", "thesis's epsilon", "spread", "nearest", "thesis's accuracy"]
    return table(head, rows) if rows else ""


def _parts(cells: Cells) -> str:
    found = [cell for cell in cells.done.values() if cell["key"].startswith("parts-")]
    rows = [
        [cell["parts"], 10 * cell["parts"], f"{cell['epsilon']:.2f}", f"{cell['accuracy']:.1f}"]
        for cell in sorted(found, key=lambda cell: int(cell["parts"]))
    ]
    return table(["parts of a digit", "groups", "epsilon", "accuracy"], rows) if rows else ""


def _inversion(cells: Cells, study: str, unit: str) -> str:
    models = [cell for cell in cells.done.values() if cell["key"].startswith(f"{study}-")]
    models = [cell for cell in models if "published" not in cell["key"]]
    vanilla, grouped, records = (_of(models, name) for name in ("none", unit, "record"))
    if not (vanilla and grouped and records):
        return ""
    measure = "1 - SSIM" if "faces" in study else "Euclidean distance"
    head = ["protected", "noise", "epsilon", "accuracy", f"mean distance ({measure})"]
    rows = [_row(found) for found in (vanilla, *_by_noise(grouped), *_by_noise(records))]
    for black in cells.where(key=f"{study.split('-')[0]}-black"):
        rows.append(["a black picture", "-", "-", "-", mean([black], "distance", 3)])
    pairs = _pairs(_by_noise(grouped), _by_noise(records), CLOSE[unit])
    parts = [table(head, rows) + "\n", _seen(pairs, vanilla, unit), _classes(pairs, vanilla, unit)]
    return "\n".join([*parts, _curves(study, unit, grouped, records), _strips(study, unit, vanilla, pairs)])


def _of(models: list[Cell], unit: str) -> list[Cell]:
    return [cell for cell in models if cell["unit"] == unit]


def _by_noise(models: list[Cell]) -> list[list[Cell]]:
    """Cells that differ in the seed alone, by noise."""
    levels = sorted({cell["noise"] for cell in models})
    return [[cell for cell in models if cell["noise"] == level] for level in levels]


def _row(found: list[Cell]) -> list[object]:
    first = found[0]
    epsilon = "-" if first["epsilon"] is None else f"{first['epsilon']:.3g}"
    name = {"none": "nothing (vanilla)"}.get(first["unit"], first["unit"])
    noise = f"{first['noise']:g}" if first["noise"] else "-"
    return [name, noise, epsilon, mean(found, "accuracy"), mean(found, "distance", 3)]


Pair = tuple[list[Cell], list[Cell]]


def _pairs(grouped: list[list[Cell]], records: list[list[Cell]], close: float) -> list[Pair]:
    """For every level of group protection the record-DP model of the nearest accuracy, if it is near."""

    def level(found: list[Cell]) -> float:
        return fmean(cell["accuracy"] for cell in found)

    nearest = [(one, min(records, key=lambda other: abs(level(other) - level(one)))) for one in grouped]
    return [(one, other) for one, other in nearest if abs(level(one) - level(other)) <= close]


def _seen(pairs: list[Pair], vanilla: list[Cell], unit: str) -> str:
    """What the figures say, in words that follow from them."""
    if not pairs:
        return f"No two models are within {CLOSE[unit]:g} points of accuracy of each other.\n"
    further = sum(_distance(one) > _distance(other) for one, other in pairs)
    gaps = [_distance(one) - _distance(other) for one, other in pairs]
    plain = _distance(vanilla)
    over = sum(_distance(one) > plain for one, _ in pairs), sum(_distance(other) > plain for _, other in pairs)
    count, average = len(pairs), f"{fmean(gaps):+.3f} on average (from {min(gaps):+.3f} to {max(gaps):+.3f})"
    return (
        f"Matched accuracy (within {CLOSE[unit]:g} points): {count} pairs. The reconstruction from the {unit}-DP\n"
        f"model is further away than that from the record-DP model in {further} of {count}, by {average}.\n"
        f"It is further away than that from the vanilla model in {over[0]} of {count} for {unit}-DP, and\n"
        f"in {over[1]} of {count} for record-DP.\n"
    )


def _distance(found: list[Cell]) -> float:
    return fmean(cell["distance"] for cell in found)


def _classes(pairs: list[Pair], vanilla: list[Cell], unit: str) -> str:
    """Distance by class, for the first ten, at every matched level."""
    rows = [["vanilla", mean(vanilla, "accuracy"), *_ten(vanilla)]]
    for one, other in pairs:
        rows += [
            [f"{unit}-DP", mean(one, "accuracy"), *_ten(one)],
            ["record-DP", mean(other, "accuracy"), *_ten(other)],
        ]
    return "Distance by class:\n\n" + table(["model", "accuracy", *map(str, range(10))], rows) + "\n"


def _ten(found: list[Cell]) -> list[str]:
    return [f"{fmean(cell['distances'][label] for cell in found):.2f}" for label in range(10)]


def _curves(study: str, unit: str, grouped: list[Cell], records: list[Cell]) -> str:
    """Epsilon against accuracy and against distance, as one picture."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for place, value in zip(axes, ("accuracy", "distance")):
        for name, models in ((unit, grouped), ("record", records)):
            points = sorted((found[0]["epsilon"], fmean(c[value] for c in found)) for found in _by_noise(models))
            place.plot(*zip(*points), marker="o", label=f"{name}-DP")
        place.set(xscale="log", xlabel="epsilon, each of its own unit", ylabel=value)
        place.legend()
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / f"{study}-curves.svg", metadata={"Date": None})
    pyplot.close(figure)
    return f"![epsilon against accuracy and distance](pictures/{study}-curves.svg)\n"


def _strips(study: str, unit: str, vanilla: list[Cell], pairs: list[Pair]) -> str:
    """Reconstructions side by side."""
    shown = [("vanilla", vanilla)]
    for one, other in pairs:
        shown += [(f"{unit}-DP", one), ("record-DP", other)]
    rows = [
        [name, mean(found, "accuracy"), f"![reconstructions](pictures/{found[0]['key']}.png)"]
        for name, found in shown
        if (PICTURES / f"{found[0]['key']}.png").exists()
    ]
    return table(["model", "accuracy", "reconstructions of classes 0 to 9"], rows) + "\n" if rows else ""


def _published_faces(cells: Cells) -> str:
    found = [cell for cell in cells.done.values() if "published" in cell["key"]]
    rows = [
        [
            f"{f[0]['noise']:g}",
            f[0]["steps"],
            f"{f[0]['epsilon']:.1f}",
            mean(f, "accuracy"),
            *THESIS_FACES[f[0]["noise"]],
        ]
        for f in _by_noise(found)
    ]
    head = ["noise", "steps", "epsilon", "accuracy", "thesis's epsilon", "thesis's accuracy (Faces94)"]
    return table(head, rows) if rows else ""


if __name__ == "__main__":
    main()
