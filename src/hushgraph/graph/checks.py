"""The way in: a PyG `Data` is checked, once and completely, before a vault takes it.

Everything wrong is reported together. What is changed on the way (repeated edges kept once, self loops left out) is
written down in `changes`, which are about private data and never leave the machine. Nothing is charged here, because
nothing is released: data is refused only where it is not data of the declared domain (NaN, a class or a node that does
not exist), which no neighbor of a graph that passes is. A node without a label is an empty record and passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.edges import Edges, MemoryEdges, list_problems
from hushgraph.graph.rows import Rows, SparseRows
from hushgraph.graph.targets import NumberRange
from hushgraph.graph.types import EdgeTypes, types_of
from hushgraph.graph.weights import EdgeWeights, weights_of
from hushgraph.privacy.metadata import MOST_CLASSES, Metadata

_ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class CheckedGraph:
    """A graph that passed all checks. It holds private data: hand it to a `Vault`, not to a method.

    `classes_declared` is False where the number of classes had to be read off the labels. `public` are the nodes whose
    records are public knowledge (`data.public_mask`), whatever the unit: no neighboring dataset differs in them.
    `public_edges` were declared to be public knowledge (`data.public_edge_index`); a method may use them as they are,
    and then says so.
    """

    metadata: Metadata
    features: Rows
    labels: Tensor
    edges: Edges
    train: Tensor
    val: Tensor
    test: Tensor
    class_names: tuple[str, ...]
    changes: tuple[str, ...] = ()
    classes_declared: bool = True
    public: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    public_edges: MemoryEdges | None = None
    targets: Tensor | None = None
    """The numbers whose parts the labels are, for evaluation."""
    edge_weights: EdgeWeights | None = None
    edge_types: EdgeTypes | None = None

    def split(self, name: str) -> Tensor:
        """The node numbers of `train`, `val` or `test`."""
        return {"train": self.train, "val": self.val, "test": self.test}[name]

    def labeled(self, name: str) -> Tensor:
        """The nodes of a split that have a label, for code to which labels are public; training needs at least one.

        Where labels are private, a node without one is an empty record: mechanisms take it as it is.
        """
        nodes = self.split(name)
        found = nodes[is_labeled(self.labels)[nodes]]
        if name == "train" and not found.numel():
            raise InputError("labels: expected a train node with a label; got none (-1). Check y and train_mask")
        return found

    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse, of the same type."""
        return self.edges.is_symmetric() if self.edge_types is None else self.edge_types.is_symmetric()

    def largest_degree(self) -> int:
        """The most edges that start, or end, at one node."""
        if self.edge_types is not None:
            return self.edge_types.largest_degree()
        return max(int(self.edges.out_degree().max()), int(self.edges.in_degree().max()))

    def only(self, parts: frozenset[str]) -> CheckedGraph:
        """The graph without what is not among `parts`: no edges, no columns of features, no label."""
        nodes, nothing = self.metadata.num_nodes, torch.empty((2, 0), dtype=torch.int64)
        without: dict[str, Any] = {}
        if "edges" not in parts:
            none = MemoryEdges.from_edge_index(nothing, nodes)
            without |= {"edges": none, "public_edges": None, "edge_weights": None, "edge_types": None}
        if "features" not in parts:
            without["features"] = torch.empty(nodes, 0)
        if "labels" not in parts:
            without |= {"labels": torch.full_like(self.labels, -1), "targets": None}
        return replace(self, **without)


def check_graph(
    data: Any,
    *,
    known_classes: tuple[str, ...] | None = None,
    num_edges: int | None = None,
    needs_edges: bool = True,
) -> CheckedGraph:
    """The graph of a PyG `Data` object, or one InputError that lists everything wrong with it.

    `known_classes` is for inference with a trained model: labels and a split are then not needed. `num_edges` is a
    number of directed edges that is public knowledge; it is never read off the data. A table of records has no edges.
    `data.public_mask` marks records that are public knowledge; they are in no split.
    Edges that are too many for memory are given as `data.edges`, an `Edges` on disk, instead of `data.edge_index`.
    """
    inference = known_classes is not None
    stored: Edges | None = getattr(data, "edges", None)
    needed = ["x", *([] if inference else ["y"]), *(["edge_index"] if needs_edges and stored is None else [])]
    InputError.collect(_kind_problems(data, tuple(needed)))
    changes: list[str] = []
    features, num_nodes = _features(data.x)
    edge_index = data.edge_index if data.edge_index is not None else torch.empty((2, 0), dtype=torch.int64)
    numbers, targets = NumberRange.of(data), _targets(data)
    labels = numbered_labels(data, num_nodes) if numbers is None or targets is None else numbers.classes_of(targets)
    masks = {name: getattr(data, f"{name}_mask", None) for name in ("train", "val", "test", "public")}
    known = getattr(data, "public_edge_index", None)
    class_names, declared = (known_classes, True) if known_classes else _class_names(data, labels, numbers)
    problems = [
        *_feature_problems(features),
        *(_edge_problems(edge_index, num_nodes) if stored is None else _stored_problems(stored, num_nodes)),
        *([] if known is None else [f"public {problem}" for problem in _edge_problems(known, num_nodes)]),
        *_label_problems(labels, num_nodes, len(class_names), declared),
        *_mask_problems(masks, num_nodes, train_needed=not inference),
    ]
    InputError.collect(problems)
    index = {name: _indices(mask) for name, mask in masks.items()}
    public = index.pop("public")
    public_edges = None if known is None else _edges(known, num_nodes, changes)
    edges = _edges(edge_index, num_nodes, changes) if stored is None else stored
    edge_weights = weights_of(data, edge_index)
    edge_types = types_of(data, edge_index, num_nodes)
    metadata = Metadata(
        num_nodes=num_nodes,
        num_train=index["train"].numel(),
        num_val=index["val"].numel(),
        num_test=index["test"].numel(),
        num_features=int(features.shape[1]),
        num_classes=len(class_names),
        num_edges=num_edges,
        num_public_edges=0 if public_edges is None else public_edges.num_edges,
        name=str(getattr(data, "name", None) or "graph"),
        num_public=public.numel(),
        multilabel=labels.dim() == 2,
        target_low=None if numbers is None else numbers.low,
        target_high=None if numbers is None else numbers.high,
        weighted=edge_weights is not None,
        edge_types=() if edge_types is None else edge_types.names,
    )
    return CheckedGraph(
        metadata=metadata,
        features=features,
        labels=labels.long(),
        edges=edges,
        **index,
        class_names=class_names,
        changes=tuple(changes),
        classes_declared=declared,
        public=public,
        public_edges=public_edges,
        targets=None if numbers is None else targets,
        edge_weights=edge_weights,
        edge_types=edge_types,
    )


def is_labeled(labels: Tensor) -> Tensor:
    """Which nodes have a label: a class, or (where a node may have several) a row without -1."""
    return labels >= 0 if labels.dim() == 1 else (labels >= 0).all(dim=1)


def _kind_problems(data: Any, needed: tuple[str, ...]) -> list[str]:
    if type(data).__name__ == "HeteroData":
        return [
            "expected one kind of node and edge; got a HeteroData graph. Choose a relation between nodes of one kind: "
            "hushgraph.Graph.from_pyg(data, relation=...)"
        ]
    missing = [name for name in needed if getattr(data, name, None) is None]
    problems = [f"expected a torch_geometric Data with {name}; got none" for name in missing]
    unbounded = getattr(data, "weight_bound", None) is None or getattr(data, "edges", None) is not None
    for name in ("edge_weight", "edge_attr") if unbounded else ("edge_attr",):
        if getattr(data, name, None) is not None:
            problems.append(
                f"expected an unweighted graph; got {name}: no sensitivity is known for weighted edges without a "
                f"bound. Drop it (data.{name} = None) if the weights do not matter; weights of edges in memory need "
                "their largest value from public knowledge (data.edge_weight and data.weight_bound)"
            )
    return problems


def _features(x: Any) -> tuple[Rows, int]:
    if isinstance(x, np.ndarray) and x.dtype.kind in "biuf":
        x = torch.from_numpy(x.astype(np.float32))
    if isinstance(x, SparseRows):
        return x, x.shape[0]
    if not isinstance(x, Tensor) or x.dim() != 2:
        raise InputError(
            f"features: expected a matrix [nodes, columns]; got {type(x).__name__} {getattr(x, 'shape', '')}"
        )
    if x.layout is torch.strided:
        return x.detach().to(torch.float32), x.shape[0]
    return SparseRows.from_tensor(x.detach().to(torch.float32)), x.shape[0]


def _targets(data: Any) -> Tensor | None:
    """The numbers to predict, where labels are numbers with a fraction; None where they are classes."""
    if data.y is None or (not isinstance(data.y, Tensor) and np.asarray(data.y).dtype.kind != "f"):
        return None
    found = torch.as_tensor(data.y)
    found = found.squeeze(1) if found.dim() == 2 and found.shape[1] == 1 else found
    return found.detach() if found.is_floating_point() and found.dim() == 1 else None


def numbered_labels(data: Any, num_nodes: int) -> Tensor:
    """One class number per node, or 0 and 1 `[nodes, classes]`.

    Words, and numbers where the declared classes are numbers, are looked up among the declared class names.
    """
    if data.y is None:
        return torch.full((num_nodes,), -1)
    names = getattr(data, "class_names", None)
    if not isinstance(data.y, Tensor) and np.asarray(data.y).dtype.kind in "UO":
        return _numbered(np.asarray(data.y), names)
    labels = torch.as_tensor(np.asarray(data.y) if not isinstance(data.y, Tensor) else data.y)
    labels = labels.squeeze(1) if labels.dim() == 2 and labels.shape[1] == 1 else labels
    if names is not None and labels.dim() == 1 and not labels.is_floating_point() and _are_other_numbers(names):
        return _numbered(np.where(labels.numpy() == -1, "", labels.numpy().astype(str)), names)
    return labels


def _are_other_numbers(names: Any) -> bool:
    """Whether classes were declared by whole numbers that are not 0, 1, 2, ...: labels then are these numbers."""
    whole = all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in names)
    return whole and list(names) != list(range(len(names)))


def _numbered(words: NDArray[Any], names: Any) -> Tensor:
    if names is None:
        raise InputError(
            "labels: expected numbers of classes; got words. Declare data.class_names = [...] from public knowledge, "
            "and words are looked up there (None or '': no label)"
        )
    numbers = {str(name): number for number, name in enumerate(names)} | {"": -1, "None": -1}
    distinct, places = np.unique(words.ravel().astype(str), return_inverse=True)
    if not set(distinct.tolist()) <= numbers.keys():
        raise InputError(f"labels: expected words of data.class_names ({', '.join(map(str, names))}); got others")
    return torch.from_numpy(np.array([numbers[str(word)] for word in distinct])[places])


def _feature_problems(features: Rows) -> list[str]:
    values = features.values if isinstance(features, SparseRows) else features
    if values is not None and not all(bool(torch.isfinite(part).all()) for part in values.split(_ROWS_AT_ONCE)):
        return ["features: expected finite numbers; got NaN or infinite entries. Clean or impute them first"]
    return []


def _edge_problems(edge_index: Any, num_nodes: int) -> list[str]:
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.shape[0] != 2:
        return [f"edge_index: expected shape [2, E]; got {getattr(edge_index, 'shape', type(edge_index).__name__)}"]
    if edge_index.dtype not in (torch.int64, torch.int32):
        return [f"edge_index: expected integers; got {edge_index.dtype}"]
    if edge_index.shape[1] == 0:
        return []
    low, high = (int(end) for end in torch.aminmax(edge_index))
    if low < 0 or high >= num_nodes:
        return [f"edge_index: expected node numbers from 0 to {num_nodes - 1}; got {low} to {high}"]
    return []


def _stored_problems(edges: Edges, num_nodes: int) -> list[str]:
    if not hasattr(edges, "edge_blocks"):
        return [f"edges: expected edges on disk (DiskEdges); got {type(edges).__name__}"]
    if edges.num_nodes != num_nodes:
        return [f"edges: expected a graph of {num_nodes} nodes, one per row of features; got {edges.num_nodes}"]
    return list_problems(edges)


def _label_problems(labels: Tensor, num_nodes: int, num_classes: int, declared: bool) -> list[str]:
    if labels.dim() == 2 and len(labels) == num_nodes:
        return _indicator_problems(labels, num_classes)
    if labels.shape != (num_nodes,):
        return [f"labels: expected one per node, [{num_nodes}]; got shape {list(labels.shape)}"]
    if labels.is_floating_point() or labels.dtype is torch.bool:
        return [
            f"labels: expected integers; got {labels.dtype}. Numbers to predict need a range from public knowledge: "
            "data.target_range = (low, high)"
        ]
    low, high = int(labels.min()), int(labels.max())
    if low < -1 or high >= num_classes:
        return [
            f"labels: expected classes 0 to {num_classes - 1} (-1: no label); got {low} to {high}. Labels that are "
            "other numbers are looked up among data.class_names = [1, 2, ...]"
        ]
    present = torch.unique(labels[is_labeled(labels)]).tolist()
    if not declared and len(present) < num_classes:
        empty = next(place for place in range(num_classes) if place not in present[place : place + 1])
        return [
            f"labels: expected every class from 0 to {num_classes - 1} to occur, because classes were not declared; "
            f"got no node of class {empty}. Declare data.num_classes = C, or the numbers that are used, such as "
            "data.class_names = [1, 2, 3] for labels that start at 1"
        ]
    return []


def _indicator_problems(labels: Tensor, num_classes: int) -> list[str]:
    found = []
    if labels.shape[1] != num_classes:
        found.append(f"labels: expected a column for each of the {num_classes} classes; got {labels.shape[1]}")
    if not bool(torch.isin(labels.float(), torch.tensor([-1.0, 0.0, 1.0])).all()):
        found.append("labels: expected 0 and 1 in a matrix of labels (a row of -1: not known); got other numbers")
    elif not bool(is_labeled(labels.float()).eq((labels.float() >= 0).any(dim=1)).all()):
        found.append("labels: expected rows of -1 where labels are not known; got rows that are known in part")
    return found


def _class_names(data: Any, labels: Tensor, numbers: NumberRange | None) -> tuple[tuple[str, ...], bool]:
    """The class names, and whether they (or their number) were declared rather than read off the labels."""
    if numbers is not None:
        return tuple(numbers.names), True
    names = getattr(data, "class_names", None)
    if names is not None:
        return tuple(str(name) for name in names), bool(getattr(data, "classes_declared", True))
    stated = data.to_dict().get("num_classes")
    declared = stated is not None or labels.dim() == 2  # the columns of a matrix are declared by its shape
    if labels.dim() == 2:
        stated = labels.shape[1] if stated is None else stated
    if stated is None:
        stated = int(labels.max()) + 1 if labels.numel() else 0
    if int(stated) > MOST_CLASSES:
        raise InputError(f"labels: expected at most {MOST_CLASSES:,} classes; got {int(stated):,}; number them from 0")
    return tuple(str(i) for i in range(int(stated))), declared


def _mask_problems(masks: dict[str, Any], num_nodes: int, *, train_needed: bool) -> list[str]:
    problems = []
    for name, mask in masks.items():
        if mask is None:
            if name == "train" and train_needed:
                problems.append(
                    "split: expected a train_mask; got none. Make one: data = hushgraph.datasets.random_split(data)"
                )
        elif not isinstance(mask, Tensor) or mask.dtype is not torch.bool or mask.shape != (num_nodes,):
            problems.append(f"split: expected a boolean {name}_mask of shape [{num_nodes}]; got {_kind(mask)}")
    if problems:
        return problems
    if train_needed and not bool(masks["train"].any()):
        return ["split: expected at least one train node; got none"]
    given = [mask for mask in masks.values() if mask is not None]
    if given and bool((torch.stack(given).sum(0) > 1).any()):
        return ["split: expected train, val, test and public masks to be disjoint; some nodes are in two of them"]
    return []


def _kind(value: Any) -> str:
    """What was given instead, without its content."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {list(value.shape)}"
    return f"a {type(value).__name__}"


def _indices(mask: Tensor | None) -> Tensor:
    return torch.empty(0, dtype=torch.int64) if mask is None else mask.nonzero().squeeze(1)


def _edges(edge_index: Tensor, num_nodes: int, changes: list[str]) -> MemoryEdges:
    loops = edge_index[0] == edge_index[1]
    if bool(loops.any()):
        changes.append(f"{int(loops.sum())} self loops were left out")
        edge_index = edge_index[:, ~loops]
    edges = MemoryEdges.from_edge_index(edge_index, num_nodes)
    repeated = edges.count_duplicates()
    if repeated:
        changes.append(f"{repeated} repeated edges were kept once")
    return edges.coalesce()
