"""What a dataset is, by its content: a keyed fingerprint, and keyed sketches that recognize most of the same data.

The fingerprint is equal exactly for the same edges, features and labels, whatever the file is called and in whatever
order or form (dense or sparse) they are stored. A sketch keeps the smallest keyed hashes of the distinct edges, and of
the distinct rows of features (a MinHash with one hash function); the share of them that two sketches have in common
estimates how much two datasets have in common. Edges are sorted once; all else takes linear time. Edges on disk are
read in parts, which gives the same identity.

Without the ledger's secret neither can be made or compared. Both stay in the ledger's folder; the entries of the chain
hold only hashes of them. Renumbering the nodes changes every edge: then only the rows of features tell, where they
are distinctive.

The datasets of a ledger are known by their content where it was seen, by a name where it was not.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.entries import canonical
from hushgraph.ledger.store import Rows

SKETCH_SIZE = 256
ALIKE = 0.5
"""From this estimated share of common entries on (Jaccard index), two datasets need a decision."""
CONTAINED = 0.8
"""And from this share of the smaller one's entries on, if so much of it lies in the other."""
_LEAST_SHARED = 16
_ROWS_AT_ONCE = 1 << 16
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
    features, labels = ("x", "y") if hasattr(graph, "x") else ("features", "labels")
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
    total.update(hmac.digest(key, labels.astype(np.int64).tobytes(), hashlib.sha256))
    distinct = _distinct(rows)
    records = distinct if len(distinct) >= max(2.0, _DISTINCTIVE * len(rows)) else distinct[:0]
    return DatasetIdentity(total.hexdigest(), _sketch(pairs), _sketch(_smallest(records)))


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
        directed = _without_repeats(ordered.astype(np.uint64, copy=False))
        directed = directed[directed >> np.uint64(32) != directed & np.uint64(0xFFFFFFFF)]
        digest.update(directed.tobytes())
        kept = _smallest(np.concatenate([kept, _mixed(_undirected(directed), seed)]), repeats=2)
    return digest.digest(), kept


def _sorted_edges(edges: np.ndarray | None) -> Iterator[np.ndarray]:
    if edges is not None and edges.size:
        source, target = edges.astype(np.uint64)
        yield np.sort((source << np.uint64(32)) | target)


def _undirected(directed: np.ndarray) -> np.ndarray:
    """The same edges without their direction: one that has its reverse is there twice."""
    source, target = directed >> np.uint64(32), directed & np.uint64(0xFFFFFFFF)
    return (np.minimum(source, target) << np.uint64(32)) | np.maximum(source, target)


def _distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, sorted."""
    return _without_repeats(np.sort(values))


def _without_repeats(ordered: np.ndarray) -> np.ndarray:
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def _read_rows(features: np.ndarray | SparseArrays | None, key: bytes) -> tuple[bytes, np.ndarray]:
    """A keyed digest of all non-zero features in order, and a keyed hash of every row that has any."""
    if features is None:
        return b"", np.zeros(0, dtype=np.uint64)
    digests = [hmac.new(key, part, hashlib.sha256) for part in (b"lengths", b"columns", b"values")]
    seed, rows = _seed(key, "records"), []
    count = len(features.offsets) - 1 if isinstance(features, SparseArrays) else len(features)
    for start in range(0, count, _ROWS_AT_ONCE):
        lengths, columns, values = _nonzeros(features, start, min(start + _ROWS_AT_ONCE, count))
        for digest, part in zip(digests, (lengths, columns, values)):
            digest.update(part.tobytes())
        cells = _mixed((columns.astype(np.uint64) << np.uint64(32)) | values.view(np.uint32), seed)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        sums = np.concatenate([[np.uint64(0)], np.cumsum(cells, dtype=np.uint64)])  # wraps round, as it should
        rows.append(_mixed((sums[ends[1:]] - sums[ends[:-1]])[lengths > 0], seed))
    return b"".join(digest.digest() for digest in digests), np.concatenate([np.zeros(0, dtype=np.uint64), *rows])


def _nonzeros(features: np.ndarray | SparseArrays, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of some rows: how many non-zeros each has, their columns in order, and their values as float32."""
    if isinstance(features, np.ndarray):
        block = features[start:stop].astype(np.float32)
        row, columns = np.nonzero(block)
        return np.bincount(row, minlength=stop - start).astype(np.int64), columns.astype(np.int64), block[row, columns]
    first, last = int(features.offsets[start]), int(features.offsets[stop])
    columns = features.columns[first:last].astype(np.int64)
    values = np.ones(last - first) if features.values is None else features.values[first:last]
    row = np.repeat(np.arange(stop - start), np.diff(features.offsets[start : stop + 1]))
    order = np.lexsort((columns, row))
    order = order[values[order] != 0]
    lengths = np.bincount(row[order], minlength=stop - start).astype(np.int64)
    return lengths, columns[order], values[order].astype(np.float32)


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


def _smallest(hashes: np.ndarray, repeats: int = 1) -> np.ndarray:
    """The smallest distinct hashes, as many as a sketch holds; each is there at most `repeats` times."""
    enough = repeats * SKETCH_SIZE
    return _distinct(hashes if len(hashes) <= enough else np.partition(hashes, enough - 1)[:enough])[:SKETCH_SIZE]


def _sketch(kept: np.ndarray) -> Sketch:
    """The sketch of a set from its smallest distinct hashes."""
    size = len(kept) if len(kept) < SKETCH_SIZE else round((SKETCH_SIZE - 1) * 2.0**64 / int(kept[-1]))
    return Sketch(size, tuple(int(value) for value in kept))


KINDS = ("dataset", "alias", "continues", "identified")


@dataclass
class Dataset:
    """One dataset: its id, the names it was given, and hashes of what recognizes its content."""

    id: str
    names: list[str] = field(default_factory=list)
    sketches: list[str] = field(default_factory=list)


def known_datasets(rows: Rows) -> dict[str, Dataset]:
    """All datasets by their id."""
    found: dict[str, Dataset] = {}
    entries = sorted((entry for kind in KINDS for entry in rows.of_kind(kind)), key=lambda entry: entry.number)
    for entry in entries:
        values = entry.values
        dataset = found.setdefault(values["dataset"], Dataset(values["dataset"]))
        if values["name"] not in dataset.names:
            dataset.names.append(values["name"])
        if values.get("sketch") is not None:
            dataset.sketches.append(values["sketch"])
    return found


def resolve(known: dict[str, Dataset], name: str) -> str:
    """The id of the dataset called `name`, by its id or one of its names."""
    if name in known:
        return name
    called = [dataset.id for dataset in known.values() if name in dataset.names]
    if len(called) == 1:
        return called[0]
    if called:
        raise InputError(f"'{name}': expected the name of one dataset; got that of {', '.join(called)}. Use the id")
    raise InputError(f"'{name}': expected a dataset of this ledger; known: {', '.join(known) or 'none'}")


def sketch_text(identity: DatasetIdentity) -> tuple[str, str]:
    """What is kept of an identity, and its hash."""
    content = canonical(identity.as_dict())
    return content, hashlib.sha256(content.encode()).hexdigest()


def read_sketches(rows: Rows) -> dict[str, DatasetIdentity]:
    """All identities by their hash; an error where one was changed."""
    found = {}
    for link, content in rows.sketches().items():
        if hashlib.sha256(content.encode()).hexdigest() != link:
            raise LedgerError(f"{rows.store.where}: the sketch of a dataset was changed or damaged")
        found[link] = DatasetIdentity.from_dict(json.loads(content))
    return found


@dataclass(frozen=True)
class Decision:
    """The dataset that some data belongs to, and the entry to write, if any is needed."""

    dataset: str
    kind: str | None = None
    values: dict[str, Any] = field(default_factory=dict)


def decide(
    rows: Rows, identity: DatasetIdentity, name: str, continues: str | None = None, separate: str | None = None
) -> Decision:
    """Which dataset this data is: the same content, one that it is declared to continue, or a new one.

    Data that shares most entries with a known dataset needs `continues` (its name) or `separate` (the reason).
    """
    if continues is not None and separate is not None:
        raise InputError("expected continues or separate; got both. Say one of the two")
    known, sketches = known_datasets(rows), read_sketches(rows)
    for dataset in known.values():  # one that was lost with a damaged file recognizes nothing any more
        dataset.sketches = [sketch for sketch in dataset.sketches if sketch in sketches]
    _, link = sketch_text(identity)
    same = [
        one.id for one in known.values() if any(sketches[s].fingerprint == identity.fingerprint for s in one.sketches)
    ]
    if same:
        return _same_content(known[same[0]], name, continues, known)
    if continues is not None:
        chosen = resolve(known, continues)
        closest = _alike(known[chosen], identity, sketches)
        likeness = None if closest is None else closest.as_dict()
        return Decision(chosen, "continues", {"dataset": chosen, "name": name, "sketch": link, "likeness": likeness})
    alike_to = {one.id: found for one in known.values() if (found := _alike(one, identity, sketches))}
    needing = {dataset: likeness for dataset, likeness in alike_to.items() if likeness.needs_decision}
    if needing and separate is None:
        raise _undecided(name, needing)
    if name in known and not known[name].sketches and not needing:
        return Decision(name, "identified", {"dataset": name, "name": name, "sketch": link})
    new = _free_id(known, name)
    alike = {dataset: likeness.as_dict() for dataset, likeness in needing.items()}
    values = {"dataset": new, "name": name, "sketch": link, "separate": separate, "alike": alike}
    return Decision(new, "dataset", values)


def _same_content(dataset: Dataset, name: str, continues: str | None, known: dict[str, Dataset]) -> Decision:
    if continues is not None and resolve(known, continues) != dataset.id:
        raise InputError(f"continues: expected '{dataset.id}', which has exactly this content; got '{continues}'")
    if name in (dataset.id, *dataset.names):
        return Decision(dataset.id)
    return Decision(dataset.id, "alias", {"dataset": dataset.id, "name": name})


def _alike(dataset: Dataset, identity: DatasetIdentity, sketches: dict[str, DatasetIdentity]) -> Likeness | None:
    """The closest likeness to any content that the dataset had."""
    found = [identity.likeness(sketches[link]) for link in dataset.sketches]
    return max(found, key=lambda likeness: (likeness.needs_decision, likeness.largest), default=None)


def _undecided(name: str, alike: dict[str, Likeness]) -> InputError:
    shares = "; ".join(
        f"about {100 * likeness.largest:.0f}% of its entries with '{dataset}'" for dataset, likeness in alike.items()
    )
    first = next(iter(alike))
    return InputError(
        f"'{name}': expected data that is new or known; it shares {shares}. Decide, and it will be written down: if "
        f"it is about the same people, continue that dataset (--continues {first}, continues={first!r}); if it is not, "
        "say why (--separate REASON, separate=REASON)"
    )


def _free_id(known: dict[str, Dataset], name: str) -> str:
    number, found = 2, name
    while found in known:
        found, number = f"{name}-{number}", number + 1
    return found
