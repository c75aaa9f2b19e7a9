"""The shape of the project in numbers, beside what they were before it was rebuilt: `make shape` writes docs/shape.md.

Walks count functions by their first call: how many there are, in how many files, and how often the package changes
from one to the next. Everything else is read off the syntax (measures.py, reach.py).
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

from measures import (
    ROOT,
    SOURCE,
    cycles,
    files,
    lines,
    prose_parsers,
    protection_branches,
    small_files,
    stage_type_tests,
    unit_type_tests,
    upward_imports,
)
from reach import unreachable_lines

Row = tuple[str, str, str, str]

HEAD: Row = ("measure", "before (79dc90b)", "now", "aim")
PAGE = """# The shape of the project

Written by `make shape`. A walk is what one call runs through: the functions in the order of their first call, the files
they are in, and how often the package changes from one to the next; a module that stands alone counts as a package. A
type test asks what a unit or a stage is, a prose parser reads a fact back out of a sentence, a protection branch asks
whether a run protects anything. A model finds its words, its audit and its report by name, without an import.

"""


def walk(run: Callable[[], object]) -> tuple[int, int, int, int]:
    """Functions, files, switches between packages and packages, by the first call of every function.

    Comprehensions and lambdas belong to the function around them: whether they are code of their own depends on the
    version of Python.
    """
    base, seen, order = str(SOURCE), set[CodeType](), list[tuple[str, str]]()

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        named = not code.co_name.startswith("<")
        if event == "call" and named and code not in seen and code.co_filename.startswith(base):
            seen.add(code)
            inside = code.co_filename[len(base) + 1 :]
            order.append((inside.split("/")[0], inside))

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    switches = sum(one[0] != other[0] for one, other in itertools.pairwise(order))
    return len(order), len({file for _, file in order}), switches, len({package for package, _ in order})


def _walked(run: Callable[[], object]) -> str:
    functions, in_files, switches, packages = walk(run)
    return f"{switches} / {packages} ({functions} functions, {in_files} files)"


def walks() -> list[Row]:
    """GAP at edge level and Chorus at node level, on the built-in graph and a new ledger."""
    import torch

    from hushgraph import GAP, Budget, Chorus, Ledger, datasets, units

    torch.set_num_threads(1)
    graph = datasets.load("campus")
    with tempfile.TemporaryDirectory() as folder:
        ledgers = [Ledger(Path(folder) / name) for name in ("gap", "chorus")]
        gap = _walked(lambda: GAP(epochs=5).fit(graph, units.UndirectedEdge(), Budget(2.0), ledger=ledgers[0], seed=0))
        chorus = _walked(
            lambda: Chorus(epochs=2).fit(graph, units.Node(), Budget(4.0, 1e-5), ledger=ledgers[1], seed=0)
        )
    return [
        ("GAP.fit, edge: package switches / packages", "96 / 17", gap, "<= 65 / 10"),
        ("Chorus.fit, node: package switches / packages", "115 / 17", chorus, "<= 80"),
        ("audit: package switches", "62 / 15", _audit_walk(), "<= 40"),
    ]


def _audit_walk() -> str:
    """From a saved model, as the command does."""
    from hushgraph import GAP, Budget, Ledger, datasets, units
    from hushgraph.audit.run import audit_run

    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.in_memory(warn=False)
        graph = datasets.load("campus")
        model = GAP(epochs=2).fit(graph, units.UndirectedEdge(), Budget(2.0), ledger=ledger, seed=0)
        saved = model.save(Path(folder) / "model")
        return _walked(lambda: audit_run(saved, canaries=1_000, seed=0))


def static() -> list[Row]:
    """What the syntax says."""
    methods = [f"methods/{name}.py" for name in ("gap", "chorus", "dpgnn", "lpgnn")]
    core = ("mechanisms", "vault", "privacy/mechanism.py", "privacy/plan.py")
    habits = (unit_type_tests(), stage_type_tests(), prose_parsers(), protection_branches())
    dead = unreachable_lines()
    return [
        (
            "unit / stage type tests / prose parsers / protection branches",
            "33 / 19 / 12 / 18",
            _counts(*habits),
            "0 / 0 / 0 / <= 2",
        ),
        (
            "gap / chorus / dpgnn / lpgnn lines",
            "222 / 359 / 320 / 305",
            _slashed([lines(m) for m in methods]),
            "<= 110 / 220 / 200 / 200",
        ),
        ("stages + mechanisms + vault + canaries, lines", "2,660", f"{lines(*core):,}", "<= 1,900"),
        ("the same for each mechanism (how many there are)", "333 (8)", _each(lines(*core)), "<= 238 (8)"),
        ("files; of <= 50 lines", "203; 37", f"{len(files())}; {len(small_files())}", "170; <= 10"),
        ("package cycles / upward imports", "1 / 3", _counts(cycles(), upward_imports()), "0 / 0"),
        ("lines that nothing leads to", "about 800", f"{sum(dead.values())}", "0"),
        (
            "files to touch: mechanism / unit / method / canary / section",
            "10 / 16 / 7 / 2 / 4",
            TOUCHED,
            "1 / 1 / 1 / 0 / 1",
        ),
    ]


TOUCHED = "1 / 1 / 1 / 0 / 1"
"""By tests that write each outside the package: tests/test_outsiders.py (a mechanism with its canary, a method),
tests/test_extensions.py (a unit), tests/report/sections/test_sections.py (a section)."""


def _each(core: int) -> str:
    """The aim of 1,900 lines was set for the eight mechanisms that there were."""
    from hushgraph import registry

    count = len(registry.names("mechanisms"))
    return f"{core / count:.0f} ({count})"


def _counts(*found: list) -> str:
    return _slashed([len(one) for one in found])


def _slashed(numbers: list[int]) -> str:
    return " / ".join(map(str, numbers))


def page(rows: list[Row]) -> str:
    """The table with what its words mean, in Markdown."""
    return PAGE + "".join(f"| {' | '.join(row)} |\n" for row in (HEAD, ("---",) * 4, *rows))


def main() -> None:
    """Write and print the page; with --dead print also what nothing leads to."""
    text = page([*walks(), *static()])
    (ROOT / "docs" / "shape.md").write_text(text, encoding="utf-8")
    print(text)
    if "--dead" in sys.argv:
        for place, count in unreachable_lines().items():
            print(f"{count:5d} {place}")


if __name__ == "__main__":
    main()
