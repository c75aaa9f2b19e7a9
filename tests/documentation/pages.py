"""The pages of the documentation, and the blocks of code in them.

What a block means is read off its first line: `python` runs; `console` and blocks without a language hold commands;
`title="NAME"` makes it a file of that name. Before a block, a comment may say `<!-- setup`, code that a reader does not
need, or `<!-- run by tests/FILE.py -->` where a test of its own runs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_PIECE = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|^<!-- run by (?P<runner>\S+) -->$"
    r"|^(?P<indent> *)```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    flags=re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One block: its language, its text, the file it is, the test that runs it elsewhere."""

    language: str
    text: str
    title: str | None = None
    runner: str | None = None

    @property
    def commands(self) -> list[str]:
        """The lines that are typed, with lines that go on joined."""
        if self.language not in ("console", ""):
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.removeprefix("$ ").strip() for line in lines if self.language == "" or line.startswith("$ ")]


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    found, runner = [], None
    for piece in _PIECE.finditer(page.read_text(encoding="utf-8")):
        if piece["runner"]:
            runner = piece["runner"]
            continue
        if piece["setup"] is not None:
            found.append(Block("python", piece["setup"]))
            continue
        title = re.search(r'title="([^"]+)"', piece["rest"])
        found.append(Block(piece["language"], piece["text"], title and title[1], runner))
        runner = None
    return found
