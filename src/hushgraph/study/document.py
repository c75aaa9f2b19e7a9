"""A page in Markdown whose tables and plots are those of studies; the words between them are its author's.

What stands between a mark and `<!-- end -->` is replaced. The study is named by its path from the page:

    <!-- study table: ../studies/campus.yaml: Accuracy -->
    <!-- study plot: ../studies/campus.yaml: Accuracy against epsilon -->

Pictures go to `pictures/` beside the page. Runs of any version of the code are shown, the newest of each cell.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from hushgraph.errors import InputError, did_you_mean
from hushgraph.files.writing import write_whole
from hushgraph.study.export import markdown
from hushgraph.study.plots import draw
from hushgraph.study.results import Results
from hushgraph.study.run import default_store
from hushgraph.study.spec import Study
from hushgraph.study.store import Store
from hushgraph.study.views import View

_MARK = re.compile(r"(<!-- study (table|plot): (\S+): (.+?) -->\n)(?:.*?)(<!-- end -->)", flags=re.DOTALL)


@dataclass
class Document:
    """A page, and the studies that it names, each read once. `stores` is a folder of stores, None: beside studies."""

    path: Path
    stores: Path | None = None
    _studies: dict[Path, Results] = field(default_factory=dict)

    def write(self) -> list[str]:
        """Fill the page; the names of all that was shown."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"expected a page in Markdown at {self.path}; {error.strerror}") from error
        shown = [f"{found[2]} {found[4]}" for found in _MARK.finditer(text)]
        if not shown:
            raise InputError(f"{self.path}: expected marks such as <!-- study table: FILE.yaml: NAME -->; got none")
        write_whole(self.path, _MARK.sub(self._filled, text))
        return shown

    def _filled(self, found: re.Match[str]) -> str:
        mark, kind, file, name, end = found.groups()
        results = self._results(file)
        view = _view(results.study, kind, name)
        shown = self._plot(results, view) if kind == "plot" else _table(results, view)
        return f"{mark}\n{shown}\n{end}"

    def _results(self, file: str) -> Results:
        source = Path(os.path.normpath(self.path.absolute().parent / file))
        if source not in self._studies:
            study = Study.read(source)
            store = default_store(study) if self.stores is None else self.stores / f"{study.name}.sqlite"
            self._studies[source] = Results(study, Store(store), any_code=True)
        return self._studies[source]

    def _plot(self, results: Results, view: View) -> str:
        words = re.sub(r"[^a-z0-9]+", "-", view.name.lower()).strip("-")
        picture = Path("pictures") / f"{results.study.name}-{words}.svg"
        if not any(view.value in row.metrics for row in results.where(view.where)):
            return f"*{view.name}*: not run.\n"
        draw(results, view, self.path.parent / picture)
        return f"![{view.name}]({picture})\n"


def _table(results: Results, view: View) -> str:
    known = {name for row in results.where(view.where) for name in row.metrics}
    if not known.intersection(view.values or (view.value,)):
        return f"*{view.name}*: not run.\n"
    return markdown(results.table(view))


def _view(study: Study, kind: str, name: str) -> View:
    kinds = ("table",) if kind == "table" else ("lines", "heat")
    named = {view.name: view for view in study.views if view.kind in kinds}
    if name not in named:
        raise InputError(f"study {study.name}: no {kind} '{name}'; {did_you_mean(name, named)}")
    return named[name]
