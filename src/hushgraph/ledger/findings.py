"""What a check found: each point was checked, could not be checked, or is contradicted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The outcome of one check, or of all of them together (the worst)."""

    VERIFIED = "verified"
    NOT_CHECKED = "not checked"
    NOT_VERIFIED = "not verified"
    REJECTED = "rejected"
    CONTRADICTED = "contradicted"


EXIT_CODES = {Status.VERIFIED: 0, Status.NOT_VERIFIED: 5, Status.REJECTED: 6, Status.CONTRADICTED: 4}
_WORST_FIRST = (Status.CONTRADICTED, Status.REJECTED, Status.NOT_VERIFIED)


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


def outside(what: str, detail: str) -> Finding:
    """It is no part of what is checked, and says nothing for or against it."""
    return Finding(what, Status.NOT_CHECKED, detail)


def rejected(what: str, detail: str) -> Finding:
    """A person said no."""
    return Finding(what, Status.REJECTED, detail)


def bad(what: str, detail: str) -> Finding:
    """It does not hold."""
    return Finding(what, Status.CONTRADICTED, detail)


@dataclass(frozen=True)
class Verification:
    """All findings about one thing."""

    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst that was found: contradicted, rejected by a person, not verified; else verified."""
        found = {finding.status for finding in self.findings}
        return next((status for status in _WORST_FIRST if status in found), Status.VERIFIED)

    @property
    def headline(self) -> str:
        """The outcome in one line; of a run that a person rejected, who did, and how the rest came out."""
        if self.status is not Status.REJECTED:
            return self.status.value.upper()
        rest = Verification(tuple(one for one in self.findings if one.status is not Status.REJECTED))
        who = "; ".join(finding.detail for finding in self.having(Status.REJECTED))
        return f"REJECTED ({who}); all else is {rest.status.value}"

    @property
    def exit_code(self) -> int:
        """What the command line returns: 0 verified, 5 not verified, 6 rejected, 4 contradicted."""
        return EXIT_CODES[self.status]

    def having(self, status: Status) -> list[Finding]:
        """The findings that came out so."""
        return [finding for finding in self.findings if finding.status is status]

    def as_dict(self) -> dict[str, Any]:
        """The verification as plain JSON values."""
        shown = [{"what": f.what, "status": f.status.value, "detail": f.detail} for f in self.findings]
        return {"status": self.status.value, "headline": self.headline, "findings": shown}
