"""Small modules: layers, perceptrons, the hop classifier and the encoder, for dense and sparse rows."""

from hushgraph.data.rows import Rows, SparseRows, take_rows
from hushgraph.nn.encoder import Encoder
from hushgraph.nn.hops import Combine, HopClassifier
from hushgraph.nn.layers import Dropout, L2Normalize, Linear, linear_input
from hushgraph.nn.mlp import MLP

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
