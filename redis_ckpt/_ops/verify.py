"""verify: a walk over all of a thread that reports what is missing or cannot be read. It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis_ckpt import _scripts, policies
from redis_ckpt._config import Target, thread_text
from redis_ckpt._flow import Command, Flow, Plain
from redis_ckpt._keys import (
    GS,
    MARK,
    US,
    ThreadKeys,
    field_of_member,
    quote,
    split_checkpoint_field,
    thread_keys,
    unquote,
)
from redis_ckpt._ops import Store
from redis_ckpt._ops.damage import of_thread, told
from redis_ckpt._ops.planning import read_thread
from redis_ckpt._ops.read import blobs_of, fetch, finished, read_record, sends_of_parents
from redis_ckpt.errors import CheckpointerError, DamagedCheckpointError

MEMBERS_A_TRIP, FIELDS_A_TRIP = 250, 100
TYPES = {"checkpoints": b"hash", "blobs": b"hash", "writes": b"hash", "order": b"zset", "pending": b"zset"}
SAME_DEADLINE_MS = 1000  # the keys are asked one after another
BLOBS = 2  # the place of the hash among the keys


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong with a thread.

    Attributes:
        checkpoint_ns: The namespace; `""` also where it is about all of the thread.
        checkpoint_id: The checkpoint; `""` where it is about none, or about the thread.
        part: `"key"`, `"record"`, `"order"`, `"values"`, `"writes"`, `"parent"`, `"deadline"` or `"epoch"`.
        what: What is wrong with it.
    """

    checkpoint_ns: str
    checkpoint_id: str
    part: str
    what: str


@dataclass(frozen=True)
class ThreadReport:
    """What `verify` has found.

    Attributes:
        thread_id: The thread.
        namespaces: How many namespaces it has.
        checkpoints: How many checkpoints were read, with their values and writes.
        ancestors: What is left of checkpoints that were removed, for the delta channels of others.
        values: How many values were read.
        writes: How many pending writes were read.
        unreferenced: How many stored values nothing refers to: the next prune takes those that it knows of.
        problems: What is wrong, in the order of the namespaces.
    """

    thread_id: str
    namespaces: int = 0
    checkpoints: int = 0
    ancestors: int = 0
    values: int = 0
    writes: int = 0
    unreferenced: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(store: Store, thread_id: str) -> Flow[ThreadReport | None]:
    """Look at all of a thread; None if it has no key. What looks wrong is looked at once more: it may be written to."""
    thread_id = thread_text(thread_id)
    report = yield from of_thread(thread_id, _Look(store, thread_id).report())
    if report is None or report.ok:
        return report
    again = yield from of_thread(thread_id, _Look(store, thread_id).report())
    if again is None:
        return None
    both = sorted(set(report.problems) & set(again.problems))
    return ThreadReport(**{**vars(again), "problems": tuple(both)})


@dataclass
class _Look:
    """One look at a thread."""

    store: Store
    thread_id: str
    problems: set[Problem] = field(default_factory=set)
    fields: dict[bytes, bool] = field(default_factory=dict)  # of the order: whether it is an ancestor
    values: int = 0
    writes: int = 0
    checkpoints: int = 0

    def report(self) -> Flow[ThreadReport | None]:
        keys = thread_keys(self.store.prefix, self.thread_id)
        there = yield from self._keys(keys)
        if not there:
            return None
        if {"checkpoints", "order"} <= there:
            yield from self._order(keys)
            yield from self._records(keys)
        if {"writes", "pending"} <= there:
            yield from self._names_of_writes(keys)
        for page in _pages([f for f, is_ancestor in self.fields.items() if not is_ancestor], 16):
            yield from self._whole(page)
        unreferenced = yield from self._unreferenced(keys)
        return ThreadReport(
            self.thread_id,
            len({f.partition(US)[0] for f in self.fields}),
            self.checkpoints,
            sum(self.fields.values()),
            self.values,
            self.writes,
            unreferenced,
            tuple(sorted(self.problems)),
        )

    def _add(self, part: str, what: str, ns: str = "", checkpoint_id: str = "") -> None:
        self.problems.add(Problem(ns, checkpoint_id, part, what))

    def _keys(self, keys: ThreadKeys) -> Flow[set[str]]:
        """The keys that are there and of the right type."""
        asked: list[Command] = [Plain((command, key)) for key in keys for command in ("TYPE", "PTTL")]
        replies = yield asked
        kinds = dict(zip(TYPES, replies[::2], strict=True))
        there = {name for name, kind in kinds.items() if _bytes(kind) != b"none"}
        for name in there:
            if _bytes(kinds[name]) != TYPES[name]:
                self._add("key", f"{name} is a {_bytes(kinds[name]).decode()} and no {TYPES[name].decode()}")
        if ("checkpoints" in there) != ("order" in there):
            self._add("key", f"{'order' if 'checkpoints' in there else 'checkpoints'} is missing")
        if ("writes" in there) != ("pending" in there):
            self._add("key", f"{'pending' if 'writes' in there else 'writes'} is missing")
        left = {name: ms for name, ms in zip(TYPES, replies[1::2], strict=True) if name in there}
        last = max((float("inf") if ms < 0 else ms for ms in left.values()), default=0)
        early = sorted(name for name, ms in left.items() if ms >= 0 and last - ms > SAME_DEADLINE_MS)
        if early:
            self._add("deadline", f"the keys do not expire together: {', '.join(early)} before the others")
        return {name for name in there if _bytes(kinds[name]) == TYPES[name]}

    def _order(self, keys: ThreadKeys) -> Flow[None]:
        marks: set[bytes] = set()
        low: bytes = b"-"
        while True:
            (page,) = yield [Plain(("ZRANGEBYLEX", keys.order, low, "+", "LIMIT", 0, MEMBERS_A_TRIP))]
            for member in page:
                try:
                    name = field_of_member(member)
                    split_checkpoint_field(name)
                except (ValueError, UnicodeError):
                    self._add("order", f"{member[:80]!r} is no place of a checkpoint")
                    continue
                if member.startswith(MARK):
                    marks.add(name)
                else:
                    self.fields[name] = member.startswith(GS)
            if len(page) < MEMBERS_A_TRIP:
                break
            low = b"(" + page[-1]
        plain = {f for f, is_ancestor in self.fields.items() if not is_ancestor and not f.startswith(US)}
        for name in sorted(marks ^ plain):
            self._add("order", "one of its two places in the order is missing", *split_checkpoint_field(name))

    def _records(self, keys: ThreadKeys) -> Flow[None]:
        """Records and places must belong together."""
        found: set[bytes] = set()
        has_epoch, cursor = False, 0
        while True:
            ((cursor, pairs),) = yield [Plain(("HSCAN", keys.checkpoints, cursor, "COUNT", FIELDS_A_TRIP))]
            for name in pairs if isinstance(pairs, dict) else pairs[::2]:
                found.add(name)
            if int(cursor) == 0:
                break
        has_epoch = b"epoch" in found
        records = {name for name in found if US in name}
        if not has_epoch:
            self._add("epoch", "the count of changes is missing")
        for name in sorted(self.fields.keys() - records):
            self._add("record", "its record is missing", *_named(name))
        for name in sorted(records - self.fields.keys()):
            self._add("order", "it has a record, but no place in the order", *_named(name))

    def _names_of_writes(self, keys: ThreadKeys) -> Flow[None]:
        listed: set[bytes] = set()
        low: bytes = b"-"
        while True:
            (page,) = yield [Plain(("ZRANGEBYLEX", keys.pending, low, "+", "LIMIT", 0, MEMBERS_A_TRIP))]
            listed.update(page)
            if len(page) < MEMBERS_A_TRIP:
                break
            low = b"(" + page[-1]
        stored: set[bytes] = set()
        cursor = 0
        while True:
            ((cursor, pairs),) = yield [Plain(("HSCAN", keys.writes, cursor, "COUNT", FIELDS_A_TRIP))]
            stored.update(pairs if isinstance(pairs, dict) else pairs[::2])
            if int(cursor) == 0:
                break
        for name in sorted(listed ^ stored):
            what = "has no record" if name in listed else "is not listed"
            self._add("writes", f"the write {name.split(US)[-2:]} {what}", *_named(US.join(name.split(US)[:2])))

    def _whole(self, fields: Sequence[bytes]) -> Flow[None]:
        """Read checkpoints with all that they have."""
        for name in fields:
            target = Target(self.thread_id, *split_checkpoint_field(name))
            try:
                yield from told(target, self._read(target))
            except DamagedCheckpointError as error:
                names = ", ".join(map(repr, error.channels))
                part = "values" if error.channels else "record" if "record" in error.what else "writes"
                self._add(part, error.what + (f": {names}" if names else ""), *target[1:])
            except CheckpointerError as error:
                self._add("record", str(error), *target[1:])

    def _read(self, target: Target) -> Flow[None]:
        (stored,) = yield from fetch(self.store.prefix, [target])
        if stored is None or stored.record is None:  # told already, or removed meanwhile
            return
        read = read_record(self.store.serde, self.thread_id, stored)
        sends = yield from sends_of_parents(self.store, [read])
        found = finished(self.store, read, sends[0], blobs_of(read))
        self.checkpoints += 1
        self.values += len(found.checkpoint["channel_values"])
        self.writes += len(found.pending_writes or ())
        header = read.record.header
        without = set(map(unquote, header.deltas)) - found.checkpoint["channel_values"].keys()
        parent = quote(target.checkpoint_ns) + US + header.parent
        if header.parent and without and parent not in self.fields:
            channels = ", ".join(map(repr, sorted(without)))
            self._add("parent", f"its parent is not there, from which channels are rebuilt: {channels}", *target[1:])

    def _unreferenced(self, keys: ThreadKeys) -> Flow[int]:
        """How many blobs no record names; 0 where the records cannot be read."""
        try:
            thread = yield from read_thread(self.store.prefix, self.thread_id)
        except CheckpointerError:
            return 0
        if thread is None:
            return 0
        names = {blob for name, header in thread.headers.items() for blob in policies.blob_fields(name, header)}
        count = 0
        for page in _pages(sorted(policies.with_bases(names, thread.bases)), MEMBERS_A_TRIP):
            (sizes,) = yield [_scripts.sizes(keys, BLOBS, page)]
            count += sum(size > 0 for size in sizes)
        (stored,) = yield [Plain(("HLEN", keys.blobs))]
        return max(0, int(stored) - count)


def _bytes(reply: Any) -> bytes:
    return reply if isinstance(reply, bytes) else str(reply).encode()


def _named(name: bytes) -> tuple[str, str]:
    try:
        return split_checkpoint_field(name)
    except (ValueError, UnicodeError):
        return "", repr(name)


def _pages(items: Sequence[bytes], size: int) -> Iterator[list[bytes]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
