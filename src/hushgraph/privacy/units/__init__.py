"""What is protected: the unit of privacy, a typed value that every epsilon is stated with.

A guarantee means nothing without the change it hides. What a unit says of itself is in `privacy.unit`.
"""

from __future__ import annotations

from hushgraph.privacy.unit import Footprint, Relation, Unit, as_unit, by_name, from_dict
from hushgraph.privacy.units.edge import DirectedEdge, PrivateEdge, UndirectedEdge
from hushgraph.privacy.units.local import Local
from hushgraph.privacy.units.node import BoundedDegreeNode, Node, NodeReplace, NodeWithEdges
from hushgraph.privacy.units.record import Class, Record, Subclass

__all__ = [
    "BoundedDegreeNode",
    "Class",
    "DirectedEdge",
    "Footprint",
    "Local",
    "Node",
    "NodeReplace",
    "NodeWithEdges",
    "PrivateEdge",
    "Record",
    "Relation",
    "Subclass",
    "UndirectedEdge",
    "Unit",
    "as_unit",
    "by_name",
    "from_dict",
]
