"""Training loops, plain and private: settings, clipped sums of private examples, optimizers on one flat vector."""

from hushgraph.nn.rowwise import register_rowwise, require_rowwise
from hushgraph.training.clipping import ClippedGradient
from hushgraph.training.config import Training
from hushgraph.training.examples import NoisySteps, RootedExamples, RowExamples
from hushgraph.training.loop import BestEpoch, train_epochs, train_private
from hushgraph.training.plain_rows import train
from hushgraph.training.sampler import PoissonSampler
from hushgraph.training.whole_graph import train_on_graph

__all__ = [
    "BestEpoch",
    "ClippedGradient",
    "NoisySteps",
    "PoissonSampler",
    "RootedExamples",
    "RowExamples",
    "Training",
    "register_rowwise",
    "require_rowwise",
    "train",
    "train_epochs",
    "train_on_graph",
    "train_private",
]
