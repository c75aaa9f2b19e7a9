"""Studies: many runs declared in one file, done once, and shown as tables and plots with intervals.

`hushgraph.study(...)` runs one: the package is callable, because a function of that name beside the package would be
hidden as soon as a module of it is imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.study.results import Results


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Results:
        from hushgraph.study.run import study

        return study(*args, **options)


sys.modules[__name__].__class__ = _Callable
