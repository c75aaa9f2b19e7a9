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
import logging
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzz_alter import bytes_altered, json_altered
from fuzz_kinds import Kind, model_kinds
from fuzz_own import own_kinds
from hushgraph.errors import HushgraphError
from hushgraph.ledger.project import FOLDER

SECONDS = 10.0


class Hang(BaseException):
    """Raised by the clock."""


def kinds() -> list[Kind]:
    """All kinds."""
    return [*model_kinds(), *own_kinds()]


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
    for path in sorted(tried.rglob("*"), reverse=True):
        if not (made / path.relative_to(tried)).exists():
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in made.rglob("*"):
        if path.is_file():
            shutil.copyfile(path, tried / path.relative_to(made))


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
