"""The sections of a report, each a function from what was read to HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hushgraph.privacy.adaptive import WorstOf
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.report import html
from hushgraph.report.checklists import Row
from hushgraph.report.record import RunRecord, StagePrice
from hushgraph.report.svg import Axis, Bar, Series, bar_chart, line_chart
from hushgraph.text import rounded_up

PROVES_NOTHING = (
    "An attack that fails proves nothing: a better one may exist. The guarantee is the certificate, not this section."
)


def claim(record: RunRecord, loss: PrivacyLoss | WorstOf | None) -> str:
    """The claim in one sentence, with what it means for one person."""
    certificate = record.certificate
    big = (
        f'<div class="big"><div class="number">{html.text(_short(record.epsilon))}</div>'
        f'<div class="unit">epsilon at delta {html.text(f"{record.delta:g}")}<br>'
        f"per {html.text(record.unit.name)}</div></div>"
    )
    words = f"<blockquote>{html.text(certificate['sentence'])}</blockquote>{_state(record)}"
    parts = [f'<div class="claim">{big}<div>{words}</div></div>', _paper_banner(certificate)]
    if loss is not None:
        parts += [_tiles(record, loss), _delta_slider(record, loss)]
    return html.section("claim", "The claim", *parts)


def budget(record: RunRecord, prices: Sequence[StagePrice]) -> str:
    """Where the privacy loss comes from."""
    if not prices:
        lines = html.bullets(record.certificate["released"])
        return html.section("budget", "Budget by stage", lines, lead="What was released, as the certificate lists it.")
    bars = [Bar(p.name, p.epsilon_alone, _stage_tip(p), number) for number, p in enumerate(prices)]
    rows = [
        [
            html.text(price.name),
            html.text(price.mechanism),
            f"{price.count}",
            _known(price.std if price.std > 0.0 else math.inf),
            _known(price.sensitivity),
            f"{price.epsilon_alone:.4g}",
        ]
        for price in prices
    ]
    head = ["stage", "mechanism", "releases", "noise std", "sensitivity", "epsilon alone"]
    return html.section(
        "budget",
        "Budget by stage",
        bar_chart(
            bars, title="Epsilon of each stage, if it were the only one", label=f"epsilon at delta {record.delta:g}"
        ),
        html.table(head, rows, numeric=(2, 3, 4, 5)),
        lead=f"Together the stages cost epsilon {rounded_up(record.epsilon)}."
        + (
            " Stages compose better than they add, so the bars sum to more than the total."
            if _adds_to_more(record, prices)
            else ""
        ),
    )


def attacks(record: RunRecord, found: Sequence[dict[str, Any]], limits: Sequence[tuple[float, float]]) -> str:
    """What attacks achieved, with their curves at low false-positive rates."""
    if not found:
        nothing = html.paragraph("No attack was run against this model (hushgraph attack).")
        return html.section("attacks", "Attacks", nothing, html.paragraph(PROVES_NOTHING, "note"))
    pictures = "".join(_pictures(one) for one in found)
    scored = [one for one in found if one.get("roc")]
    head = ["attack", "target", "AUC", "TPR at 1% FPR", "TPR at 0.1% FPR", "balanced accuracy"]
    rows = [_attack_row(one) for one in scored]
    parts = [_roc(record, scored, limits), html.table(head, rows, numeric=(2, 3, 4, 5))] if scored else []
    parts += [_other_figures(one) + _by_class(one) for one in found if not one.get("roc")]
    return html.section(
        "attacks", "Attacks", *parts, pictures, _assumptions(found), html.paragraph(PROVES_NOTHING, "note")
    )


def promises(record: RunRecord) -> str:
    """What is protected, what is not, and what was taken as public."""
    certificate = record.certificate
    columns = (
        f"<div><h3>Protected</h3>{html.bullets([record.unit.protects])}</div>"
        f"<div><h3>Not protected</h3>{html.bullets(certificate['not_protected'])}</div>"
        f"<div><h3>Taken as public</h3>{html.bullets(certificate['public'])}</div>"
    )
    return html.section(
        "scope",
        "What is protected, and what is not",
        f'<div class="columns">{columns}</div>',
        html.paragraph(
            "Correlations are not hidden: what can be learned about somebody from other people's data can still be "
            "learned. The guarantee is about the difference that the named unit makes.",
            "note",
        ),
    )


def checklist(identity: str, title: str, rows: Sequence[Row], lead: str) -> str:
    """A check list with a state for every line."""
    body = [[html.text(row.name), html.state_pill(row.state), html.text(row.words)] for row in rows]
    return html.section(identity, title, html.table(["item", "state", "in this run"], body), lead=lead)


def provenance(record: RunRecord, ledger_words: str, written: str) -> str:
    """Where the numbers come from."""
    certificate = record.certificate
    facts = record.public_facts()
    parameters = ", ".join(f"{key}={value}" for key, value in record.config.get("parameters", {}).items())
    rows = [
        ("ledger fingerprint", f'<span class="hash">{html.text(certificate["ledger_hash"])}</span>'),
        ("ledger", html.text(ledger_words)),
        ("run", f'<span class="hash">{html.text(certificate["run"])}</span>'),
        ("method", f"{html.text(record.method)} <span class='note'>({html.text(parameters)})</span>"),
        ("accountant", html.text(certificate["accountant"])),
        ("noise", html.text(certificate["noise_source"])),
        ("public sizes", html.text(_sizes(facts))),
        ("versions", html.text(", ".join(f"{name} {value}" for name, value in certificate["versions"].items()))),
        ("report written", html.text(written)),
    ]
    return html.section("provenance", "Provenance", html.table(["", ""], rows))


# Parts


def _short(value: float) -> str:
    return "∞" if math.isinf(value) else rounded_up(value, 4)


def _state(record: RunRecord) -> str:
    if math.isinf(record.epsilon):
        return html.pill("no guarantee", "bad")
    if "seeded" in record.certificate["noise_source"]:
        return html.pill("seeded run: not private", "bad")
    if record.epsilon == 0.0:
        return html.pill("does not read what is protected", "good")
    return html.pill("proved from the ledger", "good") + " " + html.pill(record.certificate["accountant"], "plain")


def _paper_banner(certificate: dict[str, Any]) -> str:
    claimed = certificate.get("claimed")
    if not claimed:
        return ""
    return html.banner(
        f"Paper mode: the publication would claim epsilon {float(claimed['epsilon']):.4g} for the unit "
        f"'{claimed['unit']['name']}'. What can be proved for the honest unit is "
        f"{html.number(float(certificate['epsilon']))}.",
        "warn",
    )


def _tiles(record: RunRecord, loss: PrivacyLoss | WorstOf) -> str:
    best_guess = 0.5 * (1.0 + loss.delta(0.0))
    limit = record.certificate["dataset_limit"]
    total = float(record.certificate["dataset_epsilon"])
    tiles = [
        html.tile(
            "best possible guess",
            f"{100 * best_guess:.1f}%",
            "how often anyone can be right about one unit, present or not, when both are equally likely (50%: chance)",
        ),
        html.tile(
            "spent on this dataset",
            html.number(total),
            f"epsilon over {record.certificate['dataset_runs']} run(s); "
            + ("no limit declared" if limit is None else f"limit {limit['epsilon']:g}"),
        ),
    ]
    if record.accuracy() is not None:
        tiles.append(html.tile("test accuracy", f"{record.accuracy():.1f}%", "not private: evaluation"))
    if record.certificate.get("mu") is not None:
        tiles.append(
            html.tile("Gaussian DP", f"μ = {float(record.certificate['mu']):.3g}", "the whole trade-off in one number")
        )
    return f'<div class="facts">{"".join(tiles)}</div>'


def _delta_slider(record: RunRecord, loss: PrivacyLoss | WorstOf) -> str:
    exponents = sorted({-e for e in range(3, 13)} | {math.log10(record.delta)}, reverse=True)
    curve = [(f"{10**e:.3g}", rounded_up(max(loss.epsilon(10**e), 0.0))) for e in exponents]
    here = exponents.index(math.log10(record.delta))
    return (
        '<div class="slider"><label for="delta">Read epsilon at another delta</label>'
        f'<input type="range" id="delta" min="0" max="{len(curve) - 1}" step="1" value="{here}">'
        f'<output id="delta-words" for="delta">epsilon {curve[here][1]} at delta {curve[here][0]}</output></div>'
        + html.data_island("delta-curve", curve)
    )


def _adds_to_more(record: RunRecord, prices: Sequence[StagePrice]) -> bool:
    return sum(price.epsilon_alone for price in prices) > 1.01 * record.epsilon


def _known(value: float) -> str:
    """A number, or a dash where there is none: reports of randomizers have neither noise scale nor sensitivity."""
    return f"{value:.4g}" if math.isfinite(value) else "—"


def _stage_tip(price: StagePrice) -> str:
    words = f"{price.name}: {price.count} x {price.mechanism}\n"
    if math.isfinite(price.sensitivity):
        words += f"noise std {price.std:.4g}, sensitivity {price.sensitivity:.4g}\n"
    return f"{words}epsilon alone {price.epsilon_alone:.4g}"


def _attack_row(one: dict[str, Any]) -> list[str]:
    rates = [one["tpr_at"].get(rate) for rate in ("0.01", "0.001")]
    auc = f"{one['auc']:.3f} <br><span class='note'>[{one['auc_low']:.3f}, {one['auc_high']:.3f}]</span>"
    return [
        html.text(one["name"]),
        html.text(one["target"]),
        auc,
        *[_rate(value) for value in rates],
        f"{one['balanced_accuracy']:.3f}",
    ]


def _rate(value: dict[str, float] | None) -> str:
    if value is None:
        return "too few"
    interval = f"[{100 * value['low']:.2f}, {100 * value['high']:.2f}]"
    return f"{100 * value['value']:.2f}%<br><span class='note'>{interval}</span>"


def _roc(record: RunRecord, found: Sequence[dict[str, Any]], limits: Sequence[tuple[float, float]]) -> str:
    series = []
    for number, one in enumerate(found):
        pairs = [(x, y) for x, y in zip(one["roc"]["fpr"], one["roc"]["tpr"]) if x > 0 and y > 0]
        label = f"{one['name']} on {one['target']}"
        tips = [f"{label}\nFPR {100 * x:.3g}%, TPR {100 * y:.3g}%" for x, y in pairs]
        series.append(Series(label, [x for x, _ in pairs], [y for _, y in pairs], number, tips=tips))
    chance = [1e-4, 1.0]
    series.append(Series("guessing", chance, chance, 6, dashed=True))
    if limits:
        label = f"most that the guarantee allows about one {record.unit.name}"
        series.append(Series(label, [x for x, _ in limits], [y for _, y in limits], 5, dashed=True))
    across = Axis("false-positive rate (logarithmic)", 1e-4, 1.0, log=True, percent=True)
    up = Axis("true-positive rate (logarithmic)", 1e-4, 1.0, log=True, percent=True)
    return line_chart(across, up, series, title="Attack curves at low false-positive rates", height=440)


def _other_figures(one: dict[str, Any]) -> str:
    rows = [[html.text(key), html.text(_figure(value))] for key, value in one.get("figures", {}).items()]
    return f"<h3>{html.text(one['name'])} on {html.text(one['target'])}</h3>" + html.table(
        ["figure", "value"], rows, (1,)
    )


_MEASURES = {"euclidean": "Euclidean distance", "ssim": "1 - SSIM"}


def _by_class(one: dict[str, Any]) -> str:
    """Distances of reconstructions, one line per class."""
    parts = []
    for metric, by_name in one.get("distances", {}).items():
        columns = list(zip(*by_name.values(), strict=True))
        rows = [[str(label), *[f"{value:.2f}" for value in values]] for label, values in enumerate(columns)]
        title = f"{_MEASURES.get(metric, metric)} to the nearest training image, by class"
        inside = html.table(["class", *by_name], rows, range(1, 1 + len(by_name)))
        parts.append(f"<details><summary>{html.text(title)}</summary>{inside}</details>")
    return "".join(parts)


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _pictures(one: dict[str, Any]) -> str:
    """Pictures that an attack made: single ones, and grids with one class in each column."""
    shown = [
        f"<figure><figcaption>{html.text(name)}</figcaption>{_picture(name, source)}</figure>"
        for name, source in one.get("pictures", {}).items()
        if _is_inside(source)
    ]
    shown += [_grid(f"{one['target']}: {title}", rows) for title, rows in one.get("grids", {}).items()]
    return f'<div class="pictures">{"".join(shown)}</div>' if shown else ""


def _grid(title: str, rows: dict[str, str]) -> str:
    """Strips of images under each other, each with its name."""
    body = [
        [html.text(name), _picture(f"{title}, {name}", source)] for name, source in rows.items() if _is_inside(source)
    ]
    caption = f"<figcaption>{html.text(title)}, from left to right</figcaption>"
    return f'<figure class="strips">{caption}{html.table(["", ""], body)}</figure>'


def _picture(name: str, source: str) -> str:
    return f'<img alt="{html.text(name)}" src="{html.text(source)}" width="640">'


def _is_inside(source: Any) -> bool:
    """A page fetches nothing, so a picture must be in it."""
    return str(source).startswith("data:image/png;base64,")


def _assumptions(found: Sequence[dict[str, Any]]) -> str:
    words = {one["name"]: one.get("assumes", "") for one in found}
    rows = [[html.text(name), html.text(assumes)] for name, assumes in words.items() if assumes]
    return "<h3>What each attacker is given</h3>" + html.table(["attack", "assumes"], rows) if rows else ""


def _sizes(facts: dict[str, Any]) -> str:
    names = {"num_nodes": "nodes", "num_edges": "edge entries", "num_train": "train nodes", "num_features": "features"}
    return ", ".join(f"{facts[key]} {word}" for key, word in names.items() if facts.get(key) is not None)
