"""threads: what is stored, thread by thread."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple
from uuid import UUID

from redis_ckpt import _scripts
from redis_ckpt._flow import Flow, Scan
from redis_ckpt._keys import US, orders_pattern, thread_keys, thread_of_order_key, unquote

SCAN_COUNT = 500
NAMESPACES_PAGE = 200
GREGORIAN = datetime(1582, 10, 15, tzinfo=timezone.utc)  # where the clock of a UUID of version 1 or 6 begins


class ThreadInfo(NamedTuple):
    """A thread as `threads()` tells of it.

    Attributes:
        thread_id: Its id.
        namespaces: Its namespaces, in the order of their bytes; "" is the root.
        checkpoints: How many checkpoints it has, over all namespaces.
        newest_id: The greatest checkpoint id over all namespaces.
        newest_at: When that one was made, if its id is a UUIDv6; else None.
        deadline: When the thread expires, by this machine's clock; None if it stays.
    """

    thread_id: str
    namespaces: tuple[str, ...]
    checkpoints: int
    newest_id: str
    newest_at: datetime | None
    deadline: datetime | None


def thread_ids(prefix: bytes) -> Flow[list[str]]:
    """The ids of all threads that have checkpoints. A walk over the keys of the server, in pages."""
    walk = _Walk(prefix)
    found: list[str] = []
    while (page := (yield from walk.next_ids())) is not None:
        found += page
    return found


class _Walk:
    """A SCAN over the threads' order keys. A SCAN may answer a key twice; this does not."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._seen: set[str] = set()
        self._scan: Scan | None = Scan(None, orders_pattern(prefix), SCAN_COUNT)

    def next_ids(self) -> Flow[list[str] | None]:
        if self._scan is None:
            return None
        ((cursor, keys),) = yield [self._scan]
        self._scan = None if cursor is None else self._scan._replace(cursor=cursor)
        ids = [thread_of_order_key(self._prefix, key) for key in keys]
        fresh = [i for i in dict.fromkeys(ids) if i is not None and i not in self._seen]
        self._seen.update(fresh)
        return fresh


class Threads:
    """The pages of `threads()`."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._walk = _Walk(prefix)

    def next_page(self) -> Flow[Iterable[ThreadInfo] | None]:
        """One page of the walk, with one more round trip for what its threads hold."""
        page = yield from self._walk.next_ids()
        if page is None or not page:
            return None if page is None else ()
        replies = yield [_scripts.thread_info(thread_keys(self._prefix, t), b"", NAMESPACES_PAGE) for t in page]
        infos = []
        for thread_id, reply in zip(page, replies, strict=True):
            if reply[0] > 0:  # not deleted meanwhile
                namespaces = yield from self._all_namespaces(thread_id, reply[4:])
                infos.append(_info(thread_id, reply, namespaces))
        return infos

    def _all_namespaces(self, thread_id: str, found: list[bytes]) -> Flow[list[bytes]]:
        page = found
        while len(page) == NAMESPACES_PAGE:
            replies = yield [_scripts.thread_info(thread_keys(self._prefix, thread_id), page[-1], NAMESPACES_PAGE)]
            page = replies[0][4:]
            found = found + page
        return found


def _info(thread_id: str, reply: list[Any], namespaces: list[bytes]) -> ThreadInfo:
    count, ms_to_live, root_top, other_top = reply[:4]
    newest_id = unquote(max(root_top, other_top))
    deadline = None
    if ms_to_live >= 0:
        deadline = datetime.now(timezone.utc) + timedelta(milliseconds=ms_to_live)
    return ThreadInfo(
        thread_id,
        tuple(unquote(ns.removesuffix(US)) for ns in namespaces),
        count,
        newest_id,
        made_at(newest_id),
        deadline,
    )


def made_at(checkpoint_id: str) -> datetime | None:
    """The time in a UUIDv6, or None for other ids."""
    try:
        uuid = UUID(checkpoint_id)
        if uuid.version != 6:
            return None
        ticks = (uuid.int >> 80) << 12 | (uuid.int >> 64) & 0xFFF  # 100 ns each, most significant first
        return GREGORIAN + timedelta(microseconds=ticks // 10)
    except (ValueError, OverflowError):
        return None
