"""Every error a user can meet, and the exit code the command line gives it.

Messages follow one form: what was expected, what was given, what to do. Several problems found together are
reported together (`InputError.collect`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HushgraphError(Exception):
    """Base class. `exit_code` is what the command line returns for it."""

    exit_code = 1


class InputError(HushgraphError, ValueError):
    """The request or the data is wrong; nothing was read from private data and nothing was charged.

    `problems` lists what is wrong, one sentence each.
    """

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        listed = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(problems[0] if len(problems) == 1 else f"{len(problems)} problems:\n{listed}")

    @classmethod
    def collect(cls, problems: Iterable[str]) -> None:
        """Raise one error that lists all `problems`; do nothing when there are none."""
        found = list(problems)
        if found:
            raise cls(*found)


class MissingDataError(InputError):
    """Datasets that are known by name and lie in files that are not here; one sentence for all of them."""

    def __init__(self, *names: str) -> None:
        self.names = names
        super().__init__(
            f"expected the files of {', '.join(names)}; they are not here. Set HUSHGRAPH_DATA to the folder that holds "
            "them; `hushgraph datasets` lists what is known, docs/formats.md says what is in such a file"
        )


class UnprovenError(InputError):
    """No proof is known for this mechanism, layer or method under this unit, so it is refused."""


class BudgetError(HushgraphError):
    """The charge would exceed the budget; it was refused before private data was read."""

    exit_code = 3


class PrivateAccessError(HushgraphError):
    """Code tried to read private data other than through a charged mechanism."""

    exit_code = 2


class LedgerError(HushgraphError):
    """The ledger is broken, was changed, or belongs to something else."""

    exit_code = 2


class CalibrationError(HushgraphError):
    """No noise scale could be found that provably meets the budget. There is never a fallback."""

    exit_code = 2


class AuditContradiction(HushgraphError):
    """An audit measured more privacy loss than was claimed."""

    exit_code = 4


class ContradictionError(HushgraphError):
    """A model's folder says something else than its manifest or its ledger."""

    exit_code = 4


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known word, or lists them all."""
    names = sorted(known)
    close = difflib.get_close_matches(word[:100], names, n=1)
    if close:
        return f"did you mean '{close[0]}'? Known: {', '.join(names)}"
    return f"known: {', '.join(names)}"
