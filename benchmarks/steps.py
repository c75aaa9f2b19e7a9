"""What a private training step costs beside a plain one: `python benchmarks/steps.py [--json]`.

One thread, float32, everything in one process and in turns, so that ratios mean something on a busy machine. A plain
step is forward, cross entropy, backward and `torch.optim.Adam`. A private step is the clipped sum, noise from the
library's own source, and Adam. Beside ours: Opacus with hooks, ghost clipping and functorch, and a bare `vmap(grad)`.
The second part times the two trainings of GAP at the settings of the published table on Berkeley13, when that file is
at hand.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.nn import MLP, Encoder, HopClassifier, SparseRows
from hushgraph.noise import NoiseSource
from hushgraph.training import ClippedGradient, NoisySteps, RowExamples, Training, train, train_private
from hushgraph.training.loop import StepNoise
from hushgraph.training.optimizers import FlatAdam, FlatParameters
from hushgraph.training.sampler import PoissonSampler

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

DATA = Path(os.environ.get("HUSHGRAPH_DATA", Path(__file__).resolve().parent.parent.parent / "shared" / "data"))
SIZES = (501, 16, 6)
BOUND, SIGMA, LR = 1.0, 1.0, 0.01


def torch_mlp() -> nn.Sequential:
    features, hidden, classes = SIZES
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(features, hidden), nn.SELU(), nn.Linear(hidden, hidden), nn.SELU(), nn.Linear(hidden, classes)
    )


def plain_step(x: Tensor, y: Tensor) -> Callable[[], None]:
    model = torch_mlp()
    adam = torch.optim.Adam(model.parameters(), lr=LR)

    def step() -> None:
        adam.zero_grad()
        F.cross_entropy(model(x), y).backward()
        adam.step()

    return step


def our_step(x: Tensor, y: Tensor, known_norms: bool) -> Callable[[], None]:
    features, hidden, classes = SIZES
    model = MLP(features, hidden, classes, 3, generator=torch.Generator().manual_seed(0))
    flat = FlatParameters(model).__enter__()
    steps = NoisySteps(PoissonSampler(len(x), 1.0), 10**6, BOUND, SIGMA * BOUND)
    engine = ClippedGradient(model, max_grad_norm=BOUND, grid=steps.grid, expected_rows=len(x))
    adam, perturb = FlatAdam(flat.vector, LR), StepNoise(steps, engine.num_parameters, NoiseSource.from_os())
    square_norms = x.square().sum(1) if known_norms else None

    def step() -> None:
        with torch.no_grad():
            total = perturb(engine.sum(x, y, input_square_norms=square_norms))
            adam.step(torch.mul(total, perturb.grid / len(x), out=flat.gradient))

    return step


def opacus_step(x: Tensor, y: Tensor, mode: str) -> Callable[[], None]:
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = torch_mlp()
    wrapped = GradSampleModule(model, force_functorch=True) if mode == "functorch" else GradSampleModule(model)
    adam = DPOptimizer(
        torch.optim.Adam(wrapped.parameters(), lr=LR),
        noise_multiplier=SIGMA,
        max_grad_norm=BOUND,
        expected_batch_size=len(x),
    )

    def step() -> None:
        adam.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        adam.step()

    return step


def ghost_step(x: Tensor, y: Tensor) -> Callable[[], None]:
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(torch_mlp(), max_grad_norm=BOUND, use_ghost_clipping=True)
    adam = DPOptimizerFastGradientClipping(
        torch.optim.Adam(wrapped.parameters(), lr=LR),
        noise_multiplier=SIGMA,
        max_grad_norm=BOUND,
        expected_batch_size=len(x),
    )
    loss = DPLossFastGradientClipping(wrapped, adam, nn.CrossEntropyLoss(reduction="mean"), loss_reduction="mean")

    def step() -> None:
        adam.zero_grad()
        loss(wrapped(x), y).backward()
        adam.step()

    return step


def vmap_step(x: Tensor, y: Tensor) -> Callable[[], None]:
    model = torch_mlp()
    adam = torch.optim.Adam(model.parameters(), lr=LR)

    def loss(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (row[None],)), label[None])

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        each = gradients(parameters, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        factors = (BOUND / norms).clamp(max=1.0)
        for name, p in model.named_parameters():
            clipped = torch.einsum("n,n...->...", factors, each[name])
            p.grad = (clipped + SIGMA * BOUND * torch.randn(p.shape)) / len(x)
        adam.step()

    return step


def medians(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of each, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 5):
        for name, step in steps.items():
            repeats = 1 if name in ("Opacus hooks", "Opacus functorch", "vmap(grad)") else 3
            started = time.perf_counter()
            for _ in range(repeats):
                step()
            if turn >= 5:
                times[name].append((time.perf_counter() - started) / repeats)
    return {name: float(np.median(values)) for name, values in times.items()}


def compare_steps(batch: int, rounds: int, others: bool) -> dict[str, float]:
    """Seconds per step, by name."""
    x = torch.randn(batch, SIZES[0], generator=torch.Generator().manual_seed(1))
    y = torch.randint(SIZES[2], (batch,), generator=torch.Generator().manual_seed(2))
    steps = {
        "plain Adam": plain_step(x, y),
        "ours": our_step(x, y, known_norms=True),
        "ours, input norms recomputed": our_step(x, y, known_norms=False),
    }
    if others:
        steps |= {
            "Opacus hooks": opacus_step(x, y, "hooks"),
            "Opacus functorch": opacus_step(x, y, "functorch"),
            "Opacus ghost": ghost_step(x, y),
            "vmap(grad)": vmap_step(x, y),
        }
    return medians(steps, rounds)


def berkeley() -> tuple[SparseRows, Tensor, Tensor, Tensor, Tensor] | None:
    """Task features, classes, and positions of the training, validation and test rows."""
    path = DATA / "facebook100" / "Berkeley13.npz"
    if not path.exists():
        return None
    full = np.load(path, allow_pickle=False)
    split = np.load(DATA / "facebook100" / "Berkeley13-split.npz", allow_pickle=False)
    rows = SparseRows(
        torch.from_numpy(full["x_indptr"]), torch.from_numpy(full["x_indices"]), None, tuple(full["x_shape"])
    )
    nodes = torch.from_numpy(split["node_ids"].astype(np.int64))
    masks = [torch.from_numpy(split[f"{part}_mask"]).nonzero().squeeze(1) for part in ("train", "val", "test")]
    return rows.rows(nodes), torch.from_numpy(full["y"].astype(np.int64))[nodes], *masks


def cpu_seconds(task: Callable[[], object]) -> float:
    started = time.process_time()
    task()
    return time.process_time() - started


def gap_fit(private: bool, hops: int = 2) -> dict[str, float]:
    """CPU seconds of GAP's two trainings (aggregation left out: random unit rows stand for the hops)."""
    data = berkeley()
    if data is None:
        return {}
    rows, labels, index, val, test = data
    generator = torch.Generator().manual_seed(0)
    norm = None if private else "batch"
    encoder = Encoder(rows.shape[1], 16, 6, norm=norm, generator=generator)
    classifier = HopClassifier(hops, 16, 16, 6, norm=norm, generator=generator)
    noise = NoiseSource.seeded(1)

    def fit(module: nn.Module, x: Tensor | SparseRows) -> None:
        if not private:
            train(module, x, labels, index, Training(100, 0.01, select_best=True), val=val)
            return
        taken = x[index] if isinstance(x, Tensor) else x.rows(index)
        sampler = PoissonSampler(len(index), min(1.0, 256 / len(index)))
        steps = 10 * -(-len(index) // 256)
        examples = RowExamples(module, taken, labels[index], NoisySteps(sampler, steps, 1.0, 1.0))
        train_private(examples, Training(10, 0.01), noise)

    first = cpu_seconds(lambda: fit(encoder, rows))
    unit = encoder.encode(rows)
    stack = torch.stack([unit] * (hops + 1), 1)
    second = cpu_seconds(lambda: fit(classifier, stack))
    encoder.eval()
    with torch.no_grad():
        accuracy = float((encoder(rows).argmax(1) == labels)[test].float().mean())
    return {"encoder": first, "classifier": second, "total": first + second, "encoder test accuracy": accuracy}


def gap_reference() -> dict[str, float]:
    """The same two edge-level trainings as usually written: dense features, autograd, `torch.optim.Adam`."""
    data = berkeley()
    if data is None:
        return {}
    rows, labels, train, val, _ = data
    generator = torch.Generator().manual_seed(0)
    encoder = Encoder(rows.shape[1], 16, 6, norm="batch", generator=generator)
    classifier = HopClassifier(2, 16, 16, 6, norm="batch", generator=generator)

    def fit(module: nn.Module, x: Tensor) -> None:
        adam, (x_train, x_val), best = torch.optim.Adam(module.parameters(), lr=0.01), (x[train], x[val]), -1.0
        for _ in range(100):
            module.train()
            adam.zero_grad()
            F.cross_entropy(module(x_train), labels[train]).backward()
            adam.step()
            module.eval()
            with torch.no_grad():
                accuracy = float((module(x_val).argmax(1) == labels[val]).float().mean())
            if accuracy > best:
                best, _state = accuracy, {name: t.clone() for name, t in module.state_dict().items()}

    dense = rows.to_dense()
    first = cpu_seconds(lambda: fit(encoder, dense))
    stack = torch.stack([encoder.encode(rows)] * 3, 1)
    second = cpu_seconds(lambda: fit(classifier, stack))
    return {"encoder": first, "classifier": second, "total": first + second}


def main() -> None:
    parser = argparse.ArgumentParser(description="Private against plain training steps.")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--ours", action="store_true", help="leave the other libraries out")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for batch in (256, 2048):
        seconds = compare_steps(batch, options.rounds if batch < 1000 else options.rounds // 2, not options.ours)
        results[f"step, batch {batch}"] = seconds
    results["GAP edge level, CPU s"] = gap_fit(private=False)
    results["GAP edge level as usually written, CPU s"] = gap_reference()
    results["GAP node level, CPU s"] = gap_fit(private=True)
    if options.json:
        print(json.dumps(results))
        return
    for title, table in results.items():
        print(title)
        for name, value in table.items():
            ratio = (
                f"{value * 1e6:10.0f} us   {value / table['plain Adam']:6.2f} x plain" if "plain Adam" in table else ""
            )
            print(f"  {name:32s} {ratio or f'{value:8.3f}'}")


if __name__ == "__main__":
    main()
