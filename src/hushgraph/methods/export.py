"""The classifier of a model for programs without this package: torch.export (`.pt2`) or ONNX (`.onnx`).

What is written is post-processing of what was released: it costs nothing. It maps rows of numbers to class scores; of a
method that sums over neighbors these rows are its noisy sums, which `model.released` holds. The names of the classes
and the promise go with it, so that nobody has a file without its epsilon.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.files.writing import require_writable

if TYPE_CHECKING:
    from hushgraph.methods.model import Model

ENDINGS = (".pt2", ".onnx")


def export_classifier(model: Model, path: Path) -> Path:
    """Write the classifier; a file that exists is not written over."""
    if path.suffix not in ENDINGS:
        raise InputError(f"export: expected a file {' or '.join(ENDINGS)}; got '{path.name}'")
    if path.exists():
        raise InputError(f"export: expected a new file; {path} exists already")
    found = model.method.classifier(model.network.eval(), model.plan)
    if found is None:
        raise InputError(f"export: expected a classifier of rows of numbers; {model.method.name} has none to export")
    require_writable(path)
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps(facts(model))
    (_to_onnx if path.suffix == ".onnx" else _to_torch)(*found, path, about)
    return path


def facts(model: Model) -> dict[str, Any]:
    """What goes with the file."""
    promise = model.certificate
    return {
        "method": model.method.name,
        "classes": list(model.class_names),
        "unit": promise.unit.name,
        "epsilon": str(promise.epsilon),
        "delta": str(promise.delta),
        "private": promise.is_private and model.altered is None,
        "run": promise.run,
    }


def _program(module: nn.Module, rows: Tensor) -> torch.export.ExportedProgram:
    any_number = ({0: torch.export.Dim("rows")},)
    return torch.export.export(module, (rows,), dynamic_shapes=any_number)


def _to_torch(module: nn.Module, rows: Tensor, path: Path, about: str) -> None:
    torch.export.save(_program(module, rows), path, extra_files={"hushgraph.json": about})


def _to_onnx(module: nn.Module, rows: Tensor, path: Path, about: str) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError(
            "export: expected the packages onnx and onnxscript; do: pip install 'hushgraph[onnx]'"
        ) from None
    program: Any = torch.onnx.export(_program(module, rows), (rows,), dynamo=True, verbose=False)
    found = program.model_proto
    onnx.helper.set_model_props(found, {"hushgraph": about})
    onnx.save(found, path)
