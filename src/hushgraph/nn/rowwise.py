"""What a module class declares about itself: that it treats every row alone, and which layers it passes rows through.

Clipping each example's gradient bounds what one example can do only if the example touches nothing but its own row. A
layer that mixes rows (batch norm, message passing) breaks that, silently. So a layer is refused unless its class says
why it is row-wise: with `@rowwise("reason")` above the class, or by `register_rowwise` for classes of others.
Subclasses are not covered: they may do anything in `forward`.

`@unfolds` is for speed: it lists the modules that `forward` passes its rows through, so that training can write their
gradients out by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hushgraph.errors import UnprovenError
from hushgraph.graph.rows import narrow_rows

Condition = Callable[[Any], str | None]
"""Says why this particular layer is not row-wise, or None when it is."""

Module = TypeVar("Module", bound=type[nn.Module])

_MANY_ROWS = 1 << 17
_BLOCK = 1 << 14  # so few that what is computed on the way stays in the processor's cache
_ROWWISE: dict[type[nn.Module], tuple[str, Condition | None]] = {}


@dataclass(frozen=True)
class Branches:
    """One network per part of a row, and how their outputs are combined: side by side ("cat") or added ("sum").

    Any other combination has no gradient written out by hand.
    """

    bases: Sequence[nn.Module]
    combine: str


Unfolding = Callable[[Any], Sequence[nn.Module | Branches]]

_UNFOLDINGS: dict[type[nn.Module], Unfolding] = {}


def rowwise(proof: str, condition: Condition | None = None) -> Callable[[Module], Module]:
    """Declare, above a class, that it computes each output row from the same input row only; see `register_rowwise`."""

    def declare(layer: Module) -> Module:
        register_rowwise(layer, proof, condition)
        return layer

    return declare


def register_rowwise(layer: type[nn.Module], proof: str, condition: Condition | None = None) -> None:
    """Declare that `layer` computes each output row from the same input row only.

    `proof` is the reason in one sentence. `condition` looks at an instance and says what is wrong with it, if anything.
    For a container, the claim is about its own `forward`; the layers inside it are checked one by one.
    """
    if not proof.strip():
        raise UnprovenError(f"expected the reason why {layer.__name__} is row-wise; got nothing; write one sentence")
    _ROWWISE[layer] = (proof, condition)


def unfolds(unfold: Unfolding) -> Callable[[Module], Module]:
    """Declare, above a class, that its `forward` passes rows through the modules that `unfold(instance)` lists.

    Only the exact class is covered. The claim must be true: training then runs the listed modules and never calls
    `forward`.
    """

    def declare(layer: Module) -> Module:
        _UNFOLDINGS[layer] = unfold
        return layer

    return declare


def unfolded(module: nn.Module) -> Sequence[nn.Module | Branches] | None:
    """The modules that `module` passes its rows through, as its class declares; None when it declares nothing."""
    unfold = _UNFOLDINGS.get(type(module))
    return None if unfold is None else unfold(module)


def is_registered(layer: nn.Module) -> bool:
    """Whether the exact type of `layer` is declared row-wise."""
    return type(layer) in _ROWWISE


def require_rowwise(module: nn.Module) -> None:
    """Raise `UnprovenError`, naming every layer whose class does not declare that it is row-wise."""
    found = []
    for name, layer in module.named_modules():
        reason = objection(layer)
        if reason is not None:
            found.append(f"layer '{name or 'model'}' ({type(layer).__name__}): {reason}")
    UnprovenError.collect(found)


def treats_rows_alone(module: object) -> bool:
    """Whether what a module computes for a row follows from that row: batch norm does so where nothing is trained."""
    return isinstance(module, nn.Module) and all(
        not layer.training if isinstance(layer, _BatchNorm) else objection(layer) is None for layer in module.modules()
    )


@torch.no_grad()
def apply_to(rows: Any, function: Callable[[Any], Any], owner: object) -> Any:
    """`function(rows)`; some rows at a time where they are many and `owner`, whose function it is, treats each alone.

    What it needs on the way, such as hidden layers, then never grows with the number of rows.
    """
    count = int(rows.shape[0])
    if count <= _MANY_ROWS or not treats_rows_alone(owner):
        return function(rows)
    first = function(narrow_rows(rows, 0, _BLOCK))
    if not isinstance(first, Tensor):
        return function(rows)
    out = torch.empty((count, *first.shape[1:]), dtype=first.dtype)
    out[:_BLOCK] = first
    for start in range(_BLOCK, count, _BLOCK):
        some = min(_BLOCK, count - start)
        out[start : start + some] = function(narrow_rows(rows, start, some))
    return out


def has_hooks(layer: nn.Module) -> bool:
    """Whether code was attached to this instance that its class does not have."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in vars(layer)


def is_message_passing(layer: nn.Module) -> bool:
    """Whether a layer is a convolution of PyTorch Geometric."""
    return any(base.__name__ == "MessagePassing" for base in type(layer).__mro__)


def objection(layer: nn.Module) -> str | None:
    """Why `layer` is refused, or None."""
    alternative = "use norm='group', i.e. GroupNorm(1, channels), which looks at one row at a time"
    if isinstance(layer, _BatchNorm):
        return f"expected a row-wise layer; got batch norm, which mixes the rows of a batch; {alternative}"
    if is_message_passing(layer):
        return (
            "expected a row-wise layer; got message passing, which mixes the rows of neighbors; aggregate with a"
            " private mechanism first, or use per-root gradients on rooted subgraphs"
        )
    if type(layer) not in _ROWWISE:
        return (
            "expected a layer known to be row-wise; got one without proof; replace it, or declare its class with"
            " @rowwise(reason)"
        )
    if has_hooks(layer):
        return "expected a plain layer; got one with hooks or a replaced forward; remove them"
    condition = _ROWWISE[type(layer)][1]
    return condition(layer) if condition else None


def _last_dimension_only(layer: nn.Softmax | nn.LogSoftmax) -> str | None:
    dim = layer.dim
    if isinstance(dim, int) and dim != 0 and dim >= -1:
        return None
    return f"expected a softmax over a dimension after the first; got dim={dim}; use dim=-1"


def _one_normalized_dimension(layer: nn.LayerNorm) -> str | None:
    shape = layer.normalized_shape
    if len(shape) == 1:
        return None
    return f"expected LayerNorm over the last dimension; got shape {shape}; pass the number of channels"


def _keeps_rows(layer: nn.Flatten) -> str | None:
    if isinstance(layer.start_dim, int) and layer.start_dim >= 1:
        return None
    return f"expected Flatten that keeps the first dimension; got start_dim={layer.start_dim}; use 1"


def _register_layers_of_torch() -> None:
    entrywise = (
        nn.ELU,
        nn.GELU,
        nn.Identity,
        nn.LeakyReLU,
        nn.ReLU,
        nn.SELU,
        nn.SiLU,
        nn.Sigmoid,
        nn.Softplus,
        nn.Tanh,
    )
    for activation in entrywise:
        register_rowwise(activation, "Applied to each entry by itself.")
    for softmax in (nn.Softmax, nn.LogSoftmax):
        register_rowwise(softmax, "Normalizes within a row.", _last_dimension_only)
    for container in (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterDict):
        register_rowwise(container, "Only passes rows through the layers inside it.")
    register_rowwise(nn.Dropout, "Each entry is dropped by its own coin.")
    register_rowwise(nn.Linear, "Each output row is the weight applied to one input row.")
    register_rowwise(nn.LayerNorm, "Mean and variance of one row.", _one_normalized_dimension)
    register_rowwise(nn.GroupNorm, "Mean and variance of channel groups of one row.")
    register_rowwise(nn.Flatten, "Reshapes within a row.", _keeps_rows)
    unfolds(lambda module: list(module.children()))(nn.Sequential)


_register_layers_of_torch()
