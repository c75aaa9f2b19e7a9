"""The row-wise declarations by their former name; `hushgraph.nn.rowwise` holds them."""

from hushgraph.nn.rowwise import is_registered as is_registered
from hushgraph.nn.rowwise import register_rowwise as register_rowwise
from hushgraph.nn.rowwise import require_rowwise as require_rowwise
