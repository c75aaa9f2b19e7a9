from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch

import hushgraph as hg
from hushgraph.datasets import load, random_split
from hushgraph.datasets.stored import read_facts
from hushgraph.errors import InputError
from hushgraph.graph import disk_writing, sums
from hushgraph.graph.checks import check_graph
from hushgraph.importing import importer
from hushgraph.importing.edges import EdgeColumns
from hushgraph.importing.findings import Code, Finding
from hushgraph.importing.importer import Imported, import_files
from hushgraph.importing.nodes import NodeColumns
from importing.tables_of_people import CITIES, ROLES, people, write_csv, write_people

FEATURES = {"age": (0, 120), "city": CITIES}
COLUMNS = NodeColumns("person", "role", None, FEATURES, ROLES)
MUTUAL = EdgeColumns(directed=False)


def counts(done: Imported) -> dict[Code, int]:
    return {one.code: one.count for one in done.findings}


def test_a_graph_comes_back_as_it_was_written(tmp_path: Path) -> None:
    nodes, edges = people()
    files = write_people(tmp_path)
    done = import_files(tmp_path / "my.graph", files[1], files[0], COLUMNS, MUTUAL)
    graph = load(tmp_path / "my.graph")
    assert graph.user_ids.tolist() == nodes["person"]
    assert graph.name == "my"
    assert graph.x[:, 0].tolist() == pytest.approx([age / 120 for age in nodes["age"]])
    assert graph.x[:, 1:].argmax(1).tolist() == [CITIES.index(city) for city in nodes["city"]]
    assert [ROLES[number] for number in graph.y] == nodes["role"]
    numbers = {name: number for number, name in enumerate(nodes["person"])}
    expected = {(numbers[one], numbers[other]) for one, other in zip(edges["from"], edges["to"])}
    expected |= {(other, one) for one, other in expected}
    assert set(map(tuple, graph.edge_index.T.tolist())) == expected
    assert graph.edge_index.shape[1] == len(expected) == done.num_edges
    assert counts(done)[Code.ISOLATED] >= 2
    assert (tmp_path / "my.graph").stat().st_mode & 0o077 == 0


def _parquet(path: Path, columns: dict) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=7)
    return path


def _feather(path: Path, columns: dict) -> Path:
    pyarrow.feather.write_feather(pa.table(columns), str(path), chunksize=9)
    return path


@pytest.mark.parametrize(
    ("ending", "write"),
    [
        ("tsv", lambda path, columns: write_csv(path, columns, separator="\t")),
        ("csv", lambda path, columns: write_csv(path, columns, separator=";")),
        ("parquet", _parquet),
        ("arrow", _feather),
    ],
)
def test_every_kind_of_table_gives_the_same_graph(ending: str, write: object, tmp_path: Path) -> None:
    nodes, edges = people()
    plain = write_people(tmp_path)
    import_files(tmp_path / "one", plain[1], plain[0], COLUMNS, MUTUAL)
    places = [write(tmp_path / f"{name}-other.{ending}", columns) for name, columns in (("n", nodes), ("e", edges))]
    import_files(tmp_path / "two", places[1], places[0], COLUMNS, MUTUAL)
    one, two = load(tmp_path / "one"), load(tmp_path / "two")
    for name in ("x", "y", "edge_index"):
        assert torch.equal(one[name], two[name]), name
    assert one.user_ids.tolist() == two.user_ids.tolist()


def test_batches_do_not_change_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, edges = people(200)
    files = _parquet(tmp_path / "n.parquet", nodes), _parquet(tmp_path / "e.parquet", edges)
    import_files(tmp_path / "one", files[1], files[0], COLUMNS, MUTUAL)
    monkeypatch.setattr("hushgraph.importing.tables.ROWS_AT_ONCE", 5)
    monkeypatch.setattr("hushgraph.importing.importer.MEMORY", 1)
    import_files(tmp_path / "two", files[1], files[0], COLUMNS, MUTUAL)
    one, two = load(tmp_path / "one"), load(tmp_path / "two")
    assert all(torch.equal(one[name], two[name]) for name in ("x", "y", "edge_index"))


def test_what_was_done_is_counted(tmp_path: Path) -> None:
    nodes = {
        "id": ["a", "b", "c", "d"],
        "age": ["200", "", "60", "-5"],
        "city": ["Rome", "Bonn", "", "Oslo"],
        "label": ["x", "", "y", "x"],
        "part": ["train", "valid", "TEST", ""],
    }
    edges = {"u": ["a", "a", "b", "c", "a", ""], "v": ["b", "b", "a", "c", "zz", "b"]}
    files = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", edges)
    columns = NodeColumns("id", "label", "part", {"age": (0, 120), "city": CITIES}, ["x", "y", "z"])
    done = import_files(tmp_path / "g", files[1], files[0], columns, EdgeColumns(directed=False, drop_unknown=True))
    assert counts(done) | {Code.HEADER: 0} == {
        Code.HEADER: 0,
        Code.BOTH_DIRECTIONS: 0,
        Code.MISSING_ENDS: 1,
        Code.UNKNOWN_ENDS: 1,
        Code.SELF_LOOPS: 1,
        Code.REPEATED_EDGES: 2,
        Code.ISOLATED: 2,
        Code.MISSING_VALUES: 1,
        Code.CLIPPED: 2,
        Code.OTHER_CATEGORY: 1,
        Code.MISSING_LABELS: 1,
        Code.EMPTY_CLASSES: 1,
        Code.IN_NO_SPLIT: 1,
    }
    graph = load(tmp_path / "g")
    assert graph.x[:, 0].tolist() == [1.0, 0.5, 0.5, 0.0]
    assert graph.x[1:3, 1:].abs().sum() == 0
    assert graph.y.tolist() == [0, -1, 1, 0]
    assert [graph.train_mask.tolist(), graph.val_mask.tolist()] == [
        [True, False, False, False],
        [False, True, False, False],
    ]
    stored = [Finding.from_dict(one) for one in read_facts(tmp_path / "g").findings]
    assert stored == done.findings
    assert all(str(one) for one in stored)


def test_a_rule_looks_at_one_value_alone(tmp_path: Path) -> None:
    """Another person's value changes nothing in anybody else's row: nothing is read off the column."""
    rows = []
    for last in (30, 119):
        nodes = {"id": [1, 2, 3], "age": [20, 40, last], "job": ["cook", "clerk", "cook" if last == 30 else "pilot"]}
        files = write_csv(tmp_path / f"n{last}.csv", nodes), write_csv(tmp_path / f"e{last}.csv", {"u": [1], "v": [2]})
        rules = {"age": (0, 120), "job": 8}
        import_files(tmp_path / f"g{last}", files[1], files[0], NodeColumns("id", None, None, rules), MUTUAL)
        rows.append(load(tmp_path / f"g{last}").x)
    assert torch.equal(rows[0][:2], rows[1][:2])
    assert not torch.equal(rows[0][2], rows[1][2])


@pytest.mark.parametrize("header", [True, False])
def test_a_first_line_that_names_two_nodes_is_an_edge(header: bool, tmp_path: Path) -> None:
    nodes, edges = people()
    files = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.txt", edges, header=header, separator=" ")
    (tmp_path / "e2.txt").write_text("# a comment\n% another\n" + files[1].read_text())
    done = import_files(tmp_path / "g", tmp_path / "e2.txt", files[0], COLUMNS, MUTUAL)
    assert (Code.NO_HEADER in counts(done)) is not header
    assert done.num_edges == 2 * len(edges["from"])


def test_undeclared_classes_are_those_that_occur_and_not_declared(tmp_path: Path) -> None:
    nodes = {"id": [10, 7, 99], "label": ["3", "1", "10"]}
    files = write_csv(tmp_path / "n.csv", nodes), write_csv(tmp_path / "e.csv", {"u": [10], "v": [99]})
    import_files(tmp_path / "g", files[1], files[0], NodeColumns("id", "label"), MUTUAL)
    graph = load(tmp_path / "g")
    assert (graph.class_names, graph.classes_declared, graph.y.tolist()) == (["1", "3", "10"], False, [1, 0, 2])
    assert graph.user_ids.tolist() == [10, 7, 99]
    assert graph.edge_index.tolist() == [[2, 0], [0, 2]]


def test_leading_zeros_are_part_of_an_id(tmp_path: Path) -> None:
    files = (
        write_csv(tmp_path / "n.csv", {"id": ["007", "7"]}),
        write_csv(tmp_path / "e.csv", {"u": ["007"], "v": ["7"]}),
    )
    import_files(tmp_path / "g", files[1], files[0], NodeColumns("id"), EdgeColumns(directed=True))
    graph = load(tmp_path / "g")
    assert (graph.user_ids.tolist(), graph.edge_index.tolist()) == (["007", "7"], [[0], [1]])


def test_ids_far_apart_are_found(tmp_path: Path) -> None:
    ids = np.array([5, 10**15, 17, -3])
    edges = {"u": ids[[0, 1]], "v": ids[[1, 3]]}
    files = _parquet(tmp_path / "n.parquet", {"id": ids}), _parquet(tmp_path / "e.parquet", edges)
    import_files(tmp_path / "g", files[1], files[0], NodeColumns("id"), EdgeColumns(directed=True))
    assert load(tmp_path / "g").edge_index.tolist() == [[0, 1], [1, 3]]


def test_edges_that_memory_is_too_little_for_stay_on_the_disk(tmp_path: Path) -> None:
    from hushgraph.graph.checks import check_graph

    files = write_people(tmp_path)
    import_files(tmp_path / "g", files[1], files[0], COLUMNS, MUTUAL)
    expected = check_graph(load(tmp_path / "g")).edges.edge_index()
    graph = load(tmp_path / "g", memory="1KiB")
    assert graph.get("edge_index") is None
    assert torch.equal(check_graph(graph).edges.edge_index(), expected)


def test_lists_are_used_as_they_are_stored(tmp_path: Path) -> None:
    from hushgraph.graph.edges import MemoryEdges

    files = write_people(tmp_path)
    import_files(tmp_path / "g", files[1], files[0], COLUMNS, MUTUAL)
    graph, expected = load(tmp_path / "g", as_lists=True), load(tmp_path / "g")
    assert isinstance(graph.edges, MemoryEdges)
    assert graph.get("edge_index") is None
    assert torch.equal(graph.edges.edge_index(), expected.edge_index)
    released = [
        hg.Chorus(epochs=2).fit(one, "undirected-edge", (4.0, 1e-4), seed=3, ledger=hg.Ledger()).released
        for one in (str(tmp_path / "g"), expected)
    ]
    assert all(
        torch.equal(a, b) for name in released[0] for a, b in zip(released[0][name], released[1][name], strict=True)
    )


def test_nothing_is_left_after_a_refusal(tmp_path: Path) -> None:
    files = write_people(tmp_path)
    with pytest.raises(InputError, match="which is no node's id"):
        import_files(
            tmp_path / "g",
            write_csv(tmp_path / "bad.csv", {"from": ["p001"], "to": ["nobody"]}),
            files[0],
            COLUMNS,
            MUTUAL,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "edges.csv", "nodes.csv"]


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    files = write_people(tmp_path)
    import_files(tmp_path / "g", files[1], files[0], COLUMNS, MUTUAL)
    (tmp_path / "g" / "labels.bin").write_bytes(b"1234")
    with pytest.raises(InputError, match="import the graph again"):
        load(tmp_path / "g")


@pytest.mark.parametrize("change", [{"num_nodes": "many"}, {"feature_names": 7}, {"more": 1}, {"id_type": "O"}])
def test_a_changed_header_is_refused(change: dict, tmp_path: Path) -> None:
    files = write_people(tmp_path)
    import_files(tmp_path / "g", files[1], files[0], COLUMNS, MUTUAL)
    header = tmp_path / "g" / "graph.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | change))
    with pytest.raises(InputError, match=r"(?i)import the graph again"):
        load(tmp_path / "g")


def test_raw_pairs_of_numpy(tmp_path: Path) -> None:
    pairs = np.random.default_rng(0).integers(0, 50, (400, 2), dtype=np.int32)
    np.save(tmp_path / "pairs.npy", pairs)
    pyarrow.parquet.write_table(pa.table({"source": pairs[:, 0], "target": pairs[:, 1]}), tmp_path / "pairs.parquet")
    graphs = []
    for kind in ("npy", "parquet"):
        import_files(tmp_path / kind, tmp_path / f"pairs.{kind}", None, None, MUTUAL, num_nodes=50)
        graphs.append(load(tmp_path / kind))
    assert torch.equal(graphs[0].edge_index, graphs[1].edge_index)


@pytest.mark.parametrize("kind", ["i2", "u2", "i4", "u4", "i8", "u8", ">i4"])
@pytest.mark.parametrize("spread", ["counted", "close", "far"])
def test_raw_pairs_of_any_whole_numbers_are_the_same_edges(tmp_path: Path, kind: str, spread: str) -> None:
    """Ids that are the numbers of nodes, that a table holds, and that are too far apart for one; one id is unknown."""
    rng = np.random.default_rng(0)
    ids = {"counted": np.arange(40), "close": rng.permutation(60)[:40], "far": 700 * rng.permutation(40) + 5}[spread]
    ends = rng.integers(0, 40, (300, 2))
    pairs = ids[ends]
    pairs[7, 1] = 32_000
    np.save(tmp_path / "pairs.npy", pairs.astype(kind))
    nodes = {"id": ids, "label": ["a", "b"] * 20}
    pyarrow.parquet.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    columns = NodeColumns("id", "label", classes=["a", "b"])
    files = (tmp_path / "pairs.npy", tmp_path / "nodes.parquet")
    with pytest.raises(InputError, match="got '32000' in 'target'"):
        import_files(tmp_path / "refused", *files, columns, MUTUAL)
    done = import_files(tmp_path / "g", *files, columns, EdgeColumns(directed=True, drop_unknown=True))
    kept = np.delete(ends, 7, axis=0)
    expected = {(int(one), int(other)) for one, other in kept if one != other}
    assert set(zip(*load(tmp_path / "g").edge_index.tolist())) == expected
    assert Code.UNKNOWN_ENDS in [one.code for one in done.findings]


@pytest.mark.parametrize("pairs", [np.zeros((3, 3), int), np.zeros((4, 2)), np.zeros(6, int), np.zeros((2, 5), int).T])
def test_arrays_that_are_no_pairs_are_refused(tmp_path: Path, pairs: np.ndarray) -> None:
    np.save(tmp_path / "pairs.npy", pairs)
    with pytest.raises(InputError, match="pairs of whole numbers"):
        import_files(tmp_path / "g", tmp_path / "pairs.npy", None, None, MUTUAL, num_nodes=5)


def test_a_short_file_of_pairs_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "pairs.npy", np.zeros((9, 2), np.int64))
    whole = (tmp_path / "pairs.npy").read_bytes()
    (tmp_path / "pairs.npy").write_bytes(whole[:-16])
    with pytest.raises(InputError, match="ends after 8 of 9"):
        import_files(tmp_path / "g", tmp_path / "pairs.npy", None, None, MUTUAL, num_nodes=5)


def test_an_import_that_was_stopped_goes_on_with_the_same_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_people(tmp_path)
    expected = import_files(tmp_path / "one", files[1], files[0], COLUMNS, MUTUAL)
    usual = importer.write_arrays
    monkeypatch.setattr(importer, "write_arrays", _stop)
    with pytest.raises(_Killed):
        import_files(tmp_path / "my.graph", files[1], files[0], COLUMNS, MUTUAL)
    left = list(tmp_path.glob(".my.graph.partial-*"))
    assert len(left) == 1
    monkeypatch.setattr(importer, "write_arrays", usual)
    done = import_files(tmp_path / "my.graph", files[1], files[0], COLUMNS, MUTUAL)
    assert done.findings == expected.findings
    assert not left[0].exists()
    one, two = load(tmp_path / "one"), load(tmp_path / "my.graph")
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.x, two.x)


class _Killed(BaseException):
    """The end of a process."""


def _stop(*_: object) -> None:
    raise _Killed


KINDS = ("follows", "pays")


def _typed(folder: Path) -> tuple[Path, Path, set[tuple[str, str, str]]]:
    nodes = write_people(folder)[0]
    columns = people()[1]
    columns["kind"] = [KINDS[number % 2] for number in range(len(columns["from"]))]
    for one, other, kind in (("p000", "p000", "pays"), (columns["from"][0], columns["to"][0], "pays")):
        for name, value in zip(("from", "to", "kind"), (one, other, kind)):
            columns[name].append(value)
    lines = {line for line in zip(columns["from"], columns["to"], columns["kind"]) if line[0] != line[1]}
    return nodes, write_csv(folder / "typed.csv", columns), lines


def _imported(folder: Path, name: str = "typed.graph", **columns: Any) -> tuple[Imported, set[tuple[str, str, str]]]:
    nodes, edges, lines = _typed(folder)
    ends = EdgeColumns(**{"directed": False, "kind": "kind", "kinds": KINDS, **columns})
    return import_files(folder / name, edges, nodes, COLUMNS, ends), lines


@pytest.mark.parametrize("memory", ["1GiB", "1KiB"], ids=["memory", "disk"])
def test_types_of_edges_come_from_a_column(tmp_path: Path, memory: str) -> None:
    done, lines = _imported(tmp_path)
    assert counts(done)[Code.SELF_LOOPS] == 1
    graph = load(tmp_path / "typed.graph", memory=memory)
    assert ("edges" in graph) == (memory == "1KiB")
    checked = check_graph(random_split(graph))
    assert checked.metadata.edge_types == KINDS
    assert checked.is_symmetric()
    sender, mailbox = checked.edge_types.entries.edge_index().tolist()
    ids, count = graph.user_ids, graph.num_nodes
    found = {(ids[one], ids[box % count], KINDS[box // count]) for one, box in zip(sender, mailbox)}
    assert found == lines | {(other, one, kind) for one, other, kind in lines}


def test_a_typed_graph_gives_the_same_model_from_memory_and_from_the_disk(tmp_path: Path) -> None:
    _imported(tmp_path)
    budget = ({"follows": 4.0, "pays": 1.0}, 1e-5)
    models = [
        hg.GAP(epochs=2).fit(random_split(load(tmp_path / "typed.graph", memory=memory)), None, budget, seed=3)
        for memory in ("1GiB", "1KiB")
    ]
    graph = load(tmp_path / "typed.graph")
    first, second = (model.predict_proba(graph) for model in models)
    assert torch.equal(first, second)
    node = hg.GAP(epochs=2, batch_size=8).fit(
        random_split(load(tmp_path / "typed.graph", memory="1KiB")), hg.units.Node(max_degree=3), (8.0, 1e-4), seed=3
    )
    assert node.plan.metadata.edge_types == KINDS


def test_a_type_that_was_not_declared_is_refused_or_left_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected one of the declared types \(follows\) in 'kind'; got 'pays'"):
        _imported(tmp_path, kinds=("follows",))
    done, lines = _imported(tmp_path, kinds=("follows",), drop_unknown=True)
    assert counts(done)[Code.OTHER_TYPES] == sum(kind == "pays" for *_, kind in lines) + 1
    assert done.num_edges == 2 * sum(kind == "follows" for *_, kind in lines)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"kinds": ()}, "got one without the other"),
        ({"kind": None}, "got one without the other"),
        ({"kinds": ("a", "a")}, "distinct words"),
        ({"kind": "sort"}, "sort"),
    ],
)
def test_types_that_are_not_declared_in_full_are_refused(tmp_path: Path, columns: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        _imported(tmp_path, **columns)


def test_a_typed_graph_is_not_spread_over_workers(tmp_path: Path) -> None:
    _imported(tmp_path)
    with pytest.raises(InputError, match="expected a graph whose edges have no types, for workers"):
        load(tmp_path / "typed.graph", workers=2)


def test_a_header_from_before_there_were_types_has_its_old_checksum(tmp_path: Path) -> None:
    files = write_people(tmp_path)
    import_files(tmp_path / "my.graph", files[1], files[0], COLUMNS, MUTUAL)
    path = tmp_path / "my.graph" / "graph.json"
    header = json.loads(path.read_text())
    assert header.pop("edge_types") == []
    path.write_text(json.dumps(header))
    assert read_facts(tmp_path / "my.graph").edge_types == []


def test_types_of_a_changed_folder_are_refused(tmp_path: Path) -> None:
    _imported(tmp_path)
    path = tmp_path / "typed.graph" / "types" / "sources.bin"
    values = bytearray(path.read_bytes())
    values[0] ^= 1
    path.write_bytes(values)
    with pytest.raises(InputError):
        load(tmp_path / "typed.graph")


def test_one_is_told_as_one_and_many_as_many() -> None:
    assert str(Finding(Code.REPEATED_EDGES, 1)) == "1 repeated edge was kept once"
    assert str(Finding(Code.REPEATED_EDGES, 2)) == "2 repeated edges were kept once"


@pytest.mark.parametrize(("ending", "lines"), [("parquet", True), ("csv", False)])
def test_how_many_edges_there_are_is_told_where_the_file_says_so(
    ending: str, lines: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(sums, "LEAST_COMPILED", 0)
    monkeypatch.setattr(disk_writing, "LEAST_COMPILED", 0)
    nodes, edges = write_people(tmp_path)
    table = people()[1]
    if ending == "parquet":
        edges = _parquet(tmp_path / "edges.parquet", table)
    seen: list[tuple[str, int, int]] = []
    import_files(tmp_path / "g", edges, nodes, COLUMNS, MUTUAL, progress=lambda *one: seen.append(one))
    last = [one for one in seen if one[0] == "edges read"][-1]
    assert last[1:] == (2 * len(table["from"]), 2 * len(table["from"]) if lines else 0)


def test_what_is_left_of_an_import_is_not_taken_up_by_one_that_makes_other_tables_of_the_same_files(
    tmp_path: Path,
) -> None:
    one, other = tmp_path / "a.csv", tmp_path / "b.csv"
    for path in (one, other):
        path.write_text("source,target\n0,1\n")
    names = {
        importer._sources(tables) for tables in ([[one, other], [], []], [[one], [other], []], [[one], [], [other]])
    }
    assert len(names) == 3
