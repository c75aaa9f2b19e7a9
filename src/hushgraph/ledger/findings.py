"""What a check found: each point was checked, could not be checked, or is contradicted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The outcome of one check, or of all of them together (the worst)."""

    VERIFIED = "verified"
    NOT_VERIFIED = "not verified"
    CONTRADICTED = "contradicted"


EXIT_CODES = {Status.VERIFIED: 0, Status.NOT_VERIFIED: 5, Status.CONTRADICTED: 4}


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, how it came out, and what was found."""

    what: str
    status: Status
    detail: str

    def __str__(self) -> str:
        return f"{self.status.value:<13} {self.what}: {self.detail}"


def good(what: str, detail: str) -> Finding:
    """It was checked and holds."""
    return Finding(what, Status.VERIFIED, detail)


def missing(what: str, detail: str) -> Finding:
    """It could not be checked."""
    return Finding(what, Status.NOT_VERIFIED, detail)


def bad(what: str, detail: str) -> Finding:
    """It does not hold."""
    return Finding(what, Status.CONTRADICTED, detail)


@dataclass(frozen=True)
class Verification:
    """All findings about one thing."""

    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """Contradicted if anything is, verified if everything is."""
        found = {finding.status for finding in self.findings}
        return next((s for s in (Status.CONTRADICTED, Status.NOT_VERIFIED) if s in found), Status.VERIFIED)

    @property
    def exit_code(self) -> int:
        """What the command line returns: 0 verified, 5 not verified, 4 contradicted."""
        return EXIT_CODES[self.status]

    def having(self, status: Status) -> list[Finding]:
        """The findings that came out so."""
        return [finding for finding in self.findings if finding.status is status]

    def as_dict(self) -> dict[str, Any]:
        """The verification as plain JSON values."""
        shown = [{"what": f.what, "status": f.status.value, "detail": f.detail} for f in self.findings]
        return {"status": self.status.value, "findings": shown}
