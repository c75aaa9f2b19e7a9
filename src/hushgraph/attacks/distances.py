"""How close a reconstructed image is to the training images of a class: Euclidean distance, and 1 - SSIM."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import ndimage

from hushgraph.errors import InputError

Metric = Literal["euclidean", "ssim"]
_WINDOW = 7
_C1, _C2 = 0.01**2, 0.03**2  # the constants of Wang and others (2004), for values in [0, 1]


def mia_distance(image: np.ndarray, training: np.ndarray, metric: Metric = "euclidean") -> float:
    """The smallest distance between `image` and any of the `training` images `[n, height, width]`."""
    if training.ndim != 3 or image.shape != training.shape[1:]:
        raise InputError(f"distance: expected images of one shape; got {image.shape} and {training.shape}")
    if metric == "euclidean":
        return float(np.sqrt(((training - image) ** 2).sum(axis=(1, 2))).min())
    if metric == "ssim":
        return float((1.0 - structural_similarity(image, training)).min())
    raise InputError(f"distance: expected 'euclidean' or 'ssim'; got '{metric}'")


def class_table(images: np.ndarray, x: np.ndarray, y: np.ndarray, metric: Metric) -> np.ndarray:
    """`[images, classes]`: the MIA distance of every image to every class."""
    groups = [x[y == label] for label in range(int(y.max()) + 1)]
    if min(len(group) for group in groups) == 0:
        raise InputError("distance: expected an image of every class; a class has none")
    return np.array([[mia_distance(image, group, metric) for group in groups] for image in images])


def class_distances(images: np.ndarray, x: np.ndarray, y: np.ndarray, metric: Metric) -> list[float]:
    """The MIA distance of every class: its reconstruction to the nearest training image of the class."""
    return [mia_distance(image, x[y == label], metric) for label, image in enumerate(images)]


def structural_similarity(image: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The mean structural similarity (SSIM) of `image` with each of `others`, over uniform windows of 7 x 7."""
    one, many = image.astype(np.float64)[None], others.astype(np.float64)
    mean_one, mean_many = _smooth(one), _smooth(many)
    variance_one = _smooth(one * one) - mean_one**2
    variance_many = _smooth(many * many) - mean_many**2
    covariance = _smooth(one * many) - mean_one * mean_many
    top = (2.0 * mean_one * mean_many + _C1) * (2.0 * covariance + _C2)
    bottom = (mean_one**2 + mean_many**2 + _C1) * (variance_one + variance_many + _C2)
    return np.asarray((top / bottom).mean(axis=(1, 2)))


def _smooth(images: np.ndarray) -> np.ndarray:
    smoothed: np.ndarray = ndimage.uniform_filter(images, size=(1, _WINDOW, _WINDOW), mode="reflect")
    return smoothed
