"""What people really bring: each kind is accepted with a line that says what was done, or refused with what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Data, HeteroData

import hushgraph as hg
from hushgraph.errors import HushgraphError, InputError
from hushgraph.importing.findings import Code
from importing.tables_of_people import CITIES, ROLES, people
from small_graphs import random_graph

BUDGET = (4.0, 1e-6)


def frames(**changed: Any) -> dict[str, Any]:
    """Arguments of `from_pandas` that are right, with some of them changed."""
    nodes, edges = people()
    given: dict[str, Any] = {
        "nodes": pd.DataFrame(nodes),
        "edges": pd.DataFrame(edges),
        "id": "person",
        "label": "role",
    }
    given |= {"classes": ROLES, "features": {"age": (0, 120), "city": CITIES}, "directed": False}
    return given | changed


def nodes_with(column: str, values: dict[int, Any]) -> pd.DataFrame:
    found = pd.DataFrame(people()[0])
    found[column] = found[column].astype(object)
    for row, value in values.items():
        found.loc[row, column] = value
    return found


def edges_with(*more: tuple[Any, Any]) -> pd.DataFrame:
    edges = people()[1]
    return pd.DataFrame(
        {"from": edges["from"] + [one for one, _ in more], "to": edges["to"] + [two for _, two in more]}
    )


def table(**changed: Any) -> hg.Graph:
    return hg.Graph.from_pandas(**frames(**changed))


def data(**changed: Any) -> Data:
    graph = random_graph(1)
    for name, value in changed.items():
        graph[name] = value
    return graph


def cut(graph: Data, name: str) -> Data:
    del graph[name]
    return graph


def hetero(*relations: str) -> HeteroData:
    graph, found = random_graph(1), HeteroData()
    for name in ("x", "y", "train_mask"):
        found["person"][name] = graph[name]
    for relation in relations:
        found["person", relation, "person"].edge_index = graph.edge_index
    return found


def network(kind: type = networkx.Graph) -> Any:
    graph = kind()
    for number in range(30):
        graph.add_node(f"n{number}", label="ab"[number % 2])
    graph.add_edges_from((f"n{number}", f"n{(number + 1) % 30}") for number in range(30))
    return graph


LABELS = random_graph(1).y

ACCEPTED: dict[str, tuple[Callable[[], Any], Code | None]] = {
    "pandas": (table, Code.NO_SPLIT),
    "polars": (lambda: table(nodes=pl.DataFrame(people()[0]), edges=pl.DataFrame(people()[1])), Code.BOTH_DIRECTIONS),
    "dicts of columns": (lambda: table(nodes=people()[0], edges=people()[1]), Code.BOTH_DIRECTIONS),
    "a missing number": (lambda: table(nodes=nodes_with("age", {3: None})), Code.MISSING_VALUES),
    "a number that is a word for none": (lambda: table(nodes=nodes_with("age", {0: "n/a"}).astype({"age": str})), None),
    "an infinite number in a range": (lambda: table(nodes=nodes_with("age", {3: math.inf})), Code.CLIPPED),
    "a number out of range": (lambda: table(nodes=nodes_with("age", {3: 500})), Code.CLIPPED),
    "a word that was not declared": (lambda: table(nodes=nodes_with("city", {3: "Bonn"})), Code.OTHER_CATEGORY),
    "words in boxes": (lambda: table(features={"city": 16}, ignore=["age"]), Code.IGNORED_COLUMNS),
    "a categorical column": (lambda: table(nodes=pd.DataFrame(people()[0]).astype({"city": "category"})), None),
    "booleans": (
        lambda: table(nodes=pd.DataFrame(people()[0]).assign(age=True), features={"age": None}, ignore="*"),
        None,
    ),
    "missing labels": (lambda: table(nodes=nodes_with("role", {1: None, 2: ""})), Code.MISSING_LABELS),
    "a class nobody has": (lambda: table(classes=[*ROLES, "guest"]), Code.EMPTY_CLASSES),
    "undeclared classes": (lambda: table(classes=None), Code.FOUND_CLASSES),
    "numbers from 1 as labels": (
        lambda: table(nodes=pd.DataFrame(people()[0]).assign(role=[1, 2, 3] * 20), classes=[1, 2, 3]),
        None,
    ),
    "labels as floats": (
        lambda: table(nodes=pd.DataFrame(people()[0]).assign(role=[1.0, 2.0, math.nan] * 20), classes=[1, 2]),
        Code.MISSING_LABELS,
    ),
    "a self edge": (lambda: table(edges=edges_with(("p001", "p001"))), Code.SELF_LOOPS),
    "the same edge in both directions": (
        lambda: table(edges=edges_with(*[pair[::-1] for pair in zip(*people()[1].values())][:2])),
        Code.REPEATED_EDGES,
    ),
    "an edge with one end": (lambda: table(edges=edges_with(("p001", None))), Code.MISSING_ENDS),
    "unknown nodes that may go": (
        lambda: table(edges=edges_with(("p001", "zz")), drop_unknown=True),
        Code.UNKNOWN_ENDS,
    ),
    "isolated nodes": (table, Code.ISOLATED),
    "no edges at all": (lambda: table(edges=pd.DataFrame({"from": [], "to": []})), Code.ISOLATED),
    "weights of edges": (lambda: table(edges=edges_with().assign(weight=0.5)), Code.EXTRA_COLUMNS),
    "no features": (lambda: table(features=None, ignore="*"), Code.NO_FEATURES),
    "ids with spaces around": (
        lambda: table(nodes=pd.DataFrame(people()[0]).assign(person=[f" {name} " for name in people()[0]["person"]])),
        None,
    ),
    "a NetworkX graph": (lambda: hg.Graph.from_networkx(network(), classes=["a", "b"]), Code.NO_FEATURES),
    "a NetworkX multigraph": (lambda: hg.Graph.from_networkx(network(networkx.MultiGraph), classes=["a", "b"]), None),
    "a sparse matrix": (
        lambda: hg.Graph.from_scipy(sparse.eye(9, k=1) + sparse.eye(9, k=-1), y=[0, 1, 2] * 3, classes=["x", "y", "z"]),
        None,
    ),
    "pairs": (
        lambda: hg.Graph.from_edges([(0, 1), (1, 2)], num_nodes=4, y=[0, 1, 0, 1], directed=False),
        Code.BOTH_DIRECTIONS,
    ),
    "words as labels of pairs": (
        lambda: hg.Graph.from_edges([(0, 1)], num_nodes=3, y=["b", "a", "b"], classes=["a", "b"], directed=False),
        None,
    ),
    "a relation of a HeteroData": (lambda: hg.Graph.from_pyg(hetero("knows", "likes"), relation="likes"), None),
    "the number of classes": (lambda: hg.Graph.from_pyg(hetero("knows", "likes"), relation="likes", classes=3), None),
    "edge attributes of a Data": (lambda: hg.Graph.from_pyg(data(edge_attr=torch.ones(5))), Code.EXTRA_COLUMNS),
    "numpy features": (lambda: data(x=random_graph(1).x.numpy().astype(np.float64)), None),
    "labels in a column": (lambda: data(y=LABELS[:, None]), None),
    "labels from 1 that are declared": (lambda: data(y=LABELS + 1, class_names=[1, 2, 3]), None),
    "repeated edges of a Data": (lambda: data(edge_index=random_graph(1).edge_index.repeat(1, 2)), None),
    "the name of a dataset": (lambda: "digits", None),
}

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing about direction": (lambda: table(directed=None), r"--undirected \(directed=False\)"),
    "a column without a use": (lambda: table(features={"age": (0, 120)}), r"column 'city'; got none.*--ignore city"),
    "the number of classes where labels are words": (
        lambda: table(classes=3),
        r"classes: expected a list of their names, .*; got 3",
    ),
    "one word for all classes": (
        lambda: table(classes="a,b"),
        r"classes: expected a list of their names, .*; got 'a,b'",
    ),
    "no classes at all": (
        lambda: hg.Graph.from_pyg(hetero("knows", "likes"), relation="likes", classes=0),
        r"classes: expected their number, or a list of their names.*; got 0",
    ),
    "words where numbers were declared": (
        lambda: table(features={"city": (0, 1)}, ignore="*"),
        r"expected numbers in column 'city'; got words",
    ),
    "a range the wrong way": (lambda: table(features={"age": (9, 1)}, ignore="*"), r"LOW below HIGH"),
    "a rule nobody knows": (
        lambda: table(features={"age": "mean"}, ignore="*"),
        r"features\['age'\]: expected \(low, high\)",
    ),
    "a column that is not there": (lambda: table(id="who"), r"expected the column 'who' \(id\); got columns person"),
    "repeated ids": (
        lambda: table(nodes=nodes_with("person", {3: "p001"})),
        r"every id in 'person' once; got 1 repeated",
    ),
    "missing ids": (
        lambda: table(nodes=nodes_with("person", {3: None})),
        r"an id for every node in 'person'; got 1 without",
    ),
    "broken numbers as ids": (
        lambda: table(nodes=pd.DataFrame(people()[0]).assign(person=np.arange(60) + 0.5)),
        r"ids that are whole numbers or words",
    ),
    "ids that only differ in what is not stored": (
        lambda: table(nodes=nodes_with("person", {3: "p001\0"})),
        r"ids of at most 1,024 bytes without the character NUL.*got 1 others",
    ),
    "an id of a megabyte": (lambda: table(nodes=nodes_with("person", {3: "x" * 1_000_000})), r"at most 1,024 bytes"),
    "ids past 64 bits": (
        lambda: table(nodes=pd.DataFrame(people()[0]).assign(person=np.arange(60, dtype=np.uint64) + np.uint64(2**63))),
        r"ids that are whole numbers or words.*uint64",
    ),
    "labels that are lists": (
        lambda: table(nodes=pd.DataFrame(people()[0]).assign(role=[[1]] * 60)),
        r"expected words in column 'role'; got values of type list",
    ),
    "an unknown node": (lambda: table(edges=edges_with(("p001", "zz"))), r"got 'zz' in 'to'.*--drop-unknown"),
    "a label that was not declared": (
        lambda: table(classes=["student", "staff"]),
        r"expected labels among the declared classes.*'teacher'",
    ),
    "a class declared twice": (lambda: table(classes=["student", "student"]), r"classes: expected different names"),
    "a split of other words": (
        lambda: table(split="city", features={"age": (0, 120)}),
        r"expected train, val, test or nothing in column 'city'",
    ),
    "one column of edges": (
        lambda: table(edges=pd.DataFrame({"from": ["p001"]})),
        r"expected two columns, the ends of an edge; got 1",
    ),
    "an empty table of nodes": (lambda: table(nodes=pd.DataFrame(people()[0]).head(0)), r"expected at least one node"),
    "a list in a column": (
        lambda: table(nodes=pd.DataFrame(people()[0]).assign(age=[[1, 2]] * 60)),
        r"expected numbers in column 'age'; got values of type list",
    ),
    "a frame instead of a graph": (lambda: pd.DataFrame(people()[0]), r"Do: hushgraph.Graph.from_pandas\(nodes, edges"),
    "two frames instead of a graph": (lambda: (1, 2), r"Do: hushgraph.Graph.from_pandas"),
    "a matrix instead of a graph": (lambda: sparse.eye(4), r"Do: hushgraph.Graph.from_scipy"),
    "a weighted matrix": (lambda: hg.Graph.from_scipy(sparse.eye(4, k=1) * 0.5), r"expected entries 0 and 1"),
    "a matrix that is not square": (
        lambda: hg.Graph.from_scipy(sparse.csr_matrix((3, 4))),
        r"expected a square sparse matrix",
    ),
    "pairs of words": (
        lambda: hg.Graph.from_edges([("a", "b")], num_nodes=2, directed=False),
        r"pairs of node numbers.*from_pandas",
    ),
    "a HeteroData with two relations": (
        lambda: hetero("knows", "likes"),
        r"which kind of edge between nodes of one kind",
    ),
    "nothing": (lambda: None, r"expected a graph .*got NoneType"),
    "NaN in features": (lambda: data(x=torch.full((40, 5), math.nan)), r"features: expected finite numbers"),
    "one feature too few dimensions": (lambda: data(x=torch.ones(40)), r"features: expected a matrix"),
    "labels too short": (lambda: data(y=LABELS[:-1]), r"labels: expected one per node, \[40\]"),
    "labels as floats in a tensor": (lambda: data(y=LABELS.float()), r"labels: expected integers"),
    "labels from 1, undeclared": (
        lambda: cut(data(y=LABELS + 1), "class_names"),
        r"got no node of class 0\. .*\[1, 2, 3\]",
    ),
    "labels with a gap, undeclared": (
        lambda: cut(data(y=LABELS * 2), "class_names"),
        r"every class from 0 to 4 to occur.*got no node of class 1\.",
    ),
    "labels beyond the declared": (lambda: data(y=LABELS + 1), r"expected classes 0 to 2"),
    "words as labels, undeclared": (
        lambda: cut(data(y=np.array(["a", "b"] * 20)), "class_names"),
        r"Declare data.class_names",
    ),
    "edges in the wrong shape": (
        lambda: data(edge_index=random_graph(1).edge_index.T),
        r"edge_index: expected shape \[2, E\]",
    ),
    "edges of floats": (lambda: data(edge_index=random_graph(1).edge_index.float()), r"edge_index: expected integers"),
    "a node that does not exist": (
        lambda: data(edge_index=torch.tensor([[0], [99]])),
        r"node numbers from 0 to 39; got 0 to 99",
    ),
    "edge weights": (lambda: data(edge_weight=torch.ones(3)), r"no sensitivity is known for weighted edges"),
    "masks that overlap": (lambda: data(val_mask=random_graph(1).train_mask), r"masks to be disjoint"),
    "a mask of numbers": (lambda: data(train_mask=torch.arange(40)), r"expected a boolean train_mask"),
    "nobody to train on": (lambda: data(train_mask=torch.zeros(40, dtype=torch.bool)), r"at least one train node"),
    "no split": (lambda: cut(data(), "train_mask"), r"hushgraph.datasets.random_split"),
    "a name nobody knows": (lambda: "digit", r"did you mean 'digits'"),
    "a file that is not there": (lambda: "missing.graphml", r"there is no such file"),
}


@pytest.mark.parametrize("kind", ACCEPTED)
def test_accepted_with_a_line(kind: str) -> None:
    make, code = ACCEPTED[kind]
    graph = make()
    if code is not None:
        said = {one.code: str(one) for one in graph.findings}
        assert said.get(code), sorted(said)
    model = hg.MLP(epochs=1).fit(graph, "undirected-edge", BUDGET, seed=0)
    assert len(model.predict()) == model.metadata.num_nodes


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_with_what_to_do(kind: str) -> None:
    make, told = REFUSED[kind]
    with pytest.raises(HushgraphError, match=f"(?s){told}") as refused:
        hg.MLP(epochs=1).fit(make(), "undirected-edge", BUDGET, seed=0)
    assert "expected" in str(refused.value) or "Declare" in str(refused.value)


def test_there_are_many() -> None:
    assert len(ACCEPTED) + len(REFUSED) >= 40


@pytest.mark.parametrize(
    ("unit", "budget", "told"),
    [
        ("edges", 4.0, "undirected-edge"),
        (7, 4.0, "unit: expected a unit"),
        ("undirected-edge", "4", "budget: expected a Budget"),
        ("undirected-edge", None, "budget: expected a Budget"),
        ("undirected-edge", -1.0, "epsilon"),
        ("undirected-edge", (4.0, 2.0), "delta"),
    ],
)
def test_units_and_budgets_that_make_no_sense(unit: Any, budget: Any, told: str) -> None:
    with pytest.raises(HushgraphError, match=told):
        hg.MLP(epochs=1).fit(data(), unit, budget, seed=0)


def test_a_class_a_name_a_pair_and_a_folder_do(tmp_path: Path) -> None:
    model = hg.MLP(epochs=1).fit(data(), hg.units.UndirectedEdge, [4.0, 1e-3], ledger=str(tmp_path / "book"), seed=0)
    assert model.ledger is not None
    assert model.ledger.folder == tmp_path / "book"


def test_undeclared_classes_are_refused_where_labels_are_private() -> None:
    with pytest.raises(HushgraphError, match="expected their names or number to be declared"):
        hg.DPMLP(epochs=1, batch_size=8).fit(table(classes=None), "node", BUDGET, seed=0)


def test_classes_that_were_read_off_labels_stay_undeclared() -> None:
    people = {"id": [1, 2, 3, 4], "label": ["a", "b", "a", "secret"]}
    graph = hg.Graph.from_frames(people, {"source": [1, 2], "target": [2, 3]}, label="label", directed=False)
    again = hg.Graph.from_pyg(graph)
    assert graph.classes_declared is again.classes_declared is False
    with pytest.raises(InputError, match="classes: expected their names or number to be declared"):
        hg.DPMLP(epochs=1).fit(again, "node", (4.0, 1e-2))
    assert hg.Graph.from_pyg(graph, classes=["a", "b", "secret"]).classes_declared


def test_the_number_of_nodes_is_not_read_off_edges() -> None:
    with pytest.raises(InputError, match="got edges alone"):
        hg.Graph.from_pyg(Data(edge_index=torch.tensor([[0, 1], [1, 9]])))
