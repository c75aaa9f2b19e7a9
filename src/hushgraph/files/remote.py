"""Files behind a URL: an object store, another machine, whatever `fsspec` knows (s3://, gs://, https://, memory://).

A file on this machine, also by file://, is a plain path. fsspec comes with torch; what it needs for a kind of store is
a package of its own (s3fs, gcsfs), which also knows where the credentials are: none are kept here.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hushgraph.errors import InputError

_COPIED_AT_ONCE = 1 << 24


def is_url(place: object) -> bool:
    """Whether this names something elsewhere; file:// is here."""
    return "://" in str(place) and urlsplit(str(place)).scheme != "file"


def local_path(place: str | Path) -> Path:
    """A path of this machine, given as such or by file://."""
    text = str(place)
    return Path(unquote(urlsplit(text).path)) if text.startswith("file://") else Path(text).expanduser()


@dataclass(frozen=True)
class RemoteFile:
    """A file behind a URL, read in parts."""

    url: str

    def __truediv__(self, name: str) -> RemoteFile:
        return RemoteFile(f"{self.url.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rstrip("/").rpartition("/")[2]

    @cached_property
    def _place(self) -> tuple[Any, str]:
        import fsspec

        try:
            system, path = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InputError(f"{self.url}: expected a URL that can be read here; {error}") from error
        return system, str(path)

    def size(self) -> int | None:
        """How many bytes there are; None: no such file."""
        system, path = self._place
        try:
            return int(system.size(path)) if system.isfile(path) else None
        except FileNotFoundError:
            return None

    def read(self, begin: int = 0, count: int | None = None) -> bytes:
        """`count` bytes from `begin` on (None: all that follow); a file that ends before is refused."""
        system, path = self._place
        try:
            found = bytes(system.cat_file(path, start=begin, end=None if count is None else begin + count))
        except OSError as error:
            raise InputError(f"{self.url}: expected a file that can be read; {error}") from error
        if count is not None and len(found) != count:
            raise InputError(f"expected {count} bytes at {begin} in '{self.name}'; got a file that ends before")
        return found

    def copy_to(self, target: Path) -> bool:
        """Copy the file to this machine, readable by its owner alone; False where there is none."""
        size = self.size()
        if size is None:
            return False
        target.touch(mode=0o600)
        with target.open("wb") as file:
            for begin in range(0, size, _COPIED_AT_ONCE):
                file.write(self.read(begin, min(_COPIED_AT_ONCE, size - begin)))
        return True


def json_of(place: Path | RemoteFile) -> Any:
    """What a small JSON file holds."""
    return json.loads(place.read() if isinstance(place, RemoteFile) else place.read_bytes())


def digest_of(place: Path | RemoteFile) -> str:
    """The SHA-256 of a file's content."""
    if isinstance(place, Path):
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest, size = hashlib.sha256(), place.size() or 0
    for begin in range(0, size, _COPIED_AT_ONCE):
        digest.update(place.read(begin, min(_COPIED_AT_ONCE, size - begin)))
    return digest.hexdigest()
