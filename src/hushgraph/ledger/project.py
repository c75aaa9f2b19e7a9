"""Where the ledger is: one place for all datasets of a project, found as git finds its folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from hushgraph.errors import InputError
from hushgraph.ledger.ledger import Ledger

FOLDER = ".hushgraph"
PLACE = "HUSHGRAPH_LEDGER"
IN_MEMORY = ":memory:"


@dataclass(frozen=True)
class Project:
    """A folder that holds the ledger of all datasets used from it, and how it was found."""

    folder: Path
    found: str

    @classmethod
    def find(cls, *starts: str | os.PathLike[str]) -> Project:
        """The project of a folder, or of the first of several that has one (default: the working directory).

        In this order: the folder named by HUSHGRAPH_LEDGER, `.hushgraph` in the folder or the nearest one above it, the
        user's data folder.
        """
        if named := os.environ.get(PLACE, "").strip():
            return cls(Path(named), f"named by {PLACE}")
        for start in starts or (Path.cwd(),):
            here = Path(start).absolute()
            for folder in (here, *here.parents):
                if (folder / FOLDER).is_dir():
                    return cls(folder / FOLDER, f"found from {here} upwards")
        return cls(user_folder(), "the user's data folder")

    @property
    def ledger(self) -> Ledger:
        """The ledger of the project; it is made when the first run is entered."""
        return Ledger(self.folder)


def user_folder() -> Path:
    """Where a user's own ledger is: that of whatever is run outside a project."""
    return Path(platformdirs.user_data_dir("hushgraph"))


def default_ledger(
    folder: str | os.PathLike[str] | None = None, *, near: str | os.PathLike[str] | None = None
) -> Ledger:
    """The ledger in `folder` if one is named, else that of the project: `near` a model's folder, or from here.

    HUSHGRAPH_LEDGER=:memory: asks for a ledger that ends with the process, for tests; it warns.
    """
    if folder is None and os.environ.get(PLACE, "").strip() == IN_MEMORY:
        return Ledger.in_memory()
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise InputError(f"ledger: expected a folder, or hushgraph.Ledger(folder); got {folder!r}")
    starts = (Path.cwd(),) if near is None else (near, Path.cwd())
    return Ledger(folder) if folder is not None else Project.find(*starts).ledger
