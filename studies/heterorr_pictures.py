"""Images and their reconstructions from embeddings (Fig. 8): writes docs/pictures/heterorr-fig-8.png.

    python studies/heterorr_pictures.py

Needs HUSHGRAPH_DATA and matplotlib.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from heterorr_experiments import attack_images
from matplotlib import pyplot

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "heterorr-fig-8.png"
EPSILONS = {"clean": math.inf, "epsilon 64": 64.0, "epsilon 4": 4.0}
SHOWN = 10


def main() -> None:
    """One line of originals, and one for each epsilon."""
    torch.set_num_threads(1)
    found = {name: attack_images(epsilon, 0).details for name, epsilon in EPSILONS.items()}
    lines = {"original": found["clean"]["originals"], **{name: one["images"] for name, one in found.items()}}
    figure, axes = pyplot.subplots(len(lines), SHOWN, figsize=(SHOWN * 0.8, len(lines) * 0.9), layout="constrained")
    for line, (name, images) in zip(axes, lines.items(), strict=True):
        for place, image in zip(line, images[:SHOWN], strict=True):
            place.imshow(torch.tensor(image).reshape(28, 28), cmap="gray", vmin=0.0, vmax=1.0)
            place.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=8)
    figure.suptitle("Not private: evaluation", fontsize=8)
    figure.savefig(PICTURE, dpi=90)


if __name__ == "__main__":
    main()
