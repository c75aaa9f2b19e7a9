"""Rows of named columns, read a batch at a time: CSV, TSV and other lists, Parquet, Arrow, numpy, frames in memory.

Nothing is guessed from the values of a text file: every column is read as words, and what uses it says what they mean.
"""

from __future__ import annotations

import contextlib
import csv as lines_of_text
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 1 << 20
_TEXT = {".csv", ".tsv", ".txt", ".edges", ".edgelist", ".tab"}
_PARQUET = {".parquet", ".pq"}
_ARROW = {".arrow", ".feather", ".ipc"}
_NUMPY = {".npy"}
_PACKED = {".gz", ".bz2", ".zst", ".lz4"}
_LONGEST_LINE = 1 << 20
_COMMENTS = ("#", "%", "//")


@dataclass(frozen=True)
class Table:
    """The names of the columns, and a way to read some of them: `read(["a", "b"])` yields Arrow record batches.

    `first` is the first line of a text file, which may hold names or values; a file of another kind has none. `rows` is
    how many there are, 0 where only reading would tell.
    """

    where: str
    columns: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
    first: tuple[str, ...] | None = None
    rows: int = 0

    def require(self, columns: Sequence[str], option: str) -> list[str]:
        """One problem for every column that is not there."""
        return [
            f"{self.where}: expected the column '{column}' ({option}); got columns {', '.join(self.columns)}. "
            "Name one of them"
            for column in columns
            if column not in self.columns
        ]


def arrow() -> Any:
    """The package pyarrow, or what to do without it."""
    try:
        import pyarrow
    except ImportError:
        raise InputError(
            "reading tables: expected the package pyarrow; it is not installed. Do: pip install 'hushgraph[io]'"
        ) from None
    return pyarrow


def open_table(path: str | Path, *, header: bool = True) -> Table:
    """The table in a file; its kind is told by the name. `header` False: a text file has no line with names."""
    source = Path(path).expanduser()
    if not source.is_file():
        raise InputError(f"expected a table at {source}; there is no such file; check the path")
    arrow()
    kind = _kind(source)
    with told(str(source)):
        if kind in _PARQUET:
            return _parquet(source)
        if kind in _ARROW:
            return _arrow_file(source)
        if kind in _NUMPY:
            return _numpy(source)
        if kind in _TEXT:
            return _text(source, header)
    raise InputError(
        f"{source}: expected a table by its name (.csv, .tsv, .txt, .parquet, .arrow, .feather, .npy; .csv.gz); got "
        f"'{source.suffix or 'no ending'}'; rename it, or write it as one of these"
    )


def files_of_table(path: str | Path) -> list[Path]:
    """The files of a table: of a folder, all but those whose names begin with `.` or `_`, in the order of names."""
    source = Path(path).expanduser()
    if not source.is_dir():
        return [source]
    found = sorted(one for one in source.iterdir() if one.is_file() and not one.name.startswith((".", "_")))
    if not found:
        raise InputError(f"{source}: expected a folder of tables; got no file in it; check the path")
    return found


def joined(tables: Sequence[Table]) -> Table:
    """The rows of several tables with the same columns, one table after the other."""
    first, *others = tables
    if not others:
        return first
    for one in others:
        if set(one.columns) != set(first.columns):
            raise InputError(
                f"{one.where}: expected the columns of {first.where} ({', '.join(first.columns)}); got "
                f"{', '.join(one.columns)}; give tables of the same columns, one per file"
            )

    def read(columns: Sequence[str]) -> Iterator[Any]:
        return chain.from_iterable(one.read(columns) for one in tables)

    rows = sum(one.rows for one in tables) if all(one.rows for one in tables) else 0
    return Table(f"{first.where} and {len(others)} more", first.columns, read, first.first, rows)


def is_table(path: str | Path) -> bool:
    """Whether a name is that of a table."""
    return _kind(Path(path)) in _TEXT | _PARQUET | _ARROW | _NUMPY


def table_of(frame: Any, where: str) -> Table:
    """The table of a frame in memory: pandas, polars, Arrow, DuckDB; whatever speaks Arrow, or a dict of columns."""
    pa = arrow()
    with told(where):
        if isinstance(frame, dict):
            table = pa.table(frame)
        elif hasattr(frame, "to_arrow") and not hasattr(frame, "__arrow_c_stream__"):
            table = frame.to_arrow()
        elif isinstance(frame, pa.Table) or hasattr(frame, "__arrow_c_stream__"):
            table = pa.table(frame)
        else:
            raise InputError(
                f"{where}: expected a table (pandas, polars, pyarrow or a dict of columns); got {type(frame).__name__}"
            )

    def read(columns: Sequence[str]) -> Iterator[Any]:
        with told(where):
            yield from map(sound, table.select(list(columns)).combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE))

    _require_distinct(where, table.column_names)
    return Table(where, tuple(map(str, table.column_names)), read, rows=table.num_rows)


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, if all of its values lie within it: Arrow takes the places that a file names at its word."""
    batch.validate(full=True)
    return batch


@contextlib.contextmanager
def told(where: str) -> Iterator[None]:
    """Errors of the reader, in the words of this package."""
    pa = arrow()
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError, TypeError) as error:
        lines = str(error).strip().splitlines()
        raise InputError(
            f"{where}: expected a complete table; it cannot be read ({lines[0] if lines else type(error).__name__}); "
            "check the file, and that every line has as many fields as the first"
        ) from error


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _parquet(path: Path) -> Table:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as stored:
        names, rows = stored.schema_arrow.names, stored.metadata.num_rows

    def read(columns: Sequence[str]) -> Iterator[Any]:
        with told(str(path)), parquet.ParquetFile(path) as file:
            yield from map(sound, file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(columns)))

    _require_distinct(str(path), names)
    return Table(str(path), tuple(names), read, rows=rows)


def _arrow_file(path: Path) -> Table:
    pa = arrow()

    def opened() -> Any:
        stored = pa.memory_map(str(path))
        try:
            return pa.ipc.open_file(stored)
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(pa.memory_map(str(path)))

    def read(columns: Sequence[str]) -> Iterator[Any]:
        with told(str(path)):
            reader = opened()
            batches = (
                reader
                if not hasattr(reader, "num_record_batches")
                else map(reader.get_batch, range(reader.num_record_batches))
            )
            for batch in batches:
                yield sound(batch.select(list(columns)))

    names = opened().schema.names
    _require_distinct(str(path), names)
    return Table(str(path), tuple(names), read)


def _numpy(path: Path) -> Table:
    """Raw pairs: an array `[edges, 2]` of whole numbers as `numpy.save` writes it."""
    import numpy as np

    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_column, dtype = read_header(file)
        begin = file.tell()
    if len(shape) != 2 or shape[1] != 2 or by_column or dtype.kind not in "iu":
        raise InputError(
            f"{path}: expected pairs of whole numbers, an array [edges, 2] in C order; got {dtype} {list(shape)}; "
            "write np.ascontiguousarray(pairs)"
        )
    names = ("source", "target")

    def read(columns: Sequence[str]) -> Iterator[Any]:
        pa = arrow()
        with told(str(path)), path.open("rb") as file:
            native = dtype.newbyteorder("=")
            kind = pa.from_numpy_dtype(native)
            file.seek(begin)
            for first in range(0, shape[0], ROWS_AT_ONCE):
                count = min(ROWS_AT_ONCE, shape[0] - first)
                pairs = np.fromfile(file, dtype, 2 * count).reshape(-1, 2)
                if len(pairs) < count:
                    raise ValueError(f"it ends after {first + len(pairs)} of {shape[0]} pairs")
                taken = [np.ascontiguousarray(pairs[:, names.index(name)], native) for name in columns]
                # `pa.array` would import pandas first
                arrays = [pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)]) for values in taken]
                yield pa.record_batch(arrays, names=list(columns))

    return Table(str(path), names, read, rows=shape[0])


def _text(path: Path, header: bool) -> Table:
    """A list of lines: comments at its beginning are skipped, and the separator is the one of its first line."""
    from pyarrow import csv

    skipped, first, lonely = _first_line(path)
    separator = _separator(path, first)
    fields = next(iter(lines_of_text.reader([first], delimiter=separator)), [])
    names = [field.strip() for field in fields] if header else [f"column{number}" for number in range(len(fields))]
    _require_distinct(str(path), names)

    def read(columns: Sequence[str]) -> Iterator[Any]:
        pa = arrow()
        options = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=list(columns),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        )
        reading = csv.ReadOptions(column_names=names, skip_rows=skipped + header, block_size=1 << 24)
        parsing = csv.ParseOptions(delimiter=separator, newlines_in_values=False)
        if header and lonely:
            return
        with told(str(path)), pa.input_stream(str(path), compression="detect") as stream:
            yield from csv.open_csv(stream, reading, parsing, options)

    return Table(str(path), tuple(names), read, tuple(field.strip() for field in fields))


def _first_line(path: Path) -> tuple[int, str, bool]:
    """How many comments and empty lines come first, the line after them, and whether nothing follows it."""
    with arrow().input_stream(str(path), compression="detect") as stream:
        start = stream.read(_LONGEST_LINE)
    cut = len(start) == _LONGEST_LINE
    try:
        lines = start.decode("utf-8-sig", errors="ignore" if cut else "strict").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected text in UTF-8; got other bytes; convert it (iconv -t utf-8)") from None
    for number, line in enumerate(lines):
        if line.strip() and not line.startswith(_COMMENTS):
            if cut and number == len(lines) - 1:
                raise InputError(f"{path}: expected a first line of at most {_LONGEST_LINE:,} bytes; got a longer one")
            return number, line, not any(rest.strip() for rest in lines[number + 1 :])
    raise InputError(f"{path}: expected at least one line; got none")


def _separator(path: Path, line: str) -> str:
    if _kind(path) in (".tsv", ".tab"):
        return "\t"
    counts = {separator: line.count(separator) for separator in (",", "\t", ";", "|")}
    best = max(counts, key=lambda separator: counts[separator])
    return best if counts[best] else " " if " " in line.strip() else ","


def _require_distinct(where: str, names: Sequence[str]) -> None:
    repeated = sorted(str(name) for name, count in Counter(names).items() if count > 1)
    if repeated:
        shown = f"{', '.join(repeated[:5])}{', ...' if len(repeated) > 5 else ''}"
        raise InputError(f"{where}: expected columns of different names; got {shown} twice; rename one")
