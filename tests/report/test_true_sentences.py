"""The report of every method under every unit says what is true of that run, and nothing else."""

from __future__ import annotations

import math
from html import unescape

import pytest

from hushgraph.ledger.certificate import Randomness
from hushgraph.report.context import RunContext, read_context
from hushgraph.report.page import render
from reports import cases, fitted

CASES = list(cases())
PROVED_NOWHERE = ("proved from the ledger", "differences between groups are not measured", "becomes null", "price")


def page_of(context: RunContext) -> str:
    return " ".join(unescape(render(context)).split())


def check_sampling(context: RunContext, page: str) -> None:
    noised = [charge for charge in context.certificate.charges if charge.scale > 0.0]
    sampled = [charge for charge in noised if charge.sampling == "poisson"]
    assert ("Batches are Poisson-sampled" in page) == bool(sampled)
    assert ("No sampling is assumed" in page) == (bool(noised) and not sampled)


def check_trust(context: RunContext, page: str) -> None:
    private, local = context.certificate.is_private, context.unit.trust == "local"
    assert ("Central DP" in page) == (private and not local)
    assert ("The data holder is trusted and sees everything" in page) == (private and not local)
    assert ("Local DP" in page) == (private and local)
    assert ("The server is not trusted" in page) == (private and local)
    assert ("one machine held all records" in page) == (private and local)


def check_randomness(context: RunContext, page: str) -> None:
    kind, laws = context.certificate.randomness, {one.law for one in context.certificate.charges if one.scale > 0.0}
    assert ("operating-system entropy" in page) == (kind in (Randomness.SYSTEM, Randomness.DEVICES))
    assert ("a seed: NOT PRIVATE" in page) == (kind is Randomness.SEEDED)
    assert ("in whole multiples of a grid" in page) == (kind is Randomness.SYSTEM and "gaussian" in laws)
    assert ("Sums are brought to whole multiples of a grid" in page) == ("gaussian" in laws)
    assert ("whole-number noise" in page) == ("discrete-laplace" in laws)
    assert ("one of finitely many values" in page) == ("randomizer" in laws)


def check_groups(context: RunContext, page: str) -> None:
    measured = bool(context.metrics.get("test_by_class"))
    assert ("Test accuracy by class" in page) == measured
    assert ("reported overall and for every class" in page) == measured
    assert ("; groups are not compared" in page) == (not measured)


def check_promise(context: RunContext, page: str) -> None:
    certificate = context.certificate
    assert ("carries NO differential privacy guarantee" in page) == math.isinf(certificate.epsilon)
    private = certificate.is_private and certificate.epsilon > 0
    assert ("-differentially private for the unit" in page) == private
    assert ("does not read what is protected" in page) == (certificate.epsilon == 0.0)
    assert ("this run has no guarantee" in page) == (not certificate.is_private)
    for note in (*certificate.public, *(certificate.unprotected if certificate.is_private else ())):
        assert str(note) in page
    assert ("Paper mode" in page) == (certificate.paper is not None)


def check_releases(context: RunContext, page: str) -> None:
    for charge in context.certificate.charges:
        assert f"{charge.stage}: " in page
        if charge.scale > 0.0 and charge.law != "randomizer":
            assert f"{charge.scale:.4g}" in page
    free = [stage.name for stage in context.plan if stage.is_free(context.unit)]
    assert ("because all they read is public" in page) == bool(free)
    assert {charge.stage for charge in context.certificate.charges}.isdisjoint(free)


def check_all(context: RunContext) -> None:
    page = page_of(context)
    for check in (check_sampling, check_trust, check_randomness, check_groups, check_promise, check_releases):
        check(context, page)
    assert ("verified against the ledger" in page) == (context.verification == "verified")
    assert "Not verified: no ledger was at hand" in page
    for words in PROVED_NOWHERE:
        assert words not in page


@pytest.mark.parametrize(("method", "unit", "epsilon"), CASES, ids=lambda value: str(value))
def test_every_report_is_true(method: str, unit: str, epsilon: float) -> None:
    check_all(read_context(fitted(method, unit, epsilon)))


@pytest.mark.parametrize(
    ("method", "unit", "options"),
    [("gap", "node", {"seed": 1}), ("gap", "directed-edge", {"paper_mode": True}), ("chorus", "node", {"seed": 1})],
)
def test_seeded_runs_and_paper_mode_too(method: str, unit: str, options: dict[str, object]) -> None:
    check_all(read_context(fitted(method, unit, 4.0, **options)))


def test_all_methods_and_units_are_among_the_cases() -> None:
    from hushgraph import registry

    assert {method for method, _, _ in CASES} == set(registry.names("methods"))
    assert {unit for _, unit, _ in CASES} == set(registry.names("units"))


def test_a_wrong_sentence_would_be_found() -> None:
    from dataclasses import replace

    context = read_context(fitted("dp-gnn", "node", 4.0))
    (charge,) = context.certificate.charges
    hidden = replace(context, certificate=replace(context.certificate, charges=(replace(charge, sampling=None),)))
    with pytest.raises(AssertionError):
        check_sampling(context, page_of(hidden))
