"""Checkpoints of a run: what is needed to go on after a kill, with the same noise, the same charges, the same result.

The folder holds the key of the run's noise, so that a release that was cut short is made again with the same noise, and
every result, written before anything else can use it: what was seen once is read back and never computed again. A
training writes its weights and the state of its optimizer now and then. Data, plan, settings and versions must be the
ones that the run began with: the same noise on anything else would give the data away.

**The folder is as secret as the data itself** until the run is over; `Model.save` removes it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.files.reading import damage_named, read_json, require_fields
from hushgraph.files.writing import private_folder, write_json, write_whole
from hushgraph.graph.checks import CheckedGraph
from hushgraph.ledger.entries import canonical
from hushgraph.ledger.identity import arrays_of, identify
from hushgraph.nn.layers import Dropout
from hushgraph.noise.source import NoiseSource, seeded_key
from hushgraph.privacy.plan import Plan, Stage

FORMAT = 1
FILE = "run.json"
EVERY = 60.0
"""Seconds between two states of one training."""
_PACKAGES = ("hushgraph", "torch", "numpy", "scipy")


class Checkpoint:
    """The folder of one run. `every`: seconds between two states of a training; 0 writes each step."""

    def __init__(self, folder: str | os.PathLike[str], *, every: float = EVERY) -> None:
        self.folder, self.every = Path(folder), every
        self.identity, self._key = "", b""
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()

    # Begin, or go on

    def begin(self, method: str, settings: dict[str, Any], plan: Plan, graph: CheckedGraph, seed: int | None) -> None:
        """Write what the run is, or refuse to go on with another one."""
        self._uses.clear()
        if (self.folder / FILE).is_file():
            self._go_on(method, settings, plan, graph, seed)
            return
        unfinished = list(self.folder.glob(f".{FILE}.*"))  # of a run that was killed before it had begun
        if self.folder.exists() and len(list(self.folder.iterdir())) > len(unfinished):
            raise InputError(f"checkpoint: expected a new or empty folder, or one of a run; {self.folder} is neither")
        private_folder(self.folder)
        for path in unfinished:
            path.unlink()
        self._key = os.urandom(32) if seed is None else seeded_key(seed)
        self.identity = secrets.token_hex(8)
        write_json(self.folder / FILE, self._facts(method, settings, plan, graph, seed))

    def _go_on(self, method: str, settings: dict[str, Any], plan: Plan, graph: CheckedGraph, seed: int | None) -> None:
        found = read_json(self.folder / FILE, of="the checkpoint of a run")
        require_fields(found, {"format": int, "run": str, "key": str}, self.folder / FILE)
        with damage_named(self.folder / FILE):
            self._key, self.identity = bytes.fromhex(found["key"]), found["run"]
        now = self._facts(method, settings, plan, graph, seed)
        different = [name for name in now if canonical(now[name]) != canonical(found.get(name))]
        if different or (seed is not None and self._key != seeded_key(seed)):
            raise InputError(
                f"checkpoint: expected the run that {self.folder} belongs to; got another "
                f"{', '.join(different) or 'seed'}. The same noise on anything else would give the data away: begin a "
                "new run in a new folder"
            )

    def _facts(
        self, method: str, settings: dict[str, Any], plan: Plan, graph: CheckedGraph, seed: int | None
    ) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "run": self.identity,
            "key": self._key.hex(),
            "seeded": seed is not None,
            "method": method,
            "settings": settings,
            "plan": hashlib.sha256(canonical(plan.as_dict()).encode()).hexdigest(),
            "data": _fingerprint(graph, self._key),
            "versions": {**{name: version(name) for name in _PACKAGES}, "python": platform.python_version()},
        }

    def noise(self, *, seeded: bool) -> NoiseSource:
        """The source of the run, from its beginning."""
        return NoiseSource(self._key, seeded_run=seeded)

    def remove(self) -> None:
        """The run is over and its model is saved."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # Results

    def carried_out(self, stage: Stage, act: Callable[[], Any], inputs: tuple[Any, ...], nodes: Tensor | None) -> Any:
        """The result of a release: the one that was written before, or a new one, written before it is returned."""
        path = self._next(stage.name, count=True)
        module = next((one for one in inputs if isinstance(one, nn.Module)), None)
        about = {"nodes": "" if nodes is None else hashlib.sha256(nodes.numpy().tobytes()).hexdigest()}
        if path.is_file():
            tensors = self._read(path, about)
            if stage.mechanism.trains and module is not None:
                module.load_state_dict(tensors)
                return None
            return stage.mechanism.from_tensors(tensors)
        value = act()
        try:
            trained = stage.mechanism.trains and module is not None
            tensors = module.state_dict() if trained and module is not None else stage.mechanism.to_tensors(value)
            content = to_safetensors({k: v.detach().clone().contiguous() for k, v in tensors.items()}, metadata=about)
        except (AttributeError, TypeError, ValueError, KeyError, NotImplementedError):
            content = to_safetensors({}, metadata={**about, "missing": "cannot be written as tensors"})
        write_whole(path, content)
        self.steps_path(path).unlink(missing_ok=True)
        return value

    def steps(self, stage: str) -> Steps:
        """Where the training that comes next under this name keeps its state."""
        return Steps(self.steps_path(self._next(stage, count=False)), self.every)

    @staticmethod
    def steps_path(path: Path) -> Path:
        """The file of a training that is under way."""
        return path.with_suffix(".steps")

    def _next(self, stage: str, *, count: bool) -> Path:
        with self._lock:
            number = self._uses[stage]
            self._uses[stage] += int(count)
        words = re.sub(r"[^a-z0-9]+", "-", stage.lower())
        own = hashlib.sha256(stage.encode()).hexdigest()[:8]  # names that differ in other signs have files of their own
        return self.folder / f"{words}-{own}.{number}.safetensors"

    def _read(self, path: Path, about: dict[str, str]) -> dict[str, Tensor]:
        with damage_named(path, do="Begin a new run"), safe_open(path, framework="pt") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if "missing" in said or said.get("nodes", "") != about["nodes"]:
            why = said.get("missing", "belongs to other nodes")
            raise InputError(f"{path}: this result {why}: the run cannot go on. Close it and begin a new one")
        return tensors


@dataclass
class Steps:
    """The state of one training between two steps, in one file that is written whole or not at all."""

    path: Path
    every: float
    last: float = 0.0

    def begin(self, state: dict[str, Tensor]) -> int:
        """Fill `state` with what was written last; how many steps that were (0: none)."""
        self.last = time.monotonic()
        if not self.path.is_file():
            return 0
        with damage_named(self.path, do="Begin a new run"), safe_open(self.path, framework="pt") as file:
            for name, tensor in state.items():
                tensor.copy_(file.get_tensor(name))
            return int(file.metadata()["step"])

    def keep(self, step: int, state: dict[str, Tensor]) -> None:
        """Write the state after `step` steps, if the last one is old enough."""
        if time.monotonic() - self.last < self.every:
            return
        tensors = {name: tensor.detach().clone().contiguous() for name, tensor in state.items()}
        write_whole(self.path, to_safetensors(tensors, metadata={"step": str(step)}))
        self.last = time.monotonic()


def draws_masks(module: Any) -> bool:
    """Whether training this draws dropout masks, from generators of the network that begin anew with it."""
    layers = list(module.modules()) if isinstance(module, nn.Module) else []
    if any(isinstance(layer, nn.Dropout) and layer.p > 0 for layer in layers):
        raise InputError("checkpoint: expected dropout from the run's own key (hushgraph.nn.Dropout); got nn.Dropout")
    return any(isinstance(layer, Dropout) and layer.p > 0 for layer in layers)


def _fingerprint(graph: CheckedGraph, key: bytes) -> str:
    """A keyed hash of all that the run reads: edges, their weights, those declared public, features, labels, split."""
    split = torch.cat([graph.split(name) for name in ("train", "val", "test")] + [graph.public]).numpy().tobytes()
    sizes = canonical([graph.split(name).numel() for name in ("train", "val", "test")] + list(graph.class_names))
    if graph.public_edges is not None:
        split += graph.public_edges.edge_index().numpy().tobytes()
    if graph.edge_weights is not None:
        split += graph.edge_weights.pairs.tobytes() + graph.edge_weights.levels.tobytes()
    if graph.edge_types is not None:
        types = hashlib.sha256()
        for block in graph.edge_types.entries.edge_blocks():
            types.update(block.t().contiguous().numpy().data)
        split += types.digest()
    content = identify(arrays_of(graph), key).fingerprint
    return hashlib.sha256(f"{content}{sizes}".encode() + split).hexdigest()
