"""The kinds of files around own data: folders of graphs, tables and graphs to import, studies and their results."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import yaml
from pyarrow import feather, parquet

from fuzz_alter import json_altered
from fuzz_kinds import Kind
from hushgraph.datasets.stored import read_facts, read_stored
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.quantized import quantize
from hushgraph.importing.edges import EdgeColumns
from hushgraph.importing.importer import import_files, import_whole
from hushgraph.importing.nodes import NodeColumns
from hushgraph.study.results import Results
from hushgraph.study.spec import Study
from hushgraph.study.store import State, Store

ODD_WORDS = (
    "",
    "9" * 400,
    "-1",
    "1e999",
    "nan",
    "\x00",
    "a\x00",
    '"',
    '""',
    "x" * 100_000,
    "=1+1",
    "../../x",
    "\x1b[2J",
    "\udc80",
    "&a;",
    "<![CDATA[",
    "<data key='d0'>",
    ",,,,",
    "\r\n",
    "٣",
    "18446744073709551616",
)


def words_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One word between separators replaced by something odd."""
    text = content.decode("utf-8")
    for _ in range(int(rng.integers(1, 3))):
        at = int(rng.integers(0, len(text)))
        first = max((text.rfind(mark, 0, at) for mark in ",\n<>\"'"), default=-1) + 1
        last = min((found for mark in ",\n<>\"'" if (found := text.find(mark, at)) >= 0), default=len(text))
        text = text[:first] + ODD_WORDS[int(rng.integers(0, len(ODD_WORDS)))] + text[last:]
    return text.encode("utf-8", "surrogatepass")


def table_altered(content: bytes, rng: np.random.Generator, *, feathered: bool = False) -> bytes:
    """One column of a Parquet or Arrow file with odd values or of another type, or left out."""
    table = feather.read_table(io.BytesIO(content)) if feathered else parquet.read_table(io.BytesIO(content))
    at, count = int(rng.integers(0, table.num_columns)), len(table)
    name = table.column_names[at]
    columns: tuple[Any, ...] = (
        pa.array([2**63 + 5] * count, pa.uint64()),
        pa.array([b"\xff\x00"] * count),
        pa.array([{"a": 1}] * count),
        pa.array([[1]] * count),
        pa.nulls(count),
        pa.array([float("nan"), float("inf")] + [0.5] * (count - 2)),
        pa.array(["x" * 50_000] + ["\x00"] * (count - 1)),
        pa.array([True] * count),
        pa.array([10**9] * count, pa.timestamp("s")),
        pa.array(["a"] * count).dictionary_encode(),
    )
    chosen = int(rng.integers(0, len(columns) + 1))
    table = table.drop_columns([name]) if chosen == len(columns) else table.set_column(at, name, columns[chosen])
    file = io.BytesIO()
    feather.write_feather(table, file, "uncompressed") if feathered else parquet.write_table(table, file)
    return file.getvalue()


def yaml_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One value of a study replaced by something odd; sometimes a text that unfolds to very much."""
    if rng.random() < 0.1:
        lines = [f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 10)]
        key = ("settings", "methods", "seeds", "parts", "tables")[int(rng.integers(0, 5))]
        return content + ("\na0: &a0 [1, 1]\n" + "\n".join(lines) + f"\n{key}: *a9\n").encode()
    return json_altered(json.dumps(yaml.safe_load(content)).encode(), rng)


def unsealed(content: bytes, rng: np.random.Generator) -> bytes:
    """A header without its checksums, with one value replaced; numbers of a list replaced by others."""
    if content.startswith(b"{"):
        values = json.loads(content)
        return json_altered(json.dumps(values | {"sha256": None} if "id_type" in values else values).encode(), rng)
    found = np.frombuffer(content[: len(content) // 4 * 4], dtype="<i4").copy()
    found[int(rng.integers(0, len(found)))] = (-1, 0, 1, 2**31 - 1, 41, 39)[int(rng.integers(0, 6))]
    return found.tobytes()


# Tables and graphs to import


def _people() -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    return {
        "person": [f"p{number}" for number in range(40)],
        "role": [("red", "green", "blue")[number % 3] for number in range(40)],
        "age": rng.integers(0, 100, 40).tolist(),
        "part": [("train", "val", "test")[number % 3] for number in range(40)],
    }


def _knows() -> dict[str, list[str]]:
    ends = np.random.default_rng(1).integers(0, 40, (2, 80))
    return {"source": [f"p{one}" for one in ends[0]], "target": [f"p{one}" for one in ends[1]]}


COLUMNS = NodeColumns("person", "role", "part", {"age": (0, 100)}, ("red", "green", "blue"))


def _make_tables(folder: Path, *, ending: str) -> None:
    for name, columns in (("nodes", _people()), ("edges", _knows())):
        path = folder / f"{name}.{ending}"
        if ending == "csv":
            rows = [columns, *zip(*columns.values())]
            path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
        elif ending == "parquet":
            parquet.write_table(pa.table(columns), path)
        else:
            feather.write_feather(pa.table(columns), str(path), "uncompressed")


def _imported(folder: Path, do: Callable[[Path], Any]) -> None:
    out = folder / "out.graph"
    shutil.rmtree(out, ignore_errors=True)
    try:
        do(out)
        _read_folder(out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _import_tables(folder: Path, *, ending: str) -> None:
    edges, nodes = folder / f"edges.{ending}", folder / f"nodes.{ending}"
    _imported(folder, lambda out: import_files(out, edges, nodes, COLUMNS, EdgeColumns(directed=False)))


def _make_graphml(folder: Path) -> None:
    people, knows = _people(), _knows()
    nodes = "".join(
        f'<node id="{one}"><data key="r">{role}</data><data key="a">{age}</data></node>\n'
        for one, role, age in zip(people["person"], people["role"], people["age"])
    )
    edges = "".join(f'<edge source="{one}" target="{other}"/>\n' for one, other in zip(*knows.values()))
    keys = '<key id="r" for="node" attr.name="role" attr.type="string"/>'
    keys += '<key id="a" for="node" attr.name="age" attr.type="int"/>'
    head = '<?xml version="1.0"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    graph = f'<graph edgedefault="undirected">\n{nodes}{edges}</graph>'
    (folder / "graph.graphml").write_text(f"{head}{keys}{graph}</graphml>\n")


def _make_node_link(folder: Path) -> None:
    people, knows = _people(), _knows()
    nodes = [{"id": one, "role": role, "age": age} for one, role, age in zip(*list(people.values())[:3])]
    links = [{"source": one, "target": other} for one, other in zip(*knows.values())]
    (folder / "graph.json").write_text(json.dumps({"directed": False, "nodes": nodes, "links": links}))


def _make_torch(folder: Path) -> None:
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    torch.save({"edge_index": edges, "x": torch.rand(5, 3), "y": torch.tensor([0, 1, 0, 1, 0])}, folder / "graph.pt")


def _import_whole(folder: Path, *, name: str) -> None:
    columns = NodeColumns("id", "role", None, {"age": (0, 100)}, ("red", "green", "blue"))
    plain = NodeColumns("id", classes=("red", "green"))
    _imported(folder, lambda out: import_whole(out, folder / name, plain if name.endswith(".pt") else columns))


# Folders of graphs


def _make_folder(folder: Path) -> None:
    tables = folder.parent / "tables"
    tables.mkdir()
    _make_tables(tables, ending="csv")
    edges = EdgeColumns(directed=False)
    import_files(folder / "my.graph", tables / "edges.csv", tables / "nodes.csv", COLUMNS, edges)


def _read_folder(folder: Path) -> Any:
    facts = read_facts(folder)
    data, edges = read_stored(folder), DiskEdges.open(folder / "edges")
    found = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in data.to_dict().items()}
    rows = quantize(torch.arange(int(data.num_nodes or 0), dtype=torch.float32)[:, None], 100.0)
    return str(facts), found, edges.sum(rows).tolist(), edges.is_symmetric(), edges.out_degree().tolist()


# Studies

STUDY = """\
name: small
privacy: research
datasets:
  - {load: campus, options: {num_nodes: 500}}
methods: [gap, {method: mlp, name: features, set: {epochs: [5, 10]}}]
units: [undirected-edge, {name: node, max_degree: 5}]
epsilons: [1, 4, inf]
deltas: [1e-5]
seeds: 2
splits: [random]
tables:
  - {name: all, rows: method, columns: epsilon}
choose: {by: val_accuracy, over: [epochs]}
"""


def _make_study(folder: Path) -> None:
    (folder / "small.yaml").write_text(STUDY)


def _read_study(folder: Path) -> None:
    study = Study.read(folder / "small.yaml")
    assert [cell.identity() for cell in study.cells]


def _make_store(folder: Path) -> None:
    _make_study(folder)
    store = Store(folder / "small.sqlite")
    for number, cell in enumerate(Study.read(folder / "small.yaml").cells):
        store.begin(cell.key("1"))
        state = (State.DONE, State.REFUSED)[number % 5 == 4]
        store.finish(cell, "1", state, metrics={"test_accuracy": number / 50, "loss": None}, facts={"epsilon": 1.0})
    store._rows.close()


def _read_store(folder: Path) -> Any:
    store = Store(folder / "small.sqlite")
    try:
        results = Results(Study.read(folder / "small.yaml"), store, any_code=True)
        found = [(cell.key(""), one) for cell, one in results.by_cell]
        return found, results.counts, store.timings(), store.begun(), str(results.table())
    finally:
        if store._own is not None:
            store._own[1].close()


def own_kinds() -> list[Kind]:
    """All of them."""
    folder = ("graph.json", "features.bin", "labels.bin", "ids.bin", "parts.bin")
    folder += ("edges/header.json", "edges/offsets.bin", "edges/sources.bin")
    arrow_altered = partial(table_altered, feathered=True)
    tables = [
        Kind(
            f"tables ({ending})",
            partial(_make_tables, ending=ending),
            partial(_import_tables, ending=ending),
            altered,
            whole=False,
        )
        for ending, altered in (("csv", words_altered), ("parquet", table_altered), ("arrow", arrow_altered))
    ]
    wholes = [
        Kind(name, make, partial(_import_whole, name=name), altered, whole=False)
        for name, make, altered in (
            ("graph.graphml", _make_graphml, words_altered),
            ("graph.json", _make_node_link, json_altered),
            ("graph.pt", _make_torch, None),
        )
    ]
    return [
        Kind(
            "graph folder",
            _make_folder,
            lambda made: _read_folder(made / "my.graph"),
            unsealed,
            files=tuple(f"my.graph/{name}" for name in folder),
        ),
        *tables,
        *wholes,
        Kind("study", _make_study, _read_study, yaml_altered, whole=False),
        Kind("study results", _make_store, _read_store, files=("small.sqlite",)),
    ]
