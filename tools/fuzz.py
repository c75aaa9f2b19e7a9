"""`make fuzz`: altered files of every kind that hushgraph reads, and what became of them.

    python tools/fuzz.py [--count 1000] [--seed 0] [KIND ...]

Each kind of file is made once, then altered at random (bits, bytes, cuts, repeats; values and names inside of it) and
read again. An altered file may be refused by an error of the project's own, or read as if nothing had happened;
counted are

- raw: any other exception;
- hang: more than ten seconds of computing;
- silent: it was read, says something else than before, and nothing said so.

`slowest` is the longest computing for one file that was refused, `largest` how much memory all reading took beyond what
the process had before. The exit code is 1 if any count but `refused` and `same` is above 0.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.collect import FeatureQuestion, LabelQuestion, Task, read_export
from hushgraph.collect.export import export_arrays
from hushgraph.collect.report import draw_payload, encode_payload
from hushgraph.datasets import read_npz, write_npz
from hushgraph.errors import HushgraphError
from hushgraph.ledger.checking import Status
from hushgraph.ledger.entries import FIRST_LINK, canonical, digest_of
from hushgraph.ledger.keys import Head, Keys
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.project import FOLDER
from hushgraph.ledger.statement import statement
from hushgraph.ledger.transfer import export as export_ledger
from hushgraph.ledger.transfer import import_into
from hushgraph.ledger.transfer import read_export as read_ledger_export
from hushgraph.ledger.verify import verify_ledger
from hushgraph.methods.model import load
from hushgraph.report import write_report

SECONDS = 10.0
ODD = (
    None,
    True,
    -1,
    0,
    2.5,
    1e308,
    10**12,
    2**33,
    10**17,
    "",
    "inf",
    "nan",
    "\x1b[2J",
    "x" * 5000,
    [],
    {},
    [[]],
    {"a": 1},
)
ODD_TEXT = ("NaN", "1e999", "-" * 3, '{"a":1,"a":2}', "[" * 3000, "9" * 6000, "\\u0000", "\udc80")


class Hang(BaseException):
    """Raised by the clock."""


# Alterations


def bytes_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One to a few changes of bytes: bits flipped, bytes put in, taken out, repeated, a cut."""
    found = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, max(1, len(found))))
        length = int(rng.integers(1, 64))
        match int(rng.integers(0, 6)):
            case 0 if found:
                found[at] ^= 1 << int(rng.integers(0, 8))
            case 1:
                found[at : at + length] = rng.bytes(length)
            case 2:
                found[at:at] = rng.bytes(length)
            case 3:
                del found[at : at + length]
            case 4:
                found[at:at] = found[at : at + length]
            case _:
                del found[at:]
    return bytes(found)


def json_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One place in a JSON text replaced by something odd, or left out."""
    values = json.loads(content)
    places = list(_places(values))
    holder, key = places[int(rng.integers(0, len(places)))]
    if rng.random() < 0.2:
        del holder[key]
    elif rng.random() < 0.2:
        holder[key] = "@odd@"
        odd = ODD_TEXT[int(rng.integers(0, len(ODD_TEXT)))]
        return json.dumps(values).replace('"@odd@"', odd).encode("utf-8", "surrogatepass")
    else:
        holder[key] = ODD[int(rng.integers(0, len(ODD)))]
    return json.dumps(values).encode("utf-8", "surrogatepass")


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in list(items):
        yield values, key
        if isinstance(value, dict | list):
            yield from _places(value)


def npz_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One array of an archive with another type, shape or values, or left out; sometimes a header that lies."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    name = sorted(arrays)[int(rng.integers(0, len(arrays)))]
    if rng.random() < 0.3:
        return _lying(arrays, name, rng)
    arrays[name] = _array_altered(arrays[name], rng)
    if rng.random() < 0.1:
        del arrays[name]
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _array_altered(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    kinds = ("i1", "u8", "f2", "f8", "c16", "U4", "?", "M8[s]", "S3")
    match int(rng.integers(0, 6)):
        case 0:
            return np.zeros(array.shape, dtype=kinds[int(rng.integers(0, len(kinds)))])
        case 1:
            return array.reshape(-1)[: max(0, array.size - 1)]
        case 2:
            return array[None]
        case 3:
            return array[:0]
        case _:
            found = array.copy().reshape(-1)
            if found.size and found.dtype.kind in "iuf":
                wide = np.int64 if found.dtype.kind in "iu" else found.dtype
                odd = (-(2**40), -2, 2**33, 2**62) if wide is np.int64 else (np.nan, np.inf, 1e30, -1.0)
                found = found.astype(wide)
                found[int(rng.integers(0, found.size))] = odd[int(rng.integers(0, 4))]
            return found.reshape(array.shape)


def _lying(arrays: dict[str, np.ndarray], name: str, rng: np.random.Generator) -> bytes:
    """An archive in which one header promises more than there is, or is no header."""
    header = {"descr": "<i8", "fortran_order": bool(rng.random() < 0.5), "shape": (2 ** int(rng.integers(20, 60)),)}
    text = (repr(header), repr({**header, "descr": "|O"}), "{" * 500, repr({**header, "shape": (-5, 3)}))
    chosen = text[int(rng.integers(0, len(text)))].encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for other, array in arrays.items():
            with archive.open(f"{other}.npy", "w") as member:
                if other == name:
                    member.write(b"\x93NUMPY\x01\x00" + len(chosen).to_bytes(2, "little") + chosen + bytes(10_000))
                else:
                    np.lib.format.write_array(member, array)
    return file.getvalue()


def export_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One value of an entry replaced, the chain of hashes written again and signed with a key of one's own."""
    *entries, _ = [json.loads(line) for line in content.splitlines()]
    at = int(rng.integers(0, len(entries)))
    try:
        entries[at]["values"] = json.loads(json_altered(json.dumps(entries[at]["values"]).encode(), rng))
        keys, link = Keys.new(), FIRST_LINK
        if at:
            entries[0]["values"]["public_key"] = keys.public
        for entry in entries:
            entry["previous"] = link
            body = canonical(entry["values"])
            entry["hash"] = link = digest_of(entry["number"], entry["kind"], entry["time"], body, link)
    except (ValueError, RecursionError):
        return content[: len(content) // 2]
    last = entries[-1]
    head = Head.signed(keys, entries[0]["hash"], last["number"], last["hash"], last["time"])
    return "".join(canonical(line) + "\n" for line in (*entries, {"head": head.as_dict()})).encode()


# Kinds of files


@dataclass
class Kind:
    """How a kind of file is made and read: `read` returns all that somebody would go by.

    `whole` is whether the format itself tells an altered file from its original: then another reading of altered bytes
    is a silent change. Alterations of the values (`inside`) make another file, which may well say something else.
    """

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    inside: Callable[[bytes, np.random.Generator], bytes] | None = None
    whole: bool = True
    inside_whole: bool = False
    files: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0


def small_graph() -> Data:
    """Sixty nodes, three classes, with masks and class names."""
    rng = np.random.default_rng(0)
    pairs = np.unique(np.sort(rng.integers(0, 60, (200, 2)), axis=1), axis=0)
    pairs = torch.from_numpy(pairs[pairs[:, 0] != pairs[:, 1]].T)
    masks = torch.zeros(3, 60, dtype=torch.bool)
    masks[0, :36], masks[1, 36:44], masks[2, 44:] = True, True, True
    return Data(
        x=torch.from_numpy(rng.random((60, 8), dtype=np.float32)),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        y=torch.from_numpy(rng.integers(0, 3, 60)),
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        class_names=["red", "green", "blue"],
    )


def _make_model(folder: Path) -> None:
    budget = hg.Budget(4.0, 1e-4)
    model = hg.GAP(epochs=2).fit(small_graph(), hg.units.UndirectedEdge(), budget, ledger=Ledger.in_memory(warn=False))
    model.save(folder)


def _make_chorus(folder: Path) -> None:
    budget = hg.Budget(4.0, 1e-4)
    model = hg.Chorus(epochs=2).fit(small_graph(), hg.units.Node(4), budget, ledger=Ledger.in_memory(warn=False))
    model.save(folder)


def _make_bare(folder: Path) -> None:
    _make_chorus(folder)
    (folder / "manifest.json").unlink()


def _read_model(folder: Path) -> Any:
    model = load(folder)
    certificate = json.dumps(model.certificate.as_dict(), sort_keys=True)
    return model.predict(small_graph()).tolist(), certificate, model.class_names, model.method


def _make_ledger(folder: Path) -> None:
    ledger = Ledger(folder)
    for epsilon in (1.0, 2.0):
        hg.MLP(epochs=1).fit(small_graph(), hg.units.UndirectedEdge(), hg.Budget(epsilon, 1e-4), ledger=ledger)
        hg.GAP(epochs=1).fit(small_graph(), hg.units.UndirectedEdge(), hg.Budget(epsilon, 1e-4), ledger=ledger)


def _read_ledger(folder: Path) -> Any:
    ledger = Ledger(folder)
    status = verify_ledger(ledger).status
    if status in (Status.CONTRADICTED, Status.REJECTED):
        raise HushgraphError("verification said so")
    said = statement(ledger)
    return status, said["hash"], said["datasets"], said["runs"]


def _make_ledger_export(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as other:
        _make_ledger(Path(other) / "ledger")
        export_ledger(Ledger(Path(other) / "ledger"), folder / "export.jsonl")


def _read_ledger_export(folder: Path) -> Any:
    found = read_ledger_export(folder / "export.jsonl").last_hash
    import_into(Ledger.in_memory(warn=False), folder / "export.jsonl", "imported")
    return found


def task() -> Task:
    """A small task with features and labels."""
    return Task(
        "survey", "A survey", 40, FeatureQuestion(8, 4.0), LabelQuestion(("red", "green", "blue"), 1.0, optional=True)
    )


def _make_collected(folder: Path) -> None:
    rng = np.random.default_rng(0)
    answers = [draw_payload(task(), np.full(8, 0.5), node % 3, rng) for node in range(20)]
    reports = [(node, encode_payload(**answer)) for node, answer in enumerate(answers)]
    np.savez_compressed(folder / "export.npz", **export_arrays(task(), reports))


def _read_collected(folder: Path) -> Any:
    found = read_export(folder / "export.npz")
    return found.task.sha256, {name: array.tolist() for name, array in found.arrays.items()}


def _read_task(folder: Path) -> Any:
    from hushgraph.cli.collect import _read_task as read

    return read(folder / "task.json").sha256


def _read_graph(folder: Path) -> Any:
    data = read_npz(folder / "graph.npz")
    return {key: value.tolist() if torch.is_tensor(value) else value for key, value in data.to_dict().items()}


def _read_report(folder: Path) -> Any:
    return write_report(folder, folder.parent / "page.html").read_text() and None


def kinds() -> list[Kind]:
    """All kinds."""
    of_model = ("config.json", "certificate.json", "metrics.json", "model.safetensors", "manifest.json")
    return [
        Kind("graph", lambda folder: write_npz(small_graph(), folder / "graph.npz") and None, _read_graph, npz_altered),
        Kind("model", _make_model, _read_model, json_altered, inside_whole=True, files=of_model),
        Kind("bare model", _make_bare, _read_model, json_altered, whole=False, files=of_model[:-1]),
        Kind("report", _make_bare, _read_report, json_altered, whole=False, files=of_model[:3]),
        Kind("ledger", _make_ledger, _read_ledger, files=("ledger.db",)),
        Kind("ledger export", _make_ledger_export, _read_ledger_export, export_altered),
        Kind("collected reports", _make_collected, _read_collected, npz_altered),
        Kind(
            "task",
            lambda folder: (folder / "task.json").write_text(task().canonical_json()) and None,
            _read_task,
            json_altered,
            whole=False,
        ),
    ]


# The run


def fuzz(kind: Kind, count: int, seed: int, work: Path, tell: Callable[[str], None] = lambda _: None) -> Counter[str]:
    """Alter and read `count` files of a kind; what became of them."""
    made, tried = work / "made", work / "tried"
    made.mkdir(parents=True)
    (work / FOLDER).mkdir()  # the project's folder, without a ledger: that of whoever runs this stays out of it
    kind.make(made)
    original = kind.read(made)
    names = [name for name in (kind.files or sorted(path.name for path in made.iterdir())) if (made / name).is_file()]
    rng = np.random.default_rng(seed)
    shutil.copytree(made, tried)
    said = time.monotonic()
    for number in range(count):
        if time.monotonic() > said + 60:
            said = time.monotonic()
            print(f"{kind.name}: {number} of {count}, {dict(kind.counts)}", file=sys.stderr, flush=True)
        name = names[int(rng.integers(0, len(names)))]
        fits = kind.inside is not None and (kind.inside is not json_altered or name.endswith(".json"))
        inside = fits and bool(rng.random() < 0.5)
        alter = kind.inside if inside and kind.inside is not None else bytes_altered
        (tried / name).write_bytes(alter((made / name).read_bytes(), rng))
        begun = time.process_time()
        outcome, words = _tried(kind, tried, original, kind.inside_whole if inside else kind.whole)
        kind.counts[outcome] += 1
        if outcome == "refused":
            kind.slowest = max(kind.slowest, time.process_time() - begun)
        if outcome not in ("refused", "same"):
            tell(f"{kind.name}, number {number}, {name}: {outcome}\n{words}")
        _restore(made, tried)
    return kind.counts


def _restore(made: Path, tried: Path) -> None:
    for path in tried.iterdir():
        if not (made / path.name).exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in made.iterdir():
        if path.is_file():
            shutil.copyfile(path, tried / path.name)


def _tried(kind: Kind, folder: Path, original: Any, whole: bool) -> tuple[str, str]:
    try:
        with _clock():
            found = kind.read(folder)
    except HushgraphError:
        return "refused", ""
    except Hang:
        return "hang", traceback.format_exc(limit=-6)
    except BaseException as error:  # whatever it is, it is counted
        if isinstance(error, KeyboardInterrupt):
            raise
        return "raw", traceback.format_exc(limit=-4)
    if found == original:
        return "same", ""
    return ("silent", "") if whole else ("same", "")


@contextlib.contextmanager
def _clock() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def main() -> int:
    """Print one line per kind."""
    parser = argparse.ArgumentParser(description="Alter files at random and count what becomes of them.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="only these kinds")
    parser.add_argument("--count", type=int, default=1000, help="altered files of each kind")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chosen = _chosen(given.kinds)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    head = ("kind", "altered", "refused", "same", "raw", "hang", "silent", "seconds", "slowest", "largest")
    print("  ".join(f"{word:>10}" if at else f"{word:<18}" for at, word in enumerate(head)), flush=True)
    bad = 0
    for kind in chosen:
        begun, before = time.process_time(), _peak()
        with tempfile.TemporaryDirectory() as work:
            counts = fuzz(kind, given.count, given.seed, Path(work), tell=lambda words: print(words, file=sys.stderr))
        found = [counts[word] for word in head[2:7]]
        cells = [given.count, *found, f"{time.process_time() - begun:.0f}"]
        cells += [f"{kind.slowest:.2f} s", f"{_peak() - before} MB"]
        print("  ".join([f"{kind.name:<18}", *(f"{cell:>10}" for cell in cells)]), flush=True)
        bad += sum(found[2:])
    return int(bad > 0)


def _chosen(names: list[str]) -> list[Kind]:
    """The kinds of these names, or all; a name that is none would be a kind that nobody looked at."""
    known = {kind.name: kind for kind in kinds()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"expected kinds among {', '.join(map(repr, known))}; got {', '.join(map(repr, unknown))}")
    return [known[name] for name in names or known]


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    sys.exit(main())
