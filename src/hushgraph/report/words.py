"""From a certificate to sentences: the last step, made of typed fields and never read back.

Everything that a report or a terminal says about a promise comes from here (and from the table of notes in
`hushgraph.privacy.notes`). Nothing here computes a number.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from hushgraph.ledger.certificate import Certificate, Charge, DatasetTotal, Randomness
from hushgraph.privacy.notes import Code, Note
from hushgraph.privacy.units import Relation, Unit
from hushgraph.text import counted, listed, rounded_up
from hushgraph.training.minibatches import Minibatches

WIDTH = 80
_INDENT = 16

_RELATIONS = {
    Relation.ADD_OR_REMOVE: "add or remove one",
    Relation.NULL: "replace one by an empty record",
    Relation.REPLACE: "replace one by any other",
}
_LAWS = {
    "gaussian": "Gaussian noise of standard deviation {scale}",
    "discrete-laplace": "discrete Laplace noise of scale {scale}",
    "randomized-response": "randomized response on every pair of nodes, of loss {loss} a pair",
    "noisy-top": "discrete Laplace noise of scale {scale} on every pair of nodes, of which the largest are kept",
    "exponential": "a random choice by the exponential mechanism, of loss {loss} a pair",
    "randomizer": "one randomized report per person",
    "selection": "a random number of runs, each with noise of its own, of which the best is shown",
    "none": "no noise",
}
_SAMPLERS = {
    "gaussian": "Gaussian noise is drawn in whole multiples of a grid",
    "discrete-laplace": "noise on counts is a whole number, sampled exactly",
    "randomized-response": "pairs of nodes are drawn by exact coins",
    "noisy-top": "noise on pairs of nodes is a whole number of steps, sampled exactly and compared exactly",
}
_SAMPLING = {"poisson": "Poisson-sampled batches"}
_COMPOSITIONS = {
    "together": "composition of all plans, as if they had been fixed beforehand",
    "declared together": "composition of plans that were declared together",
    "basic composition": "adding up epsilons and deltas, which holds however each run was chosen",
    "filter": "a privacy filter under a limit set beforehand, which holds however each run was chosen",
    "filters under raised limits": "adding up privacy filters, one for each limit, because the limit was raised",
    "none": "nothing was spent",
}
_SIMPLE = frozenset({"together", "basic composition"})
"""Kinds of total that have nothing to compose while there is one run."""


def number(value: float, digits: int = 4) -> str:
    """A cost for people: rounded up, and infinity is spelled out."""
    return "infinite" if math.isinf(value) else rounded_up(value, digits)


# The claim


def claim(certificate: Certificate) -> str:
    """The promise in one sentence."""
    unit = certificate.unit
    subject = f"The output of {certificate.method} on '{certificate.dataset}'"
    if math.isinf(certificate.epsilon):
        return f"{subject} carries NO differential privacy guarantee (epsilon is infinite)."
    if certificate.randomness is Randomness.SEEDED:
        return f"{subject} was made with SEEDED noise: NOT PRIVATE, whatever epsilon says; for tests only."
    if certificate.is_free:
        return f"{subject} does not depend on {unit.protects}: epsilon is 0 for the unit '{unit.name}'."
    sure = (
        " in the limit of a long Markov chain, not proved for the finite one that was run,"
        if certificate.asymptotic
        else ""
    )
    return (
        f"{subject} is{sure} ({rounded_up(certificate.epsilon)}, {certificate.delta:g})-differentially private for the "
        f"unit '{unit.name}': its distribution changes by at most that much when {unit.change}."
    )


def relation(unit: Unit) -> str:
    """How neighboring datasets differ."""
    return _RELATIONS[unit.relation]


def profile(certificate: Certificate) -> list[str]:
    """Epsilon at other deltas; nothing to say where it is the same at all of them."""
    if set(certificate.profile.values()) == {certificate.epsilon}:
        return ["the same at every smaller delta"]
    return [f"epsilon {rounded_up(epsilon)} at delta {delta}" for delta, epsilon in certificate.profile.items()]


def paper(certificate: Certificate) -> str | None:
    """Both epsilons of a run in paper mode."""
    found = certificate.paper
    if found is None:
        return None
    return (
        f"Paper mode: the publication would claim epsilon {number(found.epsilon)} for the unit '{found.unit.name}' "
        f"({found.accountant} accountant). The epsilon proved for the unit '{certificate.unit.name}' is "
        f"{number(certificate.epsilon)}."
    )


def asymptotic(certificate: Certificate) -> str | None:
    """Which stages are proved in the limit of a long chain only."""
    if not certificate.asymptotic:
        return None
    return (
        f"Epsilon is that of the law which the chain of {', '.join(map(repr, certificate.asymptotic))} tends to. For "
        "the finite chain that was run no epsilon is proved."
    )


def accountant(certificate: Certificate) -> str:
    """Which route gives the numbers."""
    return certificate.accountant if math.isfinite(certificate.epsilon) else "none: there is no finite bound"


# What was released


def released(certificate: Certificate) -> list[str]:
    """One line for every stage that was charged."""
    return [charge_line(charge) for charge in certificate.charges]


def charge_line(charge: Charge) -> str:
    """A stage: how often, by which mechanism, with how much noise."""
    times = charge.mechanism if charge.count == 1 else f"{charge.count} x {charge.mechanism}"
    return ", ".join([f"{charge.stage}: {times}", noise_of(charge), *_bound(charge), *_batches(charge)])


def noise_of(charge: Charge) -> str:
    """The noise of one stage."""
    if charge.scale == 0.0:
        return "no noise"
    words = _LAWS.get(charge.law, charge.law + " noise of scale {scale}")
    return words.format(scale=f"{charge.scale:.4g}", loss=number(1.0 / charge.scale))


def _bound(charge: Charge) -> list[str]:
    bounded = charge.scale > 0.0 and charge.law not in ("randomizer", "selection") and math.isfinite(charge.sensitivity)
    return [f"sensitivity {rounded_up(charge.sensitivity)}"] if bounded else []


def _batches(charge: Charge) -> list[str]:
    return [] if charge.sampling is None or charge.scale == 0.0 else [_SAMPLING.get(charge.sampling, charge.sampling)]


def sampling(certificate: Certificate) -> str:
    """What the accountant assumes about how examples were drawn."""
    noised = [charge for charge in certificate.charges if charge.scale > 0.0]
    if not noised:
        return "Nothing was released with noise, so nothing is assumed."
    sampled = [charge.stage for charge in noised if charge.sampling is not None]
    if not sampled:
        return "No sampling is assumed: every release counts in full."
    rest = " All other releases count in full." if len(sampled) < len(noised) else ""
    return (
        f"Batches are Poisson-sampled in {listed(sampled)}: the object that draws a batch is the one that the "
        f"accountant reads, and an empty batch is a step of noise alone.{rest}"
    )


# Trust and randomness


def on_devices(certificate: Certificate) -> bool:
    """Whether the reports came from a collection, so that raw values never left people's devices."""
    return any(note.code is Code.DEVICE_TASK for note in certificate.public)


def setting(certificate: Certificate) -> str:
    """Central or local, and who sees raw data."""
    if not certificate.is_private:
        return "None: raw data was read in one place, and this run protects nothing."
    if certificate.unit.trust == "central":
        return "Central DP: a trusted holder of the data runs the method and releases its output."
    return f"Local DP: nobody has to be trusted with raw values; {_reports(certificate)}."


def trust(certificate: Certificate) -> str:
    """Who is trusted with what."""
    if not certificate.is_private:
        return "Everybody who receives the output has to be trusted: nothing is protected from them."
    if certificate.unit.trust == "central":
        return "The data holder is trusted and sees everything; those who receive the output are not trusted."
    public = listed(sorted(certificate.unit.public))
    return (
        f"The server is not trusted: it gets randomized reports and the public parts ({public}). "
        f"{_simulated(certificate)}"
    )


def _reports(certificate: Certificate) -> str:
    if on_devices(certificate):
        return "each person's device sent one randomized report"
    return "each person's record is randomized on its own, here by one machine in place of the devices"


def _simulated(certificate: Certificate) -> str:
    if on_devices(certificate):
        return "Raw values stayed on people's devices."
    return "In this run one machine held all records and stood in for the devices, as studies do."


def randomness(certificate: Certificate) -> str:
    """Where the noise came from."""
    kind = certificate.randomness
    if kind is Randomness.UNUSED:
        return "no noise was needed: nothing that depends on the unit was released"
    if kind is Randomness.ABSENT:
        drawn = any(charge.scale > 0.0 for charge in certificate.charges)
        return "noise was drawn, but no bound is proved with it" if drawn else "no noise: nothing is protected"
    if kind is Randomness.SEEDED:
        return "a seed: NOT PRIVATE, because whoever knows the seed can subtract the noise"
    if kind is Randomness.DEVICES:
        where = "on people's devices" if on_devices(certificate) else "by one machine in place of people's devices"
        return f"operating-system entropy, drawn once for each person, {where}"
    return "; ".join(["operating-system entropy through AES-256 in counter mode", *samplers(certificate)])


def samplers(certificate: Certificate) -> list[str]:
    """How each kind of noise in a run is drawn."""
    laws = dict.fromkeys(charge.law for charge in certificate.charges if charge.scale > 0.0)
    return [_SAMPLERS[law] for law in laws if law in _SAMPLERS]


# Totals


def total(found: DatasetTotal) -> str:
    """What all runs on a dataset cost together, how that is proved, and the limit."""
    runs = counted(found.runs, "run")
    if not found.private:
        cause = "of a seeded one" if found.seeded else "nothing is proved about one of them or more for this unit"
        return f"NOT PRIVATE over {runs}, because {cause}; {limit(found)}"
    how = "" if found.runs == 1 and found.kind in _SIMPLE else f", by {composition(found.kind)}"
    return f"epsilon {number(found.epsilon)} at delta {found.delta:g} over {runs}{how}; {limit(found)}"


def under_a_limit(found: DatasetTotal) -> bool:
    """Whether a filter holds all runs, so that the total that is proved is the limit and less of it is used."""
    return found.private and found.kind == "filter" and found.limit is not None


def limit(found: DatasetTotal) -> str:
    """The limit on the dataset."""
    return "no limit declared" if found.limit is None else f"limit {found.limit:g}"


def composition(kind: str) -> str:
    """The argument behind a total."""
    return _COMPOSITIONS.get(kind, kind)


# The whole certificate, for a terminal


def explain(certificate: Certificate, reason: Note | None = None, width: int = WIDTH) -> str:
    """The certificate as text of at most `width` columns; `reason` is why a method was chosen, or what was found."""
    lines = textwrap.wrap(claim(certificate), width)
    for title, items in _entries(certificate, reason or certificate.reason):
        lines += _entry(title, items, width)
    return "\n".join(lines)


def _entries(certificate: Certificate, reason: Note | None) -> Iterable[tuple[str, Sequence[str]]]:
    unit = certificate.unit
    at = f"{number(certificate.epsilon)} at delta {certificate.delta:g}"
    yield "", [""]
    yield "unit", [f"{unit.name}: {unit.change}"]
    yield "relation", [relation(unit)]
    yield "epsilon", ["; ".join([at, *profile(certificate)])]
    if by_type := [str(note) for note in certificate.public if note.code is Code.RELATIONS]:
        yield "by type", by_type
    if certificate.mu is not None:
        yield "Gaussian DP", [f"mu = {certificate.mu:.4g}"]
    if (both := paper(certificate)) is not None:
        yield "paper mode", [both]
    if (limit_only := asymptotic(certificate)) is not None:
        yield "asymptotic", [limit_only]
    yield "accountant", [accountant(certificate)]
    yield "released", released(certificate) or ["nothing that depends on the unit"]
    if reason is not None:
        yield "at hand" if reason.code is Code.AT_HAND else "choice", [str(reason)]
    public = [str(note) for note in certificate.public if note.code is not Code.RELATIONS]
    yield "taken as public", public or ["nothing"]
    yield "not protected", [str(note) for note in certificate.unprotected] or ["nothing"]
    yield "noise", [randomness(certificate)]
    yield "dataset total", [total(certificate.total)]
    who = certificate.operator or "unknown"
    yield "operator", [f"{who}: {certificate.purpose}" if certificate.purpose else who]
    place = " (IN MEMORY: it ended with its process, and adds up no other run)" if certificate.ledger_in_memory else ""
    yield "ledger", [certificate.ledger_hash + place]
    yield "versions", [versions(certificate)]


def minibatches(stages: Mapping[str, Minibatches]) -> str:
    """How plain training went where it took steps on some of the rows."""
    of: dict[Minibatches, list[str]] = {}
    for stage, how in stages.items():
        of.setdefault(how, []).append(stage)
    return "; ".join(
        f"{listed(names)} in steps on {how.size:,} rows, with a look at up to {how.rows_looked_at:,} validation rows "
        f"after every {how.steps_between_looks:,}"
        for how, names in of.items()
    )


def versions(certificate: Certificate) -> str:
    """The packages that computed it."""
    return ", ".join(f"{name} {found}" for name, found in certificate.versions.items())


def _entry(title: str, items: Sequence[str], width: int) -> list[str]:
    lines = []
    for head, item in zip([title, *[""] * len(items)], items):
        lines += textwrap.wrap(
            item, width, initial_indent=f"{head:<{_INDENT}}", subsequent_indent=" " * (_INDENT + 2)
        ) or [""]
    return lines
