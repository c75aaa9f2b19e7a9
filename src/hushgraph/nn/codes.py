"""The best question for every node: the code whose number separates the classes that are still open for it.

A code w is good if the class means of w . h lie far apart, compared with the noise and with how much w . h varies
within a class, given what the node heard already.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from hushgraph.nn.neighborhoods import Heard, Neighborhoods, Told

_MOST_LISTED = 8  # classes up to which all codes are tried
_MOST_FLIPS = 24


def best_codes(model: Neighborhoods, heard: Heard, joint: Tensor, mixing: Tensor, noise: float) -> Tensor:
    """A row of signs per node. A code w is answered as if it were `mixing` w, with noise of this deviation."""
    found = []
    for block, told in heard.blocks():
        search = _listed if model.classes <= _MOST_LISTED else _climbed
        found.append(search(*_variances(model, told, joint[block]), mixing, noise))
    return torch.cat(found) if found else torch.zeros((0, model.classes), dtype=torch.int64)


def _variances(model: Neighborhoods, told: Told, joint: Tensor) -> tuple[Tensor, Tensor]:
    """Covariances of h between classes and within them, `[nodes, classes, classes]`.

    Numbers move the mean of every class and narrow what is left by the mean covariance of a node's Gaussians.
    """
    classes, sizes, parts = model.classes, len(model.sizes), told.parts
    q = joint.unflatten(1, (classes, sizes)).sum(dim=2)
    means = told.means
    weighted = means * joint.unsqueeze(1)
    total = weighted.unflatten(2, (classes, sizes)).sum(dim=3)
    center = total / q.clamp(min=1e-12).unsqueeze(1)
    sized = weighted @ means.transpose(1, 2) - total @ center.transpose(1, 2)
    left = parts.mean_covariance(joint)
    for code, number in zip(told.codes, told.numbers, strict=True):
        along = left @ code.unsqueeze(2)
        gain = along / (1.0 + code.unsqueeze(1) @ along)
        center = center + gain * (number[:, None, None] - code.unsqueeze(1) @ center)
        left = left - gain @ along.transpose(1, 2)
    apart = center - center @ q.unsqueeze(2)
    return (apart * q.unsqueeze(1)) @ apart.transpose(1, 2), sized + left


def _listed(between: Tensor, within: Tensor, mixing: Tensor, noise: float) -> Tensor:
    """The best of all codes; one and its opposite are the same question."""
    classes = between.shape[1]
    signs = torch.tensor([(1, *rest) for rest in itertools.product((1, -1), repeat=classes - 1)])
    mixed = signs.to(mixing.dtype) @ mixing.t()
    outer = (mixed.unsqueeze(1) * mixed.unsqueeze(2)).flatten(1).t()
    ratio = (between.flatten(1) @ outer) / (within.flatten(1) @ outer + noise**2).clamp_(min=1e-9)
    return signs[ratio.argmax(dim=1)]


def _climbed(between: Tensor, within: Tensor, mixing: Tensor, noise: float) -> Tensor:
    """From the signs of the direction in which classes lie furthest apart, one flip at a time while that helps."""
    between, within = (mixing.t() @ one @ mixing for one in (between, within))
    within += noise**2 / len(mixing) * torch.eye(len(mixing))  # |w|^2 is the number of classes
    largest = between.diagonal(dim1=1, dim2=2).argmax(dim=1)
    axis = between[torch.arange(len(between)), largest]
    for _ in range(4):
        axis = (between @ axis.unsqueeze(2)).squeeze(2)
        axis = axis / axis.abs().amax(dim=1, keepdim=True).clamp(min=1e-30)
    sign = torch.where(axis < 0, -1.0, 1.0)
    own = [one.diagonal(dim1=1, dim2=2) for one in (between, within)]
    for _ in range(_MOST_FLIPS):
        sums = [(one @ sign.unsqueeze(2)).squeeze(2) * sign for one in (between, within)]
        now = [one.sum(dim=1, keepdim=True) for one in sums]
        flipped = [total - 4.0 * one + 4.0 * diagonal for total, one, diagonal in zip(now, sums, own, strict=True)]
        gain = flipped[0] / flipped[1].clamp(min=1e-9) - now[0] / now[1].clamp(min=1e-9)
        best, where = gain.max(dim=1)
        if not bool((best > 0.0).any()):
            break
        turn = torch.zeros_like(sign).scatter_(1, where.unsqueeze(1), (best > 0.0).to(sign.dtype).unsqueeze(1))
        sign = sign * (1.0 - 2.0 * turn)
    return sign.to(torch.int64)
