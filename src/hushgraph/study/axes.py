"""What the values of an axis may be: datasets, methods with settings, units, attacks, splits, and experiments."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

from hushgraph import registry
from hushgraph.errors import InputError, MissingDataError, did_you_mean
from hushgraph.files.writing import plain
from hushgraph.settings import from_words
from hushgraph.study.cell import Dataset, Named
from hushgraph.study.reader import Reader, number, shown

MOST_METHODS = 10_000


@dataclass(frozen=True)
class Needs:
    """What an experiment needs of a study. Without `settings`, those of the methods are meant."""

    axes: tuple[str, ...] = ()
    settings: tuple[str, ...] | None = None


def experiment_named(name: str) -> Callable[..., Any]:
    """The experiment of a registered name, or the function that `module:function` says."""
    if ":" not in name:
        found: Callable[..., Any] = registry.load("experiments", name)
        return found
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"expected an experiment 'module:function' that can be imported; got '{name}': {error}"
        ) from None
    if not callable(found):
        raise InputError(f"expected a function; '{name}' is {type(found).__name__}")
    return found


def read_experiment(at: Reader, name: str) -> Needs:
    """What the experiment called `name` needs: its `needs`, or its keyword parameters as settings."""
    found = at.attempt("experiment", lambda: experiment_named(name))
    if found is None:
        return Needs(settings=None)
    if isinstance(getattr(found, "needs", None), Needs):
        needs: Needs = found.needs  # type: ignore[attr-defined]
        return needs
    parameters = inspect.signature(found).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return Needs(settings=("*",))
    return Needs(settings=tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY))


def read_dataset(value: Any, contents: Mapping[str, str] | None = None) -> Dataset:
    """A dataset: its name, or a mapping with `load` and, if wanted, `name`, `split` and `options`.

    Its files have to be here, unless `contents` says what was in them (`kept.read_contents`).
    """
    values = {"load": value} if isinstance(value, str) else value
    if not isinstance(values, dict) or not isinstance(values.get("load"), str):
        raise InputError(f"expected the name of a dataset, or a mapping with `load`; got {shown(value)}")
    known = ("load", "name", "split", "options")
    InputError.collect(f"'{key}' is unknown; {did_you_mean(str(key), known)}" for key in values if key not in known)
    source = values["load"]
    if source not in (contents or {}):
        _require_known(source)
    split = _split(values.get("split"))
    name = str(values.get("name") or Path(source).stem)
    hashes = {**(contents or {}), **file_contents(source, split)}
    content = "".join(hashes[one] for one in (source, split) if isinstance(one, str) and one in hashes) or None
    return Dataset(name, source, plain(dict(values.get("options") or {})), split, content)


def read_split(at: Reader, value: Any) -> Any:
    """A split, as `datasets.load` takes it."""
    return at.attempt("splits", lambda: _split(value))


def read_named(at: Reader, key: Literal["units", "attacks"], value: Any) -> Named | None:
    """A unit or an attack: its name, or a mapping with `name` and its parameters."""

    def make() -> Named:
        values = {"name": value} if isinstance(value, str) else value
        if not isinstance(values, dict) or not isinstance(values.get("name"), str):
            raise InputError(f"expected a name, or a mapping with `name`; got {shown(value)}")
        given = {str(one): item for one, item in values.items() if one not in ("name", "label")}
        kind = registry.load(key, values["name"])
        settings = typed(kind, given)
        words = ", ".join(f"{one}={item}" for one, item in settings.items())
        kind(**settings)
        return Named(
            values["name"], values.get("label") or f"{values['name']}{f' ({words})' if words else ''}", settings
        )

    return at.attempt(key, make)


def read_methods(at: Reader) -> list[Named | None]:
    """Methods with their own settings; a list as the value of a setting stands for one method for each of its items."""
    found: list[Named | None] = []
    for value in at.listed("methods"):
        found += at.attempt("methods", lambda value=value: _methods(value)) or []  # type: ignore[misc]
    return found


def _methods(value: Any) -> list[Named]:
    values = {"method": value} if isinstance(value, str) else value
    if not isinstance(values, dict) or not isinstance(values.get("method"), str):
        raise InputError(f"expected the name of a method, or a mapping with `method`; got {shown(value)}")
    known = ("method", "name", "set")
    InputError.collect(f"'{key}' is unknown; {did_you_mean(str(key), known)}" for key in values if key not in known)
    kind, label = registry.load("methods", values["method"]), str(values.get("name") or values["method"])
    grid = {str(key): item if isinstance(item, list) else [item] for key, item in (values.get("set") or {}).items()}
    count = math.prod(map(len, grid.values()))
    if count > MOST_METHODS:
        raise InputError(f"expected at most {MOST_METHODS:,} methods of one `set`; got {count:,}; shorten a list")
    made = []
    for chosen in product(*grid.values()):
        settings = typed(kind, dict(zip(grid, chosen)))
        kind(**settings)
        made.append(Named(values["method"], label, settings))
    return made


def read_settings(at: Reader, needs: Needs, methods: Sequence[Named | None]) -> Mapping[str, Sequence[Any]]:
    """Settings that are crossed with everything else: of every method, or of the experiment."""
    given = Reader.of(at.values.get("settings") or {}, at.at("settings"), at.problems)
    grid = {key: value if isinstance(value, list) else [value] for key, value in given.values.items()}
    if needs.settings is not None:
        if needs.settings != ("*",):
            given.only(needs.settings)
        return {key: [_number_or_same(one) for one in values] for key, values in grid.items()}
    for method in methods:
        if method is not None:
            grid = {
                key: at.attempt("settings", _checked(method, key, values)) or values for key, values in grid.items()
            }
    return grid


def _checked(method: Named, key: str, values: Sequence[Any]) -> Callable[[], list[Any]]:
    def check() -> list[Any]:
        kind = registry.load("methods", method.name)
        found = []
        for value in values:
            words = typed(kind, {key: value})
            kind(**{**method.settings, **words})
            found.append(next(iter(words.values())))
        return found

    return check


def typed(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a class with the types that its fields declare; numbers may be written as words."""
    plain_values = {key: value for key, value in values.items() if not isinstance(value, dict)}
    found = from_words(kind, {key: str(value) for key, value in plain_values.items()})
    fields = {field.name for field in dataclasses.fields(kind)}
    InputError.collect(
        f"unknown setting '{key}'; {did_you_mean(key, fields)}"
        for key in values
        if key not in plain_values and key not in fields
    )
    return {**found, **{key: value for key, value in values.items() if key not in plain_values}}


def _number_or_same(value: Any) -> Any:
    """Words that are numbers to everybody but YAML (1e-7) are numbers."""
    found = number(value) if isinstance(value, str) else None
    return value if found is None else found


def _split(value: Any) -> Any:
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    shares = [number(one) for one in value] if isinstance(value, list | tuple) else []
    if len(shares) == 3 and all(one is not None and 0.0 <= one <= 1.0 for one in shares):
        return shares
    raise InputError(
        f"expected a split: random, three shares, a split file or the number of a split; got {shown(value)}"
    )


@lru_cache(maxsize=1)
def _known_datasets() -> dict[str, bool]:
    from hushgraph.datasets.catalog import available

    return {record.name: record.kind != "file" for record in available()}


def _require_known(source: str) -> None:
    """A dataset that can be neither a file nor a known name is refused before anything runs."""
    from hushgraph.datasets.catalog import known_file, public_dataset
    from hushgraph.datasets.loading import local_file

    known = _known_datasets()
    if known.get(source) or public_dataset(source) or local_file(source) is not None:
        return
    if source in known or known_file(source) is not None:
        raise MissingDataError(source)
    raise InputError(f"no dataset '{source}' here; {did_you_mean(source, known)}. Files: set HUSHGRAPH_DATA, or a path")


def file_contents(*sources: Any) -> dict[str, str]:
    """A hash of each file among these names: data that changed is other data."""
    from hushgraph.datasets.loading import local_file

    named = [one for one in sources if isinstance(one, str)]
    return {one: _file_hash(path, path.stat().st_mtime_ns)[:16] for one in named if (path := local_file(one))}


@lru_cache(maxsize=256)
def _file_hash(path: Path, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
