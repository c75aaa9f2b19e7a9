"""The command `hushgraph audit RUN_DIR`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def audit(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a trained model.")],
    canaries: Annotated[int, typer.Option(help="How many canaries to plant.")] = 10_000,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound.")] = 0.95,
    out: Annotated[Path | None, typer.Option(help="Where to write the result; default: audit.json there.")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeat an audit exactly.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Try to contradict a run's epsilon, on data made for the audit. Exit code 4 when it succeeds."""
    from hushgraph.audit.run import audit_run, require_consistent
    from hushgraph.methods.saving import write_json

    result = audit_run(run_dir, canaries=canaries, confidence=confidence, seed=seed)
    write_json(out or run_dir / "audit.json", result.as_dict())
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
    else:
        typer.echo("\n".join(lines(result)))
    require_consistent(result)


def lines(result: object) -> list[str]:
    """The result for a terminal."""
    values = result.as_dict()  # type: ignore[attr-defined]
    shown = [values["sentence"], ""]
    for one in values["findings"]:
        verdict = "CONTRADICTED" if one["contradicts"] else "consistent"
        bound, claimed = float(one["lower_bound"]), float(one["claimed"])
        shown.append(f"  {one['name']}, {one['method']}: at least {bound:.4g}, claimed {claimed:.4g}: {verdict}")
    shown += [f"  skipped: {words}" for words in values["skipped"]]
    return [*shown, "", values["ran_on"]]
