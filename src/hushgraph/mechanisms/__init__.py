"""The ways out of the vault, one file each: query, bound, release, cost, canary."""

from __future__ import annotations

from hushgraph.mechanisms.cluster_degrees import ClusterDegrees
from hushgraph.mechanisms.coded_sum import CodedSum
from hushgraph.mechanisms.dendrogram import DendrogramChain
from hushgraph.mechanisms.dendrogram_choice import DendrogramChoice
from hushgraph.mechanisms.dendrogram_edges import DendrogramEdges
from hushgraph.mechanisms.divided_coded_sum import DividedCodedSum
from hushgraph.mechanisms.edge_count import EdgeCount
from hushgraph.mechanisms.edge_flip import EdgeFlip
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.label_sum import LabelSum
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.mechanisms.noisy_edges import NoisyEdges
from hushgraph.mechanisms.pair_count import PairCount
from hushgraph.mechanisms.raw import Raw
from hushgraph.mechanisms.rooted_gradient import RootedGradient

__all__ = [
    "ClusterDegrees",
    "CodedSum",
    "DendrogramChain",
    "DendrogramChoice",
    "DendrogramEdges",
    "DividedCodedSum",
    "EdgeCount",
    "EdgeFlip",
    "Gradient",
    "LabelSum",
    "LocalReport",
    "NeighborSum",
    "NoisyEdges",
    "PairCount",
    "Raw",
    "RootedGradient",
]
