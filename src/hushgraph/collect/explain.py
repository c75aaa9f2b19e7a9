"""What a person is told before answering: what leaves the device, what stays, and what it costs. In words."""

from __future__ import annotations

from hushgraph.collect.task import FeatureQuestion, LabelQuestion, Task, odds_factor
from hushgraph.local import RandomizedResponse
from hushgraph.local.base import small_side


def explain_task(task: Task, spent: float, limit: float, answered: bool = False) -> str:
    """The whole explanation of a task for one person with this budget."""
    lines = [f"Task: {task.title} ({task.id})", f"Hash: {task.sha256}"]
    if task.purpose:
        lines.append(f"Purpose: {task.purpose}")
    if task.contact:
        lines.append(f"Contact: {task.contact}")
    lines += ["", "If you answer, this leaves your device, once:"]
    if task.features is not None:
        lines += _features(task.features)
    if task.labels is not None:
        lines += _label(task.labels)
    lines += [
        "  - your node token, a random number for this report, and the hash above.",
        "",
        "This does not leave your device: your exact numbers, your true label, any other file.",
        "The server knows anyway: that you are a node of its graph, who your neighbors are, and that you answered.",
        "",
        *_price(task, spent, limit, answered),
    ]
    return "\n".join(lines)


def _features(question: FeatureQuestion) -> list[str]:
    share = question.epsilon / question.sampled
    wrong = small_side(share)
    if question.mechanism == "one_bit":
        what = f"one random bit about each of your {question.dimensions} numbers"
    else:
        bits = (
            "one random bit about one" if question.sampled == 1 else f"one random bit about each of {question.sampled}"
        )
        what = f"{bits} of your {question.dimensions} numbers, picked at random"
    return [
        f"  - {what}.",
        f"    Numbers are first cut to the range from {question.low:g} to {question.high:g}.",
        f"    Even for a number at an end of the range the bit is the opposite one with probability {_percent(wrong)}.",
    ]


def _label(question: LabelQuestion) -> list[str]:
    mechanism = question.build()
    if isinstance(mechanism, RandomizedResponse):
        text = (
            f"  - one of {len(question.classes)} class names: the true one with probability "
            f"{_percent(mechanism.true_probability)}, each other one with {_percent(mechanism.other_probability)}."
        )
    else:
        text = (
            f"  - one bit for each of {len(question.classes)} classes: the bit of your class is 1 with probability "
            f"{_percent(1 - mechanism.drop_probability)}, any other with {_percent(mechanism.add_probability)}."
        )
    lines = [text]
    if question.optional:
        lines.append("    You may send no label; the server then sees that you sent none.")
    return lines


def _price(task: Task, spent: float, limit: float, answered: bool) -> list[str]:
    factor = odds_factor(task.epsilon)
    parts = [
        f"{part.epsilon:g} for {name}"
        for name, part in (("the numbers", task.features), ("the label", task.labels))
        if part is not None
    ]
    lines = [
        f"Price: epsilon {task.epsilon:g} ({', '.join(parts)}).",
        f"Whoever sees the report can change their odds about you by a factor of at most {factor:.3g}, not more.",
    ]
    if answered:
        return [
            *lines,
            "You have answered this task already; sending again repeats the same bytes and costs nothing more.",
        ]
    left = limit - spent
    lines.append(
        f"Your lifetime budget is {limit:g}; {spent:g} is spent; after this task {left - task.epsilon:g} would be left."
    )
    if task.epsilon > left * (1 + 1e-12):
        lines.append("That is more than you have left: the client will refuse.")
    return lines


def _percent(probability: float) -> str:
    return f"{100 * probability:.3g}%"
