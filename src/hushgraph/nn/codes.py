"""The best question for every node: the code whose number separates the classes that are still open for it.

A code w is good if the class means of w . h lie far apart, compared with the noise and with how much w . h varies
within a class, given what the node heard already.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from hushgraph.nn.neighborhoods import Factored, Heard, Neighborhoods, Parts, blocks

_MOST_LISTED = 8  # classes up to which all codes are tried
_MOST_FLIPS = 24


def best_codes(
    parts: Parts,
    model: Neighborhoods,
    heard: Heard,
    joint: Tensor,
    mixing: Tensor,
    noise: float,
) -> Tensor:
    """A row of signs per node. A code w is answered as if it were `mixing` w, with noise of this deviation."""
    found = []
    for start, stop in blocks(len(joint), len(parts.means) * model.classes // 2):
        part, told = parts.of_nodes(start, stop), heard.of_nodes(start, stop)
        between, within = _variances(part, model, told, joint[start:stop])
        between, within = (mixing.t() @ one @ mixing for one in (between, within))
        within = within + noise**2 / model.classes * torch.eye(model.classes)  # |w|^2 is the number of classes
        found.append(_listed(between, within) if model.classes <= _MOST_LISTED else _climbed(between, within))
    return torch.cat(found) if found else torch.zeros((0, model.classes), dtype=torch.int64)


def _variances(parts: Parts, model: Neighborhoods, heard: Heard, joint: Tensor) -> tuple[Tensor, Tensor]:
    """Covariances of h between classes and within them, `[nodes, classes, classes]`.

    What was heard narrows the covariance of the likeliest size of each class; the other sizes count by their means.
    """
    nodes, classes, sizes = len(joint), model.classes, len(model.sizes)
    each = joint.unflatten(1, (classes, sizes))
    q = each.sum(dim=2)
    given = each / q.clamp(min=1e-12).unsqueeze(2)
    likeliest = each.argmax(dim=2) + sizes * torch.arange(classes)
    flat = likeliest.flatten()

    means = parts.means.expand(nodes, -1, -1)
    if parts.pull is not None:
        pulled = parts.diagonal * parts.pull.unsqueeze(1)
        along = torch.einsum("jrd,nd->njr", parts.direction, parts.pull) * parts.strength
        means = means + pulled + torch.einsum("njr,jrd->njd", along, parts.direction)
    means = means.unflatten(1, (classes, sizes))
    center = (given.unsqueeze(3) * means).sum(dim=2)
    apart = ((means - center.unsqueeze(2)) * each.sqrt().unsqueeze(3)).flatten(1, 2)
    within = apart.transpose(1, 2) @ apart

    diagonal = parts.diagonal[flat].view(nodes, classes, classes)
    direction = parts.direction[flat].view(nodes, classes, -1, classes)
    strength = parts.strength[flat].view(nodes, classes, -1)
    within = within + torch.diag_embed((q.unsqueeze(2) * diagonal).sum(dim=1))
    weighted = (direction * (strength * q.unsqueeze(2)).unsqueeze(3)).flatten(1, 2)
    within = within + weighted.transpose(1, 2) @ direction.flatten(1, 2)

    factored = Factored(parts, heard)
    if factored.white:
        rows, white = _whitened(factored, likeliest, diagonal, direction, strength)
        center = center + torch.einsum("nckd,nck->ncd", rows, white)
        less = (rows * q.sqrt()[:, :, None, None]).flatten(1, 2)
        within = within - less.transpose(1, 2) @ less
    apart = (center - (q.unsqueeze(2) * center).sum(dim=1, keepdim=True)) * q.sqrt().unsqueeze(2)
    return apart.transpose(1, 2) @ apart, within


def _whitened(
    factored: Factored, likeliest: Tensor, diagonal: Tensor, direction: Tensor, strength: Tensor
) -> tuple[Tensor, Tensor]:
    """The covariance of h with the whitened numbers, and these: `[nodes, classes, numbers, (classes)]`."""
    rows: list[Tensor] = []
    for k, factors in enumerate(factored.lower):
        code = factored.codes[k].unsqueeze(1)
        along = (direction @ code.unsqueeze(3)).squeeze(3) * strength
        row = diagonal * code + (along.unsqueeze(3) * direction).sum(dim=2)
        for m in range(k):
            row = row - factors[m].gather(1, likeliest).unsqueeze(2) * rows[m]
        rows.append(row / factors[k].gather(1, likeliest).unsqueeze(2))
    white = torch.stack([one.gather(1, likeliest) for one in factored.white], dim=2)
    return torch.stack(rows, dim=2), white


def _listed(between: Tensor, within: Tensor) -> Tensor:
    """The best of all codes; one and its opposite are the same question."""
    classes = between.shape[1]
    signs = torch.tensor([(1, *rest) for rest in itertools.product((1, -1), repeat=classes - 1)])
    outer = (signs.unsqueeze(2) * signs.unsqueeze(1)).flatten(1).to(between.dtype)
    ratio = (between.flatten(1) @ outer.t()) / (within.flatten(1) @ outer.t()).clamp(min=1e-9)
    return signs[ratio.argmax(dim=1)]


def _climbed(between: Tensor, within: Tensor) -> Tensor:
    """From the signs of the direction in which classes lie furthest apart, one flip at a time while that helps."""
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
