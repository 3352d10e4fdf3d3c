"""expire and persist: an idle time of one thread's own, and the pin."""

from __future__ import annotations

from datetime import timedelta

from redis_ckpt import _scripts
from redis_ckpt._config import thread_text
from redis_ckpt._expiry import FOREVER_MS, TTL, idle_ms_of
from redis_ckpt._flow import Flow
from redis_ckpt._keys import thread_keys
from redis_ckpt._ops import Store


def expire(store: Store, thread_id: str, ttl: float | timedelta | TTL | None) -> Flow[bool]:
    """Give a thread its own idle time, or take it back. One round trip."""
    if isinstance(ttl, TTL):
        if ttl.refresh_on_read:
            raise ValueError("a thread's own ttl cannot say refresh_on_read: whether reads count, each saver decides")
        own: int | None = ttl.idle_ms
    else:
        own = None if ttl is None else idle_ms_of(ttl, "ttl", ", a TTL or None")
    return (yield from _set(store, thread_id, own))


def persist(store: Store, thread_id: str) -> Flow[bool]:
    """Pin a thread. One round trip."""
    return (yield from _set(store, thread_id, FOREVER_MS))


def _set(store: Store, thread_id: str, own: int | None) -> Flow[bool]:
    keys = thread_keys(store.prefix, thread_text(thread_id))
    replies = yield [_scripts.expire(keys, own, store.expiry.idle_ms)]
    return bool(replies[0])
