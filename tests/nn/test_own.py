from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv

from hushgraph.errors import HushgraphError, InputError, UnprovenError
from hushgraph.graph.rows import SparseRows
from hushgraph.nn.own import OwnModule, described, own_module, rebuilt
from hushgraph.training import ClippedGradient

COLUMNS, CLASSES = 7, 3


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Free(nn.Module):
    """A module whose forward is any function of its layers and its input."""

    def __init__(self, forward: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(COLUMNS, CLASSES), nn.Linear(CLASSES, CLASSES)
        self.norm, self.drop, self.act = nn.LayerNorm(CLASSES), nn.Dropout(0.3), nn.SELU()
        self.batch = nn.BatchNorm1d(CLASSES)
        self.scale = nn.Parameter(torch.ones(CLASSES))
        self.square = nn.Parameter(torch.ones(CLASSES, CLASSES))
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


ROWWISE: dict[str, Callable[[Any, Any], Any]] = {
    "a chain": lambda m, x: m.b(m.drop(m.act(m.norm(m.a(x))))),
    "an activation twice": lambda m, x: m.act(m.b(m.act(m.a(x)))),
    "a skip": lambda m, x: m.a(x) + m.b(F.relu(m.a(x))),
    "a layer twice": lambda m, x: m.b(m.act(m.b(m.a(x)))),
    "numbers per column": lambda m, x: m.a(x) * m.scale + 1.0,
    "joined columns": lambda m, x: torch.cat([m.a(x), m.b(m.a(x))], dim=1).softmax(dim=-1),
    "its own mean": lambda m, x: m.a(x) - m.a(x).mean(dim=-1, keepdim=True),
    "unit rows": lambda m, x: F.normalize(m.a(x), dim=-1),
    "its length": lambda m, x: m.a(x) / (m.a(x).norm(dim=1, keepdim=True) + 1e-3),
    "functions": lambda m, x: torch.tanh(F.gelu(m.a(x))).clamp(-1, 1),
}

MIXING: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "batch norm": (lambda m, x: m.batch(m.a(x)), r"layer 'batch' \(BatchNorm1d\).*mixes the rows of a batch"),
    "the mean of all": (lambda m, x: m.a(x) - m.a(x).mean(), r"step 'mean' \(mean\)"),
    "the mean of a column": (lambda m, x: m.a(x) - m.a(x).mean(dim=0, keepdim=True), r"step 'mean'"),
    "a sum that loses a dimension": (lambda m, x: m.a(x) * m.a(x).sum(dim=-1), r"step 'sum_1'"),
    "softmax over rows": (lambda m, x: m.a(x).softmax(dim=0), r"step 'softmax'"),
    "unit columns": (lambda m, x: F.normalize(m.a(x), dim=0), r"step 'normalize'"),
    "unit columns by position": (lambda m, x: F.normalize(m.a(x), 2.0, 0), r"step 'normalize'"),
    "one length for all": (lambda m, x: m.a(x) / torch.norm(m.a(x), 1, keepdim=True), r"step 'norm'"),
    "attention": (lambda m, x: m.a(x) @ m.a(x).T @ m.a(x), r"step 'matmul'"),
    "the other rows": (lambda m, x: m.a(x).roll(1, 0), r"step 'roll'"),
    "sorted": (lambda m, x: m.a(x).sort(dim=0).values, r"step 'sort_1'|step 'getattr_1'|step 'sort'"),
    "a reshape": (lambda m, x: m.a(x).reshape(-1), r"step 'reshape'"),
    "rows below rows": (lambda m, x: torch.cat([m.a(x), m.a(x)]), r"step 'cat'"),
    "the number of rows": (lambda m, x: m.a(x) / x.shape[0], r"step 'getattr_1'|step 'getitem'"),
    "a matrix of its own": (lambda m, x: m.a(x) + m.square, r"a number per column in 'square'"),
    "a question about the data": (lambda m, x: m.a(x) if x.sum() > 0 else m.b(m.a(x)), r"a fixed list of steps"),
    "a question about training": (lambda m, x: m.a(x) if m.training else -m.a(x), r"the same steps in training"),
    "dropout by a function": (lambda m, x: F.dropout(m.a(x), 0.5), r"step 'dropout'"),
}


@pytest.mark.parametrize("name", ROWWISE)
@torch.no_grad()
def test_a_row_wise_module_computes_what_the_user_wrote(name: str) -> None:
    module = Free(ROWWISE[name])
    ours = own_module(module, "encoder", COLUMNS, generator(), plain=False)
    rows = torch.randn(9, COLUMNS, generator=generator(1))
    assert torch.allclose(ours.eval()(rows), module.eval()(rows), atol=1e-6)
    assert ours.out_features == module(rows).shape[1]
    again = copy.deepcopy(ours)
    assert torch.equal(again(rows), ours(rows))
    again.get_parameter("layers.a.weight").data.zero_()
    assert not torch.equal(again(rows), ours(rows))


@pytest.mark.parametrize("name", MIXING)
def test_a_module_that_mixes_rows_is_refused_with_the_step(name: str) -> None:
    forward, told = MIXING[name]
    with pytest.raises(UnprovenError, match=f"(?s)encoder: .*({told})"):
        own_module(Free(forward), "encoder", COLUMNS, generator(), plain=False)


@pytest.mark.parametrize("name", ROWWISE)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-2, 1.0, 30.0]), gone=st.integers(0, 11))
def test_a_deleted_record_moves_the_clipped_sum_by_at_most_the_bound(
    name: str, seed: int, scale: float, gone: int
) -> None:
    module = own_module(Free(ROWWISE[name]), "encoder", COLUMNS, generator(), plain=False).eval()
    engine = ClippedGradient(module, max_grad_norm=0.5)
    rows = torch.randn(12, COLUMNS, generator=generator(seed)) * scale
    labels = torch.randint(0, CLASSES, (12,), generator=generator(seed + 1))
    kept = torch.arange(12) != gone
    moved = engine.sum(rows, labels) - engine.sum(rows[kept], labels[kept])
    assert float(moved.norm()) <= 0.5


def test_the_fast_way_is_taken_where_the_layers_allow() -> None:
    def method(name: str) -> str:
        return ClippedGradient(
            own_module(Free(ROWWISE[name]), "e", COLUMNS, generator(), plain=False), max_grad_norm=1
        ).method

    assert method("a chain") == method("an activation twice") == "manual"
    assert method("a skip") == "ghost"
    assert method("numbers per column") == "per-sample"


def test_dropout_has_a_backward_by_hand_that_equals_autograd() -> None:
    module = own_module(Free(ROWWISE["a chain"]), "e", COLUMNS, generator(), plain=False)
    rows, labels = torch.randn(32, COLUMNS, generator=generator(1)), torch.zeros(32, dtype=torch.int64)
    found = []
    for way in ("manual", "ghost"):
        module.layers["drop"].generator.manual_seed(7)
        engine = ClippedGradient(module, max_grad_norm=0.5, method=way)
        engine._piece_rows = 32
        found.append(engine.sum(rows, labels))
    assert torch.allclose(found[0], found[1], atol=1e-5)
    assert not torch.allclose(found[0], engine.sum(rows, labels), atol=1e-3)


def test_sparse_rows_are_taken() -> None:
    rows = (torch.rand(9, COLUMNS, generator=generator(1)) < 0.4).float()
    for name in ("a chain", "a skip", "functions"):
        ours = own_module(Free(ROWWISE[name]), "e", COLUMNS, generator(), plain=False).eval()
        assert torch.allclose(ours(SparseRows.from_tensor(rows.to_sparse_csr())), ours(rows), atol=1e-6)


def test_batch_norm_is_allowed_where_rows_are_public() -> None:
    ours = own_module(Free(MIXING["batch norm"][0]), "e", COLUMNS, generator(), plain=True)
    with pytest.raises(UnprovenError, match="mixes the rows of a batch"):
        ClippedGradient(ours, max_grad_norm=1.0)


def test_the_users_module_is_never_changed() -> None:
    module = Free(ROWWISE["a chain"]).eval()
    before = copy.deepcopy(module.state_dict())
    ours = own_module(module, "e", COLUMNS, generator(), plain=False)
    for p in ours.parameters():
        p.data.add_(1.0)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not module.training


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: "mine", "expected a torch.nn.Module; got str"),
        (lambda: nn.Linear(COLUMNS + 1, 3), "takes rows of 7 columns"),
        (lambda: nn.Sequential(nn.Linear(COLUMNS, 3), nn.Flatten(0)), "start_dim=0"),
        (lambda: nn.Linear(COLUMNS, 4), "expected 3 columns to come out; got 4"),
    ],
)
def test_modules_that_do_not_fit(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(HushgraphError, match=told):
        own_module(make(), "head", COLUMNS, generator(), plain=False, out=3)


def test_hooks_are_refused() -> None:
    module = Free(ROWWISE["a chain"])
    module.a.register_forward_hook(lambda *_: None)
    with pytest.raises(UnprovenError, match="hooks or a replaced forward on a"):
        own_module(module, "encoder", COLUMNS, generator(), plain=False)


def test_sequences_are_written_down_and_made_again() -> None:
    module = nn.Sequential(nn.Linear(7, 5, bias=False), nn.LayerNorm(5), nn.ReLU(), nn.Dropout(0.1), nn.Linear(5, 3))
    again = rebuilt(described(module))
    assert again is not None
    again.load_state_dict(module.state_dict())
    assert str(again) == str(module)
    assert rebuilt(described(Free(ROWWISE["a chain"]))) is None
    assert described(nn.Sequential(nn.Sequential(nn.Linear(1, 1)))) == {"class": "Sequential"}
    assert described(nn.Sequential(nn.LayerNorm(5, elementwise_affine=False))) == {"class": "Sequential"}
    with pytest.raises(InputError, match="7 columns"):
        own_module(nn.Linear(3, 3), "e", 7, generator(), plain=False)
    assert isinstance(own_module(module, "e", 7, generator(), plain=False), OwnModule)


class WritesOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.sum(x, dim=-1, keepdim=True, out=self.kept)


def test_a_step_that_writes_into_something_that_stays_is_refused() -> None:
    with pytest.raises(UnprovenError, match="treats every row alone"):
        own_module(WritesOut(), "encoder", COLUMNS, generator(), plain=False)


def test_a_layer_that_overwrites_its_input_is_refused() -> None:
    """It would write into the caller's features."""
    with pytest.raises(UnprovenError, match="inplace=True"):
        own_module(
            nn.Sequential(nn.ReLU(inplace=True), nn.Linear(COLUMNS, 3)), "encoder", COLUMNS, generator(), plain=False
        )


@pytest.mark.parametrize("module", [SAGEConv(COLUMNS, 3), nn.Sequential(nn.Linear(COLUMNS, 4), GCNConv(4, 3))])
def test_message_passing_is_refused_with_what_to_give_instead(module: nn.Module) -> None:
    with pytest.raises(UnprovenError, match=r"message passing .*Give the layers before and after it"):
        own_module(module, "encoder", COLUMNS, generator(), plain=False)
