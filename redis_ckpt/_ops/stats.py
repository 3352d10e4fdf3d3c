"""stats: how much a thread holds, and all threads together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from redis_ckpt import _scripts, policies
from redis_ckpt._config import thread_text
from redis_ckpt._flow import Flow, Plain
from redis_ckpt._keys import US, ThreadKeys, thread_keys, unquote
from redis_ckpt._ops import Store
from redis_ckpt._ops.ages import Ages
from redis_ckpt._ops.damage import of_thread
from redis_ckpt._ops.planning import read_thread
from redis_ckpt._ops.threads import Walk, deadline_of, is_pinned, own_idle
from redis_ckpt.errors import CheckpointerError

NAMES_A_TRIP = 250
CHECKPOINTS, BLOBS, WRITES = 1, 2, 3  # the hashes, as the script `sizes` counts them


@dataclass(frozen=True)
class Held:
    """How many there are, and the bytes of their names and values. The server's own overhead comes on top.

    Attributes:
        count: How many.
        bytes: How large, with their names.
    """

    count: int
    bytes: int

    def plus(self, other: Held) -> Held:
        """Both together."""
        return Held(self.count + other.count, self.bytes + other.bytes)


NONE = Held(0, 0)


@dataclass(frozen=True)
class NamespaceStats:
    """What one namespace of a thread holds.

    Attributes:
        checkpoints: Its checkpoints.
        ancestors: What is left of checkpoints that were removed, for the delta channels of others.
        blobs: Its channel values.
        writes: Its pending writes, also those whose checkpoint is not there.
        oldest_id: The smallest checkpoint id; "" if there is none.
        newest_id: The greatest.
    """

    checkpoints: Held = NONE
    ancestors: Held = NONE
    blobs: Held = NONE
    writes: Held = NONE
    oldest_id: str = ""
    newest_id: str = ""


@dataclass(frozen=True)
class ThreadStats:
    """What a thread holds.

    Attributes:
        thread_id: Its id.
        namespaces: What each of its namespaces holds; "" is the root.
        checkpoints: Its checkpoints, over all namespaces.
        ancestors: What is left of checkpoints that were removed, for the delta channels of others.
        blobs: Its channel values.
        writes: Its pending writes.
        bytes: All four together.
        oldest_id: The smallest checkpoint id over all namespaces.
        oldest_at: When that one was made; None where neither its id nor its `ts` tells.
        newest_id: The greatest.
        newest_at: When that one was made.
        deadline: When the thread expires if it is not used, by this machine's clock; None if it stays.
        idle: The idle time that it was given by `expire`; None if it has none of its own.
        pinned: Whether it was pinned by `persist`.
    """

    thread_id: str
    namespaces: dict[str, NamespaceStats]
    checkpoints: Held
    ancestors: Held
    blobs: Held
    writes: Held
    bytes: int
    oldest_id: str
    oldest_at: datetime | None
    newest_id: str
    newest_at: datetime | None
    deadline: datetime | None
    idle: timedelta | None
    pinned: bool


@dataclass(frozen=True)
class TotalStats:
    """What all threads together hold.

    Attributes:
        threads: How many there are.
        expiring: How many of them have a deadline.
        pinned: How many are pinned.
        checkpoints: Their checkpoints.
        ancestors: What is left of checkpoints that were removed, for the delta channels of others.
        blobs: Their channel values.
        writes: Their pending writes.
        bytes: All four together.
        oldest_at: When the oldest checkpoint was made.
        newest_at: When the newest was.
        damaged: The ids of threads that cannot be read, such as have lost records; they are not counted.
    """

    threads: int = 0
    expiring: int = 0
    pinned: int = 0
    checkpoints: Held = NONE
    ancestors: Held = NONE
    blobs: Held = NONE
    writes: Held = NONE
    bytes: int = 0
    oldest_at: datetime | None = None
    newest_at: datetime | None = None
    damaged: tuple[str, ...] = ()


def thread_stats(store: Store, thread_id: str) -> Flow[ThreadStats | None]:
    """What a thread holds; None if it has no checkpoint. Not one atomic view."""
    thread_id = thread_text(thread_id)
    keys = thread_keys(store.prefix, thread_id)
    thread = yield from read_thread(store.prefix, thread_id)
    if thread is None or not thread.checkpoints:
        return None
    ((_, ms_to_live, *_),) = yield [_scripts.thread_info(keys, b"", 0)]
    namespaces = yield from _namespaces(keys, thread)
    if not namespaces:  # removed meanwhile
        return None
    ids = sorted(thread.checkpoints, key=policies.id_of)
    ages = Ages()
    yield from ages.ask(store, thread_id, [ids[0], ids[-1]])
    kinds = zip(*((n.checkpoints, n.ancestors, n.blobs, n.writes) for n in namespaces.values()), strict=True)
    checkpoints, ancestors, blobs, writes = map(_sum, kinds)
    return ThreadStats(
        thread_id,
        namespaces,
        checkpoints,
        ancestors,
        blobs,
        writes,
        checkpoints.bytes + ancestors.bytes + blobs.bytes + writes.bytes,
        unquote(policies.id_of(ids[0])),
        ages.at(ids[0]),
        unquote(policies.id_of(ids[-1])),
        ages.at(ids[-1]),
        deadline_of(ms_to_live),
        own_idle(thread.idle),
        is_pinned(thread.idle),
    )


def total_stats(store: Store) -> Flow[TotalStats]:
    """What all threads hold: a walk over the keys of the server, and each thread in turn."""
    walk, total, damaged = Walk(store.prefix), TotalStats(), []
    while (page := (yield from walk.next_ids())) is not None:
        for thread_id in page:
            try:
                found = yield from of_thread(thread_id, thread_stats(store, thread_id))
            except CheckpointerError:
                damaged.append(thread_id)
            else:
                total = total if found is None else _added(total, found)
    return TotalStats(**{**vars(total), "damaged": tuple(damaged)})


def _added(total: TotalStats, found: ThreadStats) -> TotalStats:
    return TotalStats(
        total.threads + 1,
        total.expiring + (found.deadline is not None),
        total.pinned + found.pinned,
        total.checkpoints.plus(found.checkpoints),
        total.ancestors.plus(found.ancestors),
        total.blobs.plus(found.blobs),
        total.writes.plus(found.writes),
        total.bytes + found.bytes,
        min((at for at in (total.oldest_at, found.oldest_at) if at is not None), default=None),
        max((at for at in (total.newest_at, found.newest_at) if at is not None), default=None),
    )


def _sum(parts: Iterable[Held]) -> Held:
    total = NONE
    for part in parts:
        total = total.plus(part)
    return total


def _namespaces(keys: ThreadKeys, thread: policies.Thread) -> Flow[dict[str, NamespaceStats]]:
    blob_names = {blob for name, header in thread.headers.items() for blob in policies.blob_fields(name, header)}
    blobs = yield from _held(keys, BLOBS, policies.with_bases(blob_names | thread.orphans, thread.bases), _once)
    checkpoints = yield from _held(keys, CHECKPOINTS, thread.checkpoints, _in_order)
    ancestors = yield from _held(keys, CHECKPOINTS, thread.ancestors, _as_ancestor)
    writes = yield from _writes(keys)
    ids: dict[bytes, list[bytes]] = {}
    for name in thread.checkpoints:
        ns, checkpoint_id = policies.split(name)
        ids.setdefault(ns, []).append(checkpoint_id)
    return {
        unquote(ns): NamespaceStats(
            checkpoints.get(ns, NONE),
            ancestors.get(ns, NONE),
            blobs.get(ns, NONE),
            writes.get(ns, NONE),
            unquote(min(ids.get(ns, [b""]))),
            unquote(max(ids.get(ns, [b""]))),
        )
        for ns in sorted({*checkpoints, *ancestors, *blobs, *writes})
    }


# How many bytes the names of one entry take, over all keys that hold it: as the script `forget` counts them.


def _once(name: bytes) -> int:
    return len(name)


def _twice(name: bytes) -> int:
    return 2 * len(name)


def _in_order(name: bytes) -> int:
    return 2 * len(name) if name.startswith(US) else 3 * len(name) + 1


def _as_ancestor(name: bytes) -> int:
    return 2 * len(name) + 1


def _held(
    keys: ThreadKeys, part: int, names: Collection[bytes], size_of: Callable[[bytes], int]
) -> Flow[dict[bytes, Held]]:
    held: dict[bytes, Held] = {}
    for page in _pages(sorted(names)):
        (sizes,) = yield [_scripts.sizes(keys, part, page)]
        _add(held, zip(page, sizes, strict=True), size_of)
    return held


def _writes(keys: ThreadKeys) -> Flow[dict[bytes, Held]]:
    held: dict[bytes, Held] = {}
    low = b"-"
    while True:
        (names,) = yield [Plain(("ZRANGEBYLEX", keys.pending, low, "+", "LIMIT", 0, NAMES_A_TRIP))]
        if names:
            (sizes,) = yield [_scripts.sizes(keys, WRITES, names)]
            _add(held, zip(names, sizes, strict=True), _twice)
        if len(names) < NAMES_A_TRIP:
            return held
        low = b"(" + names[-1]


def _add(held: dict[bytes, Held], sizes: Iterable[tuple[bytes, int]], size_of: Callable[[bytes], int]) -> None:
    for name, size in sizes:
        if size:  # else it went meanwhile
            ns = name.partition(US)[0]
            held[ns] = held.get(ns, NONE).plus(Held(1, size + size_of(name)))


def _pages(names: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(names), NAMES_A_TRIP):
        yield names[start : start + NAMES_A_TRIP]
