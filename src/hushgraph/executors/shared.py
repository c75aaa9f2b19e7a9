"""What all processes of one machine are given alike, in memory that they share: written once, read where it lies.

It may hold private rows, so it is never a file on a disk, only its owner may open it, and it is gone with whoever
shared it. It is pickled, as all that processes of one program send each other; nothing from outside is read so.
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any

_ALIGNMENT = 64


@dataclass(frozen=True)
class Place:
    """Where something shared is: the name of the memory, and how long each of its parts is."""

    name: str
    lengths: tuple[int, ...]


class Shared:
    """Puts some objects in shared memory for as long as it is entered; arrays go there as they are."""

    def __init__(self, objects: Any) -> None:
        self._buffers: list[pickle.PickleBuffer] = []
        self._pickled = pickle.dumps(objects, protocol=5, buffer_callback=self._buffers.append)

    def __enter__(self) -> Shared:
        parts = [memoryview(self._pickled), *(buffer.raw() for buffer in self._buffers)]
        lengths = tuple(part.nbytes for part in parts)
        self._memory = SharedMemory(create=True, size=_starts(lengths)[-1])
        self.place = Place(self._memory.name, lengths)
        whole = memoryview(self._memory.buf)  # type: ignore[arg-type]
        for start, part in zip(_starts(lengths), parts):
            whole[start : start + part.nbytes] = part
        whole.release()
        self._buffers = []
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()
        self._memory.unlink()


_last: tuple[Place, Any, SharedMemory] | None = None


def looked_up(place: Place) -> Any:
    """The objects there, kept until others are asked for; arrays are not copied and cannot be written to."""
    global _last
    if _last is None or _last[0] != place:
        if _last is not None:
            memory, _last = _last[2], None
            with suppress(BufferError):  # somebody kept an array: the memory stays until the process ends
                memory.close()
        memory = SharedMemory(place.name)
        whole = memoryview(memory.buf).toreadonly()  # type: ignore[arg-type]
        views = [whole[start : start + length] for start, length in zip(_starts(place.lengths), place.lengths)]
        _last = (place, pickle.loads(views[0], buffers=views[1:]), memory)
    return _last[1]


def _starts(lengths: tuple[int, ...]) -> list[int]:
    """Where each part begins, and, last, how much room all of them need."""
    found = [0]
    for length in lengths:
        found.append(found[-1] + -(-length // _ALIGNMENT) * _ALIGNMENT)
    return found
