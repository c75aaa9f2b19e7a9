"""Training loops, plain and private: samplers, per-example clipping, optimizers on one flat vector."""

from hushgraph.noise.sampler import PoissonSampler
from hushgraph.training.clipping import ClippedGradient
from hushgraph.training.plain import train_plainly
from hushgraph.training.private import train_privately
from hushgraph.training.rowwise import register_rowwise, require_rowwise

__all__ = [
    "ClippedGradient",
    "PoissonSampler",
    "register_rowwise",
    "require_rowwise",
    "train_plainly",
    "train_privately",
]
