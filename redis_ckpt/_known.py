"""What a process knows of the values that it last read or wrote: their bytes, by thread, namespace and channel.

With them an append is sent and stored as what is new (`_delta`), and a read leaves out what is here already. Only
versions with a random part are known: such a version never comes twice with other bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from redis_ckpt import _delta
from redis_ckpt._delta import Delta, Shape
from redis_ckpt._process import at_fork
from redis_ckpt._versions import is_later

CACHE_BYTES = 64 * 2**20
LEAST_BYTES = 256  # smaller values cost less than what it takes to leave them out
ENTRY_BYTES = 900  # an entry beside its value, if it is the only one of its thread: names, places in dicts
MARK_BYTES = 320  # each mark of an earlier version; both measured on Python 3.11


class Mark(NamedTuple):
    """An earlier version of a value, of which the later one still begins with so many bytes.

    Attributes:
        version: As text, as it stands in names.
        number: Its place in the chain of deltas.
        size: Of its record, in bytes.
        length: Of its body, in bytes.
        usable: How many of them the later body begins with.
        head: What stands before its body.
    """

    version: bytes
    number: int
    size: int
    length: int
    usable: int
    head: bytes


class Known(NamedTuple):
    """The bytes of a value at one version, and which earlier ones they begin with."""

    kind: bytes  # the serialiser's type, quoted
    body: bytes  # behind the head, which the mark has
    mark: Mark
    marks: tuple[Mark, ...] = ()

    @property
    def data(self) -> bytes:
        """All bytes."""
        return self.mark.head + self.body

    @property
    def versions(self) -> list[bytes]:
        """Of which versions the whole value is here."""
        return [self.mark.version, *(m.version for m in self.marks if m.usable == m.length)]

    def at(self, version: bytes) -> Known | None:
        """What is known of an earlier version; None if not the whole of it."""
        if version == self.mark.version:
            return self
        for place, mark in enumerate(self.marks):
            if mark.version == version and mark.usable == mark.length:
                return Known(self.kind, self.body[: mark.length], mark, self.marks[place + 1 :])
        return None


def whole(kind: bytes, data: bytes, version: bytes, size: int) -> Known:
    """A value that is stored whole, by a record of `size` bytes."""
    head = _delta.head_length(kind, data)
    length = len(data) - head
    return Known(kind, data[head:], Mark(version, 0, size, length, length, data[:head]))


def marks_behind(known: Known, kept: int, wanted: Container[int] | None) -> tuple[Mark, ...]:
    """The marks of a value that begins with `kept` bytes of a known one: of these numbers, or of all."""
    return tuple(
        [
            mark if mark.usable <= kept else mark._replace(usable=kept)
            for mark in (known.mark, *known.marks)
            if wanted is None or mark.number in wanted
        ]
    )


def delta_for(known: Known, kind: bytes, data: bytes, version: bytes) -> tuple[bytes, Known] | None:
    """The record of a value as a delta of one that is known, and what is known then; None if it goes whole."""
    if known.kind != kind or not is_later(version, known.mark.version):
        return None
    head = _delta.head_length(kind, data)
    body, before = data[head:], known.body
    number = known.mark.number + 1
    wanted = _delta.base_number(number)
    base = next((m for m in (known.mark, *known.marks) if m.number == wanted), None)
    if base is None:
        return None
    shape = _delta.shape_on(before, head, body)
    kept = shape.kept_in_front
    if base is not known.mark:
        shape = Shape(head, min(kept, base.usable))
    new = data[: head + shape.lead] + body[shape.lead + shape.keep : len(body) - shape.suffix]
    if not _delta.is_worth_it(len(new), len(data)):
        return None
    check = _delta.check_of(before[shape.start : shape.start + shape.keep], before[len(before) - shape.suffix :])
    record = _delta.encode(Delta(kind, number, base.version, base.size, shape, check, new))
    mark = Mark(version, number, len(record), len(body), len(body), data[:head])
    return record, Known(kind, body, mark, marks_behind(known, kept, _delta.floors(number)))


class Link(NamedTuple):
    """One delta of a chain: of which version, by a record of how many bytes."""

    version: bytes
    size: int
    delta: Delta

    def mark(self, usable: int) -> Mark:
        """What is remembered of the version."""
        delta = self.delta
        length = delta.body_length
        return Mark(self.version, delta.number, self.size, length, min(length, usable), delta.new[: delta.shape.head])


def rebuilt(base: Known, chain: Sequence[Link], everything: bool = False) -> Known:
    """The value at the end of a chain.

    Args:
        base: What the first of the deltas is built on.
        chain: From the first delta to the one that is wanted.
        everything: Whether to mark all versions of the chain, not only those that can be the base of later ones.

    Raises:
        BrokenChainError: They do not fit together.
    """
    deltas = [link.delta for link in chain]
    if any(delta.kind != base.kind for delta in deltas):
        raise _delta.BrokenChainError("a base is of another type")
    body = _delta.rebuild(base.body, deltas)
    wanted = None if everything else _delta.floors(deltas[-1].number)
    marks: list[Mark] = []
    kept = len(body)
    for above, link in zip(reversed(chain), [*reversed(chain[:-1]), None], strict=True):
        kept = min(kept, above.delta.shape.kept_in_front)
        if link is not None and (wanted is None or link.delta.number in wanted):
            marks.append(link.mark(kept))
    mark = chain[-1].mark(len(body))
    return Known(base.kind, body, mark, (*marks, *marks_behind(base, kept, wanted)))


def checked_bytes(cache_bytes: int) -> int:
    """The argument `cache_bytes`.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is negative.
    """
    if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int):
        raise TypeError(f"cache_bytes must be a number of bytes, 0 for nothing, not {cache_bytes!r}")
    if cache_bytes < 0:
        raise ValueError(f"cache_bytes must be 0 or more, not {cache_bytes!r}")
    return cache_bytes


class Cache:
    """What is known, least recently used first; bounded in bytes. Threads may share it; a forked child begins anew."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.begin_in_child()
        at_fork(self)

    def begin_in_child(self) -> None:
        """Know nothing."""
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], dict[str, Known]] = OrderedDict()
        self.bytes = 0

    def get(self, thread_id: str, ns: str) -> dict[str, Known]:
        """What is known of a namespace, by channel. A dict of the caller's own."""
        with self._lock:
            held = self._entries.get((thread_id, ns))
            if held is None:
                return {}
            self._entries.move_to_end((thread_id, ns))
            return dict(held)

    def put(self, thread_id: str, ns: str, found: Mapping[str, Known | None]) -> None:
        """Remember values; what was known of their channels before is forgotten. None only forgets."""
        if not found:
            return
        with self._lock:
            held = self._entries.setdefault((thread_id, ns), {})
            self._entries.move_to_end((thread_id, ns))
            for channel, known in found.items():
                self._forget(held, channel)
                if (
                    known is not None and _size(known) <= self._most
                ):  # else it would drive out all others, and then itself
                    held[channel] = known
                    self.bytes += _size(known)
            if not held:
                del self._entries[thread_id, ns]
            while self.bytes > self._most:
                name, held = next(iter(self._entries.items()))
                self._forget(held, next(iter(held)))
                if not held:
                    del self._entries[name]

    def _forget(self, held: dict[str, Known], channel: str) -> None:
        known = held.pop(channel, None)
        if known is not None:
            self.bytes -= _size(known)


def _size(known: Known) -> int:
    return len(known.body) + ENTRY_BYTES + MARK_BYTES * len(known.marks)
