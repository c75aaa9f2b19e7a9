"""Parameters of methods: read from `key=value` words, checked, with the name, the constraint and the value given."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable
from typing import Any

from hushgraph.errors import InputError, did_you_mean


def at_least(low: float, **values: float | None) -> list[str]:
    """A problem for every value below `low` (None is allowed: it means 'by rule')."""
    return [f"{name}: expected at least {low:g}; got {value!r}" for name, value in values.items() if _below(value, low)]


def above(low: float, **values: float | None) -> list[str]:
    """A problem for every value that is not above `low`."""
    return [
        f"{name}: expected above {low:g}; got {value!r}"
        for name, value in values.items()
        if value is not None and not value > low
    ]


def one_of(allowed: Iterable[str], **values: str) -> list[str]:
    """A problem for every value that is not allowed."""
    known = list(allowed)
    return [
        f"{name}: got '{value}'; {did_you_mean(value, known)}" for name, value in values.items() if value not in known
    ]


def from_words(cls: type, words: dict[str, str]) -> dict[str, Any]:
    """Turn `key=value` strings into keyword arguments of the dataclass `cls`."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}
    problems, values = [], {}
    for key, word in words.items():
        if key not in fields:
            problems.append(f"unknown parameter '{key}'; {did_you_mean(key, fields)}")
            continue
        try:
            values[key] = _convert(word, fields[key])
        except ValueError:
            problems.append(f"{key}: expected {_describe(fields[key])}; got '{word}'")
    InputError.collect(problems)
    return values


def _convert(word: str, hint: Any) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(None) in options and word.lower() in ("none", "auto"):
        return None
    kinds = [option for option in options if option is not type(None)]
    if bool in kinds:
        if word.lower() not in ("true", "false"):
            raise ValueError(word)
        return word.lower() == "true"
    for kind in (int, float):
        if kind in kinds:
            return kind(word)
    return word


def _describe(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "none"}
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return " or ".join(names.get(option, str(option)) for option in options)


def _below(value: float | None, low: float) -> bool:
    return value is not None and not value >= low
