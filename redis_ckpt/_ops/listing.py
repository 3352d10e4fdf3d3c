"""list: pages of checkpoints, newest first.

A page flow answers an iterable that decodes as it is consumed, or None at the end; each colour has a short
loop around it. Without a filter a thread is listed whole page by whole page. With one, or over all threads,
bare records come first: they decide the order and the matches, and only the matches are fetched whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, Protocol, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from redis_ckpt import _scripts
from redis_ckpt._codec import same
from redis_ckpt._config import Target, target_of
from redis_ckpt._flow import Flow
from redis_ckpt._keys import US, listing_ranges, split_checkpoint_field, thread_keys
from redis_ckpt._ops import Store
from redis_ckpt._ops.blobs import Blobs
from redis_ckpt._ops.damage import of_thread, unreadable
from redis_ckpt._ops.previous import skip
from redis_ckpt._ops.read import Read, Stored, blobs_of, fetch, finished, read_record, sends_of_parents
from redis_ckpt._ops.threads import thread_ids
from redis_ckpt.errors import DamagedCheckpointError
from redis_ckpt.serde import new_copies

PAGE = 16  # whole checkpoints a page
BARE_PAGE = 64  # bare records a page; in a list of many threads they share BARE_TOTAL
BARE_TOTAL = 4096

T_co = TypeVar("T_co", covariant=True)


class Pages(Protocol[T_co]):
    """What both colours loop over."""

    def next_page(self) -> Flow[Iterable[T_co] | None]:
        """The next page, or None at the end."""
        ...


def listing(
    store: Store,
    config: RunnableConfig | None,
    filter: Mapping[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> Pages[CheckpointTuple]:
    """The pages of a `list`.

    Raises:
        ValueError: The limit is negative, or the config names no thread.
        TypeError: An argument is of a wrong type.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ValueError(f"limit must be a number of checkpoints from 0 on, or None, not {limit!r}")
    before_id = str((before or {}).get("configurable", {}).get("checkpoint_id") or "")
    if not config:
        return _Matches(store, None, before_id, filter, limit)
    target = target_of(config)
    ns = config["configurable"].get("checkpoint_ns")
    lane = _Lane(
        target.thread_id,
        None if ns is None else str(ns),
        before_id,
        target.checkpoint_id or None,
        store.expiry.read(config),
    )
    if filter:
        return _Matches(store, lane, before_id, filter, limit)
    return _Whole(store, lane, limit)


class _Lane:
    """The walk along one thread, and the bare records that are read already."""

    def __init__(
        self, thread_id: str, ns: str | None, before_id: str, exact_id: str | None = None, idle_ms: int | None = None
    ) -> None:
        self.thread_id = thread_id
        self.ns = ns
        self.exact_id = exact_id
        self.idle_ms = idle_ms  # reading counts as use
        self.below: tuple[str, str] | None = (before_id, "") if before_id else None
        self.ahead: list[Stored] = []  # the next one last
        self.ended = False

    def call(self, prefix: bytes, size: int, bare: bool) -> Any:
        """The call that reads on from here."""
        own, others = listing_ranges(self.ns, self.below, self.exact_id)
        return _scripts.list_page(thread_keys(prefix, self.thread_id), size, bare, own, others, self.idle_ms)

    def take(self, reply: list[Any], size: int) -> list[Stored]:
        """The checkpoints of a reply; moves on behind them."""
        try:
            page = _parse(self.thread_id, reply)
            self.ended = len(page) < size
            if page:
                ns, checkpoint_id = split_checkpoint_field(page[-1].field)
                self.below = checkpoint_id, ns
        except Exception as error:
            raise unreadable(Target(self.thread_id, "", ""), "its order", error) from error
        return page

    def __lt__(self, other: _Lane) -> bool:
        return self.key() > other.key()  # heapq gives the least first, a list the newest

    def key(self) -> bytes:
        """Where the next record stands in the order of all: by id, then by namespace."""
        ns, _, checkpoint_id = self.ahead[-1].field.partition(US)
        return checkpoint_id + US + ns


def _parse(thread_id: str, reply: list[Any]) -> list[Stored]:
    intact, count = bool(reply[0]), reply[1]
    items: list[tuple[bytes, bytes | None, list[tuple[bytes, bytes | None]]]] = []
    at = 2
    for _ in range(count):
        field, record, writes = reply[at : at + 3]
        at += 3
        flat = reply[at : at + 2 * writes]
        at += 2 * writes
        items.append((field, record, list(zip(flat[::2], flat[1::2], strict=True))))
    records: dict[bytes, dict[bytes, bytes | None]] = {}
    for name, record in zip(reply[at::2], reply[at + 1 :: 2], strict=True):
        ns, _, ref = name.partition(US)
        records.setdefault(ns, {})[ref] = record
    blobs = {ns: Blobs(found, thread_id, is_page=True) for ns, found in records.items()}
    none = Blobs({}, thread_id)
    return [
        Stored(field, record, intact, blobs.get(field.partition(US)[0], none), writes)
        for field, record, writes in items
    ]


def _finish_all(store: Store, reads: list[Read], sends: list[list[Any] | None]) -> Iterator[CheckpointTuple]:
    copies = new_copies(inf)  # for as long as the page is read: its versions of a chat repeat their messages
    for read, each in zip(reads, sends, strict=True):
        try:
            found = finished(store, read, each, blobs_of(read), copies)
        except DamagedCheckpointError as error:
            if not store.guards.skips_damage:
                raise
            skip(store, error)
        else:
            yield found


def _readable(store: Store, thread_id: str, stored: Stored) -> Read | None:
    """The record read; None if it is damaged and passed over."""
    try:
        return read_record(store.serde, thread_id, stored)
    except DamagedCheckpointError as error:
        if not store.guards.skips_damage:
            raise
        skip(store, error)
        return None


class _Whole:
    """One thread without a filter: each page holds everything. One round trip a page."""

    def __init__(self, store: Store, lane: _Lane, limit: int | None) -> None:
        self._store, self._lane, self._left = store, lane, limit

    def next_page(self) -> Flow[Iterable[CheckpointTuple] | None]:
        return of_thread(self._lane.thread_id, self._next_page())

    def _next_page(self) -> Flow[Iterable[CheckpointTuple] | None]:
        size = PAGE if self._left is None else min(PAGE, self._left)
        if self._lane.ended or size == 0:
            return None
        replies = yield [self._lane.call(self._store.prefix, size, bare=False)]
        page = self._lane.take(replies[0], size)
        reads = [r for s in page if (r := _readable(self._store, self._lane.thread_id, s)) is not None]
        sends = yield from sends_of_parents(self._store, reads)
        found: Iterable[CheckpointTuple] = _finish_all(self._store, reads, sends)
        if self._store.guards.skips_damage:
            found = list(found)
            page = page[: len(found)]  # those that were passed over do not count
        if self._left is not None:
            self._left -= len(page)
        return found


class _Matches:
    """One thread with a filter, or all threads: bare records first, then the matches, PAGE at a time."""

    def __init__(
        self,
        store: Store,
        lane: _Lane | None,
        before_id: str,
        filter: Mapping[str, Any] | None,
        limit: int | None,
    ) -> None:
        self._store = store
        self._filter, self._left = filter or {}, limit
        self._before_id = before_id
        self._lanes: list[_Lane] | None = None if lane is None else [lane]  # a heap; None: threads still unknown
        # A short list over a long thread begins with a short page.
        self._size = BARE_PAGE if limit is None else min(BARE_PAGE, max(PAGE, limit))
        self._begun = False

    def next_page(self) -> Flow[Iterable[CheckpointTuple] | None]:
        if not self._begun and self._left != 0:
            yield from self._begin()
        while self._left != 0 and (matches := (yield from self._next_matches())):
            whole = yield from fetch(self._store.prefix, [read.target for read in matches])
            # what was deleted or replaced meanwhile does not count
            reads = [
                read
                for match, stored in zip(matches, whole, strict=True)
                if stored is not None
                and (read := _readable(self._store, match.target.thread_id, stored)) is not None
                and self._is_match(read.record.metadata)
            ]
            sends = yield from sends_of_parents(self._store, reads)
            found: Iterable[CheckpointTuple] = _finish_all(self._store, reads, sends)
            if self._store.guards.skips_damage:
                found = list(found)
                reads = reads[: len(found)]
            if self._left is not None:
                self._left -= len(reads)
            if reads:
                return found
        return None

    def _next_matches(self) -> Flow[list[Read]]:
        """The next records that match, as many as a page holds; none at the end."""
        most = PAGE if self._left is None else min(PAGE, self._left)
        matches: list[Read] = []
        while len(matches) < most and self._lanes:
            lane = self._lanes[0]
            stored = lane.ahead.pop()
            read = _readable(self._store, lane.thread_id, stored)
            if read is not None and self._is_match(read.record.metadata):
                matches.append(read)
            if not lane.ahead and not lane.ended:
                yield from self._fill([lane])
            if lane.ahead:
                heapq.heapreplace(self._lanes, lane)
            else:
                heapq.heappop(self._lanes)
        return matches

    def _begin(self) -> Flow[None]:
        self._begun = True
        if self._lanes is None:
            found = yield from thread_ids(self._store.prefix)
            self._lanes = [_Lane(thread_id, None, self._before_id) for thread_id in found]
            self._size = max(1, min(self._size, BARE_TOTAL // max(1, len(found))))
        for start in range(0, len(self._lanes), BARE_PAGE):
            yield from self._fill(self._lanes[start : start + BARE_PAGE])
        self._size = max(1, min(BARE_PAGE, BARE_TOTAL // max(1, len(self._lanes))))
        self._lanes = [lane for lane in self._lanes if lane.ahead]
        heapq.heapify(self._lanes)

    def _fill(self, lanes: list[_Lane]) -> Flow[None]:
        replies = yield [lane.call(self._store.prefix, self._size, bare=True) for lane in lanes]
        for lane, reply in zip(lanes, replies, strict=True):
            lane.ahead = lane.take(reply, self._size)[::-1]

    def _is_match(self, metadata: Mapping[str, Any]) -> bool:
        # as InMemorySaver: a key that is missing equals None
        return all(same(metadata.get(key), value) for key, value in self._filter.items())
