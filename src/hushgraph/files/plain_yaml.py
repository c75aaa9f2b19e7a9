"""YAML files of plain values. What they unfold to is judged before any of it is built.

Names that stand for other parts of a file (`&a`, `*a`) let a short text stand for a very long one: a file may unfold to
four times the largest one there may be.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from hushgraph.errors import InputError
from hushgraph.files.reading import MOST_DIGITS, read_within

LARGEST_YAML = 1 << 17
_MOST_UNFOLDED = 4 * LARGEST_YAML
_DEEPEST = 40


def read_yaml(path: str | os.PathLike[str], *, of: str) -> Any:
    """The plain value in a YAML file (`of` what it is one); a key that is there twice is refused."""
    yaml, loader_class = _loader()
    content = read_within(path, LARGEST_YAML, of=of)
    loader = None
    try:
        loader = loader_class(content.decode("utf-8"))
        node = loader.get_single_node()
        if node is None:
            return None
        _judge(node, yaml.ScalarNode)
        return loader.construct_document(node)
    except (yaml.YAMLError, ValueError, TypeError, ArithmeticError, RecursionError, LookupError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())[:300]
        raise InputError(f"{path}: expected YAML; {said}") from error
    finally:
        if loader is not None:
            loader.dispose()


@lru_cache(maxsize=1)
def _loader() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise InputError("study files need PyYAML; install it: pip install 'hushgraph[study]'") from error

    class Loader(yaml.SafeLoader):  # that of libyaml crashes on deep nesting
        """Plain values only; a key that is there twice is an error."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """The mapping, with its keys seen once each."""
            seen = set()
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                name = self.construct_object(key, deep=True)
                if not isinstance(name, str | int | float):
                    raise yaml.constructor.ConstructorError(None, None, "a key that is no word", key.start_mark)
                if name in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{name} twice", key.start_mark)
                seen.add(name)
            return super().construct_mapping(node, deep)

    added: Any = Loader.add_constructor
    for kind in ("binary", "set", "omap", "pairs"):
        added(f"tag:yaml.org,2002:{kind}", Loader.construct_undefined)
    added("tag:yaml.org,2002:timestamp", Loader.construct_yaml_str)
    return yaml, Loader


def _judge(root: Any, scalar: type) -> None:
    """Refuse what unfolds to too much, contains itself, is nested too deeply, or has a number of too many digits."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size_of(node: Any, depth: int) -> int:
        name = id(node)
        if name in open_nodes or depth > _DEEPEST:
            raise ValueError("it contains itself" if name in open_nodes else "it is nested too deeply")
        if name not in sizes:
            open_nodes.add(name)
            sizes[name] = 1 + (_length(node) if isinstance(node, scalar) else sum(parts(node, depth)))
            open_nodes.remove(name)
        if sizes[name] > _MOST_UNFOLDED:
            raise ValueError("it unfolds to more than a file may hold")
        return sizes[name]

    def parts(node: Any, depth: int) -> Any:
        for one in node.value:
            for part in one if isinstance(one, tuple) else (one,):
                yield size_of(part, depth + 1)

    size_of(root, 0)


def _length(node: Any) -> int:
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MOST_DIGITS:
        raise ValueError(f"a number has {len(node.value)} digits")
    return len(node.value)
