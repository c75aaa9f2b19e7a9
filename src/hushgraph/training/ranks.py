"""DP-SGD on several processes, which torchrun starts: each has a share of the examples and draws its own batches.

The first process leads: it alone runs `fit`, charges the ledger, and adds noise. For each private training it sends
every other process a share of the examples. In a step it sends the weights; each process draws a Poisson batch of its
own share, at the planned rate, clips and adds up, and rounds its sum to the grid of the noise. These are whole numbers,
which have one sum whatever the order; the first process gets it, adds the noise once and makes the step.

One record is in one share, so it moves one of the sums, by no more than in a single process; batches of the shares are
together a Poisson batch of all examples. The charge is that of a single process: docs/proofs/gradient.md. A process
that ends is an error in all others: what was charged stays charged, and no model comes out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.rows import Rows, take_rows
from hushgraph.nn.layers import Dropout
from hushgraph.noise.source import NoiseSource
from hushgraph.training.alike import one_thread
from hushgraph.training.examples import NoisySteps, RowExamples
from hushgraph.training.optimizers import FlatParameters, trainable
from hushgraph.training.sampler import PoissonSampler

_GO, _STOP = 1, 0
_PATIENCE = 600.0  # seconds


@dataclass(frozen=True)
class Share:
    """What a process needs for one training; `seed` only in runs that are not private anyway."""

    module: nn.Module
    rows: Rows
    labels: Tensor
    noisy_steps: NoisySteps
    normalize: bool
    seed: int | None = None

    def examples(self) -> RowExamples:
        """The examples of this share."""
        return RowExamples(self.module, self.rows, self.labels, self.noisy_steps, normalize=self.normalize)


class Ranks:
    """The processes of one torchrun. Every one of them calls `join`; the first then leads, and the others `help`.

    On one machine they talk on its loopback device. Between machines, what is sent is private (rows, and sums without
    noise), so traffic must be encrypted (GLOO_DEVICE_TRANSPORT=TCP_TLS) or `private_network` declared.
    """

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    @classmethod
    def join(cls, *, private_network: bool = False, patience: float = _PATIENCE) -> Ranks:
        """Meet the others; `patience` is how many seconds one may keep the others waiting."""
        missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise InputError(
                f"ranks: expected a process that torchrun started; got none ({', '.join(missing)} not set). Do: "
                "torchrun --nproc-per-node 2 train.py"
            )
        if os.environ["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        elif not private_network and os.environ.get("GLOO_DEVICE_TRANSPORT") != "TCP_TLS":
            raise InputError(
                "ranks: expected processes on one machine, or encrypted traffic (GLOO_DEVICE_TRANSPORT=TCP_TLS with "
                "its certificates); got several machines without. Where nobody else sees the network, say so: "
                "Ranks.join(private_network=True), or --private-network"
            )
        with _together(), _encryption():
            dist.init_process_group("gloo", timeout=timedelta(seconds=patience))
        return cls()

    @property
    def leads(self) -> bool:
        """Whether this process runs `fit`; the others help."""
        return self.rank == 0

    def help(self) -> None:
        """Do this process's share of all trainings, until the first process leaves."""
        if self.leads:
            raise InputError("ranks: expected a process other than the first to help; got the first, which runs fit")
        with _together():
            while True:
                (share,) = self._scattered(None)
                if share is None:
                    break
                self._work(share)
        dist.destroy_process_group()

    def leave(self) -> None:
        """End: the others are sent home."""
        if dist.is_initialized():
            if self.leads and self.count > 1:
                with _together():
                    self._scattered([None] * self.count)
            dist.destroy_process_group()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.leave()
        elif dist.is_initialized():
            dist.destroy_process_group()  # the others see that nobody leads any more, and end with an error

    def _scattered(self, shares: list[Share | None] | None) -> list[Any]:
        found: list[Any] = [None]
        dist.scatter_object_list(found, shares, src=0)
        return found

    # A share of the work

    def _work(self, share: Share) -> None:
        noise = NoiseSource.of(share.seed)
        examples, control = share.examples(), torch.zeros(1, dtype=torch.int64)
        _draw_own_masks(share.module, noise)
        share.module.train()
        without = torch.inference_mode if examples.without_autograd else torch.no_grad
        with one_thread(), FlatParameters(share.module) as flat, without():
            sums = examples.sums(noise)
            while True:
                dist.broadcast(control, src=0)
                if int(control) == _STOP:
                    return
                weights = torch.empty_like(flat.vector)
                dist.broadcast(weights, src=0)
                flat.vector.copy_(weights)
                self._added_up(next(sums), share.noisy_steps.grid)

    def _added_up(self, total: Tensor | None, grid: float) -> Tensor:
        """The sum over all processes, in steps of the grid; whole numbers, and of use to the first process alone."""
        assert total is not None
        whole = (total * (1.0 / grid)).round().to(torch.int64)
        dist.reduce(whole, dst=0)
        return whole


def _draw_own_masks(module: nn.Module, noise: NoiseSource) -> None:
    """Dropout from this process's own entropy: a copy of the first one's generator would draw the same masks here."""
    generator = noise.torch_generator("dropout")
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.reset_parameters(generator)


class RankedExamples:
    """The examples of all processes, for the private loop of the first; settings as in `RowExamples`."""

    def __init__(
        self,
        ranks: Ranks,
        module: nn.Module,
        rows: Rows,
        labels: Tensor,
        noisy_steps: NoisySteps,
        *,
        index: Tensor,
        noise: NoiseSource,
        normalize: bool = False,
    ) -> None:
        if index.numel() < ranks.count:
            raise InputError(f"ranks: expected at least one example for each of {ranks.count}; got {index.numel()}")
        self.ranks, self.module, self.noisy_steps = ranks, module, noisy_steps
        shares: list[Share | None] = []
        for rank in range(ranks.count):
            own = index[rank :: ranks.count]
            sampler = PoissonSampler(own.numel(), noisy_steps.sampler.rate)
            steps = NoisySteps(sampler, noisy_steps.steps, noisy_steps.max_grad_norm, noisy_steps.noise_std)
            seed = noise.torch_generator(f"rank {rank}").initial_seed() if noise.seeded_run else None
            share = Share(module, take_rows(rows, own), labels.index_select(0, own), steps, normalize, seed)
            shares.append(share)
        self._shares, self.own = shares, shares[0].examples()  # type: ignore[union-attr]

    @property
    def without_autograd(self) -> bool:
        """Whether sums are computed without automatic differentiation."""
        return self.own.without_autograd

    def sums(self, noise: Any, done: int = 0) -> Iterator[Tensor | None]:
        """The sum of each step over all processes, with the weights of that moment."""
        if done:
            raise InputError("ranks: expected a training from its beginning; got one that goes on from a checkpoint")
        with _together():
            self.ranks._scattered([None, *self._shares[1:]])
        self._shares = []
        try:
            yield from self._steps(noise)
        finally:
            self._send_home()

    def _steps(self, noise: Any) -> Iterator[Tensor]:
        grid, parameters = self.noisy_steps.grid, trainable(self.module)
        own = self.own.sums(noise)
        for _ in range(self.noisy_steps.steps):
            with _together():
                dist.broadcast(torch.tensor([_GO]), src=0)
                dist.broadcast(torch.cat([p.detach().reshape(-1) for p in parameters]), src=0)
            total = next(own)
            with _together():
                whole = self.ranks._added_up(total, grid)
            yield whole.double() * grid  # exact: the grid is a power of two

    def _send_home(self) -> None:
        with _together():
            dist.broadcast(torch.tensor([_STOP]), src=0)


@contextmanager
def _encryption() -> Iterator[None]:
    """A build of torch without TLS says only that it does not know the device."""
    try:
        yield
    except RuntimeError as error:
        if "unsupported gloo device" not in str(error):
            raise
        raise InputError(
            f"ranks: expected a torch that knows GLOO_DEVICE_TRANSPORT={os.environ.get('GLOO_DEVICE_TRANSPORT')}; got "
            "one that does not: for TCP_TLS it must be built with USE_GLOO_WITH_OPENSSL=1, and packages of pip are "
            "not. Unset it, join the machines by an encrypted network (WireGuard, IPsec), and say so: "
            "Ranks.join(private_network=True), or --private-network"
        ) from error


@contextmanager
def _together() -> Iterator[None]:
    """What the processes do together; one that ended, or keeps all others waiting, is an error in each of them."""
    try:
        yield
    except (RuntimeError, ValueError, EOFError) as error:
        if isinstance(error, HushgraphError):
            raise
        said = " ".join(str(error).split())[:160]
        raise HushgraphError(
            f"ranks: expected all processes to go on; one ended or did not answer ({said}). What was charged stays "
            "charged, and nothing was released. Start all of them again"
        ) from error
