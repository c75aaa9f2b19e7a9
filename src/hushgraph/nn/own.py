"""A user's own module, read as a fixed list of steps of which each is row-wise, and run as that list.

An arbitrary `forward` proves nothing: it may look at the whole batch. So it is traced (`torch.fx`), while training and
while predicting, and accepted only if both give the same list, and if every step is a layer that is known to treat rows
alone or a function that does: entry by entry, or along the columns of one row. What runs afterwards is this list and
never the user's `forward`, so what was checked is what is computed. Anything else is refused with the step that is in
the way; a class that is declared with `@rowwise(reason)` is taken at its word.

Linear layers and dropout become those of this package, which take sparse rows and draw from a generator of their own.
"""

from __future__ import annotations

import copy
import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node as Step
from torch.fx.node import map_arg

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.rows import Rows, dense_rows
from hushgraph.nn.layers import Dropout, Linear, fresh_generator
from hushgraph.nn.rowwise import (
    has_hooks,
    is_message_passing,
    is_registered,
    objection,
    require_rowwise,
    rowwise,
    unfolds,
)

_ENTRYWISE: set[Any] = {
    *(torch.relu, torch.tanh, torch.sigmoid, torch.abs, torch.exp, torch.neg, torch.square, torch.clamp, torch.selu),
    *(F.relu, F.selu, F.gelu, F.silu, F.elu, F.leaky_relu, F.tanh, F.sigmoid, F.softplus, F.relu6, F.hardtanh),
    *(operator.neg, operator.abs),
    *("relu", "tanh", "sigmoid", "abs", "exp", "neg", "square", "clamp", "float", "contiguous"),
}
_PAIRED: set[Any] = {
    *(operator.add, operator.sub, operator.mul, operator.truediv, torch.add, torch.sub, torch.mul, torch.div),
    *("add", "sub", "mul", "div"),
}
_ALONG_A_ROW: set[Any] = {torch.softmax, F.softmax, F.log_softmax, torch.log_softmax, "softmax", "log_softmax"}
_OVER_A_ROW: set[Any] = {torch.sum, torch.mean, torch.amax, "sum", "mean", "amax"}
_WITH_POWER: set[Any] = {F.normalize, torch.norm, "norm"}
_JOINED: set[Any] = {torch.cat, torch.concat}
_COLUMNS = (1, -1)


@rowwise("Every step of its list was found to be row-wise when it was made, and it runs nothing else.")
@unfolds(lambda own: own.chain)
class OwnModule(nn.Module):
    """The list of steps of a user's module, with its layers and parameters."""

    def __init__(self, steps: list[Step], held: nn.Module, generator: torch.Generator) -> None:
        super().__init__()
        self.layers, self.numbers = nn.ModuleDict(), nn.ParameterDict()
        self.steps = steps
        for node in steps:
            key = _key(node)
            if node.op == "call_module" and key not in self.layers:
                self.layers[key] = _ours(held.get_submodule(str(node.target)), generator)
            if node.op == "get_attr" and key not in self.numbers:
                value = _attribute(held, str(node.target)).detach().clone().float()
                self.numbers[key] = nn.Parameter(value, requires_grad=_trains(held, str(node.target)))
        self.out_features = 0
        """The number of columns that come out; `own_module` finds it."""

    @property
    def chain(self) -> list[nn.Module] | None:
        """The layers, where rows pass through one after the other, once where there is something to learn; or None."""
        before: Any = None
        for node in self.steps:
            if node.op == "output":
                return [self.layers[_key(n)] for n in self.steps if n.op == "call_module"]
            if node.op == "placeholder":
                before = node
                continue
            alone = node.args == (before,) and not node.kwargs and len(before.users) == 1
            if node.op != "call_module" or not alone or self._learns_twice(node):
                return None
            before = node
        return None

    def _learns_twice(self, node: Step) -> bool:
        uses = sum(other.op == "call_module" and other.target == node.target for other in self.steps)
        return uses > 1 and any(True for _ in self.layers[_key(node)].parameters())

    def forward(self, rows: Rows) -> Tensor:
        """Run the list."""
        found: dict[Step, Any] = {}
        for node in self.steps:
            args, kwargs = map_arg((node.args, node.kwargs), lambda one: found[one])
            if node.op == "placeholder":
                found[node] = rows if self._starts_linear else dense_rows(rows)
            elif node.op == "call_module":
                found[node] = self.layers[_key(node)](*args, **kwargs)
            elif node.op == "get_attr":
                found[node] = self.numbers[_key(node)]
            elif node.op == "call_method":
                found[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
            elif node.op == "call_function":
                assert callable(node.target)
                found[node] = node.target(*args, **kwargs)
        last = self.steps[-1].args[0]
        assert isinstance(last, Step)
        result: Tensor = found[last]
        return result

    @property
    def _starts_linear(self) -> bool:
        """Whether the rows that come in go to linear layers alone, which take sparse ones."""
        users = [user for node in self.steps if node.op == "placeholder" for user in node.users]
        return all(user.op == "call_module" and type(self.layers[_key(user)]) is Linear for user in users)

    def __deepcopy__(self, memo: dict[int, Any]) -> OwnModule:
        """Steps are never changed: copies share them."""
        memo[id(self.steps)] = self.steps
        result = self.__class__.__new__(self.__class__)
        memo[id(self)] = result
        result.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return result


def own_module(
    module: nn.Module, name: str, columns: int, generator: torch.Generator, *, plain: bool, out: int | None = None
) -> nn.Module:
    """A copy of the user's `module` to train, which takes rows of `columns` numbers and says its `out_features`.

    `plain`: it is trained on public rows, where batch norm is allowed. `out` is how many columns have to come out.
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            f"{name}: expected a torch.nn.Module; got {type(module).__name__}; make one: {name}=MyModule()"
        )
    if is_registered(module) and not isinstance(module, nn.Sequential):
        require_rowwise(module)
        result = copy.deepcopy(module).float().cpu()
    else:
        held = copy.deepcopy(module)
        result = OwnModule(_proved(held, name, plain), held, generator)
    width = _width(result, name, columns)
    if out is not None and width != out:
        raise InputError(f"{name}: expected {out} columns to come out; got {width}; change its last layer")
    vars(result)["out_features"] = width
    return result.train()


def _proved(module: nn.Module, name: str, plain: bool) -> list[Step]:
    """The steps of the module, all of them row-wise."""
    unset = nn.modules.lazy.LazyModuleMixin
    lazy = [place or "itself" for place, layer in module.named_modules() if isinstance(layer, unset)]
    if lazy:
        raise InputError(
            f"{name}: expected layers of known width; got lazy ones ({', '.join(lazy)}), which take theirs from the "
            "first data they see. Give them a row of zeros first, or write the width"
        )
    hooked = [place or "itself" for place, layer in module.named_modules() if has_hooks(layer)]
    if hooked:
        raise UnprovenError(f"{name}: expected plain layers; got hooks or a replaced forward on {', '.join(hooked)}")
    passing = [place or "itself" for place, layer in module.named_modules() if is_message_passing(layer)]
    if passing:
        raise UnprovenError(
            f"{name}: expected a row-wise module; got message passing ({', '.join(passing)}), which mixes the rows of "
            "neighbors. Give the layers before and after it: the method itself sums over neighbors, with noise"
        )
    traced = [_traced(module.train(mode), name) for mode in (True, False)]
    steps, others = ([_signature(node) for node in graph.nodes] for graph in traced)
    if steps != others:
        raise UnprovenError(
            f"{name}: expected the same steps in training and prediction; got two lists. Use layers that know which it "
            "is (nn.Dropout) instead of asking self.training"
        )
    nodes = list(traced[0].nodes)
    problems = [problem for node in nodes if (problem := _objection(node, module, plain)) is not None]
    UnprovenError.collect(f"{name}: {problem}" for problem in dict.fromkeys(problems))
    return nodes


def _traced(module: nn.Module, name: str) -> fx.Graph:
    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            usual: bool = super().is_leaf_module(m, module_qualified_name)
            return usual or (is_registered(m) and not isinstance(m, nn.Sequential))

    try:
        return Tracer().trace(module)
    except Exception as error:
        raise UnprovenError(
            f"{name}: expected a forward that is a fixed list of steps; got one that is not ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}). Make it of layers and plain functions, or declare "
            "its class with @hushgraph.nn.rowwise.rowwise(reason)"
        ) from error


def _signature(node: Step) -> tuple[str, str, str]:
    return node.op, str(node.target), str((node.args, node.kwargs))


def _objection(node: Step, module: nn.Module, plain: bool) -> str | None:
    """Why a step is not known to treat every row alone, or None."""
    if node.op == "placeholder":
        return None if node.target == next(iter(_inputs(node))) else f"expected one input; got also '{node.target}'"
    if node.op == "output":
        return None if isinstance(node.args[0], Step) else "expected one output; got several"
    if node.op == "get_attr":
        few = _attribute(module, str(node.target)).dim() <= 1
        return None if few else f"expected a number per column in '{node.target}'; got more: put it in a layer"
    if node.op == "call_module":
        layer = module.get_submodule(str(node.target))
        if plain and type(layer) is nn.BatchNorm1d:
            return None
        if getattr(layer, "inplace", False):
            return (
                f"layer '{node.target}' ({type(layer).__name__}): expected a new result; got inplace=True; leave it out"
            )
        reason = objection(layer)
        return None if reason is None else f"layer '{node.target}' ({type(layer).__name__}): {reason}"
    return None if _is_rowwise(node) else f"step '{node.name}' ({_word(node.target)}): {_WITHOUT_PROOF}"


_WITHOUT_PROOF = (
    "expected a function that treats every row alone; got one that is not known to. Known are functions of single "
    "entries, + - * / of rows and numbers, cat, softmax and normalize along dim=-1, sums and means with dim=-1 and "
    "keepdim=True, and layers"
)


_OPTIONS = {"dim", "axis", "keepdim", "p", "eps", "dtype", "inplace", "input", "other", "alpha", "min", "max", "out"}
_OPTIONS |= {"negative_slope", "beta", "threshold", "approximate", "training", "lower", "upper", "value", "weight"}
"""Keywords of known functions. Writing in place, or into something that stays (`out`), is refused."""


def _is_rowwise(node: Step) -> bool:
    target, dim = node.target, _dim(node)
    if not set(node.kwargs) <= _OPTIONS or node.kwargs.get("inplace") or node.kwargs.get("out") is not None:
        return False
    if target in _ENTRYWISE:
        return _one_row_and_numbers(node)
    if target in _PAIRED:
        numbers = all(isinstance(one, int | float) for one in node.kwargs.values())
        return numbers and all(isinstance(one, Step | int | float) for one in node.args)
    if target in _WITH_POWER:  # their second argument is no dimension, so that is looked for by its name alone
        whole = target is F.normalize or node.kwargs.get("keepdim") is True
        return (
            whole and len(node.args) <= 2 and node.kwargs.get("dim", 1 if target is F.normalize else None) in _COLUMNS
        )
    if target in _ALONG_A_ROW:
        return dim in _COLUMNS
    if target in _OVER_A_ROW:
        return dim in _COLUMNS and node.kwargs.get("keepdim") is True
    return target in _JOINED and dim in _COLUMNS


def _one_row_and_numbers(node: Step) -> bool:
    numbers = (*node.args[1:], *node.kwargs.values())
    return isinstance(node.args[0], Step) and all(isinstance(n, int | float | bool | str | None) for n in numbers)


def _dim(node: Step) -> Any:
    return node.kwargs["dim"] if "dim" in node.kwargs else node.args[1] if len(node.args) > 1 else None


def _inputs(node: Step) -> list[Any]:
    return [one.target for one in node.graph.nodes if one.op == "placeholder"]


def _word(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _key(node: Step) -> str:
    return str(node.target).replace(".", "_")


def _attribute(module: nn.Module, path: str) -> Tensor:
    *places, last = path.split(".")
    value: Tensor = getattr(module.get_submodule(".".join(places)), last)
    return value


def _trains(module: nn.Module, path: str) -> bool:
    value = _attribute(module, path)
    return isinstance(value, nn.Parameter) and value.requires_grad


def _ours(layer: nn.Module, generator: torch.Generator) -> nn.Module:
    """The layer of this package that does the same, or a copy."""
    if type(layer) is nn.Linear:
        result: nn.Module = Linear(layer.in_features, layer.out_features, layer.bias is not None, generator=generator)
        result.load_state_dict(layer.state_dict())
        for ours, theirs in zip(result.parameters(), layer.parameters()):
            ours.requires_grad_(theirs.requires_grad)
        return result
    if type(layer) is nn.Dropout:
        seed = int(torch.randint(2**62, (1,), generator=fresh_generator(generator)))
        return Dropout(layer.p, generator=torch.Generator().manual_seed(seed))
    return copy.deepcopy(layer).float().cpu()


def _width(module: nn.Module, name: str, columns: int) -> int:
    """How many columns come out, found with rows of zeros."""
    was_training = module.training
    try:
        with torch.no_grad():
            found: Any = module.eval()(torch.zeros(3, columns))
    except Exception as error:
        lines = str(error).splitlines()
        raise InputError(
            f"{name}: expected a module that takes rows of {columns} columns; got {type(error).__name__} "
            f"({lines[0] if lines else ''}); change its first layer"
        ) from error
    finally:
        module.train(was_training)
    if not isinstance(found, Tensor) or found.dim() != 2 or len(found) != 3:
        raise InputError(f"{name}: expected one row per row; got {getattr(found, 'shape', type(found).__name__)}")
    return int(found.shape[1])


# What is written with a model

_KINDS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "Linear": (nn.Linear, ("in_features", "out_features")),
    "LayerNorm": (nn.LayerNorm, ("normalized_shape", "eps")),
    "GroupNorm": (nn.GroupNorm, ("num_groups", "num_channels", "eps")),
    "BatchNorm1d": (nn.BatchNorm1d, ("num_features", "eps", "momentum")),
    "Dropout": (nn.Dropout, ("p",)),
    **{kind.__name__: (kind, ()) for kind in (nn.ReLU, nn.SELU, nn.Tanh, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Identity)},
}


def described(module: nn.Module) -> dict[str, Any]:
    """A plain sequence of usual layers by its layers; any other module by the name of its class."""
    parts = list(module.children()) if type(module) is nn.Sequential else []
    if parts and all(_KINDS.get(type(part).__name__, (None,))[0] is type(part) and _is_plain(part) for part in parts):
        return {"layers": [[type(part).__name__, _options(part)] for part in parts]}
    return {"class": type(module).__qualname__}


def rebuilt(values: dict[str, Any]) -> nn.Module | None:
    """The module that `described` wrote down, with weights that do not matter; None where only its class is known."""
    if "layers" not in values:
        return None
    return nn.Sequential(*(_KINDS[kind][0](**options) for kind, options in values["layers"]))


def _options(layer: nn.Module) -> dict[str, Any]:
    found = {name: getattr(layer, name) for name in _KINDS[type(layer).__name__][1]}
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
    return found | ({"bias": layer.bias is not None} if type(layer) is nn.Linear else {})


def _is_plain(layer: nn.Module) -> bool:
    """Whether its options say all about it."""
    affine = all(getattr(layer, name, True) for name in ("affine", "elementwise_affine", "track_running_stats"))
    return affine and not (type(layer) is nn.LayerNorm and layer.bias is None)
