"""What an experiment works with: its cell, the graph that the cell names, and the ledger it is charged to."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.units import Unit
from hushgraph.study.cell import Cell

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from hushgraph.graph.checks import CheckedGraph
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.methods.base import Method


@dataclass
class Lab:
    """One cell at work.

    `facts` are what the experiment finds out about its privacy; they are stored beside the metrics. `group` is the
    declaration that a charged run belongs to, None where it was not part of it (a run that is done again).
    """

    cell: Cell
    ledger_folder: str | None = None
    study: str = "study"
    group: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    hides_time: bool = False
    """Set by an experiment whose time tells something that must not be known: it is not stored in a charged study."""

    @property
    def is_charged(self) -> bool:
        """Whether runs are charged to the ledger of their data, with noise that nobody can repeat."""
        return self.cell.privacy == "charged"

    @property
    def seed(self) -> int | None:
        """The seed of a research run; None where noise must not be repeatable."""
        return None if self.is_charged else self.cell.seed

    @property
    def data(self) -> Data:
        """The graph of the cell, split, with as many labels as the cell says. Kept, so do not change it."""
        return _loaded(*self._place)

    @property
    def checked(self) -> CheckedGraph:
        """The graph as a vault takes it, for plans: many of a study are for the same one."""
        return _checked(*self._place)

    @property
    def _place(self) -> tuple[Any, ...]:
        """What decides the graph, in a form that a cache can look up."""
        cell = self.cell
        if cell.dataset is None:
            raise InputError("this experiment needs a dataset; the cell has none")
        split = cell.split if cell.split is not None else cell.dataset.split
        return cell.dataset.load, _frozen(cell.dataset.options), _frozen(split), cell.split_seed, cell.label_share

    @property
    def method(self) -> Method:
        """The method of the cell with all its settings."""
        if self.cell.method is None:
            raise InputError("this experiment needs a method; the cell has none")
        kind = registry.load("methods", self.cell.method.name)
        made: Method = kind(**{**self.cell.method.settings, **self.cell.settings})
        return made

    @property
    def unit(self) -> Unit | None:
        """The unit of the cell; None leaves it to the method."""
        if self.cell.unit is None:
            return None
        made: Unit = registry.load("units", self.cell.unit.name)(**self.cell.unit.settings)
        return made

    @property
    def budget(self) -> Budget:
        """The budget of the cell."""
        if self.cell.epsilon is None:
            raise InputError("this experiment needs an epsilon; the cell has none")
        return Budget(self.cell.epsilon, self.cell.delta)

    @property
    def ledger(self) -> Ledger:
        """Where runs of this cell are charged: that of the project, or one that ends with the run, for research."""
        from hushgraph.ledger.ledger import Ledger
        from hushgraph.ledger.occasion import Occasion
        from hushgraph.ledger.project import default_ledger

        if not self.is_charged:
            return Ledger.in_memory(warn=False)
        return default_ledger(self.ledger_folder).on(Occasion(purpose=self.study, group=self.group))


def with_label_share(data: Data, share: float, seed: int) -> Data:
    """The data with fewer train nodes: `share` of all nodes, drawn from those that train."""
    import torch

    from hushgraph.datasets.splits import with_masks

    train = data.train_mask.nonzero().squeeze(1)
    wanted = round(share * int(data.num_nodes))
    if not 1 <= wanted <= train.numel():
        most = train.numel() / int(data.num_nodes)
        raise InputError(
            f"label_shares: expected at least one node and at most the {most:.3g} that train; got {share:g}"
        )
    order = torch.randperm(train.numel(), generator=torch.Generator().manual_seed(seed))
    mask = torch.zeros_like(data.train_mask).index_fill_(0, train[order[:wanted]], True)
    return with_masks(data, mask, data.val_mask, data.test_mask)


@lru_cache(maxsize=2)
def _loaded(source: str, options: Any, split: Any, seed: int, share: float | None) -> Data:
    from hushgraph.datasets.loading import load

    if share is not None:
        return with_label_share(_loaded(source, options, split, seed, None), share, seed)
    return load(source, split=list(split) if isinstance(split, tuple) else split, seed=seed, **dict(options))


@lru_cache(maxsize=2)
def _checked(*place: Any) -> CheckedGraph:
    from hushgraph.graph.checks import check_graph

    return check_graph(_loaded(*place))


def _frozen(value: Any) -> Any:
    """A value that a cache can look up."""
    if isinstance(value, dict):
        return tuple(sorted((key, _frozen(item)) for key, item in value.items()))
    return tuple(value) if isinstance(value, list) else value
