"""Tables without edges: one record is the secret, or all records of a class or of a part of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hushgraph.errors import InputError
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.unit import Footprint, Relation, Unit


@dataclass(frozen=True)
class Record(Unit):
    """One record of a table without edges is replaced by an empty one; the number of records is public."""

    name = "record"
    noun = "one record (features and label)"
    protects = "one record's features and label"
    relation = Relation.NULL
    has_edges = False
    unprotected = (note(Code.NUM_RECORDS), note(Code.OWN_PREDICTION))

    @property
    def footprint(self) -> Footprint:
        """One record; nothing is known about edges."""
        return Footprint(records=1)

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every record made empty."""
        for node in range(data.metadata.num_nodes):
            yield data.with_record(node, None)


@dataclass(frozen=True)
class Class(Unit):
    """All records of one class are replaced by any others of that class, or, with `removal`, by empty ones.

    The classes are public, and so is the number of records in all; how many a class has is not: records of the class
    may become empty, and empty ones records of the class.
    """

    removal: bool = False

    name = "class"
    noun = "all records of one class"
    protects = "what the records of any one class look like, and how many there are"
    relation = Relation.REPLACE
    has_edges = False
    unprotected: ClassVar[tuple[Note, ...]] = (note(Code.NUM_RECORDS), note(Code.CLASSES), note(Code.OWN_PREDICTION))

    def __post_init__(self) -> None:
        if self.removal:
            object.__setattr__(self, "relation", Relation.NULL)

    @property
    def change(self) -> str:
        """The change that is hidden, in words."""
        return f"{self.noun} are replaced by {'empty ones' if self.removal else 'any others'}"

    @property
    def footprint(self) -> Footprint:
        """One group, of any number of records."""
        return Footprint(groups=1, replaced=not self.removal)

    def count(self, metadata: Metadata) -> int:
        """Groups."""
        return metadata.classes * self.footprint.parts

    def counted(self, metadata: Metadata) -> str:
        """Groups."""
        return f"the number of {'classes' if self.footprint.parts == 1 else 'parts of classes'}"

    @classmethod
    def variants(cls) -> list[Unit]:
        """Replaced, and removed."""
        return [cls(), cls(removal=True)]

    def neighbors(self, data: Any, rng: Any) -> Iterator[Any]:
        """Every group removed; if groups are replaced, also by random records, by opposite ones and by fewer.

        The part of a record is its number modulo the parts: a rule that is given with the data.
        """
        parts = self.footprint.parts
        for group in range(data.metadata.classes * parts):
            for change in ("removed",) if self.removal else ("removed", "random", "opposite", "fewer"):
                yield data.with_group(group // parts, group % parts, parts, change, rng)


@dataclass(frozen=True)
class Subclass(Class):
    """All records of one given part of one class are replaced; they stay in their class and part.

    `parts`: into how many parts the records of a class fall, by a public rule that looks at one record at a time.
    """

    parts: int = 50

    name = "subclass"
    noun = "all records of one part of one class"
    protects = "what the records of any one part of a class look like, and how many there are"
    unprotected = (note(Code.NUM_RECORDS), note(Code.CLASSES), note(Code.PARTS), note(Code.OWN_PREDICTION))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.parts, int) or isinstance(self.parts, bool) or self.parts < 1:
            raise InputError(f"parts: expected a whole number of at least 1; got {self.parts!r}")

    @property
    def footprint(self) -> Footprint:
        """One group, of any number of records."""
        return Footprint(groups=1, parts=self.parts, replaced=not self.removal)

    def notes(self, metadata: Metadata) -> tuple[Note, ...]:
        """The number of parts."""
        return (*super().notes(metadata), note(Code.PARTS_OF_CLASSES, parts=self.parts))

    @classmethod
    def variants(cls) -> list[Unit]:
        """Two parts, which small tables fill, replaced and removed."""
        return [cls(parts=2), cls(parts=2, removal=True)]
