"""Model inversion on digits and faces, original and enhanced: a part of benchmarks/attacks.py.

The settings of the enhanced attack were chosen on the digit CNN with model seed 0, which no row is about.
"""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from hushgraph.attacks.images import compare_inversions, image_target, read_images
from hushgraph.attacks.inversion import EnhancedInversion, OriginalInversion

SEEDS = (1, 2, 3)
PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
FACES = EnhancedInversion(steps=150, lr=0.05, l1=0.0, btv=1e-4, starts=1, spread=0.0, metric="ssim")


def inversion(folder: Path, rows: Any) -> None:
    """All models on all data there is."""
    cases = {
        "MNIST": (folder / "mnist" / "mnist.npz", ("cnn", "mlp"), EnhancedInversion()),
        "ORL faces": (folder / "orl_faces" / "orl_faces.npz", ("softmax",), FACES),
    }
    for title, (path, kinds, enhanced) in cases.items():
        if not path.exists():
            print(f"inversion: no {path}; skipped")
            continue
        wanted = rows.missing(*[f"inversion|{title}|{kind}|{seed}" for kind in kinds for seed in SEEDS])
        data = read_images(path) if wanted else None
        if data is not None and title == "ORL faces":
            data = Data(x=data.x[:, ::2, ::2].contiguous(), y=data.y)
        for key in wanted:
            _, _, kind, seed = key.split("|")
            rows.keep(key, _row(data, kind, int(seed), enhanced, f"{title}-{kind}".replace(" ", "-").lower()))


def _row(data: Data, kind: str, seed: int, enhanced: EnhancedInversion, name: str) -> dict[str, Any]:
    """One model; the pictures of the first model of each kind go to docs/pictures."""
    started = time.process_time()
    target = image_target(data, kind, seed=seed)
    trained = time.process_time()
    original = OriginalInversion(metric=enhanced.metric)
    entry = compare_inversions(target, data, original=original, enhanced=enhanced)
    grids = entry.pop("grids")
    if seed == SEEDS[0]:
        PICTURES.mkdir(parents=True, exist_ok=True)
        for row, uri in next(iter(grids.values())).items():
            (PICTURES / f"{name}-{row.replace(' ', '-')}.png").write_bytes(base64.b64decode(uri.split(",", 1)[1]))
    return entry | {"train_seconds": trained - started, "attack_seconds": time.process_time() - trained}
