from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from commands import TRAIN, run, run_json
from hushgraph.cli.data import load_graph
from hushgraph.datasets import random_split, write_npz
from hushgraph.errors import InputError
from small_graphs import random_graph

NODE = ["--unit", "node", "--set", "batch_size=8", "--set", "max_degree=5"]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A file without masks and without declared classes."""
    graph = random_graph(1)
    arrays = {"edge_index": graph.edge_index.numpy(), "x": graph.x.numpy(), "y": graph.y.numpy()}
    np.savez(tmp_path / "bare.npz", **arrays)
    return tmp_path / "bare.npz"


def test_a_split_that_had_to_be_made_is_said(bare: Path, tmp_path: Path) -> None:
    said = run("train", "gap", "--data", bare, "--out", tmp_path / "one", *TRAIN)
    assert "has no split: a random one was made, 75/10/15 with seed 0" in " ".join(said.stderr.split())
    asked = run("train", "gap", "--data", bare, "--split", "50/25/25", "--out", tmp_path / "two", *TRAIN)
    assert (asked.exit_code, "has no split" in asked.stderr) == (0, False)


def test_shares_and_a_seed_make_the_split(bare: Path) -> None:
    graph = load_graph(str(bare), "50/25/25", 3)
    expected = random_split(load_graph(str(bare)), 0.5, 0.25, 0.25, seed=3)
    assert int(graph.train_mask.sum()) == 20
    assert torch.equal(graph.train_mask, expected.train_mask)
    assert not torch.equal(graph.train_mask, load_graph(str(bare), "50/25/25").train_mask)
    assert torch.equal(load_graph(str(bare), None, 5).train_mask, random_split(graph, seed=5).train_mask)


def test_a_fixed_split_has_no_seed(data: Path) -> None:
    with pytest.raises(InputError, match="--split-seed: expected a random split"):
        load_graph(str(data), None, 1)


def test_classes_are_declared_on_the_command_line_where_labels_are_private(bare: Path, tmp_path: Path) -> None:
    words = ["train", "gap", "--data", bare, *TRAIN, *NODE]
    refused = run(*words, "--out", tmp_path / "none")
    assert (refused.exit_code, "--classes NAME,NAME" in " ".join(refused.output.split())) == (2, True)
    run_json(*words, "--classes", 4, "--out", tmp_path / "number")
    run_json(*words, "--classes", "red,green,blue", "--out", tmp_path / "names")
    assert '"red"' in (tmp_path / "names" / "config.json").read_text()


def test_declared_classes_may_not_contradict_the_data(tmp_path: Path) -> None:
    graph = random_graph(1)
    graph.class_names = ["a", "b", "c"]
    path = str(write_npz(graph, tmp_path / "named.npz"))
    assert load_graph(path, classes="3").class_names == ["a", "b", "c"]
    with pytest.raises(InputError, match="expected those of the data, 3: a,b,c"):
        load_graph(path, classes="4")


@pytest.mark.parametrize("words", ["0.7/0.1/0.2", "90/20/10", "75/-10/15"])
def test_shares_are_of_a_hundred(data: Path, words: str, tmp_path: Path) -> None:
    refused = run("train", "gap", "--data", data, "--split", words, "--out", tmp_path / "model", *TRAIN)
    assert (refused.exit_code, "three shares of 100, such as 75/10/15" in " ".join(refused.output.split())) == (2, True)
    assert not (tmp_path / "model").exists()
