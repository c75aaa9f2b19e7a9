"""DP-SGD on two processes: the law of one, the charge of one, and no model when one of them dies."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import hushgraph as hg
import rank_script
from hushgraph.errors import InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.nn.layers import Dropout, Linear
from hushgraph.noise.source import NoiseSource
from hushgraph.training import ranks as ranks_module
from hushgraph.training.examples import NoisySteps
from hushgraph.training.ranks import Ranks, Share
from hushgraph.training.sampler import PoissonSampler
from small_graphs import random_graph

SAME = 1e-5
"""A law is rejected below this probability: a correct one in 6 of 100,000 runs (six tests)."""


def torchrun(what: str, folder: Path) -> int:
    script = str(Path(rank_script.__file__))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    command += ["--standalone", script, what, str(folder)]
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env={**os.environ, **paths}, capture_output=True, timeout=300).returncode


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    assert torchrun("all", folder) == 0
    return folder


def same_law(first: np.ndarray, second: np.ndarray) -> float:
    """The smallest p-value of three two-sided tests: the sums of columns, their products, and the entries."""
    joint = [np.sum(one[:, 0] - one[:, 1], axis=1) for one in (first, second)]
    pairs = [one[:, 0, 0] * one[:, 0, 1] for one in (first, second)]
    each = [(one[:, 0] - one[:, 1]).ravel() for one in (first, second)]
    return min(float(stats.ks_2samp(*samples).pvalue) for samples in (joint, pairs, each))


def test_the_law_of_the_sums_is_that_of_one_process(two: Path) -> None:
    ranked = np.load(two / "sums.npz")["ranked"]
    noise = NoiseSource.from_os
    assert same_law(ranked, rank_script.sums_of(None, 0.5, noise())) > SAME
    # Noise of every process, of none but half the law, and batches at half the rate are told apart.
    assert same_law(ranked, rank_script.sums_of(None, 0.5 * 2**0.5, noise())) < SAME
    assert same_law(ranked, rank_script.sums_of(None, 0.33, noise())) < SAME
    other = rank_script.sums_of(None, 0.5, noise(), rate=rank_script.RATE / 2)
    assert same_law(ranked, other) < SAME


def test_whole_sums_are_those_of_one_process_up_to_the_grid(two: Path) -> None:
    alone = rank_script.sums_of(None, 0.5, NoiseSource.seeded(3), rate=1.0, steps=20)
    assert np.abs(np.load(two / "sums.npz")["whole"] - alone).max() < 1e-5


def test_the_charge_is_that_of_one_process(two: Path) -> None:
    found, alone = json.loads((two / "fit.json").read_text()), rank_script.fitted(None, two)
    assert found["epsilon"] == alone["epsilon"]
    assert found["stages"] == json.loads(json.dumps(alone["stages"], default=str))
    assert found["finite"]
    assert found["fit"] == {"ranks": 2}


def test_a_process_that_dies_ends_the_run_without_a_model(tmp_path: Path) -> None:
    torchrun("dies", tmp_path)
    assert "one ended or did not answer" in (tmp_path / "error").read_text()
    ledger = Ledger(tmp_path / "ledger")
    account = next(one for one in ledger.accounts() if one.runs)
    assert ledger.total(account.dataset, hg.units.Record()).epsilon > 0.0  # what was charged stays charged


class _Two:
    count = 2


def test_what_ranks_cannot_do_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a process that torchrun started"):
        Ranks.join()
    graph = random_graph(2)
    for method, unit in ((hg.MLP(), "undirected-edge"), (hg.DPGNN(), "node")):
        with pytest.raises(InputError, match="ranks: expected DP-SGD on rows"):
            method.fit(graph, unit, (2.0, 1e-4), ledger=Ledger(), ranks=_Two())
    with pytest.raises(InputError, match="checkpoint: expected one process"):
        hg.DPMLP().fit(graph, "record", (2.0, 1e-4), ledger=Ledger(), ranks=_Two(), checkpoint=tmp_path / "kept")


def test_several_machines_need_encryption_or_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "h",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="encrypted traffic"):
        Ranks.join()


def test_a_torch_that_cannot_encrypt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*given: object, **more: object) -> None:
        raise RuntimeError("makeDeviceForInterface(): unsupported gloo device")

    monkeypatch.setattr(ranks_module.dist, "init_process_group", none)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_DEVICE_TRANSPORT", "TCP_TLS")
    with pytest.raises(InputError, match="USE_GLOO_WITH_OPENSSL=1"):
        Ranks.join()


def test_every_process_draws_masks_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that two shares have in common cannot move along with the examples of one of them (gradient.md)."""
    monkeypatch.setattr(ranks_module.dist, "broadcast", lambda control, src: control)  # zero: stop
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(Linear(4, 60, generator=generator), Dropout(0.5, generator=generator))
    steps = NoisySteps(PoissonSampler(3, 0.5), 1, 1.0, 1.0)
    share = Share(module, torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64), steps, normalize=False)
    masks = []
    for seed in (None, None, 1, 2):
        sent = pickle.loads(pickle.dumps(share))
        there = Share(sent.module, sent.rows, sent.labels, sent.noisy_steps, normalize=False, seed=seed)
        Ranks.__new__(Ranks)._work(there)
        masks.append(there.module[1](torch.ones(1, 60)))
    masks.append(module[1](torch.ones(1, 60)))
    assert len({tuple(one.flatten().tolist()) for one in masks}) == len(masks)
