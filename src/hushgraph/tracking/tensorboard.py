"""TensorBoard: one folder of events for each run, under the folder that is named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError
from hushgraph.tracking.base import Entry, Tracker


class TensorBoard(Tracker):
    """Writes event files that `tensorboard --logdir PLACE` shows: settings and figures side by side."""

    name = "tensorboard"
    place_help = "the folder for the event files"

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.folder = Path(place)
        self._writer = _writer_class()

    def log(self, entry: Entry) -> None:
        """One folder: figures as scalars, settings beside them, the certificate as text."""
        folder = self.folder / re.sub(r"[^\w.-]+", "-", entry.name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"track: {folder} cannot be written ({error.strerror}); name another folder") from error
        writer = self._writer(str(folder))
        try:
            writer.add_text("settings", _as_table(entry.settings))
            writer.add_text("certificate", _as_code(entry.certificate))
            writer.add_hparams(dict(entry.settings), entry.numbers, run_name=".")
        finally:
            writer.close()


def _writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        words = f"track: expected the package tensorboard; {error}; pip install 'hushgraph[track]'"
        raise InputError(words) from error
    return SummaryWriter


def _as_table(settings: Mapping[str, Any]) -> str:
    """Settings as a table in Markdown, for the tab with texts; what would end a cell is written out."""
    rows = [(name, str(value).replace("|", "/").replace("\n", " ")) for name, value in settings.items()]
    return "\n".join(["| setting | value |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])


def _as_code(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "\n".join(f"    {line}" for line in text.splitlines())
