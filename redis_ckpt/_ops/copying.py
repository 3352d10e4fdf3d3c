"""copy_thread: on the server where both threads live on one, else through the client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from redis_ckpt import _scripts
from redis_ckpt._config import thread_text
from redis_ckpt._flow import Flow, Plain
from redis_ckpt._keys import ThreadKeys, quote, run_key, staging_keys, thread_keys, unquote
from redis_ckpt._ops import Store
from redis_ckpt._ops.planning import read_thread
from redis_ckpt.errors import CheckpointerError

CHUNK = 200  # fields or members moved a time
MOST_TRIES = 20
STAGING_MS = 3600 * 1000


def copy_thread(store: Store, source_id: str, target_id: str) -> Flow[None]:
    """Copy a thread, all namespaces and writes. A source without checkpoints is left alone."""
    source, target = thread_text(source_id), thread_text(target_id)
    if source == target:
        raise ValueError(f"cannot copy thread {source!r} onto itself")
    keys = thread_keys(store.prefix, source), thread_keys(store.prefix, target)
    try:
        replies = yield [_scripts.copy(*keys, store.expiry.idle_ms)]
        outcome = replies[0]
    except Exception as error:
        if not _is_cross_slot(error):
            raise
        outcome = yield from _move(*keys, store.expiry.idle_ms)
    if outcome == -1:
        raise ValueError(f"cannot copy onto thread {target!r}: it has checkpoints. Nothing was written.")
    if outcome == 1:
        yield from _note_runs(store.prefix, target)


def _is_cross_slot(error: Exception) -> bool:
    # said by the server, or before that by a cluster client
    text = str(error)
    return "CROSSSLOT" in text or "same slot" in text or "same key slot" in text


def _note_runs(prefix: bytes, target: str) -> Flow[None]:
    """Name the copy in the keys of the runs that it holds checkpoints of, where these keys are still there."""
    thread = yield from read_thread(prefix, target)
    runs = {header.run for header in thread.headers.values()} if thread else set()
    calls = [
        _scripts.note_run(run_key(prefix, unquote(run)), quote(target), only_old=True) for run in sorted(runs) if run
    ]
    for start in range(0, len(calls), CHUNK):
        yield list(calls[start : start + CHUNK])


def _move(source: ThreadKeys, target: ThreadKeys, idle_ms: int) -> Flow[int]:
    """Copy page by page to keys of no thread beside the target's, then to the target, at once.

    If this process ends on the way, those keys expire.
    """
    staging = staging_keys(target)
    outcome: int | None = None
    for _ in range(MOST_TRIES):
        before = yield from _epoch(source)
        if before is None:
            outcome = 0
            break
        yield [Plain(("UNLINK", *staging))]
        for key, to in zip(source[:3], staging[:3], strict=True):
            yield from _move_hash(key, to)
        for key, to in zip(source[3:], staging[3:], strict=True):
            yield from _move_names(key, to)
        if (yield from _epoch(source)) == before:
            replies = yield [_scripts.copy(staging, target, idle_ms)]
            outcome = int(replies[0])
            break
    yield [Plain(("UNLINK", *staging))]
    if outcome is None:
        raise CheckpointerError("the source thread changed all the time while it was copied: nothing was copied")
    return outcome


def _epoch(keys: ThreadKeys) -> Flow[Any]:
    """What tells whether a thread has changed, its writes included."""
    epoch, writes = yield [
        Plain(("HGET", keys.checkpoints, "epoch")),
        Plain(("HLEN", keys.writes)),
    ]
    return None if epoch is None else (epoch, writes)


def _move_hash(key: bytes, to: bytes) -> Flow[None]:
    cursor: int | bytes = 0
    while True:
        (reply,) = yield [Plain(("HSCAN", key, cursor, "COUNT", CHUNK))]
        cursor, fields = reply
        flat = [part for pair in fields.items() for part in pair] if isinstance(fields, dict) else fields
        for chunk in _chunks(flat):
            yield [Plain(("HSET", to, *chunk)), Plain(("PEXPIRE", to, STAGING_MS))]
        if int(cursor) == 0:
            return


def _move_names(key: bytes, to: bytes) -> Flow[None]:
    after = b"-"
    while True:
        (names,) = yield [Plain(("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, CHUNK))]
        if names:
            pairs = [part for name in names for part in (0, name)]
            yield [Plain(("ZADD", to, *pairs)), Plain(("PEXPIRE", to, STAGING_MS))]
        if len(names) < CHUNK:
            return
        after = b"(" + names[-1]


def _chunks(flat: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(flat), 2 * CHUNK):
        yield flat[start : start + 2 * CHUNK]
