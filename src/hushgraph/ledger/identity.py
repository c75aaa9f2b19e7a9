"""What a dataset is, by its content: a keyed fingerprint, and keyed sketches that recognize most of the same data.

The fingerprint is equal exactly for the same edges, features and labels, whatever the file is called and in whatever
order or form (dense or sparse) they are stored. A sketch keeps the smallest keyed hashes of the distinct edges, and of
the distinct rows of features (a MinHash with one hash function); the share of them that two sketches have in common
estimates how much two datasets have in common. Edges are sorted once; all else takes linear time. Edges on disk are
read in parts, which gives the same identity.

Without the ledger's secret neither can be made or compared. Both stay in the ledger's folder; the entries of the chain
hold only hashes of them. Renumbering the nodes changes every edge: then only the rows of features tell, where they
are distinctive.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgraph.errors import InputError

SKETCH_SIZE = 256
ALIKE = 0.5
"""From this estimated share of common entries on (Jaccard index), two datasets need a decision."""
CONTAINED = 0.8
"""And from this share of the smaller one's entries on, if so much of it lies in the other."""
_LEAST_SHARED = 16
_ROWS_AT_ONCE, _EDGES_AT_ONCE = 1 << 16, 1 << 15
_Nonzeros = tuple[np.ndarray, np.ndarray, np.ndarray]
_DISTINCTIVE = 0.5
"""Rows of features recognize a dataset only if at least this share of them are distinct."""


@dataclass(frozen=True)
class SparseArrays:
    """Rows in compressed form: row `i` has `values[offsets[i]:offsets[i + 1]]` at those `columns`; None: all ones."""

    offsets: np.ndarray
    columns: np.ndarray
    values: np.ndarray | None


@dataclass(frozen=True)
class GraphArrays:
    """The content of a dataset: edges `[2, E]` (sources, targets), one row of features and one label per record.

    Edges that are sorted already are given as what yields them in parts: numbers `source << 32 | target` in increasing
    order, those that are equal in one part.
    """

    edges: np.ndarray | Callable[[], Iterator[np.ndarray]] | None = None
    features: np.ndarray | SparseArrays | None = None
    labels: np.ndarray | None = None


def arrays_of(graph: Any) -> GraphArrays:
    """The arrays of a PyG graph (`edge_index` or stored `edges`, `x`, `y`), or of a checked one (`edges`, ...)."""
    stored = getattr(graph, "edges", None)
    edges = _array(getattr(graph, "edge_index", None)) if stored is None else stored.pairs_by_source
    checked = "labels" if getattr(graph, "targets", None) is None else "targets"  # the numbers, not their classes
    features, labels = ("x", "y") if hasattr(graph, "x") else ("features", checked)
    return GraphArrays(edges, _features(getattr(graph, features, None)), _array(getattr(graph, labels, None)))


def _array(values: Any) -> np.ndarray | None:
    return None if values is None else np.asarray(values.detach() if hasattr(values, "detach") else values)


def _features(x: Any) -> np.ndarray | SparseArrays | None:
    if hasattr(x, "indptr"):
        values = getattr(x, "values", getattr(x, "data", None))
        return SparseArrays(np.asarray(x.indptr), np.asarray(x.indices), None if values is None else np.asarray(values))
    if hasattr(x, "to_sparse_csr") and str(x.layout) != "torch.strided":
        csr = (x.coalesce() if str(x.layout) == "torch.sparse_coo" else x).to_sparse_csr()
        return SparseArrays(np.asarray(csr.crow_indices()), np.asarray(csr.col_indices()), np.asarray(csr.values()))
    return _array(x)


@dataclass(frozen=True)
class Sketch:
    """The smallest keyed hashes of a set, ascending; `size` is its size, estimated from them for large sets."""

    size: int
    values: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """The sketch as plain JSON values."""
        return {"size": self.size, "values": [f"{value:016x}" for value in self.values]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Sketch:
        """The inverse of `as_dict`."""
        return cls(int(values["size"]), tuple(int(value, 16) for value in values["values"]))

    def compare(self, other: Sketch) -> tuple[float, float]:
        """Estimates of the Jaccard index, and of the share of the smaller set that lies in the larger."""
        if not self.values or not other.values:
            return 0.0, 0.0
        union = sorted({*self.values, *other.values})[: max(len(self.values), len(other.values))]
        shared = len({*self.values} & {*other.values} & {*union})
        index = shared / len(union)
        common = index / (1.0 + index) * (self.size + other.size)
        contained = min(1.0, common / min(self.size, other.size))
        return index, contained if shared >= min(_LEAST_SHARED, self.size, other.size) else 0.0


@dataclass(frozen=True)
class DatasetIdentity:
    """What a dataset is recognized by. Holds keyed values only."""

    fingerprint: str
    edges: Sketch
    records: Sketch

    def as_dict(self) -> dict[str, Any]:
        """The identity as plain JSON values."""
        return {"fingerprint": self.fingerprint, "edges": self.edges.as_dict(), "records": self.records.as_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DatasetIdentity:
        """The inverse of `as_dict`."""
        sketches = (Sketch.from_dict(values[name]) for name in ("edges", "records"))
        return cls(str(values["fingerprint"]), *sketches)

    def likeness(self, other: DatasetIdentity) -> Likeness:
        """How much two datasets have in common, as far as the sketches tell."""
        return Likeness(*self.edges.compare(other.edges), *self.records.compare(other.records))


@dataclass(frozen=True)
class Likeness:
    """Estimated shares of common entries."""

    edges: float
    edges_contained: float
    records: float
    records_contained: float

    @property
    def needs_decision(self) -> bool:
        """Whether somebody has to say if the two are one dataset."""
        contained = max(self.edges_contained, self.records_contained) >= CONTAINED
        return contained or max(self.edges, self.records) >= ALIKE

    @property
    def largest(self) -> float:
        """The largest of the shares."""
        return max(self.edges, self.edges_contained, self.records, self.records_contained)

    def as_dict(self) -> dict[str, float]:
        """The shares, rounded."""
        return {name: round(value, 2) for name, value in vars(self).items()}


def identify(arrays: GraphArrays, key: bytes) -> DatasetIdentity:
    """The identity of a dataset under a ledger's secret key."""
    InputError.collect(_problems(arrays))
    edges, pairs = _read_edges(arrays.edges, key)
    total = hmac.new(key, b"dataset", hashlib.sha256)
    total.update(edges)
    content, rows = _read_rows(arrays.features, key)
    total.update(content)
    labels = np.zeros(0) if arrays.labels is None else arrays.labels.reshape(-1)
    labels = labels if (labels >= 0).any() else labels[:0]  # unlabeled throughout is without labels
    total.update(hmac.digest(key, _label_bytes(labels), hashlib.sha256))
    distinct = _distinct(rows)
    records = distinct if len(distinct) >= max(2.0, _DISTINCTIVE * len(rows)) else distinct[:0]
    return DatasetIdentity(total.hexdigest(), _sketch(pairs), _sketch(records[:SKETCH_SIZE]))


def _label_bytes(labels: np.ndarray) -> bytes:
    """Classes as whole numbers, whatever their type; numbers to predict in full, with one form of NaN and of zero."""
    if labels.dtype.kind != "f" or (labels == np.floor(labels)).all():
        return labels.astype(np.int64).tobytes()
    return np.where(np.isnan(labels), np.nan, labels.astype(np.float64) + 0.0).tobytes()


def features_alone(features: Any) -> GraphArrays:
    """The arrays of a dataset of which only the features are known."""
    return GraphArrays(features=_features(features))


def digest_of(features: Any) -> str:
    """A digest of all features in order, in whatever form they are stored. Not keyed: for public ones, or memory."""
    digest, found = _RowsDigest(b"features"), _features(features)
    for block in () if found is None else _blocks(found):
        digest.update(block)
    return hashlib.sha256(b"" if found is None else digest.digest()).hexdigest()


def _problems(arrays: GraphArrays) -> list[str]:
    problems = []
    edges, features = arrays.edges, arrays.features
    if isinstance(edges, np.ndarray) and (edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu"):
        problems.append(f"edges: expected whole numbers of shape [2, E]; got {edges.dtype} {list(edges.shape)}")
    if isinstance(features, np.ndarray) and features.ndim != 2:
        problems.append(f"features: expected one row per record; got shape {list(features.shape)}")
    return problems


def _read_edges(edges: np.ndarray | Callable[[], Iterator[np.ndarray]] | None, key: bytes) -> tuple[bytes, np.ndarray]:
    """A keyed digest of the distinct directed edges in order, and the smallest keyed hashes of undirected ones."""
    digest, seed = hmac.new(key, digestmod=hashlib.sha256), _seed(key, "edges")
    kept = np.zeros(0, dtype=np.uint64)
    for ordered in edges() if callable(edges) else _sorted_edges(edges):
        for directed, undirected in _pieces(ordered):
            digest.update(directed.data)
            kept = _smallest_of(kept, _mixed(undirected, seed))
    return digest.digest(), kept


def _sorted_edges(edges: np.ndarray | None) -> Iterator[np.ndarray]:
    if edges is not None and edges.size:
        source, target = edges.astype(np.uint64)
        yield np.sort((source << np.uint64(32)) | target)


def _pieces(ordered: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The distinct edges without loops, and the same without direction, in pieces that stay in the cache."""
    for start in range(0, len(ordered), _EDGES_AT_ONCE):
        piece = ordered[start : start + _EDGES_AT_ONCE].astype(np.uint64)
        source, target = piece >> np.uint64(32), piece & np.uint64(0xFFFFFFFF)
        new = source != target
        new[1:] &= piece[1:] != piece[:-1]
        new[0] &= start == 0 or ordered[start - 1] != ordered[start]
        undirected = (np.minimum(source, target) << np.uint64(32)) | np.maximum(source, target)
        yield (piece, undirected) if new.all() else (piece[new], undirected[new])


def _distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, sorted."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


class _RowsDigest:
    """A keyed digest of all non-zero features in order."""

    def __init__(self, key: bytes) -> None:
        self._parts = [hmac.new(key, part, hashlib.sha256) for part in (b"lengths", b"columns", b"values")]

    def update(self, block: _Nonzeros) -> None:
        for digest, part in zip(self._parts, block):
            digest.update(np.ascontiguousarray(part).data)

    def digest(self) -> bytes:
        return b"".join(part.digest() for part in self._parts)


def _read_rows(features: np.ndarray | SparseArrays | None, key: bytes) -> tuple[bytes, np.ndarray]:
    """A keyed digest of all non-zero features in order, and a keyed hash of every row that has any."""
    digest, seed, rows = _RowsDigest(key), _seed(key, "records"), [np.zeros(0, dtype=np.uint64)]
    if features is None:
        return b"", rows[0]
    for block in _blocks(features):
        digest.update(block)
        rows.append(_row_hashes(block, seed))
    return digest.digest(), np.concatenate(rows)


def _row_hashes(block: _Nonzeros, seed: np.uint64) -> np.ndarray:
    lengths, columns, values = block
    cells = _mixed((columns.astype(np.uint64) << np.uint64(32)) | values.view(np.uint32), seed)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    sums = np.concatenate([[np.uint64(0)], np.cumsum(cells, dtype=np.uint64)])  # wraps round, as it should
    return _mixed((sums[ends[1:]] - sums[ends[:-1]])[lengths > 0], seed)


def _blocks(features: np.ndarray | SparseArrays) -> Iterator[_Nonzeros]:
    """Some rows at a time: how many non-zeros each has, their columns in order, and their values as float32."""
    count = len(features.offsets) - 1 if isinstance(features, SparseArrays) else len(features)
    for start in range(0, count, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, count)
        if isinstance(features, SparseArrays):
            yield _of_sparse(features, start, stop)
        else:
            yield _of_dense(features, start, stop)


def _of_dense(features: np.ndarray, start: int, stop: int) -> _Nonzeros:
    block = features[start:stop].astype(np.float32)
    row, columns = np.nonzero(block)
    return np.bincount(row, minlength=stop - start).astype(np.int64), columns.astype(np.int64), block[row, columns]


def _of_sparse(features: SparseArrays, start: int, stop: int) -> _Nonzeros:
    offsets = features.offsets[start : stop + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    lengths, columns = np.diff(offsets), features.columns[first:last].astype(np.int64)
    values = np.ones(last - first, np.float32) if features.values is None else features.values[first:last]
    if not (_ascend(columns, offsets - first) and values.all()):
        row = np.repeat(np.arange(stop - start), lengths)
        order = np.lexsort((columns, row))
        order = order[values[order] != 0]
        lengths = np.bincount(row[order], minlength=stop - start).astype(np.int64)
        columns, values = columns[order], values[order]
    return lengths, columns, values.astype(np.float32)


def _ascend(columns: np.ndarray, offsets: np.ndarray) -> bool:
    """Whether the columns of every row are in order already, as most libraries keep them."""
    new = np.zeros(len(columns) + 1, dtype=bool)
    new[offsets] = True
    return bool((new[1:-1] | (columns[1:] > columns[:-1])).all())


def _seed(key: bytes, purpose: str) -> np.uint64:
    return np.uint64(int.from_bytes(hmac.digest(key, purpose.encode(), hashlib.sha256)[:8], "little"))


def _mixed(values: np.ndarray, seed: np.uint64) -> np.ndarray:
    """A keyed hash of 64-bit numbers: two rounds of multiply and shift (splitmix64), the secret added before each."""
    mixed = values.astype(np.uint64)
    for _ in range(2):
        mixed += seed
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def _smallest_of(kept: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """The smallest distinct hashes, as many as a sketch holds, of those kept so far and more; each at most twice."""
    enough = 2 * SKETCH_SIZE
    if len(kept) == SKETCH_SIZE:
        hashes = hashes[hashes < kept[-1]]
    elif len(hashes) > enough:
        hashes = np.partition(hashes, enough - 1)[:enough]
    return _distinct(np.concatenate([kept, hashes]))[:SKETCH_SIZE] if len(hashes) else kept


def _sketch(kept: np.ndarray) -> Sketch:
    """The sketch of a set from its smallest distinct hashes."""
    size = len(kept) if len(kept) < SKETCH_SIZE else round((SKETCH_SIZE - 1) * 2.0**64 / int(kept[-1]))
    return Sketch(size, tuple(int(value) for value in kept))
