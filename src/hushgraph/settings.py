"""Settings: typed fields with their constraint and help beside them, checked together when an object is made.

@dataclass(frozen=True)
class Mine(Settings):
    hops: int = setting(2, least=1, help="noisy sums over neighbors")
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Collection
from typing import Any, ClassVar, Self

from hushgraph.errors import InputError, did_you_mean

LARGEST = 1e30


def setting(
    default: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
    among: Collection[str] | None = None,
    help: str = "",
    in_python: bool = False,
) -> Any:
    """A field with its constraint. None, where the type allows it, means: chosen by rule.

    `in_python`: an object, which cannot be typed on a command line.
    """
    rules = {
        "least": least,
        "above": above,
        "below": below,
        "most": most,
        "among": among,
    }
    return dataclasses.field(default=default, metadata={"rules": rules, "help": help, "in_python": in_python})


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of whatever is set by a user. `aliases` are names of settings that older words and files use."""

    aliases: ClassVar[dict[str, str]] = {}

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Told before `__init__` says that an argument was unexpected: which setting it might be."""
        known = [field.name for field in dataclasses.fields(cls) if field.init]
        if unknown := [name for name in named if name not in known]:
            likely = {name: did_you_mean(cls.aliases.get(name, name), known) for name in unknown}
            raise InputError(*(f"unknown setting '{name}' of {cls.__name__}; {likely[name]}" for name in unknown))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name, None)
            if isinstance(value, numbers.Real) and not isinstance(value, int | float):  # numpy's, from a grid search
                plain = int(value) if isinstance(value, numbers.Integral) else float(value)
                object.__setattr__(self, field.name, plain)
        InputError.collect(self.problems())

    def problems(self) -> list[str]:
        """Everything wrong with the values, in words; subclasses add what concerns several settings at once."""
        hints = _hints(type(self))
        return [
            problem
            for field in dataclasses.fields(self)
            if (problem := self._wrong(field, hints.get(field.name))) is not None
        ]

    def _wrong(self, field: dataclasses.Field[Any], hint: Any) -> str | None:
        value = getattr(self, field.name)
        if value is field.default:
            return None  # a default fits its own rule; so lists of names wait until one is chosen
        return _problem(field.name, _rules(type(self), field.name), value) or _kind_problem(field.name, hint, value)

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return dataclasses.asdict(self)

    def changed(self) -> dict[str, Any]:
        """The settings that are not at their defaults."""
        values = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        return {name: value for name, (value, default) in values.items() if value is not default and value != default}

    # In the words of scikit-learn

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; there is nothing deeper."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}

    def set_params(self, **given: Any) -> Self:
        """The same with other values. Settings never change once they are made: this is a new object."""
        known = self.get_params()
        InputError.collect(
            f"unknown setting '{name}'; {did_you_mean(name, known)}" for name in given if name not in known
        )
        return dataclasses.replace(self, **given)

    @classmethod
    def from_words(cls, words: dict[str, str]) -> dict[str, Any]:
        """Turn `key=value` strings into keyword arguments."""
        return from_words(cls, words)


def from_words(cls: type, words: dict[str, str]) -> dict[str, Any]:
    """Turn `key=value` strings into keyword arguments of the dataclass `cls`."""
    hints = typing.get_type_hints(cls)
    typed = (field for field in dataclasses.fields(cls) if field.init and not field.metadata.get("in_python"))
    fields = {field.name: hints[field.name] for field in typed}
    aliases = getattr(cls, "aliases", {})
    problems, values = [], {}
    for word_key, word in words.items():
        key = aliases.get(word_key, word_key)
        if key not in fields:
            problems.append(f"unknown setting '{key}'; {did_you_mean(key, fields)}")
            continue
        try:
            values[key] = _convert(word, fields[key])
        except ValueError:
            problems.append(f"{key}: expected {_describe(fields[key])}; got '{word}'")
    InputError.collect(problems)
    return values


def _rules(cls: type, name: str) -> dict[str, Any]:
    """The constraint of a field; a subclass that only states another default keeps it."""
    declared = (getattr(base, "__dataclass_fields__", {}).get(name) for base in cls.__mro__)
    return next((field.metadata["rules"] for field in declared if field is not None and "rules" in field.metadata), {})


def _problem(name: str, rules: dict[str, Any], value: Any) -> str | None:
    if value is None or not rules:
        return None
    if rules["among"] is not None:
        if value in rules["among"]:
            return None
        return f"{name}: got '{value}'; {did_you_mean(str(value), rules['among'])}"
    numeric = {key: bound for key, bound in rules.items() if key != "among" and bound is not None}
    if not numeric:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return f"{name}: expected a number; got {value!r}"
    if math.isfinite(value) and abs(value) > LARGEST:
        return f"{name}: expected at most {LARGEST:g}, which networks can compute with; got {value!r}"
    checks = {"least": value >= numeric.get("least", value), "above": value > numeric.get("above", -math.inf)}
    checks |= {"below": value < numeric.get("below", math.inf), "most": value <= numeric.get("most", value)}
    words = {"least": "at least", "above": "above", "below": "below", "most": "at most"}
    broken = [f"{words[key]} {numeric[key]:g}" for key in numeric if not checks[key]]
    return f"{name}: expected {' and '.join(broken)}; got {value!r}" if broken else None


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError:  # of a class whose annotations name what it imports for type checkers alone
        return {}


def _kind_problem(name: str, hint: Any, value: Any) -> str | None:
    """What is wrong with the type of a value; None also where its type cannot be asked about (a list of words)."""
    options = _options(hint)
    if not all(isinstance(option, type) for option in options):
        return None
    kinds = {int: numbers.Integral, float: numbers.Real}
    options_met = [option for option in options if isinstance(value, kinds.get(option, option))]
    if options_met and (bool in options or not isinstance(value, bool)):
        return None
    if isinstance(value, type):
        return f"{name}: expected {_describe(hint)}; got a class; make one of it: {name}={value.__name__}(...)"
    return f"{name}: expected {_describe(hint)}; got {value!r}"


def _convert(word: str, hint: Any) -> Any:
    options = _options(hint)
    if type(None) in options and word.lower() in ("none", "auto"):
        return None
    kinds = [option for option in options if option is not type(None)]
    if bool in kinds:
        if word.lower() not in ("true", "false"):
            raise ValueError(word)
        return word.lower() == "true"
    if "," in word and any(typing.get_origin(kind) is tuple for kind in kinds):
        return tuple(float(part) for part in word.split(","))
    for kind in (int, float):
        if kind in kinds:
            return kind(word)
    return word


def _describe(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "none"}
    return " or ".join(names.get(option) or f"a {option.__name__} object" for option in _options(hint))


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
