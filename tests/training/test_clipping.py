from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from hushgraph.errors import HushgraphError, InputError, UnprovenError
from hushgraph.graph.rows import JoinedRows
from hushgraph.nn import MLP, Combine, Encoder, HopClassifier, L2Normalize, Linear, SparseRows, rowwise
from hushgraph.nn.chorus import LinearNetwork
from hushgraph.nn.progressive import Submodel, stage_base
from hushgraph.nn.rowwise import Branches, register_rowwise, unfolds
from hushgraph.training import ClippedGradient
from hushgraph.training.clipping import METHODS


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def one_hot_like(n: int, columns: int, seed: int = 0) -> Tensor:
    x = (torch.rand(n, columns, generator=generator(seed)) < 0.2).float()
    x[0] = 0.0
    return x


def naive_sum(module: nn.Module, rows: Tensor, labels: Tensor, bound: float) -> Tensor:
    """One backward pass per example, clipped, added up: what everything else must equal."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
    for row, label in zip(rows, labels):
        loss = nn.functional.cross_entropy(module(row.unsqueeze(0)), label.unsqueeze(0))
        flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters)])
        total += flat * min(1.0, bound / max(float(flat.norm()), 1e-30))
    return total


def torch_linear(columns: int, outputs: int, g: torch.Generator, bias: bool = True) -> nn.Linear:
    """A layer of torch's own, whose start does not come from the global generator."""
    layer = nn.Linear(columns, outputs, bias)
    layer.load_state_dict(Linear(columns, outputs, bias, generator=g).state_dict())
    return layer


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    """Modules with rows that suit them."""
    g = generator(3)
    flat_rows = torch.randn(23, 11, generator=g)
    hop_rows = torch.randn(23, 3, 11, generator=g)
    found: dict[str, tuple[nn.Module, Tensor]] = {}
    for activation in ("selu", "relu", "tanh"):
        found[f"mlp-{activation}"] = (MLP(11, 8, 5, 3, activation=activation, generator=g), flat_rows)
    found["mlp-gelu"] = (MLP(11, 8, 5, 2, activation="gelu", generator=g), flat_rows)
    found["mlp-group"] = (MLP(11, 8, 5, 3, norm="group", order="activation-first", generator=g), flat_rows)
    found["layer-norm"] = (nn.Sequential(nn.LayerNorm(11), torch_linear(11, 5, g)), flat_rows)
    found["two-groups"] = (nn.Sequential(torch_linear(11, 8, g), nn.GroupNorm(2, 8), torch_linear(8, 5, g)), flat_rows)
    found["no-bias"] = (nn.Sequential(torch_linear(11, 8, g, bias=False), nn.Tanh(), torch_linear(8, 5, g)), flat_rows)
    found["encoder"] = (Encoder(11, 8, 5, generator=g), flat_rows)
    found["encoder-group"] = (Encoder(11, 8, 5, norm="group", generator=g), flat_rows)
    for combine in ("cat", "sum", "max", "attention"):
        found[f"hops-{combine}"] = (HopClassifier(2, 11, 8, 5, combine=combine, generator=g), hop_rows)
    found["hops-deep"] = (HopClassifier(2, 11, 8, 5, base_layers=2, head_layers=2, norm="group", generator=g), hop_rows)
    found["hops-no-base"] = (HopClassifier(2, 11, 8, 5, base_layers=0, generator=g), hop_rows)
    for module, _ in found.values():
        for p in module.parameters():  # leave the special start (ones, zeros) of norm layers
            p.data += 0.1 * torch.randn(p.shape, generator=g)
    return found


MODELS = models()
LABELS = torch.randint(5, (23,), generator=generator(4))


@pytest.mark.parametrize("bound", [0.3, 2.0, 1e6])
@pytest.mark.parametrize("name", MODELS)
def test_every_method_equals_the_naive_sum(name: str, bound: float) -> None:
    module, rows = MODELS[name]
    tried = 0
    for method in (None, *METHODS):
        if method == "manual" and name in ("mlp-gelu", "two-groups", "hops-max", "hops-attention"):
            continue
        engine = ClippedGradient(module, max_grad_norm=bound, method=method)
        # In double precision: a norm over few channels can make rounding errors of two sums as large as the tolerance.
        expected = naive_sum(copy.deepcopy(module).double(), rows.double(), LABELS, engine.clip_norm)
        assert float(expected.norm()) > 0.1
        assert 0.99 * bound < engine.clip_norm < bound
        torch.testing.assert_close(engine.sum(rows, LABELS), expected, rtol=1e-5, atol=1e-5)
        tried += 1
    assert tried >= 3


def test_the_fast_method_is_chosen() -> None:
    chosen = {name: ClippedGradient(module, max_grad_norm=1.0).method for name, (module, _) in MODELS.items()}
    assert chosen["mlp-selu"] == chosen["encoder"] == chosen["hops-cat"] == chosen["mlp-group"] == "manual"
    assert chosen["hops-attention"] == chosen["mlp-gelu"] == chosen["hops-max"] == "ghost"


def opacus_sum(module: nn.Module, rows: Tensor, labels: Tensor, bound: float) -> Tensor:
    from opacus import GradSampleModule

    wrapped = GradSampleModule(copy.deepcopy(module), loss_reduction="sum")
    nn.functional.cross_entropy(wrapped(rows), labels, reduction="sum").backward()
    flat = torch.cat([p.grad_sample.flatten(1) for p in wrapped.parameters()], 1)
    factors = (bound / (flat.norm(dim=1) + 1e-6)).clamp(max=1.0)
    return factors @ flat


def as_torch(module: nn.Module) -> nn.Module:
    """The same model out of torch's own layers only, with the same weights."""
    layers: list[nn.Module] = []
    for layer in module.modules():
        if isinstance(layer, Linear):
            plain = nn.Linear(layer.in_features, layer.out_features)
            plain.load_state_dict(layer.state_dict())
            layers.append(plain)
        elif not list(layer.children()):
            layers.append(copy.deepcopy(layer))
    return nn.Sequential(*layers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mlp-selu", "mlp-relu", "mlp-tanh", "mlp-group", "encoder", "encoder-group"])
def test_opacus_gives_the_same_clipped_sum(name: str) -> None:
    module, rows = MODELS[name]
    for method in METHODS:
        engine = ClippedGradient(module, max_grad_norm=0.7, method=method)
        expected = opacus_sum(as_torch(module), rows, LABELS, engine.clip_norm)
        assert float((engine.sum(rows, LABELS) - expected).abs().max()) <= 1e-5


@pytest.mark.filterwarnings("ignore")
def test_opacus_gives_the_same_clipped_sum_at_full_size() -> None:
    module = MLP(501, 16, 6, 3, generator=generator())
    rows, labels = torch.randn(64, 501, generator=generator(1)), torch.randint(6, (64,), generator=generator(2))
    engine = ClippedGradient(module, max_grad_norm=1.0)
    expected = opacus_sum(as_torch(module), rows, labels, engine.clip_norm)
    assert float((engine.sum(rows, labels) - expected).abs().max()) <= 1e-5


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", [None, "group"])
def test_sparse_rows_equal_dense_rows(method: str, weighted: bool, norm: str | None) -> None:
    dense = one_hot_like(31, 40)
    if weighted:
        dense *= torch.rand(31, 40, generator=generator(9))
    labels = torch.randint(4, (31,), generator=generator(5))
    for module in (MLP(40, 8, 4, 2, norm=norm, generator=generator()), Encoder(40, 8, 4, generator=generator())):
        engine = ClippedGradient(module, max_grad_norm=0.5, method=method)
        got = engine.sum(SparseRows.from_tensor(dense), labels)
        expected = naive_sum(module, dense, labels, engine.clip_norm).double()
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("microbatch", [1, 5, 23, 100])
def test_microbatches_change_nothing(method: str, microbatch: int) -> None:
    for name in ("encoder", "hops-cat"):
        module, rows = MODELS[name]
        whole = ClippedGradient(module, max_grad_norm=0.4, method=method).sum(rows, LABELS)
        pieces = ClippedGradient(module, max_grad_norm=0.4, method=method, microbatch=microbatch)
        torch.testing.assert_close(pieces.sum(rows, LABELS), whole, rtol=1e-5, atol=1e-6)


def test_known_input_norms_change_nothing() -> None:
    for name in ("encoder", "hops-cat", "hops-attention", "mlp-group", "layer-norm"):
        module, rows = MODELS[name]
        for microbatch in (None, 7):
            engine = ClippedGradient(module, max_grad_norm=0.4, microbatch=microbatch)
            known = engine.sum(rows, LABELS, input_square_norms=rows.square().sum(-1))
            torch.testing.assert_close(known, engine.sum(rows, LABELS), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_batch_gives_zero(method: str) -> None:
    engine = ClippedGradient(MLP(6, 4, 3, 2, generator=generator()), max_grad_norm=1.0, method=method)
    engine.sum(torch.ones(2, 6), torch.tensor([0, 1]))
    empty = engine.sum(torch.empty(0, 6), torch.empty(0, dtype=torch.int64))
    assert empty.shape == (engine.num_parameters,)
    assert not empty.any()
    sparse = SparseRows.from_tensor(torch.ones(2, 6)).rows(torch.empty(0, dtype=torch.int64))
    assert not engine.sum(sparse, torch.empty(0, dtype=torch.int64)).any()


def test_a_batch_of_too_many_pieces_is_refused() -> None:
    engine = ClippedGradient(nn.Linear(1, 2), max_grad_norm=1.0, microbatch=1)
    rows, labels = torch.zeros(2**13 + 1, 1), torch.zeros(2**13 + 1, dtype=torch.int64)
    with pytest.raises(InputError, match="sampling rate"):
        engine.sum(rows, labels)


def test_results_are_not_overwritten_by_the_next_call() -> None:
    module, rows = MODELS["encoder"]
    engine = ClippedGradient(module, max_grad_norm=1.0)
    first = engine.sum(rows, LABELS)
    kept = first.clone()
    engine.sum(rows[:3], LABELS[:3])
    assert torch.equal(first, kept)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_an_example_without_finite_gradient_counts_as_zero(method: str, poison: float) -> None:
    module = MLP(11, 8, 5, 2, generator=generator())
    rows = torch.randn(9, 11, generator=generator(1))
    bad = rows.clone()
    bad[4, 2] = poison
    others = torch.tensor([i for i in range(9) if i != 4])
    engine = ClippedGradient(module, max_grad_norm=0.5, method=method)
    got = engine.sum(bad, LABELS[:9])
    assert bool(torch.isfinite(got).all())
    torch.testing.assert_close(got, engine.sum(rows[others], LABELS[:9][others]))
    assert not engine.sum(bad[4:5], LABELS[4:5]).any()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1e-6, 1.0, 1e4, 1e12]),
    bound=st.sampled_from([1e-3, 1.0, 50.0]),
    name=st.sampled_from(["mlp-selu", "encoder", "hops-cat", "hops-attention", "mlp-group", "layer-norm"]),
)
def test_one_row_never_moves_the_sum_by_more_than_the_bound(seed: int, scale: float, bound: float, name: str) -> None:
    module, rows = MODELS[name]
    engine = ClippedGradient(module, max_grad_norm=bound)
    row = torch.randn((1, *rows.shape[1:]), generator=generator(seed)) * scale
    label = torch.randint(5, (1,), generator=generator(seed))
    assert float(engine.sum(row, label).norm()) <= bound
    with_row = engine.sum(torch.cat([rows, row]), torch.cat([LABELS, label]))
    assert float((with_row - engine.sum(rows, LABELS)).norm()) <= bound


@pytest.mark.parametrize("bound", [0.01, 1.0, 50.0])
def test_normalized_gradients_are_about_as_long_as_the_bound_and_never_longer(bound: float) -> None:
    module, rows = MODELS["mlp-selu"]
    engine = ClippedGradient(module, max_grad_norm=bound, normalize=True)
    for row in range(5):
        one = slice(row, row + 1)
        plain = float(ClippedGradient(module, max_grad_norm=1e6).sum(rows[one], LABELS[one]).norm())
        length, aim = float(engine.sum(rows[one], LABELS[one]).norm()), engine.clip_norm
        assert length == pytest.approx(aim * plain / (plain + 0.01 * aim), rel=1e-3)
        assert length <= bound


def test_a_clip_that_breaks_its_own_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    module, rows = MODELS["mlp-selu"]
    engine = ClippedGradient(module, max_grad_norm=0.1)
    monkeypatch.setattr(engine, "_factors", lambda norms: 1.05 * engine.clip_norm / norms)
    with pytest.raises(HushgraphError, match="nothing was released"):
        engine.sum(rows[:1], LABELS[:1])


@pytest.mark.parametrize("method", METHODS)
def test_frozen_parameters_are_left_out(method: str) -> None:
    module = MLP(11, 8, 5, 2, norm="group", generator=generator())
    module.layers[0].weight.requires_grad_(False)
    module.layers[1].bias.requires_grad_(False)
    rows = torch.randn(9, 11, generator=generator(1))
    engine = ClippedGradient(module, max_grad_norm=0.5, method=method)
    expected = naive_sum(module, rows, LABELS[:9], engine.clip_norm).double()
    torch.testing.assert_close(engine.sum(rows, LABELS[:9]), expected, rtol=1e-5, atol=1e-6)


def test_a_layer_used_twice_falls_back_and_stays_right() -> None:
    shared = nn.Linear(11, 11)
    module = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(11, 5))
    rows = torch.randn(9, 11, generator=generator(1))
    engine = ClippedGradient(module, max_grad_norm=0.5)
    expected = naive_sum(module, rows, LABELS[:9], engine.clip_norm).double()
    torch.testing.assert_close(engine.sum(rows, LABELS[:9]), expected, rtol=1e-5, atol=1e-6)
    assert engine.method == "per-sample"


def test_tied_weights_fall_back_and_stay_right() -> None:
    module = nn.Sequential(nn.Linear(11, 11), nn.Tanh(), nn.Linear(11, 11), nn.Tanh(), nn.Linear(11, 5))
    module[2].weight = module[0].weight
    rows = torch.randn(9, 11, generator=generator(1))
    engine = ClippedGradient(module, max_grad_norm=0.5)
    assert engine.method == "per-sample"
    expected = naive_sum(module, rows, LABELS[:9], engine.clip_norm).double()
    torch.testing.assert_close(engine.sum(rows, LABELS[:9]), expected, rtol=1e-5, atol=1e-6)


class Scaled(nn.Module):
    """A row-wise layer of a kind the closed forms do not know."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_another_module_falls_back_once_its_proof_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowwise, "_ROWWISE", dict(rowwise._ROWWISE))
    module = nn.Sequential(nn.Linear(11, 8), Scaled(), L2Normalize(), nn.Linear(8, 5))
    with pytest.raises(UnprovenError, match="Scaled"):
        ClippedGradient(module, max_grad_norm=0.5)
    register_rowwise(Scaled, "Multiplies each entry by one number.")
    engine = ClippedGradient(module, max_grad_norm=0.5)
    assert engine.method == "per-sample"
    rows = torch.randn(9, 11, generator=generator(1))
    expected = naive_sum(module, rows, LABELS[:9], engine.clip_norm).double()
    torch.testing.assert_close(engine.sum(rows, LABELS[:9]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_soft_labels(method: str) -> None:
    module, rows = MODELS["mlp-selu"]
    soft = torch.rand(23, 5, generator=generator(1))
    engine = ClippedGradient(module, max_grad_norm=0.5, method=method)
    expected = naive_sum(module, rows, soft, engine.clip_norm).double()
    torch.testing.assert_close(engine.sum(rows, soft), expected, rtol=1e-5, atol=1e-5)


def test_a_loss_of_ones_own() -> None:
    module, rows = MODELS["mlp-selu"]

    def half_cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
        return 0.5 * nn.functional.cross_entropy(scores, labels, reduction="none")

    engine = ClippedGradient(module, max_grad_norm=1e6, loss=half_cross_entropy)
    assert engine.method == "ghost"
    expected = 0.5 * naive_sum(module, rows, LABELS, 1e6).double()
    torch.testing.assert_close(engine.sum(rows, LABELS), expected, rtol=1e-5, atol=1e-5)


def test_dropout_is_applied_while_training_and_gradients_stay_bounded() -> None:
    module = MLP(11, 64, 5, 2, dropout=0.5, generator=generator())
    rows = torch.randn(9, 11, generator=generator(1))
    module.eval()
    still = ClippedGradient(module, max_grad_norm=0.5)
    expected = naive_sum(module, rows, LABELS[:9], still.clip_norm).double()
    torch.testing.assert_close(still.sum(rows, LABELS[:9]), expected, rtol=1e-5, atol=1e-6)
    module.train()
    engine = ClippedGradient(module, max_grad_norm=0.5)
    first, second = engine.sum(rows, LABELS[:9]), engine.sum(rows, LABELS[:9])
    assert float((first - second).abs().max()) > 1e-3
    assert float(first.norm()) <= 9 * 0.5


def test_double_precision_modules() -> None:
    module = MLP(11, 8, 5, 2, generator=generator()).double()
    rows = torch.randn(9, 11, generator=generator(1)).double()
    engine = ClippedGradient(module, max_grad_norm=0.5)
    expected = naive_sum(module, rows, LABELS[:9], engine.clip_norm)
    torch.testing.assert_close(engine.sum(rows, LABELS[:9]), expected, rtol=1e-12, atol=1e-12)


def test_wrong_settings_are_refused_together() -> None:
    with pytest.raises(InputError, match="3 problems"):
        ClippedGradient(MLP(3, 3, 3, 1), max_grad_norm=float("inf"), microbatch=0, method="chian")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="trainable"):
        ClippedGradient(nn.Tanh(), max_grad_norm=1.0)
    with pytest.raises(InputError, match="manual"):
        ClippedGradient(MLP(3, 3, 3, 2, activation="gelu"), max_grad_norm=1.0, method="manual")
    with pytest.raises(InputError, match="2\\^40"):
        ClippedGradient(MLP(3, 3, 3, 2), max_grad_norm=1e-20)


def test_training_does_not_touch_gradients_of_the_module() -> None:
    module, rows = MODELS["hops-attention"]
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    ClippedGradient(module, max_grad_norm=1.0).sum(rows, LABELS)
    assert all(p.grad is None for p in module.parameters())
    assert functional_call(module, before, (rows,)).equal(module(rows))
    assert not any(layer._forward_hooks for layer in module.modules())


class Side(nn.Module):
    """Reads two parts, one sparse and one dense."""

    def __init__(self) -> None:
        super().__init__()
        g = generator()
        self.bases = nn.ModuleList([MLP(12, 4, 4, 1, generator=g), MLP(5, 4, 4, 2, generator=g)])
        self.combine, self.head = Combine("cat", 2, 4), Linear(8, 5, generator=g)

    def forward(self, rows: JoinedRows) -> Tensor:
        outputs = [base(part) for base, part in zip(self.bases, rows.parts)]
        return self.head(self.combine(torch.stack(outputs, 1)))


def joined_rows() -> JoinedRows:
    return JoinedRows([SparseRows.from_tensor(one_hot_like(23, 12)), torch.randn(23, 5, generator=generator(2))])


def test_a_class_that_says_how_it_unfolds_is_written_out_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowwise, "_ROWWISE", dict(rowwise._ROWWISE))
    monkeypatch.setattr(rowwise, "_UNFOLDINGS", dict(rowwise._UNFOLDINGS))
    register_rowwise(Side, "Passes the parts of a row through its own layers.")
    module, rows = Side(), joined_rows()
    slow = ClippedGradient(module, max_grad_norm=0.5)
    assert slow.method == "ghost"
    unfolds(lambda side: [Branches(side.bases, side.combine.mode), side.head])(Side)
    fast = ClippedGradient(module, max_grad_norm=0.5)
    assert fast.method == "manual"
    expected = slow.sum(rows, LABELS)  # type: ignore[arg-type]
    torch.testing.assert_close(fast.sum(rows, LABELS), expected, rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]
    known = torch.stack(
        [part.row_square_norms() if isinstance(part, SparseRows) else part.square().sum(1) for part in rows.parts], 1
    )
    torch.testing.assert_close(fast.sum(rows, LABELS, input_square_norms=known), expected, rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize("combine", ["cat", "sum"])
def test_progap_has_a_manual_backward_that_equals_autograd(combine: str, layerwise: bool) -> None:
    g = generator(6)
    bases = [stage_base(stage, 12, 5, 2, "group", generator=g) for stage in range(2)]
    module = Submodel(bases, 5, 5, combine, generator=g)  # type: ignore[arg-type]
    bases[0].requires_grad_(not layerwise)
    rows = joined_rows()
    manual = ClippedGradient(module, max_grad_norm=0.5)
    assert manual.method == "manual"
    ghost = ClippedGradient(module, max_grad_norm=0.5, method="ghost")
    total = manual.sum(rows, LABELS)  # type: ignore[arg-type]
    torch.testing.assert_close(total, ghost.sum(rows, LABELS), rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]
    assert float(total.norm()) > 0.1


def test_a_sum_of_linear_maps_has_a_manual_backward_that_equals_autograd() -> None:
    module, rows = LinearNetwork([12, 5], 5, generator=generator(6)), joined_rows()
    manual = ClippedGradient(module, max_grad_norm=0.5)
    assert manual.method == "manual"
    expected = ClippedGradient(module, max_grad_norm=0.5, method="ghost").sum(rows, LABELS)  # type: ignore[arg-type]
    torch.testing.assert_close(manual.sum(rows, LABELS), expected, rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]


def seen(engine: ClippedGradient, rows: Tensor, labels: Tensor) -> list[Tensor]:
    """All that an engine computes per row: the factors, and inputs and output gradients of layers with parameters."""
    pieces: list[list[Tensor]] = []
    write = engine.strategy.write_sum

    def watch(factors: Tensor) -> None:
        pieces.append([part.clone() for part in (factors, *engine.strategy.per_row())])
        write(factors)

    engine.strategy.write_sum = watch  # type: ignore[method-assign]
    engine.sum(rows, labels)
    engine.strategy.write_sum = write  # type: ignore[method-assign]
    assert len(pieces[0]) >= 3
    return [torch.cat(parts) for parts in zip(*pieces)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_computed_for_a_row_does_not_depend_on_other_rows(name: str, method: str) -> None:
    """Bit by bit, for one shape of the batch: the assumption of docs/proofs/gradient.md."""
    if method == "manual" and name in ("mlp-gelu", "two-groups", "hops-max", "hops-attention"):
        method = "ghost"
    module, rows = MODELS[name]
    engine = ClippedGradient(module, max_grad_norm=0.5, method=method)  # type: ignore[arg-type]
    before = [part[: len(rows)] for part in seen(engine, rows, LABELS)]
    others = torch.arange(len(rows)) != 7
    for scale in (-30.0, 1e-30, 1e10):
        changed, labels = rows.clone(), LABELS.clone()
        changed[7], labels[7] = scale * rows[3], (LABELS[7] + 1) % 5
        for old, new in zip(before, seen(engine, changed, labels)):
            assert torch.equal(old[others], new[: len(rows)][others])


def shipped_models() -> dict[str, tuple[nn.Module, Tensor]]:
    """Modules of the usual sizes."""
    g = generator(8)
    return {
        "mlp": (MLP(501, 16, 6, 3, generator=g), torch.randn(400, 501, generator=g)),
        "encoder": (Encoder(128, 16, 6, generator=g), torch.randn(400, 128, generator=g)),
        "hops": (HopClassifier(2, 16, 16, 6, generator=g), torch.randn(400, 3, 16, generator=g)),
        "group": (MLP(64, 32, 40, 2, norm="group", generator=g), torch.randn(400, 64, generator=g)),
        # Here large batches reuse memory:
        "large": (MLP(64, 256, 100, 2, generator=g), torch.randn(400, 64, generator=g)),
        "large hops": (HopClassifier(2, 16, 120, 6, generator=g), torch.randn(400, 3, 16, generator=g)),
    }


SHIPPED = shipped_models()


@pytest.mark.parametrize("expected", [10, 10_000])
@pytest.mark.parametrize("method", ["manual", "ghost"])
@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_computed_for_a_row_does_not_depend_on_its_batch(name: str, method: str, expected: int) -> None:
    """Bit by bit, in other places of the one shape that an engine takes rows in."""
    module, rows = SHIPPED[name]
    labels = torch.randint(6, (400,), generator=generator(1))
    engine = ClippedGradient(module, max_grad_norm=0.5, method=method, expected_rows=expected)  # type: ignore[arg-type]
    whole = seen(engine, rows, labels)
    assert engine.piece_rows(rows, labels) % 32 == 0
    for size in (1, 97, 256, 399):
        batch = torch.randperm(400, generator=generator(size))[:size]
        for old, new in zip(whole, seen(engine, rows[batch], labels[batch])):
            assert torch.equal(old[batch], new[:size])
