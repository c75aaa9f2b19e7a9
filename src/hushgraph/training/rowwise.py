"""Which layers treat every row by itself, and the refusal of all others.

Clipping each example's gradient bounds what one example can do only if the example touches nothing but its own row. A
layer that mixes rows (batch norm, message passing) breaks that, silently. So a layer is refused unless its type is
registered here with the reason why it is row-wise. Subclasses are not covered: they may do anything in `forward`.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hushgraph.errors import UnprovenError
from hushgraph.nn import MLP, Combine, Dropout, Encoder, HopClassifier, L2Normalize, Linear
from hushgraph.nn.chorus import Ensemble, FeatureModel, FloorScale, LinearNetwork, UnitRows
from hushgraph.nn.progressive import ProgressiveNetwork, Submodel
from hushgraph.nn.rooted import NoisyMean, NoisySum, WithConstant, WithRest

Condition = Callable[[nn.Module], str | None]
"""Says why this particular layer is not row-wise, or None when it is."""

_ROWWISE: dict[type[nn.Module], tuple[str, Condition | None]] = {}


def register_rowwise(layer: type[nn.Module], proof: str, condition: Condition | None = None) -> None:
    """Declare that `layer` computes each output row from the same input row only.

    `proof` is the reason in one sentence. `condition` looks at an instance and says what is wrong with it, if anything.
    For a container, the claim is about its own `forward`; the layers inside it are checked one by one.
    """
    if not proof.strip():
        raise UnprovenError(f"expected the reason why {layer.__name__} is row-wise; got nothing; write one sentence")
    _ROWWISE[layer] = (proof, condition)


def is_registered(layer: nn.Module) -> bool:
    """Whether the exact type of `layer` is registered."""
    return type(layer) in _ROWWISE


def require_rowwise(module: nn.Module) -> None:
    """Raise `UnprovenError`, naming every layer for which no row-wise proof is registered."""
    found = []
    for name, layer in module.named_modules():
        reason = _objection(layer)
        if reason is not None:
            found.append(f"layer '{name or 'model'}' ({type(layer).__name__}): {reason}")
    UnprovenError.collect(found)


def _objection(layer: nn.Module) -> str | None:
    """Why `layer` is refused, or None."""
    alternative = "use norm='group', i.e. GroupNorm(1, channels), which looks at one row at a time"
    if isinstance(layer, _BatchNorm):
        return f"expected a row-wise layer; got batch norm, which mixes the rows of a batch; {alternative}"
    if any(base.__name__ == "MessagePassing" for base in type(layer).__mro__):
        return (
            "expected a row-wise layer; got message passing, which mixes the rows of neighbors; aggregate with a"
            " private mechanism first, or use per-root gradients on rooted subgraphs"
        )
    if type(layer) not in _ROWWISE:
        return (
            "expected a layer known to be row-wise; got one without proof; replace it, or register it with"
            " register_rowwise(type, proof)"
        )
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or "forward" in vars(layer):
        return "expected a plain layer; got one with hooks or a replaced forward; remove them"
    condition = _ROWWISE[type(layer)][1]
    return condition(layer) if condition else None


def _last_dimension_only(layer: nn.Module) -> str | None:
    dim = layer.dim
    if isinstance(dim, int) and dim != 0 and dim >= -1:
        return None
    return f"expected a softmax over a dimension after the first; got dim={dim}; use dim=-1"


def _one_normalized_dimension(layer: nn.Module) -> str | None:
    shape = layer.normalized_shape
    if len(shape) == 1:  # type: ignore[arg-type]
        return None
    return f"expected LayerNorm over the last dimension; got shape {shape}; pass the number of channels"


def _keeps_rows(layer: nn.Module) -> str | None:
    if isinstance(layer.start_dim, int) and layer.start_dim >= 1:
        return None
    return f"expected Flatten that keeps the first dimension; got start_dim={layer.start_dim}; use 1"


def _register_known() -> None:
    for activation in (
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
    ):
        register_rowwise(activation, "Applied to each entry by itself.")
    for dropout in (nn.Dropout, Dropout):
        register_rowwise(dropout, "Each entry is dropped by its own coin.")
    for linear in (nn.Linear, Linear):
        register_rowwise(linear, "Each output row is the weight applied to one input row.")
    for softmax in (nn.Softmax, nn.LogSoftmax):
        register_rowwise(softmax, "Normalizes within a row.", _last_dimension_only)
    register_rowwise(nn.LayerNorm, "Mean and variance of one row.", _one_normalized_dimension)
    register_rowwise(nn.GroupNorm, "Mean and variance of channel groups of one row.")
    register_rowwise(L2Normalize, "Divides a row by its own length.")
    register_rowwise(nn.Flatten, "Reshapes within a row.", _keeps_rows)
    register_rowwise(Combine, "Concatenates, adds or weighs the hops of one row.")
    register_rowwise(WithConstant, "Appends a constant to a row and scales that row.")
    register_rowwise(NoisyMean, "Divides a row by its own last entry.")
    register_rowwise(WithRest, "Scales a row by its own length and appends what is missing.")
    register_rowwise(NoisySum, "Adds the two parts of one row.")
    register_rowwise(UnitRows, "Divides a row by its own length.")
    register_rowwise(FloorScale, "Divides a row by its own length or a constant.")
    register_rowwise(LinearNetwork, "Adds up linear maps of the parts of one row.")
    register_rowwise(FeatureModel, "Rescales the class scores of one row.")
    register_rowwise(Ensemble, "Adds up linear maps of the parts of one row; averages class scores of one row.")
    for container in (
        nn.Sequential,
        nn.ModuleList,
        MLP,
        Encoder,
        HopClassifier,
        Submodel,
        ProgressiveNetwork,
    ):
        register_rowwise(container, "Only passes rows through the layers inside it.")


_register_known()
