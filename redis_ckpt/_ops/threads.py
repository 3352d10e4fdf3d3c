"""threads: what is stored, thread by thread."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from redis_ckpt import _scripts
from redis_ckpt._config import Target
from redis_ckpt._flow import Call, Flow, Scan
from redis_ckpt._keys import US, orders_pattern, thread_keys, thread_of_key, threads_pattern, unquote
from redis_ckpt._ops.ages import made_at
from redis_ckpt._ops.damage import of_thread, unreadable

SCAN_COUNT = 500
NAMESPACES_PAGE = 200


class ThreadInfo(NamedTuple):
    """A thread as `threads()` tells of it.

    Attributes:
        thread_id: Its id.
        namespaces: Its namespaces, in the order of their bytes; "" is the root.
        checkpoints: How many checkpoints it has, over all namespaces.
        newest_id: The greatest checkpoint id over all namespaces.
        newest_at: When that one was made, if its id is a UUIDv6; else None.
        deadline: When the thread expires if it is not used, by this machine's clock; None if it stays.
        idle: The idle time that it was given by `expire`; None if it has none of its own.
        pinned: Whether it was pinned by `persist`.
    """

    thread_id: str
    namespaces: tuple[str, ...]
    checkpoints: int
    newest_id: str
    newest_at: datetime | None
    deadline: datetime | None
    idle: timedelta | None = None
    pinned: bool = False


def thread_ids(prefix: bytes) -> Flow[list[str]]:
    """The ids of all threads that have checkpoints. A walk over the keys of the server, in pages."""
    walk = Walk(prefix)
    found: list[str] = []
    while (page := (yield from walk.next_ids())) is not None:
        found += page
    return found


class Walk:
    """A SCAN over the threads. A SCAN may answer a key twice; this does not.

    Args:
        prefix: What all keys begin with.
        strays: Also the threads that have nothing but writes without a checkpoint.
    """

    def __init__(self, prefix: bytes, strays: bool = False) -> None:
        self._prefix = prefix
        self._seen: set[str] = set()
        pattern = threads_pattern(prefix) if strays else orders_pattern(prefix)
        self._scan: Scan | None = Scan(None, pattern, SCAN_COUNT)

    def next_ids(self) -> Flow[list[str] | None]:
        """The ids of one page, or None at the end."""
        if self._scan is None:
            return None
        ((cursor, keys),) = yield [self._scan]
        self._scan = None if cursor is None else self._scan._replace(cursor=cursor)
        ids = [thread_of_key(self._prefix, key) for key in keys]
        fresh = [i for i in dict.fromkeys(ids) if i is not None and i not in self._seen]
        self._seen.update(fresh)
        return fresh


class Threads:
    """The pages of `threads()`."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._walk = Walk(prefix)

    def next_page(self) -> Flow[Iterable[ThreadInfo] | None]:
        """One page of the walk, with one more round trip for what its threads hold."""
        page = yield from self._walk.next_ids()
        if page is None or not page:
            return None if page is None else ()
        calls = {t: _scripts.thread_info(thread_keys(self._prefix, t), b"", NAMESPACES_PAGE) for t in page}
        try:
            replies = yield [*calls.values()]
        except Exception:  # one is damaged: which?
            replies = []
            for thread_id, call in calls.items():
                replies += yield from of_thread(thread_id, _asked(call))
        infos = []
        for thread_id, reply in zip(page, replies, strict=True):
            info = yield from of_thread(thread_id, self._info(thread_id, reply))
            if info is not None:
                infos.append(info)
        return infos

    def _info(self, thread_id: str, reply: list[Any]) -> Flow[ThreadInfo | None]:
        if reply[0] <= 0:  # deleted meanwhile
            return None
        namespaces = yield from self._all_namespaces(thread_id, reply[5:])
        try:
            return _info(thread_id, reply, namespaces)
        except Exception as error:
            raise unreadable(Target(thread_id, "", ""), "its order", error) from error

    def _all_namespaces(self, thread_id: str, found: list[bytes]) -> Flow[list[bytes]]:
        page = found
        while len(page) == NAMESPACES_PAGE:
            replies = yield [_scripts.thread_info(thread_keys(self._prefix, thread_id), page[-1], NAMESPACES_PAGE)]
            page = replies[0][5:]
            found = found + page
        return found


def _asked(call: Call) -> Flow[list[Any]]:
    return (yield [call])


def _info(thread_id: str, reply: list[Any], namespaces: list[bytes]) -> ThreadInfo:
    count, ms_to_live, idle, root_top, other_top = reply[:5]
    newest_id = unquote(max(root_top, other_top))
    return ThreadInfo(
        thread_id,
        tuple(unquote(ns.removesuffix(US)) for ns in namespaces),
        count,
        newest_id,
        made_at(newest_id),
        deadline_of(ms_to_live),
        own_idle(idle),
        is_pinned(idle),
    )


def deadline_of(ms_to_live: int) -> datetime | None:
    """The deadline by this machine's clock, from a PTTL."""
    return datetime.now(timezone.utc) + timedelta(milliseconds=ms_to_live) if ms_to_live >= 0 else None


def own_idle(idle: bytes) -> timedelta | None:
    """A thread's own idle time, from what is stored of it."""
    return timedelta(milliseconds=int(idle)) if idle.isdigit() and not is_pinned(idle) else None


def is_pinned(idle: bytes) -> bool:
    """Whether what is stored of a thread's idle time pins it."""
    return idle == b"0"
