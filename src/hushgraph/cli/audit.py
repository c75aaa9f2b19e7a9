"""The command `hushgraph audit RUN_DIR`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushgraph.cli.console import Json, echo, require_model, show_json
from hushgraph.errors import AuditContradiction

if TYPE_CHECKING:
    from hushgraph.audit.result import AuditResult, Finding

WIDTH = 80


def audit(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a trained model.")],
    canaries: Annotated[int, typer.Option(help="How many canaries to plant.")] = 10_000,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound.")] = 0.95,
    out: Annotated[Path | None, typer.Option(help="Where to write the result; default: audit.json there.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the audit repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Try to contradict a run's epsilon, on data made for the audit. Exit code 4 when it succeeds."""
    require_model(run_dir)
    from hushgraph.audit.result import Verdict
    from hushgraph.audit.run import audit_run, require_consistent
    from hushgraph.files.writing import write_json
    from hushgraph.ledger.checking import Status
    from hushgraph.ledger.manifest import require_uncontradicted
    from hushgraph.ledger.project import default_ledger

    files = require_uncontradicted(run_dir, default_ledger(near=run_dir))
    result = audit_run(run_dir, canaries=canaries, confidence=confidence, seed=seed)
    write_json(out or run_dir / "audit.json", result.as_dict())
    if as_json:
        show_json(result.as_dict() if files is Status.VERIFIED else {**result.as_dict(), "files": files.value})
        raise typer.Exit(AuditContradiction.exit_code if result.verdict is Verdict.CONTRADICTED else 0)
    if files is not Status.VERIFIED:
        echo("NOT VERIFIED: no ledger confirms the files of this model\n")
    echo("\n".join(lines(result)))
    require_consistent(result)


def lines(result: AuditResult) -> list[str]:
    """The result for a terminal."""
    from hushgraph.audit.result import SYNTHETIC

    found = [_wrapped(_words(finding), indent=2) for finding in result.findings]
    skipped = [_wrapped(f"skipped: {one}", indent=2) for one in result.skipped]
    return [_wrapped(result.sentence()), "", *found, *skipped, "", _wrapped(SYNTHETIC)]


def _words(finding: Finding) -> str:
    verdict = "CONTRADICTED" if finding.contradicts else "consistent"
    numbers = f"at least {finding.lower_bound:.4g}, claimed {finding.claimed:.4g}"
    return f"{finding.name}, {finding.method}: {numbers}: {verdict}"


def _wrapped(words: str, indent: int = 0) -> str:
    start, rest = " " * indent, " " * (2 * indent)
    return textwrap.fill(words, WIDTH, initial_indent=start, subsequent_indent=rest, break_on_hyphens=False)
