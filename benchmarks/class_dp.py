"""Class- and subclass-DP: accuracy, and model inversion at matched accuracy, on digits (MNIST) and faces (ORL).

    python benchmarks/class_dp.py accuracy parts        # 500 subclasses of digits; the number of subclasses
    python benchmarks/class_dp.py digits faces          # invert vanilla, record-DP and (sub)class-DP models
    python benchmarks/class_dp_page.py                  # write docs/results-class-dp.md from what is there

Needs HUSHGRAPH_DATA. Every cell is a line in benchmarks/results/class_dp.jsonl; a command that was stopped goes on with
the cells that are missing. Noise is seeded: these are research runs on public data.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path

import torch
from cells import Cell, Cells
from inversion import FACES
from pictures import Centered, digits, faces, strip
from torch import Tensor, nn
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.attacks.inversion import EnhancedInversion, Inversion, Metric, class_distances
from hushgraph.methods.class_dp import ClassDP

RESULTS = Path(__file__).parent / "results" / "class_dp.jsonl"
PARTS = 50
NOISE_AND_STEPS = ((1.6, 84), (3.0, 130), (3.65, 161))
"""The thesis states its noise, not its steps: these are those at which its accountant gives what it claims."""
NUMBERS_OF_PARTS = (1, 5, 10, 50, 200, 1000)
RECORD_RATE = 0.01
DIGIT_RECORD_NOISE = (1.0,)
"""By record, besides what `RECORDS_PER_GROUP` gives: the usual noise."""
DIGIT_NOISE = (3.65, 16.0, 32.0, 1.6, 8.0)
PUBLISHED_FACES = ((0.8, 15), (1.2, 43), (1.6, 105))
FACE_NOISE = (0.08, 0.12, 0.24)
"""With all classes in every one of five steps."""
RECORDS_PER_GROUP = {"digits": 6.0, "faces": 77.0}
"""Expected batches of records are so many times larger than those of groups; noise that is as many times larger gives
sums with the same share of noise, hence models of about the same accuracy."""
DELTAS = {"class": 1e-2, "subclass": 1e-3, "record": 1e-5}
ANY = 1e4  # a budget that any noise fits: the noise is given, and epsilon follows


def trained(method: ClassDP, data: Data, unit: hg.Unit, seed: int, *, protected: bool = True) -> tuple[hg.Model, Cell]:
    """A model as everybody makes it, and what is said of it."""
    started = time.process_time()
    budget = hg.Budget(ANY if protected else math.inf, DELTAS[unit.name])
    model = method.fit(data, unit, budget, ledger=hg.Ledger(), seed=seed)
    said = {
        "unit": unit.name if protected else "none",
        "network": method.network_kind or "filters",
        "noise": method.noise_multiplier if protected else 0.0,
        "rate": method.sample_rate,
        "steps": method.steps,
        "seed": seed,
        "epsilon": model.plan.epsilon if protected else None,
        "delta": DELTAS[unit.name],
        "accuracy": model.metrics["accuracy"]["test"],
        "train accuracy": model.metrics["accuracy"]["train"],
        "seconds": time.process_time() - started,
    }
    return model, said


def accuracy(cells: Cells, seeds: int) -> None:
    """The thesis's noise on 500 subclasses, by both rules."""
    data = digits()
    for seed in range(seeds):
        for rule in ("spread", "nearest"):
            for noise, steps in NOISE_AND_STEPS:
                method = ClassDP(noise_multiplier=noise, steps=steps, rule=rule)
                cells.measure(f"accuracy-{rule}-{noise}-{seed}", _accuracy, method, data, PARTS, seed)


def parts(cells: Cells, seeds: int) -> None:
    """The number of subclasses at noise 1.6 (Fig. 4.9)."""
    data = digits()
    for count in NUMBERS_OF_PARTS:
        method = ClassDP(noise_multiplier=1.6, steps=84)
        cells.measure(f"parts-{count}-0", _accuracy, method, data, count, 0)


def _accuracy(method: ClassDP, data: Data, count: int, seed: int) -> Cell:
    return {"parts": count, "rule": method.rule, **trained(method, data, hg.units.Subclass(parts=count), seed)[1]}


def digit_models(cells: Cells, seeds: int) -> None:
    """Digits: a description by public filters, or pixels alone; vanilla, by record, by subclass."""
    data, attack = digits(), EnhancedInversion()
    record, subclass = hg.units.Record(), hg.units.Subclass(parts=PARTS)
    for kind in ("filters", "softmax"):
        plain = ClassDP(network_kind=kind, max_grad_norm=0.1 if kind == "filters" else 1.0)
        plain = _with(plain, lr=100.0 if kind == "filters" else 1.0, steps=130)
        _invert(cells, f"digits-{kind}-none", plain, data, record, attack, 0)
        for noise in DIGIT_NOISE:
            by_class = _with(plain, noise_multiplier=noise)
            by_record = _with(plain, noise_multiplier=RECORDS_PER_GROUP["digits"] * noise, sample_rate=RECORD_RATE)
            _invert(cells, f"digits-{kind}-subclass-{noise}", by_class, data, subclass, attack, 0)
            _invert(cells, f"digits-{kind}-record-{noise}", by_record, data, record, attack, 0)
        for noise in DIGIT_RECORD_NOISE:
            by_record = _with(plain, noise_multiplier=noise, sample_rate=RECORD_RATE)
            _invert(cells, f"digits-{kind}-record-at-{noise}", by_record, data, record, attack, 0)
    cells.measure("digits-black", _black, data, "euclidean")


def face_models(cells: Cells, seeds: int) -> None:
    """Faces: softmax regression on pixels; vanilla, by record, by class."""
    data = faces()
    plain = ClassDP(network_kind="softmax", max_grad_norm=10.0, lr=1.0, sample_rate=1.0, steps=5)
    plain = _with(plain, epochs=20, plain_lr=0.001)
    record, person = hg.units.Record(), hg.units.Class()
    for seed in range(seeds):
        _invert(cells, f"faces-softmax-none-{seed}", plain, data, record, FACES, seed)
        for noise in FACE_NOISE:
            by_class = _with(plain, noise_multiplier=noise)
            by_record = _with(plain, noise_multiplier=RECORDS_PER_GROUP["faces"] * noise)
            _invert(cells, f"faces-softmax-class-{noise}-{seed}", by_class, data, person, FACES, seed)
            _invert(cells, f"faces-softmax-record-{noise}-{seed}", by_record, data, record, FACES, seed)
        for noise, steps in PUBLISHED_FACES:
            published = _with(plain, noise_multiplier=noise, steps=steps, sample_rate=0.33, lr=0.05)
            _invert(cells, f"faces-softmax-published-{noise}-{seed}", published, data, person, FACES, seed)
        usual = _with(plain, noise_multiplier=10.0)
        _invert(cells, f"faces-softmax-record-usual-{seed}", usual, data, record, FACES, seed)
    cells.measure("faces-black", _black, data, "ssim")


def _invert(cells: Cells, key: str, method: ClassDP, data: Data, unit: hg.Unit, attack: Inversion, seed: int) -> None:
    cells.measure(key, _inverted, key, method, data, unit, attack, seed)


def _inverted(key: str, method: ClassDP, data: Data, unit: hg.Unit, attack: Inversion, seed: int) -> Cell:
    """One model, its reconstructions, and how far each is from the nearest training picture of its class."""
    model, said = trained(method, data, unit, seed, protected="-none" not in key)
    started, shape = time.process_time(), tuple(data.image_shape)
    network = nn.Sequential(nn.Flatten(), Centered() if data.centered else nn.Identity(), model.network.eval())
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    images = attack.reconstruct(network, len(data.class_names), shape).clamp(0.0, 1.0)
    if seed == 0:
        strip(key, images)
    judged = _judged(images, data, "ssim" if attack.metric == "ssim" else "euclidean")
    return {**said, **judged, "attack seconds": time.process_time() - started}


def _judged(images: Tensor, data: Data, metric: Metric) -> Cell:
    """The distance of each picture to the nearest original of its class that trained, and their mean."""
    train = data.train_mask & data.original_mask
    x, y = data.pixels[train].view(-1, *data.image_shape).numpy(), data.y[train].numpy()
    distances = class_distances(images.numpy(), x, y, metric)
    return {"distances": distances, "distance": float(sum(distances) / len(distances))}


def _black(data: Data, metric: Metric) -> Cell:
    """What a black picture of every class is worth, which is known without any model."""
    return {"unit": "black", **_judged(torch.zeros(len(data.class_names), *data.image_shape), data, metric)}


def _with(method: ClassDP, **settings: object) -> ClassDP:
    return ClassDP(**{**method.as_dict(), **settings})


STUDIES = {"accuracy": accuracy, "parts": parts, "digits": digit_models, "faces": face_models}


def main() -> None:
    """Run the studies that were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cells = Cells(RESULTS)
    for study in options.studies:
        STUDIES[study](cells, options.seeds)


if __name__ == "__main__":
    main()
