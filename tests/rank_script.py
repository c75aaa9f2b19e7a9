"""What each process of torchrun does in tests/training/test_ranks.py: `rank_script.py WHAT FOLDER`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch

import hushgraph as hg
from hushgraph.errors import HushgraphError
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.gradient import _examples
from hushgraph.nn import Linear
from hushgraph.noise.source import NoiseSource
from hushgraph.training.config import Training
from hushgraph.training.examples import NoisySteps, RowExamples
from hushgraph.training.loop import train_private
from hushgraph.training.ranks import RankedExamples, Ranks
from hushgraph.training.sampler import PoissonSampler
from small_graphs import random_graph

COLUMNS, RATE, STEPS, CLIP = 12, 0.25, 2500, 1.0


def sums_of(ranks: Ranks | None, std: float, noise: NoiseSource, rate: float = RATE, steps: int = STEPS) -> np.ndarray:
    """The noisy sum of every step, in clip norms, read off plain steps; each example has a column of its own."""
    graph = _examples(np.ones(COLUMNS, dtype=bool), replaced=False)
    module = Linear(COLUMNS, 2, bias=False)
    torch.nn.init.zeros_(module.weight)
    noisy = NoisySteps(PoissonSampler(COLUMNS, rate), steps, CLIP, std)
    small = 1e-10  # weights stay so small that no gradient changes its direction
    training = Training(epochs=1, lr=small * COLUMNS * rate, optimizer="sgd")
    seen = [module.weight.detach().double().clone()]
    rows, labels, index = graph.features, graph.labels, torch.arange(COLUMNS)
    if ranks is None:
        examples = RowExamples(module, rows, labels, noisy, index=index)
    else:
        examples = RankedExamples(ranks, module, rows, labels, noisy, index=index, noise=noise)  # type: ignore[assignment]

    def watch(done: int, total: int) -> None:
        seen.append(module.weight.detach().double().clone())

    train_private(examples, training, noise, on_step=watch)
    return (-torch.stack(seen).diff(dim=0) / small).numpy()


def fitted(ranks: Ranks | None, folder: Path) -> dict[str, object]:
    ledger = Ledger(folder / ("one" if ranks is None else "two"))
    model = hg.DPMLP(epochs=2).fit(random_graph(2, num_nodes=80), "record", (2.0, 1e-4), ledger=ledger, ranks=ranks)
    charges = [stage.as_dict() for stage in model.plan.stages]
    finite = all(bool(torch.isfinite(one).all()) for one in model.network.parameters())
    return {"epsilon": model.certificate.epsilon, "stages": charges, "finite": finite, "fit": model.settings.get("fit")}


def main(what: str, folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = Ranks.join(patience=60.0)
    if not ranks.leads:
        if what == "dies":
            work = ranks._added_up
            ranks._added_up = lambda *given: os._exit(3) if work else given  # type: ignore[method-assign]
        ranks.help()
        return
    if what == "dies":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others; what happens without it?
        ledger = Ledger(folder / "ledger")
        try:
            hg.DPMLP(epochs=2).fit(random_graph(2, num_nodes=80), "record", (2.0, 1e-4), ledger=ledger, ranks=ranks)
        except HushgraphError as error:
            (folder / "error").write_text(str(error))
        os._exit(0)
    with ranks:
        np.savez(
            folder / "sums.npz",
            ranked=sums_of(ranks, 0.5, NoiseSource.from_os()),
            whole=sums_of(ranks, 0.5, NoiseSource.seeded(3), rate=1.0, steps=20),
        )
        (folder / "fit.json").write_text(json.dumps(fitted(ranks, folder), default=str))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
