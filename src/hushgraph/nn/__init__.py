"""Small modules: layers, perceptrons, the hop classifier and the encoder, for dense and sparse rows."""

from hushgraph.graph.rows import Rows, SparseRows, take_rows
from hushgraph.nn.gap import Combine, Encoder, HopClassifier
from hushgraph.nn.layers import MLP, Dropout, L2Normalize, Linear, linear_input

__all__ = [
    "MLP",
    "Combine",
    "Dropout",
    "Encoder",
    "HopClassifier",
    "L2Normalize",
    "Linear",
    "Rows",
    "SparseRows",
    "linear_input",
    "take_rows",
]
