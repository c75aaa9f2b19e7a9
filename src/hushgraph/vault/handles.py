"""The handle that stands for private rows outside the vault."""

from __future__ import annotations

from typing import Any, NoReturn

from hushgraph.errors import PrivateAccessError


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
