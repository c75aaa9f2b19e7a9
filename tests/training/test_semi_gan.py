"""Students with a GAN: who learns from whom, what is in dispute, and what PATE++ takes away."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hushgraph.nn.gan import ByteDropout, Panel
from hushgraph.training.learners import Part
from hushgraph.training.lesson import Lesson
from hushgraph.training.semi_gan import (
    CoTeaching,
    Game,
    GanStudent,
    PatePlus,
    PatePlusPlus,
    unsupervised_loss,
)


class Says(nn.Module):
    """Gives record i the logits that were set for it; a record is its number."""

    def __init__(self, logits: list[list[float]]) -> None:
        super().__init__()
        self.logits = torch.tensor(logits, dtype=torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        return self.logits[x.squeeze(1).long()]


def panel_of(*members: Any) -> Panel:
    return Panel(nn.Identity(), members)


RECORDS = torch.arange(4.0).unsqueeze(1)
LABELS = torch.tensor([0, 0, 2, 1])
FIRST = Says([[5, 0, 0], [0, 3, 0], [0, 2, 0], [0, 9, 0]])  # says 0, 1, 1, 1
SECOND = Says([[1, 0, 0], [4, 0, 0], [3, 0, 0], [0, 2, 0]])  # says 0, 0, 0, 1


def test_each_learns_from_what_has_a_small_loss_for_the_other() -> None:
    for_first, for_second = CoTeaching(noise_rate=0.5)._choose(panel_of(FIRST, SECOND), RECORDS, LABELS, 15)[0]
    losses = [functional.cross_entropy(one.logits, LABELS, reduction="none") for one in (FIRST, SECOND)]
    assert sorted(for_first.tolist()) == sorted(losses[1].argsort()[:2].tolist()) == [1, 3]
    assert sorted(for_second.tolist()) == sorted(losses[0].argsort()[:2].tolist()) == [0, 3]


def test_updates_by_disagreement_use_records_on_which_the_two_disagree() -> None:
    chosen, disputed = PatePlus(noise_rate=0.0)._choose(panel_of(FIRST, SECOND), RECORDS, LABELS, 15)
    assert [sorted(one.tolist()) for one in chosen] == [[1, 2], [1, 2]]
    assert disputed.tolist() == [2]  # both are against the label there; at 1 the second agrees with it
    for_first, for_second = PatePlus(noise_rate=0.5)._choose(panel_of(FIRST, SECOND), RECORDS, LABELS, 15)[0]
    assert for_first.tolist() == [1]  # small for the second, which agrees with the label
    assert for_second.tolist() == [2]  # ln(e^2 + 2) is less than ln(e^3 + 2)


def test_one_discriminator_learns_from_everything() -> None:
    chosen, disputed = GanStudent()._choose(panel_of(FIRST), RECORDS, LABELS, 15)
    assert chosen[0].tolist() == [0, 1, 2, 3]
    assert not disputed.numel()


def test_later_disputes_weigh_more_and_those_with_most_are_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = iter([[0, 1], [1, 2], [2]])

    def choose(self: Any, panel: Panel, x: Tensor, labels: Tensor, epoch: int) -> tuple[list[Tensor], Tensor]:
        in_dispute = torch.isin(x.squeeze(1), torch.tensor(next(epochs), dtype=x.dtype)).nonzero().squeeze(1)
        return [torch.arange(0)] * 2, in_dispute

    monkeypatch.setattr(PatePlusPlus, "_choose", choose)
    monkeypatch.setattr(Game, "__init__", lambda *arguments: None)
    monkeypatch.setattr(Game, "step", lambda *arguments: None)
    student = PatePlusPlus(epochs=3, decay=0.5, removed=0.5, batch_size=10, average_last=0.0)
    lesson = Lesson(Part(RECORDS), torch.arange(4), torch.zeros(4, 3), 3, False)
    made = torch.Generator().manual_seed(0)
    dispute = student.train(panel_of(FIRST, SECOND), lesson, lesson.labeled, LABELS, made, lambda *a: None)
    assert dispute.tolist() == pytest.approx([0.125, 0.125 + 0.25, 0.25 + 0.5, 0.0])
    assert student.cleansed(dispute).tolist() == [0, 3]


def test_the_unsupervised_loss_is_that_of_one_more_class_whose_logit_is_zero() -> None:
    made = torch.Generator().manual_seed(0)
    real, fake = torch.randn(6, 3, generator=made), torch.randn(5, 3, generator=made)
    chances = [torch.cat([one, torch.zeros(len(one), 1)], dim=1).softmax(dim=1)[:, 3] for one in (real, fake)]
    expected = -(1.0 - chances[0]).log().mean() - chances[1].log().mean()
    assert float(unsupervised_loss(real, fake)) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("look", ["hog", "pixels"])
def test_all_students_see_pictures_the_same_way_and_have_equal_bodies(look: str) -> None:
    sizes = set()
    for student in (GanStudent, CoTeaching, PatePlus, PatePlusPlus):
        network = student(width=2, look=look).network(144, 3, 10)
        assert network(torch.rand(5, 144)).shape == (5, 3)
        sizes |= {sum(weight.numel() for weight in member.parameters()) for member in network.members}
    assert len(sizes) == 1


AGREED = Says([[5, 0, 0], [0, 3, 0], [0, 2, 0], [0, 9, 0]])  # as FIRST, so the two agree about every record


def test_disagreement_alone_never_learns_a_class_that_both_take_for_another_and_the_first_epochs_do() -> None:
    student = PatePlus(noise_rate=0.0, warm_up=2)
    panel = panel_of(FIRST, AGREED)  # record 2 is of class 2, and both say 1
    for epoch, learned in ((0, [0, 1, 2, 3]), (1, [0, 1, 2, 3]), (2, [])):
        chosen, _ = student._choose(panel, RECORDS, LABELS, epoch)
        assert [sorted(one.tolist()) for one in chosen] == [learned, learned]


def test_no_class_is_lost_when_both_begin_by_taking_one_class_for_another() -> None:
    """From weights at which both discriminators never say class 1: without the first epochs they never would."""
    made = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 3
    x = torch.rand(120, 144, generator=made) * 0.2
    x.view(120, 12, 12)[torch.arange(120), :, 4 * y + 1] += 0.7
    lesson = Lesson(Part(x), torch.arange(120), functional.one_hot(y, 3), 1, False)

    def right(warm_up: int) -> float:
        torch.manual_seed(1)
        student = PatePlus(width=2, epochs=12, batch_size=20, lr=0.01, warm_up=warm_up, look="pixels")
        network = student.network(144, 3, 120)
        with torch.no_grad():
            for member in network.members:
                member.head.bias[1] -= 3.0
        student.learn(network, lesson, torch.Generator().manual_seed(1), lambda *a: None)
        return float((network(x).argmax(dim=1)[y == 1] == 1).float().mean())

    assert right(warm_up=0) < 0.1
    assert right(warm_up=3) > 0.9


def test_pate_plus_is_what_pate_plus_plus_has_before_anything_is_taken_away() -> None:
    x = torch.rand(60, 144, generator=torch.Generator().manual_seed(0))
    lesson = Lesson(Part(x), torch.arange(40), functional.one_hot(torch.arange(40) % 3, 3), 1, False)
    weights = []
    for student in (PatePlus(width=2, epochs=2), PatePlusPlus(width=2, epochs=2)):
        torch.manual_seed(0)
        network = student.network(144, 3, 40)
        generator = torch.Generator().manual_seed(5)
        student.train(network, lesson, lesson.labeled, lesson.labels, generator, lambda *a: None)
        weights.append(nn.utils.parameters_to_vector(network.parameters()))
    assert torch.equal(*weights)


def test_the_weights_that_stay_are_the_mean_of_the_last_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter(range(1, 9))

    def step(self: Game, labeled: Any, real: Tensor) -> None:
        with torch.no_grad():
            for weight in self.members[0].parameters():
                weight.fill_(next(steps) if weight.ndim == 1 and len(weight) == 3 else 0.0)

    monkeypatch.setattr(Game, "step", step)
    student = GanStudent(width=2, epochs=4, batch_size=10, average_last=0.5)
    network = student.network(144, 3, 20)
    lesson = Lesson(Part(torch.rand(20, 144)), torch.arange(20), functional.one_hot(torch.arange(20) % 3, 3), 1, False)
    student.learn(network, lesson, torch.Generator().manual_seed(0), lambda *a: None)
    assert network.members[0].head.bias.tolist() == [6.5] * 3  # of steps 5 to 8


def test_bytes_leave_out_a_fifth_and_keep_the_mean() -> None:
    torch.manual_seed(0)
    dropout, x = ByteDropout(0.2), torch.ones(1_000, 1_003)
    seen = dropout(x)
    assert sorted(seen.unique().tolist()) == pytest.approx([0.0, 256 / 205])
    assert float((seen == 0).float().mean()) == pytest.approx(51 / 256, abs=0.002)  # 5 standard deviations
    assert torch.equal(dropout.eval()(x), x)
