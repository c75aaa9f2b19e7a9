"""Try to break a ledger: kills, cuts, flipped bits, a full disk, racing processes, and 10,000 runs.

    python benchmarks/ledger_torture.py            everything, a few minutes
    python benchmarks/ledger_torture.py kills      one of kills, damages, full_disk, races, scale
    python benchmarks/ledger_torture.py full_disk --folder /mnt/small    on a small file system of your own

After each attempt: nothing was released that is not charged, the ledger can be used (or is recovered whole from an
export), a run over the limit is not let in, and every alteration is found or changes nothing that can be read.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.errors import BudgetError, HushgraphError, LedgerError
from hushgraph.ledger.checking import Status
from hushgraph.ledger.identity import GraphArrays
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.run import open_run
from hushgraph.ledger.statement import statement
from hushgraph.ledger.transfer import export, recover
from hushgraph.ledger.verify import verify_ledger
from hushgraph.mechanisms import NeighborSum
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import UndirectedEdge

UNIT, DELTA, SIZES = UndirectedEdge(), 1e-6, Metadata(1_000, 750)
FORK = multiprocessing.get_context("fork")
_LARGEST_FILLED = 64 << 20
DATA = GraphArrays(np.arange(2_000).reshape(2, 1_000))


def plan(std: float = 100.0, count: int = 1) -> Plan:
    return Plan("toy", SIZES, UNIT, Budget(1e6, DELTA), (Stage("sum", NeighborSum(), count, scale=std),))


def one_run(ledger: Ledger, std: float = 100.0) -> None:
    run = open_run(ledger, plan(std), "data", seeded=False)
    run.charge(run.plan.stages[0])
    run.close()


# Killed at random moments


def _release_forever(folder: Path, marker: Path) -> None:
    """Open runs and charge as fast as possible; a line in `marker` stands for what a mechanism hands out."""
    ledger = Ledger(folder)
    with open(marker, "ab", buffering=0) as out:
        while True:
            run = open_run(ledger, plan(count=5), "data", seeded=False)
            for number in range(5):
                run.charge(run.plan.stages[0], 1)
                out.write(f"{run.identity}-{number}\n".encode())
            run.close()


def kills(place: Path, count: int = 200, seed: int = 7) -> dict[str, Any]:
    """Kill a process that charges, at random moments; every tenth time while it makes a new ledger."""
    rng, outcomes = random.Random(seed), Counter[str]()
    folder, marker = place / "book-0", place / "released-0"
    for moment in range(count):
        if moment % 10 == 0:
            folder, marker = place / f"book-{moment}", place / f"released-{moment}"
        before = marker.stat().st_size if marker.exists() else 0
        process = FORK.Process(target=_release_forever, args=(folder, marker))
        process.start()
        while moment % 2 and not (marker.exists() and marker.stat().st_size > before):
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.05))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        one_run(Ledger(folder))  # it can be used at once
        history = Ledger(folder).history()
        charged = {f"{run}-{number}" for run in history.runs() for number in range(len(history.of_run(run, "charge")))}
        released = set(marker.read_text().split()) if marker.exists() else set()
        assert released <= charged, "a release was not charged"
        assert not verify_ledger(Ledger(folder)).having(Status.CONTRADICTED)
        outcomes["after a release" if released else "before the first release"] += 1
    return {"kills": count, **outcomes}


# Cut and changed


def damages(place: Path, count: int = 2_000, seed: int = 8) -> dict[str, Any]:
    """Cut files, flip bits, overwrite blocks: found, or without effect; never a run over the limit, never lost."""
    ledger = Ledger(place / "book")
    ledger.dataset_for(ledger.identify(DATA), "data")
    ledger.set_limit(1.0, DELTA, dataset="data", unit=UNIT)
    for _ in range(12):
        one_run(ledger, 40.0)
    export(ledger, place / "export.jsonl")
    sound = {path: path.read_bytes() for path in sorted((place / "book").rglob("*")) if path.is_file()}
    expected = ledger.history(), ledger.total("data", UNIT), ledger.datasets()
    rng, outcomes = random.Random(seed), Counter[str]()
    targets = [path for path in sound if sound[path]]
    for attempt in range(count):
        path = ledger.path if attempt % 10 else rng.choice(targets)
        assert path is not None
        kind, content = _damaged(sound[path], rng)
        path.write_bytes(content)
        outcome = _outcome(Ledger(place / "book"), expected)
        _require_refusal(Ledger(place / "book"))
        if outcome == "found" and path == ledger.path and attempt % 5 == 0:
            assert recover(place / "book", [place / "export.jsonl"])["lost"] == 0
            kept = Ledger(place / "book").history().entries  # a refusal may have been entered meanwhile
            assert kept[: len(expected[0].entries)] == expected[0].entries
            outcomes["recovered whole"] += 1
        outcomes[f"{kind}, {outcome}"] += 1
        shutil.rmtree(place / "book")
        for file, whole in sound.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(whole)
    return {"damages": count, **dict(sorted(outcomes.items()))}


def _damaged(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    kind = rng.choice(["cut", "flipped bit", "flipped bit", "overwritten block"])
    at = rng.randrange(len(content))
    if kind == "cut":
        return kind, content[:at]
    if kind == "flipped bit":
        return kind, content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    block = rng.randbytes(rng.randrange(1, 600))
    return kind, (content[:at] + block + content[at + len(block) :])[: len(content)]


def _outcome(ledger: Ledger, expected: tuple[Any, ...]) -> str:
    """Whether the damage was found, or everything that can be read is as it was."""
    if verify_ledger(ledger).having(Status.CONTRADICTED):
        return "found"
    try:
        with ledger.transaction():
            same = (ledger.history(), ledger.total("data", UNIT), ledger.datasets()) == expected
    except HushgraphError:
        return "found"
    assert same, "a change was not found"
    return "without effect"


def _require_refusal(ledger: Ledger) -> None:
    """A run over the limit, on the same data, must not be let in, whatever the file looks like."""
    try:
        open_run(ledger.on(Occasion(arrays=DATA)), plan(5.0), "renamed", seeded=False)
    except HushgraphError:
        return
    raise AssertionError("a run over the limit was let in")


# A full disk


def full_disk(place: Path, folder: Path | None = None) -> dict[str, Any]:
    """Charge until nothing more can be written: in `folder`, or on tiny file systems; else under a size limit."""
    if folder is not None:
        return {"on": str(folder), **_fill(folder)}
    found = {kind: _on_file_system(place, kind) for kind in ("tmpfs", "ext4")}
    return found if any(found.values()) else limited_size(place)


def _on_file_system(place: Path, kind: str) -> dict[str, Any] | None:
    """The same on a file system made for it; None where that is not allowed."""
    small, image = place / kind, place / f"{kind}.image"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)]
    if kind == "ext4":
        image.write_bytes(bytes(16 << 20))
        if not _done(["mkfs.ext4", "-q", "-m", "0", str(image)]):
            return None
        mount = ["mount", "-o", "loop", str(image), str(small)]
    if not _done(mount):
        return None
    try:
        return _fill(small)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _done(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _fill(place: Path) -> dict[str, Any]:
    free = shutil.disk_usage(place).free
    if free > _LARGEST_FILLED:
        raise SystemExit(f"expected a folder on a file system with at most {_LARGEST_FILLED} bytes free; got {free}")
    folder, rest, ballast = place / "book", place / "rest", place / "ballast"
    ledger, charged, message = Ledger(folder), 0, ""
    ballast.write_bytes(bytes(50_000))
    rest.write_bytes(bytes(max(shutil.disk_usage(place).free - 200_000, 0)))
    try:
        for _ in range(10_000):
            one_run(ledger)
            charged += 1
    except LedgerError as error:
        message = str(error)
    assert message, "the file system never filled up"
    _require_told(place)
    assert _charges(folder) >= charged
    assert not verify_ledger(Ledger(folder)).having(Status.CONTRADICTED)
    ballast.unlink()
    one_run(ledger)  # with room again it goes on
    assert _charges(folder) > charged
    rest.unlink()
    return {"charged": charged, "message": message[-120:]}


def _require_told(place: Path) -> None:
    """A new ledger on a full disk is refused in words, at whatever file it fails, and can be made later."""
    filler, step, started = place / "filler", 4096, place / "started"
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while file.write(bytes(step)):
            os.fsync(file.fileno())
    for room in range(0, filler.stat().st_size, step):
        os.truncate(filler, filler.stat().st_size - min(room, step))
        with contextlib.suppress(LedgerError):  # and nothing else
            one_run(Ledger(started))
        shutil.rmtree(started, ignore_errors=True)
    filler.unlink()


def limited_size(place: Path) -> dict[str, Any]:
    """The same where files may not grow: the operating system refuses to write more."""
    folder, result = place / "limited", place / "result.json"
    one_run(Ledger(folder))
    size = (folder / "ledger.db").stat().st_size
    process = FORK.Process(target=_fill_limited, args=(folder, result, size + 20_000))
    process.start()
    process.join()
    told = json.loads(result.read_text())
    assert _charges(folder) >= told["charged"] + 1
    one_run(Ledger(folder))  # with room again it goes on
    assert not verify_ledger(Ledger(folder)).having(Status.CONTRADICTED)
    return {"on": "a limit on the size of files", **told}


def _fill_limited(folder: Path, result: Path, size: int) -> None:
    charged, message = 0, ""
    result.write_text("{}")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        while True:
            one_run(Ledger(folder))
            charged += 1
    except LedgerError as error:
        message = str(error)
    result.write_text(json.dumps({"charged": charged, "message": message[-120:]}))


def _charges(folder: Path) -> int:
    return len(Ledger(folder).history().of_kind("charge"))


# Racing processes


def _race(folder: Path, results: Any, each: int) -> None:
    ledger, let_in = Ledger(folder, lock_timeout=120.0), 0
    for _ in range(each):
        try:
            one_run(ledger, 40.0)
            let_in += 1
        except BudgetError:
            pass
    results.put(let_in)


def races(place: Path, processes: int = 8, each: int = 40) -> dict[str, Any]:
    """Processes that spend one limit together: exactly what it allows is let in, however they interleave."""
    ledger = Ledger(place / "book")
    ledger.set_limit(1.0, DELTA, dataset="data", unit=UNIT)
    results = FORK.Queue()
    racers = [FORK.Process(target=_race, args=(place / "book", results, each)) for _ in range(processes)]
    for racer in racers:
        racer.start()
    let_in = sum(results.get() for _ in racers)
    for racer in racers:
        racer.join()
    alone = Ledger.in_memory(warn=False)
    alone.set_limit(1.0, DELTA, dataset="data", unit=UNIT)
    allowed = 0
    while allowed < processes * each:
        try:
            one_run(alone, 40.0)
        except BudgetError:
            break
        allowed += 1
    refused = len(ledger.history().of_kind("refused"))
    assert (let_in, refused) == (allowed, processes * each - allowed), (let_in, allowed, refused)
    assert not verify_ledger(ledger).having(Status.CONTRADICTED)
    return {"processes": processes, "attempts": processes * each, "let in": let_in, "as one process would": allowed}


# Ten thousand runs


def scale(place: Path, runs: int = 10_000) -> dict[str, Any]:
    """What takes how long when many runs have been entered."""
    ledger = Ledger(place / "book")
    ledger.set_limit(1e5, DELTA, dataset="data", unit=UNIT)
    started = time.perf_counter()
    for number in range(runs):
        one_run(ledger, 100.0 + number % 50)
    found: dict[str, Any] = {"runs": runs, "entries": ledger.head().number + 1, "made_in_s": _since(started)}
    found["file_MB"] = round((place / "book" / "ledger.db").stat().st_size / 1e6, 1)
    found["limit_check_s"] = _fastest(lambda: _refused(ledger))
    found["open_charge_close_s"] = _fastest(lambda: one_run(ledger))
    found["show_s"] = _fastest(lambda: statement(ledger))
    command = [sys.executable, "-c", "from hushgraph.cli import main; main()", "ledger", "show", str(place / "book")]
    found["show_command_s"] = _fastest(lambda: subprocess.run(command, check=True, capture_output=True))
    started = time.perf_counter()
    assert not verify_ledger(ledger).having(Status.CONTRADICTED)
    found["verify_s"] = _since(started)
    return found


def _refused(ledger: Ledger) -> None:
    try:
        open_run(ledger, plan(2e-3), "data", seeded=False)
    except BudgetError:
        return
    raise AssertionError("a run over the limit was let in")


def _fastest(work: Callable[[], Any], times: int = 3) -> float:
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append(_since(started))
    return min(taken)


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 4)


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "kills": kills,
    "damages": damages,
    "full_disk": full_disk,
    "races": races,
    "scale": scale,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to try (everything)")
    parser.add_argument("--folder", type=Path, help="where to work; for full_disk a small file system that is filled")
    options = parser.parse_args()
    for name in options.parts or list(PARTS):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            started = time.perf_counter()
            place = Path(folder)
            fills = name == "full_disk" and options.folder is not None
            found = full_disk(place, place) if fills else PARTS[name](place)
            print(f"{name}: {json.dumps(found)} ({_since(started):.0f} s)", flush=True)


if __name__ == "__main__":
    main()
