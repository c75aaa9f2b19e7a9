"""Weights of entries that no single node can move far, however many edges it has.

Every node sends or receives. Sender s and receiver t get numbers u_s and r_t in (0, 1] with

    u_s = 1 / (1 + (sum of r_t over those s sends to) / send_capacity)
    r_t = 1 / (1 + (sum of u_s over those who send to t) / receive_capacity)

and the entry (s, t) has the weight u_s r_t: close to 1 among nodes with few entries, small at a hub. The weights of one
sender add up to less than `send_capacity`, those of one receiver to less than `receive_capacity`, and taking a node
away moves the weights of all others together by little (docs/proofs/balance.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.edges import Edges

MOST_NODES = 1 << 21  # up to here, sums in double precision are as good as the proof needs
MOST_CAPACITY = 1 << 18


@dataclass(frozen=True)
class Balance:
    """The numbers of all nodes (0 for those who do not send, or receive) and the entries they weigh.

    Attributes:
        entries: row t has a 1 for every s that sends to t.
        send: u, float64.
        receive: r, float64.
    """

    entries: sparse.csr_matrix
    send: np.ndarray
    receive: np.ndarray

    def sums(self, rows: np.ndarray) -> np.ndarray:
        """For every node, the sum of u_s r_t times the row of s over the senders s of t; float64."""
        summed: np.ndarray = self.receive[:, None] * (self.entries @ (self.send[:, None] * rows))
        return summed


def balance(edges: Edges, senders: Tensor, receivers: Tensor, send_capacity: float, receive_capacity: float) -> Balance:
    """The balanced weights of the entries that lead from a node of the mask `senders` to one of `receivers`.

    Nodes in both masks are refused, and so are more nodes than the proof of the rounding allows. Every step of the
    iteration is monotone, also as the machine rounds it: u never rises and comes to rest, for every graph.
    """
    _check(senders, receivers, send_capacity, receive_capacity)
    entries = _entries(edges, senders, receivers)
    back = entries.T.tocsr()
    sending, receiving = senders.numpy().astype(np.float64), receivers.numpy().astype(np.float64)
    close = tolerance(len(sending), receive_capacity)
    send = sending
    while True:
        receive = receiving / (1.0 + entries @ send / receive_capacity)
        better = sending / (1.0 + back @ receive / send_capacity)
        if _apart(better, send) <= close:
            return Balance(entries, send, receive)
        send = better


def tolerance(num_nodes: int, receive_capacity: float) -> float:
    """How close, as a ratio, the numbers of senders must come to those that solve the equations."""
    return 1e-3 / (num_nodes + 2.0 * receive_capacity)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest |log| of a ratio of two positive numbers; zeros are those who do not send."""
    used = other > 0.0
    return float(np.abs(np.log(one[used] / other[used])).max(initial=0.0))


def _entries(edges: Edges, senders: Tensor, receivers: Tensor) -> sparse.csr_matrix:
    """Row t has a 1 for every sender of the receiver t."""
    ending = edges.ending_at(receivers).load()
    sent = senders[ending.sources.to(torch.int64)]
    before = torch.zeros(ending.num_edges + 1, dtype=torch.int64)
    torch.cumsum(sent, 0, out=before[1:])
    sources, offsets = ending.sources[sent].numpy(), before[ending.offsets.to(torch.int64)].numpy()
    nodes = ending.num_nodes
    return sparse.csr_matrix((np.ones(len(sources)), sources, offsets), shape=(nodes, nodes))


def _check(senders: Tensor, receivers: Tensor, *capacities: float) -> None:
    problems = []
    if bool((senders & receivers).any()):
        problems.append("balance: expected nodes that send or receive; got some that do both")
    if len(senders) > MOST_NODES:
        problems.append(f"balance: expected at most {MOST_NODES} nodes; got {len(senders)}")
    if not all(1.0 <= capacity <= MOST_CAPACITY for capacity in capacities):
        problems.append(f"balance: expected capacities from 1 to {MOST_CAPACITY}; got {capacities}")
    InputError.collect(problems)
