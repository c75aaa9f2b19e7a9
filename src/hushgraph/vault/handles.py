"""Handles to rows that stay in a vault, and what leaves one when its run is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from torch import Tensor

from hushgraph.errors import PrivateAccessError
from hushgraph.graph.rows import Rows
from hushgraph.privacy.plan import Plan


class PrivateRows:
    """A handle to rows that stay in a vault. It knows its shape; everything else raises.

    A row follows from its node's own record and from what was released, unless the handle is `raw`: those rows read raw
    neighborhoods, so no mechanism has a bound for them.
    """

    __slots__ = ("__weakref__", "raw", "shape", "what")

    def __init__(self, shape: tuple[int, ...], what: str, *, raw: bool = False) -> None:
        self.shape = shape
        self.what = what
        self.raw = raw

    def __repr__(self) -> str:
        return f"PrivateRows({self.what}, shape={self.shape})"

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise PrivateAccessError(
            f"{self.what} are private under the unit in force and stay in the vault; pass the handle to a vault method"
        )

    def __getattr__(self, name: str) -> Any:
        self._refuse()

    __getitem__ = __iter__ = __array__ = __bool__ = __float__ = __int__ = __reduce_ex__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __rmatmul__ = _refuse


Held = Rows | PrivateRows


@dataclass(frozen=True)
class Ended:
    """What a run leaves: class scores for the holder (`scores_are_private`: not for others), and all that was released.

    `trained_how` says how stages were trained where a rule decided that; `nodes` is the split, `seconds` the time of
    every stage.
    """

    plan: Plan
    scores: Tensor | None
    scores_are_private: bool
    released: dict[str, list[Any]]
    nodes: dict[str, Tensor]
    seconds: dict[str, float]
    trained_how: dict[str, Any]
